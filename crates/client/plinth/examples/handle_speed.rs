//! What the handles cost: point reads by the client on its own loop, and by handles from tokio's threads, in turns.
//!
//! `cargo run --release -p plinth --example handle_speed -- (CLUSTER-FILE | DIRECTORY) SECONDS TURNS`
//!
//! With a directory in place of a cluster file, both open an embedded cluster there, one after the other. A hundred
//! tasks run transactions of ten reads, as `plinth bench run --workload point-reads` does: the read version, then ten
//! reads at once, then the commit. It writes 100,000 rows below `handle_speed/` first.

#![allow(clippy::disallowed_methods)] // a program of its own

use futures_util::future::try_join_all;
use plinth::Database;
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
        let write = async |tr: plinth::Transaction| {
            for row in rows.clone() {
                tr.set(key(row), [7; 50]);
            }
            Ok::<_, plinth::Error>(())
        };
        database.run(write).await?;
    }
    Ok(())
}

/// Reads a second of the client on its own loop.
async fn raw_reads(database: &plinth_client::Database, time: Duration) -> f64 {
    let (group, reads) = (plinth_runtime::TaskGroup::new(), Rc::new(Cell::new(0)));
    for task in 0..TASKS {
        let (database, reads) = (database.clone(), reads.clone());
        group.spawn("reader", async move {
            let mut state = task as u64;
            loop {
                let read = database.run(async |tr| {
                    tr.get_read_version().await?;
                    let gets = (0..READS).map(|_| tr.get(&key(random(&mut state)), false));
                    try_join_all(gets.collect::<Vec<_>>()).await.map(drop)
                });
                read.await.expect("reads");
                reads.set(reads.get() + READS as u64);
            }
        });
    }
    plinth_runtime::sleep(WARM_UP).await;
    let before = reads.get();
    plinth_runtime::sleep(time).await;
    (reads.get() - before) as f64 / time.as_secs_f64()
}

/// Reads a second by handles, in tasks of tokio.
async fn handle_reads(database: &Database, time: Duration) -> f64 {
    let reads = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|task| {
        let (database, reads) = (database.clone(), reads.clone());
        tokio::spawn(async move {
            let state = AtomicU64::new(task as u64);
            loop {
                let read = database.run(async |tr| {
                    tr.read_version().await?;
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
    let before = reads.load(Ordering::Relaxed);
    tokio::time::sleep(time).await;
    let after = reads.load(Ordering::Relaxed);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    (after - before) as f64 / time.as_secs_f64()
}

fn is_cluster_file(place: &Path) -> bool {
    place
        .extension()
        .is_some_and(|extension| extension == "cluster")
}

/// The client, on the loop that this runs on.
async fn raw_turn(place: PathBuf, time: Duration) -> f64 {
    if is_cluster_file(&place) {
        let file = ClusterFile::load(&place).await.expect("a cluster file");
        return raw_reads(&plinth_client::connect(file), time).await;
    }
    let embedded = Embedded::open(&place, EmbeddedOptions::default()).await;
    let embedded = embedded.expect("it opens");
    let reads = raw_reads(&embedded.database(), time).await;
    embedded.close().await;
    reads
}

async fn open(place: &Path) -> Result<Database, plinth::OpenError> {
    match is_cluster_file(place) {
        true => Database::open(place).await,
        false => Database::open_embedded(place).await,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, seconds, turns] = &arguments[..] else {
        return Err("usage: handle_speed (CLUSTER-FILE | DIRECTORY) SECONDS TURNS".into());
    };
    let (place, turns) = (PathBuf::from(place), turns.parse::<usize>()?);
    let time = Duration::from_secs(seconds.parse()?);
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    tokio.block_on(async {
        let database = open(&place).await?;
        load(&database).await?;
        database.close().await;
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    let mut shares = Vec::new();
    println!("{:>10} {:>10}  share", "client", "handles");
    for _ in 0..turns {
        let at = place.clone();
        let raw = real::spawn_worker("client", move || raw_turn(at, time));
        let raw = raw.join().map_err(|_| "the client's thread has ended")?;
        let handles = tokio.block_on(async {
            let database = open(&place).await?;
            let reads = handle_reads(&database, time).await;
            database.close().await;
            Ok::<_, plinth::OpenError>(reads)
        })?;
        println!(
            "{raw:>10.0} {handles:>10.0}  {:.1} %",
            100.0 * handles / raw
        );
        shares.push(handles / raw);
    }
    shares.sort_by(f64::total_cmp);
    println!("median {:.1} %", 100.0 * shares[shares.len() / 2]);
    Ok(())
}
