//! What every backend keeps. Each test runs on machines that share memory, on sockets with keys, with
//! certificates and with neither, on a mixture of both, and in the simulator.

use super::stands::{MACHINES, MixedStand, Scratch, SharedStand, Stand, StreamedStand};
use crate::{Address, Error, Fabric, MESSAGE_BYTES_MAX, Machine, Message, OPERATION_BYTES_MAX};
use plinth_runtime::real::block_on;
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, TaskGroup, join_all, race, sleep, spawn, timeout, yield_now};
use std::path::PathBuf;
use std::rc::Rc;

const A: Machine = Machine(0);
const B: Machine = Machine(1);
const C: Machine = Machine(2);
const ALL: [Machine; MACHINES] = [A, B, C];

macro_rules! on_every_backend {
    ($($name:ident)*) => {
        mod shared {
            use super::*;
            $(
            #[test]
            fn $name() {
                let scratch = Scratch::new(concat!("shared-", stringify!($name)));
                block_on(async {
                    super::$name(SharedStand(scratch.make().await)).await;
                });
            }
            )*
        }
        mod tcp {
            use super::*;
            $(
            #[test]
            fn $name() {
                let scratch = Scratch::new(concat!("tcp-", stringify!($name)));
                block_on(async {
                    super::$name(StreamedStand::new(scratch.make().await, "127.0.0.1").await).await;
                });
            }
            )*
        }
        mod sealed {
            use super::*;
            $(
            #[test]
            fn $name() {
                let scratch = Scratch::new(concat!("sealed-", stringify!($name)));
                block_on(async {
                    let stand = StreamedStand::new(scratch.make().await, "127.0.0.1").await;
                    super::$name(stand.with_keys()).await;
                });
            }
            )*
        }
        mod certified {
            use super::*;
            $(
            #[test]
            fn $name() {
                let scratch = Scratch::new(concat!("certified-", stringify!($name)));
                block_on(async {
                    let stand = StreamedStand::new(scratch.make().await, "127.0.0.1").await;
                    super::$name(stand.with_certificates()).await;
                });
            }
            )*
        }
        mod mixed {
            use super::*;
            $(
            #[test]
            fn $name() {
                let scratch = Scratch::new(concat!("mixed-", stringify!($name)));
                block_on(async {
                    super::$name(MixedStand::new(scratch.make().await, "127.0.0.1").await).await;
                });
            }
            )*
        }
        mod simulated {
            use super::*;
            $(
            #[test]
            fn $name() {
                for seed in 0..20 {
                    let config = SimConfig {
                        buggify_enabled: seed % 4 == 3,
                        ..SimConfig::default()
                    };
                    Simulation::new(seed, config.clone()).run(async {
                        let stand = StreamedStand::new(PathBuf::from("/m"), "10.255.0.0").await;
                        super::$name(stand).await;
                    });
                    Simulation::new(seed, config.clone()).run(async {
                        let stand = StreamedStand::new(PathBuf::from("/m"), "10.255.0.0").await;
                        super::$name(stand.with_keys()).await;
                    });
                    Simulation::new(seed, config).run(async {
                        let stand = MixedStand::new(PathBuf::from("/m"), "10.255.0.0").await;
                        super::$name(stand).await;
                    });
                }
            }
            )*
        }
    };
}

on_every_backend! {
    a_read_gives_what_was_written
    a_range_that_is_not_there_is_refused
    compare_and_swap_is_atomic
    messages_arrive_once_and_in_order
    a_ring_is_bounded
    operations_of_one_machine_happen_in_order
    a_receiver_that_restarts_drops_the_old_configuration
    a_machine_that_is_removed_has_no_effect
    an_acknowledged_message_is_found_by_the_next_life
    before_a_configuration_nothing_is_allowed
    who_sleeps_is_woken_by_each_arrival
    several_tasks_sleep_and_some_are_dropped
}

fn at(machine: Machine, region: u16, offset: u64) -> Address {
    Address {
        machine,
        region,
        offset,
    }
}

