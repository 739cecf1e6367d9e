//! A life of a gateway: an id, a lease, a replica and the sessions of its clients.
//!
//! A life ends when it has lost its place: its lease was ended by others because it was silent, or it has missed
//! changes that are gone. Then its clients are disconnected, which costs them no session, and the next life begins.
//! Nothing is kept between two lives but the port.

use crate::addresses::Addresses;
use crate::alarm::Alarm;
use crate::backing::{Backing, Beginning, NoLife};
use crate::clients::Clients;
use crate::connection::Connection;
use crate::contact::{Contact, Moment, tick};
use crate::counters::Counters;
use crate::doors::Secure;
use crate::frames::Frames;
use crate::operations::Operations;
use crate::replica::Replica;
use crate::tree::execute::{Operation, Owner};
use crate::tree::totals::Totals;
use crate::watches::{Client, Watches};
use crate::wire::Code;
use crate::words::Words;
use crate::writes::{Outcome, Writes, code_of};
use crate::{BEAT_MS, HELD_BYTES_MAX, acl};
use plinth_runtime::readiness::{Readiness, Work};
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{
    Duration, Instant, TaskGroup, now, planted, probe, race, random, sleep, sleep_until, trace,
    trace_warn,
};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Most beats that are under way. If they take two seconds, one still lands with each that is due.
const BEATS_AT_ONCE: usize = 8;

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Tells the trees of a database apart.
    pub tree: String,
    /// ZooKeeper's unit of time. Time-outs of sessions are from 2 to 20 of them, unless others are given.
    pub tick_ms: u32,
    /// ZooKeeper's `minSessionTimeout`. Clients with a time-out below what [`Options::default`] gives may lose their
    /// sessions while they look for another gateway.
    pub min_session_timeout_ms: Option<u32>,
    /// ZooKeeper's `maxSessionTimeout`. Not below the shortest.
    pub max_session_timeout_ms: Option<u32>,
    /// Most connections of an address, ZooKeeper's `maxClientCnxns`; 0 is no limit.
    pub max_connections_per_address: usize,
    /// Id of the user whom no access list stops: `super:` and the hash of the password.
    pub super_digest: Option<String>,
    /// Subject of the certificate whose owner no access list stops.
    pub x509_super_user: Option<String>,
    /// Quotas are enforced: hard limits are hard, and the trace tells of soft ones (ZooKeeper's `enforceQuota`).
    pub enforce_quota: bool,
    /// Understand what ClickHouse's keeper does besides ZooKeeper's requests, and say so at `/keeper`.
    pub clickhouse: bool,
    /// Where this gateway is, for ClickHouse's clients, who choose a near one.
    pub zone: Option<String>,
    /// Four-letter words that are answered, ZooKeeper's `4lw.commands.whitelist`.
    pub words: Words,
    /// File for who changes which nodes, ZooKeeper's `audit.enable`.
    pub operations_log: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tree: "default".into(),
            tick_ms: 2000,
            min_session_timeout_ms: None,
            max_session_timeout_ms: None,
            max_connections_per_address: 60,
            super_digest: None,
            x509_super_user: None,
            enforce_quota: false,
            clickhouse: true,
            zone: None,
            words: Words::default(),
            operations_log: None,
        }
    }
}

impl Options {
    /// The shortest and the longest time-out of a session, in milliseconds.
    pub fn session_timeouts_ms(&self) -> (u32, u32) {
        let shortest = self.min_session_timeout_ms.unwrap_or(2 * self.tick_ms);
        let longest = self.max_session_timeout_ms.unwrap_or(20 * self.tick_ms);
        (shortest, longest.max(shortest))
    }

    /// What all gateways of a tree need the same, in words: a session that moves lives as long, and no write passes at
    /// one that another refuses.
    pub fn in_common(&self) -> String {
        let (shortest, longest) = self.session_timeouts_ms();
        let quotas = if self.enforce_quota {
            "enforced"
        } else {
            "not enforced"
        };
        format!("time-outs from {shortest} to {longest} ms, quotas {quotas}")
    }

    /// Whom no access list stops.
    pub fn supers(&self) -> acl::Supers<'_> {
        acl::Supers {
            digest: self.super_digest.as_deref(),
            x509: self.x509_super_user.as_deref(),
        }
    }
}

