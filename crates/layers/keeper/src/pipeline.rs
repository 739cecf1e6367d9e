//! The one place where a gateway writes, and where its replica moves on.
//!
//! ```text
//!   operations ──► batch ──► plan (executed on the replica) ──► one transaction ──► commit
//!                                 ▲                                                   │
//!                                 └── refresh: read the stream ◄── somebody else wrote
//! ```
//! One transaction is under way at a time, and it carries everything that has gathered (FDBKeeper §5.3). So the
//! writes of a session happen in the order in which they were sent (§5.2's commit lock), and a batch is executed on a
//! state that has all batches before it. If others have written what the plan relied on, the store refuses the commit;
//! the replica then catches up and the same operations are executed again.
//!
//! An operation is answered when the replica has its version: the answer is built from the state right after its own
//! change. A commit whose outcome is unknown is looked for in the stream by the batch's number.

use crate::commit::{Mode, Writer};
use crate::paths;
use crate::replica::Replica;
use crate::tree::change::{Change, Origin, parse_entry};
use crate::tree::execute::{Executed, Operation, Owner, Shape, execute};
use crate::tree::plan::{Known, Plan, View};
use crate::wire::{Code, Request, Text};
use crate::{
    ALONE_AFTER_MS, BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, BATCHES, CONFLICTS, QUEUE_BYTES_MAX,
    REFRESHES,
};
use plinth_client::{Position, Stream, StreamContent, StreamEntry, StreamLimit, Transaction};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Result, Version};
use plinth_runtime::sync::{Notify, OneshotReceiver, OneshotSender, Watch, oneshot};
use plinth_runtime::{
    Duration, Either, Instant, Pace, buggify, join_all, now, probe, race, sleep, trace_warn,
    unix_time_ms,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Reads of the store for one batch that run at the same time.
const LOADS_AT_ONCE: usize = 100;
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
        matches!(self.operation, Operation::Look(_))
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
}

/// Whom the pipeline tells of changes, in the order of the commits.
pub trait Listener {
    /// Before the replica has it: events go out now.
    fn before(&self, replica: &Replica, change: &Change, zxid: i64);
    /// True if the gateway has this session.
    fn owns(&self, session: i64) -> bool;
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
    wake: Notify,
    begun: Notify,
    /// Where to read the stream on.
    next: Cell<Position>,
    batch: Cell<u64>,
    /// When somebody else's change was last seen.
    others: Cell<Option<Instant>>,
    /// When a commit last began that succeeded: the gateway showed the others that it lives.
    in_touch: Cell<Instant>,
    is_lost: Cell<bool>,
    /// The replica has own changes that are newer than its version.
    is_behind_own: Cell<bool>,
}

