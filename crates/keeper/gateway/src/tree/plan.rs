//! A transaction that is being put together: operations are executed, one after the other, on the state that the
//! gateway knows, and what they would change is collected. Nothing here waits, reads or writes.
//!
//! The plan notes what it relied on and what it changes as locks ([`Lock`]). If none of the locks that it read was
//! written by others since the state's version, its answers are those of the commit's own version, and its commit
//! succeeds; otherwise the operations are executed again on a newer state.

use super::change::Change;
use super::locks::Locks;
use super::node::{Lifetime, Node, is_open, own_zxid};
use super::quota::{Draft, Exceeded, QuotaChange, Quotas, Used};
use super::rows::{Lock, Rows};
use super::touched::{Touched, TouchedNodes};
use crate::paths;
use crate::wire::{Acl, Code, Text};
use plinth_core::key::KeyRange;
use plinth_runtime::random::chance;
use plinth_runtime::{never, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What is known of a node.
#[derive(Clone, Debug)]
pub enum Known {
    Here(Rc<Node>),
    Absent,
    /// Its rows cannot be read, however often somebody tries.
    Damaged,
    /// It must be read from the store first.
    Unknown,
}

/// What is known of a list of children.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Names {
    /// In ascending order.
    All(Vec<Text>),
    /// It must be read from the store first.
    Unknown,
    /// It takes more memory than a list may.
    TooLong,
}

/// The state that operations are executed on.
pub trait View {
    fn node(&self, path: &str) -> Known;
    /// The names of the children of a node that is there.
    fn children(&self, path: &str) -> Names;
    /// True if the gateway has this session.
    fn owns(&self, session: i64) -> bool;
    /// True if nothing was heard of the session's client since it was decided to end the session.
    fn is_silent(&self, session: i64) -> bool;
    fn quotas(&self) -> Rc<Quotas>;
    /// True if hard limits are hard.
    fn enforces_quotas(&self) -> bool;
    /// A client has come to a limit.
    fn exceeds(&self, exceeded: &Exceeded, path: &str);
}

/// What a session has become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionChange {
    Opened {
        timeout_ms: u32,
        password: Vec<u8>,
    },
    /// It was another gateway's before.
    Taken {
        from: u64,
        timeout_ms: u32,
        password: Vec<u8>,
    },
    /// It has ended, but some of its ephemeral nodes are left.
    Ending {
        owner: u64,
    },
    Closed {
        owner: u64,
    },
}

pub struct Plan<'v> {
    view: &'v dyn View,
    pub touched: TouchedNodes,
    /// Whoever puts one here relies on the session as it was, and locks it.
    pub sessions: BTreeMap<i64, SessionChange>,
    /// Index rows of nodes of a session that has ended, which led to no node.
    pub clears: Vec<KeyRange>,
    /// Rows of gateways that are written, or cleared.
    pub gateways: Vec<(u64, Option<Vec<u8>>)>,
    /// With the number of the operation that made each.
    pub changes: Vec<(u16, Change)>,
    pub reads: Locks,
    pub writes: Locks,
    /// Nodes that must be read before the plan can be right.
    pub missing: Vec<Text>,
    /// As `missing`: nodes whose lists of children must be read.
    pub missing_lists: Vec<Text>,
    /// Bytes of data that it writes.
    pub data_bytes: usize,
    pub quotas: Draft,
    /// What is to be written about quotas; see [`Plan::end`].
    pub quota_changes: Vec<(Text, QuotaChange)>,
    /// Milliseconds since 1970.
    pub now_ms: i64,
    piece: u16,
    undo: Option<Undo>,
}

/// Takes back a multi that fails.
struct Undo {
    changes: usize,
    before: Vec<(Text, Option<Touched>)>,
    quotas: Draft,
    /// Containers of the multi whose flags say ephemeral.
    seem_ephemeral: BTreeSet<Text>,
}

impl<'v> Plan<'v> {
    /// `seed` hides from clients how their paths are hashed.
    pub fn new(view: &'v dyn View, now_ms: i64, seed: u64) -> Self {
        Plan {
            view,
            touched: TouchedNodes::new(seed),
            sessions: BTreeMap::new(),
            clears: Vec::new(),
            gateways: Vec::new(),
            changes: Vec::new(),
            // Every transaction knows all quotas.
            reads: Locks::of((Lock::Quotas, 0)),
            writes: Locks::default(),
            missing: Vec::new(),
            missing_lists: Vec::new(),
            data_bytes: 0,
            quotas: Draft::new(view.quotas()),
            quota_changes: Vec::new(),
            now_ms,
            piece: 0,
            undo: None,
        }
    }