/// Starts all machines, in configuration 1 and connected.
async fn all<S: Stand>(stand: &S) -> Vec<Rc<S::Fabric>> {
    let mut machines = Vec::new();
    for machine in ALL {
        machines.push(stand.start(machine).await);
    }
    for machine in &machines {
        machine.configure(1, &ALL).await.expect("the first");
    }
    for machine in &machines {
        for other in ALL {
            open(&**machine, other).await;
        }
    }
    machines
}

/// The system may refuse a connection, as when too many are open. Who wants it opens anew.
async fn open(fabric: &impl Fabric, other: Machine) {
    for _ in 0..10 {
        if fabric.open(other).await.is_ok() {
            return;
        }
    }
    panic!("it is there, and does not answer");
}

async fn word(fabric: &impl Fabric, at: Address) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    fabric.read(at, &mut bytes).await?;
    Ok(u64::from_le_bytes(bytes))
}

fn bodies(messages: &[Message]) -> Vec<Vec<u8>> {
    messages.iter().map(|m| m.body.to_vec()).collect()
}

/// Everything that has arrived and was not received yet.
fn received(fabric: &impl Fabric) -> Vec<Message> {
    std::iter::from_fn(|| fabric.receive()).collect()
}

async fn a_read_gives_what_was_written(stand: impl Stand) {
    let machines = all(&stand).await;
    // From another machine and from the own one, at the ends and in the middle.
    for writer in &machines {
        for (region, words) in [(0, 64), (1, 5000)] {
            for (first, count) in [(0, 1), (0, 64), (7, 9), (words - 3, 3), (words, 0)] {
                let bytes: Vec<u8> = (0..8 * count).map(|n| (n * 7 + first) as u8).collect();
                let place = at(B, region, 8 * first);
                writer.write(place, &bytes).await.expect("acknowledged");
                for reader in &machines {
                    let mut into = vec![0; bytes.len()];
                    reader.read(place, &mut into).await.expect("read");
                    assert_eq!(into, bytes);
                }
            }
        }
    }
    assert_eq!(word(&*machines[0], at(A, 0, 0)).await, Ok(0));
}

async fn a_range_that_is_not_there_is_refused(stand: impl Stand) {
    let machines = all(&stand).await;
    let large = vec![1; OPERATION_BYTES_MAX + 8];
    for whom in [A, B] {
        let asks = [
            (at(whom, 2, 0), 8, Error::OutOfBounds),
            (at(whom, 0, 8 * 64), 8, Error::OutOfBounds),
            (at(whom, 0, 8 * 60), 8 * 5, Error::OutOfBounds),
            (at(whom, 0, u64::MAX - 7), 8, Error::OutOfBounds),
            (at(whom, 0, 1 << 63), 16, Error::OutOfBounds),
            (at(whom, 0, 4), 8, Error::Unaligned),
            (at(whom, 0, 8), 4, Error::Unaligned),
            (at(whom, 0, 0), large.len(), Error::TooLarge),
            (at(Machine(3), 0, 0), 8, Error::Closed),
            (at(Machine(u16::MAX), 0, 0), 8, Error::Closed),
        ];
        for (place, bytes, error) in asks {
            let mut into = vec![0; bytes];
            let read = machines[0].read(place, &mut into).await;
            assert_eq!(read, Err(error), "{place:?} {bytes}");
            let write = machines[0].write(place, &large[..bytes]).await;
            assert_eq!(write, Err(error), "{place:?} {bytes}");
            if bytes == 8 {
                let swap = machines[0].compare_and_swap(place, 0, 1).await;
                assert_eq!(swap, Err(error), "{place:?}");
            }
        }
        assert_eq!(word(&*machines[0], at(whom, 0, 8 * 60)).await, Ok(0));
        let sent = machines[0].send(whom, &[1; 8 * 99]).await;
        assert_eq!(sent, Err(Error::TooLarge), "more than the ring");
        let long = vec![1; MESSAGE_BYTES_MAX + 1];
        assert_eq!(machines[0].send(whom, &long).await, Err(Error::TooLarge));
    }
    assert!(received(&*machines[1]).is_empty());
}

