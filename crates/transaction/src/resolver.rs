//! The resolver (FDB §2.4.2, Algorithm 1): read-write conflicts in its part of the key space.
//!
//! It promises: batches are judged in version order, each exactly once; a transaction that read something which
//! changed after its read version is never admitted; one whose read version lies before the history kept here is
//! refused as too old, never admitted by ignorance (pitfall 5). It also remembers the system transactions of the
//! last versions until every proxy has them (pitfall 7).

use crate::conflict_set::{ConflictSet, TransactionConflicts, Verdict};
use bytes::Bytes;
use plinth_core::conflict_ranges::ConflictRanges;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Uid, Version};
use plinth_protocol::transaction::{
    GetResolverLoad, RecruitResolver, ResolveBatch, ResolveReply, ResolveTransaction, ResolverLoad,
    SystemTransaction, SystemTransactions, VERDICT_COMMITTED, VERDICT_CONFLICT, VERDICT_TOO_OLD,
};
use plinth_rpc::{FailureBeacon, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::{BATCHES_REMEMBERED, knobs};
use plinth_runtime::{TaskGroup, buggify, offload, probe, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::Rc;

/// Batches that may wait for a missing link of the chain. More means that the link will never come.
const WAITING_MAX: usize = 10_000;

/// One conflict range of so many is sampled: where it begins, or the beginning of that; so many at most.
const SAMPLED_OF: u64 = 16;
const SAMPLED_BYTES: usize = 100;
const SAMPLE_MAX: usize = 1000;

/// Places in the batch, and what conflicted there.
type Conflicting = Vec<(u32, Vec<KeyRange>)>;

struct SystemEntry {
    proxy: Uid,
    group: SystemTransactions,
}

/// The state machine.
pub struct Resolver {
    epoch: u64,
    version: Version,
    /// Away while a batch is judged.
    conflicts: Option<ConflictSet>,
    /// System transactions not yet known to every proxy, by version.
    system: VecDeque<SystemEntry>,
    last_received: BTreeMap<Uid, Version>,
    /// Replies that a proxy may ask for again, by version.
    recent: BTreeMap<Version, ResolveReply>,
    load: Load,
}

/// What there was to do since the sequencer asked last.
#[derive(Default)]
struct Load {
    judged: u64,
    sample: VecDeque<Bytes>,
}

impl Load {
    fn count(&mut self, ranges: &ConflictRanges) {
        // Lists without a sampled range are not walked through: this is in the hot path.
        let skipped = (SAMPLED_OF - self.judged % SAMPLED_OF) as usize % SAMPLED_OF as usize;
        self.judged += ranges.len() as u64;
        if skipped >= ranges.len() {
            return;
        }
        for range in ranges.iter().skip(skipped).step_by(SAMPLED_OF as usize) {
            if self.sample.len() == SAMPLE_MAX {
                self.sample.pop_front();
            }
            let begin = &range.begin[..range.begin.len().min(SAMPLED_BYTES)];
            self.sample.push_back(Bytes::copy_from_slice(begin));
        }
    }

    fn take(&mut self) -> ResolverLoad {
        let Load { judged, sample } = std::mem::take(self);
        ResolverLoad {
            judged,
            sample: sample.into(),
        }
    }
}

impl Resolver {
    pub fn new(role: &RecruitResolver) -> Self {
        Resolver {
            epoch: role.epoch,
            version: role.recovery_version,
            conflicts: Some(ConflictSet::new(role.recovery_version)),
            system: VecDeque::new(),
            last_received: role
                .proxies
                .iter()
                .map(|id| (*id, role.recovery_version))
                .collect(),
            recent: BTreeMap::new(),
            load: Load::default(),
        }
    }

    /// Every version up to this one has been judged.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The reply given before, if this batch was judged before.
    pub fn repeat(&self, batch: &ResolveBatch) -> Option<ResolveReply> {
        self.recent.get(&batch.version).cloned()
    }

    /// Judges the next batch of the chain. `None` if it is malformed.
    pub fn resolve(&mut self, batch: ResolveBatch) -> Option<ResolveReply> {
        let judged = self.begin(batch).judge();
        self.finish(judged)
    }

    /// Begins with the next batch of the chain: it is to be judged, here or on another thread, and then
    /// [finished](Self::finish), before anything else is begun.
    fn begin(&mut self, batch: ResolveBatch) -> Judging {
        assert_eq!(
            batch.prev_version, self.version,
            "batches are judged along the chain of versions"
        );
        assert_eq!(batch.epoch, self.epoch, "a batch of another epoch");
        let conflicts = self.conflicts.take().expect("nothing is being judged");
        let oldest = batch.version - knobs().version_window as Version;
        Judging {
            oldest: oldest.max(conflicts.oldest_version()),
            batch,
            conflicts,
        }
    }

    fn finish(&mut self, judged: Judged) -> Option<ResolveReply> {
        self.conflicts = Some(judged.conflicts);
        let (batch, (verdicts, conflicting)) = (judged.batch, judged.verdicts?);
        for ranges in &judged.ranges {
            self.load.count(ranges);
        }
        if !conflicting.is_empty() {
            probe!("resolver_reports_conflicts");
        }
        self.version = batch.version;
        let group = system_group(&batch, &verdicts);
        let reply = ResolveReply {
            verdicts,
            conflicting,
            system: self.system_for(batch.proxy, batch.last_received),
        };
        if let Some(group) = group {
            self.system.push_back(SystemEntry {
                proxy: batch.proxy,
                group,
            });
        }
        self.forget(batch.proxy, batch.last_received);
        self.recent.insert(batch.version, reply.clone());
        while self.recent.len() > BATCHES_REMEMBERED {
            self.recent.pop_first();
        }
        Some(reply)
    }

    /// System transactions that `proxy` has not received, its own excepted: it knows those.
    fn system_for(&self, proxy: Uid, last_received: Version) -> Vec<SystemTransactions> {
        let missing =
            |entry: &&SystemEntry| entry.proxy != proxy && entry.group.version > last_received;
        self.system
            .iter()
            .filter(missing)
            .map(|entry| entry.group.clone())
            .collect()
    }

    fn forget(&mut self, proxy: Uid, last_received: Version) {
        if let Some(known) = self.last_received.get_mut(&proxy) {
            *known = last_received.max(*known);
        }
        let everybody = self
            .last_received
            .values()
            .copied()
            .min()
            .unwrap_or(Version::MAX);
        while self
            .system
            .front()
            .is_some_and(|entry| entry.group.version <= everybody)
        {
            self.system.pop_front();
        }
    }
}

/// A batch that is to be judged, and what it takes.
struct Judging {
    batch: ResolveBatch,
    oldest: Version,
    conflicts: ConflictSet,
}

/// What has come of that.
struct Judged {
    batch: ResolveBatch,
    conflicts: ConflictSet,
    /// `None`: the batch is malformed.
    verdicts: Option<(Bytes, Conflicting)>,
    /// All that was read and written.
    ranges: Vec<ConflictRanges>,
}

impl Judging {
    fn judge(mut self) -> Judged {
        let mut ranges = Vec::with_capacity(2 * self.batch.transactions.len());
        let verdicts = self.verdicts(&mut ranges);
        Judged {
            batch: self.batch,
            conflicts: self.conflicts,
            verdicts,
            ranges,
        }
    }

    fn verdicts(&mut self, ranges: &mut Vec<ConflictRanges>) -> Option<(Bytes, Conflicting)> {
        let batch = &self.batch;
        for transaction in &batch.transactions {
            ranges.push(ConflictRanges::parse(transaction.reads.clone())?);
            ranges.push(ConflictRanges::parse(transaction.writes.clone())?);
        }
        let mut transactions = Vec::with_capacity(batch.transactions.len());
        for (transaction, pair) in batch.transactions.iter().zip(ranges.chunks_exact(2)) {
            // Nobody was given a version that is not committed yet: one that was made up excuses from nothing.
            let made_up = transaction.read_version >= batch.version;
            transactions.push(TransactionConflicts {
                read_version: if made_up {
                    Version::MIN
                } else {
                    transaction.read_version
                },
                reads: &pair[0],
                writes: &pair[1],
            });
        }
        let set = &mut self.conflicts;
        let verdicts = set.resolve(batch.version, self.oldest, &transactions);
        let mut conflicting = Conflicting::new();
        for (at, transaction) in batch.transactions.iter().enumerate() {
            if transaction.report_conflicts && verdicts[at] == Verdict::Conflict {
                let TransactionConflicts {
                    read_version,
                    reads,
                    ..
                } = transactions[at];
                conflicting.push((at as u32, set.newer_than(read_version, reads)));
            }
        }
        let verdicts = verdicts.iter().map(|verdict| code(*verdict)).collect();
        Some((verdicts, conflicting))
    }
}

fn code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Committed => VERDICT_COMMITTED,
        Verdict::Conflict => VERDICT_CONFLICT,
        Verdict::TooOld => VERDICT_TOO_OLD,
    }
}

