//! A block: neighbouring boundaries of the history, packed so that finding a key touches few cache lines.
//!
//! The block covers the keys from its fence up to the next block's fence. All its keys share the prefix that the two
//! fences share. So an entry is a [head](super::points) behind that prefix, and a version. If a key has bytes after
//! its head, these are kept in `tail_bytes`.
//!
//! ```text
//! fence   "user/0017"            prefix "user/001"
//! heads   "7"      "73"      "8"
//! versions 40       95        40      keys in ["user/0017", "user/00173") were last written at 40, …
//! ```
//!
//! Promise: the first entry's key is the fence, so that every key in the block has an entry at or before it.

use super::points::{HEAD_BYTES, head_further_on, head_of, is_long, shared_len};
use plinth_core::Version;
use plinth_core::conflict_ranges::Endpoint;

/// A block that grows beyond this many entries is split.
pub(super) const ENTRIES_MAX: usize = 128;
/// A block first forgets what it can. If more entries than this remain, it is split, since it would soon be too long
/// again.
const ENTRIES_AFTER_FORGETTING: usize = 104;
/// Entries of the blocks that a split makes. This leaves room to grow before the next split.
const ENTRIES_AFTER_SPLIT: usize = 80;

/// The bytes of a key after its head, as a place in `tail_bytes`.
#[derive(Clone, Copy, Default)]
struct Tail {
    offset: u32,
    len: u32,
}

#[derive(Default)]
struct Entries {
    heads: Vec<u64>,
    /// The version at which the keys from this entry up to the next were last written.
    versions: Vec<Version>,
    /// As long as `heads`, or empty if no entry has a tail.
    tails: Vec<Tail>,
}

impl Entries {
    fn with_capacity(capacity: usize) -> Self {
        Entries {
            heads: Vec::with_capacity(capacity),
            versions: Vec::with_capacity(capacity),
            tails: Vec::new(),
        }
    }
    fn clear(&mut self) {
        self.heads.clear();
        self.versions.clear();
        self.tails.clear();
    }
    #[inline]
    fn push(&mut self, head: u64, version: Version, tail: Tail) {
        if tail.len != 0 && self.tails.is_empty() {
            self.tails.resize(self.heads.len(), Tail::default());
        }
        if tail.len != 0 || !self.tails.is_empty() {
            self.tails.push(tail);
        }
        self.heads.push(head);
        self.versions.push(version);
    }
    #[inline]
    fn extend_from(&mut self, other: &Entries, from: usize, to: usize) {
        self.heads.extend_from_slice(&other.heads[from..to]);
        self.versions.extend_from_slice(&other.versions[from..to]);
        if !other.tails.is_empty() {
            self.tails
                .resize(self.heads.len() - (to - from), Tail::default());
            self.tails.extend_from_slice(&other.tails[from..to]);
        } else if !self.tails.is_empty() {
            self.tails.resize(self.heads.len(), Tail::default());
        }
    }
    fn tail(&self, slot: usize) -> Tail {
        self.tails.get(slot).copied().unwrap_or_default()
    }
}

/// Buffers in which a block is rewritten, kept between batches.
pub(super) struct Scratch {
    entries: Entries,
    key: Vec<u8>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Scratch {
            entries: Entries::with_capacity(ENTRIES_MAX),
            key: Vec::new(),
        }
    }
}

/// The place of a key in a block: the last entry at or before it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    /// True if the entry is at the key itself.
    pub(super) is_exact: bool,
}

