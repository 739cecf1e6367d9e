//! Frames come back from bytes, and no bytes do harm.

use super::stands::layout;
use crate::wire::{self, Answer, BYTES_MAX, Body, First, Greeting, Malformed, Request, Said};
use crate::{Error, Host, Machine, OPERATION_BYTES_MAX, serve};
use bytes::{Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_core::testing::{Generator, fuzz};
use plinth_rpc::frame::Check;
use plinth_runtime::memory::Mapping;
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, net, random, spawn, timeout};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

fn frame(body: &impl Codec) -> BytesMut {
    let mut out = Output::copying();
    wire::put_frame(Check::Sum, &mut out, body);
    BytesMut::from(&out.into_bytes()[..])
}

fn take_frame<T: Codec>(input: &mut BytesMut) -> Result<Option<T>, Malformed> {
    wire::take_frame(Check::Sum, BYTES_MAX, input)
}

fn requests() -> Vec<Request> {
    let bytes = Bytes::from(vec![3; 40]);
    let (region, offset) = (1, 16);
    let bodies = [
        Body::Read {
            region,
            offset,
            bytes: 64,
        },
        Body::Write {
            region,
            offset,
            from: bytes.clone(),
        },
        Body::Swap {
            region,
            offset,
            expected: 5,
            new: u64::MAX,
        },
        Body::Send { message: bytes },
    ];
    let request = |body| Request {
        configuration: 7,
        body,
    };
    bodies.map(request).to_vec()
}

fn come_back<T: Codec + PartialEq + Debug>(name: &str, bodies: &[T]) {
    for body in bodies {
        let bytes = frame(body);
        for cut in 0..bytes.len() {
            let part = take_frame::<T>(&mut BytesMut::from(&bytes[..cut]));
            assert_eq!(part, Ok(None));
        }
        let mut twice = BytesMut::from(&[&bytes[..], &bytes[..]].concat()[..]);
        for _ in 0..2 {
            assert_eq!(
                take_frame::<T>(&mut twice).as_ref(),
                Ok(&Some(T::from_bytes(body.to_bytes()).expect("it")))
            );
        }
        assert!(twice.is_empty());
    }
    // Past the checksum, whole frames are rare: the bodies are tried alone, too.
    fuzz(
        name,
        1,
        bodies.iter().map(|body| frame(body).to_vec()),
        |input| matches!(take_frame::<T>(&mut BytesMut::from(input)), Ok(Some(_))),
    );
    fuzz(
        name,
        2,
        bodies.iter().map(|body| body.to_bytes().to_vec()),
        |input| {
            let body = T::from_bytes(Bytes::copy_from_slice(input));
            if let Some(body) = &body {
                let mut bytes = frame(body);
                assert_eq!(
                    take_frame::<T>(&mut bytes).ok().flatten().as_ref(),
                    Some(body)
                );
            }
            body.is_some()
        },
    );
}

#[test]
fn frames_come_back_and_no_damaged_one_does_harm() {
    let greeting = First::Greeting(Greeting { from: 1, to: 2 });
    come_back(
        "fabric greeting",
        &[greeting, First::Hello(Bytes::from_static(b"hello"))],
    );
    come_back("fabric said", &[Said(Bytes::from_static(b"a proof"))]);
    come_back("fabric request", &requests());
    let answers = [
        Answer::Done,
        Answer::Read(Bytes::from(vec![9; 64])),
        Answer::Was(5),
        Answer::Failed(Error::Full),
        Answer::Failed(Error::Damaged),
    ];
    come_back("fabric answer", &answers);
}

#[test]
fn a_length_above_the_limit_is_refused_before_anything_is_kept() {
    let length = (OPERATION_BYTES_MAX as u32 + 65).to_le_bytes();
    let mut head = BytesMut::from(&length[..]);
    head.extend_from_slice(&crc32c::crc32c(&length).to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    assert!(take_frame::<Request>(&mut head).is_err());
}

/// A stranger connects and says `bytes`. Returns whether the server said anything, or closed.
async fn say(server: std::net::SocketAddr, bytes: Bytes) -> bool {
    let (mut reader, mut writer) = net::connect(server).await.expect("connected");
    let _ = writer.write_all(bytes).await;
    let mut answer = BytesMut::new();
    let reads = async { while matches!(reader.read(&mut answer).await, Ok(n) if n > 0) {} };
    let is_closed = timeout(Duration::from_secs(20), reads).await.is_some();
    is_closed || !answer.is_empty()
}

#[test]
fn a_stranger_changes_nothing_and_is_sent_away() {
    let sim = Simulation::new(1, SimConfig::default());
    sim.run(async {
        let mapping = Mapping::private(layout().words().expect("a layout"));
        Host::make(&mapping, &layout());
        let host = Rc::new(Host::open(mapping.clone()).expect("a host"));
        host.set_fence(Machine(0), 7);
        let before: Vec<u64> = mapping.words().iter().map(|w| w.load(Relaxed)).collect();
        let listener = net::listen("10.255.0.0:4501".parse().expect("one")).await;
        let listener = listener.expect("a listener");
        let address = listener.local_addr().expect("its own");
        let server = spawn("serve", serve(listener, Machine(1), host));
        let mut random = Generator::new(random::u64());
        let greetings = [(0, 2), (1, 1), (3, 1), (u16::MAX, 1)];
        for (from, to) in greetings {
            let mut bytes = frame(&Greeting { from, to });
            bytes.extend_from_slice(&frame(&requests()[1]));
            assert!(say(address, bytes.freeze()).await, "{from} {to}");
        }
        for round in 0..100 {
            let mut bytes = match round % 2 {
                0 => BytesMut::new(),
                _ => frame(&Greeting { from: 0, to: 1 }),
            };
            let noise: Vec<u8> = (0..12 + random.below(200))
                .map(|_| random.next_u64() as u8)
                .collect();
            bytes.extend_from_slice(&noise);
            assert!(say(address, bytes.freeze()).await, "{round}");
        }
        // Silence is no greeting either.
        assert!(say(address, Bytes::new()).await);
        let after: Vec<u64> = mapping.words().iter().map(|w| w.load(Relaxed)).collect();
        assert_eq!(before, after);
        drop(server);
    });
}
