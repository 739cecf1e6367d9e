//! Reads from the storage servers of a shard's team: one replica, a second one when the first is slow.

use super::locations::Location;
use super::versions::VersionBatcher;
use super::{Inner, RETRY};
use crate::source::{ClusterFuture, PackedRows, Priority, RangeChunk, RangeRequest};
use bytes::Bytes;
use plinth_core::key::key_after;
use plinth_core::transaction_tag::TransactionTags;
use plinth_core::{Error, Key, KeySelector, Result, Value, Version};
use plinth_protocol::storage::{Get, GetKey, GetRange, Watch};
use plinth_rpc::Request;
use plinth_runtime::{Duration, Either, probe, random};
use std::rc::Rc;

/// A watch that its server has no room for asks about so often, each at its own times.
const WATCH_POLL_MS: u64 = 1000;

/// Errors that are the transaction's to know; all others are the cluster's business and lead to another attempt.
fn is_final(error: Error) -> bool {
    matches!(
        error,
        Error::transaction_too_old
            | Error::future_version
            | Error::process_behind
            | Error::inverted_range
            | Error::client_invalid_operation
    )
}

/// Asks the team of the shard at `key` until somebody answers. `make` builds the request for the shard found.
async fn ask<R: Request + Clone>(
    inner: &Inner,
    key: &[u8],
    before: bool,
    make: impl Fn(&Location) -> R,
) -> Result<(Location, R::Reply)> {
    loop {
        let location = inner.locate(key, before).await;
        match ask_team(inner, &location, &make(&location)).await {
            Ok(reply) => return Ok((location, reply)),
            Err(error) if is_final(error) => {
                // Who lags may not have heard either that the shard has moved.
                if is_behind(error) {
                    inner.forget_location(&location);
                }
                return Err(error);
            }
            Err(_) => {
                probe!("client_relocates_shard");
                inner.forget_location(&location);
                plinth_runtime::sleep(RETRY).await;
            }
        }
    }
}

/// It lags: another replica may hold that version already.
fn is_behind(error: Error) -> bool {
    matches!(error, Error::future_version | Error::process_behind)
}

/// No other replica would answer otherwise.
fn is_the_teams(error: Error) -> bool {
    is_final(error) && !is_behind(error)
}

/// What a team's answers come to: that it is another team now, or that one lags, says more than that one cannot be reached.
fn weight(error: Error) -> u8 {
    match error {
        _ if is_behind(error) => 1,
        _ if is_answer(error) => 2,
        _ => 0,
    }
}

async fn ask_team<R: Request + Clone>(
    inner: &Inner,
    location: &Location,
    request: &R,
) -> Result<R::Reply> {
    let servers = inner.avoided.order(&location.servers);
    let call = |i: usize| {
        let endpoint = servers[i].endpoint::<R>();
        inner.transport.call(&endpoint, request.clone())
    };
    let mut last = Error::all_alternatives_failed;
    let mut failed = |i: usize, error: Error| {
        if is_behind(error) {
            probe!("client_asks_past_lagging_replica");
        }
        if is_behind(error) || !is_answer(error) {
            inner.avoided.failed(&servers[i]);
        }
        last = std::cmp::max_by_key(last, error, |error| weight(*error));
    };
    // The one asked longest ago that has not answered.
    let (mut asked, mut under_way) = (0, call(0));
    for i in 1..servers.len() {
        let patience = plinth_runtime::sleep(inner.patience.get());
        match plinth_runtime::race(&mut under_way, patience).await {
            Either::Left(Ok(reply)) => {
                inner.patience.learn(true);
                inner.avoided.answered(&servers[asked]);
                return Ok(reply);
            }
            Either::Left(Err(error)) => {
                if is_the_teams(error) {
                    return Err(error);
                }
                failed(asked, error);
                (asked, under_way) = (i, call(i));
            }
            Either::Right(()) => {
                probe!("client_second_request");
                inner.patience.learn(false);
                let mut second = call(i);
                let (winner, loser) = match plinth_runtime::race(&mut under_way, &mut second).await
                {
                    Either::Left(reply) => ((asked, reply), (i, second)),
                    Either::Right(reply) => ((i, reply), (asked, under_way)),
                };
                match winner.1 {
                    Ok(reply) => {
                        inner.avoided.answered(&servers[winner.0]);
                        if winner.0 == i {
                            inner.avoided.slow(&servers[asked]);
                        }
                        return Ok(reply);
                    }
                    Err(error) if is_the_teams(error) => return Err(error),
                    Err(error) => failed(winner.0, error),
                }
                (asked, under_way) = loser;
            }
        }
    }
    match under_way.await {
        Ok(reply) => {
            inner.avoided.answered(&servers[asked]);
            Ok(reply)
        }
        Err(error) if is_the_teams(error) => Err(error),
        Err(error) => {
            failed(asked, error);
            Err(last)
        }
    }
}

/// The server said so itself: it lives.
fn is_answer(error: Error) -> bool {
    is_final(error)
        || matches!(
            error,
            Error::wrong_shard_server | Error::server_request_queue_full
        )
}

