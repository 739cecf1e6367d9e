//! Conflict ranges of a transaction: gathered as they come, made sorted and disjoint once, packed at commit
//! (FDB §2.4.2).

use bytes::Bytes;
use plinth_core::Key;
use plinth_core::conflict_ranges::{ConflictRangesBuilder, Endpoint};
use plinth_core::key::{KeyRange, RANGE_OVERHEAD_BYTES};

/// Fewer gathered ranges than this are not worth sorting before the commit.
const COMPACT_RANGES_MIN: usize = 1024;

/// `[begin, end)`; without an end, the one key `begin`.
#[derive(Clone, Debug)]
pub(crate) struct ConflictRange {
    pub begin: Key,
    pub end: Option<Key>,
}

impl ConflictRange {
    pub fn end(&self) -> Endpoint<'_> {
        match &self.end {
            Some(end) => Endpoint::at(end),
            None => Endpoint::after(&self.begin),
        }
    }
    pub fn size_bytes(&self) -> usize {
        RANGE_OVERHEAD_BYTES + self.begin.len() + self.end().key_len()
    }
}

/// Ranges in any order, which may overlap.
#[derive(Clone, Default, Debug)]
pub(crate) struct ConflictList {
    ranges: Vec<ConflictRange>,
    compact_at: usize,
    /// Size as if nothing had been merged, as reported to the application.
    added_bytes: usize,
}

impl ConflictList {
    pub fn add_key(&mut self, key: Key) {
        self.add(ConflictRange {
            begin: key,
            end: None,
        });
    }

    pub fn add_range(&mut self, begin: Key, end: Key) {
        if begin < end {
            self.add(ConflictRange {
                begin,
                end: Some(end),
            });
        }
    }

    fn add(&mut self, range: ConflictRange) {
        assert!(
            Endpoint::at(&range.begin) < range.end(),
            "a conflict range holds a key: {range:?}",
        );
        self.added_bytes += range.size_bytes();
        self.ranges.push(range);
        // A transaction that reads one key a million times must not keep a million ranges.
        if self.ranges.len() >= self.compact_at.max(COMPACT_RANGES_MIN) {
            coalesce(&mut self.ranges);
            self.compact_at = 2 * self.ranges.len();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn added_bytes(&self) -> usize {
        self.added_bytes
    }

    pub fn into_sorted(mut self) -> SortedConflicts {
        coalesce(&mut self.ranges);
        SortedConflicts {
            ranges: self.ranges,
        }
    }
}

/// Ranges ascending; none overlaps the next.
#[derive(Debug)]
pub(crate) struct SortedConflicts {
    ranges: Vec<ConflictRange>,
}

impl SortedConflicts {
    pub fn size_bytes(&self) -> usize {
        self.ranges.iter().map(ConflictRange::size_bytes).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = KeyRange> + '_ {
        let whole =
            |range: &ConflictRange| KeyRange::new(range.begin.clone(), range.end().to_key());
        self.ranges.iter().map(whole)
    }

    /// The first key that is in both.
    pub fn first_common_key(&self, other: &SortedConflicts) -> Option<Key> {
        let (mut left, mut right) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            if a.end() <= Endpoint::at(&b.begin) {
                left.next();
            } else if b.end() <= Endpoint::at(&a.begin) {
                right.next();
            } else {
                return Some(a.begin.clone().max(b.begin.clone()));
            }
        }
        None
    }

    /// Adds the key, unless a range holds it already.
    pub fn add_sorted(&mut self, key: Key) {
        let at = self.ranges.partition_point(|range| range.begin <= key);
        let before = at.checked_sub(1).map(|before| &self.ranges[before]);
        if before.is_some_and(|range| Endpoint::at(&key) < range.end()) {
            return;
        }
        self.ranges.insert(
            at,
            ConflictRange {
                begin: key,
                end: None,
            },
        );
    }

    pub fn pack(&self) -> Bytes {
        debug_assert!(
            is_disjoint(&self.ranges),
            "conflict ranges are sent in order, and none overlaps the next",
        );
        let mut builder = ConflictRangesBuilder::new();
        for range in &self.ranges {
            match &range.end {
                Some(end) => builder.add(&range.begin, end),
                None => builder.add_key(&range.begin),
            }
        }
        builder.finish()
    }
}

fn is_disjoint(ranges: &[ConflictRange]) -> bool {
    let ends_before = |pair: &[ConflictRange]| pair[0].end() <= Endpoint::at(&pair[1].begin);
    ranges.windows(2).all(ends_before)
}

/// Sorts the ranges and joins those that overlap or touch.
fn coalesce(ranges: &mut Vec<ConflictRange>) {
    // The ranges are already sorted in the many transactions that go through their keys in order.
    ranges.sort_by(|a, b| a.begin.cmp(&b.begin));
    ranges.dedup_by(|next, kept| {
        if Endpoint::at(&next.begin) > kept.end() {
            return false;
        }
        if next.end() > kept.end() {
            kept.end = Some(
                next.end
                    .take()
                    .unwrap_or_else(|| Endpoint::after(&next.begin).to_key()),
            );
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(ranges: &[(u8, Option<u8>)]) -> ConflictList {
        let mut list = ConflictList::default();
        for (begin, end) in ranges {
            match end {
                Some(end) => list.add_range(Key::from(vec![*begin]), Key::from(vec![*end])),
                None => list.add_key(Key::from(vec![*begin])),
            }
        }
        list
    }
    fn covers(sorted: &SortedConflicts, key: &[u8]) -> bool {
        sorted
            .ranges
            .iter()
            .any(|r| r.begin[..] <= *key && Endpoint::at(key) < r.end())
    }

    proptest! {
        #[test]
        fn sorted_ranges_cover_the_same_keys_and_never_touch(
            left in prop::collection::vec((0u8..12, prop::option::of(0u8..12)), 0..12),
            right in prop::collection::vec((0u8..12, prop::option::of(0u8..12)), 0..12),
        ) {
            let (a, b) = (list(&left).into_sorted(), list(&right).into_sorted());
            for pair in a.ranges.windows(2) {
                prop_assert!(pair[0].end() < Endpoint::at(&pair[1].begin));
            }
            let keys: Vec<Vec<u8>> = (0..12).flat_map(|k| [vec![k], vec![k, 0], vec![k, 7]]).collect();
            for key in &keys {
                let want = left.iter().any(|(begin, end)| match end {
                    Some(end) => *key >= vec![*begin] && *key < vec![*end],
                    None => *key == [*begin],
                });
                prop_assert_eq!(covers(&a, key), want);
            }
            let common = keys.iter().find(|key| covers(&a, key) && covers(&b, key));
            let first = a.first_common_key(&b);
            prop_assert_eq!(first.as_deref(), common.map(|key| &key[..]));
        }
    }

    #[test]
    fn a_key_read_a_million_times_is_kept_a_thousand_times_at_most() {
        let mut list = ConflictList::default();
        for _ in 0..100_000 {
            list.add_key(Key::from_static(b"hot"));
        }
        assert!(
            list.ranges.len() <= COMPACT_RANGES_MIN,
            "{} ranges",
            list.ranges.len()
        );
        assert_eq!(list.into_sorted().ranges.len(), 1);
    }
}
