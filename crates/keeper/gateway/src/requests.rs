//! A client's requests, one after the other: writes go to the pipeline, reads to the replica.
//!
//! Answers leave in the order of the requests, but those to `auth` do not wait. However long one takes, the client is
//! heard when it sends something ([`crate::arrivals`]). Writes are submitted without waiting for those before them. A
//! read whose session has writes under way takes its turn among them in the pipeline: it sees those before it and none
//! behind it (FDBKeeper §5.2, §5.3). Other requests wait until the writes are done. All writes of a gateway go through
//! one pipeline in order, so no locks of nodes are needed.

use crate::addresses::Place;
use crate::arrivals::{Arrivals, Broken};
use crate::connection::Connection;
use crate::contact::{Moment, tick};
use crate::counters::{Asked, Kind};
use crate::doors::Origin;
use crate::frames::{Room, short_bytes};
use crate::held::Held;
use crate::life::{Gateway, Life};
use crate::operations::Audited;
use crate::replica::Replica;
use crate::talk::Talk;
use crate::trace::{self, Mark, Traces};
use crate::tree::execute::{Caller, Executed, Operation, Owner, Shape};
use crate::watches::Client;
use crate::wire::{
    Answer, AnswerHeader, Code, Dialect, FrameError, Header, MultiResult, Request, Xid,
    decode_request, encode_answer, xid,
};
use crate::writes::{Outcome, StepStat};
use crate::{FRAME_BYTES_MAX, acl, admin, greeting, read_only, reads};
use bytes::Bytes;
use plinth_runtime::serve::{self, Inbox, Outbox};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Either, Pace, now, probe, race, sleep, timeout, trace_warn};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;

