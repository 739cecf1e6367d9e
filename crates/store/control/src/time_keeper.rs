//! The time keeper: records which version the database had at which time. It writes a row every ten seconds, for
//! users who want to find the version of a past hour, roughly.
//!
//! ```text
//! \xff\x02/timeKeeper/map/<packed seconds since 1970>  →  <packed version>
//! ```
//!
//! The times are as exact as the clock of the controller's machine. Nothing in Plinth relies on them alone: the age of
//! a stream's entries is judged by versions as well.
//!
//! It also removes the rows of [automatic idempotency](plinth_core::system_keys::IDEMPOTENCY) that are no longer
//! needed: those of versions that are [long ago](plinth_core::system_keys::IDEMPOTENCY_KEPT), whatever any clock
//! says.

use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_core::system_keys::{IDEMPOTENCY, IDEMPOTENCY_KEPT, idempotency_rows_from};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, Key, KeySelector, Result, Value, Version};
use plinth_runtime::{Duration, probe};

const PREFIX: &[u8] = b"\xff\x02/timeKeeper/map/";
const INTERVAL_S: u64 = 10;
/// Older rows are removed.
const KEPT_S: u64 = 30 * 24 * 3600;
/// A row that cannot be written within this time is skipped.
const WRITE_LIMIT_MS: i64 = 5000;

pub(crate) async fn keep(database: Database) {
    loop {
        // At full multiples, however long a write takes: every ten seconds have a row.
        let ms = plinth_runtime::unix_time_ms();
        let next = (ms / 1000 / INTERVAL_S + 1) * INTERVAL_S;
        plinth_runtime::sleep(Duration::from_millis(next * 1000 - ms)).await;
        if write(&database, next).await.is_ok() {
            probe!("time_kept");
        }
    }
}

fn key(seconds: u64) -> Result<Vec<u8>> {
    let seconds = i64::try_from(seconds).map_err(|_| Error::internal_error)?;
    Ok([PREFIX, &tuple::pack(&[Element::Int(seconds)])?].concat())
}

/// The version that the database had at least so many seconds ago, by the clock of this machine and those of the
/// controllers before it. `None` if no row tells.
pub(crate) async fn version_before(
    transaction: &Transaction,
    seconds: u64,
) -> Result<Option<Version>> {
    let then = (plinth_runtime::unix_time_ms() / 1000).saturating_sub(seconds);
    let rows = transaction
        .get_range_all(
            KeySelector::first_greater_or_equal(PREFIX),
            KeySelector::first_greater_than(key(then)?),
            RangeOptions::limit(1).reversed(),
            true,
        )
        .await?;
    let version = |(_, value): &(Key, Value)| tuple::unpack(value).ok()?.first()?.as_i64();
    Ok(rows.first().and_then(version))
}

async fn write(database: &Database, seconds: u64) -> Result<()> {
    let transaction = database.create_transaction();
    for option in [
        TransactionOption::Timeout(WRITE_LIMIT_MS),
        TransactionOption::AccessSystemKeys,
        TransactionOption::LockAware,
    ] {
        transaction.set_option(option)?;
    }
    let version = transaction.get_read_version().await?;
    transaction.set(key(seconds)?, tuple::pack(&[Element::Int(version)])?);
    transaction.clear_range(PREFIX, key(seconds.saturating_sub(KEPT_S))?);
    let over = idempotency_rows_from(version.saturating_sub(IDEMPOTENCY_KEPT));
    transaction.clear_range(IDEMPOTENCY, over);
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::testing::{CommitFault, MemoryCluster};
    use plinth_runtime::real::block_on;

    const DAY_S: u64 = 24 * 3600;

    async fn put(database: &Database, keys: &[Key]) -> Result<()> {
        let transaction = database.create_transaction();
        transaction.set_option(TransactionOption::AccessSystemKeys)?;
        keys.iter().for_each(|key| transaction.set(key, "stamp"));
        transaction.commit().await
    }

    #[test]
    fn a_wall_clock_that_is_days_off_removes_no_row_that_somebody_may_still_ask_for() {
        block_on(async {
            let cluster = MemoryCluster::new();
            let database = cluster.database();
            // The database is two days old.
            cluster.inject(CommitFault::AnswerLostFor(2 * IDEMPOTENCY_KEPT));
            let _ = put(&database, &[Key::from_static(b"\xff/jump")]).await;
            let row = |version: Version| {
                [&idempotency_rows_from(version)[..], b"/id"]
                    .concat()
                    .into()
            };
            let oldest_kept = cluster.version() - IDEMPOTENCY_KEPT + 1000;
            let rows: [Key; 3] = [
                row(oldest_kept - 2000),
                row(oldest_kept),
                row(cluster.version()),
            ];
            put(&database, &rows).await.expect("commits");

            let now = 20_000 * DAY_S;
            for clock in [now, now + 3 * DAY_S, now - 3 * DAY_S] {
                write(&database, clock).await.expect("commits");
                let left = cluster.rows();
                let is_left = rows.each_ref().map(|row| left.contains_key(row));
                assert_eq!(is_left, [false, true, true], "with the clock at {clock} s");
            }
        });
    }
}
