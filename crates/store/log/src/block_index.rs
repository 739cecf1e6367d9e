//! Where the blocks of a disk queue begin, by the first version in them.
//!
//! It knows all of the newest blocks and some of the older ones. A recovery copies the versions at the end of the
//! queue: it must not have to read an older block, which may be damaged. Readers that are further behind read from
//! the last known block before what they want.

use crate::disk_queue::Position;
use plinth_core::Version;
use std::collections::{BTreeMap, VecDeque};

/// Of the older blocks, one is remembered for about this many bytes of the queue.
const BYTES_BETWEEN: usize = 64 << 10;
const NEWEST: usize = 64;

#[derive(Default)]
pub(crate) struct BlockIndex {
    places: BTreeMap<Version, Position>,
    /// Those in `places` that are forgotten when they are no longer among the newest, oldest first.
    newest: VecDeque<Version>,
    /// Of blocks behind the last one that stays.
    bytes: usize,
}

impl BlockIndex {
    /// Adds the next block of the queue: its first version, which is above all versions before it, and its size.
    pub fn add(&mut self, first: Version, position: Position, bytes: usize) {
        let last = self.places.last_key_value();
        assert!(
            last.is_none_or(|(version, place)| *version < first && *place < position),
            "a block of {first} at {position:?} follows {last:?}"
        );
        let is_oldest = last.is_none();
        self.places.insert(first, position);
        self.bytes += bytes;
        if is_oldest || self.bytes >= BYTES_BETWEEN {
            self.bytes = 0;
            return; // it stays
        }
        self.newest.push_back(first);
        if self.newest.len() > NEWEST
            && let Some(aged) = self.newest.pop_front()
            && self.places.range(..aged).next().is_some()
        {
            self.places.remove(&aged);
        }
    }

    /// Position of a block at or before the one that contains `version`, or of the oldest block. `None` if there are
    /// no blocks.
    pub fn position_of(&self, version: Version) -> Option<Position> {
        let before = self.places.range(..=version).next_back();
        let place = before.or_else(|| self.places.first_key_value());
        place.map(|(_, position)| *position)
    }

    /// Forgets blocks that hold nothing from `version` on. Returns the position of the oldest one that is left; `None`
    /// if nothing is known to be before `version`.
    pub fn cut(&mut self, version: Version) -> Option<Position> {
        let (first, position) = self.places.range(..=version).next_back()?;
        let (first, position) = (*first, *position);
        self.places = self.places.split_off(&first);
        Some(position)
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: Version) -> Position {
        Position {
            segment: 0,
            offset: block as u32,
        }
    }

    /// Blocks of 1 KiB that begin with versions 10, 20, 30 and so on.
    fn filled(blocks: Version) -> BlockIndex {
        let mut index = BlockIndex::default();
        for block in 1..=blocks {
            index.add(block * 10, at(block), 1 << 10);
        }
        index
    }

    #[test]
    fn each_of_the_newest_blocks_is_found_and_a_place_before_each_older_one() {
        let index = filled(1000);
        for block in 1..=1000 {
            let found = index.position_of(block * 10 + 9).expect("there are blocks");
            let behind = block as u32 - found.offset;
            assert!(behind < 64, "{behind} blocks before block {block}");
            assert!(block <= 1000 - NEWEST as Version || behind == 0);
        }
        assert!(index.places.len() < 100);
        assert_eq!(index.position_of(5), Some(at(1)));
        assert!(BlockIndex::default().position_of(5).is_none());
    }

    #[test]
    fn the_oldest_block_that_a_cut_leaves_is_not_forgotten_when_it_gets_old() {
        for cut_at in 1..=100 {
            let mut index = filled(100);
            assert_eq!(index.cut(cut_at * 10), index.position_of(cut_at * 10));
            let oldest = index.position_of(cut_at * 10).expect("it is left");
            for block in 101..=1000 {
                index.add(block * 10, at(block), 1 << 10);
            }
            assert_eq!(index.position_of(cut_at * 10), Some(oldest));
            assert_eq!(index.cut(cut_at * 10), Some(oldest));
        }
        assert_eq!(filled(3).cut(9), None);
    }
}
