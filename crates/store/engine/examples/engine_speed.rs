//! Measures an engine on this machine: `cargo run --release -p plinth-engine --example engine_speed -- [ssd|memory]
//! [rows]`.
//!
//! Loads rows of 16-byte keys and 54-byte values in a temporary directory, then reads and writes at random, and prints
//! what each operation took on average. The numbers to beat are in the engine's design notes.

#![allow(clippy::disallowed_methods)] // a program of its own, outside the event loop

use plinth_core::EngineKind;
use plinth_engine::{KeyValueStore, SSD_CACHE_BYTES, WriteBatch};
use plinth_runtime::{Instant, now, random, real};
use std::path::{Path, PathBuf};
use std::rc::Rc;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"k000000000000000";
    let mut rest = n;
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

/// Processor time of all threads, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.split(' ')
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

fn report(what: &str, since: (Instant, u64), count: u64) {
    let cpu_us = (cpu_ticks() - since.1) as f64 * 10_000.0 / count as f64;
    let since = since.0;
    let ns = since.elapsed().as_nanos() as u64;
    let each = ns as f64 / count as f64 / 1000.0;
    println!(
        "{what:<46} {each:>9.3} us each, cpu {cpu_us:>7.3} {:>9.1} ms in all  {} MiB",
        ns as f64 / 1e6,
        resident_mib()
    );
}

async fn load(engine: &Rc<dyn KeyValueStore>, rows: u64) {
    let start = (now(), cpu_ticks());
    // Every key once, in a scattered order; the multiplier is odd and not divisible by five.
    let mut n = 0;
    while n < rows {
        let mut batch = WriteBatch::new();
        for _ in 0..100_000.min(rows - n) {
            batch.set(&key(n.wrapping_mul(7_368_787) % rows), &[n as u8; 54]);
            n += 1;
        }
        engine.commit(batch).await.expect("commit");
    }
    report("load in batches of 100,000", start, rows);
}

fn reads(engine: &Rc<dyn KeyValueStore>, rows: u64) {
    for round in ["first", "second"] {
        let mut found = 0;
        let start = (now(), cpu_ticks());
        for _ in 0..1_000_000 {
            found += u64::from(
                engine
                    .get(&key(random::below(rows)))
                    .expect("get")
                    .is_some(),
            );
        }
        report(&format!("random get, {round} million"), start, 1_000_000);
        assert!(found > 0);
    }
    for reverse in [false, true] {
        let start = (now(), cpu_ticks());
        let (mut keys, mut bytes) = (0u64, 0);
        for _ in 0..1000 {
            let from = random::below(rows - 1000);
            engine
                .range(&key(from), &key(from + 1000), reverse, &mut |k, v| {
                    keys += 1;
                    bytes += k.len() + v.len();
                    true
                })
                .expect("range");
        }
        let name = if reverse { "backwards" } else { "forwards" };
        report(&format!("scan of 1000 keys {name}, a key"), start, keys);
        assert_eq!(bytes as u64, keys * 70);
    }
}

async fn writes(engine: &Rc<dyn KeyValueStore>, rows: u64) {
    for count in [100_000u64, 100_000, 1000, 1000, 1] {
        let mut batch = WriteBatch::new();
        for _ in 0..count {
            batch.set(&key(random::below(rows)), &[9; 54]);
        }
        let start = (now(), cpu_ticks());
        engine.commit(batch).await.expect("commit");
        report(
            &format!("commit of {count} random sets, a set"),
            start,
            count,
        );
    }
    for count in [10_000u64, 100_000] {
        let mut batch = WriteBatch::new();
        let from = rows - 2 * count;
        batch.clear_range(&key(from), &key(from + count));
        let start = (now(), cpu_ticks());
        engine.commit(batch).await.expect("commit");
        report(
            &format!("clear of a range of {count} rows, a row"),
            start,
            count,
        );
        println!("disk: {} MiB", engine.bytes_used() >> 20);
    }
}

async fn measure(kind: EngineKind, path: PathBuf, rows: u64) {
    let open = || plinth_engine::open(kind, Path::new(&path), true, SSD_CACHE_BYTES);
    let engine = open().await.expect("open");
    println!(
        "{} engine, {rows} rows of 16 + 54 bytes, {} MiB before",
        kind.name(),
        resident_mib()
    );
    load(&engine, rows).await;
    println!("disk: {} MiB", engine.bytes_used() >> 20);
    reads(&engine, rows);
    writes(&engine, rows).await;
    let start = (now(), cpu_ticks());
    engine.close().await.expect("close");
    report("close", start, 1);
    let start = (now(), cpu_ticks());
    let engine = open().await.expect("open again");
    report("open again", start, 1);
    reads(&engine, rows / 2);
    engine.close().await.expect("close");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().map_or(EngineKind::Ssd, |name| {
        EngineKind::parse(&name).expect("ssd or memory")
    });
    let rows = args
        .next()
        .map_or(1_000_000, |count| count.parse().expect("a number of rows"));
    let dir = std::env::temp_dir().join(format!("plinth-engine-speed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    real::block_on(measure(kind, dir.join("engine"), rows));
    std::fs::remove_dir_all(&dir).expect("its removal");
}
