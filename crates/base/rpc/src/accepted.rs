//! The server side of a connection that was accepted.

use crate::audit::Audit;
use crate::certified::{self, Entered};
use crate::connection::{self, Refused, Sending};
use crate::credentials::{self, Credentials};
use crate::frame::{self, Check, Frame, TooLarge};
use crate::nobodies::{Nobodies, Standing};
use crate::seals::Checks;
use bytes::{Buf, Bytes};
use plinth_core::Error;
use plinth_core::output::Output;
use plinth_identity::greeting::{Acceptor, Answered, Next, Outcome, Refusal};
use plinth_identity::seal::{Checker, Sealer};
use plinth_identity::{Audience, Identity};
use plinth_runtime::serve::{Connection, until_over};
use plinth_runtime::{Duration, planted, probe, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::rc::Rc;

/// A connection whose greeting does not arrive within this time is closed.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Requests of one connection that may be under way, long polls and watches included.
const REQUESTS_MAX: usize = 1 << 18;
/// A nobody is heard until so many of its requests were refused.
const NOBODY_REFUSED_MAX: usize = 100;

type Gone = Box<dyn FnOnce()>;

/// A handler of requests from other workers.
#[derive(Clone)]
pub(crate) struct RemoteHandler {
    pub name: &'static str,
    pub audience: Audience,
    pub work: Rc<dyn Fn(Bytes, RemoteReply)>,
}

/// Replies on their way to one caller.
struct Replies {
    sending: Sending,
    peer: SocketAddr,
    audit: Rc<Audit>,
    /// Callbacks of requests that wait for an event, to run when the caller goes. By request id.
    waiting: RefCell<BTreeMap<u64, Gone>>,
}

impl Replies {
    /// Calls `gone` when the caller gives up request `id` or the connection ends; false if it has ended already.
    fn on_gone(&self, id: u64, gone: Gone) -> bool {
        if self.sending.outbox.is_closed() {
            return false;
        }
        self.gave_up(id); // if two requests have one id, only the later one can be answered
        self.waiting.borrow_mut().insert(id, gone);
        true
    }
    fn answered(&self, id: u64) {
        let gone = self.waiting.borrow_mut().remove(&id);
        drop(gone);
    }
    fn gave_up(&self, id: u64) {
        let gone = self.waiting.borrow_mut().remove(&id);
        if let Some(gone) = gone {
            gone();
        }
    }
    /// The connection has ended, and with it every call on it.
    fn all_gave_up(&self) {
        let waiting = self.waiting.take();
        waiting.into_values().for_each(|gone| gone());
    }
}

/// The destination of the reply to a remote request.
pub(crate) struct RemoteReply {
    replies: Rc<Replies>,
    request_id: u64,
    /// A callback is registered for the case that the caller goes first.
    is_watched: bool,
    /// What the caller is to us.
    pub caller: Identity,
}

impl RemoteReply {
    /// Calls `gone` if the caller goes before the answer; false if it has gone already.
    pub fn on_gone(&mut self, gone: Gone) -> bool {
        self.is_watched = self.replies.on_gone(self.request_id, gone);
        self.is_watched
    }

    /// Removes the callback.
    pub fn unwatch(&mut self) {
        if std::mem::take(&mut self.is_watched) {
            self.replies.answered(self.request_id);
        }
    }

    /// Answers the request named `request`. An answer that cannot be sent becomes an error.
    pub fn send(mut self, request: &str, result: Result<&dyn Fn(&mut Output), Error>) {
        self.unwatch();
        let id = self.request_id;
        let sent = match result {
            Ok(body) => self
                .replies
                .sending
                .push(|check, out| frame::encode_reply(check, out, id, Ok(()), |out| body(out))),
            Err(error) => return self.fail(error),
        };
        match sent {
            Ok(()) => {}
            Err(Refused::Message(TooLarge { bytes })) => {
                trace_warn!("ReplyTooLarge", "request" => request, "bytes" => bytes);
                self.fail(Error::serialization_failed);
            }
            Err(Refused::Full) => self.fail(Error::server_overloaded),
        }
    }

    /// Puts on record what an operator asks for.
    pub fn peer(&self) -> SocketAddr {
        self.replies.peer
    }

    pub fn record(&self, request: &str, what: &dyn Display) {
        if self.caller == Identity::Operator {
            self.replies.audit.asked(self.replies.peer, request, what);
        }
    }

    /// Refuses the request named `request`, and tells why.
    pub fn deny(self, request: &str, why: &str) {
        let Replies { audit, peer, .. } = &*self.replies;
        audit.request_denied(*peer, self.caller, request, why);
        self.send(request, Err(Error::permission_denied));
    }

    fn fail(&self, error: Error) {
        let id = self.request_id;
        let short = |check: Check, out: &mut Output| {
            frame::encode_reply(check, out, id, Err(error), |_| ())
        };
        let _ = self.replies.sending.push(short); // never too large: an error reply has a few bytes
    }
}

/// The handler of a token, if anything is served there; `None` in place of the lookup's result when the transport is
/// gone.
pub(crate) type Lookup = dyn Fn(u64) -> Option<Option<RemoteHandler>>;

/// How far the greeting of a connection is.
enum Stage {
    Hello,
    Proof(Box<Acceptor>),
    /// The other side is this to us.
    Open(Identity),
    /// The connection ends when the answer is written.
    Refused,
}

/// What all connections of a worker share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub credentials: Credentials,
    pub audit: Rc<Audit>,
    pub nobodies: Rc<Nobodies>,
}

