//! How a gateway writes to the store, and where its replica moves on ([`Writes`]).
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
mod company;
mod flight;
mod guard;
#[cfg(test)]
mod tests;

use crate::queue::{Queue, Queued};
use crate::replica::Replica;
use crate::store::Boxed;
use crate::trace::Trace;
use crate::tree::execute::Operation;
use crate::tree::plan::{Known, Names, View};
use crate::tree::quota::{Exceeded, Quotas};
use crate::tree::rows::Lock;
use crate::wire::Text;
use crate::writes::{Complete, Listener, Writes};
use crate::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, FOLLOW_MS};
use company::Company;
use flight::{Flight, Later, Turn};
use plinth_client::{Database, Position, Stream, TransactionOption};
use plinth_core::Version;
use plinth_core::version::Versionstamp;
use plinth_runtime::sync::{Notify, OneshotReceiver, OneshotSender, Watch, oneshot};
use plinth_runtime::{Duration, Either, probe, race, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Pause after an error that will go away.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A gateway that has not committed for so long waits for news.
const IDLE_AFTER: Duration = Duration::from_millis(10);
/// How often a wait for news begins again.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What operations are executed on.
struct Seen<'a> {
    replica: &'a Replica,
    listener: &'a dyn Listener,
    /// Nodes whose lists of children take too much memory.
    too_long: &'a BTreeSet<Text>,
}

impl View for Seen<'_> {
    fn node(&self, path: &str) -> Known {
        self.replica.node_if_known(path)
    }
    fn children(&self, path: &str) -> Names {
        if self.too_long.contains(path) {
            return Names::TooLong;
        }
        self.replica.names(path).map_or(Names::Unknown, Names::All)
    }
    fn owns(&self, session: i64) -> bool {
        self.listener.owns(session)
    }
    fn is_silent(&self, session: i64) -> bool {
        self.listener.is_silent(session)
    }
    fn quotas(&self) -> Rc<Quotas> {
        self.replica.quotas.borrow().clone()
    }
    fn enforces_quotas(&self) -> bool {
        self.listener.enforces_quotas()
    }
    fn exceeds(&self, exceeded: &Exceeded, path: &str) {
        self.listener.exceeds(exceeded, path);
    }
}

/// See the module.
pub struct Pipeline {
    pub replica: Rc<Replica>,
    database: Database,
    stream: Stream,
    gateway: u64,
    listener: Rc<dyn Listener>,
    queue: Queue,
    waiting: RefCell<Vec<OneshotSender<()>>>,
    wake: Rc<Notify>,
    begun: Notify,
    /// Of the hashes of paths in plans.
    seed: u64,
    /// Where to read the stream on. It never goes back.
    next: Cell<Position>,
    /// Number of the last batch that began.
    batch: Cell<u64>,
    /// Number and stamp of the last own batch that changed something.
    applied: Cell<Option<(u64, Versionstamp)>>,
    /// Batches that may have been committed, in the order in which they began.
    flights: RefCell<VecDeque<Flight>>,
    /// How many batches go alone before the next may begin beside another.
    apart: Cell<u32>,
    /// What `apart` becomes when a batch relies on another next time: it doubles, and halves when none does.
    penalty: Cell<u32>,
    /// Of how many operations, the next that are taken, reads and writes do not share a batch. A batch of reads has
    /// nothing to commit, so they get on however often others change what is read, and hold up no writes.
    looks_apart: Cell<usize>,
    /// The batch before had clients who came back with their sessions: the next is of others, if any wait.
    took_sessions: Cell<bool>,
    /// How many operations the next batch may have, because more were too large.
    halved: Cell<Option<usize>>,
    company: Company,
    /// Version of the last change of a quota.
    quotas_changed: Cell<Version>,
    is_lost: Cell<bool>,
    /// The replica has own changes that are newer than its version.
    is_behind_own: Cell<bool>,
}

impl Pipeline {
    pub fn new(
        replica: Rc<Replica>,
        (database, stream): (Database, Stream),
        gateway: u64,
        listener: Rc<dyn Listener>,
    ) -> Rc<Self> {
        let next = Position::of_version(replica.version() + 1);
        Rc::new(Pipeline {
            replica,
            database,
            stream,
            gateway,
            listener,
            queue: Queue::default(),
            waiting: RefCell::default(),
            wake: Rc::new(Notify::new()),
            begun: Notify::new(),
            seed: random::u64(),
            next: Cell::new(next),
            batch: Cell::new(0),
            applied: Cell::new(None),
            flights: RefCell::default(),
            apart: Cell::new(0),
            penalty: Cell::new(0),
            looks_apart: Cell::new(0),
            took_sessions: Cell::new(false),
            halved: Cell::new(None),
            company: Company::default(),
            quotas_changed: Cell::new(0),
            is_lost: Cell::new(false),
            is_behind_own: Cell::new(false),
        })
    }

