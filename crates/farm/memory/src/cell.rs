//! Cells: an object's newest version, which others read while it is replaced (§4.4).
//!
//! ```text
//!   header | older | payload … | footer          a word each, but for the payload
//! ```
//!
//! Readers load the words in this order. A writer stores the footer first and the header last. Each load acquires and
//! each store releases, so a reader that has seen one word of a newer version than the header's sees a newer footer.
//! Equal timestamps in front and behind are one version, whatever the reader and the writer did in between.

use crate::pointer::{CELL_EXTRA_WORDS, Class};
use bytes::Bytes;
use plinth_farm_fabric::Memory;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(crate) const WORD_BYTES: usize = 8;
/// Words before the payload.
pub(crate) const FRONT_WORDS: usize = 2;
const LOCKED: u64 = 1 << 63;
const ALLOCATED: u64 = 1 << 62;
/// Greatest timestamp, in nanoseconds: 146 years.
pub const TIMESTAMP_MAX: u64 = ALLOCATED - 1;

const _: () = assert!(LOCKED & ALLOCATED == 0 && (LOCKED | ALLOCATED) & TIMESTAMP_MAX == 0);

/// The first word of a cell.
///
/// ```text
///   lock 1 | allocated 1 | timestamp 62          the write timestamp of the version, in ns; 0: there was never one
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header(u64);

impl Header {
    /// Of a version that nobody has locked. `timestamp` is not above [`TIMESTAMP_MAX`].
    #[inline]
    pub fn new(timestamp: u64, allocated: bool) -> Header {
        assert!(timestamp <= TIMESTAMP_MAX, "a timestamp has 62 bits");
        Header(timestamp | if allocated { ALLOCATED } else { 0 })
    }

    /// Any bits are a header.
    #[inline]
    pub fn from_bits(bits: u64) -> Header {
        Header(bits)
    }

    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    #[inline]
    pub fn is_allocated(self) -> bool {
        self.0 & ALLOCATED != 0
    }

    #[inline]
    pub fn timestamp(self) -> u64 {
        self.0 & TIMESTAMP_MAX
    }

    /// Whether this may be an old version, of which the one after it has this timestamp.
    #[inline]
    pub(crate) fn is_before(self, timestamp: u64) -> bool {
        !self.is_locked() && self.timestamp() < timestamp
    }

    #[inline]
    pub fn locked(self) -> Header {
        Header(self.0 | LOCKED)
    }

    #[inline]
    pub fn unlocked(self) -> Header {
        Header(self.0 & !LOCKED)
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = if self.is_locked() { " locked" } else { "" };
        let free = if self.is_allocated() { "" } else { " free" };
        write!(f, "@{}{free}{lock}", self.timestamp())
    }
}

/// Where the version before lies among the old versions of the same machine: its word there + 1, or 0; all ones say
/// that there was never one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Older(u64);

impl Older {
    /// It is gone.
    pub const NONE: Older = Older(0);

    /// There was no object before, whoever asks: the cell had its first version.
    pub const NEVER: Older = Older(u64::MAX);

    /// Of a cell that is [away](Cell::is_away).
    pub const AWAY: Older = Older(u64::MAX - 1);

    #[inline]
    pub fn at(word: u64) -> Older {
        Older(word + 1)
    }

    /// Any bits are one: the word may be out of bounds.
    #[inline]
    pub fn from_bits(bits: u64) -> Older {
        Older(bits)
    }

    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn word(self) -> Option<u64> {
        match self {
            Older::NEVER | Older::AWAY => None,
            Older(bits) => bits.checked_sub(1),
        }
    }

    /// The same in bytes, for an operation of the fabric.
    #[inline]
    pub fn offset(self) -> Option<u64> {
        self.word()?.checked_mul(WORD_BYTES as u64)
    }
}

/// What a read of a cell shows. A version that is not allocated has an empty payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen<P> {
    /// Words of several versions: read again.
    Torn,
    /// A transaction has locked this version and is about to replace it, at a timestamp that nobody knows yet. Who
    /// wants a version before `header`'s timestamp finds it at `older` all the same. Everybody else waits. Where
    /// `older` is [`Older::AWAY`], there is a version that is not in memory yet.
    Locked { header: Header, older: Older },
    /// The newest version, whole.
    Version {
        header: Header,
        older: Older,
        payload: P,
    },
}

/// A copy of a cell's bytes, as one operation of the fabric has read it.
pub struct Snapshot;

impl Snapshot {
    /// Bytes to read for a cell of this class.
    #[inline]
    pub fn bytes(class: Class) -> usize {
        class.cell_words() * WORD_BYTES
    }

