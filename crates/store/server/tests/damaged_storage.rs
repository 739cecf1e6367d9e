//! Storage servers whose files are damaged. What others have is made anew from them; what nobody else has stays.

use crate::common::{Cluster, commits, reads, some_seconds};
use plinth_client::{Database, RangeOptions};
use plinth_core::{KeySelector, MutationKind};
use plinth_runtime::sim::{MachineId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, probe, timeout};
use std::collections::BTreeSet;
use std::path::PathBuf;

const SEEDS: std::ops::Range<u64> = 1..4;
/// With each engine.
const DOUBLE: [&str; 2] = ["double", "double memory"];
const ROWS: usize = 2000;

/// The files of a server's storage servers whose names begin like this.
fn files(machine: MachineId, prefix: &str) -> Vec<PathBuf> {
    let is_meant = |path: &PathBuf| {
        let name = path.strip_prefix("/data").unwrap_or(path).to_string_lossy();
        let is_engine = name.ends_with(".redb") || name.ends_with(".log");
        name.starts_with(prefix) && is_engine
    };
    control()
        .files(machine)
        .into_iter()
        .filter(is_meant)
        .collect()
}

/// How many storage servers have such files.
fn servers(machine: MachineId, prefix: &str) -> usize {
    let id = |path: PathBuf| {
        let name = path.to_string_lossy().into_owned();
        name.split_once('.').map(|(id, _)| id.to_owned())
    };
    let ids: BTreeSet<_> = files(machine, prefix).into_iter().map(id).collect();
    ids.len()
}

fn seeds_with_engines() -> impl Iterator<Item = (u64, &'static str)> {
    SEEDS.flat_map(|seed| DOUBLE.map(|mode| (seed, mode)))
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

/// A cluster on two machines with rows that all its storage servers have on disk. All servers have stopped.
async fn stopped_cluster(cluster: &Cluster, mode: &str) -> Database {
    probe::reset();
    let database = cluster.create_now(mode).await;
    fill(&database).await;
    some_seconds(10).await;
    (1..=2).for_each(|server| cluster.kill(server));
    database
}

#[test]
fn what_two_damaged_copies_have_together_is_read_and_made_anew() {
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
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
                    servers(machine, "storage-"),
                    servers(machine, "damaged-storage-"),
                );
                assert_eq!((now, aside), (1, 1), "seed {seed}, {mode}");
            }
            assert_eq!(*cluster.lines.borrow(), Vec::<String>::new());
        });
    }
}

#[test]
fn what_no_copy_can_read_stays_where_it_is_and_the_rest_is_served() {
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
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
                match mode {
                    "double" => ".redb: keys from `key/00",
                    _ => ".log: keys from `key/00",
                },
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
            assert_eq!(before.is_some(), mode == "double", "seed {seed}");
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
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 3);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
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
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
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

/// Damages the rows that a stopped server's engine has for itself, in the first of their places.
fn damage_own_rows(machine: MachineId) {
    let block = |at: u64| (at - 8192) / 4104;
    for file in files(machine, "storage-") {
        let places = |bytes: &[u8]| control().places_in_file(machine, &file, bytes);
        let durable = places(b"\xff\xff/durable");
        if file.to_string_lossy().ends_with(".log") {
            // Neither the last record, which would look torn, nor what is said of it.
            for at in durable.iter().rev().skip(4).take(2) {
                assert!(control().flip_bit_in_file(machine, &file, *at..at + 1));
            }
            continue;
        }
        let sample: BTreeSet<u64> = places(b"\xff\xff/sample/").into_iter().map(block).collect();
        let first = durable
            .into_iter()
            .filter(|at| sample.contains(&block(*at)));
        let mut struck = 0;
        for at in first {
            assert!(control().flip_bit_in_file(machine, &file, at..at + 1));
            struck += 1;
        }
        assert!(struck > 0, "no block has rows of the sample beside it");
    }
}

