//! The pipeline itself: forms batches, and carries each through its phases.

use super::accept::{Pending, Refused, SystemWrites};
use super::assign::{self, Bodies};
use super::durable::{Committed, OnEveryLog};
use super::held;
use super::latency::Latency;
use super::partitions::Partitions;
use super::resolve;
use super::stream_rows::StreamRows;
use super::tallies::Tallies;
use super::traced::{Traces, Tracing};
use crate::knobs::{
    COMMIT_BATCH_BYTES_MAX, COMMIT_BATCH_COUNT_MAX, COMMIT_BATCHES_IN_FLIGHT_MAX,
    COMMIT_PROXY_BYTES_MAX, EMPTY_COMMIT_INTERVAL_MS, SYSTEM_SNAPSHOT_INTERVAL_BYTES,
};
use crate::system_state::{SystemState, Team};
use bytes::Bytes;
use plinth_access::Guard;
use plinth_core::key::{KeyRange, SYSTEM_BEGIN};
use plinth_core::mutation::MutationBatch;
use plinth_core::streams;
use plinth_core::{Error, Result, Tag, Version, version};
use plinth_identity::Identity;
use plinth_protocol::log::{LogGeneration, Pop, Push};
use plinth_protocol::rate::{CommitProxyStatus, GetCommitProxyStatus};
use plinth_protocol::transaction::{
    BATCH_PLACES_MAX, Commit, CommitRecovery, CommitReply, CommitTrace, CommitVersion,
    GetCommitTrace, GetCommitVersion, GetKeyLocations, KeyLocations, LoadSystemState,
    RecruitCommitProxy, ReportCommitted, ResolveBatch, ResolveReply, TRANSACTION_PLACES_MAX,
};
use plinth_rpc::{Endpoint, FailureBeacon, Registration, Responder, Transport, Watching};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::{Notify, QueueReceiver, QueueSender, VersionGate, Watch, queue};
use plinth_runtime::{
    Boxed, Duration, Instant, Pace, TaskGroup, buggify, never, planted, probe, trace,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The clock is checked after this many transactions, and after each transaction with more than this many bytes.
const LOOKS_EVERY: usize = 64;
const LOOKS_EVERY_BYTES: usize = 64 << 10;

/// Largest number of locations in one reply.
const LOCATIONS_MAX: u32 = 1000;
/// A batch with this many bytes takes no further transaction, whatever the knob says: its version has to fit into a
/// frame.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// While the batches under way have this many bytes together, no other batch begins: the logs have to hold them, and a
/// recovery may have to copy them.
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;
/// Approximate size of the part of the system keyspace that goes into one version.
const SNAPSHOT_PART_BYTES: usize = 1 << 20;

struct Arrived {
    transaction: Pending,
    responder: Responder<Commit>,
    at: Instant,
}

impl Arrived {
    fn places(&self) -> usize {
        usize::from(self.transaction.places)
    }
}

/// A snapshot of the system keyspace that is being written, one part a version.
struct Snapshot {
    /// The version that has the first part.
    begun: Version,
    /// Where the next part begins.
    next: Bytes,
}

struct Proxy {
    transport: Transport,
    guard: Guard,
    role: RecruitCommitProxy,
    generation: LogGeneration,
    get_version: Endpoint,
    report: Endpoint,
    partitions: RefCell<Partitions>,
    state: RefCell<SystemState>,
    /// Version up to which system transactions have been applied, those of other proxies included.
    system_applied: Cell<Version>,
    /// Number of the last batch whose *assign* phase is done.
    assigned: VersionGate,
    /// The version of that batch.
    assigned_version: Cell<Version>,
    known_committed: Cell<Version>,
    bytes_held: Cell<usize>,
    /// Transactions taken in so far.
    arrived: Cell<u64>,
    latency: RefCell<Latency>,
    bytes_since_snapshot: Cell<usize>,
    /// Snapshot of the system keyspace that is being written to its stream.
    snapshot: RefCell<Option<Snapshot>>,
    /// Number of the next part of the system keyspace to be loaded; `None` when all parts are loaded.
    next_part: Cell<Option<u32>>,
    loaded: Notify,
    bytes_in_flight: Cell<usize>,
    batches_in_flight: Cell<usize>,
    room: Notify,
    failure: Watch<Option<Error>>,
    tallies: Tallies,
    traces: Traces,
}

/// Registers the proxy and returns the future that runs it. The future ends when a role that the proxy depends on
/// fails. Tokens may be for `cluster` alone.
pub fn start(
    transport: &Transport,
    role: RecruitCommitProxy,
    cluster: String,
) -> Boxed<'static, ()> {
    let transport = transport.clone();
    let beacon = FailureBeacon::new(&transport, role.id);
    let proxy = Rc::new(Proxy::new(&transport, role, cluster));
    let (arrivals, arrived) = queue();
    let gauges = [
        Gauge::of("proxy_bytes_held", &proxy, |p| p.bytes_held.get()),
        Gauge::of("proxy_batches", &proxy, |p| p.batches_in_flight.get()),
        Gauge::of("proxy_partitions", &proxy, |p| p.partitions.borrow().len()),
    ];
    let serving = (proxy.clone().serve(arrivals), gauges);
    // Detects soon that one of them cannot be reached from here, even if others can reach it.
    let resolvers = proxy.role.resolvers.iter().map(|(_, resolver)| resolver);
    let needed = resolvers.chain(&proxy.generation.logs);
    let needed = needed.chain([&proxy.role.sequencer]);
    let watching: Vec<Watching> = needed.map(|role| transport.watch(role.address)).collect();
    Box::pin(async move {
        let _serving = (beacon, serving, watching);
        let failure = proxy.failure.clone();
        let batches = async {
            while proxy.next_part.get().is_some() {
                proxy.loaded.notified().await;
            }
            proxy.clone().form_batches(arrived).await;
        };
        plinth_runtime::race(batches, failure.wait_until(Option::is_some)).await;
        trace!("CommitProxyEnded", "epoch" => proxy.role.epoch, "reason" => format!("{:?}", failure.get()));
    })
}

