//! The keys whose rows the memory engine has lost with a damaged part of its log. What is written to them later is
//! known again.

use super::KEYS_END;
use crate::KEPT_TWICE;
use crate::damage::DamagedPart;
use bytes::Bytes;
use plinth_core::key::{ALL_KEYS_END, KeyRange, key_after};
use plinth_core::range_map::RangeMap;
use std::cmp::{max, min};
use std::ops::Range;

/// Where damage was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in its file.
    pub offset: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LostPart {
    pub range: KeyRange,
    pub origin: Origin,
}

/// See the module.
pub(super) struct Lost(RangeMap<Option<Origin>>);

impl Lost {
    pub fn new() -> Self {
        Lost(RangeMap::new(None))
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.only().is_some()
    }

    pub fn lose(&mut self, begin: &[u8], end: &[u8], origin: Origin) {
        self.0.set(begin, min(end, &KEYS_END[..]), Some(origin));
    }

    /// All of the range has been written.
    #[inline]
    pub fn know(&mut self, begin: &[u8], end: &[u8]) {
        if !self.is_empty() {
            self.0.set(begin, end, None);
        }
    }

    #[inline]
    pub fn know_key(&mut self, key: &[u8]) {
        if !self.is_empty() && self.has(key) {
            self.0.set(key, &key_after(key), None);
        }
    }

    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        !self.is_empty() && self.0.at(key).is_some()
    }

    /// What of `[begin, end)` is lost.
    pub fn parts_in(&self, begin: &[u8], end: &[u8]) -> Vec<LostPart> {
        if self.is_empty() {
            return Vec::new();
        }
        let pieces = self.0.pieces(begin, end).into_iter();
        pieces
            .filter_map(|(range, origin)| Some((range, origin?)))
            .map(|(range, origin)| LostPart { range, origin })
            .collect()
    }

    pub fn parts(&self) -> Vec<LostPart> {
        self.parts_in(b"", &KEYS_END)
    }

    /// How far a read of `[begin, end)` gets, in order or in reverse order: what can be shown, and whether something
    /// that is lost comes then.
    pub fn reach<'a>(
        &self,
        begin: &'a [u8],
        end: &'a [u8],
        reverse: bool,
    ) -> (Range<std::borrow::Cow<'a, [u8]>>, bool) {
        use std::borrow::Cow::{Borrowed, Owned};
        let parts = self.parts_in(begin, end);
        let part = match reverse {
            true => parts.last(),
            false => parts.first(),
        };
        match part {
            None => (Borrowed(begin)..Borrowed(end), false),
            Some(part) if reverse => (Owned(part.range.end.to_vec())..Borrowed(end), true),
            Some(part) => (Borrowed(begin)..Owned(part.range.begin.to_vec()), true),
        }
    }
}

/// A lost part as others are told of it: rows of the server itself have no keys.
pub(super) fn told(part: &LostPart) -> DamagedPart {
    let end = min(&part.range.end[..], ALL_KEYS_END);
    let keys = KeyRange::new(part.range.begin.clone(), Bytes::copy_from_slice(end));
    DamagedPart {
        at: part.origin.offset,
        keys: (keys.begin < keys.end).then_some(keys),
    }
}

/// Where the rows end that are kept alike with those of `key`: data, rows that are kept twice, and other rows of the
/// server itself are in different blocks.
pub(super) fn class_end(key: &[u8]) -> &'static [u8] {
    match key {
        _ if key < KEPT_TWICE.0 => KEPT_TWICE.0,
        _ if key < KEPT_TWICE.1 => KEPT_TWICE.1,
        _ => &KEYS_END,
    }
}

/// The part of `[begin, end)` that is kept twice, if there is some.
pub(super) fn kept_twice<'a>(begin: &'a [u8], end: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (begin, end) = (max(begin, KEPT_TWICE.0), min(end, KEPT_TWICE.1));
    (begin < end).then_some((begin, end))
}

/// Joins ranges until there are at most `count` of them, if that is possible without joining different kinds of rows.
pub(super) fn coarsen(ranges: &mut Vec<KeyRange>, count: usize) {
    let mut split = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        let mut begin = range.begin;
        while begin < range.end {
            let end = class_end(&begin);
            let is_last = *begin >= *KEPT_TWICE.1 || range.end[..] <= *end;
            let end = match is_last {
                true => range.end.clone(),
                false => Bytes::from_static(end),
            };
            split.push(KeyRange::new(begin, end.clone()));
            begin = end;
        }
    }
    split.sort_by(|a, b| a.begin.cmp(&b.begin));
    *ranges = joined(split, |before, next| next.begin <= before.end);
    while ranges.len() > count {
        let (before, mut is_odd) = (ranges.len(), false);
        *ranges = joined(std::mem::take(ranges), |_, _| {
            is_odd = !is_odd;
            is_odd
        });
        if ranges.len() == before {
            return;
        }
    }
}

/// Joins neighbours if `may` says so and they are rows of one kind.
fn joined(
    ranges: Vec<KeyRange>,
    mut may: impl FnMut(&KeyRange, &KeyRange) -> bool,
) -> Vec<KeyRange> {
    let mut out: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last)
                if class_end(&last.begin) == class_end(&range.begin) && may(last, &range) =>
            {
                last.end = max(last.end.clone(), range.end);
            }
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Origin = Origin {
        segment: 1,
        offset: 2,
    };

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    #[test]
    fn what_is_written_again_is_known_again_and_nothing_else_is() {
        let mut lost = Lost::new();
        lost.lose(b"c", b"m", HERE);
        lost.know_key(b"e");
        lost.know(b"k", b"z");
        assert!(lost.has(b"c") && lost.has(b"e\0") && lost.has(b"j\xff"));
        assert!(!lost.has(b"b") && !lost.has(b"e") && !lost.has(b"k"));
        let reach = |begin: &'static str, end: &'static str, reverse| {
            let (shown, stops) = lost.reach(begin.as_bytes(), end.as_bytes(), reverse);
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            (text(&shown.start), text(&shown.end), stops)
        };
        let expected = |begin: &str, end: &str, stops| (begin.to_owned(), end.to_owned(), stops);
        assert_eq!(reach("a", "z", false), expected("a", "c", true));
        assert_eq!(reach("a", "z", true), expected("k", "z", true));
        assert_eq!(reach("d", "z", false), expected("d", "d", true));
        assert_eq!(reach("e", "f", true), expected("f", "f", true));
        assert_eq!(reach("a", "c", true), expected("a", "c", false));
        lost.know(b"", &KEYS_END);
        assert!(lost.is_empty());
    }

    #[test]
    fn ranges_are_joined_but_not_with_the_servers_own_rows() {
        let own = KeyRange::new(&b"\xff\xff/a"[..], &b"\xff\xff/b"[..]);
        let mut ranges = vec![
            range("x", "y"),
            own.clone(),
            range("a", "b"),
            range("b", "d"),
        ];
        coarsen(&mut ranges, 3);
        assert_eq!(ranges, [range("a", "d"), range("x", "y"), own.clone()]);
        coarsen(&mut ranges, 1);
        assert_eq!(ranges, [range("a", "y"), own]);
        let mut all = vec![KeyRange::new(Bytes::new(), Bytes::from_static(&KEYS_END))];
        coarsen(&mut all, 1);
        let ends: Vec<&[u8]> = all.iter().map(|range| &range.end[..]).collect();
        assert_eq!(ends, [KEPT_TWICE.0, KEPT_TWICE.1, &KEYS_END[..]]);
    }
}
