//! Floor 2: judges histories of transactions for opacity.

mod history;
mod prepare;
mod record;
mod resolve;
mod timestamps;
mod violation;

pub use history::{
    Change, History, Id, Isolation, Moment, NEVER, Object, Options, Outcome, Read, Seen, Timestamp,
    Transaction, Write,
};
pub use record::{Recorder, Recording};
pub use violation::{Kind, Violation};

use prepare::Prepared;

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

/// Judges by the timestamps that the engine has given: [`judge`] does more.
pub fn judge_by_timestamps(history: &History) -> Result<Summary, Box<Violation>> {
    let prepared = Prepared::new(history)?;
    timestamps::judge(&prepared)?;
    Ok(summary(&prepared))
}

/// Judges a history in every way.
pub fn judge(history: &History) -> Result<Summary, Box<Violation>> {
    let prepared = Prepared::new(history)?;
    timestamps::judge(&prepared)?;
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