    fn lose(&self, why: &'static str) {
        if !self.is_lost.replace(true) {
            self.listener.lost(why);
        }
    }

    /// Has the replica catch up when somebody has appended to the stream. A gateway that commits all the time needs no
    /// news: each commit shows whether there are any.
    async fn look_for_news(&self) {
        loop {
            let batch = self.batch.get();
            let waiting = self.database.wait_for_stream(&self.stream, self.next.get());
            let either = race(self.commits(batch), sleep(LOOK_INTERVAL));
            match race(waiting, either).await {
                Either::Left(Ok(())) => self.follow().await,
                Either::Left(Err(_)) => sleep(RETRY_PAUSE).await,
                Either::Right(Either::Left(())) => self.falls_idle().await,
                Either::Right(Either::Right(())) => {}
            }
        }
    }

    /// Catches up at once, and again as long as others go on, unless this gateway begins to commit.
    async fn follow(&self) {
        loop {
            let (batch, changes) = (self.batch.get(), self.company.changes());
            let _ = self.refreshed().await;
            if self.company.changes() == changes {
                return;
            }
            probe!("keeper_follows");
            let pause = Duration::from_millis(FOLLOW_MS.get());
            if let Either::Left(()) = race(self.commits(batch), sleep(pause)).await {
                return;
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
            let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            let is_asked = !waiting.is_empty();
            if is_asked {
                self.refresh().await;
                for waiter in waiting {
                    let _ = waiter.send(());
                }
            }
            // Each time: who asks for news all the time keeps no batch from landing, and none from beginning.
            if self.has_landed() {
                self.land().await;
            } else if (!self.may_begin() || !self.begin().await) && !is_asked {
                self.wake.notified().await;
            }
        }
    }

    /// Takes operations out of the queue, as many as may share a transaction and begin now, the oldest first.
    fn take_batch(&self) -> Vec<Queued> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let most = self.halved.take().unwrap_or(BATCH_OPERATIONS_MAX.get());
        let mut later = Later::default();
        let passed = match self.took_sessions.get() {
            true => self.queue.pop_takes_before_others(),
            false => Vec::new(),
        };
        while batch.len() < most
            && later.operations.len() < BATCH_OPERATIONS_MAX.get()
            && let Some(next) = self.queue.pop_front()
        {
            let size = next.operation.bytes();
            match self.turn(&next, &batch, &later) {
                Turn::Now if batch.is_empty() || bytes + size <= BATCH_BYTES_MAX.get() => {
                    bytes += size;
                    batch.push(next);
                }
                Turn::Later => later.push(next),
                Turn::Now | Turn::Alone => {
                    self.queue.push_front(next);
                    break;
                }
            }
        }
        self.queue.put_back(later.operations);
        self.queue.put_back(passed);
        if let Some(first) = batch.first() {
            self.took_sessions.set(first.takes_a_session());
        }
        let left = self.looks_apart.get().saturating_sub(batch.len());
        self.looks_apart.set(left);
        batch
    }
}

impl Writes for Pipeline {
    fn submit(&self, operation: Operation, complete: Complete) {
        self.queue.push(Queued {
            operation,
            complete,
            trace: None,
        });
        self.wake.notify_one();
    }

    fn submit_traced(&self, operation: Operation, complete: Complete, trace: Rc<Trace>) {
        self.queue.push(Queued {
            operation,
            complete,
            trace: Some(trace),
        });
        self.wake.notify_one();
    }

    fn refreshed(&self) -> OneshotReceiver<()> {
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().push(sender);
        self.wake.notify_one();
        receiver
    }

    /// By a transaction of its own: however long the batches take, the gateway lives.
    fn beat(&self, row: Vec<u8>) -> Boxed<'_, bool> {
        Box::pin(async move {
            let beating = async {
                let transaction = self.database.create_transaction();
                let rows = &self.replica.rows;
                // Others have not ended its lease since: the replica would know.
                transaction.set_read_version(self.replica.version());
                transaction.add_read_conflict_key(rows.lock(Lock::Gateway, self.gateway));
                transaction.add_write_conflict_key(rows.lock(Lock::Beat, self.gateway));
                transaction.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
                transaction.set(rows.gateway(self.gateway), row);
                transaction.commit().await
            };
            let beaten = beating.await;
            if beaten.is_err() {
                probe!("keeper_beat_fails");
                let _ = self.refreshed().await;
            }
            beaten.is_ok()
        })
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn queued_bytes(&self) -> &Watch<usize> {
        self.queue.bytes()
    }

    fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    fn serve(self: Rc<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            let looking = race(self.look_for_news(), self.guard());
            race(self.work(), looking).await;
        })
    }
}
