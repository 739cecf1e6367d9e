//! Serves a machine's memory to others over streams: what a network card does with hardware.
//!
//! An operation is applied in one turn of the loop, and then answered: the answer is the acknowledgement. Of one
//! machine only the newest connection counts, so that nothing that is late in an older one overtakes.

use crate::address::{Address, Asker, Error, Machine, OPERATION_BYTES_MAX};
use crate::host::Host;
use crate::ring::Tail;
use crate::wire::{Answer, Body, Greeting, Malformed, Request, put_frame, take_frame};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_runtime::net::Listener;
use plinth_runtime::serve::{Connection, Inbox, Outbox, accept, session};
use plinth_runtime::{Duration, TaskGroup, planted, sleep, spawn};
use std::cell::{Cell, OnceCell};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::rc::Rc;

/// A stranger who says nothing is sent away.
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
}

/// Serves the memory of `machine` to whoever connects, until the future is dropped. There is one server of a memory
/// at a time, on the thread that owns it.
///
/// Trust: whoever reaches the listener may do everything. The network between the machines is theirs alone.
pub async fn serve(listener: Listener, machine: Machine, host: Rc<Host>) {
    let sender = || Sender {
        newest: Cell::new(0),
        tail: OnceCell::new(),
    };
    let senders = (0..host.layout().machines).map(|_| sender()).collect();
    let server = Rc::new(Server {
        machine,
        host,
        senders,
    });
    let (group, accepted) = (TaskGroup::new(), Cell::new(0));
    let start = |connection: Connection| {
        accepted.set(accepted.get() + 1);
        let (server, number) = (server.clone(), accepted.get());
        let work = move |inbox, outbox| attend(server, number, inbox, outbox);
        group.spawn("fabric", session(connection, work));
        ControlFlow::Continue(())
    };
    accept(listener, start).await;
}

fn answer(outbox: &Outbox, answer: &Answer) {
    let push = |out: &mut Output| {
        put_frame(out, answer);
        Ok::<(), Infallible>(())
    };
    // Before each request the outbox had room.
    if outbox.push(push).is_err() {
        outbox.close();
    }
}

/// The next frame, within `limit` if there is one.
async fn next<T: Codec>(inbox: &mut Inbox, limit: Option<Duration>) -> Option<T> {
    loop {
        match take_frame(&mut inbox.buffer) {
            Ok(Some(frame)) => return Some(frame),
            Err(Malformed) => return None,
            Ok(None) => (),
        }
        match limit {
            Some(limit) => inbox.read_within(limit).await?,
            None => inbox.read().await?,
        };
    }
}

/// Serves connection `number` until it ends, or breaks a rule, or is not the sender's newest.
async fn attend(server: Rc<Server>, number: u64, mut inbox: Inbox, outbox: Rc<Outbox>) {
    let greeting = next::<Greeting>(&mut inbox, Some(GREETING_LIMIT)).await;
    let Some(greeting) = greeting.filter(|g| g.to == server.machine.0) else {
        return;
    };
    let from = Machine(greeting.from);
    let Some(sender) = server.senders.get(usize::from(from.0)) else {
        return;
    };
    if sender.newest.get() > number || from == server.machine {
        return;
    }
    sender.newest.set(number);
    answer(&outbox, &Answer::Done);
    while let Some(request) = next::<Request>(&mut inbox, None).await {
        outbox.has_room(UNREAD_BYTES_MAX).await;
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
                answer(&outbox, &Answer::Done);
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
        answer(&outbox, &result);
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
