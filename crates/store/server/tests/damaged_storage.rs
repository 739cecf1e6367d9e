//! Storage servers whose files are damaged. What others have is made anew from them; what nobody else has stays.

use crate::common::{Cluster, some_seconds};
use plinth_client::{Database, RangeOptions};
use plinth_core::KeySelector;
use plinth_runtime::sim::{MachineId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, timeout};
use std::path::PathBuf;

const SEEDS: std::ops::Range<u64> = 1..4;
const ROWS: usize = 2000;

/// The files of a server's storage servers whose names begin like this.
fn files(machine: MachineId, prefix: &str) -> Vec<PathBuf> {
    let is_meant = |path: &PathBuf| {
        let name = path.strip_prefix("/data").unwrap_or(path).to_string_lossy();
        name.starts_with(prefix) && name.ends_with(".redb")
    };
    control()
        .files(machine)
        .into_iter()
        .filter(is_meant)
        .collect()
}

fn key(i: usize) -> String {
    format!("key/{i:06}")
}

/// A value whose bytes are nowhere else.
fn value(i: usize) -> String {
    format!("[{i:06}]").repeat(60)
}

async fn fill(database: &Database) {
    for first in (0..ROWS).step_by(200) {
        let filled = database.run(async |tr| {
            (first..first + 200).for_each(|i| tr.set(key(i), value(i)));
            Ok(())
        });
        filled.await.expect("committed");
    }
}

/// Reads every row.
async fn read_all(database: &Database) -> usize {
    let mut found = 0;
    while found < ROWS {
        let rows = database.run(async |tr| {
            let begin = KeySelector::first_greater_or_equal(key(found));
            let end = KeySelector::first_greater_or_equal("key0");
            tr.get_range(begin, end, RangeOptions::limit(100), false)
                .await
        });
        let rows = rows.await.expect("read").rows;
        assert!(!rows.is_empty(), "row {found} is gone");
        for (key_found, value_found) in rows {
            assert_eq!(&key_found[..], key(found).as_bytes());
            assert_eq!(&value_found[..], value(found).as_bytes());
            found += 1;
        }
    }
    found
}

/// Damages the blocks of a stopped server's file that hold this row.
fn damage(cluster: &Cluster, server: usize, row: usize) {
    let machine = cluster.machine(server);
    let files = files(machine, "storage-");
    let hits = files.iter().map(|file| {
        let value = value(row);
        control().flip_bit_of_each(machine, file, value.as_bytes())
    });
    assert!(
        hits.sum::<usize>() > 0,
        "row {row} is not on server {server}"
    );
}

/// A `double` cluster on two machines with rows that all its storage servers have on disk. All servers have stopped.
async fn stopped_cluster(cluster: &Cluster) -> Database {
    let database = cluster.create_now("double").await;
    fill(&database).await;
    some_seconds(10).await;
    (1..=2).for_each(|server| cluster.kill(server));
    database
}

#[test]
fn what_two_damaged_copies_have_together_is_read_and_made_anew() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster).await;
            for (server, row) in [(1, 100), (1, 1500), (2, 700), (2, 1900)] {
                damage(&cluster, server, row);
            }
            (1..=2).for_each(|server| cluster.restart(server));
            for _ in 0..3 {
                let all = timeout(Duration::from_secs(120), read_all(&database)).await;
                assert_eq!(all, Some(ROWS), "seed {seed}");
                some_seconds(60).await;
            }
            // Each has been made anew by then, and what was damaged is no longer needed.
            for server in 1..=2 {
                let machine = cluster.machine(server);
                let (now, aside) = (
                    files(machine, "storage-"),
                    files(machine, "damaged-storage-"),
                );
                assert_eq!((now.len(), aside.len()), (1, 1), "seed {seed}");
            }
            assert_eq!(*cluster.lines.borrow(), Vec::<String>::new());
        });
    }
}
