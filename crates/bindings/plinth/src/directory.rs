//! Directories: short prefixes for long paths.

use crate::open_error::Result;
use crate::subspace::Subspace;
use crate::transaction::{Kind, Reply, Transaction};
use bytes::Bytes;
use plinth_client as local;
use plinth_core::Key;
use std::future::Future;

/// The layer name of a partition: a directory whose tree lies inside its own prefix.
pub use plinth_client::PARTITION;

/// A path: names from the root on. Slices and arrays of strings are paths.
pub type Path<'a> = [&'a str];

/// A tree of directories: each path has a short prefix, and a whole tree is moved or removed at once.
///
/// Compatible with FoundationDB's bindings: a directory that one of them made opens here.
///
/// ```
/// use plinth::directory::DirectoryLayer;
///
/// # plinth::doc_test(async |db| {
/// let layer = DirectoryLayer::default();
/// let users = db
///     .run(async |tr| layer.create_or_open(&tr, &["shop", "users"], b"").await)
///     .await?;
/// db.run(async |tr| {
///     tr.set(users.subspace()?.pack((17,)), "Ada");
///     Ok(())
/// })
/// .await?;
/// let names = db.run(async |tr| layer.list(&tr, &["shop"]).await).await?;
/// assert_eq!(names, ["users"]);
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Default, Debug)]
pub struct DirectoryLayer {
    /// Where the metadata and the contents are, and whether callers may choose prefixes; `None` for the usual place.
    place: Option<(Bytes, Bytes, bool)>,
}

impl DirectoryLayer {
    /// A layer with its metadata and its contents in these subspaces. With `manual_prefixes`, callers may choose
    /// prefixes. [`DirectoryLayer::default`] is the one that everybody shares.
    pub fn new(nodes: &Subspace, contents: &Subspace, manual_prefixes: bool) -> Self {
        let (nodes, contents) = (nodes.key().clone(), contents.key().clone());
        DirectoryLayer {
            place: Some((nodes, contents, manual_prefixes)),
        }
    }

    /// The layer on a client's thread.
    fn local(&self) -> Result<local::DirectoryLayer> {
        match &self.place {
            None => Ok(local::DirectoryLayer::default()),
            Some((nodes, contents, manual_prefixes)) => local::DirectoryLayer::new(
                local::Subspace::new(nodes.clone()),
                local::Subspace::new(contents.clone()),
                *manual_prefixes,
            ),
        }
    }

    /// Does `work` with the layer on the transaction's thread.
    fn ask<T: Send + 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        transaction: &Transaction,
        path: &Path<'_>,
        work: impl FnOnce(local::DirectoryLayer, local::Transaction, Vec<String>) -> F + Send + 'static,
    ) -> Reply<T> {
        let layer = self.clone();
        let path: Vec<String> = path.iter().map(|&name| name.to_owned()).collect();
        transaction.ask(Kind::Other, move |transaction| {
            let transaction = transaction.clone();
            async move { work(layer.local()?, transaction, path).await }
        })
    }

    /// Opens the directory, or makes it together with missing parents. `layer` says what made it, for example a name
    /// of the application; it must be the one it was made with, or empty.
    ///
    /// # Errors
    ///
    /// `incompatible_layer` for another `layer`, and the errors of reads.
    pub fn create_or_open(
        &self,
        transaction: &Transaction,
        path: &Path<'_>,
        layer: impl AsRef<[u8]>,
    ) -> Reply<Directory> {
        let called = layer.as_ref().to_owned();
        self.ask(transaction, path, async move |layer, transaction, path| {
            let made = layer.create_or_open(&transaction, &path, &called).await;
            made.map(Directory::of)
        })
    }

    /// Makes the directory together with missing parents, with a prefix of the caller's choice if there is one.
    ///
    /// # Errors
    ///
    /// `directory_already_exists`, `directory_prefix_in_use`, and the errors of reads.
    pub fn create(
        &self,
        transaction: &Transaction,
        path: &Path<'_>,
        layer: impl AsRef<[u8]>,
        prefix: Option<Key>,
    ) -> Reply<Directory> {
        let called = layer.as_ref().to_owned();
        self.ask(transaction, path, async move |layer, transaction, path| {
            let made = layer.create(&transaction, &path, &called, prefix).await;
            made.map(Directory::of)
        })
    }

    /// Opens the directory.
    ///
    /// # Errors
    ///
    /// `directory_does_not_exist`, `incompatible_layer`, and the errors of reads.
    pub fn open(
        &self,
        transaction: &Transaction,
        path: &Path<'_>,
        layer: impl AsRef<[u8]>,
    ) -> Reply<Directory> {
        let called = layer.as_ref().to_owned();
        self.ask(transaction, path, async move |layer, transaction, path| {
            let opened = layer.open(&transaction, &path, &called).await;
            opened.map(Directory::of)
        })
    }

    /// Moves a directory and all below it. Their prefixes stay.
    ///
    /// # Errors
    ///
    /// `directory_does_not_exist`, `directory_already_exists`, `cannot_move_directory_between_partitions`, and the
    /// errors of reads.
    pub fn move_to(
        &self,
        transaction: &Transaction,
        old: &Path<'_>,
        new: &Path<'_>,
    ) -> Reply<Directory> {
        let new: Vec<String> = new.iter().map(|&name| name.to_owned()).collect();
        self.ask(transaction, old, async move |layer, transaction, old| {
            let moved = layer.move_within(&transaction, &old, &new).await;
            moved.map(Directory::of)
        })
    }

    /// Removes a directory with everything below it and all their keys. Whoever has it open must stop using it.
    /// Returns whether it was there.
    pub fn remove(&self, transaction: &Transaction, path: &Path<'_>) -> Reply<bool> {
        self.ask(transaction, path, async move |layer, transaction, path| {
            layer.remove_if_exists(&transaction, &path).await
        })
    }

    /// Whether there is such a directory.
    pub fn exists(&self, transaction: &Transaction, path: &Path<'_>) -> Reply<bool> {
        self.ask(transaction, path, async move |layer, transaction, path| {
            layer.exists(&transaction, &path).await
        })
    }

    /// Names of the directories in this one.
    ///
    /// # Errors
    ///
    /// `directory_does_not_exist`, and the errors of reads.
    pub fn list(&self, transaction: &Transaction, path: &Path<'_>) -> Reply<Vec<String>> {
        self.ask(transaction, path, async move |layer, transaction, path| {
            layer.list(&transaction, &path).await
        })
    }
}

/// A directory that was opened or made. It may since have been moved or removed.
#[derive(Clone, Debug)]
pub struct Directory {
    path: Vec<String>,
    layer: Bytes,
    subspace: Result<Subspace>,
}

impl Directory {
    fn of(directory: local::Directory) -> Self {
        Directory {
            path: directory.path().to_vec(),
            layer: directory.layer().clone(),
            subspace: directory
                .subspace()
                .map(|subspace| Subspace::from_bytes(subspace.key())),
        }
    }

    /// Its path from the root.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The layer bytes that it was made with.
    pub fn layer(&self) -> &Bytes {
        &self.layer
    }

    /// The subspace of its keys.
    ///
    /// # Errors
    ///
    /// `cannot_use_partition_as_subspace` for a partition, which has no keys of its own.
    pub fn subspace(&self) -> Result<&Subspace> {
        self.subspace.as_ref().map_err(|error| *error)
    }
}
