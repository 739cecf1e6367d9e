//! Messages of one sender in the memory of one receiver (FaRM's ring buffers).
//!
//! ```text
//!   head line:  freed | taken                   written by the receiver, one line of cache
//!   data:       …| seal | configuration | bytes, filled up to a word |…        a record
//!   seal:       crc32c of (position, configuration, length, bytes) << 32 | length + 1
//! ```
//!
//! Positions count words since the ring was made and never go back; a record lies at its position modulo the size of
//! the data. The sender writes the seal last, so a record is there as a whole or not at all: what a sender left that
//! died before is not sealed, and the next one writes over it. A record of an earlier lap has another position in its
//! seal. The receiver zeroes what it frees; so an empty ring costs it one load.
//!
//! A message stays in the ring until the receiver frees it: if the receiver dies while it works on a message, its next
//! life finds it again. `taken` goes ahead of `freed` while words are zeroed, for two readers: the next life of the
//! receiver, which finishes that, and the next life of the sender, which looks for the end of the records and must
//! not take zeroed ones for it.

use crate::address::{Error, MESSAGE_BYTES_MAX, WORD_BYTES};
use crate::memory::{Memory, word_of};
use bytes::Bytes;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Words before the data.
pub const HEAD_WORDS: usize = 8;
const FREED: usize = 0;
const TAKEN: usize = 1;
/// Seal and configuration.
const RECORD_HEAD_WORDS: usize = 2;

#[derive(Clone)]
pub struct Ring(Memory);

/// The sender's side.
pub struct Tail {
    ring: Ring,
    position: Cell<u64>,
}

/// The receiver's side.
pub struct Reader {
    ring: Ring,
    /// Of the next record.
    position: Cell<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub configuration: u64,
    pub body: Bytes,
    /// The position behind it.
    pub end: u64,
}

fn record_words(bytes: usize) -> usize {
    RECORD_HEAD_WORDS + bytes.div_ceil(WORD_BYTES)
}

fn seal(position: u64, configuration: u64, body: &[u8]) -> u64 {
    let mut head = [0; 20];
    head[..8].copy_from_slice(&position.to_le_bytes());
    head[8..16].copy_from_slice(&configuration.to_le_bytes());
    head[16..].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), body);
    u64::from(crc) << 32 | (body.len() as u64 + 1)
}

impl Ring {
    /// The memory has more than [`HEAD_WORDS`] words.
    pub fn new(memory: Memory) -> Ring {
        assert!(memory.words().len() > HEAD_WORDS, "a ring has data");
        Ring(memory)
    }

    fn head(&self, which: usize) -> &AtomicU64 {
        &self.0.words()[which]
    }

    fn data(&self) -> &[AtomicU64] {
        &self.0.words()[HEAD_WORDS..]
    }

    fn place(&self, position: u64) -> usize {
        (position % self.data().len() as u64) as usize
    }

    /// The words from `position` on, once around.
    fn from(&self, position: u64) -> impl Iterator<Item = &AtomicU64> {
        let (before, after) = self.data().split_at(self.place(position));
        after.iter().chain(before)
    }

    /// The record at `position`, if a whole one is there.
    fn record(&self, position: u64) -> Option<Record> {
        let mut words = self.from(position);
        let found = words.next()?.load(Acquire);
        let bytes = (found as u32).checked_sub(1)? as usize;
        let needed = record_words(bytes);
        if bytes > MESSAGE_BYTES_MAX || needed > self.data().len() {
            return None;
        }
        let configuration = words.next()?.load(Acquire);
        let mut body = Vec::with_capacity(bytes.next_multiple_of(WORD_BYTES));
        for word in words.take(needed - RECORD_HEAD_WORDS) {
            body.extend_from_slice(&word.load(Acquire).to_le_bytes());
        }
        body.truncate(bytes);
        // Judged on the copy: the memory may change.
        (seal(position, configuration, &body) == found).then(|| Record {
            configuration,
            body: body.into(),
            end: position.wrapping_add(needed as u64),
        })
    }

