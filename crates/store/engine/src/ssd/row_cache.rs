//! Rows that were read, kept whole. A point read that finds its row here costs one or two cache misses instead of a
//! walk down the tree through its page cache.
//!
//! The cache mirrors the state that readers see. Rows that a commit changes leave it before the commit's state is
//! published. While they leave, nothing is kept, since it would be of the older state. Afterwards the new rows take
//! the places of those that left. Rows are found by a seeded 64-bit hash of their key, and the key is compared.
//!
//! ```text
//! bucket, 128 bytes   | 16 bits of each row's hash | uses, 2 bits each | places of seven rows |
//! row                 | key length u16 le | key | value |
//! ```
//!
//! A bucket is two neighbouring cache lines, which arrive as one: a row costs that miss and its own. Buckets are split
//! one by one as rows come (linear hashing), so no turn of the loop ever moves all of them. A clock chooses the rows
//! to evict: a hand goes round, takes one use off each row, and drops the rows that have none.

use crate::batch::{Op, WriteBatch};
use bytes::Bytes;
use foldhash::fast::FixedState;
use std::cell::Cell;
use std::hash::BuildHasher;

/// Memory of an entry in addition to its bytes.
const ENTRY_BYTES: usize = 64;
/// Larger rows stay in the tree only: a few of them would push out everything else.
const ROW_BYTES_MAX: usize = 4096;
/// A commit whose range clears remove more rows than this empties the cache instead of noting each row.
const REMOVED_MAX: usize = 100_000;
/// Rows of a bucket: this number makes two cache lines.
const WAYS: usize = 7;
/// With this many rows per bucket on average, a bucket is added; with the lower number, a bucket is added when a row
/// found its bucket full. The buckets that are split last have twice as many rows.
const MEAN_WAYS: usize = 3;
const MEAN_WAYS_FULL: usize = 2;
/// Number of buckets that are allocated together.
const SEGMENT: usize = 64;
const USES_MAX: u16 = 3;
/// The hand looks at this many buckets for rows without uses. After that it drops rows with uses, too.
const LOOKED_AT_MAX: usize = 256;

/// `key length u16 le | key | value`
struct Row(Box<[u8]>);

impl Row {
    fn new(key: &[u8], value: &[u8]) -> Self {
        let length = (key.len() as u16).to_le_bytes();
        Row([&length, key, value].concat().into())
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let (length, rest) = self.0.split_first_chunk().expect("every row has a length");
        rest.split_at(u16::from_le_bytes(*length).into())
    }

    /// The value, if this is the row of `key`.
    #[inline]
    fn value_of(&self, key: &[u8]) -> Option<&[u8]> {
        let (own, value) = self.parts();
        (own == key).then_some(value)
    }