/// Gives the transactions of a batch their places, one after the other.
fn place(batch: &mut [Arrived]) {
    let mut next = 0;
    for arrived in batch {
        arrived.transaction.order = next;
        next += arrived.transaction.places;
    }
    assert!(
        usize::from(next) <= BATCH_PLACES_MAX,
        "a batch of {next} places"
    );
}

fn note(tracing: &mut Option<Tracing>, done: impl FnOnce(&mut CommitTrace) -> &mut u64) {
    if let Some(tracing) = tracing {
        tracing.note(done);
    }
}

/// The answer to a transaction whose batch is committed.
fn reply(
    transaction: &Pending,
    verdict: Result<()>,
    committed: Committed,
    conflicting: impl FnOnce() -> Vec<KeyRange>,
) -> Result<CommitReply> {
    match verdict {
        Err(Error::not_committed) if transaction.report_conflicts => Ok(CommitReply {
            version: version::INVALID,
            order: 0,
            conflicting: conflicting(),
        }),
        verdict => verdict.map(|()| CommitReply {
            version: committed.version(),
            order: transaction.order,
            conflicting: Vec::new(),
        }),
    }
}

/// Takes back what was added before. A number that sinks below nothing would shut the proxy for ever.
fn take_back(of: &Cell<usize>, less: usize) {
    let before = of.get();
    assert!(before >= less, "{less} of {before} are taken back");
    of.set(before - less);
}

