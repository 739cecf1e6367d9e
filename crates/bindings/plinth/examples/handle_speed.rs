//! What the handles cost: point reads by the client on its own loop, and by handles from tokio's threads, in turns.
//!
//! `cargo run --release -p plinth --example handle_speed -- (CLUSTER-FILE | DIRECTORY) SECONDS TURNS [THREADS]`
//!
//! With a directory in place of a cluster file, both open an embedded cluster there, one after the other. A hundred
//! tasks run transactions of ten reads, which they start together: at once, or, as `plinth bench run --workload
//! point-reads` does, after they have awaited the read version. It writes 100,000 rows below `handle_speed/` first.
//! THREADS is the number of the client's threads under the handles of a cluster file.

#![allow(clippy::disallowed_methods)] // a program of its own

use futures_util::future::try_join_all;
use plinth::{Database, OpenOptions};
use plinth_coordination::ClusterFile;
use plinth_runtime::real;
use plinth_server::{Embedded, EmbeddedOptions};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROWS: u64 = 100_000;
const ROWS_A_TRANSACTION: u64 = 1000;
const TASKS: usize = 100;
const READS: usize = 10;
/// Not measured: connections are made, and caches filled.
const WARM_UP: Duration = Duration::from_secs(1);

// As the binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn key(row: u64) -> [u8; 21] {
    let mut key = *b"handle_speed/00000000";
    key[13..].copy_from_slice(&row.to_be_bytes());
    key
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    (*state >> 33) % ROWS
}

async fn load(database: &Database) -> plinth::Result<()> {
    for first in (0..ROWS).step_by(ROWS_A_TRANSACTION as usize) {
        let rows = first..first + ROWS_A_TRANSACTION;
        let write = database.run(async |tr| {
            for row in rows.clone() {
                tr.set(key(row), [7; 50]);
            }
            Ok(())
        });
        write.await?;
    }
    Ok(())
}

struct Speed {
    reads_a_second: f64,
    /// Processor time of this process for a read. A busy machine changes it less than the other.
    ns_a_read: f64,
}

impl Speed {
    fn of(reads: u64, time: Duration, cpu_ns: f64) -> Self {
        Speed {
            reads_a_second: reads as f64 / time.as_secs_f64(),
            ns_a_read: cpu_ns / reads as f64,
        }
    }
}

