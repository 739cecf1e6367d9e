//! The layer itself: one tree of directories, and its operations.

use super::allocator::Allocator;
use super::{Directory, PARTITION, Path};
use crate::range::RangeOptions;
use crate::subspace::Subspace;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::key::{KeyRange, key_after, prefix_end};
use plinth_core::tuple::Element;
use plinth_core::{Error, Key, Result, Value};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const VERSION: [u32; 3] = [1, 0, 0];
const NODES: &[u8] = b"\xfe";

/// A tree of directories. Clones are the same tree.
#[derive(Clone)]
pub struct DirectoryLayer(Rc<Inside>);

struct Inside {
    /// Metadata of the directories.
    nodes: Subspace,
    root: Subspace,
    /// The directories' own keys.
    contents: Subspace,
    allocator: Allocator,
    manual_prefixes: bool,
    /// Path of the partition that the tree is in.
    path: Vec<String>,
}

/// Result of a search for a path.
struct Found {
    /// `None` if there is no such directory.
    node: Option<Subspace>,
    /// Length of the path that was followed: all of it, or up to a partition on the way.
    depth: usize,
    layer: Bytes,
}

impl Found {
    fn enters_partition(&self, target: &Path, with_border: bool) -> bool {
        let beyond = with_border || target.len() > self.depth;
        self.node.is_some() && self.layer == PARTITION && beyond
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// Arguments of `create_or_open` and of its variants.
struct Wanted<'a> {
    layer: &'a [u8],
    prefix: Option<Key>,
    may_create: bool,
    may_open: bool,
}

impl Default for DirectoryLayer {
    fn default() -> Self {
        let (nodes, contents) = (Subspace::new(NODES), Subspace::default());
        DirectoryLayer::new(nodes, contents, false).expect("short prefixes make short keys")
    }
}

fn bytes_element(bytes: &[u8]) -> Element {
    Element::Bytes(Bytes::copy_from_slice(bytes))
}

impl DirectoryLayer {
    /// A layer with its metadata and contents in these subspaces. `manual_prefixes` allows callers to choose
    /// prefixes.
    pub fn new(nodes: Subspace, contents: Subspace, manual_prefixes: bool) -> Result<Self> {
        DirectoryLayer::at(nodes, contents, manual_prefixes, Vec::new())
    }

    fn at(
        nodes: Subspace,
        contents: Subspace,
        manual_prefixes: bool,
        path: Vec<String>,
    ) -> Result<Self> {
        let root = nodes.sub(&[Element::Bytes(nodes.key().clone())])?;
        let allocator = Allocator::new(&root.sub(&[bytes_element(b"hca")])?)?;
        Ok(DirectoryLayer(Rc::new(Inside {
            nodes,
            root,
            contents,
            allocator,
            manual_prefixes,
            path,
        })))
    }

    /// The path of the partition that the tree is in; empty for the root.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Opens the directory, or makes it together with missing parents. `layer` must be the one it was made with, or
    /// empty.
    pub async fn create_or_open(
        &self,
        transaction: &Transaction,
        path: &Path,
        layer: &[u8],
    ) -> Result<Directory> {
        let wanted = Wanted {
            layer,
            prefix: None,
            may_create: true,
            may_open: true,
        };
        self.obtain(transaction, path, wanted).await
    }

    /// Makes a directory. Fails if it exists. A prefix may be chosen if the layer allows it.
    pub async fn create(
        &self,
        transaction: &Transaction,
        path: &Path,
        layer: &[u8],
        prefix: Option<Key>,
    ) -> Result<Directory> {
        let wanted = Wanted {
            layer,
            prefix,
            may_create: true,
            may_open: false,
        };
        self.obtain(transaction, path, wanted).await
    }

    /// Opens a directory. Fails if it does not exist.
    pub async fn open(
        &self,
        transaction: &Transaction,
        path: &Path,
        layer: &[u8],
    ) -> Result<Directory> {
        let wanted = Wanted {
            layer,
            prefix: None,
            may_create: false,
            may_open: true,
        };
        self.obtain(transaction, path, wanted).await
    }

