//! Watches: parties that wait for a key to change.

use bytes::Bytes;
use plinth_core::{MutationKind, MutationRef};
use plinth_runtime::checks::are_expensive_on;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Waiting parties of type `W`, by key. A party waits until the key's value differs from the one it knows.
pub struct Watches<W> {
    by_key: BTreeMap<Bytes, Vec<(Option<Bytes>, W)>>,
    count: usize,
    /// Keys that mutations of the version being applied have touched.
    touched: BTreeSet<Bytes>,
    /// Versions since all were counted.
    unchecked: usize,
}

impl<W> Watches<W> {
    pub fn new() -> Self {
        Watches {
            by_key: BTreeMap::new(),
            count: 0,
            touched: BTreeSet::new(),
            unchecked: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn add(&mut self, key: &[u8], known: Option<Bytes>, party: W) {
        // Copied: a watch outlives the frame that it came in.
        let known = known.map(|value| Bytes::copy_from_slice(&value));
        self.by_key
            .entry(Bytes::copy_from_slice(key))
            .or_default()
            .push((known, party));
        self.count += 1;
    }

    /// Notes which watched keys `mutation` may change.
    #[inline]
    pub fn touch(&mut self, mutation: &MutationRef<'_>) {
        if self.count == 0 {
            return;
        }
        if mutation.kind == MutationKind::ClearRange {
            let range = (
                Bound::Included(mutation.first),
                Bound::Excluded(mutation.second),
            );
            if mutation.first < mutation.second {
                self.touched.extend(
                    self.by_key
                        .range::<[u8], _>(range)
                        .map(|(key, _)| key.clone()),
                );
            }
        } else if let Some((key, _)) = self.by_key.get_key_value(mutation.first) {
            self.touched.insert(key.clone());
        }
    }

    /// Marks `key` to be compared with the next version, whether or not that version changes it.
    pub fn touch_key(&mut self, key: &[u8]) {
        if let Some((key, _)) = self.by_key.get_key_value(key) {
            self.touched.insert(key.clone());
        }
    }

    /// Touches every watched key: after a rollback it is not known which have changed.
    pub fn touch_all(&mut self) {
        self.touched.extend(self.by_key.keys().cloned());
    }

    /// Takes out the parties whose key now has another value than the one they know.
    pub fn fire(&mut self, mut value_of: impl FnMut(&[u8]) -> Option<Bytes>) -> Vec<W> {
        let mut fired = Vec::new();
        for key in std::mem::take(&mut self.touched) {
            let Some(waiting) = self.by_key.remove(&key) else {
                continue;
            };
            let value = value_of(&key);
            let mut still = Vec::new();
            for (known, party) in waiting {
                if known == value {
                    still.push((known, party))
                } else {
                    fired.push(party)
                }
            }
            if !still.is_empty() {
                self.by_key.insert(key, still);
            }
        }
        self.leave(fired.len());
        self.unchecked += 1;
        if are_expensive_on() && self.unchecked > self.by_key.len() {
            self.unchecked = 0;
            self.check();
        }
        fired
    }

    fn leave(&mut self, parties: usize) {
        assert!(
            parties <= self.count,
            "{parties} of {} watches are over",
            self.count
        );
        self.count -= parties;
    }

    /// Asserts that all are counted, and that nobody is kept for a key without a watch.
    fn check(&self) {
        let waiting: usize = self.by_key.values().map(Vec::len).sum();
        assert_eq!(waiting, self.count, "watches of {} keys", self.by_key.len());
        assert!(
            self.by_key.values().all(|waiting| !waiting.is_empty()),
            "a key has no watch"
        );
    }

    /// Takes out the parties of all keys in `[begin, end)`.
    pub fn remove_range(&mut self, begin: &[u8], end: &[u8]) -> Vec<W> {
        let inside = |key: &Bytes| begin <= &key[..] && &key[..] < end;
        let removed = self.by_key.extract_if(.., |key, _| inside(key));
        let parties: Vec<W> = removed
            .flat_map(|(_, waiting)| waiting)
            .map(|(_, party)| party)
            .collect();
        self.leave(parties.len());
        parties
    }

    /// Takes out the first party of `key` for which `is_it` is true.
    pub fn remove(&mut self, key: &[u8], mut is_it: impl FnMut(&W) -> bool) -> Option<W> {
        let waiting = self.by_key.get_mut(key)?;
        let at = waiting.iter().position(|(_, party)| is_it(party))?;
        let (_, party) = waiting.remove(at);
        if waiting.is_empty() {
            self.by_key.remove(key);
        }
        self.leave(1);
        Some(party)
    }

    /// Takes out every party for which `over` is true.
    pub fn remove_if(&mut self, mut over: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut removed = Vec::new();
        self.by_key.retain(|_, waiting| {
            let (gone, still): (Vec<_>, Vec<_>) = std::mem::take(waiting)
                .into_iter()
                .partition(|(_, w)| over(w));
            removed.extend(gone.into_iter().map(|(_, party)| party));
            *waiting = still;
            !waiting.is_empty()
        });
        self.leave(removed.len());
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(key: &'a [u8]) -> MutationRef<'a> {
        MutationRef {
            kind: MutationKind::Set,
            first: key,
            second: b"",
        }
    }

    #[test]
    fn only_those_whose_value_has_changed_are_told() {
        let mut watches = Watches::new();
        watches.add(b"a", None, 1);
        watches.add(b"a", Some(Bytes::from_static(b"x")), 2);
        watches.add(b"b", None, 3);
        watches.touch(&set(b"a"));
        assert_eq!(watches.fire(|_| Some(Bytes::from_static(b"x"))), [1]);
        assert_eq!(watches.len(), 2);
        let clear = MutationRef {
            kind: MutationKind::ClearRange,
            first: b"a",
            second: b"z",
        };
        watches.touch(&clear);
        assert_eq!(watches.fire(|_| None), [2]);
        assert!(watches.remove_range(b"c", b"d").is_empty());
        assert_eq!(watches.remove_range(b"b", b"c"), [3]);
        watches.add(b"a", None, 4);
        watches.add(b"a", None, 5);
        assert_eq!(watches.remove(b"a", |party| *party == 4), Some(4));
        assert_eq!(watches.remove(b"a", |party| *party == 4), None);
        assert_eq!(watches.remove(b"a", |_| true), Some(5));
        assert_eq!(watches.remove(b"a", |_| true), None);
        assert!(watches.remove_if(|_| true).is_empty());
        assert!(watches.is_empty());
    }
}