impl Proxy {
    fn new(transport: &Transport, role: RecruitCommitProxy, cluster: String) -> Self {
        let generation = role
            .log_system
            .current()
            .expect("a recruited proxy has a log")
            .clone();
        Proxy {
            guard: Guard::new(cluster),
            transport: transport.clone(),
            get_version: role.sequencer.endpoint::<GetCommitVersion>(),
            report: role.sequencer.endpoint::<ReportCommitted>(),
            partitions: RefCell::new(Partitions::new(
                role.resolvers
                    .iter()
                    .map(|(begin, _)| begin.clone())
                    .collect(),
            )),
            state: RefCell::default(),
            system_applied: Cell::new(role.recovery_version),
            assigned: VersionGate::new(0),
            assigned_version: Cell::new(role.recovery_version),
            known_committed: Cell::new(role.recovered_to),
            bytes_held: Cell::new(0),
            arrived: Cell::new(0),
            latency: RefCell::default(),
            bytes_since_snapshot: Cell::new(0),
            snapshot: RefCell::default(),
            next_part: Cell::new(Some(0)),
            loaded: Notify::new(),
            bytes_in_flight: Cell::new(0),
            batches_in_flight: Cell::new(0),
            room: Notify::new(),
            failure: Watch::new(None),
            generation,
            tallies: Tallies::new(role.id),
            traces: Traces::default(),
            role,
        }
    }

    fn serve(self: Rc<Self>, arrivals: QueueSender<Arrived>) -> [Registration; 6] {
        let id = self.role.id;
        let [commits, locations, recovery, status, loading, traced] =
            std::array::from_fn(|_| self.clone());
        let transport = self.transport.clone();
        [
            transport.serve::<Commit>(id, move |commit, responder| {
                commits.arrive(commit, responder, &arrivals)
            }),
            transport.serve::<GetKeyLocations>(id, move |request, responder| {
                if locations.next_part.get().is_some() {
                    return responder.fail(Error::server_overloaded); // the system keyspace is not loaded yet
                }
                locations.tallies.locations.add(1);
                match locations.right_to_know(&request, responder.caller()) {
                    Ok(place) => responder.send(locations.locate(&request, &place)),
                    Err(why) => responder.deny(&why.to_string()),
                }
            }),
            transport.serve::<CommitRecovery>(id, move |_, responder| {
                let proxy = recovery.clone();
                // The task is short and ends with the proxy: every await in it fails when the epoch ends.
                plinth_runtime::spawn("recovery transaction", async move {
                    responder.send(proxy.commit_recovery().await);
                })
                .detach();
            }),
            transport.serve::<LoadSystemState>(id, move |part, responder| {
                responder.send(loading.load(part));
            }),
            transport.serve::<GetCommitTrace>(id, move |asked, responder| {
                responder.send(traced.traces.answer(&asked));
            }),
            transport.serve::<GetCommitProxyStatus>(id, move |_, responder| {
                let mut latency = status.latency.borrow_mut();
                let standing = latency.standing(plinth_runtime::now());
                responder.ok(CommitProxyStatus {
                    latency_s: standing.as_secs_f64(),
                    arrived: status.arrived.get(),
                    answered: latency.answered,
                    bytes_held: status.bytes_held.get() as u64,
                });
            }),
        ]
    }

    /// Loads a part of the system keyspace. A part that was loaded before changes nothing.
    fn load(&self, part: LoadSystemState) -> Result<()> {
        match self.next_part.get() {
            Some(next) if part.number == next => {
                self.state.borrow_mut().load(part.rows);
                self.next_part.set((!part.last).then_some(next + 1));
                self.loaded.notify_one();
                Ok(())
            }
            Some(next) if part.number > next => Err(Error::client_invalid_operation),
            _ => Ok(()),
        }
    }

    fn accept(&self, commit: Commit, caller: Identity) -> std::result::Result<Pending, Refused> {
        if self.next_part.get().is_some() && caller < Identity::Operator {
            // It does not know yet what is configured.
            return Err(Refused::Wrong(Error::proxy_memory_limit_exceeded));
        }
        let access = self.state.borrow().access().clone();
        let read = self.guard.to_read(&access, caller, &commit.token);
        let write = self.guard.to_write(&access, caller, &commit.token);
        match (read, write) {
            (Ok(read), Ok(write)) => Pending::accept(commit, caller, (read, write)),
            (Err(why), _) | (_, Err(why)) => Err(Refused::NoRight(why)),
        }
    }