/// A batch that was executed and may have been committed.
struct Attempt {
    operations: Vec<Queued>,
    executed: Vec<Executed>,
    changes: Vec<(u16, Change)>,
    number: u64,
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
            wake: Notify::new(),
            begun: Notify::new(),
            next: Cell::new(next),
            batch: Cell::new(0),
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
                self.refresh(&mut None).await;
                for waiter in waiting {
                    let _ = waiter.send(());
                }
            } else if !self.queue.borrow().is_empty() {
                let operations = self.take_batch();
                self.carry(operations).await;
            } else {
                self.wake.notified().await;
            }
        }
    }

    fn take_batch(&self) -> Vec<Queued> {
        let mut queue = self.queue.borrow_mut();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_OPERATIONS_MAX.get()
            && let Some(next) = queue.front()
        {
            bytes += next.operation.bytes();
            if bytes > BATCH_BYTES_MAX.get() && !batch.is_empty() {
                break;
            }
            batch.extend(queue.pop_front());
        }
        let taken: usize = batch.iter().map(|q| q.operation.held_bytes()).sum();
        self.queued_bytes.update(|bytes| *bytes -= taken);
        batch
    }

    /// Executes and commits a batch, as often as it takes.
    async fn carry(&self, operations: Vec<Queued>) {
        let mut operations = Some(operations);
        let _kept = self.replica.keep_all();
        while let Some(batch) = operations.take().filter(|_| !self.is_lost()) {
            let mut batch = batch;
            operations = match self.load_needs(&mut batch).await {
                Ok(true) => self.try_to_carry(batch).await,
                Ok(false) => Some(batch),
                Err(error) => {
                    self.recover_from(error).await;
                    Some(batch)
                }
            };
        }
    }

    /// Waits, and catches up if that may help.
    async fn recover_from(&self, error: Error) {
        probe!("keeper_store_error");
        match error {
            Error::transaction_too_old | Error::future_version => {}
            error if error.is_retryable() => sleep(RETRY_PAUSE).await,
            error => {
                trace_warn!("KeeperStoreError", "error" => error);
                sleep(10 * RETRY_PAUSE).await;
            }
        }
        self.refresh(&mut None).await;
    }

    /// Reads what the operations need, at the replica's version. Only the pipeline moves that on. False if it had to,
    /// and what was read before is out of date.
    async fn load_needs(&self, batch: &mut [Queued]) -> Result<bool> {
        let version = self.replica.version();
        for queued in &mut *batch {
            self.look_up(&mut queued.operation).await?;
        }
        let mut needed = BTreeSet::new();
        for queued in &*batch {
            queued.operation.needs(&mut |path| {
                if matches!(self.replica.node_if_known(path), Known::Unknown) {
                    needed.insert(Text::from(path));
                }
            });
        }
        self.load(needed.into_iter().collect()).await?;
        for queued in &*batch {
            if let Operation::Look(request) = &queued.operation {
                self.load_more(request).await?;
            }
        }
        Ok(self.replica.version() == version)
    }

    /// Reads what a read needs besides its node.
    async fn load_more(&self, request: &Request) -> Result<()> {
        let replica = &self.replica;
        match request {
            Request::GetData { path, .. } => {
                let path = paths::named(path);
                if let Known::Here(node) = replica.node_if_known(path) {
                    replica.data(path, &node).await?;
                }
            }
            Request::GetChildren { path, .. } | Request::GetChildren2 { path, .. } => {
                let path = paths::named(path);
                let is_here = matches!(replica.node_if_known(path), Known::Here(_));
                if is_here && replica.with_children(path, |_| ()).is_none() {
                    replica.load_children(path).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers reads that nobody's writes stand before any more.
    fn complete_looks(&self, batch: Vec<Queued>) {
        for queued in batch {
            let zxid = self.replica.zxid();
            let executed = Executed::One(Ok(Shape::Empty));
            (queued.complete)(&self.replica, Outcome::Done { zxid, executed }, Vec::new());
        }
    }

    async fn look_up(&self, operation: &mut Operation) -> Result<()> {
        let is_looked_up = matches!(
            operation,
            Operation::TakeSession { .. }
                | Operation::CloseSession { .. }
                | Operation::RemoveGateway { .. }
        );
        if is_looked_up && self.is_behind_own.get() {
            // What is read must have what this gateway itself has written last.
            self.refresh(&mut None).await;
        }
        let replica = &self.replica;
        match operation {
            Operation::TakeSession { session, found, .. } => {
                *found = replica.session(*session).await?
            }
            Operation::CloseSession {
                session,
                owner,
                found,
            } => {
                found.row = replica.session(*session).await?;
                (found.ephemerals, found.is_all) = replica.first_ephemerals(*session).await?;
                if let Owner::Gone { gateway, .. } = owner {
                    found.lease = replica.lease(*gateway).await?;
                }
            }
            Operation::RemoveGateway {
                gateway,
                found,
                has_sessions,
                ..
            } => {
                *found = replica.lease(*gateway).await?;
                *has_sessions = !replica.owned_by(*gateway).await?.is_empty();
            }
            _ => {}
        }
        Ok(())
    }

    async fn load(&self, paths: Vec<Text>) -> Result<()> {
        for some in paths.chunks(LOADS_AT_ONCE) {
            let loading = some.iter().map(|path| self.replica.load(path));
            for loaded in join_all(loading).await {
                if !loaded? {
                    self.refresh(&mut None).await;
                }
            }
        }
        Ok(())
    }

    fn mode(&self) -> Mode {
        let after = Duration::from_millis(ALONE_AFTER_MS.get());
        match self.others.get() {
            Some(seen) if seen.elapsed() < after => Mode::Shared,
            _ => Mode::Alone,
        }
    }

    /// Returns the operations if they must be tried again.
    async fn try_to_carry(&self, batch: Vec<Queued>) -> Option<Vec<Queued>> {
        if batch.iter().all(|queued| queued.is_look()) {
            self.complete_looks(batch);
            return None;
        }
        let version = self.replica.version();
        let number = self.batch.get() + 1;
        self.batch.set(number);
        self.begun.notify_one();
        let mode = self.mode();
        let view = Seen(&self.replica, &*self.listener);
        let mut plan = Plan::new(&view, unix_time_ms() as i64);
        let mut executed = Vec::with_capacity(batch.len());
        for (piece, queued) in (0..).zip(&batch) {
            plan.begin(piece);
            executed.push(execute(&mut plan, &queued.operation, self.gateway));
        }
        if !plan.missing.is_empty() {
            let missing: BTreeSet<Text> = std::mem::take(&mut plan.missing).into_iter().collect();
            if let Err(error) = self.load(missing.into_iter().collect()).await {
                self.recover_from(error).await;
            }
            return Some(batch);
        }
        let transaction = self.replica.database.create_transaction();
        let built = self.build(&transaction, &plan, version, batch.len(), number, mode);
        let changes = std::mem::take(&mut plan.changes);
        drop(plan);
        let mut attempt = Some(Attempt {
            operations: batch,
            executed,
            changes,
            number,
        });
        let began = now();
        let stamp = transaction.get_versionstamp();
        let result = match built {
            Ok(()) => transaction.commit().await,
            Err(error) => Err(error),
        };
        BATCHES.add(1);
        match result {
            Ok(()) => {
                self.in_touch.set(began);
                let stamp = stamp.await.expect("it has committed");
                if mode == Mode::Alone {
                    self.apply_own(attempt.take().expect("not applied yet"), stamp)
                        .await;
                    self.advance_alone(stamp);
                } else {
                    self.refresh_to(&mut attempt, Some(stamp)).await;
                }
            }
            Err(Error::not_committed) => {
                CONFLICTS.add(1);
                self.others.set(Some(now()));
                self.refresh(&mut attempt).await;
            }
            Err(Error::transaction_too_large | Error::value_too_large | Error::key_too_large) => {
                return self.split(attempt.take()?.operations);
            }
            Err(Error::commit_unknown_result) => {
                probe!("keeper_commit_unknown");
                self.refresh(&mut attempt).await;
            }
            Err(error) => self.recover_from(error).await,
        }
        attempt.map(|attempt| attempt.operations)
    }

    fn build(
        &self,
        transaction: &Transaction,
        plan: &Plan<'_>,
        version: Version,
        operations: usize,
        batch: u64,
        mode: Mode,
    ) -> Result<()> {
        transaction.set_read_version(version);
        transaction
            .take_places(u16::try_from(operations).expect("the knob's bounds follow from this"))?;
        let writer = Writer {
            rows: &self.replica.rows,
            stream: &self.stream,
            origin: Origin {
                gateway: self.gateway,
                batch,
            },
        };
        writer.write(transaction, plan, mode)
    }

    /// A batch that is larger than a transaction may be is tried in halves.
    fn split(&self, mut operations: Vec<Queued>) -> Option<Vec<Queued>> {
        probe!("keeper_batch_too_large");
        if operations.len() == 1 {
            let only = operations.pop().expect("there is one");
            (only.complete)(&self.replica, Outcome::TooLarge, Vec::new());
            return None;
        }
        let later = operations.split_off(operations.len() / 2);
        let held: usize = later.iter().map(|q| q.operation.held_bytes()).sum();
        self.queued_bytes.update(|bytes| *bytes += held);
        let mut queue = self.queue.borrow_mut();
        later
            .into_iter()
            .rev()
            .for_each(|queued| queue.push_front(queued));
        Some(operations)
    }

    /// Applies the changes of an own batch and completes its operations, one after the other.
    async fn apply_own(&self, attempt: Attempt, stamp: Versionstamp) {
        let mut pace = Pace::new();
        let zxids = self.replica.zxids;
        let zxid_of = |piece: u16| zxids.of(stamp.version(), stamp.order(), piece);
        let mut changes = attempt.changes.into_iter().peekable();
        let outcomes = attempt.operations.into_iter().zip(attempt.executed);
        for (piece, (queued, executed)) in (0..).zip(outcomes) {
            let zxid = zxid_of(piece);
            let mut stats = Vec::new();
            while let Some((_, mut change)) = changes.next_if(|(of, _)| *of == piece) {
                settle(&mut change, zxid_of);
                self.apply(stamp.version(), &change, zxid);
                if !matches!(change, Change::Guarded(..)) {
                    stats.push(self.stat_after(&change));
                }
            }
            // Also of an operation that failed: what its client reads next must not look older.
            if !queued.is_look() {
                self.replica.saw(zxid);
            }
            if executed == Executed::One(Ok(Shape::Unfinished)) {
                probe!("keeper_session_ends_in_pieces");
                self.queue.borrow_mut().push_front(queued);
                continue;
            }
            let outcome = Outcome::Done { zxid, executed };
            (queued.complete)(&self.replica, outcome, stats);
            if pace.is_over() {
                // Others may read between two operations of a batch: each is whole.
                pace.rest().await;
            }
        }
    }

    fn stat_after(&self, change: &Change) -> StepStat {
        match change {
            Change::Created(path, node)
            | Change::DataSet(path, node)
            | Change::AclSet(path, node) => Some(self.known_stat(path).unwrap_or(node.stat())),
            _ => None,
        }
    }

    fn known_stat(&self, path: &str) -> StepStat {
        match self.replica.node_if_known(path) {
            Known::Here(node) => Some(node.stat()),
            Known::Absent | Known::Unknown => None,
        }
    }

    fn apply(&self, version: Version, change: &Change, zxid: i64) {
        self.listener.before(&self.replica, change, zxid);
        self.replica.apply(version, change, zxid);
        if *change
            == (Change::GatewayRemoved {
                gateway: self.gateway,
            })
        {
            self.lose("others have ended its lease");
        }
    }

    /// Nobody has changed anything before the own commit. Others may have in the same version, behind it: so the
    /// replica has all of the version before, and its next transaction reads at that one. The own commit is no
    /// conflict for it ([`Mode::Alone`]).
    fn advance_alone(&self, stamp: Versionstamp) {
        self.replica.advance(stamp.version() - 1);
        self.is_behind_own.set(true);
        let own = Position {
            version: stamp.version(),
            order: stamp.order(),
            piece: u16::MAX,
        };
        self.next.set(own.next());
    }

    fn advance(&self, version: Version) {
        self.replica.advance(version);
        self.is_behind_own.set(false);
        self.next.set(Position::of_version(version + 1));
    }

    /// Reads what was committed. `attempt` is taken if it is found, or if its stamp says that it was committed.
    async fn refresh(&self, attempt: &mut Option<Attempt>) {
        self.refresh_to(attempt, None).await;
    }

    async fn refresh_to(&self, attempt: &mut Option<Attempt>, stamp: Option<Versionstamp>) {
        REFRESHES.add(1);
        while !self.is_lost() {
            match self.read_on(attempt, stamp).await {
                Ok(()) => return,
                Err(error @ (Error::stream_too_old | Error::stream_not_found)) => {
                    trace_warn!("KeeperMissedChanges", "error" => error);
                    self.lose("changes that it has not seen are gone");
                }
                Err(error) => {
                    if !error.is_retryable() {
                        trace_warn!("KeeperStoreError", "error" => error);
                    }
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn read_on(
        &self,
        attempt: &mut Option<Attempt>,
        stamp: Option<Versionstamp>,
    ) -> Result<()> {
        let transaction = self.replica.database.create_transaction();
        if let Some(stamp) = stamp {
            transaction.set_read_version(stamp.version());
        }
        let through = transaction.get_read_version().await?;
        if buggify!() {
            sleep(Duration::from_millis(plinth_runtime::random::below(30))).await;
        }
        let limit = StreamLimit::default();
        loop {
            let batch = self
                .stream
                .read(&transaction, self.next.get(), limit)
                .await?;
            for entry in batch.entries {
                self.take_entry(entry, attempt).await?;
            }
            if !batch.more {
                break;
            }
            self.next.set(batch.next);
        }
        if let (Some(stamp), Some(own)) = (stamp, attempt.take_if(|_| stamp.is_some())) {
            // It changed nothing, so it has no entry.
            self.apply_own(own, stamp).await;
        }
        if through > self.replica.version() {
            self.advance(through);
        }
        Ok(())
    }

    async fn take_entry(&self, entry: StreamEntry, attempt: &mut Option<Attempt>) -> Result<()> {
        let StreamContent::Appended(content) = entry.content else {
            return Err(Error::file_corrupt);
        };
        let position = entry.position;
        let stamp = Versionstamp::new(position.version, position.order);
        let zxids = self.replica.zxids;
        let (origin, changes) = parse_entry(&content, stamp, zxids).ok_or(Error::file_corrupt)?;
        if origin.gateway == self.gateway {
            // Later entries of the batch find nothing to take: all of it was applied with the first.
            if let Some(own) = attempt.take_if(|attempt| attempt.number == origin.batch) {
                self.apply_own(own, stamp).await;
            }
        } else {
            self.others.set(Some(now()));
            for (piece, change) in changes {
                let zxid = zxids.of(position.version, position.order, piece);
                self.apply(position.version, &change, zxid);
            }
        }
        self.next.set(position.next());
        Ok(())
    }
}

/// Puts in the zxids of the commit.
fn settle(change: &mut Change, zxid_of: impl Fn(u16) -> i64) {
    if let Change::Created(_, node) | Change::DataSet(_, node) | Change::AclSet(_, node) = change {
        node.settle(zxid_of);
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
