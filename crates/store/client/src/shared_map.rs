//! An ordered map that is cheap to copy: copies share the blocks that neither has changed since.
//!
//! A range read under way keeps the writes as they were when it was issued, while the transaction goes on writing. So
//! every write during a read under way copies the map, and the cost of a copy must not grow with all that the
//! transaction has written.
//!
//! Entries lie in blocks, in order; a copy copies the list of blocks, a change one block.

use plinth_core::Key;
use std::ops::Bound;
use std::rc::Rc;

/// Limit of entries in a block. Larger blocks make a change more expensive, smaller ones a copy.
const BLOCK_MAX: usize = 128;

#[derive(Clone, Debug)]
pub(crate) struct SharedMap<V> {
    /// No block is empty.
    blocks: Vec<Block<V>>,
}

type Block<V> = Rc<Vec<(Key, V)>>;

/// Number of a block and of an entry in it; behind the last entry, the number of blocks and 0.
type Place = (usize, usize);

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        SharedMap { blocks: Vec::new() }
    }
}

impl<V> SharedMap<V> {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The first entry whose key does not satisfy `before`. All keys that satisfy it come before the others.
    fn place(&self, before: impl Fn(&[u8]) -> bool) -> Place {
        let is_before = |(key, _): &(Key, V)| before(key);
        let in_block = |block: &Block<V>| block.last().is_some_and(is_before);
        let block = self.blocks.partition_point(in_block);
        let entry = self.blocks.get(block);
        (
            block,
            entry.map_or(0, |entries| entries.partition_point(is_before)),
        )
    }

    fn at(&self, key: &[u8]) -> Place {
        self.place(|at| at < key)
    }

    fn entry(&self, (block, entry): Place) -> Option<&(Key, V)> {
        self.blocks.get(block)?.get(entry)
    }

    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let (at, value) = self.entry(self.at(key))?;
        (at[..] == *key).then_some(value)
    }

    /// The entries with keys in the range, in order.
    pub fn range(&self, begin: Bound<&[u8]>, end: Bound<&[u8]>) -> Entries<'_, V> {
        let front = match begin {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => self.at(key),
            Bound::Excluded(key) => self.place(|at| at <= key),
        };
        let back = match end {
            Bound::Unbounded => (self.blocks.len(), 0),
            Bound::Included(key) => self.place(|at| at <= key),
            Bound::Excluded(key) => self.at(key),
        };
        Entries {
            blocks: &self.blocks,
            front,
            back,
        }
    }
}

impl<V: Clone> SharedMap<V> {
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let place = self.at(key);
        let (at, _) = self.entry(place)?;
        (at[..] == *key).then(|| &mut Rc::make_mut(&mut self.blocks[place.0])[place.1].1)
    }

    pub fn insert(&mut self, key: Key, value: V) {
        let (mut block, mut entry) = self.at(&key);
        if block == self.blocks.len() {
            // Behind the last entry: most transactions write in order, and this leaves full blocks.
            match self.blocks.last() {
                Some(last) if last.len() < BLOCK_MAX => (block, entry) = (block - 1, last.len()),
                _ => self.blocks.push(Rc::default()),
            }
        }
        let entries = Rc::make_mut(&mut self.blocks[block]);
        match entries.get_mut(entry) {
            Some((at, old)) if *at == key => *old = value,
            _ => entries.insert(entry, (key, value)),
        }
        assert!(
            entries[entry.saturating_sub(1)..]
                .iter()
                .take(3)
                .is_sorted_by(|(a, _), (b, _)| a < b),
            "entries lie in the order of their keys",
        );
        if entries.len() > BLOCK_MAX {
            let rest = entries.split_off(BLOCK_MAX / 2);
            self.blocks.insert(block + 1, Rc::new(rest));
        }
    }

    pub fn remove(&mut self, key: &[u8]) {
        let (block, entry) = self.at(key);
        if self
            .entry((block, entry))
            .is_none_or(|(at, _)| at[..] != *key)
        {
            return;
        }
        let entries = Rc::make_mut(&mut self.blocks[block]);
        entries.remove(entry);
        if entries.is_empty() {
            self.blocks.remove(block);
        }
    }

    /// Removes the entries with keys in `[begin, end)`.
    pub fn remove_range(&mut self, begin: &[u8], end: &[u8]) {
        let (from, to) = (self.at(begin), self.at(end));
        if from >= to {
            return;
        }
        if from.0 == to.0 {
            Rc::make_mut(&mut self.blocks[from.0]).drain(from.1..to.1);
            return;
        }
        if to.1 > 0 {
            Rc::make_mut(&mut self.blocks[to.0]).drain(..to.1);
        }
        let mut gone = from.0;
        if from.1 > 0 {
            Rc::make_mut(&mut self.blocks[from.0]).truncate(from.1);
            gone += 1;
        }
        self.blocks.drain(gone..to.0);
        debug_assert!(
            self.blocks.iter().all(|block| !block.is_empty()),
            "no block is empty",
        );
    }
}

