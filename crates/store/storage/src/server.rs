//! The storage server: pulls its stream of the log, serves reads at any version of the window, makes old versions
//! durable.
//!
//! ```text
//! log ──peek──► window (latest ≥ v > durable) ──5 s later, known committed──► engine ──► pop
//!                 ▲ reads at v wait until latest ≥ v; below the window: transaction_too_old
//! ```
//!
//! It promises: a read at version v sees exactly the mutations at or below v, or fails. Everything that it puts into
//! the engine is known to be committed on every log server, so a recovery never has to take anything back from disk
//! (pitfall 15). Versions are pulled before they are durable in the log. When a recovery ends an epoch at RV, the
//! server drops what lies above RV from the window before it applies anything of the next epoch.

mod damage;
mod fetch;
mod metrics;
mod older;
mod orders;
mod portion;
mod reads;
mod rights;
mod tallies;
mod values;
mod witness;

use crate::incoming::Incoming;
use crate::knobs::{
    PEEK_BYTES_MAX, STORAGE_COMMIT_BYTES_MAX, STORAGE_COMMIT_INTERVAL_MS, STORAGE_COMMIT_REST,
};
use crate::ownership::{Holding, Ownership};
use crate::sample::ByteSample;
use crate::versioned::VersionedStore;
use crate::watches::Watches;
use crate::write_rate::WriteRate;
use bytes::Bytes;
use damage::LeftOut;
use plinth_access::{Guard, Known, Right};
use plinth_core::key::{KeyRange, is_single_key, printable};
use plinth_core::mutation::MutationBatch;
use plinth_core::{
    Epoch, Error, MutationKind, MutationRef, Result, Tag, Uid, Version, shard_order,
};
use plinth_engine::WriteBatch;
use plinth_log::cursor::{LogCursor, Unheard};
use plinth_protocol::DurableVersion;
use plinth_protocol::control::{ClusterInfo, OlderCopy, ReportDurable};
use plinth_protocol::knobs::{STORAGE_WINDOW_BYTES_MAX, VERSION_WINDOW};
use plinth_protocol::log::{LogSystem, POPPED_FOR_EVER, PeekReply};
use plinth_protocol::storage::Watch as WatchRequest;
use plinth_protocol::storage::WatchReply;
use plinth_rpc::{FailureBeacon, Responder, Transport};
use plinth_runtime::fault;
use plinth_runtime::gauge::Gauge;
use plinth_runtime::random::{below, chance};
use plinth_runtime::sync::{Notify, Permits, VersionGate, Watch};
use plinth_runtime::{
    Boxed, Chore, Duration, Either, Instant, Pace, buggify, planted, probe, trace, trace_warn,
};
use portion::Portions;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use tallies::Tallies;

#[cfg(test)]
pub(crate) use witness::{COMMITTED, COMMITTED_END};

pub use damage::Damage;
pub use fetch::{SnapshotPage, Snapshots};

/// States that leave the window in one turn of the loop: about a millisecond's work.
const STEP_TOUCHES: usize = 500;
/// Mutations that are applied between two checks of the clock.
const APPLIED_AT_ONCE: usize = 50;
/// Bytes of mutations that are applied between two checks of the clock.
const APPLIED_BYTES_AT_ONCE: usize = 256 << 10;
/// Reads that may wait for the disk at the same time. As many pool threads are left for writes.
const COLD_READS_MAX: usize = 8;
/// Longest rest between two commits of the engine, however long a commit takes. More writes gather during a rest.
const COMMIT_REST_MAX: Duration = Duration::from_millis(1500);
/// A watch that has waited this long fails with `timed_out`, so that the client asks again.
const WATCH_LIMIT: Duration = Duration::from_secs(900);

