//! The operations that write, as ZooKeeper's `PrepRequestProcessor` decides them, in its order: of two errors a
//! client sees the same one.

pub use super::basics::{Caller, Shape};
use super::basics::{SPECIAL, next_version, parent_of, remove, valid};
use super::change::Change;
use super::clickhouse;
use super::needs::{bytes_of, needs_of, visit_valid, visit_with_parent};
use super::node::{Counts, Data, Lifetime, Node, TTL_MS_MAX};
use super::plan::{Plan, SessionChange};
use super::quota::{Piece, Used, limits_path};
use super::rows::{Lock, Rows};
use crate::acl::{self};
use crate::paths;
use crate::sessions::{SessionRow, is_same_password};
use crate::store::Page;
use crate::wire::{Code, CreateKind, Request, Text, create_flags, permission};
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_runtime::random::chance;
use plinth_runtime::{never, planted};

/// Something that is written.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A client's request.
    Request(Caller, Request),
    /// A client's read behind writes of its own. It changes nothing; its answer is made of the state right after the
    /// operations before it.
    Look {
        session: i64,
        request: Request,
        /// Memory that may be filled for it. Of what takes more not all is loaded.
        most: usize,
    },
    OpenSession {
        session: i64,
        timeout_ms: u32,
        password: Vec<u8>,
    },
    /// A session comes to this gateway, wherever it was.
    TakeSession {
        session: i64,
        /// What the client asks for now.
        timeout_ms: u32,
        password: Vec<u8>,
        found: Option<SessionRow>,
    },
    /// Ends a session with all of its ephemeral nodes.
    CloseSession {
        session: i64,
        owner: Owner,
        found: FoundSession,
    },
    /// Deletes a container, or a node whose time is over, if it may still go.
    Reap { path: Text },
    /// Counts the next nodes of a quota that is not yet counted.
    CountQuota { path: Text, found: Option<Piece> },
    /// Proves that the gateway lives: its row changes.
    Beat { row: Vec<u8> },
    /// Ends the lease of another gateway, which has no sessions any more.
    RemoveGateway {
        gateway: u64,
        /// Its row when it was given up.
        lease: Vec<u8>,
        found: Option<Vec<u8>>,
        has_sessions: bool,
    },
}

/// Who has the session that is to be closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This gateway.
    Own,
    /// This gateway, which has heard nothing of the client for the time-out. If it has by now, the session goes on.
    Silent,
    /// One that seems to be gone: its row was this one for too long.
    Gone { gateway: u64, lease: Vec<u8> },
}

/// What the store has of a session, at the version at which the operation is executed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FoundSession {
    pub row: Option<SessionRow>,
    /// The first of its ephemeral nodes.
    pub ephemerals: Vec<Text>,
    /// The index rows that say so, and those among them that have no path.
    pub index: Option<KeyRange>,
    pub without_path: usize,
    pub is_all: bool,
    /// The row of the gateway that seems to be gone.
    pub lease: Option<Vec<u8>>,
}

impl FoundSession {
    /// Notes the first rows of the index of the session's nodes.
    pub fn note_index(&mut self, rows: &Rows, index: KeyRange, page: &Page) {
        let path = |(key, _): &(Bytes, Bytes)| rows.ephemeral_path(key).map(Text::from);
        self.ephemerals = page.rows.iter().filter_map(path).collect();
        self.without_path = page.rows.len() - self.ephemerals.len();
        self.is_all = !page.more;
        self.index = page.rows.last().map(|(last, _)| KeyRange {
            end: [last, &b"\0"[..]].concat().into(),
            ..index
        });
    }
}

/// An operation's result, a step an operation of a multi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Executed {
    One(Result<Shape, Code>),
    Multi(Result<Vec<Shape>, Vec<Code>>),
}

