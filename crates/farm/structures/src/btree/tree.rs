//! The handle of a tree, and the way down to a leaf.

use super::cache::Cache;
use super::node::{Inner, Leaf, LeafPage, ROOT_BYTES, Root, Seek, Settings};
use crate::error::{Error, Result, damaged};
use crate::page::Mark;
use crate::value;
use bytes::Bytes;
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_runtime::probe;
use std::rc::Rc;

/// A B-tree of keys and values. A handle is cheap to clone and belongs to no transaction: each operation names the
/// one that it is part of.
#[derive(Clone)]
pub struct BTree {
    pub(super) root: Pointer,
    pub(super) mark: Mark,
    pub(super) settings: Settings,
    pub(super) cache: Cache,
}

/// A step on the way to a leaf.
pub(super) struct Step {
    pub at: Pointer,
    pub node: Rc<Inner>,
    /// Which child is next.
    pub child: usize,
}

pub(super) const NOT_A_NODE: &str = "it is not the node of the tree that its parent points to";
pub(super) const BROKEN_ENTRY: &str = "an entry of a leaf cannot be read";

impl BTree {
    /// A new tree without entries. Whoever keeps [`root`](BTree::root) finds it again.
    pub async fn create<O: Objects>(
        tx: &O,
        settings: Settings,
        near: Pointer,
        cache: &Cache,
    ) -> Result<BTree> {
        let settings = settings.checked()?;
        let root = tx.allocate(ROOT_BYTES, near).await?;
        let tree = BTree {
            root,
            mark: Mark::random(),
            settings,
            cache: cache.clone(),
        };
        let node = tx.allocate(settings.leaf_bytes, tree.near()).await?;
        tx.write(node, Leaf::default().encode(tree.mark)).await?;
        tree.write_root(tx, node, 0).await?;
        Ok(tree)
    }

    /// The tree with this root object. Its settings are read; they never change.
    pub async fn open<O: Objects>(tx: &O, root: Pointer, cache: &Cache) -> Result<BTree> {
        let found = Root::parse(tx.read(root).await?, root);
        let found = found.ok_or(damaged(root, "it is not the root of a tree"))?;
        Ok(BTree {
            root,
            mark: found.mark,
            settings: found.settings,
            cache: cache.clone(),
        })
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(super) async fn write_root<O: Objects>(
        &self,
        tx: &O,
        node: Pointer,
        level: u8,
    ) -> Result<()> {
        let root = Root {
            node,
            level,
            mark: self.mark,
            settings: self.settings,
        };
        Ok(tx.write(self.root, root.encode(self.root)).await?)
    }

    /// The root object as a node, read in the transaction.
    async fn read_root<O: Objects>(&self, tx: &O) -> Result<Rc<Inner>> {
        let root = Root::parse(tx.read(self.root).await?, self.root);
        let root = root
            .filter(|root| root.mark == self.mark)
            .ok_or(damaged(self.root, "it is not the root of the tree"))?;
        let node = Rc::new(root.as_inner());
        self.cache.put(self.root, self.root, Rc::clone(&node));
        Ok(node)
    }

    /// The node, read in the transaction; None if there is none of this tree.
    async fn read_inner<O: Objects>(&self, tx: &O, at: Pointer) -> Result<Option<Rc<Inner>>> {
        let bytes = tx.read_if_there(at).await?;
        let node = bytes.and_then(|bytes| Inner::parse(bytes, self.mark));
        Ok(node.map(|node| {
            let node = Rc::new(node);
            self.cache.put(self.root, at, Rc::clone(&node));
            node
        }))
    }

    pub(super) async fn read_leaf<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
    ) -> Result<Option<LeafPage>> {
        let bytes = tx.read_if_there(at).await?;
        Ok(bytes.and_then(|bytes| LeafPage::parse(bytes, self.mark)))
    }

    /// The leaf, read in the transaction, by inner nodes that may be old. The leaves of a tree share out all keys at
    /// every snapshot, so a leaf of the snapshot with the right fences is the right one, however it was found. None
    /// if the way does not lead there.
    async fn leaf_by_cache<O: Objects>(
        &self,
        tx: &O,
        seek: Seek<'_>,
    ) -> Result<Option<(Pointer, LeafPage)>> {
        let mut above = self.root;
        let mut node = match self.cache.get(self.root, self.root) {
            Some(root) => root,
            None => self.read_root(tx).await?,
        };
        loop {
            let at = node.children[node.child(seek)];
            let level = node.level - 1;
            if level == 0 {
                let leaf = self.led_to(above, self.read_leaf(tx, at).await)?;
                return Ok(leaf.filter(|leaf| leaf.covers(seek)).map(|leaf| (at, leaf)));
            }
            let next = match self.cache.get(self.root, at) {
                Some(next) => Some(next),
                None => self.led_to(above, self.read_inner(tx, at).await)?,
            };
            match next {
                Some(next) if next.level == level && next.fences.covers(seek) => node = next,
                _ => return Ok(None),
            }
            above = at;
        }
    }

    /// What was read where the node at `above` led. A place that has gone to other objects may look like one whose
    /// old version is lost: the next attempt must not be led there again.
    fn led_to<T>(&self, above: Pointer, read: Result<T>) -> Result<T> {
        if let Err(Error::Abort(Abort::TooOld)) = read {
            probe!("btree_leads_astray");
            self.cache.forget(self.root, above);
        }
        read
    }

    /// The way to the leaf through nodes of the snapshot, from the root node, and the leaf's place.
    pub(super) async fn way<O: Objects>(
        &self,
        tx: &O,
        seek: Seek<'_>,
    ) -> Result<(Vec<Step>, Pointer)> {
        let mut way: Vec<Step> = Vec::new();
        let mut node = self.read_root(tx).await?;
        loop {
            let child = node.child(seek);
            let at = node.children[child];
            let level = node.level - 1;
            if let Some(step) = way.last_mut() {
                step.child = child;
            }
            if level == 0 {
                return Ok((way, at));
            }
            match self.read_inner(tx, at).await? {
                Some(next) if next.level == level && next.fences.covers(seek) => node = next,
                _ => return Err(damaged(at, NOT_A_NODE)),
            }
            way.push(Step {
                at,
                node: Rc::clone(&node),
                child: 0,
            });
        }
    }

    pub(super) async fn leaf<O: Objects>(
        &self,
        tx: &O,
        seek: Seek<'_>,
    ) -> Result<(Pointer, LeafPage)> {
        if let Some(found) = self.leaf_by_cache(tx, seek).await? {
            return Ok(found);
        }
        probe!("btree_cache_is_stale");
        let (_, at) = self.way(tx, seek).await?;
        let leaf = self
            .read_leaf(tx, at)
            .await?
            .filter(|leaf| leaf.covers(seek));
        Ok((at, leaf.ok_or(damaged(at, NOT_A_NODE))?))
    }

    pub async fn get<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<Option<Bytes>> {
        self.settings.limits().check_key(key)?;
        let (at, leaf) = self.leaf(tx, Seek::At(key)).await?;
        let broken = damaged(at, BROKEN_ENTRY);
        let Ok(i) = leaf.search(key).ok_or(broken)? else {
            return Ok(None);
        };
        let stored = leaf.stored(i).ok_or(broken)?;
        Ok(Some(value::load(tx, self.mark, stored).await?))
    }

    pub async fn contains<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<bool> {
        self.settings.limits().check_key(key)?;
        let (at, leaf) = self.leaf(tx, Seek::At(key)).await?;
        let found = leaf.search(key).ok_or(damaged(at, BROKEN_ENTRY))?;
        Ok(found.is_ok())
    }
}
