//! A client's requests, one after the other: writes go to the pipeline, reads to the replica.
//!
//! Answers leave in the order of the requests, but those to `auth` do not wait. However long one takes, the client is
//! heard when it sends something ([`crate::arrivals`]). Writes are submitted without waiting for those before them. A
//! read whose session has writes under way takes its turn among them in the pipeline: it sees those before it and none
//! behind it (FDBKeeper §5.2, §5.3). Other requests wait until the writes are done. All writes of a gateway go through
//! one pipeline in order, so no locks of nodes are needed.

use crate::addresses::Place;
use crate::arrivals::Arrivals;
use crate::connection::Connection;
use crate::contact::{Moment, tick};
use crate::counters::{Asked, Kind};
use crate::doors::Origin;
use crate::held::Held;
use crate::life::{Gateway, Life};
use crate::operations::Audited;
use crate::replica::Replica;
use crate::talk::Talk;
use crate::tree::execute::{Caller, Executed, Operation, Owner, Shape};
use crate::watches::Client;
use crate::wire::{
    Answer, AnswerHeader, Code, Dialect, FrameError, Header, MultiResult, Request, Skip,
    decode_request, encode_answer, take_frame, xid,
};
use crate::writes::{Outcome, StepStat};
use crate::{FRAME_BYTES_MAX, acl, admin, greeting, read_only, reads};
use bytes::Bytes;
use plinth_runtime::serve::{self, Inbox, Outbox};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Pace, now, probe, sleep};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;

/// ClickHouse asks for up to 65,536 nodes in one request.
const CLICKHOUSE_FRAME_BYTES_MAX: usize = 8 << 20;
/// Unsent bytes of answers above which no further request is read.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Writes of a client that may be under way.
const PENDING_MAX: usize = 1000;

/// Serves an accepted connection until it ends.
pub async fn serve(
    gateway: Rc<Gateway>,
    client: Client,
    (accepted, origin): (serve::Connection, Origin),
    place: &Place,
) {
    let come = Come {
        peer: accepted.peer,
        origin,
        place,
    };
    let work = |inbox, outbox| talk(gateway, client, come, inbox, outbox);
    serve::session(accepted, work).await;
}

/// Where a client has come from, and how.
struct Come<'a> {
    peer: SocketAddr,
    origin: Origin,
    place: &'a Place,
}

async fn talk(
    gateway: Rc<Gateway>,
    client: Client,
    Come {
        peer,
        origin,
        place,
    }: Come<'_>,
    mut inbox: Inbox,
    outbox: Rc<Outbox>,
) {
    let begun = match greeting::await_greeting(&mut inbox).await {
        Some(begun) => begun,
        None => return,
    };
    let request = match begun {
        greeting::Begun::Word(word) => return admin::answer_word(&gateway, word, &outbox).await,
        greeting::Begun::Connect(request) => request,
    };
    place.keep();
    if gateway.stopped.with(Option::is_some) {
        return;
    }
    let Some(accepted) = greeting::accept(&gateway, client, &request, &outbox).await else {
        return;
    };
    let life = accepted.life;
    let connection = Rc::new(Connection {
        client,
        peer,
        replica: life.replica.clone(),
        counters: gateway.counters.clone(),
        session: accepted.session,
        timeout_ms: accepted.timeout_ms,
        is_read_only: accepted.is_read_only,
        identities: RefCell::new(acl::of_connection(
            peer.ip(),
            &origin,
            gateway.options.supers(),
        )),
        origin,
        outbox,
        held: Held::new(life.contact.clone(), life.held_bytes.clone()),
        pending: Cell::new(0),
        done: Notify::new(),
        is_clickhouse: Cell::new(false),
        is_closing: Cell::new(false),
        since: now(),
        received: Cell::new(0),
        sent: Cell::new(0),
    });
    let talk = Talk {
        connection,
        life,
        gateway,
    };
    let mut arrivals = Arrivals::new(inbox);
    let registered = Registered::new(&talk);
    if talk.life.pipeline.is_lost() {
        // Its life ended while it was accepted: nobody else would disconnect it.
        talk.hang_up();
    }
    talk.answer_requests(&mut arrivals).await;
    drop(registered);
}

/// Runs however the connection ends.
struct Registered(Rc<Connection>, Rc<Life>);

impl Registered {
    fn new(talk: &Talk) -> Self {
        let connection = &talk.connection;
        let clients = &talk.life.clients;
        let mut connections = clients.connections.borrow_mut();
        let before = connections.insert(connection.client, connection.clone());
        assert!(
            before.is_none(),
            "two connections are number {}",
            connection.client
        );
        Registered(connection.clone(), talk.life.clone())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (client, clients) = (self.0.client, &self.1.clients);
        clients.connections.borrow_mut().remove(&client);
        clients.watches.borrow_mut().remove_client(client);
        if let Some(owned) = clients.sessions.borrow_mut().get_mut(self.0.session)
            && owned.client == Some(client)
        {
            owned.client = None;
        }
    }
}