    fn obtain<'a>(
        &'a self,
        transaction: &'a Transaction,
        path: &'a Path,
        wanted: Wanted<'a>,
    ) -> Boxed<'a, Directory> {
        Box::pin(async move {
            self.check_version(transaction, false).await?;
            if wanted.prefix.is_some() && !self.0.manual_prefixes {
                return Err(if self.path().is_empty() {
                    Error::manual_prefixes_not_enabled
                } else {
                    Error::prefix_in_partition
                });
            }
            if path.is_empty() {
                return Err(Error::cannot_open_root_directory);
            }
            let found = self.find(transaction, path).await?;
            if found.enters_partition(path, false) {
                let (inside, below) = self.partition(&found, path)?;
                return inside.obtain(transaction, below, wanted).await;
            }
            if found.node.is_none() {
                return self.make(transaction, path, wanted).await;
            }
            if !wanted.may_open {
                return Err(Error::directory_already_exists);
            }
            if !wanted.layer.is_empty() && found.layer != wanted.layer {
                return Err(Error::mismatched_layer);
            }
            self.contents_of(&found, path)
        })
    }

    async fn make(
        &self,
        transaction: &Transaction,
        path: &Path,
        wanted: Wanted<'_>,
    ) -> Result<Directory> {
        if !wanted.may_create {
            return Err(Error::directory_does_not_exist);
        }
        self.check_version(transaction, true).await?;
        let prefix = self.choose_prefix(transaction, wanted.prefix).await?;
        let (name, above) = path.split_last().expect("the root is there");
        let parent = if above.is_empty() {
            self.0.root.clone()
        } else {
            let parent = Box::pin(self.create_or_open(transaction, above, b"")).await?;
            self.node(&parent.subspace.key().clone())?
        };
        let node = self.node(&prefix)?;
        transaction.set(entry(&parent, name)?, &prefix);
        transaction.set(layer_key(&node)?, wanted.layer);
        self.directory(prefix, path, Bytes::copy_from_slice(wanted.layer))
    }

    async fn choose_prefix(&self, transaction: &Transaction, chosen: Option<Key>) -> Result<Key> {
        if let Some(prefix) = chosen {
            return match self.is_free(transaction, &prefix, false).await? {
                true => Ok(prefix),
                false => Err(Error::directory_prefix_in_use),
            };
        }
        let number = self.0.allocator.allocate(transaction).await?;
        let prefix = Bytes::from([&self.0.contents.key()[..], &number].concat());
        let keys = Subspace::new(prefix.clone()).all();
        let keys = keys.ok_or(Error::invalid_directory_layer_metadata)?;
        if !transaction
            .get_rows(keys, RangeOptions::limit(1), false)
            .await?
            .is_empty()
        {
            return Err(Error::directory_prefix_not_empty);
        }
        if !self.is_free(transaction, &prefix, true).await? {
            return Err(Error::directory_prefix_in_use);
        }
        Ok(prefix)
    }

    /// Moves a directory and all below it. The parent of the new path must exist, the new path itself must not.
    pub async fn move_within(
        &self,
        transaction: &Transaction,
        old: &Path,
        new: &Path,
    ) -> Result<Directory> {
        self.check_version(transaction, true).await?;
        if new.starts_with(old) {
            return Err(Error::invalid_destination_directory);
        }
        let (source, target) = (
            self.find(transaction, old).await?,
            self.find(transaction, new).await?,
        );
        let Some(node) = &source.node else {
            return Err(Error::directory_does_not_exist);
        };
        let (from, to) = (
            source.enters_partition(old, false),
            target.enters_partition(new, false),
        );
        if from || to {
            if !from || !to || old[..source.depth] != new[..target.depth] {
                return Err(Error::cannot_move_directory_between_partitions);
            }
            let (inside, new) = self.partition(&target, new)?;
            let old = &old[source.depth..];
            return Box::pin(inside.move_within(transaction, old, new)).await;
        }
        if target.node.is_some() {
            return Err(Error::directory_already_exists);
        }
        let (name, above) = new
            .split_last()
            .ok_or(Error::cannot_modify_root_directory)?;
        let parent = self.find(transaction, above).await?;
        let parent = parent.node.ok_or(Error::parent_directory_does_not_exist)?;
        let prefix = self.prefix_of(node)?;
        transaction.set(entry(&parent, name)?, &prefix);
        self.unlink(transaction, old).await?;
        self.directory(prefix, new, source.layer)
    }

    pub async fn remove(&self, transaction: &Transaction, path: &Path) -> Result<()> {
        match self.remove_if_exists(transaction, path).await? {
            true => Ok(()),
            false => Err(Error::directory_does_not_exist),
        }
    }

    pub async fn remove_if_exists(&self, transaction: &Transaction, path: &Path) -> Result<bool> {
        self.check_version(transaction, true).await?;
        if path.is_empty() {
            return Err(Error::cannot_modify_root_directory);
        }
        let found = self.find(transaction, path).await?;
        if found.enters_partition(path, false) {
            let (inside, below) = self.partition(&found, path)?;
            return Box::pin(inside.remove_if_exists(transaction, below)).await;
        }
        let Some(node) = found.node else {
            return Ok(false);
        };
        self.remove_tree(transaction, node).await?;
        self.unlink(transaction, path).await?;
        Ok(true)
    }

    fn remove_tree<'a>(&'a self, transaction: &'a Transaction, node: Subspace) -> Boxed<'a, ()> {
        Box::pin(async move {
            for (_, prefix) in self.entries(transaction, &node).await? {
                self.remove_tree(transaction, self.node(&prefix)?).await?;
            }
            let contents = Subspace::new(self.prefix_of(&node)?).all();
            let contents = contents.ok_or(Error::invalid_directory_layer_metadata)?;
            transaction.clear_range(contents.begin, contents.end);
            let metadata = node.range(&[])?;
            transaction.clear_range(metadata.begin, metadata.end);
            Ok(())
        })
    }

    async fn unlink(&self, transaction: &Transaction, path: &Path) -> Result<()> {
        let (name, above) = path
            .split_last()
            .ok_or(Error::cannot_modify_root_directory)?;
        if let Some(parent) = self.find(transaction, above).await?.node {
            transaction.clear(entry(&parent, name)?);
        }
        Ok(())
    }

    /// Names of the subdirectories, in order.
    pub async fn list(&self, transaction: &Transaction, path: &Path) -> Result<Vec<String>> {
        self.check_version(transaction, false).await?;
        let found = self.find(transaction, path).await?;
        if found.enters_partition(path, true) {
            let (inside, below) = self.partition(&found, path)?;
            return Box::pin(inside.list(transaction, below)).await;
        }
        let node = found.node.ok_or(Error::directory_does_not_exist)?;
        let entries = self.entries(transaction, &node).await?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    pub async fn exists(&self, transaction: &Transaction, path: &Path) -> Result<bool> {
        self.check_version(transaction, false).await?;
        let found = self.find(transaction, path).await?;
        if found.enters_partition(path, false) {
            let (inside, below) = self.partition(&found, path)?;
            return Box::pin(inside.exists(transaction, below)).await;
        }
        Ok(found.node.is_some())
    }

    // ---- metadata ----

    fn node(&self, prefix: &Key) -> Result<Subspace> {
        self.0.nodes.sub(&[Element::Bytes(prefix.clone())])
    }

    fn prefix_of(&self, node: &Subspace) -> Result<Key> {
        match &self.0.nodes.unpack(node.key())?[..] {
            [Element::Bytes(prefix)] => Ok(prefix.clone()),
            _ => Err(Error::invalid_directory_layer_metadata),
        }
    }

    async fn find(&self, transaction: &Transaction, path: &Path) -> Result<Found> {
        let mut found = Found {
            node: Some(self.0.root.clone()),
            depth: 0,
            layer: Bytes::new(),
        };
        for name in path {
            let Some(parent) = &found.node else { break };
            let prefix = transaction.get(entry(parent, name)?, false).await?;
            found.depth += 1;
            found.node = prefix.map(|prefix| self.node(&prefix)).transpose()?;
            found.layer = match &found.node {
                Some(node) => transaction.get(layer_key(node)?, false).await?,
                None => None,
            }
            .unwrap_or_default();
            if found.node.is_none() || found.layer == PARTITION {
                break;
            }
        }
        Ok(found)
    }

    fn contents_of(&self, found: &Found, path: &Path) -> Result<Directory> {
        let node = found.node.as_ref().ok_or(Error::directory_does_not_exist)?;
        let prefix = self.prefix_of(node)?;
        self.directory(prefix, &path[..found.depth], found.layer.clone())
    }

    /// The layer inside the partition that a search has come to, and the rest of the path.
    fn partition<'p>(&self, found: &Found, path: &'p Path) -> Result<(DirectoryLayer, &'p Path)> {
        let partition = self.contents_of(found, path)?;
        Ok((partition.inside, &path[found.depth..]))
    }

    fn directory(&self, prefix: Key, path: &Path, layer: Bytes) -> Result<Directory> {
        let path = [self.path(), path].concat();
        let inside = if layer == PARTITION {
            let nodes = Subspace::new([&prefix[..], NODES].concat());
            DirectoryLayer::at(nodes, Subspace::new(prefix.clone()), false, path.clone())?
        } else {
            self.clone()
        };
        Ok(Directory {
            path,
            layer,
            subspace: Subspace::new(prefix),
            inside,
            outside: self.clone(),
        })
    }

    async fn entries(
        &self,
        transaction: &Transaction,
        node: &Subspace,
    ) -> Result<Vec<(String, Key)>> {
        let entries = node.sub(&[Element::Int(0)])?;
        let found = transaction.get_rows(entries.range(&[])?, RangeOptions::default(), false);
        let named = |(key, prefix): (Key, Value)| match &entries.unpack(&key)?[..] {
            [Element::Text(name)] => Ok((name.clone(), prefix)),
            _ => Err(Error::invalid_directory_layer_metadata),
        };
        found.await?.into_iter().map(named).collect()
    }

    /// True if no directory's prefix begins with `prefix`, and `prefix` begins with none of theirs.
    async fn is_free(
        &self,
        transaction: &Transaction,
        prefix: &Key,
        snapshot: bool,
    ) -> Result<bool> {
        let Some(end) = prefix_end(prefix).filter(|_| !prefix.is_empty()) else {
            return Ok(false);
        };
        if prefix.starts_with(self.0.nodes.key()) {
            return Ok(false);
        }
        let nodes = &self.0.nodes;
        let own = nodes.pack(&[Element::Bytes(prefix.clone())])?;
        let before = KeyRange::new(nodes.range(&[])?.begin, key_after(&own));
        let last = RangeOptions::limit(1).reversed();
        if let Some((key, _)) = transaction.get_rows(before, last, snapshot).await?.pop()
            && let Some(Element::Bytes(other)) = nodes.unpack(&key)?.first()
            && prefix.starts_with(other)
        {
            return Ok(false);
        }
        let below = KeyRange::new(own, nodes.pack(&[Element::Bytes(end)])?);
        let found = transaction.get_rows(below, RangeOptions::limit(1), snapshot);
        Ok(found.await?.is_empty())
    }

    async fn check_version(&self, transaction: &Transaction, writing: bool) -> Result<()> {
        let key = self.0.root.pack(&[bytes_element(b"version")])?;
        let Some(stored) = transaction.get(&key, false).await? else {
            if writing {
                let version: Vec<u8> = VERSION.iter().flat_map(|n| n.to_le_bytes()).collect();
                transaction.set(key, version);
            }
            return Ok(());
        };
        let number = |at: usize| -> Result<u32> {
            let bytes = stored
                .get(4 * at..4 * at + 4)
                .and_then(|b| b.try_into().ok());
            let bytes = bytes.ok_or(Error::invalid_directory_layer_metadata)?;
            Ok(u32::from_le_bytes(bytes))
        };
        let is_newer = number(0)? > VERSION[0];
        if is_newer || writing && number(0)? == VERSION[0] && number(1)? > VERSION[1] {
            return Err(Error::incompatible_directory_version);
        }
        Ok(())
    }
}

fn entry(parent: &Subspace, name: &str) -> Result<Key> {
    parent.pack(&[Element::Int(0), Element::Text(name.to_owned())])
}

fn layer_key(node: &Subspace) -> Result<Key> {
    node.pack(&[bytes_element(b"layer")])
}
