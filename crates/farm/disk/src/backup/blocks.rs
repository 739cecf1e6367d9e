//! The bytes of an extent: blocks, and in them versions of objects.
//!
//! ```text
//! extent   blocks
//! block    crc32c u32 | first u32 | used u32 | sequence u32 | data
//!          first: where in the block the first version begins; 0: none does
//!          used:  where its data ends
//! version  pointer u64 | timestamp, and bit 62: allocated u64 | length u32 | crc32c u32 | payload
//! ```
//!
//! All integers are little-endian. Versions stand one behind the other. The payload of one may go on in the next
//! blocks, its head lies in one block. A block's checksum covers the store's id, its place in the image and the number
//! of the extent, which is never given twice: what lay at the place before does not pass for it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_farm_memory::Pointer;

pub const BLOCK_HEAD_BYTES: usize = 16;
pub const OBJECT_HEAD_BYTES: usize = 24;
const ALLOCATED: u64 = 1 << 62;
/// Timestamps are below this.
pub const TIMESTAMP_END: u64 = 1 << 62;

/// A version of an object, as a transaction has written it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    pub pointer: Pointer,
    /// The write timestamp, in nanoseconds of global time; greater than 0.
    pub timestamp: u64,
    /// False: the transaction has freed the object.
    pub is_allocated: bool,
    /// What is missing at its end is zeros.
    pub payload: Bytes,
}

impl Version {
    /// Bytes on disk.
    pub fn bytes(&self) -> usize {
        OBJECT_HEAD_BYTES + self.payload.len()
    }
}

/// An extent, as checksums know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub id: u64,
    /// Its place in the image.
    pub place: u32,
    pub sequence: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    first: usize,
    used: usize,
}

fn block_crc(identity: Identity, number: u32, signed: &[u8]) -> u32 {
    let place = u64::from(identity.place) << 32 | u64::from(number);
    let words = [identity.id, place, identity.sequence].map(u64::to_le_bytes);
    crc32c::crc32c_append(crc32c::crc32c(words.as_flattened()), signed)
}

/// Writes the blocks of an extent, in order.
pub struct Writer {
    pub identity: Identity,
    block_bytes: usize,
    /// Blocks of the extent.
    blocks: u32,
    /// Complete blocks, and the one that is open.
    buffer: BytesMut,
    /// The number of the first block in the buffer.
    begin: u32,
    open: Option<Open>,
}

struct Open {
    /// Where the block begins in the buffer.
    start: usize,
    first: usize,
}

impl Writer {
    pub fn new(identity: Identity, block_bytes: u32, blocks: u32) -> Writer {
        Writer {
            identity,
            block_bytes: block_bytes as usize,
            blocks,
            buffer: BytesMut::new(),
            begin: 0,
            open: None,
        }
    }

    /// Blocks that were begun.
    fn begun(&self) -> u32 {
        self.begin + self.buffer.len().div_ceil(self.block_bytes) as u32
    }

    /// Blocks that are complete.
    pub fn complete(&self) -> u32 {
        self.begun() - u32::from(self.open.is_some())
    }

    pub fn complete_bytes(&self) -> usize {
        self.open.as_ref().map_or(self.buffer.len(), |o| o.start)
    }

    fn room_in_block(&self) -> usize {
        let open = self.open.as_ref();
        open.map_or(0, |o| o.start + self.block_bytes - self.buffer.len())
    }

    pub fn has_room(&self, version: &Version) -> bool {
        let here = Some(self.room_in_block()).filter(|room| *room >= OBJECT_HEAD_BYTES);
        let capacity = self.block_bytes - BLOCK_HEAD_BYTES;
        let later = (self.blocks - self.begun()) as usize * capacity;
        here.unwrap_or(0) + later >= version.bytes()
    }

    fn begin_block(&mut self) {
        let start = self.buffer.len();
        self.open = Some(Open { start, first: 0 });
        self.buffer.put_bytes(0, BLOCK_HEAD_BYTES);
    }

