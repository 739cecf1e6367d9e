//! A worker's table of request handlers, and its connections to other workers.

use crate::Request;
use crate::accepted::{self, RemoteHandler, RemoteReply, Shared};
use crate::audit::Audit;
use crate::connection::Refused;
use crate::credentials::Credentials;
use crate::endpoint::{self, Endpoint};
use crate::frame::TooLarge;
use crate::peer::Peer;
use crate::place::Place;
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::hash::HashMap;
use plinth_core::{Error, Result, Uid};
use plinth_identity::Identity;
use plinth_identity::greeting::Refusal;
use plinth_runtime::gauge::Gauge;
use plinth_runtime::metric::latency::{Latencies, Latency};
use plinth_runtime::serve::{self, Connection};
use plinth_runtime::sync::{
    Notify, OneshotReceiver, OneshotSender, QueueReceiver, Watch, oneshot, queue,
};
use plinth_runtime::{Boxed, Duration, Instant, TaskGroup, net, trace, trace_warn};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

struct Handler {
    /// `Rc<dyn Fn(R, Responder<R>)>` in a box, for callers in the same worker.
    local: Box<dyn Any>,
    remote: RemoteHandler,
}

/// A peer that became unreachable longer ago than this may be back, so it is not reported any more.
const UNREACHABLE_FOR: Duration = Duration::from_secs(10);

/// Peers are not cleaned up below this number.
const PEERS_FEW: usize = 64;

pub(crate) struct Inner {
    address: Option<SocketAddr>,
    name: OnceCell<Place>,
    shared: Shared,
    handlers: RefCell<HashMap<u64, Handler>>,
    peers: RefCell<HashMap<Place, Rc<Peer>>>,
    latencies: Latencies,
    reachability: Rc<Notify>,
    denials: Watch<u64>,
    tasks: TaskGroup,
    /// Number of peers at which idle ones are removed.
    peers_max: Cell<usize>,
    _gauges: [Gauge; 3],
}

fn is_recently_unreachable(peer: &Rc<Peer>) -> bool {
    let since = peer.unreachable_since();
    since.is_some_and(|at| at.elapsed() < UNREACHABLE_FOR)
}

impl Inner {
    /// Calls that wait for their reply.
    fn calls(&self) -> usize {
        self.peers.borrow().values().map(|peer| peer.calls()).sum()
    }
    pub fn remote_handler(&self, token: u64) -> Option<RemoteHandler> {
        self.handlers
            .borrow()
            .get(&token)
            .map(|handler| handler.remote.clone())
    }
    fn peer(&self, place: &Place) -> Rc<Peer> {
        if let Some(peer) = self.peers.borrow().get(place) {
            return peer.clone();
        }
        self.forget_peers();
        let (reachability, denials) = (self.reachability.clone(), self.denials.clone());
        let peer = Peer::new(
            place.clone(),
            self.shared.credentials.clone(),
            reachability,
            denials,
        );
        self.peers.borrow_mut().insert(place.clone(), peer.clone());
        peer
    }

    /// Removes peers that are idle and not recently unreachable, when the list has grown enough.
    fn forget_peers(&self) {
        if self.peers.borrow().len() < self.peers_max.get() {
            return;
        }
        let is_gone = |peer: &Rc<Peer>| peer.is_idle() && !is_recently_unreachable(peer);
        let gone: Vec<Rc<Peer>> = {
            let mut peers = self.peers.borrow_mut();
            let gone = peers.extract_if(|_, peer| is_gone(peer));
            gone.map(|(_, peer)| peer).collect()
        };
        gone.iter().for_each(|peer| peer.hang_up());
        let left = self.peers.borrow().len();
        self.peers_max.set((left * 2).max(PEERS_FEW));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A peer's connection task may keep the peer alive. It must end here, or the connection outlives the
        // transport.
        for peer in self.peers.borrow().values() {
            peer.hang_up();
        }
    }
}

/// See [`Transport::watch`].
pub struct Watching(Option<Rc<Peer>>);

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(peer) = &self.0 {
            peer.watch(false);
        }
    }
}

/// The transport of a worker; each worker has one. Cloning gives another handle. When the last handle is dropped,
/// connections close and handlers are dropped.
#[derive(Clone)]
pub struct Transport {
    inner: Rc<Inner>,
}

impl Transport {
    /// A transport that only calls, without keys.
    pub fn client() -> Self {
        Self::client_with(Credentials::none())
    }

