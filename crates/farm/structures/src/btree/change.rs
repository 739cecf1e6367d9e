//! Changes of a tree: insertions with splits, removals with leaves that go.

use super::node::{Fences, Inner, Leaf, LeafPage, Seek, Settings, Splice};
use super::tree::{BROKEN_ENTRY, BTree, NOT_A_NODE};
use crate::error::{Result, damaged};
use crate::keyed::{When, keyed};
use crate::value::{self, Entry, Stored};
use bytes::Bytes;
use plinth_farm_memory::{Objects, Pointer};
use plinth_runtime::{nobody_has_lied, planted, probe};

const TOO_LARGE: &str = "a node holds more than it may";

/// A node of an edge whose fences are to be moved.
enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

impl Node {
    fn fences_mut(&mut self) -> &mut Fences {
        match self {
            Node::Leaf(leaf) => &mut leaf.fences,
            Node::Inner(inner) => &mut inner.fences,
        }
    }
}

keyed!(BTree, Settings);

impl BTree {
    /// Sets the value of a key that is there to what `change` makes of it. False if the key is not there. An error of
    /// `change` changes nothing.
    pub async fn modify<O: Objects>(
        &self,
        tx: &O,
        key: &[u8],
        change: impl FnOnce(Bytes) -> Result<Vec<u8>>,
    ) -> Result<bool> {
        self.settings.limits().check_key(key)?;
        let (at, page, found) = self.page_of(tx, key).await?;
        let Some(former) = self.stored(at, &page, found)? else {
            return Ok(false);
        };
        let former = value::load(tx, self.mark, former).await?;
        let value = change(former)?;
        self.settings.limits().check(key, &value)?;
        self.put_in(tx, at, &page, found, key, &value).await?;
        Ok(true)
    }