impl Talk {
    pub fn caller(&self) -> Caller {
        Caller {
            session: self.session,
            identities: self.identities.borrow().clone(),
        }
    }

    /// Whose requests are understood: all others see a ZooKeeper. ClickHouse's clients ask for the flags first.
    fn dialect(&self) -> Dialect {
        match self.is_clickhouse.get() {
            true => Dialect::ClickHouse,
            false => Dialect::ZooKeeper,
        }
    }

    fn frame_bytes_max(&self) -> usize {
        match self.dialect() {
            Dialect::ClickHouse => FRAME_BYTES_MAX.get().max(CLICKHOUSE_FRAME_BYTES_MAX),
            Dialect::ZooKeeper => FRAME_BYTES_MAX.get(),
        }
    }

    async fn answer_requests(&self, arrivals: &mut Arrivals) {
        let mut pace = Pace::new();
        while !self.outbox.is_closed() {
            let are_full = arrivals.are_full();
            match take_frame(&mut arrivals.inbox.buffer, self.frame_bytes_max()) {
                Ok(Some(frame)) => {
                    arrivals.inbox.note(frame.len());
                    if are_full {
                        self.touch();
                    }
                    let mut answering = pin!(self.answer_frame(frame, arrivals.heard()));
                    let hear = || self.touch();
                    if arrivals
                        .read_beside(answering.as_mut(), hear)
                        .await
                        .is_break()
                    {
                        return;
                    }
                }
                Ok(None) => {
                    // Nobody ends a reader's session here, so nobody else notices that it is silent.
                    let limit = self.is_read_only.then(|| self.timeout());
                    if arrivals.read_within(limit).await.is_none() {
                        return;
                    }
                    self.touch();
                }
                Err(FrameError::TooLong { .. }) => {
                    if self.skip(arrivals).await.is_none() {
                        return;
                    }
                }
                Err(FrameError::Negative) => return,
            }
            pace.rest_if_over().await;
        }
    }

