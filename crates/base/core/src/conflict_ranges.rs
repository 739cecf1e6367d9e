//! Conflict ranges: the keys a transaction read, or those it writes, packed into one byte string.
//!
//! The client packs them once, a commit proxy passes each resolver the part that lies in its keys, and the resolver
//! iterates over the same bytes (FDB §2.4.2). The form of one range:
//!
//! ```text
//! begin length * 2 + single: varint | begin bytes                                  single = 1
//! begin length * 2 + single: varint | end length: varint | begin bytes | end bytes  single = 0
//! ```
//!
//! Most ranges hold a single key, `[key, key\0)`. Their end is implied and not written, and an [`Endpoint`] represents
//! it without copying a byte.

use crate::codec::Codec;
use crate::key::SYSTEM_KEY_BYTES_MAX;
use crate::output::Output;
use crate::varint;
use bytes::{BufMut, Bytes, BytesMut};
use std::cmp::Ordering;

/// The longest key that bounds a range: the longest system key, followed by the zero byte of an end.
pub const ENDPOINT_BYTES_MAX: usize = SYSTEM_KEY_BYTES_MAX + 1;

/// The begin or end of a range: the key `bytes`, or the first key after it. Ordered as the keys that they represent,
/// so `after("a")` equals `at("a\0")`.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    pub bytes: &'a [u8],
    /// The key is `bytes` followed by one zero byte.
    pub then_zero: bool,
}

impl<'a> Endpoint<'a> {
    #[inline]
    pub fn at(bytes: &'a [u8]) -> Self {
        Endpoint {
            bytes,
            then_zero: false,
        }
    }
    #[inline]
    pub fn after(bytes: &'a [u8]) -> Self {
        Endpoint {
            bytes,
            then_zero: true,
        }
    }
    /// Length of the represented key.
    #[inline]
    pub fn key_len(&self) -> usize {
        self.bytes.len() + usize::from(self.then_zero)
    }
    /// The key without its first `count` bytes, all of which must be in `bytes`.
    #[inline]
    pub fn skip(&self, count: usize) -> Endpoint<'a> {
        Endpoint {
            bytes: &self.bytes[count..],
            then_zero: self.then_zero,
        }
    }
    /// Appends the represented key.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes);
        if self.then_zero {
            out.push(0);
        }
    }
    pub fn to_key(&self) -> Bytes {
        let mut key = Vec::with_capacity(self.key_len());
        self.write_to(&mut key);
        Bytes::from(key)
    }
}

impl Ord for Endpoint<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.then_zero, other.then_zero) {
            (true, false) => cmp_after(self.bytes, other.bytes),
            (false, true) => cmp_after(other.bytes, self.bytes).reverse(),
            // Appending a zero byte to both keeps their order.
            _ => self.bytes.cmp(other.bytes),
        }
    }
}

/// Compares `key\0` with `other`.
fn cmp_after(key: &[u8], other: &[u8]) -> Ordering {
    match key.cmp(other) {
        Ordering::Equal => Ordering::Greater,
        Ordering::Less
            if other.len() == key.len() + 1 && other[key.len()] == 0 && other.starts_with(key) =>
        {
            Ordering::Equal
        }
        order => order,
    }
}

impl PartialOrd for Endpoint<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Endpoint<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key_len() == other.key_len() && self.cmp(other).is_eq()
    }
}

impl Eq for Endpoint<'_> {}

/// One half-open range, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConflictRange<'a> {
    pub begin: &'a [u8],
    pub end: Endpoint<'a>,
}

/// A well-formed packed list of ranges, in the order they were added; they may overlap.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ConflictRanges {
    bytes: Bytes,
    count: u32,
}