const TIMES: u64 = 100;

async fn count(fabric: &impl Fabric, counter: Address) {
    for _ in 0..TIMES {
        let mut expected = word(fabric, counter).await.expect("read");
        loop {
            yield_now().await;
            let found = fabric.compare_and_swap(counter, expected, expected + 1);
            match found.await.expect("answered") {
                found if found == expected => break,
                found => expected = found,
            }
        }
    }
}

async fn compare_and_swap_is_atomic(stand: impl Stand) {
    let machines = all(&stand).await;
    let counter = at(C, 0, 8);
    // Twice each, the owner among them.
    join_all(
        machines
            .iter()
            .chain(&machines)
            .map(|m| count(&**m, counter)),
    )
    .await;
    let sum = word(&*machines[0], counter).await;
    assert_eq!(sum, Ok(6 * TIMES));
}

async fn messages_arrive_once_and_in_order(stand: impl Stand) {
    let machines = all(&stand).await;
    let mut got = vec![Vec::new(); MACHINES];
    for round in 0..60u8 {
        // Several under way at a time, of lengths that make records cross the end of the ring.
        let body = |n: u8| vec![round.wrapping_mul(4) + n; usize::from(round % 31 + n)];
        for (from, machine) in machines.iter().enumerate() {
            let sends = (0..4).map(|n| {
                let body = body(n);
                async move { machine.send(B, &body).await }
            });
            for sent in join_all(sends).await {
                assert_eq!(sent, Ok(()), "{from} {round}");
            }
        }
        for message in received(&*machines[1]) {
            assert_eq!(message.configuration, 1);
            got[usize::from(message.from.0)].push(message.body.to_vec());
            machines[1].release(&message);
        }
        for got in &mut got {
            let sent: Vec<Vec<u8>> = (0..4).map(body).collect();
            assert_eq!(std::mem::take(got), sent);
        }
        assert!(received(&*machines[0]).is_empty());
    }
}

async fn a_ring_is_bounded(stand: impl Stand) {
    let machines = all(&stand).await;
    for whom in [A, B] {
        let receiver = &machines[usize::from(whom.0)];
        let mut sent = 0;
        while machines[0].send(whom, &[7; 24]).await.is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 20, "records of five words");
        assert_eq!(machines[0].send(whom, &[]).await, Err(Error::Full));
        let there = received(&**receiver);
        assert_eq!(there.len(), 20);
        assert_eq!(machines[0].send(whom, &[]).await, Err(Error::Full));
        receiver.release(&there[1]);
        receiver.release(&there[0]); // it is free already
        for _ in 0..2 {
            assert_eq!(machines[0].send(whom, &[8; 24]).await, Ok(()));
        }
        assert_eq!(machines[0].send(whom, &[]).await, Err(Error::Full));
        assert_eq!(bodies(&received(&**receiver)), [[8; 24]; 2]);
    }
}

async fn operations_of_one_machine_happen_in_order(stand: impl Stand) {
    let machines = all(&stand).await;
    for round in 1..50u64 {
        // Begun together: none waits for the one before.
        let write = |n: u64| machines[0].write(at(B, 0, 0), Box::leak(Box::new(n.to_le_bytes())));
        let (first, second) = (write(2 * round - 1), write(2 * round));
        let message = round.to_le_bytes();
        let outcomes = join_all([
            Box::pin(first) as std::pin::Pin<Box<dyn Future<Output = _>>>,
            Box::pin(second),
            Box::pin(machines[0].send(B, &message)),
        ]);
        assert_eq!(outcomes.await, [Ok(()); 3]);
        // Who sees the message sees the write before it.
        let there = received(&*machines[1]);
        assert_eq!(bodies(&there), [message]);
        machines[1].release(&there[0]);
        assert_eq!(word(&*machines[1], at(B, 0, 0)).await, Ok(2 * round));
    }
}