    fn weight(&self) -> usize {
        self.0.len() + ENTRY_BYTES
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Bucket {
    tags: [u16; WAYS],
    uses: Cell<u16>,
    rows: [Option<Row>; WAYS],
}

fn tag(hash: u64) -> u16 {
    (hash >> 48) as u16
}

impl Bucket {
    fn uses_of(&self, way: usize) -> u16 {
        (self.uses.get() >> (2 * way)) & USES_MAX
    }

    fn set_uses(&self, way: usize, uses: u16) {
        let others = self.uses.get() & !(USES_MAX << (2 * way));
        self.uses.set(others | (uses << (2 * way)));
    }

    /// The row of `key` and its value.
    #[inline]
    fn find(&self, tag: u16, key: &[u8]) -> Option<(usize, &[u8])> {
        (0..WAYS)
            .filter(|way| self.tags[*way] == tag)
            .find_map(|way| Some((way, self.rows[way].as_ref()?.value_of(key)?)))
    }

    /// The place for a new row: an empty one, else that of the least used row.
    fn room(&self) -> usize {
        let order = |way: &usize| self.rows[*way].as_ref().map(|_| self.uses_of(*way));
        (0..WAYS).min_by_key(order).expect("there are some")
    }

    fn put(&mut self, way: usize, tag: u16, row: Row) -> Option<Row> {
        self.tags[way] = tag;
        self.set_uses(way, 0);
        self.rows[way].replace(row)
    }
}

/// Rows up to a total weight.
#[derive(Default)]
struct Rows {
    segments: Vec<Vec<Bucket>>,
    buckets: usize,
    len: usize,
    weight: usize,
    /// The bucket that the clock looks at next.
    hand: usize,
}

impl Rows {
    /// Number of the bucket: the low bits of the hash, as many as the number of buckets needs.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        let all = self.buckets.next_power_of_two();
        let at = hash as usize & (all - 1);
        if at < self.buckets { at } else { at - all / 2 }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> Option<&Bucket> {
        let at = self.place(hash);
        self.segments.get(at / SEGMENT)?.get(at % SEGMENT)
    }

    fn bucket_at(&mut self, at: usize) -> &mut Bucket {
        &mut self.segments[at / SEGMENT][at % SEGMENT]
    }

    #[inline]
    fn get(&self, hash: u64, key: &[u8]) -> Option<&[u8]> {
        let bucket = self.bucket(hash)?;
        let (way, value) = bucket.find(tag(hash), key)?;
        let uses = bucket.uses_of(way);
        if uses < USES_MAX {
            bucket.set_uses(way, uses + 1);
        }
        Some(value)
    }

    fn insert(&mut self, hash: u64, key: &[u8], row: Row, hasher: &FixedState, weight_max: usize) {
        if self.len >= self.buckets * MEAN_WAYS {
            self.split(hasher);
        }
        self.len += 1;
        self.weight += row.weight();
        let at = self.place(hash);
        let bucket = self.bucket_at(at);
        let found = bucket.find(tag(hash), key).map(|(way, _)| way);
        let way = found.unwrap_or_else(|| bucket.room());
        let gone = bucket.put(way, tag(hash), row);
        let was_full = found.is_none() && gone.is_some();
        self.forget(gone);
        if was_full && self.len >= self.buckets * MEAN_WAYS_FULL {
            self.split(hasher);
        }
        let mut looked_at = 0;
        while self.weight > weight_max && self.len > 0 {
            looked_at += 1;
            self.turn_hand(looked_at > LOOKED_AT_MAX);
        }
    }

    fn forget(&mut self, gone: Option<Row>) -> bool {
        let weight = gone.as_ref().map_or(0, Row::weight);
        self.weight -= weight;
        self.len -= usize::from(weight > 0);
        weight > 0
    }

    /// Adds a bucket, and moves to it the rows that belong there from the bucket that held them.
    fn split(&mut self, hasher: &FixedState) {
        let new = self.buckets;
        if new.is_multiple_of(SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        let last = self.segments.last_mut().expect("one was made");
        last.push(Bucket::default());
        self.buckets += 1;
        if new == 0 {
            return;
        }
        let old = new - self.buckets.next_power_of_two() / 2;
        let mut moved = Bucket::default();
        for way in 0..WAYS {
            let Some(row) = self.bucket_at(old).rows[way].take() else {
                continue;
            };
            let hash = hasher.hash_one(row.parts().0);
            let uses = self.bucket_at(old).uses_of(way);
            let to = match self.place(hash) == new {
                true => &mut moved,
                false => self.bucket_at(old),
            };
            to.put(way, tag(hash), row);
            to.set_uses(way, uses);
        }
        *self.bucket_at(new) = moved;
    }

    /// Takes one use off each row of the next bucket and drops the rows that have none. With `all`, drops all its
    /// rows.
    fn turn_hand(&mut self, all: bool) {
        self.hand = (self.hand + 1) % self.buckets;
        for way in 0..WAYS {
            let bucket = self.bucket_at(self.hand);
            let uses = bucket.uses_of(way);
            if uses > 0 && !all {
                bucket.set_uses(way, uses - 1);
            } else {
                let gone = bucket.rows[way].take();
                self.forget(gone);
            }
        }
    }

    /// Drops the row of `key`. True if it was there.
    fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        let found = self.bucket(hash).and_then(|b| b.find(tag(hash), key));
        let Some((way, _)) = found else {
            return false;
        };
        let at = self.place(hash);
        let gone = self.bucket_at(at).rows[way].take();
        self.forget(gone)
    }

    /// Drops the row with this hash, and any other row of the bucket with the same tag.
    fn remove_alike(&mut self, hash: u64) {
        if self.buckets == 0 {
            return;
        }
        let at = self.place(hash);
        for way in 0..WAYS {
            let bucket = self.bucket_at(at);
            if bucket.tags[way] == tag(hash) {
                let gone = bucket.rows[way].take();
                self.forget(gone);
            }
        }
    }
}

/// The rows that the clears of a commit removed.
pub(super) enum Removed {
    /// Hashes of their keys, ascending.
    Hashes(Vec<u64>),
    TooMany,
}

impl Removed {
    /// `None` if there were too many to note each.
    pub fn hashes(&self) -> Option<&[u64]> {
        match self {
            Removed::Hashes(hashes) => Some(hashes),
            Removed::TooMany => None,
        }
    }
}

/// Notes removed rows while a commit runs on another thread.
pub(super) struct RemovedRows {
    hasher: FixedState,
    removed: Removed,
}

impl RemovedRows {
    pub fn note(&mut self, key: &[u8]) {
        match &mut self.removed {
            Removed::Hashes(hashes) if hashes.len() < REMOVED_MAX => {
                hashes.push(self.hasher.hash_one(key));
            }
            _ => self.removed = Removed::TooMany,
        }
    }

    pub fn finish(mut self) -> Removed {
        if let Removed::Hashes(hashes) = &mut self.removed {
            hashes.sort_unstable();
        }
        self.removed
    }
}

/// See the module.
pub(super) struct RowCache {
    rows: Rows,
    bytes: usize,
    hasher: FixedState,
    is_keeping: bool,
}

impl RowCache {
    pub fn new(bytes: usize, seed: u64) -> Self {
        RowCache {
            rows: Rows::default(),
            bytes,
            hasher: FixedState::with_seed(seed),
            is_keeping: true,
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        let value = self.rows.get(self.hash(key), key)?;
        Some(Bytes::copy_from_slice(value))
    }

    /// Keeps a row that was read from the published state.
    pub fn keep(&mut self, key: &[u8], value: &[u8]) {
        if self.is_keeping && key.len() + value.len() <= ROW_BYTES_MAX {
            let (hash, row) = (self.hash(key), Row::new(key, value));
            self.rows.insert(hash, key, row, &self.hasher, self.bytes);
        }
    }

    /// Called before a commit is published: from now on no row is kept.
    pub fn stop_keeping(&mut self) {
        self.is_keeping = false;
    }

    /// Called after the commit is published.
    pub fn keep_again(&mut self) {
        self.is_keeping = true;
    }

    pub fn removed_rows(&self) -> RemovedRows {
        RemovedRows {
            hasher: self.hasher.clone(),
            removed: Removed::Hashes(Vec::new()),
        }
    }

    /// Drops the rows that some operations of `batch` set: `count` operations from the one in place `first` on. Adds
    /// the places of those whose rows were cached to `cached`. The last operations of the batch must come first.
    pub fn drop_changed(
        &mut self,
        batch: &WriteBatch,
        first: usize,
        count: usize,
        cached: &mut Vec<u32>,
    ) {
        // Backwards: of two operations on one row, the later one finds the row in the cache.
        for place in (first..first + count).rev() {
            let Some(Op::Set(key, _)) = batch.ops_from(place).next() else {
                continue;
            };
            if self.rows.remove(self.hash(key), key) {
                cached.push(place as u32);
            }
        }
    }

    pub fn drop_removed(&mut self, hashes: &[u64]) {
        for hash in hashes {
            self.rows.remove_alike(*hash);
        }
    }

    /// Keeps the rows that the operations of `batch` in these places set, except rows that its clears removed: it is
    /// not checked whether those were set after the clear.
    pub fn keep_changed(&mut self, batch: &WriteBatch, places: &[u32], removed: &[u64]) {
        for place in places {
            let Some(Op::Set(key, value)) = batch.ops_from(*place as usize).next() else {
                continue;
            };
            if removed.binary_search(&self.hash(key)).is_err() {
                self.keep(key, value);
            }
        }
    }

    /// Empties the cache. Dropping the returned contents takes a while.
    pub fn take_all(&mut self) -> impl Send + use<> {
        std::mem::take(&mut self.rows)
    }

    pub fn clear(&mut self) {
        self.rows = Rows::default();
        self.is_keeping = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_row_is_found_by_its_whole_key_only() {
        let row = Row::new(b"key", b"value");
        assert_eq!(row.value_of(b"key"), Some(&b"value"[..]));
        for other in [&b"ke"[..], b"keyv", b"", b"kez"] {
            assert_eq!(row.value_of(other), None);
        }
    }

    #[test]
    fn it_holds_no_more_than_it_may() {
        let mut cache = RowCache::new(100_000, 1);
        for i in 0..100_000u32 {
            cache.keep(&i.to_be_bytes(), &[7; 50]);
        }
        assert!(cache.rows.weight <= 100_000 && cache.rows.len > 500);
        assert!(cache.rows.buckets < 1000, "{} buckets", cache.rows.buckets);
        cache.keep(b"large", &[0; ROW_BYTES_MAX]);
        assert_eq!(cache.get(b"large"), None);
    }

    #[test]
    fn what_is_read_often_outlives_what_is_read_once() {
        let mut cache = RowCache::new(1_000_000, 1);
        let often: Vec<[u8; 4]> = (0..1000u32).map(u32::to_be_bytes).collect();
        let mut hits = 0;
        for i in 0..100_000u32 {
            let key = &often[(i * 7 % 1000) as usize];
            match cache.get(key) {
                Some(_) => hits += 1,
                None => cache.keep(key, b"often"),
            }
            cache.keep(&(1000 + i).to_be_bytes(), &[7; 50]);
        }
        assert!(hits > 95_000, "{hits} of 100000");
    }

    #[test]
    fn nearly_all_rows_that_fit_are_found() {
        let mut cache = RowCache::new(100 << 20, 1);
        for i in 0..200_000u32 {
            cache.keep(&i.to_be_bytes(), &i.to_le_bytes());
        }
        let found = |i: &u32| cache.get(&i.to_be_bytes()).as_deref() == Some(&i.to_le_bytes());
        let count = (0..200_000u32).filter(found).count();
        assert!(
            count > 180_000 && count == cache.rows.len,
            "{count} of 200000, {}",
            cache.rows.len
        );
    }

    #[test]
    fn a_row_that_only_looks_like_one_that_changes_stays_and_lets_nothing_in() {
        let mut cache = RowCache::new(1_000_000, 1);
        let keys: Vec<[u8; 4]> = (0..5000u32).map(u32::to_be_bytes).collect();
        let mut by_tag = BTreeMap::new();
        let alike = keys.iter().find_map(|key| {
            let other = by_tag.insert(tag(cache.hash(key)), key)?;
            Some((other, key))
        });
        let (here, other) = alike.expect("16 bits are not many");
        cache.keep(here, b"here"); // alone: there is one bucket
        let mut batch = WriteBatch::new();
        batch.set(other, b"set, and cleared behind that");
        let mut cached = Vec::new();
        cache.drop_changed(&batch, 0, 1, &mut cached);
        assert_eq!(cached, []);
        assert_eq!(cache.get(here).as_deref(), Some(&b"here"[..]));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Keep(u8, u16),
        Get(u8),
        Remove(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (any::<u8>(), 0u16..400).prop_map(|(key, length)| Step::Keep(key, length)),
            4 => any::<u8>().prop_map(Step::Get),
            2 => any::<u8>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn it_never_gives_anything_but_the_latest_row(
            bytes in 200usize..40_000, seed in any::<u64>(), steps in prop::collection::vec(step(), 0..600),
        ) {
            let (mut cache, mut latest) = (RowCache::new(bytes, seed), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Keep(key, length) => {
                        let value = vec![key; length.into()];
                        cache.keep(&[key], &value);
                        latest.insert(key, value);
                    }
                    Step::Get(key) => {
                        let value = cache.get(&[key]);
                        prop_assert!(value.is_none() || value.as_deref() == latest.get(&key).map(|v| &v[..]));
                    }
                    Step::Remove(key) => {
                        cache.drop_removed(&[cache.hash(&[key])]);
                        prop_assert_eq!(cache.get(&[key]), None);
                        latest.remove(&key);
                    }
                }
                let rows = || cache.rows.segments.iter().flatten().flat_map(|bucket| bucket.rows.iter().flatten());
                prop_assert_eq!(cache.rows.len, rows().count());
                prop_assert_eq!(cache.rows.weight, rows().map(Row::weight).sum::<usize>());
                prop_assert!(cache.rows.weight <= bytes);
            }
        }
    }
}
