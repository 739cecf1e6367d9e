//! The ranges that a storage server holds, and the version from which on each can be read.
//!
//! Changes come as [orders](plinth_core::shard_order) in the server's own stream, each at its version. When a recovery
//! ends an epoch before these versions, the changes are undone with them. The state as of the durable version is kept
//! in the store, beside the data that it describes:
//!
//! ```text
//! \xff\xff/held/<begin>  →  0 absent, 1 fetching, 2 held: from here to the next row
//! ```

use crate::versioned::VersionedStore;
use bytes::Bytes;
use plinth_core::key::{ALL_KEYS_END, KeyRange};
use plinth_core::range_map::RangeMap;
use plinth_core::{Error, Result, Version};
use plinth_engine::WriteBatch;
use std::collections::VecDeque;

pub(crate) const HELD: &[u8] = b"\xff\xff/held/";
pub(crate) const HELD_END: &[u8] = b"\xff\xff/held0";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// Other servers hold it.
    Absent,
    /// It is being copied from servers that hold it.
    Fetching,
    /// It can be read at this version and later.
    Held { since: Version },
}

struct Change {
    version: Version,
    range: KeyRange,
    to: Holding,
    before: Vec<(KeyRange, Holding)>,
}

pub struct Ownership {
    now: RangeMap<Holding>,
    /// State as of the durable version.
    written: RangeMap<Holding>,
    /// Changes above the durable version, oldest first.
    changes: VecDeque<Change>,
    /// Set if every key is held from this version on: then nothing needs to be looked up.
    everything_since: Option<Version>,
}

impl Ownership {
    /// Loads the state from the store.
    pub fn load(store: &dyn VersionedStore) -> Result<Self> {
        let mut written = RangeMap::new(Holding::Absent);
        let mut malformed = false;
        store.own_rows(HELD, HELD_END, &mut |key, value| {
            let holding = match value {
                [0] => Holding::Absent,
                [1] => Holding::Fetching,
                [2] => Holding::Held { since: 0 },
                _ => {
                    malformed = true;
                    return false;
                }
            };
            written.set(&key[HELD.len()..], ALL_KEYS_END, holding);
            true
        })?;
        if malformed {
            return Err(Error::file_corrupt);
        }
        let mut ownership = Ownership {
            now: written.clone(),
            written,
            changes: VecDeque::new(),
            everything_since: None,
        };
        ownership.look_for_everything();
        Ok(ownership)
    }

    fn look_for_everything(&mut self) {
        let mut newest = 0;
        let all_held = self.now.all(b"", ALL_KEYS_END, |holding| match holding {
            Holding::Held { since } => {
                newest = newest.max(*since);
                true
            }
            _ => false,
        });
        self.everything_since = all_held.then_some(newest);
    }

    #[inline]
    pub fn holds_everything(&self) -> bool {
        self.everything_since.is_some()
    }

    #[inline]
    pub fn at(&self, key: &[u8]) -> Holding {
        *self.now.at(key)
    }

    pub fn pieces(&self, begin: &[u8], end: &[u8]) -> Vec<(KeyRange, Holding)> {
        self.now.pieces(begin, end)
    }

    /// True if all of `[begin, end)` can be read at `version`.
    #[inline]
    pub fn is_readable(&self, begin: &[u8], end: &[u8], version: Version) -> bool {
        if self.everything_since.is_some_and(|since| since <= version) {
            return true;
        }
        let readable =
            |holding: &Holding| matches!(holding, Holding::Held { since } if *since <= version);
        self.now.all(begin, end, readable)
    }

    #[inline]
    pub fn is_key_readable(&self, key: &[u8], version: Version) -> bool {
        self.everything_since.is_some_and(|since| since <= version)
            || matches!(self.at(key), Holding::Held { since } if since <= version)
    }

    /// The ranges that are still to be copied, in key order.
    pub fn fetching(&self) -> Vec<KeyRange> {
        let pieces = self.now.pieces(b"", ALL_KEYS_END).into_iter();
        pieces
            .filter(|(_, holding)| *holding == Holding::Fetching)
            .map(|(range, _)| range)
            .collect()
    }

    /// Changes the state of `range` from `version` on. Versions never go backwards.
    pub fn set(&mut self, version: Version, range: KeyRange, to: Holding) {
        let last = self.changes.back().map_or(0, |change| change.version);
        assert!(
            version >= last,
            "{range:?} changes hands at {version}, after a change at {last}"
        );
        let before = self.now.pieces(&range.begin, &range.end);
        self.now.set(&range.begin, &range.end, to);
        self.look_for_everything();
        self.changes.push_back(Change {
            version,
            range,
            to,
            before,
        });
    }

