//! Figures of journals and backups on a disk:
//! `cargo run --release -p plinth-farm-disk --example farm_disk_speed -- DIRECTORY`.
//!
//! First the floor: what the disk needs for a write of 4 KiB and an `fdatasync`. Then a journal with one record after
//! another, and with many at a time. Then a backup: objects of 64 bytes applied, synced, read in random order from the
//! system's cache and from the disk, scanned, most of them replaced, cleaned, and opened again. Everything lies in a
//! new directory below DIRECTORY, which goes at the end.

use bytes::Bytes;
use plinth_farm_disk::{Backup, Journal, Layout, Version};
use plinth_farm_memory::{Class, Pointer};
use plinth_runtime::disk::{self, OpenOptions};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, Instant, join_all, now, random, spawn};
use std::path::{Path, PathBuf};

const SYNCS: usize = 300;
const AT_A_TIME: [usize; 3] = [1, 16, 256];
const RECORD_BYTES: usize = 200;
const OBJECTS: u64 = 1_000_000;
const PAYLOAD_BYTES: usize = 64;
const READS: usize = 20_000;
const COLD_READS: usize = 2000;
const HEAD_WORDS: u64 = 1024;
const SLAB_WORDS: u64 = 1 << 17;

/// Median and 99th percentile, in microseconds.
fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    format!("median {:.1} µs, 99% {:.1} µs", at(0.5), at(0.99))
}

fn per_second(count: u64, begin: Instant) -> f64 {
    count as f64 / begin.elapsed().as_secs_f64()
}

async fn floor(directory: &Path) {
    let options = OpenOptions {
        create: true,
        ..OpenOptions::default()
    };
    let file = disk::open(&directory.join("floor"), options).await;
    let file = file.expect("a file");
    file.allocate(4096 * SYNCS as u64).await.expect("room");
    file.sync().await.expect("a sync");
    let blocking = file.blocking();
    let times = file.offload(true, move || {
        let once = |number: usize| {
            let begin = now();
            let block = [number as u8; 4096];
            blocking
                .write_all_at(4096 * number as u64, &block)
                .expect("room");
            blocking.sync().expect("a sync");
            begin.elapsed()
        };
        (0..SYNCS).map(once).collect::<Vec<_>>()
    });
    println!("floor: 4 KiB and fdatasync: {}", quantiles(times.await));
}

async fn journals(directory: &Path) {
    for at_a_time in AT_A_TIME {
        let path = directory.join(format!("journal-{at_a_time}"));
        let journal = Journal::open(&path, 1, |_, _| Ok(()))
            .await
            .expect("a new one");
        let begin = now();
        let writers = (0..at_a_time).map(|_| {
            let journal = journal.clone();
            spawn("writer", async move {
                let mut times = Vec::new();
                for number in 0..SYNCS {
                    let begin = now();
                    let record = Bytes::from(vec![number as u8; RECORD_BYTES]);
                    let position = journal.append(record).expect("room");
                    journal.durable(position).await.expect("a sync");
                    times.push(begin.elapsed());
                }
                times
            })
        });
        // All of them run from now on.
        let writers: Vec<_> = writers.collect();
        let times: Vec<_> = join_all(writers).await.into_iter().flatten().collect();
        let rate = per_second(times.len() as u64, begin);
        let times = quantiles(times);
        println!("journal, {at_a_time} at a time: {times}, {rate:.0} records/s");
    }
    let path = directory.join("journal-256");
    let begin = now();
    let mut found = 0;
    let count = |_, _| {
        found += 1;
        Ok(())
    };
    drop(Journal::open(&path, 1, count).await.expect("it is well"));
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    println!("journal: {found} records found in {ms:.1} ms");
}

fn pointer(number: u64) -> Pointer {
    let class = Class::of(PAYLOAD_BYTES).expect("a size");
    let cells = SLAB_WORDS / class.cell_words() as u64;
    let within = number % cells * class.cell_words() as u64;
    Pointer::new(1, class, HEAD_WORDS + number / cells * SLAB_WORDS + within)
}

fn version(number: u64, timestamp: u64) -> Version {
    Version {
        pointer: pointer(number),
        timestamp,
        is_allocated: true,
        payload: vec![number as u8; PAYLOAD_BYTES].into(),
    }
}

