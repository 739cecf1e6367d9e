//! The resolver (FDB §2.4.2, Algorithm 1): read-write conflicts in its part of the key space.
//!
//! ```text
//! ResolveBatch ─► wait for the batch before it ─► judge ─► verdicts, and system transactions that the proxy lacks
//!              └► judged before ─► the same answer, while it is remembered
//! ```
//!
//! It promises: batches are judged in version order, each exactly once; a transaction that read something which
//! changed after its read version is never admitted; a transaction whose read version lies before the history kept
//! here is refused as too old, and never admitted for lack of history (pitfall 5). The resolver also keeps the system
//! transactions of the last versions until every proxy has them (pitfall 7).
//!
//! The state machine is in this file, its shell in `resolver/shell.rs`.

mod shell;

use crate::conflict_set::{ConflictSet, TransactionConflicts, Verdict};
use crate::knobs::BATCHES_REMEMBERED;
use bytes::Bytes;
use plinth_core::conflict_ranges::ConflictRanges;
use plinth_core::key::KeyRange;
use plinth_core::{Uid, Version};
use plinth_protocol::knobs::VERSION_WINDOW;
use plinth_protocol::transaction::{
    RecruitResolver, ResolveBatch, ResolveReply, ResolverLoad, SystemTransaction,
    SystemTransactions, VERDICT_COMMITTED, VERDICT_CONFLICT, VERDICT_TOO_OLD,
};
use plinth_runtime::probe;
pub use shell::start;
use std::collections::{BTreeMap, VecDeque};

/// Of every `SAMPLED_OF` conflict ranges one is sampled: at most `SAMPLED_BYTES` of its begin. At most `SAMPLE_MAX`
/// samples are kept.
const SAMPLED_OF: u64 = 16;
const SAMPLED_BYTES: usize = 100;
const SAMPLE_MAX: usize = 1000;

/// Places in the batch, and the ranges that conflicted there.
type Conflicting = Vec<(u32, Vec<KeyRange>)>;

struct SystemEntry {
    proxy: Uid,
    group: SystemTransactions,
}

/// The state machine.
pub struct Resolver {
    epoch: u64,
    version: Version,
    /// `None` while a batch is judged.
    conflicts: Option<ConflictSet>,
    /// System transactions not yet known to every proxy, by version.
    system: VecDeque<SystemEntry>,
    last_received: BTreeMap<Uid, Version>,
    /// Replies that a proxy may ask for again, by version.
    recent: BTreeMap<Version, ResolveReply>,
    load: Load,
}

/// Work done since the sequencer last asked.
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

    /// Whether this is a commit proxy of the epoch. Another one would take a link of the chain.
    pub fn serves(&self, proxy: Uid) -> bool {
        self.last_received.contains_key(&proxy)
    }

    /// The earlier reply, if this batch was judged before.
    pub fn repeat(&self, batch: &ResolveBatch) -> Option<ResolveReply> {
        self.recent.get(&batch.version).cloned()
    }

    /// Judges the next batch of the chain. `None` if it is malformed.
    pub fn resolve(&mut self, batch: ResolveBatch) -> Option<ResolveReply> {
        let judged = self.begin(batch).judge();
        self.finish(judged)
    }

    /// Begins the next batch of the chain. The caller has to judge it, here or on another thread, and then
    /// [finish](Self::finish) it before it begins another.
    fn begin(&mut self, batch: ResolveBatch) -> Judging {
        assert_eq!(
            batch.prev_version, self.version,
            "batches are judged along the chain of versions"
        );
        assert_eq!(batch.epoch, self.epoch, "a batch of another epoch");
        let conflicts = self.conflicts.take().expect("nothing is being judged");
        let oldest = batch.version - VERSION_WINDOW.get() as Version;
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
        assert_eq!(
            verdicts.len(),
            batch.transactions.len(),
            "a verdict for each transaction of version {}",
            batch.version
        );
        self.version = batch.version;
        let group = system_group(&batch, &verdicts);
        let reply = ResolveReply {
            verdicts,
            conflicting,
            system: self.system_for(batch.proxy, batch.last_received),
        };
        if let Some(group) = group {
            let last = self.system.back().map(|entry| entry.group.version);
            assert!(
                last.is_none_or(|last| last < group.version),
                "system transactions of {} are remembered after those of {last:?}",
                group.version
            );
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

    /// System transactions that `proxy` has not received. Its own are left out: it has those.
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

/// A batch to be judged, and the history that this needs.
struct Judging {
    batch: ResolveBatch,
    oldest: Version,
    conflicts: ConflictSet,
}

/// The result of judging a batch.
struct Judged {
    batch: ResolveBatch,
    conflicts: ConflictSet,
    /// `None`: the batch is malformed.
    verdicts: Option<(Bytes, Conflicting)>,
    /// All conflict ranges read and written in the batch.
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
            // No client was given a version that is not committed yet. A made-up read version counts as the oldest
            // possible one, so that it hides no conflict.
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
