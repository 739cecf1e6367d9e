//! The server side of a connection that was accepted.

use crate::connection::{self, Refused};
use crate::frame::{self, Frame, TooLarge};
use bytes::{Buf, Bytes};
use plinth_core::Error;
use plinth_core::output::Output;
use plinth_runtime::serve::{Connection, Outbox, until_over};
use plinth_runtime::{Duration, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// A connection whose greeting does not arrive within this time is closed.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

type Gone = Box<dyn FnOnce()>;

/// A handler of requests from other workers.
pub(crate) type RemoteHandler = Rc<dyn Fn(Bytes, RemoteReply)>;

/// Replies on their way to one caller.
struct Replies {
    outbox: Rc<Outbox>,
    /// Callbacks of requests that wait for an event, to run when the caller goes. By request id.
    waiting: RefCell<BTreeMap<u64, Gone>>,
}

impl Replies {
    /// Calls `gone` when the caller gives up request `id` or the connection ends; false if it has ended already.
    fn on_gone(&self, id: u64, gone: Gone) -> bool {
        if self.outbox.is_closed() {
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
                .outbox
                .push(|out| frame::encode_reply(out, id, Ok(()), |out| body(out))),
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

    fn fail(&self, error: Error) {
        let id = self.request_id;
        let short = |out: &mut Output| frame::encode_reply(out, id, Err(error), |_| ());
        let _ = self.replies.outbox.push(short); // never too large: an error reply has a few bytes
    }
}

/// The handler of a token, if anything is served there; `None` in place of the lookup's result when the transport is
/// gone.
pub(crate) type Lookup = dyn Fn(u64) -> Option<Option<RemoteHandler>>;

/// Serves one accepted connection until it ends.
pub(crate) async fn serve(connection: Connection, lookup: Box<Lookup>) {
    let Connection {
        reader,
        writer,
        peer,
        slot,
    } = connection;
    let replies = Rc::new(Replies {
        outbox: Outbox::new(),
        waiting: RefCell::default(),
    });
    let outbox = replies.outbox.clone();
    let writing = {
        let outbox = outbox.clone();
        async move { outbox.drain(writer, || ()).await }
    };
    let greeted = Cell::new(false);
    let on_frame = |frame: Frame| {
        if !greeted.get() {
            greeted.set(hello_is_good(&frame, peer));
            return greeted.get().then_some(0);
        }
        if outbox.is_closed() {
            return None;
        }
        let (asked, before) = (frame.payload.len(), outbox.len());
        accept(lookup(frame.token)?, &replies, frame);
        Some(asked + outbox.len().saturating_sub(before))
    };
    let reading = connection::read_frames(reader, peer, || (), on_frame);
    let _ends = Ends(replies.clone());
    until_over(reading, writing, &greeted, GREETING_LIMIT).await;
    drop(slot);
}

/// Runs however the connection ends, so that requests that wait for their caller do not wait for ever.
struct Ends(Rc<Replies>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.outbox.close();
        self.0.all_gave_up();
    }
}

fn hello_is_good(frame: &Frame, peer: SocketAddr) -> bool {
    let version = frame.payload.clone().try_get_u64_le().unwrap_or(0);
    let good = frame.token == frame::HELLO && version == frame::PROTOCOL_VERSION;
    if !good {
        trace!("ConnectionRefused", "peer" => peer, "reason" => "not a Plinth client of this protocol version");
    }
    good
}

fn accept(handler: Option<RemoteHandler>, replies: &Rc<Replies>, frame: Frame) {
    let reply = RemoteReply {
        replies: replies.clone(),
        request_id: frame.request_id,
        is_watched: false,
    };
    if frame.token == frame::GIVE_UP {
        return replies.gave_up(frame.request_id);
    }
    if frame.token == frame::PING {
        reply.send("ping", Ok(&|_| ()));
        return;
    }
    match handler {
        Some(handler) => handler(frame.payload, reply),
        None => reply.fail(Error::broken_promise),
    }
}
