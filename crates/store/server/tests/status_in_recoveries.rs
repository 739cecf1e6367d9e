//! What the status document says of the database while epochs end.

use crate::common::{Cluster, commits, some_seconds};
use plinth_coordination::election;
use plinth_protocol::status::GetStatus;
use plinth_rpc::Transport;
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, TaskGroup, sleep};
use std::cell::Cell;
use std::rc::Rc;

const INTERVAL: Duration = Duration::from_millis(40);

/// Asks for one document. One that says that the database is not available, and that it has recovered, is wrong.
async fn look(cluster: Rc<Cluster>, seen: Rc<Cell<u32>>) {
    let transport = Transport::client();
    let Some(leader) = election::current_leader(&transport, &cluster.coordinators()).await else {
        return;
    };
    let endpoint = leader.controller.endpoint::<GetStatus>();
    let Ok(reply) = transport.call(&endpoint, GetStatus {}).await else {
        return;
    };
    let document = reply.json;
    let available = document.contains(r#""database_available":true"#);
    let recovered = document.contains(r#""description":"accepting_commits""#);
    assert_eq!(available, recovered, "{document}");
    seen.set(seen.get() + 1);
}

#[test]
fn the_status_never_says_that_a_recovered_database_is_not_available() {
    for seed in 0..4 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Rc::new(Cluster::start(&simulation, 3, 4));
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            let (asking, seen) = (TaskGroup::new(), Rc::<Cell<u32>>::default());
            for round in 0..8 {
                let server = 1 + round % 4;
                cluster.kill(server);
                for _ in 0..125 {
                    asking.spawn("look", look(cluster.clone(), seen.clone()));
                    sleep(INTERVAL).await;
                }
                cluster.restart(server);
                some_seconds(2).await;
                assert!(commits(&database, "value").await);
            }
            some_seconds(5).await;
            assert!(seen.get() > 500);
        });
    }
}
