//! Versions that are on disk.

use bytes::Bytes;
use plinth_core::Version;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
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

impl Codec for DurableVersion {
    fn put(&self, out: &mut Output) {
        self.0.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        Version::take(input).map(DurableVersion)
    }

    fn draw(source: &mut dyn Source) -> Self {
        DurableVersion(Version::draw(source))
    }
}

impl std::fmt::Display for DurableVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