/// What a storage server needs to start.
pub struct StorageRole {
    pub id: Uid,
    pub tag: Tag,
    pub info: Watch<Option<ClusterInfo>>,
    pub log_system: Watch<LogSystem>,
    /// Reads what other storage servers hold.
    pub snapshots: Rc<dyn Snapshots>,
    /// Who may read what.
    pub access: Rc<Known>,
    /// The name of the cluster: tokens may be for it alone.
    pub cluster: String,
    /// Set when the engine's files are found damaged, and again when more is known. What is intact is served on.
    pub damaged: Watch<Option<Damage>>,
    /// Set when the files prove to be of the past, just before the server ends.
    pub older: Watch<Option<OlderCopy>>,
}

fn is_wide_clear(mutation: &MutationRef<'_>) -> bool {
    mutation.kind == MutationKind::ClearRange && !is_single_key(mutation.first, mutation.second)
}

struct Waiting {
    since: Instant,
    /// Number of this watch, counted over all watches of this server.
    number: u64,
    responder: Responder<WatchRequest>,
    /// Why it may know.
    right: Right,
}

impl Waiting {
    /// Answers, if the caller may still know.
    fn tell(self, server: &Server, version: Version) {
        let caller = self.responder.caller();
        match server.role.access.still_counts(&self.right, caller) {
            Some(true) => self.responder.ok(WatchReply { version }),
            Some(false) => {
                let why = "its right to read has ended while it waited";
                self.responder.deny(why);
            }
            // The client asks again, here or at another server.
            None => self.responder.fail(Error::server_request_queue_full),
        }
    }
}

pub(crate) struct Server {
    transport: Transport,
    guard: Guard,
    role: StorageRole,
    tallies: Tallies,
    store: Rc<dyn VersionedStore>,
    /// Keys and values taken in so far.
    input_bytes: Cell<u64>,
    portions: RefCell<Portions>,
    /// The version that is being applied, or that was applied last. A large version takes several turns of the loop,
    /// and no read sees it before it is complete.
    applying: Cell<Version>,
    /// The latest version whose mutations are all applied. A rollback replaces the gate, because a gate only grows.
    gate: RefCell<VersionGate>,
    /// Number of reads that wait for a version; bounded.
    reads_waiting: Cell<usize>,
    cold_reads: Permits,
    known_committed: Cell<Version>,
    /// The same in the life before, as its files have it.
    witnessed: Cell<Version>,
    /// What it waits for from log servers.
    log_unheard: RefCell<Unheard>,
    /// Epoch of the log generation that the newest versions came from.
    pulled_epoch: Cell<Epoch>,
    watches: RefCell<Watches<Waiting>>,
    watches_begun: Cell<u64>,
    ownership: RefCell<Ownership>,
    incoming: RefCell<Incoming>,
    sample: RefCell<ByteSample>,
    write_rate: RefCell<WriteRate>,
    /// Notified when there may be something to make durable, or room in the window again.
    progress: Notify,
    /// Notified when there may be something to fetch, or room for it.
    fetch_wanted: Notify,
    disk_full: Cell<bool>,
    /// Fetched rows are not written to the engine before this time.
    parts_rest_until: Cell<Instant>,
    /// A read or a commit met damage, or an error of the disk, and the engine's files must be opened again.
    damaged: Watch<Option<Error>>,
    left_out: LeftOut,
}