    /// Begins the operation with this number.
    pub fn begin(&mut self, piece: u16) {
        self.piece = piece;
    }

    /// The zxid of the current operation.
    pub fn zxid(&self) -> i64 {
        own_zxid(self.piece)
    }

    pub fn read(&mut self, lock: Lock, hash: u64) {
        self.reads.add((lock, hash));
    }

    pub fn write(&mut self, lock: Lock, hash: u64) {
        self.writes.add((lock, hash));
    }

    pub fn owns(&self, session: i64) -> bool {
        self.sessions.contains_key(&session) || self.view.owns(session)
    }

    /// True if a session of this gateway that is over may be ended.
    pub fn is_silent(&self, session: i64) -> bool {
        let is_forgotten = planted!(
            "keeper_close_not_called_off",
            "a session ends although its client was heard before the end was written"
        );
        is_forgotten || self.view.is_silent(session)
    }

    /// The node as the operations so far have left it. The plan relies on its existence and its access list.
    ///
    /// # Errors
    /// Its rows are damaged.
    pub fn node(&mut self, path: &str) -> Result<Option<Node>, Code> {
        if !paths::is_valid(path) {
            return Ok(None);
        }
        self.read(Lock::Existence, Rows::path_hash(path));
        if let Some(touched) = self.touched.get(path) {
            return match &touched.after {
                Some(node) if node.is_stand_in() => Err(Code::DATA_INCONSISTENCY),
                after => Ok(after.clone()),
            };
        }
        match self.view.node(path) {
            Known::Here(node) => Ok(Some((*node).clone())),
            Known::Absent => Ok(None),
            Known::Damaged => Err(Code::DATA_INCONSISTENCY),
            Known::Unknown => {
                let is_taken_for_absent = planted!(
                    "keeper_unknown_is_absent",
                    "one in ten nodes that a gateway does not remember does not exist to its operations"
                );
                if !is_taken_for_absent || chance(0.9) {
                    self.missing.push(path.into());
                }
                Ok(None)
            }
        }
    }

    /// False if something must be read before the plan can be right.
    pub fn is_all_read(&self) -> bool {
        self.missing.is_empty() && self.missing_lists.is_empty()
    }

    /// The names of the children of a node that is there, in ascending order, as the operations so far have left them.
    /// Whoever uses them relies on the list, and says so.
    ///
    /// # Errors
    /// There are too many.
    pub fn children(&mut self, path: &str) -> Result<Vec<Text>, Code> {
        let touched = self.touched.get(path);
        let is_new = touched.is_some_and(|touched| touched.before.is_none());
        let names = match self.view.children(path) {
            _ if is_new => Vec::new(),
            Names::All(names) => names,
            Names::TooLong => return Err(Code::NOT_EMPTY),
            Names::Unknown => {
                self.missing_lists.push(path.into());
                return Ok(Vec::new());
            }
        };
        // Whoever creates or deletes a child changes its parent, too.
        if touched.is_none() {
            return Ok(names);
        }
        let mut left: BTreeSet<Text> = names.into_iter().collect();
        for (child, touched) in self.touched.iter() {
            if paths::parent(child) != Some(path) {
                continue;
            }
            match touched.after {
                Some(_) => left.insert(paths::name(child).into()),
                None => left.remove(paths::name(child)),
            };
        }
        Ok(left.into_iter().collect())
    }

    /// The names of the children before all operations, if they are known.
    pub fn known_children(&self, path: &str) -> Vec<Text> {
        match self.view.children(path) {
            Names::All(names) => names,
            Names::Unknown | Names::TooLong => Vec::new(),
        }
    }

    /// As [`node`](Self::node), with its data unless that is long.
    pub fn node_with_data(&mut self, path: &str) -> Result<Option<Node>, Code> {
        let node = self.node(path)?;
        if let Some(node) = &node
            && node.data.is_left_in_row()
        {
            self.missing.push(path.into());
        }
        Ok(node)
    }

    /// As [`node`](Self::node). If its rows are damaged, a node with this lifetime stands in for it, so that it, or a
    /// child of it, can be deleted.
    pub fn node_or_stand_in(&mut self, path: &str, lifetime: Lifetime) -> Option<Node> {
        if let Ok(node) = self.node(path) {
            return node;
        }
        if self.touched.get(path).is_none() {
            let node = Node::stand_in(lifetime);
            let touched = Touched {
                before: Some(Rc::new(node.clone())),
                after: Some(node),
                is_replaced: false,
                hash: Rows::path_hash(path),
            };
            self.touched.insert(path.into(), touched);
        }
        self.touched.get(path)?.after.clone()
    }