    /// Completes the open block: nothing is added to it any more.
    pub fn close(&mut self) {
        let number = self.begun().wrapping_sub(1);
        let Some(open) = self.open.take() else { return };
        let used = self.buffer.len() - open.start;
        self.buffer.resize(open.start + self.block_bytes, 0);
        let block = &mut self.buffer[open.start..];
        put_head(block, self.identity, open.first, used);
        let crc = block_crc(self.identity, number, &block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Appends a version, for which there must be room. Returns the number of the block where it begins.
    pub fn push(&mut self, version: &Version) -> u32 {
        assert!(self.has_room(version), "an extent is too full");
        if self.room_in_block() < OBJECT_HEAD_BYTES {
            self.close();
            self.begin_block();
        }
        let number = self.begun() - 1;
        let offset = self.buffer.len();
        let open = self.open.as_mut().expect("begun above");
        if open.first == 0 {
            open.first = offset - open.start;
        }
        put_object_head(&mut self.buffer, version);
        let mut rest = &version.payload[..];
        loop {
            let (now, later) = rest.split_at(rest.len().min(self.room_in_block()));
            self.buffer.put_slice(now);
            rest = later;
            if rest.is_empty() {
                return number;
            }
            self.close();
            self.begin_block();
        }
    }

    /// The complete blocks that were not taken yet, with the number of the first.
    pub fn take_complete(&mut self) -> Option<(u32, Bytes)> {
        let bytes = self.complete_bytes();
        if bytes == 0 {
            return None;
        }
        let taken = self.buffer.split_to(bytes).freeze();
        let begin = self.begin;
        self.begin += (bytes / self.block_bytes) as u32;
        if let Some(open) = &mut self.open {
            open.start = 0;
        }
        Some((begin, taken))
    }

    /// A copy of a block that was not taken yet, without its checksum if it is open.
    pub fn copy(&self, number: u32) -> Option<Bytes> {
        let start = number.checked_sub(self.begin)? as usize * self.block_bytes;
        let end = self.buffer.len().min(start + self.block_bytes);
        let mut copy = BytesMut::from(self.buffer.get(start..end).filter(|b| !b.is_empty())?);
        if let Some(open) = self.open.as_ref().filter(|open| open.start == start) {
            let used = copy.len();
            put_head(&mut copy, self.identity, open.first, used);
            copy.resize(self.block_bytes, 0);
        }
        Some(copy.freeze())
    }
}

fn put_head(block: &mut [u8], identity: Identity, first: usize, used: usize) {
    block[4..8].copy_from_slice(&(first as u32).to_le_bytes());
    block[8..12].copy_from_slice(&(used as u32).to_le_bytes());
    block[12..16].copy_from_slice(&(identity.sequence as u32).to_le_bytes());
}

fn put_object_head(out: &mut BytesMut, version: &Version) {
    let allocated = if version.is_allocated { ALLOCATED } else { 0 };
    let start = out.len();
    out.put_u64_le(version.pointer.bits());
    out.put_u64_le(version.timestamp | allocated);
    out.put_u32_le(version.payload.len() as u32);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out[start..]), &version.payload);
    out.put_u32_le(crc);
}

/// Some blocks of an extent, one behind the other, whose checksums hold, or which never left this memory.
#[derive(Clone)]
pub struct Blocks {
    block_bytes: usize,
    /// The number of the first.
    begin: u32,
    bytes: Bytes,
    heads: Vec<Head>,
}

/// The number of a block that is not what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken(pub u32);

impl Blocks {
    pub fn new(block_bytes: u32, begin: u32) -> Blocks {
        Blocks {
            block_bytes: block_bytes as usize,
            begin,
            bytes: Bytes::new(),
            heads: Vec::new(),
        }
    }

    /// The number of the block behind the last.
    pub fn end(&self) -> u32 {
        self.begin + self.heads.len() as u32
    }