/// The part of a gateway that lasts.
pub struct Gateway {
    pub options: Options,
    pub backing: Rc<dyn Backing>,
    /// Where clients reach it: the plain port, if it has one.
    pub address: SocketAddr,
    pub plain: Option<SocketAddr>,
    pub secure: Option<Rc<Secure>>,
    /// `None` while there is no life.
    pub life: Watch<Option<Rc<Life>>>,
    /// Why there will be no life any more: one line for the operator.
    pub stopped: Watch<Option<Rc<str>>>,
    pub next_client: Cell<Client>,
    pub started: Instant,
    /// Whether a user of ZooKeeper could work here just now.
    pub readiness: Rc<RefCell<Readiness>>,
    pub counters: Rc<Counters>,
    pub alarm: Rc<Alarm>,
    pub operations: Option<Rc<Operations>>,
    pub addresses: Rc<Addresses>,
    /// Memory for what clients send.
    pub frames: Rc<Frames>,
}

/// A gateway's row: `beat: 8 | address | " " | what all have in common`.
fn lease_row(beat: u64, address: SocketAddr, in_common: &str) -> Vec<u8> {
    let text = format!("{address} {in_common}");
    [&beat.to_be_bytes()[..], text.as_bytes()].concat()
}

/// Where the gateway with this row is reached, as it says.
pub fn address_in(lease: &[u8]) -> String {
    said_in(lease).0
}

/// Where the gateway with this row is reached, and what it should have in common with the others; empty if it does not
/// say.
pub fn said_in(lease: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(lease.get(8..).unwrap_or_default());
    let (address, in_common) = text.split_once(' ').unwrap_or((&text, ""));
    (address.to_owned(), in_common.to_owned())
}

/// See the module.
pub struct Life {
    pub id: u64,
    pub pipeline: Rc<dyn Writes>,
    pub replica: Rc<Replica>,
    pub clients: Rc<Clients>,
    pub contact: Rc<Contact>,
    /// Bytes of answers that may not go out yet.
    pub held_bytes: Rc<Watch<usize>>,
    /// It has the smallest id of the gateways that live, and cleans up what others leave.
    pub is_first: Cell<bool>,
    /// Of the tree, at most a second old.
    pub totals: Cell<Totals>,
    /// That of the gateway.
    pub readiness: Rc<RefCell<Readiness>>,
    address: SocketAddr,
    in_common: String,
    beats: Cell<u64>,
}

impl Life {
    pub async fn begin(gateway: &Gateway) -> Result<Rc<Life>, NoLife> {
        // Positive, and never taken for "none".
        let id = (random::u64() >> 1).max(1);
        let clients = Rc::new(Clients {
            gateway: id,
            sessions: RefCell::default(),
            watches: RefCell::new(Watches::new(random::u64())),
            connections: RefCell::default(),
            guards: RefCell::default(),
            operations: gateway.operations.clone(),
            gone: RefCell::default(),
            alarm: gateway.options.enforce_quota.then(|| gateway.alarm.clone()),
        });
        let by = Beginning {
            gateway: id,
            tree: &gateway.options.tree,
            listener: clients.clone(),
        };
        let begun = gateway.backing.begin(by).await?;
        let (shortest, _) = gateway.options.session_timeouts_ms();
        let life = Life {
            id,
            pipeline: begun.writes,
            replica: begun.replica,
            clients,
            contact: Rc::new(Contact::new(Duration::from_millis(shortest.into()))),
            held_bytes: Rc::new(Watch::new(0)),
            is_first: Cell::new(false),
            totals: Cell::default(),
            readiness: gateway.readiness.clone(),
            address: gateway.address,
            in_common: gateway.options.in_common(),
            beats: Cell::new(0),
        };
        Ok(Rc::new(life))
    }

    /// Disconnects everybody.
    pub fn end(&self) {
        self.disconnect(|_| true);
    }

    fn disconnect(&self, whom: impl Fn(&Connection) -> bool) {
        let connections = self.clients.connections.borrow();
        let found = connections.values().filter(|connection| whom(connection));
        found.for_each(|connection| connection.hang_up());
    }

    /// Shows the other gateways that this one lives.
    pub async fn beat(self: &Rc<Self>) {
        let (beats, ended) = (TaskGroup::new(), Notify::new());
        let under_way = Rc::new(Cell::new(0));
        while !self.pipeline.is_lost() {
            let due = now() + self.pause();
            let (life, one, all) = (self.clone(), ended.clone(), under_way.clone());
            under_way.set(under_way.get() + 1);
            beats.spawn("keeper beat", async move {
                let has_failed = !life.prove().await;
                all.set(all.get() - 1);
                if has_failed || all.get() + 1 == BEATS_AT_ONCE {
                    one.notify_one();
                }
            });
            // One that has failed is tried again soon.
            race(sleep_until(due), async {
                ended.notified().await;
                sleep(tick()).await;
            })
            .await;
            while under_way.get() == BEATS_AT_ONCE {
                ended.notified().await;
            }
        }
    }

