//! The directory layer: short prefixes for long paths, so that keys stay small and whole trees move by changing one
//! row.
//!
//! Byte-compatible with FoundationDB's bindings: a directory made by one opens in the other. Metadata, below the node
//! subspace (`\xfe`):
//!
//! ```text
//! (prefix, 0, name)      prefix of the subdirectory `name` of the directory at `prefix`; the root's prefix is `\xfe`
//! (prefix, "layer")      who made it, and what for
//! (\xfe, "version")      of this format: three little-endian numbers
//! (\xfe, "hca", …)       the allocator
//! ```
//!
//! A *partition* is a directory with all of this inside its own prefix: its tree can be moved and removed, and nothing
//! crosses its border.

mod allocator;
mod layer;

pub use layer::DirectoryLayer;

use crate::subspace::Subspace;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::{Error, Key, Result};

/// The layer name of a partition.
pub const PARTITION: &[u8] = b"partition";

/// A path: names from the root on.
pub type Path = [String];

/// A directory that was opened or made. It is a handle: the directory may since have been moved or removed.
#[derive(Clone)]
pub struct Directory {
    path: Vec<String>,
    layer: Bytes,
    subspace: Subspace,
    /// The layer that its subdirectories are in; for a partition, a layer inside it.
    inside: DirectoryLayer,
    /// The layer that the directory itself is in.
    outside: DirectoryLayer,
}

impl Directory {
    pub(crate) fn is_partition(&self) -> bool {
        self.layer == PARTITION
    }

    /// Its path from the root of the whole layer.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The layer bytes that were given when it was made.
    pub fn layer(&self) -> &Bytes {
        &self.layer
    }

    /// The subspace of its keys. Fails for a partition, which has no keys of its own.
    pub fn subspace(&self) -> Result<&Subspace> {
        if self.is_partition() {
            Err(Error::cannot_use_partition_as_subspace)
        } else {
            Ok(&self.subspace)
        }
    }

    /// The layer that contains `path`, and the path in that layer.
    fn place(&self, path: &Path) -> (&DirectoryLayer, Vec<String>) {
        let layer = if path.is_empty() {
            &self.outside
        } else {
            &self.inside
        };
        (layer, self.path_in(layer, path))
    }

    fn path_in(&self, layer: &DirectoryLayer, path: &Path) -> Vec<String> {
        [&self.path[layer.path().len()..], path].concat()
    }

    pub async fn create_or_open(
        &self,
        transaction: &Transaction,
        path: &Path,
        layer: &[u8],
    ) -> Result<Directory> {
        let path = self.path_in(&self.inside, path);
        self.inside.create_or_open(transaction, &path, layer).await
    }

    pub async fn create(
        &self,
        transaction: &Transaction,
        path: &Path,
        layer: &[u8],
        prefix: Option<Key>,
    ) -> Result<Directory> {
        let path = self.path_in(&self.inside, path);
        self.inside.create(transaction, &path, layer, prefix).await
    }

    pub async fn open(
        &self,
        transaction: &Transaction,
        path: &Path,
        layer: &[u8],
    ) -> Result<Directory> {
        let path = self.path_in(&self.inside, path);
        self.inside.open(transaction, &path, layer).await
    }

    /// Names of the subdirectories.
    pub async fn list(&self, transaction: &Transaction, path: &Path) -> Result<Vec<String>> {
        let path = self.path_in(&self.inside, path);
        self.inside.list(transaction, &path).await
    }

    pub async fn move_within(
        &self,
        transaction: &Transaction,
        old: &Path,
        new: &Path,
    ) -> Result<Directory> {
        let (old, new) = (
            self.path_in(&self.inside, old),
            self.path_in(&self.inside, new),
        );
        self.inside.move_within(transaction, &old, &new).await
    }

    /// Moves the directory to a path from the root of the whole layer.
    pub async fn move_to(&self, transaction: &Transaction, new: &Path) -> Result<Directory> {
        let border = self.outside.path();
        let Some(new) = new.strip_prefix(border) else {
            return Err(Error::cannot_move_directory_between_partitions);
        };
        let old = self.path_in(&self.outside, &[]);
        self.outside.move_within(transaction, &old, new).await
    }

    /// Removes the directory with everything below it and all their keys. Users who have it open must stop using it.
    pub async fn remove(&self, transaction: &Transaction, path: &Path) -> Result<()> {
        let (layer, path) = self.place(path);
        layer.remove(transaction, &path).await
    }

    /// Like [`remove`](Directory::remove), but a missing directory is no error. Returns whether it was there.
    pub async fn remove_if_exists(&self, transaction: &Transaction, path: &Path) -> Result<bool> {
        let (layer, path) = self.place(path);
        layer.remove_if_exists(transaction, &path).await
    }

    pub async fn exists(&self, transaction: &Transaction, path: &Path) -> Result<bool> {
        let (layer, path) = self.place(path);
        layer.exists(transaction, &path).await
    }
}
