//! A database that was asked for with more log servers than there are places for.

mod common;

use common::{Cluster, commits, some_seconds};
use plinth_coordination::election;
use plinth_core::DatabaseConfig;
use plinth_protocol::control::GetClusterInfo;
use plinth_rpc::Transport;
use plinth_runtime::sim::{Locality, SimConfig, Simulation, control};
use plinth_runtime::timeout;
use plinth_server::create_database;

/// Number of log servers, and the epoch.
async fn logs(cluster: &Cluster) -> Option<(usize, u64)> {
    let (transport, coordinators) = (Transport::client(), cluster.coordinators());
    let leader = election::current_leader(&transport, &coordinators).await?;
    let endpoint = leader.controller.endpoint::<GetClusterInfo>();
    let call = transport.call(&endpoint, GetClusterInfo { known: 0 });
    let info = timeout(plinth_runtime::Duration::from_secs(2), call).await?;
    let info = info.ok().filter(|info| info.accepting)?;
    Some((info.log_system.current()?.logs.len(), info.epoch))
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
