//! A client of ZooKeeper's protocol, for workloads and the benchmark.
//!
//! One [`Client`] is one connection. It does not connect again: whoever drives it decides where and when to, and
//! takes the session along ([`Client::session`]).
//!
//! Promises: requests leave in the order in which they were submitted, and any number of them may be in flight. Pings
//! keep the session alive. A server that breaks the protocol ends the connection with [`Failure::Broken`], which no
//! fault of a network explains.
//! What may never happen: an answer that reaches another request than its own.

#[cfg(test)]
mod tests;

use crate::wire::packed::{put_packed, unpack};
use crate::wire::{
    Answer, Code, ConnectAnswer, ConnectRequest, Incoming, Protocol, Request, WatchEvent, Xid,
    decode_answer, decode_connect_answer, decode_incoming, encode_connect_request, encode_request,
    take_frame, xid,
};
use bytes::{Bytes, BytesMut};
use plinth_core::output::Output;
use plinth_runtime::net::{self, Reader, Writer};
use plinth_runtime::serve::{Inbox, Outbox};
use plinth_runtime::sync::{
    OneshotReceiver, OneshotSender, QueueReceiver, QueueSender, oneshot, queue,
};
use plinth_runtime::{Boxed, Duration, Either, Task, race, sleep, spawn, timeout, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;

/// A longer frame is no answer: nothing that a server keeps makes one so long.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Events that nobody has taken yet. More than this means that nobody will.
const EVENTS_MAX: usize = 1 << 20;
/// Of what a server says of itself.
const SAID_BYTES_MAX: usize = 4096;
/// A session's timeout is this many ticks.
const TICKS: u32 = 6;
/// A ping is sent after so many ticks in which nothing was, so the server hears something in each half of the timeout.
const QUIET_TICKS_MAX: u32 = 2;
/// The connection is given up after so many ticks without a sign of the server. A third of the timeout or more is
/// then left to reach another one.
const SILENT_TICKS_MAX: u32 = 3;
/// New sessions send a password of zeros, as ZooKeeper's clients do.
const NO_PASSWORD: Bytes = Bytes::from_static(&[0; 16]);

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server says no.
    Refused(Code),
    /// The connection is gone. The request may have been carried out.
    Lost,
    /// The server broke the protocol, and the connection has ended.
    Broken(&'static str),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(code) => write!(f, "the server refuses: {code}"),
            Failure::Lost => f.write_str("the connection is lost"),
            Failure::Broken(what) => write!(f, "the server broke the protocol: {what}"),
        }
    }
}

impl std::error::Error for Failure {}

/// The answer, and the last transaction that the server had applied.
pub type Outcome = Result<(i64, Answer), Failure>;

/// What the server says, an answer or why it refuses, and the last transaction that it had applied.
pub type Told = Result<(i64, Result<Answer, Code>), Failure>;

/// One connection with its session. Dropping it cuts the connection, and the session lives on until it times out.
pub struct Client {
    shared: Rc<Shared>,
    greeting: ConnectAnswer,
    events: RefCell<QueueReceiver<(i64, WatchEvent)>>,
    _connection: Task<()>,
}