impl Operation {
    /// Nodes that must be known to execute it, as far as the operation itself tells.
    pub fn needs(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Operation::Request(_, request) | Operation::Look { request, .. } => {
                needs_of(request, visit)
            }
            Operation::CloseSession { found, .. } => {
                for path in &found.ephemerals {
                    visit_with_parent(path, visit);
                }
            }
            Operation::Reap { path } => visit_with_parent(path, visit),
            Operation::CountQuota { path, .. } => visit_valid(&limits_path(path), visit),
            Operation::OpenSession { .. }
            | Operation::TakeSession { .. }
            | Operation::Beat { .. }
            | Operation::RemoveGateway { .. } => {}
        }
    }

    /// The session that asks, whose operations happen in their order. `None` for what looks at more than one node, or
    /// at sessions: it happens by itself.
    pub fn session(&self) -> Option<i64> {
        match self {
            Operation::Request(caller, _) => Some(caller.session),
            Operation::Look { session, .. } | Operation::OpenSession { session, .. } => {
                Some(*session)
            }
            Operation::TakeSession { .. }
            | Operation::CloseSession { .. }
            | Operation::Reap { .. }
            | Operation::CountQuota { .. }
            | Operation::Beat { .. }
            | Operation::RemoveGateway { .. } => None,
        }
    }

    /// Memory that it takes while it waits.
    pub fn held_bytes(&self) -> usize {
        match self {
            Operation::Request(_, request) | Operation::Look { request, .. } => bytes_of(request),
            _ => 0,
        }
    }

    /// Approximate size of what it writes.
    pub fn bytes(&self) -> usize {
        match self {
            Operation::Request(_, request) => bytes_of(request),
            Operation::CloseSession { found, .. } => found
                .ephemerals
                .iter()
                .map(|path| 2 * path.len() + 100)
                .sum(),
            _ => 100,
        }
    }
}

/// Executes `operation`, of the gateway `gateway`.
pub fn execute(plan: &mut Plan<'_>, operation: &Operation, gateway: u64) -> Executed {
    match operation {
        Operation::Request(caller, Request::Multi { operations }) => {
            plan.read(Lock::Session, caller.session as u64);
            Executed::Multi(multi(plan, caller, operations))
        }
        Operation::Request(caller, request) => {
            plan.read(Lock::Session, caller.session as u64);
            Executed::One(one(plan, caller, request))
        }
        Operation::Look { request, .. } => {
            look(plan, request);
            Executed::One(Ok(Shape::Empty))
        }
        other => Executed::One(internal(plan, other, gateway)),
    }
}

/// Others' changes come without data that is more than tiny. So a node whose data is read must still be the one that
/// the gateway has in memory when the batch commits.
fn look(plan: &mut Plan<'_>, request: &Request) {
    for request in request.parts() {
        match request {
            Request::GetData { path, .. } => look_at_data(plan, paths::named(path)),
            Request::List {
                path,
                details: Some(details),
                ..
            } if details.data => {
                let path = paths::named(path);
                for name in plan.known_children(path) {
                    look_at_data(plan, &paths::join(path, &name));
                }
            }
            _ => {}
        }
    }
}

fn look_at_data(plan: &mut Plan<'_>, path: &str) {
    let hash = Rows::path_hash(path);
    plan.read(Lock::Existence, hash);
    plan.read(Lock::Data, hash);
}

fn multi(
    plan: &mut Plan<'_>,
    caller: &Caller,
    operations: &[Request],
) -> Result<Vec<Shape>, Vec<Code>> {
    plan.begin_group();
    let mut shapes = Vec::with_capacity(operations.len());
    for operation in operations {
        match one(plan, caller, operation) {
            Ok(shape) => shapes.push(shape),
            Err(code) => {
                plan.undo_group();
                let mut codes = vec![Code::OK; shapes.len()];
                codes.push(code);
                codes.resize(operations.len(), Code::RUNTIME_INCONSISTENCY);
                return Err(codes);
            }
        }
    }
    plan.end_group();
    Ok(shapes)
}

