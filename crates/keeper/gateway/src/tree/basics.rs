//! What operations of all kinds have in common.

use super::node::Node;
use super::plan::Plan;
use super::rows::{Lock, Rows};
use crate::acl::Identity;
use crate::paths;
use crate::wire::{Code, Text};
use std::rc::Rc;

/// Nodes that are always there.
pub(super) const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub session: i64,
    pub identities: Rc<[Identity]>,
}

/// What the answer to an operation says. The state after the change has the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    Empty,
    Path(Text),
    PathAndStat(Text),
    Stat(Text),
    /// Of a session that comes to this gateway from the one that had it, which may be this one.
    Taken {
        from: u64,
    },
    /// Of an operation in a multi that had no effect of its own.
    Checked,
    Deleted,
    /// Of an operation of this kind that only ClickHouse's keeper knows, and how many nodes it has deleted.
    Done {
        opcode: i32,
        deleted: usize,
    },
    /// Of a create of what may have been there.
    Ensured {
        path: Text,
        is_new: bool,
    },
    /// Of the end of a session with more ephemeral nodes than one transaction deletes. It has to be executed again.
    Unfinished,
}

impl Shape {
    /// How many changes of nodes a step of a multi has made.
    pub fn changes(&self) -> usize {
        match self {
            Shape::Checked => 0,
            Shape::Done { deleted, .. } => *deleted,
            Shape::Ensured { is_new, .. } => usize::from(*is_new),
            _ => 1,
        }
    }
}

pub(super) fn valid(path: &str) -> Result<(), Code> {
    match paths::is_valid(path) {
        true => Ok(()),
        false => Err(Code::BAD_ARGUMENTS),
    }
}

/// -1 expects nothing.
pub(super) fn next_version(version: i32, expected: i32) -> Result<i32, Code> {
    match expected == -1 || expected == version {
        true => Ok(version.wrapping_add(1)),
        false => Err(Code::BAD_VERSION),
    }
}

/// The parent's path as ZooKeeper takes it from the text, valid or not.
pub(super) fn parent_of(path: &str) -> Result<&str, Code> {
    let slash = path.rfind('/').ok_or(Code::BAD_ARGUMENTS)?;
    match path.contains('\0') {
        true => Err(Code::BAD_ARGUMENTS),
        false if slash == 0 => Ok("/"),
        false => Ok(&path[..slash]),
    }
}

pub(super) fn remove(
    plan: &mut Plan<'_>,
    path: &Text,
    node: &Node,
    parent: &str,
    parent_node: Node,
) -> Result<(), Code> {
    plan.read(Lock::Children, Rows::path_hash(path));
    if node.counts.present > 0 {
        return Err(Code::NOT_EMPTY);
    }
    plan.delete(path, node, parent, parent_node);
    Ok(())
}