/// Registers a storage server over `store` and returns the future that runs it. The future ends with the error that
/// makes it impossible to go on.
pub fn start(
    transport: &Transport,
    role: StorageRole,
    store: Rc<dyn VersionedStore>,
) -> Boxed<'_, Result<Boxed<'static, Error>>> {
    Box::pin(async move {
        let durable = store.durable_version();
        trace!("StorageStarted", "id" => role.id, "tag" => role.tag.0, "durable" => durable);
        let beacon = FailureBeacon::new(transport, role.id);
        let server = Rc::new(Server {
            guard: Guard::new(role.cluster.clone()),
            transport: transport.clone(),
            tallies: Tallies::new(role.id),
            input_bytes: Cell::new(0),
            portions: RefCell::default(),
            applying: Cell::new(durable),
            gate: RefCell::new(VersionGate::new(durable)),
            reads_waiting: Cell::new(0),
            cold_reads: Permits::new(COLD_READS_MAX),
            known_committed: Cell::new(durable),
            witnessed: Cell::new(witness::load(&*store)?),
            log_unheard: RefCell::default(),
            pulled_epoch: Cell::new(0),
            watches: RefCell::new(Watches::new()),
            watches_begun: Cell::new(0),
            ownership: RefCell::new(Ownership::load(&*store)?),
            incoming: RefCell::default(),
            sample: RefCell::new(damage::load_sample(&*store).await?),
            write_rate: RefCell::default(),
            progress: Notify::new(),
            fetch_wanted: Notify::new(),
            disk_full: Cell::new(false),
            parts_rest_until: Cell::default(),
            damaged: Watch::new(None),
            left_out: LeftOut::default(),
            store,
            role,
        });
        server.tell_known_damage();
        let gauges = [
            Gauge::of("storage_watches", &server, |s| s.watches.borrow().len()),
            Gauge::of("storage_reads_waiting", &server, |s| s.reads_waiting.get()),
            Gauge::of("storage_version_waiters", &server, |s| {
                s.gate.borrow().waiting()
            }),
        ];
        let serving = (server.clone().serve(), gauges);
        let life: Boxed<'static, Error> = Box::pin(async move {
            let _serving = (beacon, serving);
            let work = plinth_runtime::race(server.pull(), server.make_durable());
            let work = plinth_runtime::race(work, server.fetch());
            let error = match plinth_runtime::race(work, server.open_again()).await {
                Either::Left(Either::Left(Either::Left(error) | Either::Right(error))) => error,
                Either::Left(Either::Right(never)) => match never {},
                Either::Right(error) => error,
            };
            trace!("StorageEnded", "id" => server.role.id, "reason" => error);
            error
        });
        Ok(life)
    })
}

impl Server {
    fn latest(&self) -> Version {
        self.gate.borrow().get()
    }

    // ---- pulling ----

    /// True if the window holds more than it should.
    fn is_pressed(&self) -> bool {
        self.store.window_bytes() > STORAGE_WINDOW_BYTES_MAX.get()
    }

    /// How much of the memory for recent versions is taken: 1 is all. What empties it has the more of the loop.
    fn fullness(&self) -> f64 {
        self.store.window_bytes() as f64 / STORAGE_WINDOW_BYTES_MAX.get() as f64
    }