impl ConflictRanges {
    /// Checks bytes from outside: whole ranges, none empty, no endpoint above [`ENDPOINT_BYTES_MAX`]. Iteration over
    /// ranges that passed cannot fail.
    pub fn parse(bytes: Bytes) -> Option<Self> {
        let mut rest = &bytes[..];
        let mut count = 0u32;
        while !rest.is_empty() {
            let range = take_range(&mut rest)?;
            let longest = range.begin.len().max(range.end.key_len());
            if longest > ENDPOINT_BYTES_MAX || Endpoint::at(range.begin) >= range.end {
                return None;
            }
            count = count.checked_add(1)?;
        }
        Some(ConflictRanges { bytes, count })
    }
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
    pub fn len(&self) -> usize {
        self.count as usize
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.bytes }
    }
    /// The parts that lie in `[begin, end)`. Returns the same bytes if that is everything.
    pub fn clip(&self, begin: &[u8], end: &[u8]) -> ConflictRanges {
        let (begin, end) = (Endpoint::at(begin), Endpoint::at(end));
        if self
            .iter()
            .all(|range| begin <= Endpoint::at(range.begin) && range.end <= end)
        {
            return self.clone();
        }
        let mut builder = ConflictRangesBuilder::new();
        for range in self.iter() {
            builder.add_endpoints(
                Endpoint::at(range.begin).max(begin).bytes,
                range.end.min(end),
            );
        }
        builder.build()
    }
}

impl<'a> IntoIterator for &'a ConflictRanges {
    type Item = ConflictRange<'a>;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Codec for ConflictRanges {
    fn put(&self, out: &mut Output) {
        self.bytes.put(out);
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        ConflictRanges::parse(Bytes::take(input)?)
    }
}

/// Iterates over packed ranges; allocates nothing.
#[derive(Clone)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = ConflictRange<'a>;
    #[inline]
    fn next(&mut self) -> Option<ConflictRange<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        Some(take_range(&mut self.rest).expect("ranges were checked when they were parsed"))
    }
}

#[inline]
fn take_range<'a>(input: &mut &'a [u8]) -> Option<ConflictRange<'a>> {
    let mut at = 0;
    let header = varint::get_u32(input, &mut at)?;
    let begin_len = (header >> 1) as usize;
    let single = header & 1 == 1;
    let end_len = if single {
        0
    } else {
        varint::get_u32(input, &mut at)? as usize
    };
    let (begin, rest) = input[at..].split_at_checked(begin_len)?;
    let (end, rest) = rest.split_at_checked(end_len)?;
    *input = rest;
    Some(ConflictRange {
        begin,
        end: if single {
            Endpoint::after(begin)
        } else {
            Endpoint::at(end)
        },
    })
}

/// Packs ranges one after the other. Empty ranges conflict with nothing and are left out.
#[derive(Default)]
pub struct ConflictRangesBuilder {
    out: BytesMut,
    count: u32,
}

