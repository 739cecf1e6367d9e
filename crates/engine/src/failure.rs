//! From what a disk says to an error code.

use plinth_core::Error;
use plinth_runtime::trace_warn;
use std::io;
use std::path::Path;

/// The code of a failed disk operation, after an event that names the file.
pub(crate) fn disk_failure(path: &Path, doing: &str, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Error::file_not_found,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::disk_full,
        _ => Error::io_error,
    };
    trace_warn!("EngineDiskError", "file" => path.display(), "doing" => doing, "error" => error, "code" => code.0);
    code
}

/// Damage found in a file: an event that says where, and the code.
pub(crate) fn damage(path: &Path, offset: u64, code: Error, what: &str) -> Error {
    trace_warn!("EngineFileDamaged", "file" => path.display(), "offset" => offset, "what" => what, "code" => code.0);
    code
}
