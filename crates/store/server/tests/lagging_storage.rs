//! Storage servers that do not advance: cut off from the logs alone, or started from files of the past.

use crate::common::{Cluster, commits, reads, some_seconds};
use crate::damaged_logs::damage_blocks_with;
use plinth_client::Database;
use plinth_control::movement;
use plinth_control::singletons::read_servers;
use plinth_core::key::KeyRange;
use plinth_core::system_keys::ShardRecord;
use plinth_core::{Key, Uid};
use plinth_protocol::control::ProcessClass;
use plinth_runtime::sim::{FilesCopy, SimConfig, Simulation, control};
use plinth_runtime::{Duration, timeout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const SEEDS: std::ops::Range<u64> = 1..4;
const FIRST_LOG: usize = 4;
const FIRST_STORAGE: usize = 6;
const STORAGE: usize = 4;

/// Three servers for what needs no disk, two log servers, and four storage servers.
fn simulated(seed: u64, story: impl AsyncFnOnce(Cluster, Database) + 'static) {
    simulated_from_the_begin(seed, async move |cluster, database, _| {
        story(cluster, database).await;
    });
}

/// The story gets copies of the files as they were when the storage servers had nothing on disk yet.
fn simulated_from_the_begin(
    seed: u64,
    story: impl AsyncFnOnce(Cluster, Database, Vec<FilesCopy>) + 'static,
) {
    use ProcessClass::{Log, Stateless, Storage};
    let simulation = Simulation::new(seed, SimConfig::default());
    let classes = [
        [Stateless; 3].to_vec(),
        vec![Log; 2],
        vec![Storage; STORAGE],
    ];
    let cluster = Cluster::start_classes(&simulation, 3, &classes.concat());
    simulation.run(async move {
        let database = cluster.create_now("double").await;
        let servers = FIRST_STORAGE..FIRST_STORAGE + STORAGE;
        let copies = servers.map(|server| copy_of(&cluster, server)).collect();
        some_seconds(20).await; // every server has joined
        assert!(commits(&database, "first").await);
        story(cluster, database, copies).await;
    });
}

/// Each storage server's number in the cluster.
async fn numbers(database: &Database) -> BTreeMap<Uid, usize> {
    let read = movement::run(database, async |tr| read_servers(tr).await);
    let servers = read.await.expect("reads").servers.into_iter();
    let number = |ip: std::net::IpAddr| match ip {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]),
        std::net::IpAddr::V6(_) => unreachable!("no server has such an address"),
    };
    servers
        .map(|(id, record)| (id, number(record.address.ip())))
        .collect()
}

/// The servers that hold a key, and those that are to.
async fn holders(database: &Database, key: &'static [u8]) -> (Vec<usize>, Vec<usize>) {
    let numbers = numbers(database).await;
    let (_, record) = shard(database, key).await;
    let of = |team: &[Uid]| {
        let mut servers: Vec<usize> = team.iter().map(|id| numbers[id]).collect();
        servers.sort_unstable();
        servers
    };
    (of(&record.team), of(&record.destination))
}

async fn shard(database: &Database, key: &'static [u8]) -> (KeyRange, ShardRecord) {
    let found = movement::run(database, async |tr| movement::shard_at(tr, key).await);
    found.await.expect("reads")
}

/// Lets these servers hold what the key is in, and others the system keys.
async fn place(database: &Database) -> Vec<usize> {
    for (key, servers) in [(&b"key"[..], [6, 7]), (b"\xff", [8, 9])] {
        let ids = numbers(database).await;
        let to = ids.iter().filter(|(_, number)| servers.contains(number));
        let to: Vec<Uid> = to.map(|(id, _)| *id).collect();
        let (shard, record) = shard(database, key).await;
        let range = match key == b"\xff" {
            true => KeyRange::new(Key::from_static(b"\xff"), shard.end.clone()),
            false => KeyRange::new(shard.begin.clone(), Key::from_static(b"\xff")),
        };
        let range = KeyRange::new(range.begin.max(shard.begin), range.end.min(shard.end));
        if record.team != to {
            let begun = movement::run(database, async |tr| {
                movement::start(tr, &range, &record.team, &to).await
            });
            begun.await.expect("it begins");
        }
        some_seconds(20).await;
    }
    let (team, moves) = holders(database, b"key").await;
    assert_eq!((&team[..], moves), (&[6, 7][..], vec![]));
    team
}

fn cut_off(cluster: &Cluster, server: usize) {
    for log in FIRST_LOG..FIRST_STORAGE {
        control().partition(cluster.machine(server), cluster.machine(log), true);
    }
}

