//! Rows that were read, kept whole: a point read that finds its row here pays one or two cache misses instead of a walk
//! down the tree through its page cache.
//!
//! It mirrors the state that readers see: what a commit changes is changed here in the same turn of the loop in which
//! the commit's state is published. Rows are found by a seeded 64-bit hash of their key and compared with it, so two keys
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
    Hashes(Vec<u64>),
    TooMany,
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

    pub fn finish(self) -> Removed {
        self.removed
    }
}

/// See the module.
pub(super) struct RowCache {
    rows: Cache<u64, Row, RowWeight, BuildHasherDefault<Identity>>,
    hasher: FixedState,
}

impl RowCache {
    pub fn new(bytes: usize, seed: u64) -> Self {
        let expected = bytes / (2 * ENTRY_BYTES as usize);
        RowCache {
            rows: Cache::with(
                expected,
                bytes as u64,
                RowWeight,
                BuildHasherDefault::default(),
                Default::default(),
            ),
            hasher: FixedState::with_seed(seed),
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
        if key.len() + value.len() <= ROW_BYTES_MAX {
            self.rows.insert(self.hash(key), Row::new(key, value));
        }
    }

    pub fn removed_rows(&self) -> RemovedRows {
        RemovedRows {
            hasher: self.hasher.clone(),
            removed: Removed::Hashes(Vec::new()),
        }
    }

    /// The commit of `batch`, whose clears removed `removed`, is being published.
    pub fn apply(&mut self, batch: &WriteBatch, removed: &Removed) {
        for op in batch.ops() {
            let Op::Set(key, value) = op else { continue };
            let hash = self.hash(key);
            if self.rows.peek(&hash).is_none() {
                continue;
            }
            if key.len() + value.len() <= ROW_BYTES_MAX {
                self.rows.insert(hash, Row::new(key, value));
            } else {
                self.rows.remove(&hash);
            }
        }
        // Last: a row that was set and then cleared must go. One that was cleared and then set merely goes, too.
        match removed {
            Removed::TooMany => self.rows.clear(),
            Removed::Hashes(hashes) => hashes.iter().for_each(|hash| drop(self.rows.remove(hash))),
        }
    }

    pub fn clear(&mut self) {
        self.rows.clear();
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