    fn zero(&self, from: u64, to: u64) {
        for word in self.from(from).take(to.wrapping_sub(from) as usize) {
            word.store(0, Release);
        }
    }
}

impl Tail {
    /// Behind the last whole record. The former sender has died; the receiver may be at work.
    pub fn find(ring: Ring) -> Tail {
        let mut position = ring.head(TAKEN).load(Acquire);
        // No more records than words: a receiver that is none must not keep this busy for ever.
        for _ in 0..ring.data().len() {
            if let Some(record) = ring.record(position) {
                position = record.end;
                continue;
            }
            // A record that the receiver zeroes meanwhile is none any more. It says so before.
            let taken = ring.head(TAKEN).load(Acquire);
            if (taken.wrapping_sub(position) as i64) <= 0 {
                break;
            }
            position = taken;
        }
        Tail {
            ring,
            position: Cell::new(position),
        }
    }

    /// Behind the last record.
    pub fn position(&self) -> u64 {
        self.position.get()
    }

    pub fn append(&self, configuration: u64, body: &[u8]) -> Result<(), Error> {
        let (data, position) = (self.ring.data(), self.position.get());
        let needed = record_words(body.len());
        if body.len() > MESSAGE_BYTES_MAX || needed > data.len() {
            return Err(Error::TooLarge);
        }
        let used = position.wrapping_sub(self.ring.head(FREED).load(Acquire));
        let Some(free) = (data.len() as u64).checked_sub(used) else {
            return Err(Error::Damaged);
        };
        if needed as u64 > free {
            return Err(Error::Full);
        }
        let mut words = self.ring.from(position);
        let first = words.next().expect("a ring has data");
        let rest = body.chunks(WORD_BYTES).map(word_of);
        for (word, value) in words.zip(std::iter::once(configuration).chain(rest)) {
            word.store(value, Release);
        }
        first.store(seal(position, configuration, body), Release);
        self.position.set(position.wrapping_add(needed as u64));
        Ok(())
    }
}

impl Reader {
    /// Continues where the former receiver has freed. Fails if the ring contradicts itself.
    pub fn recover(ring: Ring) -> Result<Reader, Error> {
        let freed = ring.head(FREED).load(Acquire);
        let taken = ring.head(TAKEN).load(Acquire);
        if taken.wrapping_sub(freed) > ring.data().len() as u64 {
            return Err(Error::Damaged);
        }
        ring.zero(freed, taken);
        ring.head(FREED).store(taken, Release);
        Ok(Reader {
            ring,
            position: Cell::new(taken),
        })
    }

    /// The next message, if it is there.
    #[inline]
    pub fn next(&self) -> Option<Record> {
        let record = self.peek()?;
        self.position.set(record.end);
        Some(record)
    }

    /// The same, and it stays the next.
    #[inline]
    pub fn peek(&self) -> Option<Record> {
        let position = self.position.get();
        let data = self.ring.data();
        if data[self.ring.place(position)].load(Acquire) == 0 {
            return None;
        }
        let record = self.ring.record(position)?;
        // More than the data has room for beside what was not freed: only a damaged ring has that.
        let held = record.end.wrapping_sub(self.freed());
        (held <= data.len() as u64).then_some(record)
    }

    fn freed(&self) -> u64 {
        self.ring.head(FREED).load(Acquire)
    }

    /// Gives the sender the room of everything before `end`, the end of a message that was taken here.
    pub fn free(&self, end: u64) {
        let freed = self.freed();
        let (asked, most) = (
            end.wrapping_sub(freed),
            self.position.get().wrapping_sub(freed),
        );
        if asked > most || most > self.ring.data().len() as u64 {
            return; // freed before, or not from here
        }
        self.ring.head(TAKEN).store(end, Release);
        self.ring.zero(freed, end);
        self.ring.head(FREED).store(end, Release);
    }
}
