//! The beat of the database: one real commit a second, by which every process sees whether commits go through.
//!
//! ```text
//! controller ── commit ──► \xff\x02/beat: its stamp ── read every 2 s ──► each process: `server/src/readiness.rs`
//! ```
//!
//! It is what a user's transaction is: it asks for a read version with the usual priority, so it waits where users
//! wait, and it goes through a commit proxy, resolvers and log servers. One for the whole cluster: a thousand idle
//! processes need not commit each second to know.

use plinth_client::{Database, TransactionOption};
use plinth_core::system_keys::BEAT;
use plinth_core::{MutationKind, Result, Versionstamp};
use plinth_runtime::{Duration, now, probe, sleep, sleep_until, timeout};

const INTERVAL: Duration = Duration::from_secs(1);
/// After this time a beat is tried anew. Where transactions queue, it has to wait for its turn.
const LIMIT: Duration = Duration::from_secs(5);
/// Pause after a beat that failed: it shows how soon commits go through again after a recovery.
const RETRY: Duration = Duration::from_millis(100);
/// Where the stamp stands in the value.
const STAMP_AT: u32 = 0;

pub(crate) async fn beat(database: Database) {
    loop {
        let next = now() + INTERVAL;
        match timeout(LIMIT, write(&database)).await {
            Some(Ok(())) => {
                probe!("database_beats");
                sleep_until(next).await;
            }
            Some(Err(_)) | None => sleep(RETRY).await,
        }
    }
}

async fn write(database: &Database) -> Result<()> {
    let transaction = database.create_transaction();
    for option in [
        TransactionOption::AccessSystemKeys,
        TransactionOption::LockAware,
        // One that comes late does no harm.
        TransactionOption::CausalWriteRisky,
    ] {
        transaction.set_option(option)?;
    }
    transaction.get_read_version().await?;
    let stamp = [&[0; Versionstamp::LEN][..], &STAMP_AT.to_le_bytes()].concat();
    transaction.atomic_op(MutationKind::SetVersionstampedValue, BEAT, stamp);
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::testing::MemoryCluster;
    use plinth_runtime::real::block_on;

    #[test]
    fn each_beat_leaves_another_stamp() {
        block_on(async {
            let cluster = MemoryCluster::new();
            let mut before = None;
            for _ in 0..3 {
                write(&cluster.database()).await.expect("commits");
                let now = cluster.rows().get(BEAT).cloned();
                assert_eq!(
                    now.as_ref().map(|stamp| stamp.len()),
                    Some(Versionstamp::LEN)
                );
                assert!(now > before);
                before = now;
            }
        });
    }
}
