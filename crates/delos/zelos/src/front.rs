//! How a gateway writes to the log, and where its replica moves on.
//!
//! ```text
//!   operations ──► batch ──► entry ──► log ──► executed here and everywhere ──► replica, answers
//! ```
//! What has gathered becomes a batch; a few are under way at a time, and the stack keeps their order and lets them
//! share what they can. An operation is answered when this replica has executed it. A read that stands behind writes
//! of its session is not in the entry: it has its place among the operations, and is answered there.
//!
//! Whatever makes the fate of a batch unknown ends the life of the gateway: its clients are disconnected, and take up
//! their sessions again. A batch that comes into the log after that does nothing to a session that was taken up,
//! because the session's row names another life.

#[cfg(test)]
mod tests;

use crate::done::Done;
use crate::entry::{Head, OPERATIONS_MAX, Writing, bytes_of};
use crate::{ENTRIES, ENTRIES_AT_ONCE, IDLE_LOOK_MS, LOOK_MS};
use plinth_core::Result;
use plinth_delos::entry::Entry;
use plinth_delos::log::LogPos;
use plinth_delos::stack::Lost;
use plinth_keeper::LIST_BYTES_MAX;
use plinth_keeper::paths;
use plinth_keeper::queue::{Queue, Queued};
use plinth_keeper::replica::{KeepAll, Replica};
use plinth_keeper::store::{Boxed, may_pass};
use plinth_keeper::tree::change::Change;
use plinth_keeper::tree::execute::{Executed, Operation, Owner, Shape};
use plinth_keeper::tree::plan::Known;
use plinth_keeper::tree::quota::{Counted, QuotaChange};
use plinth_keeper::wire::{Code, Request};
use plinth_keeper::writes::{Complete, Listener, Outcome, StepStat, Writes};
use plinth_runtime::sync::{Notify, OneshotReceiver, OneshotSender, Watch, oneshot};
use plinth_runtime::{
    Duration, Instant, TaskGroup, now, probe, race, sleep, trace_warn, unix_time_ms,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// A batch with so many bytes takes no more operations.
const BATCH_BYTES: usize = 256 << 10;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The stack below.
pub trait Proposes {
    /// Adds an entry to the log; false if nobody knows what becomes of it.
    ///
    /// # Errors
    /// See [`Lost`].
    fn propose(&self, entry: Entry) -> Boxed<'_, std::result::Result<bool, Lost>>;

    /// Ends when this replica has everything that was proposed and answered anywhere before the call.
    ///
    /// # Errors
    /// See [`Lost`].
    fn sync(&self) -> Boxed<'_, std::result::Result<(), Lost>>;

    /// The last position that this replica has executed.
    fn applied(&self) -> LogPos;
}

/// A batch under way.
struct Flight {
    number: u64,
    /// In order; looks are among them.
    operations: Vec<Queued>,
    /// What its looks look at stays in memory.
    _kept: Option<KeepAll>,
}

/// See the module.
pub struct Front {
    me: Weak<Front>,
    pub replica: Rc<Replica>,
    stack: Rc<dyn Proposes>,
    gateway: u64,
    listener: Rc<dyn Listener>,
    queue: Queue,
    wake: Notify,
    /// Who waits until the replica has everything, from the next look at the log's end on.
    waiting: RefCell<Vec<OneshotSender<()>>>,
    wake_looker: Notify,
    /// Number of the last batch.
    number: Cell<u64>,
    flights: RefCell<VecDeque<Flight>>,
    /// When an entry of this gateway was last executed.
    executed: Cell<Instant>,
    is_lost: Cell<bool>,
    end: Notify,
    tasks: TaskGroup,
}

impl Front {
    pub fn new(
        replica: Rc<Replica>,
        stack: Rc<dyn Proposes>,
        gateway: u64,
        listener: Rc<dyn Listener>,
    ) -> Rc<Front> {
        Rc::new_cyclic(|me| Front {
            me: me.clone(),
            replica,
            stack,
            gateway,
            listener,
            queue: Queue::default(),
            wake: Notify::new(),
            waiting: RefCell::default(),
            wake_looker: Notify::new(),
            number: Cell::new(0),
            flights: RefCell::default(),
            executed: Cell::new(now()),
            is_lost: Cell::new(false),
            end: Notify::new(),
            tasks: TaskGroup::new(),
        })
    }

    fn lose(&self, why: &'static str) {
        if !self.is_lost.replace(true) {
            self.listener.lost(why);
            self.end.notify_one();
        }
    }

    // ---- writing ----

    /// Writes batches, for ever.
    async fn write(&self) {
        loop {
            let batch = match self.may_begin() {
                true => self.take_batch(),
                false => Vec::new(),
            };
            if batch.is_empty() {
                self.wake.notified().await;
            } else {
                self.begin(batch).await;
            }
        }
    }

    fn may_begin(&self) -> bool {
        let under_way = self.flights.borrow().len();
        // What looks need stays in memory until nothing is under way.
        under_way == 0 || (under_way < ENTRIES_AT_ONCE.get() && !self.replica.is_over_full())
    }

    fn take_batch(&self) -> Vec<Queued> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < OPERATIONS_MAX
            && let Some(next) = self.queue.pop_front()
        {
            if self.is_called_off(&next.operation) {
                let (zxid, executed) = (self.replica.zxid(), Executed::One(Err(Code::BAD_VERSION)));
                let outcome = Outcome::Done { zxid, executed };
                (next.complete)(&self.replica, outcome, Vec::new());
                continue;
            }
            bytes += bytes_of(&next.operation);
            if bytes > BATCH_BYTES && !batch.is_empty() {
                self.queue.push_front(next);
                break;
            }
            batch.push(next);
        }
        batch
    }

    /// True for the end of a session whose client was heard again. What comes into the log behind it comes too late.
    fn is_called_off(&self, operation: &Operation) -> bool {
        match operation {
            Operation::CloseSession { session, owner, .. } => {
                *owner == Owner::Silent && !self.listener.is_silent(*session)
            }
            _ => false,
        }
    }

    async fn begin(&self, batch: Vec<Queued>) {
        let has_looks = batch.iter().any(Queued::is_look);
        let kept = has_looks.then(|| self.replica.keep_all());
        for queued in batch.iter().filter(|queued| queued.is_look()) {
            while let Err(error) = self.load(&queued.operation).await {
                trace_warn!("ZelosLoadFailed", "error" => error);
                if !may_pass(error) {
                    // Whoever reads finds it unknown. The others do not wait for it.
                    break;
                }
                sleep(RETRY_PAUSE).await;
            }
        }
        if batch.iter().all(Queued::is_look) {
            return self.look(batch, kept);
        }
        let number = self.number.get() + 1;
        self.number.set(number);
        let mut writing = Writing::begin(Head {
            gateway: self.gateway,
            number,
            now_ms: unix_time_ms() as i64,
            enforces_quotas: self.listener.enforces_quotas(),
        });
        let writes = batch.iter().filter(|queued| !queued.is_look());
        writes.for_each(|queued| writing.put(&queued.operation));
        self.flights.borrow_mut().push_back(Flight {
            number,
            operations: batch,
            _kept: kept,
        });
        ENTRIES.add(1);
        self.propose(Entry::new(writing.end())).await;
    }

    /// Hands an entry to the stack, after those before it, and does not wait for what becomes of it.
    async fn propose(&self, entry: Entry) {
        let stack = self.stack.clone();
        let me = self.me.clone();
        let mut proposing = Box::pin(async move {
            let proposed = stack.propose(entry).await;
            let why = match proposed {
                Ok(true) => return,
                Ok(false) => "an entry was refused, or its fate is unknown",
                Err(Lost::Elsewhere(_)) => "another replica has the lease, and only it may write",
                Err(_) => "the log is in trouble",
            };
            if let Some(front) = me.upgrade() {
                front.lose(why);
            }
        });
        // The stack takes it now, in its order.
        let is_over = std::future::poll_fn(|context| {
            std::task::Poll::Ready(proposing.as_mut().poll(context).is_ready())
        });
        if !is_over.await {
            self.tasks.spawn("zelos entry", proposing);
        }
    }

    /// Looks without writes among them stand behind what is under way.
    fn look(&self, batch: Vec<Queued>, kept: Option<KeepAll>) {
        let mut flights = self.flights.borrow_mut();
        if let Some(last) = flights.back_mut() {
            last.operations.extend(batch);
            if last._kept.is_none() {
                last._kept = kept;
            }
            return;
        }
        drop(flights);
        batch
            .into_iter()
            .for_each(|queued| self.answer_look(queued));
    }

    /// Loads what a read will look at. From then on the replica follows its changes.
    async fn load(&self, look: &Operation) -> Result<()> {
        let Operation::Look { request, most, .. } = look else {
            return Ok(());
        };
        let mut left = *most;
        for part in request.parts() {
            // Of what takes more memory not all is loaded: whoever reads sees that.
            if self.replica.cost(part) > left {
                break;
            }
            self.load_one(part, left).await?;
            match left.checked_sub(self.replica.cost(part)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        Ok(())
    }

    async fn load_one(&self, request: &Request, left: usize) -> Result<()> {
        let (path, has_data, has_children) = match request {
            Request::Exists { path, .. } => (path, false, false),
            Request::GetData { path, .. } => (path, true, false),
            Request::GetChildren { path, .. } | Request::GetChildren2 { path, .. } => {
                (path, false, true)
            }
            Request::List { path, .. } | Request::ListRecursive { path, .. } => {
                // Again if somebody has changed some of it meanwhile.
                while paths::is_valid(paths::named(path))
                    && !self.replica.load_below(request, left).await?
                {}
                return Ok(());
            }
            _ => return Ok(()),
        };
        let path = paths::named(path);
        if !paths::is_valid(path) {
            return Ok(());
        }
        let replica = &self.replica;
        // Again if somebody has changed it meanwhile.
        loop {
            match replica.node_if_known(path) {
                Known::Unknown => {
                    replica.load(path).await?;
                }
                Known::Absent | Known::Damaged => return Ok(()),
                Known::Here(node) if !has_data || replica.data(path, &node).await?.is_some() => {
                    break;
                }
                Known::Here(_) => {}
            }
        }
        // Again if a child has come or gone meanwhile. A list that is too long stays unknown.
        while has_children
            && matches!(replica.node_if_known(path), Known::Here(_))
            && replica.with_children(path, |_| ()).is_none()
        {
            if !replica
                .load_children(path, left.min(LIST_BYTES_MAX.get()))
                .await?
            {
                break;
            }
        }
        Ok(())
    }

    fn answer_look(&self, look: Queued) {
        let zxid = self.replica.zxid();
        let executed = Executed::One(Ok(Shape::Empty));
        (look.complete)(&self.replica, Outcome::Done { zxid, executed }, Vec::new());
    }

    // ---- what was executed ----

    /// Takes what an entry has changed, in the order of the log.
    pub fn take(&self, done: Done) {
        let version = done.version();
        let flight = self.take_flight(&done.head);
        let mut operations = VecDeque::new();
        if let Some(flight) = flight {
            self.executed.set(now());
            let writes = flight.operations.iter().filter(|queued| !queued.is_look());
            assert_eq!(
                writes.count(),
                done.executed.len(),
                "what became of entry {} is told to others than have asked",
                done.head.number
            );
            operations.extend(flight.operations);
            let exceeded = done.exceeded.iter();
            exceeded.for_each(|(exceeded, path)| self.listener.exceeds(exceeded, path));
        }
        let is_own = !operations.is_empty();
        let first_zxid = done.zxid(0);
        let mut changes = done.changes.into_iter().peekable();
        for (piece, executed) in (0_u16..).zip(done.executed) {
            self.answer_looks(&mut operations);
            let zxid = first_zxid + i64::from(piece);
            let mut stats = Vec::new();
            while let Some((_, change)) = changes.next_if(|(of, _)| *of == piece) {
                self.listener.before(&self.replica, &change, zxid);
                self.replica.apply(version, &change, zxid);
                if is_own && !matches!(change, Change::Guarded(..) | Change::Quota(..)) {
                    stats.push(stat_after(&change));
                }
                self.act_on(change, is_own);
            }
            self.replica.saw(zxid);
            if let Some(queued) = operations.pop_front() {
                self.finish(queued, zxid, executed, stats);
            }
        }
        self.answer_looks(&mut operations);
        self.replica.advance(version);
        self.wake.notify_one();
    }

    fn take_flight(&self, head: &Head) -> Option<Flight> {
        if head.gateway != self.gateway {
            return None;
        }
        let mut flights = self.flights.borrow_mut();
        let is_first = flights.front()?.number == head.number;
        if is_first {
            return flights.pop_front();
        }
        drop(flights);
        // An engine that keeps the order is off.
        self.lose("entries came into the log out of order");
        None
    }

    fn answer_looks(&self, operations: &mut VecDeque<Queued>) {
        while operations.front().is_some_and(Queued::is_look) {
            let look = operations.pop_front().expect("it is there");
            self.answer_look(look);
        }
    }

    /// What the gateway itself does about a change.
    fn act_on(&self, change: Change, is_own: bool) {
        match change {
            Change::GatewayRemoved { gateway } if gateway == self.gateway => {
                self.lose("others have ended its lease");
            }
            // A new quota is counted before this gateway writes anything else.
            Change::Quota(path, QuotaChange::Made(quota))
                if is_own && quota.counted == Counted::Nothing =>
            {
                let operation = Operation::CountQuota { path, found: None };
                self.queue.push_front(Queued::of_the_gateway(operation));
            }
            _ => {}
        }
    }

    fn finish(&self, queued: Queued, zxid: i64, executed: Executed, stats: Vec<StepStat>) {
        if executed == Executed::One(Ok(Shape::Unfinished)) {
            probe!("zelos_session_ends_in_pieces");
            return self.queue.push_front(queued);
        }
        let outcome = Outcome::Done { zxid, executed };
        (queued.complete)(&self.replica, outcome, stats);
    }

    // ---- what others write ----

    /// Plays the log when somebody asks for it, or this gateway has executed nothing of its own for a while.
    async fn follow(&self) {
        loop {
            let pause = Duration::from_millis(match self.listener.has_clients() {
                true => LOOK_MS.get(),
                false => IDLE_LOOK_MS.get(),
            });
            race(self.wake_looker.notified(), sleep(pause)).await;
            let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            let is_busy = self.executed.get().elapsed() < pause;
            if waiting.is_empty() && is_busy {
                continue;
            }
            match self.stack.sync().await {
                Ok(()) => {
                    // Entries of engines are not handed on.
                    self.replica.advance(self.stack.applied() as i64);
                    waiting.into_iter().for_each(|waiter| {
                        let _ = waiter.send(()); // it may wait no longer
                    });
                }
                Err(error) => {
                    trace_warn!("ZelosSyncFailed", "error" => error);
                    self.waiting.borrow_mut().extend(waiting);
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

/// The `Stat` of the node that was changed, right after that.
fn stat_after(change: &Change) -> StepStat {
    match change {
        Change::Created(_, node) | Change::DataSet(_, node) | Change::AclSet(_, node) => {
            Some(node.stat())
        }
        _ => None,
    }
}

impl Writes for Front {
    fn submit(&self, operation: Operation, complete: Complete) {
        self.queue.push(Queued {
            operation,
            complete,
            trace: None,
        });
        self.wake.notify_one();
    }

    fn refreshed(&self) -> OneshotReceiver<()> {
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().push(sender);
        self.wake_looker.notify_one();
        receiver
    }

    fn beat(&self, row: Vec<u8>) -> Boxed<'_, bool> {
        let (sender, receiver) = oneshot();
        // Before all that waits: it is of no session, and who has much to do is not gone.
        self.queue.push_front(Queued {
            operation: Operation::Beat { row },
            trace: None,
            complete: Box::new(move |_, _, _| {
                let _ = sender.send(()); // it may wait no longer
            }),
        });
        self.wake.notify_one();
        Box::pin(async move { receiver.await.is_ok() })
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
            race(self.end.notified(), race(self.write(), self.follow())).await;
        })
    }
}
