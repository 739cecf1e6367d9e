//! A machine that says anything.

use super::cluster::{MS, Shape, on};
use crate::wire::{Bundle, Change, Horizon, Lock, Locked, Message, Truncation, Write};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::testing::Mutator;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Abort, Pointer};
use plinth_runtime::sim::control;
use plinth_runtime::{random, sleep};

/// Messages that make sense to machine 0, in an order that makes none.
fn bundles(at: Pointer) -> Vec<Vec<u8>> {
    let numbers = 1..4;
    let bundle = |number: u64, message: Message| {
        let bundle = Bundle {
            truncation: Truncation {
                below: 0,
                truncate: vec![number],
                truncated: vec![number, 9],
            },
            messages: vec![message],
        };
        bundle.to_bytes().to_vec()
    };
    let of = |number| {
        let messages = commits(number, at).into_iter().chain(others(number, at));
        messages.map(move |message| bundle(number, message))
    };
    numbers.flat_map(of).collect()
}

fn commits(number: u64, at: Pointer) -> Vec<Message> {
    let change = [Change::Update, Change::Free, Change::Allocate][number as usize % 3];
    let write = Write {
        at,
        change,
        payload: Bytes::from_static(b"hostile"),
    };
    let (regions, writes) = (vec![at.region()], vec![write]);
    let commit = |written_at| Message::CommitPrimary { number, written_at };
    vec![
        Message::Lock(Lock {
            number,
            read_at: 1 << 60,
            regions: regions.clone(),
            writes: writes.clone(),
        }),
        Message::Unlock { number },
        Message::CommitBackup {
            number,
            written_at: 1 << 40,
            regions,
            writes,
        },
        commit(u64::MAX),
        commit(1 << 40),
    ]
}

fn others(number: u64, at: Pointer) -> Vec<Message> {
    let never = Horizon {
        oldest: u64::MAX,
        safe: u64::MAX,
    };
    let (region, slab) = (at.region(), 0);
    let class = at.class().number();
    vec![
        Message::LockReply {
            number,
            reply: Locked(Err(Abort::Full)),
        },
        Message::Reserve {
            ask: number,
            region,
            class,
        },
        Message::ReserveReply { ask: number, at },
        Message::Unreserve { at },
        Message::FreeSlab {
            region: number as u16,
            slab,
            at: number,
        },
        Message::SlabIsFree { region, slab },
        Message::Oat(never),
        Message::Safe(never),
    ]
}

#[test]
fn no_message_brings_a_machine_down() {
    on(Shape::default(), async |cluster| {
        control().expect_lies();
        let at = cluster.object(0, b"value").await;
        let hostile = cluster.engines[1].fabric();
        let mut mutator = Mutator::new(random::u64(), bundles(at));
        let known = bundles(at);
        for round in 0..3000 {
            let message = match round % 2 {
                0 => mutator.next_input(),
                _ => known[random::below(known.len() as u64) as usize].clone(),
            };
            if hostile.send(Machine(0), &message).await.is_err() {
                sleep(MS).await;
            }
        }
        sleep(20 * MS).await;
        // What it has locked stays locked, but the machine works.
        let other = cluster.object(2, b"other").await;
        assert_eq!(
            &cluster.value(0, other).await.expect("there")[..5],
            b"other"
        );
    });
}
