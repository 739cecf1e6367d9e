//! A client that asks for it is told when the cluster did what with a commit.

use crate::common::Cluster;
use plinth_core::DatabaseConfig;
use plinth_rpc::Transport;
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, now, timeout};
use plinth_server::create_database;

#[test]
fn a_commit_is_traced_through_the_proxy_and_every_log_server_for_who_has_asked() {
    for seed in 1..4 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 3);
        simulation.run(async move {
            let config = DatabaseConfig {
                logs: 3,
                ..DatabaseConfig::default()
            };
            let (transport, coordinators) = (Transport::client(), cluster.coordinators());
            let made = create_database(&transport, &coordinators, config);
            assert_eq!(timeout(Duration::from_secs(30), made).await, Some(Ok(())));
            let database = plinth_client::connect(coordinators);
            for number in 0..10 {
                // Beside others, which share its batch.
                let other = database.create_transaction();
                other.set(format!("other {number}"), "1");
                let _other = plinth_runtime::spawn("other", other.commit());
                let transaction = database.create_transaction();
                transaction.set(format!("key {number}"), "1");
                let tracing = transaction.trace_commit();
                let begun = now();
                transaction.commit().await.expect("nothing fails");
                let took = begun.elapsed().as_micros() as u64;
                let told = timeout(Duration::from_secs(1), tracing.told()).await;
                let told = told.expect("the proxy tells");
                let steps = [
                    told.batched,
                    told.versioned,
                    told.resolved,
                    told.in_turn,
                    told.assigned,
                    told.pushed,
                    told.durable,
                    told.reported,
                ];
                assert!(
                    steps.is_sorted() && told.reported <= took,
                    "{told:?} in {took}"
                );
                assert_eq!(told.logs.len(), 3, "{told:?}");
                for log in &told.logs {
                    let within = told.durable - told.assigned;
                    assert!(
                        log.waited + log.written <= within && log.bytes > 0,
                        "{told:?}"
                    );
                }
            }
        });
    }
}