    /// A transport that only calls.
    pub fn client_with(credentials: Credentials) -> Self {
        Transport {
            inner: Self::inner(None, credentials),
        }
    }

    /// A transport that has `address` but does not listen: only roles in the same worker reach it.
    pub fn local(address: SocketAddr) -> Self {
        Transport {
            inner: Self::inner(Some(address), Credentials::none()),
        }
    }

    /// A transport that also listens at `address` (port 0: any free one), without keys: everybody is trusted.
    pub async fn listen(address: SocketAddr) -> std::io::Result<Self> {
        Self::listen_with(address, Credentials::none()).await
    }

    /// A transport that also listens at `address` (port 0: any free one).
    pub async fn listen_with(
        address: SocketAddr,
        credentials: Credentials,
    ) -> std::io::Result<Self> {
        Self::listen_as(address, None, credentials).await
    }

    /// The same, if others reach it at `public`: they name that address, and it is the one of this worker.
    pub fn listen_as(
        address: SocketAddr,
        public: Option<SocketAddr>,
        credentials: Credentials,
    ) -> Boxed<'static, std::io::Result<Self>> {
        Box::pin(async move {
            let listener = net::listen_as(address, public).await?;
            let own = public.map_or_else(|| listener.local_addr(), Ok)?;
            let inner = Self::inner(Some(own), credentials);
            let weak = Rc::downgrade(&inner);
            let start = move |connection| start(&weak, connection);
            inner.tasks.spawn("accept", serve::accept(listener, start));
            Ok(Transport { inner })
        })
    }

    fn inner(address: Option<SocketAddr>, credentials: Credentials) -> Rc<Inner> {
        let length = |inner: &Weak<Inner>, read: fn(&Inner) -> usize| {
            let inner = inner.clone();
            move || inner.upgrade().map_or(0, |inner| read(&inner))
        };
        Rc::new_cyclic(|inner| Inner {
            address,
            name: OnceCell::new(),
            shared: Shared {
                credentials,
                audit: Rc::new(Audit::new()),
                nobodies: Rc::default(),
            },
            handlers: RefCell::default(),
            peers: RefCell::default(),
            latencies: Latencies::default(),
            reachability: Rc::new(Notify::new()),
            denials: Watch::new(0),
            tasks: TaskGroup::new(),
            peers_max: Cell::new(PEERS_FEW),
            _gauges: [
                Gauge::new("rpc_peers", length(inner, |i| i.peers.borrow().len())),
                Gauge::new("rpc_calls", length(inner, Inner::calls)),
                Gauge::new("rpc_handlers", length(inner, |i| i.handlers.borrow().len())),
            ],
        })
    }

    /// Where others reach this worker; `None` for a client.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.address
    }

    /// Gives the worker a name of its own, once.
    pub fn set_name(&self, name: Place) {
        assert!(name.is_named(), "{name} is no name");
        let is_first = self.inner.name.set(name).is_ok();
        assert!(is_first, "a worker has one name");
    }

    /// The name by which others may know this worker.
    pub fn name(&self) -> Option<Place> {
        self.inner.name.get().cloned()
    }

    /// True if a place is this worker.
    pub fn is_at(&self, place: &Place) -> bool {
        match place {
            Place::At(address) => Some(*address) == self.inner.address,
            Place::Named(..) => self.inner.name.get() == Some(place),
        }
    }

    /// Serves `R` at role `id` with a function that may answer at once or keep the responder. It runs inside the
    /// reader of the connection, or inside a local caller. It must not block, and must not use anything that its local
    /// callers hold borrowed.
    #[must_use = "dropping the registration stops serving"]
    pub fn serve<R: Request>(
        &self,
        id: Uid,
        handler: impl Fn(R, Responder<R>) + 'static,
    ) -> Registration {
        let typed: Rc<dyn Fn(R, Responder<R>)> = Rc::new(handler);
        let (for_remote, latency) = (typed.clone(), self.inner.latencies.of(R::NAME));
        let work = Rc::new(move |payload, reply| {
            let responder = Responder::<R>(Some(if latency.ask() {
                let (latency, since) = (latency.clone(), plinth_runtime::now());
                Target::Timed(Box::new((reply, latency, since)))
            } else {
                Target::Remote(reply)
            }));
            match R::from_bytes(payload) {
                Some(request) => for_remote(request, responder),
                None => {
                    trace!("MalformedRequest", "request" => R::NAME);
                    responder.send(Err(Error::client_invalid_operation));
                }
            }
        });
        let token = endpoint::token::<R>(id);
        let handler = Handler {
            local: Box::new(typed),
            remote: RemoteHandler {
                name: R::NAME,
                audience: R::AUDIENCE,
                work,
            },
        };
        let previous = self.inner.handlers.borrow_mut().insert(token, handler);
        assert!(previous.is_none(), "two handlers for {} at {id:?}", R::NAME);
        Registration {
            transport: Rc::downgrade(&self.inner),
            token,
        }
    }

    /// True if others need a key for this worker.
    pub fn is_closed(&self) -> bool {
        self.inner.shared.credentials.stranger() < Identity::Server
    }

    /// True if `R` is served at role `id` by this worker.
    pub fn serves<R: Request>(&self, id: Uid) -> bool {
        let token = endpoint::token::<R>(id);
        self.inner.handlers.borrow().contains_key(&token)
    }

    /// Serves `R` at role `id` through a queue, for roles that process requests at their own pace.
    pub fn serve_queue<R: Request>(
        &self,
        id: Uid,
    ) -> (Registration, QueueReceiver<(R, Responder<R>)>) {
        let (sender, receiver) = queue();
        let registration = self.serve::<R>(id, move |request, responder| {
            let _ = sender.send((request, responder)); // fails if the role ends; the drop reports it
        });
        (registration, receiver)
    }

    /// Requests from other workers, by name of the request, with the time that the answers took.
    pub fn latencies(&self) -> Vec<(&'static str, Rc<Latency>)> {
        self.inner.latencies.all()
    }

    /// How many connections from others were refused for want of a good key or certificate.
    pub fn refused_connections(&self) -> u64 {
        self.inner.shared.audit.refused()
    }

    /// How many of the latest attempts to connect to `address` were refused, because no process listens there.
    pub fn refusals(&self, address: SocketAddr) -> u32 {
        let peers = self.inner.peers.borrow();
        peers
            .get(&Place::At(address))
            .map_or(0, |peer| peer.refusals())
    }

    /// Why the latest greeting at `place` has failed, as far as is known; `None` if it has not. Also what is no
    /// refusal is told: the connection was cut, or there was no answer.
    pub fn ungreeted(&self, place: &Place) -> Option<Refusal> {
        let peers = self.inner.peers.borrow();
        peers.get(place)?.ungreeted()
    }

    /// True if the name of `place` has not been resolved since it was looked up last.
    pub fn is_unresolved(&self, place: &Place) -> bool {
        let peers = self.inner.peers.borrow();
        peers.get(place).is_some_and(|peer| peer.is_unresolved())
    }

    /// True if the process at `place` lets us do nothing: it has refused our greeting, or the latest request that it
    /// has answered.
    pub fn is_denied(&self, place: &Place) -> bool {
        let peers = self.inner.peers.borrow();
        peers.get(place).is_some_and(|peer| peer.is_denied())
    }

    /// Changes whenever [`Transport::is_denied`] may have become true of a place.
    pub fn denials(&self) -> &Watch<u64> {
        &self.inner.denials
    }

    /// True if the peer was silent for longer than the limit, or a connect timed out, and it has not been heard since.
    pub fn is_unreachable(&self, place: &Place) -> bool {
        let peers = self.inner.peers.borrow();
        let peer = peers.get(place);
        peer.is_some_and(|peer| peer.unreachable_since().is_some())
    }

    /// Addresses of peers that became unreachable in the last 10 s, without even a refusal: the process is stopped, or
    /// the network to it is cut.
    pub fn unreachable(&self) -> Vec<SocketAddr> {
        let peers = self.inner.peers.borrow();
        let recent = peers
            .iter()
            .filter(|(_, peer)| is_recently_unreachable(peer));
        let mut list: Vec<SocketAddr> = recent.filter_map(|(_, peer)| peer.address()).collect();
        list.sort_unstable();
        list.dedup();
        list
    }

    /// Returns when the result of [`Transport::unreachable`] may have changed.
    pub async fn reachability_changed(&self) {
        self.inner.reachability.notified().await;
    }

    /// Watches the process at `address`. While the result is held, the process is pinged often enough to detect within
    /// `failure_detection_ms` that it is gone.
    pub fn watch(&self, address: SocketAddr) -> Watching {
        let is_other = Some(address) != self.inner.address;
        let peer = is_other.then(|| self.inner.peer(&address.into()));
        if let Some(peer) = &peer {
            peer.watch(true);
        }
        Watching(peer)
    }

    /// Sends `request` now; the returned future gives the reply. It fails with [`Error::serialization_failed`] if the
    /// request or the reply is longer than a frame.
    pub fn call<R: Request>(&self, endpoint: &Endpoint, request: R) -> Call<R> {
        if Some(endpoint.address) == self.inner.address {
            return Call(self.call_local(endpoint.token, request));
        }
        Call(self.call_remote(&endpoint.address.into(), endpoint.token, request))
    }

    /// The same, at role `id` of the process at `place`. The role must be one that only the process with this name
    /// serves: another one may be found at a name's former address.
    pub fn call_at<R: Request>(&self, place: &Place, id: Uid, request: R) -> Call<R> {
        let token = endpoint::token::<R>(id);
        match place {
            Place::At(address) => {
                let address = *address;
                self.call(&Endpoint { address, token }, request)
            }
            Place::Named(..) if self.inner.name.get() == Some(place) => {
                Call(self.call_local(token, request))
            }
            Place::Named(..) => Call(self.call_remote(place, token, request)),
        }
    }

    fn call_remote<R: Request>(&self, place: &Place, token: u64, request: R) -> Waiting<R> {
        let peer = self.inner.peer(place);
        match peer.send(token, &|out| request.put(out)) {
            Ok((id, receiver)) => Waiting::Remote { peer, id, receiver },
            Err(Refused::Message(TooLarge { bytes })) => {
                trace_warn!("RequestTooLarge", "request" => R::NAME, "bytes" => bytes);
                Waiting::Failed(Error::serialization_failed)
            }
            // The request was certainly not sent.
            Err(Refused::Full) => Waiting::Failed(Error::connection_failed),
        }
    }

    fn call_local<R: Request>(&self, token: u64, request: R) -> Waiting<R> {
        let handler = self.inner.handlers.borrow().get(&token).map(|handler| {
            let typed = handler.local.downcast_ref::<Rc<dyn Fn(R, Responder<R>)>>();
            typed.expect("the token names the request type").clone()
        });
        let Some(handler) = handler else {
            return Waiting::Failed(Error::broken_promise);
        };
        let (sender, receiver) = oneshot();
        handler(request, Responder(Some(Target::Local(sender))));
        Waiting::Local(receiver)
    }
}

