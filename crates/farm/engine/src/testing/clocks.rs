//! The time of machines: their messages go over the fabric, as those of members will.

use crate::{Engine, Room, View};
use bytes::{BufMut, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_time::{Bounds, Clock, MemberId, Message, Notice, Server, Settings};
use plinth_runtime::{Duration, TaskGroup, sleep};
use std::rc::Rc;

fn id(machine: Machine) -> MemberId {
    Uid::from_parts(1, u64::from(machine.0))
}

fn machine(id: MemberId) -> Machine {
    Machine(id.0 as u16)
}

pub fn new_clock(own: Machine) -> Rc<Clock> {
    let settings = Settings {
        bounds: Bounds::default(),
        lease_ns: 50_000_000,
        sync_ns: 1_000_000,
        resend_ns: 5_000_000,
        origin: 1000,
    };
    Rc::new(Clock::new(Server::new(id(own), settings)))
}

/// Takes messages of other machines' clocks.
pub fn hear_time<F: Fabric>(engine: &Engine<F>, clock: &Rc<Clock>) {
    let clock = clock.clone();
    let take = move |message: &plinth_farm_fabric::Message| {
        let Some(body) = Message::from_bytes(message.body.slice(1..)) else {
            return;
        };
        clock.update(|server, now| server.receive(id(message.from), &body, now));
    };
    engine.on_message(Room::Member, Rc::new(take));
}

/// Moves the clock on. Messages that find no room in a ring are lost.
pub async fn keep_time<F: Fabric + 'static>(view: View, clock: Rc<Clock>, fabric: Rc<F>) {
    let ids: Vec<MemberId> = view.machines.iter().map(|m| id(*m)).collect();
    if fabric.local().machine() == view.master {
        clock.update(|server, now| {
            server.propose(&ids, now).expect("the first");
            server.taken(now);
        });
    }
    let group = TaskGroup::new();
    loop {
        let (messages, notices) = clock.update(|server, now| {
            server.tick(now);
            (server.take_messages(), server.take_notices())
        });
        assert!(!notices.contains(&Notice::Broken), "an honest clock");
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
