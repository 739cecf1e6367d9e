//! Reads from the storage servers of a shard's team: one replica, a second one when the first is slow.

use super::locations::Location;
use super::versions::VersionBatcher;
use super::{Caller, Inner, RETRY};
use crate::source::{
    ClusterFuture, PackedRows, PointResult, PointResults, Priority, RangeChunk, RangeRequest,
};
use bytes::Bytes;
use plinth_core::key::key_after;
use plinth_core::transaction_tag::TransactionTags;
use plinth_core::{Error, Key, KeySelector, Result, Value, Version};
use plinth_protocol::storage::{Get, GetKey, GetRange, GetValues, Watch};
use plinth_rpc::{Interface, Request};
use plinth_runtime::{Duration, Either, probe, random};
use std::rc::Rc;

/// Mean interval at which a watch asks a server that has no room for it. Each interval is random.
const WATCH_POLL_MS: u64 = 1000;
/// A server that has not answered a read for this long may never do so: its disk hangs, say. The limit is the age of
/// the oldest read versions, so the read may be too old by then, and the transaction will be told so.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// True for errors that the transaction gets. Any other error leads to another attempt inside the client.
fn is_final(error: Error) -> bool {
    matches!(
        error,
        Error::transaction_too_old
            | Error::future_version
            | Error::process_behind
            | Error::inverted_range
            | Error::client_invalid_operation
            | Error::permission_denied
    )
}

