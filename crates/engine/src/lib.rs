//! Engines: where a storage server keeps what has left its versioned window (FDB §2.3.4).
//!
//! An engine is an ordered map on disk of which only the last committed state can be read. Commits are atomic and
//! durable, one at a time; reads are synchronous and see the state before the commit in progress until
//! it has resolved. Versions are the window's business, not the engine's.
//!
//! | kind | rows | disk |
//! |---|---|---|
//! | [`memory`] | all in memory, in [`sorted`] blocks | a log of commits with a rolling snapshot in it |
//! | [`ssd`] | in pages of a B-tree, some cached | the tree, in a file whose every block has a checksum |
//!
//! What an engine promises: a commit whose future resolved `Ok` survives a crash, whole; one that did not is there
//! whole or not at all. A changed bit on disk becomes an error that names file and offset in the trace, and is never
//! returned as data. What may never happen: a read that sees half a batch when its commit has resolved, or that another commit
//! has begun; an `Ok` before the sync returned.

pub mod batch;
mod failure;
pub mod memory;
pub mod sorted;
pub mod ssd;
#[cfg(test)]
mod tests;

pub use batch::{NetEffect, Op, WriteBatch};

use bytes::Bytes;
use plinth_core::{EngineKind, Result};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

/// A future on this thread, boxed so that the trait can be an object.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Rows that somebody is about to read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub begin: &'a [u8],
    pub end: &'a [u8],
    pub reverse: bool,
    /// About so many bytes of them.
    pub bytes: usize,
}

/// An ordered map on disk. See the module for what it promises.
pub trait KeyValueStore {
    /// The value of `key` in the last committed state.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// Shows the rows of `[begin, end)` in order, or in reverse order, until `visit` answers false.
    fn range(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// As [`range`](Self::range), but a read that begins to wait for the disk ends soon: gives the last key that it has shown then,
    /// and the rest can be [warmed](Self::warm).
    fn range_while_warm(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<Bytes>> {
        self.range(begin, end, reverse, visit).map(|()| None)
    }

    /// Reads are expected to wait for the disk: one did a moment ago.
    fn is_cold(&self) -> bool {
        false
    }

    /// What [`range`](Self::range) over these rows, up to about `bytes` of them, would wait for the disk for, read beside the
    /// loop: afterwards it does not wait. `None` if it would not anyway, as far as is known.
    fn warm(&self, range: &Wanted<'_>) -> Option<LocalBoxFuture<'static, ()>> {
        let _ = range;
        None
    }

    /// Applies `batch`, atomically; it is durable and readable when this resolves. One at a time: the next may
    /// be given when the last has resolved. After [`Error::disk_full`](plinth_core::Error::disk_full) nothing has
    /// changed and the batch may be given again; after any other error the engine answers nothing but that
    /// error. If the future is dropped before it resolves the engine can no longer commit.
    fn commit(&self, batch: WriteBatch) -> LocalBoxFuture<'_, Result<()>>;

    /// Bytes that the engine takes up on disk.
    fn bytes_used(&self) -> u64;

    fn kind(&self) -> EngineKind;

    /// Releases the files. Nothing committed depends on it.
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, Result<()>>;
}

fn parent_dir(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

/// A good size for the `cache_bytes` of [`open`], and what servers have by default. A commit holds its pages twice, those before it
/// and those after it: a million small rows, 110 MB of tree, live in it while a tenth of them changes each second.
pub const SSD_CACHE_BYTES: usize = 512 << 20;

/// Opens the engine whose files begin with `path`, or makes an empty one if `create` is set and there is none.
///
/// `cache_bytes` is the memory that an ssd engine may keep pages in; the memory engine has no use for it.
/// Without `create` a missing engine is [`Error::file_not_found`](plinth_core::Error::file_not_found). Damage is
/// [`Error::file_corrupt`](plinth_core::Error::file_corrupt) or
/// [`Error::checksum_failed`](plinth_core::Error::checksum_failed), with a trace event that names file and offset.
pub async fn open(
    kind: EngineKind,
    path: &Path,
    create: bool,
    cache_bytes: usize,
) -> Result<Rc<dyn KeyValueStore>> {
    Ok(match kind {
        EngineKind::Memory => memory::MemoryEngine::open(path, create).await?,
        EngineKind::Ssd => ssd::SsdEngine::open(path, create, cache_bytes).await?,
    })
}
