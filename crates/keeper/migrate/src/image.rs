//! A tree in memory: what ZooKeeper's files say, transaction after transaction, or what a tree of the keeper was at
//! one version.
//!
//! A snapshot of ZooKeeper is *fuzzy*: it has some of the effects of the transactions after it. So each of them may
//! find its work done, or the node gone; the rules for that are ZooKeeper's own.

use plinth_keeper::paths;
use plinth_keeper::setup::{ALWAYS_THERE, first_node};
use plinth_keeper::tree::node::{Counts, Data, Lifetime, Node, is_open, open_acl};
use plinth_keeper::wire::{Acl, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// What ZooKeeper's servers keep there is their own: who belongs to the ensemble.
pub const CONFIG: &str = "/zookeeper/config";

/// A change of one node, or of a session's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Create {
        path: Text,
        data: Data,
        acl: Vec<Acl>,
        lifetime: Lifetime,
        /// How many children the parent has had with this one; -1: one more than before.
        parent_created: i32,
        /// The transaction is of the oldest kind: it counts for the parent even if the node is there.
        is_plain: bool,
    },
    Delete {
        path: Text,
    },
    SetData {
        path: Text,
        data: Data,
        version: i32,
    },
    SetAcl {
        path: Text,
        acl: Vec<Acl>,
        version: i32,
    },
    CloseSession {
        session: i64,
        paths: Vec<Text>,
    },
}

/// When a change happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    pub zxid: i64,
    /// Milliseconds since 1970.
    pub time: i64,
}

/// Nodes by path. Each parent of a node is there.
#[derive(Default)]
pub struct Image {
    pub nodes: BTreeMap<Text, Node>,
    /// Nodes of a tree of the keeper that cannot be read.
    pub damaged: BTreeSet<Text>,
    ephemerals: BTreeMap<i64, BTreeSet<Text>>,
    /// Access lists that a snapshot names and does not have: a later transaction must bring them.
    without_acl: BTreeSet<Text>,
    lists: BTreeMap<Vec<Acl>, Rc<[Acl]>>,
    /// Of the last transaction in it.
    pub last_zxid: i64,
}

impl Image {
    /// One memory for equal access lists.
    pub fn list(&mut self, acl: Vec<Acl>) -> Rc<[Acl]> {
        if is_open(&acl) {
            return open_acl();
        }
        if let Some(known) = self.lists.get(&acl) {
            return known.clone();
        }
        let shared: Rc<[Acl]> = acl.clone().into();
        self.lists.insert(acl, shared.clone());
        shared
    }

