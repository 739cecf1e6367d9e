//! Messages come back from bytes, and no byte or message does harm.

use super::model::BOUNDS;
use crate::{Body, Configuration, Interval, Member, Message, Server, Settings};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_core::testing::{Generator, fuzz};
use proptest::prelude::*;

const SETTINGS: Settings = Settings {
    bounds: BOUNDS,
    lease_ns: 10_000_000,
    sync_ns: 1_000_000,
    resend_ns: 1_000_000,
    origin: 0,
};

/// Numbers near each other, so that messages fit together, and sometimes any.
fn number(random: &mut Generator) -> u64 {
    match random.below(8) {
        0 => random.next_u64(),
        1 => u64::MAX,
        _ => random.below(5) as u64,
    }
}

fn configuration(random: &mut Generator) -> Configuration {
    let member = |id: u128, random: &mut Generator| Member {
        id: Uid(id),
        since: number(random),
    };
    let ids = (1..5).filter(|_| random.below(4) > 0).collect::<Vec<_>>();
    Configuration {
        number: number(random),
        era: number(random),
        master: Uid(1 + random.below(4) as u128),
        members: ids.into_iter().map(|id| member(id, random)).collect(),
    }
}

fn message(random: &mut Generator) -> Message {
    let (mut number, asked) = (number(random), number(random));
    let time = self::number(random);
    let body = match random.below(9) {
        0 => {
            let configuration = configuration(random);
            number = configuration.number;
            Body::NewConfig {
                configuration,
                asked,
            }
        }
        1 => Body::NewConfigAck {
            forward: (time > 2).then_some(time),
            asked,
        },
        2 => Body::ConfigCommit,
        3 => Body::Advance { time, asked },
        4 => Body::AdvanceAck { asked },
        5 => Body::TimeRequest {
            sent: asked,
            is_committed: time.is_multiple_of(2),
        },
        6 => Body::Time {
            sent: asked,
            interval: Some(Interval {
                lower: time,
                upper: self::number(random),
            }),
            asked,
        },
        7 => Body::Grant { asked },
        _ => Body::Outdated,
    };
    Message { number, body }
}

#[test]
fn a_message_comes_back_and_no_damaged_one_does_harm() {
    let mut random = Generator::new(1);
    let messages: Vec<Message> = (0..100).map(|_| message(&mut random)).collect();
    for message in &messages {
        let bytes = message.to_bytes();
        assert_eq!(Message::from_bytes(bytes.clone()).as_ref(), Some(message));
        for cut in 0..bytes.len() {
            assert_eq!(Message::from_bytes(bytes.slice(..cut)), None);
        }
    }
    let corpus = messages.iter().map(|m| m.to_bytes().to_vec());
    fuzz("farm time message", 1, corpus, |input| {
        let message = Message::from_bytes(Bytes::copy_from_slice(input));
        if let Some(message) = &message {
            assert_eq!(
                Message::from_bytes(message.to_bytes()).as_ref(),
                Some(message)
            );
        }
        message.is_some()
    });
}

proptest! {
    #[test]
    fn no_message_in_any_order_breaks_a_server(seed in any::<u64>()) {
        let mut random = Generator::new(seed);
        let mut server = Server::new(Uid(1), SETTINGS);
        let mut now = number(&mut random);
        let mut floor = 0;
        for _ in 0..200 {
            now = now.saturating_add(match random.below(6) {
                0 => number(&mut random),
                _ => random.below(3_000_000) as u64,
            });
            match random.below(12) {
                0 => {
                    let ids: Vec<Uid> = (1..5).filter(|_| random.below(2) > 0).map(Uid).collect();
                    let _ = server.propose(&ids, now);
                }
                1 => server.taken(now),
                2 => server.lost(configuration(&mut random), now),
                3 => server.learn(configuration(&mut random), now),
                4 => server.tick(now),
                5 => server.died(Uid(1 + random.below(4) as u128), now),
                _ => {
                    let from = Uid(1 + random.below(4) as u128);
                    server.receive(from, &message(&mut random), now);
                }
            }
            if let Ok(time) = server.time(now) {
                prop_assert!(floor <= time.lower && time.lower <= time.upper);
                floor = time.lower;
            }
            server.suspects(now);
            prop_assert!(server.take_messages().len() <= 20 && server.take_notices().len() <= 20);
        }
    }
}
