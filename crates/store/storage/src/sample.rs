//! Estimates how much data lies where, from a sample of the keys (FDB §2.3.1 does not say how).
//!
//! A row of `s` bytes is in the sample with probability `s / unit`, and then counts for `unit` bytes. A row of `unit`
//! bytes or more is always in the sample, and counts for its own size. So the sample's sum over a range is, on
//! average, the number of bytes in it. Only its key and size decide whether a row is in the sample: every replica has
//! the same sample, and writing a row again changes nothing.
//!
//! The sample is kept in the store, beside the data that it describes, and changes with the data in the same commit:
//!
//! ```text
//! \xff\xff/sample/<key>  →  bytes that the key counts for, u32
//! ```

use crate::versioned::VersionedStore;
use bytes::Bytes;
use plinth_core::Result;
use plinth_core::hash::hash_bytes;
use plinth_engine::{Op, WriteBatch};
use std::collections::BTreeMap;
use std::ops::Bound;

pub(crate) const SAMPLE: &[u8] = b"\xff\xff/sample/";
const SAMPLE_END: &[u8] = b"\xff\xff/sample0";

/// From here on the rows of the engine are the server's own, not data.
const DATA_END: &[u8] = plinth_core::key::ALL_KEYS_END;

pub struct ByteSample {
    unit: u32,
    keys: BTreeMap<Bytes, u32>,
    /// The sum of all weights.
    total: u64,
}

impl ByteSample {
    /// Loads the sample from the store; what comes before it, if something cannot be read, and that error.
    pub fn load(store: &dyn VersionedStore, unit: u32) -> (Self, Result<()>) {
        let (mut keys, mut total) = (BTreeMap::new(), 0);
        let read = store.own_rows(SAMPLE, SAMPLE_END, &mut |key, value| {
            let bytes = value.try_into().map_or(0, u32::from_le_bytes);
            keys.insert(Bytes::copy_from_slice(&key[SAMPLE.len()..]), bytes);
            total += u64::from(bytes);
            true
        });
        (ByteSample { unit, keys, total }, read)
    }

    /// The number of bytes that a row counts for; `None` if it is not in the sample.
    fn weight(&self, key: &[u8], value: &[u8]) -> Option<u32> {
        let size = (key.len() + value.len()) as u32;
        if size >= self.unit {
            return Some(size);
        }
        let sampled = hash_bytes(key) % u64::from(self.unit) < u64::from(size);
        sampled.then_some(self.unit)
    }

    /// Applies some operations of `batch` to the sample, up to `ops_max` from place `first` on, and adds the changes
    /// of the sample's own rows to `rows`. Returns the place to continue from, which is the same place if a clear is
    /// not done; `None` if that was all. Repeating this with the same batch changes nothing.
    pub fn follow_some(
        &mut self,
        batch: &WriteBatch,
        first: usize,
        ops_max: usize,
        rows: &mut WriteBatch,
    ) -> Option<usize> {
        for (place, op) in (first..).zip(batch.ops_from(first).take(ops_max)) {
            match op {
                Op::Set(key, _) | Op::ClearRange(key, _) if key >= DATA_END => {}
                Op::Set(key, value) => match self.weight(key, value) {
                    Some(weight) => {
                        if self.keys.get(key) != Some(&weight) {
                            rows.set(&[SAMPLE, key].concat(), &weight.to_le_bytes());
                            let before = self.keys.insert(Bytes::copy_from_slice(key), weight);
                            self.total += u64::from(weight);
                            self.leave(before.unwrap_or(0));
                        }
                    }
                    None => {
                        if let Some(before) = self.keys.remove(key) {
                            self.leave(before);
                            rows.clear(&[SAMPLE, key].concat());
                        }
                    }
                },
                Op::ClearRange(begin, end) => {
                    if self.clear_some(begin, end, ops_max, rows) {
                        return Some(place);
                    }
                }
            }
        }
        Some(first + ops_max).filter(|next| *next < batch.len())
    }

    fn leave(&mut self, weight: u32) {
        let weight = u64::from(weight);
        assert!(
            weight <= self.total,
            "{weight} of {} bytes leave the sample",
            self.total
        );
        self.total -= weight;
    }

    /// Clears about `keys_max` of the keys in `[begin, end)`. True if there may be more.
    fn clear_some(
        &mut self,
        begin: &[u8],
        end: &[u8],
        keys_max: usize,
        rows: &mut WriteBatch,
    ) -> bool {
        let range = (Bound::Included(begin), Bound::Excluded(end));
        if begin >= end || self.keys.range::<[u8], _>(range).next().is_none() {
            return false;
        }
        let from = (
            Bound::Included(Bytes::copy_from_slice(begin)),
            Bound::Excluded(Bytes::copy_from_slice(end)),
        );
        let gone = self.keys.extract_if(from, |_, _| true);
        let (mut count, mut weights) = (0, 0);
        for (_, weight) in gone.take(keys_max.max(1)) {
            weights += u64::from(weight);
            count += 1;
        }
        assert!(
            weights <= self.total,
            "{weights} of {} bytes leave the sample",
            self.total
        );
        self.total -= weights;
        rows.clear_range(&[SAMPLE, begin].concat(), &[SAMPLE, end].concat());
        count >= keys_max.max(1)
    }

