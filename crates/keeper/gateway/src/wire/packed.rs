//! Compressed blocks, as ClickHouse's clients ask for them: what follows the greeting goes through blocks of LZ4, in
//! both directions. No frame begins or ends with a block by itself, but those who send end a block with each frame:
//! ClickHouse's client looks at the socket before each answer, and would not see one that it has in memory already.
//!
//! ```text
//!   checksum: 16 | method: 1 | packed bytes: 4 | plain bytes: 4 | LZ4 …
//!                  └────────── packed bytes count these ─────────────┘
//! ```
//! Numbers are little-endian here. The checksum is CityHash128 of version 1.0.2 over all that follows it, its lower
//! half first.
//!
//! Promises: no input causes a panic. A block has a limit, packed and plain, which is seen in its first bytes; and
//! room for what is in it is made when its checksum is right.

use bytes::{Buf, BufMut, BytesMut};
use plinth_core::output::Output;
use std::fmt;

const CHECKSUM_BYTES: usize = 16;
const HEADER_BYTES: usize = 9;
const METHOD_LZ4: u8 = 0x82;
/// Most plain bytes of a block. ClickHouse's clients gather as many before they make one.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Bytes that are no block. The connection that they came from must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damaged {
    Checksum,
    /// Another kind of compression.
    Method(u8),
    /// It says that it has more bytes than a block may have, or fewer than any has.
    Length,
    /// It does not become what it says.
    Content,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damaged::Checksum => f.write_str("a block's checksum does not match"),
            Damaged::Method(method) => write!(f, "a block is compressed in a way {method:#x}"),
            Damaged::Length => f.write_str("a block has a length that no block has"),
            Damaged::Content => f.write_str("a block cannot be unpacked"),
        }
    }
}

impl std::error::Error for Damaged {}

/// The lengths of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    /// Bytes of the whole block.
    pub block: usize,
    /// Bytes that become of it.
    pub plain: usize,
}

/// The lengths of the block at the front of `buffer`; `None` until they are there.
///
/// # Errors
/// No block has such lengths.
pub fn front(buffer: &[u8]) -> Result<Option<Front>, Damaged> {
    let Some(mut header) = buffer.get(CHECKSUM_BYTES..CHECKSUM_BYTES + HEADER_BYTES) else {
        return Ok(None);
    };
    let method = header.get_u8();
    if method != METHOD_LZ4 {
        return Err(Damaged::Method(method));
    }
    let (packed, plain) = (header.get_u32_le() as usize, header.get_u32_le() as usize);
    let is_possible = (1..=BLOCK_BYTES_MAX).contains(&plain)
        && (HEADER_BYTES + 1..=HEADER_BYTES + packed_bytes_max(plain)).contains(&packed);
    match is_possible {
        true => Ok(Some(Front {
            block: CHECKSUM_BYTES + packed,
            plain,
        })),
        false => Err(Damaged::Length),
    }
}

/// The most that so many bytes become.
fn packed_bytes_max(plain: usize) -> usize {
    lz4_flex::block::get_maximum_output_size(plain)
}

/// Takes the block at the front of `buffer` and appends what is in it to `plain`. False until it is whole.
///
/// # Errors
/// It is no block.
pub fn unpack(buffer: &mut BytesMut, plain: &mut BytesMut) -> Result<bool, Damaged> {
    let Some(front) = front(buffer)?.filter(|front| front.block <= buffer.len()) else {
        return Ok(false);
    };
    let block = buffer.split_to(front.block);
    let (said, checked) = block.split_at(CHECKSUM_BYTES);
    if *said != checksum(checked) {
        return Err(Damaged::Checksum);
    }
    let start = plain.len();
    plain.resize(start + front.plain, 0);
    let unpacked = lz4_flex::block::decompress_into(&checked[HEADER_BYTES..], &mut plain[start..]);
    match unpacked {
        Ok(bytes) if bytes == front.plain => Ok(true),
        _ => {
            plain.truncate(start);
            Err(Damaged::Content)
        }
    }
}

/// Appends what `append` adds in blocks of their own.
pub fn put_packed(out: &mut Output, append: impl FnOnce(&mut Output)) {
    let mut plain = Output::copying();
    append(&mut plain);
    for piece in plain.into_bytes().chunks(BLOCK_BYTES_MAX) {
        put_block(out.buffer(), piece);
    }
}

fn put_block(out: &mut BytesMut, plain: &[u8]) {
    let start = out.len();
    let content = start + CHECKSUM_BYTES + HEADER_BYTES;
    out.resize(content + packed_bytes_max(plain.len()), 0);
    let packed = lz4_flex::block::compress_into(plain, &mut out[content..]);
    let packed = packed.expect("there is room for the most that it becomes");
    out.truncate(content + packed);
    let mut header = &mut out[start + CHECKSUM_BYTES..content];
    header.put_u8(METHOD_LZ4);
    header.put_u32_le((HEADER_BYTES + packed) as u32);
    header.put_u32_le(plain.len() as u32);
    let checksum = checksum(&out[start + CHECKSUM_BYTES..]);
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum);
}

/// As it stands before the bytes.
pub(super) fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    // The crate has the halves the other way round.
    cityhash_rs::cityhash_102_128(bytes)
        .rotate_right(64)
        .to_le_bytes()
}
