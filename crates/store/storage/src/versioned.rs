//! What a storage server needs of the place where it keeps its rows: every version of the last seconds, and what is
//! on disk below them.
//!
//! ```text
//!        durable           oldest readable                          latest
//! ----------|--------------------|-----------------------------------|-------> versions
//! ```
//!
//! [`WindowedStore`](crate::windowed::WindowedStore) is the one that there is: a window in memory over an engine that
//! knows only its last state. An engine that keeps versions on disk itself can stand in its place.
//! `versioned/tests.rs` states what every store has to do, and checks it with a second store of that kind.

#[cfg(test)]
mod tests;

pub use crate::window::{RangeEnd, RangeLimits, RangeRead, Taking};

use bytes::Bytes;
use plinth_core::{EngineKind, MutationRef, Result, Version};
use plinth_engine::{FileDamage, LocalBoxFuture, Wanted, WriteBatch};
use plinth_protocol::DurableVersion;

/// Rows in versions.
///
/// Versions come in order. A version is taken in with [`apply`](Self::apply) and [`clear_some`](Self::clear_some), can
/// be read after [`advance`](Self::advance), and is durable after [`commit`](Self::commit). A recovery may undo
/// versions that were not taken for a commit. Steps are small, so that reads come between: a version may have ten
/// megabytes.
///
/// What may never happen: a version that goes backwards; a read outside `[oldest, latest]`; a rollback below what was
/// taken (pitfall 15). Each is asserted.
pub trait VersionedStore {
    /// Everything up to this version is durable, and its history is forgotten.
    fn durable_version(&self) -> Version;

    /// The oldest version that may be read.
    fn oldest_version(&self) -> Version;

    /// Memory, in bytes, that versions above the durable one take up.
    fn window_bytes(&self) -> usize;

    // ---- taking in ----

    /// Applies a mutation at `version`, which is above the latest and not below the last one applied. An atomic
    /// operation becomes the state that it leads to. If it fails, nothing has changed.
    fn apply(&self, version: Version, mutation: MutationRef<'_>) -> Result<()>;

    /// Clears `[begin, end)` at `version`, from `from` on: about `keys_max` keys of the window. Returns where to go
    /// on; `None` if that was all. Nothing else may be applied before.
    fn clear_some(
        &self,
        version: Version,
        range: (&[u8], &[u8]),
        from: &[u8],
        keys_max: usize,
    ) -> Option<Bytes>;

    /// Notes that everything at or below `version` has been applied and may be read.
    fn advance(&self, version: Version);

    /// Begins to drop everything above `to`: versions that a recovery has undone. They cannot be read from now on.
    fn begin_rollback(&self, to: Version);

    /// Drops up to `steps_max` states above the latest version. False if that was all; nothing may be applied before.
    fn undo_some(&self, steps_max: usize) -> bool;

    // ---- reading ----

    /// The value of `key` at `version`, which must be readable.
    fn get(&self, key: &[u8], version: Version) -> Result<Option<Bytes>>;

    /// Gives rows to `emit`. Ends early if it has examined enough, or has begun to wait for the disk.
    fn range(&self, read: &RangeRead<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<RangeEnd>;

    /// True if reads are expected to wait for the disk, because one did a moment ago.
    fn is_cold(&self) -> bool;

    /// Reads beside the loop what a read of these rows would wait for the disk for. `None` if it would not wait.
    fn warm(&self, wanted: &Wanted<'_>) -> Option<LocalBoxFuture<'static, ()>>;

    /// True if no version above the durable one touched `[begin, end)`.
    fn is_untouched(&self, begin: &[u8], end: &[u8]) -> bool;

    /// Shows the server's own rows in `[begin, end)`, as of the last commit, until `visit` returns false. They lie
    /// beyond all keys of the database and have no versions: they come with the batch of a commit.
    fn own_rows(
        &self,
        begin: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    // ---- making durable ----

    /// Begins to take what becomes durable with `up_to`. Reads below `up_to` are refused from now on. Taking again
    /// before a commit gives the earlier part again.
    fn begin_taking(&self, up_to: Version) -> Taking;

    /// Takes up to `touches_max` more states. False if that was all. Versions above may come and go between calls.
    fn take_some(&self, taking: &mut Taking, touches_max: usize) -> bool;

    /// Makes everything up to `up_to` durable, atomically: `batch` is what was taken, and what the server adds to it.
    /// One commit at a time. After [`disk_full`](plinth_core::Error::disk_full) nothing has changed, and the server
    /// takes again. After any other error the store answers with nothing but that error.
    fn commit(
        &self,
        up_to: Version,
        batch: WriteBatch,
    ) -> LocalBoxFuture<'_, Result<DurableVersion>>;

    /// Drops up to `steps_max` of the states that are durable now. False if that was all.
    fn forget_some(&self, durable: DurableVersion, steps_max: usize) -> bool;

    // ---- about it ----

    fn kind(&self) -> EngineKind;

    /// Opens its files again after they were found damaged, to serve what is intact.
    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>>;

    /// True if nothing can be read until that has happened.
    fn has_failed(&self) -> bool;

    /// What is known to be damaged of its files.
    fn damage(&self) -> FileDamage;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;
}