impl Client {
    /// Connects, with a new session or with `session`: its id, its password, and the last zxid that it has seen.
    ///
    /// # Errors
    /// `Refused(SESSION_EXPIRED)` if the session is over; otherwise there is no connection within the timeout.
    pub fn connect(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<(i64, Bytes, i64)>,
    ) -> Boxed<'static, Result<Client, Failure>> {
        Self::connect_by(address, timeout_ms, session, Protocol::default())
    }

    /// As [`Client::connect`], in a form that ClickHouse's clients may ask for.
    ///
    /// # Errors
    /// As [`Client::connect`]; `Broken` if the server does not know the form.
    pub fn connect_by(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<(i64, Bytes, i64)>,
        protocol: Protocol,
    ) -> Boxed<'static, Result<Client, Failure>> {
        Box::pin(
            async move { Self::connect_as(address, timeout_ms, session, (protocol, false)).await },
        )
    }

    /// As [`Client::connect`], but a server that cannot reach its database will do for reading
    /// ([`Client::is_read_only`]).
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to_read(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<(i64, Bytes, i64)>,
    ) -> Boxed<'static, Result<Client, Failure>> {
        Box::pin(async move {
            Self::connect_as(address, timeout_ms, session, (Protocol::default(), true)).await
        })
    }

    /// As [`Client::connect_by`], and with the wish of [`Client::connect_to_read`] if `may_be_read_only`.
    ///
    /// # Errors
    /// As [`Client::connect_by`].
    pub async fn connect_as(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<(i64, Bytes, i64)>,
        (protocol, may_be_read_only): (Protocol, bool),
    ) -> Result<Client, Failure> {
        let (session_id, password, last_zxid_seen) = session.unwrap_or((0, NO_PASSWORD, 0));
        let request = ConnectRequest {
            protocol_version: protocol.version(),
            is_packed: protocol.is_packed,
            last_zxid_seen,
            timeout_ms,
            session_id,
            password,
            read_only: Some(may_be_read_only),
        };
        let greeted = timeout(duration(timeout_ms), greet(address, &request)).await;
        let (inbox, writer, greeting) = greeted.unwrap_or(Err(Failure::Lost))?;
        if greeting.timeout_ms <= 0 {
            return Err(Failure::Refused(Code::SESSION_EXPIRED));
        }
        if protocol != Protocol::default() && greeting.protocol_version != protocol.version() {
            return Err(Failure::Broken("another form than was asked for"));
        }
        let (sender, receiver) = queue();
        let shared = Rc::new(Shared {
            protocol,
            outbox: Outbox::new(),
            waiting: RefCell::default(),
            last_zxid: Cell::new(last_zxid_seen),
            has_sent: Cell::new(false),
            has_heard: Cell::new(true),
        });
        let tick = duration(greeting.timeout_ms) / TICKS;
        let connection = carry(shared.clone(), inbox, writer, sender, tick);
        Ok(Client {
            shared,
            greeting,
            events: RefCell::new(receiver),
            _connection: spawn("keeper client", connection),
        })
    }

    /// Sends a request. It is on its way when this returns, even if nobody polls the future; dropping the future drops
    /// only the answer.
    pub fn submit(&self, request: Request) -> impl Future<Output = Outcome> + use<> {
        let told = self.submit_for_all(request);
        async move {
            let (zxid, answer) = told.await?;
            answer
                .map(|answer| (zxid, answer))
                .map_err(Failure::Refused)
        }
    }

    /// As [`submit`](Self::submit), for who wants to know of refusals, too, when they were decided.
    pub fn submit_for_all(&self, request: Request) -> impl Future<Output = Told> + use<> {
        let answer = self.shared.submit(&request);
        async move { answer.await.unwrap_or(Err(Failure::Lost)) }
    }

    /// The next event of a watch; `None` when the connection has ended and all were taken. One task may wait.
    pub async fn next_event(&self) -> Option<WatchEvent> {
        self.next_event_behind().await.map(|(_, event)| event)
    }

    /// As [`next_event`](Self::next_event), with the largest zxid of the answers that came before it.
    pub async fn next_event_behind(&self) -> Option<(i64, WatchEvent)> {
        poll_fn(|context| self.events.borrow_mut().poll_recv(context)).await
    }

    /// Largest zxid of the answers so far.
    pub fn last_zxid(&self) -> i64 {
        self.shared.last_zxid.get()
    }

    pub fn session_id(&self) -> i64 {
        self.greeting.session_id
    }

    pub fn password(&self) -> &Bytes {
        &self.greeting.password
    }

    /// The session's timeout as the server has decided it.
    pub fn timeout_ms(&self) -> i32 {
        self.greeting.timeout_ms
    }

    /// True if the server only reads. It does not say whether the session lives.
    pub fn is_read_only(&self) -> bool {
        self.greeting.read_only == Some(true)
    }

    /// What [`Client::connect`] needs to take up this session.
    pub fn session(&self) -> (i64, Bytes, i64) {
        (self.session_id(), self.password().clone(), self.last_zxid())
    }

    /// Why the connection has ended; `None` while it lives.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.waiting.borrow().failure
    }

    /// Number of requests without an answer, without the pings that the client itself sends.
    pub fn in_flight(&self) -> usize {
        self.shared.waiting.borrow().in_order.len()
    }

    /// Ends the session, after all requests that were submitted before.
    ///
    /// # Errors
    /// The server did not confirm it.
    pub fn close(self) -> Boxed<'static, Result<(), Failure>> {
        Box::pin(async move { self.submit(Request::CloseSession).await.map(|_| ()) })
    }
}

