//! What an engine knows of the damage in its file: the ranges of keys that no read can get past, so that none of them
//! touches the disk twice.
//!
//! A read that fails tells a place between two keys and the block that it has met. Reads that meet the same block are
//! about one range: all between them is below that block in the tree. So a range begins as one place, grows with the
//! reads that meet it at its ends. It has no key that is intact, unless there are so many of them that two must be
//! joined.

pub(crate) mod kept;

use bytes::Bytes;
use plinth_core::key::{KeyRange, key_after};
use plinth_runtime::probe;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Ranges that are kept. Beyond that neighbours are joined, with what is between them.
const RANGES_MAX: usize = 1000;

/// Damage in a file of an engine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileDamage {
    pub file: PathBuf,
    /// By key; those that only commits have met are the last.
    pub parts: Vec<DamagedPart>,
}

/// A part of a file that is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedPart {
    /// Offset of the first byte of the block.
    pub at: u64,
    /// The keys that are known to be in it; `None` if only a commit has met it.
    pub keys: Option<KeyRange>,
}

/// A place that a read could not get past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Met {
    /// The row of this key.
    Key(Bytes),
    /// What comes next, in order, from this key on; behind the last row shown if `shown`.
    From { key: Bytes, shown: bool },
    /// What comes next, in reverse order, before this key; before the last row shown if `shown`.
    Before { key: Bytes, shown: bool },
}

/// A range that no read gets past. The place just before `end` is always in it, also if it is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    begin: Bytes,
    end: Bytes,
    /// Blocks that were met in it.
    at: BTreeSet<u64>,
    /// The row before `begin` was read; `begin` is the key behind it.
    begins_behind_row: bool,
    /// The row of `end` was read.
    ends_at_row: bool,
}

impl Range {
    fn new(at: u64, place: Met) -> Self {
        let (begin, end, begins_behind_row, ends_at_row) = match place {
            Met::Key(key) => (key.clone(), key_after(&key), false, false),
            Met::From { key, shown } => (key.clone(), key_after(&key), shown, false),
            Met::Before { key, shown } => (key.clone(), key, false, shown),
        };
        Range {
            begin,
            end,
            at: BTreeSet::from([at]),
            begins_behind_row,
            ends_at_row,
        }
    }

    /// True if both are about one block, or have a place in common.
    fn belongs_to(&self, other: &Range) -> bool {
        !self.at.is_disjoint(&other.at) || (self.begin <= other.end && other.begin <= self.end)
    }

    fn join(&mut self, mut other: Range) {
        self.at.append(&mut other.at);
        if other.begin < self.begin {
            self.begin = other.begin;
            self.begins_behind_row = other.begins_behind_row;
        } else if other.begin == self.begin {
            self.begins_behind_row |= other.begins_behind_row;
        }
        if other.end > self.end {
            self.end = other.end;
            self.ends_at_row = other.ends_at_row;
        } else if other.end == self.end {
            self.ends_at_row |= other.ends_at_row;
        }
    }
}