/// Serves an accepted connection as long as the transport lives.
fn start(transport: &Weak<Inner>, connection: Connection) -> ControlFlow<()> {
    let Some(inner) = transport.upgrade() else {
        return ControlFlow::Break(());
    };
    let transport = transport.clone();
    let lookup = move |token| Some(transport.upgrade()?.remote_handler(token));
    let shared = inner.shared.clone();
    let serving = accepted::serve(connection, inner.address, shared, Box::new(lookup));
    inner.tasks.spawn("connection", serving);
    ControlFlow::Continue(())
}

/// Keeps a handler registered until dropped.
pub struct Registration {
    transport: Weak<Inner>,
    token: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(transport) = self.transport.upgrade() {
            let handler = transport.handlers.borrow_mut().remove(&self.token);
            drop(handler); // outside the borrow: the handler may own responders and other registrations
        }
    }
}

enum Target<R: Request> {
    Local(OneshotSender<Result<R::Reply>>),
    Remote(RemoteReply),
    /// A remote request whose answer is timed.
    Timed(Box<(RemoteReply, Rc<Latency>, Instant)>),
}

/// The obligation to answer one request. Dropped unanswered, it answers [`Error::broken_promise`].
pub struct Responder<R: Request>(Option<Target<R>>);

impl<R: Request> Responder<R> {
    pub fn send(mut self, result: Result<R::Reply>) {
        match self.0.take().expect("answered once") {
            Target::Local(sender) => {
                let _ = sender.send(result); // the caller may have stopped waiting
            }
            Target::Remote(reply) => answer::<R>(reply, result),
            Target::Timed(timed) => {
                let (reply, latency, since) = *timed;
                latency.answered(since);
                answer::<R>(reply, result);
            }
        }
    }
    pub fn ok(self, reply: R::Reply) {
        self.send(Ok(reply));
    }
    pub fn fail(self, error: Error) {
        self.send(Err(error));
    }

