//! How regions lie in memory, as far as their backups need to know, and how they are cut up for the disk.

use crate::Error;
use crate::backup::blocks::{BLOCK_HEAD_BYTES, OBJECT_HEAD_BYTES};
use plinth_farm_memory::{CLASSES, Class, Pointer};

const WORD_BYTES: u64 = 8;
/// Blocks of a group, so that two bytes tell them and "none" apart.
const BLOCKS_MAX: u64 = u16::MAX as u64;
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=64 << 10;

/// The sizes with which backups are made (§4.9). They stay what they are as long as the backups live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Words of a region before its first slab.
    pub head_words: u64,
    /// Words of a slab. Its cells lie one behind the other from its first word on.
    pub slab_words: u64,
    /// Slabs of a subregion, whose objects share a group of extents.
    pub subregion_slabs: u32,
    /// Bytes of a block: what one read of the disk brings.
    pub block_bytes: u32,
    /// Blocks of an extent: what is cleaned at once.
    pub extent_blocks: u32,
    /// Most extents of a group. With less than 256 blocks in all, the map has one byte an object, otherwise two.
    pub group_extents: u32,
}

/// What shares a group of extents: a region, and a subregion of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    pub region: u16,
    pub subregion: u32,
}

/// Where an object stands in the maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub key: Key,
    /// Of the subregion.
    pub slab: u32,
    pub class: Class,
    /// Of the slab, if its objects are of this class.
    pub cell: u32,
}

impl Layout {
    /// Two bytes an object and reads of 4 KiB: subregions of 128 slabs, in extents of at least a MiB that are at most
    /// half full if all of the memory is allocated.
    pub fn of(head_words: u64, slab_words: u64) -> Layout {
        Layout {
            head_words,
            slab_words,
            subregion_slabs: ((16 << 20) / slab_words.max(1)).clamp(1, 1 << 16) as u32,
            block_bytes: 4 << 10,
            extent_blocks: 256,
            group_extents: 255,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !BLOCK_BYTES.contains(&self.block_bytes) {
            return Err(Error::refused("a block has 512 to 65536 bytes"));
        }
        if !(1..=BLOCKS_MAX).contains(&self.group_blocks()) {
            return Err(Error::refused("a group has 1 to 65535 blocks"));
        }
        let capacity = u64::from(self.group_extents) * self.extent_capacity() as u64;
        let memory = u64::from(self.subregion_slabs) * WORD_BYTES;
        let memory = memory.saturating_mul(self.slab_words);
        let largest = (0..CLASSES).filter_map(Class::new);
        let largest = largest.filter(|class| class.cell_words() as u64 <= self.slab_words);
        let largest = largest.map(|class| class.payload_bytes()).max();
        let refusal = match largest {
            None => "no object has room in a slab",
            Some(_) if self.slab_words > u32::MAX.into() => "a slab is too large",
            Some(bytes) if self.extent_capacity() < bytes + OBJECT_HEAD_BYTES => {
                "the largest object has no room in an extent"
            }
            Some(_) if self.subregion_slabs == 0 || capacity - capacity / 5 < memory => {
                "a group of extents has less than 5/4 of the bytes of a subregion"
            }
            Some(_) => return Ok(()),
        };
        Err(Error::refused(refusal))
    }

    pub(crate) fn group_blocks(&self) -> u64 {
        u64::from(self.extent_blocks) * u64::from(self.group_extents)
    }

    pub(crate) fn extent_bytes(&self) -> u64 {
        u64::from(self.extent_blocks) * u64::from(self.block_bytes)
    }

    /// Bytes of an extent that objects can have.
    pub(crate) fn extent_capacity(&self) -> usize {
        self.extent_blocks as usize * (self.block_bytes as usize - BLOCK_HEAD_BYTES)
    }

    /// Cells of a slab.
    pub(crate) fn cells(&self, class: Class) -> usize {
        self.slab_words as usize / class.cell_words()
    }

    /// The slab that holds a word: its subregion, and its number there.
    pub(crate) fn slab(&self, region: u16, word: u64) -> Option<(Key, u32)> {
        let slab = word.checked_sub(self.head_words)? / self.slab_words;
        let slabs = u64::from(self.subregion_slabs);
        let subregion = u32::try_from(slab / slabs).ok()?;
        let key = Key { region, subregion };
        Some((key, (slab % slabs) as u32))
    }

    /// `None` if no cell of this class begins there.
    pub(crate) fn place(&self, pointer: Pointer) -> Option<Place> {
        if pointer.is_null() {
            return None;
        }
        let (key, slab) = self.slab(pointer.region(), pointer.word())?;
        let within = (pointer.word() - self.head_words) % self.slab_words;
        let class = pointer.class();
        let words = class.cell_words() as u64;
        let is_cell = within.is_multiple_of(words) && within + words <= self.slab_words;
        let cell = (within / words) as u32;
        is_cell.then_some(Place {
            key,
            slab,
            class,
            cell,
        })
    }
}