    /// Between two beats. Both are far below [`crate::HOLD_MS`], so the first session waits for nothing.
    fn pause(&self) -> Duration {
        let beats = match self.clients.sessions.borrow().is_empty() {
            true => 2,
            false => 1,
        };
        beats * Duration::from_millis(BEAT_MS.get())
    }

    /// Changes the gateway's row once. False if that may have failed. Whoever was out of touch sees first which of its
    /// sessions others have ended: their clients are not told any more that they live.
    pub async fn prove(&self) -> bool {
        let beat = self.beats.get() + 1;
        self.beats.set(beat);
        let mut sent = Moment::now();
        let row = lease_row(beat, self.address, &self.in_common);
        if !self.pipeline.beat(row).await {
            return false;
        }
        if self.contact.may_have_lost() && self.pipeline.refreshed().await.is_err() {
            return false;
        }
        if planted!(
            "keeper_contact_from_the_answer",
            "a gateway counts contact from when the answer to its beat came"
        ) {
            sent = Moment::now();
        }
        // It is a commit, or an entry of the log.
        let mut readiness = self.readiness.borrow_mut();
        readiness.probed(Work::Commit, sent.at, now());
        drop(readiness);
        self.contact.landed(sent);
        if self.held_bytes.get() > 0 {
            let connections = self.clients.connections.borrow();
            connections.values().for_each(|c| c.release());
        }
        true
    }

    /// Ends when further answers may be made.
    pub async fn may_hold_more(&self) {
        let most = HELD_BYTES_MAX.get();
        self.held_bytes.wait_until(|bytes| *bytes < most).await;
    }

    /// True if the database cannot be reached: what clients read may be old, and others may end their sessions.
    pub fn is_isolated(&self) -> bool {
        self.contact.is_isolated()
    }

    /// Ends when the database cannot be reached, or the life is over: nobody tries any more then.
    pub async fn isolated(&self) {
        while !self.is_isolated() && !self.pipeline.is_lost() {
            sleep(tick()).await;
        }
    }

    /// Disconnects the clients for whom it is time to go elsewhere.
    fn cut_off(&self) {
        self.disconnect(|connection| {
            !connection.is_read_only && self.contact.is_isolated_for(connection.timeout())
        });
    }

    /// Ends the sessions of clients that are silent.
    pub async fn expire_sessions(&self) {
        let (mut was_isolated, mut uncounted) = (false, Duration::ZERO);
        loop {
            sleep(tick()).await;
            self.contact.tick();
            if self.is_isolated() {
                if !was_isolated {
                    probe!("keeper_isolated");
                    trace_warn!("KeeperIsolated", "gateway" => self.id);
                }
                was_isolated = true;
                self.cut_off();
            }
            if !self.contact.is_in_touch() {
                continue;
            }
            if std::mem::take(&mut was_isolated) {
                self.disconnect(|connection| connection.is_read_only);
            }
            let all = self.contact.uncounted();
            let more = all - std::mem::replace(&mut uncounted, all);
            let expired = {
                let mut sessions = self.clients.sessions.borrow_mut();
                if !more.is_zero() {
                    sessions.give_back(more, now());
                }
                // Until then whoever has taken up a session elsewhere has it.
                let certain = self.contact.proved() - self.contact.margin();
                sessions.expired(now(), certain)
            };
            for session in expired {
                self.close_session(session);
            }
        }
    }

    /// Ends a session of this gateway.
    fn close_session(&self, session: i64) {
        let clients = self.clients.clone();
        let done = move |_: &Replica, outcome: Outcome, _: Vec<_>| {
            match code_of(&outcome) {
                None => {
                    clients.log_end(session);
                    let session = format!("{session:#x}");
                    trace!("KeeperSessionExpires", "gateway" => clients.gateway, "session" => session);
                }
                // Its opening failed, or another gateway has it: here it is over.
                Some(Code::SESSION_EXPIRED | Code::SESSION_MOVED) => clients.drop_session(session),
                // Its client was heard. The next look sees whether it still is.
                Some(_) => clients.sessions.borrow_mut().call_off(session),
            }
        };
        let operation = Operation::CloseSession {
            session,
            owner: Owner::Silent,
            found: Default::default(),
        };
        self.pipeline.submit(operation, Box::new(done));
    }
}
