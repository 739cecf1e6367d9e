//! A machine: its memory and who serves it, its clock, its engine, and clients.

use super::client;
use super::world::{CLIENTS, REGIONS, World};
use crate::Engine;
use crate::testing::clocks::{hear_time, keep_time, new_clock};
use crate::testing::machines::{fabric_of, settings};
use plinth_farm_fabric::{Fabric, Layout, Machine};
use plinth_farm_memory::Sizes;
use plinth_runtime::TaskGroup;
use std::rc::Rc;

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
    let group = TaskGroup::new();
    let fabric = fabric_of(own, &layout, world.is_one_host, &group).await;
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
    let engine = Engine::start(
        fabric.clone(),
        clock.clone(),
        view,
        sizes(&world),
        world.policy,
        settings(world.latency),
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
