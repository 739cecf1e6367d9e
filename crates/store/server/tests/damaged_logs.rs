//! Servers that find the files of their log servers damaged when they start.

use crate::common::{Cluster, commits, reads, some_seconds};
use plinth_runtime::Duration;
use plinth_runtime::sim::{Locality, MachineId, SimConfig, Simulation, control};
use std::path::PathBuf;

const SEEDS: std::ops::Range<u64> = 1..4;
const SERVERS: usize = 4;
/// Bytes of the header of the first block in a segment.
const FIRST_BLOCK: std::ops::Range<u64> = 64..88;

/// The files of a server's log servers; of those that were set aside if `prefix` says so.
fn logs(machine: MachineId, prefix: &str) -> Vec<PathBuf> {
    let is_log = |path: &PathBuf| {
        let name = path.strip_prefix("/data").unwrap_or(path).to_string_lossy();
        name.starts_with(prefix)
    };
    control()
        .files(machine)
        .into_iter()
        .filter(is_log)
        .collect()
}

/// Stops all servers, and returns those that have log servers.
fn stop_all(cluster: &Cluster) -> Vec<usize> {
    (1..=SERVERS).for_each(|server| cluster.kill(server));
    let has_log = |server: &usize| !logs(cluster.machine(*server), "log-").is_empty();
    (1..=SERVERS).filter(has_log).collect()
}

/// Damages the oldest block of a server's log, behind which there are others.
fn damage(cluster: &Cluster, server: usize) {
    let machine = cluster.machine(server);
    let oldest = &logs(machine, "log-")[0];
    assert!(control().flip_bit_in_file(machine, oldest, FIRST_BLOCK));
}

/// Damages the blocks of a server's log that have these bytes.
pub(crate) fn damage_blocks_with(cluster: &Cluster, server: usize, wanted: &[u8]) {
    let machine = cluster.machine(server);
    let places = logs(machine, "log-").into_iter().flat_map(|file| {
        let places = control().places_in_file(machine, &file, wanted);
        places.into_iter().map(move |at| (file.clone(), at))
    });
    let places: Vec<_> = places.collect();
    assert!(!places.is_empty(), "not in the log of server {server}");
    for (file, at) in places {
        assert!(control().flip_bit_in_file(machine, &file, at..at + 1));
    }
}

/// A cluster with a committed row, all of whose servers have stopped, and the servers that have log servers.
async fn stopped_cluster(cluster: &Cluster, mode: &str) -> (plinth_client::Database, Vec<usize>) {
    cluster.stays_ended.set(true);
    let database = cluster.create_now(mode).await;
    for value in ["a", "b", "c", "first"] {
        assert!(commits(&database, value).await);
    }
    some_seconds(2).await;
    let with_logs = stop_all(cluster);
    (database, with_logs)
}

fn lines(cluster: &Cluster) -> Vec<String> {
    cluster.lines.borrow().clone()
}

#[test]
fn a_server_with_a_damaged_log_server_serves_however_late_the_epoch_without_it_begins() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, SERVERS as u8);
        simulation.run(async move {
            let (database, with_logs) = stopped_cluster(&cluster, "triple").await;
            let damaged = with_logs[0];
            damage(&cluster, damaged);
            cluster.restart(damaged);
            some_seconds(20).await;
            let others = (1..=SERVERS).filter(|server| *server != damaged);
            others.for_each(|server| cluster.restart(server));
            assert!(commits(&database, "second").await, "seed {seed}");
            assert_eq!(reads(&database).await.as_deref(), Some("second"));
            some_seconds(5).await;
            assert_eq!(lines(&cluster), Vec::<String>::new(), "seed {seed}");
            let aside = logs(cluster.machine(damaged), "damaged-log-");
            assert!(!aside.is_empty(), "seed {seed}: it is not set aside");
        });
    }
}

#[test]
fn a_server_whose_damaged_log_server_was_the_only_copy_ends_with_a_line_and_touches_nothing() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, SERVERS as u8);
        simulation.run(async move {
            let (database, with_logs) = stopped_cluster(&cluster, "single").await;
            let machine = cluster.machine(with_logs[0]);
            let before = logs(machine, "log-");
            damage(&cluster, with_logs[0]);
            (1..=SERVERS).for_each(|server| cluster.restart(server));
            assert!(!commits(&database, "second").await, "seed {seed}");
            let said = lines(&cluster);
            let names_it = |line: &String| line.starts_with("log server /data/log-");
            assert!(!said.is_empty() && said.iter().all(names_it), "{said:?}");
            assert_eq!(logs(machine, "log-"), before, "seed {seed}");
            assert!(logs(machine, "damaged-").is_empty(), "seed {seed}");
        });
    }
}

#[test]
fn servers_whose_damaged_log_servers_were_the_only_copies_go_on_when_one_is_restored() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, SERVERS as u8);
        let backup = simulation.add_machine(Locality::default());
        simulation.run(async move {
            let (database, with_logs) = stopped_cluster(&cluster, "double").await;
            assert_eq!(with_logs.len(), 2);
            let restored = with_logs[1];
            control().copy_files(cluster.machine(restored), backup);
            with_logs
                .iter()
                .for_each(|server| damage_blocks_with(&cluster, *server, b"first"));
            (1..=SERVERS).for_each(|server| cluster.restart(server));
            assert!(!commits(&database, "second").await, "seed {seed}");
            // The first to be told ends, and may have had the controller: then the other one is told when the first is
            // back, as a supervisor would have it.
            for _ in 0..TOLD_WITHIN {
                with_logs.iter().for_each(|server| cluster.restart(*server));
                assert!(!commits(&database, "second").await, "seed {seed}");
            }
            let said = lines(&cluster);
            for server in &with_logs {
                let files = logs(cluster.machine(*server), "log-");
                let prefix = files[0].with_extension("");
                let named = |line: &String| line.contains(&*prefix.to_string_lossy());
                assert!(said.iter().any(named), "seed {seed}: {said:?}");
                assert!(logs(cluster.machine(*server), "damaged-").is_empty());
            }
            cluster.kill(restored);
            control().copy_files(backup, cluster.machine(restored));
            with_logs.iter().for_each(|server| cluster.restart(*server));
            assert_eq!(reads(&database).await.as_deref(), Some("first"));
            assert!(commits(&database, "third").await, "seed {seed}");
        });
    }
}

