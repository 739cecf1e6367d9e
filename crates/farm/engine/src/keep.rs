//! What a machine's core does with its disk, if it has one ([`durable`](crate::durable)).

use crate::core::Core;
use crate::durable::{Commit, Entry, Freed, Item, Settled, Waiter};
use crate::image::Image;
use crate::ledger::Known;
use crate::recovery::{Author, Below, Id, Redone};
use crate::wire::Number;
use plinth_farm_disk::{Position, Version};
use plinth_farm_fabric::Machine;
use plinth_farm_memory::{Pointer, TIMESTAMP_MAX};
use plinth_farm_time::Interval;
use plinth_runtime::planted;

impl Core {
    fn author(&self, machine: Machine) -> Option<Author> {
        let authors = self.authors.borrow();
        authors.iter().find(|a| a.machine == machine).copied()
    }

    /// Writes the transaction into the journal, with what a primary here has locked. Its coordinator hears when it is
    /// on disk.
    pub fn keep(
        &self,
        coordinator: Machine,
        number: Number,
        written_at: u64,
        known: &Known,
    ) -> Option<Position> {
        let durable = self.durable.as_ref()?;
        let id = Id {
            author: self.author(coordinator)?,
            number,
        };
        let commit = Commit {
            id,
            written_at,
            regions: known.regions.clone(),
            writes: known.writes().cloned().collect(),
        };
        let configuration = self.view.borrow().number;
        Some(durable.keep(configuration, commit))
    }

    /// The transaction is applied here: it goes to the backup.
    pub fn keep_applied(&self, known: &Known) {
        let (Some(durable), Some(position)) = (&self.durable, known.kept_at) else {
            return;
        };
        let logged = known.logged.as_ref().map(|logged| logged.written_at);
        let committed = known.locked.as_ref().and_then(|locked| locked.committed);
        if let Some(written_at) = logged.or(committed) {
            let here = known.writes().filter(|write| self.has_cell(write.at));
            durable.apply(position, written_at, here);
        }
    }

    /// The backup has what the replica has: not what is of another size than the slab's objects by now.
    fn has_cell(&self, at: Pointer) -> bool {
        let has = self
            .store
            .with_image(at.region(), |image| image.has_cell(at));
        has == Some(true)
    }

    /// A durable machine uses no time that is after the mark on its disk: so no time comes twice, whatever ends.
    pub fn may_be_used(&self, interval: Interval) -> bool {
        let durable = self.durable.as_ref();
        durable.is_none_or(|durable| durable.has_marked(interval.upper))
    }

    /// Recovery waits until the disk has all that it was told. False: nobody has to wait for the disk.
    pub fn keep_known(&self, configuration: u64) -> bool {
        let Some(durable) = &self.durable else {
            return false;
        };
        let Some(last) = durable.last() else {
            return false;
        };
        durable.wait(last, configuration, Waiter::Known);
        true
    }

    /// A recovery has decided everything in the region.
    pub fn keep_settled(&self, region: u16, committed: Vec<Redone>, void: Vec<Id>) {
        let Some(durable) = &self.durable else {
            return;
        };
        let forgets = planted!(
            "farm_decisions_are_not_kept",
            "the disk does not say which transactions had no effect"
        );
        let void = if forgets { Vec::new() } else { void };
        let settled = Settled {
            region,
            committed: committed.clone(),
            void,
        };
        let position = durable.append(&Entry::Settled(settled));
        let mut settling = durable.settling.borrow_mut();
        settling.insert(region, (position, committed));
    }

    /// What it has decided is done in memory. False: nobody has to wait for the disk.
    pub fn keep_redone(&self, configuration: u64, region: u16) -> bool {
        let Some(durable) = &self.durable else {
            return false;
        };
        let Some((position, committed)) = durable.settling.borrow_mut().remove(&region) else {
            return false;
        };
        for redone in &committed {
            let here = redone.writes.iter().filter(|write| self.has_cell(write.at));
            durable.apply(position, redone.written_at, here);
        }
        durable.wait(position, configuration, Waiter::Settled { region });
        true
    }

    /// The slab of a region here is about to be free, or to go to another class.
    /// No version in it is newer than `at`, or than those that are here.
    pub fn keep_free(&self, region: u16, slab: u32, at: u64) {
        let Some(durable) = &self.durable else {
            return;
        };
        let at = self.newest_in(region, slab).max(at);
        if (1..=TIMESTAMP_MAX).contains(&at) {
            durable.free(Freed { region, slab, at });
        }
    }

    /// No version in the slab of a replica here is newer.
    pub fn newest_in(&self, region: u16, slab: u32) -> u64 {
        let newest = self
            .store
            .with_image(region, |image: &mut Image| image.newest_in(slab));
        newest.unwrap_or(0)
    }

    /// The version is of an object that was there before its slab was freed.
    pub fn is_over(&self, at: Pointer, written_at: u64) -> bool {
        let Some(durable) = &self.durable else {
            return false;
        };
        let Ok((slab, _)) = self.store.shape.place(at) else {
            return false;
        };
        durable.is_over(at.region(), slab, written_at)
    }

    /// The object is not in memory, where it would be compared, and the backup has a version that is not older.
    pub fn is_away_and_newer(&self, version: &Version) -> bool {
        let Some(durable) = self.durable.as_ref().filter(|_| self.store.is_on_disk) else {
            return false;
        };
        self.store.is_away(version.pointer) && !durable.backup().is_news(version)
    }

    /// An object is about to be applied here. If it takes a slab over from another class, that slab is free before.
    /// False if the objects that were there last are newer.
    pub fn may_take_over(&self, at: Pointer, written_at: u64) -> bool {
        let slab = self
            .store
            .with_image(at.region(), |image| image.taken_over(at));
        let Some(slab) = slab.flatten() else {
            return true;
        };
        let is_newer = written_at > self.newest_in(at.region(), slab);
        if is_newer {
            self.keep_free(at.region(), slab, 0);
        }
        is_newer
    }

    /// What is below the safe point is applied here already, and on its way to the backup.
    pub fn keep_safe(&self, safe: u64) {
        if let Some(durable) = &self.durable
            && self.stage.number().is_some()
        {
            durable.push(Item::Safe(safe));
        }
    }

    /// Of each coordinator of this configuration, what is settled.
    pub fn belows(&self) -> Vec<Below> {
        let mut ledger = self.ledger.borrow_mut();
        let authors = self.authors.borrow();
        let below = |author: &Author| {
            let number = ledger.of(author.machine)?.below();
            let author = *author;
            Some(Below { author, number })
        };
        authors.iter().filter_map(below).collect()
    }
}
