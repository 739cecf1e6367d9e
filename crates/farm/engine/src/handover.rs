//! From one configuration to the next (docs/decisions/0013-farm-on-fences.md, "Recovery"): what the engine does with
//! [`Recovery`](crate::recovery::Recovery), which decides.
//!
//! ```text
//!   close ─▶ begin: drain the rings, hand over, arrange replicas ─▶ letters, effects ─▶ open
//! ```

use crate::core::Core;
use crate::ledger::{Known, Locked};
use crate::recovery::{Author, Below, Effect, Held, Id, Record, State, Write};
use crate::store::Unfit;
use crate::view::Configuration;
use plinth_farm_fabric::Machine;
use plinth_runtime::{probe, trace_warn};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of a cluster's first configuration.
const FIRST: u64 = 1;

impl Core {
    /// The configuration ends here, as far as this machine's own transactions are concerned. Everybody who waits for
    /// another machine waits in vain.
    pub fn close(&self) {
        self.stage.close();
        self.post.close();
        for locking in self.locking.take().into_values() {
            locking.tally.end();
        }
        for keeping in self.keeping.take().into_values() {
            keeping.tally.end();
        }
        self.asks.borrow_mut().clear();
        self.parked.borrow_mut().clear();
        self.wanted.clear();
    }

    /// Begins a configuration when everything of former ones has been taken. Returns what recovery is to be told.
    pub fn change_to(&self, configuration: &Configuration) -> Result<Held, Unfit> {
        // What was taken since the end may have left something to say.
        self.close();
        let mut held = self.hand_over();
        let kept = self.store.arrange(configuration)?;
        self.arrange_disk(configuration, &kept, &mut held)?;
        let numbers = 0..configuration.regions.len();
        let is_part = |region: &usize| {
            let seat = configuration.seat(*region, self.own);
            seat.is_some_and(|seat| !seat.is_whole)
        };
        let copies = numbers.filter(is_part).map(|region| region as u16);
        self.copies.replace(copies.collect());
        self.forget_former_lives(&configuration.authors);
        self.authors.replace(configuration.authors.clone());
        if let Some(view) = configuration.view() {
            self.view.replace(Rc::new(view));
        }
        self.oat.borrow_mut().begin();
        self.post.begin();
        self.stage.begin(configuration.number);
        Ok(held)
    }

