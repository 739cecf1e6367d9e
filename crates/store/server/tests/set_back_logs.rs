//! A log server whose files were set back within its epoch comes back, and the other one of its set does not.

use crate::common::{Cluster, address, commits, reads, some_seconds};
use plinth_client::Database;
use plinth_coordination::election;
use plinth_core::{Uid, Version};
use plinth_protocol::control::{GetWorkers, ProcessClass};
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{FilesCopy, SimConfig, Simulation, control};
use plinth_runtime::{Duration, Instant, now, sleep, timeout};
use std::net::SocketAddr;
use std::path::Path;

/// The coordinator, two servers with data, and two with logs.
const CLASSES: [ProcessClass; 5] = [
    ProcessClass::Stateless,
    ProcessClass::Storage,
    ProcessClass::Storage,
    ProcessClass::Log,
    ProcessClass::Log,
];
const STORAGE: [usize; 2] = [2, 3];
/// This one is set back.
const OLD: usize = 4;
const OTHER: usize = 5;
/// What was acknowledged this long before the failure is known to a storage server that goes on.
const TOLD: Duration = Duration::from_millis(700);
/// The same of storage servers that lose power too.
const TOLD_BY_FILES: Duration = Duration::from_millis(1700);

fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("log-")
}

/// A database with a first commit, and the files of a log server as they were after it.
async fn begin(cluster: &Cluster) -> (Database, FilesCopy) {
    some_seconds(5).await;
    let database = cluster.create_now("double").await;
    assert!(commits(&database, "first").await);
    some_seconds(1).await;
    let copy = control().copy_of_files(cluster.machine(OLD), is_log);
    assert!(copy.paths().count() > 0);
    (database, copy)
}

/// Both log servers die, and the one that was set back comes back alone.
fn comes_back_alone(cluster: &Cluster, copy: &FilesCopy) {
    [OLD, OTHER]
        .into_iter()
        .for_each(|server| cluster.kill(server));
    control().set_files_back(cluster.machine(OLD), copy, is_log);
    cluster.restart(OLD);
}

async fn says_which_and_goes_on_with_the_other(cluster: &Cluster, database: &Database, seed: u64) {
    some_seconds(8).await;
    let words = format!("{} (log ", address(OLD as u8));
    let said = cluster.status_with("were set back").await;
    let named = said.contains(&words) && said.contains("were set back");
    assert!(named, "seed {seed}: {said}");
    cluster.restart(OTHER);
    assert_eq!(
        reads(database).await.as_deref(),
        Some("last"),
        "seed {seed}"
    );
    assert!(commits(database, "more").await);
}

#[test]
fn a_log_server_that_was_set_back_does_not_end_the_log_before_what_a_storage_server_knows() {
    for seed in 1..6 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start_classes(&simulation, 1, &CLASSES);
        simulation.run(async move {
            let (database, copy) = begin(&cluster).await;
            assert!(commits(&database, "last").await);
            sleep(TOLD).await;
            comes_back_alone(&cluster, &copy);
            says_which_and_goes_on_with_the_other(&cluster, &database, seed).await;
        });
    }
}

#[test]
fn a_log_server_that_was_set_back_does_not_end_the_log_before_what_files_of_storage_servers_know() {
    for seed in 1..6 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start_classes(&simulation, 1, &CLASSES);
        simulation.run(async move {
            let (database, copy) = begin(&cluster).await;
            assert!(commits(&database, "last").await);
            sleep(TOLD_BY_FILES).await;
            STORAGE.into_iter().for_each(|server| cluster.kill(server));
            comes_back_alone(&cluster, &copy);
            STORAGE
                .into_iter()
                .for_each(|server| cluster.restart(server));
            says_which_and_goes_on_with_the_other(&cluster, &database, seed).await;
        });
    }
}

async fn known_by(transport: &Transport, server: (Uid, SocketAddr)) -> Version {
    let endpoint = Interface::new(server.1, server.0).endpoint::<GetStorageStatus>();
    let call = transport.call(&endpoint, GetStorageStatus {});
    let status = timeout(Duration::from_secs(1), call).await;
    status
        .and_then(Result::ok)
        .map_or(0, |status| status.known_committed)
}

async fn storage_servers(cluster: &Cluster, transport: &Transport) -> Vec<(Uid, SocketAddr)> {
    let coordinators = cluster.coordinators();
    let asking = election::ask_controller(transport, &coordinators, GetWorkers {});
    let workers = timeout(Duration::from_secs(2), asking).await.flatten();
    let workers = workers.expect("it answers").workers.into_iter();
    let of = |worker: plinth_protocol::control::RegisterWorker| {
        let ids = worker.storage.into_iter();
        ids.map(move |(id, _)| (id, worker.worker.address))
    };
    workers.flat_map(of).collect()
}

/// How long after a commit was acknowledged one of the storage servers knows of it.
async fn unknown_for(
    database: &Database,
    transport: &Transport,
    servers: &[(Uid, SocketAddr)],
) -> Duration {
    let transaction = database.create_transaction();
    transaction.set("key", "value");
    transaction.commit().await.expect("nothing conflicts");
    let version = transaction.get_committed_version();
    let since: Instant = now();
    loop {
        let asked = servers.iter().map(|server| known_by(transport, *server));
        if plinth_runtime::join_all(asked).await.into_iter().max() >= Some(version) {
            return since.elapsed();
        }
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn storage_servers_know_of_a_commit_soon_after_it_was_acknowledged() {
    let (mut alone, mut in_a_row): (Vec<u128>, Vec<u128>) = (vec![], vec![]);
    for seed in 1..6 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start_classes(&simulation, 1, &CLASSES);
        let measured = simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            let transport = Transport::client();
            let servers = storage_servers(&cluster, &transport).await;
            assert_eq!(servers.len(), 2);
            let (mut alone, mut in_a_row) = (vec![], vec![]);
            for i in 0..20 {
                sleep(Duration::from_millis(700 + 37 * i)).await;
                alone.push(
                    unknown_for(&database, &transport, &servers)
                        .await
                        .as_millis(),
                );
            }
            let others = database.clone();
            let _busy = plinth_runtime::spawn("others", async move {
                loop {
                    assert!(commits(&others, "busy").await);
                }
            });
            for _ in 0..20 {
                sleep(Duration::from_millis(300)).await;
                in_a_row.push(
                    unknown_for(&database, &transport, &servers)
                        .await
                        .as_millis(),
                );
            }
            (alone, in_a_row)
        });
        let (one, row) = measured.result;
        alone.extend(one);
        in_a_row.extend(row);
    }
    let most = |list: &[u128]| list.iter().max().copied();
    println!("milliseconds: {alone:?} alone, {in_a_row:?} beside others");
    assert!(most(&alone) <= Some(TOLD.as_millis()), "{alone:?}");
    assert!(most(&in_a_row) <= Some(150), "{in_a_row:?}");
}
