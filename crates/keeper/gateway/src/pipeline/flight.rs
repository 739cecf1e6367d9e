//! Batches on their way: executed, sent to the store, answered or executed again.

use super::{Pipeline, RETRY_PAUSE, Seen};
use crate::commit::{Mode, Relied, Writer};
use crate::paths;
use crate::pinned::Pinned;
use crate::queue::Queued;
use crate::quotas;
use crate::replica::KeepAll;
use crate::room::once;
use crate::trace::{self, Mark};
use crate::tree::change::{Change, Origin};
use crate::tree::execute::{Executed, Operation, Owner, Shape, execute};
use crate::tree::locks::LockSet;
use crate::tree::plan::{Known, Plan};
use crate::tree::rows::{Lock, Rows};
use crate::wire::{Request, Text};
use crate::writes::{Outcome, Writes};
use crate::{BATCHES, BATCHES_AT_ONCE, CONFLICTS, LIST_BYTES_MAX};
use plinth_client::Transaction;
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Result};
use plinth_runtime::checks::are_expensive_on;
use plinth_runtime::{
    Instant, Task, join_all, now, planted, probe, sleep, spawn, trace_warn, unix_time_ms,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Reads of the store for one batch that run at the same time.
const LOADS_AT_ONCE: usize = 100;
/// Most batches that go alone after one that could not begin because it relied on what another writes.
const APART_MAX: u32 = 63;

/// When an operation may begin.
pub(super) enum Turn {
    Now,
    /// After a batch that is under way. Operations of other sessions need not wait for it.
    Later,
    /// After all batches that are under way, and before all operations behind it.
    Alone,
}

/// Operations whose turn has not come.
#[derive(Default)]
pub(super) struct Later {
    pub operations: Vec<Queued>,
    sessions: BTreeSet<i64>,
}

impl Later {
    pub fn push(&mut self, queued: Queued) {
        self.sessions.extend(queued.operation.session());
        self.operations.push(queued);
    }
}

/// A batch that was executed and may have been committed.
pub(super) struct Flight {
    pub operations: Vec<Queued>,
    pub executed: Vec<Executed>,
    pub changes: Vec<(u16, Change)>,
    pub number: u64,
    began: Instant,
    mode: Mode,
    /// Whose operations it has. `None` if nothing may begin beside it.
    sessions: Option<BTreeSet<i64>>,
    writes: LockSet,
    /// What the store has said.
    result: Rc<Cell<Option<Result<Versionstamp>>>>,
    /// What its reads look at stays in memory.
    _kept: Option<KeepAll>,
    /// So do the nodes whose counts are in the answers to its writes: a change of data does not tell them.
    _pinned: Pinned,
    _commit: Task<()>,
}

impl Pipeline {
    /// True if the store has said what became of the batch that began first.
    pub(super) fn has_landed(&self) -> bool {
        let flights = self.flights.borrow();
        flights
            .front()
            .is_some_and(|first| first.result.get().is_some())
    }

    /// True if a batch may begin now.
    pub(super) fn may_begin(&self) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let flights = self.flights.borrow();
        let Some(last) = flights.back() else {
            return true;
        };
        // Each transaction costs something besides its operations: a few of them do not go by themselves.
        let is_worth_it = 2 * self.queue.len() >= last.operations.len();
        let has_room = flights.len() < BATCHES_AT_ONCE.get() && !self.replica.is_over_full();
        has_room && is_worth_it && self.apart.get() == 0
    }

    /// When the operation may begin, in a batch that has `batch` already, beside the batches that are under way.
    pub(super) fn turn(&self, queued: &Queued, batch: &[Queued], later: &Later) -> Turn {
        // Nothing that a batch of clients who come back has may be refused, or be long in coming.
        let is_behind_takes = batch.first().is_some_and(Queued::takes_a_session);
        if is_behind_takes && !queued.takes_a_session() {
            return Turn::Alone;
        }
        let is_other = |first: &Queued| first.is_look() != queued.is_look();
        let is_kept_apart = self.looks_apart.get() > 0 && batch.first().is_some_and(is_other);
        let flights = self.flights.borrow();
        if flights.is_empty() && later.operations.is_empty() && !is_kept_apart {
            return Turn::Now;
        }
        let Some(session) = queued.operation.session() else {
            return Turn::Alone;
        };
        let is_in = |flight: &Flight| {
            flight
                .sessions
                .as_ref()
                .is_none_or(|s| s.contains(&session))
        };
        let is_behind = later.sessions.contains(&session) || flights.iter().any(is_in);
        if is_behind || is_kept_apart {
            return Turn::Later;
        }
        let mut is_written = false;
        queued.operation.needs(&mut |path| {
            let hash = Rows::path_hash(path);
            let written = |lock| flights.iter().any(|f| f.writes.contains((lock, hash)));
            is_written |= written(Lock::Existence) || written(Lock::Data);
        });
        // Whether it relies on anything else that the others write is seen when it has been executed.
        if is_written { Turn::Later } else { Turn::Now }
    }

    /// Executes a batch, as often as it takes, and sends it to the store. False if no operation may begin.
    pub(super) async fn begin(&self) -> bool {
        let batch = self.take_batch();
        if batch.is_empty() {
            self.apart.set(1);
            return false;
        }
        let trace = batch.iter().find_map(|queued| queued.trace.clone());
        trace::note(trace.as_ref(), Mark::Taken);
        let kept = self.replica.keep_all();
        self.apart.set(self.apart.get().saturating_sub(1));
        let mut operations = Some(batch);
        let mut too_long = BTreeSet::new();
        while let Some(batch) = operations.take().filter(|_| !self.is_lost()) {
            let mut batch = batch;
            operations = match self.load_needs(&mut batch).await {
                Ok(true) => {
                    trace::note(trace.as_ref(), Mark::Loaded);
                    self.launch(batch, &kept, &mut too_long).await
                }
                Ok(false) => Some(batch),
                Err(error) => {
                    self.recover_from(error).await;
                    Some(batch)
                }
            };
        }
        true
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
        self.refresh().await;
    }

    /// Reads what the operations need and the plan cannot ask for, at the replica's version. Only the pipeline moves
    /// that on. False if it had to, and what was read before is out of date.
    async fn load_needs(&self, batch: &mut Vec<Queued>) -> Result<bool> {
        let is_looked_up = |queued: &Queued| {
            matches!(
                queued.operation,
                Operation::TakeSession { .. }
                    | Operation::CloseSession { .. }
                    | Operation::RemoveGateway { .. }
                    | Operation::CountQuota { .. }
            )
        };
        if self.is_behind_own.get() && batch.iter().any(is_looked_up) {
            // What is read must have what this gateway itself has written last.
            self.refresh().await;
            if self.is_lost() {
                return Ok(false); // a commit behind the end of the lease would not be refused
            }
        }
        let version = self.replica.version();
        for some in batch.chunks_mut(LOADS_AT_ONCE) {
            let looking = some
                .iter_mut()
                .map(|queued| self.look_up(&mut queued.operation));
            join_all(looking)
                .await
                .into_iter()
                .collect::<Result<()>>()?;
        }
        let mut needed = BTreeSet::new();
        for queued in batch.iter().filter(|queued| queued.is_look()) {
            queued.operation.needs(&mut |path| {
                if matches!(self.replica.node_if_known(path), Known::Unknown) {
                    needed.insert(Text::from(path));
                }
            });
        }
        self.load(needed.into_iter().collect()).await?;
        let (_, before) = self.replica.cached();
        for number in 0..batch.len() {
            let Operation::Look { request, most, .. } = &batch[number].operation else {
                continue;
            };
            if !self.load_look(request, *most).await? {
                probe!("keeper_look_behind_own_changes");
                self.refresh().await;
                return Ok(false);
            }
            let (_, now) = self.replica.cached();
            if now.saturating_sub(before) > self.replica.room.most() / 2 {
                // Nothing leaves the memory before the batch has ended: the others come next.
                self.queue.put_back(batch.split_off(number + 1));
                break;
            }
        }
        Ok(self.replica.version() == version)
    }

    /// Loads what a read looks at, as far as `most` bytes of memory go: whoever reads sees that it is not all there.
    /// False as from [`load_more`](Self::load_more).
    async fn load_look(&self, request: &Request, most: usize) -> Result<bool> {
        let mut left = most;
        for part in once(request.parts()) {
            if self.replica.cost(part) > left {
                break;
            }
            if !self.load_more(part, left).await? {
                return Ok(false);
            }
            match left.checked_sub(self.replica.cost(part)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        Ok(true)
    }

    /// Reads what a read needs besides its node. False if the store's rows, at the replica's version, lack what this
    /// gateway itself has changed last.
    async fn load_more(&self, request: &Request, left: usize) -> Result<bool> {
        let replica = &self.replica;
        match request {
            Request::GetData { path, .. } => {
                let path = paths::named(path);
                match replica.node_if_known(path) {
                    Known::Here(node) => Ok(replica.data(path, &node).await?.is_some()),
                    Known::Absent | Known::Damaged | Known::Unknown => Ok(true),
                }
            }
            Request::GetChildren { path, .. } | Request::GetChildren2 { path, .. } => {
                let path = paths::named(path);
                let is_known = || replica.with_children(path, |_| ()).is_some();
                let is_here = matches!(replica.node_if_known(path), Known::Here(_));
                if !is_here || is_known() {
                    return Ok(true);
                }
                let is_short = replica
                    .load_children(path, left.min(LIST_BYTES_MAX.get()))
                    .await?;
                Ok(!is_short || is_known())
            }
            Request::List { .. } | Request::ListRecursive { .. } => {
                replica.load_below(request, left).await
            }
            _ => Ok(true),
        }
    }

    async fn look_up(&self, operation: &mut Operation) -> Result<()> {
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
                let ends_for = match owner {
                    Owner::Gone { gateway, .. } => Some(*gateway),
                    Owner::Own | Owner::Silent if self.listener.owns(*session) => {
                        Some(self.gateway)
                    }
                    Owner::Own | Owner::Silent => None,
                };
                found.row = replica.session_to_end(*session, ends_for).await?;
                replica.note_ephemerals(*session, found).await?;
                if let Owner::Gone { gateway, .. } = owner {
                    found.lease = replica.lease(*gateway).await?;
                }
            }
            Operation::CountQuota { path, found } => {
                *found = Some(quotas::next_piece(replica, path).await?);
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
                    self.refresh().await;
                }
            }
        }
        Ok(())
    }

    /// Reads what a plan has missed. Lists that need too much memory are noted.
    async fn load_missing(
        &self,
        nodes: Vec<Text>,
        lists: Vec<Text>,
        too_long: &mut BTreeSet<Text>,
    ) -> Result<()> {
        self.load(nodes).await?;
        for path in lists {
            let is_read = self.replica.load_children(&path, LIST_BYTES_MAX.get());
            if !is_read.await? {
                probe!("keeper_list_to_delete_too_long");
                too_long.insert(path);
            } else if self.replica.names(&path).is_none() {
                // The store's rows lack what this gateway itself has changed last.
                self.refresh().await;
            }
        }
        Ok(())
    }

    /// Returns the operations if they must be executed again.
    async fn launch(
        &self,
        batch: Vec<Queued>,
        kept: &KeepAll,
        too_long: &mut BTreeSet<Text>,
    ) -> Option<Vec<Queued>> {
        if batch.iter().all(|queued| queued.is_look()) {
            self.complete_looks(batch);
            return None;
        }
        let view = Seen {
            replica: &self.replica,
            listener: &*self.listener,
            too_long,
        };
        let mut plan = Plan::new(&view, unix_time_ms() as i64, self.seed);
        let mut executed = Vec::with_capacity(batch.len());
        for (piece, queued) in (0..).zip(&batch) {
            plan.begin(piece);
            executed.push(execute(&mut plan, &queued.operation, self.gateway));
        }
        if !plan.is_all_read() {
            let missing: BTreeSet<Text> = std::mem::take(&mut plan.missing).into_iter().collect();
            let lists = std::mem::take(&mut plan.missing_lists);
            let missing = missing.into_iter().collect();
            if let Err(error) = self.load_missing(missing, lists, too_long).await {
                self.recover_from(error).await;
            }
            return Some(batch);
        }
        plan.end();
        let reads = std::mem::take(&mut plan.reads).seal();
        if self.relies_on_flights(&reads) {
            probe!("keeper_batch_waits_for_another");
            let penalty = self.penalty.get();
            self.apart.set(penalty);
            self.penalty.set((2 * penalty + 1).min(APART_MAX));
            self.land_all().await;
            return Some(batch);
        }
        self.send(batch, executed, plan, reads, kept);
        None
    }

    /// True if a batch under way writes what the plan has read.
    fn relies_on_flights(&self, reads: &LockSet) -> bool {
        let is_overlooked = planted!(
            "keeper_batches_overlap",
            "a batch relies on what the one before it, still under way, changes"
        );
        let flights = self.flights.borrow();
        let mut writes = flights.iter().map(|flight| &flight.writes);
        !is_overlooked && writes.any(|writes| writes.meets(reads))
    }

    fn send(
        &self,
        batch: Vec<Queued>,
        executed: Vec<Executed>,
        mut plan: Plan<'_>,
        reads: LockSet,
        kept: &KeepAll,
    ) {
        if !self.flights.borrow().is_empty() {
            self.penalty.set(self.penalty.get() / 2);
        }
        BATCHES.add(1);
        let number = self.batch.get() + 1;
        self.batch.set(number);
        self.begun.notify_one();
        let mode = self.company.mode();
        let transaction = self.database.create_transaction();
        let trace = batch.iter().find_map(|queued| queued.trace.clone());
        if let Some(trace) = &trace {
            trace.commits(transaction.trace_commit(), mode == Mode::Alone);
        }
        let writes = std::mem::take(&mut plan.writes).seal();
        let relied = Relied {
            reads: &reads,
            writes: &writes,
        };
        let built = self.build(&transaction, &plan, relied, batch.len(), number, mode);
        let result = Rc::new(Cell::new(None));
        let (landed, wake) = (result.clone(), self.wake.clone());
        let (took, began) = (self.company.took.clone(), now());
        trace::note(trace.as_ref(), Mark::Sent);
        let commit = spawn("keeper_commit", async move {
            landed.set(Some(commit(transaction, built).await));
            trace::note(trace.as_ref(), Mark::Committed);
            took.set(began.elapsed());
            wake.notify_one();
        });
        let has_looks = batch.iter().any(|queued| queued.is_look());
        let sessions = batch.iter().map(|queued| queued.operation.session());
        let sessions: Option<BTreeSet<i64>> = sessions.collect();
        let pinned = self.pinned(&plan.changes);
        self.begins_beside(&sessions, number);
        self.flights.borrow_mut().push_back(Flight {
            sessions,
            operations: batch,
            executed,
            changes: plan.changes,
            number,
            began,
            mode,
            writes,
            result,
            _kept: has_looks.then(|| kept.clone()),
            _pinned: pinned,
            _commit: commit,
        });
    }

    /// The nodes whose counts will be in the answers to these changes.
    fn pinned(&self, changes: &[(u16, Change)]) -> Pinned {
        let counted = changes.iter().filter_map(|(_, change)| match change {
            Change::DataSet(path, _) | Change::AclSet(path, _) => Some(path.clone()),
            _ => None,
        });
        let is_forgotten = planted!(
            "keeper_written_node_driven_out",
            "a node that is written may leave a gateway's memory before the write is answered with its counts"
        );
        Pinned::new(
            self.replica.clone(),
            counted.filter(|_| !is_forgotten).collect(),
        )
    }

    /// Asserts that the batch with this number, of these sessions, may begin beside those that are under way.
    fn begins_beside(&self, sessions: &Option<BTreeSet<i64>>, number: u64) {
        let flights = self.flights.borrow();
        let last = flights.back().map(|flight| flight.number);
        assert!(
            last.is_none_or(|last| last < number),
            "batch {number} begins behind {last:?}"
        );
        for flight in flights.iter() {
            let (Some(ours), Some(theirs)) = (sessions, &flight.sessions) else {
                panic!("batch {number} or {} must be alone", flight.number);
            };
            let both = || ours.intersection(theirs).next().copied();
            if are_expensive_on() {
                assert_eq!(
                    both(),
                    None,
                    "a session in batches {number} and {}",
                    flight.number
                );
            }
        }
    }

    fn build(
        &self,
        transaction: &Transaction,
        plan: &Plan<'_>,
        relied: Relied<'_>,
        operations: usize,
        batch: u64,
        mode: Mode,
    ) -> Result<()> {
        transaction.set_read_version(self.replica.version());
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
        writer.write(transaction, plan, relied, mode)
    }

    /// Waits for all batches under way.
    pub(super) async fn land_all(&self) {
        while !self.flights.borrow().is_empty() && !self.is_lost() {
            if self.has_landed() {
                self.land().await;
            } else {
                self.wake.notified().await;
            }
        }
    }

    /// Does what follows for the batch that began first: its operations are answered, or go back to the queue.
    pub(super) async fn land(&self) {
        let first = self.flights.borrow_mut().pop_front();
        let Some(flight) = first else { return };
        let mut traces = flight.operations.iter().filter_map(|q| q.trace.as_ref());
        trace::note(traces.next(), Mark::Landing);
        let number = flight.number;
        let result = flight.result.get().expect("the store has answered");
        if result.is_ok() {
            self.company.got_through();
        }
        match result {
            Ok(stamp) if stamp.version() <= self.replica.version() => {
                let (version, changes) = (self.replica.version(), flight.changes.len());
                assert_eq!(
                    changes, 0,
                    "changes of {stamp:?} were not in the stream up to {version}"
                );
                self.apply_own(flight, stamp).await;
            }
            Ok(stamp) if flight.mode == Mode::Alone => {
                self.apply_own(flight, stamp).await;
                self.advance_alone(stamp);
            }
            Ok(stamp) => {
                self.flights.borrow_mut().push_front(flight);
                self.refresh_through(number, stamp).await;
            }
            Err(Error::not_committed) => self.take_back(flight).await,
            Err(Error::transaction_too_large | Error::value_too_large | Error::key_too_large) => {
                self.split(flight.operations);
            }
            Err(Error::commit_unknown_result) => {
                probe!("keeper_commit_unknown");
                self.flights.borrow_mut().push_front(flight);
                self.refresh().await;
                // The stream would have had it.
                if let Some(flight) = self.take_flight(number) {
                    self.queue.put_back(flight.operations);
                }
            }
            Err(error) => {
                let is_too_old = matches!(error, Error::transaction_too_old);
                if is_too_old && flight.operations.iter().any(Queued::is_look) {
                    // What the reads look at may take longer to load than the store keeps a version.
                    probe!("keeper_writes_wait_for_looks");
                    self.looks_apart.set(flight.operations.len());
                }
                self.queue.put_back(flight.operations);
                self.recover_from(error).await;
            }
        }
    }

    /// Others were ahead of a batch: it is executed again.
    async fn take_back(&self, flight: Flight) {
        CONFLICTS.add(1);
        let counted_on_being_alone =
            flight.mode == Mode::Alone && self.company.mode() == Mode::Alone;
        let changes = self.company.changes();
        self.company.met();
        self.was_refused(flight.began);
        if flight.operations.iter().any(Queued::looks_at_data) {
            probe!("keeper_look_at_what_others_change");
            self.looks_apart.set(flight.operations.len());
        }
        self.queue.put_back(flight.operations);
        self.refresh().await;
        let is_unchanged = self.company.changes() == changes;
        if counted_on_being_alone && is_unchanged && !self.is_overtaken(flight.number) {
            self.company.heard_a_knock();
        }
    }

    /// True if an own batch has committed that began later.
    fn is_overtaken(&self, number: u64) -> bool {
        let is_later = |(later, _): (u64, Versionstamp)| later > number;
        let flights = self.flights.borrow();
        let mut results = flights.iter().map(|flight| flight.result.get());
        self.applied.get().is_some_and(is_later) || results.any(|r| matches!(r, Some(Ok(_))))
    }

    pub(super) fn take_flight(&self, number: u64) -> Option<Flight> {
        let mut flights = self.flights.borrow_mut();
        let place = flights.iter().position(|flight| flight.number == number)?;
        flights.remove(place)
    }

    /// A batch that is larger than a transaction may be is tried in halves.
    fn split(&self, mut operations: Vec<Queued>) {
        probe!("keeper_batch_too_large");
        if operations.len() == 1 {
            let only = operations.pop().expect("there is one");
            return (only.complete)(&self.replica, Outcome::TooLarge, Vec::new());
        }
        self.halved.set(Some(operations.len() / 2));
        self.queue.put_back(operations);
    }

    /// Answers reads that nobody's writes stand before any more.
    fn complete_looks(&self, batch: Vec<Queued>) {
        for queued in batch {
            let zxid = self.replica.zxid();
            let executed = Executed::One(Ok(Shape::Empty));
            (queued.complete)(&self.replica, Outcome::Done { zxid, executed }, Vec::new());
        }
    }
}

async fn commit(transaction: Transaction, built: Result<()>) -> Result<Versionstamp> {
    built?;
    let stamp = transaction.get_versionstamp();
    transaction.commit().await?;
    Ok(stamp.await.expect("it has committed"))
}