    /// Who asks. A caller in the same worker is a server, and where there are no keys everybody is.
    pub fn caller(&self) -> Identity {
        match self.0.as_ref().expect("not answered yet") {
            Target::Local(_) => Identity::Server,
            Target::Remote(reply) => reply.caller,
            Target::Timed(timed) => timed.0.caller,
        }
    }

    /// Where the caller's connection comes from; `None` if it is in the same worker.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self.0.as_ref().expect("not answered yet") {
            Target::Local(_) => None,
            Target::Remote(reply) => Some(reply.peer()),
            Target::Timed(timed) => Some(timed.0.peer()),
        }
    }

    /// Puts on record what an operator asks for. What servers and clients ask for is not on record.
    pub fn record(&self, what: impl Display) {
        let reply = match self.0.as_ref().expect("not answered yet") {
            Target::Local(_) => return,
            Target::Remote(reply) => reply,
            Target::Timed(timed) => &timed.0,
        };
        reply.record(R::NAME, &what);
    }

    /// Refuses, because of what it asks for, a request of a kind that the caller may send. It is told like a request
    /// of another kind; `why` says what the caller lacks.
    pub fn deny(mut self, why: &str) {
        match self.0.take().expect("answered once") {
            Target::Local(sender) => drop(sender.send(Err(Error::permission_denied))),
            Target::Remote(reply) => reply.deny(R::NAME, why),
            Target::Timed(timed) => timed.0.deny(R::NAME, why),
        }
    }

    /// Calls `gone` when the caller gives up or loses its connection before the answer; false if that has happened
    /// already. `gone` may be called from within anything that drops a [`Call`]: it must borrow nothing but the list
    /// in which the responder waits.
    #[must_use = "nobody waits for an answer if it is false"]
    pub fn on_gone(&mut self, gone: impl FnOnce() + 'static) -> bool {
        match self.0.as_mut().expect("not answered yet") {
            Target::Local(sender) => sender.on_close(gone),
            Target::Remote(reply) => reply.on_gone(Box::new(gone)),
            Target::Timed(timed) => timed.0.on_gone(Box::new(gone)),
        }
    }

    /// Ends the request without an answer, because its caller has gone.
    pub fn abandon(mut self) {
        match self.0.take() {
            Some(Target::Remote(mut reply)) => reply.unwatch(),
            Some(Target::Timed(mut timed)) => timed.0.unwatch(),
            Some(Target::Local(_)) | None => {}
        }
    }
}