fn duration(ms: i32) -> Duration {
    Duration::from_millis(ms.max(1).unsigned_abs().into())
}

async fn greet(
    address: SocketAddr,
    request: &ConnectRequest,
) -> Result<(Inbox, Writer, ConnectAnswer), Failure> {
    let (reader, mut writer): (Reader, Writer) =
        net::connect(address).await.map_err(|_| Failure::Lost)?;
    let mut out = Output::copying();
    encode_connect_request(&mut out, request);
    let sent = writer.write_all(out.into_bytes()).await;
    sent.map_err(|_| Failure::Lost)?;
    let mut inbox = Inbox::new(reader);
    loop {
        let frame = take_frame(&mut inbox.buffer, ANSWER_BYTES_MAX);
        if let Some(frame) = frame.map_err(|_| Failure::Broken("the greeting has no length"))? {
            let answer = decode_connect_answer(frame);
            let answer = answer.map_err(|_| Failure::Broken("the greeting cannot be read"))?;
            return Ok((inbox, writer, answer));
        }
        inbox.read().await.ok_or(Failure::Lost)?;
    }
}

/// Why nobody begins a session at this address, or ends it at once: nobody listens, what listens there speaks another
/// protocol, or a gateway says in ZooKeeper's words why it serves nobody.
pub fn why_lost(address: SocketAddr) -> Boxed<'static, String> {
    const SERVES_NOBODY: &str = "currently serving requests";
    const LIMIT: Duration = Duration::from_secs(2);
    Box::pin(async move {
        let asking = async {
            let (reader, mut writer) = net::connect(address).await.ok()?;
            let mut inbox = Inbox::new(reader);
            if writer.write_all(Bytes::from_static(b"srvr")).await.is_ok() {
                while inbox.buffer.len() < SAID_BYTES_MAX && inbox.read().await.is_some() {}
            }
            Some(String::from_utf8_lossy(&inbox.buffer).into_owned())
        };
        match timeout(LIMIT, asking).await {
            Some(None) => "nobody listens there; start one, or name another address".into(),
            Some(Some(said)) => match said.contains(SERVES_NOBODY) {
                true => "the gateway there serves nobody: its tree is gone, or not whole, or its database does not \
                         answer; `plinth keeper list' shows the trees"
                    .into(),
                false if said.starts_with("Zookeeper version") => {
                    "the server there ends new connections; an address may have so many of them \
                     (--max-connections-per-address)"
                        .into()
                }
                false => "what listens there is no gateway, and no ZooKeeper: plinth server and others speak another \
                     protocol; name a gateway"
                    .into(),
            },
            None => "what is there does not answer as a gateway does; name a gateway".into(),
        }
    })
}

/// A request that waits for its answer.
struct Waiter {
    xid: i32,
    opcode: i32,
    answer: OneshotSender<Told>,
}