fn system_group(batch: &ResolveBatch, verdicts: &[u8]) -> Option<SystemTransactions> {
    let transactions: Vec<SystemTransaction> = batch
        .transactions
        .iter()
        .zip(verdicts)
        .filter_map(|(t, v)| {
            t.system_mutations.as_ref().map(|m| SystemTransaction {
                admitted: *v == VERDICT_COMMITTED,
                lock_aware: t.lock_aware,
                mutations: Bytes::copy_from_slice(m),
            })
        })
        .collect();
    (!transactions.is_empty()).then_some(SystemTransactions {
        version: batch.version,
        transactions,
    })
}

type Waiting = BTreeMap<Version, (ResolveBatch, Responder<ResolveBatch>)>;

/// A batch with more bytes of conflict ranges is judged beside the loop.
const JUDGED_HERE_BYTES: usize = 256 << 10;
/// So many bytes are judged in one turn of the loop.
const JUDGED_AT_ONCE_BYTES: usize = 1 << 20;

/// Puts batches in the order of the chain.
struct Shell {
    resolver: RefCell<Resolver>,
    waiting: RefCell<Waiting>,
    /// There is more to judge than one turn of the loop takes; a task does.
    is_busy: Cell<bool>,
    tasks: TaskGroup,
}

/// The shell.
pub fn start(transport: &Transport, role: RecruitResolver) -> impl Future<Output = ()> + use<> {
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
    async move {
        let _serving = (beacon, registration, load, gauges, EndJudging(judging));
        std::future::pending::<()>().await;
    }
}

/// Ends the task with the role: it holds the shell, which holds it.
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
        if batch.version <= resolver.version() {
            let repeated = resolver.repeat(&batch);
            return responder.send(repeated.ok_or(Error::operation_obsolete));
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

    /// Judges what is next in the chain: here, or, if it is much, in a task.
    fn judge_waiting(self: &Rc<Self>) {
        let mut judged = 0;
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

/// False: the chain is broken here, and the proxy that sent the batch ends.
fn answer(responder: Responder<ResolveBatch>, reply: Option<ResolveReply>) -> bool {
    let judged = reply.is_some();
    responder.send(reply.ok_or(Error::client_invalid_operation));
    judged
}
