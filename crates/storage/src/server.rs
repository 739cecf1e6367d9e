//! The storage server: pulls its stream of the log, serves reads at any version of the window, makes old versions durable.
//!
//! ```text
//! log ──peek──► window (latest ≥ v > durable) ──5 s later, known committed──► engine ──► pop
//!                 ▲ reads at v wait until latest ≥ v; below the window: transaction_too_old
//! ```
//!
//! It promises: a read at version v sees exactly the mutations at or below v, or fails; what it puts into the engine
//! is known to be committed on every log server, so a recovery never has to take anything back from disk
//! (pitfall 15). Versions are pulled before they are durable in the log; when a recovery ends an epoch at RV, what
//! lies above RV is dropped from the window before anything of the next epoch is applied.

mod fetch;
mod metrics;
mod orders;
mod portion;
mod reads;

use crate::incoming::Incoming;
use crate::ownership::{Holding, Ownership};
use crate::sample::ByteSample;
use crate::watches::Watches;
use crate::window::{VersionedWindow, is_single_key};
use crate::write_rate::WriteRate;
use bytes::Bytes;
use plinth_core::key::{KeyRange, printable};
use plinth_core::mutation::MutationBatch;
use plinth_core::{
    Epoch, Error, MutationKind, MutationRef, Result, Tag, Uid, Version, shard_order,
};
use plinth_engine::{KeyValueStore, WriteBatch};
use plinth_log::cursor::LogCursor;
use plinth_protocol::control::{ClusterInfo, ReportDurable};
use plinth_protocol::log::{LogSystem, POPPED_FOR_EVER, PeekReply};
use plinth_protocol::storage::Watch as WatchRequest;
use plinth_protocol::storage::WatchReply;
use plinth_rpc::{FailureBeacon, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::{Notify, Permits, VersionGate, Watch};
use plinth_runtime::{Duration, Either, Instant, Pace, buggify, fault, probe, trace, trace_warn};
use portion::Portions;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;

pub use fetch::{SnapshotPage, Snapshots};

/// Row of the engine that holds the version up to which it has everything. Beyond every key of the database.
const DURABLE_KEY: &[u8] = b"\xff\xff/durable";
/// States that leave the window in one turn of the loop: about a millisecond's work.
const STEP_TOUCHES: usize = 500;
/// Mutations that are applied between two looks at the clock.
const APPLIED_AT_ONCE: usize = 50;
/// Bytes of them, for those that are large.
const APPLIED_BYTES_AT_ONCE: usize = 256 << 10;
/// Reads that wait for the disk at the same time; as many pool threads are left for what must be written.
const COLD_READS_MAX: usize = 8;
/// However long commits of the engine take, the next one does not wait longer than this for more to do.
const COMMIT_REST_MAX: Duration = Duration::from_millis(1500);
/// A watch that has waited so long is told to ask again.
const WATCH_LIMIT: Duration = Duration::from_secs(900);

/// What a storage server is told when it starts.
pub struct StorageRole {
    pub id: Uid,
    pub tag: Tag,
    pub info: Watch<Option<ClusterInfo>>,
    pub log_system: Watch<LogSystem>,
    /// What other storage servers hold.
    pub snapshots: Rc<dyn Snapshots>,
    /// A new server has missed nothing up to here.
    pub after: Version,
}

fn is_wide_clear(mutation: &MutationRef<'_>) -> bool {
    mutation.kind == MutationKind::ClearRange && !is_single_key(mutation.first, mutation.second)
}

struct Waiting {
    since: Instant,
    /// Of all watches here, in the order in which they came.
    number: u64,
    responder: Responder<WatchRequest>,
}

pub(crate) struct Server {
    transport: Transport,
    role: StorageRole,
    engine: Rc<dyn KeyValueStore>,
    window: RefCell<VersionedWindow>,
    /// Keys and values taken into the window so far.
    input_bytes: Cell<u64>,
    portions: RefCell<Portions>,
    /// The version that is being applied, or was last: a large one takes several turns of the loop, and nobody reads at it
    /// before it is whole.
    applying: Cell<Version>,
    /// The latest version whose mutations are all applied. A rollback replaces the gate: it only ever grows.
    gate: RefCell<VersionGate>,
    /// Reads that wait for a version: bounded.
    reads_waiting: Cell<usize>,
    cold_reads: Permits,
    known_committed: Cell<Version>,
    /// Epoch of the log generation that the newest versions came from.
    pulled_epoch: Cell<Epoch>,
    watches: RefCell<Watches<Waiting>>,
    watches_begun: Cell<u64>,
    ownership: RefCell<Ownership>,
    incoming: RefCell<Incoming>,
    sample: RefCell<ByteSample>,
    write_rate: RefCell<WriteRate>,
    /// There may be something to make durable, or room in the window again.
    progress: Notify,
    /// There may be something to fetch, or room for it.
    fetch_wanted: Notify,
    disk_full: Cell<bool>,
    /// What was fetched is not stored before.
    parts_rest_until: Cell<Instant>,
    /// A read met damage: nothing that is stored here can be trusted to be found any more.
    damaged: Watch<Option<Error>>,
}

/// Registers a storage server over `engine` and returns the future that is its life; it ends with the error that
/// makes going on impossible.
pub async fn start(
    transport: &Transport,
    role: StorageRole,
    engine: Rc<dyn KeyValueStore>,
) -> Result<impl Future<Output = Error> + use<>> {
    let durable = match engine.get(DURABLE_KEY)? {
        Some(bytes) => {
            Version::from_be_bytes(bytes[..].try_into().map_err(|_| Error::file_corrupt)?)
        }
        None => role.after,
    };
    trace!("StorageStarted", "id" => role.id, "tag" => role.tag.0, "durable" => durable);
    let beacon = FailureBeacon::new(transport, role.id);
    let server = Rc::new(Server {
        transport: transport.clone(),
        window: RefCell::new(VersionedWindow::new(durable)),
        input_bytes: Cell::new(0),
        portions: RefCell::default(),
        applying: Cell::new(durable),
        gate: RefCell::new(VersionGate::new(durable)),
        reads_waiting: Cell::new(0),
        cold_reads: Permits::new(COLD_READS_MAX),
        known_committed: Cell::new(durable),
        pulled_epoch: Cell::new(0),
        watches: RefCell::new(Watches::new()),
        watches_begun: Cell::new(0),
        ownership: RefCell::new(Ownership::load(&*engine)?),
        incoming: RefCell::default(),
        sample: RefCell::new(ByteSample::load(&*engine, knobs().byte_sample_unit)?),
        write_rate: RefCell::default(),
        progress: Notify::new(),
        fetch_wanted: Notify::new(),
        disk_full: Cell::new(false),
        parts_rest_until: Cell::default(),
        damaged: Watch::new(None),
        engine,
        role,
    });
    let gauges = [
        Gauge::of("storage_watches", &server, |s| s.watches.borrow().len()),
        Gauge::of("storage_reads_waiting", &server, |s| s.reads_waiting.get()),
        Gauge::of("storage_version_waiters", &server, |s| {
            s.gate.borrow().waiting()
        }),
    ];
    let serving = (server.clone().serve(), gauges);
    Ok(async move {
        let _serving = (beacon, serving);
        let work = plinth_runtime::race(server.pull(), server.make_durable());
        let work = plinth_runtime::race(work, server.fetch());
        let damaged = server.damaged.wait_until(Option::is_some);
        let error = match plinth_runtime::race(work, damaged).await {
            Either::Left(Either::Left(Either::Left(error) | Either::Right(error))) => error,
            Either::Left(Either::Right(never)) => match never {},
            Either::Right(()) => server.damaged.get().expect("waited for"),
        };
        trace!("StorageEnded", "id" => server.role.id, "reason" => error);
        error
    })
}

impl Server {
    fn latest(&self) -> Version {
        self.gate.borrow().get()
    }

    // ---- pulling ----

    /// The window holds more than it should.
    fn is_pressed(&self) -> bool {
        self.window.borrow().bytes() > knobs().storage_window_bytes_max
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
        loop {
            self.roll_back().await;
            self.check_that_the_log_goes_back_far_enough()?;
            // Only while there is something to make durable: else nobody would ever make room.
            if self.is_pressed()
                && self.window.borrow().durable_version() < self.known_committed.get()
            {
                probe!("storage_window_full");
                // It may have looked when there was room yet, and wait for news since.
                self.progress.notify_one();
                plinth_runtime::sleep(Duration::from_millis(10)).await;
                continue; // a recovery may have come meanwhile
            }
            let bytes_max = knobs().peek_bytes_max as u32;
            let Ok((epoch, reply)) = cursor.peek(self.latest() + 1, bytes_max).await else {
                continue;
            };
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(100)))
                    .await;
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

    /// A generation is forgotten when every storage server has all of it on disk: who still needs one has lost something.
    fn check_that_the_log_goes_back_far_enough(&self) -> Result<()> {
        let (needed, system) = (self.latest() + 1, &self.role.log_system);
        let start = system.with(|s| s.generations.first().map_or(0, |g| g.start));
        if needed == 1 || start <= needed {
            return Ok(()); // a new server takes what comes
        }
        Err(self.too_old(start))
    }

    fn too_old(&self, log_begins: Version) -> Error {
        // No simulated operator puts old files back: unless a disk has lied, the log has dropped what was needed.
        assert!(
            !plinth_runtime::nobody_has_lied(),
            "the log dropped versions below {log_begins} that tag {} still needs from {}",
            self.role.tag.0,
            self.latest() + 1
        );
        trace_warn!("StorageTooOld", "file" => "the storage server's files", "what" =>
            format!("they end at version {}, and the log begins at {log_begins}: they are an older copy", self.latest()));
        Error::file_corrupt
    }

    /// Drops versions that a recovery has undone: taken from an epoch before the generation that now follows it, and
    /// above the version at which that epoch ended.
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
            if self.latest() > recovered_to && !fault::is_planted("lose_rollback") {
                probe!("storage_rolls_back");
                trace!("RollBack", "tag" => self.role.tag.0, "from" => self.latest(), "to" => recovered_to);
                self.window.borrow_mut().begin_rollback(recovered_to);
                self.portions.borrow_mut().undo(recovered_to);
                self.gate.replace(VersionGate::new(recovered_to));
                self.applying.set(recovered_to);
                self.watches.borrow_mut().touch_all();
                self.undo_orders(recovered_to);
                while self.window.borrow_mut().undo_some(STEP_TOUCHES) {
                    plinth_runtime::yield_now().await;
                }
            }
            self.pulled_epoch.set(epoch);
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
            // The database has parted with this server; its worker will hear of it, and remove it.
            probe!("storage_finds_itself_removed");
            std::future::pending::<()>().await;
        }
        if reply.popped > self.latest() + 1 {
            return Err(self.too_old(reply.popped));
        }
        let mut applied = 0;
        for message in reply.messages {
            if message.version <= self.latest() {
                continue;
            }
            applied += message.runs.iter().map(Bytes::len).sum::<usize>();
            self.apply_version(message.version, &message.runs).await?;
            // Reads should not wait for a long reply to be applied.
            if applied > 256 << 10 {
                applied = 0;
                plinth_runtime::yield_now().await;
            }
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
            self.window.borrow_mut().advance(reply.end - 1);
            self.gate.borrow().set(reply.end - 1);
        }
        self.known_committed
            .set(self.known_committed.get().max(reply.known_committed));
        self.progress.notify_one();
        Ok(())
    }

    /// A later generation has begun at or before what comes next from `epoch`.
    fn undone(&self, epoch: Epoch) -> bool {
        self.role.log_system.with(|s| {
            s.generations
                .iter()
                .any(|g| g.epoch > epoch && g.start <= self.latest() + 1)
        })
    }

    /// In several turns if it is large: until the window has all of it, reads see what was before.
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
                    None => self.apply(version, &mutation)?,
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
        self.window.borrow_mut().advance(version);
        let bytes = self.input_bytes.get();
        self.portions.borrow_mut().reached(version, bytes);
        self.gate.borrow().set(version);
        let fired = self.watches.borrow_mut().fire(|key| self.read_latest(key));
        for waiting in fired {
            waiting.responder.ok(WatchReply { version });
        }
        Ok(())
    }

    /// To the window if the key is held, to the part's queue if it is being fetched. Tags follow the map of shards in
    /// the same order as this server does (pitfall 8): nothing else comes.
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
        let mut window = self.window.borrow_mut();
        window.apply(version, mutation, |key| self.engine.get(key))
    }

    #[inline]
    fn note_held(&self, mutation: &MutationRef<'_>) {
        self.watches.borrow_mut().touch(mutation);
        let bytes = mutation.first.len() + mutation.second.len();
        self.input_bytes.set(self.input_bytes.get() + bytes as u64);
        self.write_rate.borrow_mut().write(mutation.first, bytes);
    }

    /// Clears more than one key, piece by piece where not all of it is held.
    async fn clear(&self, version: Version, mutation: MutationRef<'_>, pace: &mut Pace) {
        if self.ownership.borrow().holds_everything() {
            self.note_held(&mutation);
            let (begin, end) = (mutation.first, mutation.second);
            return self.clear_in_window(version, begin, end, pace).await;
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
                self.note_held(&MutationRef {
                    first,
                    second,
                    ..mutation
                });
                self.clear_in_window(version, first, second, pace).await;
            }
        }
    }

    async fn clear_in_window(&self, version: Version, begin: &[u8], end: &[u8], pace: &mut Pace) {
        let clear_some = |from: &[u8]| {
            let mut window = self.window.borrow_mut();
            window.clear_some(version, from, end, STEP_TOUCHES)
        };
        let mut next = clear_some(begin);
        while let Some(from) = next {
            probe!("storage_clears_in_steps");
            pace.rest_if_over().await;
            next = clear_some(&from);
        }
        self.window.borrow_mut().note_clear(version, begin, end);
    }

    async fn apply_to_window(
        &self,
        version: Version,
        mutation: MutationRef<'_>,
        pace: &mut Pace,
    ) -> Result<()> {
        if is_wide_clear(&mutation) {
            let (begin, end) = (mutation.first, mutation.second);
            self.clear_in_window(version, begin, end, pace).await;
            return Ok(());
        }
        pace.rest_if_over().await;
        let mut window = self.window.borrow_mut();
        window.apply(version, mutation, |key| self.engine.get(key))
    }

    // ---- making durable ----

    async fn make_durable(&self) -> Error {
        let cursor = LogCursor::new(&self.transport, self.role.log_system.clone(), self.role.tag);
        let mut is_behind = false;
        let mut rest = Duration::ZERO;
        loop {
            if !is_behind {
                let mut interval = Duration::from_millis(knobs().storage_commit_interval_ms);
                if !self.is_pressed() {
                    interval = interval.max(rest);
                }
                let parts = self.time_to_store().unwrap_or(interval);
                plinth_runtime::sleep(interval.min(parts)).await;
            }
            self.expire_watches();
            // Old versions are for readers; a window that is full has no room for them.
            let window = if self.is_pressed() {
                0
            } else {
                knobs().version_window
            };
            // What a full disk refused was taken from the window already: never ask for less than that again.
            let taken = self.window.borrow().oldest_version();
            let durable = self.window.borrow().durable_version();
            let most = knobs().storage_commit_bytes_max as u64;
            let portion = self.portions.borrow_mut().limit(durable, most);
            let all = self.known_committed.get().min(self.latest() - window);
            let target = portion.map_or(all, |portion| all.min(portion)).max(taken);
            is_behind = target < all;
            let nothing_new = target <= durable;
            match self.time_to_store() {
                _ if !nothing_new => {}
                Some(Duration::ZERO) => {}
                Some(rest) => {
                    plinth_runtime::sleep(rest).await;
                    continue;
                }
                None => {
                    self.progress.notified().await;
                    continue;
                }
            }
            let mut batch = self.take(target).await;
            let parts = self.store_parts(&mut batch);
            self.follow_sample(&mut batch).await;
            self.ownership.borrow().write(target, &mut batch);
            batch.set(DURABLE_KEY, &target.to_be_bytes());
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(200)))
                    .await;
            }
            let started = plinth_runtime::now();
            match self.engine.commit(batch).await {
                Ok(()) => self.disk_full.set(false),
                Err(Error::disk_full) => {
                    // Nothing has changed. The window fills, the log keeps the rest; room made on the disk brings us back.
                    probe!("storage_disk_full");
                    if !self.disk_full.replace(true) {
                        trace_warn!("StorageDiskFull", "id" => self.role.id);
                    }
                    plinth_runtime::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                Err(error) => return error,
            }
            while self.window.borrow_mut().forget_some(target, STEP_TOUCHES) {
                plinth_runtime::yield_now().await;
            }
            self.ownership.borrow_mut().written(target);
            let took = started.elapsed();
            rest = took
                .mul_f64(knobs().storage_commit_rest)
                .min(COMMIT_REST_MAX);
            if !parts.is_empty() {
                self.rest_from_storing(took);
            }
            self.parts_stored(&parts);
            cursor.pop(target + 1);
            self.report_durable(target);
        }
    }

    /// Adds to the batch what it does to the sample of sizes.
    async fn follow_sample(&self, batch: &mut WriteBatch) {
        let (mut first, mut rows) = (Some(0), WriteBatch::new());
        while let Some(at) = first {
            first = {
                let mut sample = self.sample.borrow_mut();
                sample.follow_some(batch, at, STEP_TOUCHES, &mut rows)
            };
            plinth_runtime::yield_now().await;
        }
        batch.append(&rows);
    }

    async fn take(&self, target: Version) -> WriteBatch {
        let mut taking = self.window.borrow_mut().begin_taking(target);
        while self.window.borrow().take_some(&mut taking, STEP_TOUCHES) {
            plinth_runtime::yield_now().await;
        }
        taking.batch
    }

    fn report_durable(&self, version: Version) {
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
