//! A server that starts with a cluster file of former coordinators.

use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::{DatabaseConfig, Error};
use plinth_protocol::coordination::{COORDINATOR, GetLeader, GetLeaderReply};
use plinth_rpc::Transport;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, Either};
use plinth_server::{NotCreated, WorkerConfig, create_database, run_worker};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;

const FORMER: &str = "10.0.0.1:4500";
const FILE: &str = "/data/plinth.cluster";
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
const PRESENT: &str = "10.0.0.2:4500";

fn cluster(text: &str) -> ClusterFile {
    ClusterFile::parse(text).expect("valid")
}

fn now() -> ClusterFile {
    cluster(&format!("test:test_2@{PRESENT}"))
}

/// Answers the first request with the new coordinators, and never answers again.
async fn speaks_once() {
    let transport = Transport::listen(FORMER.parse().expect("an address")).await;
    let transport = transport.expect("nobody else listens there");
    let asked = Cell::new(0);
    let _serving = transport.serve::<GetLeader>(COORDINATOR, move |_, responder| {
        asked.set(asked.get() + 1);
        if asked.get() > 1 {
            return responder.fail(Error::operation_cancelled);
        }
        responder.ok(GetLeaderReply {
            leader: None,
            is_coordinator: true,
            lost: None,
            successor: now().to_string(),
            database: None,
        })
    });
    std::future::pending().await
}

async fn worker() -> Infallible {
    let (listen, cluster) = (PRESENT.parse(), cluster(&format!("test:test@{FORMER}")));
    let config = WorkerConfig {
        cluster_file: Some(FILE.into()),
        ..WorkerConfig::new(listen.expect("an address"), "/data", cluster)
    };
    let looking = async {
        plinth_runtime::sleep(WRITTEN_WITHIN).await;
        let file = ClusterFile::load(Path::new(FILE)).await;
        assert_eq!(file.ok(), Some(now()), "what was learned is written down");
        std::future::pending().await
    };
    match plinth_runtime::race(run_worker(config), looking).await {
        Either::Left(Err(error)) => panic!("the worker ended: {error}"),
        Either::Left(Ok(never)) | Either::Right(never) => match never {},
    }
}

#[test]
fn one_answer_of_a_former_coordinator_is_enough_for_the_whole_process() {
    for seed in 1..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        for (address, work) in [(FORMER, true), (PRESENT, false)] {
            let address: SocketAddr = address.parse().expect("an address");
            let machine = simulation.add_machine(Locality::default());
            simulation.start_process(machine, address, move || match work {
                true => Box::pin(speaks_once()),
                false => Box::pin(async { match worker().await {} }),
            });
        }
        simulation.run(async {
            let (transport, coordinators) = (Transport::client(), Coordinators::from(now()));
            let created = create_database(&transport, &coordinators, DatabaseConfig::default());
            let created = plinth_runtime::timeout(Duration::from_secs(30), created).await;
            // Its controller answers: these are the second coordinators, and make no first database.
            let Some(Err(NotCreated::Because(line))) = created else {
                panic!("the server does not join its cluster: {created:?}");
            };
            assert!(line.contains("number 2"), "{line}");
            plinth_runtime::sleep(WRITTEN_WITHIN).await;
        });
    }
}
