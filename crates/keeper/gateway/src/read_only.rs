//! Read-only mode: what a client that asks for it gets while the database cannot be reached.
//!
//! A gateway that is cut off disconnects its clients (life.rs). One that comes back, and says that it may be
//! read-only, is answered from the cache until the gateway is in touch again. Then it is disconnected once more, and
//! takes up its session. Nobody can ask about its session meanwhile, and a session gives no rights to read.
//!
//! As in ZooKeeper, watches may be set, and writes and `sync` are refused. What is not in the cache gets
//! `ConnectionLoss`.

use crate::reads;
use crate::talk::Talk;
use crate::wire::{Code, Request, Xid};

/// True for what would write, or ask the database.
pub fn is_refused(request: &Request) -> bool {
    request.changes_nodes() || matches!(request, Request::Reconfig { .. } | Request::Sync { .. })
}

/// Answers a read.
pub fn answer(talk: &Talk, xid: Xid, request: Request) {
    if !reads::answer_now(talk, xid, request) {
        talk.answer_with(xid, Err(Code::CONNECTION_LOSS));
    }
}
