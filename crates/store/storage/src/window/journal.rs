//! The keys and ranges that each version touched, in version order.
//!
//! Versions leave the window at the old end (they became durable) or at the new end (a recovery undid them). The
//! journal then gives the keys and ranges to look at. Keys are packed behind one another:
//! `length * 2 + by_range: varint | key`.

use plinth_core::{Version, varint};
use std::collections::VecDeque;

/// A key that a version wrote. `by_range` is set if a range clear wrote it, not a mutation of the key itself.
#[derive(Clone, Copy)]
pub(super) struct Touch<'a> {
    pub key: &'a [u8],
    pub by_range: bool,
}

/// Keys are packed into chunks of this many bytes. One buffer for the millions of keys of a large clear would be
/// copied as a whole whenever it grows, which holds up the loop for 50 ms and more.
const CHUNK_BYTES: usize = 256 << 10;
/// A place is the number of a chunk times this, and a position in the chunk.
const CHUNK_STRIDE: usize = 1 << 20;

/// The keys and ranges that one version touched.
pub(super) struct Record {
    version: Version,
    /// None is empty.
    touches: Vec<Vec<u8>>,
    clears: Vec<(Box<[u8]>, Box<[u8]>)>,
}

impl Record {
    pub fn version(&self) -> Version {
        self.version
    }

    /// The touch at place `at`, and moves `at` behind it. The first place is 0.
    pub fn touch_at(&self, at: &mut usize) -> Option<Touch<'_>> {
        let (number, mut begin) = (*at / CHUNK_STRIDE, *at % CHUNK_STRIDE);
        let chunk = self.touches.get(number)?;
        let word = varint::get_u32(chunk, &mut begin).expect("packed here");
        let end = begin + (word >> 1) as usize;
        let key = &chunk[begin..end];
        *at = match end == chunk.len() {
            true => (number + 1) * CHUNK_STRIDE,
            false => number * CHUNK_STRIDE + end,
        };
        Some(Touch {
            key,
            by_range: word & 1 == 1,
        })
    }

    pub fn clears(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.clears
            .iter()
            .map(|(begin, end)| (&begin[..], &end[..]))
    }

    /// Clear number `n` of this version.
    pub fn nth_clear(&self, n: usize) -> Option<(&[u8], &[u8])> {
        self.clears
            .get(n)
            .map(|(begin, end)| (&begin[..], &end[..]))
    }

    fn bytes(&self) -> usize {
        let clears: usize = self
            .clears
            .iter()
            .map(|(begin, end)| begin.len() + end.len() + 64)
            .sum();
        let touches: usize = self.touches.iter().map(Vec::capacity).sum();
        size_of::<Record>() + touches + clears
    }
}

/// See the module.
pub(super) struct Journal {
    records: VecDeque<Record>,
    /// Memory of all records but the last.
    settled_bytes: usize,
}

impl Journal {
    pub fn new() -> Self {
        Journal {
            records: VecDeque::new(),
            settled_bytes: 0,
        }
    }

    pub fn bytes(&self) -> usize {
        self.settled_bytes + self.records.back().map_or(0, Record::bytes)
    }

    /// Asserts that versions rise, and that the memory of the settled ones is counted.
    pub fn check(&self) {
        let versions = self.records.iter().map(|record| record.version);
        assert!(
            versions.is_sorted_by(|a, b| a < b),
            "versions of the journal rise"
        );
        let settled = self.records.len().saturating_sub(1);
        let bytes: usize = self.records.iter().take(settled).map(Record::bytes).sum();
        assert_eq!(bytes, self.settled_bytes, "bytes of {settled} versions");
    }

    /// The last version that touched anything; `Version::MIN` if there is none.
    pub fn last_version(&self) -> Version {
        self.records
            .back()
            .map_or(Version::MIN, |record| record.version)
    }

    fn record(&mut self, version: Version) -> &mut Record {
        if self.last_version() != version {
            assert!(
                self.last_version() < version,
                "journal goes backwards to {version}"
            );
            if let Some(last) = self.records.back_mut() {
                if let Some(chunk) = last.touches.last_mut() {
                    chunk.shrink_to_fit();
                }
                self.settled_bytes += last.bytes();
            }
            self.records.push_back(Record {
                version,
                touches: Vec::new(),
                clears: Vec::new(),
            });
        }
        self.records.back_mut().expect("just made")
    }

    pub fn touch(&mut self, version: Version, key: &[u8], by_range: bool) {
        let len = u32::try_from(key.len() * 2).expect("no key reaches 2 GiB");
        let touches = &mut self.record(version).touches;
        let has_room = |chunk: &Vec<u8>| chunk.len() + key.len() < CHUNK_BYTES;
        if !touches.last().is_some_and(has_room) {
            // The first chunk grows: most versions touch few keys.
            let room = if touches.is_empty() { 0 } else { CHUNK_BYTES };
            touches.push(Vec::with_capacity(room));
        }
        let chunk = touches.last_mut().expect("made just now");
        varint::put_u32(chunk, len | u32::from(by_range));
        chunk.extend_from_slice(key);
    }

    pub fn clear(&mut self, version: Version, begin: &[u8], end: &[u8]) {
        self.record(version).clears.push((begin.into(), end.into()));
    }

    pub fn clears_up_to(&self, version: Version, mut visit: impl FnMut(&[u8], &[u8])) {
        for record in self
            .records
            .iter()
            .take_while(|record| record.version <= version)
        {
            record.clears().for_each(|(begin, end)| visit(begin, end));
        }
    }

    /// Record number `n`, counted from the oldest, if it is at or below `version`.
    pub fn nth_up_to(&self, n: usize, version: Version) -> Option<&Record> {
        self.records
            .get(n)
            .filter(|record| record.version <= version)
    }

    /// Takes out the oldest version, if it is at or below `version`.
    pub fn pop_first(&mut self, version: Version) -> Option<Record> {
        let record = self
            .records
            .pop_front_if(|record| record.version <= version)?;
        if !self.records.is_empty() {
            self.settled_bytes -= record.bytes();
        }
        Some(record)
    }

    /// Takes out the newest version, if it is above `version`.
    pub fn pop_last(&mut self, version: Version) -> Option<Record> {
        let record = self
            .records
            .pop_back_if(|record| record.version > version)?;
        if let Some(last) = self.records.back() {
            self.settled_bytes -= last.bytes();
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_touches_many_keys_gives_each_of_them_once_in_order() {
        let mut journal = Journal::new();
        let key = |n: usize| format!("{n:08}").repeat(1 + n % 40).into_bytes();
        for n in 0..10_000 {
            journal.touch(7, &key(n), n % 3 == 0);
        }
        journal.touch(8, b"later", false);
        let record = journal.pop_first(7).expect("the older one");
        assert!(record.touches.len() > 3);
        let mut at = 0;
        for n in 0..10_000 {
            let touch = record.touch_at(&mut at).expect("as many as went in");
            assert_eq!((touch.key, touch.by_range), (&key(n)[..], n % 3 == 0));
        }
        assert!(record.touch_at(&mut at).is_none());
        assert_eq!(journal.last_version(), 8);
    }
}