    fn arrive(
        &self,
        commit: Commit,
        responder: Responder<Commit>,
        arrivals: &QueueSender<Arrived>,
    ) {
        let transaction = match self.accept(commit, responder.caller()) {
            Ok(transaction) => transaction,
            Err(Refused::Wrong(error)) => return responder.fail(error),
            Err(Refused::Denied(why)) => return responder.deny(why),
            Err(Refused::NoRight(why)) => return responder.deny(&why.to_string()),
        };
        if transaction.is_system {
            responder.record(SystemWrites(&transaction.mutations));
        }
        let before = self.bytes_held.get();
        let held = before + transaction.bytes();
        if before > 0 && held > COMMIT_PROXY_BYTES_MAX.get() {
            probe!("proxy_memory_full");
            self.tallies.memory_errors.add(1);
            return responder.fail(Error::proxy_memory_limit_exceeded);
        }
        self.bytes_held.set(held);
        self.arrived.set(self.arrived.get() + 1);
        let _ = arrivals.send(Arrived {
            transaction,
            responder,
            at: plinth_runtime::now(),
        }); // fails only if the proxy is ending; the dropped responder reports that
    }

    /// The keys of which `caller` may know where they are: around the key that it asks for first.
    fn right_to_know(
        &self,
        request: &GetKeyLocations,
        caller: Identity,
    ) -> std::result::Result<KeyRange, plinth_access::Refused> {
        let access = self.state.borrow().access().clone();
        // Who may write somewhere may know where that is.
        let read = self.guard.to_read(&access, caller, &request.token);
        let right = read.or_else(|_| self.guard.to_write(&access, caller, &request.token))?;
        let first = match request.reverse {
            true => &request.range.end,
            false => &request.range.begin,
        };
        let place = right.place(first, request.reverse);
        place.ok_or(plinth_access::Refused::Beyond)
    }

    /// Only borders inside `place` are told.
    fn locate(&self, request: &GetKeyLocations, place: &KeyRange) -> Result<KeyLocations> {
        if request.range.begin > request.range.end {
            return Err(Error::inverted_range);
        }
        let limit = request.limit.clamp(1, LOCATIONS_MAX) as usize;
        let state = self.state.borrow();
        let shards = state.locate(&request.range, request.reverse, limit);
        let inside = |(range, team): (KeyRange, Rc<Team>)| {
            Some((range.intersection(place)?, team.servers.clone()))
        };
        Ok(KeyLocations {
            shards: shards.into_iter().filter_map(inside).collect(),
        })
    }

