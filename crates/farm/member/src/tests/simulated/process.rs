//! A process: a fabric that it serves itself, a member, clients that take timestamps, and what copies regions.

use super::disks::SHELL;
use super::oracle::{Reach, World};
use super::{MACHINES, some_ms};
use crate::{Cluster, Left, Member, Options, TAG, View, create};
use plinth_core::id::Uid;
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Streamed, serve};
use plinth_runtime::sim::{KillKind, control, current_process};
use plinth_runtime::{Duration, TaskGroup, net, random, sleep};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

pub const SLOTS: u16 = 12;
const REGIONS: u16 = 8;
const CLIENTS: usize = 2;

type One = Rc<Member<Streamed, Reach>>;

pub fn addresses() -> Vec<SocketAddr> {
    let address = |n| {
        format!("10.0.0.{}:4500", n + 1)
            .parse()
            .expect("an address")
    };
    (0..MACHINES).map(address).collect()
}

pub fn cluster(world: &World) -> Cluster {
    let replication = world.replication.get();
    Cluster {
        is_durable: world.disks.is_durable.get(),
        lease_ns: 60_000_000,
        sync_ns: 8_000_000,
        resend_ns: 6_000_000,
        first_machines: 4,
        ..Cluster::new(Uid(9), MACHINES, REGIONS, replication)
    }
}

fn layout() -> Layout {
    Layout {
        machines: usize::from(MACHINES),
        ring_words: 2000,
        region_words: vec![64],
    }
}

/// One life of a process.
pub async fn live(world: Rc<World>, machine: u16) {
    if world.disks.gone.borrow().contains(&machine) {
        // A reboot that was on its way when it was killed for good.
        return std::future::pending().await;
    }
    let register = Reach(world.clone());
    let record = loop {
        if let Ok(record) = create(&register, cluster(&world)).await {
            break record;
        }
    };
    let local = Local::start(Path::new("/farm"), Machine(machine), &layout()).await;
    let local = local.expect("a memory");
    let listener = net::listen(addresses()[usize::from(machine)]).await;
    let serving = serve(
        listener.expect("its port"),
        Machine(machine),
        local.host().clone(),
    );
    let group = TaskGroup::new();
    group.spawn("serve", serving);
    let fabric = Rc::new(Streamed::new(local, addresses(), Duration::from_millis(30)));
    let (closing_world, closing_fabric) = (world.clone(), fabric.clone());
    let closing = move |number| {
        let has = closing_fabric.local().configuration();
        closing_world.close(machine, number, has);
    };
    let options = Options {
        slots: match world.disks.is_durable.get() && machine == SHELL {
            true => 0,
            false => SLOTS,
        },
        disk: world.disk(machine),
        socket: Some(addresses()[usize::from(machine)]),
        zone: String::new(),
        meet: Box::new(|_| ()),
        closing: Some(Box::new(closing)),
        may_renumber: false,
    };
    let member = Member::start(fabric.clone(), register, record, options).await;
    let member = Rc::new(member.expect("a member"));
    world.begin_life(machine, member.id());
    group.spawn("receive", receive(fabric, member.clone()));
    group.spawn("follow", follow(world.clone(), machine, member.clone()));
    group.spawn("copy", copy(world.clone(), machine, member.clone()));
    group.spawn("doubt", doubt(world.clone(), member.clone()));
    for _ in 0..CLIENTS {
        group.spawn("client", use_clock(world.clone(), member.clone()));
    }
    if world.disks.is_durable.get() {
        group.spawn("commit", commit(world.clone(), member.clone()));
    }
    member.left().wait_until(Option::is_some).await;
    let why = member.left().get();
    let is_due = why == Some(Left::Restore) && world.is_restore_due(machine);
    if why != Some(Left::Removed) && !is_due {
        world.blame(format!("{machine} has left: {why:?}"));
    }
    world.end_life(machine);
    let after = some_ms(20);
    control().kill_process(current_process(), KillKind::RebootProcess { after });
}

async fn receive(fabric: Rc<Streamed>, member: One) {
    loop {
        while let Some(message) = fabric.receive() {
            assert_eq!(message.body.first(), Some(&TAG));
            member.receive(message.from, message.body.clone());
            fabric.release(&message);
        }
        sleep(Duration::from_micros(200)).await;
    }
}

/// Shows the judge all views, and whether this process knows the time.
async fn follow(world: Rc<World>, machine: u16, member: One) {
    loop {
        let view = member.view().get();
        if let Some(view) = &view {
            world.see(machine, view);
        }
        let knows = member.clock().update(|server, now| {
            let era = server.configuration().map_or(0, |c| c.era);
            match server.time(now) {
                Ok(time) if server.is_master() => {
                    world.note_time(era, time.upper - server.bounds().reading_ns);
                }
                Ok(time) => world.check_time(era, time),
                Err(_) => (),
            }
            server.knows_time()
        });
        world.knows(member.id(), knows);
        sleep(Duration::from_millis(1)).await;
    }
}

/// Regions of which this machine's replica is not whole.
fn lacking(view: &View, machine: u16) -> Vec<u16> {
    let lacks = |replicas: &Vec<crate::Replica>| {
        let mut replicas = replicas.iter();
        replicas.any(|r| r.machine == machine && !r.is_whole)
    };
    let regions = view.record.regions.iter().zip(0..);
    regions
        .filter_map(|(r, region)| lacks(r).then_some(region))
        .collect()
}

/// As if it copied regions from their primaries.
async fn copy(world: Rc<World>, machine: u16, member: One) {
    loop {
        sleep(some_ms(20)).await;
        let Some(view) = member.view().get().filter(|view| view.is_committed) else {
            continue;
        };
        let mut regions = lacking(&view, machine);
        if regions.is_empty() {
            continue;
        }
        sleep(some_ms(20)).await;
        let number = view.number();
        let is_same = |view: &Option<View>| view.as_ref().is_some_and(|v| v.number() == number);
        if !member.view().with(is_same) {
            continue;
        }
        regions.retain(|_| random::chance(0.7));
        for region in &regions {
            world.report(member.id(), *region);
            world.disks.copy(machine, *region);
        }
        member.report_whole(number, &regions);
    }
}

/// As if its engine could not go on, now and then. It asks for former configurations, too.
async fn doubt(world: Rc<World>, member: One) {
    loop {
        sleep(some_ms(2000)).await;
        let Some(view) = member.view().get().filter(|_| !world.calm.get()) else {
            continue;
        };
        if random::chance(0.3) {
            sleep(some_ms(100)).await;
        }
        world.ask_anew(view.number());
        for _ in 0..1 + random::below(3) {
            member.want_anew(view.number());
        }
    }
}

async fn commit(world: Rc<World>, member: One) {
    loop {
        sleep(some_ms(10)).await;
        let Some(view) = member.view().get().filter(|view| view.is_committed) else {
            continue;
        };
        if member.clock().timestamp().await.is_err() {
            return;
        }
        world.commit(&view);
    }
}

async fn use_clock(world: Rc<World>, member: One) {
    loop {
        sleep(some_ms(5)).await;
        let above = world.begin();
        let Ok(timestamp) = member.clock().timestamp().await else {
            return;
        };
        world.end(above, timestamp);
    }
}