/// A written range, or the part of it that lies in one block.
pub(super) struct Written<'a> {
    /// A range that began in an earlier block begins at the fence: slot 0, exact.
    pub(super) begin: (Place, Endpoint<'a>),
    /// `None` if the range goes on to the end of the block.
    pub(super) end: Option<(Place, Endpoint<'a>)>,
}

pub(super) struct Block {
    fence: Box<[u8]>,
    /// Number of leading bytes of the fence that every key in the block shares.
    prefix_len: usize,
    entries: Entries,
    tail_bytes: Vec<u8>,
    /// Number of bytes in `tail_bytes` that entries referred to at the last count.
    tail_bytes_live: usize,
    /// The greatest version in the block.
    newest: Version,
}

impl Block {
    /// The block of all keys from `fence` up to `next_fence`, with one entry.
    pub(super) fn new(fence: &[u8], next_fence: Option<&[u8]>, version: Version) -> Self {
        let mut block = Block::empty(fence, next_fence, 1);
        block.push(fence, version);
        block
    }
    fn empty(fence: &[u8], next_fence: Option<&[u8]>, capacity: usize) -> Self {
        Block {
            fence: fence.into(),
            prefix_len: next_fence.map_or(0, |next| shared_len(fence, next)),
            entries: Entries::with_capacity(capacity),
            tail_bytes: Vec::new(),
            tail_bytes_live: 0,
            newest: Version::MIN,
        }
    }
    #[inline]
    pub(super) fn fence(&self) -> &[u8] {
        &self.fence
    }
    pub(super) fn len(&self) -> usize {
        self.entries.heads.len()
    }
    #[inline]
    pub(super) fn newest(&self) -> Version {
        self.newest
    }
    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let entry_bytes = (self.entries.heads.capacity() + self.entries.versions.capacity()) * 8;
        entry_bytes
            + self.entries.tails.capacity() * 8
            + self.tail_bytes.capacity()
            + self.fence.len()
            + size_of::<Self>()
    }

    /// Prefetches the memory that `find` and `any_newer` will read.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.entries.heads);
        prefetch(&self.entries.versions);
    }

    /// The last entry at or before `key`, which the block must cover. `batch_head` is the head of `key` behind its
    /// first `batch_prefix_len` bytes. The head usually suffices, so that the key's own bytes stay out of the cache.
    #[inline]
    pub(super) fn find(
        &self,
        key: Endpoint<'_>,
        batch_head: u64,
        batch_prefix_len: usize,
    ) -> Place {
        let further = self.prefix_len.checked_sub(batch_prefix_len);
        let head = further.and_then(|further| head_further_on(batch_head, further));
        let head = head.unwrap_or_else(|| head_of(key, self.prefix_len));
        let heads = &self.entries.heads[..];
        let after = heads.partition_point(|&h| h <= head);
        if after > 0 && heads[after - 1] == head {
            return if is_long(head) {
                self.find_among_tails(key, head, after)
            } else {
                Place {
                    slot: (after - 1) as u32,
                    is_exact: true,
                }
            };
        }
        assert!(
            after > 0,
            "a key below the fence {:?} was looked for behind it",
            self.fence
        );
        Place {
            slot: (after - 1) as u32,
            is_exact: false,
        }
    }

    /// Finds the place of a key that goes on after its head. `after` is the index behind the last entry with this
    /// head.
    #[cold]
    fn find_among_tails(&self, key: Endpoint<'_>, head: u64, after: usize) -> Place {
        let first = self.entries.heads.partition_point(|&h| h < head);
        let rest = key.skip(self.prefix_len + HEAD_BYTES);
        let tails = &self.entries.tails[first..after];
        let at =
            first + tails.partition_point(|&tail| Endpoint::at(self.tail_bytes_of(tail)) <= rest);
        assert!(
            at > 0,
            "a key below the fence {:?} was looked for behind it",
            self.fence
        );
        let is_exact =
            at > first && Endpoint::at(self.tail_bytes_of(self.entries.tails[at - 1])) == rest;
        Place {
            slot: (at - 1) as u32,
            is_exact,
        }
    }

    fn tail_bytes_of(&self, tail: Tail) -> &[u8] {
        &self.tail_bytes[tail.offset as usize..][..tail.len as usize]
    }

    /// Whether an entry in `from..=to` is newer than `version`.
    #[inline]
    pub(super) fn any_newer(&self, from: u32, to: u32, version: Version) -> bool {
        self.entries.versions[from as usize..=to as usize]
            .iter()
            .any(|&written| written > version)
    }
    #[inline]
    pub(super) fn any_newer_from(&self, from: u32, version: Version) -> bool {
        self.newest > version && self.any_newer(from, self.len() as u32 - 1, version)
    }

    /// Records that `written`, disjoint ranges in key order, were written at `version`. Places refer to the block as
    /// it was before this call. Afterwards the caller splits a block which [`is_too_long`](Self::is_too_long).
    pub(super) fn write(
        &mut self,
        written: &[Written<'_>],
        version: Version,
        scratch: &mut Scratch,
    ) {
        assert!(
            version > self.newest,
            "version {version} was written after {}",
            self.newest
        );
        let fresh = &mut scratch.entries;
        fresh.clear();
        let mut kept = 0;
        for range in written {
            let (place, key) = range.begin;
            let slot = place.slot as usize;
            if place.is_exact {
                fresh.extend_from(&self.entries, kept, slot);
                fresh.push(self.entries.heads[slot], version, self.entries.tail(slot));
            } else {
                fresh.extend_from(&self.entries, kept, slot + 1);
                let (head, tail) = encode(&mut self.tail_bytes, self.prefix_len, key);
                fresh.push(head, version, tail);
            }
            kept = match range.end {
                None => self.len(),
                Some((end, _)) if end.is_exact => end.slot as usize,
                Some((end, key)) => {
                    // Keys behind the range keep their version.
                    let slot = end.slot as usize;
                    let (head, tail) = encode(&mut self.tail_bytes, self.prefix_len, key);
                    fresh.push(head, self.entries.versions[slot], tail);
                    slot + 1
                }
            };
        }
        fresh.extend_from(&self.entries, kept, self.len());
        let (heads, versions, tails) = (fresh.heads.len(), fresh.versions.len(), fresh.tails.len());
        assert!(
            heads == versions && (tails == 0 || tails == heads),
            "{heads} keys have {versions} versions and {tails} tails"
        );
        self.newest = version;
        std::mem::swap(&mut self.entries, fresh);
        self.drop_dead_tails();
    }

    fn push(&mut self, key: &[u8], version: Version) {
        let (head, tail) = encode(&mut self.tail_bytes, self.prefix_len, Endpoint::at(key));
        self.entries.push(head, version, tail);
        self.tail_bytes_live += tail.len as usize;
        self.newest = self.newest.max(version);
    }

    /// Rewrites `tail_bytes` when most of it may be dead.
    fn drop_dead_tails(&mut self) {
        const SLACK_BYTES: usize = 1024;
        if self.tail_bytes.len() <= 2 * self.tail_bytes_live + SLACK_BYTES {
            return;
        }
        let old = std::mem::take(&mut self.tail_bytes);
        let live = self
            .entries
            .tails
            .iter()
            .map(|tail| tail.len as usize)
            .sum();
        self.tail_bytes.reserve_exact(live);
        for tail in &mut self.entries.tails {
            let offset = self.tail_bytes.len() as u32;
            self.tail_bytes
                .extend_from_slice(&old[tail.offset as usize..][..tail.len as usize]);
            tail.offset = offset;
        }
        self.tail_bytes_live = live;
    }

    /// Merges neighbours that no judgement can tell apart: of the same version, or both at most `oldest`.
    pub(super) fn forget(&mut self, oldest: Version) {
        let entries = &mut self.entries;
        let mut kept = 1;
        let mut last = entries.versions[0];
        for slot in 1..entries.heads.len() {
            let version = entries.versions[slot];
            let is_same = is_same_to_all(last, version, oldest);
            entries.heads[kept] = entries.heads[slot];
            entries.versions[kept] = version;
            if !entries.tails.is_empty() {
                entries.tails[kept] = entries.tails[slot];
            }
            kept += usize::from(!is_same);
            last = version;
        }
        entries.heads.truncate(kept);
        entries.versions.truncate(kept);
        entries.tails.truncate(kept);
        if !entries.tails.is_empty() {
            self.tail_bytes_live = entries.tails.iter().map(|tail| tail.len as usize).sum();
            self.drop_dead_tails();
        }
    }

    /// Whether the block should be split. A long block first forgets what it can.
    #[inline]
    pub(super) fn is_too_long(&mut self, oldest: Version) -> bool {
        if self.len() <= ENTRIES_MAX {
            return false;
        }
        self.forget(oldest);
        self.len() > ENTRIES_AFTER_FORGETTING
    }

    /// Cuts the block into pieces with room to grow, in key order.
    pub(super) fn split(
        &self,
        next_fence: Option<&[u8]>,
        scratch: &mut Scratch,
        out: &mut Vec<Block>,
    ) {
        let pieces = self.len().div_ceil(ENTRIES_AFTER_SPLIT);
        let cut = |piece: usize| self.len() * piece / pieces;
        let mut fence = self.fence.to_vec();
        for piece in 0..pieces {
            let next = (piece + 1 < pieces).then(|| {
                self.write_key(cut(piece + 1), &mut scratch.key);
                scratch.key.clone()
            });
            let mut block = Block::empty(&fence, next.as_deref().or(next_fence), ENTRIES_MAX);
            block.push_all(self, cut(piece), cut(piece + 1), &mut scratch.key);
            out.push(block);
            fence = next.unwrap_or_default();
        }
    }

    /// Joins `blocks`, which are neighbours, into one block.
    pub(super) fn join(
        blocks: &[Block],
        next_fence: Option<&[u8]>,
        oldest: Version,
        scratch: &mut Scratch,
    ) -> Block {
        let mut joined = Block::empty(&blocks[0].fence, next_fence, ENTRIES_MAX);
        for block in blocks {
            joined.push_all(block, 0, block.len(), &mut scratch.key);
        }
        joined.forget(oldest);
        joined
    }

    /// Appends entries of a block that has another prefix.
    fn push_all(&mut self, from: &Block, begin: usize, end: usize, key: &mut Vec<u8>) {
        for slot in begin..end {
            from.write_key(slot, key);
            self.push(key, from.entries.versions[slot]);
        }
    }

    /// Writes the whole key of an entry to `key`.
    fn write_key(&self, slot: usize, key: &mut Vec<u8>) {
        let head = self.entries.heads[slot];
        key.clear();
        key.extend_from_slice(&self.fence[..self.prefix_len]);
        key.extend_from_slice(&head.to_be_bytes()[..((head & 0xff) as usize).min(HEAD_BYTES)]);
        if is_long(head) {
            key.extend_from_slice(self.tail_bytes_of(self.entries.tails[slot]));
        }
    }

    /// Asserts what the block promises, and lists its entries.
    pub(super) fn check(&self, next_fence: Option<&[u8]>) -> Vec<(Vec<u8>, Version)> {
        let mut entries = Vec::new();
        let mut key = Vec::new();
        for slot in 0..self.len() {
            self.write_key(slot, &mut key);
            entries.push((key.clone(), self.entries.versions[slot]));
        }
        assert_eq!(entries[0].0, &self.fence[..]);
        assert!(
            entries.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "{entries:?}"
        );
        assert!(next_fence.is_none_or(|next| entries[entries.len() - 1].0.as_slice() < next));
        assert_eq!(
            self.prefix_len,
            next_fence.map_or(0, |next| shared_len(&self.fence, next))
        );
        assert_eq!(self.len(), self.entries.versions.len());
        assert!(self.entries.tails.is_empty() || self.entries.tails.len() == self.len());
        assert!(
            self.entries
                .versions
                .iter()
                .all(|&version| version <= self.newest)
        );
        entries
    }
}

