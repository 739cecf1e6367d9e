//! The tree as ZooKeeper's rules have it after some operations, one after the other. It shares no code with the
//! gateways that decides anything.

use crate::paths;
use crate::tree::node::Lifetime;
use crate::wire::{
    Acl, Answer, Code, CreateKind, Details, Filter, Listed, MultiResult, Request, Stat, Text,
};
use crate::wire::{create_flags, opcode, permission};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The node below which all of this happens.
pub const BASE: &str = "/simulated/h";
/// A node with a quota: this is what it and all below it may have.
pub const LIMITED: &str = "/simulated/h/q";
pub const NODES_MAX: usize = 3;
pub const BYTES_MAX: usize = 5000;

#[derive(Clone)]
struct Node {
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    version: i32,
    aversion: i32,
    /// Children ever created, and those that are there.
    created: i32,
    present: i32,
    lifetime: Lifetime,
    acl: Vec<Acl>,
    data: Option<Bytes>,
}

impl Node {
    fn new(zxid: i64, lifetime: Lifetime, acl: Vec<Acl>, data: Option<Bytes>) -> Node {
        Node {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            version: 0,
            aversion: 0,
            created: 0,
            present: 0,
            lifetime,
            acl,
            data,
        }
    }

    fn len(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }

    /// Without the times of day: nobody knows them before they are told.
    fn stat(&self) -> Stat {
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: 0,
            mtime: 0,
            version: self.version,
            cversion: 2 * self.created - self.present,
            aversion: self.aversion,
            ephemeral_owner: match self.lifetime {
                Lifetime::Ephemeral(session) => session,
                _ => 0,
            },
            data_length: self.len() as i32,
            num_children: self.present,
            pzxid: self.pzxid,
        }
    }

    fn now(&self) -> Now {
        Now {
            version: self.version,
            aversion: self.aversion,
            lifetime: self.lifetime,
            acl: self.acl.clone(),
            data_bytes: self.len(),
        }
    }

    /// All clients are the same to an access list.
    fn allows(&self, permissions: i32) -> Result<(), Code> {
        let allows = |entry: &Acl| entry.scheme == "world" && entry.perms & permissions != 0;
        let is_allowed = self.acl.iter().any(allows);
        is_allowed.then_some(()).ok_or(Code::NO_AUTH)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    Created,
    DataSet,
    AclSet,
    Deleted,
}

/// What an operation has done to a node, and what the node is then. One that was deleted is nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    pub path: Text,
    pub did: Did,
    pub now: Option<Now>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Now {
    pub version: i32,
    pub aversion: i32,
    pub lifetime: Lifetime,
    pub acl: Vec<Acl>,
    pub data_bytes: usize,
}

/// A change, and who hears of it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub zxid: i64,
    pub changed: Changed,
    /// Those who watch the node may read it, and those who watch the list that it is in may read that.
    pub is_told: bool,
    pub is_told_above: bool,
}

/// When the data and the list of children of a node have changed last.
pub type Moment = Option<(i64, i64)>;

#[derive(Clone, Default)]
pub struct Model {
    nodes: BTreeMap<Text, Node>,
}

/// What an operation leads to.
pub struct Applied {
    pub answer: Result<Answer, Code>,
    pub seen: Vec<Seen>,
}

impl Model {
    /// The node below which all happens is made.
    pub fn begin(&mut self, zxid: i64) {
        let base = Node::new(zxid, Lifetime::Persistent, Acl::open(), Some(Bytes::new()));
        self.nodes.insert(BASE.into(), base);
    }

    fn node(&self, path: &str) -> Result<&Node, Code> {
        self.nodes.get(path).ok_or(Code::NO_NODE)
    }

    pub fn moment(&self, path: &str) -> Moment {
        let node = self.nodes.get(path)?;
        Some((node.mzxid, node.pzxid))
    }

    /// The data of a node that is there.
    pub fn data(&self, path: &str) -> Option<&Option<Bytes>> {
        Some(&self.nodes.get(path)?.data)
    }

    /// The ephemeral nodes of a session.
    pub fn ephemerals(&self, session: i64) -> Vec<Text> {
        let is_its = |node: &Node| node.lifetime == Lifetime::Ephemeral(session);
        let its = self.nodes.iter().filter(|(_, node)| is_its(node));
        its.map(|(path, _)| path.clone()).collect()
    }

