//! The operations that only ClickHouse's keeper knows, as it decides them.

use super::basics::{Caller, SPECIAL, Shape, next_version, parent_of, remove, valid};
use super::node::Node;
use super::plan::Plan;
use super::rows::{Lock, Rows};
use crate::acl;
use crate::paths;
use crate::wire::{Code, Request, Stat, Text, permission};
use plinth_runtime::planted;
use plinth_runtime::random::chance;

/// Nodes that one operation deletes at most, whatever its client allows. All replicas of a log must decide alike, so
/// it is no knob.
const DELETED_NODES_MAX: usize = 1000;
/// Bytes of their paths. For each a transaction writes about eight times as much.
const DELETED_PATHS_BYTES: usize = 200_000;

/// True for an operation that is executed here.
pub fn is_own(request: &Request) -> bool {
    matches!(
        request,
        Request::CheckNotExists { .. }
            | Request::CheckStat { .. }
            | Request::TryDelete { .. }
            | Request::DeleteRecursive { .. }
    )
}

/// Executes one of them.
pub fn execute(plan: &mut Plan<'_>, caller: &Caller, request: &Request) -> Result<Shape, Code> {
    let deleted = match request {
        Request::CheckNotExists { path, version } => {
            check_not_exists(plan, caller, path, *version)?;
            0
        }
        Request::CheckStat {
            path,
            version,
            stat,
        } => {
            check_stat(plan, caller, path, (*version, stat))?;
            0
        }
        Request::TryDelete { path, version } => {
            usize::from(try_delete(plan, caller, path, *version)?)
        }
        Request::DeleteRecursive { path, most } => delete_recursive(plan, caller, path, *most)?,
        _ => return Err(Code::UNIMPLEMENTED),
    };
    let opcode = request.opcode();
    Ok(Shape::Done { opcode, deleted })
}

fn check_not_exists(
    plan: &mut Plan<'_>,
    caller: &Caller,
    path: &Text,
    version: i32,
) -> Result<(), Code> {
    valid(path)?;
    let Some(node) = plan.node(path)? else {
        return Ok(());
    };
    acl::check(&node.acl, permission::READ, &caller.identities)?;
    if version != -1 {
        plan.read(Lock::Data, Rows::path_hash(path));
    }
    match next_version(node.version, version) {
        Ok(_) => Err(Code::NODE_EXISTS),
        Err(_) => Ok(()),
    }
}

fn check_stat(
    plan: &mut Plan<'_>,
    caller: &Caller,
    path: &Text,
    (version, stat): (i32, &Stat),
) -> Result<(), Code> {
    valid(path)?;
    let node = plan.node(path)?.ok_or(Code::NO_NODE)?;
    acl::check(&node.acl, permission::READ, &caller.identities)?;
    for lock in [Lock::Data, Lock::Children] {
        plan.read(lock, Rows::path_hash(path));
    }
    next_version(node.version, version)?;
    match is_as_expected(&node.stat(), stat) {
        true => Ok(()),
        false => Err(Code::BAD_VERSION),
    }
}

/// -1 expects nothing. A zxid that is not known before the commit is a negative number, which nobody can expect.
pub fn is_as_expected(found: &Stat, expected: &Stat) -> bool {
    let zxids = [
        (found.czxid, expected.czxid),
        (found.mzxid, expected.mzxid),
        (found.pzxid, expected.pzxid),
    ];
    let longs = [
        (found.ctime, expected.ctime),
        (found.mtime, expected.mtime),
        (found.ephemeral_owner, expected.ephemeral_owner),
    ];
    let ints = [
        (found.version, expected.version),
        (found.cversion, expected.cversion),
        (found.aversion, expected.aversion),
        (found.data_length, expected.data_length),
        (found.num_children, expected.num_children),
    ];
    let is_zxid =
        |(found, expected): &(i64, i64)| *expected == -1 || (*found >= 0 && found == expected);
    let is_long = |(found, expected): &(i64, i64)| *expected == -1 || found == expected;
    let is_int = |(found, expected): &(i32, i32)| *expected == -1 || found == expected;
    zxids.iter().all(is_zxid) && longs.iter().all(is_long) && ints.iter().all(is_int)
}

