//! Records of the memory engine's log: what one commit has changed, in blocks of which each can be lost alone.
//!
//! ```text
//! record     header | directory | own rows | block | block | …
//! header     magic u32 | directory length u32 | payload length u32 | sequence u64 | segment u64
//!            | oldest needed u64 | directory crc u32 | header crc u32                               44 bytes
//! directory  since u64 | ranges of the records from `since` on | length u32, crc u32 of the own rows
//!            | blocks u32, of each: kind u8 | length u32 | crc u32 | ranges
//! ranges     count u32, of each: length u32 | begin | length u32 | end
//! block      of operations: packed mutations
//!            of lost ranges: of each: length u32 | begin | length u32 | end | segment u64 | offset u64
//! ```
//!
//! The directory says which keys each block changes. So where a block cannot be read, these are lost and no others. It
//! also says which keys the records just before it have changed, and what they have done to the [rows that are kept
//! twice](crate::KEPT_TWICE): a record of which nothing can be read has lost no more than that. In the former format a
//! record had a header of 40 bytes, one checksum over all of its payload, and no directory.

use crate::key_bytes::{get_key, put_key};
use crate::memory::lost::{LostPart, Origin};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::key::KeyRange;
use plinth_core::{MutationBatch, MutationKind};

pub(super) const FORMER: u32 = 1;
pub(super) const FORMAT: u32 = 2;
const FORMER_MAGIC: u32 = u32::from_le_bytes(*b"plmr");
const MAGIC: u32 = u32::from_le_bytes(*b"plmR");
const FORMER_HEADER_BYTES: usize = 40;
const HEADER_BYTES: usize = 44;

pub(super) fn magic(format: u32) -> [u8; 4] {
    match format {
        FORMER => FORMER_MAGIC.to_le_bytes(),
        _ => MAGIC.to_le_bytes(),
    }
}

pub(super) fn header_bytes(format: u32) -> usize {
    match format {
        FORMER => FORMER_HEADER_BYTES,
        _ => HEADER_BYTES,
    }
}

/// CRC32C over the salt of a segment and the bytes.
pub(super) fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

/// Header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHeader {
    /// 0 in the former format.
    pub directory_len: u32,
    pub payload_len: u32,
    pub sequence: u64,
    pub segment: u64,
    /// With this record in place, replay may start at this segment.
    pub oldest_needed: u64,
    /// Of the directory; in the former format of the payload.
    pub crc: u32,
}

impl RecordHeader {
    pub fn encode(&self, salt: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES);
        out.put_u32_le(MAGIC);
        out.put_u32_le(self.directory_len);
        self.encode_rest(salt, out)
    }

    fn encode_rest(&self, salt: u64, mut out: BytesMut) -> Bytes {
        out.put_u32_le(self.payload_len);
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.segment);
        out.put_u64_le(self.oldest_needed);
        out.put_u32_le(self.crc);
        let crc = checksum(salt, &out);
        out.put_u32_le(crc);
        out.freeze()
    }

    pub fn decode(format: u32, bytes: &[u8], salt: u64) -> Option<Self> {
        let (mut fields, mut crc) = bytes.split_at_checked(header_bytes(format) - 4)?;
        if fields[..4] != magic(format) || checksum(salt, fields) != crc.try_get_u32_le().ok()? {
            return None;
        }
        fields.advance(4);
        let directory_len = match format {
            FORMER => 0,
            _ => fields.get_u32_le(),
        };
        Some(RecordHeader {
            directory_len,
            payload_len: fields.get_u32_le(),
            sequence: fields.get_u64_le(),
            segment: fields.get_u64_le(),
            oldest_needed: fields.get_u64_le(),
            crc: fields.get_u32_le(),
        })
    }
}

/// What is in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum BlockKind {
    Operations = 0,
    Lost = 1,
}

/// A block, as the directory has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub kind: BlockKind,
    pub len: u32,
    pub crc: u32,
    /// All keys that it changes are in these.
    pub ranges: Vec<KeyRange>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Directory {
    /// Number of the first record that `recent` and the own rows are about. They are about no record if it is the
    /// record's own number.
    pub since: u64,
    pub recent: Vec<KeyRange>,
    pub own_len: u32,
    pub own_crc: u32,
    pub blocks: Vec<Block>,
}

fn put_ranges(out: &mut BytesMut, ranges: &[KeyRange]) {
    out.put_u32_le(u32::try_from(ranges.len()).expect("they are bounded"));
    for range in ranges {
        put_key(out, &range.begin);
        put_key(out, &range.end);
    }
}

fn get_range(from: &mut Bytes) -> Option<KeyRange> {
    let (begin, end) = (get_key(from)?, get_key(from)?);
    Some(KeyRange { begin, end })
}

fn get_ranges(from: &mut Bytes) -> Option<Vec<KeyRange>> {
    let count = from.try_get_u32_le().ok()?;
    (0..count).map(|_| get_range(from)).collect()
}

