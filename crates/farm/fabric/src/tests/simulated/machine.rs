//! A machine: its process and its network card.

use super::oracle::{Attempt, World};
use super::{MACHINES, layout, some_ms};
use crate::{Address, Error, Fabric, Local, Machine, Streamed, attach, serve};
use plinth_runtime::{Duration, TaskGroup, net, random, sleep};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

const WORKERS: usize = 3;
const DIRECTORY: &str = "/farm";
/// The word that everybody counts in. Those before it are one of each machine.
const COUNTER: u64 = 8 * MACHINES as u64;

/// Where the cards listen.
pub fn addresses() -> Vec<SocketAddr> {
    let address = |n: usize| {
        format!("10.0.0.{}:4500", n + 1)
            .parse()
            .expect("an address")
    };
    (0..MACHINES).map(address).collect()
}

/// The card: it works whether or not the process does.
pub async fn serve_memory(world: Rc<World>, machine: u16) {
    let host = loop {
        match attach(Path::new(DIRECTORY), Machine(machine)).await {
            Ok(host) => break Rc::new(host),
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    };
    let Ok(listener) = net::listen(addresses()[usize::from(machine)]).await else {
        return world.blame("a card cannot listen".to_owned());
    };
    serve(listener, Machine(machine), host).await;
}

pub async fn live(world: Rc<World>, machine: Machine) {
    let local = Local::start(Path::new(DIRECTORY), machine, &layout()).await;
    let local = match local {
        Ok(local) => local,
        Err(error) => return world.blame(format!("{machine:?} has no memory: {error}")),
    };
    world.begin_life(machine.0, local.host());
    let limit = Duration::from_millis(30);
    let fabric = Rc::new(Streamed::new(local, addresses(), limit));
    let group = TaskGroup::new();
    group.spawn("configure", configure(world.clone(), fabric.clone()));
    group.spawn("receive", receive(world.clone(), fabric.clone()));
    for _ in 0..WORKERS {
        group.spawn("work", work(world.clone(), fabric.clone()));
    }
    std::future::pending::<()>().await;
}

/// Follows the configurations. Who is removed may not hear of it.
async fn configure(world: Rc<World>, fabric: Rc<Streamed>) {
    let machine = fabric.local().machine();
    loop {
        let (number, members) = world.configuration();
        let hears = members.contains(&machine) || random::chance(0.1);
        if hears && number > fabric.local().configuration() {
            match fabric.configure(number, &members).await {
                Ok(()) => world.closed(machine.0, number),
                Err(error) => world.blame(format!("{machine:?} stays out of {number}: {error}")),
            }
        }
        sleep(some_ms(3)).await;
    }
}

/// Receives; what it does with a message takes a while, and some are released together.
async fn receive(world: Rc<World>, fabric: Rc<Streamed>) {
    let machine = fabric.local().machine().0;
    loop {
        let mut taken = Vec::new();
        while let Some(message) = fabric.receive() {
            world.received(machine, &message);
            taken.push(message);
        }
        sleep(some_ms(2)).await;
        for message in taken {
            fabric.release(&message);
            world.released(machine, &message);
        }
        match random::chance(0.5) {
            true => fabric.local().arrival().await,
            false => sleep(some_ms(1)).await,
        }
    }
}

async fn work(world: Rc<World>, fabric: Rc<Streamed>) {
    let own = fabric.local().machine();
    while !world.has_stopped() {
        sleep(some_ms(2)).await;
        let target = Machine(random::below(MACHINES as u64) as u16);
        // One opens at a time in effect: of two connections the older one ends.
        if fabric.open(target).await.is_err() {
            continue;
        }
        let number = fabric.local().configuration();
        let address = |offset| Address {
            machine: target,
            region: 0,
            offset,
        };
        let Some(attempt) = world.attempt(own.0, target.0, number) else {
            continue;
        };
        let outcome = match random::below(4) {
            0 | 1 => {
                let value = attempt.value().to_le_bytes();
                let written = fabric.write(address(8 * u64::from(own.0)), &value).await;
                written.map(|()| world.wrote(&attempt))
            }
            2 => {
                let mut message = attempt.value().to_le_bytes().to_vec();
                message.resize(8 + random::below(100) as usize, own.0 as u8);
                let sent = fabric.send(target, &message).await;
                sent.map(|()| world.sent(&attempt))
            }
            _ => count(&world, &fabric, &attempt, address(COUNTER)).await,
        };
        if outcome == Err(Error::Closed) {
            world.refused();
        }
    }
}

async fn count(
    world: &World,
    fabric: &Streamed,
    attempt: &Attempt,
    counter: Address,
) -> Result<(), Error> {
    let mut bytes = [0; 8];
    fabric.read(counter, &mut bytes).await?;
    let expected = u64::from_le_bytes(bytes);
    world.counts(attempt);
    let found = fabric.compare_and_swap(counter, expected, expected + 1);
    if found.await? == expected {
        world.counted(attempt, expected);
    }
    Ok(())
}
