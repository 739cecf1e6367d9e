//! Servers that find the files of their log servers damaged when they start.

use crate::common::{Cluster, commits, reads, some_seconds};
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
                .for_each(|server| damage(&cluster, *server));
            (1..=SERVERS).for_each(|server| cluster.restart(server));
            assert!(!commits(&database, "second").await, "seed {seed}");
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
