//! Proofs that something is on disk.

use std::io;

/// Proof that a sync has returned `Ok`. Only the syncs of [`disk`](super) make one. What tells others that data is
/// durable is made from a proof, so it cannot be told too early.
#[derive(Clone, Copy, Debug)]
pub struct Synced(());

impl Synced {
    /// For the result of a sync of a backend.
    pub(super) fn by(synced: io::Result<()>) -> io::Result<Self> {
        synced.map(|()| Synced(()))
    }

    /// A lie, for a planted fault that tells others too early. Panics unless the fault is switched on.
    pub fn pretended(fault: &str) -> Self {
        assert!(
            crate::fault::is_planted(fault),
            "a sync is pretended, but {fault} is not planted"
        );
        Synced(())
    }
}