    /// Breaks off if that is no request.
    async fn answer_frame(&self, frame: Bytes, heard: Moment) -> ControlFlow<()> {
        self.count_received();
        self.outbox.has_room(UNSENT_BYTES_MAX).await;
        self.knows_that_it_lives().await;
        let Ok((header, request)) = decode_request(frame, self.dialect()) else {
            return ControlFlow::Break(());
        };
        let kind = request.as_ref().map_or(Kind::Other, Kind::of);
        let asked = self.counters.arrived(kind);
        if !kind.is_write() {
            self.may_be_answered(&heard).await;
        }
        match request.map(Request::simplified) {
            Ok(request) if self.pending.get() > 0 && reads::can_ride(&request) => {
                self.ride(header.xid, request, (asked, heard)).await;
            }
            request => {
                self.handle(header, request, (asked, heard)).await;
                if !kind.is_write() || self.is_read_only {
                    self.counters.answered(asked);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn count_received(&self) {
        self.received.set(self.received.get() + 1);
        let counters = &self.counters;
        counters.received.set(counters.received.get() + 1);
    }

    /// Something was heard of the client.
    fn touch(&self) {
        // Nobody has asked a reader for the session's password.
        if !self.is_read_only {
            let mut sessions = self.life.clients.sessions.borrow_mut();
            sessions.touch(self.session, now());
        }
    }

    /// The end of the session may be under way: nobody is told that it lives before that is called off.
    async fn knows_that_it_lives(&self) {
        let is_closing = || self.life.clients.sessions.borrow().is_closing(self.session);
        while !self.is_read_only && is_closing() && !self.outbox.is_closed() {
            probe!("keeper_heard_while_it_ends");
            sleep(tick()).await;
        }
    }

    /// A request that changes nothing is not even executed before: its answer would take memory meanwhile.
    async fn may_be_answered(&self, heard: &Moment) {
        if !self.is_read_only {
            self.life.contact.covered(heard).await;
        }
    }

    /// Passes over a request that is too long, and refuses it.
    async fn skip(&self, arrivals: &mut Arrivals) -> Option<()> {
        let mut skip = loop {
            match Skip::begin(&mut arrivals.inbox.buffer).ok()? {
                Some(skip) => break skip,
                None => self.hear_more(arrivals).await?,
            };
        };
        while !skip.is_over(&mut arrivals.inbox.buffer) {
            self.hear_more(arrivals).await?;
        }
        probe!("keeper_request_too_long");
        let xid = skip.header.xid;
        let mut refusing = pin!(self.refuse_too_long(xid, arrivals.heard()));
        let hear = || self.touch();
        arrivals.read_beside(refusing.as_mut(), hear).await;
        Some(())
    }

    async fn hear_more(&self, arrivals: &mut Arrivals) -> Option<()> {
        arrivals.read().await?;
        self.touch();
        Some(())
    }

    async fn refuse_too_long(&self, xid: i32, heard: Moment) {
        self.count_received();
        self.knows_that_it_lives().await;
        self.may_be_answered(&heard).await;
        self.writes_done(0).await;
        self.answer_with(xid, Err(Code::CONNECTION_LOSS));
    }

    async fn handle(
        &self,
        header: Header,
        request: Result<Request, Code>,
        (asked, heard): (Asked, Moment),
    ) {
        let request = match request {
            Ok(request) => request,
            Err(code) => {
                self.writes_done(0).await;
                return self.answer_with(header.xid, Err(code));
            }
        };
        match request {
            request if self.is_read_only && read_only::is_refused(&request) => {
                self.answer_with(header.xid, Err(Code::NOT_READ_ONLY));
            }
            mut request if request.changes_nodes() => {
                reads::system::guard(&self.gateway.options, self, &mut request);
                let operation = Operation::Request(self.caller(), request);
                self.submit(header.xid, operation, (asked, heard)).await;
            }
            // The session goes on in the database until it times out.
            Request::CloseSession if self.is_read_only => {
                self.answer_with(header.xid, Ok(&Answer::Empty));
                self.hang_up();
            }
            Request::CloseSession => {
                self.is_closing.set(true);
                let operation = Operation::CloseSession {
                    session: self.session,
                    owner: Owner::Own,
                    found: Default::default(),
                };
                self.submit(header.xid, operation, (asked, heard)).await;
                self.writes_done(0).await;
                self.may_be_answered(&heard).await;
                self.hang_up();
            }
            Request::Ping => {
                self.writes_done(0).await;
                self.answer_with(xid::PING, Ok(&Answer::Empty));
            }
            Request::Auth { scheme, auth, .. } => {
                self.authenticate(header.xid, &scheme, auth.as_deref());
            }
            Request::Sync { path } => {
                self.writes_done(0).await;
                let _ = self.life.pipeline.refreshed().await;
                self.answer_with(header.xid, Ok(&Answer::Sync(path)));
            }
            // A check stands in a multi only.
            Request::Unknown { .. } | Request::Check { .. } => {
                self.refuse_unknown(header.xid).await
            }
            request if self.is_read_only => read_only::answer(self, header.xid, request),
            request => {
                self.writes_done(0).await;
                reads::answer(self, header.xid, request).await;
            }
        }
    }

    /// ZooKeeper takes a request that it does not know for the end of the protocol.
    async fn refuse_unknown(&self, xid: i32) {
        self.writes_done(0).await;
        let header = AnswerHeader {
            xid,
            zxid: -1,
            error: Code::UNIMPLEMENTED.0,
        };
        self.push(|out| encode_answer(out, header, &Answer::Empty));
        self.hang_up();
    }

    async fn submit(&self, xid: i32, operation: Operation, (asked, heard): (Asked, Moment)) {
        self.writes_done(PENDING_MAX).await;
        self.life.pipeline.has_room().await;
        self.life.may_hold_more().await;
        self.pending.set(self.pending.get() + 1);
        let connection = self.connection.clone();
        let audited = Audited::of(self.gateway.operations.as_ref(), &connection, &operation);
        let ends = matches!(operation, Operation::CloseSession { .. });
        let clients = self.life.clients.clone();
        let complete = move |_: &Replica, outcome: Outcome, stats: Vec<StepStat>| {
            if let Some(audited) = audited {
                audited.log(&outcome);
            }
            if ends {
                clients.log_end(connection.session);
            }
            connection.counters.answered(asked);
            connection.write_is_done();
            connection.answers(&heard);
            finish(&connection, xid, outcome, stats);
        };
        self.life.pipeline.submit(operation, Box::new(complete));
    }

    /// Lets a read take its turn among the writes under way: it sees those before it and none behind it, and does not
    /// hold those up.
    async fn ride(&self, xid: i32, request: Request, (asked, heard): (Asked, Moment)) {
        self.writes_done(PENDING_MAX).await;
        self.life.pipeline.has_room().await;
        self.pending.set(self.pending.get() + 1);
        let (connection, gateway) = (self.connection.clone(), self.gateway.clone());
        // The life has the pipeline, and must not be held by what waits there.
        let life = Rc::downgrade(&self.life);
        let look = Operation::Look {
            session: self.caller().session,
            request: request.clone(),
            most: usize::MAX,
        };
        let complete = move |_: &Replica, _: Outcome, _: Vec<StepStat>| {
            connection.counters.answered(asked);
            connection.write_is_done();
            connection.answers(&heard);
            let Some(life) = life.upgrade() else { return };
            if !life.clients.is_connected(connection.client) {
                return; // nobody would ever take away the watch that it sets
            }
            let talk = Talk {
                connection,
                life,
                gateway,
            };
            if !reads::answer_now(&talk, xid, request) {
                // A list that is too long for any answer.
                probe!("keeper_read_could_not_ride");
                talk.answer_with(xid, Err(Code::CONNECTION_LOSS));
            }
        };
        self.life.pipeline.submit(look, Box::new(complete));
    }

    /// Most clients give such a request the same `xid`, but not all do.
    fn authenticate(&self, xid: i32, scheme: &str, auth: Option<&[u8]>) {
        let (proved, supers) = (
            (self.peer.ip(), &self.origin),
            self.gateway.options.supers(),
        );
        let identities = acl::authenticate(scheme, auth, proved, supers);
        let identities = identities.and_then(|new| {
            let mut all = self.identities.borrow().to_vec();
            acl::add_identities(&mut all, new)?;
            Ok(all)
        });
        let error = match &identities {
            Ok(_) => 0,
            Err(code) => code.0,
        };
        let header = AnswerHeader {
            xid,
            zxid: 0,
            error,
        };
        self.push(|out| encode_answer(out, header, &Answer::Empty));
        match identities {
            Ok(all) => *self.identities.borrow_mut() = all.into(),
            Err(_) => self.hang_up(),
        }
    }
}

fn finish(connection: &Connection, xid: i32, outcome: Outcome, stats: Vec<StepStat>) {
    let (zxid, executed) = match outcome {
        // The client is at another gateway with the session. It must not take this for the outcome of its request.
        Outcome::Done { executed, .. } if is_moved(&executed) => return connection.hang_up(),
        Outcome::Done { zxid, executed } => (zxid, executed),
        Outcome::TooLarge => return connection.answer_with(xid, Err(Code::CONNECTION_LOSS)),
    };
    let (error, answer) = match executed {
        Executed::One(Ok(shape)) => (0, answer_of(&connection.replica, shape, stats)),
        Executed::One(Err(code)) => (code.0, Answer::Empty),
        Executed::Multi(Ok(shapes)) => (0, Answer::Multi(results_of(shapes, stats))),
        Executed::Multi(Err(codes)) => {
            let results = codes.into_iter().map(MultiResult::Error).collect();
            (0, Answer::Multi(results))
        }
    };
    let header = AnswerHeader { xid, zxid, error };
    connection.answer(header, |out| encode_answer(out, header, &answer));
}

fn is_moved(executed: &Executed) -> bool {
    match executed {
        Executed::One(result) => *result == Err(Code::SESSION_MOVED),
        Executed::Multi(Err(codes)) => codes.contains(&Code::SESSION_MOVED),
        Executed::Multi(Ok(_)) => false,
    }
}

fn answer_of(replica: &Replica, shape: Shape, stats: Vec<StepStat>) -> Answer {
    let stat = || stats.first().copied().flatten().unwrap_or_default();
    match shape {
        Shape::Empty
        | Shape::Deleted
        | Shape::Checked
        | Shape::Done { .. }
        | Shape::Taken { .. }
        | Shape::Unfinished => Answer::Empty,
        Shape::Path(path) | Shape::Ensured { path, .. } => Answer::Path(path),
        Shape::PathAndStat(path) => Answer::PathAndStat(path, stat()),
        Shape::Stat(path) => Answer::Stat(reads::stat_now(replica, &path, stat())),
    }
}

/// Every step has a place in `stats` for each of its changes.
fn results_of(shapes: Vec<Shape>, stats: Vec<StepStat>) -> Vec<MultiResult> {
    let changes: usize = shapes.iter().map(Shape::changes).sum();
    assert_eq!(changes, stats.len(), "the state after each step of a multi");
    let mut stats = stats.into_iter();
    let result = |shape: Shape| {
        let stat = stats.by_ref().take(shape.changes()).last();
        let stat = stat.flatten().unwrap_or_default();
        match shape {
            Shape::Checked => MultiResult::Checked,
            Shape::Path(path) => MultiResult::Path(path),
            Shape::PathAndStat(path) => MultiResult::PathAndStat(path, stat),
            Shape::Stat(_) => MultiResult::Stat(stat),
            Shape::Done { opcode, .. } => MultiResult::Done(opcode),
            Shape::Ensured { path, .. } => MultiResult::Ensured(path),
            Shape::Deleted | Shape::Empty | Shape::Taken { .. } | Shape::Unfinished => {
                MultiResult::Deleted
            }
        }
    };
    shapes.into_iter().map(result).collect()
}
