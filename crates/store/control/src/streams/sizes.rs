//! How many bytes the entries of each stream have, kept up to date by looking at each new row once.
//!
//! A storage server reads all rows of a range to estimate its size. A stream may keep hundreds of megabytes, so nobody
//! may ask for the size of all of it every second.

use plinth_client::{Position, Transaction};
use plinth_core::streams::{entries_range, entry_key};
use plinth_core::{Key, Result};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The sizes of all streams, by their ids.
#[derive(Default)]
pub(crate) struct Sizes(RefCell<BTreeMap<u64, Measured>>);

/// Successive parts of a stream.
struct Measured {
    /// Where each part begins, and its bytes.
    parts: VecDeque<(Key, u64)>,
    /// The rows before this key are in the parts.
    through: Key,
}

impl Measured {
    /// Adds a part that begins where the last one ends; parts that are small together become one.
    fn add(&mut self, begin: Key, bytes: u64, part_bytes: u64) {
        match self.parts.back_mut() {
            Some((_, last)) if *last + bytes <= part_bytes => *last += bytes,
            _ => self.parts.push_back((begin, bytes)),
        }
    }

    /// Forgets the parts that lie before `floor`.
    fn forget(&mut self, floor: &Key) {
        let ends = |measured: &Self| match measured.parts.get(1) {
            Some((next, _)) => next <= floor,
            None => measured.through <= *floor,
        };
        while !self.parts.is_empty() && ends(self) {
            self.parts.pop_front();
        }
    }

    fn total(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Where the last parts begin that have at most `bytes_max` together, if there are others before them.
    fn cut(&self, bytes_max: u64) -> Option<Key> {
        let mut rest = self.total();
        let mut parts = self.parts.iter().peekable();
        let mut kept = None;
        while rest > bytes_max
            && let Some((_, bytes)) = parts.next()
            && let Some((next, _)) = parts.peek()
        {
            rest -= bytes;
            kept = Some(next.clone());
        }
        kept
    }
}

impl Sizes {
    /// Measures what was appended to the stream since the last time, in parts of about `part_bytes`.
    pub async fn measure(
        &self,
        transaction: &Transaction,
        id: u64,
        floor: Position,
        part_bytes: u64,
    ) -> Result<()> {
        let begin = match self.0.borrow().get(&id) {
            Some(measured) => measured.through.clone(),
            None => entries_range(id).begin,
        };
        // Entries come in the order of their versions, so none will ever be before this one.
        let next = Position::of_version(transaction.get_read_version().await? + 1);
        let end = entry_key(id, next);
        if begin >= end {
            return Ok(());
        }
        let size = transaction.get_estimated_range_size_bytes(begin.clone(), end.clone());
        let bytes = u64::try_from(size.await?).unwrap_or(0);
        let begins = if bytes > part_bytes {
            let chunk = i64::try_from(part_bytes).unwrap_or(i64::MAX);
            let borders = transaction.get_range_split_points(begin, end.clone(), chunk);
            let mut borders = borders.await?;
            borders.pop(); // the end
            borders
        } else {
            vec![begin]
        };
        let each = bytes / begins.len().max(1) as u64;
        let mut all = self.0.borrow_mut();
        let measured = all.entry(id).or_insert_with(|| Measured {
            parts: VecDeque::new(),
            through: end.clone(),
        });
        for begin in begins {
            measured.add(begin, each, part_bytes);
        }
        measured.through = end;
        measured.forget(&entry_key(id, floor));
        Ok(())
    }

    /// The bytes of the stream, if it was measured.
    pub fn total(&self, id: u64) -> Option<u64> {
        self.0.borrow().get(&id).map(Measured::total)
    }

    /// See [`Measured::cut`].
    pub fn cut(&self, id: u64, bytes_max: u64) -> Option<Key> {
        self.0.borrow().get(&id)?.cut(bytes_max)
    }

    /// Forgets the streams that are not among `ids`.
    pub fn keep_only(&self, ids: &BTreeSet<u64>) {
        self.0.borrow_mut().retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        vec![n].into()
    }

    fn measured(parts: &[(u8, u64)], through: u8) -> Measured {
        let mut measured = Measured {
            parts: VecDeque::new(),
            through: key(through),
        };
        for (begin, bytes) in parts {
            measured.add(key(*begin), *bytes, 10);
        }
        measured
    }

    #[test]
    fn a_cut_leaves_the_last_parts_that_fit() {
        let all = measured(&[(1, 10), (2, 10), (3, 10)], 4);
        assert_eq!(all.cut(30), None);
        assert_eq!(all.cut(29), Some(key(2)));
        assert_eq!(all.cut(20), Some(key(2)));
        assert_eq!(all.cut(10), Some(key(3)));
        assert_eq!(all.cut(1), Some(key(3)), "the last part stays");
        assert_eq!(measured(&[(1, 10)], 2).cut(1), None);
    }

    #[test]
    fn small_parts_become_one_and_parts_before_the_floor_are_forgotten() {
        let mut all = measured(&[(1, 4), (2, 5), (3, 9), (4, 20)], 5);
        assert_eq!(all.parts, [(key(1), 9), (key(3), 9), (key(4), 20)]);
        all.forget(&key(2));
        assert_eq!(all.total(), 38, "the first part is not all gone");
        all.forget(&key(3));
        assert_eq!(all.total(), 29);
        all.forget(&key(4));
        assert_eq!(all.total(), 20);
        all.forget(&key(5));
        assert_eq!(all.total(), 0);
    }
}
