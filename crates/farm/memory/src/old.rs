//! Old versions, in blocks that are freed as a whole (§4.4, 4.5).
//!
//! An old version is a cell without a footer: header, older, payload. One that is not allocated has no payload. They
//! lie in one region of the fabric and have no replicas.
//!
//! A block is free again when each of its versions was replaced before the safe point, or was never used: every
//! transaction that still reads has a snapshot at which a newer version is there. Nothing of the block is touched.

use crate::cell::{Cell, Header, Older, Snapshot, WORD_BYTES, bytes};
use crate::error::Error;
use crate::pointer::Class;
use bytes::Bytes;
use plinth_farm_fabric::Memory;
use plinth_runtime::{planted, probe};
use std::sync::atomic::Ordering::Acquire;

/// The paper's: 1 MB.
pub const BLOCK_WORDS: u64 = 1 << 17;
const BLOCK_WORDS_MIN: u64 = 64;
const BLOCK_WORDS_MAX: u64 = 1 << 30;
/// Blocks are counted in 32 bits.
const OLD_WORDS_MAX: u64 = 1 << 38;

#[derive(Clone, Default)]
struct Block {
    /// The greatest timestamp at which one of its versions was replaced.
    replaced: u64,
    /// Versions of transactions that have neither committed nor aborted.
    undecided: u32,
    is_used: bool,
}

/// A version that was copied for a transaction that is about to replace it. [`Old::commit`] or [`Old::abort`] takes
/// it; until then its block stays.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub struct Kept {
    older: Older,
    block: u32,
}

impl Kept {
    /// What the version that replaces it is installed with.
    pub fn older(&self) -> Older {
        self.older
    }
}

/// An old version as a local read finds it. The payload is empty if it is not allocated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldVersion {
    pub header: Header,
    pub older: Older,
    pub payload: Bytes,
}

/// How many blocks there are, and in which state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Blocks {
    pub all: usize,
    pub free: usize,
    /// Have versions of transactions that are not decided.
    pub undecided: usize,
}

/// The old versions of a machine.
pub struct Old {
    memory: Memory,
    block_words: usize,
    blocks: Vec<Block>,
    free: Vec<u32>,
    /// Where the next version goes, and where that block ends: its first and last word of it.
    next: usize,
    end: usize,
}

/// How many blocks so many words have. Errors: [`Error::Sizes`].
pub(crate) fn blocks(old_words: u64, block_words: u64) -> Result<u64, Error> {
    if !(BLOCK_WORDS_MIN..=BLOCK_WORDS_MAX).contains(&block_words) {
        return Err(Error::Sizes(
            "a block of old versions has 64 words (512 bytes) to 1 Gi (8 GiB)",
        ));
    }
    if old_words > OLD_WORDS_MAX {
        return Err(Error::Sizes("old versions have at most 2^38 words (2 TiB)"));
    }
    Ok(old_words / block_words)
}

impl Old {
    /// No versions, whatever the memory has held. One of less than a block never has room (single-version mode).
    /// Errors: [`Error::Sizes`].
    pub fn new(memory: &Memory, block_words: u64) -> Result<Old, Error> {
        let count = blocks(memory.words().len() as u64, block_words)?;
        Ok(Old {
            memory: memory.clone(),
            block_words: block_words as usize,
            blocks: vec![Block::default(); count as usize],
            free: (0..count as u32).rev().collect(),
            next: 0,
            end: 0,
        })
    }

    /// Copies the newest version of a cell that the caller has locked. `None` if there is no room. Then the caller
    /// waits if that is worthwhile ([`room_after`](Old::room_after)), aborts, or installs with [`Older::NONE`], so
    /// that all earlier versions of this object are gone (§5.3: mv-block, mv-abort, mv-truncate).
    #[inline]
    pub fn keep(&mut self, cell: Cell) -> Option<Kept> {
        // Whoever reads a version reads so many words of it, and never beyond the block.
        let reach = cell.words() - 1;
        if self.end - self.next < reach {
            self.take_block(reach)?;
        }
        let at = self.next;
        let words = &self.memory.words()[at..at + reach];
        self.next = at + cell.copy_to(words);
        let number = at / self.block_words;
        let block = &mut self.blocks[number];
        assert!(
            block.is_used && block.undecided < u32::MAX,
            "a version goes to block {number}, which is free or has {} others under way",
            block.undecided
        );
        block.undecided += 1;
        let block = number as u32;
        Some(Kept {
            older: Older::at(at as u64),
            block,
        })
    }

