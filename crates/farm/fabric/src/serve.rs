//! Serves a machine's memory to others over streams: what a network card does with hardware.
//!
//! An operation is applied in one turn of the loop, and then answered: the answer is the acknowledgement. Of one
//! machine only the newest connection counts, so that nothing that is late in an older one overtakes.

use crate::address::{Address, Asker, Error, Machine, OPERATION_BYTES_MAX};
use crate::greeting::{self, Judge, PURPOSE};
use crate::host::Host;
use crate::ring::Tail;
use crate::wire::{Answer, Body, Request};
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_identity::Identity;
use plinth_rpc::{Audit, Credentials, Nobodies, Sending, Standing, certified};
use plinth_runtime::net::Listener;
use plinth_runtime::serve::{Connection, Inbox, Outbox, accept, session_through};
use plinth_runtime::{Duration, TaskGroup, planted, sleep, spawn, timeout};
use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Who has not greeted in this time is sent away.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// A peer that has so many bytes of answers to read gets no more work done.
const UNREAD_BYTES_MAX: usize = 4 << 20;

struct Sender {
    /// The number of its newest connection.
    newest: Cell<u64>,
    /// The server is the only writer of the ring, so that it looks for the end once.
    tail: OnceCell<Tail>,
}

struct Server {
    machine: Machine,
    host: Rc<Host>,
    senders: Vec<Sender>,
    judge: Judge,
}

/// A connection that was accepted.
struct Accepted {
    number: u64,
    peer: SocketAddr,
    /// What the other side is to us by its certificate.
    certified: Option<Identity>,
    sending: Rc<Sending>,
    standing: Rc<Standing>,
}

/// Serves the memory of `machine` without keys: whoever reaches the listener may do everything. See [`serve_with`].
pub async fn serve(listener: Listener, machine: Machine, host: Rc<Host>) {
    serve_with(listener, machine, host, &Credentials::none()).await;
}

/// Serves the memory of `machine` until the future is dropped, to servers of the cluster, if there are keys. There is
/// one server of a memory at a time, on the thread that owns it.
pub async fn serve_with(
    listener: Listener,
    machine: Machine,
    host: Rc<Host>,
    credentials: &Credentials,
) {
    serve_as(listener, None, machine, host, credentials).await;
}

/// The same, if others reach the listener at `public`: they say that they want to be there.
pub async fn serve_as(
    listener: Listener,
    public: Option<SocketAddr>,
    machine: Machine,
    host: Rc<Host>,
    credentials: &Credentials,
) {
    let sender = || Sender {
        newest: Cell::new(0),
        tail: OnceCell::new(),
    };
    let senders = (0..host.layout().machines).map(|_| sender()).collect();
    let judge = Judge {
        credentials: credentials.for_purpose(PURPOSE),
        audit: Audit::new(),
        own: public.or_else(|| listener.local_addr().ok()),
    };
    let server = Rc::new(Server {
        machine,
        host,
        senders,
        judge,
    });
    let (group, accepted, nobodies) = (TaskGroup::new(), Cell::new(0), Rc::<Nobodies>::default());
    let start = |connection: Connection| {
        accepted.set(accepted.get() + 1);
        let outbox = Outbox::of_session();
        let accepted = Accepted {
            number: accepted.get(),
            peer: connection.peer,
            certified: None,
            sending: Rc::new(Sending::through(outbox.clone())),
            standing: nobodies.add(outbox.clone()),
        };
        let serving = serve_one(server.clone(), connection, outbox, accepted);
        group.spawn("fabric", serving);
        ControlFlow::Continue(())
    };
    accept(listener, start).await;
}

/// Serves a connection, which certificates may protect.
async fn serve_one(
    server: Rc<Server>,
    connection: Connection,
    outbox: Rc<Outbox>,
    mut accepted: Accepted,
) {
    let Connection {
        reader,
        writer,
        peer,
        slot,
    } = connection;
    let judges = (&server.judge.credentials, &server.judge.audit);
    let entering = certified::enter((reader, writer), peer, judges, &outbox, GREETING_LIMIT);
    let Some(entered) = entering.await else {
        return;
    };
    accepted.certified = entered.certified;
    let sealing = accepted.sending.clone();
    let work = |inbox, _| attend(server.clone(), accepted, inbox);
    let finish = move |out: &mut Output| sealing.end_run(out);
    session_through((entered.inbox, entered.writer), outbox, finish, work).await;
    drop(slot);
}

