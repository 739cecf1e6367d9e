//! What is said of a history that breaks its promises.

use crate::history::{Change, Id, Isolation, NEVER, Object, Outcome, Seen, Transaction};
use std::fmt;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// The record contradicts itself, so that nothing can be judged.
    Malformed,
    /// Two reads of an object in one transaction returned different versions.
    NotRepeatable,
    /// A read returned a value that nobody wrote to that object.
    NobodyWrote,
    /// A read returned a value of a transaction that aborted.
    ReadOfAborted,
    /// Reads do not agree on what an object was before the history.
    Beginning,
    /// A read did not return the version that its read timestamp demands.
    Snapshot,
    /// A transaction committed although an object that it relied on had changed between its timestamps.
    Overtaken,
    /// Two versions of an object have one timestamp.
    SameTimestamp,
    /// A write timestamp is not above the read timestamp of its transaction.
    TimestampOrder,
    /// An object was written or freed that was not allocated, or allocated while it was.
    Allocation,
    /// A transaction began after another had ended, and was put before it.
    Strictness,
    /// A machine's transactions went back in time.
    Monotonic,
    /// Two transactions read the same version, and both replaced it.
    LostUpdate,
    /// The order in which transactions must have run is a circle.
    Cycle,
    /// The other judge has found an anomaly.
    SecondOpinion,
}

/// Why a history is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub kind: Kind,
    /// Those that take part in it; the one to look at first comes first.
    pub transactions: Vec<Id>,
    pub object: Option<Object>,
    /// A sentence, and what is known of each of the transactions, a line each.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}

/// So many operations of a transaction are shown.
const OPERATIONS_SHOWN_MAX: usize = 12;

pub(crate) fn violation(
    kind: Kind,
    involved: &[&Transaction],
    object: Option<Object>,
    why: String,
) -> Box<Violation> {
    let mut text = why;
    let mut shown: Vec<Id> = Vec::new();
    for transaction in involved {
        if !shown.contains(&transaction.id) {
            shown.push(transaction.id);
            text += &format!("\n  {}", Told(transaction));
        }
    }
    Box::new(Violation {
        kind,
        transactions: shown,
        object,
        text,
    })
}

/// A transaction for a reader of the verdict.
struct Told<'a>(&'a Transaction);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transaction {
            id,
            machine,
            begin,
            end,
            options,
            ..
        } = self.0;
        write!(f, "T{id}: machine {machine}, from {begin} to ")?;
        match *end {
            NEVER => f.write_str("no end")?,
            end => write!(f, "{end}")?,
        }
        f.write_str(match options.isolation {
            Isolation::Serializable => ", serializable",
            Isolation::Snapshot => ", snapshot isolation",
        })?;
        if options.stale {
            f.write_str(", stale snapshot")?;
        } else if !options.strict {
            f.write_str(", not strict")?;
        }
        if let Some(timestamp) = self.0.read_timestamp {
            write!(f, ", reads at {timestamp}")?;
        }
        match self.0.outcome {
            Outcome::Committed(timestamp) => write!(f, ", committed at {timestamp}")?,
            Outcome::ReadOnly => f.write_str(", read-only, committed")?,
            Outcome::Aborted => f.write_str(", aborted")?,
            Outcome::Unknown(None) => f.write_str(", outcome unknown")?,
            Outcome::Unknown(Some(timestamp)) => {
                write!(f, ", outcome unknown, at {timestamp} if any")?
            }
        }
        self.operations(f)
    }
}

impl Told<'_> {
    fn operations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = &self.0.reads;
        let writes = &self.0.writes;
        if !reads.is_empty() {
            f.write_str("; read")?;
        }
        for read in reads.iter().take(OPERATIONS_SHOWN_MAX) {
            write!(f, " {:#x}={}", read.object, Saw(read.seen))?;
        }
        if reads.len() > OPERATIONS_SHOWN_MAX {
            write!(f, " and {} more", reads.len() - OPERATIONS_SHOWN_MAX)?;
        }
        if !writes.is_empty() {
            f.write_str("; wrote")?;
        }
        for write in writes.iter().take(OPERATIONS_SHOWN_MAX) {
            let change = match write.change {
                Change::Set => "",
                Change::Allocate => " (new)",
                Change::Free => " (freed)",
            };
            write!(f, " {:#x}{change}", write.object)?;
        }
        if writes.len() > OPERATIONS_SHOWN_MAX {
            write!(f, " and {} more", writes.len() - OPERATIONS_SHOWN_MAX)?;
        }
        Ok(())
    }
}

/// What a read returned, for a reader of the verdict.
pub(crate) struct Saw(pub Seen);

impl fmt::Display for Saw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Seen::Initial => f.write_str("initial"),
            Seen::Absent => f.write_str("not allocated"),
            Seen::Of(id) => write!(f, "T{id}"),
        }
    }
}
