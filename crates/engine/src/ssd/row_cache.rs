//! Rows that were read, kept whole: a point read that finds its row here pays one or two cache misses instead of a walk
//! down the tree through its page cache.
//!
//! It mirrors the state that readers see. What a commit changes leaves it before the commit's state is published, and
//! while it does nothing is kept, since that would be of the state before; afterwards the new rows take the places of
//! those that left. Rows are found by a seeded 64-bit hash of their key and compared with it, so two keys
//! that collide only push each other out.

use crate::batch::{Op, WriteBatch};
use bytes::Bytes;
use foldhash::fast::FixedState;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// What an entry costs beside its bytes.
const ENTRY_BYTES: u64 = 64;
/// Larger rows stay in the tree only: a few of them would push out everything else.
const ROW_BYTES_MAX: usize = 4096;
/// A commit whose range clears remove more rows empties the cache instead of naming each.
const REMOVED_MAX: usize = 100_000;

/// The keys of the cache are hashes already.
#[derive(Default, Clone, Copy)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are keys");
    }
}

#[derive(Clone)]
struct RowWeight;

impl Weighter<u64, Row> for RowWeight {
    fn weight(&self, _: &u64, row: &Row) -> u64 {
        row.0.len() as u64 + ENTRY_BYTES
    }
}

/// `key length u16 le | key | value`
struct Row(Box<[u8]>);

impl Row {
    fn new(key: &[u8], value: &[u8]) -> Self {
        let length = (key.len() as u16).to_le_bytes();
        Row([&length, key, value].concat().into())
    }

    /// The value, if this is the row of `key`.
    #[inline]
    fn value_of(&self, key: &[u8]) -> Option<&[u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (own, value) = rest.split_at_checked(u16::from_le_bytes(*length) as usize)?;
        (own == key).then_some(value)
    }
}

/// Which rows the clears of a commit removed.
pub(super) enum Removed {
    /// Ascending.
    Hashes(Vec<u64>),
    TooMany,
}

impl Removed {
    /// `None`: too many to be named.
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

type Rows = Cache<u64, Row, RowWeight, BuildHasherDefault<Identity>>;

/// See the module.
pub(super) struct RowCache {
    rows: Rows,
    bytes: usize,
    hasher: FixedState,
    is_keeping: bool,
}

fn empty(bytes: usize) -> Rows {
    Cache::with(
        bytes / (2 * ENTRY_BYTES as usize),
        bytes as u64,
        RowWeight,
        BuildHasherDefault::default(),
        Default::default(),
    )
}

impl RowCache {
    pub fn new(bytes: usize, seed: u64) -> Self {
        RowCache {
            rows: empty(bytes),
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
        let row = self.rows.get(&self.hash(key))?;
        row.value_of(key).map(Bytes::copy_from_slice)
    }

    /// Keeps a row that was read from the published state.
    pub fn keep(&mut self, key: &[u8], value: &[u8]) {
        if self.is_keeping && key.len() + value.len() <= ROW_BYTES_MAX {
            self.rows.insert(self.hash(key), Row::new(key, value));
        }
    }

    /// A commit is about to be published.
    pub fn stop_keeping(&mut self) {
        self.is_keeping = false;
    }

    /// It has been.
    pub fn keep_again(&mut self) {
        self.is_keeping = true;
    }

    pub fn removed_rows(&self) -> RemovedRows {
        RemovedRows {
            hasher: self.hasher.clone(),
            removed: Removed::Hashes(Vec::new()),
        }
    }

    /// Drops the rows that some operations of `batch` set, `count` from the one in place `first` on; adds the places of those
    /// that were here to `cached`. The last operations are to come first.
    pub fn drop_changed(
        &mut self,
        batch: &WriteBatch,
        first: usize,
        count: usize,
        cached: &mut Vec<u32>,
    ) {
        // Backwards: of two operations on one row the later meets it.
        for place in (first..first + count).rev() {
            let Some(Op::Set(key, _)) = batch.ops_from(place).next() else {
                continue;
            };
            if self.rows.remove(&self.hash(key)).is_some() {
                cached.push(place as u32);
            }
        }
    }

    pub fn drop_removed(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| drop(self.rows.remove(hash)));
    }

    /// Keeps what the operations of `batch` in these places set, but for rows that its clears removed: whether those were set
    /// after that is not looked at.
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

    /// Empties it. Dropping what was in it takes a while.
    pub fn take_all(&mut self) -> impl Send + use<> {
        std::mem::replace(&mut self.rows, empty(self.bytes))
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.is_keeping = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(cache.rows.weight() <= 100_000 && cache.rows.len() > 500);
        cache.keep(b"large", &[0; ROW_BYTES_MAX]);
        assert_eq!(cache.get(b"large"), None);
    }
}
