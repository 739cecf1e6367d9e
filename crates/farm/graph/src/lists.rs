//! Lists of the edges of a vertex: in the vertex itself while there are few, in a B-tree from then on.
//!
//! A list that has become a tree stays one until the vertex is deleted, so an edge of a vertex with many changes a
//! leaf, and not the vertex.

use crate::error::{Result, damaged};
use crate::object::{ENTRY_BYTES, Entry, INLINE_EDGES_MAX, List, VertexObject};
use crate::transaction::GraphTx;
use plinth_farm_memory::{Objects, Pointer};
use plinth_farm_structures::btree::{BTree, Settings};
use plinth_runtime::probe;

/// At which end of an edge a vertex is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// The edge comes from the vertex.
    Out,
    /// The edge goes to the vertex.
    In,
}

impl Direction {
    pub(crate) fn list(self) -> usize {
        match self {
            Direction::Out => 0,
            Direction::In => 1,
        }
    }
}

/// Entries of a list in order, and whether there may be more.
pub(crate) struct Part {
    pub entries: Vec<Entry>,
    pub more: bool,
}

/// Part of a list: from a key on, below an end.
#[derive(Default)]
pub(crate) struct Span {
    pub begin: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

fn settings() -> Settings {
    Settings {
        leaf_bytes: 1000,
        inner_bytes: 1000,
        key_bytes_max: ENTRY_BYTES,
        inline_bytes_max: 0,
        ..Settings::default()
    }
}

const NOT_AN_ENTRY: &str = "an entry in a list of edges cannot be read";

impl<O: Objects> GraphTx<'_, O> {
    async fn open_list(&self, root: Pointer) -> Result<BTree> {
        Ok(BTree::open(self.tx, root, self.graph.cache()).await?)
    }

    /// Adds an entry. True if the vertex itself has changed, and is to be written.
    pub(crate) async fn add_entry(
        &self,
        at: Pointer,
        vertex: &mut VertexObject,
        direction: Direction,
        entry: Entry,
    ) -> Result<bool> {
        let list = &mut vertex.lists[direction.list()];
        let entries = match list {
            List::Tree(root) => {
                let tree = self.open_list(*root).await?;
                return match tree.insert(self.tx, &entry.pack(), b"").await? {
                    true => Ok(false),
                    false => Err(damaged(at, "an edge is in a list before it is made")),
                };
            }
            List::Inline(entries) => entries,
        };
        match entries.binary_search(&entry) {
            Ok(_) => return Err(damaged(at, "an edge is in a list before it is made")),
            Err(i) => entries.insert(i, entry),
        }
        if entries.len() > INLINE_EDGES_MAX {
            probe!("graph_list_becomes_a_tree");
            let tree = BTree::create(self.tx, settings(), at, self.graph.cache()).await?;
            let rows: Vec<_> = entries.iter().map(|entry| (entry.pack(), b"")).collect();
            tree.set_many(self.tx, &rows).await?;
            *list = List::Tree(tree.root());
        }
        Ok(true)
    }

    /// Removes an entry. True if the vertex itself has changed, and is to be written.
    pub(crate) async fn remove_entry(
        &self,
        at: Pointer,
        vertex: &mut VertexObject,
        direction: Direction,
        entry: Entry,
    ) -> Result<bool> {
        let missing = "an edge is missing in the list of its end";
        match &mut vertex.lists[direction.list()] {
            List::Tree(root) => {
                let tree = self.open_list(*root).await?;
                match tree.remove(self.tx, &entry.pack()).await? {
                    true => Ok(false),
                    false => Err(damaged(at, missing)),
                }
            }
            List::Inline(entries) => match entries.binary_search(&entry) {
                Ok(i) => {
                    entries.remove(i);
                    Ok(true)
                }
                Err(_) => Err(damaged(at, missing)),
            },
        }
    }

    /// Up to `limit` entries of the span, in order.
    pub(crate) async fn list_part(&self, list: &List, span: &Span, limit: usize) -> Result<Part> {
        let root = match list {
            List::Tree(root) => *root,
            List::Inline(entries) => {
                let is_in = |entry: &&Entry| {
                    let key = entry.pack();
                    key[..] >= span.begin[..]
                        && span.end.as_ref().is_none_or(|end| key[..] < end[..])
                };
                let mut found: Vec<Entry> = entries.iter().filter(is_in).copied().collect();
                let more = found.len() > limit;
                found.truncate(limit);
                return Ok(Part {
                    entries: found,
                    more,
                });
            }
        };
        let tree = self.open_list(root).await?;
        let end = span.end.as_deref();
        let found = tree.range(self.tx, &span.begin, end, limit, false).await?;
        let entries = found.rows.iter().map(|(key, _)| Entry::unpack(key));
        let entries = entries.collect::<Option<_>>();
        Ok(Part {
            entries: entries.ok_or(damaged(root, NOT_AN_ENTRY))?,
            more: found.more,
        })
    }

    /// Ends what a list has beside its vertex. The entries in it should be few.
    pub(crate) async fn drop_list(&self, list: &List) -> Result<()> {
        if let List::Tree(root) = list {
            self.open_list(*root).await?.destroy(self.tx).await?;
        }
        Ok(())
    }
}
