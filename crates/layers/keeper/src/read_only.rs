//! Read-only mode: what a client that asks for it gets while the database cannot be reached.
//!
//! A gateway that is cut off disconnects its clients ([`Life::expire_sessions`]). One that comes back, and says that it
//! may be read-only, is answered from the cache until the gateway is in touch again. Then it is disconnected once more,
//! and takes up its session. Nobody can ask about its session meanwhile, and a session gives no rights to read.
//!
//! As in ZooKeeper, watches may be set, and writes and `sync` are refused. What is not in the cache gets
//! `ConnectionLoss`.

use crate::greeting::{self, Accepted};
use crate::life::{Gateway, Life};
use crate::reads;
use crate::talk::Talk;
use crate::wire::{Code, ConnectRequest, Request};
use plinth_runtime::serve::Outbox;
use plinth_runtime::{probe, trace};
use std::rc::Rc;

/// Answers the greeting; `None` if the connection is to be closed.
pub fn accept(
    gateway: &Gateway,
    life: Rc<Life>,
    request: &ConnectRequest,
    outbox: &Outbox,
) -> Option<Accepted> {
    let replica = &life.replica;
    let is_ahead = request.last_zxid_seen > replica.zxid()
        && replica.zxids.version_of(request.last_zxid_seen) > replica.version();
    if request.read_only != Some(true) || is_ahead {
        return None;
    }
    let (session, password) = match request.session_id {
        0 => (greeting::new_session(), greeting::new_password()),
        session => (session, request.password.clone()),
    };
    let timeout_ms = greeting::timeout_of(gateway, request);
    probe!("keeper_read_only");
    trace!("KeeperReadOnlyClient", "session" => format!("{session:#x}"));
    greeting::answer(outbox, request, (session, timeout_ms, password), true);
    Some(Accepted {
        life,
        session,
        timeout_ms,
        is_read_only: true,
    })
}

/// True for what would write, or ask the database.
pub fn is_refused(request: &Request) -> bool {
    matches!(
        request,
        Request::Create { .. }
            | Request::Delete { .. }
            | Request::DeleteContainer { .. }
            | Request::NoPath(_)
            | Request::SetData { .. }
            | Request::SetAcl { .. }
            | Request::Multi { .. }
            | Request::Reconfig { .. }
            | Request::Sync { .. }
    )
}

/// Answers a read.
pub fn answer(talk: &Talk, xid: i32, request: Request) {
    if !reads::answer_now(talk, xid, request) {
        talk.answer_with(xid, Err(Code::CONNECTION_LOSS));
    }
}