fn answer(sending: &Sending, answer: &Answer) {
    // Before each request the outbox had room.
    if greeting::push(sending, answer).is_err() {
        sending.outbox.close();
    }
}

/// Serves a connection until it ends, or breaks a rule, or is not the sender's newest.
async fn attend(server: Rc<Server>, accepted: Accepted, mut inbox: Inbox) {
    let Accepted {
        number,
        peer,
        certified,
        sending,
        standing,
    } = accepted;
    let heard = server.judge.hear((peer, certified), &mut inbox, &sending);
    let Some((greeting, mut frames)) = timeout(GREETING_LIMIT, Box::pin(heard)).await.flatten()
    else {
        return;
    };
    standing.becomes_somebody();
    if greeting.to != server.machine.0 {
        return;
    }
    let from = Machine(greeting.from);
    let Some(sender) = server.senders.get(usize::from(from.0)) else {
        return;
    };
    if sender.newest.get() > number || from == server.machine {
        return;
    }
    let former = sender.newest.replace(number);
    assert!(
        former < number,
        "connection {number} of machine {} follows {former}",
        from.0
    );
    answer(&sending, &Answer::Done);
    while let Some(request) = greeting::next::<Request>(&mut inbox, &mut frames).await {
        sending.outbox.has_room(UNREAD_BYTES_MAX).await;
        let is_newest = sender.newest.get() == number;
        if !is_newest
            && !planted!(
                "farm_old_connection_counts",
                "an older connection overtakes"
            )
        {
            return;
        }
        if planted!(
            "farm_ack_before_write",
            "a write is acknowledged before it is done"
        ) {
            let is_late = matches!(request.body, Body::Write { .. } | Body::Send { .. });
            if is_late {
                answer(&sending, &Answer::Done);
                let server = server.clone();
                spawn("late", async move {
                    sleep(Duration::from_micros(500)).await;
                    server.apply(from, request);
                })
                .detach();
                continue;
            }
        }
        let result = server.apply(from, request);
        answer(&sending, &result);
        if result == Answer::Failed(Error::Closed) {
            return; // what comes behind must not be done without it
        }
    }
}

impl Server {
    fn apply(&self, from: Machine, request: Request) -> Answer {
        let who = Asker {
            machine: from,
            configuration: request.configuration,
        };
        self.try_apply(who, request.body)
            .unwrap_or_else(Answer::Failed)
    }

    fn try_apply(&self, who: Asker, body: Body) -> Result<Answer, Error> {
        let at = |region, offset| Address {
            machine: self.machine,
            region,
            offset,
        };
        Ok(match body {
            Body::Read {
                region,
                offset,
                bytes,
            } => {
                let bytes = bytes as usize;
                if bytes > OPERATION_BYTES_MAX {
                    return Err(Error::TooLarge);
                }
                let mut into = vec![0; bytes];
                self.host.read(who, at(region, offset), &mut into)?;
                Answer::Read(Bytes::from(into))
            }
            Body::Write {
                region,
                offset,
                from,
            } => {
                self.host.write(who, at(region, offset), &from)?;
                Answer::Done
            }
            Body::Swap {
                region,
                offset,
                expected,
                new,
            } => Answer::Was(self.host.swap(who, at(region, offset), expected, new)?),
            Body::Send { message } => {
                self.host.append(who, self.tail(who.machine)?, &message)?;
                Answer::Done
            }
        })
    }

    fn tail(&self, of: Machine) -> Result<&Tail, Error> {
        let tail = &self
            .senders
            .get(usize::from(of.0))
            .ok_or(Error::Closed)?
            .tail;
        if tail.get().is_none() {
            let _ = tail.set(self.host.join(of)?);
        }
        tail.get().ok_or(Error::Closed)
    }
}
