//! Splits a batch over the resolvers and combines their verdicts.

use super::partitions;
use plinth_core::conflict_ranges::ConflictRanges;
use plinth_core::key::{ALL_KEYS_END, KeyRange, SYSTEM_BEGIN, TRANSACTION_BYTES_MAX};
use plinth_core::mutation::MutationBatch;
use plinth_core::system_keys::{METADATA_VERSION, is_metadata_key, is_metadata_range};
use plinth_core::{Error, MutationKind, Result};
use plinth_protocol::transaction::{
    Commit, FLAG_LOCK_AWARE, FLAG_REPORT_CONFLICTS, FLAG_SYSTEM_KEYS, Partition, ResolveReply,
    ResolveTransaction, SystemTransaction, SystemTransactions, TRANSACTION_PLACES_MAX,
    VERDICT_COMMITTED, VERDICT_CONFLICT, VERDICT_TOO_OLD,
};
use plinth_runtime::planted;

/// Bytes that a client may add to a transaction by itself.
const CLIENT_EXTRA_BYTES: usize = 100_000;

/// A transaction as the pipeline carries it. [`Pending::parse`] has checked it.
pub struct Pending {
    pub read_version: i64,
    pub reads: ConflictRanges,
    pub writes: ConflictRanges,
    pub mutations: MutationBatch,
    /// True if some mutation changes what the proxies keep of the system keyspace.
    pub is_system: bool,
    /// True if it commits even while the database is locked.
    pub lock_aware: bool,
    pub report_conflicts: bool,
    /// How many places of its batch it takes.
    pub places: u16,
    /// The first of them: the last two bytes of its versionstamp. Known when the batch is formed.
    pub order: u16,
}

impl Pending {
    /// Checks bytes that come from a client.
    pub fn parse(commit: Commit) -> Result<Self> {
        let malformed = Error::client_invalid_operation;
        let bytes = commit.reads.len() + commit.writes.len() + commit.mutations.len();
        if bytes > TRANSACTION_BYTES_MAX + CLIENT_EXTRA_BYTES {
            return Err(Error::transaction_too_large);
        }
        if !(1..=TRANSACTION_PLACES_MAX).contains(&commit.places) {
            return Err(malformed);
        }
        let reads = ConflictRanges::parse(commit.reads).ok_or(malformed)?;
        let writes = ConflictRanges::parse(commit.writes).ok_or(malformed)?;
        let mutations = MutationBatch::parse(commit.mutations).ok_or(malformed)?;
        let mut is_system = false;
        for mutation in mutations.iter() {
            let (first, second) = (mutation.first, mutation.second);
            let (system, metadata) = if mutation.kind == MutationKind::ClearRange {
                if first > second {
                    return Err(Error::inverted_range);
                }
                (second > SYSTEM_BEGIN, is_metadata_range(first, second))
            } else {
                let free = *first == *METADATA_VERSION;
                (first >= SYSTEM_BEGIN && !free, is_metadata_key(first))
            };
            // Keys beyond all keys carry the proxies' orders to storage servers.
            let beyond = if mutation.kind == MutationKind::ClearRange {
                second > ALL_KEYS_END
            } else {
                first >= ALL_KEYS_END
            };
            if beyond || (system && commit.flags & FLAG_SYSTEM_KEYS == 0) {
                return Err(Error::key_outside_legal_range);
            }
            // Other proxies would not know the stamp when they apply the mutation to their copies.
            if metadata && mutation.kind.is_versionstamped() {
                return Err(malformed);
            }
            is_system |= metadata;
        }
        Ok(Pending {
            read_version: commit.read_version,
            reads,
            writes,
            mutations,
            is_system,
            lock_aware: commit.flags & FLAG_LOCK_AWARE != 0,
            report_conflicts: commit.flags & FLAG_REPORT_CONFLICTS != 0,
            places: commit.places,
            order: 0,
        })
    }

    pub fn bytes(&self) -> usize {
        self.reads.bytes().len() + self.writes.bytes().len() + self.mutations.bytes().len()
    }
}