/// Asks the team of the shard at `key` until a server answers. `make` builds the request for the shard found.
async fn ask<R: Request + Clone>(
    caller: &Caller,
    key: &[u8],
    before: bool,
    make: impl Fn(&Location) -> R,
) -> Result<(Location, R::Reply)> {
    let inner = &*caller.inner;
    loop {
        let location = inner.locate(key, before, &caller.token).await?;
        match ask_team(inner, &location, &make(&location)).await {
            Ok(reply) => return Ok((location, reply)),
            Err(error) if is_final(error) => {
                // A server that lags may not have heard either that the shard has moved.
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

/// True if the server lags: another replica may have that version already.
fn is_behind(error: Error) -> bool {
    matches!(error, Error::future_version | Error::process_behind)
}

/// True if every other replica would give the same error.
fn is_the_teams(error: Error) -> bool {
    is_final(error) && !is_behind(error)
}

/// Rank of an error among the answers of a team: a moved shard or a lagging replica tells more than an unreachable
/// replica.
fn weight(error: Error) -> u8 {
    match error {
        _ if is_behind(error) => 1,
        _ if is_answer(error) => 2,
        _ => 0,
    }
}

/// A request under way at a team: its servers, and what their failures say.
struct Asking<'a> {
    inner: &'a Inner,
    servers: &'a [Interface],
    /// The failure that tells most.
    last: Error,
}

impl Asking<'_> {
    /// Takes what server `i` has answered. Returns the outcome of the read if it is known now.
    fn outcome<T>(&mut self, i: usize, answer: Result<T>) -> Option<Result<T>> {
        match answer {
            Ok(reply) => {
                self.inner.avoided.answered(&self.servers[i]);
                Some(Ok(reply))
            }
            Err(error) if is_the_teams(error) => Some(Err(error)),
            Err(error) => {
                self.failed(i, error);
                None
            }
        }
    }

    fn failed(&mut self, i: usize, error: Error) {
        if is_behind(error) {
            probe!("client_asks_past_lagging_replica");
        }
        if is_behind(error) || !is_answer(error) {
            self.inner.avoided.failed(&self.servers[i]);
        }
        self.last = std::cmp::max_by_key(self.last, error, |error| weight(*error));
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
    let mut asking = Asking {
        inner,
        servers: &servers,
        last: Error::all_alternatives_failed,
    };
    // The request sent longest ago that has no answer yet.
    let (mut asked, mut under_way) = (0, call(0));
    for i in 1..servers.len() {
        let patience = plinth_runtime::sleep(inner.patience.get());
        match plinth_runtime::race(&mut under_way, patience).await {
            Either::Left(answer) => {
                if answer.is_ok() {
                    inner.patience.learn(true);
                }
                if let Some(outcome) = asking.outcome(asked, answer) {
                    return outcome;
                }
                (asked, under_way) = (i, call(i));
            }
            Either::Right(()) => {
                probe!("client_second_request");
                inner.patience.learn(false);
                let mut second = call(i);
                let either = plinth_runtime::race(&mut under_way, &mut second);
                let (winner, loser) = match plinth_runtime::timeout(SILENCE_MAX, either).await {
                    Some(Either::Left(answer)) => ((asked, answer), (i, second)),
                    Some(Either::Right(answer)) => ((i, answer), (asked, under_way)),
                    None => {
                        inner.avoided.failed(&servers[asked]);
                        (asked, under_way) = (i, second);
                        continue;
                    }
                };
                let is_overtaken = winner.0 == i && winner.1.is_ok();
                let outcome = asking.outcome(winner.0, winner.1);
                if is_overtaken {
                    inner.avoided.slow(&servers[asked]);
                }
                if let Some(outcome) = outcome {
                    return outcome;
                }
                (asked, under_way) = loser;
            }
        }
    }
    // Others may answer by now, or the shard may have moved.
    match plinth_runtime::timeout(SILENCE_MAX, under_way).await {
        Some(answer) => asking.outcome(asked, answer).unwrap_or(Err(asking.last)),
        None => {
            probe!("client_read_meets_silence");
            inner.avoided.failed(&servers[asked]);
            Err(asking.last)
        }
    }
}

/// True if the server sent this error itself: it is alive.
fn is_answer(error: Error) -> bool {
    is_final(error)
        || matches!(
            error,
            Error::wrong_shard_server | Error::server_request_queue_full
        )
}

/// A point read. This is the hot path: with the shard known and one replica, the request leaves before anything is
/// awaited.
pub fn get(caller: &Caller, key: Key, version: Version) -> ClusterFuture<Option<Value>> {
    let single = {
        let locations = caller.inner.locations.borrow();
        locations.of_key(&key).and_then(|l| {
            if let [only] = &l.servers[..] {
                Some(*only)
            } else {
                None
            }
        })
    };
    let caller = caller.clone();
    let Some(server) = single else {
        return Box::pin(get_slowly(caller, key, version));
    };
    let call = caller.inner.transport.call(
        &server.endpoint::<Get>(),
        Get {
            key: key.clone(),
            version,
            token: caller.token.clone(),
        },
    );
    Box::pin(async move {
        match call.await {
            Ok(reply) => Ok(reply.value),
            Err(error) if is_final(error) => Err(error),
            Err(_) => {
                let known = caller.inner.locations.borrow().of_key(&key).cloned();
                known
                    .iter()
                    .for_each(|location| caller.inner.forget_location(location));
                // Boxed, because each future has room for all of its states.
                Box::pin(get_slowly(caller, key, version)).await
            }
        }
    })
}

async fn get_slowly(caller: Caller, key: Key, version: Version) -> Result<Option<Value>> {
    let (_, reply) = ask::<Get>(&caller, &key, false, |_| Get {
        key: key.clone(),
        version,
        token: caller.token.clone(),
    })
    .await?;
    Ok(reply.value)
}

/// Point reads that begin together: one request for those whose keys lie at the same servers.
pub fn get_together(
    caller: &Caller,
    reads: Vec<(usize, Key)>,
    version: Version,
) -> Vec<PointResults> {
    let send = |(location, mut reads): (Option<Location>, Vec<(usize, Key)>)| -> PointResults {
        let caller = caller.clone();
        match location {
            Some(location) if reads.len() > 1 => {
                Box::pin(get_from_team(caller, location, reads, version))
            }
            _ => {
                let (number, key) = reads.pop().expect("no group is empty");
                let value = get(&caller, key, version);
                Box::pin(async move { vec![(number, value.await)] })
            }
        }
    };
    by_team(&caller.inner, reads)
        .into_iter()
        .map(send)
        .collect()
}

/// Groups of reads, no larger than a request may be, with a shard of their servers. A key without a known shard is
/// alone.
fn by_team(inner: &Inner, reads: Vec<(usize, Key)>) -> Vec<(Option<Location>, Vec<(usize, Key)>)> {
    let locations = inner.locations.borrow();
    let mut groups: Vec<(Option<Location>, Vec<(usize, Key)>)> = Vec::new();
    for read in reads {
        let location = locations.of_key(&read.1);
        let has_room = |(other, reads): &&mut (Option<Location>, Vec<_>)| {
            let servers = other.as_ref().map(|other| &other.servers);
            servers.is_some()
                && servers == location.map(|location| &location.servers)
                && reads.len() < GetValues::KEYS_MAX
        };
        match groups.iter_mut().find(has_room) {
            Some((_, reads)) => reads.push(read),
            None => groups.push((location.cloned(), vec![read])),
        }
    }
    groups
}

/// Asks a team for several values at once, and for each that it does not answer by itself.
async fn get_from_team(
    caller: Caller,
    location: Location,
    reads: Vec<(usize, Key)>,
    version: Version,
) -> Vec<PointResult> {
    let inner = &*caller.inner;
    let request = GetValues {
        keys: reads.iter().map(|(_, key)| key.clone()).collect(),
        version,
        token: caller.token.clone(),
    };
    let (mut results, mut rest) = (Vec::with_capacity(reads.len()), reads.into_iter());
    match ask_team(inner, &location, &request).await {
        Ok(reply) => {
            let answered = reply.values.into_iter().zip(rest.by_ref());
            results.extend(answered.map(|(value, (number, _))| (number, Ok(value))));
        }
        // The token may grant some of the keys.
        Err(error) if is_final(error) && error != Error::permission_denied => {
            if is_behind(error) {
                inner.forget_location(&location);
            }
            results.extend(rest.by_ref().map(|(number, _)| (number, Err(error))));
        }
        Err(_) => {}
    }
    if rest.len() > 0 {
        probe!("client_asks_for_values_singly");
        let alone = async |(number, key)| (number, get_slowly(caller.clone(), key, version).await);
        results.extend(plinth_runtime::join_all(rest.map(alone)).await);
    }
    results
}

pub async fn get_range(caller: &Caller, request: RangeRequest) -> Result<RangeChunk> {
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
            token: caller.token.clone(),
        };
        let (location, reply) = ask::<GetRange>(caller, &at, reverse, make).await?;
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
        // There is nothing in this shard: the read goes on behind it.
        if reverse {
            end = location.range.begin;
        } else {
            begin = location.range.end;
        }
    }
    Ok(RangeChunk::default())
}

pub async fn get_key(
    caller: &Caller,
    selector: KeySelector,
    keys_end: Key,
    version: Version,
) -> Result<Key> {
    let KeySelector {
        key,
        or_equal,
        mut offset,
    } = selector;
    // From here on the result is the offset-th key at or after the pivot, or the (1 - offset)-th before it.
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
            token: caller.token.clone(),
        };
        let (location, reply) = ask::<GetKey>(caller, &pivot, !forward, make).await?;
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
    caller: Caller,
    key: Key,
    value: Option<Value>,
    mut version: Version,
) -> Result<()> {
    let inner = &caller.inner;
    loop {
        let request = Watch {
            key: key.clone(),
            value: value.clone(),
            version,
            token: caller.token.clone(),
        };
        let location = inner.locate(&key, false, &caller.token).await?;
        let server = location.servers[random::below(location.servers.len() as u64) as usize];
        let call = inner.transport.call(&server.endpoint::<Watch>(), request);
        match call.await {
            Ok(reply) => {
                // A server answers from the versions it holds. Until a change is committed no read can see it,
                // and a recovery may undo it: so the value is read again once it is readable.
                version = readable(inner, reply.version).await?;
                match get_slowly(caller.clone(), key.clone(), version).await {
                    Ok(found) if found != value => return Ok(()),
                    Ok(_) => probe!("client_watch_of_undone_change"),
                    Err(Error::permission_denied) => return Err(Error::permission_denied),
                    Err(_) => plinth_runtime::sleep(RETRY).await,
                }
            }
            // The server has no room for the watch, but compares whenever it is asked: `too_many_watches` is the
            // limit of a client alone.
            Err(Error::watch_cancelled | Error::too_many_watches) => {
                probe!("client_polls_watch");
                let between = random::range(WATCH_POLL_MS / 2..WATCH_POLL_MS * 3 / 2);
                plinth_runtime::sleep(Duration::from_millis(between)).await;
            }
            Err(Error::permission_denied) => return Err(Error::permission_denied),
            // The server has gone, or lags, or checks whether the watch is still wanted.
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

#[cfg(test)]
mod tests;
