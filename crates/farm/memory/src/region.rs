//! Regions: the unit of replication. A replica lies in a slot, which is a region of the fabric.
//!
//! ```text
//!   head      magic and number | words of a slab | number of slabs        a line
//!   table     a word a slab: its class + 1, or 0: the slab is free        to a line
//!   slabs     cells of one class, one behind the other
//! ```
//!
//! What a free slab holds means nothing. A slab that is assigned to a class has cells that never had a version, then
//! its word in the table.

use crate::cell::Cell;
use crate::error::Error;
use crate::pointer::{Class, Pointer};
use plinth_farm_fabric::Memory;
use plinth_runtime::probe;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

const MAGIC: u64 = 0x504c_4e46_5247; // "PLNFRG", in the upper six bytes of the first word
const LINE_WORDS: u64 = 8;
const TABLE: u64 = LINE_WORDS;
/// The paper's: 1 MB.
pub const SLAB_WORDS: u64 = 1 << 17;
const SLAB_WORDS_MIN: u64 = 64;
const SLAB_WORDS_MAX: u64 = 1 << 27;
const REGION_WORDS_MAX: u64 = 1 << 40;

/// Where things lie in a region of a size. All numbers are words. Who reads the region of another machine needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    slabs: u32,
    slab_shift: u32,
    first: u64,
}

impl Shape {
    /// As many slabs as there is room for. Errors: [`Error::Sizes`].
    pub fn of(region_words: u64, slab_words: u64) -> Result<Shape, Error> {
        let is_size = (SLAB_WORDS_MIN..=SLAB_WORDS_MAX).contains(&slab_words);
        if !is_size || !slab_words.is_power_of_two() {
            return Err(Error::Sizes(
                "a slab has a power of two of words, 64 (512 bytes) to 128 Mi (1 GiB)",
            ));
        }
        if region_words > REGION_WORDS_MAX {
            return Err(Error::Sizes("a region has at most 2^40 words (8 TiB)"));
        }
        let first = |slabs: u64| TABLE + slabs.next_multiple_of(LINE_WORDS);
        let mut slabs = region_words.saturating_sub(TABLE) / (slab_words + 1);
        while slabs > 0 && first(slabs) + slabs * slab_words > region_words {
            slabs -= 1;
        }
        let count = u32::try_from(slabs).ok().filter(|slabs| *slabs > 0);
        let slabs = count.ok_or(Error::Sizes(
            "a region has room for 1 to 2^32 - 1 slabs and two lines (128 bytes) or more of head",
        ))?;
        Ok(Shape {
            slabs,
            slab_shift: slab_words.trailing_zeros(),
            first: first(u64::from(slabs)),
        })
    }

    #[inline]
    pub fn slabs(self) -> u32 {
        self.slabs
    }

    #[inline]
    pub fn slab_words(self) -> u64 {
        1 << self.slab_shift
    }

    /// Where the slab's word of the table is.
    #[inline]
    pub fn table_word(self, slab: u32) -> u64 {
        TABLE + u64::from(slab)
    }

    /// What a word of the table says: `None` for a free slab, or if it is none.
    #[inline]
    pub fn class_in(self, table: u64) -> Option<Class> {
        let class = table.checked_sub(1).filter(|class| *class < 256)?;
        Class::new(class as u8).filter(|class| self.cells(*class) > 0)
    }

    /// Where the slab begins.
    #[inline]
    pub fn slab_word(self, slab: u32) -> u64 {
        self.first + (u64::from(slab) << self.slab_shift)
    }

    /// How many cells of the class a slab has; 0 if they are larger than a slab.
    #[inline]
    pub fn cells(self, class: Class) -> u32 {
        (self.slab_words() / class.cell_words() as u64) as u32
    }

    /// The cell `index` of a slab of the class.
    #[inline]
    pub fn pointer(self, region: u16, class: Class, slab: u32, index: u32) -> Pointer {
        let word = self.slab_word(slab) + u64::from(index) * class.cell_words() as u64;
        Pointer::new(region, class, word)
    }

