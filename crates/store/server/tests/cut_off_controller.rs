//! The controller's machine, and no other, cannot reach the log servers.

use crate::common::{Cluster, address, commits, some_seconds};
use plinth_coordination::election;
use plinth_protocol::control::{ClusterInfo, GetClusterInfo, ProcessClass};
use plinth_rpc::Transport;
use plinth_runtime::sim::{SimConfig, Simulation, control};
use plinth_runtime::{Duration, now, sleep, timeout};

/// Three with the coordinators, two for logs, and two with data.
const CLASSES: [ProcessClass; 7] = [
    ProcessClass::Stateless,
    ProcessClass::Stateless,
    ProcessClass::Stateless,
    ProcessClass::Log,
    ProcessClass::Log,
    ProcessClass::Storage,
    ProcessClass::Storage,
];
const LOGS: [usize; 2] = [4, 5];
/// From the cut to the next commit.
const LIMIT: Duration = Duration::from_secs(20);

async fn info(cluster: &Cluster) -> Option<ClusterInfo> {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let asking = election::ask_controller(&transport, &coordinators, GetClusterInfo { known: 0 });
    timeout(Duration::from_secs(2), asking).await.flatten()
}

/// The server that has the controller, as soon as one answers.
async fn controlling(cluster: &Cluster) -> usize {
    let at = loop {
        if let Some(info) = info(cluster).await {
            break info.controller.address;
        }
    };
    (1..=CLASSES.len())
        .find(|server| address(*server as u8) == at)
        .expect("a server")
}

/// The servers with logs of the epoch.
async fn with_logs(cluster: &Cluster) -> Vec<usize> {
    let info = info(cluster).await.expect("it answers");
    let logs = &info.log_system.current().expect("a generation").logs;
    let has_log = |server: &usize| logs.iter().any(|log| log.address == address(*server as u8));
    (1..=CLASSES.len()).filter(has_log).collect()
}

#[test]
fn a_controller_that_alone_cannot_reach_the_log_servers_gives_up_its_place() {
    for seed in 1..4 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start_classes(&simulation, 3, &CLASSES);
        simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "before").await);
            some_seconds(5).await;
            let mut one = controlling(&cluster).await;
            while one > 3 {
                // It is for logs or data, and was elected because it was first.
                cluster.kill(one);
                some_seconds(5).await;
                cluster.restart(one);
                some_seconds(5).await;
                one = controlling(&cluster).await;
            }
            for log in with_logs(&cluster).await {
                control().partition(cluster.machine(one), cluster.machine(log), true);
            }
            let begun = now();
            // Meanwhile proxies that reach the log servers go on in the former epoch.
            while controlling(&cluster).await == one {
                assert!(begun.elapsed() < LIMIT, "seed {seed}");
                sleep(Duration::from_millis(100)).await;
            }
            assert!(commits(&database, "after").await, "seed {seed}");
            let took = begun.elapsed();
            assert!(took <= LIMIT, "{} ms of seed {seed}", took.as_millis());
            let since = info(&cluster).await.expect("it answers").epoch;
            some_seconds(60).await;
            let then = info(&cluster).await.expect("it answers");
            assert_ne!(controlling(&cluster).await, one, "it is still cut off");
            assert!(commits(&database, "more").await);
            println!(
                "seed {seed}: {} ms, epochs {since} to {}",
                took.as_millis(),
                then.epoch
            );
            assert!(then.epoch - since <= 2, "epochs {since} to {}", then.epoch);
        });
    }
}

#[test]
fn a_controller_that_waits_for_log_servers_that_nobody_reaches_keeps_its_place() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start_classes(&simulation, 3, &CLASSES);
    simulation.run(async move {
        some_seconds(5).await;
        let database = cluster.create_now("double").await;
        assert!(commits(&database, "before").await);
        let one = controlling(&cluster).await;
        for log in LOGS {
            for server in (1..=CLASSES.len()).filter(|server| *server != log) {
                control().partition(cluster.machine(server), cluster.machine(log), true);
            }
        }
        some_seconds(60).await;
        assert_eq!(controlling(&cluster).await, one);
        control().heal_all();
        assert!(commits(&database, "after").await);
    });
}
