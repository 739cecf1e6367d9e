//! Servers that have lost their registers as coordinators, or run twice over one data directory.

use crate::common::{Cluster, address, commits, move_to, reads, some_seconds};
use plinth_coordination::{Family, coordinator};
use plinth_core::codec::Codec;
use plinth_core::{DatabaseConfig, Error};
use plinth_protocol::control::DatabaseState;
use plinth_protocol::coordination::{CoordinatedValue, Generation, WriteRegister, coordinator};
use plinth_protocol::database::DatabaseId;
use plinth_protocol::log::LogSystem;
use plinth_rpc::Transport;
use plinth_runtime::sim::{KillKind, Locality, SimConfig, Simulation, control};
use plinth_server::NotCreated;
use std::path::Path;

const SEEDS: std::ops::Range<u64> = 1..4;
const REGISTERS: &str = "/data/coordination";

fn lose_registers(cluster: &Cluster, server: usize) {
    let machine = cluster.machine(server);
    assert!(control().lose_file(machine, Path::new(REGISTERS)));
}

#[test]
fn who_has_lost_its_registers_is_a_coordinator_again_only_when_they_are_named_anew() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 3);
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "first").await);
            cluster.kill(3);
            lose_registers(&cluster, 3);
            cluster.restart(3);
            some_seconds(2).await;
            cluster.kill(2);
            assert!(
                !commits(&database, "second").await,
                "one of three is no majority"
            );
            cluster.restart(2);
            assert!(commits(&database, "third").await);

            let wanted = cluster.file.coordinators.clone();
            assert_eq!(move_to(&cluster.coordinators(), wanted).await, "");
            some_seconds(2).await;
            cluster.kill(1);
            assert!(commits(&database, "fourth").await, "seed {seed}");
            assert_eq!(reads(&database).await.as_deref(), Some("fourth"));
        });
    }
}

#[test]
fn coordinators_that_have_forgotten_the_newest_epochs_stop_commits() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 3);
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "first").await);
            // The third server has only the registers of the first epochs.
            cluster.kill(3);
            assert!(commits(&database, "second").await);
            for server in [1, 2] {
                cluster.kill(server);
                cluster.restart(server);
                some_seconds(8).await;
                assert!(commits(&database, "third").await);
            }
            some_seconds(10).await;
            for server in [1, 2] {
                cluster.kill(server);
                lose_registers(&cluster, server);
            }
            // Then an operator accepts the loss regardless.
            cluster.accepts_loss.set(true);
            (1..=3).for_each(|server| cluster.restart(server));
            assert!(!commits(&database, "fourth").await, "seed {seed}");
            let said = cluster.status_with("standing_still").await;
            assert!(said.contains("has served in epoch"), "{said}");
            assert!(said.contains("\"database_available\":false"), "{said}");
        });
    }
}

#[test]
fn where_data_is_there_is_no_new_database() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 3, 3);
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "first").await);
            some_seconds(10).await;
            for server in 1..=3 {
                cluster.kill(server);
                lose_registers(&cluster, server);
                cluster.restart(server);
            }
            assert_eq!(cluster.create("double").await, None, "nobody votes");
            cluster.accepts_loss.set(true);
            for server in 1..=3 {
                cluster.kill(server);
                cluster.restart(server);
            }
            some_seconds(5).await;
            let Some(Err(NotCreated::Because(line))) = cluster.create("double").await else {
                panic!("a new database takes the place of the old one");
            };
            assert!(line.contains("holds data of a database"), "{line}");
        });
    }
}

#[test]
fn a_sole_coordinator_without_its_registers_ends_with_a_line() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start(&simulation, 1, 1);
    simulation.run(async move {
        let database = cluster.create_now("single").await;
        assert!(commits(&database, "first").await);
        cluster.kill(1);
        lose_registers(&cluster, 1);
        cluster.restart(1);
        some_seconds(5).await;
        let line = cluster
            .lines
            .borrow()
            .last()
            .cloned()
            .expect("it has ended");
        assert!(line.starts_with("/data/coordination is gone"), "{line}");
    });
}

#[test]
fn a_wish_for_a_database_that_nothing_fulfils_gives_way_to_another() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        simulation.run(async move {
            assert_eq!(cluster.create("triple").await, None);
            let waiting = cluster.clone();
            let first =
                plinth_runtime::spawn("first", async move { waiting.create("triple").await });
            some_seconds(1).await;
            let database = cluster.create_now("double").await;
            let Some(Err(NotCreated::Because(line))) = first.await else {
                panic!("the first wish is answered, too");
            };
            assert!(line.contains("another `configure new'"), "{line}");
            assert!(commits(&database, "first").await);
        });
    }
}