async fn apply(backup: &Backup, numbers: impl Iterator<Item = u64>, timestamp: u64) {
    let (begin, mut count) = (now(), 0);
    let mut waiting = Vec::new();
    for number in numbers {
        waiting.push(version(number, timestamp));
        count += 1;
        if waiting.len() == 16 {
            backup.apply(&waiting).await.expect("room");
            waiting.clear();
        }
    }
    backup.apply(&waiting).await.expect("room");
    println!("backup: {:.0} versions/s applied", per_second(count, begin));
    let begin = now();
    backup.sync().await.expect("a sync");
    println!(
        "backup: synced in {:.1} ms",
        begin.elapsed().as_secs_f64() * 1e3
    );
}

async fn read(backup: &Backup, count: usize, what: &str) {
    let mut times = Vec::new();
    for _ in 0..count {
        let number = random::below(OBJECTS);
        let begin = now();
        let found = backup.read(pointer(number)).await.expect("it is well");
        times.push(begin.elapsed());
        assert_eq!(found.expect("it is there").payload[0], number as u8);
    }
    println!("backup: a read {what}: {}", quantiles(times));
}

async fn scan(backup: &Backup) {
    let (begin, mut found, mut bytes) = (now(), 0, 0);
    let mut scan = backup.scan(1);
    while let Some(some) = scan.next().await.expect("it is well") {
        found += some.len() as u64;
        bytes += some.iter().map(Version::bytes).sum::<usize>();
    }
    assert_eq!(found, OBJECTS);
    let rate = bytes as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let objects = per_second(found, begin);
    println!("backup: scanned {objects:.0} objects/s, {rate:.0} MB/s");
}

async fn clean(backup: &Backup) {
    let (begin, before) = (now(), backup.figures());
    let mut extents = 0;
    while backup.clean().await.expect("it is well") {
        extents += 1;
    }
    backup.sync().await.expect("a sync");
    let after = backup.figures();
    let mib = f64::from(extents);
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "backup: {extents} extents of a MiB cleaned, {:.0} MiB/s, from {} to {} in use",
        mib / seconds,
        before.extents,
        after.extents
    );
}

fn show_memory(backup: &Backup) {
    let figures = backup.figures();
    let of_maps = figures.map_bytes as f64 / figures.objects as f64;
    println!(
        "backup: {} objects, {of_maps:.2} bytes of map each, {} timestamps, image {} MiB",
        figures.objects,
        figures.versions,
        figures.image_bytes >> 20
    );
}

async fn backups(directory: PathBuf) {
    let layout = Layout::of(HEAD_WORDS, SLAB_WORDS);
    let backup = Backup::open(&directory, 1, layout)
        .await
        .expect("a new one");
    apply(&backup, 0..OBJECTS, 10).await;
    show_memory(&backup);
    backup.set_safe_point(11);
    show_memory(&backup);
    read(&backup, READS, "from the cache").await;
    let image = directory.join("backup.image");
    disk::forget_cached(&image).await.expect("it is there");
    read(&backup, COLD_READS, "from the disk").await;
    scan(&backup).await;
    apply(&backup, (0..OBJECTS).filter(|number| number % 8 != 0), 20).await;
    backup.set_safe_point(21);
    clean(&backup).await;
    drop(backup);
    for place in ["cache", "disk"] {
        if place == "disk" {
            disk::forget_cached(&image).await.expect("it is there");
        }
        let begin = now();
        let backup = Backup::open(&directory, 1, layout).await;
        let backup = backup.expect("it is well");
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        println!("backup: opened from the {place} in {ms:.0} ms");
        show_memory(&backup);
    }
}

#[allow(clippy::disallowed_methods)] // it removes what it has made
fn main() {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("farm_disk_speed DIRECTORY: a directory on the disk to measure");
        std::process::exit(2);
    };
    let name = format!("plinth-figures-{}", std::process::id());
    let directory = Path::new(&directory).join(name);
    let made = directory.clone();
    block_on(async move {
        let made = made.as_path();
        disk::create_dir_all(made)
            .await
            .expect("a directory that can be written to");
        floor(made).await;
        journals(made).await;
        floor(made).await;
        backups(made.to_owned()).await;
        plinth_runtime::sleep(Duration::from_millis(10)).await;
    });
    std::fs::remove_dir_all(directory).expect("it is ours");
}
