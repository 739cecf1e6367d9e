//! How an object of a structure lies in its bytes: a few records behind a table of where they end.
//!
//! ```text
//!   kind 1 | level 1 | records 2 | zeros 4 | mark 8 | end of each record 4 … | records …    little-endian
//! ```
//!
//! The mark is a random number that a structure was given when it was made. It tells its objects from all others, and
//! from bytes that somebody else has chosen: a pointer from an old cache may lead into anything, also into the middle
//! of a client's value. The mark is never shown to anybody. Bytes come from memory that may be damaged: every
//! access is checked, and nothing panics.

use bytes::Bytes;
use plinth_farm_memory::Pointer;
use plinth_runtime::random;
use std::ops::Range;

const HEAD_BYTES: usize = 16;
/// What a record costs beside its bytes.
pub const RECORD_BYTES: usize = 4;

/// The first byte of an object of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Leaf = 0xa1,
    Inner = 0xa2,
    TreeRoot = 0xa3,
    Bucket = 0xa4,
    Overflow = 0xa5,
    TableRoot = 0xa6,
    Directory = 0xa7,
    Value = 0xa8,
}

/// What the objects of a structure have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl Mark {
    pub const BYTES: usize = 8;

    pub fn random() -> Mark {
        Mark(random::u64())
    }

    /// That of a root object alone: it must be known before the object is read.
    pub fn of_root(at: Pointer) -> Mark {
        Mark(at.bits())
    }

    pub fn pack(self) -> [u8; Mark::BYTES] {
        self.0.to_le_bytes()
    }

    pub fn take(bytes: &[u8]) -> Option<(Mark, &[u8])> {
        take_u64(bytes).map(|(mark, rest)| (Mark(mark), rest))
    }
}

/// Bytes of a page of so many records with so many bytes in all.
pub const fn page_bytes(records: usize, bytes: usize) -> usize {
    HEAD_BYTES + records * RECORD_BYTES + bytes
}

/// A page whose head has been checked.
#[derive(Clone, Debug)]
pub struct Page {
    bytes: Bytes,
    count: usize,
}

impl Page {
    /// None if these are not the bytes of a page of this kind with this mark.
    #[inline]
    pub fn parse(bytes: Bytes, kind: Kind, mark: Mark) -> Option<Page> {
        let head = bytes.get(..HEAD_BYTES)?;
        let count = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let is_ours = head[0] == kind as u8 && head[8..] == mark.pack();
        let has_table = HEAD_BYTES + count * RECORD_BYTES <= bytes.len();
        (is_ours && has_table).then_some(Page { bytes, count })
    }

    #[inline]
    pub fn level(&self) -> u8 {
        self.bytes[1]
    }

    /// Number of records.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn end(&self, i: usize) -> Option<usize> {
        let at = HEAD_BYTES + i * RECORD_BYTES;
        let end = self.bytes.get(at..at + RECORD_BYTES)?;
        Some(u32::from_le_bytes(end.try_into().ok()?) as usize)
    }

    #[inline]
    fn place(&self, i: usize) -> Option<Range<usize>> {
        if i >= self.count {
            return None;
        }
        let table_end = HEAD_BYTES + self.count * RECORD_BYTES;
        let begin = if i == 0 { table_end } else { self.end(i - 1)? };
        let end = self.end(i)?;
        (table_end <= begin && begin <= end && end <= self.bytes.len()).then_some(begin..end)
    }

    #[inline]
    pub fn record(&self, i: usize) -> Option<&[u8]> {
        self.place(i).map(|place| &self.bytes[place])
    }

    /// The bytes `within` of record `i`, which go on sharing the memory of the page.
    #[inline]
    pub fn part(&self, i: usize, within: Range<usize>) -> Option<Bytes> {
        let place = self.place(i)?;
        let is_inside = within.start <= within.end && within.end <= place.len();
        is_inside.then(|| {
            self.bytes
                .slice(place.start + within.start..place.start + within.end)
        })
    }

    #[inline]
    pub fn whole(&self, i: usize) -> Option<Bytes> {
        self.place(i).map(|place| self.bytes.slice(place))
    }
}

/// Writes a page.
pub struct PageWriter {
    bytes: Vec<u8>,
    records: usize,
    written: usize,
}

impl PageWriter {
    /// A page of exactly so many records, and about so many bytes.
    pub fn new(kind: Kind, level: u8, mark: Mark, records: usize, bytes: usize) -> PageWriter {
        assert!(records <= usize::from(u16::MAX), "a page of 65,535 records");
        let mut page = Vec::with_capacity(bytes);
        page.extend_from_slice(&[kind as u8, level]);
        page.extend_from_slice(&(records as u16).to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&mark.pack());
        page.resize(HEAD_BYTES + records * RECORD_BYTES, 0);
        PageWriter {
            bytes: page,
            records,
            written: 0,
        }
    }

    /// The next record, in parts.
    pub fn record(&mut self, parts: &[&[u8]]) {
        assert!(self.written < self.records, "as many records as were said");
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        let at = HEAD_BYTES + self.written * RECORD_BYTES;
        let end = (self.bytes.len() as u32).to_le_bytes();
        self.bytes[at..at + RECORD_BYTES].copy_from_slice(&end);
        self.written += 1;
    }

    pub fn finish(self) -> Bytes {
        assert_eq!(self.written, self.records, "as many records as were said");
        Bytes::from(self.bytes)
    }
}

/// A number at the begin of `bytes`, and what is behind it.
#[inline]
pub fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (head, rest) = bytes.split_at_checked(N)?;
    Some((head.try_into().ok()?, rest))
}

#[inline]
pub fn take_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    take(bytes).map(|(head, rest)| (u16::from_le_bytes(head), rest))
}

#[inline]
pub fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    take(bytes).map(|(head, rest)| (u32::from_le_bytes(head), rest))
}

#[inline]
pub fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    take(bytes).map(|(head, rest)| (u64::from_le_bytes(head), rest))
}

/// Writes numbers of four bytes, one behind the other.
pub fn put_numbers(packed: &mut [u8], numbers: &[usize]) {
    for (place, number) in packed.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&(*number as u32).to_le_bytes());
    }
}

pub fn take_numbers<const N: usize>(mut bytes: &[u8]) -> Option<([usize; N], &[u8])> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (word, rest) = take_u32(bytes)?;
        (*number, bytes) = (word as usize, rest);
    }
    Some((numbers, bytes))
}

/// An object's place, not null.
#[inline]
pub fn take_pointer(bytes: &[u8]) -> Option<(Pointer, &[u8])> {
    let (bits, rest) = take_u64(bytes)?;
    Some((Pointer::from_bits(bits)?, rest))
}

/// An object's place, or null.
#[inline]
pub fn take_link(bytes: &[u8]) -> Option<(Pointer, &[u8])> {
    let (bits, rest) = take_u64(bytes)?;
    let pointer = if bits == 0 {
        Some(Pointer::NULL)
    } else {
        Pointer::from_bits(bits)
    };
    Some((pointer?, rest))
}