    fn put(&mut self, path: &str, after: Option<Node>) {
        if let Some(undo) = &mut self.undo {
            let before = self.touched.get(path).cloned();
            undo.before.push((path.into(), before));
        }
        if let Some(touched) = self.touched.get_mut(path) {
            self.quotas
                .note(path, touched.after.as_ref(), after.as_ref());
            touched.is_replaced |= after.is_none();
            touched.after = after;
            return;
        }
        let before = match self.view.node(path) {
            Known::Here(node) => Some(node),
            Known::Absent | Known::Damaged | Known::Unknown => None,
        };
        self.quotas.note(path, before.as_deref(), after.as_ref());
        let touched = Touched {
            is_replaced: after.is_none(),
            before,
            after,
            hash: Rows::path_hash(path),
        };
        self.touched.insert(path.into(), touched);
    }

    /// Tells gateways that do not know the node who may hear of its change.
    fn guard(&mut self, path: &str, acl: &Rc<[Acl]>) {
        if !is_open(acl) {
            self.note(Change::Guarded(path.into(), acl.clone()));
        }
    }

    pub fn create(&mut self, path: &Text, node: Node, parent: &str, mut parent_node: Node) {
        self.guard(parent, &parent_node.acl);
        parent_node.counts.created = parent_node.counts.created.wrapping_add(1);
        parent_node.counts.present = parent_node.counts.present.wrapping_add(1);
        self.change_children(parent, parent_node);
        self.data_bytes += node.data.len();
        self.put(path, Some(node.clone()));
        self.changes
            .push((self.piece, Change::Created(path.clone(), node)));
    }

    pub fn delete(&mut self, path: &Text, node: &Node, parent: &str, mut parent_node: Node) {
        self.guard(path, &node.acl);
        self.guard(parent, &parent_node.acl);
        // The rows say so, and all gateways and replicas read the same: it costs a wrong number, and no service.
        // (Before all is read, an earlier operation may have made a parent anew that only was not known.)
        let is_all_read = self.is_all_read();
        never!(
            is_all_read && parent_node.counts.present <= 0,
            "KeeperParentWithoutChildren",
            "path" => path,
            "children" => parent_node.counts.present
        );
        parent_node.counts.present = parent_node.counts.present.wrapping_sub(1);
        self.change_children(parent, parent_node);
        self.put(path, None);
        self.changes
            .push((self.piece, Change::Deleted(path.clone())));
    }

    /// Deletes a node that has no parent: somebody else has cleared its rows.
    pub fn delete_orphan(&mut self, path: &Text, node: &Node) {
        self.guard(path, &node.acl);
        self.put(path, None);
        self.changes
            .push((self.piece, Change::Deleted(path.clone())));
    }

    fn change_children(&mut self, parent: &str, node: Node) {
        let pzxid = self.zxid();
        self.put(parent, Some(Node { pzxid, ..node }));
    }

    pub fn set_data(&mut self, path: &Text, node: Node) {
        self.data_bytes += node.data.len();
        self.put(path, Some(node.clone()));
        self.changes
            .push((self.piece, Change::DataSet(path.clone(), node)));
    }

    pub fn set_acl(&mut self, path: &Text, node: Node) {
        if node.data.is_left_in_row() {
            // The row is written anew, with its data.
            self.missing.push(path.clone());
        }
        self.put(path, Some(node.clone()));
        self.changes
            .push((self.piece, Change::AclSet(path.clone(), node)));
    }

    /// Notes a change that is of no node.
    pub fn note(&mut self, change: Change) {
        self.changes.push((self.piece, change));
    }

    /// Starts a group of operations that happen together or not at all.
    pub fn begin_group(&mut self) {
        self.undo = Some(Undo {
            changes: self.changes.len(),
            before: Vec::new(),
            quotas: self.quotas.clone(),
            seem_ephemeral: BTreeSet::new(),
        });
    }

    pub fn end_group(&mut self) {
        self.undo = None;
    }

    /// Notes whether the flags of a new node say ephemeral, though it is none. ZooKeeper goes by the flags until the
    /// multi is over, and only then by what the node has become.
    pub fn note_flags(&mut self, path: &Text, seems_ephemeral: bool) {
        let Some(undo) = &mut self.undo else { return };
        match seems_ephemeral {
            true => undo.seem_ephemeral.insert(path.clone()),
            false => undo.seem_ephemeral.remove(path),
        };
    }

    /// See [`note_flags`](Self::note_flags).
    pub fn seems_ephemeral(&self, path: &str) -> bool {
        let undo = self.undo.as_ref();
        undo.is_some_and(|undo| undo.seem_ephemeral.contains(path))
    }

