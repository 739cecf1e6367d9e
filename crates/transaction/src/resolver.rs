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
use plinth_core::{Uid, Version};
use plinth_protocol::transaction::{
    GetResolverLoad, RecruitResolver, ResolveBatch, ResolveReply, ResolverLoad, SystemTransaction,
    SystemTransactions, VERDICT_COMMITTED, VERDICT_CONFLICT, VERDICT_TOO_OLD,
};
use plinth_rpc::{FailureBeacon, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::{BATCHES_REMEMBERED, knobs};
use plinth_runtime::probe;
use std::cell::RefCell;
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
    conflicts: ConflictSet,
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
            conflicts: ConflictSet::new(role.recovery_version),
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
        assert_eq!(
            batch.prev_version, self.version,
            "batches are judged along the chain of versions"
        );
        assert_eq!(batch.epoch, self.epoch, "a batch of another epoch");
        let oldest = batch.version - knobs().version_window as Version;
        let (verdicts, conflicting) =
            self.judge(&batch, oldest.max(self.conflicts.oldest_version()))?;
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

    fn judge(&mut self, batch: &ResolveBatch, oldest: Version) -> Option<(Bytes, Conflicting)> {
        let mut parsed = Vec::with_capacity(batch.transactions.len());
        for transaction in &batch.transactions {
            let reads = ConflictRanges::parse(transaction.reads.clone())?;
            // Nobody was given a version that is not committed yet: one that was made up excuses from nothing.
            let made_up = transaction.read_version >= batch.version;
            parsed.push((
                if made_up {
                    Version::MIN
                } else {
                    transaction.read_version
                },
                reads,
                ConflictRanges::parse(transaction.writes.clone())?,
            ));
        }
        let conflicts: Vec<_> = parsed
            .iter()
            .map(|(read_version, reads, writes)| TransactionConflicts {
                read_version: *read_version,
                reads,
                writes,
            })
            .collect();
        for (_, reads, writes) in &parsed {
            self.load.count(reads);
            self.load.count(writes);
        }
        let verdicts = self.conflicts.resolve(batch.version, oldest, &conflicts);
        let mut conflicting = Conflicting::new();
        for (at, transaction) in batch.transactions.iter().enumerate() {
            if transaction.report_conflicts && verdicts[at] == Verdict::Conflict {
                probe!("resolver_reports_conflicts");
                let (read_version, reads, _) = &parsed[at];
                let ranges = self.conflicts.newer_than(*read_version, reads);
                conflicting.push((at as u32, ranges));
            }
        }
        let verdicts = verdicts.iter().map(|verdict| code(*verdict)).collect();
        Some((verdicts, conflicting))
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

/// The shell: puts batches in the order of the chain.
pub fn start(transport: &Transport, role: RecruitResolver) -> impl Future<Output = ()> + use<> {
    let beacon = FailureBeacon::new(transport, role.id);
    let resolver = Rc::new(RefCell::new(Resolver::new(&role)));
    let waiting: Rc<RefCell<Waiting>> = Rc::default();
    let gauges = [
        Gauge::of("resolver_waiting", &waiting, |w| w.borrow().len()),
        Gauge::of("resolver_system", &resolver, |r| r.borrow().system.len()),
        Gauge::of("resolver_recent", &resolver, |r| r.borrow().recent.len()),
    ];
    let asked = resolver.clone();
    let load = transport.serve::<GetResolverLoad>(role.id, move |_, responder| {
        responder.ok(asked.borrow_mut().load.take());
    });
    let registration = transport.serve::<ResolveBatch>(role.id, move |batch, responder| {
        take_batch(
            &mut resolver.borrow_mut(),
            &mut waiting.borrow_mut(),
            batch,
            responder,
        );
    });
    async move {
        let _serving = (beacon, registration, load, gauges);
        std::future::pending::<()>().await;
    }
}

fn take_batch(
    resolver: &mut Resolver,
    waiting: &mut Waiting,
    batch: ResolveBatch,
    responder: Responder<ResolveBatch>,
) {
    if batch.epoch != resolver.epoch {
        return responder.fail(plinth_core::Error::operation_obsolete);
    }
    if batch.version <= resolver.version() {
        let repeated = resolver
            .repeat(&batch)
            .ok_or(plinth_core::Error::operation_obsolete);
        return responder.send(repeated);
    }
    if batch.prev_version > resolver.version() {
        probe!("resolver_batch_out_of_order");
    }
    waiting.insert(batch.prev_version, (batch, responder));
    if waiting.len() > WAITING_MAX {
        waiting.pop_last(); // dropping the responder ends its proxy, and with it the epoch
    }
    while let Some((batch, responder)) = waiting.remove(&resolver.version()) {
        let reply = resolver
            .resolve(batch)
            .ok_or(plinth_core::Error::client_invalid_operation);
        let failed = reply.is_err();
        responder.send(reply);
        if failed {
            return; // the chain is broken here; the proxy that sent the batch ends
        }
    }
}