    /// True for what goes by itself: a container that has had children and has none, or a node with a time to live
    /// that has none. Wall clocks of simulated machines show anything.
    pub fn may_go(&self, path: &str) -> bool {
        let may_go = |node: &Node| match node.lifetime {
            Lifetime::Container => node.created > 0 && node.present == 0,
            Lifetime::Ttl(_) => node.present == 0,
            Lifetime::Persistent | Lifetime::Ephemeral(_) => false,
        };
        self.nodes.get(path).is_some_and(may_go)
    }

    /// What is used of the quota.
    fn used(&self) -> (usize, usize) {
        let below = format!("{LIMITED}/");
        let is_in = |path: &str| path == LIMITED || path.starts_with(&below);
        let all = self.nodes.iter().filter(|(path, _)| is_in(path));
        all.fold((0, 0), |(nodes, bytes), (_, node)| {
            (nodes + 1, bytes + node.len())
        })
    }

    /// ZooKeeper looks at the limit of what changes, also if it becomes less.
    fn has_room(&self, path: &str, nodes: usize, bytes: (usize, usize)) -> Result<(), Code> {
        if path != LIMITED && paths::parent(path) != Some(LIMITED) {
            return Ok(());
        }
        let used = self.used();
        let (before, after) = bytes;
        let is_full = nodes > 0 && used.0 + nodes > NODES_MAX
            || before != after && used.1 - before + after > BYTES_MAX;
        if is_full {
            Err(Code::QUOTA_EXCEEDED)
        } else {
            Ok(())
        }
    }

    /// Applies a write of a session.
    pub fn apply(&mut self, zxid: i64, session: i64, request: &Request) -> Applied {
        let before = self.clone();
        let mut seen = Vec::new();
        let Request::Multi { operations } = request else {
            let answer = self.step(zxid, session, request, &mut seen);
            let answer = answer.map(|result| match result {
                MultiResult::Path(path) | MultiResult::Ensured(path) => Answer::Path(path),
                MultiResult::PathAndStat(path, stat) => Answer::PathAndStat(path, stat),
                MultiResult::Stat(stat) => Answer::Stat(stat),
                _ => Answer::Empty,
            });
            return Applied { answer, seen };
        };
        let mut results = Vec::new();
        for operation in operations {
            match self.step(zxid, session, operation, &mut seen) {
                Ok(result) => results.push(result),
                Err(code) => {
                    *self = before;
                    results = vec![MultiResult::Error(Code::OK); results.len()];
                    results.push(MultiResult::Error(code));
                    let rest = MultiResult::Error(Code::RUNTIME_INCONSISTENCY);
                    results.resize(operations.len(), rest);
                    seen.clear();
                    break;
                }
            }
        }
        let answer = Ok(Answer::Multi(results));
        Applied { answer, seen }
    }

    fn step(
        &mut self,
        zxid: i64,
        session: i64,
        request: &Request,
        seen: &mut Vec<Seen>,
    ) -> Result<MultiResult, Code> {
        match request {
            Request::Create { .. } => self.create(zxid, session, request, seen),
            Request::Delete { path, version } => {
                let parent = self.node(parent_of(path))?;
                parent.allows(permission::DELETE)?;
                expect(self.node(path)?.version, *version)?;
                self.remove(zxid, path, seen)
            }
            Request::DeleteContainer { path } => {
                if let Lifetime::Ephemeral(_) = self.node(path)?.lifetime {
                    return Err(Code::BAD_VERSION);
                }
                self.remove(zxid, path, seen)
            }
            Request::SetData {
                path,
                data,
                version,
            } => {
                let node = self.node(path)?;
                node.allows(permission::WRITE)?;
                let len = data.as_ref().map_or(0, Bytes::len);
                self.has_room(path, 0, (node.len(), len))?;
                expect(node.version, *version)?;
                let node = self.nodes.get_mut(path).ok_or(Code::NO_NODE)?;
                node.data = data.clone();
                node.version += 1;
                node.mzxid = zxid;
                Ok(self.stat_after(zxid, path, Did::DataSet, seen))
            }
            Request::SetAcl { path, acl, version } => {
                let node = self.node(path)?;
                node.allows(permission::ADMIN)?;
                expect(node.aversion, *version)?;
                let node = self.nodes.get_mut(path).ok_or(Code::NO_NODE)?;
                node.acl = acl.clone();
                node.aversion += 1;
                Ok(self.stat_after(zxid, path, Did::AclSet, seen))
            }
            Request::Check { path, version } => {
                let node = self.node(path)?;
                node.allows(permission::READ)?;
                expect(node.version, *version)?;
                Ok(MultiResult::Checked)
            }
            Request::CheckNotExists { .. } | Request::CheckStat { .. } => {
                self.check(request)?;
                Ok(MultiResult::Done(request.opcode()))
            }
            Request::TryDelete { path, version } => {
                self.try_remove(zxid, path, *version, seen)?;
                Ok(MultiResult::Done(request.opcode()))
            }
            Request::DeleteRecursive { path, most } => {
                for path in self.all_to_delete(path, *most)?.iter().rev() {
                    self.remove(zxid, path, seen)?;
                }
                Ok(MultiResult::Done(request.opcode()))
            }
            _ => Err(Code::UNIMPLEMENTED),
        }
    }

