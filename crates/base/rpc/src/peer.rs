//! The calling side of a connection: connects on demand, matches replies to calls, pings, reconnects.

use crate::certified::{self, Failure, Opened};
use crate::connection::{self, Refused, Sending};
use crate::credentials::{self, Credentials};
use crate::frame::{self, Check};
use crate::knobs::{
    CONNECT_TIMEOUT_MS, FAILURE_DETECTION_MS, RPC_PING_INTERVAL_MS, RPC_PING_TIMEOUT_MS,
};
use crate::place::Place;
use crate::seals::Checks;
use crate::silence::{Pulse, Silence};
use bytes::Bytes;
use plinth_core::hash::HashMap;
use plinth_core::output::Output;
use plinth_core::{Error, Result};
use plinth_identity::greeting::{Outcome, Refusal};
use plinth_identity::seal::{Checker, Sealer};
use plinth_runtime::serve::Inbox;
use plinth_runtime::sync::{Notify, OneshotReceiver, OneshotSender, Watch, oneshot};
use plinth_runtime::{Backoff, Duration, Instant, Task, net, planted, probe, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;

/// Before a connection attempt that follows another one.
const RECONNECT: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// A resolver asks one name server after the other, for seconds each.
const RESOLVE_LIMIT: Duration = Duration::from_secs(20);

/// Connections in a row that are cut in the TLS handshake, after which the other side counts as one that does not
/// speak TLS. A process that is being stopped cuts those in its backlog, and the next attempt finds nobody.
const CUTS_TOLD: u32 = 10;

/// Pings to a watched peer within its limit of silence. One or two of them may be lost or late.
const PINGS_A_LIMIT: u32 = 5;

pub(crate) struct Peer {
    place: Place,
    /// Where the latest connection was sought; `None` if the name was never resolved.
    address: Cell<Option<SocketAddr>>,
    /// The name has not been resolved since it was looked up last.
    is_unresolved: Cell<bool>,
    /// Counts connections that were of no use: a name may have several addresses, which take turns.
    turns: Cell<usize>,
    /// The process at the other end of the connection does not serve what is asked of this name.
    is_mistaken: Cell<bool>,
    credentials: Credentials,
    sending: RefCell<Rc<Sending>>,
    pending: RefCell<HashMap<u64, OneshotSender<Result<Bytes>>>>,
    next_id: Cell<u64>,
    connected: Cell<bool>,
    /// Wakes the connection task when there is something to do.
    wanted: Notify,
    task: RefCell<Option<Task<()>>>,
    last_heard: Cell<Instant>,
    /// Number of watchers, which want to learn soon that the peer is gone.
    watchers: Cell<usize>,
    /// Since when the peer is unreachable: it was silent for too long, or a connect timed out without a refusal.
    /// `None` again when the peer is heard.
    unreachable_since: Cell<Option<Instant>>,
    /// Notified when `unreachable_since` is set or cleared.
    reachability: Rc<Notify>,
    /// Connection attempts in a row that were refused: the machine is up, but no process listens.
    refusals: Cell<u32>,
    /// Why the latest greeting was refused. `None` if it was not.
    ungreeted: RefCell<Option<Refusal>>,
    /// Why the latest greeting has no answer, if it has none: a hint for people, not an answer of the other side.
    unanswered: RefCell<Option<Refusal>>,
    /// Connections in a row that were cut in the TLS handshake.
    cuts: Cell<u32>,
    /// The latest answer is that we may not ask.
    is_denied: Cell<bool>,
    /// Counts such answers, and failed greetings, of all peers of the transport.
    denials: Watch<u64>,
}

impl Peer {
    pub fn new(
        place: Place,
        credentials: Credentials,
        reachability: Rc<Notify>,
        denials: Watch<u64>,
    ) -> Rc<Self> {
        let peer = Rc::new(Peer {
            address: Cell::new(place.address()),
            place,
            is_unresolved: Cell::new(false),
            turns: Cell::new(0),
            is_mistaken: Cell::new(false),
            credentials,
            sending: RefCell::new(Rc::new(Sending::new())),
            pending: RefCell::default(),
            next_id: Cell::new(1),
            connected: Cell::new(false),
            wanted: Notify::new(),
            task: RefCell::new(None),
            last_heard: Cell::new(plinth_runtime::now()),
            watchers: Cell::new(0),
            unreachable_since: Cell::new(None),
            reachability,
            refusals: Cell::new(0),
            ungreeted: RefCell::default(),
            unanswered: RefCell::default(),
            cuts: Cell::new(0),
            is_denied: Cell::new(false),
            denials,
        });
        let weak = Rc::downgrade(&peer);
        let task = plinth_runtime::spawn("peer", async move {
            let (mut pause, mut backoff) = (Duration::ZERO, RECONNECT);
            while let Some(peer) = weak.upgrade() {
                if peer.live_once(pause).await {
                    backoff.reset();
                }
                pause = backoff.next_wait();
            }
        });
        *peer.task.borrow_mut() = Some(task);
        peer
    }

    /// Sends a request. The receiver gets the reply, or an error when no reply can come any more. A refused request is
    /// not sent. `encode` is a pointer, so that this function is compiled once and not for each kind of request.
    pub fn send(
        &self,
        token: u64,
        encode: &dyn Fn(&mut Output),
    ) -> std::result::Result<(u64, OneshotReceiver<Result<Bytes>>), Refused> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        self.sending
            .borrow()
            .push(|check, out| frame::encode_as(check, out, token, id, encode))?;
        let (sender, receiver) = oneshot();
        self.pending.borrow_mut().insert(id, sender);
        self.wanted.notify_one();
        Ok((id, receiver))
    }

    /// A frame without a payload, which is never refused.
    fn push_short(&self, token: u64, id: u64) {
        let short =
            |check: Check, out: &mut Output| frame::encode_as(check, out, token, id, |_| ());
        let _ = self.sending.borrow().push(short);
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    pub fn is_unresolved(&self) -> bool {
        self.is_unresolved.get()
    }

    /// Why the latest greeting has failed, as far as is known.
    pub fn ungreeted(&self) -> Option<Refusal> {
        let refusal = self.ungreeted.borrow().clone();
        refusal.or_else(|| self.unanswered.borrow().clone())
    }

    /// The process there lets us do nothing, as far as is known: we have no key of it, or too low a one.
    pub fn is_denied(&self) -> bool {
        self.is_denied.get() || self.ungreeted.borrow().is_some()
    }

    fn note_denied(&self, is_denied: bool) {
        self.is_denied.set(is_denied);
        if is_denied {
            self.denials.set(self.denials.get() + 1);
        }
    }

    /// Calls that wait for their reply.
    pub fn calls(&self) -> usize {
        self.pending.borrow().len()
    }

    /// True if the peer is not connected, has no calls and no watchers, and is referenced only by the list of peers
    /// and its own task.
    pub fn is_idle(self: &Rc<Self>) -> bool {
        let is_needed = self.connected.get() || self.watchers.get() > 0 || self.calls() > 0;
        !is_needed && Rc::strong_count(self) <= 2
    }

    /// How many of the latest attempts to connect were refused.
    pub fn refusals(&self) -> u32 {
        self.refusals.get()
    }

    pub fn unreachable_since(&self) -> Option<Instant> {
        self.unreachable_since.get()
    }

    fn set_reachable(&self, reachable: bool) {
        if self.unreachable_since.get().is_some() == reachable {
            let since = (!reachable).then(plinth_runtime::now);
            self.unreachable_since.set(since);
            self.reachability.notify_one();
        }
    }

    /// One watcher more, or one less.
    pub fn watch(&self, more: bool) {
        let now = self.watchers.get();
        self.watchers.set(if more { now + 1 } else { now - 1 });
    }

    /// Closes the connection for good.
    pub fn hang_up(&self) {
        drop(self.task.borrow_mut().take());
    }

    /// Drops a call that its caller has given up. Tells the peer, so that the request, if it waits there, gives up its
    /// place.
    pub fn forget(&self, id: u64) {
        let forgotten = self.pending.borrow_mut().remove(&id);
        if forgotten.is_some() {
            self.push_short(frame::GIVE_UP, id); // the end of the connection has the same effect
        }
    }

    /// One life of the connection: wait until wanted, connect, talk until it breaks. False if it came to nothing.
    async fn live_once(&self, pause: Duration) -> bool {
        while self.pending.borrow().is_empty() {
            self.wanted.notified().await;
        }
        plinth_runtime::sleep(pause).await;
        match self.connect().await {
            Some(Ok((address, halves))) => {
                self.refusals.set(0);
                self.connected.set(true);
                self.last_heard.set(plinth_runtime::now());
                match self.greet(address, halves).await {
                    Some(Ok((inbox, writer, checks))) => {
                        self.forget_failures();
                        self.talk(address, inbox, writer, checks).await;
                        let is_mistaken = self.is_mistaken.take();
                        if is_mistaken {
                            self.turns.set(self.turns.get() + 1);
                        }
                        self.fail(Error::request_maybe_delivered);
                        return !is_mistaken;
                    }
                    refused => {
                        self.turns.set(self.turns.get() + 1);
                        if let Some(Err(failure)) = refused {
                            self.note_ungreeted(failure);
                        }
                        self.fail(Error::connection_failed);
                    }
                }
            }
            failed => {
                let refused =
                    matches!(&failed, Some(Err(e)) if e.kind() == ErrorKind::ConnectionRefused);
                self.refusals
                    .set(if refused { self.refusals.get() + 1 } else { 0 });
                // Nobody knows which process it is that does not answer, while its name is not resolved.
                if failed.is_none() && !self.is_unresolved.get() {
                    self.set_reachable(false);
                }
                self.turns.set(self.turns.get() + 1);
                self.forget_failures(); // another process may come
                self.fail(Error::connection_failed);
            }
        }
        false
    }

    /// Connects to the address, or to one of those that the name has now. `None` if there is no answer in time.
    async fn connect(&self) -> Option<io::Result<(SocketAddr, (net::Reader, net::Writer))>> {
        let found = match &self.place {
            Place::At(address) => Ok(*address),
            Place::Named(host, port) => {
                plinth_runtime::timeout(RESOLVE_LIMIT, self.resolve(host, *port)).await?
            }
        };
        let address = match found {
            Ok(address) => address,
            Err(error) => return Some(Err(error)),
        };
        let limit = Duration::from_millis(CONNECT_TIMEOUT_MS.get());
        let connected = plinth_runtime::timeout(limit, net::connect(address)).await?;
        Some(connected.map(|halves| (address, halves)))
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<SocketAddr> {
        let before = self.address.get();
        if let Some(before) = before
            && planted!(
                "name_is_resolved_once",
                "a process whose name stands for another address by now is sought at the former one"
            )
        {
            return Ok(before);
        }
        self.is_unresolved.set(true);
        let found = net::resolve(host, port).await?;
        self.is_unresolved.set(false);
        let address = found[self.turns.get() % found.len()];
        if before != Some(address) {
            trace!("NameResolved", "name" => self.place, "address" => address);
            self.address.set(Some(address));
        }
        if before.is_some_and(|before| before != address) {
            probe!("rpc_name_has_another_address");
        }
        Ok(address)
    }

    /// Greets on a new connection. Returns its halves and what checks the seals of what comes, if there are seals;
    /// `None` if the connection breaks. Requests that were sent meanwhile are sealed, too.
    async fn greet(
        &self,
        address: SocketAddr,
        halves: (net::Reader, net::Writer),
    ) -> Option<std::result::Result<(Inbox, net::Writer, Option<Checks>), Failure>> {
        let limit = Duration::from_millis(CONNECT_TIMEOUT_MS.get());
        let opened = certified::open(halves, address, &self.credentials, limit).await;
        let Opened {
            reader,
            mut writer,
            opener,
            verdict,
        } = match opened {
            Ok(opened) => opened,
            Err(failure) => return Some(Err(failure)),
        };
        let mut inbox = Inbox::new(reader);
        let hello = credentials::hello(opener.as_ref());
        let said = writer.write_all(hello).await;
        // Whoever refuses our certificate may have ended the connection already. It has said why.
        if said.is_err() && verdict.is_none() {
            return None;
        }
        let Some(opener) = opener else {
            return Some(Ok((inbox, writer, None)));
        };
        let answer = plinth_runtime::timeout(limit, connection::next_frame(&mut inbox)).await?;
        let Some(answer) = answer else {
            return verdict.map(|verdict| Err(Failure::of(&verdict)));
        };
        self.last_heard.set(plinth_runtime::now());
        if answer.token != frame::HELLO {
            return Some(Err(Refusal::Malformed.into()));
        }
        let (proof, Outcome { session, .. }) = match opener.answered(&answer.payload) {
            Ok(settled) => settled,
            Err(refusal) => return Some(Err(refusal.into())),
        };
        if let Some(proof) = proof {
            writer.write_all(credentials::said(&proof)).await.ok()?;
        }
        let checks = session.map(|session| {
            let sending = self.sending.borrow();
            sending.seal_with(Sealer::new(session.send));
            Checks::new(Checker::new(session.receive))
        });
        Some(Ok((inbox, writer, checks)))
    }

    fn note_ungreeted(&self, failure: Failure) {
        let is_cut = matches!(failure, Failure::Cut);
        self.cuts.set(if is_cut { self.cuts.get() + 1 } else { 0 });
        let is_refusal = matches!(failure, Failure::Refused(_)) || self.cuts.get() >= CUTS_TOLD;
        let why = failure.why();
        if self.ungreeted().as_ref() != Some(&why) {
            trace_warn!("GreetingFailed", "peer" => self.place, "why" => why);
        }
        if is_refusal {
            self.ungreeted.replace(Some(why));
            self.denials.set(self.denials.get() + 1);
        } else {
            self.unanswered.replace(Some(why));
        }
    }

    fn forget_failures(&self) {
        self.ungreeted.replace(None);
        self.unanswered.replace(None);
        self.cuts.set(0);
    }

    async fn talk(
        &self,
        address: SocketAddr,
        inbox: Inbox,
        writer: net::Writer,
        checks: Option<Checks>,
    ) {
        let (sending, checks) = (self.sending.borrow().clone(), RefCell::new(checks));
        // A large frame on its way is as good as an answered ping.
        let heard = || self.last_heard.set(plinth_runtime::now());
        let on_frame = |frame| self.on_frame(frame);
        let reading = connection::read_frames(inbox, &checks, address, heard, on_frame);
        let writing = sending.drain(writer, heard);
        plinth_runtime::race(
            plinth_runtime::race(reading, writing),
            self.watch_silence(address),
        )
        .await;
    }

    /// Delivers a reply and returns its size in bytes; `None` if the frame is not a reply.
    fn on_frame(&self, frame: frame::Frame) -> Option<usize> {
        self.set_reachable(true);
        if frame.token != frame::REPLY {
            return None;
        }
        let bytes = frame.payload.len();
        let reply = frame::split_reply(frame.payload)?;
        let is_mistaken = self.place.is_named() && matches!(reply, Err(Error::broken_promise));
        let is_denied = matches!(reply, Err(Error::permission_denied));
        if is_denied || self.is_denied.get() {
            self.note_denied(is_denied);
        }
        let waiting = self.pending.borrow_mut().remove(&frame.request_id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply); // fails if the caller has gone; the reply is not needed then
        }
        if is_mistaken {
            probe!("rpc_name_of_another_process");
            self.is_mistaken.set(true);
            return None; // the name is resolved anew
        }
        Some(bytes)
    }

    /// How often to ping, and for how long a peer may be silent.
    fn patience(&self) -> (Duration, Duration) {
        if self.watchers.get() > 0 {
            let limit = Duration::from_millis(FAILURE_DETECTION_MS.get());
            return (limit / PINGS_A_LIMIT, limit);
        }
        let interval = Duration::from_millis(RPC_PING_INTERVAL_MS.get());
        let limit = Duration::from_millis(RPC_PING_TIMEOUT_MS.get());
        (interval, limit.max(interval * 2))
    }

    /// Returns when the peer owes an answer, has been silent for too long, pings included, and does not answer past
    /// its loop that it is busy.
    async fn watch_silence(&self, address: SocketAddr) {
        let mut silence = Silence::default();
        let mut pulse = Pulse::new(address);
        let mut patience = self.patience();
        // The first ping since the peer was heard.
        let mut asked: Option<Instant> = None;
        loop {
            let before = std::mem::replace(&mut patience, self.patience());
            if patience != before {
                let unanswered = asked.map_or(Duration::ZERO, |at| at.elapsed());
                silence.limit_to(unanswered);
            }
            let (interval, limit) = patience;
            let slept = plinth_runtime::now();
            plinth_runtime::sleep(interval).await;
            if self.pending.borrow().is_empty() {
                silence = Silence::default();
                continue;
            }
            let heard = self.last_heard.get();
            let silent = silence.goes_on(slept, plinth_runtime::now(), heard, interval);
            if silent >= limit && !pulse.is_busy(silent, limit) {
                probe!("rpc_ping_timeout");
                self.set_reachable(false);
                return;
            }
            if silent >= limit / 2 {
                pulse.ask(limit);
            } else {
                pulse.was_heard();
            }
            asked = asked.filter(|at| *at > heard);
            if heard.elapsed() >= interval {
                asked.get_or_insert_with(plinth_runtime::now);
                let id = self.next_id.get();
                self.next_id.set(id + 1);
                self.push_short(frame::PING, id);
            }
        }
    }

    /// Ends this life of the connection: every pending call fails, and the next life starts with an empty outbox.
    fn fail(&self, error: Error) {
        self.connected.set(false);
        self.sending.replace(Rc::new(Sending::new())).outbox.close();
        let mut pending: Vec<_> = self.pending.borrow_mut().drain().collect();
        pending.sort_by_key(|(id, _)| *id);
        for (_, waiting) in pending {
            let _ = waiting.send(Err(error)); // fails if the caller has gone; it needs no error
        }
    }
}
