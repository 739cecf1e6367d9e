//! Letters of recovery between machines. One may be larger than a message of the fabric, so it goes in pieces:
//!
//! ```text
//!   room u8 | configuration u64 | number of the piece u32, from 0 on in each | 1: it is the last u8 | bytes
//! ```
//!
//! A piece that was perhaps lost is sent again, and the receiver ignores a repetition.

use crate::post::{BUNDLE_BYTES, pause};
use crate::recovery::{Effect, Letter};
use crate::site::Site;
use crate::view::Configuration;
use crate::wire::Room;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_farm_fabric::{self as fabric, Fabric, Machine};
use plinth_runtime::sync::{QueueReceiver, QueueSender, queue};
use plinth_runtime::{probe, trace, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const HEAD_BYTES: usize = 14;
/// Most bytes of a letter: far more than all transactions that are under way at a time can have.
const LETTER_BYTES_MAX: usize = 1 << 30;

/// Pieces of a letter that have come.
#[derive(Default)]
struct Incoming {
    configuration: u64,
    next: u32,
    bytes: BytesMut,
}

#[derive(Default)]
pub struct Letters {
    /// To each machine of the configuration.
    ways: RefCell<BTreeMap<Machine, QueueSender<Letter>>>,
    incoming: RefCell<BTreeMap<Machine, Incoming>>,
}

impl Letters {
    /// Takes a piece. Returns the letter that it ends.
    fn take(&self, from: Machine, mut body: Bytes) -> Option<Letter> {
        body.try_get_u8().ok()?;
        let configuration = body.try_get_u64().ok()?;
        let piece = body.try_get_u32().ok()?;
        let is_last = body.try_get_u8().ok()? == 1;
        let mut incoming = self.incoming.borrow_mut();
        let incoming = incoming.entry(from).or_default();
        if configuration > incoming.configuration {
            *incoming = Incoming {
                configuration,
                ..Incoming::default()
            };
        }
        let is_next = configuration == incoming.configuration && piece == incoming.next;
        if !is_next || incoming.bytes.len() + body.len() > LETTER_BYTES_MAX {
            probe!("farm piece of a letter that is not the next");
            return None;
        }
        incoming.next += 1;
        incoming.bytes.extend_from_slice(&body);
        if !is_last {
            probe!("farm letter in pieces");
            return None;
        }
        let bytes = std::mem::take(&mut incoming.bytes).freeze();
        let letter = Letter::from_bytes(bytes)?;
        (letter.configuration == configuration).then_some(letter)
    }
}

impl<F: Fabric + 'static> Site<F> {
    /// Begins a configuration to which the fabric has gone: what was asked for in former ones has come, or never will.
    pub fn begin(self: &Rc<Self>, configuration: &Configuration) {
        let core = &self.core;
        // The fabric may have gone to a later one, which will begin here next.
        if self.fabric.local().configuration() != configuration.number {
            probe!("farm configuration ended before it began");
            return;
        }
        self.tasks.cancel_all();
        while self.take_some() {}
        let held = match core.change_to(configuration) {
            Ok(held) => held,
            Err(unfit) => {
                trace_warn!("FarmEngineUnfit", "machine" => core.own.0, "why" => unfit);
                return core.stage.leave();
            }
        };
        trace!(
            "FarmRecoveryBegins",
            "number" => configuration.number,
            "records" => held.records.len(),
            "committing" => held.committing.len(),
        );
        self.open_ways(configuration.number);
        let begun = core.recovery.borrow_mut();
        let effects = { begun }.begin(configuration.members(), held);
        self.act(effects);
    }

    fn open_ways(self: &Rc<Self>, number: u64) {
        self.letters.ways.borrow_mut().clear();
        for machine in self.core.others() {
            let (sender, receiver) = queue();
            self.letters.ways.borrow_mut().insert(machine, sender);
            let site = self.clone();
            self.tasks.spawn("farm letters", async move {
                site.carry_letters(number, machine, receiver).await;
            });
            let site = self.clone();
            self.tasks.spawn("farm post", async move {
                site.carry(number, machine).await;
            });
        }
    }

    async fn carry_letters(&self, number: u64, to: Machine, mut letters: QueueReceiver<Letter>) {
        let room = (self.core.post.message_bytes_max() + BUNDLE_BYTES).saturating_sub(HEAD_BYTES);
        let mut piece = 0;
        while let Some(letter) = letters.recv().await {
            let bytes = letter.to_bytes();
            let mut parts = bytes.chunks(room.max(1)).peekable();
            while let Some(part) = parts.next() {
                let mut message = BytesMut::with_capacity(HEAD_BYTES + part.len());
                message.put_u8(Room::Recovery.tag());
                message.put_u64(number);
                message.put_u32(piece);
                message.put_u8(u8::from(parts.peek().is_none()));
                message.extend_from_slice(part);
                while !self.send(number, to, &message).await {
                    if !self.core.stage.has_begun(number) {
                        return;
                    }
                    probe!("farm piece of a letter sent again");
                    self.reopen(to).await;
                    pause(self.core.settings.idle).await;
                }
                piece += 1;
            }
        }
    }

    /// A message for [`Room::Recovery`].
    pub fn hear_letter(self: &Rc<Self>, message: &fabric::Message) {
        let Some(letter) = self.letters.take(message.from, message.body.clone()) else {
            return;
        };
        let received = self.core.recovery.borrow_mut();
        let effects = { received }.receive(message.from, letter);
        self.act(effects);
    }

    fn act(self: &Rc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            let opened = match &effect {
                Effect::Opened { region } => Some(*region),
                _ => None,
            };
            if let Some(effect) = self.core.perform(effect) {
                self.act_beyond(effect);
            }
            if let Some(region) = opened {
                self.begin_copy(region);
            }
        }
    }

    fn act_beyond(&self, effect: Effect) {
        let number = self.core.recovery.borrow().configuration();
        match effect {
            Effect::Send { to, letter } => {
                if let Some(way) = self.letters.ways.borrow().get(&to) {
                    let _ = way.send(letter);
                }
            }
            // What was said before the configuration ended comes after its end, too.
            Effect::Ended if !self.core.stage.has_begun(number) => {
                probe!("farm recovery has ended too late");
            }
            Effect::Ended => {
                trace!("FarmRecoveryEnds", "number" => number);
                self.core.open(number);
            }
            Effect::Lost { regions } => {
                self.core.lose(&regions);
                if let Some(links) = &self.links {
                    links.lost(&regions);
                }
            }
            _ => (),
        }
    }
}