    /// Slab and index of a pointer: the reverse of [`pointer`](Shape::pointer).
    #[inline]
    pub fn place(self, pointer: Pointer) -> Result<(u32, u32), Error> {
        let word = pointer.word().checked_sub(self.first);
        let word = word.ok_or(Error::NoCell)?;
        let slab = word >> self.slab_shift;
        // Below 2^27, so that both divide fast.
        let (within, size) = (
            (word & (self.slab_words() - 1)) as u32,
            pointer.class().cell_words() as u32,
        );
        let index = within / size;
        let is_one = index * size == within && within + size <= self.slab_words() as u32;
        if slab >= u64::from(self.slabs) || !is_one {
            return Err(Error::NoCell);
        }
        Ok((slab as u32, index))
    }
}

/// Some allocated objects of a region, and where the next begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    pub pointers: Vec<Pointer>,
    /// `None` at the end of the region.
    pub next: Option<u64>,
}

/// A replica of a region. Clones are of the same memory.
#[derive(Clone)]
pub struct Region {
    memory: Memory,
    number: u16,
    shape: Shape,
}

impl Region {
    /// Makes a region without objects, whatever the memory has held. Errors: [`Error::Sizes`].
    pub fn make(memory: &Memory, number: u16, slab_words: u64) -> Result<Region, Error> {
        let words = memory.words();
        let shape = Shape::of(words.len() as u64, slab_words)?;
        // Without the magic, nobody opens it half made.
        for word in &words[..shape.first as usize] {
            word.store(0, Release);
        }
        words[1].store(slab_words, Release);
        words[2].store(u64::from(shape.slabs), Release);
        words[0].store(MAGIC << 16 | u64::from(number), Release);
        Ok(Region {
            memory: memory.clone(),
            number,
            shape,
        })
    }

    /// The region that the memory holds. Its bytes may be anything. Errors: [`Error::NoRegion`].
    pub fn open(memory: &Memory) -> Result<Region, Error> {
        let words = memory.words();
        let head = words.first_chunk::<3>().ok_or(Error::NoRegion)?;
        let [first, slab_words, slabs] = head.each_ref().map(|word| word.load(Acquire));
        let shape = Shape::of(words.len() as u64, slab_words);
        let shape = shape.map_err(|_| Error::NoRegion)?;
        let region = Region {
            memory: memory.clone(),
            number: first as u16,
            shape,
        };
        let mut table = region.table().iter().map(|word| word.load(Acquire));
        let is_one = first >> 16 == MAGIC && slabs == u64::from(shape.slabs);
        if !is_one || table.any(|word| word != 0 && shape.class_in(word).is_none()) {
            return Err(Error::NoRegion);
        }
        Ok(region)
    }

    #[inline]
    pub fn number(&self) -> u16 {
        self.number
    }

    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    #[inline]
    fn table(&self) -> &[AtomicU64] {
        &self.memory.words()[TABLE as usize..][..self.shape.slabs as usize]
    }

    /// The class of a slab's cells; `None` if it is free, or there is no such slab.
    #[inline]
    pub fn slab_class(&self, slab: u32) -> Option<Class> {
        let word = self.table().get(slab as usize)?;
        self.shape.class_in(word.load(Acquire))
    }

