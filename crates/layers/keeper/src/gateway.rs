//! A gateway: clients on one side, the store on the other, and between them one life after the other.
//!
//! A life has an id, a lease, a replica and the sessions of its clients. It ends when it has lost its place: its lease
//! was ended by others because it was silent, or it has missed changes that are gone. Then its clients are
//! disconnected, which costs them no session, and the next life begins. Nothing is kept between two lives but the port.

use crate::connection::{self, Connection};
use crate::pipeline::{Listener, Outcome, Pipeline};
use crate::replica::Replica;
use crate::sessions::Sessions;
use crate::tree::change::Change;
use crate::tree::execute::{Operation, Owner};
use crate::tree::node::Node;
use crate::tree::plan::Known;
use crate::tree::rows::Rows;
use crate::watches::{Client, Happened, Watches};
use crate::wire::{WatchEvent, encode_event, permission};
use crate::{BEAT_MS, CACHE_BYTES_MAX, EVENTS, ISOLATION_MS, acl, leases, setup};
use plinth_client::Database;
use plinth_core::Result;
use plinth_runtime::net::listen;
use plinth_runtime::serve::accept;
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{
    Duration, Instant, TaskGroup, now, planted, probe, race, random, sleep, trace, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Tells the trees of a database apart.
    pub tree: String,
    /// ZooKeeper's unit of time. Time-outs of sessions are from 2 to 20 of them.
    pub tick_ms: u32,
    /// Id of the user whom no access list stops: `super:` and the hash of the password.
    pub super_digest: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tree: "default".into(),
            tick_ms: 2000,
            super_digest: None,
        }
    }
}

/// Pause between two lives, and between attempts to begin one.
const NEXT_LIFE_PAUSE: Duration = Duration::from_millis(100);

/// The part of a gateway that lasts.
pub struct Gateway {
    pub options: Options,
    database: Database,
    pub address: SocketAddr,
    /// `None` while there is no life.
    pub life: Watch<Option<Rc<Life>>>,
    next_client: Cell<Client>,
    pub started: Instant,
    pub counters: Counters,
}

/// Since the start, or since an operator reset them.
#[derive(Default)]
pub struct Counters {
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    pub latency: RefCell<Latency>,
}

/// Of requests, in milliseconds.
#[derive(Clone, Copy, Default)]
pub struct Latency {
    pub count: u64,
    pub total_ms: u64,
    pub min_ms: u64,
    pub max_ms: u64,
}

impl Latency {
    pub fn note(&mut self, took: Duration) {
        let ms = took.as_millis() as u64;
        self.min_ms = if self.count == 0 {
            ms
        } else {
            self.min_ms.min(ms)
        };
        self.max_ms = self.max_ms.max(ms);
        self.count += 1;
        self.total_ms += ms;
    }
}

/// One life of a process in the simulator. Ends only if the port cannot be had.
pub async fn run(place: plinth_workload::Place) {
    let database = plinth_client::connect(place.cluster);
    if let Err(error) = serve(database, place.listen, Options::default()).await {
        trace_warn!("KeeperNotListening", "address" => place.listen, "error" => error);
    }
}

/// Serves at `address` until the future is dropped.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(
    database: Database,
    address: SocketAddr,
    options: Options,
) -> std::io::Result<()> {
    let listener = listen(address).await?;
    let address = listener.local_addr().unwrap_or(address);
    let gateway = Rc::new(Gateway {
        options,
        database,
        address,
        life: Watch::new(None),
        next_client: Cell::new(1),
        started: now(),
        counters: Counters::default(),
    });
    let connections = TaskGroup::new();
    let start = |connection: plinth_runtime::serve::Connection| {
        let client = gateway.next_client.get();
        gateway.next_client.set(client + 1);
        connections.spawn(
            "keeper client",
            connection::serve(gateway.clone(), client, connection),
        );
        ControlFlow::Continue(())
    };
    race(accept(listener, start), gateway.live()).await;
    Ok(())
}

impl Gateway {
    async fn live(&self) {
        loop {
            match Life::begin(self).await {
                Ok(life) => {
                    trace!("KeeperGatewayBegins", "gateway" => life.id, "address" => self.address);
                    self.life.set(Some(life.clone()));
                    life.run().await;
                    self.life.set(None);
                    life.end();
                }
                Err(error) => trace_warn!("KeeperGatewayCannotBegin", "error" => error),
            }
            sleep(NEXT_LIFE_PAUSE).await;
        }
    }
}

/// See the module.
pub struct Life {
    pub id: u64,
    pub pipeline: Rc<Pipeline>,
    pub replica: Rc<Replica>,
    pub clients: Rc<Clients>,
    address: SocketAddr,
    beats: Cell<u64>,
}

/// The clients of a life.
pub struct Clients {
    gateway: u64,
    pub sessions: RefCell<Sessions>,
    pub watches: RefCell<Watches>,
    pub connections: RefCell<BTreeMap<Client, Rc<Connection>>>,
    pub is_over: Notify,
}