fn one(plan: &mut Plan<'_>, caller: &Caller, request: &Request) -> Result<Shape, Code> {
    if plan.sessions.get(&caller.session).is_some_and(is_closed) {
        return Err(Code::SESSION_EXPIRED);
    }
    if !plan.owns(caller.session) {
        return Err(Code::SESSION_MOVED);
    }
    match request {
        Request::Create { .. } => create(plan, caller, request),
        Request::Delete { path, version } => delete(plan, caller, path, *version),
        Request::DeleteContainer { path } => delete_container(plan, path),
        Request::NoPath(request) => {
            // The flags are looked at before the path.
            if let Request::Create {
                kind, flags, ttl, ..
            } = **request
            {
                lifetime_of(kind, flags, ttl, caller.session)?;
            }
            Err(Code::MARSHALLING_ERROR)
        }
        Request::SetData {
            path,
            data,
            version,
        } => set_data(plan, caller, path, data, *version),
        Request::SetAcl { path, acl, version } => {
            valid(path)?;
            let acl = acl::fix_up(acl, &caller.identities)?;
            let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
            acl::check(&node.acl, permission::ADMIN, &caller.identities)?;
            let aversion = next_version(node.aversion, *version)?;
            plan.set_acl(
                &path.detached(),
                Node {
                    acl,
                    aversion,
                    ..node
                },
            );
            Ok(Shape::Stat(path.detached()))
        }
        Request::Check { path, version } => {
            valid(path)?;
            let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
            acl::check(&node.acl, permission::READ, &caller.identities)?;
            plan.read(Lock::Data, Rows::path_hash(path));
            next_version(node.version, *version)?;
            Ok(Shape::Checked)
        }
        own if clickhouse::is_own(own) => clickhouse::execute(plan, caller, own),
        _ => Err(Code::UNIMPLEMENTED),
    }
}

fn is_closed(change: &SessionChange) -> bool {
    matches!(
        change,
        SessionChange::Closed { .. } | SessionChange::Ending { .. }
    )
}

/// How long a node lives that is created by such a request, and whether its name gets a number. The kind of the
/// request decides, even against the flags.
fn lifetime_of(
    kind: CreateKind,
    flags: i32,
    ttl: i64,
    session: i64,
) -> Result<(Lifetime, bool), Code> {
    use create_flags::*;
    if !(PERSISTENT..=PERSISTENT_SEQUENTIAL_WITH_TTL).contains(&flags) {
        return Err(Code::BAD_ARGUMENTS);
    }
    let is_numbered = matches!(
        flags,
        PERSISTENT_SEQUENTIAL | EPHEMERAL_SEQUENTIAL | PERSISTENT_SEQUENTIAL_WITH_TTL
    );
    let is_timed = matches!(flags, PERSISTENT_WITH_TTL | PERSISTENT_SEQUENTIAL_WITH_TTL);
    let is_good_ttl = match is_timed {
        true => (1..=TTL_MS_MAX).contains(&ttl),
        false => ttl < 0,
    };
    if !is_good_ttl {
        return Err(Code::BAD_ARGUMENTS);
    }
    let lifetime = match kind {
        CreateKind::IfNotExists if !matches!(flags, PERSISTENT | EPHEMERAL) => {
            return Err(Code::BAD_ARGUMENTS);
        }
        CreateKind::Container => Lifetime::Container,
        _ if is_timed => Lifetime::Ttl(ttl),
        _ if is_ephemeral(flags) => Lifetime::Ephemeral(session),
        _ => Lifetime::Persistent,
    };
    Ok((lifetime, is_numbered))
}

fn is_ephemeral(flags: i32) -> bool {
    use create_flags::{EPHEMERAL, EPHEMERAL_SEQUENTIAL};
    matches!(flags, EPHEMERAL | EPHEMERAL_SEQUENTIAL)
}

