//! The objects of a backup.
//!
//! ```text
//!   service     magic | log u128 | kind, service | CRC32C u32
//!   rows        magic | log u128 | position, number, rows | CRC32C u32
//!   segment     magic | log u128 | first u64 | count u32 | per entry: length u32, bytes | CRC32C u32
//!   manifest    magic | log u128 | see [`Manifest`] | CRC32C u32
//! ```
//! Integers are little-endian; positions in names have 20 digits, so that names are in the order of positions.

use crate::entry::ENTRY_BYTES_MAX;
use crate::log::LogPos;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::hash::hash_bytes;
use plinth_core::{Uid, record};

pub const SERVICE: &str = "service";
pub const MANIFEST: &str = "manifest-";
const SEGMENT: &str = "segment-";
const ROWS: &str = "rows-";
const SERVICE_MAGIC: &[u8; 8] = b"PlDlSrv1";
const ROWS_MAGIC: &[u8; 8] = b"PlDlRow1";
const SEGMENT_MAGIC: &[u8; 8] = b"PlDlSeg2";
const MANIFEST_MAGIC: &[u8; 8] = b"PlDlMan2";
const CONTENT: &str = "has a right checksum and wrong content";

type Decoded<T> = Result<T, &'static str>;

/// A position in a name.
pub fn position_of(digits: &str) -> Option<LogPos> {
    let is_whole = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_whole)
}

fn begin(magic: &[u8; 8], log: Uid, capacity: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(28 + capacity);
    out.put_slice(magic);
    out.put_u128_le(log.0);
    out
}

fn seal(mut out: BytesMut) -> Bytes {
    let sum = crc32c::crc32c(&out);
    out.put_u32_le(sum);
    out.freeze()
}

fn sealed(magic: &[u8; 8], log: Uid, content: &impl Codec) -> Bytes {
    let content = content.to_bytes();
    let mut out = begin(magic, log, content.len());
    out.put_slice(&content);
    seal(out)
}

/// The log, and what is between it and the checksum.
fn unseal(mut object: Bytes, magic: &[u8; 8]) -> Decoded<(Uid, Bytes)> {
    if object.len() < 28 || object[..8] != magic[..] {
        return Err("is not a file of a backup, or is cut short");
    }
    let mut sum = object.split_off(object.len() - 4);
    if sum.get_u32_le() != crc32c::crc32c(&object) {
        return Err("is damaged, or cut short: its checksum is wrong");
    }
    object.advance(8);
    let log = Uid(object.get_u128_le());
    Ok((log, object))
}

fn unseal_of(object: Bytes, magic: &[u8; 8], log: Uid) -> Decoded<Bytes> {
    let (found, content) = unseal(object, magic)?;
    match found == log {
        true => Ok(content),
        false => Err("is of another log"),
    }
}

record! {
    /// What is in the object `service`.
    pub struct Of {
        pub kind: String,
        pub service: String,
    }
}

/// Whose backup it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub log: Uid,
    pub kind: String,
    /// Its name, for people.
    pub service: String,
}

impl Origin {
    /// The service with this key.
    pub fn new(key: &str, kind: &str, service: &str) -> Origin {
        let high = hash_bytes(key.as_bytes());
        let low = hash_bytes(&[b"log of ", key.as_bytes()].concat());
        Origin {
            log: Uid::from_parts(high, low),
            kind: kind.into(),
            service: service.into(),
        }
    }

    pub fn encode(&self) -> Bytes {
        let (kind, service) = (self.kind.clone(), self.service.clone());
        sealed(SERVICE_MAGIC, self.log, &Of { kind, service })
    }

    /// # Errors
    /// What is wrong with it.
    pub fn decode(object: Bytes) -> Decoded<Origin> {
        let (log, content) = unseal(object, SERVICE_MAGIC)?;
        let Of { kind, service } = Of::from_bytes(content).ok_or(CONTENT)?;
        Ok(Origin { log, kind, service })
    }
}

/// Entries that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub first: LogPos,
    pub entries: Vec<Bytes>,
}

impl Segment {
    pub fn name(session: u64, first: LogPos) -> String {
        format!("{SEGMENT}{session:020}-{first:020}")
    }

    /// After its last entry.
    pub fn end(&self) -> LogPos {
        self.first + self.entries.len() as u64
    }

    pub fn encode(&self, log: Uid) -> Bytes {
        let bytes: usize = self.entries.iter().map(|entry| 4 + entry.len()).sum();
        let mut out = begin(SEGMENT_MAGIC, log, 16 + bytes);
        out.put_u64_le(self.first);
        out.put_u32_le(self.entries.len() as u32);
        for entry in &self.entries {
            out.put_u32_le(entry.len() as u32);
            out.put_slice(entry);
        }
        seal(out)
    }

    /// # Errors
    /// What is wrong with it.
    pub fn decode(object: Bytes, log: Uid) -> Decoded<Segment> {
        let mut rest = unseal_of(object, SEGMENT_MAGIC, log)?;
        let mut parsed = || {
            let first = rest.try_get_u64_le().ok()?;
            let count = rest.try_get_u32_le().ok()?;
            let mut entries = Vec::new();
            for _ in 0..count {
                let len = rest.try_get_u32_le().ok()? as usize;
                let is_there = len <= rest.len() && len <= ENTRY_BYTES_MAX;
                entries.push(is_there.then(|| rest.split_to(len))?);
            }
            let is_whole = rest.is_empty() && first.checked_add(count.into()).is_some();
            is_whole.then_some(Segment { first, entries })
        };
        parsed().ok_or(CONTENT)
    }
}

