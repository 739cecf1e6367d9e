//! The one place where a gateway writes, and where its replica moves on.
//!
//! ```text
//!   operations ──► batch ──► plan (executed on the replica) ──► one transaction ──► commit
//!                                 ▲                                                   │
//!                                 └── refresh: read the stream ◄── somebody else wrote
//! ```
//! A transaction carries everything that has gathered (FDBKeeper §5.3). If others have written what its plan relied
//! on, the store refuses the commit; the replica then catches up and the same operations are executed again.
//!
//! While a transaction is under way the next may begin, on a replica that does not have the first (flight.rs). Three
//! rules make that right:
//! - No session has operations in both. So the writes of a session happen in the order in which they were sent (§5.2's
//!   commit lock).
//! - What the second relies on is not written by the first.
//! - The first cannot commit once the second has. So when it has committed, nothing is missing before it, and its
//!   operations can be answered.
//!
//! An operation is answered when the replica has its version: the answer is built from the state right after its own
//! change. A commit whose outcome is unknown is looked for in the stream by the batch's number.

mod catch_up;
mod flight;

use crate::replica::Replica;
use crate::tree::change::Change;
use crate::tree::execute::{Executed, Operation};
use crate::tree::plan::{Known, View};
use crate::tree::quota::{Exceeded, Quotas};
use crate::wire::Code;
use crate::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, QUEUE_BYTES_MAX};
use flight::{Flight, Later, Turn};
use plinth_client::{Position, Stream};
use plinth_runtime::sync::{Notify, OneshotReceiver, OneshotSender, Watch, oneshot};
use plinth_runtime::{Duration, Either, Instant, now, race, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Pause after an error that will go away.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A gateway that has not committed for so long waits for news.
const IDLE_AFTER: Duration = Duration::from_millis(10);
/// How often a wait for news begins again.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a written operation leads to.
pub enum Outcome {
    /// It was executed and its effects, if any, are durable and in the replica.
    Done { zxid: i64, executed: Executed },
    /// It cannot be executed as it is: it is larger than a transaction may be.
    TooLarge,
}

/// Takes an operation's outcome, at the moment when the replica has its changes and none after them. `stat_of` reads
/// nodes as the operation's own steps have left them.
pub type Complete = Box<dyn FnOnce(&Replica, Outcome, Vec<StepStat>)>;

/// What the `Stat` of a node was right after a step of the operation.
pub type StepStat = Option<crate::wire::Stat>;

struct Queued {
    operation: Operation,
    complete: Complete,
}

impl Queued {
    fn is_look(&self) -> bool {
        matches!(self.operation, Operation::Look { .. })
    }

    /// Approximate size of what it writes.
    fn bytes(&self) -> usize {
        self.operation.bytes()
    }
}

/// What operations are executed on.
struct Seen<'a>(&'a Replica, &'a dyn Listener);

impl View for Seen<'_> {
    fn node(&self, path: &str) -> Known {
        self.0.node_if_known(path)
    }
    fn owns(&self, session: i64) -> bool {
        self.1.owns(session)
    }
    fn quotas(&self) -> Rc<Quotas> {
        self.0.quotas.borrow().clone()
    }
    fn enforces_quotas(&self) -> bool {
        self.1.enforces_quotas()
    }
    fn exceeds(&self, exceeded: &Exceeded, path: &str) {
        self.1.exceeds(exceeded, path);
    }
}

/// Whom the pipeline tells of changes, in the order of the commits.
pub trait Listener {
    /// Before the replica has it: events go out now.
    fn before(&self, replica: &Replica, change: &Change, zxid: i64);
    /// True if the gateway has this session.
    fn owns(&self, session: i64) -> bool;
    /// True if hard limits of quotas are hard.
    fn enforces_quotas(&self) -> bool;
    /// A client has come to a limit of a quota.
    fn exceeds(&self, exceeded: &Exceeded, path: &str);
    /// The gateway is no longer the one that it was: its lease was taken, or it has missed changes that are gone.
    fn lost(&self, why: &'static str);
}

/// See the module.
pub struct Pipeline {
    pub replica: Rc<Replica>,
    stream: Stream,
    gateway: u64,
    listener: Rc<dyn Listener>,
    queue: RefCell<VecDeque<Queued>>,
    /// Bytes of the clients' requests in the queue.
    queued_bytes: Watch<usize>,
    waiting: RefCell<Vec<OneshotSender<()>>>,
    wake: Rc<Notify>,
    begun: Notify,
    /// Of the hashes of paths in plans.
    seed: u64,
    /// Where to read the stream on.
    next: Cell<Position>,
    /// Number of the last batch that began.
    batch: Cell<u64>,
    /// Batches that may have been committed, in the order in which they began.
    flights: RefCell<VecDeque<Flight>>,
    /// How many batches go alone before the next may begin beside another.
    apart: Cell<u32>,
    /// What `apart` becomes when a batch relies on another next time: it doubles, and halves when none does.
    penalty: Cell<u32>,
    /// How many operations the next batch may have, because more were too large.
    halved: Cell<Option<usize>>,
    /// When somebody else's change was last seen.
    others: Cell<Option<Instant>>,
    /// When a commit last began that succeeded: the gateway showed the others that it lives.
    in_touch: Cell<Instant>,
    is_lost: Cell<bool>,
    /// The replica has own changes that are newer than its version.
    is_behind_own: Cell<bool>,
}

impl Pipeline {
    pub fn new(
        replica: Rc<Replica>,
        stream: Stream,
        gateway: u64,
        listener: Rc<dyn Listener>,
    ) -> Rc<Self> {
        let next = Position::of_version(replica.version() + 1);
        Rc::new(Pipeline {
            replica,
            stream,
            gateway,
            listener,
            queue: RefCell::default(),
            queued_bytes: Watch::new(0),
            waiting: RefCell::default(),
            wake: Rc::new(Notify::new()),
            begun: Notify::new(),
            seed: random::u64(),
            next: Cell::new(next),
            batch: Cell::new(0),
            flights: RefCell::default(),
            apart: Cell::new(0),
            penalty: Cell::new(0),
            halved: Cell::new(None),
            others: Cell::new(None),
            in_touch: Cell::new(now()),
            is_lost: Cell::new(false),
            is_behind_own: Cell::new(false),
        })
    }

