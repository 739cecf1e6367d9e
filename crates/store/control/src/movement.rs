//! Moving a shard: two transactions on the system keyspace, and a wait between them (pitfalls 19 to 21).
//!
//! ```text
//! start   team A, B  destination B, C    C begins to fetch; mutations go to A, B and C
//! wait    C has the shard on disk, and every version at which it may still be read
//! finish  team B, C                      A forgets it; readers are sent to B and C
//! ```
//!
//! No read fails on the way: until the second transaction the old team answers, and after it the new one can, at
//! every version in the window. A move may be cancelled at any time before its end, and another process that finds it
//! under way may continue it.

use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_core::codec::Codec;
use plinth_core::key::{ALL_KEYS_END, KeyRange, printable};
use plinth_core::system_keys::{
    KEY_SERVERS, KEY_SERVERS_END, ShardRecord, key_servers_key, parse_key_servers_key,
};
use plinth_core::{Error, Key, KeySelector, Result, Uid};
use plinth_protocol::storage::GetShardState;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::{Boxed, Duration, Pace, never};

/// Pause between two checks whether a destination is ready.
const POLL: Duration = Duration::from_millis(100);
/// Shards that are processed between two looks at the clock.
pub(crate) const SHARDS_A_LOOK: usize = 100;
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Sets the options of every transaction of the control plane: it is admitted while others wait (pitfall 25).
pub fn prepare(transaction: &Transaction) -> Result<()> {
    transaction.set_option(TransactionOption::AccessSystemKeys)?;
    transaction.set_option(TransactionOption::PrioritySystemImmediate)?;
    transaction.set_option(TransactionOption::LockAware)
}

/// Every shard of the database, in key order.
pub fn read_shards(transaction: &Transaction) -> Boxed<'_, Result<Vec<(KeyRange, ShardRecord)>>> {
    Box::pin(async move {
        let all = KeyRange::new(KEY_SERVERS, KEY_SERVERS_END);
        let rows = transaction
            .get_rows(all, RangeOptions::default(), false)
            .await?;
        let mut shards: Vec<(KeyRange, ShardRecord)> = Vec::with_capacity(rows.len());
        let mut pace = Pace::new();
        for (key, value) in rows {
            if shards.len().is_multiple_of(SHARDS_A_LOOK) {
                pace.rest_if_over().await;
            }
            let begin = key.slice(KEY_SERVERS.len()..);
            let record = ShardRecord::from_bytes(value).ok_or(Error::file_corrupt)?;
            if let Some((last, _)) = shards.last_mut() {
                last.end = begin.clone();
            }
            shards.push((KeyRange::new(begin, ALL_KEYS_END), record));
        }
        let first = shards.first().map(|(range, _)| &range.begin);
        if never!(
            first.is_none_or(|first| !first.is_empty()),
            "ShardMapLacksItsBegin"
        ) {
            return Err(Error::file_corrupt);
        }
        Ok(shards)
    })
}

/// The shard that `key` lies in.
pub fn shard_at<'a>(
    transaction: &'a Transaction,
    key: &'a [u8],
) -> Boxed<'a, Result<(KeyRange, ShardRecord)>> {
    Box::pin(async move {
        let entry = key_servers_key(key);
        let read = async |begin: KeySelector, end: KeySelector, reverse: bool| {
            let options = RangeOptions::limit(1).reversed_if(reverse);
            let rows = transaction
                .get_range(begin, end, options, false)
                .await?
                .rows;
            Ok::<_, Error>(rows.into_iter().next())
        };
        let (first, last) = KeyRange::new(KEY_SERVERS, KEY_SERVERS_END).selectors();
        let after = KeySelector::first_greater_than(entry);
        let found = read(first, after.clone(), true).await?;
        let (begin, value) = found.ok_or(Error::file_corrupt)?;
        let next = read(after, last, false).await?;
        let suffix = |key: &Key| parse_key_servers_key(key).map(Key::copy_from_slice);
        let range = KeyRange {
            begin: suffix(&begin).ok_or(Error::file_corrupt)?,
            end: next
                .and_then(|(key, _)| suffix(&key))
                .unwrap_or(Key::from_static(ALL_KEYS_END)),
        };
        Ok((
            range,
            ShardRecord::from_bytes(value).ok_or(Error::file_corrupt)?,
        ))
    })
}

/// True if somebody is in the team, and nobody twice.
fn is_team(ids: &[Uid]) -> bool {
    let is_twice = |(at, id): (usize, &Uid)| ids[..at].contains(id);
    !ids.is_empty() && !ids.iter().enumerate().any(is_twice)
}

/// Writes who has a shard. One that nobody has would be lost, and a server that is in a team twice is one copy. What
/// the database had before may be written anew here, so this is no assertion.
fn put(transaction: &Transaction, begin: &[u8], record: &ShardRecord) -> Result<()> {
    let ShardRecord { team, destination } = record;
    let is_whole = is_team(team) && (destination.is_empty() || is_team(destination));
    if never!(
        !is_whole,
        "ShardWithoutATeam",
        "begin" => printable(begin),
        "team" => format!("{team:?}"),
        "destination" => format!("{destination:?}")
    ) {
        return Err(Error::file_corrupt);
    }
    transaction.set(key_servers_key(begin), record.to_bytes());
    Ok(())
}

