//! A log outside of the log: segments of entries in a directory or an object store, and how they become a local store
//! again (§4.2 D).
//!
//! ```text
//!   segment-<first>    magic | log u128 | first u64 | count u32 | per entry: length u32, bytes | CRC32C u32
//!   manifest-<next>    magic | log u128 | first u64 | next u64 | chain u64 | CRC32C u32
//! ```
//! Integers are little-endian, positions in names have 20 digits. A manifest says that all entries from `first` up to
//! `next` are there; the chain is a hash over the checksums of their segments, in order. The newest one counts.

use crate::entry::{ENTRY_BYTES_MAX, Entry};
use crate::log::LogPos;
use crate::stack::{Applicator, Failure, Upper};
use crate::store::LocalStore;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Uid;
use plinth_core::hash::hash_bytes;
use plinth_runtime::{Pace, disk};
use std::path::PathBuf;
use std::rc::Rc;

const SEGMENT: &str = "segment-";
const MANIFEST: &str = "manifest-";
const SEGMENT_MAGIC: &[u8; 8] = b"PlDlSeg1";
const MANIFEST_MAGIC: &[u8; 8] = b"PlDlMan1";

/// A line for an operator.
pub type Outcome<T = ()> = Result<T, String>;

/// Where a backup is. Objects are small: a segment is read and written at once.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Destination: 'static {
    /// Writes an object, durably and whole, in the place of one that is there.
    ///
    /// # Errors
    /// A line that names the place.
    async fn put(&self, name: &str, content: Bytes) -> Outcome;

    /// # Errors
    /// As [`put`](Self::put).
    async fn get(&self, name: &str) -> Outcome<Option<Bytes>>;

    /// The names of all objects.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    async fn list(&self) -> Outcome<Vec<String>>;

    /// # Errors
    /// As [`put`](Self::put).
    async fn remove(&self, name: &str) -> Outcome;

    /// For people.
    fn place(&self) -> String;
}

/// A backup in a directory, an object a file.
pub struct Directory(pub PathBuf);

impl Directory {
    fn explain(&self, name: &str, error: std::io::Error) -> String {
        format!("backup {}: {error}", self.0.join(name).display())
    }
}

impl Destination for Directory {
    async fn put(&self, name: &str, content: Bytes) -> Outcome {
        let made = disk::create_dir_all(&self.0).await;
        made.map_err(|error| self.explain("", error))?;
        let written = disk::write_file_durably(&self.0.join(name), content).await;
        written.map(drop).map_err(|error| self.explain(name, error))
    }

    async fn get(&self, name: &str) -> Outcome<Option<Bytes>> {
        let path = self.0.join(name);
        if !disk::exists(&path).await {
            return Ok(None);
        }
        let read = disk::read_file(&path).await;
        read.map(Some).map_err(|error| self.explain(name, error))
    }

    async fn list(&self) -> Outcome<Vec<String>> {
        let listed = disk::list_dir(&self.0).await;
        listed.map_err(|error| self.explain("", error))
    }

    async fn remove(&self, name: &str) -> Outcome {
        let removed = disk::remove(&self.0.join(name)).await;
        removed.map_err(|error| self.explain(name, error))
    }

    fn place(&self) -> String {
        self.0.display().to_string()
    }
}

fn segment_name(first: LogPos) -> String {
    format!("{SEGMENT}{first:020}")
}

/// The position in a name of this kind.
fn position_of(name: &str, kind: &str) -> Option<LogPos> {
    let digits = name.strip_prefix(kind)?;
    let is_whole = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_whole)
}

fn seal(mut out: BytesMut) -> Bytes {
    let sum = crc32c::crc32c(&out);
    out.put_u32_le(sum);
    out.freeze()
}

/// What is before the checksum and after the magic and the log.
fn unseal(mut object: Bytes, magic: &[u8; 8], log: Uid) -> Result<Bytes, &'static str> {
    if object.len() < 28 || object[..8] != magic[..] {
        return Err("is not a file of a backup, or is cut short");
    }
    let mut sum = object.split_off(object.len() - 4);
    if sum.get_u32_le() != crc32c::crc32c(&object) {
        return Err("is damaged, or cut short: its checksum is wrong");
    }
    object.advance(8);
    match Uid(object.get_u128_le()) == log {
        true => Ok(object),
        false => Err("is of another log"),
    }
}