    /// Adds a node that a snapshot has; the number of children comes from the children. Without an access list, a
    /// later transaction must bring it.
    ///
    /// # Errors
    /// The parent is not there, or the node is there already.
    pub fn add(&mut self, path: Text, mut node: Node, has_acl: bool) -> Result<(), &'static str> {
        if self.nodes.contains_key(&path) {
            return Err("a node comes twice");
        }
        if let Some(parent) = paths::parent(&path) {
            let parent = self.nodes.get_mut(parent);
            parent
                .ok_or("a node comes before its parent")?
                .counts
                .present += 1;
        }
        if !has_acl {
            self.without_acl.insert(path.clone());
        }
        node.counts.present = 0;
        self.insert(path, node);
        Ok(())
    }

    fn insert(&mut self, path: Text, node: Node) {
        if let Lifetime::Ephemeral(session) = node.lifetime {
            let paths = self.ephemerals.entry(session).or_default();
            paths.insert(path.clone());
        }
        self.nodes.insert(path, node);
    }

    /// Removes the node and all below it.
    fn remove(&mut self, path: &Text) {
        let (begin, end) = (format!("{path}/"), format!("{path}0"));
        let range = (Bound::Included(&begin[..]), Bound::Excluded(&end[..]));
        let below = self.nodes.range::<str, _>(range).map(|(below, _)| below);
        let gone: Vec<Text> = below.chain([path]).cloned().collect();
        for path in gone {
            let node = self.nodes.remove(&path);
            self.without_acl.remove(&path);
            let Some(Lifetime::Ephemeral(session)) = node.map(|node| node.lifetime) else {
                continue;
            };
            let paths = self.ephemerals.entry(session).or_default();
            paths.remove(&path);
            if paths.is_empty() {
                self.ephemerals.remove(&session);
            }
        }
    }

    /// Applies the changes of one transaction, as ZooKeeper's servers do.
    pub fn apply(&mut self, moment: Moment, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Create { .. } => self.create(moment, change),
                Change::Delete { path } => self.delete(moment, &path),
                Change::SetData {
                    path,
                    data,
                    version,
                } => {
                    if let Some(node) = self.nodes.get_mut(&path) {
                        node.data = data;
                        node.version = version;
                        node.mzxid = moment.zxid;
                        node.mtime = moment.time;
                    }
                }
                Change::SetAcl { path, acl, version } => {
                    let acl = self.list(acl);
                    if let Some(node) = self.nodes.get_mut(&path) {
                        node.acl = acl;
                        node.aversion = version;
                        self.without_acl.remove(&path);
                    }
                }
                Change::CloseSession { session, paths } => {
                    let own = self.ephemerals.remove(&session).unwrap_or_default();
                    for path in paths.into_iter().chain(own) {
                        self.delete(moment, &path);
                    }
                }
            }
        }
        self.last_zxid = self.last_zxid.max(moment.zxid);
    }

    fn create(&mut self, moment: Moment, change: Change) {
        let Change::Create {
            path,
            data,
            acl,
            lifetime,
            parent_created,
            is_plain,
        } = change
        else {
            return;
        };
        let acl = self.list(acl);
        let Some(parent) = paths::parent(&path) else {
            return;
        };
        let is_there = self.nodes.contains_key(&path);
        let Some(parent) = self.nodes.get_mut(parent) else {
            return;
        };
        let created = match parent_created {
            -1 => parent.counts.created.wrapping_add(1),
            created => created,
        };
        if (!is_there || is_plain) && created > parent.counts.created {
            parent.counts.created = created;
            parent.pzxid = moment.zxid;
        }
        if is_there {
            let node = self.nodes.get_mut(&path).expect("looked at just now");
            node.acl = acl;
            self.without_acl.remove(&path);
            return;
        }
        parent.counts.present += 1;
        let node = Node {
            czxid: moment.zxid,
            mzxid: moment.zxid,
            pzxid: moment.zxid,
            ctime: moment.time,
            mtime: moment.time,
            version: 0,
            aversion: 0,
            counts: Counts::default(),
            lifetime,
            acl,
            data,
        };
        self.insert(path, node);
    }

    fn delete(&mut self, moment: Moment, path: &Text) {
        let Some(parent) = paths::parent(path) else {
            return;
        };
        let is_there = self.nodes.contains_key(path);
        let Some(parent) = self.nodes.get_mut(parent) else {
            return;
        };
        parent.pzxid = parent.pzxid.max(moment.zxid);
        if is_there {
            parent.counts.present -= 1;
            // What is below was created later, and comes again.
            self.remove(path);
        }
    }

    /// Makes it a tree that the keeper can have: without ephemeral nodes, with the nodes that are always there. With
    /// `only`, what is neither below that path nor on the way to it is left out. What is below a damaged node is left
    /// out, too. Gives the number of ephemeral nodes.
    ///
    /// # Errors
    /// An access list is missing.
    pub fn settle(&mut self, only: &str) -> Result<usize, String> {
        if let Some(path) = self.without_acl.first() {
            return Err(format!(
                "{path}: its access list is neither in the snapshot nor in the logs after it; \
                give all files of the server"
            ));
        }
        let is_wanted = |path: &str| is_within(path, only) || is_within(only, path);
        let mut ephemerals = 0;
        let mut gone = self.damaged.clone();
        self.damaged.retain(|path| is_wanted(path));
        self.nodes.retain(|path, node| {
            let is_ephemeral = matches!(node.lifetime, Lifetime::Ephemeral(_));
            ephemerals += usize::from(is_ephemeral && is_wanted(path));
            let is_orphan = || paths::parent(path).is_some_and(|parent| gone.contains(parent));
            let stays = !is_ephemeral && is_wanted(path) && *path != CONFIG && !is_orphan();
            if !stays {
                gone.insert(path.clone());
            }
            stays
        });
        self.ephemerals.clear();
        for (path, present) in ALWAYS_THERE {
            let there = self.nodes.entry(path.into());
            there.or_insert_with(|| first_node(path, present));
        }
        self.count_children();
        Ok(ephemerals)
    }

    /// Sets the numbers of children to what there is.
    pub fn count_children(&mut self) {
        let mut present: BTreeMap<Text, i32> = BTreeMap::new();
        for path in self.nodes.keys() {
            if let Some(parent) = paths::parent(path) {
                *present.entry(parent.into()).or_default() += 1;
            }
        }
        for (path, node) in &mut self.nodes {
            node.counts.present = present.get(path).copied().unwrap_or(0);
        }
    }
}

