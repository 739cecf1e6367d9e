//! Reads the rows that say who may read and write what, again and again, for the storage servers of this process.
//! Commit proxies have the rows as the rest of the system keyspace.

use plinth_access::{Access, Known};
use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_core::system_keys::{ACCESS, ACCESS_END};
use plinth_core::{KeyRange, Result};
use plinth_rpc::Transport;
use plinth_runtime::{Duration, trace};
use std::convert::Infallible;
use std::rc::Rc;

/// Pause after an attempt that failed, and while there are no keys.
const RETRY: Duration = Duration::from_millis(100);
/// Between two reads.
const INTERVAL: Duration = Duration::from_secs(2);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Follows the rows while others need a key for this process.
pub async fn follow(transport: Transport, database: Database, known: Rc<Known>) -> Infallible {
    loop {
        if !transport.is_closed() {
            plinth_runtime::sleep(RETRY).await;
            continue;
        }
        let began = plinth_runtime::now();
        let read = plinth_runtime::timeout(ANSWER_LIMIT, read(&database)).await;
        match read {
            Some(Ok(access)) => {
                known.learn(access, began);
                plinth_runtime::sleep(INTERVAL).await;
            }
            Some(Err(error)) => {
                trace!("AccessNotRead", "error" => error);
                plinth_runtime::sleep(RETRY).await;
            }
            None => {}
        }
    }
}

async fn read(database: &Database) -> Result<Access> {
    let transaction = database.create_transaction();
    for option in [
        TransactionOption::ReadSystemKeys,
        TransactionOption::ReadLockAware,
        TransactionOption::PrioritySystemImmediate,
    ] {
        transaction.set_option(option)?;
    }
    let all = KeyRange::new(ACCESS, ACCESS_END);
    let found = transaction
        .get_rows(all, RangeOptions::default(), true)
        .await?;
    let rows = found.iter().map(|(key, value)| (&key[..], &value[..]));
    Ok(Access::from_rows(rows))
}
