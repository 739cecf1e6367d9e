//! Simulated machines in one configuration: how one begins, and what must hold in the end.

use super::fabrics::Any;
use crate::{Engine, Place, Settings, View};
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, serve};
use plinth_farm_memory::{Pointer, Region, Seen};
use plinth_runtime::{Duration, TaskGroup, net, sleep};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

pub fn address(machine: u16) -> SocketAddr {
    format!("10.0.0.{}:4500", machine + 1).parse().expect("one")
}

/// The fabric of a machine: of the memory that all share on one host, otherwise over TCP.
pub async fn fabric_of(
    own: Machine,
    layout: &Layout,
    is_one_host: bool,
    group: &TaskGroup,
) -> Rc<Any> {
    let local = Local::start(Path::new("/farm"), own, layout).await;
    let local = local.expect("a memory");
    if is_one_host {
        return Rc::new(Any::shared(local));
    }
    let listener = net::listen(address(own.0)).await.expect("its port");
    group.spawn("serve", serve(listener, own, local.host().clone()));
    let addresses = (0..layout.machines as u16).map(address).collect();
    Rc::new(Any::streamed(local, addresses))
}

/// Settings for a network with this latency.
pub fn settings(latency: Duration) -> Settings {
    Settings {
        pause: latency / 10,
        idle: latency / 2,
        round: 4 * latency,
        patience: 10 * latency,
        block: Duration::from_millis(5),
    }
}

/// What is wrong in the end: everything is truncated everywhere after a while, and all replicas are equal.
pub async fn faults_of_the_end(engines: &[Rc<Engine<Any>>], view: &View) -> Vec<String> {
    for _ in 0..200 {
        if engines.iter().all(|engine| engine.active() == 0) {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    let mut faults = Vec::new();
    for (engine, at) in engines.iter().zip(0..) {
        if engine.active() > 0 {
            let active = engine.active();
            faults.push(format!("machine {at} still has {active} transactions"));
        }
    }
    for (replicas, region) in view.regions.iter().zip(0..) {
        let primary = objects_of(engines, region, replicas.primary, &mut faults).await;
        for backup in &replicas.backups {
            if objects_of(engines, region, *backup, &mut faults).await != primary {
                faults.push(format!("region {region} differs at {:?}", backup.machine));
            }
        }
    }
    faults
}

/// The objects of a replica: each with its timestamp and payload.
async fn objects_of(
    engines: &[Rc<Engine<Any>>],
    region: u16,
    place: Place,
    faults: &mut Vec<String>,
) -> Vec<(Pointer, u64, Vec<u8>)> {
    let mut engines = engines.iter();
    let engine = engines.find(|engine| engine.fabric().local().machine() == place.machine);
    let engine = engine.expect("it runs");
    if let Some(objects) = engine.objects_on_disk(region).await {
        return objects;
    }
    while engine.is_loading() {
        sleep(Duration::from_millis(1)).await;
    }
    let host = engine.fabric().local().host().clone();
    let replica = Region::open(host.region(place.slot).expect("a slot")).expect("a region");
    assert_eq!(replica.number(), region, "a slot has the view's region");
    let object = |at: Pointer| match replica.cell(at).expect("a cell").read() {
        Seen::Version {
            header, payload, ..
        } => (at, header.timestamp(), payload.to_vec()),
        other => {
            faults.push(format!("{at:?} at {:?} is {other:?}", place.machine));
            (at, 0, Vec::new())
        }
    };
    let pointers = replica.objects_from(0, usize::MAX).pointers;
    pointers.into_iter().map(object).collect()
}
