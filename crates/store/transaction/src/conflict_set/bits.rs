//! A set of small integers that finds its next member in a handful of steps, however sparse.
//!
//! Level 0 has a bit a member; a bit of a higher level says that the 64-bit word below it is not empty.

/// A set of integers below a bound.
#[derive(Default)]
pub(super) struct BitTree {
    levels: Vec<Vec<u64>>,
}

impl BitTree {
    /// Makes it the empty set, or the full one, of integers below `bound`.
    pub(super) fn reset(&mut self, bound: usize, full: bool) {
        let mut bits = bound.max(1);
        let mut depth = 0;
        loop {
            if self.levels.len() == depth {
                self.levels.push(Vec::new());
            }
            let words = bits.div_ceil(64);
            let level = &mut self.levels[depth];
            level.clear();
            level.resize(words, if full { u64::MAX } else { 0 });
            if full {
                level[words - 1] = u64::MAX >> (words * 64 - bits);
            }
            depth += 1;
            if words == 1 {
                break;
            }
            bits = words;
        }
        self.levels.truncate(depth);
        if full && bound == 0 {
            self.levels[0][0] = 0;
        }
    }

    pub(super) fn insert(&mut self, mut at: usize) {
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    pub(super) fn remove(&mut self, mut at: usize) {
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The least member that is not below `from`.
    #[inline]
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let word = self.levels[0].get(from / 64)? >> (from % 64);
        if word != 0 {
            return Some(from + word.trailing_zeros() as usize);
        }
        self.next_beyond_word(from)
    }

    fn next_beyond_word(&self, from: usize) -> Option<usize> {
        let mut at = from / 64 + 1;
        let mut depth = 1;
        // Up until a word has something at or after `at`, then down to its least member.
        let mut found = loop {
            let word = self.levels.get(depth)?.get(at / 64)? >> (at % 64);
            if word != 0 {
                break at + word.trailing_zeros() as usize;
            }
            at = at / 64 + 1;
            depth += 1;
        };
        for level in self.levels[..depth].iter().rev() {
            found = found * 64 + level[found].trailing_zeros() as usize;
        }
        Some(found)
    }

    /// Whether a member lies in `[from, to)`.
    #[inline]
    pub(super) fn any(&self, from: usize, to: usize) -> bool {
        if from / 64 == (to - 1) / 64 {
            let mask = (u64::MAX >> (63 - (to - 1) % 64)) & (u64::MAX << (from % 64));
            return self.levels[0][from / 64] & mask != 0;
        }
        self.next(from).is_some_and(|found| found < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_agrees_with_an_ordered_set_at_every_size() {
        for bound in [1, 2, 63, 64, 65, 4095, 4096, 4097, 70_000] {
            let mut tree = BitTree::default();
            let mut model = BTreeSet::new();
            tree.reset(bound, false);
            for i in 0..bound.min(500) {
                let at = (i * 7919 + i * i * 31) % bound;
                if i % 3 == 2 {
                    tree.remove(at);
                    model.remove(&at);
                } else {
                    tree.insert(at);
                    model.insert(at);
                }
                let from = (i * 104_729) % bound;
                assert_eq!(tree.next(from), model.range(from..).next().copied());
                let to = from + 1 + (i * 17) % (bound - from);
                assert_eq!(tree.any(from, to), model.range(from..to).next().is_some());
            }
        }
    }

    #[test]
    fn a_full_set_has_every_integer_below_its_bound_and_no_other() {
        for bound in [0, 1, 64, 100, 4096, 5000] {
            let mut tree = BitTree::default();
            tree.reset(bound, true);
            let mut at = 0;
            while let Some(found) = tree.next(at) {
                assert_eq!(found, at);
                at += 1;
            }
            assert_eq!(at, bound);
            (0..bound).for_each(|i| tree.remove(i));
            assert_eq!(tree.next(0), None);
        }
    }
}