    fn try_remove(
        &mut self,
        zxid: i64,
        path: &Text,
        version: i32,
        seen: &mut Vec<Seen>,
    ) -> Result<(), Code> {
        if let Ok(parent) = self.node(parent_of(path)) {
            parent.allows(permission::DELETE)?;
            let may_go = |node: &Node| expect(node.version, version).is_ok() && node.present == 0;
            if self.nodes.get(path).is_some_and(may_go) {
                self.remove(zxid, path, seen)?;
            }
        }
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), Code> {
        match request {
            Request::CheckNotExists { path, version } => match self.nodes.get(path) {
                Some(node) => {
                    node.allows(permission::READ)?;
                    let is_there = expect(node.version, *version).is_ok();
                    (!is_there).then_some(()).ok_or(Code::NODE_EXISTS)
                }
                None => Ok(()),
            },
            Request::CheckStat {
                path,
                version,
                stat,
            } => {
                let node = self.readable(path)?;
                expect(node.version, *version)?;
                let is_expected = meets(&node.stat(), stat);
                is_expected.then_some(()).ok_or(Code::BAD_VERSION)
            }
            _ => Err(Code::UNIMPLEMENTED),
        }
    }

    /// A node and all below it, those that are less deep first.
    fn all_to_delete(&self, path: &Text, most: u32) -> Result<Vec<Text>, Code> {
        let Ok(parent) = self.node(parent_of(path)) else {
            return Ok(Vec::new());
        };
        parent.allows(permission::DELETE)?;
        if !self.nodes.contains_key(path) {
            return Ok(Vec::new());
        }
        let (mut found, mut next) = (vec![path.clone()], 0);
        while let Some(at) = found.get(next).cloned() {
            next += 1;
            self.node(&at)?.allows(permission::DELETE)?;
            let children = self.names(&at);
            if children.len() > (most as usize).saturating_sub(found.len()) {
                return Err(Code::NOT_EMPTY);
            }
            found.extend(children.iter().map(|name| paths::join(&at, name).into()));
        }
        match found.len() > most as usize {
            true => Err(Code::NOT_EMPTY),
            false => Ok(found),
        }
    }

