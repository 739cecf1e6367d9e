//! A machine: its memory and who serves it, its clock, its engine, and clients.

use super::client;
use super::world::{CLIENTS, REGIONS, World};
use crate::testing::clocks::{hear_time, keep_time, new_clock};
use crate::testing::fabrics::Any;
use crate::{Engine, Settings};
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, serve};
use plinth_farm_memory::Sizes;
use plinth_runtime::{Duration, TaskGroup, net};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

pub fn address(machine: u16) -> SocketAddr {
    format!("10.0.0.{}:4500", machine + 1).parse().expect("one")
}

/// Little of everything: slabs of a dozen objects, blocks of a dozen versions, rings that get full.
fn sizes(world: &World) -> Sizes {
    Sizes {
        slots: REGIONS,
        region_words: if world.is_small { 300 } else { 600 },
        slab_words: 64,
        old_words: if world.is_small { 2 * 64 } else { 6 * 64 },
        block_words: 64,
    }
}

pub async fn live(world: Rc<World>, which: u16) {
    let own = Machine(which);
    let layout = Layout {
        machines: world.machines,
        // The smaller ones get full.
        ring_words: if world.is_small { 64 } else { 150 },
        region_words: sizes(&world).region_words(),
    };
    let local = Local::start(Path::new("/farm"), own, &layout)
        .await
        .expect("a memory");
    let group = TaskGroup::new();
    let fabric = match world.is_one_host {
        true => Rc::new(Any::shared(local)),
        false => {
            let listener = net::listen(address(which)).await.expect("its port");
            group.spawn("serve", serve(listener, own, local.host().clone()));
            let addresses = (0..world.machines as u16).map(address).collect();
            Rc::new(Any::streamed(local, addresses))
        }
    };
    let view = world.view();
    fabric
        .configure(1, &view.machines)
        .await
        .expect("the first");
    world.barrier(1).await;
    for other in &view.machines {
        fabric.open(*other).await.expect("it serves");
    }
    let clock = new_clock(own);
    let settings = Settings {
        pause: world.latency / 10,
        idle: world.latency / 2,
        round: 4 * world.latency,
        block: Duration::from_millis(5),
    };
    let engine = Engine::start(
        fabric.clone(),
        clock.clone(),
        view,
        sizes(&world),
        world.policy,
        settings,
    );
    let engine = Rc::new(engine.expect("memory that fits"));
    hear_time(&engine, &clock);
    world.engines.borrow_mut().push(engine.clone());
    world.barrier(2).await;
    group.spawn("time", keep_time(world.view(), clock, fabric));
    for _ in 0..CLIENTS {
        group.spawn("client", client::work(world.clone(), engine.clone()));
    }
    std::future::pending::<()>().await;
}
