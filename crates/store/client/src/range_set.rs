//! Disjoint key ranges in order. Ranges that touch are one.

use crate::shared_map::SharedMap;
use plinth_core::Key;
use std::ops::Bound;

/// A set of keys that is made of ranges: begin to end.
#[derive(Clone, Default, Debug)]
pub(crate) struct RangeSet {
    ranges: SharedMap<Key>,
}

impl RangeSet {
    pub fn contains(&self, key: &[u8]) -> bool {
        self.last_from(key).is_some_and(|(_, end)| key < &end[..])
    }

    /// The last range that begins at or before `key`.
    pub fn last_from(&self, key: &[u8]) -> Option<(&Key, &Key)> {
        self.ranges
            .range(Bound::Unbounded, Bound::Included(key))
            .next_back()
    }

    /// The last range that begins before `key`.
    pub fn last_before(&self, key: &[u8]) -> Option<(&Key, &Key)> {
        self.ranges
            .range(Bound::Unbounded, Bound::Excluded(key))
            .next_back()
    }

    /// The first range that ends after `key`: it holds `key` or lies behind it.
    pub fn first_beyond(&self, key: &[u8]) -> Option<(&Key, &Key)> {
        match self.last_from(key) {
            Some((begin, end)) if key < &end[..] => Some((begin, end)),
            _ => self
                .ranges
                .range(Bound::Excluded(key), Bound::Unbounded)
                .next(),
        }
    }

    pub fn insert(&mut self, begin: Key, end: Key) {
        if begin >= end {
            return;
        }
        let (mut begin, mut end) = (begin, end);
        if let Some((before, before_end)) = self.last_from(&begin)
            && *before_end >= begin
        {
            end = end.max(before_end.clone());
            begin = before.clone();
        }
        while let Some((at, at_end)) = self.next_within(&begin, &end) {
            self.ranges.remove(&at);
            end = end.max(at_end);
        }
        assert!(
            self.last_before(&begin)
                .is_none_or(|(_, before_end)| *before_end < begin),
            "a range before {begin:?} touches it",
        );
        assert!(
            self.next_within(&begin, &end).is_none(),
            "a range touches {begin:?}..{end:?}",
        );
        self.ranges.insert(begin, end);
    }

    /// Takes `[begin, end)` out of the set.
    pub fn remove(&mut self, begin: &Key, end: &Key) {
        if begin >= end || self.ranges.is_empty() {
            return;
        }
        if let Some((before, before_end)) = self.last_before(begin)
            && before_end > begin
        {
            let (before, before_end) = (before.clone(), before_end.clone());
            self.ranges.insert(before, begin.clone());
            if before_end > *end {
                self.ranges.insert(end.clone(), before_end);
                return;
            }
        }
        while let Some((at, at_end)) = self.next_within(begin, end) {
            if at >= *end {
                break;
            }
            self.ranges.remove(&at);
            if at_end > *end {
                self.ranges.insert(end.clone(), at_end);
            }
        }
    }

    /// A range that begins in `[begin, end]`.
    fn next_within(&self, begin: &Key, end: &Key) -> Option<(Key, Key)> {
        self.ranges
            .range(Bound::Included(begin), Bound::Included(end))
            .next()
            .map(|(at, at_end)| (at.clone(), at_end.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_the_set_of_their_keys(
            steps in prop::collection::vec((any::<bool>(), 0u8..20, 0u8..20), 0..40)
        ) {
            let mut set = RangeSet::default();
            let mut model = [false; 20];
            for (add, begin, end) in steps {
                let (low, high) = (Key::from(vec![begin]), Key::from(vec![end]));
                if add { set.insert(low, high) } else { set.remove(&low, &high) }
                for at in begin..end.max(begin) {
                    model[at as usize] = add;
                }
                for at in 0..20u8 {
                    prop_assert_eq!(set.contains(&[at]), model[at as usize], "{} in {:?}", at, set);
                    let next = (at..20).find(|i| model[*i as usize]);
                    prop_assert_eq!(set.first_beyond(&[at]).map(|(begin, _)| begin[0].max(at)), next);
                }
                let runs = (0..20).filter(|i| model[*i] && (*i == 0 || !model[*i - 1])).count();
                let ranges = set.ranges.range(Bound::Unbounded, Bound::Unbounded).count();
                prop_assert_eq!(ranges, runs);
            }
        }
    }
}