    /// Undoes changes above `to`. True if there were any.
    pub fn rollback(&mut self, to: Version) -> bool {
        let mut any = false;
        while let Some(change) = self.changes.pop_back_if(|change| change.version > to) {
            for (range, holding) in change.before {
                self.now.set(&range.begin, &range.end, holding);
            }
            any = true;
        }
        if any {
            self.look_for_everything();
        }
        any
    }

    fn as_of(&self, version: Version) -> RangeMap<Holding> {
        let mut map = self.written.clone();
        let passed = self.changes.iter().take_while(|c| c.version <= version);
        for Change { range, to, .. } in passed {
            let to = match to {
                Holding::Held { .. } => Holding::Held { since: 0 },
                other => *other,
            };
            map.set(&range.begin, &range.end, to);
        }
        map
    }

    fn changes_up_to(&self, version: Version) -> bool {
        let first = self.changes.front();
        first.is_some_and(|change| change.version <= version)
    }

    /// Adds the changes up to `version` to `batch`, which makes everything up to `version` durable.
    pub fn write(&self, version: Version, batch: &mut WriteBatch) {
        if !self.changes_up_to(version) {
            return;
        }
        batch.clear_range(HELD, HELD_END);
        for (begin, holding) in self.as_of(version).iter() {
            let state = match holding {
                Holding::Absent => 0,
                Holding::Fetching => 1,
                Holding::Held { .. } => 2,
            };
            batch.set(&[HELD, begin].concat(), &[state]);
        }
    }

    /// Notes that everything up to `version` is durable.
    pub fn written(&mut self, version: Version) {
        if !self.changes_up_to(version) {
            return;
        }
        self.written = self.as_of(version);
        while self
            .changes
            .pop_front_if(|change| change.version <= version)
            .is_some()
        {}
        // No read goes below the durable version, so the version since which a range is held no longer matters.
        let pieces: Vec<(Bytes, Holding)> = self.now.iter().map(|(b, h)| (b.clone(), *h)).collect();
        for (at, (begin, holding)) in pieces.iter().enumerate() {
            if matches!(holding, Holding::Held { since } if *since > 0 && *since <= version) {
                let end = pieces.get(at + 1).map_or(ALL_KEYS_END, |(end, _)| &end[..]);
                self.now.set(begin, end, Holding::Held { since: 0 });
            }
        }
        self.look_for_everything();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    fn empty() -> Ownership {
        Ownership {
            now: RangeMap::new(Holding::Absent),
            written: RangeMap::new(Holding::Absent),
            changes: VecDeque::new(),
            everything_since: None,
        }
    }

    #[test]
    fn a_range_is_readable_from_the_version_on_at_which_it_was_complete() {
        let mut ownership = empty();
        ownership.set(10, range("b", "d"), Holding::Fetching);
        assert!(!ownership.is_readable(b"b", b"c", 10));
        ownership.set(20, range("b", "c"), Holding::Held { since: 20 });
        assert!(ownership.is_readable(b"b", b"c", 20));
        assert!(!ownership.is_readable(b"b", b"c", 19));
        assert!(!ownership.is_readable(b"b", b"cc", 20) && !ownership.is_key_readable(b"c", 20));
        assert_eq!(ownership.fetching(), [range("c", "d")]);
        ownership.written(20);
        assert!(ownership.is_readable(b"b", b"c", 20));
    }

    #[test]
    fn what_a_recovery_undoes_was_never_held() {
        let mut ownership = empty();
        ownership.set(10, range("a", "c"), Holding::Fetching);
        ownership.set(20, range("a", "b"), Holding::Held { since: 20 });
        ownership.set(30, range("a", "c"), Holding::Absent);
        assert!(ownership.rollback(20));
        assert!(ownership.is_key_readable(b"a", 20));
        assert_eq!(ownership.at(b"b"), Holding::Fetching);
        assert!(ownership.rollback(9) && !ownership.rollback(9));
        assert_eq!(ownership.at(b"a"), Holding::Absent);
    }

    #[test]
    fn the_disk_gets_what_was_so_at_its_version() {
        let mut ownership = empty();
        ownership.set(10, range("", "\u{7f}"), Holding::Held { since: 10 });
        ownership.set(20, range("c", "d"), Holding::Absent);
        let states = |ownership: &Ownership, version| {
            let mut batch = WriteBatch::new();
            ownership.write(version, &mut batch);
            batch.ops().count()
        };
        assert_eq!(states(&ownership, 9), 0);
        assert_eq!(states(&ownership, 10), 1 + 2);
        assert_eq!(states(&ownership, 20), 1 + 4);
        ownership.written(10);
        assert_eq!(states(&ownership, 10), 0);
        assert_eq!(states(&ownership, 20), 1 + 4);
    }
}