    fn create(
        &mut self,
        zxid: i64,
        session: i64,
        request: &Request,
        seen: &mut Vec<Seen>,
    ) -> Result<MultiResult, Code> {
        let Request::Create {
            kind,
            path,
            data,
            acl,
            flags,
            ttl,
        } = request
        else {
            return Err(Code::UNIMPLEMENTED);
        };
        let parent = self.node(parent_of(path))?;
        parent.allows(permission::CREATE)?;
        use create_flags::*;
        let is_numbered = matches!(*flags, PERSISTENT_SEQUENTIAL | EPHEMERAL_SEQUENTIAL);
        let path: Text = match is_numbered {
            true => format!("{path}{:010}", parent.created).into(),
            false => path.clone(),
        };
        if self.nodes.contains_key(&path) {
            return match kind {
                CreateKind::IfNotExists => Ok(MultiResult::Ensured(path)),
                _ => Err(Code::NODE_EXISTS),
            };
        }
        if let Lifetime::Ephemeral(_) = parent.lifetime {
            return Err(Code::NO_CHILDREN_FOR_EPHEMERALS);
        }
        self.has_room(&path, 1, (0, data.as_ref().map_or(0, Bytes::len)))?;
        let lifetime = match (kind, *flags) {
            (CreateKind::Container, _) => Lifetime::Container,
            (_, PERSISTENT_WITH_TTL) => Lifetime::Ttl(*ttl),
            (_, EPHEMERAL | EPHEMERAL_SEQUENTIAL) => Lifetime::Ephemeral(session),
            _ => Lifetime::Persistent,
        };
        let node = Node::new(zxid, lifetime, acl.clone(), data.clone());
        let stat = node.stat();
        let above = self.change_list(zxid, &path, (1, 1));
        seen.push(Seen {
            zxid,
            is_told: node.allows(permission::READ).is_ok(),
            is_told_above: above,
            changed: Changed {
                path: path.clone(),
                did: Did::Created,
                now: Some(node.now()),
            },
        });
        self.nodes.insert(path.clone(), node);
        Ok(match kind {
            CreateKind::Plain => MultiResult::Path(path),
            CreateKind::IfNotExists => MultiResult::Ensured(path),
            _ => MultiResult::PathAndStat(path, stat),
        })
    }

    /// Changes the list that a node is in. True if those who watch it may read it.
    fn change_list(&mut self, zxid: i64, path: &str, (created, present): (i32, i32)) -> bool {
        let parent = self.nodes.get_mut(parent_of(path)).expect("looked at");
        parent.created += created;
        parent.present += present;
        parent.pzxid = zxid;
        parent.allows(permission::READ).is_ok()
    }

    fn stat_after(&self, zxid: i64, path: &Text, did: Did, seen: &mut Vec<Seen>) -> MultiResult {
        let node = &self.nodes[path];
        seen.push(Seen {
            zxid,
            is_told: node.allows(permission::READ).is_ok(),
            is_told_above: false,
            changed: Changed {
                path: path.clone(),
                did,
                now: Some(node.now()),
            },
        });
        MultiResult::Stat(node.stat())
    }

    /// Deletes a node whatever anybody may do.
    pub fn remove(
        &mut self,
        zxid: i64,
        path: &Text,
        seen: &mut Vec<Seen>,
    ) -> Result<MultiResult, Code> {
        let node = self.node(path)?;
        if node.present > 0 {
            return Err(Code::NOT_EMPTY);
        }
        let is_told = node.allows(permission::READ).is_ok();
        self.nodes.remove(path);
        let is_told_above = self.change_list(zxid, path, (0, -1));
        seen.push(Seen {
            zxid,
            is_told,
            is_told_above,
            changed: Changed {
                path: path.clone(),
                did: Did::Deleted,
                now: None,
            },
        });
        Ok(MultiResult::Deleted)
    }

