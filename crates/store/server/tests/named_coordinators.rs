//! Coordinators that are known by names, and servers that come back at other addresses.

use crate::common::{Cluster, address, commits, host, move_to, name, reads, some_seconds};
use plinth_coordination::{election, places};
use plinth_rpc::Transport;
use plinth_runtime::sim::{SimConfig, Simulation, control};
use plinth_server::NotCreated;
use std::net::{IpAddr, SocketAddr};

const SEEDS: std::ops::Range<u64> = 1..6;
const NAMES: &str = "host-1:4500,host-2:4500,host-3:4500";

/// Lets a server come back at an address that no machine had.
fn come_back_elsewhere(cluster: &Cluster, server: u8) -> IpAddr {
    let ip = IpAddr::from([10, 0, 1, server]);
    cluster.kill(server.into());
    control().move_machine(cluster.machine(server.into()), ip);
    cluster.restart(server.into());
    ip
}

#[test]
fn servers_that_come_back_at_other_addresses_are_found_without_a_restart_of_others() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let cluster = Cluster::start_named(&simulation, NAMES, 3);
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            assert!(commits(&database, "first").await);
            // One after the other, so that in the end no coordinator is where it was, and the client ran all the time.
            for server in [3, 1, 2] {
                let ip = come_back_elsewhere(&cluster, server);
                assert!(commits(&database, "behind").await, "two of three are there");
                some_seconds(seed).await;
                control().name(&host(server), Some(ip));
                some_seconds(15).await;
                let other = 1 + usize::from(server) % 3;
                cluster.kill(other);
                assert!(commits(&database, "without another").await, "seed {seed}");
                cluster.restart(other);
                some_seconds(5).await;
            }
            assert_eq!(reads(&database).await.as_deref(), Some("without another"));
        });
    }
}

#[test]
fn a_server_whose_name_stands_for_another_address_waits() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start_named(&simulation, "host-1:4500", 2);
    simulation.run(async move {
        let database = cluster.create_now("single").await;
        // Another server has the address that the name stood for, and is no coordinator because of that.
        let control = control();
        control.name(&host(1), Some(address(2).ip()));
        cluster.kill(1);
        cluster.restart(1);
        assert!(!commits(&database, "nobody").await);
        control.name(&host(1), None);
        some_seconds(3).await;
        control.name(&host(1), Some(address(1).ip()));
        assert!(commits(&database, "itself").await);
    });
}

#[test]
fn two_names_of_one_server_are_one_vote() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        simulation.name("alias", Some(address(1).ip()));
        let coordinators = "host-1:4500,alias:4500,host-2:4500";
        let cluster = Cluster::start_named(&simulation, coordinators, 3);
        simulation.run(async move {
            let Some(Err(NotCreated::Because(line))) = cluster.create("single").await else {
                panic!("nobody knows whether there is a database");
            };
            assert!(line.starts_with("alias:4500 cannot be reached"), "{line}");
            assert_eq!(cluster.create_as("single", true).await, Some(Ok(())));
            let database = plinth_client::connect(cluster.coordinators());
            assert!(commits(&database, "first").await, "two of three are there");
            cluster.kill(2);
            some_seconds(10).await;
            let (transport, coordinators) = (Transport::client(), cluster.coordinators());
            let leader = election::current_leader(&transport, &coordinators).await;
            assert_eq!(leader, None, "one server has no majority of three");
        });
    }
}

#[test]
fn coordinators_move_from_addresses_to_names_and_back() {
    for seed in SEEDS {
        let simulation = Simulation::new(seed, SimConfig::default());
        let addresses = "10.0.0.1:4500,10.0.0.2:4500,10.0.0.3:4500";
        let cluster = Cluster::start_named(&simulation, addresses, 3);
        simulation.run(async move {
            let database = cluster.create_now("double").await;
            let coordinators = cluster.coordinators();
            let line = move_to(&coordinators, vec![name(1), address(2).into()]).await;
            assert!(line.contains("in one form"), "{line}");
            let line = move_to(&coordinators, vec![name(1), name(2), name(9)]).await;
            assert!(
                line.contains("host-9:4500 cannot be") && line.contains("--public-address"),
                "{line}"
            );
            control().name("alias", Some(address(3).ip()));
            let alias = "alias:4500".parse().expect("a name");
            let line = move_to(&coordinators, vec![name(1), name(2), alias]).await;
            assert!(line.contains("alias:4500 cannot be"), "{line}");

            assert_eq!(move_to(&coordinators, [1, 2, 3].map(name).into()).await, "");
            some_seconds(3).await;
            let ip = come_back_elsewhere(&cluster, 2);
            control().name(&host(2), Some(ip));
            some_seconds(15).await;
            cluster.kill(1);
            assert!(commits(&database, "by names").await, "seed {seed}");
            cluster.restart(1);
            some_seconds(5).await;
            let back = places([address(1), SocketAddr::new(ip, 4500), address(3)]);
            assert_eq!(move_to(&coordinators, back).await, "");
            some_seconds(3).await;
            cluster.kill(3);
            assert!(commits(&database, "by addresses").await, "seed {seed}");
        });
    }
}

#[test]
fn of_two_servers_with_one_name_the_second_ends_with_a_line() {
    let simulation = Simulation::new(1, SimConfig::default());
    let cluster = Cluster::start_named(&simulation, NAMES, 4);
    simulation.run(async move {
        let database = cluster.create_now("double").await;
        // The fourth one is called like the first, at its own address.
        cluster.kill(4);
        // It may have been the controller: the first has told its name to the next one before another has it.
        some_seconds(10).await;
        let machine = cluster.machine(4);
        cluster.stays_ended.set(true);
        control().name(&host(1), Some(address(4).ip()));
        cluster.serve_as(&control(), machine, address(4), Some(name(1)));
        some_seconds(2).await;
        control().name(&host(1), Some(address(1).ip()));
        some_seconds(30).await;
        let lines = cluster.lines.borrow().join("\n");
        assert!(
            lines.contains("10.0.0.1:4500 has the name host-1:4500, too"),
            "{lines}"
        );
        assert!(commits(&database, "the first goes on").await);
    });
}