#[test]
fn a_damaged_log_server_is_named_while_the_other_copy_is_away_and_its_server_does_not_end() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, SERVERS as u8);
        simulation.run(async move {
            let (database, with_logs) = stopped_cluster(&cluster, "double").await;
            let (damaged, away) = (with_logs[0], with_logs[1]);
            damage(&cluster, damaged);
            let others = (1..=SERVERS).filter(|server| *server != away);
            others.for_each(|server| cluster.restart(server));
            assert!(!commits(&database, "second").await, "seed {seed}");
            let status = cluster.status_with("whose files are damaged").await;
            assert!(status.contains("whose files are damaged"), "{status}");
            assert_eq!(lines(&cluster), Vec::<String>::new(), "seed {seed}");
            cluster.restart(away);
            assert!(commits(&database, "third").await, "seed {seed}");
            assert_eq!(reads(&database).await.as_deref(), Some("third"));
            some_seconds(5).await;
            assert_eq!(lines(&cluster), Vec::<String>::new(), "seed {seed}");
            let aside = logs(cluster.machine(damaged), "damaged-log-");
            assert!(!aside.is_empty(), "seed {seed}: it is not set aside");
        });
    }
}

/// Restarts of both servers.
const TOLD_WITHIN: usize = 4;
const ROWS: usize = 60;

fn row(i: usize) -> (String, String) {
    (format!("row/{i:03}"), format!("[{i:03}]").repeat(30))
}

/// A `double` cluster whose rows came in commits of their own, and all of whose servers have stopped after so many
/// seconds; and its servers with log servers.
async fn stopped_with_rows(
    cluster: &Cluster,
    seconds: u64,
) -> (plinth_client::Database, Vec<usize>) {
    cluster.stays_ended.set(true);
    let database = cluster.create_now("double").await;
    for (key, value) in (0..ROWS).map(row) {
        let written = database.run(async |tr| {
            tr.set(&key[..], &value[..]);
            Ok(())
        });
        written.await.expect("committed");
    }
    some_seconds(seconds).await;
    let with_logs = stop_all(cluster);
    assert_eq!(with_logs.len(), 2);
    (database, with_logs)
}

/// Damages the block of a server's log that has this row.
fn damage_row(cluster: &Cluster, server: usize, i: usize) {
    damage_blocks_with(cluster, server, row(i).1.as_bytes());
}

async fn all_rows_are_read(database: &plinth_client::Database, seed: u64) {
    for i in 0..ROWS {
        let (key, value) = row(i);
        let found = database.run(async |tr| tr.get(&key[..], false).await);
        let found = plinth_runtime::timeout(Duration::from_secs(60), found).await;
        let found = found.unwrap_or_else(|| panic!("seed {seed}: row {i} has no answer"));
        let found = found.expect("read");
        assert_eq!(
            found.as_deref(),
            Some(value.as_bytes()),
            "seed {seed}, row {i}"
        );
    }
}

#[test]
fn what_two_damaged_log_servers_have_together_is_joined() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, SERVERS as u8);
        simulation.run(async move {
            let (database, with_logs) = stopped_with_rows(&cluster, 1).await;
            for (server, rows) in with_logs.iter().zip([[10, 30], [20, 40]]) {
                rows.into_iter()
                    .for_each(|i| damage_row(&cluster, *server, i));
            }
            (1..=SERVERS).for_each(|server| cluster.restart(server));
            all_rows_are_read(&database, seed).await;
            assert!(commits(&database, "since").await, "seed {seed}");
            some_seconds(30).await;
            all_rows_are_read(&database, seed).await;
            assert_eq!(lines(&cluster), Vec::<String>::new(), "seed {seed}");
            // The storage servers have all of it on their disks, and nobody needs the damaged files.
            for server in with_logs {
                let aside = logs(cluster.machine(server), "damaged-log-");
                assert!(!aside.is_empty(), "seed {seed}: they are not set aside");
            }
        });
    }
}

#[test]
fn a_block_that_no_log_server_can_read_and_that_somebody_needs_stops_the_recovery() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, SERVERS as u8);
        simulation.run(async move {
            let (database, with_logs) = stopped_with_rows(&cluster, 1).await;
            let damaged = |server: &usize| {
                damage_row(&cluster, *server, 10);
                damage_row(&cluster, *server, 20 + server);
                logs(cluster.machine(*server), "log-")
            };
            let before: Vec<_> = with_logs.iter().map(damaged).collect();
            (1..=SERVERS).for_each(|server| cluster.restart(server));
            assert!(!commits(&database, "since").await, "seed {seed}");
            let said = lines(&cluster);
            for (server, before) in with_logs.iter().zip(before) {
                let machine = cluster.machine(*server);
                let prefix = before[0].with_extension("");
                let named = |line: &String| {
                    line.contains(&*prefix.to_string_lossy())
                        && line.contains("some of the versions ")
                };
                assert!(said.iter().any(named), "seed {seed}: {said:?}");
                assert_eq!(logs(machine, "log-"), before, "seed {seed}");
                assert!(logs(machine, "damaged-").is_empty(), "seed {seed}");
            }
        });
    }
}
