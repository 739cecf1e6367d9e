//! A server of byte streams: everything that a protocol over sockets needs before it understands a byte. `rpc` stands
//! on it, and so does a layer with a protocol of its own.
//!
//! - [`accept`] takes connections up to the system's limit, and backs off when the system refuses.
//! - [`Inbox`] reads; it keeps room for large messages only for a while, and can limit how long it waits.
//! - [`Outbox`] is bounded; everything that was added before a write goes out in it.
//! - [`until_over`] runs both halves, and closes connections that do not greet in time.
//! - [`session`] is all of this for a protocol that answers requests in order.
//!
//! Promises: bytes leave in the order in which they were added, or the connection ends. Dropping the future of
//! [`accept`] frees the address; connections end with their own futures.
//! What may never happen: a peer that reads nothing, sends nothing or connects too often makes the process grow.

mod inbox;
mod outbox;
#[cfg(test)]
mod tests;

pub use inbox::Inbox;
pub use outbox::{Outbox, Refused};

use crate::net::{self, Listener, Reader, Writer};
use crate::{Duration, buggify, probe, race, sleep, trace_warn};
use plinth_core::output::Output;
use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;

/// A buffer that has held a message this large, or as many bytes in several messages, is freed when `KEPT_FOR` has
/// passed since then. Otherwise each connection would keep room for the largest message that it has ever carried.
const LARGE_BYTES: usize = 128 << 10;
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Pause after a failed accept: most likely the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a session may take to write its last bytes.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// A connection that was accepted.
pub struct Connection {
    pub reader: Reader,
    pub writer: Writer,
    pub peer: SocketAddr,
    /// Keep it for as long as the connection lives.
    pub slot: Slot,
}

/// One of the connections that a listener may have.
pub struct Slot(Rc<Cell<usize>>);

impl Slot {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Slot(count.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Accepts connections and passes each to `start`, until that breaks. `start` spawns what serves the connection.
pub async fn accept(mut listener: Listener, start: impl Fn(Connection) -> ControlFlow<()>) {
    let (count, limit) = (Rc::new(Cell::new(0)), net::connections_max());
    // Each is traced once, and again only after the condition has cleared in between.
    let (mut is_full, mut is_failing) = (false, false);
    loop {
        let accepted = listener.accept().await;
        is_full &= count.get() >= limit - limit / 8;
        match accepted {
            // The process must always be able to open its own files and connections, so a newcomer above the limit
            // is closed.
            Ok((.., peer)) if count.get() >= limit || buggify!(0.05) => {
                if !is_full {
                    probe!("connections_at_limit");
                    trace_warn!("ConnectionsAtLimit", "limit" => limit, "refused" => peer);
                }
                is_full = true;
            }
            Ok((reader, writer, peer)) => {
                is_failing = false;
                let connection = Connection {
                    reader,
                    writer,
                    peer,
                    slot: Slot::new(&count),
                };
                if start(connection).is_break() {
                    return;
                }
            }
            Err(error) => {
                // Existing connections are still served.
                if !is_failing {
                    trace_warn!("AcceptFailed", "error" => error);
                }
                is_failing = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Runs both halves of a connection until one of them ends, or `greeted` is still false after `limit`.
pub async fn until_over(
    reading: impl Future<Output = ()>,
    writing: impl Future<Output = ()>,
    greeted: &Cell<bool>,
    limit: Duration,
) {
    let stranger = async {
        sleep(limit).await;
        if greeted.get() {
            std::future::pending::<()>().await;
        }
        probe!("drops_silent_stranger");
    };
    race(race(reading, writing), stranger).await;
}

/// Serves one connection with `work`, which reads requests and adds answers, until `work` ends or the outbox is
/// closed, or the connection breaks. Answers that the peer does not read in ten seconds more are dropped.
pub async fn session<F: Future<Output = ()>>(
    connection: Connection,
    work: impl FnOnce(Inbox, Rc<Outbox>) -> F,
) {
    let Connection {
        reader,
        writer,
        slot,
        ..
    } = connection;
    let halves = (Inbox::new(reader), writer);
    session_through(halves, Outbox::of_session(), |_| (), work).await;
    drop(slot);
}

/// The same for both halves of a connection, through this outbox. `finish` is called before what was added goes out in
/// a write.
pub async fn session_through<F: Future<Output = ()>>(
    (inbox, writer): (Inbox, Writer),
    outbox: Rc<Outbox>,
    finish: impl Fn(&mut Output),
    work: impl FnOnce(Inbox, Rc<Outbox>) -> F,
) {
    let writing = outbox.drain_with(writer, finish, || ());
    let working = async {
        // Boxed: each frame that it is handed to would have room for all of it, once more.
        let work = Box::pin(work(inbox, outbox.clone()));
        race(work, outbox.until_closed()).await;
        outbox.close();
        sleep(FLUSH_LIMIT).await;
    };
    race(writing, working).await;
}
