//! Measures the versioned window on this machine: `cargo run --release -p plinth-storage --example window_speed`.
//!
//! Fills a window with 600,000 keys of 16 bytes with values of 54 bytes, in versions of 100 keys each, then reads it
//! and moves it out, and prints what each operation took on average.

#![allow(clippy::disallowed_methods)] // a program of its own, outside the event loop

use plinth_core::{MutationKind, MutationRef};
use plinth_runtime::{Instant, now, real};
use plinth_storage::window::{Lookup, VersionedWindow};
use std::hint::black_box;

const KEYS: u64 = 600_000;
const KEYS_PER_VERSION: u64 = 100;

/// Keys in a scattered order, each once.
fn key(n: u64) -> [u8; 16] {
    let mut key = *b"k000000000000000";
    let mut rest = n % KEYS * 7_368_787 % KEYS;
    for digit in key[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn resident_mib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0);
    (pages * 4096) >> 20
}

fn report(what: &str, since: Instant, count: u64) {
    let ns = since.elapsed().as_nanos() as f64;
    println!(
        "{what:<34} {:>8.3} us each {:>8.1} ms in all, {} MiB",
        ns / 1000.0 / count as f64,
        ns / 1e6,
        resident_mib()
    );
}

fn measure() {
    let mut window = VersionedWindow::new(0);
    let mutate = |window: &mut VersionedWindow, n: u64, kind, second: &[u8]| {
        let version = (n / KEYS_PER_VERSION) as i64 + 1;
        if n.is_multiple_of(KEYS_PER_VERSION) {
            window.advance(version - 1);
        }
        let key = key(n);
        window
            .apply(
                version,
                MutationRef {
                    kind,
                    first: &key,
                    second,
                },
                |_| Ok(None),
            )
            .expect("no engine to fail");
    };
    let start = now();
    for n in 0..KEYS {
        mutate(&mut window, n, MutationKind::Set, &[7; 54]);
    }
    report("set of a new key", start, KEYS);
    let overhead = window.bytes() as u64 / KEYS - 70;
    println!(
        "{} bytes held, {overhead} a key beside key and value",
        window.bytes()
    );
    let start = now();
    for n in KEYS..2 * KEYS {
        mutate(&mut window, n, MutationKind::Set, &[8; 54]);
    }
    report("set of a key that is there", start, KEYS);
    let latest = window.latest_version();
    for (what, version) in [
        ("get of the newest state", latest),
        ("get of the state before", latest / 2),
    ] {
        let start = now();
        let mut found = 0u64;
        for n in 0..KEYS {
            found += u64::from(matches!(
                black_box(window.get(&key(n * 17), version)),
                Lookup::Value(_)
            ));
        }
        report(what, start, KEYS);
        assert!(found > 0);
    }
    let up_to = latest / 2;
    let start = now();
    let mut taking = window.begin_taking(up_to);
    while window.take_some(&mut taking, 4096) {}
    let rows = taking.batch.len() as u64;
    report("take, a key", start, rows);
    let start = now();
    while window.forget_some(up_to, 4096) {}
    report("forget, a key", start, rows);
    println!("{} bytes held", window.bytes());
}

fn main() {
    real::block_on(async { measure() });
}
