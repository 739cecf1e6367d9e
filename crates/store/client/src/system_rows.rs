//! Reads and writes of the system keyspace by the client itself, inside an application's transaction: at that
//! transaction's version and with its conflicts, whatever options the application has set.

use crate::attempt::Guarded;
use crate::reader::{Budget, Reader};
use crate::transaction::Transaction;
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::key::{ALL_KEYS_END, KeyRange};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Key, MutationKind, MutationRef, Result, Value};

/// Rows of `range`, own writes included; the transaction conflicts with their change. Ends with the attempt.
pub(crate) async fn read(
    transaction: &Transaction,
    range: KeyRange,
    limit: usize,
) -> Result<Vec<(Key, Value)>> {
    let cluster = transaction.cluster();
    let (attempt, version, writes, options) = {
        let mut state = transaction.inner.state.borrow_mut();
        state.attempt.check()?;
        let version = state.ask_read_version(&cluster, true);
        let writes = state.own_writes(false);
        (state.attempt.clone(), version, writes, state.options)
    };
    let rows = Guarded::new(&attempt, async {
        let reader = Reader {
            cluster: cluster.clone(),
            version: version.get().await?,
            writes: writes.clone(),
            bypass_unreadable: options.bypass_unreadable,
            attempt: (!options.ryw_disabled).then(|| attempt.clone()),
            keys_end: Key::from_static(ALL_KEYS_END),
        };
        scanned(&reader, range.clone(), false, Budget::rows(limit)).await
    });
    let (rows, _) = rows.await?;
    if !range.is_empty() {
        attempt.add_read_range(&range.begin, &range.end, writes.as_deref());
    }
    Ok(rows)
}

/// Rows of `range`, and whether a limit was reached.
async fn scanned(
    reader: &Reader,
    range: KeyRange,
    reverse: bool,
    budget: Budget,
) -> Result<(Vec<(Key, Value)>, bool)> {
    let mut rows = Vec::new();
    if range.is_empty() {
        return Ok((rows, false));
    }
    let keep = |key, value| rows.push((key, value));
    let more = reader.scan(range, reverse, budget, keep).await?;
    Ok((rows, more))
}

pub(crate) async fn get(transaction: &Transaction, key: &[u8]) -> Result<Option<Value>> {
    let rows = read(transaction, KeyRange::single(key), 1).await?;
    Ok(rows.into_iter().next().map(|(_, value)| value))
}

/// Rows of `range` as the database has them, without own writes and without conflicts; the last ones if
/// `reverse`. Also whether a limit was reached. Ends with the attempt.
pub(crate) async fn scan_snapshot(
    transaction: &Transaction,
    range: KeyRange,
    reverse: bool,
    budget: Budget,
) -> Result<(Vec<(Key, Value)>, bool)> {
    let cluster = transaction.cluster();
    let (attempt, version) = {
        let mut state = transaction.inner.state.borrow_mut();
        state.attempt.check()?;
        let version = state.ask_read_version(&cluster, true);
        (state.attempt.clone(), version)
    };
    let rows = Guarded::new(&attempt, async {
        let reader = Reader {
            cluster,
            version: version.get().await?,
            writes: None,
            bypass_unreadable: false,
            attempt: None,
            keys_end: Key::from_static(ALL_KEYS_END),
        };
        scanned(&reader, range, reverse, budget).await
    });
    rows.await
}

pub(crate) async fn get_snapshot(transaction: &Transaction, key: &[u8]) -> Result<Option<Value>> {
    let found = scan_snapshot(transaction, KeyRange::single(key), false, Budget::rows(1));
    let (rows, _) = found.await?;
    Ok(rows.into_iter().next().map(|(_, value)| value))
}

fn push(transaction: &Transaction, kind: MutationKind, first: &[u8], second: &[u8]) -> Result<()> {
    push_with(transaction, kind, first, second, true)
}

fn push_with(
    transaction: &Transaction,
    kind: MutationKind,
    first: &[u8],
    second: &[u8],
    conflicts: bool,
) -> Result<()> {
    let mut state = transaction.inner.state.borrow_mut();
    state.check_usable()?;
    state.options.write_system_keys = true; // the commit carries system keys now
    state
        .log
        .push(MutationRef::new(kind, first, second), conflicts);
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

/// Makes the transaction conflict with every change of `key`, without reading it.
pub(crate) fn conflict_with(transaction: &Transaction, key: &[u8]) -> Result<()> {
    let KeyRange { begin, end } = KeyRange::single(key);
    let state = transaction.inner.state.borrow();
    state.check_usable()?;
    state.attempt.add_read_range(&begin, &end, None);
    Ok(())
}

/// The parameter of a versionstamped operation: `prefix`, room for the stamp, and the number behind it.
fn stamped(prefix: &[u8], number: u16) -> Result<Bytes> {
    let offset = u32::try_from(prefix.len()).map_err(|_| Error::key_too_large)?;
    let mut out = BytesMut::with_capacity(prefix.len() + Versionstamp::LEN + 6);
    out.put_slice(prefix);
    out.put_bytes(0, Versionstamp::LEN);
    out.put_u16(number);
    out.put_u32_le(offset);
    Ok(out.freeze())
}

/// Writes `value` under `prefix`, the transaction's versionstamp and `number`. Conflicts with nothing.
pub(crate) fn stamp_key(
    transaction: &Transaction,
    prefix: &[u8],
    number: u16,
    value: &[u8],
) -> Result<()> {
    let kind = MutationKind::SetVersionstampedKey;
    push_with(transaction, kind, &stamped(prefix, number)?, value, false)
}

/// Writes the transaction's versionstamp and `number` as the value of `key`. Conflicts with nothing.
pub(crate) fn stamp_value(transaction: &Transaction, key: &[u8], number: u16) -> Result<()> {
    let kind = MutationKind::SetVersionstampedValue;
    push_with(transaction, kind, key, &stamped(b"", number)?, false)
}

/// The number of the transaction's next append to a stream.
pub(crate) fn next_append(transaction: &Transaction) -> Result<u16> {
    let mut state = transaction.inner.state.borrow_mut();
    let number = state.appends;
    state.appends = number.checked_add(1).ok_or(Error::transaction_too_large)?;
    Ok(number)
}
