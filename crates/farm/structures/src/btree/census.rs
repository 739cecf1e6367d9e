//! A walk over a whole tree that proves it sound.

use super::node::{Fences, Inner, LeafPage, Root};
use super::tree::{BROKEN_ENTRY, BTree, NOT_A_NODE};
use crate::census::Census;
use crate::error::{Result, damaged};
use crate::value::{self, Stored};
use plinth_farm_memory::{Objects, Pointer};

impl BTree {
    /// Reads the whole tree. Error: `Damaged` at the first thing that is wrong: levels, fences that do not meet, keys
    /// outside fences or out of order, nodes that are too large or have no children, values that are not there.
    pub async fn check<O: Objects>(&self, tx: &O) -> Result<Census> {
        let root = Root::parse(tx.read(self.root).await?, self.root);
        let root = root
            .filter(|root| root.mark == self.mark)
            .ok_or(damaged(self.root, "it is not the root of the tree"))?;
        let mut census = Census {
            objects: vec![self.root],
            levels: root.level + 1,
            ..Census::default()
        };
        let mut left = vec![(root.node, root.level, Fences::default())];
        while let Some((at, level, fences)) = left.pop() {
            census.objects.push(at);
            if level == 0 {
                let leaf = LeafPage::parse(tx.read(at).await?, self.mark);
                let leaf = leaf.filter(|leaf| leaf.fences().as_ref() == Some(&fences));
                let leaf = leaf.ok_or(damaged(at, NOT_A_NODE))?;
                self.check_leaf(tx, at, &leaf, &mut census).await?;
                continue;
            }
            let inner = Inner::parse(tx.read(at).await?, self.mark);
            let inner = inner
                .filter(|i| i.level == level && i.fences == fences)
                .ok_or(damaged(at, NOT_A_NODE))?;
            if at == root.node && inner.children.len() < 2 {
                return Err(damaged(at, "a root node with one child"));
            }
            if inner.content_bytes() > self.settings.inner_room() {
                return Err(damaged(at, "a node is too large"));
            }
            for i in (0..inner.children.len()).rev() {
                let fences = inner.child_fences(i);
                if fences.upper.as_ref().is_some_and(|u| *u <= fences.lower) {
                    return Err(damaged(at, "separators are out of order"));
                }
                left.push((inner.children[i], level - 1, fences));
            }
        }
        Ok(census)
    }

    async fn check_leaf<O: Objects>(
        &self,
        tx: &O,
        at: Pointer,
        page: &LeafPage,
        census: &mut Census,
    ) -> Result<()> {
        let leaf = page.to_leaf().ok_or(damaged(at, BROKEN_ENTRY))?;
        let is_only = leaf.fences == Fences::default();
        if leaf.entries.is_empty() && !is_only {
            return Err(damaged(at, "an empty leaf"));
        }
        if !leaf.fits(&self.settings) {
            return Err(damaged(at, "a node is too large"));
        }
        let keys = || leaf.entries.iter().map(|entry| &entry.key);
        if keys().zip(keys().skip(1)).any(|(a, b)| a >= b) {
            return Err(damaged(at, "keys are out of order"));
        }
        let is_within = |key: &bytes::Bytes| {
            *key >= leaf.fences.lower && leaf.fences.upper.as_ref().is_none_or(|u| key < u)
        };
        if !keys().all(is_within) {
            return Err(damaged(at, "a key is outside the fences"));
        }
        census.entries += leaf.entries.len();
        for entry in leaf.entries {
            if let Stored::Long(at) = entry.stored {
                census.objects.push(at);
                census.values += 1;
            }
            value::load(tx, self.mark, entry.stored).await?;
        }
        Ok(())
    }
}
