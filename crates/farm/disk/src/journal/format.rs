//! The bytes of a journal's files.
//!
//! ```text
//! segment  <name>.<number of its first record, 16 hexadecimal digits>
//!   head     64 B   "PLFJ" | format u32 | id u64 | first record u64 | bytes of the file u64 | crc32c u32 | zeros
//!   block    32 B   length u32 | crc32c u32 | first record u64 | needed from u64 | records u32 | zeros
//!            then   its records: length u32 | bytes
//! ```
//!
//! All integers are little-endian. A block's checksum covers the journal's id, its segment's first record and its own
//! offset, so a block that lay in the file before it was used again never passes for one of this segment.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::output::Output;

const MAGIC: &[u8; 4] = b"PLFJ";
pub const FORMAT: u32 = 1;
pub const HEAD_BYTES: usize = 64;
pub const BLOCK_HEAD_BYTES: usize = 32;
const RECORD_HEAD_BYTES: usize = 4;
const CRC_AT: usize = 32;
/// Length and checksum of a block stand before what the checksum covers.
const SIGNED_FROM: usize = 8;
/// A longer block is never written, and not believed.
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// The segment that a block lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    pub id: u64,
    pub first: u64,
}

/// What the head of a segment says.
#[derive(PartialEq, Eq, Debug)]
pub enum Head {
    /// The segment, and the bytes that its file had when it was begun.
    Whole(Segment, u64),
    /// A whole head, of another format.
    Other(u32),
    Broken,
}

pub fn put_head(out: &mut Output, segment: Segment, file_bytes: u64) {
    let mut head = BytesMut::with_capacity(HEAD_BYTES);
    head.put_slice(MAGIC);
    head.put_u32_le(FORMAT);
    head.put_u64_le(segment.id);
    head.put_u64_le(segment.first);
    head.put_u64_le(file_bytes);
    let crc = crc32c::crc32c(&head);
    head.put_u32_le(crc);
    head.resize(HEAD_BYTES, 0);
    out.buffer().put_slice(&head);
}

pub fn parse_head(bytes: &[u8]) -> Head {
    let Some(bytes) = bytes.get(..HEAD_BYTES) else {
        return Head::Broken;
    };
    let (signed, mut rest) = bytes.split_at(CRC_AT);
    if !signed.starts_with(MAGIC) || rest.get_u32_le() != crc32c::crc32c(signed) {
        return Head::Broken;
    }
    let mut fields = &signed[4..];
    match fields.get_u32_le() {
        FORMAT => {
            let (id, first) = (fields.get_u64_le(), fields.get_u64_le());
            Head::Whole(Segment { id, first }, fields.get_u64_le())
        }
        other => Head::Other(other),
    }
}

/// Records that are written together.
pub struct Block {
    pub first: u64,
    /// Records below this are not needed any more.
    pub needed: u64,
    pub records: Vec<Bytes>,
}

pub fn record_bytes(record: &Bytes) -> usize {
    RECORD_HEAD_BYTES + record.len()
}

/// Of a block from its first field behind the checksum on, in pieces.
fn checksum<'a>(segment: Segment, offset: u64, pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    let place = [segment.id, segment.first, offset].map(u64::to_le_bytes);
    pieces.fold(crc32c::crc32c(place.as_flattened()), crc32c::crc32c_append)
}

impl Block {
    pub fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Appends the block as it is written to `offset`.
    pub fn encode(&self, out: &mut Output, segment: Segment, offset: u64) {
        let head = out.mark();
        let length: usize = self.records.iter().map(record_bytes).sum();
        out.buffer().put_u32_le(length as u32);
        out.buffer().put_u32_le(0); // the checksum, below
        let fields = out.mark();
        out.buffer().put_u64_le(self.first);
        out.buffer().put_u64_le(self.needed);
        out.buffer().put_u32_le(self.records.len() as u32);
        out.buffer().put_u32_le(0);
        for record in &self.records {
            out.buffer().put_u32_le(record.len() as u32);
            out.put_shared(record);
        }
        let crc = checksum(segment, offset, out.pieces_from(fields));
        let mut begin = [0; 8];
        begin[..4].copy_from_slice(&(length as u32).to_le_bytes());
        begin[4..].copy_from_slice(&crc.to_le_bytes());
        out.patch(head, &begin);
    }
}

/// The block at `offset` of a segment's bytes, and its length there; `None` if no whole one begins there.
pub fn parse_block(bytes: &Bytes, segment: Segment, offset: usize) -> Option<(Block, usize)> {
    let head = bytes.get(offset..)?.get(..BLOCK_HEAD_BYTES)?;
    let mut fields = head;
    let length = fields.get_u32_le() as usize;
    let crc = fields.get_u32_le();
    let first = fields.get_u64_le();
    let needed = fields.get_u64_le();
    let count = fields.get_u32_le();
    let begin = offset + BLOCK_HEAD_BYTES;
    if length > BLOCK_BYTES_MAX || bytes.len() - begin < length {
        return None;
    }
    let signed = &bytes[offset + SIGNED_FROM..begin + length];
    if checksum(segment, offset as u64, std::iter::once(signed)) != crc {
        return None;
    }
    let mut body = bytes.slice(begin..begin + length);
    let mut records = Vec::new();
    while !body.is_empty() {
        let length = body.try_get_u32_le().ok()? as usize;
        if length > body.len() {
            return None;
        }
        records.push(body.split_to(length));
    }
    let is_possible = records.len() == count as usize && first.checked_add(count.into()).is_some();
    let block = Block {
        first,
        needed,
        records,
    };
    is_possible.then_some((block, BLOCK_HEAD_BYTES + length))
}

/// True if a whole block begins behind `offset`: then what lies at `offset` was durable once.
pub fn has_later_block(bytes: &Bytes, segment: Segment, offset: usize) -> bool {
    let end = (bytes.len() + 1).saturating_sub(BLOCK_HEAD_BYTES);
    (offset + 1..end).any(|at| {
        let head = &bytes[at..at + BLOCK_HEAD_BYTES];
        // Few places look like the head of a block of this segment, so few are worth a checksum.
        let first = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        let distance = first.wrapping_sub(segment.first);
        let is_like = distance <= bytes.len() as u64 && head[..8] != [0; 8];
        is_like && parse_block(bytes, segment, at).is_some()
    })
}
