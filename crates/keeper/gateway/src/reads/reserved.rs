//! What several reads load, within memory that was reserved for it.

use super::{Tries, readable_list};
use crate::LIST_BYTES_MAX;
use crate::paths;
use crate::pinned::Pinned;
use crate::replica::Replica;
use crate::talk::Talk;
use crate::wire::{Code, Request, Text};
use plinth_runtime::probe;
use std::rc::Rc;

/// Reads of a request that wait for the store at the same time.
pub(super) const LOADS_AT_ONCE: usize = 100;
/// Nodes that stay in memory, within what was reserved for them.
pub(super) struct Reserved {
    replica: Rc<Replica>,
    pub bytes: usize,
    pinned: Pinned,
}

impl Reserved {
    pub async fn take(replica: Rc<Replica>, paths: Vec<Text>, bytes: usize) -> Reserved {
        replica.room.reserve(bytes).await;
        Reserved {
            pinned: Pinned::new(replica.clone(), paths),
            replica,
            bytes,
        }
    }

    /// One node more.
    pub fn keep(&self, path: &Text) {
        self.pinned.add(path);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.replica.room.give_back(self.bytes);
    }
}

/// What is left of `left` bytes when the list is in memory; `None` if it needs more.
pub(super) async fn load_list(
    connection: &Talk,
    list: &Request,
    left: usize,
) -> Result<Option<usize>, Code> {
    let replica = &connection.life.replica;
    if replica.cost(list) > left {
        return Ok(None);
    }
    let longest = LIST_BYTES_MAX.get();
    match readable_list(connection, path_of(list), left.min(longest), Tries(1)).await {
        Err(Code::CONNECTION_LOSS) if left < longest => Ok(None),
        Err(Code::CONNECTION_LOSS) => Err(too_long()),
        _ => Ok(left.checked_sub(replica.cost(list))),
    }
}

pub(super) fn path_of(read: &Request) -> &str {
    match read {
        Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. }
        | Request::List { path, .. }
        | Request::ListRecursive { path, .. } => paths::named(path),
        _ => "",
    }
}

/// No client would read the answer.
pub(super) fn too_long() -> Code {
    probe!("keeper_multi_read_too_long");
    Code::CONNECTION_LOSS
}