/// ClickHouse asks for up to 65,536 nodes in one request.
const CLICKHOUSE_FRAME_BYTES_MAX: usize = 8 << 20;
/// Unsent bytes of answers above which no further request is read.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// How often somebody looks at a long request that is on its way.
const ROOM_LOOK: Duration = Duration::from_secs(1);
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
        protocol: accepted.protocol,
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
        traces: Traces::default(),
        is_closing: Cell::new(false),
        since: now(),
        arrived: Cell::new(0),
        received: Cell::new(0),
        sent: Cell::new(0),
    });
    let talk = Talk {
        connection,
        life,
        gateway,
    };
    let is_packed = talk.protocol.is_packed;
    let mut arrivals = Arrivals::new(inbox).in_blocks(is_packed);
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
        let (mut pace, mut room) = (Pace::new(), None);
        while !self.outbox.is_closed() {
            let answered = self.answer_next(arrivals, &mut room).await;
            if let Err(Broken::Block(damaged)) = answered {
                trace_warn!("KeeperBlockDamaged", "from" => self.peer, "why" => damaged);
            }
            if !matches!(answered, Ok(ControlFlow::Continue(()))) {
                return;
            }
            pace.rest_if_over().await;
        }
    }

    /// Answers the next request, or reads more of it.
    async fn answer_next(
        &self,
        arrivals: &mut Arrivals,
        room: &mut Option<Room>,
    ) -> Result<ControlFlow<()>, Broken> {
        let bytes_max = self.frame_bytes_max();
        self.arrived.set(arrivals.bytes());
        if room.is_none()
            && let Some(bytes) = arrivals.long_frame_bytes(bytes_max)?
        {
            *room = Some(self.room_for(bytes, arrivals).await);
            arrivals.expect(bytes);
        }
        let are_full = arrivals.are_full();
        match arrivals.take_frame(bytes_max) {
            Ok(Some(frame)) => {
                arrivals.inbox.note(frame.len());
                if are_full {
                    self.touch();
                }
                let is_last = !arrivals.has_more();
                if let Some(room) = room.as_ref() {
                    room.renew();
                }
                if let Some(room) = room.as_mut().filter(|_| is_last) {
                    room.shrink_to(frame.len() + short_bytes());
                }
                let answered = {
                    let heard = arrivals.heard();
                    let mut answering = pin!(self.answer_frame(frame, heard, room.as_ref()));
                    let hear = || self.touch();
                    arrivals.read_beside(answering.as_mut(), hear).await
                };
                if is_last && room.is_some() {
                    // First the memory: then others may take as much.
                    arrivals.forget_long();
                    *room = None;
                }
                Ok(answered)
            }
            Ok(None) => Ok(self.read_on(arrivals, room.as_ref()).await),
            Err(Broken::Frame(FrameError::TooLong { .. })) => {
                let skipped = self.skip(arrivals, room).await;
                *room = None;
                skipped
            }
            Err(broken) => Err(broken),
        }
    }

    /// Reads more of a request. Breaks off if there will be none, or it does not come while others wait for its room.
    async fn read_on(&self, arrivals: &mut Arrivals, room: Option<&Room>) -> ControlFlow<()> {
        // Nobody ends a reader's session here, so nobody else notices that it is silent.
        let silence = self.is_read_only.then(|| self.timeout());
        let limit = match room {
            Some(_) => Some(silence.unwrap_or(ROOM_LOOK).min(ROOM_LOOK)),
            None => silence,
        };
        if arrivals.read_within(limit).await.is_some() {
            self.touch();
            if let Some(room) = room {
                room.hear();
            }
        } else if arrivals.has_ended() || room.is_none() {
            return ControlFlow::Break(());
        }
        self.goes_on_with(room)
    }

    /// Breaks off if a client that is slow has room that others wait for.
    fn goes_on_with(&self, room: Option<&Room>) -> ControlFlow<()> {
        if room.is_some_and(Room::is_wanted) {
            probe!("keeper_long_frame_too_slow");
            trace_warn!("KeeperLongFrameTooSlow", "from" => self.peer);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Waits until the client has read enough of its answers. Breaks off if the client has room that others wait for:
    /// one block may have many requests, and it keeps its room for all of them.
    async fn reads_its_answers(&self, room: Option<&Room>) -> ControlFlow<()> {
        if let Some(room) = room {
            room.hear();
        }
        while room.is_some() {
            let reading = self.outbox.has_room(UNSENT_BYTES_MAX);
            if timeout(ROOM_LOOK, reading).await.is_some() {
                return ControlFlow::Continue(());
            }
            self.goes_on_with(room)?;
        }
        self.outbox.has_room(UNSENT_BYTES_MAX).await;
        ControlFlow::Continue(())
    }

    /// Waits until a long request may be read. It is no fault of the client's that it is not heard meanwhile.
    async fn room_for(&self, bytes: usize, arrivals: &mut Arrivals) -> Room {
        // Whoever has room does not wait for a client that reads nothing.
        self.outbox.has_room(UNSENT_BYTES_MAX).await;
        let reserving = race(self.gateway.frames.reserve(bytes), self.touch_on());
        let mut reserving = pin!(async {
            match reserving.await {
                Either::Left(room) => room,
                Either::Right(never) => match never {},
            }
        });
        arrivals
            .read_beside(reserving.as_mut(), || self.touch())
            .await
    }

    async fn touch_on(&self) -> Infallible {
        loop {
            sleep(ROOM_LOOK).await;
            self.touch();
        }
    }

    /// Breaks off if that is no request.
    async fn answer_frame(
        &self,
        frame: Bytes,
        heard: Moment,
        room: Option<&Room>,
    ) -> ControlFlow<()> {
        self.count_received();
        self.reads_its_answers(room).await?;
        self.knows_that_it_lives().await;
        let decoded = decode_request(frame, self.dialect(), self.protocol.xids);
        let Ok((header, request)) = decoded else {
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

    /// Passes over a request that is too long, and refuses it. Each of its blocks comes whole before it is thrown
    /// away, and takes room as a long request does.
    async fn skip(
        &self,
        arrivals: &mut Arrivals,
        room: &mut Option<Room>,
    ) -> Result<ControlFlow<()>, Broken> {
        let mut skip = loop {
            match arrivals.begin_to_skip(self.protocol.xids)? {
                Some(skip) => break skip,
                None if self.read_on(arrivals, room.as_ref()).await.is_continue() => {}
                None => return Ok(ControlFlow::Break(())),
            };
        };
        let mut left = skip.left();
        while !arrivals.skip(&mut skip)? {
            if std::mem::replace(&mut left, skip.left()) > left && room.is_some() {
                arrivals.forget_long();
                *room = None;
            }
            if room.is_none()
                && let Some(bytes) = arrivals.long_block_bytes()?
            {
                *room = Some(self.room_for(bytes, arrivals).await);
            }
            if self.read_on(arrivals, room.as_ref()).await.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        *room = None;
        probe!("keeper_request_too_long");
        let xid = skip.header.xid;
        let mut refusing = pin!(self.refuse_too_long(xid, arrivals.heard()));
        let hear = || self.touch();
        arrivals.read_beside(refusing.as_mut(), hear).await;
        Ok(ControlFlow::Continue(()))
    }

    async fn refuse_too_long(&self, xid: Xid, heard: Moment) {
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
                self.answer_with(self.protocol.xids.of(xid::PING), Ok(&Answer::Empty));
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
    async fn refuse_unknown(&self, xid: Xid) {
        self.writes_done(0).await;
        let header = AnswerHeader {
            xid,
            zxid: -1,
            error: Code::UNIMPLEMENTED.0,
        };
        self.push(|out| encode_answer(out, header, &Answer::Empty));
        self.hang_up();
    }

    async fn submit(&self, xid: Xid, operation: Operation, (asked, heard): (Asked, Moment)) {
        self.writes_done(PENDING_MAX).await;
        self.life.pipeline.has_room().await;
        self.life.may_hold_more().await;
        self.pending.set(self.pending.get() + 1);
        let connection = self.connection.clone();
        let audited = Audited::of(self.gateway.operations.as_ref(), &connection, &operation);
        let ends = matches!(operation, Operation::CloseSession { .. });
        let clients = self.life.clients.clone();
        let trace = self.traces.begin(&heard);
        let traced = trace.clone();
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
            trace::note(traced.as_ref(), Mark::Answered);
        };
        let (pipeline, complete) = (&self.life.pipeline, Box::new(complete));
        match trace {
            Some(trace) => pipeline.submit_traced(operation, complete, trace),
            None => pipeline.submit(operation, complete),
        }
    }

    /// Lets a read take its turn among the writes under way: it sees those before it and none behind it, and does not
    /// hold those up.
    async fn ride(&self, xid: Xid, request: Request, (asked, heard): (Asked, Moment)) {
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
    fn authenticate(&self, xid: Xid, scheme: &str, auth: Option<&[u8]>) {
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

fn finish(connection: &Connection, xid: Xid, outcome: Outcome, stats: Vec<StepStat>) {
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
