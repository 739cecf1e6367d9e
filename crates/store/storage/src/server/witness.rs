//! What a storage server knows to be committed, in its files. Its data there is older, by the window that readers
//! need. A recovery asks for it, so that a log server that was set back does not end the log too early.

use crate::versioned::VersionedStore;
use plinth_core::{Error, Result, Version};
use plinth_engine::WriteBatch;

pub(crate) const COMMITTED: &[u8] = b"\xff\xff/committed";
pub(crate) const COMMITTED_END: &[u8] = b"\xff\xff/committed\0";

/// Adds to a commit of the engine what was known to be committed before it.
pub(super) fn put(known_committed: Version, batch: &mut WriteBatch) {
    batch.set(COMMITTED, &known_committed.to_be_bytes());
}

/// The version in the files; 0 if there is none. Fails with `file_corrupt` if that is no version.
pub(super) fn load(store: &dyn VersionedStore) -> Result<Version> {
    let mut found = Ok(0);
    store.own_rows(COMMITTED, COMMITTED_END, &mut |_, value| {
        found = value.try_into().map(Version::from_be_bytes);
        true
    })?;
    found.map_err(|_| Error::file_corrupt)
}
