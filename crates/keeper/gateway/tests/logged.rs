//! A gateway whose log of operations lies on a disk that hangs or is full.

use super::gateways::{create_with, done, sync};
use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::wire::create_flags;
use plinth_keeper::{Keeper, Options};
use plinth_runtime::sim::{Hang, Locality, MachineId, Sickness, SimConfig, Simulation, control};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, disk, now, race, sleep};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

/// Clients write, while the disk is sick. Then the gateway is stopped.
async fn serve_while(machine: MachineId, sicken: impl Fn(MachineId)) {
    let directory = Path::new("/log");
    disk::create_dir_all(directory).await.expect("made");
    let options = Options {
        operations_log: Some(directory.join("operations.log")),
        ..Options::default()
    };
    let cluster = MemoryCluster::new();
    let address = address();
    let keeper = Keeper::listen(cluster.database(), address, options).await;
    let keeper = keeper.expect("its port is free");
    let clients = async {
        let client = loop {
            match Client::connect(address, 10_000, None).await {
                Ok(client) => break client,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        done(&client, sync()).await;
        sicken(machine);
        for number in 0..600 {
            let asked = now();
            let path = format!("/n{number}");
            done(&client, create_with(&path, "x", create_flags::EPHEMERAL)).await;
            let took = asked.elapsed();
            assert!(took < Duration::from_secs(1), "{path} took {took:?}");
            sleep(Duration::from_millis(50)).await;
        }
        let samples = keeper.samples();
        let mut stuck = samples
            .iter()
            .filter(|one| one.family.name == "plinth_keeper_operations_stuck");
        assert_eq!(stuck.next().map(|one| one.value), Some(1.0));
    };
    race(clients, keeper.serve()).await;
    let stopping = now();
    keeper.log_stop().await;
    let took = stopping.elapsed();
    assert!(took < Duration::from_secs(5), "it stops within {took:?}");
}

fn on_a_machine(sicken: impl Fn(MachineId) + Clone + 'static) {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let is_done = Rc::new(Watch::new(false));
    let done = is_done.clone();
    sim.start_process(machine, address(), move || {
        let (sicken, done) = (sicken.clone(), done.clone());
        Box::pin(async move {
            serve_while(machine, sicken).await;
            done.set(true);
        })
    });
    sim.run(async move { is_done.wait_until(|done| *done).await });
}

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 2181).into()
}

#[test]
fn clients_are_served_and_the_gateway_stops_while_the_disk_of_its_log_hangs() {
    on_a_machine(|machine| {
        let sickness = Sickness {
            hangs: Hang::Everything,
            ..Sickness::default()
        };
        control().set_disk_sickness(machine, sickness);
    });
}

#[test]
fn clients_are_served_and_the_gateway_stops_while_the_disk_of_its_log_is_full() {
    on_a_machine(|machine| control().set_disk_full(machine, true));
}