/// Entries that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub first: LogPos,
    pub entries: Vec<Bytes>,
}

impl Segment {
    /// After its last entry.
    pub fn end(&self) -> LogPos {
        self.first + self.entries.len() as u64
    }

    pub fn encode(&self, log: Uid) -> Bytes {
        let bytes: usize = self.entries.iter().map(|entry| 4 + entry.len()).sum();
        let mut out = BytesMut::with_capacity(48 + bytes);
        out.put_slice(SEGMENT_MAGIC);
        out.put_u128_le(log.0);
        out.put_u64_le(self.first);
        out.put_u32_le(self.entries.len() as u32);
        for entry in &self.entries {
            out.put_u32_le(entry.len() as u32);
            out.put_slice(entry);
        }
        seal(out)
    }

    fn decode(object: Bytes, log: Uid) -> Result<Segment, &'static str> {
        let mut rest = unseal(object, SEGMENT_MAGIC, log)?;
        let parsed = || {
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
        let mut parsed = parsed;
        parsed().ok_or("has a right checksum and wrong content")
    }
}

/// The checksum of an encoded segment.
pub fn sum_of(segment: &Bytes) -> u32 {
    let sum = segment.last_chunk::<4>().copied();
    sum.map_or(0, u32::from_le_bytes)
}

/// The chain with one more segment.
pub fn chained(chain: u64, end: LogPos, sum: u32) -> u64 {
    let mut link = BytesMut::with_capacity(20);
    link.put_u64_le(chain);
    link.put_u64_le(end);
    link.put_u32_le(sum);
    hash_bytes(&link)
}

/// How far a backup goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub first: LogPos,
    pub next: LogPos,
    pub chain: u64,
}

impl Manifest {
    fn encode(&self, log: Uid) -> Bytes {
        let mut out = BytesMut::with_capacity(52);
        out.put_slice(MANIFEST_MAGIC);
        out.put_u128_le(log.0);
        out.put_u64_le(self.first);
        out.put_u64_le(self.next);
        out.put_u64_le(self.chain);
        seal(out)
    }

    fn decode(object: Bytes, log: Uid) -> Result<Manifest, &'static str> {
        let mut rest = unseal(object, MANIFEST_MAGIC, log)?;
        if rest.len() != 24 {
            return Err("has a right checksum and wrong content");
        }
        Ok(Manifest {
            first: rest.get_u64_le(),
            next: rest.get_u64_le(),
            chain: rest.get_u64_le(),
        })
    }
}

/// Writes a segment; its checksum.
///
/// # Errors
/// A line that names the place.
pub async fn put_segment<D: Destination>(to: &D, log: Uid, segment: &Segment) -> Outcome<u32> {
    let content = segment.encode(log);
    let sum = sum_of(&content);
    to.put(&segment_name(segment.first), content).await?;
    Ok(sum)
}

/// Writes a manifest, and removes older ones.
///
/// # Errors
/// A line that names the place.
pub async fn put_manifest<D: Destination>(to: &D, log: Uid, manifest: &Manifest) -> Outcome {
    let name = format!("{MANIFEST}{:020}", manifest.next);
    to.put(&name, manifest.encode(log)).await?;
    for name in to.list().await? {
        if position_of(&name, MANIFEST).is_some_and(|next| next < manifest.next) {
            to.remove(&name).await?;
        }
    }
    Ok(())
}

/// The newest manifest.
///
/// # Errors
/// There is none, or it is damaged; or the place cannot be read.
pub async fn manifest<D: Destination>(from: &D, log: Uid) -> Outcome<Manifest> {
    let names = from.list().await?;
    let newest = names
        .iter()
        .filter(|name| position_of(name, MANIFEST).is_some())
        .max();
    let Some(name) = newest else {
        return Err(format!(
            "backup {}: there is no manifest: it is no backup, or empty",
            from.place()
        ));
    };
    let object = from.get(name).await?;
    let manifest = Manifest::decode(object.unwrap_or_default(), log);
    manifest.map_err(|why| format!("backup {}: {name} {why}", from.place()))
}