    async fn form_batches(self: Rc<Self>, mut arrived: QueueReceiver<Arrived>) {
        let tasks = TaskGroup::new();
        let mut number = 0i64;
        loop {
            // An idle proxy sends an empty batch now and then, so that storage servers learn what has become durable.
            let patience = Duration::from_millis(EMPTY_COMMIT_INTERVAL_MS.get());
            let is_held = held::is_held(self.assigned_version.get());
            let next = async {
                match is_held {
                    true => std::future::pending().await,
                    false => arrived.recv().await,
                }
            };
            let first = plinth_runtime::timeout(patience, next).await.flatten();
            while self.batches_in_flight.get() >= COMMIT_BATCHES_IN_FLIGHT_MAX.get()
                || self.bytes_in_flight.get() >= IN_FLIGHT_BYTES_MAX
            {
                self.room.notified().await;
            }
            // Each stream that has a change adds a copy of it to the version.
            let copies = 1 + streams::overlap(&**self.state.borrow().change_streams());
            let bytes_max = COMMIT_BATCH_BYTES_MAX.get().min(BATCH_BYTES_MAX / copies);
            let mut batch: Vec<Arrived> = first.into_iter().collect();
            let mut bytes: usize = batch.iter().map(|a| a.transaction.bytes()).sum();
            let mut places: usize = batch.iter().map(Arrived::places).sum();
            while !is_held
                && batch.len() < COMMIT_BATCH_COUNT_MAX.get()
                && bytes < bytes_max
                && places + usize::from(TRANSACTION_PLACES_MAX) <= BATCH_PLACES_MAX
            {
                let Some(next) = arrived.try_recv() else {
                    break;
                };
                bytes += next.transaction.bytes();
                places += next.places();
                batch.push(next);
            }
            place(&mut batch);
            number += 1;
            if let Some(first) = batch.first() {
                self.latency.borrow_mut().begin(number, first.at);
            }
            self.batches_in_flight.set(self.batches_in_flight.get() + 1);
            let copied = bytes * copies;
            self.bytes_in_flight
                .set(self.bytes_in_flight.get() + copied);
            let (proxy, count) = (self.clone(), batch.len());
            tasks.spawn("commit batch", async move {
                if let Err(error) = proxy.commit_batch(number, batch).await {
                    proxy.failure.set(Some(error));
                }
                take_back(&proxy.bytes_held, bytes);
                take_back(&proxy.bytes_in_flight, copied);
                let now = plinth_runtime::now();
                proxy.latency.borrow_mut().end(number, count, now);
                take_back(&proxy.batches_in_flight, 1);
                proxy.room.notify_one();
            });
        }
    }