fn create(plan: &mut Plan<'_>, caller: &Caller, request: &Request) -> Result<Shape, Code> {
    let Request::Create {
        kind,
        path,
        data,
        acl,
        flags,
        ttl,
    } = request
    else {
        unreachable!("asked for a create")
    };
    let (lifetime, is_numbered) = lifetime_of(*kind, *flags, *ttl, caller.session)?;
    let parent = parent_of(path)?;
    let acl = acl::fix_up(acl, &caller.identities)?;
    let parent_node = plan.node(parent)?.ok_or(Code::NO_NODE)?;
    acl::check(&parent_node.acl, permission::CREATE, &caller.identities)?;
    let path: Text = match is_numbered {
        true => {
            plan.read(Lock::Children, Rows::path_hash(parent));
            format!("{path}{:010}", parent_node.counts.created).into()
        }
        false => path.detached(),
    };
    valid(&path)?;
    if plan.node(&path)?.is_some() {
        let is_new = false;
        return match kind {
            CreateKind::IfNotExists => Ok(Shape::Ensured { path, is_new }),
            _ => Err(Code::NODE_EXISTS),
        };
    }
    let is_below_ephemeral = matches!(parent_node.lifetime, Lifetime::Ephemeral(_));
    if is_below_ephemeral || plan.seems_ephemeral(parent) {
        return Err(Code::NO_CHILDREN_FOR_EPHEMERALS);
    }
    let data = data_of(data);
    let more = Used {
        nodes: 1,
        bytes: data.len() as i64,
    };
    plan.check_quota(&path, more)?;
    let (zxid, now) = (plan.zxid(), plan.now_ms);
    let node = Node {
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime: now,
        mtime: now,
        version: 0,
        aversion: 0,
        counts: Counts::default(),
        lifetime,
        acl,
        data,
    };
    plan.create(&path, node, parent, parent_node);
    let is_container = *kind == CreateKind::Container;
    plan.note_flags(&path, is_container && is_ephemeral(*flags));
    Ok(match kind {
        CreateKind::Plain => Shape::Path(path),
        CreateKind::IfNotExists => Shape::Ensured { path, is_new: true },
        _ => Shape::PathAndStat(path),
    })
}

/// A copy in memory of its own: the frame that it came in is much larger.
fn data_of(data: &Option<Bytes>) -> Data {
    Data::of(data.as_ref().map(|data| Bytes::copy_from_slice(data)))
}

fn delete(plan: &mut Plan<'_>, caller: &Caller, path: &Text, version: i32) -> Result<Shape, Code> {
    if SPECIAL.contains(&path.as_str()) {
        return Err(Code::BAD_ARGUMENTS);
    }
    let parent = parent_of(path)?;
    let parent_node = plan.node(parent)?.ok_or(Code::NO_NODE)?;
    acl::check(&parent_node.acl, permission::DELETE, &caller.identities)?;
    let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
    if version != -1 {
        plan.read(Lock::Data, Rows::path_hash(path));
        next_version(node.version, version)?;
    }
    remove(plan, &path.detached(), &node, parent, parent_node)?;
    Ok(Shape::Deleted)
}

/// No access list is looked at, and the node need not be a container.
fn delete_container(plan: &mut Plan<'_>, path: &Text) -> Result<Shape, Code> {
    if SPECIAL.contains(&path.as_str()) {
        return Err(Code::BAD_ARGUMENTS);
    }
    let parent = parent_of(path)?;
    let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
    if let Lifetime::Ephemeral(_) = node.lifetime {
        return Err(Code::BAD_VERSION);
    }
    let parent_node = plan.node(parent)?.ok_or(Code::NO_NODE)?;
    remove(plan, &path.detached(), &node, parent, parent_node)?;
    Ok(Shape::Deleted)
}