/// True if `path` is `top` or below it.
pub fn is_within(path: &str, top: &str) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || top == "/",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, lifetime: Lifetime, parent_created: i32) -> Change {
        Change::Create {
            path: path.into(),
            data: Data::None,
            acl: Acl::open(),
            lifetime,
            parent_created,
            is_plain: true,
        }
    }

    fn delete(path: &str) -> Change {
        Change::Delete { path: path.into() }
    }

    fn at(zxid: i64) -> Moment {
        Moment {
            zxid,
            time: 1000 * zxid,
        }
    }

    fn image() -> Image {
        let mut image = Image::default();
        image
            .add("/".into(), first_node("/", 0), true)
            .expect("a root");
        image
    }

    #[test]
    fn transactions_change_nodes_and_what_their_parents_know() {
        let mut image = image();
        image.apply(at(1), vec![create("/a", Lifetime::Persistent, 1)]);
        image.apply(at(2), vec![create("/a/b", Lifetime::Persistent, -1)]);
        image.apply(at(3), vec![create("/a/e", Lifetime::Ephemeral(7), 2)]);
        let set = Change::SetData {
            path: "/a/b".into(),
            data: Data::Here("x".into()),
            version: 1,
        };
        image.apply(at(4), vec![set]);
        let node = &image.nodes["/a/b"];
        assert_eq!((node.czxid, node.mzxid, node.mtime), (2, 4, 4000));
        let parent = image.nodes["/a"].stat();
        assert_eq!(
            (parent.num_children, parent.cversion, parent.pzxid),
            (2, 2, 3)
        );
        let closed = Change::CloseSession {
            session: 7,
            paths: vec!["/a/e".into()],
        };
        image.apply(at(5), vec![closed]);
        let parent = image.nodes["/a"].stat();
        assert_eq!(
            (parent.num_children, parent.cversion, parent.pzxid),
            (1, 3, 5)
        );
        assert!(image.ephemerals.is_empty());
        assert_eq!(image.last_zxid, 5);
    }

    #[test]
    fn transactions_that_the_snapshot_already_has_do_no_harm() {
        let mut image = image();
        let history = || {
            vec![
                (1, create("/a", Lifetime::Persistent, 1)),
                (2, create("/a/b", Lifetime::Persistent, 1)),
                (3, delete("/a/b")),
                (4, delete("/a")),
                (5, create("/a", Lifetime::Persistent, 2)),
                (6, create("/a/b", Lifetime::Persistent, 1)),
                (7, create("/a!b", Lifetime::Persistent, 3)),
            ]
        };
        for (zxid, change) in history() {
            image.apply(at(zxid), vec![change]);
        }
        let once = image.nodes.clone();
        for (zxid, change) in history() {
            image.apply(at(zxid), vec![change]);
        }
        assert_eq!(image.nodes, once);
    }

    #[test]
    fn what_a_keeper_has_is_without_ephemeral_nodes_and_in_the_part_that_was_asked_for() {
        let mut image = image();
        for (zxid, path, lifetime) in [
            (1, "/a", Lifetime::Persistent),
            (2, "/a/b", Lifetime::Container),
            (3, "/a/b/e", Lifetime::Ephemeral(1)),
            (4, "/a/bc", Lifetime::Persistent),
            (5, "/zookeeper", Lifetime::Persistent),
            (6, "/zookeeper/config", Lifetime::Persistent),
        ] {
            image.apply(at(zxid), vec![create(path, lifetime, -1)]);
        }
        assert_eq!(image.settle("/a/b"), Ok(1));
        let paths: Vec<&str> = image.nodes.keys().map(Text::as_str).collect();
        let system = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"];
        assert_eq!(paths, [&["/", "/a", "/a/b"], &system[..]].concat());
        assert_eq!(image.nodes["/a/b"].counts.present, 0);
        assert_eq!(image.nodes["/"].counts.present, 2);
        assert_eq!(image.nodes["/zookeeper/config"].czxid, 0);
    }

    #[test]
    fn a_list_that_nothing_brings_is_missed() {
        let mut image = image();
        let added = image.add("/a".into(), first_node("/", 0), false);
        assert_eq!(added, Ok(()));
        assert!(image.settle("/").is_err());
        assert_eq!(
            image.add("/b/c".into(), first_node("/", 0), true),
            Err("a node comes before its parent")
        );
        let set = Change::SetAcl {
            path: "/a".into(),
            acl: Acl::open(),
            version: 1,
        };
        image.apply(at(9), vec![set]);
        assert_eq!(image.settle("/"), Ok(0));
    }
}
