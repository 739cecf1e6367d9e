//! Where the entries of a log are in its disk queue, and the newest of them in memory.

use crate::log::LogPos;
use bytes::Bytes;
use plinth_log::disk_queue::{Position, entries};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Bytes of the newest entries that stay in memory.
const RECENT_BYTES: usize = 16 << 20;

/// The blocks of a log, each by the position of its first entry.
#[derive(Default)]
pub(crate) struct Blocks {
    places: BTreeMap<LogPos, Position>,
    recent: VecDeque<(LogPos, Rc<[Bytes]>)>,
    recent_bytes: usize,
}

/// A block, and its entries if they are in memory.
pub(crate) struct Found {
    pub first: LogPos,
    pub place: Position,
    pub entries: Option<Rc<[Bytes]>>,
}

impl Blocks {
    /// Adds a block behind the others.
    pub fn add(&mut self, first: LogPos, place: Position) {
        let last = self.places.last_key_value().map(|(last, _)| *last);
        assert!(
            last.is_none_or(|last| last < first),
            "a block of entries from {first} on follows that from {last:?}"
        );
        self.places.insert(first, place);
    }

    /// Keeps the entries of the newest block in memory.
    pub fn remember(&mut self, first: LogPos, entries: Rc<[Bytes]>) {
        let last = self.places.last_key_value().map(|(last, _)| *last);
        assert_eq!(last, Some(first), "the entries are not of the newest block");
        self.recent_bytes += entries.iter().map(Bytes::len).sum::<usize>();
        self.recent.push_back((first, entries));
        while self.recent_bytes > RECENT_BYTES && self.recent.len() > 1 {
            let (_, oldest) = self.recent.pop_front().expect("there are two");
            self.recent_bytes -= oldest.iter().map(Bytes::len).sum::<usize>();
        }
    }

    /// Lets the entries in memory go.
    pub fn forget(&mut self) {
        self.recent.clear();
        self.recent_bytes = 0;
    }

    /// The block that has this entry, if any has it.
    pub fn find(&self, pos: LogPos) -> Option<Found> {
        let (first, place) = self.places.range(..=pos).next_back()?;
        let at = self.recent.binary_search_by_key(first, |(of, _)| *of);
        Some(Found {
            first: *first,
            place: *place,
            entries: at.ok().map(|at| self.recent[at].1.clone()),
        })
    }

    /// Removes the blocks before the one with this entry. Returns the place of the oldest that stays, if there were
    /// any to remove.
    pub fn trim(&mut self, before: LogPos) -> Option<Position> {
        let (first, place) = self.places.range(..=before).next_back()?;
        let (first, place) = (*first, *place);
        let (oldest, _) = self.places.first_key_value()?;
        (*oldest != first).then(|| {
            self.places = self.places.split_off(&first);
            while self.recent.front().is_some_and(|(of, _)| *of < first) {
                let (_, gone) = self.recent.pop_front().expect("just seen");
                self.recent_bytes -= gone.iter().map(Bytes::len).sum::<usize>();
            }
            assert!(
                !self.recent.is_empty() || self.recent_bytes == 0,
                "no block is in memory, and {} bytes of some",
                self.recent_bytes
            );
            place
        })
    }
}

/// The head of a block of the disk queue, and its entries. `None` if it is damaged.
pub(crate) fn head_and_entries(block: &Bytes) -> Option<(Bytes, Vec<Bytes>)> {
    let mut all = entries(block)?.into_iter();
    Some((all.next()?, all.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u32) -> Position {
        Position { segment: 0, offset }
    }

    fn block(bytes: usize) -> Rc<[Bytes]> {
        vec![Bytes::from(vec![0; bytes])].into()
    }

    #[test]
    fn the_newest_blocks_stay_in_memory_and_the_others_are_found_on_disk() {
        let mut blocks = Blocks::default();
        for first in 1..=5 {
            blocks.add(first, place(first as u32));
            blocks.remember(first, block(RECENT_BYTES / 2));
        }
        let is_in_memory = |pos| blocks.find(pos).map(|found| found.entries.is_some());
        assert_eq!(is_in_memory(5), Some(true));
        assert_eq!(is_in_memory(4), Some(true));
        assert_eq!(is_in_memory(3), Some(false));
        assert_eq!(is_in_memory(0), None);
    }

    #[test]
    fn a_trim_keeps_the_block_with_the_first_entry_that_is_needed() {
        let mut blocks = Blocks::default();
        for first in [1, 4, 9] {
            blocks.add(first, place(first as u32));
            blocks.remember(first, block(1));
        }
        assert_eq!(blocks.trim(3), None);
        assert_eq!(blocks.trim(8), Some(place(4)));
        assert!(blocks.find(3).is_none());
        assert_eq!(blocks.find(8).map(|found| found.first), Some(4));
        assert_eq!(blocks.trim(100), Some(place(9)));
        assert_eq!(blocks.trim(100), None);
    }
}
