//! How a machine goes through a recovery: it begins a configuration, carries letters, and does what they ask for.

use crate::letters::pieces;
use crate::post::pause;
use crate::recovery::{Effect, Letter};
use crate::site::Site;
use crate::view::Configuration;
use plinth_farm_fabric::{self as fabric, Fabric, Machine};
use plinth_runtime::sync::{QueueReceiver, queue};
use plinth_runtime::{planted, probe, trace, trace_warn};
use std::rc::Rc;

impl<F: Fabric + 'static> Site<F> {
    /// Begins a configuration to which the fabric has gone: what was asked for in former ones has come, or never will.
    pub fn begin(self: &Rc<Self>, configuration: &Configuration) {
        let core = &self.core;
        // The fabric may have gone to a later one, which will begin here next.
        if self.fabric.local().configuration() != configuration.number {
            probe!("farm configuration ended before it began");
            return;
        }
        let before = core.recovery.borrow().configuration();
        assert!(
            before < configuration.number,
            "configuration {} begins after {before}: what is handed over would be lost",
            configuration.number
        );
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
        self.release_slots();
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
        let room = self.core.post.message_bytes_max();
        let mut first = 0u32;
        while let Some(letter) = letters.recv().await {
            let pieces = pieces(&letter, first, room);
            first = first.wrapping_add(pieces.len() as u32);
            for piece in pieces {
                while !self.send(number, to, &piece).await {
                    if !self.core.stage.has_begun(number) {
                        return;
                    }
                    probe!("farm piece of a letter sent again");
                    self.reopen(to).await;
                    pause(self.core.settings.idle).await;
                }
            }
        }
    }

    /// A message for [`Room::Recovery`](crate::Room).
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
            match effect {
                Effect::Redone { region } => self.redone(region),
                Effect::Speak => self.speak(),
                effect => {
                    if let Some(effect) = self.core.perform(effect) {
                        self.act_beyond(effect);
                    }
                }
            }
            if let Some(region) = opened {
                self.begin_copy(region);
            }
        }
    }

    /// What this machine knows is told when it is on disk.
    fn speak(self: &Rc<Self>) {
        let number = self.core.recovery.borrow().configuration();
        let waits_not = planted!(
            "farm_known_is_not_on_disk",
            "a recovery counts on what a replica's disk does not have yet"
        );
        if waits_not || !self.core.keep_known(number) {
            self.say_known(number);
        }
    }

    pub fn say_known(self: &Rc<Self>, number: u64) {
        let spoken = self.core.recovery.borrow_mut();
        let effects = { spoken }.speak(number);
        self.act(effects);
    }

    /// A replica has done what was decided. Its primary hears of that when it is on disk.
    fn redone(self: &Rc<Self>, region: u16) {
        let number = self.core.recovery.borrow().configuration();
        if !self.core.keep_redone(number, region) {
            self.say_redone(number, region);
        }
    }

    /// A replica has done what was decided, and it is on disk. The primary makes the region in memory first.
    pub fn say_redone(self: &Rc<Self>, number: u64, region: u16) {
        let is_present = number == self.core.recovery.borrow().configuration();
        let primary = self.core.view.borrow().primary(region);
        let is_primary = primary.is_some_and(|place| place.machine == self.core.own);
        if !is_present || !is_primary || self.core.store.table(region).is_none() {
            return self.say_done(number, region);
        }
        let site = self.clone();
        self.tasks.spawn("farm make", async move {
            if site.make(region).await {
                site.say_done(number, region);
            }
        });
    }

    fn say_done(self: &Rc<Self>, number: u64, region: u16) {
        let done = self.core.recovery.borrow_mut();
        let effects = { done }.redone(number, region);
        self.act(effects);
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