/// How far a read gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach<'a> {
    /// Nothing is known of damage in its way.
    All,
    /// It stops behind the row of this key, if that is known: what comes next is damaged.
    Until(Option<&'a [u8]>),
    /// What it begins with is damaged.
    Nothing,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DamagedRanges {
    /// By key; no two belong together.
    ranges: Vec<Range>,
    /// Blocks that were met where no key is known.
    blocks: BTreeSet<u64>,
}

impl DamagedRanges {
    /// Notes what was met in the block at an offset. True if that block was not known.
    pub fn note(&mut self, at: u64, place: Option<Met>) -> bool {
        let is_known = self.blocks.contains(&at) || self.ranges.iter().any(|r| r.at.contains(&at));
        let Some(place) = place else {
            if !is_known && self.blocks.len() < RANGES_MAX {
                self.blocks.insert(at);
            }
            return !is_known;
        };
        self.blocks.remove(&at);
        let mut range = Range::new(at, place);
        while let Some(found) = self
            .ranges
            .iter()
            .position(|other| other.belongs_to(&range))
        {
            let other = self.ranges.remove(found);
            range.join(other);
        }
        let place = self
            .ranges
            .partition_point(|other| other.begin < range.begin);
        self.ranges.insert(place, range);
        if self.ranges.len() > RANGES_MAX {
            probe!("engine_joins_damaged_ranges");
            let place = place.min(RANGES_MAX - 1);
            let next = self.ranges.remove(place + 1);
            self.ranges[place].join(next);
        }
        !is_known
    }

    /// Forgets ranges that lie in `[begin, end)`, all of which a commit has written anew.
    pub fn made_anew(&mut self, begin: &[u8], end: &[u8]) {
        self.ranges
            .retain(|range| range.begin < begin || range.end > end);
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn has(&self, key: &[u8]) -> bool {
        let until = self.ranges.partition_point(|range| range.begin <= key);
        until > 0 && *key < self.ranges[until - 1].end[..]
    }

    /// How far a read of `[begin, end)` gets in order.
    pub fn reach(&self, begin: &[u8], end: &[u8]) -> Reach<'_> {
        if self.has(begin) {
            return Reach::Nothing;
        }
        let next = self.ranges.partition_point(|range| range.begin <= begin);
        match self.ranges.get(next) {
            Some(range) if *range.begin < *end => {
                let before = range.begin.split_last().map(|(_, before)| before);
                Reach::Until(before.filter(|_| range.begins_behind_row))
            }
            _ => Reach::All,
        }
    }

    /// How far a read of `[begin, end)` gets in reverse order.
    pub fn reach_back(&self, begin: &[u8], end: &[u8]) -> Reach<'_> {
        let until = self.ranges.partition_point(|range| *range.begin < *end);
        let is_empty_at_end = self
            .ranges
            .get(until)
            .is_some_and(|r| r.begin == end && r.end == end);
        let Some(range) = self.ranges[..until].last() else {
            return if is_empty_at_end {
                Reach::Nothing
            } else {
                Reach::All
            };
        };
        match () {
            () if is_empty_at_end || *range.end >= *end => Reach::Nothing,
            () if *range.end > *begin => Reach::Until(range.ends_at_row.then_some(&range.end)),
            () => Reach::All,
        }
    }

    /// Offsets of all blocks that were met.
    pub fn blocks(&self) -> Vec<u64> {
        let of_ranges = self.ranges.iter().flat_map(|range| &range.at);
        of_ranges.chain(&self.blocks).copied().collect()
    }

    pub fn parts(&self) -> Vec<DamagedPart> {
        let ranges = self.ranges.iter().map(|range| DamagedPart {
            at: range.at.first().copied().unwrap_or_default(),
            keys: Some(KeyRange::new(range.begin.clone(), range.end.clone())),
        });
        let blocks = self.blocks.iter().map(|at| DamagedPart {
            at: *at,
            keys: None,
        });
        ranges.chain(blocks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(key: &'static str) -> Bytes {
        Bytes::from_static(key.as_bytes())
    }

    fn from(key: &'static str) -> Met {
        let key = bytes(key);
        Met::From { key, shown: true }
    }

    fn keys(damaged: &DamagedRanges) -> Vec<(u64, &'static str, &'static str)> {
        let leaked = |key: &Bytes| &*String::from_utf8_lossy(key).into_owned().leak();
        let range = |part: DamagedPart| {
            let keys = part.keys.expect("only ranges");
            (part.at, leaked(&keys.begin), leaked(&keys.end))
        };
        damaged.parts().into_iter().map(range).collect()
    }

    #[test]
    fn a_range_grows_with_the_reads_that_meet_its_block_and_with_no_others() {
        let mut damaged = DamagedRanges::default();
        assert!(damaged.note(8192, Some(Met::Key(bytes("m")))));
        assert!(damaged.note(4096, Some(from("c\0"))));
        assert!(!damaged.note(8192, Some(Met::Key(bytes("p")))));
        let key = bytes("r");
        assert!(!damaged.note(8192, Some(Met::Before { key, shown: true })));
        assert_eq!(keys(&damaged), [(4096, "c\0", "c\0\0"), (8192, "m", "r")]);
        assert!(damaged.has(b"m") && damaged.has(b"n") && damaged.has(b"q"));
        assert!(!damaged.has(b"l") && !damaged.has(b"r") && !damaged.has(b"d"));
    }

    #[test]
    fn reads_get_as_far_as_the_rows_that_were_shown_beside_damage() {
        let mut damaged = DamagedRanges::default();
        damaged.note(8192, Some(from("c\0")));
        let key = bytes("f");
        damaged.note(8192, Some(Met::Before { key, shown: true }));
        damaged.note(4096, Some(Met::Key(bytes("p"))));
        assert_eq!(damaged.reach(b"a", b"c"), Reach::All);
        assert_eq!(damaged.reach(b"a", b"c\0"), Reach::All);
        assert_eq!(damaged.reach(b"a", b"d"), Reach::Until(Some(b"c")));
        assert_eq!(damaged.reach(b"d", b"z"), Reach::Nothing);
        assert_eq!(damaged.reach(b"f", b"z"), Reach::Until(None));
        assert_eq!(damaged.reach(b"q", b"z"), Reach::All);
        assert_eq!(damaged.reach_back(b"q", b"z"), Reach::All);
        assert_eq!(damaged.reach_back(b"g", b"z"), Reach::Until(None));
        assert_eq!(damaged.reach_back(b"a", b"g"), Reach::Until(Some(b"f")));
        assert_eq!(damaged.reach_back(b"a", b"f"), Reach::Nothing);
        assert_eq!(damaged.reach_back(b"a", b"d"), Reach::Nothing);
        assert_eq!(damaged.reach_back(b"a", b"c"), Reach::All);
    }

    #[test]
    fn the_place_before_a_key_is_damaged_and_the_key_is_not() {
        let mut damaged = DamagedRanges::default();
        let key = bytes("f");
        damaged.note(8192, Some(Met::Before { key, shown: true }));
        assert_eq!(damaged.reach_back(b"a", b"f"), Reach::Nothing);
        assert_eq!(damaged.reach_back(b"a", b"g"), Reach::Until(Some(b"f")));
        assert_eq!(damaged.reach(b"f", b"z"), Reach::All);
        assert!(!damaged.has(b"f"));
    }

    #[test]
    fn what_is_written_anew_is_forgotten_and_what_is_kept_is_bounded() {
        let mut damaged = DamagedRanges::default();
        damaged.note(1, Some(Met::Key(bytes("b"))));
        damaged.note(2, Some(Met::Key(bytes("d"))));
        damaged.made_anew(b"c", b"d");
        assert!(damaged.has(b"d"));
        damaged.made_anew(b"c", b"e");
        assert!(!damaged.has(b"d") && damaged.has(b"b"));
        for i in 0..RANGES_MAX as u64 {
            let key = Bytes::from(format!("x{i:05}"));
            assert!(damaged.note(100 + i, Some(Met::Key(key))));
        }
        // There is one too many: two are joined, and none is forgotten.
        assert_eq!(damaged.parts().len(), RANGES_MAX);
        assert!(damaged.has(b"b"));
        for i in 0..RANGES_MAX {
            assert!(damaged.has(format!("x{i:05}").as_bytes()), "{i}");
        }
        let met_after = Met::Key(bytes("a"));
        damaged.note(99, Some(met_after));
        assert_eq!(damaged.parts().len(), RANGES_MAX);
        assert!(damaged.has(b"a") && damaged.has(b"b") && damaged.has(b"x00999"));
    }

    #[test]
    fn a_block_that_only_a_commit_has_met_has_no_keys_until_a_read_meets_it() {
        let mut damaged = DamagedRanges::default();
        assert!(damaged.note(8192, None) && !damaged.note(8192, None));
        let unknown = DamagedPart {
            at: 8192,
            keys: None,
        };
        assert_eq!(damaged.parts(), [unknown]);
        assert!(!damaged.note(8192, Some(from("c\0"))));
        assert_eq!(keys(&damaged), [(8192, "c\0", "c\0\0")]);
    }
}
