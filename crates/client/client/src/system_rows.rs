//! Reads and writes of the system keyspace by the client itself, inside an application's transaction: at that
//! transaction's version and with its conflicts, whatever options the application has set.

use crate::reader::{Budget, Reader};
use crate::transaction::Transaction;
use plinth_core::key::{ALL_KEYS_END, KeyRange};
use plinth_core::{Key, MutationKind, MutationRef, Result, Value};

/// Rows of `range`, own writes included; the transaction conflicts with their change.
pub(crate) async fn read(
    transaction: &Transaction,
    range: KeyRange,
    limit: usize,
) -> Result<Vec<(Key, Value)>> {
    let database = transaction.database();
    let (attempt, version, writes, options) = {
        let mut state = transaction.inner.state.borrow_mut();
        state.attempt.check()?;
        let version = state.ask_read_version(database.cluster(), true);
        let writes = state.own_writes(false);
        (state.attempt.clone(), version, writes, state.options)
    };
    let reader = Reader {
        cluster: database.cluster().clone(),
        version: version.get().await?,
        writes: writes.clone(),
        bypass_unreadable: options.bypass_unreadable,
        attempt: (!options.ryw_disabled).then(|| attempt.clone()),
        keys_end: Key::from_static(ALL_KEYS_END),
    };
    let mut rows = Vec::new();
    if range.begin < range.end {
        let budget = Budget {
            rows: limit,
            bytes: usize::MAX,
        };
        let keep = |key, value| rows.push((key, value));
        reader
            .scan(range.begin.clone(), range.end.clone(), false, budget, keep)
            .await?;
        attempt.add_read_range(&range.begin, &range.end, writes.as_deref());
    }
    Ok(rows)
}

pub(crate) async fn get(transaction: &Transaction, key: &[u8]) -> Result<Option<Value>> {
    let rows = read(transaction, KeyRange::single(key), 1).await?;
    Ok(rows.into_iter().next().map(|(_, value)| value))
}

fn push(transaction: &Transaction, kind: MutationKind, first: &[u8], second: &[u8]) -> Result<()> {
    let mut state = transaction.inner.state.borrow_mut();
    state.check_usable()?;
    state.options.write_system_keys = true; // the commit carries system keys now
    let mutation = MutationRef {
        kind,
        first,
        second,
    };
    state.log.push(mutation, true);
    Ok(())
}

pub(crate) fn set(transaction: &Transaction, key: &[u8], value: &[u8]) -> Result<()> {
    push(transaction, MutationKind::Set, key, value)
}

pub(crate) fn clear(transaction: &Transaction, range: &KeyRange) -> Result<()> {
    push(
        transaction,
        MutationKind::ClearRange,
        &range.begin,
        &range.end,
    )
}