/// Has the coordinator keep this state, before anybody has made a database.
async fn keep(transport: &Transport, state: bytes::Bytes) -> Result<(), Error> {
    some_seconds(1).await;
    let request = WriteRegister {
        register: "a:b".into(),
        generation: Generation {
            number: 1000,
            writer: plinth_core::Uid(1),
        },
        value: CoordinatedValue {
            successor: String::new(),
            moved: false,
            state,
        },
    };
    let endpoint = coordinator(address(1)).endpoint::<WriteRegister>();
    let written = transport.call(&endpoint, request).await;
    written.map(|reply| assert!(reply.accepted))
}

/// A coordinator of this system in the place of the first server.
async fn coordinate(family: Family) {
    let transport = Transport::listen(address(1)).await.expect("listens");
    let (directory, cluster) = (Path::new("/data"), (family, "a:b"));
    let started = coordinator::start(&transport, directory, cluster, true).await;
    started.expect("starts").life.await;
}

#[test]
fn a_coordinator_takes_no_state_of_another_system_and_tells_strangers_whose_it_is() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start(&simulation, 1, 1);
    simulation.run(async move {
        let transport = Transport::client();
        for strange in ["farmrec2 and so on", "\0\0\0\0\0\0\0\0map"] {
            let refused = keep(&transport, strange.into()).await;
            assert_eq!(refused, Err(Error::wrong_connection_file));
        }
        for stranger in [Family::Farm, Family::Delos] {
            let behind = stranger.other_behind(&transport, &cluster.file).await;
            assert_eq!(behind, Some(Family::Store));
        }
        let own = Family::Store.other_behind(&transport, &cluster.file).await;
        assert_eq!(own, None);
        let database = cluster.create_now("single").await;
        assert!(commits(&database, "first").await);
    });
}

#[test]
fn a_state_of_another_format_is_not_taken_for_one_of_ours() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start(&simulation, 1, 1);
    simulation.run(async move {
        let state = DatabaseState {
            format: 4,
            epoch: 1,
            database: DatabaseId {
                id: plinth_core::Uid(1),
                is_former: false,
            },
            is_confirmed: true,
            config: DatabaseConfig::default(),
            log_system: LogSystem {
                generations: vec![],
            },
        };
        let kept = keep(&Transport::client(), state.to_bytes()).await;
        kept.expect("kept");
        let said = cluster.status_with("standing_still").await;
        assert!(said.contains("has format 4, and this version"), "{said}");
    });
}

#[test]
fn a_state_of_another_system_is_told_by_its_name() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start(&simulation, 1, 1);
    simulation.run(async move {
        let transport = Transport::client();
        // From before coordinators looked at it, or from one of that system.
        some_seconds(1).await;
        cluster.kill(1);
        let start = || Box::pin(coordinate(Family::Farm)) as _;
        let farm = control().start_process(cluster.machine(1), address(1), start);
        keep(&transport, "farmrec2 and so on".into())
            .await
            .expect("kept");
        control().kill_process(farm, KillKind::Kill);
        cluster.restart(1);
        let said = cluster.status_with("standing_still").await;
        assert!(
            said.contains("those of the in-memory engine, not of the store"),
            "{said}"
        );
        let found = Family::Store.other_behind(&transport, &cluster.file).await;
        assert_eq!(found, Some(Family::Farm));
        assert_eq!(
            Family::Farm.other_behind(&transport, &cluster.file).await,
            None
        );
    });
}

#[test]
fn a_copy_of_a_data_directory_does_not_serve_beside_it() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start(&simulation, 1, 2);
        let spare = simulation.add_machine(Locality::default());
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "first").await);
            some_seconds(10).await;
            let original = cluster.machine(2);
            control().copy_files(original, spare);
            // The lock is the original's.
            cluster.serve(&control(), spare, 3);
            assert!(commits(&database, "second").await);
            some_seconds(20).await;
            let line = cluster
                .lines
                .borrow()
                .last()
                .cloned()
                .expect("it has ended");
            assert!(
                line.contains("/data is a copy: the server at 10.0.0.2:4500"),
                "{line}"
            );
            assert!(commits(&database, "third").await);
            assert_eq!(
                reads(&database).await.as_deref(),
                Some("third"),
                "seed {seed}"
            );
        });
    }
}
