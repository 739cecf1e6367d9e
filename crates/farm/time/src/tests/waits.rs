//! Waits on the real clock, which are shorter than its timers resolve.

use crate::{Bounds, Broken, Clock, Server, Settings};
use plinth_core::id::Uid;
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, join_all, now, race, yield_now};

/// The clock of a master that is alone: its uncertainty is 20 us.
fn clock() -> Clock {
    let bounds = Bounds {
        drift_ppm: 1000,
        reading_ns: 10_000,
    };
    let server = Server::new(
        Uid(1),
        Settings {
            bounds,
            lease_ns: 1_000_000_000,
            sync_ns: 1_000_000,
            resend_ns: 1_000_000,
            origin: 0,
        },
    );
    let clock = Clock::new(server);
    clock.update(|server, now| {
        server.propose(&[Uid(1)], now).expect("the first");
        server.taken(now);
    });
    clock
}

#[test]
fn a_short_wait_takes_as_long_as_the_clock_is_uncertain() {
    block_on(async {
        let clock = clock();
        let begun = now();
        let mut last = 0;
        for _ in 0..200 {
            let timestamp = clock.timestamp().await.expect("a time");
            assert!(timestamp > last);
            last = timestamp;
        }
        // A timer would take a millisecond each time. 20 us of uncertainty, and 20 us of two more readings.
        let each = begun.elapsed() / 200;
        println!("a timestamp takes {each:?}");
        assert!((Duration::from_micros(20)..Duration::from_micros(800)).contains(&each));
    });
}

#[test]
fn many_calls_share_the_looks_at_the_clock() {
    block_on(async {
        let clock = clock();
        let begun = now();
        let call = async |late: usize| {
            for _ in 0..late {
                yield_now().await;
            }
            let first = clock.timestamp().await.expect("a time");
            let second = clock.timestamp().await.expect("a time");
            assert!(first < second);
        };
        join_all((0..100).map(|at| call(at % 7))).await;
        let all = begun.elapsed();
        println!("200 timestamps of 100 callers take {all:?}");
        assert!(all < Duration::from_millis(100), "{all:?}");
    });
}

#[test]
fn a_call_that_is_dropped_is_forgotten_and_one_of_a_broken_clock_ends() {
    block_on(async {
        let clock = clock();
        for _ in 0..10 {
            race(clock.timestamp(), yield_now()).await;
        }
        clock.timestamp().await.expect("a time");
        clock.update(|server, _| server.leave());
        assert_eq!(clock.timestamp().await, Err(Broken));
    });
}