#[derive(Default)]
struct Waiting {
    last_xid: i32,
    /// Answered in the order in which they were sent.
    in_order: VecDeque<Waiter>,
    /// Attempts to authenticate, which the server answers before the requests that came earlier. All have the same
    /// xid.
    auths: VecDeque<Waiter>,
    /// Pings; `None` for those that the client itself has sent. All have the same xid.
    pings: VecDeque<Option<Waiter>>,
    /// Set when the connection has ended.
    failure: Option<Failure>,
}

impl Waiting {
    fn xid_of(&mut self, request: &Request) -> i32 {
        match request {
            Request::Ping => xid::PING,
            Request::Auth { .. } => xid::AUTH,
            Request::SetWatches { .. } => xid::SET_WATCHES,
            _ => {
                self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
                self.last_xid
            }
        }
    }

    fn add(&mut self, waiter: Waiter) {
        match waiter.xid {
            xid::PING => self.pings.push_back(Some(waiter)),
            xid::AUTH => self.auths.push_back(waiter),
            _ => self.in_order.push_back(waiter),
        }
    }

    /// Who waits for an answer with this xid; `None` for a ping of the client itself.
    fn take(&mut self, xid: i32) -> Result<Option<Waiter>, Failure> {
        // One that is out of order stays: it learns why the connection ends.
        if let Some(first) = self.in_order.front()
            && first.xid != xid
            && !matches!(xid, xid::PING | xid::AUTH)
        {
            trace_warn!("KeeperAnswerOutOfOrder", "xid" => xid, "expected" => first.xid);
            return Err(Failure::Broken("an answer out of order"));
        }
        let found = match xid {
            xid::PING => self.pings.pop_front(),
            xid::AUTH => self.auths.pop_front().map(Some),
            _ => self.in_order.pop_front().map(Some),
        };
        if found.is_none() {
            trace_warn!("KeeperAnswerToNothing", "xid" => xid);
        }
        found.ok_or(Failure::Broken("an answer to no request"))
    }
}

/// What the client and the task of its connection share.
struct Shared {
    protocol: Protocol,
    outbox: Rc<Outbox>,
    waiting: RefCell<Waiting>,
    last_zxid: Cell<i64>,
    /// Was anything sent and received since the last tick?
    has_sent: Cell<bool>,
    has_heard: Cell<bool>,
}

impl Shared {
    fn submit(&self, request: &Request) -> OneshotReceiver<Told> {
        let (answer, receiver) = oneshot();
        let mut waiting = self.waiting.borrow_mut();
        if let Some(failure) = waiting.failure {
            let _ = answer.send(Err(failure));
            return receiver;
        }
        let xid = waiting.xid_of(request);
        if self.send(xid, request) {
            waiting.add(Waiter {
                xid,
                opcode: request.opcode(),
                answer,
            });
        }
        receiver
    }

    /// False if the server has not read what was sent before, for so long that no more can be kept.
    fn send(&self, xid: i32, request: &Request) -> bool {
        self.has_sent.set(true);
        let Protocol { is_packed, xids } = self.protocol;
        let append = |out: &mut Output| {
            let append = |out: &mut Output| encode_request(out, xids.of(xid), request);
            match is_packed {
                true => put_packed(out, append),
                false => append(out),
            }
            Ok::<(), Infallible>(())
        };
        self.outbox.push(append).is_ok()
    }

    fn ping(&self) {
        self.waiting.borrow_mut().pings.push_back(None);
        self.send(xid::PING, &Request::Ping);
    }

    /// Everyone who waits gets the failure, and so does every later request.
    fn end(&self, failure: Failure) {
        self.outbox.close();
        let waiting = {
            let mut waiting = self.waiting.borrow_mut();
            let ended = Waiting {
                failure: Some(failure),
                ..Waiting::default()
            };
            std::mem::replace(&mut *waiting, ended)
        };
        let pings = waiting.pings.into_iter().flatten();
        for waiter in waiting
            .in_order
            .into_iter()
            .chain(waiting.auths)
            .chain(pings)
        {
            let _ = waiter.answer.send(Err(failure));
        }
    }

