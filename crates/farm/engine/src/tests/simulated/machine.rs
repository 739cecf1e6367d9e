//! A machine: its memory and who serves it, its clock, its engine, and clients.

use super::client;
use super::world::{REGIONS, World};
use crate::{Engine, Room, Settings};
use bytes::{BufMut, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Streamed, serve};
use plinth_farm_memory::Sizes;
use plinth_farm_time::{self as time, Bounds, Clock, MemberId, Server};
use plinth_runtime::{Duration, TaskGroup, net, sleep};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

pub const CLIENTS: u64 = 3;

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

fn id(machine: Machine) -> MemberId {
    Uid::from_parts(1, u64::from(machine.0))
}

fn machine(id: MemberId) -> Machine {
    Machine(id.0 as u16)
}

fn time_settings() -> time::Settings {
    time::Settings {
        bounds: Bounds::default(),
        lease_ns: 50_000_000,
        sync_ns: 1_000_000,
        resend_ns: 5_000_000,
        origin: 1000,
    }
}

pub async fn live(world: Rc<World>, which: u16) {
    let own = Machine(which);
    let layout = Layout {
        machines: world.machines,
        ring_words: 150,
        region_words: sizes(&world).region_words(),
    };
    let local = Local::start(Path::new("/farm"), own, &layout)
        .await
        .expect("a memory");
    let group = TaskGroup::new();
    let listener = net::listen(address(which)).await.expect("its port");
    group.spawn("serve", serve(listener, own, local.host().clone()));
    let addresses = (0..world.machines as u16).map(address).collect();
    let fabric = Rc::new(Streamed::new(local, addresses, Duration::from_secs(5)));
    let view = world.view();
    fabric
        .configure(1, &view.machines)
        .await
        .expect("the first");
    world.barrier(1).await;
    for other in &view.machines {
        fabric.open(*other).await.expect("it serves");
    }
    let clock = Rc::new(Clock::new(Server::new(id(own), time_settings())));
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
    let hears = clock.clone();
    engine.on_message(
        Room::Member,
        Rc::new(move |message| {
            let body = message.body.slice(1..);
            let body = time::Message::from_bytes(body).expect("a message");
            hears.update(|server, now| server.receive(id(message.from), &body, now));
        }),
    );
    world.engines.borrow_mut().push(engine.clone());
    world.barrier(2).await;
    group.spawn("time", keep_time(world.clone(), clock, fabric));
    for _ in 0..CLIENTS {
        group.spawn("client", client::work(world.clone(), engine.clone()));
    }
    std::future::pending::<()>().await;
}

/// The messages of the clock go over the fabric; those that find no room are lost.
async fn keep_time(world: Rc<World>, clock: Rc<Clock>, fabric: Rc<Streamed>) {
    let own = fabric.local().machine();
    let ids: Vec<MemberId> = world.view().machines.iter().map(|m| id(*m)).collect();
    if own == world.view().master {
        clock.update(|server, now| {
            server.propose(&ids, now).expect("the first");
            server.taken(now);
        });
    }
    let group = TaskGroup::new();
    loop {
        let (messages, is_broken) = clock.update(|server, now| {
            server.tick(now);
            let notices = server.take_notices();
            (
                server.take_messages(),
                notices.contains(&time::Notice::Broken),
            )
        });
        if is_broken {
            world.blame("an honest clock is called broken".to_owned());
        }
        for (to, message) in messages {
            let mut bytes = BytesMut::new();
            bytes.put_u8(Room::Member.tag());
            bytes.extend_from_slice(&message.to_bytes());
            let fabric = fabric.clone();
            group.spawn("time", async move {
                let _ = fabric.send(machine(to), &bytes).await;
            });
        }
        sleep(Duration::from_micros(300)).await;
    }
}
