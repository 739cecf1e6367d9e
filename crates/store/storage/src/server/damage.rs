//! Damage in the engine's files: they are opened again, and what is intact is served on.
//!
//! The engine knows what it has found damaged, and refuses it. Other reads wait while the files are opened again. That
//! happens once for each place that is found.

use super::Server;
use crate::knobs::BYTE_SAMPLE_UNIT;
use crate::sample::ByteSample;
use crate::versioned::VersionedStore;
use bytes::Bytes;
use plinth_core::key::printable;
use plinth_core::{Error, MutationRef, Result, Uid, Version};
use plinth_engine::FileDamage;
use plinth_runtime::{probe, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Commits in a row that meet damage, after which none is tried again.
const DAMAGED_COMMITS_MAX: u32 = 3;
/// How often a read or a mutation that meets damage is tried again when the files have been opened again.
pub(super) const TRIES_MAX: u32 = 3;

/// What a storage server has found damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    pub error: Error,
    pub files: FileDamage,
}

/// Keys that missed an atomic operation, because the value under it could not be read. The value that they had before
/// must never be taken for theirs, so they are refused while this server lives, and nothing is made durable any more.
/// The operations stay in the log for the server's next life.
#[derive(Default)]
pub(super) struct LeftOut(RefCell<BTreeSet<Bytes>>);

impl LeftOut {
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        let keys = self.0.borrow();
        !keys.is_empty() && keys.contains(key)
    }

    /// The first of them in a range, or the last.
    #[inline]
    pub fn next_in(&self, begin: &[u8], end: &[u8], reverse: bool) -> Option<Bytes> {
        let keys = self.0.borrow();
        if keys.is_empty() || begin >= end {
            return None;
        }
        let mut keys = keys.range::<[u8], _>((
            std::ops::Bound::Included(begin),
            std::ops::Bound::Excluded(end),
        ));
        match reverse {
            true => keys.next_back().cloned(),
            false => keys.next().cloned(),
        }
    }

    /// Stops for ever if there are some.
    pub async fn stop_if_some(&self, id: Uid) {
        if !self.0.borrow().is_empty() {
            probe!("storage_stores_nothing_without_what_it_left_out");
            trace_warn!("StorageTakesNoWrites", "id" => id, "left_out" => self.0.borrow().len());
            let never: Infallible = std::future::pending().await;
            match never {}
        }
    }
}

/// The sample of sizes. Where its rows are damaged, sizes are told too small until others have the data.
pub(super) async fn load_sample(store: &dyn VersionedStore) -> Result<ByteSample> {
    loop {
        let (sample, read) = ByteSample::load(store, BYTE_SAMPLE_UNIT.get());
        match read {
            Ok(()) => return Ok(sample),
            // Its first row behind damage is met once: then the engine knows of it.
            Err(error) if error.is_damage() && store.has_failed() => store.open_again().await?,
            Err(error) if error.is_damage() => {
                probe!("storage_has_a_part_of_its_sample");
                return Ok(sample);
            }
            Err(error) => return Err(error),
        }
    }
}

impl Server {
    /// What was known to be damaged before this start is refused again, and others get the data.
    pub(super) fn tell_known_damage(&self) {
        let files = self.store.damage();
        if !files.parts.is_empty() {
            probe!("storage_starts_with_known_damage");
            let error = Error::checksum_failed;
            self.role.damaged.set(Some(Damage { error, files }));
        }
    }

    /// Opens the engine's files again whenever damage is met, so that what is intact is served on. Returns the error
    /// with which that failed.
    pub(super) async fn open_again(&self) -> Error {
        loop {
            self.damaged.wait_until(Option::is_some).await;
            let error = self.damaged.get().expect("waited for");
            if !error.is_damage() {
                return error;
            }
            probe!("storage_serves_on_after_damage");
            let files = self.store.damage();
            self.role.damaged.set(Some(Damage { error, files }));
            if let Err(error) = self.store.open_again().await {
                // Nobody waits for it any longer.
                self.damaged.set(Some(Error::io_error));
                return error;
            }
            self.damaged.set(None);
        }
    }

    /// True if reads are to wait until the files have been opened again.
    pub(super) fn is_opening(&self) -> bool {
        self.damaged.with(|met| met.is_some_and(Error::is_damage))
    }

    pub(super) async fn opened(&self) {
        let is_open = |met: &Option<Error>| !met.is_some_and(Error::is_damage);
        self.damaged.wait_until(is_open).await;
    }

    /// Notes an error of the engine after which its files must be opened again, or this server ends. False if it only
    /// says what is known.
    pub(super) fn note_failure(&self, error: Error) -> bool {
        let is_new = !error.is_damage() || self.store.has_failed();
        if is_new {
            self.damaged.set(Some(error));
        }
        is_new
    }

    /// A commit met damage: its own, or that of a read beside it. Where it meets it again and again, nothing more can
    /// be written, and the server serves what it has until others have all of it.
    pub(super) async fn meets_damage_in_commit(&self, error: Error, times: u32) {
        self.damaged.set(Some(error));
        self.damaged.wait_until(Option::is_none).await;
        if times >= DAMAGED_COMMITS_MAX {
            probe!("storage_takes_no_more_writes");
            trace_warn!("StorageTakesNoWrites", "id" => self.role.id, "error" => error);
            std::future::pending::<()>().await;
        }
    }

    /// Applies a mutation that has met damage again when the files have been opened again. An atomic operation whose
    /// value cannot be read is left out with its key: all else is served on.
    pub(super) async fn apply_or_leave_out(
        &self,
        version: Version,
        mutation: &MutationRef<'_>,
        mut error: Error,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            if !error.is_damage() {
                return Err(error);
            }
            if !self.note_failure(error) {
                break;
            }
            self.opened().await;
            match self.store.apply(version, *mutation) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        if !error.is_damage() {
            return Err(error);
        }
        probe!("storage_leaves_out_an_atomic_operation");
        let key = mutation.first;
        trace_warn!("StorageLeavesOut", "id" => self.role.id, "key" => printable(key), "version" => version);
        let mut keys = self.left_out.0.borrow_mut();
        keys.insert(Bytes::copy_from_slice(key));
        Ok(())
    }
}