/// The part of the batch that resolver `i` of `resolvers` judges.
pub fn part(
    batch: &[Pending],
    partitions: &[Partition],
    i: usize,
    resolvers: usize,
) -> Vec<ResolveTransaction> {
    let part = |transaction| part_for(transaction, partitions, i, resolvers == 1);
    batch.iter().map(part).collect()
}

fn part_for(
    transaction: &Pending,
    partitions: &[Partition],
    i: usize,
    alone: bool,
) -> ResolveTransaction {
    let clip = |ranges: &ConflictRanges, (begin, end): (&[u8], &[u8])| match alone {
        true => ranges.bytes().clone(),
        false => ranges.clip(begin, end).bytes().clone(),
    };
    let read_version = transaction.read_version;
    let reads = partitions::of_reads(partitions, i, read_version);
    ResolveTransaction {
        read_version,
        reads: clip(&transaction.reads, reads),
        writes: clip(&transaction.writes, partitions::of_writes(partitions, i)),
        system_mutations: transaction
            .is_system
            .then(|| transaction.mutations.bytes().clone()),
        lock_aware: transaction.lock_aware,
        report_conflicts: transaction.report_conflicts,
    }
}

/// The common verdict: committed only if every resolver admits (FDB §2.4.2). `None` if a reply is malformed.
pub fn combine(count: usize, replies: &[ResolveReply]) -> Option<Vec<Result<()>>> {
    if replies.iter().any(|reply| reply.verdicts.len() != count) {
        return None;
    }
    let skipped = usize::from(
        planted!(
            "skip_resolver",
            "a commit proxy ignores the verdict of the first of several resolvers"
        ) && replies.len() > 1,
    );
    let verdict = |i: usize| {
        let mut result = Ok(());
        for reply in &replies[skipped..] {
            match reply.verdicts[i] {
                VERDICT_COMMITTED => {}
                VERDICT_CONFLICT => result = Err(Error::not_committed),
                VERDICT_TOO_OLD => return Some(Err(Error::transaction_too_old)),
                _ => return None,
            }
        }
        Some(result)
    };
    (0..count).map(verdict).collect()
}

/// The conflicting ranges of the transaction at `place`, from all resolvers.
pub fn conflicting(replies: &[ResolveReply], place: usize) -> Vec<KeyRange> {
    let reports = replies.iter().flat_map(|reply| &reply.conflicting);
    reports
        .filter(|(at, _)| *at as usize == place)
        .flat_map(|(_, ranges)| ranges.iter().cloned())
        .collect()
}

/// System transactions of other proxies that every resolver admitted, in version order (pitfall 7).
/// `None` if the resolvers do not list the same ones: then one of them has lost a version.
pub fn combine_system(replies: &[ResolveReply]) -> Option<Vec<(i64, Vec<SystemTransaction>)>> {
    let (first, others) = replies.split_first()?;
    if others
        .iter()
        .any(|reply| !same_shape(&first.system, &reply.system))
    {
        return None;
    }
    let mut admitted = Vec::new();
    for (at, group) in first.system.iter().enumerate() {
        let mut mutations = Vec::new();
        for (i, transaction) in group.transactions.iter().enumerate() {
            let admits = |reply: &ResolveReply| reply.system[at].transactions[i].admitted;
            if transaction.admitted && others.iter().all(admits) {
                mutations.push(transaction.clone());
            }
        }
        admitted.push((group.version, mutations));
    }
    Some(admitted)
}

fn same_shape(a: &[SystemTransactions], b: &[SystemTransactions]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.version == b.version && a.transactions.len() == b.transactions.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_transaction_above_the_limit_is_refused_whoever_sends_it() {
        let commit = |bytes: usize| Commit {
            read_version: 1,
            reads: Bytes::new(),
            writes: Bytes::new(),
            mutations: MutationBatch::from_mutations([plinth_core::MutationRef {
                kind: MutationKind::Set,
                first: b"key",
                second: &vec![7; bytes],
            }])
            .into_bytes(),
            flags: 0,
            places: 1,
        };
        assert!(Pending::parse(commit(TRANSACTION_BYTES_MAX)).is_ok());
        let refused = Pending::parse(commit(TRANSACTION_BYTES_MAX + 200_000)).err();
        assert_eq!(refused, Some(Error::transaction_too_large));
    }
}
