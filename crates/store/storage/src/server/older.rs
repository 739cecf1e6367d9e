//! Files of the past: somebody has put an older copy of them back, or a disk has lied. What they lack is no longer in
//! the log, so the server can never catch up. It ends, and its worker has it made anew from the others.

use super::Server;
use plinth_core::{Error, Result, Version};
use plinth_protocol::control::OlderCopy;
use plinth_runtime::{nobody_has_lied, probe, trace_warn};

impl Server {
    /// A generation is forgotten when every storage server has all of it on disk. A server that still needs one has
    /// lost data.
    pub(super) fn check_that_the_log_goes_back_far_enough(&self) -> Result<()> {
        let (needed, system) = (self.latest() + 1, &self.role.log_system);
        let start = system.with(|s| s.generations.first().map_or(0, |g| g.start));
        match start <= needed {
            true => Ok(()),
            false => Err(self.too_old(start)),
        }
    }

    pub(super) fn too_old(&self, log_begins: Version) -> Error {
        let version = self.latest();
        assert!(
            !nobody_has_lied(),
            "the log begins at {log_begins}, and tag {} has all up to {version}",
            self.role.tag.0
        );
        probe!("storage_is_an_older_copy");
        let what = format!(
            "they end at version {version}, and the log begins at {log_begins}: they are an older copy"
        );
        trace_warn!("StorageTooOld", "file" => "the storage server's files", "what" => what, "id" => self.role.id,
            "tag" => self.role.tag.0);
        self.role.older.set(Some(OlderCopy {
            id: self.role.id,
            version,
            log_begins,
        }));
        Error::file_corrupt
    }
}