/// The hot path: with the shard known and one replica, the request leaves before anything is awaited.
pub fn get(inner: &Rc<Inner>, key: Key, version: Version) -> ClusterFuture<Option<Value>> {
    let single = {
        let locations = inner.locations.borrow();
        locations.of_key(&key).and_then(|l| {
            if let [only] = &l.servers[..] {
                Some(*only)
            } else {
                None
            }
        })
    };
    let inner = inner.clone();
    let Some(server) = single else {
        return Box::pin(get_slowly(inner, key, version));
    };
    let call = inner.transport.call(
        &server.endpoint::<Get>(),
        Get {
            key: key.clone(),
            version,
        },
    );
    Box::pin(async move {
        match call.await {
            Ok(reply) => Ok(reply.value),
            Err(error) if is_final(error) => Err(error),
            Err(_) => {
                let known = inner.locations.borrow().of_key(&key).cloned();
                known
                    .iter()
                    .for_each(|location| inner.forget_location(location));
                // Boxed, as each future has room for all that it may become.
                Box::pin(get_slowly(inner, key, version)).await
            }
        }
    })
}

async fn get_slowly(inner: Rc<Inner>, key: Key, version: Version) -> Result<Option<Value>> {
    let (_, reply) = ask::<Get>(&inner, &key, false, |_| Get {
        key: key.clone(),
        version,
    })
    .await?;
    Ok(reply.value)
}

pub async fn get_range(inner: &Inner, request: RangeRequest) -> Result<RangeChunk> {
    let RangeRequest {
        mut begin,
        mut end,
        version,
        limit_rows,
        limit_bytes,
        reverse,
    } = request;
    let small = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
    while begin < end {
        let at = if reverse { end.clone() } else { begin.clone() };
        let make = |location: &Location| GetRange {
            begin: begin.clone().max(location.range.begin.clone()),
            end: end.clone().min(location.range.end.clone()),
            version,
            limit_rows: small(limit_rows),
            limit_bytes: small(limit_bytes),
            reverse,
        };
        let (location, reply) = ask::<GetRange>(inner, &at, reverse, make).await?;
        let rows = reply.decode_rows().ok_or(Error::client_invalid_operation)?;
        let rest = if reverse {
            location.range.begin > begin
        } else {
            location.range.end < end
        };
        if !rows.is_empty() || !rest {
            return Ok(RangeChunk {
                more: !rows.is_empty() && (reply.more || rest),
                rows,
                packed: Some(PackedRows::new(&reply)),
            });
        }
        // Nothing in this shard: go on behind it.
        if reverse {
            end = location.range.begin;
        } else {
            begin = location.range.end;
        }
    }
    Ok(RangeChunk::default())
}

pub async fn get_key(
    inner: &Inner,
    selector: KeySelector,
    keys_end: Key,
    version: Version,
) -> Result<Key> {
    let KeySelector {
        key,
        or_equal,
        mut offset,
    } = selector;
    // From here on: the offset-th key at or after the pivot, or the (1 - offset)-th before it.
    let mut pivot = if or_equal { key_after(&key) } else { key };
    let forward = offset > 0;
    loop {
        if forward && pivot >= keys_end {
            return Ok(keys_end);
        }
        if !forward && pivot.is_empty() {
            return Ok(Bytes::new());
        }
        let make = |location: &Location| GetKey {
            selector: KeySelector::new(pivot.clone(), false, offset),
            begin: location.range.begin.clone(),
            end: location.range.end.clone().min(keys_end.clone()),
            version,
        };
        let (location, reply) = ask::<GetKey>(inner, &pivot, !forward, make).await?;
        match reply.key {
            Some(key) => return Ok(key),
            None => {
                offset = reply.offset;
                pivot = if forward {
                    location.range.end
                } else {
                    location.range.begin
                };
            }
        }
    }
}

/// Ends when the key has another value than `value` in a version that is known to be committed.
pub async fn watch(
    inner: Rc<Inner>,
    key: Key,
    value: Option<Value>,
    mut version: Version,
) -> Result<()> {
    loop {
        let request = Watch {
            key: key.clone(),
            value: value.clone(),
            version,
        };
        let location = inner.locate(&key, false).await;
        let server = location.servers[random::below(location.servers.len() as u64) as usize];
        let call = inner.transport.call(&server.endpoint::<Watch>(), request);
        match call.await {
            Ok(reply) => {
                // A server tells of what it holds. Until that is committed nobody else can read it, and a recovery may
                // take it back: look at what is there once it can be read.
                version = readable(&inner, reply.version).await?;
                match get_slowly(inner.clone(), key.clone(), version).await {
                    Ok(found) if found != value => return Ok(()),
                    Ok(_) => probe!("client_watch_of_undone_change"),
                    Err(_) => plinth_runtime::sleep(RETRY).await,
                }
            }
            // The server has no room for it, but looks whenever it is asked: `too_many_watches` is the limit of a client alone.
            Err(Error::watch_cancelled | Error::too_many_watches) => {
                probe!("client_polls_watch");
                let between = random::range(WATCH_POLL_MS / 2..WATCH_POLL_MS * 3 / 2);
                plinth_runtime::sleep(Duration::from_millis(between)).await;
            }
            // The server has gone, or is behind, or wants to hear that we still wait.
            Err(_) => {
                inner.forget_location(&location);
                plinth_runtime::sleep(RETRY * 5).await;
            }
        }
    }
}

/// A read version that is `version` or newer.
async fn readable(inner: &Rc<Inner>, version: Version) -> Result<Version> {
    loop {
        let newest = VersionBatcher::ask(inner, Priority::Default, TransactionTags::default())
            .await?
            .version;
        if newest >= version {
            return Ok(newest);
        }
        plinth_runtime::sleep(Duration::from_millis(1)).await;
    }
}