pub(crate) struct Entries<'a, V> {
    blocks: &'a [Block<V>],
    front: Place,
    /// The place behind the last entry.
    back: Place,
}

impl<'a, V> Iterator for Entries<'a, V> {
    type Item = (&'a Key, &'a V);
    fn next(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let block = &self.blocks[self.front.0];
        let (key, value) = &block[self.front.1];
        self.front.1 += 1;
        if self.front.1 == block.len() {
            self.front = (self.front.0 + 1, 0);
        }
        Some((key, value))
    }
}

impl<V> DoubleEndedIterator for Entries<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        if self.back.1 == 0 {
            let before = self.back.0 - 1;
            self.back = (before, self.blocks[before].len());
        }
        self.back.1 -= 1;
        let (key, value) = &self.blocks[self.back.0][self.back.1];
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(i: u16) -> Key {
        Key::copy_from_slice(&i.to_be_bytes())
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u8),
        Run(u16),
        Remove(u16),
        RemoveRange(u16, u16),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u16..500, any::<u8>()).prop_map(|(k, v)| Step::Insert(k, v)),
            2 => (0u16..500).prop_map(Step::Run),
            4 => (0u16..500).prop_map(Step::Remove),
            2 => (0u16..500, 0u16..500).prop_map(|(a, b)| Step::RemoveRange(a, b)),
            1 => Just(Step::Copy),
        ]
    }

    fn same(map: &SharedMap<u8>, model: &BTreeMap<Key, u8>) {
        let all = || map.range(Bound::Unbounded, Bound::Unbounded);
        assert!(all().eq(model.iter()));
        assert!(all().rev().eq(model.iter().rev()));
        assert!(
            map.blocks
                .iter()
                .all(|block| (1..=BLOCK_MAX).contains(&block.len()))
        );
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map_and_a_copy_stays_as_it_was(
            steps in prop::collection::vec(step(), 0..60), bounds in prop::collection::vec((0u16..500, 0u16..500), 4),
        ) {
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(k, v) => {
                        map.insert(key(k), v);
                        model.insert(key(k), v);
                    }
                    Step::Run(k) => (k..k + 100).for_each(|k| {
                        map.insert(key(k), 1);
                        model.insert(key(k), 1);
                    }),
                    Step::Remove(k) => {
                        map.remove(&key(k));
                        model.remove(&key(k));
                    }
                    Step::RemoveRange(a, b) => {
                        map.remove_range(&key(a), &key(b));
                        model.retain(|k, _| *k < key(a) || *k >= key(b));
                    }
                    Step::Copy => copies.push((map.clone(), model.clone())),
                }
            }
            copies.push((map, model));
            for (map, model) in &mut copies {
                same(map, model);
                for (a, b) in &bounds {
                    let (a, b) = (key(*a.min(b)), key(*a.max(b)));
                    let (low, high) = (Bound::Included(&a[..]), Bound::Excluded(&b[..]));
                    let want: Vec<_> = model.iter().filter(|(k, _)| a <= **k && **k < b).collect();
                    prop_assert!(map.range(low, high).eq(want.iter().copied()));
                    prop_assert!(map.range(low, high).rev().eq(want.iter().rev().copied()));
                    let behind = map.range(Bound::Excluded(&a), Bound::Unbounded).next();
                    prop_assert_eq!(behind, model.iter().find(|(k, _)| **k > a));
                    let last = map.range(Bound::Unbounded, Bound::Included(&b)).next_back();
                    prop_assert_eq!(last, model.iter().rfind(|(k, _)| **k <= b));
                    prop_assert_eq!(map.get(&a), model.get(&a));
                    prop_assert_eq!(map.get_mut(&b).cloned(), model.get(&b).cloned());
                }
            }
        }
    }

    #[test]
    fn a_change_beside_a_copy_copies_one_block() {
        let mut map = SharedMap::default();
        (0..50_000u16).for_each(|i| map.insert(key(i.wrapping_mul(40_503)), ()));
        let copy = map.clone();
        map.insert(key(17), ());
        map.remove(&key(40_000));
        let shared = |block| copy.blocks.iter().any(|other| Rc::ptr_eq(block, other));
        let own = map.blocks.iter().filter(|block| !shared(block)).count();
        assert!(own <= 3, "{own} of {} blocks", map.blocks.len());
    }
}
