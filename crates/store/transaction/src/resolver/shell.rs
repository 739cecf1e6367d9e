//! The shell of the resolver: registers its requests, puts batches in the order of the chain, and judges large ones in
//! turns or on a pool thread.

use super::Resolver;
use plinth_core::{Error, Version};
use plinth_protocol::transaction::{
    GetResolverLoad, RecruitResolver, ResolveBatch, ResolveReply, ResolveTransaction,
};
use plinth_rpc::{FailureBeacon, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::{Boxed, TaskGroup, buggify, never, offload, probe, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Batches that may wait for a missing link of the chain. More means that the link will never come.
const WAITING_MAX: usize = 10_000;

type Waiting = BTreeMap<Version, (ResolveBatch, Responder<ResolveBatch>)>;

/// A batch with more bytes of conflict ranges than this is judged on a pool thread. Keys that are new to the history
/// take up to 0.3 ms a KiB on a slow machine, most of it for fresh memory.
const JUDGED_HERE_BYTES: usize = 32 << 10;
/// After so many bytes of conflict ranges the loop's turn is over.
const JUDGED_AT_ONCE_BYTES: usize = 32 << 10;

/// Puts batches in the order of the chain.
struct Shell {
    resolver: RefCell<Resolver>,
    waiting: RefCell<Waiting>,
    /// True while a task judges batches, because there is more to judge than one turn of the loop takes.
    is_busy: Cell<bool>,
    tasks: TaskGroup,
}

/// Registers the resolver and returns the future that runs it.
pub fn start(transport: &Transport, role: RecruitResolver) -> Boxed<'static, ()> {
    let beacon = FailureBeacon::new(transport, role.id);
    let shell = Rc::new(Shell {
        resolver: RefCell::new(Resolver::new(&role)),
        waiting: RefCell::default(),
        is_busy: Cell::new(false),
        tasks: TaskGroup::new(),
    });
    let gauges = [
        Gauge::of("resolver_waiting", &shell, |s| s.waiting.borrow().len()),
        Gauge::of("resolver_system", &shell, |s| {
            s.resolver.borrow().system.len()
        }),
        Gauge::of("resolver_recent", &shell, |s| {
            s.resolver.borrow().recent.len()
        }),
    ];
    let asked = shell.clone();
    let load = transport.serve::<GetResolverLoad>(role.id, move |_, responder| {
        responder.ok(asked.resolver.borrow_mut().load.take());
    });
    let judging = shell.clone();
    let registration = transport.serve::<ResolveBatch>(role.id, move |batch, responder| {
        shell.take_batch(batch, responder);
    });
    Box::pin(async move {
        let _serving = (beacon, registration, load, gauges, EndJudging(judging));
        std::future::pending::<()>().await;
    })
}

/// Cancels the task when the role ends: otherwise the task and the shell would hold each other.
struct EndJudging(Rc<Shell>);

impl Drop for EndJudging {
    fn drop(&mut self) {
        self.0.tasks.cancel_all();
    }
}

impl Shell {
    fn take_batch(self: &Rc<Self>, batch: ResolveBatch, responder: Responder<ResolveBatch>) {
        let resolver = self.resolver.borrow();
        if batch.epoch != resolver.epoch {
            return responder.fail(Error::operation_obsolete);
        }
        if !resolver.serves(batch.proxy) {
            return responder.fail(Error::client_invalid_operation);
        }
        if batch.version <= resolver.version() {
            let repeated = resolver.repeat(&batch);
            return responder.send(repeated.ok_or(Error::operation_obsolete));
        }
        let (version, prev, received) = (batch.version, batch.prev_version, batch.last_received);
        if never!(
            version <= prev || version <= received,
            "BatchFromTheFuture",
            "version" => version,
            "after" => prev,
            "received" => received
        ) {
            return responder.fail(Error::client_invalid_operation);
        }
        if batch.prev_version > resolver.version() {
            probe!("resolver_batch_out_of_order");
        }
        drop(resolver);
        let mut waiting = self.waiting.borrow_mut();
        waiting.insert(batch.prev_version, (batch, responder));
        if waiting.len() > WAITING_MAX {
            waiting.pop_last(); // dropping the responder ends its proxy, and with it the epoch
        }
        drop(waiting);
        if !self.is_busy.get() {
            self.judge_waiting();
        }
    }

    /// Judges the next batches of the chain: directly, or in a task if there is much to judge.
    fn judge_waiting(self: &Rc<Self>) {
        let mut judged = 0;
        assert!(!self.is_busy.get(), "two tasks judge batches");
        while let Some(bytes) = self.next_bytes() {
            if bytes > JUDGED_HERE_BYTES || judged > JUDGED_AT_ONCE_BYTES || buggify!() {
                probe!("resolver_judges_in_turns");
                self.is_busy.set(true);
                let shell = self.clone();
                let judging = async move { shell.judge_in_turns().await };
                return self.tasks.spawn("resolve", judging);
            }
            judged += bytes;
            let (batch, responder) = self.take_next();
            let reply = self.resolver.borrow_mut().resolve(batch);
            if !answer(responder, reply) {
                return;
            }
        }
    }

    async fn judge_in_turns(&self) {
        while let Some(bytes) = self.next_bytes() {
            let (batch, responder) = self.take_next();
            let judging = self.resolver.borrow_mut().begin(batch);
            let judged = if bytes > JUDGED_HERE_BYTES || buggify!() {
                offload(move || judging.judge()).await
            } else {
                judging.judge()
            };
            let reply = self.resolver.borrow_mut().finish(judged);
            if !answer(responder, reply) {
                return;
            }
            yield_now().await;
        }
        self.is_busy.set(false);
    }

    /// Bytes of the conflict ranges of the next batch in the chain, if it is here.
    fn next_bytes(&self) -> Option<usize> {
        let waiting = self.waiting.borrow();
        let (batch, _) = waiting.get(&self.resolver.borrow().version())?;
        let bytes = |t: &ResolveTransaction| t.reads.len() + t.writes.len();
        Some(batch.transactions.iter().map(bytes).sum())
    }

    fn take_next(&self) -> (ResolveBatch, Responder<ResolveBatch>) {
        let version = self.resolver.borrow().version();
        let next = self.waiting.borrow_mut().remove(&version);
        next.expect("looked at just now")
    }
}

/// Sends the reply. False if there is none: the chain is broken here, and the proxy that sent the batch ends.
fn answer(responder: Responder<ResolveBatch>, reply: Option<ResolveReply>) -> bool {
    let judged = reply.is_some();
    responder.send(reply.ok_or(Error::client_invalid_operation));
    judged
}
