//! Versions that are on disk.

use plinth_core::{Version, codec_for};
use plinth_runtime::disk::Synced;

/// Everything up to this version is on the disk of the server that says so. On the wire it is a version; a receiver
/// believes its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DurableVersion(Version);

impl DurableVersion {
    /// The sync that gave the proof began when everything up to `version` had been written.
    pub fn new(version: Version, _: Synced) -> Self {
        DurableVersion(version)
    }

    /// For a server that takes only versions above `version`: it has nothing to write up to there.
    pub fn of_nothing(version: Version) -> Self {
        DurableVersion(version)
    }

    pub fn version(self) -> Version {
        self.0
    }
}

codec_for!(DurableVersion(Version));

impl std::fmt::Display for DurableVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
