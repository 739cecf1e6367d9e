//! Sets of small numbers whose smallest is found by looking at one word a level.

const BITS: usize = 64;

/// A set of numbers below a size. A bit of a level says that the word of that place in the level below is not 0.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    /// The lowest first. The highest is one word.
    levels: Vec<Vec<u64>>,
    len: u32,
}

impl Bitmap {
    /// The empty set of numbers below `size`, which is not 0.
    pub fn new(size: u32) -> Bitmap {
        let mut levels = vec![vec![0; (size as usize).div_ceil(BITS)]];
        while let Some(words) = levels.last().map(Vec::len).filter(|words| *words > 1) {
            levels.push(vec![0; words.div_ceil(BITS)]);
        }
        Bitmap { levels, len: 0 }
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        let number = number as usize;
        let word = self.levels[0].get(number / BITS);
        word.is_some_and(|word| word >> (number % BITS) & 1 != 0)
    }

    #[inline]
    pub fn first(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * BITS + word.trailing_zeros() as usize;
        }
        Some(at as u32)
    }

    /// False if it was in the set before. `number` is below the size.
    #[inline]
    pub fn insert(&mut self, number: u32) -> bool {
        if self.contains(number) {
            return false;
        }
        let mut at = number as usize;
        for level in &mut self.levels {
            let word = &mut level[at / BITS];
            let was = *word;
            *word |= 1 << (at % BITS);
            if was != 0 {
                break;
            }
            at /= BITS;
        }
        self.len += 1;
        true
    }

    /// False if it was not in the set.
    #[inline]
    pub fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        let mut at = number as usize;
        for level in &mut self.levels {
            let word = &mut level[at / BITS];
            *word &= !(1 << (at % BITS));
            if *word != 0 {
                break;
            }
            at /= BITS;
        }
        self.len -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Bitmap;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_bitmap_is_a_set(
            size in prop_oneof![1..70u32, 4000..4200u32, 262_100..262_200u32],
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<bool>()), 0..200),
        ) {
            let (mut bitmap, mut set) = (Bitmap::new(size), BTreeSet::new());
            for (inserts, index, near) in steps {
                // Some often, the others anywhere.
                let number = index.index(if near { size.min(4) } else { size } as usize) as u32;
                if inserts {
                    prop_assert_eq!(bitmap.insert(number), set.insert(number));
                } else {
                    prop_assert_eq!(bitmap.remove(number), set.remove(&number));
                }
                prop_assert_eq!(bitmap.first(), set.first().copied());
                prop_assert_eq!(bitmap.len() as usize, set.len());
                prop_assert_eq!(bitmap.contains(number), inserts);
            }
            while let Some(first) = set.pop_first() {
                prop_assert_eq!(bitmap.first(), Some(first));
                prop_assert!(bitmap.remove(first));
            }
            prop_assert_eq!((bitmap.first(), bitmap.len()), (None, 0));
        }
    }

    #[test]
    fn numbers_beyond_the_size_are_in_no_set() {
        let bitmap = Bitmap::new(64);
        assert!(!bitmap.contains(64) && !bitmap.contains(u32::MAX));
    }
}
