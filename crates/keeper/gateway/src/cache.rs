//! Nodes that a gateway has in memory: what they are at the version of its replica, and no other.
//!
//! The cache is bounded. What has not been used for a while goes first (second chance). What is not in it is unknown,
//! unless the parent's list of children is there and complete: then a child that is not listed does not exist.

use crate::paths;
use crate::tree::change::Change;
use crate::tree::node::{Data, Node};
use crate::tree::plan::Known;
use crate::wire::Text;
use foldhash::fast::FixedState;
use plinth_runtime::checks::are_expensive_on;
use plinth_runtime::never;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Memory of an entry besides its node, its name and its children.
const ENTRY_BYTES: usize = 120;
/// Memory of a child in a list besides its name.
pub const CHILD_BYTES: usize = 48;
/// Entries that are looked at to make room for one.
const CHANCES: usize = 1000;

struct Slot {
    /// Unknown once it has changed behind a row that was damaged.
    node: Known,
    /// Names of all children. Only of a node that is here.
    children: Option<BTreeSet<Box<str>>>,
    children_bytes: usize,
    used: Cell<bool>,
}

impl Slot {
    fn bytes(&self, path: &str) -> usize {
        let node = match &self.node {
            Known::Here(node) => node.bytes(),
            Known::Absent | Known::Damaged | Known::Unknown => 0,
        };
        ENTRY_BYTES + 2 * path.len() + node + self.children_bytes
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "the hasher is given, and no order of iteration is seen"
)]
type Map<K, V> = std::collections::HashMap<K, V, FixedState>;

/// See the module.
pub struct Cache {
    slots: Map<Rc<str>, Slot>,
    /// Every path in `slots`, once, the next candidate for eviction first.
    ring: VecDeque<Rc<str>>,
    bytes: usize,
    bytes_max: usize,
    keeps_all: bool,
    /// Paths that stay, and how many want each to.
    pinned: Map<Text, usize>,
    /// Looks for room since all was checked.
    unchecked: usize,
}