    /// Approximate number of bytes in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Approximate number of bytes in `[begin, end)`.
    #[cfg(test)]
    pub fn bytes(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.bytes_some(begin, end, usize::MAX).0
    }

    /// Approximate number of bytes of the first `keys_max` sampled keys in `[begin, end)`, and the begin of the rest
    /// if there is any.
    pub fn bytes_some(&self, begin: &[u8], end: &[u8], keys_max: usize) -> (u64, Option<Bytes>) {
        if begin >= end {
            return (0, None);
        }
        let range = (Bound::Included(begin), Bound::Excluded(end));
        let mut inside = self.keys.range::<[u8], _>(range);
        let some = inside.by_ref().take(keys_max.max(1));
        let bytes = some.map(|(_, weight)| u64::from(*weight)).sum();
        (bytes, inside.next().map(|(key, _)| key.clone()))
    }

    /// Keys that cut `[begin, end)` into parts of about `part` bytes.
    pub fn split_points(&self, begin: &[u8], end: &[u8], part: u64) -> Vec<Bytes> {
        if begin >= end {
            return Vec::new();
        }
        let range = (Bound::Included(begin), Bound::Excluded(end));
        cut(
            self.keys
                .range::<[u8], _>(range)
                .map(|(k, w)| (k, u64::from(*w))),
            begin,
            part,
        )
    }
}

/// The keys at which another `part` is complete. `weights` are keys with their weights, in key order.
pub(crate) fn cut<'a>(
    weights: impl Iterator<Item = (&'a Bytes, u64)>,
    begin: &[u8],
    part: u64,
) -> Vec<Bytes> {
    let mut points = Vec::new();
    let mut full = 0;
    for (key, weight) in weights {
        if full >= part.max(1) && key[..] > *begin {
            points.push(key.clone());
            full = 0;
        }
        full += weight;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ByteSample {
        ByteSample {
            unit: 1000,
            keys: BTreeMap::new(),
            total: 0,
        }
    }

    /// Gives the number of rows that the sample changes.
    fn follow(sample: &mut ByteSample, batch: &WriteBatch) -> usize {
        let (mut first, mut rows) = (Some(0), WriteBatch::new());
        while let Some(at) = first {
            first = sample.follow_some(batch, at, 3, &mut rows);
        }
        rows.len()
    }

    fn key(i: u32) -> Vec<u8> {
        format!("key{i:06}").into_bytes()
    }

    #[test]
    fn it_is_about_right_and_the_same_after_writing_again() {
        let mut sample = sample();
        let mut write = |range: std::ops::Range<u32>| {
            let mut batch = WriteBatch::new();
            range.for_each(|i| batch.set(&key(i), &[0; 91]));
            follow(&mut sample, &batch);
            assert_eq!(sample.total(), sample.bytes(b"", b"z"));
            sample.total() as f64
        };
        let half = write(0..10_000);
        let all = write(10_000..20_000);
        assert!((half / 1e6 - 1.0).abs() < 0.1, "{half}");
        assert!((all / 2e6 - 1.0).abs() < 0.1, "{all}");
        assert_eq!(write(5_000..15_000), all);
    }

    #[test]
    fn what_is_cleared_or_shrinks_leaves_it() {
        let mut sample = sample();
        let mut batch = WriteBatch::new();
        batch.set(b"big", &[0; 5000]);
        batch.set(b"other", &[0; 2000]);
        assert_eq!(follow(&mut sample, &batch), 2);
        assert_eq!(sample.bytes(b"", b"z"), 5003 + 2005);
        let mut batch = WriteBatch::new();
        batch.set(b"big", b"");
        batch.clear_range(b"o", b"p");
        follow(&mut sample, &batch);
        assert!(sample.total() <= 1000);
        assert_eq!(sample.total(), sample.bytes(b"", b"z"));
        assert_eq!(sample.bytes(b"o", b"p"), 0);
    }

    #[test]
    fn parts_are_about_equal() {
        let mut sample = sample();
        let mut batch = WriteBatch::new();
        (0..20_000).for_each(|i| batch.set(&key(i), &[0; 91]));
        follow(&mut sample, &batch);
        let points = sample.split_points(b"", b"z", 500_000);
        assert!((3..=4).contains(&points.len()), "{points:?}");
        let first = sample.bytes(b"", &points[0]);
        assert!((450_000..550_000).contains(&first), "{first}");
    }
}
