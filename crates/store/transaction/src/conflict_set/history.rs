//! `lastCommit` of Algorithm 1: for every key, the version at which it was last written.
//!
//! `lastCommit` is a step function over the keys. Its boundaries are kept sorted, in [blocks](super::block). The keys
//! of a batch come in order, so one walk along the blocks finds all of them, and a second walk writes to each block at
//! most once.

use super::block::{Block, ENTRIES_MAX, Place, Scratch, Written};
use super::points::{head_of, is_long};
use plinth_core::Version;
use plinth_core::conflict_ranges::Endpoint;

/// Neighbouring blocks with no more entries than this are joined.
const ENTRIES_JOINED_MAX: usize = ENTRIES_MAX / 2;
/// A list of pending ranges is kept between batches up to this capacity: a few megabytes.
const PENDING_KEPT_MAX: usize = 64 << 10;
/// Room for fewer blocks is never given back.
const BLOCKS_FEW: usize = 1 << 10;

/// Where a key of the batch lies.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Location {
    pub(super) block: u32,
    pub(super) place: Place,
}

/// A range of keys that a batch writes: the location and the key of its begin, and of its end.
pub(super) struct WrittenRange<'a> {
    pub(super) begin: (Location, Endpoint<'a>),
    pub(super) end: (Location, Endpoint<'a>),
}

pub(super) struct History {
    /// In key order; the first one's fence is the empty key. Never empty.
    blocks: Vec<Block>,
    /// Empty. Buffer for the list of blocks while some are split.
    spare: Vec<Block>,
    scratch: Scratch,
    /// Buffer for the ranges to be written to one block. A load in key order writes a whole batch to one block.
    pending: Vec<Written<'static>>,
    /// Indexes of blocks that have grown too long in this batch.
    too_long: Vec<usize>,
    /// Index of the block at which forgetting continues. Behind the last block it restarts at the first.
    sweep_at: usize,
}

impl History {
    /// Every key was last written at `oldest`, or before.
    pub(super) fn new(oldest: Version) -> Self {
        History {
            blocks: vec![Block::new(b"", None, oldest)],
            spare: Vec::new(),
            scratch: Scratch::new(),
            pending: Vec::new(),
            too_long: Vec::new(),
            sweep_at: 0,
        }
    }
    pub(super) fn entry_count(&self) -> usize {
        self.blocks.iter().map(Block::len).sum()
    }
    pub(super) fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::bytes).sum()
    }

    /// Whether a key in `[begin, end)` was written after `version`.
    #[inline]
    pub(super) fn any_newer(
        &self,
        begin: Location,
        end: Location,
        version: Version,
        chunks: &mut Chunks,
    ) -> bool {
        let (first, last) = (begin.block, end.block);
        if first == last {
            // An entry at the end itself says nothing about the keys before it.
            let to = end.place.slot - u32::from(end.place.is_exact);
            return self.blocks[first as usize].any_newer(begin.place.slot, to, version);
        }
        self.blocks[first as usize].any_newer_from(begin.place.slot, version)
            || (!is_fence(end.place) && {
                let to = end.place.slot - u32::from(end.place.is_exact);
                self.blocks[last as usize].any_newer(0, to, version)
            })
            || chunks.any_newer(&self.blocks, first as usize + 1, last as usize, version)
    }

    /// Records that `ranges` are written at `version`. They come in key order and do not touch. Blocks that grow too
    /// long first forget up to `oldest`. Returns the amount of change: entries that it may have added, and blocks
    /// beyond the first that a range covers.
    pub(super) fn write<'b>(
        &mut self,
        ranges: impl Iterator<Item = WrittenRange<'b>>,
        version: Version,
        oldest: Version,
    ) -> usize {
        let mut changed = 0;
        let mut block = 0;
        let mut pending = emptied(std::mem::take(&mut self.pending));
        for range in ranges {
            let ((begin, begin_key), (end, end_key)) = (range.begin, range.end);
            let last = end.block as usize - usize::from(is_fence(end.place));
            changed += 2 + last - begin.block as usize;
            for index in begin.block as usize..=last {
                if index != block {
                    self.write_block(block, &mut pending, version, oldest);
                    block = index;
                }
                let starts_here = index == begin.block as usize;
                let fence = (
                    Place {
                        slot: 0,
                        is_exact: true,
                    },
                    Endpoint::at(b""),
                );
                let ends_here = index == end.block as usize;
                pending.push(Written {
                    begin: if starts_here {
                        (begin.place, begin_key)
                    } else {
                        fence
                    },
                    end: ends_here.then_some((end.place, end_key)),
                });
            }
        }
        self.write_block(block, &mut pending, version, oldest);
        if pending.capacity() <= PENDING_KEPT_MAX {
            self.pending = emptied(pending);
        }
        self.split_long_blocks();
        changed
    }

    fn write_block(
        &mut self,
        index: usize,
        pending: &mut Vec<Written<'_>>,
        version: Version,
        oldest: Version,
    ) {
        if pending.is_empty() {
            return;
        }
        let block = &mut self.blocks[index];
        block.write(pending, version, &mut self.scratch);
        pending.clear();
        if block.is_too_long(oldest) {
            self.too_long.push(index);
        }
    }

    /// Splits all long blocks in one pass, so that a batch moves the list of blocks at most once. Three million keys
    /// are 75,000 blocks, and their list has 10 MB. Its buffer is kept, because fresh memory costs more than the move.
    /// If keys come in order, blocks are split at the end, and those before them stay where they are.
    fn split_long_blocks(&mut self) {
        if self.too_long.is_empty() {
            return;
        }
        let first = self.too_long[0];
        if first < self.blocks.len() / 2 {
            std::mem::swap(&mut self.blocks, &mut self.spare);
            self.blocks
                .reserve(self.spare.len() + 2 * self.too_long.len());
            self.blocks.extend(self.spare.drain(..first));
        } else {
            self.spare.extend(self.blocks.drain(first..));
        }
        let mut old = (first..).zip(self.spare.drain(..)).peekable();
        let mut too_long = self.too_long.drain(..).peekable();
        let mut sweep_at = match self.sweep_at {
            before if before < first => before,
            _ => usize::MAX,
        };
        while let Some((index, block)) = old.next() {
            if index == self.sweep_at {
                sweep_at = self.blocks.len();
            }
            if too_long.next_if_eq(&index).is_some() {
                let next_fence = old.peek().map(|(_, next)| next.fence());
                block.split(next_fence, &mut self.scratch, &mut self.blocks);
            } else {
                self.blocks.push(block);
            }
        }
        drop((old, too_long));
        self.sweep_at = sweep_at;
    }

    /// Forgets in a few blocks what is not newer than `oldest`, and joins blocks with few entries left. Examines about
    /// `budget` entries. The next call continues where this one stopped.
    pub(super) fn sweep(&mut self, oldest: Version, budget: usize) {
        /// Cost of examining a block in addition to its entries, in entries.
        const BLOCK_COST: usize = 16;
        if self.sweep_at >= self.blocks.len() {
            self.sweep_at = 0;
        }
        let from = self.sweep_at;
        let mut to = from;
        let mut spent = 0;
        while to < self.blocks.len() && spent < budget {
            spent += self.blocks[to].len() + BLOCK_COST;
            self.blocks[to].forget(oldest);
            to += 1;
        }
        self.sweep_at = self.join_small_blocks(from, to, oldest);
        self.give_back_room();
    }

    /// Gives back room for many more blocks than there are.
    fn give_back_room(&mut self) {
        let wanted = 2 * self.blocks.len().max(BLOCKS_FEW);
        if self.blocks.capacity() > 2 * wanted {
            self.blocks.shrink_to(wanted);
        }
        if self.spare.capacity() > 2 * wanted {
            self.spare = Vec::new();
        }
    }

    /// Joins neighbours in `from..to` that are small together. Returns the new index of the block that was at `to`.
    fn join_small_blocks(&mut self, from: usize, to: usize, oldest: Version) -> usize {
        let (mut kept, mut group) = (from, from);
        while group < to {
            let mut group_end = group + 1;
            let mut entries = self.blocks[group].len();
            while group_end < to && entries + self.blocks[group_end].len() <= ENTRIES_JOINED_MAX {
                entries += self.blocks[group_end].len();
                group_end += 1;
            }
            if group_end - group > 1 {
                let next_fence = self.blocks.get(group_end).map(Block::fence);
                let joined = Block::join(
                    &self.blocks[group..group_end],
                    next_fence,
                    oldest,
                    &mut self.scratch,
                );
                self.blocks[kept] = joined;
            } else {
                self.blocks.swap(kept, group);
            }
            kept += 1;
            group = group_end;
        }
        self.blocks.drain(kept..to);
        kept
    }

    /// For so many blocks.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.blocks.capacity() + self.spare.capacity()
    }

    /// Asserts what the history promises, and lists its boundaries. Looks at every entry.
    pub(super) fn check(&self) -> Vec<(Vec<u8>, Version)> {
        assert_eq!(self.blocks[0].fence(), b"");
        let next_fence = |index: usize| self.blocks.get(index + 1).map(Block::fence);
        self.blocks
            .iter()
            .enumerate()
            .flat_map(|(index, block)| block.check(next_fence(index)))
            .collect()
    }
}