impl Life {
    async fn begin(gateway: &Gateway) -> Result<Rc<Life>> {
        let rows = Rows::new(&gateway.options.tree);
        let tree = setup::open(&gateway.database, &rows, &gateway.options.tree).await?;
        // Positive, and never taken for "none".
        let id = (random::u64() >> 1).max(1);
        let clients = Rc::new(Clients {
            gateway: id,
            sessions: RefCell::default(),
            watches: RefCell::new(Watches::new(random::u64())),
            connections: RefCell::default(),
            is_over: Notify::new(),
        });
        let cache_bytes = CACHE_BYTES_MAX.get();
        let replica = Replica::new(
            gateway.database.clone(),
            rows,
            tree.zxids,
            tree.version,
            cache_bytes,
        );
        let replica = Rc::new(replica);
        let pipeline = Pipeline::new(replica.clone(), tree.stream, id, clients.clone());
        let life = Life {
            id,
            pipeline,
            replica,
            clients,
            address: gateway.address,
            beats: Cell::new(0),
        };
        Ok(Rc::new(life))
    }

    async fn run(self: &Rc<Self>) {
        let serving = self.pipeline.clone().serve();
        let sessions = race(self.beat(), self.expire_sessions());
        let others = race(leases::watch_others(self), leases::reap(self));
        race(race(serving, sessions), others).await;
    }

    /// Disconnects everybody.
    fn end(&self) {
        for connection in self.clients.connections.borrow().values() {
            connection.hang_up();
        }
    }

    /// Shows the other gateways that this one lives.
    async fn beat(&self) {
        loop {
            let beat = self.beats.get() + 1;
            self.beats.set(beat);
            let row = leases::row(beat, self.address);
            if self.pipeline.run(Operation::Beat { row }).await.is_none() {
                return;
            }
            sleep(Duration::from_millis(BEAT_MS.get())).await;
        }
    }

    /// True if the database cannot be reached: what clients read may be old, and others may end their sessions.
    pub fn is_isolated(&self) -> bool {
        self.pipeline.in_touch().elapsed() > Duration::from_millis(ISOLATION_MS.get())
    }

    /// Ends the sessions of clients that are silent.
    async fn expire_sessions(&self) {
        let mut was_isolated = false;
        loop {
            sleep(Duration::from_millis(BEAT_MS.get() / 10)).await;
            if self.is_isolated() {
                if !was_isolated {
                    probe!("keeper_isolated");
                    trace_warn!("KeeperIsolated", "gateway" => self.id);
                    self.end();
                }
                was_isolated = true;
                continue;
            }
            if std::mem::take(&mut was_isolated) {
                // They had nobody to talk to.
                self.clients.sessions.borrow_mut().touch_all(now());
            }
            let expired = self.clients.sessions.borrow_mut().expired(now());
            for session in expired {
                trace!("KeeperSessionExpires", "gateway" => self.id, "session" => format!("{session:#x}"));
                self.close_session(session);
            }
        }
    }

    /// Ends a session of this gateway.
    fn close_session(&self, session: i64) {
        let clients = self.clients.clone();
        let done = move |_: &Replica, outcome: Outcome, _: Vec<_>| {
            if crate::pipeline::code_of(&outcome).is_some() {
                // It could not be ended; the next look tries again, if it is still here.
                if let Some(owned) = clients.sessions.borrow_mut().get_mut(session) {
                    owned.is_closing = false;
                }
            }
        };
        let operation = Operation::CloseSession {
            session,
            owner: Owner::Own,
            found: Default::default(),
        };
        self.pipeline.submit(operation, Box::new(done));
    }
}

impl Clients {
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
        let mut watches = self.watches.borrow_mut();
        let connections = self.connections.borrow();
        watches.fire(path, happened, |client, at, kind| {
            let Some(connection) = connections.get(&client) else {
                return;
            };
            let known = match new.filter(|_| at == path) {
                Some(node) => may_read(connection, node),
                None => match replica.node_if_known(at) {
                    Known::Here(node) => may_read(connection, &node),
                    Known::Absent | Known::Unknown => true,
                },
            };
            if known {
                EVENTS.add(1);
                let event = WatchEvent::of_a_node(kind, at.into(), zxid);
                connection.push(|out| encode_event(out, &event));
            }
        });
    }

    /// The session is no longer this gateway's.
    fn drop_session(&self, session: i64) {
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
fn may_read(connection: &Connection, node: &Node) -> bool {
    acl::check(&node.acl, permission::READ, &connection.identities.borrow()).is_ok()
}

impl Listener for Clients {
    fn before(&self, replica: &Replica, change: &Change, zxid: i64) {
        match change {
            Change::Created(path, node) => {
                self.fire(replica, path, Happened::Created, Some(node), zxid);
            }
            Change::DataSet(path, node) => {
                self.fire(replica, path, Happened::DataSet, Some(node), zxid);
            }
            Change::Deleted(path) => self.fire(replica, path, Happened::Deleted, None, zxid),
            Change::AclSet(..) | Change::GatewayRemoved { .. } => {}
            Change::SessionTaken { session, gateway } if *gateway != self.gateway => {
                self.drop_session(*session);
            }
            Change::SessionTaken { .. } => {}
            Change::SessionClosed { session } => self.drop_session(*session),
        }
    }

    fn owns(&self, session: i64) -> bool {
        self.sessions.borrow().get(session).is_some()
    }

    fn lost(&self, why: &'static str) {
        trace_warn!("KeeperGatewayLost", "gateway" => self.gateway, "why" => why);
        self.is_over.notify_all();
    }
}
