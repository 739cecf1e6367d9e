//! A database whose log servers are too few, or on an excluded process, until there are places for them.

use crate::common::{Cluster, address, commits, some_seconds};
use plinth_control::exclusion::Target;
use plinth_control::management;
use plinth_coordination::election;
use plinth_core::DatabaseConfig;
use plinth_protocol::control::{ClusterInfo, GetClusterInfo, GetWorkers};
use plinth_rpc::{Request, Transport};
use plinth_runtime::sim::{Locality, SimConfig, Simulation, control};
use plinth_runtime::timeout;
use plinth_server::create_database;

async fn ask<R: Request>(cluster: &Cluster, request: R) -> Option<R::Reply> {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let leader = election::current_leader(&transport, &coordinators).await?;
    let call = transport.call(&leader.controller.endpoint::<R>(), request);
    timeout(plinth_runtime::Duration::from_secs(2), call)
        .await?
        .ok()
}

async fn serving(cluster: &Cluster) -> Option<ClusterInfo> {
    let info = ask(cluster, GetClusterInfo { known: 0 }).await?;
    Some(info).filter(|info| info.accepting)
}

/// Number of log servers, and the epoch.
async fn logs(cluster: &Cluster) -> Option<(usize, u64)> {
    let info = serving(cluster).await?;
    Some((info.log_system.current()?.logs.len(), info.epoch))
}

/// Whether the server has a log of the epoch.
async fn has_log(cluster: &Cluster, server: u8) -> bool {
    let info = serving(cluster).await.expect("it serves");
    let logs = &info.log_system.current().expect("a generation").logs;
    logs.iter().any(|log| log.address == address(server))
}

#[test]
fn a_database_gets_the_log_servers_that_were_asked_for_when_their_processes_have_come() {
    for seed in 1..4 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 3);
        simulation.run(async move {
            let config = DatabaseConfig {
                logs: 4,
                ..DatabaseConfig::default()
            };
            let (transport, coordinators) = (Transport::client(), cluster.coordinators());
            let made = create_database(&transport, &coordinators, config);
            assert_eq!(
                timeout(plinth_runtime::Duration::from_secs(30), made).await,
                Some(Ok(()))
            );
            let database = plinth_client::connect(coordinators);
            assert!(commits(&database, "first").await);
            some_seconds(40).await;
            let (count, epoch) = logs(&cluster).await.expect("it serves");
            assert_eq!(count, 3, "one for each process");
            some_seconds(40).await;
            let later = logs(&cluster).await;
            assert_eq!(
                later,
                Some((3, epoch)),
                "there is no reason for another epoch"
            );

            let machine = control().add_machine(Locality::default());
            cluster.serve(&control(), machine, 4);
            some_seconds(40).await;
            assert!(commits(&database, "second").await);
            assert_eq!(logs(&cluster).await, Some((4, epoch + 1)));
        });
    }
}

#[test]
fn a_log_leaves_an_excluded_process_that_had_to_have_it_when_another_one_is_back() {
    for seed in 1..4 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 3);
        simulation.run(async move {
            some_seconds(5).await;
            let database = cluster.create_now("double").await;
            let workers = ask(&cluster, GetWorkers {}).await.expect("it answers");
            let targets = [Target::Process(address(2))];
            let excluded = management::exclude(&database, &workers.workers, &targets, false);
            excluded.await.expect("two others are there");
            some_seconds(20).await;
            assert!(!has_log(&cluster, 2).await, "it is excluded");

            cluster.kill(3);
            some_seconds(20).await;
            assert!(commits(&database, "one").await);
            assert!(has_log(&cluster, 2).await, "two logs are needed");
            let (_, epoch) = logs(&cluster).await.expect("it serves");
            some_seconds(40).await;
            let later = logs(&cluster).await;
            assert_eq!(later, Some((2, epoch)), "there is no better place");

            cluster.restart(3);
            some_seconds(20).await;
            assert!(commits(&database, "two").await);
            assert!(!has_log(&cluster, 2).await, "the third is back");
        });
    }
}