/// Empties the list and keeps its allocation for entries of another batch.
fn emptied<'b>(mut list: Vec<Written<'_>>) -> Vec<Written<'b>> {
    list.clear();
    let none = |_| unreachable!("the list is empty");
    list.into_iter().map(none).collect()
}

/// True if the place is the block's own fence.
#[inline]
fn is_fence(place: Place) -> bool {
    place.slot == 0 && place.is_exact
}

/// The newest version of every 64 blocks, for reads that span many. Computed at the first such read.
#[derive(Default)]
pub(super) struct Chunks {
    newest: Vec<Version>,
}

impl Chunks {
    const BLOCKS: usize = 64;

    /// Whether one of `blocks[from..to]` is newer than `version`.
    fn any_newer(&mut self, blocks: &[Block], from: usize, to: usize, version: Version) -> bool {
        let any = |from: usize, to: usize| {
            blocks[from..to]
                .iter()
                .any(|block| block.newest() > version)
        };
        if to - from <= 2 * Self::BLOCKS {
            return any(from, to);
        }
        if self.newest.is_empty() {
            let newest = |chunk: &[Block]| {
                chunk
                    .iter()
                    .map(Block::newest)
                    .max()
                    .expect("chunks are not empty")
            };
            self.newest.extend(blocks.chunks(Self::BLOCKS).map(newest));
        }
        let (first, last) = (from.div_ceil(Self::BLOCKS), to / Self::BLOCKS);
        any(from, first * Self::BLOCKS)
            || any(last * Self::BLOCKS, to)
            || self.newest[first..last]
                .iter()
                .any(|&newest| newest > version)
    }
}