/// Processor time of this process; 0 where the system does not report it.
fn cpu_ns() -> f64 {
    const TICK_NS: f64 = 10_000_000.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
    let ticks = rest.split(' ').skip(11).take(2);
    ticks
        .filter_map(|word| word.parse::<f64>().ok())
        .sum::<f64>()
        * TICK_NS
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Speed of the client on its own loop.
async fn raw_reads(
    database: &plinth_client::Database,
    time: Duration,
    version_first: bool,
) -> Speed {
    let (group, reads) = (plinth_runtime::TaskGroup::new(), Rc::new(Cell::new(0)));
    for task in 0..TASKS {
        let (database, reads) = (database.clone(), reads.clone());
        group.spawn("reader", async move {
            let mut state = task as u64;
            loop {
                let read = database.run(async |tr| {
                    if version_first {
                        tr.get_read_version().await?;
                    }
                    let gets = (0..READS).map(|_| tr.get(&key(random(&mut state)), false));
                    try_join_all(gets.collect::<Vec<_>>()).await.map(drop)
                });
                read.await.expect("reads");
                reads.set(reads.get() + READS as u64);
            }
        });
    }
    plinth_runtime::sleep(WARM_UP).await;
    let (before, cpu) = (reads.get(), cpu_ns());
    plinth_runtime::sleep(time).await;
    Speed::of(reads.get() - before, time, cpu_ns() - cpu)
}

/// Speed of handles, in tasks of tokio.
async fn handle_reads(database: &Database, time: Duration, version_first: bool) -> Speed {
    let reads = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|task| {
        let (database, reads) = (database.clone(), reads.clone());
        tokio::spawn(async move {
            let state = AtomicU64::new(task as u64);
            loop {
                let read = database.run(async |tr| {
                    if version_first {
                        tr.read_version().await?;
                    }
                    let next = || {
                        let mut now = state.load(Ordering::Relaxed);
                        let row = random(&mut now);
                        state.store(now, Ordering::Relaxed);
                        tr.get(key(row))
                    };
                    try_join_all((0..READS).map(|_| next()).collect::<Vec<_>>())
                        .await
                        .map(drop)
                });
                read.await.expect("reads");
                reads.fetch_add(READS as u64, Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(WARM_UP).await;
    let (before, cpu) = (reads.load(Ordering::Relaxed), cpu_ns());
    tokio::time::sleep(time).await;
    let counted = reads.load(Ordering::Relaxed) - before;
    let speed = Speed::of(counted, time, cpu_ns() - cpu);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        let _ = task.await; // it was aborted
    }
    speed
}

fn is_cluster_file(place: &Path) -> bool {
    place
        .extension()
        .is_some_and(|extension| extension == "cluster")
}

/// The client, on the loop that this runs on.
async fn raw_turn(place: PathBuf, time: Duration, version_first: bool) -> Speed {
    if is_cluster_file(&place) {
        let file = ClusterFile::load(&place).await.expect("a cluster file");
        return raw_reads(&plinth_client::connect(file), time, version_first).await;
    }
    let embedded = Embedded::open(&place, EmbeddedOptions::default()).await;
    let embedded = embedded.expect("it opens");
    let reads = raw_reads(&embedded.database(), time, version_first).await;
    embedded.close().await;
    reads
}

async fn open(place: &Path, threads: usize) -> Result<Database, plinth::OpenError> {
    match is_cluster_file(place) {
        true => {
            OpenOptions::new()
                .cluster_file(place)
                .threads(threads)
                .open()
                .await
        }
        false => Database::open_embedded(place).await,
    }
}

/// Writes the rows that are read.
async fn fill(place: &Path, threads: usize) -> plinth::Result<()> {
    let database = open(place, threads).await?;
    load(&database).await?;
    database.close().await;
    Ok(())
}

/// The handles, on tokio's threads.
async fn handle_turn(
    place: &Path,
    threads: usize,
    time: Duration,
    version_first: bool,
) -> Result<Speed, plinth::OpenError> {
    let database = open(place, threads).await?;
    let reads = handle_reads(&database, time, version_first).await;
    database.close().await;
    Ok(reads)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, seconds, turns, threads @ ..] = &arguments[..] else {
        return Err(
            "usage: handle_speed (CLUSTER-FILE | DIRECTORY) SECONDS TURNS [THREADS]".into(),
        );
    };
    let threads = threads.first().map_or(Ok(1), |threads| threads.parse())?;
    let (place, turns) = (PathBuf::from(place), turns.parse::<usize>()?);
    let time = Duration::from_secs(seconds.parse()?);
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    tokio.block_on(fill(&place, threads))?;
    for version_first in [false, true] {
        let order = match version_first {
            false => "ten reads",
            true => "the read version, then ten reads",
        };
        println!(
            "{order}\n{:>10} {:>10}  share {:>24}",
            "client", "handles", "processor time a read"
        );
        let (mut shares, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            let at = place.clone();
            let raw = move || raw_turn(at, time, version_first);
            let raw = real::spawn_worker("client", raw).join();
            let raw = raw.map_err(|_| "the client's thread has ended")?;
            let handles = tokio.block_on(handle_turn(&place, threads, time, version_first))?;
            let share = handles.reads_a_second / raw.reads_a_second;
            println!(
                "{:>10.0} {:>10.0}  {:.2} {:>10.0} ns {:>10.0} ns",
                raw.reads_a_second, handles.reads_a_second, share, raw.ns_a_read, handles.ns_a_read
            );
            shares.push(share);
            costs.push(handles.ns_a_read / raw.ns_a_read);
        }
        println!(
            "medians: share {:.2}, processor time {:.2}",
            median(shares),
            median(costs)
        );
    }
    Ok(())
}
