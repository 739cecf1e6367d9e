//! Recoveries that want a log from a server whose disk takes nothing any more.

use crate::common::{Cluster, address, commits, some_seconds};
use plinth_client::Database;
use plinth_coordination::election;
use plinth_protocol::control::{ClusterInfo, GetClusterInfo, KillRole, WORKER};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{Hang, Sickness, SimConfig, Simulation, control};
use plinth_runtime::{Duration, now, timeout};

/// From the failure to the next commit, with a spare beside.
const WITH_A_SPARE: Duration = Duration::from_millis(1500);

async fn info(cluster: &Cluster) -> ClusterInfo {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let asking = election::ask_controller(&transport, &coordinators, GetClusterInfo { known: 0 });
    let info = timeout(Duration::from_secs(2), asking).await;
    info.flatten().expect("it answers")
}

/// The servers with logs of the epoch.
fn with_logs(info: &ClusterInfo) -> Vec<u8> {
    let logs = &info.log_system.current().expect("a generation").logs;
    let server = |log: &Interface| (1..=9).find(|server| address(*server) == log.address);
    logs.iter().filter_map(server).collect()
}

/// Ends the epoch, and no process.
async fn end_epoch(info: &ClusterInfo) {
    let role = info.client.commit_proxies[0];
    let worker = Interface::new(role.address, WORKER);
    let transport = Transport::client();
    let call = transport.call(&worker.endpoint::<KillRole>(), KillRole { id: role.id });
    let ended = timeout(Duration::from_secs(2), call).await;
    ended.expect("it answers").expect("it ends");
}

/// A disk takes nothing any more, which nobody has seen yet, and the epoch ends. Returns the server.
async fn hang_and_end(cluster: &Cluster, database: &Database) -> u8 {
    assert!(commits(database, "before").await);
    let before = info(cluster).await;
    // The first has the coordinator.
    let sick = with_logs(&before).into_iter().find(|server| *server != 1);
    let sick = sick.expect("two have logs");
    let hang = Sickness {
        hangs: Hang::Syncs,
        ..Sickness::default()
    };
    control().set_disk_sickness(cluster.machine(sick as usize), hang);
    end_epoch(&before).await;
    sick
}

#[test]
fn a_log_that_a_disk_does_not_take_is_made_elsewhere_at_once() {
    for seed in 1..6 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 4);
        simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            let sick = hang_and_end(&cluster, &database).await;
            let begun = now();
            assert!(commits(&database, "after").await);
            let took = begun.elapsed();
            assert!(
                took <= WITH_A_SPARE,
                "{} ms of seed {seed}",
                took.as_millis()
            );
            let logs = with_logs(&info(&cluster).await);
            assert!(
                logs.len() == 2 && !logs.contains(&sick),
                "{logs:?} without {sick}"
            );
        });
    }
}
