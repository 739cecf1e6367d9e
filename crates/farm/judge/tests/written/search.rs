//! Looks for an order of a few transactions that explains what they saw, by trying all of them.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of an object at a place in the order. Nothing is known of it until somebody tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Now {
    /// And who freed it, if anybody did.
    Absent(Option<Id>),
    Initial,
    Of(Id),
}

type Objects = BTreeMap<Object, Now>;
/// What each transaction found when it read, of the objects that it will change.
type Snapshots = BTreeMap<Id, Vec<Option<Now>>>;

struct Search<'h> {
    all: Vec<&'h Transaction>,
    takes_effect: Vec<bool>,
    /// Orders that lead nowhere: who has read, who has written, and what is there.
    seen: BTreeSet<(u32, u32, Objects, Snapshots)>,
}

/// True if there is an order.
pub fn is_explained(history: &History) -> bool {
    let all: Vec<&Transaction> = history.transactions.iter().collect();
    let open: Vec<usize> = (0..all.len())
        .filter(|&at| matches!(all[at].outcome, Outcome::Unknown(_)))
        .collect();
    (0u32..1 << open.len()).any(|chosen| {
        let takes_effect = (0..all.len()).map(|at| match all[at].outcome {
            Outcome::Committed(_) => true,
            Outcome::Unknown(_) => open
                .iter()
                .position(|&it| it == at)
                .is_some_and(|bit| chosen >> bit & 1 == 1),
            _ => false,
        });
        let mut search = Search {
            takes_effect: takes_effect.collect(),
            all: all.clone(),
            seen: BTreeSet::new(),
        };
        search.goes_on(0, 0, &Objects::new(), &Snapshots::new())
    })
}

impl Search<'_> {
    fn goes_on(&mut self, read: u32, done: u32, now: &Objects, snapshots: &Snapshots) -> bool {
        if done.count_ones() as usize == self.all.len() {
            return true;
        }
        if !self
            .seen
            .insert((read, done, now.clone(), snapshots.clone()))
        {
            return false;
        }
        for at in 0..self.all.len() {
            let bit = 1 << at;
            if done & bit != 0 {
                continue;
            }
            let (mut now, mut snapshots) = (now.clone(), snapshots.clone());
            let is_split =
                self.takes_effect[at] && self.all[at].options.isolation == Isolation::Snapshot;
            let mut new_done = done;
            if read & bit == 0 {
                if !self.may_begin(at, done) || !self.reads(at, &mut now) {
                    continue;
                }
                let t = self.all[at];
                snapshots.insert(
                    t.id,
                    t.writes
                        .iter()
                        .map(|write| now.get(&write.object).copied())
                        .collect(),
                );
            }
            if !is_split || read & bit != 0 {
                if self.takes_effect[at] && !self.writes(at, &mut now, &snapshots) {
                    continue;
                }
                snapshots.remove(&self.all[at].id);
                new_done |= bit;
            }
            if self.goes_on(read | bit, new_done, &now, &snapshots) {
                return true;
            }
        }
        false
    }

    /// False if it must come after one that is not done.
    fn may_begin(&self, at: usize, done: u32) -> bool {
        let t = self.all[at];
        if !t.options.strict || t.options.stale {
            return true;
        }
        (0..self.all.len()).all(|other| {
            let former = self.all[other];
            let was_told = !matches!(former.outcome, Outcome::Unknown(_));
            let early = self.takes_effect[other] && former.options.isolation == Isolation::Snapshot;
            done >> other & 1 == 1
                || !was_told
                || former.end >= t.begin
                || (early && !former.options.strict)
        })
    }

    fn reads(&self, at: usize, now: &mut Objects) -> bool {
        self.all[at].reads.iter().all(|read| {
            // The first one tells what was there before the history. Nobody tells that of a value.
            let first = match read.seen {
                Seen::Initial => Now::Initial,
                Seen::Absent => Now::Absent(None),
                Seen::Of(_) if !now.contains_key(&read.object) => return false,
                Seen::Of(id) => Now::Of(id),
            };
            match *now.entry(read.object).or_insert(first) {
                Now::Absent(_) => read.seen == Seen::Absent,
                was => was == first,
            }
        })
    }

    fn writes(&self, at: usize, now: &mut Objects, snapshots: &Snapshots) -> bool {
        let t = self.all[at];
        let snapshot = &snapshots[&t.id];
        for (write, then) in t.writes.iter().zip(snapshot) {
            let was = now.get(&write.object).copied();
            let is_absent = matches!(was, Some(Now::Absent(_)));
            // What nobody had told of then is still the beginning if it is now.
            let is_same = was == *then || then.is_none() && was == Some(Now::Initial);
            let has_read = t.reads.iter().any(|read| read.object == write.object);
            let may = match write.change {
                // Who has read that it was absent relies on that.
                Change::Allocate if has_read => is_absent && is_same,
                Change::Allocate => is_absent || was.is_none(),
                _ => !is_absent && is_same,
            };
            if !may {
                return false;
            }
            let after = match write.change {
                Change::Free => Now::Absent(Some(t.id)),
                _ => Now::Of(t.id),
            };
            now.insert(write.object, after);
        }
        true
    }
}
