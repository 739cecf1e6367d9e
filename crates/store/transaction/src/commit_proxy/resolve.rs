//! Splits a batch over the resolvers and combines their verdicts.

use super::accept::Pending;
use super::partitions;
use plinth_core::conflict_ranges::ConflictRanges;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Result};
use plinth_protocol::transaction::{
    Partition, ResolveReply, ResolveTransaction, SystemTransaction, SystemTransactions,
    VERDICT_COMMITTED, VERDICT_CONFLICT, VERDICT_TOO_OLD,
};
use plinth_runtime::planted;

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