/// Makes boundaries at both ends of the range, which must lie in one shard of the team. Returns that shard's record.
/// [`Error::operation_obsolete`] if the map is not as the caller expects.
async fn cut_out(transaction: &Transaction, range: &KeyRange, team: &[Uid]) -> Result<ShardRecord> {
    let (shard, record) = shard_at(transaction, &range.begin).await?;
    if shard.end < range.end || record.team != team {
        return Err(Error::operation_obsolete);
    }
    if shard.begin < range.begin {
        put(transaction, &range.begin, &record)?;
    }
    if range.end < shard.end {
        put(transaction, &range.end, &record)?;
    }
    Ok(record)
}

/// Starts a move: the team that holds the range begins to give it to `destination`.
pub fn start<'a>(
    transaction: &'a Transaction,
    range: &'a KeyRange,
    team: &'a [Uid],
    destination: &'a [Uid],
) -> Boxed<'a, Result<()>> {
    Box::pin(async move {
        let mut record = cut_out(transaction, range, team).await?;
        if !record.destination.is_empty() && record.destination != destination {
            return Err(Error::operation_obsolete);
        }
        assert!(
            is_team(destination),
            "{range:?} is to move to {destination:?}"
        );
        record.destination = destination.to_vec();
        put(transaction, &range.begin, &record)
    })
}

/// Finishes a move: the destination holds the range. All of its servers must be [ready](wait_until_ready).
pub fn finish<'a>(
    transaction: &'a Transaction,
    range: &'a KeyRange,
    team: &'a [Uid],
    destination: &'a [Uid],
) -> Boxed<'a, Result<()>> {
    Box::pin(async move { end(transaction, range, team, destination, destination).await })
}

/// Cancels a move: the old team keeps the range.
pub fn cancel<'a>(
    transaction: &'a Transaction,
    range: &'a KeyRange,
    team: &'a [Uid],
    destination: &'a [Uid],
) -> Boxed<'a, Result<()>> {
    Box::pin(async move { end(transaction, range, team, destination, team).await })
}

async fn end(
    transaction: &Transaction,
    range: &KeyRange,
    team: &[Uid],
    destination: &[Uid],
    holders: &[Uid],
) -> Result<()> {
    // The range may have been split meanwhile.
    let mut at = range.begin.clone();
    while at < range.end {
        let (shard, mut record) = shard_at(transaction, &at).await?;
        if shard.begin != at || shard.end > range.end {
            return Err(Error::operation_obsolete);
        }
        if record.team == team && record.destination == destination {
            record.team = holders.to_vec();
            record.destination.clear();
            put(transaction, &at, &record)?;
        } else if record.team != holders || !record.destination.is_empty() {
            return Err(Error::operation_obsolete);
        } // else an earlier attempt, whose result was unknown, did it
        at = shard.end;
    }
    Ok(())
}

/// Makes a boundary at `key`. Both sides stay on their team. Does nothing if there is one already.
pub fn split<'a>(transaction: &'a Transaction, key: &'a [u8]) -> Boxed<'a, Result<()>> {
    Box::pin(async move {
        let (shard, record) = shard_at(transaction, key).await?;
        if shard.begin != key {
            put(transaction, key, &record)?;
        }
        Ok(())
    })
}

/// Joins two neighbouring shards, which must have the same team and must not be moving.
pub fn merge<'a>(
    transaction: &'a Transaction,
    left: &'a KeyRange,
    right: &'a KeyRange,
) -> Boxed<'a, Result<()>> {
    Box::pin(async move {
        let (shard, record) = shard_at(transaction, &left.begin).await?;
        if shard.begin == left.begin && shard.end == right.end {
            return Ok(()); // an earlier attempt did it
        }
        let (next, next_record) = shard_at(transaction, &right.begin).await?;
        let as_expected = shard == *left && next == *right;
        if !as_expected || next_record != record || !record.destination.is_empty() {
            return Err(Error::operation_obsolete);
        }
        transaction.clear(key_servers_key(&right.begin));
        Ok(())
    })
}

/// Waits until every server can serve the range at every version that may still be read. The move must have been
/// started.
pub async fn wait_until_ready(
    database: &Database,
    transport: &Transport,
    range: &KeyRange,
    servers: &[Interface],
) -> Result<()> {
    assert!(!servers.is_empty(), "{range:?} has nobody to wait for");
    // A server that has not reached this version answers that it is not ready: it may have held the range before the
    // move.
    let heard = run(database, async |tr| tr.get_read_version().await).await?;
    for server in servers {
        loop {
            let request = GetShardState {
                range: range.clone(),
                version: heard,
            };
            let call = transport.call(&server.endpoint::<GetShardState>(), request);
            let answer = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
            if matches!(answer, Some(Ok(state)) if state.ready) {
                break;
            }
            plinth_runtime::sleep(POLL).await;
        }
    }
    Ok(())
}

/// Runs a transaction of the control plane until it is committed or fails for good.
pub async fn run<T>(
    database: &Database,
    mut body: impl AsyncFnMut(&Transaction) -> Result<T>,
) -> Result<T> {
    database
        .run(async |transaction: Transaction| {
            prepare(&transaction)?;
            body(&transaction).await
        })
        .await
}