#[test]
fn a_copy_whose_own_rows_and_meta_file_are_damaged_opens_and_serves_while_it_is_the_only_one() {
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
            let machine = cluster.machine(1);
            damage_own_rows(machine);
            let meta = |path: &PathBuf| path.to_string_lossy().ends_with(".meta");
            let meta = control().files(machine).into_iter().find(meta);
            let meta = meta.expect("it has one");
            assert!(control().flip_bit_in_file(machine, &meta, 0..8));
            for at in places(cluster.machine(2), 1000) {
                assert!(control().flip_bit_in_file(cluster.machine(2), &at.0, at.1..at.1 + 1));
            }
            (1..=2).for_each(|server| cluster.restart(server));
            let all = timeout(Duration::from_secs(120), read_all(&database)).await;
            assert_eq!(all, Some(ROWS), "seed {seed}, {mode}");
            some_seconds(90).await;
            let all = timeout(Duration::from_secs(120), read_all(&database)).await;
            assert_eq!(all, Some(ROWS), "seed {seed}, {mode}");
            let said = cluster.status_with("\"healthy\":true").await;
            let is_whole = said.contains("\"min_replicas_remaining\":2");
            assert!(is_whole, "seed {seed}, {mode}: {said}");
            assert_eq!(*cluster.lines.borrow(), Vec::<String>::new());
        });
    }
}

#[test]
fn what_a_server_has_refused_it_refuses_when_it_is_started_again_and_its_bytes_read_well() {
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
            let mut struck = Vec::new();
            for machine in (1..=2).map(|server| cluster.machine(server)) {
                for (file, at) in places(machine, 1000) {
                    let flip = |bytes: &mut Vec<u8>| bytes[at as usize] ^= 1;
                    assert!(control().change_file(machine, &file, flip));
                    struck.push((machine, file, at));
                }
            }
            let read = async || {
                let read = database.run(async |tr| tr.get(key(1000), false).await);
                timeout(Duration::from_secs(40), read).await
            };
            for is_healed in [false, true] {
                (1..=2).for_each(|server| cluster.restart(server));
                assert_eq!(
                    read().await,
                    None,
                    "seed {seed}, {mode}, healed: {is_healed}"
                );
                let said = cluster
                    .status_with("\"unreadable\":{\"more_ranges\":0,\"ranges\":[{")
                    .await;
                assert!(
                    said.contains("keys from `key/00"),
                    "seed {seed}, {mode}: {said}"
                );
                (1..=2).for_each(|server| cluster.kill(server));
                for (machine, file, at) in &struck {
                    let value = value(1000);
                    let rest = control().places_in_file(*machine, file, &value.as_bytes()[1..]);
                    if !is_healed && rest.contains(&(at + 1)) {
                        let heal = |bytes: &mut Vec<u8>| bytes[*at as usize] ^= 1;
                        assert!(control().change_file(*machine, file, heal));
                    }
                }
            }
        });
    }
}

#[test]
fn copies_that_cannot_be_opened_stay_where_they_are_and_status_names_them() {
    for (seed, mode) in seeds_with_engines() {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            let database = stopped_cluster(&cluster, mode).await;
            let copy = |server| {
                let is_meant =
                    |path: &std::path::Path| path.to_string_lossy().contains("/storage-");
                control().copy_of_files(cluster.machine(server), is_meant)
            };
            let before = copy(1);
            for machine in (1..=2).map(|server| cluster.machine(server)) {
                for file in files(machine, "storage-") {
                    let wreck = |bytes: &mut Vec<u8>| {
                        let end = bytes.len().min(8192);
                        bytes[..end].fill(0xa5);
                    };
                    assert!(control().change_file(machine, &file, wreck));
                }
            }
            (1..=2).for_each(|server| cluster.restart(server));
            some_seconds(200).await;
            let said = cluster.status_with("which cannot be opened").await;
            for words in [
                "which cannot be opened",
                "\"healthy\":false",
                "what lies where cannot be read",
            ] {
                assert!(
                    said.contains(words),
                    "seed {seed}, {mode}: {words} is not in {said}"
                );
            }
            for machine in (1..=2).map(|server| cluster.machine(server)) {
                assert_eq!(
                    servers(machine, "damaged-storage-"),
                    0,
                    "seed {seed}, {mode}"
                );
                assert!(servers(machine, "storage-") > 0, "seed {seed}, {mode}");
            }
            // Somebody puts the files of one back.
            cluster.kill(1);
            let is_meant = |path: &std::path::Path| before.paths().any(|other| other == path);
            control().set_files_back(cluster.machine(1), &before, is_meant);
            cluster.restart(1);
            let all = timeout(Duration::from_secs(120), read_all(&database)).await;
            assert_eq!(all, Some(ROWS), "seed {seed}, {mode}");
        });
    }
}
