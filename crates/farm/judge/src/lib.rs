//! Judges recorded histories of transactions of the in-memory engine for opacity (FaRMv2, "§" in this crate).
//! Opacity is strict serializability for transactions that abort, too: whatever a transaction reads is one moment of
//! the database, and that moment is not before its begin.
//!
//! ```text
//!   Recorder ──▶ History ◀──parse── files of processes        who read whose version, who wrote, when, timestamps
//!                   │
//!                prepare     dirty reads, values that nobody wrote, reads that are not repeatable
//!                resolve     which transactions of unknown outcome took effect
//!                   ├──▶ timestamps   the engine's claim: everything happened at its timestamp
//!                   ├──▶ order, graph, cycle   no timestamps: is there any order that explains the reads?
//!                   └──▶ opinion      `adya`, on what committed
//! ```
//!
//! What is judged, [by timestamps](judge_by_timestamps):
//! - A read returns the newest version at the read timestamp (Lemma 2), whatever becomes of the transaction.
//! - What a transaction relied on has not changed between its read timestamp and its write timestamp (Lemma 3). A
//!   serializable one relies on all that it read or wrote, one under snapshot isolation on what it wrote. An object
//!   that it allocated without having read it may have been freed in between.
//! - A write timestamp is above the read timestamp of its transaction, and no object has two versions with one.
//! - Objects are allocated and freed in turn, and nobody writes one that is not allocated.
//! - A strict transaction reads at the timestamp of everything that ended before it began, or later (§4.2). Two
//!   things are excepted: that a snapshot of the past was asked for (§4.6), and that what ended was not strict, under
//!   snapshot isolation, and so had not waited for its write timestamp.
//! - A transaction that is not strict does so for what ended on its own machine.
//!
//! And [by order](judge_by_order): there is an order of all transactions, with those that aborted as readers, in which
//! each reads what the one before it left, and which agrees with real time as above. If the timestamps are right there
//! is one; so whatever this judge refuses, the other one does. It is here because it does not believe that the engine
//! serializes as it says, and because it tells whether a wrong timestamp did harm.
//!
//! What they need of a workload:
//! - A value carries the number of the transaction that wrote it.
//! - Who writes an object has read it before, or allocates it. Otherwise timestamps tell the order of versions.
//! - A last transaction reads everything, after all others. What nobody has read may be wrong, or lost.
//!
//! What they cannot see:
//! - A transaction that nobody saw and whose outcome nobody was told may have taken effect. If several of those could
//!   have freed or allocated the same object, one of them is taken, and others if the history is refused with it. Only
//!   so many ways are tried.
//! - The value itself: that the bytes are those that the writer wrote is for the workload to check.
//! - Absent objects in a scan, which no read names: phantoms are conflicts of the structure's objects.
//! - Whether something should have committed: an engine that aborts everything is right.
//! - Order of moments that are equal, or that a clock has put in the wrong order.

mod bound;
mod cycle;
mod graph;
mod history;
#[cfg(feature = "second-opinion")]
mod opinion;
mod order;
mod prepare;
mod record;
mod resolve;
mod text;
mod timestamps;
mod unseen;
mod violation;

pub use history::{
    Change, History, Id, Isolation, Moment, NEVER, Object, Options, Outcome, Read, Seen, Timestamp,
    Transaction, Write,
};
pub use record::{Recorder, Recording};
pub use text::{HEADER, NotAHistory};
pub use violation::{Kind, Violation};

use prepare::Prepared;
use std::fmt;

/// What a history was made of. It tells a test that there was something to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Transactions that wrote and were reported as committed.
    pub committed: usize,
    /// Those that wrote nothing and were reported as committed.
    pub read_only: usize,
    pub aborted: usize,
    /// Of unknown outcome. Those that took effect are counted here, too.
    pub unknown: usize,
    pub unknown_took_effect: usize,
    pub reads: usize,
    /// Reads of transactions that aborted.
    pub aborted_reads: usize,
    pub versions: usize,
    pub objects: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} transactions wrote, {} only read, {} aborted; of {} the outcome was unknown, {} of those took effect; \
             {} reads ({} of those that aborted) of {} objects with {} versions",
            self.committed,
            self.read_only,
            self.aborted,
            self.unknown,
            self.unknown_took_effect,
            self.reads,
            self.aborted_reads,
            self.objects,
            self.versions
        )
    }
}

/// Judges by the timestamps that the engine has given: [`judge`] does more.
pub fn judge_by_timestamps(history: &History) -> Result<Summary, Box<Violation>> {
    let prepared = resolve::judged(history, timestamps::judge)?;
    Ok(summary(&prepared))
}

/// Judges without a look at timestamps, except where reads leave the order of versions open: [`judge`] does more.
pub fn judge_by_order(history: &History) -> Result<Summary, Box<Violation>> {
    let prepared = resolve::judged(history, graph::judge)?;
    Ok(summary(&prepared))
}

/// Asks `adya` what it thinks of the transactions that committed. It is slower than the others, the more so the more
/// versions of objects there are that were read before anybody wrote them: some thousand transactions are well.
#[cfg(feature = "second-opinion")]
pub fn second_opinion(history: &History) -> Result<Summary, Box<Violation>> {
    let prepared = resolve::judged(history, opinion::judge)?;
    Ok(summary(&prepared))
}

/// Judges a history in both ways.
pub fn judge(history: &History) -> Result<Summary, Box<Violation>> {
    let prepared = resolve::judged(history, |prepared| {
        timestamps::judge(prepared)?;
        graph::judge(prepared)
    })?;
    Ok(summary(&prepared))
}

fn summary(prepared: &Prepared<'_>) -> Summary {
    let mut summary = Summary {
        reads: prepared.reads.all().len(),
        versions: prepared.versions.all().len(),
        objects: prepared.objects.len(),
        ..Summary::default()
    };
    for number in prepared.numbers() {
        match prepared.transaction(number).outcome {
            Outcome::Committed(_) => summary.committed += 1,
            Outcome::ReadOnly => summary.read_only += 1,
            Outcome::Aborted => {
                summary.aborted += 1;
                summary.aborted_reads += prepared.reads.of(number).len();
            }
            Outcome::Unknown(_) => {
                summary.unknown += 1;
                summary.unknown_took_effect +=
                    usize::from(prepared.wrote_at[number as usize].is_some());
            }
        }
    }
    summary
}