    /// Takes back what the group has changed. What it has relied on stays: its failure depends on it.
    pub fn undo_group(&mut self) {
        let undo = self.undo.take().expect("a group was begun");
        self.changes.truncate(undo.changes);
        self.quotas = undo.quotas;
        for (path, before) in undo.before.into_iter().rev() {
            match before {
                Some(touched) => self.touched.insert(path, touched),
                None => self.touched.remove(&path),
            };
        }
    }

    /// Fails if the quota of the path has no room for `more`.
    pub fn check_quota(&mut self, path: &str, more: Used) -> Result<(), Code> {
        if self.quotas.is_idle() || !self.view.enforces_quotas() {
            return Ok(());
        }
        let verdict = self.quotas.check(path, more);
        if let Some(quota) = verdict.relies_on {
            self.read(Lock::Quota, Rows::path_hash(&quota));
        }
        for exceeded in &verdict.exceeded {
            self.view.exceeds(exceeded, path);
            if exceeded.is_hard {
                return Err(Code::QUOTA_EXCEEDED);
            }
        }
        Ok(())
    }

    /// Puts in the zxids, once they are known; `zxid_of` gives that of an operation.
    pub fn settle(&mut self, zxid_of: impl Fn(u16) -> i64 + Copy) {
        self.touched
            .afters_mut()
            .for_each(|node| node.settle(zxid_of));
        self.changes
            .iter_mut()
            .for_each(|(_, change)| change.settle(zxid_of));
    }

    /// All operations are executed: what they have done to quotas is known, and what they have locked.
    pub fn end(&mut self) {
        self.lock_what_changes();
        self.forget_locks();
        let touched = self.touched.iter();
        let touched = touched.map(|(path, t)| (path, t.before.as_deref(), t.after.as_ref()));
        self.quota_changes = self.quotas.changes(touched);
        for (path, change) in self.quota_changes.clone() {
            match &change {
                QuotaChange::Added(_) => self.write(Lock::Quota, Rows::path_hash(&path)),
                _ => self.write(Lock::Quotas, 0),
            }
            self.note(Change::Quota(path, change));
        }
    }

    /// Nothing, unless a fault is planted: then the plan does not rely on all that it has looked at.
    fn forget_locks(&mut self) {
        let forgotten = [
            (
                Lock::Existence,
                planted!(
                    "keeper_existence_not_locked",
                    "others may create and delete the nodes that an operation has looked at"
                ),
            ),
            (
                Lock::Data,
                planted!(
                    "keeper_data_not_locked",
                    "others may change the data that an operation has looked at"
                ),
            ),
            (
                Lock::Children,
                planted!(
                    "keeper_children_not_locked",
                    "others may change the lists of children that an operation has looked at"
                ),
            ),
            (
                Lock::Session,
                planted!(
                    "keeper_session_not_locked",
                    "others may end or take the session that an operation is of"
                ),
            ),
            (
                Lock::Quota,
                planted!(
                    "keeper_quota_not_locked",
                    "others may use up a quota that an operation has looked at"
                ),
            ),
        ];
        for (lock, is_forgotten) in forgotten {
            if is_forgotten {
                self.reads.forget(lock);
            }
        }
    }

    /// The locks of all rows that will be written. A node's row is made of the node as the plan knows it: it relies on
    /// all that the row holds, even if the operation has changed something else, or would do so whatever it found.
    fn lock_what_changes(&mut self) {
        for (_, touched) in self.touched.iter() {
            let (rewritten, hash) = (touched.rewritten(), touched.hash);
            let mut read = |lock| self.reads.add((lock, hash));
            if rewritten.row {
                read(Lock::Existence);
            }
            if rewritten.row && touched.before.is_some() {
                // Whether the data lie in rows of their own, and how long they are, too.
                read(Lock::Data);
            }
            if rewritten.existence && touched.before.is_some() {
                read(Lock::Children);
            }
            let mut write = |lock, of| self.writes.add((lock, of));
            let is_unlocked = planted!(
                "keeper_access_list_not_locked",
                "a change of an access list is no change to whoever has looked at it"
            );
            if rewritten.existence || rewritten.acl && !is_unlocked {
                write(Lock::Existence, hash);
            }
            if rewritten.data && !rewritten.existence {
                write(Lock::Data, hash);
            }
            if rewritten.children {
                write(Lock::Children, hash);
            }
            if let Some(session) = touched.new_ephemeral_of() {
                write(Lock::Ephemerals, session as u64);
            }
        }
        for session in self.sessions.keys() {
            self.reads.add((Lock::Session, *session as u64));
            self.writes.add((Lock::Session, *session as u64));
        }
    }
}
