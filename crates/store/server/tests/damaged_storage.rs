//! Storage servers whose files are damaged. What others have is made anew from them; what nobody else has stays.

use crate::common::{Cluster, commits, reads, some_seconds};
use plinth_client::{Database, RangeOptions};
use plinth_core::{KeySelector, MutationKind};
use plinth_runtime::sim::{MachineId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, probe, timeout};
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

/// The places of a row in the files of a server.
fn places(machine: MachineId, row: usize) -> Vec<(PathBuf, u64)> {
    let value = value(row);
    let of = |file: PathBuf| {
        let places = control().places_in_file(machine, &file, value.as_bytes());
        places.into_iter().map(move |at| (file.clone(), at))
    };
    files(machine, "storage-")
        .into_iter()
        .flat_map(of)
        .collect()
}

/// Damages the blocks of a stopped server's file that hold this row.
fn damage(cluster: &Cluster, server: usize, row: usize) {
    let machine = cluster.machine(server);
    let places = places(machine, row);
    assert!(!places.is_empty(), "row {row} is not on server {server}");
    for (file, at) in places {
        assert!(control().flip_bit_in_file(machine, &file, at..at + 1));
    }
}

/// A `double` cluster on two machines with rows that all its storage servers have on disk. All servers have stopped.
async fn stopped_cluster(cluster: &Cluster) -> Database {
    probe::reset();
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
            let said = cluster.status_with("\"healthy\":true").await;
            let is_whole =
                said.contains("\"min_replicas_remaining\":2") && !said.contains("damaged_storage");
            assert!(is_whole, "seed {seed}: {said}");
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

#[test]
fn what_no_copy_can_read_stays_where_it_is_and_the_rest_is_served() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster).await;
            (1..=2).for_each(|server| damage(&cluster, server, 1000));
            (1..=2).for_each(|server| cluster.restart(server));
            let lost = database.run(async |tr| tr.get(key(1000), false).await);
            assert!(timeout(Duration::from_secs(60), lost).await.is_none());
            for row in [0, 900, 1100, ROWS - 1] {
                let found = database.run(async |tr| tr.get(key(row), false).await);
                let found = timeout(Duration::from_secs(20), found).await;
                let found = found.expect("answered").expect("read").expect("there");
                assert_eq!(found, value(row).as_bytes(), "seed {seed}");
            }
            assert!(commits(&database, "written since").await, "seed {seed}");
            assert_eq!(reads(&database).await.as_deref(), Some("written since"));
            // Their keys, files and bytes are named, and they do not count as replicas.
            let said = cluster.status_with("keys from `key/00").await;
            for words in [
                "files of storage servers are damaged",
                "/data/storage-",
                ".redb: keys from `key/00",
                "(block at byte ",
                "\"healthy\":false",
                "\"min_replicas_remaining\":0",
                "\"max_zone_failures_without_losing_data\":0",
                "no copy of some data can serve all of it",
                "\"unreadable\":{\"more_ranges\":0,\"ranges\":[{\"begin\":\"key/00",
            ] {
                assert!(
                    said.contains(words),
                    "seed {seed}: {words} is not in {said}"
                );
            }
            // No copy opens its files again for what is known.
            let opened = || {
                probe::hits()
                    .get("ssd_engine_opens_again_after_damage")
                    .copied()
            };
            let before = opened();
            assert!(before.is_some(), "seed {seed}");
            for _ in 0..3 {
                let lost = database.run(async |tr| tr.get(key(1000), false).await);
                assert!(timeout(Duration::from_secs(20), lost).await.is_none());
            }
            assert_eq!(opened(), before, "seed {seed}");
            for server in 1..=2 {
                let aside = files(cluster.machine(server), "damaged-storage-");
                assert_eq!(aside, Vec::<PathBuf>::new(), "seed {seed}");
            }
            assert_eq!(*cluster.lines.borrow(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_damaged_copy_whose_only_other_is_away_waits_for_it() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 3);
        simulation.run(async move {
            let database = stopped_cluster(&cluster).await;
            cluster.kill(3);
            let copies =
                (1..=3).filter(|server| !places(cluster.machine(*server), 1000).is_empty());
            let copies: Vec<usize> = copies.collect();
            assert_eq!(copies.len(), 2, "seed {seed}");
            // The coordinator's machine stays.
            let (away, here) = match copies[0] {
                1 => (copies[1], copies[0]),
                first => (first, copies[1]),
            };
            damage(&cluster, here, 1000);
            let others = (1..=3).filter(|server| *server != away);
            others.for_each(|server| cluster.restart(server));
            let read = async || {
                let read = database.run(async |tr| tr.get(key(1000), false).await);
                timeout(Duration::from_secs(100), read).await
            };
            assert!(read().await.is_none(), "seed {seed}");
            cluster.restart(away);
            let found = read().await.expect("answered").expect("read");
            assert_eq!(found.as_deref(), Some(value(1000).as_bytes()));
            some_seconds(60).await;
            let all = timeout(Duration::from_secs(120), read_all(&database)).await;
            assert_eq!(all, Some(ROWS), "seed {seed}");
        });
    }
}

#[test]
fn an_atomic_operation_on_a_row_that_cannot_be_read_is_left_out_and_the_rest_is_served() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster).await;
            damage(&cluster, 1, 700);
            damage(&cluster, 2, 1500);
            (1..=2).for_each(|server| cluster.restart(server));
            for row in [700, 1500] {
                let added = database.run(async |tr| {
                    tr.atomic_op(MutationKind::AppendIfFits, key(row), "+");
                    Ok(())
                });
                let added = timeout(Duration::from_secs(30), added).await;
                assert_eq!(added, Some(Ok(())), "seed {seed}");
            }
            for _ in 0..3 {
                for row in [0, 700, 1500, 1999] {
                    let found = database.run(async |tr| tr.get(key(row), false).await);
                    let found = timeout(Duration::from_secs(60), found).await;
                    let found = found.expect("answered").expect("read").expect("there");
                    let added = if row == 700 || row == 1500 { "+" } else { "" };
                    let expected = value(row) + added;
                    assert_eq!(found, expected.as_bytes(), "seed {seed}, row {row}");
                }
                some_seconds(60).await;
            }
            let said = cluster.status_with("\"healthy\":true").await;
            assert!(
                said.contains("\"min_replicas_remaining\":2"),
                "seed {seed}: {said}"
            );
            assert!(probe::hits().contains_key("storage_leaves_out_an_atomic_operation"));
            assert_eq!(*cluster.lines.borrow(), Vec::<String>::new());
        });
    }
}