    /// What the bytes of a cell show. The payload is a range of them. Fewer bytes than [`bytes`](Snapshot::bytes) are
    /// torn.
    #[inline]
    pub fn judge(bytes: &[u8], class: Class) -> Seen<Range<usize>> {
        let footer = class.cell_words() - 1;
        let (Some(header), Some(older), Some(footer)) =
            (word(bytes, 0), word(bytes, 1), word(bytes, footer))
        else {
            return Seen::Torn;
        };
        let (header, older) = (Header(header), Older(older));
        if footer != header.timestamp() {
            return Seen::Torn;
        }
        if header.is_locked() {
            return Seen::Locked { header, older };
        }
        Seen::Version {
            header,
            older,
            payload: payload_range(header, class),
        }
    }

    /// Bytes to read for an old version of an object of this class. They are all in the region of old versions.
    #[inline]
    pub fn old_bytes(class: Class) -> usize {
        Snapshot::bytes(class) - WORD_BYTES
    }

    /// An old version: header, where the one before it is, and the payload as a range of the bytes. `None` if there
    /// cannot be one, which is before the timestamp `before` of the version after it.
    #[inline]
    pub fn judge_old(
        bytes: &[u8],
        class: Class,
        before: u64,
    ) -> Option<(Header, Older, Range<usize>)> {
        let (header, older) = (Header(word(bytes, 0)?), Older(word(bytes, 1)?));
        let payload = payload_range(header, class);
        let is_one = header.is_before(before) && payload.end <= bytes.len();
        is_one.then_some((header, older, payload))
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at * WORD_BYTES..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

#[inline]
fn payload_range(header: Header, class: Class) -> Range<usize> {
    let first = FRONT_WORDS * WORD_BYTES;
    let bytes = if header.is_allocated() {
        class.payload_bytes()
    } else {
        0
    };
    first..first + bytes
}

/// The cell of an object, in the memory of this machine or in a mapping of another's. Only its machine changes it.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    header: &'a AtomicU64,
    older: &'a AtomicU64,
    payload: &'a [AtomicU64],
    footer: &'a AtomicU64,
}

impl<'a> Cell<'a> {
    /// The cell that begins at this word of the memory; `None` if the memory ends before it does.
    #[inline]
    pub fn new(memory: &'a Memory, word: u64, class: Class) -> Option<Cell<'a>> {
        let words = memory.words().get(usize::try_from(word).ok()?..)?;
        let [header, older, payload @ .., footer] = words.get(..class.cell_words())? else {
            return None;
        };
        Some(Cell {
            header,
            older,
            payload,
            footer,
        })
    }

    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.payload.len() * WORD_BYTES
    }

    #[inline]
    pub(crate) fn words(&self) -> usize {
        self.payload.len() + CELL_EXTRA_WORDS
    }

    #[inline]
    pub fn header(&self) -> Header {
        Header(self.header.load(Acquire))
    }

    /// Where the version before the newest is. Only who has locked the cell, or is its machine, may rely on it.
    #[inline]
    pub fn older(&self) -> Older {
        Older(self.older.load(Acquire))
    }

    // ---- reads ----

    /// The newest version, with one allocation.
    #[inline]
    pub fn read(&self) -> Seen<Bytes> {
        self.see(bytes)
    }

    /// The newest version, without an allocation. Fills `into`, up to the end of the payload if that comes first, if
    /// this is a version that is allocated. Otherwise what it holds afterwards means nothing.
    #[inline]
    pub fn read_into(&self, into: &mut [u8]) -> Seen<()> {
        self.see(|words| copy(words, into))
    }

    /// The header is first and the footer last: `take` is in between.
    #[inline]
    pub(crate) fn see<P>(&self, take: impl FnOnce(&'a [AtomicU64]) -> P) -> Seen<P> {
        let (header, older) = (self.header(), self.older());
        let is_one = || self.footer.load(Acquire) == header.timestamp();
        if header.is_locked() {
            return match is_one() {
                true => Seen::Locked { header, older },
                false => Seen::Torn,
            };
        }
        let payload = take(self.payload_of(header));
        if !is_one() {
            return Seen::Torn;
        }
        Seen::Version {
            header,
            older,
            payload,
        }
    }

    #[inline]
    fn payload_of(&self, header: Header) -> &'a [AtomicU64] {
        match header.is_allocated() {
            true => self.payload,
            false => &[],
        }
    }

    // ---- changes, by the machine that the cell is of ----

    /// Locks the version that the caller has seen. False if it is locked, or another.
    #[inline]
    pub fn lock(&self, expected: Header) -> bool {
        let (from, to) = (expected.0, expected.locked().0);
        let swapped = self.header.compare_exchange(from, to, AcqRel, Acquire);
        from != to && swapped.is_ok()
    }

    /// Ends a lock without effect: `header` is the one that was locked. Panics if another one is.
    #[inline]
    pub fn unlock(&self, header: Header) {
        let now = self.header();
        assert!(
            now == header.locked(),
            "a lock of {header:?} ends where {now:?} is"
        );
        store(self.header, header.unlocked().0);
    }

