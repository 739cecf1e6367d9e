//! One life of a machine's process.

use super::{One, Storm, some_ms};
use crate::world::Work;
use plinth_farm_engine::Keeps;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::testing::machines::{address, settings};
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Mixed, Place, serve};
use plinth_farm_member::{self as member, Left, Record, create};
use plinth_farm_node::{Node, Options, disk};
use plinth_runtime::sim::{KillKind, control, current_process};
use plinth_runtime::{Duration, TaskGroup, net, race, sleep};
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

/// Until an operation of the fabric is given up.
const LIMIT: Duration = Duration::from_millis(30);

async fn fabric_of<W: Work>(storm: &Storm, work: &W, machine: u16, group: &TaskGroup) -> Rc<Any> {
    let layout = Layout {
        machines: storm.world.machines,
        ring_words: work.ring_words(),
        region_words: work.sizes(&storm.world).region_words(),
    };
    let local = Local::start(Path::new("/farm"), Machine(machine), &layout).await;
    let local = local.expect("a memory");
    let listener = net::listen(address(machine)).await.expect("its port");
    let serving = serve(listener, Machine(machine), local.host().clone());
    group.spawn("serve", serving);
    Rc::new(Any::Mixed(Mixed::new(local, LIMIT)))
}

fn options<W: Work>(
    storm: &Rc<Storm>,
    work: &W,
    machine: u16,
    fabric: &Rc<Any>,
    (keeps, disk): (Keeps, Option<member::Disk>),
) -> Options {
    let (fabric, of) = (fabric.clone(), storm.clone());
    let meet = move |seat: &member::Seat| {
        let is_here = of.hosts[usize::from(seat.machine)] == of.hosts[usize::from(machine)];
        let place = match is_here {
            true => Place::Here,
            false => Place::At(address(seat.machine)),
        };
        if let Any::Mixed(fabric) = &*fabric {
            fabric.set_place(Machine(seat.machine), place);
        }
    };
    let sizes = work.sizes(&storm.world);
    Options {
        member: member::Options {
            slots: sizes.slots,
            disk,
            socket: Some(address(machine)),
            zone: String::new(),
            meet: Box::new(meet),
            closing: None,
            may_renumber: false,
        },
        sizes,
        policy: storm.world.policy,
        settings: settings(storm.world.latency),
        keeps,
    }
}

/// What a machine of a durable cluster has on its disk.
async fn disk_of<W: Work>(
    storm: &Storm,
    work: &W,
    record: &Record,
    local: &Local,
) -> (Keeps, Option<member::Disk>) {
    if !storm.cluster.is_durable {
        return (Keeps::Nothing, None);
    }
    let directory = format!("/farm-disk-{}", local.machine().0);
    let sizes = work.sizes(&storm.world);
    match disk::open(Path::new(&directory), record, local, &sizes).await {
        Ok((disk, of_member)) => (Keeps::Disk(Box::new(disk)), Some(of_member)),
        Err(error) => {
            match error.kind() {
                ErrorKind::StorageFull => storm.world.count("disk full at the start"),
                _ => storm.world.blame(format!("no disk: {error}")),
            }
            let after = some_ms(50);
            control().kill_process(current_process(), KillKind::RebootProcess { after });
            std::future::pending().await
        }
    }
}

pub async fn live<W: Work>(storm: Rc<Storm>, work: Rc<W>, machine: u16) {
    let (register, jumps) = (storm.register.clone(), storm.jumps(machine));
    let record = loop {
        if let Ok(record) = create(&register, storm.cluster.clone()).await {
            break record;
        }
    };
    let group = TaskGroup::new();
    let fabric = fabric_of(&storm, &*work, machine, &group).await;
    let disk = disk_of(&storm, &*work, &record, fabric.local()).await;
    let options = options(&storm, &*work, machine, &fabric, disk);
    let record = storm.some_record(record);
    let node = Node::start(fabric.clone(), register, record, options).await;
    let node = Rc::new(node.expect("a node"));
    storm.begin_life(machine, &node);
    group.spawn("work", toil(storm.clone(), work, machine, node.clone()));
    let left = node.left().wait_until(Option::is_some);
    race(left, node.disk_failed().wait_until(Option::is_some)).await;
    let failed = node.disk_failed().get();
    let why = node.left().get();
    match why {
        _ if failed.is_some() => match storm.hung.get() {
            true => storm.world.count("disk given up"),
            false => storm
                .world
                .blame(format!("the disk of {machine}: {failed:?}")),
        },
        Some(Left::Removed) => storm.world.count("left"),
        Some(Left::Restore) if storm.cluster.is_durable => storm.world.count("left to restore"),
        Some(Left::Broken) if storm.jumps(machine) > jumps => storm.world.count("clock broken"),
        why => storm.world.blame(format!("{machine} has left: {why:?}")),
    }
    storm.end_life(machine);
    let after = some_ms(20);
    control().kill_process(current_process(), KillKind::RebootProcess { after });
}

/// The first machine prepares all, and finishes it.
async fn toil<W: Work>(storm: Rc<Storm>, work: Rc<W>, machine: u16, node: Rc<One>) {
    let world = &storm.world;
    let pause = Duration::from_millis(2);
    if machine == 0 && !storm.is_prepared.get() {
        while storm.is_healed().is_err() {
            sleep(pause).await;
        }
        work.prepare(world, node.engine()).await;
        storm.is_prepared.set(true);
    }
    while !storm.is_prepared.get() {
        sleep(pause).await;
    }
    work.clone()
        .work(world.clone(), node.engine().clone())
        .await;
    if world.is_calm.get() {
        storm.done.borrow_mut().insert(machine, true);
    }
    if machine != 0 {
        return;
    }
    let is_done = || storm.done.borrow().values().all(|is_done| *is_done);
    while !world.is_calm.get() || !is_done() {
        sleep(pause).await;
    }
    work.finish(world, node.engine()).await;
    storm.is_over.set(true);
}