    /// Has `operation` executed after all that were submitted before.
    pub fn submit(&self, operation: Operation, complete: Complete) {
        self.queued_bytes
            .update(|bytes| *bytes += operation.held_bytes());
        self.queue.borrow_mut().push_back(Queued {
            operation,
            complete,
        });
        self.wake.notify_one();
    }

    /// Ends when clients' requests may be submitted.
    pub async fn has_room(&self) {
        let most = QUEUE_BYTES_MAX.get();
        self.queued_bytes.wait_until(|bytes| *bytes < most).await;
    }

    /// As [`submit`](Self::submit); the result when it is durable. `None` if the gateway ends first.
    pub async fn run(&self, operation: Operation) -> Option<Outcome> {
        let (sender, receiver) = oneshot();
        let complete = move |_: &Replica, outcome, _| {
            let _ = sender.send(outcome);
        };
        self.submit(operation, Box::new(complete));
        receiver.await.ok()
    }

    /// Ends when the replica has everything that was committed before the call.
    pub fn refreshed(&self) -> OneshotReceiver<()> {
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().push(sender);
        self.wake.notify_one();
        receiver
    }

    pub fn queued(&self) -> usize {
        self.queue.borrow().len()
    }

    pub fn in_touch(&self) -> Instant {
        self.in_touch.get()
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    fn lose(&self, why: &'static str) {
        if !self.is_lost.replace(true) {
            self.listener.lost(why);
        }
    }

    /// Runs until the gateway is lost.
    pub async fn serve(self: Rc<Self>) {
        race(self.work(), self.look_for_news()).await;
    }

    /// Has the replica catch up when somebody has appended to the stream. A gateway that commits all the time needs no
    /// news: each commit shows whether there are any.
    async fn look_for_news(&self) {
        loop {
            let batch = self.batch.get();
            let waiting = self
                .replica
                .database
                .wait_for_stream(&self.stream, self.next.get());
            let either = race(self.commits(batch), sleep(LOOK_INTERVAL));
            match race(waiting, either).await {
                Either::Left(Ok(())) => {
                    let _ = self.refreshed().await;
                }
                Either::Left(Err(_)) => sleep(RETRY_PAUSE).await,
                Either::Right(Either::Left(())) => self.falls_idle().await,
                Either::Right(Either::Right(())) => {}
            }
        }
    }

    /// Ends when a later batch than `batch` is begun.
    async fn commits(&self, batch: u64) {
        while self.batch.get() == batch {
            self.begun.notified().await;
        }
    }

    /// Ends when no batch has begun for a while.
    async fn falls_idle(&self) {
        let mut batch = self.batch.get();
        loop {
            sleep(IDLE_AFTER).await;
            if std::mem::replace(&mut batch, self.batch.get()) == batch {
                return;
            }
        }
    }

    async fn work(&self) {
        while !self.is_lost() {
            if !self.waiting.borrow().is_empty() {
                let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
                self.refresh().await;
                for waiter in waiting {
                    let _ = waiter.send(());
                }
            } else if self.has_landed() {
                self.land().await;
            } else if !self.may_begin() || !self.begin().await {
                self.wake.notified().await;
            }
        }
    }

    /// Takes operations out of the queue, as many as may share a transaction and begin now, the oldest first.
    fn take_batch(&self) -> Vec<Queued> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let most = self.halved.take().unwrap_or(BATCH_OPERATIONS_MAX.get());
        let mut queue = self.queue.borrow_mut();
        let mut later = Later::default();
        while batch.len() < most
            && later.operations.len() < BATCH_OPERATIONS_MAX.get()
            && let Some(next) = queue.pop_front()
        {
            match self.turn(&next, &later) {
                Turn::Now if batch.is_empty() || bytes + next.bytes() <= BATCH_BYTES_MAX.get() => {
                    bytes += next.bytes();
                    batch.push(next);
                }
                Turn::Later => later.push(next),
                Turn::Now | Turn::Alone => {
                    queue.push_front(next);
                    break;
                }
            }
        }
        let later = later.operations.into_iter().rev();
        later.for_each(|queued| queue.push_front(queued));
        drop(queue);
        let taken: usize = batch.iter().map(|q| q.operation.held_bytes()).sum();
        self.queued_bytes.update(|bytes| *bytes -= taken);
        batch
    }

    /// Puts operations back where they were.
    fn put_back(&self, batch: Vec<Queued>) {
        let held: usize = batch.iter().map(|q| q.operation.held_bytes()).sum();
        self.queued_bytes.update(|bytes| *bytes += held);
        let mut queue = self.queue.borrow_mut();
        let last_first = batch.into_iter().rev();
        last_first.for_each(|queued| queue.push_front(queued));
    }
}

/// The answer that a client gets.
pub fn code_of(outcome: &Outcome) -> Option<Code> {
    match outcome {
        Outcome::Done {
            executed: Executed::One(Err(code)),
            ..
        } => Some(*code),
        Outcome::TooLarge => Some(Code::MARSHALLING_ERROR),
        Outcome::Done { .. } => None,
    }
}