/// True if no transaction that is young enough to be judged can tell the two versions apart.
#[inline]
fn is_same_to_all(a: Version, b: Version, oldest: Version) -> bool {
    (a == b) | (a.max(b) <= oldest)
}

/// Head and tail of a key; the tail's bytes go to `tail_bytes`.
#[inline]
fn encode(tail_bytes: &mut Vec<u8>, prefix_len: usize, key: Endpoint<'_>) -> (u64, Tail) {
    let head = head_of(key, prefix_len);
    if !is_long(head) {
        return (head, Tail::default());
    }
    let rest = key.skip(prefix_len + HEAD_BYTES);
    let fits = "the keys of a block are below 4 GiB";
    let offset = u32::try_from(tail_bytes.len()).expect(fits);
    rest.write_to(tail_bytes);
    (
        head,
        Tail {
            offset,
            len: u32::try_from(rest.key_len()).expect(fits),
        },
    )
}

/// Prefetches the cache lines of a slice.
#[inline]
fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in slice.chunks(64 / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint that reads nothing the program can see and faults on no address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(block: &Block, key: Endpoint<'_>) -> (u32, bool) {
        let place = block.find(key, head_of(key, 0), 0);
        (place.slot, place.is_exact)
    }

    #[test]
    fn an_implied_zero_may_be_the_last_byte_that_a_block_shares() {
        let mut block = Block::new(b"a prefix\0", Some(b"a prefix\0z"), 1);
        block.push(b"a prefix\0b", 2);
        assert_eq!(block.prefix_len, 9);
        assert_eq!(find(&block, Endpoint::after(b"a prefix")), (0, true));
        assert_eq!(find(&block, Endpoint::after(b"a prefix\0")), (0, false));
        assert_eq!(find(&block, Endpoint::at(b"a prefix\0b")), (1, true));
    }

    #[test]
    fn keys_that_differ_behind_their_heads_are_told_apart() {
        let mut block = Block::new(b"", None, 1);
        let keys: Vec<_> = (0..50u8)
            .map(|i| [&b"the same head"[..], &[2 * i]].concat())
            .collect();
        keys.iter().for_each(|key| block.push(key, 2));
        for (i, key) in keys.iter().enumerate() {
            let slot = i as u32 + 1;
            assert_eq!(find(&block, Endpoint::at(key)), (slot, true));
            assert_eq!(find(&block, Endpoint::after(key)), (slot, false));
        }
        assert_eq!(find(&block, Endpoint::at(b"the same")), (0, false));
        assert_eq!(find(&block, Endpoint::at(b"the same head")), (0, false));
    }

    #[test]
    fn a_split_block_joins_to_what_it_was() {
        let mut scratch = Scratch::new();
        let mut block = Block::new(b"k", Some(b"l"), 5);
        (0..400u32).for_each(|i| {
            block.push(
                &[b"k/a long common prefix", &i.to_be_bytes()[..]].concat(),
                i64::from(i),
            )
        });
        let mut pieces = Vec::new();
        block.split(Some(b"l"), &mut scratch, &mut pieces);
        assert!(
            pieces.len() > 1
                && pieces
                    .iter()
                    .all(|piece| piece.len() <= ENTRIES_AFTER_SPLIT)
        );
        let joined = Block::join(&pieces, Some(b"l"), Version::MIN, &mut scratch);
        assert_eq!(joined.check(Some(b"l")), block.check(Some(b"l")));
    }

    #[test]
    fn tails_that_nothing_refers_to_are_dropped() {
        let mut scratch = Scratch::new();
        let mut block = Block::new(b"", None, 0);
        for version in 1..1000 {
            let key = [&[b'x'; 100][..], &(version as u32 % 7).to_be_bytes()].concat();
            let (begin, end) = (Endpoint::at(&key), Endpoint::after(&key));
            let place = |key| block.find(key, head_of(key, 0), 0);
            let written = [Written {
                begin: (place(begin), begin),
                end: Some((place(end), end)),
            }];
            block.write(&written, version, &mut scratch);
            block.forget(version - 3);
            assert!(
                block.tail_bytes.len() < 5000,
                "{} bytes",
                block.tail_bytes.len()
            );
        }
        assert!(block.len() < 10);
    }
}