fn set_data(
    plan: &mut Plan<'_>,
    caller: &Caller,
    path: &Text,
    data: &Option<Bytes>,
    version: i32,
) -> Result<Shape, Code> {
    valid(path)?;
    let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
    acl::check(&node.acl, permission::WRITE, &caller.identities)?;
    if paths::counted(path).is_some() {
        // Its data is counted. Nobody is told that another text was kept, the super user neither.
        return Err(Code::NO_AUTH);
    }
    plan.read(Lock::Data, Rows::path_hash(path));
    let more = Used {
        nodes: 0,
        bytes: data.as_ref().map_or(0, Bytes::len) as i64 - node.data.len() as i64,
    };
    plan.check_quota(path, more)?;
    let version = next_version(node.version, version)?;
    let node = Node {
        mzxid: plan.zxid(),
        mtime: plan.now_ms,
        version,
        data: data_of(data),
        ..node
    };
    let path = path.detached();
    plan.set_data(&path, node);
    Ok(Shape::Stat(path))
}

fn internal(plan: &mut Plan<'_>, operation: &Operation, gateway: u64) -> Result<Shape, Code> {
    match operation {
        Operation::OpenSession {
            session,
            timeout_ms,
            password,
        } => {
            let opened = SessionChange::Opened {
                timeout_ms: *timeout_ms,
                password: password.clone(),
            };
            take_session(plan, *session, gateway, opened);
        }
        Operation::TakeSession {
            session,
            timeout_ms,
            password,
            found,
        } => {
            plan.read(Lock::Session, *session as u64);
            if plan.sessions.get(session).is_some_and(is_closed) {
                return Err(Code::SESSION_EXPIRED);
            }
            let is_right =
                |row: &&SessionRow| !row.is_ending() && is_same_password(&row.password, password);
            let row = found
                .as_ref()
                .filter(is_right)
                .ok_or(Code::SESSION_EXPIRED)?;
            let from = row.owner;
            let taken = SessionChange::Taken {
                from,
                timeout_ms: *timeout_ms,
                password: password.clone(),
            };
            take_session(plan, *session, gateway, taken);
            return Ok(Shape::Taken { from });
        }
        Operation::CloseSession {
            session,
            owner,
            found,
        } => return close_session(plan, *session, owner, found, gateway),
        Operation::Reap { path } => reap(plan, path)?,
        Operation::CountQuota { path, found } => count_quota(plan, path, found.as_ref())?,
        Operation::Beat { row } => plan.gateways.push((gateway, Some(row.clone()))),
        Operation::RemoveGateway {
            gateway: dead,
            lease,
            found,
            has_sessions,
        } => {
            plan.read(Lock::Beat, *dead);
            if *has_sessions || found.as_ref() != Some(lease) {
                return Err(Code::BAD_VERSION);
            }
            plan.write(Lock::Gateway, *dead);
            plan.gateways.push((*dead, None));
            plan.note(Change::GatewayRemoved { gateway: *dead });
        }
        Operation::Request(..) | Operation::Look { .. } => unreachable!("no request is internal"),
    }
    Ok(Shape::Empty)
}

fn take_session(plan: &mut Plan<'_>, session: i64, gateway: u64, change: SessionChange) {
    plan.sessions.insert(session, change);
    plan.note(Change::SessionTaken { session, gateway });
}

