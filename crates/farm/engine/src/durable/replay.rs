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
    /// What recoveries have settled since the region was open last, as far as this journal shows.
    decided: BTreeMap<Id, Record>,
    /// There were commits since the last recovery, so the region was open: all replicas have that on disk.
    was_open: bool,
}

impl Replica {
    /// In the order of time: objects of several sizes may have been in a slab, one after the other.
    fn redo(&mut self, mut done: Vec<Open>) {
        done.sort_by_key(|open| open.written_at);
        self.steps.extend(done.into_iter().map(Open::step));
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
    /// What the next recovery is to know of it.
    fn decided(&self, id: Id) -> Record {
        let written_at = self.written_at;
        Record {
            id,
            regions: self.regions.clone(),
            state: State::Decided { written_at },
            writes: Vec::new(),
        }
    }

    /// The same, so that it is redone everywhere.
    fn decided_with_writes(&self, id: Id) -> Record {
        let written_at = self.written_at;
        match self.writes.is_empty() {
            true => self.decided(id),
            false => Record {
                state: State::Committed { written_at },
                writes: self.writes.clone(),
                ..self.decided(id)
            },
        }
    }

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

    /// No timestamp in the journal is greater, and none that was ever used.
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
            Entry::Time(mark) => self.newest = self.newest.max(mark),
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
            replica.was_open = true;
        }
    }

    fn settle(&mut self, position: Position, settled: Settled) {
        let newest = settled.committed.iter().map(|redone| redone.written_at);
        self.newest = self.newest.max(newest.max().unwrap_or(0));
        let replica = self.regions.entry(settled.region).or_default();
        for id in settled.void {
            replica.open.remove(&id);
        }
        if std::mem::take(&mut replica.was_open) {
            replica.decided.clear();
        }
        let mut done = Vec::new();
        // These were applied everywhere. Another replica may not have a note of that, so this one can prove that they
        // are committed. It does not bring their writes again: who has copied the region since may have newer objects
        // in the same place.
        for (id, open) in std::mem::take(&mut replica.open) {
            replica.decided.insert(id, open.decided(id));
            done.push(open);
        }
        // Of these, another replica may have lost all that it knew: the region may never have been open since.
        for redone in settled.committed {
            let id = redone.id;
            let redone = Open {
                position,
                regions: redone.regions,
                written_at: redone.written_at,
                writes: redone.writes,
            };
            replica.decided.insert(id, redone.decided_with_writes(id));
            done.push(redone);
        }
        replica.redo(done);
    }

    /// Whatever was in the slab up to then is truncated everywhere, so it is decided, and of no use here any more.
    /// Other replicas may need it still, so the next recovery hears of it. A replica that learns from the next object
    /// in the slab that it is free notes it after that object.
    fn free(&mut self, position: Position, freed: Freed) {
        let shape = self.shape;
        let is_in = |write: &Write| shape.place(write.at).is_ok_and(|(s, _)| s == freed.slab);
        let replica = self.regions.entry(freed.region).or_default();
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
            let settled: Vec<Open> = settled.map(|(_, open)| open).collect();
            replica.redo(settled);
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
            records.extend(decided.into_values().map(|record| (*region, record)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::{Author, Redone};
    use crate::wire::Change;
    use bytes::Bytes;
    use plinth_farm_fabric::Machine;
    use plinth_farm_memory::{Class, Pointer};

    const REGION: u16 = 2;

    fn shape() -> Shape {
        Shape::of(1 << 12, 1 << 9).expect("a shape")
    }

    fn id(number: u64) -> Id {
        let (machine, since) = (Machine(1), 3);
        let author = Author { machine, since };
        Id { author, number }
    }

    fn write(slab: u32) -> Write {
        Write {
            at: shape().pointer(REGION, class(), slab, 0),
            change: Change::Update,
            payload: Bytes::new(),
        }
    }

    fn class() -> Class {
        Class::of(8).expect("small")
    }

    fn commit(number: u64, slab: u32) -> Entry {
        Entry::Commit(Commit {
            id: id(number),
            written_at: 10 * number,
            regions: vec![REGION],
            writes: vec![write(slab)],
        })
    }

    fn settled(committed: &[u64], void: &[u64]) -> Entry {
        let redone = |number: &u64| Redone {
            id: id(*number),
            regions: vec![REGION],
            written_at: 10 * number,
            writes: Vec::new(),
        };
        Entry::Settled(Settled {
            region: REGION,
            committed: committed.iter().map(redone).collect(),
            void: void.iter().map(|number| id(*number)).collect(),
        })
    }

    fn replay(entries: Vec<Entry>) -> Replay {
        let mut replay = Replay::new(shape());
        for (position, entry) in (0..).map(Position).zip(entries) {
            replay.take(position, entry);
        }
        replay
    }

    /// Timestamps of what is applied, and 0 for a slab that is freed.
    fn done(replay: &mut Replay) -> Vec<u64> {
        let steps = replay.steps(REGION).into_iter();
        let done = steps.filter_map(|step| match step {
            Step::Apply {
                written_at, writes, ..
            } => (!writes.is_empty()).then_some(written_at),
            Step::Free { .. } => Some(0),
        });
        done.collect()
    }

    fn known(replay: &mut Replay) -> Vec<(u64, State)> {
        let (records, _) = replay.records(&[REGION]);
        let known = records.into_iter();
        let mut known: Vec<_> = known.map(|(_, r)| (r.id.number, r.state)).collect();
        known.sort_by_key(|(number, _)| *number);
        known
    }

    #[test]
    fn what_nobody_has_decided_is_left_to_the_next_recovery() {
        let mut replay = replay(vec![commit(1, 0), commit(2, 1)]);
        assert!(done(&mut replay).is_empty());
        let logged = |number: u64| {
            let written_at = 10 * number;
            (number, State::Logged { written_at })
        };
        assert_eq!(known(&mut replay), [logged(1), logged(2)]);
        assert_eq!(replay.newest(), 20);
    }

    #[test]
    fn a_recovery_settles_all_that_was_there_before_it_and_nothing_later() {
        // 1 had no effect, 2 is committed, 3 was applied everywhere before the recovery, 4 comes after it.
        let entries = vec![
            commit(1, 0),
            commit(2, 1),
            commit(3, 2),
            settled(&[2], &[1]),
            commit(4, 3),
        ];
        let mut replay = replay(entries);
        assert_eq!(done(&mut replay), [20, 30]);
        let known = known(&mut replay);
        let decided = |written_at: u64| State::Decided { written_at };
        let logged = State::Logged { written_at: 40 };
        assert_eq!(known, [(2, decided(20)), (3, decided(30)), (4, logged)]);
    }

    #[test]
    fn what_a_recovery_has_redone_is_told_again_with_its_writes() {
        let redone = Redone {
            id: id(5),
            regions: vec![REGION],
            written_at: 50,
            writes: vec![write(1)],
        };
        let settled = Entry::Settled(Settled {
            region: REGION,
            committed: vec![redone],
            void: Vec::new(),
        });
        let mut replay = replay(vec![settled]);
        assert_eq!(done(&mut replay), [50]);
        let (records, _) = replay.records(&[REGION]);
        let committed = State::Committed { written_at: 50 };
        assert_eq!(
            (records[0].1.state, records[0].1.writes.len()),
            (committed, 1)
        );
    }

    #[test]
    fn a_recovery_forgets_what_was_decided_before_the_region_was_open() {
        let entries = || vec![commit(1, 0), settled(&[1], &[])];
        // The region may not have been open between the two.
        let mut closed = replay([entries(), vec![settled(&[], &[])]].concat());
        assert_eq!(done(&mut closed), [10]);
        assert_eq!(known(&mut closed).len(), 1);
        let later = vec![commit(2, 1), settled(&[], &[2])];
        let mut opened = replay([entries(), later].concat());
        assert_eq!(done(&mut opened), [10]);
        assert!(known(&mut opened).is_empty());
    }

    #[test]
    fn what_a_mark_has_is_applied() {
        let below = Below {
            author: id(0).author,
            number: 2,
        };
        let entries = vec![commit(1, 0), commit(2, 1), Entry::Below(vec![below])];
        let mut replay = replay(entries);
        assert_eq!(done(&mut replay), [10]);
        assert_eq!(known(&mut replay).len(), 1);
    }

    #[test]
    fn time_goes_on_above_the_newest_mark_and_the_newest_commit() {
        let marked = replay(vec![Entry::Time(70), commit(3, 0), Entry::Time(50)]);
        assert_eq!(marked.newest(), 70);
        let committed = replay(vec![Entry::Time(7), commit(3, 0)]);
        assert_eq!(committed.newest(), 30);
    }

    #[test]
    fn a_region_that_begins_anew_has_nothing_of_what_was_there() {
        let anew = Entry::Anew { region: REGION };
        let mut replay = replay(vec![commit(1, 0), settled(&[1], &[]), anew, commit(2, 1)]);
        assert!(done(&mut replay).is_empty());
        assert_eq!(known(&mut replay).len(), 1);
    }

    #[test]
    fn what_a_recovery_settles_is_redone_in_the_order_of_time() {
        // Commits come in any order, and a slab may have had objects of two classes, one after the other.
        let mut settled_here = replay(vec![commit(3, 1), commit(1, 1), settled(&[2, 3], &[])]);
        assert_eq!(done(&mut settled_here), [10, 30]);
        let below = Below {
            author: id(0).author,
            number: 9,
        };
        let mut marked = replay(vec![commit(3, 1), commit(1, 1), Entry::Below(vec![below])]);
        assert_eq!(done(&mut marked), [10, 30]);
    }

    #[test]
    fn a_slab_is_freed_before_what_came_into_it_later() {
        let freed = |at| {
            let (region, slab) = (REGION, 1);
            Entry::Freed(Freed { region, slab, at })
        };
        // The replica has noted that only when 3 was applied.
        let entries = vec![commit(1, 1), commit(3, 1), settled(&[1, 3], &[]), freed(20)];
        let mut late = replay(entries);
        assert_eq!(done(&mut late), [10, 0, 30]);
        // 1 was truncated, and nobody has noted that.
        let mut early = replay(vec![commit(1, 1), commit(3, 1), freed(20)]);
        assert_eq!(done(&mut early), [0]);
        let (records, _) = early.records(&[REGION]);
        let writes: Vec<usize> = records.iter().map(|(_, r)| r.writes.len()).collect();
        assert_eq!(writes, [1, 1]);
    }

    #[test]
    fn an_entry_comes_back_from_its_bytes_and_other_bytes_do_no_harm() {
        use plinth_core::codec::Codec;
        let at = Pointer::new(REGION, class(), 64);
        let entries = [
            commit(7, 1),
            settled(&[1], &[2, 3]),
            Entry::Anew {
                region: at.region(),
            },
            Entry::Below(Vec::new()),
            Entry::Time(9),
        ];
        for entry in entries {
            let bytes = entry.to_bytes();
            assert_eq!(Entry::from_bytes(bytes.clone()), Some(entry));
            for length in 0..bytes.len() {
                let _ = Entry::from_bytes(bytes.slice(..length));
            }
            for at in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 0x80;
                let _ = Entry::from_bytes(damaged.into());
            }
        }
    }
}
