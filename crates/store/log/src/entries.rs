//! The entries of a log server in the blocks of its disk queue.

use crate::disk_queue::{self, Block};
use crate::log_server::Entry;
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::{Error, Result};

/// A block with this many bytes takes no further version: a reader of a part of a block reads all of it.
pub(crate) const BLOCK_BYTES_WANTED: usize = 4 << 20;

pub(crate) fn put(block: &mut Block, entry: &Entry) {
    block.push(|out| entry.put(out));
}

/// All entries of a block that was read from the disk.
pub(crate) fn of(block: &Bytes) -> Result<Vec<Entry>> {
    let entries = disk_queue::entries(block).ok_or(Error::file_corrupt)?;
    entries
        .into_iter()
        .map(|bytes| Entry::from_bytes(bytes).ok_or(Error::file_corrupt))
        .collect()
}
