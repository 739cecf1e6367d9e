//! What can go wrong with files, and where.

use plinth_core::texts;
use plinth_runtime::trace_warn;
use std::io;
use std::path::{Path, PathBuf};

texts! {
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Error {
        /// There is no room on the disk. Nothing is lost: the same call succeeds when there is room again.
        Full { path: PathBuf } = "{}: the disk is full", path.display();
        /// An operation on a file has failed. If it was a write, everything that writes fails from now on: the process
        /// has to end, and to begin again from what is on disk.
        Failed { path: PathBuf, why: String } = "{}: {why}", path.display();
        /// A file does not have what was written to it.
        Damaged { path: PathBuf, offset: u64, what: &'static str } =
            "{} is damaged at byte {offset}: {what}", path.display();
        /// The file was made with other settings, or by another version of this program.
        Unlike { path: PathBuf, what: String } = "{}: {what}", path.display();
        /// The caller has asked for what cannot be. Nothing was done.
        Refused { why: String } = "{why}";
    }
}

impl Error {
    pub(crate) fn of(path: &Path, error: &io::Error) -> Error {
        trace_warn!("FarmDiskError", "file" => path.display(), "error" => error);
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path },
            _ => Error::Failed {
                path,
                why: error.to_string(),
            },
        }
    }

    pub(crate) fn damaged(path: &Path, offset: u64, what: &'static str) -> Error {
        trace_warn!("FarmDiskDamaged", "file" => path.display(), "offset" => offset, "what" => what);
        let path = path.to_owned();
        Error::Damaged { path, offset, what }
    }

    pub(crate) fn refused(why: impl Into<String>) -> Error {
        Error::Refused { why: why.into() }
    }

    /// The same call may succeed later.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. })
    }
}

impl std::error::Error for Error {}