/// Walks along the blocks as keys come in order.
pub(super) struct Finger<'a> {
    blocks: &'a [Block],
    /// Prefix that all keys of the batch share.
    prefix: &'a [u8],
    at: usize,
    /// The next block's fence as [`fence_head`](Self::fence_head).
    next_fence: u64,
}

impl<'a> Finger<'a> {
    /// How many blocks ahead are prefetched: those that a large batch reaches next.
    const AHEAD: usize = 4;

    pub(super) fn new(history: &'a History, prefix: &'a [u8]) -> Self {
        let mut finger = Finger {
            blocks: &history.blocks,
            prefix,
            at: 0,
            next_fence: 0,
        };
        finger.next_fence = finger.fence_head(1);
        finger
    }

    /// Finds `key`. `head` is its head behind the batch's prefix. `key` must not be below the key of the call before.
    #[inline]
    pub(super) fn find(&mut self, key: Endpoint<'_>, head: u64) -> Location {
        if head >= self.next_fence {
            self.advance(key, head);
        }
        Location {
            block: self.at as u32,
            place: self.blocks[self.at].find(key, head, self.prefix.len()),
        }
    }

    /// Gallops: a near block costs little, and a far one a few steps more.
    fn advance(&mut self, key: Endpoint<'_>, head: u64) {
        let mut beyond = self.blocks.len();
        let mut step = 1;
        let before = self.at;
        while self.at + step < beyond {
            if !self.is_at_or_after_fence(key, head, self.at + step) {
                beyond = self.at + step;
                break;
            }
            self.at += step;
            step *= 2;
        }
        while beyond - self.at > 1 {
            let middle = self.at + (beyond - self.at) / 2;
            if self.is_at_or_after_fence(key, head, middle) {
                self.at = middle;
            } else {
                beyond = middle;
            }
        }
        self.next_fence = self.fence_head(self.at + 1);
        let from = (before + Self::AHEAD).max(self.at) + 1;
        let to = (self.at + Self::AHEAD + 1).min(self.blocks.len());
        if from < to {
            self.blocks[from..to].iter().for_each(Block::prefetch);
        }
    }

    #[inline]
    fn is_at_or_after_fence(&self, key: Endpoint<'_>, head: u64, index: usize) -> bool {
        let fence_head = self.fence_head(index);
        if head == fence_head && is_long(head) {
            return key >= Endpoint::at(self.blocks[index].fence());
        }
        head >= fence_head
    }

    /// A number that compares to the heads of the batch as the block's fence does to their keys.
    #[inline]
    fn fence_head(&self, index: usize) -> u64 {
        let Some(block) = self.blocks.get(index) else {
            return u64::MAX;
        };
        let fence = block.fence();
        if fence.starts_with(self.prefix) {
            head_of(Endpoint::at(fence), self.prefix.len())
        } else if fence < self.prefix {
            0
        } else {
            u64::MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_an_emptied_list_is_kept() {
        let list: Vec<Written<'_>> = Vec::with_capacity(1000);
        let (room, at) = (list.capacity(), list.as_ptr() as usize);
        let list = emptied(list);
        assert_eq!((list.capacity(), list.as_ptr() as usize), (room, at));
    }
}