/// One accepted connection.
struct Accepted {
    peer: SocketAddr,
    /// Where others reach this worker.
    own: Option<SocketAddr>,
    credentials: Credentials,
    /// What the other side is to us by its certificate.
    certified: Option<Identity>,
    replies: Rc<Replies>,
    checks: RefCell<Option<Checks>>,
    has_greeted: Cell<bool>,
    standing: Rc<Standing>,
    /// Requests of a nobody that were refused.
    refused: Cell<usize>,
}

/// Serves one accepted connection until it ends. `own`: where others reach this worker.
pub(crate) async fn serve(
    connection: Connection,
    own: Option<SocketAddr>,
    shared: Shared,
    lookup: Box<Lookup>,
) {
    let Connection {
        reader,
        writer,
        peer,
        slot,
    } = connection;
    let sending = Sending::new();
    let outbox = sending.outbox.clone();
    let standing = shared.nobodies.add(outbox.clone());
    let judges = (&shared.credentials, &*shared.audit);
    let entering = certified::enter((reader, writer), peer, judges, &outbox, GREETING_LIMIT);
    let Some(Entered {
        inbox,
        writer,
        certified,
    }) = entering.await
    else {
        return;
    };
    let accepted = Accepted {
        peer,
        own,
        credentials: shared.credentials,
        certified,
        replies: Rc::new(Replies {
            sending,
            peer,
            audit: shared.audit,
            waiting: RefCell::default(),
        }),
        checks: RefCell::default(),
        has_greeted: Cell::new(false),
        standing,
        refused: Cell::new(0),
    };
    let writing = accepted.replies.sending.drain(writer, || ());
    let mut stage = Stage::Hello;
    let on_frame = |frame: Frame| {
        let Stage::Open(identity) = stage else {
            stage = accepted.greet(std::mem::replace(&mut stage, Stage::Refused), &frame)?;
            return Some(frame.payload.len());
        };
        if outbox.is_closed() {
            return None;
        }
        let (asked, before) = (frame.payload.len(), outbox.len());
        accepted.take(lookup(frame.token)?, identity, frame);
        if accepted.refused.get() >= NOBODY_REFUSED_MAX && identity == Identity::Nobody {
            outbox.close();
            stage = Stage::Refused; // it hears its answers first
        }
        Some(asked + outbox.len().saturating_sub(before))
    };
    let reading = connection::read_frames(inbox, &accepted.checks, peer, || (), on_frame);
    let _ends = Ends(accepted.replies.clone());
    until_over(reading, writing, &accepted.has_greeted, GREETING_LIMIT).await;
    drop(slot);
}

/// Runs however the connection ends, so that requests that wait for their caller do not wait for ever.
struct Ends(Rc<Replies>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.sending.outbox.close();
        self.0.all_gave_up();
    }
}