/// The checksum of an encoded segment.
pub fn sum_of(segment: &Bytes) -> u32 {
    let sum = segment.last_chunk::<4>().copied();
    sum.map_or(0, u32::from_le_bytes)
}

/// The chain with one more segment: a hash over the ends and checksums of all, in order.
pub fn chained(chain: u64, end: LogPos, sum: u32) -> u64 {
    let mut link = BytesMut::with_capacity(20);
    link.put_u64_le(chain);
    link.put_u64_le(end);
    link.put_u32_le(sum);
    hash_bytes(&link)
}

record! {
    /// The copy of a replica's rows, as the log knows it.
    #[derive(Copy, Eq)]
    pub struct RowsCopy {
        /// The rows are those of this position.
        pub pos: LogPos,
        pub replica: u64,
        pub pages: u64,
        /// Of all rows.
        pub checksum: u64,
    }

    /// How far a backup goes.
    #[derive(Copy, Eq)]
    pub struct Manifest {
        pub session: u64,
        pub copy: RowsCopy,
        /// The first entry of the first segment.
        pub first: LogPos,
        pub next: LogPos,
        pub chain: u64,
    }

    /// A part of the rows.
    #[derive(Eq)]
    pub struct Page {
        pub pos: LogPos,
        pub number: u64,
        pub rows: Vec<(Bytes, Bytes)>,
    }
}

impl RowsCopy {
    pub fn page_name(&self, session: u64, number: u64) -> String {
        let RowsCopy { pos, replica, .. } = self;
        format!("{ROWS}{session:020}-{pos:020}-{replica:016x}-{number:08}")
    }
}

impl Page {
    pub fn encode(&self, log: Uid) -> Bytes {
        sealed(ROWS_MAGIC, log, self)
    }

    /// # Errors
    /// What is wrong with it.
    pub fn decode(object: Bytes, log: Uid) -> Decoded<Page> {
        let content = unseal_of(object, ROWS_MAGIC, log)?;
        Page::from_bytes(content).ok_or(CONTENT)
    }
}

impl Manifest {
    pub fn name(&self) -> String {
        format!("{MANIFEST}{:020}-{:020}", self.session, self.next)
    }

    /// The positions to which the service can be restored.
    pub fn range(&self) -> (LogPos, LogPos) {
        (self.copy.pos, self.copy.pos.max(self.next - 1))
    }

    pub fn encode(&self, log: Uid) -> Bytes {
        sealed(MANIFEST_MAGIC, log, self)
    }

    /// # Errors
    /// What is wrong with it.
    pub fn decode(object: Bytes, log: Uid) -> Decoded<Manifest> {
        let content = unseal_of(object, MANIFEST_MAGIC, log)?;
        let found = Manifest::from_bytes(content).ok_or(CONTENT)?;
        let is_sound =
            found.first > 0 && found.first <= found.next && found.copy.pos + 1 >= found.first;
        match is_sound {
            true => Ok(found),
            false => Err(CONTENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::testing::fuzz;

    fn manifest() -> Manifest {
        Manifest {
            session: 6,
            copy: RowsCopy {
                pos: 8,
                replica: 3,
                pages: 2,
                checksum: 77,
            },
            first: 7,
            next: 10,
            chain: 5,
        }
    }

    #[test]
    fn damaged_objects_are_refused() {
        let segment = Segment {
            first: 7,
            entries: vec![
                Bytes::from_static(b"a"),
                Bytes::new(),
                Bytes::from_static(b"bcd"),
            ],
        };
        let page = Page {
            pos: 8,
            number: 1,
            rows: vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))],
        };
        let (log, manifest) = (Uid(3), manifest());
        let origin = Origin {
            log,
            kind: "lock".into(),
            service: "locks".into(),
        };
        let encoded = segment.encode(log);
        assert_eq!(Segment::decode(encoded.clone(), log), Ok(segment));
        assert_eq!(
            Segment::decode(encoded.clone(), Uid(4)),
            Err("is of another log")
        );
        assert_eq!(Manifest::decode(manifest.encode(log), log), Ok(manifest));
        assert_eq!(Page::decode(page.encode(log), log), Ok(page.clone()));
        assert_eq!(Origin::decode(origin.encode()), Ok(origin.clone()));
        let corpus = [
            encoded,
            manifest.encode(log),
            page.encode(log),
            origin.encode(),
        ];
        let corpus = corpus.map(|object| object.to_vec());
        fuzz("objects of a backup", 5, corpus.clone(), |input| {
            let object = Bytes::copy_from_slice(input);
            let is_good = Segment::decode(object.clone(), log).is_ok()
                || Manifest::decode(object.clone(), log).is_ok()
                || Page::decode(object.clone(), log).is_ok()
                || Origin::decode(object).is_ok();
            assert!(
                !is_good || corpus.iter().any(|good| good == input),
                "it is detected"
            );
            is_good
        });
    }

    #[test]
    fn names_are_in_the_order_of_positions() {
        let (manifest, mut later) = (manifest(), manifest());
        (later.session, later.next) = (10, 11);
        assert!(manifest.name() < later.name());
        assert!(Segment::name(9, 99) < Segment::name(9, 100));
        assert_eq!(position_of("00000000000000000012"), Some(12));
        assert_eq!(position_of("12"), None);
    }
}