    async fn pull(&self) -> Error {
        match self.pull_for_ever().await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    async fn pull_for_ever(&self) -> Result<Infallible> {
        let listed = |info: &Option<ClusterInfo>| {
            info.as_ref()
                .is_some_and(|info| info.servers.iter().any(|(id, _)| *id == self.role.id))
        };
        self.role.info.wait_until(listed).await;
        let cursor = LogCursor::new(&self.transport, self.role.log_system.clone(), self.role.tag);
        self.log_unheard.replace(cursor.unheard());
        loop {
            self.roll_back().await;
            self.check_that_the_log_goes_back_far_enough()?;
            // Only while there is something to make durable: otherwise nothing would ever make room.
            if self.is_pressed() && self.store.durable_version() < self.known_committed.get() {
                probe!("storage_window_full");
                // The task that makes versions durable may have looked when there was still room, and may wait for
                // news since.
                self.progress.notify_one();
                plinth_runtime::sleep(Duration::from_millis(10)).await;
                continue; // a recovery may have come meanwhile
            }
            let bytes_max = PEEK_BYTES_MAX.get() as u32;
            let Ok((epoch, reply)) = cursor.peek(self.latest() + 1, bytes_max).await else {
                continue;
            };
            if let Some(late) = lateness() {
                plinth_runtime::sleep(late).await;
                if self
                    .role
                    .log_system
                    .with(|s| s.current().is_none_or(|g| g.epoch != epoch))
                {
                    continue; // a recovery came meanwhile
                }
            }
            self.take_in(epoch, reply).await?;
        }
    }

    /// Drops versions that a recovery has undone: those taken from an epoch before the generation that now follows,
    /// and above the version at which that epoch ended.
    async fn roll_back(&self) {
        let ends: Vec<(Epoch, Version)> = self.role.log_system.with(|system| {
            system
                .generations
                .iter()
                .map(|g| (g.epoch, g.recovered_to))
                .collect()
        });
        for (epoch, recovered_to) in ends {
            if epoch <= self.pulled_epoch.get() || self.pulled_epoch.get() == 0 {
                continue;
            }
            if self.latest() > recovered_to
                && !planted!(
                    "lose_rollback",
                    "a storage server keeps versions that a recovery has undone"
                )
            {
                probe!("storage_rolls_back");
                trace!("RollBack", "tag" => self.role.tag.0, "from" => self.latest(), "to" => recovered_to);
                self.store.begin_rollback(recovered_to);
                self.portions.borrow_mut().undo(recovered_to);
                self.gate.replace(VersionGate::new(recovered_to));
                self.applying.set(recovered_to);
                self.watches.borrow_mut().touch_all();
                self.undo_orders(recovered_to);
                let mut pace = Pace::new();
                while self.store.undo_some(STEP_TOUCHES) {
                    pace.rest_if_over().await;
                }
            }
            self.pulled_epoch.set(epoch);
            trace!("StorageFollows", "id" => self.role.id, "epoch" => epoch);
        }
    }

    async fn take_in(&self, epoch: Epoch, reply: PeekReply) -> Result<()> {
        let agreed = self.pulled_epoch.get();
        assert!(
            agreed == 0 || epoch <= agreed,
            "tag {} takes in epoch {epoch} before it has rolled back what that epoch's recovery undid",
            self.role.tag.0
        );
        if reply.popped == POPPED_FOR_EVER {
            // The database has removed this server. The worker will learn of it and remove the server here.
            probe!("storage_finds_itself_removed");
            std::future::pending::<()>().await;
        }
        if reply.popped > self.latest() + 1 {
            return Err(self.too_old(reply.popped));
        }
        let mut pace = Pace::new();
        self.tallies
            .peeks
            .add(u64::from(!reply.messages.is_empty()));
        for message in reply.messages {
            if message.version <= self.latest() {
                continue;
            }
            let bytes = message.runs.iter().map(Bytes::len).sum::<usize>();
            self.tallies.versions.add(1);
            self.tallies.input_bytes.add(bytes as u64);
            self.apply_version(message.version, &message.runs).await?;
            // Reads should not wait for a long reply to be applied.
            pace.rest_if_over().await;
            let system = &self.role.log_system;
            let moved_on = system.with(|s| s.current().is_none_or(|g| g.epoch != epoch));
            if moved_on && self.undone(epoch) {
                self.pulled_epoch.set(epoch);
                return Ok(()); // the rest of the reply may have been undone: the caller rolls back first
            }
        }
        self.pulled_epoch.set(epoch);
        if reply.end - 1 > self.latest() {
            self.take_over_parts(reply.end - 1).await?;
            self.store.advance(reply.end - 1);
            self.gate.borrow().set(reply.end - 1);
        }
        let (applying, latest) = (self.applying.get(), self.latest());
        assert!(
            applying <= latest,
            "version {applying} is half applied, {latest} is the latest"
        );
        self.known_committed
            .set(self.known_committed.get().max(reply.known_committed));
        self.progress.notify_one();
        Ok(())
    }

    /// True if a later generation has begun at or before the next version from `epoch`.
    fn undone(&self, epoch: Epoch) -> bool {
        self.role.log_system.with(|s| {
            s.generations
                .iter()
                .any(|g| g.epoch > epoch && g.start <= self.latest() + 1)
        })
    }

    /// Applies a version, in several turns of the loop if it is large. Until the window has all of it, reads see the
    /// state before it.
    async fn apply_version(&self, version: Version, runs: &[Bytes]) -> Result<()> {
        self.applying.set(version);
        self.take_over_parts(version).await?;
        let mut pace = Pace::new();
        for run in runs {
            let batch = MutationBatch::parse(run.clone()).ok_or(Error::file_corrupt)?;
            let mut bytes = 0;
            for (place, mutation) in batch.iter().enumerate() {
                bytes += mutation.first.len() + mutation.second.len();
                match shard_order::parse(&mutation) {
                    None if is_wide_clear(&mutation) => {
                        self.clear(version, mutation, &mut pace).await
                    }
                    None => {
                        if let Err(error) = self.apply(version, &mutation) {
                            self.apply_or_leave_out(version, &mutation, error).await?;
                        }
                    }
                    Some(Some((range, order))) => {
                        self.obey(version, range, order, &mut pace).await?
                    }
                    Some(None) => return Err(Error::file_corrupt),
                }
                if place % APPLIED_AT_ONCE == APPLIED_AT_ONCE - 1 || bytes > APPLIED_BYTES_AT_ONCE {
                    bytes = 0;
                    pace.rest_if_over().await;
                }
            }
        }
        self.store.advance(version);
        let bytes = self.input_bytes.get();
        self.portions.borrow_mut().reached(version, bytes);
        self.gate.borrow().set(version);
        let fired = self.watches.borrow_mut().fire(|key| self.read_latest(key));
        for waiting in fired {
            waiting.tell(self, version);
        }
        Ok(())
    }

    /// Applies a mutation to the store if the key is held, or to the part's queue if it is being fetched. Tags follow
    /// the map of shards in the same order as this server does (pitfall 8), so nothing else comes.
    #[inline]
    fn apply(&self, version: Version, mutation: &MutationRef<'_>) -> Result<()> {
        let ownership = self.ownership.borrow();
        if ownership.holds_everything() {
            return self.apply_held(version, *mutation);
        }
        match ownership.at(mutation.first) {
            Holding::Held { .. } => self.apply_held(version, *mutation)?,
            Holding::Fetching => self.incoming.borrow_mut().queue(version, mutation),
            Holding::Absent if mutation.kind == MutationKind::ClearRange => {}
            Holding::Absent => panic!(
                "tag {} got a mutation of {} at {version}, which it has no part in",
                self.role.tag.0,
                printable(mutation.first)
            ),
        }
        Ok(())
    }

    #[inline]
    fn apply_held(&self, version: Version, mutation: MutationRef<'_>) -> Result<()> {
        self.note_held(&mutation);
        self.store.apply(version, mutation)
    }

    #[inline]
    fn note_held(&self, mutation: &MutationRef<'_>) {
        self.watches.borrow_mut().touch(mutation);
        let bytes = mutation.first.len() + mutation.second.len();
        self.input_bytes.set(self.input_bytes.get() + bytes as u64);
        self.tallies.mutations.add(1);
        self.tallies.mutation_bytes.add(bytes as u64);
        let mut write_rate = self.write_rate.borrow_mut();
        write_rate.write(mutation.first, bytes, plinth_runtime::now);
    }

    /// Clears more than one key. If not all of the range is held, clears it piece by piece.
    async fn clear(&self, version: Version, mutation: MutationRef<'_>, pace: &mut Pace) {
        if self.ownership.borrow().holds_everything() {
            self.note_held(&mutation);
            let (begin, end) = (mutation.first, mutation.second);
            return self.clear_rows(version, begin, end, pace).await;
        }
        let pieces = {
            let ownership = self.ownership.borrow();
            ownership.pieces(mutation.first, mutation.second)
        };
        if pieces.iter().any(|(_, h)| *h == Holding::Fetching) {
            self.incoming.borrow_mut().queue(version, &mutation);
        }
        for (KeyRange { begin, end }, holding) in pieces {
            if let Holding::Held { .. } = holding {
                let (first, second) = (&begin[..], &end[..]);
                self.note_held(&MutationRef::new(mutation.kind, first, second));
                self.clear_rows(version, first, second, pace).await;
            }
        }
    }

    async fn clear_rows(&self, version: Version, begin: &[u8], end: &[u8], pace: &mut Pace) {
        let range = (begin, end);
        let clear_some = |from: &[u8]| self.store.clear_some(version, range, from, STEP_TOUCHES);
        let mut next = clear_some(begin);
        while let Some(from) = next {
            probe!("storage_clears_in_steps");
            pace.rest_if_over().await;
            next = clear_some(&from);
        }
    }

    async fn apply_paced(
        &self,
        version: Version,
        mutation: MutationRef<'_>,
        pace: &mut Pace,
    ) -> Result<()> {
        if is_wide_clear(&mutation) {
            let (begin, end) = (mutation.first, mutation.second);
            self.clear_rows(version, begin, end, pace).await;
            return Ok(());
        }
        pace.rest_if_over().await;
        match self.store.apply(version, mutation) {
            Ok(()) => Ok(()),
            Err(error) => self.apply_or_leave_out(version, &mutation, error).await,
        }
    }

    // ---- making durable ----

    /// True if fetched rows are to be written now. Waits otherwise until there may be more to make durable.
    async fn parts_are_due(&self) -> bool {
        match self.time_to_store() {
            Some(Duration::ZERO) => return true,
            // Parts wait for so long, and versions do not.
            Some(rest) => drop(plinth_runtime::timeout(rest, self.progress.notified()).await),
            None => self.progress.notified().await,
        }
        false
    }

    async fn make_durable(&self) -> Error {
        let cursor = LogCursor::new(&self.transport, self.role.log_system.clone(), self.role.tag);
        let mut is_behind = false;
        let mut rest = Duration::ZERO;
        let mut damaged_commits = 0;
        loop {
            if !is_behind {
                let mut interval = Duration::from_millis(STORAGE_COMMIT_INTERVAL_MS.get());
                if !self.is_pressed() {
                    interval = interval.max(rest);
                }
                let parts = self.time_to_store().unwrap_or(interval);
                plinth_runtime::sleep(interval.min(parts)).await;
            }
            self.expire_watches();
            let durable = self.store.durable_version();
            let (target, has_more) = self.next_durable(durable);
            assert!(
                durable <= target,
                "{target} is to be durable after {durable}"
            );
            is_behind = has_more;
            if target <= durable && !self.parts_are_due().await {
                continue;
            }
            self.left_out.stop_if_some(self.role.id).await;
            let mut batch = self.take(target).await;
            let parts = self.store_parts(&mut batch);
            self.follow_sample(&mut batch).await;
            self.ownership.borrow().write(target, &mut batch);
            witness::put(self.known_committed.get(), &mut batch);
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(below(200))).await;
            }
            let started = plinth_runtime::now();
            let bytes = batch.bytes() as u64;
            let durable = match self.store.commit(target, batch).await {
                Ok(durable) => durable,
                Err(Error::disk_full) => {
                    self.wait_for_room().await;
                    continue;
                }
                Err(error) if error.is_damage() => {
                    damaged_commits += 1;
                    self.meets_damage_in_commit(error, damaged_commits).await;
                    continue;
                }
                Err(error) => return error,
            };
            damaged_commits = 0;
            self.assert_committed(durable, target);
            self.disk_full.set(false);
            self.tallies.durable_bytes.add(bytes);
            let mut chore = Chore::new();
            while self.store.forget_some(durable, STEP_TOUCHES) {
                chore.rest_if_over(self.fullness()).await;
            }
            self.ownership.borrow_mut().written(durable.version());
            let took = started.elapsed();
            rest = took.mul_f64(STORAGE_COMMIT_REST.get()).min(COMMIT_REST_MAX);
            if !parts.is_empty() {
                self.rest_from_storing(took);
            }
            self.parts_stored(&parts);
            cursor.pop(durable.version() + 1);
            self.report_durable(durable);
        }
    }

    /// Asserts that what has come to the disk is what was meant, and known committed: no recovery takes it back.
    fn assert_committed(&self, durable: DurableVersion, target: Version) {
        let known_committed = self.known_committed.get();
        assert!(
            durable.version() == target && target <= known_committed,
            "{durable} is on disk, {target} was meant, and {known_committed} is known committed"
        );
    }

    /// The version up to which the engine is written next, after `durable`, and whether more could be written already.
    fn next_durable(&self, durable: Version) -> (Version, bool) {
        // Old versions are kept for readers. A full window has no room for them.
        let window = if self.is_pressed() {
            0
        } else {
            VERSION_WINDOW.get()
        };
        // Versions that a full disk refused have already been taken from the window, so the target must not go below
        // them.
        let taken = self.store.oldest_version();
        let most = STORAGE_COMMIT_BYTES_MAX.get() as u64;
        let portion = self.portions.borrow_mut().limit(durable, most);
        let all = self.known_committed.get().min(self.latest() - window);
        let target = portion.map_or(all, |portion| all.min(portion)).max(taken);
        (target, target < all)
    }

    /// Pauses after a commit that found the disk full. Nothing has changed: the window fills, and the log keeps the
    /// rest. Commits succeed again when the disk has room.
    async fn wait_for_room(&self) {
        probe!("storage_disk_full");
        if !self.disk_full.replace(true) {
            trace_warn!("StorageDiskFull", "id" => self.role.id);
        }
        plinth_runtime::sleep(Duration::from_secs(1)).await;
    }

    /// Adds the batch's own changes of the sample of sizes to the batch.
    async fn follow_sample(&self, batch: &mut WriteBatch) {
        let (mut first, mut rows) = (Some(0), WriteBatch::new());
        let mut chore = Chore::new();
        while let Some(at) = first {
            first = {
                let mut sample = self.sample.borrow_mut();
                sample.follow_some(batch, at, STEP_TOUCHES, &mut rows)
            };
            chore.rest_if_over(self.fullness()).await;
        }
        batch.append(rows);
    }

    async fn take(&self, target: Version) -> WriteBatch {
        let mut taking = self.store.begin_taking(target);
        let mut chore = Chore::new();
        while self.store.take_some(&mut taking, STEP_TOUCHES) {
            chore.rest_if_over(self.fullness()).await;
        }
        taking.batch
    }

    fn report_durable(&self, version: DurableVersion) {
        let Some(controller) = self
            .role
            .info
            .with(|info| info.as_ref().map(|info| info.controller))
        else {
            return;
        };
        let request = ReportDurable {
            server: self.role.id,
            tag: self.role.tag,
            version,
        };
        drop(
            self.transport
                .call(&controller.endpoint::<ReportDurable>(), request),
        ); // repeated with the next commit
    }

    fn expire_watches(&self) {
        let now = plinth_runtime::now();
        let over = self
            .watches
            .borrow_mut()
            .remove_if(|w| now.saturating_since(w.since) > WATCH_LIMIT);
        for waiting in over {
            waiting.responder.fail(Error::timed_out);
        }
    }
}

/// How long after it could the server takes something in, if not at once.
fn lateness() -> Option<Duration> {
    // A server that is believed before it has heard of a move is planted together with one that hears of it late.
    if fault::is_planted("ready_without_hearing") && chance(0.3) {
        return Some(Duration::from_millis(below(4000)));
    }
    buggify!().then(|| Duration::from_millis(below(100)))
}