    fn receive(
        &self,
        frame: Bytes,
        events: &QueueSender<(i64, WatchEvent)>,
    ) -> Result<(), Failure> {
        let incoming = decode_incoming(frame, self.protocol.xids);
        match incoming.map_err(|_| Failure::Broken("a frame that cannot be read"))? {
            Incoming::Event(event) => {
                if events.len() >= EVENTS_MAX {
                    return Err(Failure::Broken("more events than anyone takes"));
                }
                let _ = events.send((self.last_zxid.get(), event)); // the client may be gone
                Ok(())
            }
            Incoming::Answer(header, body) => {
                let waiter = self.waiting.borrow_mut().take(number_of(header.xid)?)?;
                self.last_zxid.set(self.last_zxid.get().max(header.zxid));
                let Some(waiter) = waiter else { return Ok(()) };
                let answer = match header.error {
                    0 => decode_answer(waiter.opcode, body)
                        .map(|answer| (header.zxid, Ok(answer)))
                        .map_err(|_| Failure::Broken("an answer that cannot be read")),
                    error => Ok((header.zxid, Err(Code(error)))),
                };
                let broken = match answer {
                    Err(failure @ Failure::Broken(_)) => Err(failure),
                    _ => Ok(()),
                };
                let _ = waiter.answer.send(answer);
                broken
            }
        }
    }
}

/// The client's own numbers have four bytes.
fn number_of(xid: Xid) -> Result<i32, Failure> {
    i32::try_from(xid.number()).map_err(|_| Failure::Broken("an answer to no request"))
}

/// Carries what goes to and comes from the server, until the connection ends.
async fn carry(
    shared: Rc<Shared>,
    inbox: Inbox,
    writer: Writer,
    events: QueueSender<(i64, WatchEvent)>,
    tick: Duration,
) {
    let reading = read_all(&shared, inbox, &events);
    let writing = shared.outbox.drain(writer, || ());
    let ticking = keep_alive(&shared, tick);
    let failure = match race(reading, race(writing, ticking)).await {
        Either::Left(failure) => failure,
        Either::Right(_) => Failure::Lost,
    };
    shared.end(failure);
}

async fn read_all(
    shared: &Shared,
    mut inbox: Inbox,
    events: &QueueSender<(i64, WatchEvent)>,
) -> Failure {
    let mut plain = BytesMut::new();
    loop {
        if shared.protocol.is_packed {
            loop {
                match unpack(&mut inbox.buffer, &mut plain) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => return Failure::Broken("a block that cannot be read"),
                }
            }
        }
        let buffer = match shared.protocol.is_packed {
            true => &mut plain,
            false => &mut inbox.buffer,
        };
        match take_frame(buffer, ANSWER_BYTES_MAX) {
            Ok(Some(frame)) => {
                inbox.note(frame.len());
                if let Err(failure) = shared.receive(frame, events) {
                    return failure;
                }
            }
            Ok(None) => match inbox.read().await {
                Some(_) => shared.has_heard.set(true),
                None => return Failure::Lost,
            },
            Err(_) => return Failure::Broken("a frame of no possible length"),
        }
    }
}

/// Pings when there is no traffic. Ends when the server is silent.
async fn keep_alive(shared: &Shared, tick: Duration) {
    let (mut quiet_ticks, mut silent_ticks) = (0, 0);
    let count = |ticks: &mut u32, is_over: bool| *ticks = if is_over { 0 } else { *ticks + 1 };
    loop {
        sleep(tick).await;
        count(&mut silent_ticks, shared.has_heard.replace(false));
        if silent_ticks >= SILENT_TICKS_MAX {
            return;
        }
        count(&mut quiet_ticks, shared.has_sent.replace(false));
        if quiet_ticks >= QUIET_TICKS_MAX {
            shared.ping();
            quiet_ticks = 0;
            shared.has_sent.set(false);
        }
    }
}
