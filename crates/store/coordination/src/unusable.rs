//! Why a file or a directory cannot be used, in words for the person who has named it.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// What is wrong, and what to do about it.
pub fn why(error: &Error) -> String {
    let known = match error.kind() {
        ErrorKind::WouldBlock => "another process has it: stop that one, or choose another",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "its disk is full: make room there, or choose another"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is read-only: mount it for writing, or choose another"
        }
        ErrorKind::PermissionDenied => {
            "this user may not write there: change its owner or mode, or choose another"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "there is a file of that name: choose another"
        }
        _ => return format!("{error}; choose another"),
    };
    known.into()
}

/// The line about a data directory that cannot be used.
pub fn cannot_use(directory: &Path) -> impl Fn(Error) -> String + Copy {
    move |error| {
        let (directory, why) = (directory.display(), why(&error));
        format!("data directory {directory}: {why} with --data-dir")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_with_what_to_do() {
        for (kind, words) in [
            (ErrorKind::WouldBlock, "another process has it"),
            (ErrorKind::StorageFull, "make room there"),
            (ErrorKind::ReadOnlyFilesystem, "read-only"),
            (ErrorKind::PermissionDenied, "owner or mode"),
            (ErrorKind::AlreadyExists, "a file of that name"),
            (ErrorKind::TimedOut, "timed out"),
        ] {
            let line = why(&kind.into());
            assert!(
                line.contains(words) && line.contains("choose another"),
                "{line}"
            );
        }
    }
}
