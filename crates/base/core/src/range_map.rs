//! A map from every key to a value: the key space is divided into pieces, each with one value.

use crate::key::{KeyRange, copied, first_key};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A map from keys to values. Neighbouring pieces with equal values are merged. The last piece has no end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeMap<V> {
    /// Begin of each piece → its value. The first piece begins at the empty key.
    pieces: BTreeMap<Bytes, V>,
}

impl<V: Clone + PartialEq> RangeMap<V> {
    pub fn new(value: V) -> Self {
        RangeMap {
            pieces: BTreeMap::from([(first_key(), value)]),
        }
    }

    /// The value of all keys, if they have the same one.
    #[inline]
    pub fn only(&self) -> Option<&V> {
        if self.pieces.len() == 1 {
            self.pieces.values().next()
        } else {
            None
        }
    }

    #[inline]
    pub fn at(&self, key: &[u8]) -> &V {
        let to_key = (Bound::Unbounded, Bound::Included(key));
        let piece = self.pieces.range::<[u8], _>(to_key).next_back();
        piece.expect("the first piece begins at the empty key").1
    }

    /// The pieces of `[begin, end)`, clipped to it.
    pub fn pieces(&self, begin: &[u8], end: &[u8]) -> Vec<(KeyRange, V)> {
        if begin >= end {
            return Vec::new();
        }
        let inside = (Bound::Excluded(begin), Bound::Excluded(end));
        let mut pieces = vec![(Bytes::copy_from_slice(begin), self.at(begin).clone())];
        let inner = self.pieces.range::<[u8], _>(inside);
        pieces.extend(inner.map(|(at, value)| (at.clone(), value.clone())));
        let ends: Vec<Bytes> = pieces[1..].iter().map(|(at, _)| at.clone()).collect();
        let ends = ends.into_iter().chain([Bytes::copy_from_slice(end)]);
        let ranged = pieces.into_iter().zip(ends);
        ranged
            .map(|((begin, value), end)| (KeyRange { begin, end }, value))
            .collect()
    }

    /// True if `is` accepts the value of every piece of `[begin, end)`.
    #[inline]
    pub fn all(&self, begin: &[u8], end: &[u8], mut is: impl FnMut(&V) -> bool) -> bool {
        if begin >= end {
            return true;
        }
        let inside = (Bound::Excluded(begin), Bound::Excluded(end));
        is(self.at(begin)) && self.pieces.range::<[u8], _>(inside).all(|(_, v)| is(v))
    }

    /// Sets one value for all keys of `[begin, end)`.
    pub fn set(&mut self, begin: &[u8], end: &[u8], value: V) {
        if begin >= end {
            return;
        }
        let after = self.at(end).clone();
        let inside = (Bound::Included(begin), Bound::Included(end));
        let gone: Vec<Bytes> = self
            .pieces
            .range::<[u8], _>(inside)
            .map(|(at, _)| at.clone())
            .collect();
        for at in gone {
            self.pieces.remove(&at);
        }
        let before = (Bound::Unbounded, Bound::Excluded(begin));
        let left = self.pieces.range::<[u8], _>(before).next_back();
        if left.is_none_or(|(_, left)| *left != value) {
            self.pieces.insert(copied(begin), value.clone());
        }
        if after != value {
            self.pieces.insert(copied(end), after);
        }
    }

    /// All pieces: begin and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        self.pieces.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_piece_set_in_the_middle_leaves_what_is_around_it() {
        let mut map = RangeMap::new(0);
        map.set(b"b", b"d", 1);
        assert_eq!(
            [b"a", b"b", b"c", b"d"].map(|key| *map.at(key)),
            [0, 1, 1, 0]
        );
        let pieces = map.pieces(b"a", b"c");
        assert_eq!(pieces[0], (KeyRange::new(&b"a"[..], &b"b"[..]), 0));
        assert_eq!(pieces[1], (KeyRange::new(&b"b"[..], &b"c"[..]), 1));
        assert!(map.all(b"b", b"d", |v| *v == 1) && !map.all(b"b", b"e", |v| *v == 1));
        map.set(b"b", b"d", 0);
        assert_eq!(map.only(), Some(&0));
    }

    proptest! {
        #[test]
        fn it_says_of_every_key_what_was_set_last(steps in prop::collection::vec((0u8..20, 0u8..20, 0u8..4), 0..40)) {
            let mut map = RangeMap::new(0u8);
            let mut model = [0u8; 20];
            for (begin, end, value) in steps {
                map.set(&[begin], &[end], value);
                for key in begin..end.max(begin) {
                    model[usize::from(key)] = value;
                }
                for (key, value) in model.iter().enumerate() {
                    prop_assert_eq!(map.at(&[key as u8]), value);
                }
                let values: Vec<u8> = map.iter().map(|(_, value)| *value).collect();
                prop_assert!(values.windows(2).all(|pair| pair[0] != pair[1]));
                let pieces = map.pieces(&[3], &[15]);
                prop_assert_eq!(&pieces[0].0.begin[..], &[3]);
                prop_assert_eq!(&pieces[pieces.len() - 1].0.end[..], &[15]);
                prop_assert!(pieces.windows(2).all(|pair| pair[0].0.end == pair[1].0.begin));
            }
        }
    }
}