    /// Replaces the version of a cell that the caller has locked, and ends the lock. What is missing at the end of
    /// `payload` becomes zeros. It means nothing if the new version is not allocated.
    ///
    /// Who takes these from a message checks them first: this panics if `payload` is longer than
    /// [`payload_bytes`](Cell::payload_bytes), or `timestamp` is above [`TIMESTAMP_MAX`] or not above that of the
    /// version before.
    #[inline]
    pub fn install(&self, timestamp: u64, allocated: bool, older: Older, payload: &[u8]) {
        let now = self.header();
        assert!(
            now.is_locked() && now.timestamp() < timestamp,
            "a version of {timestamp} replaces {now:?}, which is not locked or not older"
        );
        self.put(Header::new(timestamp, allocated), older, payload);
    }

    /// Replaces the version if this one is newer, and says whether: at a backup, whose cells nobody locks, and in
    /// recovery, where it ends a lock. There is no version before it. About the rest, see [`install`](Cell::install).
    #[inline]
    pub fn apply(&self, timestamp: u64, allocated: bool, payload: &[u8]) -> bool {
        let is_newer = timestamp > self.header().timestamp();
        if is_newer {
            self.put(Header::new(timestamp, allocated), Older::NONE, payload);
        }
        is_newer
    }

    #[inline]
    fn put(&self, header: Header, older: Older, payload: &[u8]) {
        assert!(
            payload.len() <= self.payload_bytes(),
            "a payload that fits the cell"
        );
        store(self.footer, header.timestamp());
        store(self.older, older.0);
        if header.is_allocated() {
            self.fill(payload);
        }
        store(self.header, header.0);
    }

    #[inline]
    fn fill(&self, payload: &[u8]) {
        let (whole, rest) = payload.as_chunks::<WORD_BYTES>();
        let (written, zeros) = self.payload.split_at(whole.len());
        for (word, bytes) in written.iter().zip(whole) {
            store(word, u64::from_le_bytes(*bytes));
        }
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let mut last = u64::from_le_bytes(last);
        for word in zeros {
            store(word, std::mem::take(&mut last));
        }
    }

    /// A cell that never had a version.
    pub fn clear(&self) {
        for word in [self.header, self.older, self.footer] {
            store(word, 0);
        }
    }

    /// The cell has a version, which is on disk only. Nobody knows its timestamp here, so it looks like one that is
    /// locked: nobody reads past it, relies on it, locks it or copies it until a version is [applied](Cell::apply).
    pub(crate) fn set_away(&self) {
        store(self.footer, 0);
        store(self.older, Older::AWAY.0);
        store(self.header, LOCKED);
    }

    /// Only its machine may rely on it.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.header().0 == LOCKED && self.older() == Older::AWAY
    }

    /// Copies the newest version, not locked, as an old version. `into` has room for all but the footer. Returns the
    /// words of it: only the front if the version is not allocated.
    pub(crate) fn copy_to(&self, into: &[AtomicU64]) -> usize {
        let header = self.header().unlocked();
        into[0].store(header.0, Relaxed);
        into[1].store(self.older.load(Relaxed), Relaxed);
        let payload = self.payload_of(header);
        for (into, word) in into[FRONT_WORDS..].iter().zip(payload) {
            into.store(word.load(Relaxed), Relaxed);
        }
        // Who finds the copy has acquired the cell's newer version, which is stored after this.
        FRONT_WORDS + payload.len()
    }
}

/// Every change of a cell but its lock.
#[inline]
fn store(word: &AtomicU64, value: u64) {
    #[cfg(test)]
    stores::record(word, value);
    word.store(value, Release);
}

/// The bytes of the words, with one allocation.
#[inline]
pub(crate) fn bytes(words: &[AtomicU64]) -> Bytes {
    let bytes = words.iter().map(|word| word.load(Acquire).to_le_bytes());
    Bytes::from(bytes.collect::<Vec<_>>().into_flattened())
}

/// The bytes of the words, as many as there are of both.
#[inline]
fn copy(words: &[AtomicU64], into: &mut [u8]) {
    let (whole, rest) = into.as_chunks_mut::<WORD_BYTES>();
    for (bytes, word) in whole.iter_mut().zip(words) {
        *bytes = word.load(Acquire).to_le_bytes();
    }
    if let Some(word) = words.get(whole.len()) {
        let bytes = word.load(Acquire).to_le_bytes();
        rest.copy_from_slice(&bytes[..rest.len()]);
    }
}

/// The order of stores, which a race shows only now and then.
#[cfg(test)]
pub(crate) mod stores {
    use std::cell::RefCell;
    use std::sync::atomic::AtomicU64;

    thread_local! {
        /// Address and value, if this thread records.
        static STORES: RefCell<Option<Vec<(usize, u64)>>> = const { RefCell::new(None) };
    }

    pub fn record(word: &AtomicU64, value: u64) {
        STORES.with_borrow_mut(|stores| {
            if let Some(stores) = stores {
                stores.push((std::ptr::from_ref(word).addr(), value));
            }
        });
    }

    pub fn of(change: impl FnOnce()) -> Vec<(usize, u64)> {
        STORES.set(Some(Vec::new()));
        change();
        STORES.take().unwrap_or_default()
    }
}
