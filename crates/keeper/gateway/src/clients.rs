//! The clients of a gateway: their connections, sessions and watches. Here changes become events.

use crate::alarm::Alarm;
use crate::connection::Connection;
use crate::operations::Operations;
use crate::replica::Replica;
use crate::sessions::Sessions;
use crate::tree::change::Change;
use crate::tree::node::Node;
use crate::tree::plan::Known;
use crate::tree::quota::Exceeded;
use crate::watches::{Client, Happened, Watches};
use crate::wire::{Acl, Text, WatchEvent, XidWidth, encode_event, permission};
use crate::writes::Listener;
use crate::{EVENTS, acl};
use plinth_runtime::{planted, random, trace, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The clients of a life.
pub struct Clients {
    pub gateway: u64,
    pub sessions: RefCell<Sessions>,
    pub watches: RefCell<Watches>,
    pub connections: RefCell<BTreeMap<Client, Rc<Connection>>>,
    /// Who may hear of the next change: access lists of the nodes that it is about. Empty if everybody may.
    pub guards: RefCell<BTreeMap<Text, Rc<[Acl]>>>,
    /// `None` if quotas are not enforced.
    pub alarm: Option<Rc<Alarm>>,
    pub operations: Option<Rc<Operations>>,
    /// For the log of operations: nodes that the last transaction has deleted, and the session that it has ended.
    pub gone: RefCell<Gone>,
}

/// What a transaction has deleted.
#[derive(Default)]
pub struct Gone {
    zxid: i64,
    paths: Vec<Text>,
    session: Option<i64>,
}

impl Clients {
    pub fn is_connected(&self, client: Client) -> bool {
        self.connections.borrow().contains_key(&client)
    }

    fn note_gone(&self, change: &Change, zxid: i64) {
        if self.operations.is_none() {
            return;
        }
        let mut gone = self.gone.borrow_mut();
        if gone.zxid != zxid {
            *gone = Gone {
                zxid,
                ..Gone::default()
            };
        }
        match change {
            Change::Deleted(path) => gone.paths.push(path.clone()),
            Change::SessionClosed { session } => gone.session = Some(*session),
            _ => {}
        }
    }

    /// The transaction that has ended the session is the last one.
    pub fn log_end(&self, session: i64) {
        let gone = std::mem::take(&mut *self.gone.borrow_mut());
        if let Some(operations) = &self.operations
            && gone.session == Some(session)
        {
            operations.session_ended(session, &gone.paths);
        }
    }

    /// Tells those who watch the node, or its parent's list of children, and may read it.
    fn fire(
        &self,
        replica: &Replica,
        path: &str,
        happened: Happened,
        new: Option<&Node>,
        zxid: i64,
    ) {
        if planted!(
            "keeper_watch_lost",
            "a gateway forgets one change in a hundred when it looks for watches"
        ) && random::chance(0.01)
        {
            return;
        }
        let guards = std::mem::take(&mut *self.guards.borrow_mut());
        let mut watches = self.watches.borrow_mut();
        let connections = self.connections.borrow();
        watches.fire(path, happened, |client, at, kind| {
            let Some(connection) = connections.get(&client) else {
                return;
            };
            let known = match new.filter(|_| at == path) {
                Some(node) => may_read(connection, &node.acl),
                None => match replica.node_if_known(at) {
                    Known::Here(node) => may_read(connection, &node.acl),
                    Known::Absent | Known::Damaged | Known::Unknown => {
                        guards.get(at).is_none_or(|acl| may_read(connection, acl))
                    }
                },
            };
            if known {
                EVENTS.add(1);
                let event = WatchEvent::of_a_node(kind, at.into(), zxid);
                let is_narrow = planted!(
                    "keeper_event_is_narrow",
                    "an event begins with a number of four bytes, whatever the client has asked for"
                );
                let xids = match is_narrow {
                    true => XidWidth::Four,
                    false => connection.protocol.xids,
                };
                connection.push(|out| encode_event(out, &event, xids));
            }
        });
    }

    /// The session is no longer this gateway's.
    pub fn drop_session(&self, session: i64) {
        let Some(owned) = self.sessions.borrow_mut().remove(session) else {
            return;
        };
        let connections = self.connections.borrow();
        if let Some(connection) = owned.client.and_then(|client| connections.get(&client))
            && !connection.is_closing.get()
        {
            connection.hang_up();
        }
    }
}

/// A change of a node is told only to who may read it (CVE-2024-23944).
fn may_read(connection: &Connection, acl: &[Acl]) -> bool {
    acl::check(acl, permission::READ, &connection.identities.borrow()).is_ok()
}

impl Listener for Clients {
    fn before(&self, replica: &Replica, change: &Change, zxid: i64) {
        self.note_gone(change, zxid);
        match change {
            Change::Created(path, node) => {
                self.fire(replica, path, Happened::Created, Some(node), zxid);
            }
            Change::DataSet(path, node) => {
                self.fire(replica, path, Happened::DataSet, Some(node), zxid);
            }
            Change::Deleted(path) => self.fire(replica, path, Happened::Deleted, None, zxid),
            Change::Guarded(path, acl) => {
                self.guards.borrow_mut().insert(path.clone(), acl.clone());
            }
            Change::AclSet(..) | Change::GatewayRemoved { .. } | Change::Quota(..) => {}
            Change::SessionTaken { session, gateway } if *gateway != self.gateway => {
                if self.owns(*session) {
                    let session = format!("{session:#x}");
                    trace!("KeeperSessionLeaves", "gateway" => self.gateway, "session" => session, "to" => gateway);
                }
                self.drop_session(*session);
            }
            Change::SessionTaken { .. } => {}
            Change::SessionClosed { session } => self.drop_session(*session),
        }
    }

    fn owns(&self, session: i64) -> bool {
        self.sessions.borrow().get(session).is_some()
    }

    fn is_silent(&self, session: i64) -> bool {
        self.sessions.borrow().is_silent(session)
    }

    fn has_clients(&self) -> bool {
        !self.connections.borrow().is_empty()
    }

    fn enforces_quotas(&self) -> bool {
        self.alarm.is_some()
    }

    fn exceeds(&self, exceeded: &Exceeded, path: &str) {
        if let Some(alarm) = &self.alarm {
            alarm.sound(exceeded, path);
        }
    }

    fn lost(&self, why: &'static str) {
        trace_warn!("KeeperGatewayLost", "gateway" => self.gateway, "why" => why);
    }
}