fn close_session(
    plan: &mut Plan<'_>,
    session: i64,
    owner: &Owner,
    found: &FoundSession,
    own: u64,
) -> Result<Shape, Code> {
    if plan.sessions.get(&session).is_some_and(is_closed) {
        return Err(Code::SESSION_EXPIRED);
    }
    for lock in [Lock::Session, Lock::Ephemerals] {
        plan.read(lock, session as u64);
    }
    let row = match plan.sessions.contains_key(&session) {
        // Opened or taken by an operation before this one.
        true => own,
        false => found.row.as_ref().ok_or(Code::SESSION_EXPIRED)?.owner,
    };
    // One whose end has begun has lost nodes already.
    let has_begun = found.row.as_ref().is_some_and(SessionRow::is_ending);
    // Its client has come back with an operation before this one, maybe from another gateway: then this gateway does
    // not have the session yet, and knows nothing of the client.
    let has_come = matches!(
        plan.sessions.get(&session),
        Some(SessionChange::Taken { .. })
    );
    let is_heard = has_come || !plan.is_silent(session);
    let is_called_off = *owner == Owner::Silent && !has_begun && is_heard;
    let owner = match owner {
        Owner::Own | Owner::Silent => own,
        Owner::Gone { gateway, lease } => {
            plan.read(Lock::Beat, *gateway);
            if found.lease.as_ref() != Some(lease) {
                return Err(Code::BAD_VERSION);
            }
            *gateway
        }
    };
    if row != owner {
        return Err(Code::SESSION_MOVED);
    }
    if is_called_off {
        return Err(Code::BAD_VERSION);
    }
    // Operations before this one in the transaction may have created some, and deleted others.
    let mut all: std::collections::BTreeSet<Text> = found.ephemerals.iter().cloned().collect();
    let touched = plan.touched.iter();
    let made = touched.filter(|(_, touched)| touched.new_ephemeral_of() == Some(session));
    all.extend(made.map(|(path, _)| path.clone()));
    let mut left = found.without_path;
    for path in all {
        left += usize::from(!end_node(plan, &path, session, found));
    }
    if left > 0 {
        // With a node goes its row in the index. One that led to nothing would be found again for ever.
        plan.clears.extend(found.index.clone());
    }
    plan.note(Change::SessionClosed { session });
    let (change, shape) = match found.is_all {
        true => (SessionChange::Closed { owner }, Shape::Empty),
        false => (SessionChange::Ending { owner }, Shape::Unfinished),
    };
    plan.sessions.insert(session, change);
    Ok(shape)
}

/// Deletes a node if it is one of the session that ends; false if it is none.
fn end_node(plan: &mut Plan<'_>, path: &Text, session: i64, found: &FoundSession) -> bool {
    let lifetime = Lifetime::Ephemeral(session);
    let node = match plan.node(path) {
        Ok(node) => node,
        // Its rows are damaged, but its place among the nodes of the session says what it is.
        Err(_) if found.ephemerals.contains(path) => plan.node_or_stand_in(path, lifetime),
        Err(_) => None,
    };
    let Some(node) = node.filter(|node| node.lifetime == lifetime) else {
        return false;
    };
    if planted!(
        "keeper_ephemeral_left",
        "the end of a session leaves one ephemeral node in ten"
    ) && chance(0.1)
    {
        return false;
    }
    let Some(parent) = paths::parent(path) else {
        return false;
    };
    match plan.node_or_stand_in(parent, Lifetime::Persistent) {
        Some(parent_node) => plan.delete(path, &node, parent, parent_node),
        None => {
            let is_all_read = plan.is_all_read();
            never!(is_all_read, "KeeperNodeWithoutParent", "path" => path);
            plan.delete_orphan(path, &node);
        }
    }
    true
}

/// Deletes a container that is empty, or a node whose time is over.
fn reap(plan: &mut Plan<'_>, path: &Text) -> Result<(), Code> {
    let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
    // A change of the data begins a time to live anew, and whether it has children decides, too.
    for lock in [Lock::Data, Lock::Children] {
        plan.read(lock, Rows::path_hash(path));
    }
    if !node.may_be_reaped(plan.now_ms) {
        return Err(Code::BAD_VERSION);
    }
    let parent = paths::parent(path).ok_or(Code::BAD_ARGUMENTS)?;
    let parent_node = plan.node(parent)?.ok_or(Code::NO_NODE)?;
    remove(plan, path, &node, parent, parent_node)
}

/// Fails if the quota has gone, or others have counted on.
fn count_quota(plan: &mut Plan<'_>, path: &Text, found: Option<&Piece>) -> Result<(), Code> {
    let limits = plan
        .node_with_data(&limits_path(path))?
        .ok_or(Code::NO_NODE)?;
    let is_next = found.is_some_and(|piece| plan.quotas.count(path, &limits, piece));
    is_next.then_some(()).ok_or(Code::BAD_VERSION)
}