    #[cold]
    fn take_block(&mut self, words: usize) -> Option<()> {
        if words > self.block_words {
            return None;
        }
        let Some(block) = self.free.pop() else {
            probe!("farm_no_room_for_an_old_version");
            return None;
        };
        let was_used = std::mem::replace(&mut self.blocks[block as usize].is_used, true);
        assert!(!was_used, "block {block} is among the free ones, and used");
        self.next = block as usize * self.block_words;
        self.end = self.next + self.block_words;
        Some(())
    }

    /// The transaction has replaced the version, at this timestamp.
    #[inline]
    pub fn commit(&mut self, kept: Kept, timestamp: u64) {
        let block = self.decide(&kept);
        block.replaced = block.replaced.max(timestamp);
    }

    /// The transaction has not replaced the version.
    #[inline]
    pub fn abort(&mut self, kept: Kept) {
        self.decide(&kept);
    }

    /// A block that is free again, or used anew, would be counted down in place of another one's versions.
    #[inline]
    fn decide(&mut self, kept: &Kept) -> &mut Block {
        let block = &mut self.blocks[kept.block as usize];
        assert!(
            block.undecided > 0 && block.is_used,
            "a version at {:?} is decided, and block {} waits for none",
            kept.older,
            kept.block
        );
        block.undecided -= 1;
        block
    }

    /// Frees what no transaction with a snapshot at the safe point or later needs. Returns the number of blocks.
    pub fn collect(&mut self, safe_point: u64) -> usize {
        let mut freed = 0;
        for (block, at) in self.blocks.iter_mut().zip(0..) {
            let is_needed = block.replaced >= safe_point
                && !planted!(
                    "farm_old_version_collected_early",
                    "a block of old versions is freed whatever the safe point is"
                );
            if !block.is_used || block.undecided > 0 || is_needed {
                continue;
            }
            let first = at as usize * self.block_words;
            if self.end == first + self.block_words {
                (self.next, self.end) = (0, 0);
            }
            *block = Block::default();
            self.free.push(at);
            freed += 1;
        }
        freed
    }

    /// There is room for a version of this class when the safe point has passed this time: waiting is worthwhile if
    /// the safe point can do so before the waiting transaction ends. `None`: not before other transactions are
    /// decided, or never, because it is larger than a block.
    pub fn room_after(&self, class: Class) -> Option<u64> {
        if Snapshot::old_bytes(class) > self.block_words * WORD_BYTES {
            return None;
        }
        if !self.free.is_empty() {
            return Some(0);
        }
        let decided = self.blocks.iter().filter(|block| block.undecided == 0);
        decided.map(|block| block.replaced).min()
    }

    pub fn blocks(&self) -> Blocks {
        Blocks {
            all: self.blocks.len(),
            free: self.free.len(),
            undecided: self.blocks.iter().filter(|b| b.undecided > 0).count(),
        }
    }

    /// Whether the block of a version is used, so that the version is there.
    #[cfg(test)]
    pub(crate) fn is_kept(&self, older: Older) -> bool {
        let word = older.word().expect("a place") as usize;
        self.blocks[word / self.block_words].is_used
    }

    /// The version at `older`, of an object of the class, which came before the one at the timestamp `before`.
    /// `None` if it is gone.
    #[inline]
    pub fn read(&self, older: Older, class: Class, before: u64) -> Option<OldVersion> {
        let at = usize::try_from(older.word()?).ok()?;
        let words = self.memory.words().get(at..)?;
        let words = words.get(..Snapshot::old_bytes(class) / WORD_BYTES)?;
        let [header, older, payload @ ..] = words else {
            return None;
        };
        let header = Header::from_bits(header.load(Acquire));
        if !header.is_before(before) {
            return None;
        }
        let payload = if header.is_allocated() { payload } else { &[] };
        Some(OldVersion {
            header,
            older: Older::from_bits(older.load(Acquire)),
            payload: bytes(payload),
        })
    }
}