    /// Carries one batch through all phases. After an error the recovery decides the outcome of the batch.
    async fn commit_batch(&self, number: i64, batch: Vec<Arrived>) -> Result<()> {
        let mut tracing = batch
            .iter()
            .find(|arrived| arrived.transaction.is_traced)
            .map(|arrived| Tracing::new(arrived.at, arrived.transaction.order));
        let (transactions, responders): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|a| (a.transaction, a.responder))
            .unzip();
        let request = GetCommitVersion {
            proxy: self.role.id,
            request_number: number as u64,
            partition: self.partitions.borrow().newest(),
        };
        let granted = self.transport.call(&self.get_version, request).await?;
        note(&mut tracing, |trace| &mut trace.versioned);
        self.learn_partitions(&granted)?;
        if buggify!() {
            plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(30))).await;
        }
        let replies = self.resolve(&granted, &transactions).await?;
        note(&mut tracing, |trace| &mut trace.resolved);
        let mut verdicts =
            resolve::combine(transactions.len(), &replies).ok_or(Error::internal_error)?;

        // From here on strictly in the order of versions.
        self.assigned.at_least(number - 1).await;
        note(&mut tracing, |trace| &mut trace.in_turn);
        self.follows_the_batch_before(number, &granted)?;
        self.apply_others(granted.version, &replies)?;
        // The replies contained the system transactions of all versions below this one.
        if !planted!(
            "proxy_never_says_what_it_has",
            "a commit proxy lets resolvers remember every system transaction"
        ) {
            self.system_applied.set(granted.version);
        }
        let assigned = self.assign(granted.version, &transactions, &mut verdicts);
        let (bodies, snapshot) = assigned.await;
        let locked = self.state.borrow().is_locked();
        note(&mut tracing, |trace| &mut trace.assigned);
        if let Some(tracing) = &mut tracing {
            let of = (self.role.epoch, granted.version);
            tracing.ask_logs(&self.transport, of, &self.generation);
        }
        let pushes = self.push(&granted, bodies).await;
        self.assigned_version.set(granted.version);
        self.assigned.set(number);
        note(&mut tracing, |trace| &mut trace.pushed);
        let durable = OnEveryLog::after(granted.version, &self.generation, pushes).await?;
        note(&mut tracing, |trace| &mut trace.durable);
        let committed = self.report(durable, locked).await?;
        if let Some(tracing) = tracing {
            tracing.end(&self.traces, committed.version()).await;
        }
        if let Some(begun) = snapshot {
            self.pop_system(begun);
        }
        assert_eq!(responders.len(), verdicts.len(), "a verdict for each");
        let responders = responders.into_iter().zip(verdicts);
        for ((order, transaction), (responder, verdict)) in
            transactions.iter().enumerate().zip(responders)
        {
            self.tallies.decided(transaction, &verdict);
            let conflicting = || resolve::conflicting(&replies, order);
            responder.send(reply(transaction, verdict, committed, conflicting));
        }
        Ok(())
    }

    /// Fails if the sequencer has given this batch a version that is not above that of the batch before: a read, a
    /// resolver or a log server could miss what lies between.
    fn follows_the_batch_before(&self, number: i64, granted: &CommitVersion) -> Result<()> {
        let (assigned, before) = (self.assigned.get(), self.assigned_version.get());
        assert_eq!(assigned, number - 1, "batches are assigned one by one");
        let (version, prev) = (granted.version, granted.prev_version);
        let follows = before <= prev && prev < version;
        if never!(!follows, "BatchOutOfOrder", "version" => version, "after" => prev, "before" => before)
        {
            return Err(Error::internal_error);
        }
        Ok(())
    }

    fn learn_partitions(&self, granted: &CommitVersion) -> Result<()> {
        let (version, resolvers) = (granted.version, self.role.resolvers.len());
        let mut parts = granted.partitions.iter().map(|p| p.begins.len());
        if never!(
            parts.any(|parts| parts != resolvers),
            "PartitionOfOtherResolvers",
            "version" => version,
            "resolvers" => resolvers
        ) {
            return Err(Error::internal_error);
        }
        let mut partitions = self.partitions.borrow_mut();
        partitions.learn(version, &granted.partitions);
        Ok(())
    }

    async fn resolve(
        &self,
        granted: &CommitVersion,
        transactions: &[Pending],
    ) -> Result<Vec<ResolveReply>> {
        let last_received = self.system_applied.get();
        let resolvers = &self.role.resolvers;
        let mut pace = Pace::new();
        let mut asked = Vec::with_capacity(resolvers.len());
        for (i, (_, resolver)) in resolvers.iter().enumerate() {
            let transactions = {
                let partitions = self.partitions.borrow();
                let partitions = partitions.at(granted.version);
                resolve::part(transactions, partitions, i, resolvers.len())
            };
            let request = ResolveBatch {
                epoch: self.role.epoch,
                proxy: self.role.id,
                prev_version: granted.prev_version,
                version: granted.version,
                last_received,
                transactions,
            };
            let endpoint = resolver.endpoint::<ResolveBatch>();
            asked.push(self.transport.call(&endpoint, request));
            pace.rest_if_over().await;
        }
        plinth_runtime::join_all(asked).await.into_iter().collect()
    }

    /// Applies what other proxies committed to the system keyspace before this batch, which has version `own`.
    fn apply_others(&self, own: Version, replies: &[ResolveReply]) -> Result<()> {
        let admitted = resolve::combine_system(replies).ok_or(Error::internal_error)?;
        let mut state = self.state.borrow_mut();
        let mut last = Version::MIN;
        for (version, transactions) in admitted {
            let is_next = last < version && version < own;
            if never!(!is_next, "SystemChangeOutOfOrder", "version" => version, "after" => last, "own" => own)
            {
                return Err(Error::internal_error);
            }
            last = version;
            if version <= self.system_applied.get() {
                continue; // an earlier batch of this proxy, under way at the same time, applied it
            }
            self.system_applied.set(version);
            for transaction in transactions {
                if state.is_locked() && !transaction.lock_aware {
                    probe!("proxy_finds_system_change_locked_out");
                    continue;
                }
                probe!("proxy_applies_system_change_of_another");
                let mutations = MutationBatch::parse(transaction.mutations.clone())
                    .ok_or(Error::internal_error)?;
                let mut changes = assign::system_part(&mutations);
                if state.makes_too_many_streams(&changes) {
                    continue; // its own proxy has refused it
                }
                if planted!(
                    "stream_known_to_one_proxy",
                    "a commit proxy does not hear of the streams that another proxy registers"
                ) {
                    changes.retain(|change| !change.first.starts_with(streams::STREAMS));
                }
                // Their own proxy has sent the orders to the storage servers.
                state.change(&changes);
            }
        }
        Ok(())
    }

    /// Applies the batch's own system changes and tags its mutations, in several turns of the loop if there are many.
    /// Returns the bodies and, if they hold the last part of a snapshot of the system keyspace, the version at which
    /// it began.
    async fn assign(
        &self,
        version: Version,
        transactions: &[Pending],
        verdicts: &mut [Result<()>],
    ) -> (Vec<Bytes>, Option<Version>) {
        let mut pace = Pace::new();
        let bytes = transactions.iter().map(|t| t.mutations.bytes().len());
        let mut bodies = Bodies::new(&self.generation, bytes.sum());
        let mut stream_rows = StreamRows::new(version);
        for (order, (transaction, verdict)) in transactions.iter().zip(verdicts).enumerate() {
            // Every proxy finds the same result for a change of the system keyspace: all apply the changes in the same
            // order.
            let locked = self.state.borrow().is_locked();
            if locked && !transaction.lock_aware {
                *verdict = verdict.and(Err(Error::database_locked));
            }
            if verdict.is_err() {
                continue;
            }
            let mutations =
                assign::place_versionstamps(&transaction.mutations, version, transaction.order);
            if transaction.is_system {
                let system = assign::system_part(&mutations);
                if self.state.borrow().makes_too_many_streams(&system) {
                    probe!("proxy_refuses_streams");
                    *verdict = Err(Error::too_many_streams);
                    continue;
                }
                bodies.push_orders(&self.state.borrow_mut().change(&system));
                let packed = MutationBatch::from_mutations(system.iter().map(|m| m.as_ref()));
                bodies.push(&[Tag::SYSTEM], packed.bytes());
            }
            assign::assign(&self.state, &mutations, &mut bodies, &mut pace).await;
            stream_rows.add(
                self.state.borrow().change_streams(),
                transaction.order,
                &mutations,
            );
            if order % LOOKS_EVERY == 0 || mutations.bytes().len() > LOOKS_EVERY_BYTES {
                pace.rest_if_over().await;
            }
        }
        stream_rows.push(&self.state, &mut bodies, &mut pace).await;
        let snapshot = self.go_on_with_snapshot(version, &mut bodies);
        let bodies = bodies.finish();
        let bytes: usize = bodies.iter().map(Bytes::len).sum();
        self.bytes_since_snapshot
            .set(self.bytes_since_snapshot.get() + bytes + 64);
        (bodies, snapshot)
    }

    /// Writes the system keyspace to its stream again now and then, so that what came before can be popped. The
    /// keyspace may be large, so each version takes one part. With the last part, returns the version of the first
    /// one.
    fn go_on_with_snapshot(&self, version: Version, bodies: &mut Bodies<'_>) -> Option<Version> {
        let wanted = self.bytes_since_snapshot.get() > SYSTEM_SNAPSHOT_INTERVAL_BYTES.get();
        let mut snapshot = self.snapshot.borrow_mut();
        let begin = || Snapshot {
            begun: version,
            next: Bytes::from_static(SYSTEM_BEGIN),
        };
        let under_way = match snapshot.take() {
            Some(under_way) => under_way,
            None if self.role.first && wanted => {
                self.bytes_since_snapshot.set(0);
                begin()
            }
            None => return None,
        };
        let (part, next) =
            assign::snapshot_part(&self.state.borrow(), &under_way.next, part_bytes());
        bodies.push(&[Tag::SYSTEM], part.bytes());
        let Some(next) = next else {
            probe!("proxy_writes_system_snapshot");
            return Some(under_way.begun);
        };
        probe!("proxy_writes_part_of_snapshot");
        *snapshot = Some(Snapshot { next, ..under_way });
        None
    }

    /// Pushes the bodies to one log server after the other. Each server gets a copy, and a large copy takes a while.
    async fn push(
        &self,
        granted: &CommitVersion,
        bodies: Vec<Bytes>,
    ) -> Vec<plinth_rpc::Call<Push>> {
        let mut pace = Pace::new();
        let mut pushes = Vec::with_capacity(bodies.len());
        for (log, body) in self.generation.logs.iter().zip(bodies) {
            let is_large = body.len() > LOOKS_EVERY_BYTES;
            let request = Push {
                epoch: self.role.epoch,
                prev_version: granted.prev_version,
                version: granted.version,
                known_committed: self.known_committed.get(),
                body,
            };
            pushes.push(self.transport.call(&log.endpoint::<Push>(), request));
            if is_large {
                pace.rest_if_over().await;
            }
        }
        pushes
    }

    async fn report(&self, durable: OnEveryLog, locked: bool) -> Result<Committed> {
        let version = durable.version();
        self.known_committed
            .set(self.known_committed.get().max(version));
        let report = ReportCommitted { version, locked };
        let reported = self.transport.call(&self.report, report).await;
        Committed::new(durable, reported)
    }

    /// Pops the system stream below `version`, where a snapshot begins that supersedes everything before it.
    fn pop_system(&self, version: Version) {
        for place in self.generation.log_set(Tag::SYSTEM) {
            let endpoint = self.generation.logs[place].endpoint::<Pop>();
            // Lost pops only delay the reuse of space until the next snapshot.
            drop(self.transport.call(
                &endpoint,
                Pop {
                    tag: Tag::SYSTEM,
                    version,
                },
            ));
        }
    }

    /// Commits the first transaction of the epoch: the whole system keyspace, written to its stream. To the keyspace
    /// itself it writes only the list of storage servers, for which the recovery has newer entries, or everything if
    /// the database is new. Parts that do not fit into one version precede it in versions of their own. The epoch
    /// begins when the last is durable.
    async fn commit_recovery(&self) -> Result<()> {
        if self.next_part.get().is_some() {
            return Err(Error::client_invalid_operation);
        }
        let mut begin = Bytes::from_static(SYSTEM_BEGIN);
        let mut prev_version = self.role.recovered_to;
        loop {
            let (part, next) = assign::snapshot_part(&self.state.borrow(), &begin, part_bytes());
            let version = match next {
                Some(_) => prev_version + 1,
                None => self.role.recovery_version,
            };
            let is_room = prev_version < version && version <= self.role.recovery_version;
            if never!(!is_room, "NoVersionForRecovery", "version" => version, "after" => prev_version)
            {
                return Err(Error::client_invalid_operation);
            }
            let mut bodies = Bodies::new(&self.generation, part.bytes().len());
            bodies.push(&[Tag::SYSTEM], part.bytes());
            let keyspace = match self.role.new_database {
                true => Some(part),
                false if next.is_none() => Some(assign::server_list(&self.state.borrow())),
                false => None,
            };
            if self.role.new_database && prev_version == self.role.recovered_to {
                bodies.push_orders(&self.state.borrow().first_orders());
            }
            let mut pace = Pace::new();
            if let Some(keyspace) = &keyspace {
                assign::assign(&self.state, keyspace, &mut bodies, &mut pace).await;
            }
            let granted = CommitVersion {
                version,
                prev_version,
                partitions: Vec::new(),
            };
            let pushes = self.push(&granted, bodies.finish()).await;
            let durable = OnEveryLog::after(version, &self.generation, pushes).await?;
            let Some(next) = next else {
                let locked = self.state.borrow().is_locked();
                return self.report(durable, locked).await.map(drop);
            };
            probe!("recovery_transaction_in_parts");
            (begin, prev_version) = (next, version);
        }
    }
}

/// Approximate number of bytes of the system keyspace that go into a version.
fn part_bytes() -> usize {
    if buggify!() { 300 } else { SNAPSHOT_PART_BYTES }
}
