//! Conflict ranges: a transaction whose declared reads another has written since never commits. Aborts without need are
//! counted, not forbidden.

use super::{Boxed, Complaints, Ending, Verdict, Workload, ending, think};
use plinth_client::Database;
use plinth_core::{Error, Result};
use plinth_runtime::{Instant, probe, random};

const KEYS: u64 = 1000;

pub struct ConflictRanges {
    complaints: Complaints,
}

fn key(i: u64) -> Vec<u8> {
    format!("{}conflict/{i:04}", if i < KEYS / 2 { "" } else { "z" }).into_bytes()
}

fn some_range() -> (u64, u64) {
    let begin = random::below(KEYS);
    (begin, (begin + 1 + random::below(50)).min(KEYS))
}

impl ConflictRanges {
    pub fn new() -> Self {
        ConflictRanges {
            complaints: Complaints::default(),
        }
    }

    /// One reads and declares, another writes and commits in between, then the first commits.
    async fn duel(&self, database: &Database, client: u64) -> Result<()> {
        let (read, written) = (some_range(), some_range());
        let first = database.create_transaction();
        first.get_read_version().await?;
        first.add_read_conflict_range(key(read.0), key(read.1));
        first.set(format!("conflict/result/{client}"), b"");
        let second = database.create_transaction();
        second.add_write_conflict_range(key(written.0), key(written.1));
        second.get_read_version().await?;
        second.commit().await?;
        let collide = read.0 < written.1 && written.0 < read.1;
        let result = first.commit().await;
        if collide && ending(result) == Ending::Committed {
            self.complaints.add(format!(
                "read {read:?}, {written:?} was written meanwhile, and both committed"
            ));
        }
        if !collide && result == Err(Error::not_committed) {
            probe!("workload_false_conflict");
        }
        Ok(())
    }
}

impl Workload for ConflictRanges {
    fn name(&self) -> &'static str {
        "conflict ranges"
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn work(&self, database: Database, client: u64, end: Instant) -> Boxed<'_, ()> {
        Box::pin(async move {
            while plinth_runtime::now() < end {
                // Whatever fails along the way only means that this duel tells nothing.
                let _ = self.duel(&database, client).await;
                think().await;
            }
        })
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move { self.complaints.verdict() })
    }
}