    /// Sets many values. Those of keys that are neighbours are written together: rows in the order of their keys cost
    /// a read and a write for each leaf, not for each row.
    pub async fn set_many<O: Objects, K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tx: &O,
        rows: &[(K, V)],
    ) -> Result<()> {
        let pairs = rows
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()));
        let rows: Vec<(&[u8], &[u8])> = pairs.collect();
        for (key, value) in &rows {
            self.settings.limits().check(key, value)?;
        }
        let mut rows = &rows[..];
        while let Some((key, _)) = rows.first() {
            let (at, page) = self.leaf(tx, Seek::At(key)).await?;
            let (some, _) = rows.split_at(page.mergeable(rows, &self.settings));
            let merged = match some.is_empty() {
                true => None,
                false => page.merged(some, self.mark, &self.settings),
            };
            let set = match merged {
                Some(bytes) => {
                    tx.write(at, bytes).await?;
                    some.len()
                }
                None => self.set_some(tx, at, &page, rows).await?,
            };
            rows = &rows[set..];
        }
        Ok(())
    }

    /// Sets the first values, of which the first one belongs into this leaf. Returns how many.
    async fn set_some<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        page: &LeafPage,
        rows: &[(&[u8], &[u8])],
    ) -> Result<usize> {
        let mut leaf = page.to_leaf().ok_or(damaged(at, BROKEN_ENTRY))?;
        for (i, (key, value)) in rows.iter().enumerate() {
            if !leaf.fences.covers(Seek::At(key)) {
                tx.write(at, leaf.encode(self.mark)).await?;
                return Ok(i);
            }
            let found = leaf.entries.binary_search_by(|e| e.key[..].cmp(key));
            self.edit(tx, at, &mut leaf, found, key, value).await?;
            if !leaf.fits(&self.settings) {
                self.write_leaf(tx, key, at, leaf, found).await?;
                return Ok(i + 1);
            }
        }
        tx.write(at, leaf.encode(self.mark)).await?;
        Ok(rows.len())
    }

    /// The key's leaf, and where the key is in it or would be.
    async fn page_of<O: Objects>(
        &self,
        tx: &O,
        key: &[u8],
    ) -> Result<(Pointer, LeafPage, std::result::Result<usize, usize>)> {
        let (at, page) = self.leaf(tx, Seek::At(key)).await?;
        let found = page.search(key).ok_or(damaged(at, BROKEN_ENTRY))?;
        Ok((at, page, found))
    }

    /// The value of a key that was `found`.
    fn stored(
        &self,
        at: Pointer,
        page: &LeafPage,
        found: std::result::Result<usize, usize>,
    ) -> Result<Option<Stored>> {
        let stored = |i| page.stored(i).ok_or(damaged(at, BROKEN_ENTRY));
        found.ok().map(stored).transpose()
    }

    /// Sets a value in a leaf, and writes the leaf unless that has not changed it.
    async fn put_in<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        page: &LeafPage,
        found: std::result::Result<usize, usize>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let former = self.stored(at, page, found)?;
        let limits = self.settings.limits();
        let stored = value::store(tx, self.mark, at, limits, value, former.clone()).await?;
        if former.as_ref() == Some(&stored) {
            return Ok(());
        }
        let key_bytes = Bytes::copy_from_slice(key);
        let entry = Entry {
            key: key_bytes,
            stored,
        };
        let splice = match found {
            Ok(i) => Splice::Set(i, &entry),
            Err(i) => Splice::Insert(i, &entry),
        };
        if let Some(bytes) = page.changed(&splice, self.mark, &self.settings) {
            return Ok(tx.write(at, bytes).await?);
        }
        let mut leaf = page.to_leaf().ok_or(damaged(at, BROKEN_ENTRY))?;
        match found {
            Ok(i) => leaf.entries[i] = entry,
            Err(i) => leaf.entries.insert(i, entry),
        }
        self.write_leaf(tx, key, at, leaf, found).await
    }

    /// Sets a value in a leaf that is to be written.
    async fn edit<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        leaf: &mut Leaf,
        found: std::result::Result<usize, usize>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let former = found.ok().map(|i| leaf.entries[i].stored.clone());
        let limits = self.settings.limits();
        let stored = value::store(tx, self.mark, at, limits, value, former).await?;
        match found {
            Ok(i) => leaf.entries[i].stored = stored,
            Err(i) => {
                let key = Bytes::copy_from_slice(key);
                leaf.entries.insert(i, Entry { key, stored });
            }
        }
        Ok(())
    }

    /// Writes a leaf after `key`, which was `found` there, has changed it.
    async fn write_leaf<O: Objects>(
        &self,
        tx: &O,
        key: &[u8],
        at: Pointer,
        leaf: Leaf,
        found: std::result::Result<usize, usize>,
    ) -> Result<()> {
        if leaf.fits(&self.settings) {
            return Ok(tx.write(at, leaf.encode(self.mark)).await?);
        }
        let appended = found == Err(leaf.entries.len() - 1);
        self.split(tx, key, at, leaf, appended).await
    }

    /// Returns whether the key was there.
    async fn put<O: Objects>(&self, tx: &O, key: &[u8], value: &[u8], when: When) -> Result<bool> {
        self.settings.limits().check(key, value)?;
        let (at, page, found) = self.page_of(tx, key).await?;
        match found {
            Ok(_) if when == When::Absent => return Ok(true),
            Err(_) if when == When::Present => return Ok(false),
            _ => {}
        }
        self.put_in(tx, at, &page, found, key, value).await?;
        Ok(found.is_ok())
    }

    /// Writes a leaf that has become too large as two, and what that needs up to the root object.
    async fn split<O: Objects>(
        &self,
        tx: &O,
        key: &[u8],
        at: Pointer,
        mut left: Leaf,
        appended: bool,
    ) -> Result<()> {
        let (mut way, leaf_at) = self.way(tx, Seek::At(key)).await?;
        if leaf_at != at {
            return Err(damaged(leaf_at, NOT_A_NODE));
        }
        if left.entries.len() < 2 {
            return Err(damaged(at, TOO_LARGE));
        }
        let right = left.split(appended);
        let is_in = [&left, &right].map(|leaf| leaf.fences.covers(Seek::At(key)));
        assert!(
            left.fences.upper.as_ref() == Some(&right.fences.lower) && is_in[0] != is_in[1],
            "a leaf becomes two: {:?} and {:?}, for key {key:?}",
            left.fences,
            right.fences
        );
        if !left.fits(&self.settings) || !right.fits(&self.settings) {
            return Err(damaged(at, TOO_LARGE));
        }
        let right_at = tx.allocate(self.settings.leaf_bytes, self.near()).await?;
        let mut fence = right.fences.lower.clone();
        if planted!(
            "btree_fence_is_late",
            "a leaf that splits goes on claiming the keys of its new neighbour"
        ) {
            left.fences.upper = right.fences.upper.clone();
        }
        tx.write(at, left.encode(self.mark)).await?;
        tx.write(right_at, right.encode(self.mark)).await?;
        let mut new = right_at;
        while let Some(step) = way.pop() {
            let mut inner = (*step.node).clone();
            let (before, behind) = inner.separators.split_at(step.child);
            // What is in memory may be anything.
            assert!(
                before.last().is_none_or(|before| *before < fence)
                    && behind.first().is_none_or(|behind| fence < *behind)
                    || !nobody_has_lied(),
                "fence {fence:?} goes between {before:?} and {behind:?}"
            );
            inner.separators.insert(step.child, fence);
            inner.children.insert(step.child + 1, new);
            if inner.content_bytes() <= self.settings.inner_room() {
                tx.write(step.at, inner.encode(self.mark)).await?;
                return Ok(());
            }
            probe!("btree_inner_split");
            let behind = inner.split();
            let larger = inner.content_bytes().max(behind.content_bytes());
            if larger > self.settings.inner_room() {
                return Err(damaged(step.at, TOO_LARGE));
            }
            new = tx.allocate(self.settings.inner_bytes, self.near()).await?;
            fence = behind.fences.lower.clone();
            tx.write(step.at, inner.encode(self.mark)).await?;
            tx.write(new, behind.encode(self.mark)).await?;
            if way.is_empty() {
                return self.grow(tx, inner.level + 1, [step.at, new], fence).await;
            }
        }
        self.grow(tx, 1, [at, new], fence).await
    }

    /// A new root node above two.
    async fn grow<O: Objects>(
        &self,
        tx: &O,
        level: u8,
        children: [Pointer; 2],
        fence: Bytes,
    ) -> Result<()> {
        let node = Inner {
            level,
            fences: Fences::default(),
            children: children.to_vec(),
            separators: vec![fence],
        };
        let at = tx.allocate(self.settings.inner_bytes, self.near()).await?;
        tx.write(at, node.encode(self.mark)).await?;
        self.write_root(tx, at, level).await
    }

    /// Removes a key. True if it was there.
    pub async fn remove<O: Objects>(&self, tx: &O, key: &[u8]) -> Result<bool> {
        self.settings.limits().check_key(key)?;
        let (at, page, found) = self.page_of(tx, key).await?;
        let Ok(i) = found else {
            return Ok(false);
        };
        let gone = self.stored(at, &page, found)?;
        if let Some(bytes) = page.changed(&Splice::Remove(i), self.mark, &self.settings) {
            value::drop_stored(tx, gone).await?;
            tx.write(at, bytes).await?;
            return Ok(true);
        }
        let mut leaf = page.to_leaf().ok_or(damaged(at, BROKEN_ENTRY))?;
        leaf.entries.remove(i);
        value::drop_stored(tx, gone).await?;
        let is_only = leaf.fences == Fences::default();
        if leaf.entries.is_empty() && !is_only {
            self.unlink(tx, key, at).await?;
        } else {
            tx.write(at, leaf.encode(self.mark)).await?;
        }
        Ok(true)
    }

    /// Takes an empty leaf out, with the nodes that are there for it alone. A neighbour gets its keys: the nodes along
    /// the neighbour's edge get other fences.
    async fn unlink<O: Objects>(&self, tx: &O, key: &[u8], at: Pointer) -> Result<()> {
        let (mut way, leaf_at) = self.way(tx, Seek::At(key)).await?;
        if leaf_at != at {
            return Err(damaged(leaf_at, NOT_A_NODE));
        }
        let mut doomed = vec![at];
        while let Some(step) = way.pop_if(|step| step.node.children.len() == 1) {
            probe!("btree_branch_goes");
            doomed.push(step.at);
        }
        let step = way
            .pop()
            .ok_or(damaged(at, "a leaf that is not the only one is"))?;
        let mut parent = (*step.node).clone();
        parent.children.remove(step.child);
        parent.separators.remove(step.child.saturating_sub(1));
        let is_left = step.child > 0;
        let neighbour = parent.children[step.child.saturating_sub(1)];
        let fences = step.node.child_fences(step.child);
        let edge = self
            .edge(tx, neighbour, parent.level - 1, is_left, fences)
            .await?;
        let mut edge = edge.into_iter().peekable();
        if way.is_empty() && parent.children.len() == 1 {
            probe!("btree_root_falls");
            doomed.push(step.at);
            let has_one = |(_, node): &(Pointer, Node)| matches!(node, Node::Inner(i) if i.children.len() == 1);
            while let Some((at, _)) = edge.next_if(has_one) {
                doomed.push(at);
            }
            let (at, node) = edge.peek().ok_or(damaged(step.at, NOT_A_NODE))?;
            let level = match node {
                Node::Leaf(_) => 0,
                Node::Inner(inner) => inner.level,
            };
            self.write_root(tx, *at, level).await?;
        } else {
            tx.write(step.at, parent.encode(self.mark)).await?;
        }
        for (at, node) in edge {
            let bytes = match node {
                Node::Leaf(leaf) => leaf.encode(self.mark),
                Node::Inner(inner) => inner.encode(self.mark),
            };
            tx.write(at, bytes).await?;
        }
        for at in doomed {
            tx.free(at).await?;
        }
        Ok(())
    }

    /// The nodes along one side of a subtree, from its top to the leaf, with the keys of `gained` beside their own.
    async fn edge<O: Objects>(
        &self,
        tx: &O,
        top: Pointer,
        top_level: u8,
        is_left: bool,
        gained: Fences,
    ) -> Result<Vec<(Pointer, Node)>> {
        let mut edge = Vec::new();
        let mut at = top;
        for level in (0..=top_level).rev() {
            let bytes = tx.read(at).await?;
            let node = if level == 0 {
                let page = LeafPage::parse(bytes, self.mark);
                page.and_then(|page| page.to_leaf()).map(Node::Leaf)
            } else {
                let inner = Inner::parse(bytes, self.mark);
                inner.filter(|inner| inner.level == level).map(Node::Inner)
            };
            let mut node = node.ok_or(damaged(at, NOT_A_NODE))?;
            let fences = node.fences_mut();
            let meets = if is_left {
                fences.upper.as_ref() == Some(&gained.lower)
            } else {
                gained.upper.as_ref() == Some(&fences.lower)
            };
            if !meets {
                return Err(damaged(at, "its fences do not meet those of its neighbour"));
            }
            if is_left {
                fences.upper = gained.upper.clone();
            } else {
                fences.lower = gained.lower.clone();
            }
            let next = match &node {
                Node::Inner(inner) if is_left => inner.children.last().copied(),
                Node::Inner(inner) => inner.children.first().copied(),
                Node::Leaf(_) => None,
            };
            edge.push((at, node));
            at = next.unwrap_or(at);
        }
        Ok(edge)
    }
}
