//! What can go wrong with files, and where.

use plinth_runtime::trace_warn;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// There is no room on the disk. Nothing is lost: the same call succeeds when there is room again.
    Full { path: PathBuf },
    /// An operation on a file has failed. If it was a write, everything that writes fails from now on: the process
    /// has to end, and to begin again from what is on disk.
    Failed { path: PathBuf, why: String },
    /// A file does not have what was written to it.
    Damaged {
        path: PathBuf,
        offset: u64,
        what: &'static str,
    },
    /// The file was made with other settings, or by another version of this program.
    Unlike { path: PathBuf, what: String },
    /// The caller has asked for what cannot be. Nothing was done.
    Refused { why: String },
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Full { path } => write!(f, "{}: the disk is full", path.display()),
            Error::Failed { path, why } => write!(f, "{}: {why}", path.display()),
            Error::Damaged { path, offset, what } => {
                let path = path.display();
                write!(f, "{path} is damaged at byte {offset}: {what}")
            }
            Error::Unlike { path, what } => write!(f, "{}: {what}", path.display()),
            Error::Refused { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}