    /// What the disk knows of transactions is told to the first recovery of this process.
    fn arrange_disk(
        &self,
        configuration: &Configuration,
        kept: &[u16],
        held: &mut Held,
    ) -> Result<(), Unfit> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        // Only the first replicas of a cluster are whole without having anything.
        let is_missing = |region: &u16| {
            let seat = configuration.seat(usize::from(*region), self.own);
            seat.is_some_and(|seat| seat.is_whole) && !kept.contains(region)
        };
        let here = self.store.here();
        if let Some(region) = here.iter().copied().find(is_missing)
            && configuration.number > FIRST
        {
            return Err(Unfit::NotLoaded(region));
        }
        durable.arranged(kept, &here);
        let (records, below) = durable.restored(|region| kept.contains(&region));
        held.records.extend(records);
        held.below.extend(below);
        Ok(())
    }

    fn forget_former_lives(&self, authors: &[Author]) {
        let former = self.authors.borrow();
        let mut ledger = self.ledger.borrow_mut();
        for author in former.iter().filter(|author| !authors.contains(author)) {
            ledger.begin_anew(author.machine);
        }
    }

    /// All that this machine knows of transactions. The ledger keeps only what is below.
    fn hand_over(&self) -> Held {
        let mut held = Held {
            committing: self.committing.borrow().iter().copied().collect(),
            ..Held::default()
        };
        let regions = self.store.here();
        for author in self.authors.borrow().iter().copied() {
            let mut ledger = self.ledger.borrow_mut();
            let Some(account) = ledger.of(author.machine) else {
                continue;
            };
            let number = account.below();
            held.below.push(Below { author, number });
            let (truncated, known) = account.hand_over();
            for number in truncated {
                let id = Id { author, number };
                // Of which regions it was is forgotten. More say so than need to, and no harm is done.
                let records = regions.iter().map(|region| (*region, truncated_record(id)));
                held.records.extend(records);
            }
            for (number, known) in known {
                self.hand_over_one(Id { author, number }, known, &mut held);
            }
        }
        held
    }

    fn hand_over_one(&self, id: Id, known: Known, held: &mut Held) {
        let Known {
            regions,
            locked,
            logged,
            kept_at,
        } = known;
        // A power cut must not take away what a recovery has counted on. What is in the journal is on disk before
        // recovery speaks, and what is not does not count.
        let is_durable = self.durable.is_some();
        let counts = !is_durable || kept_at.is_some();
        let written_at = logged.as_ref().map(|logged| logged.written_at);
        let mut give = |state: State, writes: BTreeMap<u16, Vec<Write>>| {
            for (region, writes) in writes {
                let regions = regions.clone();
                let record = Record {
                    id,
                    regions,
                    state,
                    writes,
                };
                held.records.push((region, record));
            }
        };
        if let Some(logged) = logged.filter(|_| counts) {
            let written_at = logged.written_at;
            give(State::Logged { written_at }, by_region(&logged.writes));
        }
        if let Some(locked) = locked {
            let state = match (locked.committed, written_at.filter(|_| is_durable)) {
                (Some(written_at), _) => State::Committed { written_at },
                (None, Some(written_at)) => State::Logged { written_at },
                (None, None) => State::Locked,
            };
            if counts {
                give(state, by_region(&locked.writes));
            }
            if locked.committed.is_none() {
                self.keep_locks(id, locked, held);
            }
        }
    }

    fn keep_locks(&self, id: Id, locked: Locked, held: &mut Held) {
        let mut locks = self.locks.borrow_mut();
        for (write, former) in locked.writes.into_iter().zip(locked.former) {
            let region = write.at.region();
            held.locks.insert((region, id));
            locks.entry((region, id)).or_default().push((write, former));
        }
    }

    // ---- effects of recovery ----

    /// Does what concerns this machine alone. Returns the others.
    pub fn perform(&self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Settle {
                region,
                committed,
                void,
            } => self.keep_settled(region, committed, void),
            Effect::Release { region, id } => self.end_locks(region, id, true),
            Effect::Install {
                region,
                id,
                written_at,
                writes,
            } => {
                self.redo(region, written_at, &writes);
                self.end_locks(region, id, false);
            }
            Effect::Opened { region } => self.lead_if_primary(region),
            Effect::Outcome { number, .. } => {
                let was_committing = self.committing.borrow_mut().remove(&number);
                assert!(
                    was_committing,
                    "a recovery tells what became of transaction {number}, which nobody waits for"
                );
            }
            effect => return Some(effect),
        }
        None
    }

    pub fn lead_if_primary(&self, region: u16) {
        let primary = self.view.borrow().primary(region);
        if primary.is_some_and(|place| place.machine == self.own) {
            self.store.lead(region);
        }
    }

    /// All locks of the transaction in the region end. `is_undone`: the objects stay as they were.
    fn end_locks(&self, region: u16, id: Id, is_undone: bool) {
        let locks = self.locks.borrow_mut().remove(&(region, id));
        for (write, former) in locks.into_iter().flatten() {
            if is_undone {
                self.store.with(region, |region| {
                    let cell = region.cell(write.at).ok();
                    let locked = former.header.locked();
                    let cell = cell.filter(|cell| cell.header() == locked && !cell.is_away());
                    if let Some(cell) = cell {
                        cell.unlock(former.header);
                    }
                });
            }
            if let Some(kept) = former.kept {
                self.store.old.borrow_mut().abort(kept);
            }
        }
    }

    /// What a recovery has found committed is applied here, where it is not yet.
    fn redo(&self, region: u16, written_at: u64, writes: &[Write]) {
        self.store.installed(written_at);
        for write in writes {
            if self.apply_one(region, written_at, write) == Some(true) {
                probe!("farm recovery has applied a write");
            }
        }
    }

    /// No whole replica of these regions is left. Nothing goes on.
    pub fn lose(&self, regions: &[u16]) {
        trace_warn!("FarmEngineLost", "machine" => self.own.0, "regions" => regions.len());
        self.stage.leave();
    }

    /// Transactions run from here on.
    pub fn open(&self, number: u64) {
        let committing = self.committing.borrow();
        assert!(
            committing.is_empty(),
            "configuration {number} is open, and nobody knows what became of {committing:?}"
        );
        drop(committing);
        self.numbers.borrow_mut().forget_all();
        self.raise_below();
        self.stage.open(number);
        if let Some(durable) = &self.durable {
            durable.opened(number);
        }
    }

    /// Machines of the configuration but this one.
    pub fn others(&self) -> Vec<Machine> {
        let authors = self.authors.borrow();
        let machines = authors.iter().map(|author| author.machine);
        machines.filter(|machine| *machine != self.own).collect()
    }
}

fn truncated_record(id: Id) -> Record {
    Record {
        id,
        regions: Vec::new(),
        state: State::Truncated,
        writes: Vec::new(),
    }
}

pub fn by_region(writes: &[Write]) -> BTreeMap<u16, Vec<Write>> {
    let mut regions: BTreeMap<u16, Vec<Write>> = BTreeMap::new();
    for write in writes {
        let of_region = regions.entry(write.at.region()).or_default();
        of_region.push(write.clone());
    }
    regions
}
