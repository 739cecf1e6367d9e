//! Files that users give, of which some are others than are wanted.

use plinth_identity::files::{FileKind, HEAD_BYTES};
use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;

/// What to say of the file where one of this kind is wanted: that it is of another kind. `None` if it is not, or if
/// nobody can say: it cannot be read, or is no file.
pub fn other_kind(wanted: FileKind, path: &Path) -> Option<String> {
    // What comes through a pipe can be read only once.
    if !path.is_file() {
        return None;
    }
    let file = OpenOptions::new().read(true).open(path).ok()?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    wanted.instead(&head)
}