/// Asks until the other side, which restarts, has an opinion.
async fn refusal(fabric: &impl Fabric, machine: Machine) -> Error {
    for _ in 0..100 {
        let opened = fabric.open(machine).await;
        let sent = fabric.send(machine, b"late").await;
        match sent {
            Err(Error::Unreachable) => sleep(Duration::from_millis(10)).await,
            Err(error) if opened.is_ok() => return error,
            Err(_) => (),
            Ok(()) => panic!("it was taken"),
        }
    }
    panic!("it does not answer");
}

async fn a_receiver_that_restarts_drops_the_old_configuration(stand: impl Stand) {
    let mut machines = all(&stand).await;
    machines[0].write(at(B, 0, 0), &[1; 8]).await.expect("done");
    machines[0].send(B, b"early").await.expect("done");
    stand.stop(B);
    drop(machines.remove(1));
    let receiver = stand.start(B).await;
    receiver.configure(2, &ALL).await.expect("a later one");
    assert_eq!(refusal(&*machines[0], B).await, Error::Closed);
    let _ = machines[0].open(B).await;
    let written = machines[0].write(at(B, 0, 0), &[2; 8]).await;
    assert_eq!(written, Err(Error::Closed));
    let _ = machines[0].open(B).await;
    let swapped = machines[0].compare_and_swap(at(B, 0, 8), 0, 5).await;
    assert_eq!(swapped, Err(Error::Closed));
    assert_eq!(bodies(&received(&*receiver)), [b"early"]);
    let found = word(&*receiver, at(B, 0, 0)).await;
    assert_eq!(found, Ok(u64::from_le_bytes([1; 8])));
    assert_eq!(word(&*receiver, at(B, 0, 8)).await, Ok(0));
    // In the new configuration it goes on, in order.
    machines[0].configure(2, &ALL).await.expect("a later one");
    machines[0].open(B).await.expect("it is there");
    assert_eq!(machines[0].send(B, b"now").await, Ok(()));
    let there = received(&*receiver);
    assert_eq!(bodies(&there), [b"now"]);
    assert_eq!(there[0].configuration, 2);
    // Nobody goes back.
    assert_eq!(receiver.configure(1, &ALL).await, Err(Error::Closed));
    assert_eq!(receiver.configure(0, &ALL).await, Err(Error::Closed));
}

async fn a_machine_that_is_removed_has_no_effect(stand: impl Stand) {
    let machines = all(&stand).await;
    machines[0].send(B, b"early").await.expect("done");
    for machine in &machines[1..] {
        machine.configure(2, &[B, C]).await.expect("a later one");
    }
    // Neither in its configuration, nor if it takes itself for a member of the new one.
    for number in [1, 2, 3] {
        machines[0].configure(number, &ALL).await.expect("allowed");
        let _ = machines[0].open(B).await;
        let written = machines[0].write(at(B, 0, 0), &[2; 8]).await;
        assert_eq!(written, Err(Error::Closed));
        assert_eq!(refusal(&*machines[0], B).await, Error::Closed);
    }
    // Nor is anything asked of it.
    assert_eq!(machines[1].send(A, b"x").await, Err(Error::Closed));
    assert_eq!(word(&*machines[1], at(A, 0, 0)).await, Err(Error::Closed));
    assert_eq!(word(&*machines[1], at(B, 0, 0)).await, Ok(0));
    assert_eq!(bodies(&received(&*machines[1])), [b"early"]);
    assert_eq!(machines[2].send(B, b"mine").await, Ok(()));
}