/// Applies the entries of a backup to a store, after those that it has: up to `to`, or all that the manifest tells of.
/// The position that the store has then. The manifest's chain is checked if all its segments are read.
///
/// # Errors
/// One line that says what is missing or damaged. What was applied before stays; the store is good at its position.
pub async fn restore<D: Destination, A: Applicator>(
    from: &D,
    log: Uid,
    to: Option<LogPos>,
    store: &Rc<LocalStore>,
    upper: &Upper<A>,
) -> Outcome<LogPos> {
    let place = from.place();
    let manifest = manifest(from, log).await?;
    let last = to.unwrap_or(manifest.next - 1);
    if last >= manifest.next {
        return Err(format!(
            "backup {place}: it ends at position {}, and position {last} was asked for",
            manifest.next - 1
        ));
    }
    let begin = store.applied() + 1;
    if begin < manifest.first {
        return Err(format!(
            "backup {place}: it begins at position {}, and the store needs position {begin}: \
             begin with a store that has the rows up to there",
            manifest.first
        ));
    }
    let (mut next, mut chain) = (manifest.first, 0);
    while next <= last {
        let name = segment_name(next);
        let Some(object) = from.get(&name).await? else {
            return Err(format!(
                "backup {place}: it is cut short: {name} is missing, and it should go on to position {}",
                manifest.next - 1
            ));
        };
        let sum = sum_of(&object);
        let segment = Segment::decode(object, log);
        let segment = segment.map_err(|why| format!("backup {place}: {name} {why}"))?;
        if segment.first != next || segment.entries.is_empty() {
            return Err(format!(
                "backup {place}: {name} has entries of other positions"
            ));
        }
        (next, chain) = (segment.end(), chained(chain, segment.end(), sum));
        if next == manifest.next && chain != manifest.chain {
            return Err(format!(
                "backup {place}: its segments are not those of its manifest"
            ));
        }
        apply(segment, last, store, upper).await?;
    }
    store
        .flush()
        .await
        .map_err(|error| format!("the local store fails: {error}"))?;
    Ok(store.applied())
}

async fn apply<A: Applicator>(
    segment: Segment,
    last: LogPos,
    store: &Rc<LocalStore>,
    upper: &Upper<A>,
) -> Outcome {
    let mut pace = Pace::new();
    for (pos, bytes) in (segment.first..=last).zip(segment.entries) {
        if pos <= store.applied() {
            continue;
        }
        let stop = |why: &dyn std::fmt::Display| format!("the entry at position {pos}: {why}");
        let entry = Entry::decode(bytes).map_err(|malformed| stop(&malformed))?;
        let mut tx = store.begin(pos);
        match upper.apply(&mut tx, &entry, pos) {
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(Failure::Stop(error)) => return Err(stop(&error)),
        }
        tx.commit().map_err(|error| stop(&error))?;
        upper.post_apply(&entry, pos);
        pace.rest_if_over().await;
    }
    store
        .flush()
        .await
        .map_err(|error| format!("the local store fails: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::testing::fuzz;

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
        let (log, manifest) = (
            Uid(3),
            Manifest {
                first: 1,
                next: 10,
                chain: 5,
            },
        );
        let encoded = segment.encode(log);
        assert_eq!(Segment::decode(encoded.clone(), log), Ok(segment));
        assert_eq!(
            Segment::decode(encoded.clone(), Uid(4)),
            Err("is of another log")
        );
        assert_eq!(Manifest::decode(manifest.encode(log), log), Ok(manifest));
        let corpus = [encoded.to_vec(), manifest.encode(log).to_vec()];
        fuzz("objects of a backup", 5, corpus.clone(), |input| {
            let object = Bytes::copy_from_slice(input);
            let segment = Segment::decode(object.clone(), log).is_ok();
            let is_good = Manifest::decode(object, log).is_ok() || segment;
            assert!(
                !is_good || corpus.iter().any(|good| good == input),
                "it is detected"
            );
            is_good
        });
    }
}
