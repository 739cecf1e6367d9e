//! Importing: what is the same for files and for a live source, and files.

use crate::extract::Reader;
use crate::files::Loaded;
use crate::image::Image;
use crate::target::Target;
use crate::{BEGINS, Outcome, Tell, of_database};
use plinth_client::Database;
use plinth_core::hash::hash_bytes;
use plinth_keeper::tree::node::{Data, Lifetime, Node};
use plinth_keeper::tree::totals::Totals;
use plinth_keeper::wire::Text;
use plinth_keeper::zxid::Zxids;
use plinth_runtime::Boxed;

/// Nodes, and their bytes, that are handed to the target at a time.
const PUT_NODES: usize = 10_000;
const PUT_BYTES: usize = 16 << 20;

/// What an import has done.
#[derive(Clone, Default, Debug)]
pub struct Imported {
    /// Nodes in the tree, and bytes of their data.
    pub nodes: u64,
    pub bytes: u64,
    /// Ephemeral nodes, which stay behind.
    pub ephemerals: u64,
    /// Nodes that were copied again because they changed meanwhile.
    pub again: u64,
    /// Nodes that could not be read, with all below them.
    pub unreadable: Vec<String>,
    /// Nodes whose access lists name SASL users, which the keeper does not know.
    pub sasl: u64,
    /// Containers and nodes with a time to live.
    pub timed: u64,
    /// The last transaction of the source that is in the tree.
    pub last_zxid: i64,
    pub(crate) totals: Totals,
}

impl Imported {
    /// Counts a node of the tree.
    pub(crate) fn count(&mut self, path: &str, node: &Node) {
        self.totals.add_change(path, None, Some(node));
        self.nodes += 1;
        self.bytes += node.data.len() as u64;
        self.sasl += u64::from(node.acl.iter().any(|entry| entry.scheme == "sasl"));
        let is_timed = matches!(node.lifetime, Lifetime::Container | Lifetime::Ttl(_));
        self.timed += u64::from(is_timed);
    }
}

/// Imports what [`crate::load`] has read; with `only`, what is below that path and on the way to it.
///
/// # Errors
/// The tree is there, a node does not fit, or the rows that were written are not those that are there.
pub fn from_files<'a>(
    database: &'a Database,
    tree: &'a str,
    loaded: Loaded,
    only: &'a str,
    tell: Tell<'a>,
) -> Boxed<'a, Outcome<Imported>> {
    Box::pin(async move {
        let mut image = loaded.image;
        let mut imported = Imported {
            ephemerals: image.settle(only)? as u64,
            last_zxid: image.last_zxid,
            ..Imported::default()
        };
        if !image.nodes.contains_key(only) {
            return Err(format!("{only}: the source has no such node"));
        }
        tell(BEGINS, 0);
        let target = Target::begin(database, tree).await?;
        let (mut some, mut bytes) = (Vec::new(), 0);
        for (path, node) in &image.nodes {
            imported.count(path, node);
            bytes += node.data.len();
            some.push((path.clone(), Some(node.clone())));
            if some.len() >= PUT_NODES || bytes >= PUT_BYTES {
                target.put(std::mem::take(&mut some)).await?;
                bytes = 0;
                tell("writing", imported.nodes);
            }
        }
        target.put(some).await?;
        let expected = |path: &Text| image.nodes.get(path).map(Expected::of);
        compare(&target, image.nodes.len(), expected, tell).await?;
        let newest = newest_zxid(&image);
        let last_zxid = imported.last_zxid.max(newest);
        target.finish(last_zxid, imported.totals).await?;
        Ok(imported)
    })
}

fn newest_zxid(image: &Image) -> i64 {
    let zxids = |node: &Node| node.mzxid.max(node.czxid).max(node.pzxid);
    image.nodes.values().map(zxids).max().unwrap_or(0)
}

/// A node as it must be: everything but the data, and a sum of that.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected {
    pub node: Node,
    pub sum: u64,
}

impl Expected {
    pub fn of(node: &Node) -> Expected {
        let sum = match &node.data {
            Data::Here(bytes) => hash_bytes(bytes),
            _ => 0,
        };
        let data = match &node.data {
            Data::None => Data::None,
            data => Data::Unread(data.len()),
        };
        Expected {
            node: Node {
                data,
                ..node.clone()
            },
            sum,
        }
    }
}

/// Reads back the tree and compares it with what it must be.
pub fn compare<'a>(
    target: &'a Target,
    count: usize,
    expected: impl Fn(&Text) -> Option<Expected> + 'a,
    tell: Tell<'a>,
) -> Boxed<'a, Outcome> {
    Box::pin(async move {
        let mut reader = Reader::new(&target.database, &target.rows, Zxids { base: 0 });
        let mut found = 0;
        while let Some(nodes) = reader.next().await.map_err(of_database)? {
            found += nodes.len();
            for (path, node) in nodes {
                if expected(&path) != Some(Expected::of(&node)) {
                    return Err(format!(
                        "{path}: the tree does not have what was written; nothing is served; import again"
                    ));
                }
            }
            tell("reading back", found as u64);
        }
        match found == count {
            true => Ok(()),
            false => Err(format!(
                "the tree has {found} of {count} nodes; nothing is served; import again"
            )),
        }
    })
}
