//! A client's connection: where answers and events go out.

use crate::ANSWER_BYTES_MAX;
use crate::acl::Identity;
use crate::contact::Moment;
use crate::counters::Counters;
use crate::doors::Origin;
use crate::held::Held;
use crate::replica::Replica;
use crate::trace::Traces;
use crate::watches::Client;
use crate::wire::packed::put_packed;
use crate::wire::{Answer, AnswerHeader, Code, Protocol, Xid, encode_answer};
use plinth_core::output::Output;
use plinth_runtime::random::chance;
use plinth_runtime::serve::Outbox;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, planted, probe};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// See the module.
pub struct Connection {
    pub client: Client,
    pub peer: SocketAddr,
    pub origin: Origin,
    pub replica: Rc<Replica>,
    pub counters: Rc<Counters>,
    pub session: i64,
    pub timeout_ms: u32,
    pub protocol: Protocol,
    /// See [`crate::read_only`].
    pub is_read_only: bool,
    pub identities: RefCell<Rc<[Identity]>>,
    pub outbox: Rc<Outbox>,
    pub held: Held,
    /// Writes under way.
    pub pending: Cell<usize>,
    pub done: Notify,
    /// The client has asked what there is besides ZooKeeper's requests: it is ClickHouse's.
    pub is_clickhouse: Cell<bool>,
    /// What became of its writes, if it has asked for that.
    pub traces: Traces,
    /// The client has asked to end the session.
    pub is_closing: Cell<bool>,
    pub since: Instant,
    /// Bytes that were read and are not understood yet.
    pub arrived: Cell<usize>,
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
}

impl Connection {
    /// Ends the connection when what was pushed so far is written. What is held back never is.
    pub fn hang_up(&self) {
        self.held.clear();
        self.outbox.close();
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms))
    }

    /// What is added next, and all behind it, waits until a request that was heard then may be answered.
    pub fn answers(&self, heard: &Moment) {
        if !self.is_read_only && !self.outbox.is_closed() && self.held.begins(heard) {
            probe!("keeper_answer_held_back");
        }
    }

    /// What was held back goes out as far as it may.
    pub fn release(&self) {
        while let Some(pieces) = self.held.take_covered() {
            self.send(|out| pieces.iter().for_each(|piece| out.put_shared(piece)));
        }
    }

    /// Adds a frame for the client.
    pub fn push(&self, append: impl FnOnce(&mut Output)) {
        self.sent.set(self.sent.get() + 1);
        let counters = &self.counters;
        counters.sent.set(counters.sent.get() + 1);
        let is_bare = planted!(
            "keeper_frame_without_block",
            "one in twenty frames of a compressed connection goes out without a block"
        ) && chance(0.05);
        let append = |out: &mut Output| match self.protocol.is_packed && !is_bare {
            true => put_packed(out, append),
            false => append(out),
        };
        match self.held.is_empty() {
            true => self.send(append),
            false => self.held.push(append),
        }
    }

    fn send(&self, append: impl FnOnce(&mut Output)) {
        let append = |out: &mut Output| {
            append(out);
            Ok::<(), ()>(())
        };
        if self.outbox.push(append).is_err() {
            // It has not read hundreds of megabytes. It must not miss one of its answers and read on.
            probe!("keeper_client_never_reads");
            self.hang_up();
        }
    }

    /// Adds an answer. False if it would be too long for any client to read: the client is told an error instead.
    pub fn answer(&self, header: AnswerHeader, append: impl FnOnce(&mut Output)) -> bool {
        let mut is_short = true;
        self.push(|out| {
            let before = out.mark();
            append(out);
            is_short = out.len_from(before) <= ANSWER_BYTES_MAX.get();
            if !is_short {
                probe!("keeper_answer_too_long");
                out.truncate(before);
                let error = Code::CONNECTION_LOSS.0;
                encode_answer(out, AnswerHeader { error, ..header }, &Answer::Empty);
            }
        });
        is_short
    }

    pub fn answer_with(&self, xid: Xid, result: Result<&Answer, Code>) {
        let zxid = self.replica.zxid();
        let (error, answer) = match result {
            Ok(answer) => (0, answer),
            Err(code) => (code.0, &Answer::Empty),
        };
        let header = AnswerHeader { xid, zxid, error };
        self.answer(header, |out| encode_answer(out, header, answer));
    }

    /// A write is over.
    pub fn write_is_done(&self) {
        let pending = self.pending.get();
        assert!(
            pending > 0,
            "a write of client {} ends that was not under way",
            self.client
        );
        self.pending.set(pending - 1);
        self.done.notify_one();
    }

    /// Ends when at most `most` writes are under way.
    pub async fn writes_done(&self, most: usize) {
        while self.pending.get() > most {
            self.done.notified().await;
        }
    }
}