fn connect_again(cluster: &Cluster, server: usize) {
    for log in FIRST_LOG..FIRST_STORAGE {
        control().heal(cluster.machine(server), cluster.machine(log));
    }
}

/// What the status document says of copies: whether all are there, how many, and how many zones may fail.
async fn said(cluster: &Cluster) -> (bool, u64, u64, String) {
    let json = cluster.status_with("").await;
    let document: Value = serde_json::from_str(&json).expect("it is JSON");
    let cluster = &document["cluster"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{json}"));
    (
        cluster["data"]["state"]["healthy"] == true,
        number(&cluster["data"]["state"]["min_replicas_remaining"]),
        number(&cluster["fault_tolerance"]["max_zone_failures_without_losing_data"]),
        cluster["messages"].to_string(),
    )
}

#[test]
fn a_server_that_does_not_advance_is_suspect_at_30_s_and_counts_again_when_it_has_caught_up() {
    for seed in SEEDS {
        simulated(seed, async |cluster, database| {
            let team = place(&database).await;
            cut_off(&cluster, team[0]);
            some_seconds(20).await;
            let (healthy, copies, may_fail, _) = said(&cluster).await;
            assert_eq!(
                (healthy, copies, may_fail),
                (true, 2, 1),
                "it may be a moment"
            );
            some_seconds(20).await;
            let (healthy, copies, may_fail, messages) = said(&cluster).await;
            assert_eq!((healthy, copies, may_fail), (false, 1, 0), "{messages}");
            assert!(messages.contains("lagging_storage"), "{messages}");
            let what = format!("10.0.0.{}:4500 waits for versions from", team[0]);
            assert!(messages.contains(&what), "{messages}");
            connect_again(&cluster, team[0]);
            some_seconds(10).await;
            let (healthy, copies, _, messages) = said(&cluster).await;
            assert_eq!((healthy, copies), (true, 2), "{messages}");
            assert!(!messages.contains("lagging_storage"), "{messages}");
            assert!(!messages.contains("storage_without_logs"), "{messages}");
            assert_eq!(holders(&database, b"key").await, (team, vec![]));
        });
    }
}

#[test]
fn a_server_that_lags_for_long_is_replaced_and_the_others_may_go() {
    for seed in SEEDS {
        simulated(seed, async |cluster, database| {
            let team = place(&database).await;
            cut_off(&cluster, team[0]);
            some_seconds(100).await;
            assert!(commits(&database, "second").await);
            let (healthy, copies, _, messages) = said(&cluster).await;
            assert_eq!((healthy, copies), (true, 2), "{messages}");
            let (now, _) = holders(&database, b"key").await;
            assert!(!now.contains(&team[0]), "{now:?}");
            cluster.kill(team[1]);
            assert_eq!(reads(&database).await.as_deref(), Some("second"));
            // Somebody who lags gets a new server, which holds nothing until it keeps up.
            connect_again(&cluster, team[0]);
            cluster.restart(team[1]);
            some_seconds(60).await;
            assert_eq!(numbers(&database).await.len(), STORAGE);
            assert!(said(&cluster).await.0);
        });
    }
}

#[test]
fn while_all_copies_lag_nothing_moves() {
    for seed in SEEDS {
        simulated(seed, async |cluster, database| {
            let team = place(&database).await;
            team.iter().for_each(|server| cut_off(&cluster, *server));
            for _ in 0..15 {
                some_seconds(10).await;
                assert_eq!(holders(&database, b"key").await, (team.clone(), vec![]));
            }
            let (healthy, copies, _, messages) = said(&cluster).await;
            assert_eq!((healthy, copies), (false, 0), "{messages}");
            team.iter()
                .for_each(|server| connect_again(&cluster, *server));
            some_seconds(20).await;
            assert_eq!(reads(&database).await.as_deref(), Some("first"));
            assert_eq!(holders(&database, b"key").await, (team, vec![]));
            assert!(said(&cluster).await.0);
        });
    }
}

#[test]
fn a_server_that_needs_what_all_log_servers_of_an_older_epoch_have_lost_is_named_with_them() {
    const MARK: &str = "[a value that is long enough to be found]";
    for seed in SEEDS {
        simulated(seed, async |cluster, database| {
            let team = place(&database).await;
            cut_off(&cluster, team[0]);
            assert!(commits(&database, MARK).await);
            assert!(commits(&database, "after it").await);
            let logs = [FIRST_LOG, FIRST_LOG + 1];
            cluster.kill(FIRST_LOG); // so that an epoch ends
            cluster.restart(FIRST_LOG);
            some_seconds(3).await;
            assert!(commits(&database, "in the next epoch").await);
            logs.iter().for_each(|log| cluster.kill(*log));
            for log in logs {
                damage_blocks_with(&cluster, log, MARK.as_bytes());
                cluster.restart(log);
            }
            connect_again(&cluster, team[0]);
            some_seconds(15).await;
            let (_, _, _, messages) = said(&cluster).await;
            let what = format!("10.0.0.{}:4500 waits for versions from", team[0]);
            assert!(messages.contains(&what), "{messages}");
            for log in logs {
                let named = format!("10.0.0.{log}:4500 (its files are damaged there)");
                assert!(messages.contains(&named), "{messages}");
            }
            // The other copy has it.
            assert_eq!(reads(&database).await.as_deref(), Some("in the next epoch"));
            some_seconds(120).await;
            let (healthy, copies, _, messages) = said(&cluster).await;
            assert_eq!((healthy, copies), (true, 2), "{messages}");
            assert!(!messages.contains("storage_without_logs"), "{messages}");
        });
    }
}

fn is_storage(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("storage-")
}

fn copy_of(cluster: &Cluster, server: usize) -> FilesCopy {
    control().copy_of_files(cluster.machine(server), is_storage)
}

/// Ends a server, sets the files of its storage server back, and starts it again.
fn set_back(cluster: &Cluster, server: usize, copy: &FilesCopy) {
    cluster.kill(server);
    control().set_files_back(cluster.machine(server), copy, is_storage);
    cluster.restart(server);
}

#[test]
fn a_copy_of_the_past_is_told_and_made_anew_and_never_counts() {
    for (seed, age_s) in [(1, 0), (2, 0), (3, 60), (4, 60)] {
        simulated_from_the_begin(seed, async move |cluster, database, begin| {
            let team = place(&database).await;
            let copy = match age_s {
                0 => begin[team[0] - FIRST_STORAGE].clone(),
                _ => copy_of(&cluster, team[0]),
            };
            some_seconds(age_s).await;
            assert!(commits(&database, "second").await);
            cluster.kill(FIRST_LOG); // so that a generation ends
            cluster.restart(FIRST_LOG);
            some_seconds(60).await;
            set_back(&cluster, team[0], &copy);
            some_seconds(5).await;
            let mut told = 0;
            loop {
                let (healthy, copies, may_fail, messages) = said(&cluster).await;
                if !messages.contains("\"older_copy\"") {
                    break; // it has been made anew
                }
                if !healthy {
                    assert_eq!((copies, may_fail), (1, 0), "{messages}");
                    told += 1;
                }
                some_seconds(1).await;
            }
            assert!(told > 5, "it was told {told} times");
            some_seconds(60).await;
            let (healthy, copies, _, messages) = said(&cluster).await;
            assert_eq!((healthy, copies), (true, 2), "{messages}");
            assert!(!messages.contains("\"older_copy\""), "{messages}");
            assert_eq!(numbers(&database).await.len(), STORAGE);
            let aside = control().files(cluster.machine(team[0])).into_iter();
            let is_aside = |path: &Path| path.to_string_lossy().contains("/older-storage-");
            assert!(aside.into_iter().any(|path| is_aside(&path)));
            cluster.kill(team[1]);
            assert_eq!(reads(&database).await.as_deref(), Some("second"));
            assert_eq!(*cluster.lines.borrow(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_copy_of_the_past_that_is_the_last_one_stays_where_it_is() {
    simulated(1, async |cluster, database| {
        let team = place(&database).await;
        let copies: Vec<FilesCopy> = team.iter().map(|s| copy_of(&cluster, *s)).collect();
        assert!(commits(&database, "second").await);
        some_seconds(60).await;
        let newest = copy_of(&cluster, team[0]);
        for (server, copy) in team.iter().zip(&copies) {
            set_back(&cluster, *server, copy);
        }
        some_seconds(100).await;
        let (healthy, copies, _, messages) = said(&cluster).await;
        assert_eq!((healthy, copies), (false, 0), "{messages}");
        assert!(messages.contains("\"older_copy\""), "{messages}");
        let read = database.run(async |tr| tr.get("key", false).await);
        let read = timeout(Duration::from_secs(30), read).await;
        assert_eq!(read, None, "nobody has it");
        for server in &team {
            assert!(
                control()
                    .files(cluster.machine(*server))
                    .iter()
                    .any(|path| is_storage(path))
            );
        }
        // Somebody finds the newest files.
        set_back(&cluster, team[0], &newest);
        assert_eq!(reads(&database).await.as_deref(), Some("second"));
        some_seconds(100).await;
        let (healthy, _, _, messages) = said(&cluster).await;
        assert!(healthy, "{messages}");
    });
}