    /// The cell of an object. Errors: `OtherRegion`, `NoCell`, `FreeSlab`, `OtherClass`.
    #[inline]
    pub fn cell(&self, pointer: Pointer) -> Result<Cell<'_>, Error> {
        let slab = self.slab_of(pointer)?;
        match self.slab_class(slab) {
            Some(class) if class == pointer.class() => {}
            Some(_) => return Err(Error::OtherClass),
            None => return Err(Error::FreeSlab),
        }
        self.cell_in_bounds(pointer)
    }

    /// The same at a backup, which learns of a slab's class from the first object in it. A slab that has no objects
    /// left goes to the class too: its primary has died before it could say that the slab is free. Errors: as
    /// [`cell`](Region::cell), but for `FreeSlab`.
    #[inline]
    pub fn claim(&self, pointer: Pointer) -> Result<Cell<'_>, Error> {
        match self.cell(pointer) {
            Err(Error::FreeSlab) => {
                self.assign_slab(self.slab_of(pointer)?, pointer.class())?;
                self.cell_in_bounds(pointer)
            }
            Err(Error::OtherClass) if self.is_empty_slab(self.slab_of(pointer)?) => {
                probe!("farm slab taken over from another class");
                let slab = self.slab_of(pointer)?;
                self.free_slab(slab)?;
                self.assign_slab(slab, pointer.class())?;
                self.cell_in_bounds(pointer)
            }
            cell => cell,
        }
    }

    /// The slab has no objects.
    pub fn is_empty_slab(&self, slab: u32) -> bool {
        let Some(class) = self.slab_class(slab) else {
            return true;
        };
        (0..self.shape.cells(class)).all(|index| {
            let at = self.shape.pointer(self.number, class, slab, index);
            let header = self.cell_in_bounds(at).map(|cell| cell.header());
            header.is_ok_and(|header| !header.is_allocated() && !header.is_locked())
        })
    }

    #[inline]
    fn slab_of(&self, pointer: Pointer) -> Result<u32, Error> {
        if pointer.region() != self.number {
            return Err(Error::OtherRegion);
        }
        let (slab, _) = self.shape.place(pointer)?;
        Ok(slab)
    }

    #[inline]
    fn cell_in_bounds(&self, pointer: Pointer) -> Result<Cell<'_>, Error> {
        Cell::new(&self.memory, pointer.word(), pointer.class()).ok_or(Error::NoCell)
    }

    /// Gives a free slab to a class. Nobody may read or write objects in it until this has returned. Errors:
    /// `NoCell` if there is no such slab, or a cell is larger; `OtherClass` if it is not free.
    pub fn assign_slab(&self, slab: u32, class: Class) -> Result<(), Error> {
        self.assign_slab_away(slab, class, |_| false)
    }

    /// The same with some cells that are [away](Cell::is_away).
    pub fn assign_slab_away(
        &self,
        slab: u32,
        class: Class,
        is_away: impl Fn(Pointer) -> bool,
    ) -> Result<(), Error> {
        let word = self.table().get(slab as usize).ok_or(Error::NoCell)?;
        if self.shape.cells(class) == 0 {
            return Err(Error::NoCell);
        }
        if word.load(Acquire) != 0 {
            return Err(Error::OtherClass);
        }
        for index in 0..self.shape.cells(class) {
            let pointer = self.shape.pointer(self.number, class, slab, index);
            let cell = self.cell_in_bounds(pointer)?;
            match is_away(pointer) {
                true => cell.set_away(),
                false => cell.clear(),
            }
        }
        word.store(u64::from(class.number()) + 1, Release);
        Ok(())
    }

    /// Takes a slab from its class, with all that is in it: at a primary by [`Slabs::put_free`], at a backup when
    /// the primary says so. Error: `NoCell` if there is no such slab.
    ///
    /// [`Slabs::put_free`]: crate::Slabs::put_free
    pub fn free_slab(&self, slab: u32) -> Result<(), Error> {
        let word = self.table().get(slab as usize).ok_or(Error::NoCell)?;
        word.store(0, Release);
        Ok(())
    }

    /// The allocated objects in the order of their places, from the first cell that begins at `word` or behind it;
    /// 0 is the begin. Looks at `limit` cells at most.
    pub fn objects_from(&self, word: u64, limit: usize) -> Walk {
        let mut pointers = Vec::new();
        let mut left = limit.max(1);
        let within = word.saturating_sub(self.shape.first);
        let first = u32::try_from(within >> self.shape.slab_shift).unwrap_or(u32::MAX);
        for slab in first..self.shape.slabs {
            let Some(class) = self.slab_class(slab) else {
                continue;
            };
            let begin = word.saturating_sub(self.shape.slab_word(slab));
            let index = begin.div_ceil(class.cell_words() as u64);
            let index = index.min(u64::from(self.shape.cells(class))) as u32;
            for index in index..self.shape.cells(class) {
                let pointer = self.shape.pointer(self.number, class, slab, index);
                if left == 0 {
                    let next = Some(pointer.word());
                    return Walk { pointers, next };
                }
                left -= 1;
                let cell = self.cell_in_bounds(pointer);
                if cell.is_ok_and(|cell| cell.header().is_allocated()) {
                    pointers.push(pointer);
                }
            }
        }
        Walk {
            pointers,
            next: None,
        }
    }
}
