//! The time of the machines. Their messages go over the fabric, as those of members do.

use bytes::{BufMut, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_farm_engine::{Engine, Room, View};
use plinth_farm_fabric::{Fabric, Machine, Shared};
use plinth_farm_time::{Bounds, Clock, MemberId, Message, Server, Settings};
use plinth_runtime::{Duration, sleep};
use std::cell::Cell;
use std::rc::Rc;

/// Between two ticks of a clock.
const TICK: Duration = Duration::from_micros(500);
/// Nobody fails here, and a busy process may be late by much.
const LEASE_NS: u64 = 600_000_000_000;
const SYNC_NS: u64 = 1_000_000;
const RESEND_NS: u64 = 50_000_000;

fn id(machine: Machine) -> MemberId {
    Uid::from_parts(1, u64::from(machine.0))
}

pub fn new_clock(own: Machine) -> Rc<Clock> {
    let settings = Settings {
        bounds: Bounds::default(),
        lease_ns: LEASE_NS,
        sync_ns: SYNC_NS,
        resend_ns: RESEND_NS,
        origin: 0,
    };
    Rc::new(Clock::new(Server::new(id(own), settings)))
}

/// Takes messages of other machines' clocks.
pub fn hear_time(engine: &Engine<Shared>, clock: &Rc<Clock>) {
    let clock = clock.clone();
    let take = move |message: &plinth_farm_fabric::Message| {
        if let Some(body) = Message::from_bytes(message.body.slice(1..)) {
            clock.update(|server, now| server.receive(id(message.from), &body, now));
        }
    };
    engine.on_message(Room::Member, Rc::new(take));
}

/// What the master's machine says of its clock, which is that of all in its process. Machines of other processes
/// exchange messages.
pub type Told = Rc<Cell<Option<plinth_farm_time::Shared>>>;

/// Moves the clock on, for good. A message that finds no room in a ring is lost, and sent again later.
pub async fn keep_time(view: View, clock: Rc<Clock>, fabric: Rc<Shared>, told: Told) {
    let ids: Vec<MemberId> = view.machines.iter().map(|machine| id(*machine)).collect();
    if fabric.local().machine() == view.master {
        clock.update(|server, now| {
            server.propose(&ids, now).expect("nobody was first");
            server.taken(now);
        });
    }
    loop {
        let messages = clock.update(|server, now| {
            server.tick(now);
            match server.shared() {
                Some(own) => told.set(Some(own)),
                None => told.get().into_iter().for_each(|told| {
                    server.share(id(view.master), told, now);
                }),
            }
            server.take_messages()
        });
        for (to, message) in messages {
            let mut bytes = BytesMut::new();
            bytes.put_u8(Room::Member.tag());
            bytes.extend_from_slice(&message.to_bytes());
            let _ = fabric.send(Machine(to.0 as u16), &bytes).await;
        }
        sleep(TICK).await;
    }
}