    /// Adds the blocks that follow. Those from the disk are checked.
    pub fn add(&mut self, bytes: Bytes, checked: Option<Identity>) -> Result<(), Broken> {
        for (number, block) in (self.end()..).zip(bytes.chunks(self.block_bytes)) {
            let head = self.parse_head(block, number, checked);
            self.heads.push(head.ok_or(Broken(number))?);
        }
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            let mut whole = BytesMut::with_capacity(self.bytes.len() + bytes.len());
            whole.put_slice(&self.bytes);
            whole.put_slice(&bytes);
            self.bytes = whole.freeze();
        }
        Ok(())
    }

    fn parse_head(&self, block: &[u8], number: u32, checked: Option<Identity>) -> Option<Head> {
        if block.len() != self.block_bytes {
            return None;
        }
        let mut fields = block;
        let crc = fields.get_u32_le();
        let first = fields.get_u32_le() as usize;
        let used = fields.get_u32_le() as usize;
        let is_whole = checked.is_none_or(|identity| {
            let sequence = fields.get_u32_le();
            sequence == identity.sequence as u32 && crc == block_crc(identity, number, &block[4..])
        });
        let is_possible = (BLOCK_HEAD_BYTES..=self.block_bytes).contains(&used)
            && (first == 0 || (BLOCK_HEAD_BYTES..used).contains(&first));
        (is_whole && is_possible).then_some(Head { first, used })
    }

    /// The versions that begin in these blocks, in order.
    pub fn walk(&self) -> Walk<'_> {
        Walk {
            blocks: self,
            index: 0,
            offset: self.heads.first().map_or(0, |head| head.first),
        }
    }

    /// Bytes of a version's payload from this place on; an error is how many bytes of it are missing here.
    fn payload(
        &self,
        mut index: usize,
        mut offset: usize,
        length: usize,
    ) -> Result<(Bytes, usize, usize), usize> {
        let used = |index: usize| self.heads.get(index).map(|head| head.used);
        let at = |index: usize, offset: usize| index * self.block_bytes + offset;
        if used(index).is_some_and(|used| offset + length <= used) {
            let start = at(index, offset);
            let payload = self.bytes.slice(start..start + length);
            return Ok((payload, index, offset + length));
        }
        let mut payload = BytesMut::with_capacity(length.min(self.bytes.len()));
        loop {
            let Some(used) = used(index) else {
                return Err(length - payload.len());
            };
            let part = (used.saturating_sub(offset)).min(length - payload.len());
            payload.put_slice(&self.bytes[at(index, offset)..at(index, offset) + part]);
            offset += part;
            if payload.len() == length {
                return Ok((payload.freeze(), index, offset));
            }
            index += 1;
            offset = BLOCK_HEAD_BYTES;
        }
    }
}

/// A version, or as much of it as these blocks have.
#[derive(PartialEq, Eq, Debug)]
pub enum Item {
    Whole(Version),
    /// So many bytes of it lie in later blocks.
    Cut(Pointer, usize),
}

pub struct Walk<'a> {
    blocks: &'a Blocks,
    index: usize,
    /// Where the next version begins in the block; 0 if none does any more.
    offset: usize,
}

impl Walk<'_> {
    fn parse(&mut self) -> Option<Item> {
        let blocks = self.blocks;
        let start = self.index * blocks.block_bytes + self.offset;
        let head = blocks.bytes.get(start..start + OBJECT_HEAD_BYTES)?;
        let (signed, mut rest) = head.split_at(OBJECT_HEAD_BYTES - 4);
        let mut fields = signed;
        let pointer = Pointer::from_bits(fields.get_u64_le())?;
        let stamp = fields.get_u64_le();
        let length = fields.get_u32_le() as usize;
        let timestamp = stamp & !ALLOCATED;
        if timestamp >= TIMESTAMP_END || length > pointer.class().payload_bytes() {
            return None;
        }
        let payload_at = self.offset + OBJECT_HEAD_BYTES;
        let (payload, index, offset) = match blocks.payload(self.index, payload_at, length) {
            Ok(found) => found,
            Err(missing) => {
                self.index = blocks.heads.len();
                return Some(Item::Cut(pointer, missing));
            }
        };
        let crc = crc32c::crc32c_append(crc32c::crc32c(signed), &payload);
        if rest.get_u32_le() != crc {
            return None;
        }
        (self.index, self.offset) = (index, offset);
        Some(Item::Whole(Version {
            pointer,
            timestamp,
            is_allocated: stamp & ALLOCATED != 0,
            payload,
        }))
    }
}

impl Iterator for Walk<'_> {
    /// A version, and the number of the block where it begins.
    type Item = Result<(u32, Item), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let head = self.blocks.heads.get(self.index)?;
            if self.offset != 0 && self.offset + OBJECT_HEAD_BYTES <= head.used {
                break;
            }
            self.index += 1;
            let next = self.blocks.heads.get(self.index);
            self.offset = next.map_or(0, |head| head.first);
        }
        let number = self.blocks.begin + self.index as u32;
        match self.parse() {
            Some(item) => Some(Ok((number, item))),
            None => {
                self.index = self.blocks.heads.len();
                Some(Err(Broken(number)))
            }
        }
    }
}
