//! What a machine keeps from one configuration to the next, until a recovery has ended.

use super::members::Members;
use super::messages::{Below, Id, Record, Redone, State};
use crate::wire::{Number, Write};
use plinth_farm_fabric::Machine;
use plinth_runtime::{nobody_has_lied, planted};
use std::collections::{BTreeMap, BTreeSet};

/// What the engine of a machine holds when it has taken in everything of a configuration. It keeps none of it but
/// `below`: recovery has it from now on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// As a coordinator: transactions that were committing, and whose outcome nobody has been told.
    pub committing: Vec<Number>,
    /// As a participant, region by region. A transaction that writes to two regions here has a record for each.
    pub records: Vec<(u16, Record)>,
    /// By region: transactions that have locks here.
    pub locks: BTreeSet<(u16, Id)>,
    pub below: Vec<Below>,
}

/// What a replica has to do for the end of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Transactions whose locks in the region end without effect.
    pub releases: Vec<Id>,
    /// Transactions without effect that are locked or logged here.
    pub void: Vec<Id>,
    pub installs: Vec<(Id, u64, Vec<Write>)>,
}

#[derive(Default)]
pub struct Kept {
    /// By region: what was there before the configuration, or what a recovery has decided there.
    regions: BTreeMap<u16, BTreeMap<Id, Record>>,
    locks: BTreeSet<(u16, Id)>,
    below: Vec<Below>,
    /// Own transactions whose outcome is not known.
    asked: BTreeSet<Number>,
}

impl Kept {
    /// A configuration has ended. What was kept stays beside what has come since: a region need not have been opened.
    pub fn take_in(&mut self, own: Machine, members: &Members, held: Held) {
        let is_here = |region: u16| members.replica(region, own).is_some();
        self.regions.retain(|region, _| is_here(*region));
        self.locks.extend(held.locks);
        self.locks.retain(|(region, _)| is_here(*region));
        let records = held.records.into_iter();
        for (region, record) in records.filter(|(region, _)| is_here(*region)) {
            let records = self.regions.entry(region).or_default();
            // A decision is the last word: nothing of the transaction comes after it.
            records.entry(record.id).or_insert(record);
        }
        // Of authors that have gone, a recovery that did not come to its end may know more than what has come since: a
        // disk tells it once.
        let is_told = |below: &Below| held.below.iter().any(|told| told.author == below.author);
        self.below.retain(|below| !is_told(below));
        self.below.extend(held.below);
        self.asked.extend(held.committing);
    }

    pub fn records(&self, region: u16) -> Vec<Record> {
        let records = self.regions.get(&region).into_iter().flatten();
        records.map(|(_, record)| record.clone()).collect()
    }

    pub fn below(&self) -> Vec<Below> {
        self.below.clone()
    }

    pub fn asked(&self) -> impl Iterator<Item = Number> {
        self.asked.iter().copied()
    }

    /// All regions are open: nobody contradicts the decisions any more.
    pub fn answered(&mut self) -> BTreeSet<Number> {
        self.below.clear();
        std::mem::take(&mut self.asked)
    }

    /// The region's transactions are decided. The decisions stay until the next recovery, which may need them for
    /// other regions.
    pub fn redo(&mut self, region: u16, committed: Vec<Redone>) -> Work {
        let former = self.regions.remove(&region).unwrap_or_default();
        let decided: BTreeSet<Id> = committed.iter().map(|redone| redone.id).collect();
        let locked = self.locks.extract_if(.., |(of, _)| *of == region);
        let ended: Vec<Id> = locked.map(|(_, id)| id).collect();
        let mut work = Work::default();
        let undecided = former.values().filter(|r| !r.state.is_proof());
        let void = undecided.filter(|record| !decided.contains(&record.id));
        work.void.extend(void.map(|record| record.id));
        let without_effect = ended.into_iter().filter(|id| !decided.contains(id));
        work.releases.extend(without_effect);
        if planted!(
            "farm_recovery_forgets_locks",
            "locks stay that a transaction without effect has left"
        ) {
            work.releases.clear();
        }
        let records = self.regions.entry(region).or_default();
        for redone in committed {
            let Redone {
                id,
                regions,
                written_at,
                writes,
            } = redone;
            let known = former.get(&id).and_then(|record| record.state.written_at());
            // The primary says what the master has decided from what all have said.
            assert!(
                known.is_none_or(|known| known == written_at) || !nobody_has_lied(),
                "{id:?} is redone in region {region} at {written_at}, and was known here at {known:?}"
            );
            let was_logged = former
                .get(&id)
                .is_some_and(|r| matches!(r.state, State::Logged { .. }));
            let is_forgotten = was_logged
                && planted!(
                    "farm_recovery_forgets_writes",
                    "what a backup has only logged is not applied"
                );
            if !writes.is_empty() && !is_forgotten {
                work.installs.push((id, written_at, writes));
            }
            let state = State::Decided { written_at };
            let record = Record {
                id,
                regions,
                state,
                writes: Vec::new(),
            };
            records.insert(id, record);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::{Author, Replica};

    const OWN: Machine = Machine(0);

    fn author(machine: u16) -> Author {
        let (machine, since) = (Machine(machine), 1);
        Author { machine, since }
    }

    fn members(configuration: u64) -> Members {
        let replica = Replica {
            machine: OWN,
            is_whole: true,
        };
        Members {
            configuration,
            master: Some(OWN),
            authors: vec![author(0), author(1)],
            regions: vec![vec![replica]],
        }
    }

    fn below(machine: u16, number: Number) -> Below {
        let author = author(machine);
        Below { author, number }
    }

    #[test]
    fn what_an_interrupted_recovery_knows_of_authors_that_have_gone_is_told_again() {
        let mut kept = Kept::default();
        let told = |below| Held {
            below,
            ..Held::default()
        };
        // A disk tells of author 2 once.
        kept.take_in(OWN, &members(1), told(vec![below(1, 5), below(2, 7)]));
        kept.take_in(OWN, &members(2), told(vec![below(1, 6)]));
        assert_eq!(kept.below(), [below(2, 7), below(1, 6)]);
        kept.answered();
        kept.take_in(OWN, &members(3), told(vec![below(1, 8)]));
        assert_eq!(kept.below(), [below(1, 8)]);
    }

    #[test]
    fn a_lock_ends_with_its_region_whether_or_not_a_record_tells_of_it() {
        let mut kept = Kept::default();
        let id = |number| Id {
            author: author(1),
            number,
        };
        let held = Held {
            locks: [(0, id(1)), (0, id(2)), (9, id(3))].into(),
            ..Held::default()
        };
        kept.take_in(OWN, &members(1), held);
        // The recovery is interrupted. There is no region 9 here.
        kept.take_in(OWN, &members(2), Held::default());
        let redone = Redone {
            id: id(2),
            regions: vec![0],
            written_at: 4,
            writes: Vec::new(),
        };
        let work = kept.redo(0, vec![redone]);
        assert_eq!((work.releases, work.void), (vec![id(1)], Vec::new()));
        assert!(kept.redo(0, Vec::new()).releases.is_empty());
    }
}
