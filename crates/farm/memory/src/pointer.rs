//! Addresses of objects in the cluster's one address space, and the sizes that objects can have.

use bytes::Bytes;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
use std::fmt;

const WORD_BYTES: usize = 8;
const CLASS_SHIFT: u32 = 40;
const REGION_SHIFT: u32 = 48;
const WORD_MASK: u64 = (1 << CLASS_SHIFT) - 1;

/// Words of a cell that are not the object's: two of header before it, one of footer behind it.
pub const CELL_EXTRA_WORDS: usize = 3;
/// Number of size classes.
pub const CLASSES: u8 = 53;
/// Most bytes of an object.
pub const OBJECT_BYTES_MAX: usize = Class(CLASSES - 1).payload_bytes();

/// The size of an object's cell. Four sizes to each doubling, from 4 words to 32 Ki words (256 KiB).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Class(u8);

impl Class {
    pub fn new(class: u8) -> Option<Class> {
        (class < CLASSES).then_some(Class(class))
    }

    /// The smallest one with room for so many bytes; `None` if there is none.
    pub fn of(payload_bytes: usize) -> Option<Class> {
        if payload_bytes > OBJECT_BYTES_MAX {
            return None;
        }
        let words = (payload_bytes.div_ceil(WORD_BYTES) + CELL_EXTRA_WORDS).max(4);
        // words = (4 + step) << doubling, rounded up
        let doubling = words.ilog2() - 2;
        let class = doubling as usize * 4 + (words.div_ceil(1 << doubling) - 4);
        Class::new(class as u8)
    }

    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }

    #[inline]
    pub const fn cell_words(self) -> usize {
        (4 + self.0 as usize % 4) << (self.0 / 4)
    }

    #[inline]
    pub const fn payload_bytes(self) -> usize {
        (self.cell_words() - CELL_EXTRA_WORDS) * WORD_BYTES
    }
}

/// The place of an object, which never changes while it is allocated (§3.1). It tells the size, so that one operation
/// of the fabric reads the object.
///
/// ```text
///   region 16 | class 8 | word of the region 40        all zeros: no object
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(u64);

impl Pointer {
    pub const NULL: Pointer = Pointer(0);

    /// `word` is where the cell begins. No cell begins at word 0, where the head of a region is.
    pub fn new(region: u16, class: Class, word: u64) -> Pointer {
        assert!(0 < word && word <= WORD_MASK, "a place of a cell");
        Pointer(u64::from(region) << REGION_SHIFT | u64::from(class.0) << CLASS_SHIFT | word)
    }

    /// From [`bits`](Pointer::bits), which may come from anywhere. Null is no object.
    pub fn from_bits(bits: u64) -> Option<Pointer> {
        let class = Class::new((bits >> CLASS_SHIFT) as u8);
        (bits & WORD_MASK != 0 && class.is_some()).then_some(Pointer(bits))
    }

    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub fn region(self) -> u16 {
        (self.0 >> REGION_SHIFT) as u16
    }

    #[inline]
    pub fn class(self) -> Class {
        Class((self.0 >> CLASS_SHIFT) as u8)
    }

    #[inline]
    pub fn word(self) -> u64 {
        self.0 & WORD_MASK
    }
}

/// Null, too.
impl Codec for Pointer {
    const LEAST: usize = 8;

    fn put(&self, out: &mut Output) {
        self.0.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Pointer> {
        match u64::take(input)? {
            0 => Some(Pointer::NULL),
            bits => Pointer::from_bits(bits),
        }
    }

    fn draw(source: &mut dyn Source) -> Pointer {
        Pointer::from_bits(u64::draw(source)).unwrap_or(Pointer::NULL)
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            return f.write_str("null");
        }
        let bytes = self.class().payload_bytes();
        write!(f, "{}:{}({bytes})", self.region(), self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_class_of_a_size_is_the_smallest_with_room() {
        for bytes in 0..=OBJECT_BYTES_MAX {
            let class = Class::of(bytes).expect("within the greatest");
            assert!(class.payload_bytes() >= bytes);
            let smaller = class.0.checked_sub(1).map(|c| Class(c).payload_bytes());
            assert!(smaller.is_none_or(|smaller| smaller < bytes));
        }
        assert_eq!(Class::of(OBJECT_BYTES_MAX + 1), None);
    }

    proptest! {
        #[test]
        fn a_pointer_keeps_its_parts(region: u16, class in 0..CLASSES, word in 1..=WORD_MASK) {
            let class = Class::new(class).expect("a class");
            let pointer = Pointer::new(region, class, word);
            prop_assert_eq!((pointer.region(), pointer.class(), pointer.word()), (region, class, word));
            prop_assert_eq!(Pointer::from_bits(pointer.bits()), Some(pointer));
        }

        #[test]
        fn any_bits_are_a_pointer_or_none(bits: u64) {
            if let Some(pointer) = Pointer::from_bits(bits) {
                prop_assert!(pointer.class().payload_bytes() <= OBJECT_BYTES_MAX && !pointer.is_null());
            }
        }
    }
}