impl Cache {
    pub fn new(seed: u64, bytes_max: usize) -> Cache {
        Cache {
            slots: Map::with_hasher(FixedState::with_seed(seed)),
            ring: VecDeque::new(),
            bytes: 0,
            bytes_max,
            keeps_all: false,
            pinned: Map::with_hasher(FixedState::with_seed(seed)),
            unchecked: 0,
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// While it keeps everything, it may grow beyond its limit.
    pub fn keep_all(&mut self, keeps_all: bool) {
        self.keeps_all = keeps_all;
        self.evict("");
    }

    /// What is known of the node stays until it is unpinned as often.
    pub fn pin(&mut self, path: &Text) {
        *self.pinned.entry(path.clone()).or_default() += 1;
    }

    pub fn unpin(&mut self, path: &str) {
        let pins = self.pinned.get_mut(path).expect("it was pinned");
        *pins -= 1;
        if *pins == 0 {
            self.pinned.remove(path);
        }
    }

    pub fn is_over_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Memory of a node, without its list of children.
    pub fn bytes_of(&self, path: &str) -> usize {
        let slot = self.slots.get(path);
        slot.map_or(0, |slot| slot.bytes(path) - slot.children_bytes)
    }

    /// Memory of a node's list of children, if that is known.
    pub fn bytes_of_list(&self, path: &str) -> Option<usize> {
        let slot = self.slots.get(path)?;
        slot.children.as_ref().map(|_| slot.children_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn get(&self, path: &str) -> Known {
        if let Some(slot) = self.slots.get(path) {
            slot.used.set(true);
            return slot.node.clone();
        }
        let siblings = paths::parent(path).and_then(|parent| self.slots.get(parent));
        match siblings {
            Some(Slot {
                node: Known::Absent,
                ..
            }) => Known::Absent,
            Some(Slot {
                children: Some(names),
                ..
            }) if !names.contains(paths::name(path)) => Known::Absent,
            _ => Known::Unknown,
        }
    }

    /// The names of the children, if all are known.
    pub fn children(&self, path: &str) -> Option<&BTreeSet<Box<str>>> {
        let slot = self.slots.get(path)?;
        slot.used.set(true);
        slot.children.as_ref()
    }

    /// Notes what was read from the store: the node, or that there is none.
    pub fn insert(&mut self, path: &str, node: Option<Rc<Node>>) {
        self.note(path, node.map_or(Known::Absent, Known::Here));
    }

    /// Notes that the node's rows cannot be read.
    pub fn insert_damaged(&mut self, path: &str) {
        self.note(path, Known::Damaged);
    }

    fn note(&mut self, path: &str, known: Known) {
        self.change(path, true, |slot| {
            if !matches!(known, Known::Here(_)) {
                slot.children = None;
                slot.children_bytes = 0;
            }
            slot.node = known;
        });
        self.evict(path);
    }

    /// Notes the children of a node that is in the cache.
    pub fn insert_children(&mut self, path: &str, names: BTreeSet<Box<str>>) {
        self.change(path, false, |slot| {
            let Known::Here(_) = slot.node else { return };
            slot.children_bytes = names.iter().map(|name| name.len() + CHILD_BYTES).sum();
            slot.children = Some(names);
        });
        self.evict(path);
    }

    /// Changes the slot of `path`, which is made if `make`, and accounts for its bytes.
    fn change(&mut self, path: &str, make: bool, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(path) {
            let before = slot.bytes(path);
            change(slot);
            let after = slot.bytes(path);
            assert!(
                before <= self.bytes,
                "{path} has {before} of {} bytes",
                self.bytes
            );
            self.bytes = self.bytes - before + after;
        } else if make {
            let path: Rc<str> = path.into();
            let mut slot = Slot {
                node: Known::Unknown,
                children: None,
                children_bytes: 0,
                used: Cell::new(false),
            };
            change(&mut slot);
            self.bytes += slot.bytes(&path);
            self.ring.push_back(path.clone());
            self.slots.insert(path, slot);
        }
    }

    /// Makes room. `kept` stays, even if it alone is larger than the cache: its reader comes next.
    fn evict(&mut self, kept: &str) {
        if self.keeps_all {
            return;
        }
        // If all have been used, a call clears some marks and later ones go on: no call holds up the loop.
        let mut chances = CHANCES.min(2 * self.ring.len());
        while self.bytes > self.bytes_max && chances > 0 {
            chances -= 1;
            let Some(path) = self.ring.pop_front() else {
                return;
            };
            let slot = &self.slots[&path];
            let stays = *path == *kept || self.pinned.contains_key(&*path);
            if slot.used.replace(false) || stays {
                self.ring.push_back(path);
            } else {
                let bytes = slot.bytes(&path);
                assert!(
                    bytes <= self.bytes,
                    "{path} has {bytes} of {} bytes",
                    self.bytes
                );
                self.bytes -= bytes;
                self.slots.remove(&path);
            }
        }
        let (slots, ring) = (self.slots.len(), self.ring.len());
        assert_eq!(slots, ring, "each node has its place in the ring");
        self.unchecked += 1;
        if are_expensive_on() && self.unchecked > slots {
            self.unchecked = 0;
            self.check();
        }
    }

    /// Asserts that the bytes are those of all nodes, and that nodes have as many children as are listed.
    fn check(&self) {
        let bytes: usize = self.slots.iter().map(|(path, slot)| slot.bytes(path)).sum();
        assert_eq!(bytes, self.bytes, "bytes of {} nodes", self.slots.len());
        for (path, slot) in &self.slots {
            let (Known::Here(node), Some(names)) = (&slot.node, &slot.children) else {
                continue;
            };
            let present = node.counts.present;
            never!(
                i64::from(present) != names.len() as i64,
                "KeeperChildrenMiscounted",
                "path" => path,
                "present" => present,
                "listed" => names.len()
            );
        }
    }

    /// Applies a change that was committed with this zxid.
    pub fn apply(&mut self, change: &Change, zxid: i64) {
        match change {
            Change::Created(path, node) => {
                self.change_parent(path, zxid, |node, names| {
                    node.counts.created = node.counts.created.wrapping_add(1);
                    node.counts.present = node.counts.present.wrapping_add(1);
                    names.insert(paths::name(path).into())
                });
                self.change(path, true, |slot| {
                    slot.node = Known::Here(Rc::new(node.clone()));
                    // A new node has no children, and everybody will know of its first.
                    slot.children = Some(BTreeSet::new());
                    slot.children_bytes = 0;
                });
                self.evict(path);
            }
            Change::Deleted(path) => {
                self.change_parent(path, zxid, |node, names| {
                    node.counts.present = node.counts.present.wrapping_sub(1);
                    names.remove(paths::name(path))
                });
                self.insert(path, None);
            }
            Change::DataSet(path, node) | Change::AclSet(path, node) => self.set(path, node),
            Change::Guarded(..)
            | Change::SessionTaken { .. }
            | Change::SessionClosed { .. }
            | Change::GatewayRemoved { .. }
            | Change::Quota(..) => {}
        }
    }

    /// The node has changed, but not its list of children.
    fn set(&mut self, path: &str, new: &Node) {
        self.change(path, false, |slot| {
            if let Some(node) = that_changes(&mut slot.node) {
                let old = Rc::make_mut(node);
                let data = match (&new.data, &old.data) {
                    // The change did not come with long data. Data that was not changed is still the same. (The
                    // steps of a transaction have one zxid: only the version tells them apart.)
                    (Data::Unread(_), Data::Here(here))
                        if (new.mzxid, new.version) == (old.mzxid, old.version) =>
                    {
                        Data::Here(here.clone())
                    }
                    (data, _) => data.clone(),
                };
                *old = Node {
                    data,
                    counts: old.counts,
                    pzxid: old.pzxid,
                    ..new.clone()
                };
            }
        });
    }

    /// Changes the parent of `path` and its list of children, as far as they are known. `change` returns whether the
    /// list has changed.
    fn change_parent(
        &mut self,
        path: &str,
        zxid: i64,
        change: impl Fn(&mut Node, &mut BTreeSet<Box<str>>) -> bool,
    ) {
        let Some(parent) = paths::parent(path) else {
            return;
        };
        let name_bytes = paths::name(path).len() + CHILD_BYTES;
        self.change(parent, false, |slot| {
            let Some(node) = that_changes(&mut slot.node) else {
                return;
            };
            let node = Rc::make_mut(node);
            node.pzxid = zxid;
            let before = slot.children.as_ref().map_or(0, |names| names.len());
            let mut nobody = BTreeSet::new();
            let names = slot.children.as_mut().unwrap_or(&mut nobody);
            change(node, names);
            if let Some(names) = &slot.children {
                let after = names.len();
                slot.children_bytes =
                    slot.children_bytes + after * name_bytes - before * name_bytes;
            }
        });
    }
}

/// The node, if it is here. One that was damaged may have been written anew: it must be read again.
fn that_changes(known: &mut Known) -> Option<&mut Rc<Node>> {
    if let Known::Damaged = known {
        *known = Known::Unknown;
    }
    match known {
        Known::Here(node) => Some(node),
        Known::Absent | Known::Damaged | Known::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn node(zxid: i64) -> Node {
        Node::new(zxid, Data::Here(Bytes::from_static(b"data")))
    }

    fn here(cache: &Cache, path: &str) -> Option<Rc<Node>> {
        match cache.get(path) {
            Known::Here(node) => Some(node),
            Known::Absent | Known::Damaged | Known::Unknown => None,
        }
    }

    #[test]
    fn changes_follow_one_another_into_nodes_and_lists() {
        let mut cache = Cache::new(1, 1 << 20);
        assert!(matches!(cache.get("/a"), Known::Unknown));
        cache.insert("/", Some(Rc::new(node(0))));
        cache.apply(&Change::Created("/a".into(), node(5)), 5);
        cache.apply(&Change::Created("/a/b".into(), node(6)), 6);
        cache.apply(&Change::Created("/a/c".into(), node(7)), 7);
        cache.apply(&Change::Deleted("/a/b".into()), 8);
        let a = here(&cache, "/a").expect("created");
        assert_eq!((a.counts.created, a.counts.present, a.pzxid), (2, 1, 8));
        let names: Vec<&str> = cache
            .children("/a")
            .expect("complete")
            .iter()
            .map(|n| &**n)
            .collect();
        assert_eq!(names, ["c"]);
        assert!(matches!(cache.get("/a/b"), Known::Absent));
        assert!(
            matches!(cache.get("/a/d"), Known::Absent),
            "the list is complete"
        );
        assert!(
            matches!(cache.get("/a/b/x"), Known::Absent),
            "the parent does not exist"
        );
        assert!(
            matches!(cache.get("/other"), Known::Unknown),
            "the root's list is not known"
        );
    }

    #[test]
    fn new_data_keeps_what_is_known_of_children() {
        let mut cache = Cache::new(1, 1 << 20);
        cache.apply(&Change::Created("/a".into(), node(5)), 5);
        cache.apply(&Change::Created("/a/b".into(), node(6)), 6);
        let set = Node {
            version: 1,
            mzxid: 7,
            data: Data::None,
            ..node(5)
        };
        cache.apply(&Change::DataSet("/a".into(), set), 7);
        let a = here(&cache, "/a").expect("created");
        assert_eq!(
            (a.version, a.mzxid, a.counts.present, a.pzxid),
            (1, 7, 1, 6)
        );
        assert_eq!(a.data, Data::None);
    }

    #[test]
    fn long_data_that_a_transaction_gives_a_node_it_has_made_is_not_taken_for_what_it_had() {
        let mut cache = Cache::new(1, 1 << 20);
        cache.insert("/", Some(Rc::new(node(0))));
        let made = Node {
            data: Data::Here(Bytes::from_static(b"short")),
            ..node(5)
        };
        let set = Node {
            version: 1,
            data: Data::Unread(2000),
            ..node(5)
        };
        let guarded = Node {
            aversion: 1,
            ..set.clone()
        };
        cache.apply(&Change::Created("/a".into(), made), 5);
        cache.apply(&Change::DataSet("/a".into(), set), 5);
        let data = |cache: &Cache| here(cache, "/a").expect("created").data.clone();
        assert_eq!(data(&cache), Data::Unread(2000));
        let long = Node {
            version: 1,
            data: Data::Here(vec![7; 2000].into()),
            ..node(5)
        };
        cache.insert("/a", Some(Rc::new(long.clone())));
        cache.apply(&Change::AclSet("/a".into(), guarded), 6);
        assert_eq!(data(&cache), long.data);
    }

    #[test]
    fn a_damaged_node_is_read_again_when_it_may_have_been_written_anew() {
        let set = Change::DataSet("/a".into(), node(5));
        let child = Change::Created("/a/b".into(), node(5));
        for change in [set, child] {
            let mut cache = Cache::new(1, 1 << 20);
            cache.insert("/a", Some(Rc::new(node(4))));
            cache.insert_children("/a", BTreeSet::new());
            cache.insert_damaged("/a");
            cache.insert_children("/a", BTreeSet::new());
            assert!(matches!(cache.get("/a"), Known::Damaged));
            assert!(cache.children("/a").is_none());
            assert!(matches!(cache.get("/a/c"), Known::Unknown));
            cache.apply(&change, 5);
            assert!(matches!(cache.get("/a"), Known::Unknown));
        }
    }

    #[test]
    fn what_is_not_used_goes_when_memory_is_full() {
        let mut cache = Cache::new(1, 20_000);
        for i in 0..1000 {
            cache.insert(&format!("/{i}"), Some(Rc::new(node(i))));
            let _ = cache.get("/0");
        }
        assert!(
            cache.bytes() <= 20_000 && cache.len() > 20,
            "{} {}",
            cache.bytes(),
            cache.len()
        );
        assert!(here(&cache, "/0").is_some(), "it was used all the time");
        assert!(matches!(cache.get("/1"), Known::Unknown));
        for i in 0..1000 {
            cache.apply(&Change::Deleted(format!("/{i}").into()), 1);
        }
    }

    #[test]
    fn what_is_pinned_stays_until_nobody_wants_it_to() {
        let mut cache = Cache::new(1, 20_000);
        let fill = |cache: &mut Cache| {
            for i in 0..1000 {
                cache.insert(&format!("/{i}"), Some(Rc::new(node(i))));
            }
        };
        cache.insert("/kept", Some(Rc::new(node(1))));
        cache.pin(&"/kept".into());
        cache.pin(&"/kept".into());
        cache.unpin("/kept");
        fill(&mut cache);
        assert!(cache.bytes_of("/kept") > 0 && cache.bytes() <= 20_000);
        cache.unpin("/kept");
        fill(&mut cache);
        assert_eq!(cache.bytes_of("/kept"), 0);
    }

    #[test]
    fn bytes_are_counted_as_lists_grow_and_shrink() {
        let mut cache = Cache::new(1, 1 << 20);
        cache.insert("/", Some(Rc::new(node(0))));
        cache.insert_children("/", BTreeSet::new());
        let before = cache.bytes();
        for i in 0..100 {
            cache.apply(&Change::Created(format!("/{i:03}").into(), node(i)), i);
        }
        assert!(cache.bytes() > before + 100 * CHILD_BYTES);
        for i in 0..100 {
            cache.apply(&Change::Deleted(format!("/{i:03}").into()), i);
        }
        // Everybody still knows that they are not there.
        let absent = 100 * (ENTRY_BYTES + 2 * "/000".len());
        assert_eq!(cache.bytes(), before + absent);
    }

    #[test]
    fn each_path_is_in_the_ring_once() {
        let mut cache = Cache::new(1, 1 << 20);
        for i in 0..10 {
            cache.apply(&Change::Created("/a".into(), node(i)), i);
            cache.apply(&Change::Deleted("/a".into()), i);
            cache.insert("/a", None);
        }
        assert_eq!((cache.ring.len(), cache.len()), (1, 1));
    }
}
