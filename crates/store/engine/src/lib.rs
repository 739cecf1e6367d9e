//! Engines: where a storage server keeps the data that has left its versioned window (FDB §2.3.4).
//!
//! An engine is an ordered map on disk of which only the last committed state can be read. Commits are atomic and
//! durable, one at a time. Reads are synchronous. While a commit is in progress, a read sees the state before it; of
//! the memory engine it may also see a part of a large commit. Versions are kept by the window, not by the engine.
//!
//! | kind | rows | disk |
//! |---|---|---|
//! | [`memory`] | all in memory, in [`sorted`] blocks | a log of commits with a rolling snapshot in it |
//! | [`ssd`] | in pages of a B-tree, some cached | the tree, in a file whose every block has a checksum |
//!
//! An engine promises: a commit whose future resolved `Ok` survives a crash, whole. Any other commit is there whole or
//! not at all after a crash. A changed bit on disk becomes an error that names file and offset in the trace, and is
//! never returned as data. What may never happen: a read that sees half a batch when its commit has resolved, or when
//! another commit has begun; an `Ok` before the sync returned.

pub mod batch;
mod damage;
mod failure;
mod key_bytes;
pub mod knobs;
pub mod memory;
pub mod sorted;
pub mod ssd;
#[cfg(test)]
mod tests;

pub use batch::{NetEffect, Op, WriteBatch};
pub use damage::{DamagedPart, FileDamage};

use bytes::Bytes;
use plinth_core::{EngineKind, Result};
use plinth_runtime::Boxed;
use plinth_runtime::disk::Synced;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

/// A future on this thread, boxed so that the trait can be an object.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Range to preload for an upcoming read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub begin: &'a [u8],
    pub end: &'a [u8],
    pub reverse: bool,
    /// About this many bytes of its rows.
    pub bytes: usize,
}

/// An ordered map on disk. See the module for what it promises.
pub trait KeyValueStore {
    /// The value of `key` in the last committed state.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// Shows the rows of `[begin, end)` in order, or in reverse order, until `visit` returns false.
    fn range(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// As [`range`](Self::range), but ends soon after the read has waited for the disk. Returns the last key shown in
    /// that case; the rest can be [warmed](Self::warm).
    fn range_while_warm(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<Bytes>> {
        self.range(begin, end, reverse, visit).map(|()| None)
    }

    /// True if reads are expected to wait for the disk, because one did a moment ago.
    fn is_cold(&self) -> bool {
        false
    }

    /// Reads beside the loop what [`range`](Self::range) over these rows, up to about `bytes` of them, would wait for
    /// the disk for. Afterwards that read does not wait. `None` if, as far as is known, it would not wait anyway.
    fn warm(&self, range: &Wanted<'_>) -> Option<LocalBoxFuture<'static, ()>> {
        let _ = range;
        None
    }

    /// Applies `batch`, atomically. It is durable and readable when this resolves. One commit at a time: the next may
    /// begin when the last has resolved. After [`Error::disk_full`](plinth_core::Error::disk_full) nothing has changed
    /// and the same batch may be committed again. After any other error the engine answers with nothing but that
    /// error. If the future is dropped before it resolves, the engine can no longer commit.
    fn commit(&self, batch: WriteBatch) -> LocalBoxFuture<'_, Result<Synced>>;

    /// Bytes that the engine takes up on disk.
    fn bytes_used(&self) -> u64;

    fn kind(&self) -> EngineKind;

    /// Opens the files again after an error that says that they are damaged. Then all can be read that is intact, as
    /// of the last commit that went through, and what is known to be damaged is refused without a look at the disk.
    /// Fails if the files cannot be opened, or no longer work for another reason.
    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>>;

    /// True if nothing can be read until the files are [opened again](Self::open_again).
    fn has_failed(&self) -> bool {
        false
    }

    /// What is known to be damaged.
    fn damage(&self) -> FileDamage {
        FileDamage::default()
    }

    /// Releases the files. Nothing committed depends on it.
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, Result<()>>;
}

fn parent_dir(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// What a storage server must know of its own to serve its rows: the version that they have, and which ranges it
/// holds. Rows from the first key up to the second are kept in two places of the files.
pub const KEPT_TWICE: (&[u8], &[u8]) = (b"\xff\xff/", b"\xff\xff/sample/");

/// A good size for the `cache_bytes` of [`open`], and the servers' default. A commit holds its pages twice, those
/// before it and those after it: a million small rows, 110 MB of tree, live in it while a tenth of them changes each
/// second.
pub const SSD_CACHE_BYTES: usize = 512 << 20;

/// Opens the engine whose files begin with `path`, or makes an empty one if `create` is set and there is none.
///
/// `cache_bytes` is the memory in which an ssd engine may keep pages and rows; the memory engine does not use it.
/// Without `create` a missing engine is [`Error::file_not_found`](plinth_core::Error::file_not_found). Damage is
/// [`Error::file_corrupt`](plinth_core::Error::file_corrupt) or
/// [`Error::checksum_failed`](plinth_core::Error::checksum_failed), with a trace event that names file and offset.
pub fn open(
    kind: EngineKind,
    path: &Path,
    create: bool,
    cache_bytes: usize,
) -> Boxed<'_, Result<Rc<dyn KeyValueStore>>> {
    Box::pin(async move {
        let engine: Rc<dyn KeyValueStore> = match kind {
            EngineKind::Memory => memory::MemoryEngine::open(path, create).await?,
            EngineKind::Ssd => ssd::SsdEngine::open(path, create, cache_bytes).await?,
        };
        Ok(engine)
    })
}
