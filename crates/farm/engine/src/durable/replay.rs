//! What a journal says, read from its begin. Pure.
//!
//! A transaction that is in the journal is decided when a [`Settled`] of the region names it, or when a later
//! [`Entry::Below`] has it as settled. If a [`Settled`] of the region does not name it, it was applied here already.
//! What is still undecided at the end is the business of the next recovery, as if it had come in rings.

use super::record::{Commit, Entry, Freed, Settled, below_of};
use crate::recovery::{Below, Id, Record, State, Write};
use plinth_farm_disk::Position;
use plinth_farm_memory::Shape;
use std::collections::BTreeMap;

/// What becomes of a replica, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Apply {
        position: Position,
        written_at: u64,
        writes: Vec<Write>,
    },
    Free {
        position: Position,
        freed: Freed,
    },
}

/// A transaction in one region that is not decided.
struct Open {
    position: Position,
    regions: Vec<u16>,
    written_at: u64,
    writes: Vec<Write>,
}

#[derive(Default)]
struct Replica {
    steps: Vec<Step>,
    open: BTreeMap<Id, Open>,
    /// What the last recovery has committed.
    decided: Vec<Record>,
}

fn decided(id: Id, regions: Vec<u16>, written_at: u64) -> Record {
    Record {
        id,
        regions,
        state: State::Decided { written_at },
        writes: Vec::new(),
    }
}

/// A journal, as far as it was read.
pub struct Replay {
    shape: Shape,
    regions: BTreeMap<u16, Replica>,
    below: Vec<Below>,
    newest: u64,
}

impl Open {
    fn step(self) -> Step {
        Step::Apply {
            position: self.position,
            written_at: self.written_at,
            writes: self.writes,
        }
    }
}

impl Replay {
    pub fn new(shape: Shape) -> Replay {
        Replay {
            shape,
            regions: BTreeMap::new(),
            below: Vec::new(),
            newest: 0,
        }
    }

    /// No timestamp in the journal is greater.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn take(&mut self, position: Position, entry: Entry) {
        match entry {
            Entry::Commit(commit) => self.commit(position, commit),
            Entry::Settled(settled) => self.settle(position, settled),
            Entry::Freed(freed) => self.free(position, freed),
            // A replica is whole when its backup has all objects, so that has forgotten the former ones.
            Entry::Anew { region } => {
                self.regions.remove(&region);
            }
            Entry::Below(below) => self.settle_below(below),
        }
    }

    fn commit(&mut self, position: Position, commit: Commit) {
        self.newest = self.newest.max(commit.written_at);
        for (region, writes) in crate::handover::by_region(&commit.writes) {
            let replica = self.regions.entry(region).or_default();
            let open = Open {
                position,
                regions: commit.regions.clone(),
                written_at: commit.written_at,
                writes,
            };
            replica.open.insert(commit.id, open);
        }
    }

    fn settle(&mut self, position: Position, settled: Settled) {
        let newest = settled.committed.iter().map(|redone| redone.written_at);
        self.newest = self.newest.max(newest.max().unwrap_or(0));
        let replica = self.regions.entry(settled.region).or_default();
        for id in settled.void {
            replica.open.remove(&id);
        }
        replica.decided.clear();
        // These were applied here. Another replica may have applied them too and have no note of that yet, so this one
        // stays able to prove that they are committed.
        for (id, open) in std::mem::take(&mut replica.open) {
            let decided = decided(id, open.regions.clone(), open.written_at);
            replica.decided.push(decided);
            replica.steps.push(open.step());
        }
        for redone in settled.committed {
            let (id, regions, written_at) = (redone.id, redone.regions, redone.written_at);
            replica.steps.push(Step::Apply {
                position,
                written_at,
                writes: redone.writes,
            });
            replica.decided.push(decided(id, regions, written_at));
        }
    }

    /// Whatever was in the slab up to then is truncated everywhere, so it is decided, and of no use any more. A replica
    /// that learns of that from the next object in the slab notes it after that object.
    fn free(&mut self, position: Position, freed: Freed) {
        let shape = self.shape;
        let is_in = |write: &Write| shape.place(write.at).is_ok_and(|(s, _)| s == freed.slab);
        let replica = self.regions.entry(freed.region).or_default();
        let former = replica.open.values_mut();
        for open in former.filter(|open| open.written_at <= freed.at) {
            open.writes.retain(|write| !is_in(write));
        }
        let is_later = |step: &Step| match step {
            Step::Apply {
                written_at, writes, ..
            } => *written_at > freed.at && writes.iter().any(is_in),
            _ => false,
        };
        let later = replica.steps.iter().position(is_later);
        let at = later.unwrap_or(replica.steps.len());
        replica.steps.insert(at, Step::Free { position, freed });
    }

    fn settle_below(&mut self, below: Vec<Below>) {
        for replica in self.regions.values_mut() {
            let settled = replica
                .open
                .extract_if(.., |id, _| id.number < below_of(&below, *id));
            let settled: Vec<Step> = settled.map(|(_, open)| open.step()).collect();
            replica.steps.extend(settled);
        }
        self.below = below;
    }

    /// Those that it says something of.
    pub fn regions(&self) -> impl Iterator<Item = u16> {
        self.regions.keys().copied()
    }

    /// What is to be done with a region's replica after its backup was read.
    pub fn steps(&mut self, region: u16) -> Vec<Step> {
        let replica = self.regions.get_mut(&region);
        replica.map_or_else(Vec::new, |replica| std::mem::take(&mut replica.steps))
    }

    /// What the next recovery has to know of these regions.
    pub fn records(&mut self, regions: &[u16]) -> (Vec<(u16, Record)>, Vec<Below>) {
        let mut records = Vec::new();
        for region in regions {
            let Some(replica) = self.regions.get_mut(region) else {
                continue;
            };
            let decided = std::mem::take(&mut replica.decided);
            records.extend(decided.into_iter().map(|record| (*region, record)));
            for (id, open) in std::mem::take(&mut replica.open) {
                let written_at = open.written_at;
                let record = Record {
                    id,
                    regions: open.regions,
                    state: State::Logged { written_at },
                    writes: open.writes,
                };
                records.push((*region, record));
            }
        }
        (records, std::mem::take(&mut self.below))
    }
}
