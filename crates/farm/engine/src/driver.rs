//! Takes what has arrived in the rings of this machine.

use crate::core::Core;
use crate::post::pause;
use crate::site::Site;
use crate::wire::{Bundle, Message, Room};
use plinth_core::codec::Codec;
use plinth_farm_fabric::{self as fabric, Fabric, Machine};
use plinth_farm_memory::{Class, Pointer};
use plinth_runtime::{Duration, Instant, give_processor, now, probe, race, sleep, yield_now};
use std::rc::Rc;

/// So many messages of the fabric are taken in one turn of the loop.
const MESSAGES_A_TURN: usize = 32;
/// So many looks in vain follow a message before it gets quiet.
const LOOKS: u32 = 50;
/// Who waits for so long does not look all the time any more, but rests until something arrives, or for a while.
const LOOK_FOR: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(1);

impl<F: Fabric + 'static> Site<F> {
    /// Runs as long as the machine does.
    pub async fn drive(self: &Rc<Self>) {
        let core = &self.core;
        let (mut in_vain, mut since) = (LOOKS, None);
        loop {
            if self.take_some() {
                if !core.pace.is_quiet() {
                    in_vain = 0;
                }
                since = None;
                yield_now().await;
                continue;
            }
            if core.waiting.get() > 0 || in_vain < LOOKS {
                in_vain = in_vain.saturating_add(1);
                match in_vain > LOOKS && core.settings.pause.is_zero() {
                    true => self.give_way(&mut since).await,
                    false => pause(core.settings.pause).await,
                }
                continue;
            }
            since = None;
            race(core.bell.notified(), self.fabric.local().arrival()).await;
        }
    }

    /// Who is waited for may be a process that waits for this processor. Costs next to nothing if there is none. But
    /// on a busy host, who gives its turns away again and again gets hardly any.
    async fn give_way(&self, since: &mut Option<Instant>) {
        if since.get_or_insert_with(now).elapsed() < LOOK_FOR {
            give_processor();
            yield_now().await;
        } else {
            race(self.fabric.local().arrival(), sleep(REST)).await;
        }
    }

    /// False if nothing has arrived.
    pub fn take_some(self: &Rc<Self>) -> bool {
        for taken in 0..MESSAGES_A_TURN {
            let Some(message) = self.fabric.receive() else {
                return taken > 0;
            };
            self.take(&message);
            self.fabric.release(&message);
        }
        true
    }

    fn take(self: &Rc<Self>, message: &fabric::Message) {
        let room = message.body.first().copied().and_then(Room::of);
        match room {
            Some(Room::Engine) => self.core.take(message),
            Some(Room::Recovery) => {
                self.core.pace.quicken();
                self.hear_letter(message);
            }
            Some(room) => {
                let handler = self.handlers.borrow().get(&room.tag()).cloned();
                match handler {
                    Some(handler) => handler(message),
                    None => probe!("farm message for an empty room"),
                }
            }
            None => probe!("farm message for no room"),
        }
    }
}

impl Core {
    /// Takes a bundle, which may be anything.
    pub fn take(&self, message: &fabric::Message) {
        if message.configuration != self.view.borrow().number {
            return;
        }
        let from = message.from;
        let Some(bundle) = Bundle::from_bytes(message.body.clone()) else {
            probe!("farm bundle of another kind");
            return;
        };
        for message in bundle.messages {
            if !matches!(message, Message::Oat(_) | Message::Safe(_)) {
                self.pace.quicken();
            }
            self.dispatch(from, message);
        }
        let truncation = bundle.truncation;
        for number in truncation.truncate {
            self.truncate(from, number);
        }
        for number in truncation.truncated {
            self.truncated(number, from);
        }
        if let Some(account) = self.ledger.borrow_mut().of(from) {
            account.raise(truncation.below);
        }
    }

    fn dispatch(&self, from: Machine, message: Message) {
        match message {
            Message::Lock(lock) => self.lock(from, lock),
            Message::LockReply { number, reply } => self.lock_answered(number, from, reply.0),
            Message::Unlock { number } => self.unlock(from, number),
            Message::CommitBackup {
                number,
                written_at,
                regions,
                writes,
            } => self.log(from, number, written_at, regions, writes),
            Message::CommitPrimary { number, written_at } => {
                self.commit_primary(from, number, written_at);
            }
            Message::Reserve { ask, region, class } => {
                let at = Class::new(class).and_then(|class| self.reserve(region, class));
                let at = at.unwrap_or(Pointer::NULL);
                self.post
                    .push(from, Message::ReserveReply { ask, at }, None);
            }
            Message::ReserveReply { ask, at } => {
                let asked = self.asks.borrow_mut().remove(&ask);
                let is_late = asked.is_none_or(|asked| asked.send(at).is_err());
                if is_late && !at.is_null() {
                    self.post.push(from, Message::Unreserve { at }, None);
                }
            }
            Message::Unreserve { at } if !at.is_null() => drop(self.give_back(at)),
            Message::Unreserve { .. } => (),
            Message::FreeSlab { region, slab, at } => {
                self.free_slab(from, region, slab, at);
                self.post
                    .push(from, Message::SlabIsFree { region, slab }, None);
            }
            Message::SlabIsFree { region, slab } => self.slab_is_free(from, region, slab),
            Message::Oat(report) => self.collect(from, report),
            Message::Safe(horizon) if from == self.view.borrow().master => self.hear(horizon),
            Message::Safe(_) => (),
            Message::Kept { numbers } => self.kept(&numbers, from),
            Message::Fetch { at } if !at.is_null() => self.want(at, from),
            Message::Fetch { .. } => (),
            Message::Fetched { .. } => self.wanted.has_come(),
        }
    }
}