impl ConflictRangesBuilder {
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds `[begin, end)`.
    pub fn add(&mut self, begin: &[u8], end: &[u8]) {
        self.add_endpoints(begin, Endpoint::at(end));
    }
    /// Adds the range that holds exactly `key`.
    pub fn add_key(&mut self, key: &[u8]) {
        self.add_endpoints(key, Endpoint::after(key));
    }
    fn add_endpoints(&mut self, begin: &[u8], end: Endpoint<'_>) {
        if Endpoint::at(begin) >= end {
            return;
        }
        assert!(
            begin.len() < 1 << 31,
            "a key of {} bytes cannot be packed",
            begin.len()
        );
        let begin_len = begin.len() as u32;
        self.count += 1;
        if end == Endpoint::after(begin) {
            varint::put_u32(&mut self.out, (begin_len << 1) | 1);
            self.out.put_slice(begin);
            return;
        }
        varint::put_u32(&mut self.out, begin_len << 1);
        varint::put_u32(
            &mut self.out,
            u32::try_from(end.key_len()).expect("a key is below 4 GiB"),
        );
        self.out.put_slice(begin);
        self.out.put_slice(end.bytes);
        if end.then_zero {
            self.out.put_u8(0);
        }
    }
    /// Bytes packed so far.
    pub fn packed_len(&self) -> usize {
        self.out.len()
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
    /// The finished ranges, as [`ConflictRanges::parse`] would return them.
    pub fn build(self) -> ConflictRanges {
        ConflictRanges {
            bytes: self.out.freeze(),
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key of up to three bytes over a small alphabet, the order's corner cases among them.
    fn small_keys() -> Vec<Vec<u8>> {
        let mut keys = vec![vec![]];
        for from in [0, 1, 4] {
            for i in from..keys.len() {
                for byte in [0, 1, 0xff] {
                    let mut key = keys[i].clone();
                    key.push(byte);
                    keys.push(key);
                }
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn endpoints_are_ordered_as_the_keys_they_stand_for() {
        let keys = small_keys();
        let endpoints: Vec<_> = keys
            .iter()
            .flat_map(|key| [Endpoint::at(key), Endpoint::after(key)])
            .collect();
        for a in &endpoints {
            for b in &endpoints {
                assert_eq!(a.cmp(b), a.to_key().cmp(&b.to_key()), "{a:?} {b:?}");
                assert_eq!(a == b, a.to_key() == b.to_key(), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn every_range_comes_back_and_empty_ones_are_left_out() {
        let keys = small_keys();
        let mut builder = ConflictRangesBuilder::new();
        let mut expected = Vec::new();
        for begin in &keys {
            for end in &keys {
                builder.add(begin, end);
                if begin < end {
                    expected.push((begin.clone(), end.clone()));
                }
            }
        }
        let ranges = ConflictRanges::parse(builder.finish()).expect("well formed");
        assert_eq!(ranges.len(), expected.len());
        let found: Vec<_> = ranges
            .iter()
            .map(|r| (r.begin.to_vec(), r.end.to_key().to_vec()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_single_key_takes_its_length_and_one_byte() {
        let mut builder = ConflictRangesBuilder::new();
        builder.add(b"key", b"key\0");
        assert_eq!(&builder.finish()[..], b"\x07key");
    }

    #[test]
    fn clipping_keeps_what_lies_inside() {
        let mut builder = ConflictRangesBuilder::new();
        builder.add(b"a", b"d");
        builder.add_key(b"c");
        builder.add(b"x", b"z");
        let ranges = builder.build();
        assert_eq!(
            ranges.clip(b"", b"\xff").bytes().as_ptr(),
            ranges.bytes().as_ptr()
        );
        let clipped = ranges.clip(b"b", b"y");
        let found: Vec<_> = clipped
            .iter()
            .map(|r| (r.begin.to_vec(), r.end.to_key().to_vec()))
            .collect();
        let pair = |a: &[u8], b: &[u8]| (a.to_vec(), b.to_vec());
        assert_eq!(
            found,
            [pair(b"b", b"d"), pair(b"c", b"c\0"), pair(b"x", b"y")]
        );
        assert_eq!(
            ConflictRanges::parse(clipped.bytes().clone()),
            Some(clipped)
        );
        assert!(ranges.clip(b"e", b"f").is_empty());
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let mut builder = ConflictRangesBuilder::new();
        builder.add(b"abc", b"abd");
        let bytes = builder.finish();
        for cut in 1..bytes.len() {
            assert_eq!(ConflictRanges::parse(bytes.slice(..cut)), None);
        }
        let refused: [&'static [u8]; 4] = [
            b"\x02\x01ba",
            b"\x02\x01aa",
            b"\xff\xff\xff\xff\x0f",
            b"\x00\xff\xff\xff\xff\x0fz",
        ];
        for bytes in refused {
            assert_eq!(
                ConflictRanges::parse(Bytes::from_static(bytes)),
                None,
                "{bytes:?}"
            );
        }
        let mut builder = ConflictRangesBuilder::new();
        builder.add(b"", &vec![1; ENDPOINT_BYTES_MAX + 1]);
        assert_eq!(ConflictRanges::parse(builder.finish()), None);
    }
}
