//! A participant as a backup: what is logged, and applied when it is truncated (§4.2).

use crate::core::Core;
use crate::durable::version;
use crate::ledger::{Known, Logged};
use crate::wire::{Number, Write};
use plinth_farm_fabric::Machine;
use plinth_farm_memory::TIMESTAMP_MAX;
use plinth_runtime::probe;

impl Core {
    /// Keeps the writes until the transaction is truncated.
    pub fn log(
        &self,
        coordinator: Machine,
        number: Number,
        written_at: u64,
        regions: Vec<u16>,
        writes: Vec<Write>,
    ) {
        let mut ledger = self.ledger.borrow_mut();
        let known = ledger
            .of(coordinator)
            .and_then(|account| account.entry(number));
        let Some(known) = known.filter(|known| known.logged.is_none()) else {
            return;
        };
        if written_at > TIMESTAMP_MAX {
            return;
        }
        known.regions = regions;
        known.logged = Some(Logged { writes, written_at });
        known.kept_at = self.keep(coordinator, number, written_at, known);
    }

    /// All primaries have committed the transaction. What is logged becomes the objects here. Also a repetition is
    /// reported to the coordinator.
    pub fn truncate(&self, coordinator: Machine, number: Number) {
        let known = {
            let mut ledger = self.ledger.borrow_mut();
            ledger
                .of(coordinator)
                .and_then(|account| account.truncate(number))
        };
        if let Some(known) = known {
            self.apply(&known);
            self.keep_applied(&known);
        }
        match coordinator == self.own {
            true => self.truncated(number, self.own),
            false => self
                .post
                .owe(coordinator, |owed| owed.truncated.push(number)),
        }
    }

    fn apply(&self, known: &Known) {
        let Some(logged) = &known.logged else {
            return;
        };
        self.store.installed(logged.written_at);
        for write in &logged.writes {
            // Transactions are truncated in any order.
            match self.apply_one(write.at.region(), logged.written_at, write) {
                Some(true) => (),
                Some(false) => probe!("farm backup has a newer version already"),
                None => probe!("farm backup has no such cell"),
            }
        }
    }

    /// Replaces the object's version at a replica if this one is newer, and says whether. `None` if there is no such
    /// cell here.
    pub fn apply_one(&self, region: u16, written_at: u64, write: &Write) -> Option<bool> {
        if self.is_over(write.at, written_at) {
            probe!("farm version of a slab that was freed since");
            return Some(false);
        }
        if !self.may_take_over(write.at, written_at) {
            probe!("farm version of an object before the one that is there");
            return Some(false);
        }
        let version = version(write, written_at);
        if self.is_away_and_newer(&version) {
            probe!("farm version older than the one that is away");
            return Some(false);
        }
        let applied = self.store.with_image(region, |image| image.apply(&version));
        applied.flatten()
    }

    /// A machine has truncated a transaction of this one.
    pub fn truncated(&self, number: Number, by: Machine) {
        self.numbers.borrow_mut().truncated(number, by);
        self.raise_below();
    }

    /// The primary of the region has no objects in the slab any more, nor has anybody else.
    pub fn free_slab(&self, primary: Machine, region: u16, slab: u32, at: u64) {
        let view = self.view();
        let is_right = view.replicas(region).is_some_and(|replicas| {
            replicas.primary.machine == primary && replicas.backup_on(self.own).is_some()
        });
        if !is_right {
            return;
        }
        // Who copies the region may have read objects that were there.
        self.store.frees.set(self.store.frees.get() + 1);
        self.keep_free(region, slab, at);
        self.store.with_image(region, |image| image.free_slab(slab));
    }
}