/// The greeting in the first frame of a connection.
fn hello_of(frame: &Frame) -> Option<Bytes> {
    let mut payload = frame.payload.clone();
    let version = payload.try_get_u64_le().ok()?;
    (frame.token == frame::HELLO && version == frame::PROTOCOL_VERSION).then_some(payload)
}

impl Accepted {
    /// Takes a frame of the greeting. `None` if the connection ends at once.
    fn greet(&self, stage: Stage, frame: &Frame) -> Option<Stage> {
        match stage {
            Stage::Hello => {
                let Some(hello) = hello_of(frame) else {
                    let why = "not a Plinth client of this protocol version";
                    trace!("ConnectionRefused", "peer" => self.peer, "reason" => why);
                    return None;
                };
                if hello.is_empty() {
                    return Some(self.open_unproved());
                }
                let answered = self.credentials.greeted(self.own, self.certified, &hello);
                let Answered { answer, next } = answered;
                if !answer.is_empty() {
                    self.replies.sending.say(credentials::said(&answer));
                }
                Some(match next {
                    Next::Settled(_) => self.open_unproved(),
                    Next::Proof(acceptor) => Stage::Proof(Box::new(acceptor)),
                    Next::Refused(refusal) => self.refuse(&refusal),
                })
            }
            Stage::Proof(acceptor) if frame.token == frame::HELLO => {
                Some(match acceptor.proved(&frame.payload) {
                    Ok(outcome) => self.settle(outcome),
                    Err(refusal) => self.refuse(&refusal),
                })
            }
            Stage::Proof(_) => Some(self.refuse(&Refusal::Malformed)),
            Stage::Refused => Some(Stage::Refused),
            Stage::Open(_) => None,
        }
    }

    /// Opens to one who has shown no key: perhaps a certificate.
    fn open_unproved(&self) -> Stage {
        let Some(peer) = self.certified else {
            return self.open(self.credentials.stranger());
        };
        self.replies.audit.greeted(self.peer, peer);
        self.open(peer)
    }

    fn open(&self, identity: Identity) -> Stage {
        self.has_greeted.set(true);
        if identity > Identity::Nobody {
            self.standing.becomes_somebody();
        }
        Stage::Open(identity)
    }

    fn settle(&self, outcome: Outcome) -> Stage {
        if let Some(session) = outcome.session {
            self.replies.sending.seal_with(Sealer::new(session.send));
            let checker = Checker::new(session.receive);
            self.checks.replace(Some(Checks::new(checker)));
            self.replies.audit.greeted(self.peer, outcome.peer);
        }
        self.open(outcome.peer)
    }

    fn refuse(&self, refusal: &Refusal) -> Stage {
        probe!("rpc_greeting_refused");
        self.replies.audit.connection_refused(self.peer, refusal);
        self.replies.sending.outbox.close();
        Stage::Refused
    }

    fn take(&self, handler: Option<RemoteHandler>, identity: Identity, frame: Frame) {
        let reply = RemoteReply {
            replies: self.replies.clone(),
            request_id: frame.request_id,
            is_watched: false,
            caller: identity,
        };
        if frame.token == frame::GIVE_UP {
            return self.replies.gave_up(frame.request_id);
        }
        if frame.token == frame::PING {
            reply.send("ping", Ok(&|_| ()));
            return;
        }
        // Each request under way holds the replies once.
        if Rc::strong_count(&self.replies) > REQUESTS_MAX && identity < Identity::Server {
            probe!("rpc_too_many_requests");
            return reply.fail(Error::server_overloaded);
        }
        let Some(handler) = handler else {
            return reply.fail(Error::broken_promise);
        };
        let may_ask = handler.audience.admits(identity)
            || planted!(
                "rpc_audience_is_not_checked",
                "everybody may send every request"
            );
        if may_ask {
            return (handler.work)(frame.payload, reply);
        }
        probe!("rpc_request_refused");
        let Replies { audit, peer, .. } = &*self.replies;
        audit.request_refused(*peer, identity, handler.name, handler.audience);
        reply.fail(Error::permission_denied);
        self.refused.set(self.refused.get() + 1);
    }
}