    /// What a read is answered.
    pub fn read(&self, request: &Request) -> Result<Answer, Code> {
        match request {
            Request::Exists { path, .. } => Ok(Answer::Stat(self.readable(path)?.stat())),
            Request::GetData { path, .. } => {
                let node = self.readable(path)?;
                Ok(Answer::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, .. } => Ok(Answer::Children(self.children(path)?)),
            Request::GetChildren2 { path, .. } => {
                let stat = self.node(path)?.stat();
                Ok(Answer::ChildrenAndStat(self.children(path)?, stat))
            }
            Request::GetAcl { path } => {
                let node = self.node(path)?;
                node.allows(permission::READ | permission::ADMIN)?;
                Ok(Answer::Acl(node.acl.clone(), node.stat()))
            }
            Request::MultiRead { operations, .. } => {
                let one = |operation: &Request| match (self.read(operation), operation) {
                    (Ok(Answer::Data(data, stat)), _) => MultiResult::Data(data, stat),
                    (Ok(Answer::Stat(stat)), _) => MultiResult::Exists(stat),
                    (Ok(Answer::Children(paths)), Request::ListRecursive { .. }) => {
                        MultiResult::Paths(paths)
                    }
                    (Ok(Answer::Children(names)), _) => MultiResult::Children(names),
                    (Ok(Answer::ChildrenAndStat(names, stat)), _) => {
                        MultiResult::ChildrenAndStat(names, stat)
                    }
                    (Ok(Answer::Listed(listed)), _) => MultiResult::Listed(listed),
                    (Ok(_), _) => MultiResult::Error(Code::UNIMPLEMENTED),
                    (Err(code), read) => MultiResult::Failed(kind_of(read), code),
                };
                let results = operations.iter().map(one).collect();
                Ok(Answer::MultiRead(results))
            }
            Request::List {
                path,
                filter,
                details,
                ..
            } => self.list(path, *filter, *details),
            Request::ListRecursive { path, most } => {
                Ok(Answer::Children(self.below(path, *most as usize)?))
            }
            Request::CheckNotExists { .. } | Request::CheckStat { .. } => {
                self.check(request).map(|()| Answer::Empty)
            }
            _ => Err(Code::UNIMPLEMENTED),
        }
    }

    fn list(&self, path: &str, filter: Filter, details: Option<Details>) -> Result<Answer, Code> {
        let mut listed = Listed {
            stat: self.node(path)?.stat(),
            ..Listed::default()
        };
        for name in self.children(path)? {
            if filter != Filter::All || details.is_some() {
                let node = self.readable(&paths::join(path, &name))?;
                if !filter.has(&node.stat()) {
                    continue;
                }
                if details.is_some_and(|details| details.stat) {
                    listed.stats.push(node.stat());
                }
                if details.is_some_and(|details| details.data) {
                    listed.data.push(node.data.clone());
                }
            }
            listed.names.push(name);
        }
        Ok(match details {
            Some(_) => Answer::Listed(listed),
            None => Answer::ChildrenAndStat(listed.names, listed.stat),
        })
    }

    fn below(&self, path: &str, most: usize) -> Result<Vec<Text>, Code> {
        self.readable(path)?;
        let (mut found, mut next) = (vec![Text::from(path)], 0);
        while let Some(at) = found.get(next).cloned() {
            next += 1;
            let children = self.names(&at).into_iter();
            let children = children.map(|name| Text::from(paths::join(&at, &name)));
            found.extend(children.filter(|child| self.readable(child).is_ok()));
        }
        Ok(found.into_iter().skip(1).take(most).collect())
    }

    fn readable(&self, path: &str) -> Result<&Node, Code> {
        let node = self.node(path)?;
        node.allows(permission::READ)?;
        Ok(node)
    }

    fn children(&self, path: &str) -> Result<Vec<Text>, Code> {
        self.readable(path)?;
        Ok(self.names(path))
    }

    fn names(&self, path: &str) -> Vec<Text> {
        let is_child = |other: &&Text| paths::parent(other) == Some(path);
        let children = self.nodes.keys().filter(is_child);
        children.map(|child| paths::name(child).into()).collect()
    }
}

/// The kind of a read's result: a list of some children is answered as one of all.
fn kind_of(read: &Request) -> i32 {
    match read {
        Request::List { details: None, .. } => opcode::GET_CHILDREN_2,
        other => other.opcode(),
    }
}

/// -1 expects nothing. Nobody expects a time of day.
fn meets(found: &Stat, expected: &Stat) -> bool {
    let either = |found: i64, expected: i64| expected == -1 || found == expected;
    either(found.czxid, expected.czxid)
        && either(found.mzxid, expected.mzxid)
        && either(found.pzxid, expected.pzxid)
        && either(found.ephemeral_owner, expected.ephemeral_owner)
        && [
            (found.version, expected.version),
            (found.cversion, expected.cversion),
            (found.aversion, expected.aversion),
            (found.data_length, expected.data_length),
            (found.num_children, expected.num_children),
        ]
        .iter()
        .all(|(found, expected)| either((*found).into(), (*expected).into()))
}

fn parent_of(path: &str) -> &str {
    paths::parent(path).unwrap_or(path)
}

/// -1 expects nothing.
fn expect(version: i32, expected: i32) -> Result<(), Code> {
    match expected == -1 || expected == version {
        true => Ok(()),
        false => Err(Code::BAD_VERSION),
    }
}