impl<R: Request> Drop for Responder<R> {
    fn drop(&mut self) {
        if let Some(target) = self.0.take() {
            match target {
                Target::Local(sender) => drop(sender.send(Err(Error::broken_promise))),
                Target::Remote(reply) => reply.send(R::NAME, Err(Error::broken_promise)),
                Target::Timed(timed) => timed.0.send(R::NAME, Err(Error::broken_promise)),
            }
        }
    }
}

fn answer<R: Request>(reply: RemoteReply, result: Result<R::Reply>) {
    match result {
        Ok(message) => reply.send(R::NAME, Ok(&|out| message.put(out))),
        Err(error) => reply.send(R::NAME, Err(error)),
    }
}

enum Waiting<R: Request> {
    Local(OneshotReceiver<Result<R::Reply>>),
    Remote {
        peer: Rc<Peer>,
        id: u64,
        receiver: OneshotReceiver<Result<Bytes>>,
    },
    Failed(Error),
}

/// A request in progress. Dropping it abandons the reply. The request itself is cancelled only if it waits in
/// [`Waiters`](crate::Waiters).
pub struct Call<R: Request>(Waiting<R>);

impl<R: Request> Unpin for Call<R> {}

impl<R: Request> Future for Call<R> {
    type Output = Result<R::Reply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Waiting::Failed(error) => Poll::Ready(Err(*error)),
            Waiting::Local(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|r| r.unwrap_or(Err(Error::broken_promise))),
            Waiting::Remote { receiver, .. } => Pin::new(receiver).poll(context).map(|received| {
                let body = received.unwrap_or(Err(Error::request_maybe_delivered))?;
                R::Reply::from_bytes(body).ok_or(Error::request_maybe_delivered)
            }),
        }
    }
}

impl<R: Request> Drop for Call<R> {
    fn drop(&mut self) {
        if let Waiting::Remote { peer, id, .. } = &self.0 {
            peer.forget(*id);
        }
    }
}
