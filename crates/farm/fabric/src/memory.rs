//! A range of words that others may read and write at the same time.

use crate::address::{Error, OPERATION_BYTES_MAX, WORD_BYTES};
use plinth_runtime::memory::Mapping;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// A view of words of a mapping. Clones view the same words.
///
/// Order: words of one read or write are taken one after another, in the order of their addresses. Each store
/// releases and each load acquires. So who has seen a word sees, in what it loads afterwards, everything that the
/// word's writer had stored before. Within one read, a word may be newer than those behind it and older than those
/// before it: a read is torn between words, never within one.
#[derive(Clone)]
pub struct Memory {
    mapping: Mapping,
    first: usize,
    len: usize,
}

impl Memory {
    /// Memory of this process alone, all zeros. `words` is not 0.
    pub fn private(words: usize) -> Memory {
        Memory::new(Mapping::private(words))
    }

    pub(crate) fn new(mapping: Mapping) -> Memory {
        let len = mapping.words().len();
        Memory {
            mapping,
            first: 0,
            len,
        }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The words `first..first + len` of this view; `None` if it has fewer.
    pub(crate) fn part(&self, first: usize, len: usize) -> Option<Memory> {
        let end = first.checked_add(len)?;
        (end <= self.len).then(|| Memory {
            mapping: self.mapping.clone(),
            first: self.first + first,
            len,
        })
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        &self.mapping.words()[self.first..self.first + self.len]
    }

    /// Takes the room for these words of a [sparse](crate::Local::start_sparse) memory. Errors: as
    /// [`Mapping::reserve`].
    pub async fn reserve(&self) -> io::Result<()> {
        let (first, end) = (self.first, self.first + self.len);
        self.mapping.reserve(first..end).await
    }

    /// Gives their room back. What they hold afterwards means nothing.
    pub async fn release(&self) -> io::Result<()> {
        let (first, end) = (self.first, self.first + self.len);
        self.mapping.release(first..end).await
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        (self.len * WORD_BYTES) as u64
    }

    /// The words of a range in bytes.
    #[inline]
    fn range(&self, offset: u64, bytes: usize) -> Result<&[AtomicU64], Error> {
        if !offset.is_multiple_of(WORD_BYTES as u64) || !bytes.is_multiple_of(WORD_BYTES) {
            return Err(Error::Unaligned);
        }
        if bytes > OPERATION_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let first = usize::try_from(offset).map_err(|_| Error::OutOfBounds)? / WORD_BYTES;
        let end = first + bytes / WORD_BYTES; // of words: far from the greatest number
        if end > self.len {
            return Err(Error::OutOfBounds);
        }
        let words = self
            .mapping
            .words()
            .get(self.first + first..self.first + end);
        words.ok_or(Error::OutOfBounds)
    }

    /// Fills `into` with the bytes from `offset` on.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let words = self.range(offset, into.len())?;
        for (bytes, word) in into.chunks_exact_mut(WORD_BYTES).zip(words) {
            bytes.copy_from_slice(&word.load(Acquire).to_le_bytes());
        }
        Ok(())
    }

    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let words = self.range(offset, from.len())?;
        for (bytes, word) in from.chunks_exact(WORD_BYTES).zip(words) {
            word.store(word_of(bytes), Release);
        }
        Ok(())
    }

    /// Stores `new` if the word is `expected`. Returns what it was.
    #[inline]
    pub fn compare_and_swap(&self, offset: u64, expected: u64, new: u64) -> Result<u64, Error> {
        let word = &self.range(offset, WORD_BYTES)?[0];
        let swapped = word.compare_exchange(expected, new, AcqRel, Acquire);
        Ok(swapped.unwrap_or_else(|found| found))
    }
}

/// The word of up to eight bytes, filled up with zeros.
#[inline]
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