async fn an_acknowledged_message_is_found_by_the_next_life(stand: impl Stand) {
    let mut machines = all(&stand).await;
    for n in 0..5 {
        machines[0].send(B, &[n; 9]).await.expect("done");
    }
    let there = received(&*machines[1]);
    assert_eq!(there.len(), 5);
    // The first two are done with. The process dies before the others are.
    machines[1].release(&there[1]);
    stand.stop(B);
    drop(machines.remove(1));
    let receiver = stand.start(B).await;
    receiver.configure(1, &ALL).await.expect("the same");
    assert_eq!(bodies(&received(&*receiver)), [[2; 9], [3; 9], [4; 9]]);
    // The sender's next life goes on behind the last.
    stand.stop(A);
    drop(machines.remove(0));
    let sender = stand.start(A).await;
    sender.configure(1, &ALL).await.expect("the same");
    sender.open(B).await.expect("it is there");
    assert_eq!(sender.send(B, b"next").await, Ok(()));
    assert_eq!(bodies(&received(&*receiver)), [b"next"]);
}

async fn before_a_configuration_nothing_is_allowed(stand: impl Stand) {
    let (a, b) = (stand.start(A).await, stand.start(B).await);
    assert_eq!(a.write(at(B, 0, 0), &[1; 8]).await, Err(Error::Closed));
    assert_eq!(a.write(at(A, 0, 0), &[1; 8]).await, Err(Error::Closed));
    a.configure(1, &ALL).await.expect("the first");
    assert_eq!(a.send(B, b"x").await, Err(Error::Unreachable));
    a.open(B).await.expect("it is there");
    assert_eq!(a.write(at(B, 0, 0), &[1; 8]).await, Err(Error::Closed));
    assert_eq!(a.open(C).await, Err(Error::Unreachable));
    b.configure(1, &ALL).await.expect("the first");
    a.open(B).await.expect("it is there");
    assert_eq!(word(&*b, at(B, 0, 0)).await, Ok(0));
}

const SLEEP_MAX: Duration = Duration::from_secs(10);

/// Sleeps until a message is there.
async fn arrived(fabric: &impl Fabric) -> Message {
    let next = async {
        loop {
            fabric.local().arrival().await;
            if let Some(message) = fabric.receive() {
                fabric.release(&message);
                return message;
            }
        }
    };
    timeout(SLEEP_MAX, next).await.expect("it is woken")
}

async fn who_sleeps_is_woken_by_each_arrival(stand: impl Stand) {
    let machines = all(&stand).await;
    let idle = timeout(Duration::from_millis(5), machines[0].local().arrival());
    assert_eq!(idle.await, None, "nothing has arrived");
    // Each passes on what comes, to itself as well, and sleeps in between.
    let group = TaskGroup::new();
    for (at, machine) in machines.iter().enumerate().skip(1) {
        let machine = machine.clone();
        group.spawn("pass", async move {
            loop {
                let message = arrived(&*machine).await;
                let to = if message.from == ALL[at] {
                    ALL[(at + 1) % MACHINES]
                } else {
                    ALL[at]
                };
                machine.send(to, &message.body).await.expect("passed on");
            }
        });
    }
    for round in 0..50u64 {
        let body = round.to_le_bytes();
        machines[0].send(B, &body).await.expect("sent");
        assert_eq!(arrived(&*machines[0]).await.body, body[..]);
    }
    // What is there already is no reason to sleep.
    group.cancel_all();
    for n in 0..3 {
        machines[0].send(B, &[n]).await.expect("sent");
    }
    for n in 0..3 {
        assert_eq!(arrived(&*machines[1]).await.body, [n][..]);
    }
}

async fn several_tasks_sleep_and_some_are_dropped(stand: impl Stand) {
    let machines = all(&stand).await;
    let machine = machines[1].clone();
    let sleeper = || {
        let machine = machine.clone();
        spawn("sleeper", async move { machine.local().arrival().await })
    };
    for round in 0..20 {
        let (one, two, three) = (sleeper(), sleeper(), sleeper());
        yield_now().await;
        drop(two);
        // A sleep that ends by itself takes nothing from the others.
        race(machine.local().arrival(), yield_now()).await;
        machines[0].send(B, &[round]).await.expect("sent");
        for sleeper in [one, three] {
            assert_eq!(timeout(SLEEP_MAX, sleeper).await, Some(()), "{round}");
        }
        assert_eq!(arrived(&*machine).await.body, [round][..]);
    }
}
