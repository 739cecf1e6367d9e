//! Sizes of a machine's memory, and where its slots and old versions are in the fabric.

use crate::error::Error;
use crate::old::{self, BLOCK_WORDS};
use crate::pointer::{CELL_EXTRA_WORDS, CLASSES, Class};
use crate::region::{SLAB_WORDS, Shape};
use plinth_farm_fabric::REGIONS_MAX;

/// Sizes that the machines of a cluster share, in words of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Replicas of regions that a machine has room for.
    pub slots: u16,
    pub region_words: u64,
    /// A power of two.
    pub slab_words: u64,
    /// Of all old versions of a machine; 0 for none (single-version mode).
    pub old_words: u64,
    pub block_words: u64,
}

impl Sizes {
    /// Slabs and blocks of the paper's size.
    pub fn new(slots: u16, region_words: u64, old_words: u64) -> Sizes {
        Sizes {
            slots,
            region_words,
            slab_words: SLAB_WORDS,
            old_words,
            block_words: BLOCK_WORDS,
        }
    }

    /// Whether there is such a memory, and room for an old version of every object. Errors: [`Error::Sizes`].
    pub fn check(&self) -> Result<(), Error> {
        let shape = self.shape()?;
        if usize::from(self.slots) >= REGIONS_MAX {
            return Err(Error::Sizes("a machine has at most 1023 slots"));
        }
        let blocks = old::blocks(self.old_words, self.block_words)?;
        if self.old_words > 0 && blocks == 0 {
            return Err(Error::Sizes(
                "old versions have no words, or those of one block or more",
            ));
        }
        let classes = (0..CLASSES).filter_map(Class::new);
        let largest = classes.filter(|class| shape.cells(*class) > 0).max();
        let words = largest.map_or(0, |class| class.cell_words() - CELL_EXTRA_WORDS + 2);
        if self.old_words > 0 && self.block_words < words as u64 {
            return Err(Error::Sizes(
                "a block of old versions has at least the words of a slab, or 32 Ki (256 KiB)",
            ));
        }
        Ok(())
    }

    pub fn shape(&self) -> Result<Shape, Error> {
        Shape::of(self.region_words, self.slab_words)
    }

    /// The sizes of the fabric's regions: the slots, then the old versions.
    pub fn region_words(&self) -> Vec<u64> {
        let mut words = vec![self.region_words; usize::from(self.slots)];
        words.push(self.old_words);
        words
    }

    /// The fabric's number of a slot; `None` if there are fewer.
    pub fn slot(&self, slot: u16) -> Option<u16> {
        (slot < self.slots).then_some(slot)
    }

    /// The fabric's number of the old versions.
    pub fn old(&self) -> u16 {
        self.slots
    }
}
