//! The conflict set: the history of writes that a resolver keeps, and how it judges (FDB §2.4.2, Algorithm 1).
//!
//! The set keeps `lastCommit`: for every key, the version at which it was last written, as far back as
//! `oldest_version`. A transaction read the database as of its read version. If a key that it read has been written
//! since, the value that it read is stale, and the transaction may not commit.
//!
//! ```text
//!                 a      c        f   g            p
//! lastCommit  ----|--40--|---95---|---|-----40-----|----    read version 60: reading [a, c) is admitted,
//!                                                           reading [b, d) conflicts
//! ```
//!
//! It promises:
//! - a transaction is admitted exactly if nothing it read was written after its read version, by
//!   an earlier batch or by an admitted transaction before it in its own batch: no false commits, no false conflicts;
//! - where the history no longer reaches back to the read version, the verdict is [`Verdict::TooOld`];
//! - a batch costs time in proportion to its own bytes, plus a constant share of forgetting, whatever its keys. If it
//!   splits blocks, it also moves the list of the blocks behind the first of them: 136 bytes for every 80 keys.
//!
//! The set is fast because the keys of a batch are sorted as integers (`points`) rather than as bytes, so that a walk
//! over the history in key order loads each cache line once. Ranks (`batch`) settle the conflicts inside the batch.
//! The history is rewritten block by block (`block`).

mod batch;
mod bits;
mod block;
mod history;
mod points;
#[cfg(test)]
mod tests;

use batch::{Batch, Buffers};
use history::History;
use plinth_core::Version;
use plinth_core::conflict_ranges::{ConflictRanges, ConflictRangesBuilder};
use plinth_core::key::KeyRange;
use plinth_runtime::checks::are_expensive_on;

/// The conflict ranges of a transaction, as in its commit request.
#[derive(Clone, Copy, Debug)]
pub struct TransactionConflicts<'a> {
    pub read_version: Version,
    pub reads: &'a ConflictRanges,
    pub writes: &'a ConflictRanges,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Committed,
    /// A key that it read has been written since its read version.
    Conflict,
    /// The history does not reach back to its read version.
    TooOld,
}

pub struct ConflictSet {
    history: History,
    oldest_version: Version,
    /// Commit version of the last batch.
    commit_version: Version,
    buffers: Buffers,
    /// Changes since the whole history was checked.
    unchecked: usize,
}

/// Entries that each batch examines for forgetting, in addition to [`SWEEP_ENTRIES_PER_CHANGE`] for each entry that it
/// added. More entries are examined than added, so that entries not yet forgotten stay few beside those that are
/// needed.
const SWEEP_ENTRIES: usize = 512;
const SWEEP_ENTRIES_PER_CHANGE: usize = 4;

impl ConflictSet {
    /// An empty history: nothing was written after `oldest_version`, and nothing is known from before it.
    pub fn new(oldest_version: Version) -> Self {
        ConflictSet {
            history: History::new(oldest_version),
            oldest_version,
            commit_version: oldest_version,
            buffers: Buffers::default(),
            unchecked: 0,
        }
    }

    /// Transactions with a read version below this one are too old.
    pub fn oldest_version(&self) -> Version {
        self.oldest_version
    }
    /// Boundaries held, for metrics. Looks at every block.
    pub fn entry_count(&self) -> usize {
        self.history.entry_count()
    }
    /// Memory held, for metrics. Looks at every block.
    pub fn bytes(&self) -> usize {
        self.history.bytes()
    }

    /// Judges the transactions of one batch in order; all of them would commit at `commit_version`. Records the writes
    /// of the admitted ones. Then forgets writes up to `new_oldest`, a bounded number of them in one call.
    ///
    /// Commit versions grow from batch to batch. Read versions are taken as the client gives them: one that lies in
    /// the future conflicts with nothing but its own batch.
    pub fn resolve(
        &mut self,
        commit_version: Version,
        new_oldest: Version,
        transactions: &[TransactionConflicts<'_>],
    ) -> Vec<Verdict> {
        assert!(
            commit_version > self.commit_version && new_oldest <= commit_version,
            "commit version {commit_version} after {}, forgetting {new_oldest}",
            self.commit_version
        );
        self.commit_version = commit_version;
        let mut verdicts: Vec<Verdict> = transactions
            .iter()
            .map(|transaction| self.judge_age(transaction))
            .collect();
        let mut batch = Batch::new(transactions, &verdicts, &mut self.buffers);
        batch.check_against(&self.history, &mut verdicts);
        batch.check_against_itself(&mut verdicts);
        self.oldest_version = self.oldest_version.max(new_oldest);
        let changed = self
            .history
            .write(batch.written(), commit_version, self.oldest_version);
        batch.recycle_into(&mut self.buffers);
        self.history.sweep(
            self.oldest_version,
            SWEEP_ENTRIES + changed * SWEEP_ENTRIES_PER_CHANGE,
        );
        if are_expensive_on() {
            self.check_now_and_then(changed);
        }
        verdicts
    }

    /// Checks the whole history whenever about as much has changed as there is of it.
    fn check_now_and_then(&mut self, changed: usize) {
        self.unchecked += 1 + changed;
        if self.unchecked >= self.entry_count() {
            self.unchecked = 0;
            self.history.check();
        }
    }

    /// The ranges of `reads` that were written after `read_version`; all ranges if the history no longer reaches back
    /// to it. After a batch the result includes the writes of the whole batch.
    pub fn newer_than(&mut self, read_version: Version, reads: &ConflictRanges) -> Vec<KeyRange> {
        let nothing = ConflictRangesBuilder::new().build();
        let ranges: Vec<KeyRange> = reads
            .iter()
            .map(|range| KeyRange::new(range.begin.to_vec(), range.end.to_key()))
            .collect();
        if read_version < self.oldest_version {
            return ranges;
        }
        let alone: Vec<ConflictRanges> = ranges
            .iter()
            .map(|range| {
                let mut builder = ConflictRangesBuilder::new();
                builder.add(&range.begin, &range.end);
                builder.build()
            })
            .collect();
        let questions: Vec<TransactionConflicts<'_>> = alone
            .iter()
            .map(|reads| TransactionConflicts {
                read_version,
                reads,
                writes: &nothing,
            })
            .collect();
        let mut verdicts = vec![Verdict::Committed; questions.len()];
        let mut batch = Batch::new(&questions, &verdicts, &mut self.buffers);
        batch.check_against(&self.history, &mut verdicts);
        batch.recycle_into(&mut self.buffers);
        let verdicts = verdicts.into_iter();
        ranges
            .into_iter()
            .zip(verdicts)
            .filter(|(_, verdict)| *verdict == Verdict::Conflict)
            .map(|(range, _)| range)
            .collect()
    }

    fn judge_age(&self, transaction: &TransactionConflicts<'_>) -> Verdict {
        if transaction.read_version < self.oldest_version && !transaction.reads.is_empty() {
            Verdict::TooOld
        } else {
            Verdict::Committed
        }
    }
}
