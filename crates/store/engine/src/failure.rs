//! Error codes and trace events for disk errors and damage.

use plinth_core::Error;
use plinth_runtime::{planted, trace_warn};
use std::io;
use std::path::Path;

/// The code of a failed disk operation. Emits an event that names the file.
pub(crate) fn disk_failure(path: &Path, doing: &str, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Error::file_not_found,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::disk_full,
        _ => Error::io_error,
    };
    trace_warn!("EngineDiskError", "file" => path.display(), "doing" => doing, "error" => error, "code" => code.0);
    code
}

/// The code of damage found in a file. Emits an event that names the file and offset.
pub(crate) fn damage(path: &Path, offset: u64, code: Error, what: &str) -> Error {
    trace_warn!("EngineFileDamaged", "file" => path.display(), "offset" => offset, "what" => what, "code" => code.0);
    code
}

/// What a planted fault does: an engine that is opened again does not know what it has refused.
pub(crate) fn forgets_what_was_refused() -> bool {
    planted!(
        "refused_is_forgotten",
        "a storage server that is started again does not know what it has refused"
    )
}