/// True if it has gone. One that is not there, has children or another version stays as it is.
fn try_delete(
    plan: &mut Plan<'_>,
    caller: &Caller,
    path: &Text,
    version: i32,
) -> Result<bool, Code> {
    let Some((parent, parent_node)) = parent_to_delete_in(plan, caller, path)? else {
        return Ok(false);
    };
    let Some(node) = plan.node(path)? else {
        return Ok(false);
    };
    if version != -1 {
        plan.read(Lock::Data, Rows::path_hash(path));
        if node.version != version {
            return Ok(false);
        }
    }
    match remove(plan, &path.detached(), &node, &parent, parent_node) {
        Err(Code::NOT_EMPTY) => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// The parent, if it is there, and the client may delete what is in it.
fn parent_to_delete_in(
    plan: &mut Plan<'_>,
    caller: &Caller,
    path: &Text,
) -> Result<Option<(Text, Node)>, Code> {
    valid(path)?;
    if SPECIAL.contains(&path.as_str()) {
        return Err(Code::BAD_ARGUMENTS);
    }
    let parent = parent_of(path)?;
    let Some(node) = plan.node(parent)? else {
        return Ok(None);
    };
    acl::check(&node.acl, permission::DELETE, &caller.identities)?;
    Ok(Some((parent.into(), node)))
}

/// How many have gone: all or none.
fn delete_recursive(
    plan: &mut Plan<'_>,
    caller: &Caller,
    path: &Text,
    most: u32,
) -> Result<usize, Code> {
    if parent_to_delete_in(plan, caller, path)?.is_none() {
        return Ok(0);
    }
    let Some(node) = plan.node(path)? else {
        return Ok(0);
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let most = most.min(DELETED_NODES_MAX);
    let found = with_all_below(plan, caller, (path.detached(), node), most)?;
    if !plan.is_all_read() {
        return Ok(0); // it will be executed again
    }
    let is_left = planted!(
        "keeper_deleted_in_part",
        "a deletion of all below a node leaves one in ten of those that are deepest"
    );
    let deepest = found.last().map(|(path, _)| paths::depth(path));
    let mut deleted = 0;
    for (path, node) in found.iter().rev() {
        if is_left && Some(paths::depth(path)) == deepest && chance(0.1) {
            continue;
        }
        let parent = parent_of(path)?;
        let parent_node = plan.node(parent)?.ok_or(Code::DATA_INCONSISTENCY)?;
        plan.delete(path, node, parent, parent_node);
        deleted += 1;
    }
    Ok(deleted)
}

/// The node and all below it, those that are less deep first. Fails if there are more than `most`, or one may not go.
fn with_all_below(
    plan: &mut Plan<'_>,
    caller: &Caller,
    first: (Text, Node),
    most: usize,
) -> Result<Vec<(Text, Node)>, Code> {
    let mut bytes = first.0.len();
    let mut found = vec![first];
    let mut next = 0;
    while let Some((path, node)) = found.get(next) {
        next += 1;
        acl::check(&node.acl, permission::DELETE, &caller.identities)?;
        let (path, children) = (path.clone(), node.counts.present);
        plan.read(Lock::Children, Rows::path_hash(&path));
        let children = usize::try_from(children).unwrap_or(0);
        if children > most.saturating_sub(found.len()) {
            return Err(Code::NOT_EMPTY);
        }
        if children == 0 {
            continue;
        }
        for name in plan.children(&path)? {
            let child = Text::from(paths::join(&path, &name));
            bytes += child.len();
            match plan.node(&child)? {
                Some(node) => found.push((child, node)),
                // Rows that contradict one another, unless it has to be read first.
                None if plan.is_all_read() => return Err(Code::DATA_INCONSISTENCY),
                None => {}
            }
        }
        if found.len() > most || bytes > DELETED_PATHS_BYTES {
            return Err(Code::NOT_EMPTY);
        }
    }
    match found.len() > most {
        true => Err(Code::NOT_EMPTY),
        false => Ok(found),
    }
}