impl Directory {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64_le(self.since);
        put_ranges(&mut out, &self.recent);
        out.put_u32_le(self.own_len);
        out.put_u32_le(self.own_crc);
        out.put_u32_le(u32::try_from(self.blocks.len()).expect("they are bounded"));
        for block in &self.blocks {
            out.put_u8(block.kind as u8);
            out.put_u32_le(block.len);
            out.put_u32_le(block.crc);
            put_ranges(&mut out, &block.ranges);
        }
        out.freeze()
    }

    /// `None` if it is not whole, or not as long as its payload.
    pub fn decode(mut bytes: Bytes, payload_len: u32) -> Option<Self> {
        let from = &mut bytes;
        let (since, recent) = (from.try_get_u64_le().ok()?, get_ranges(from)?);
        let (own_len, own_crc) = (from.try_get_u32_le().ok()?, from.try_get_u32_le().ok()?);
        let count = from.try_get_u32_le().ok()?;
        let block = |_| {
            let kind = match from.try_get_u8().ok()? {
                0 => BlockKind::Operations,
                1 => BlockKind::Lost,
                _ => return None,
            };
            let (len, crc) = (from.try_get_u32_le().ok()?, from.try_get_u32_le().ok()?);
            let ranges = get_ranges(from)?;
            Some(Block {
                kind,
                len,
                crc,
                ranges,
            })
        };
        let blocks: Vec<Block> = (0..count).map(block).collect::<Option<_>>()?;
        let len: u64 = blocks.iter().map(|block| u64::from(block.len)).sum();
        let fits = u64::from(own_len) + len == u64::from(payload_len);
        (fits && bytes.is_empty()).then_some(Directory {
            since,
            recent,
            own_len,
            own_crc,
            blocks,
        })
    }
}

/// Lost ranges as a block.
pub(super) fn encode_lost(parts: &[LostPart]) -> Bytes {
    let mut out = BytesMut::new();
    for LostPart { range, origin } in parts {
        put_key(&mut out, &range.begin);
        put_key(&mut out, &range.end);
        out.put_u64_le(origin.segment);
        out.put_u64_le(origin.offset);
    }
    out.freeze()
}

fn decode_lost(mut from: Bytes) -> Option<Vec<LostPart>> {
    let mut parts = Vec::new();
    while !from.is_empty() {
        let range = get_range(&mut from)?;
        let (segment, offset) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
        let origin = Origin { segment, offset };
        parts.push(LostPart { range, origin });
    }
    Some(parts)
}

/// The operations of a block; `None` if there is one that no record has.
pub(super) fn operations(bytes: Bytes) -> Option<MutationBatch> {
    let batch = MutationBatch::parse(bytes)?;
    let is_known = |kind| matches!(kind, MutationKind::Set | MutationKind::ClearRange);
    let all_known = batch.iter().all(|mutation| is_known(mutation.kind));
    all_known.then_some(batch)
}

/// What was read of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Operations(MutationBatch),
    Lost(Vec<LostPart>),
    Unreadable,
}

impl Content {
    /// `bytes` have passed the checksum.
    pub fn decode(kind: BlockKind, bytes: Bytes) -> Content {
        match kind {
            BlockKind::Operations => operations(bytes).map(Content::Operations),
            BlockKind::Lost => decode_lost(bytes).map(Content::Lost),
        }
        .unwrap_or(Content::Unreadable)
    }
}

/// A block that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReadBlock {
    /// Offset in the file of the segment.
    pub at: u64,
    /// Nothing in the former format, in which no block is lost alone.
    pub ranges: Vec<KeyRange>,
    pub content: Content,
}

/// A record that was read. Some of its blocks may be unreadable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub header: RecordHeader,
    /// Where it ends, by its header. The file may end before.
    pub end: u64,
    pub since: u64,
    pub recent: Vec<KeyRange>,
    /// What the records from `since` on have done to the rows that are kept twice.
    pub own: Option<MutationBatch>,
    pub blocks: Vec<ReadBlock>,
}

impl Record {
    pub fn unreadable(&self) -> impl Iterator<Item = &ReadBlock> {
        let blocks = self.blocks.iter();
        blocks.filter(|block| block.content == Content::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    fn directory() -> Directory {
        let block = |kind, len, ranges| Block {
            kind,
            len,
            crc: 7,
            ranges,
        };
        Directory {
            since: 3,
            recent: vec![range("a", "b"), range("c", "d")],
            own_len: 5,
            own_crc: 9,
            blocks: vec![
                block(BlockKind::Operations, 10, vec![range("", "z")]),
                block(BlockKind::Lost, 20, vec![]),
            ],
        }
    }

    #[test]
    fn a_directory_and_lost_ranges_come_back_as_they_were_written() {
        let directory = directory();
        let bytes = directory.encode();
        assert_eq!(
            Directory::decode(bytes.clone(), 35).as_ref(),
            Some(&directory)
        );
        assert_eq!(Directory::decode(bytes.clone(), 34), None);
        for len in 0..bytes.len() {
            assert_eq!(Directory::decode(bytes.slice(..len), 35), None);
        }
        let origin = Origin {
            segment: 4,
            offset: 5000,
        };
        let parts = vec![LostPart {
            range: range("k", "l"),
            origin,
        }];
        let decoded = Content::decode(BlockKind::Lost, encode_lost(&parts));
        assert_eq!(decoded, Content::Lost(parts));
    }

    proptest! {
        #[test]
        fn bytes_that_nobody_has_written_are_refused_or_read(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            changes in prop::collection::vec((0usize..100, any::<u8>()), 0..4),
        ) {
            let _ = Directory::decode(Bytes::from(bytes.clone()), 35);
            let _ = Content::decode(BlockKind::Lost, Bytes::from(bytes.clone()));
            let _ = Content::decode(BlockKind::Operations, Bytes::from(bytes));
            let mut changed = directory().encode().to_vec();
            for (at, byte) in changes {
                let at = at % changed.len();
                changed[at] = byte;
            }
            let _ = Directory::decode(Bytes::from(changed), 35);
        }
    }
}
