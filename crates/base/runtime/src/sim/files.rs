//! Files of a simulated disk, outside of it.

use std::path::{Path, PathBuf};

/// Files as they were at some time.
#[derive(Clone, Debug, Default)]
pub struct FilesCopy(pub(super) Vec<(PathBuf, Vec<u8>)>);

impl FilesCopy {
    /// Forgets those that are not meant.
    pub fn keep(&mut self, is_meant: impl Fn(&Path) -> bool) {
        self.0.retain(|(path, _)| is_meant(path));
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }
}
