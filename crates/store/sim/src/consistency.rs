//! Checks that all replicas of a shard hold the same rows.

use crate::cluster::Shape;
use crate::{Failure, FailureKind};
use bytes::Bytes;
use plinth_client::Database;
use plinth_control::knobs::STORAGE_FAILURE_MS;
use plinth_coordination::election;
use plinth_core::key::{ALL_KEYS_END, KeyRange, key_after, printable};
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::{Error, Version};
use plinth_protocol::control::GetClientInfo;
use plinth_protocol::knobs::VERSION_WINDOW;
use plinth_protocol::storage::GetRange;
use plinth_protocol::token::Token;
use plinth_protocol::transaction::GetKeyLocations;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::Duration;
use plinth_runtime::knobs::Knobs;
use plinth_transaction::knobs::EMPTY_COMMIT_INTERVAL_MS;

/// Limit of the wait for the cluster to settle. Lost replicas are rebuilt, which takes time after they count as
/// lost.
const SETTLING_LIMIT: Duration = Duration::from_secs(600);
/// So many shards are moved one after the other at most until a cluster has settled.
const MOVES_IN_TURN: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// Limit of reads of the shard maps before the check starts anew; shards may move all the time.
const MAPS_MAX: u32 = 1000;

const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Limit of shards per reply.
const SHARDS_MAX: u32 = 10_000;
/// Up to this many shards, each is compared separately; with more, several are compared at the same time.
const SHARDS_ONE_BY_ONE: usize = 1000;

type Rows = Vec<(Bytes, Bytes)>;
type Shards = Vec<(KeyRange, Vec<Interface>)>;
type Verdict = Result<(), String>;

/// Compares all replicas of every shard, each page at one version. Retries while the cluster is settling.
pub async fn check(database: &Database, shape: &Shape) -> Result<(), Failure> {
    let transport = shape.transport();
    let mut reason = Error::timed_out;
    // A cluster that waits longer than usual for lost servers settles later. So does one whose window is longer: a
    // shard has moved when it is durable at its destination, which is a window later.
    let usual = Knobs::default();
    let more = STORAGE_FAILURE_MS
        .get()
        .saturating_sub(STORAGE_FAILURE_MS.of(&usual));
    let window = (VERSION_WINDOW.get() - VERSION_WINDOW.of(&usual)).max(0) / VERSIONS_PER_SECOND;
    let moves = Duration::from_secs(window as u64) * MOVES_IN_TURN;
    let end = plinth_runtime::now() + SETTLING_LIMIT + Duration::from_millis(more) + moves;
    while plinth_runtime::now() < end {
        match compare_once(database, &transport, shape).await {
            Ok(verdict) => {
                let broken = |what: String| format!("consistency: {what}");
                return verdict
                    .map_err(|what| Failure::new(FailureKind::Correctness, broken(what)));
            }
            Err(error) => reason = error,
        }
        plinth_runtime::sleep(PAUSE).await;
    }
    let message = format!("consistency: the replicas could not be read: {reason}");
    Err(Failure::new(FailureKind::Liveness, message))
}

async fn compare_once(
    database: &Database,
    transport: &Transport,
    shape: &Shape,
) -> plinth_core::Result<Verdict> {
    let shards = match agreed_map(transport, shape).await? {
        Ok(shards) => shards,
        Err(broken) => return Ok(Err(broken)),
    };
    let replication = shape.config.replication as usize;
    // Comparing 100,000 shards one after the other would take too long.
    for some in shards.chunks((shards.len() / SHARDS_ONE_BY_ONE).max(1)) {
        let version = database.run(async |tr| tr.get_read_version().await).await?;
        let compared = some.iter().map(|(range, servers)| {
            let newer = async || database.run(async |tr| tr.get_read_version().await).await;
            compare_shard(transport, range, servers, replication, version, newer)
        });
        for verdict in plinth_runtime::join_all(compared.collect::<Vec<_>>()).await {
            if let Err(broken) = verdict? {
                return Ok(Err(broken));
            }
        }
    }
    Ok(Ok(()))
}

/// Compares the replicas page by page, each page at one version: the first at `version`, the others at newer ones. A
/// large shard with small pages takes longer than versions are kept.
async fn compare_shard(
    transport: &Transport,
    range: &KeyRange,
    servers: &[Interface],
    replication: usize,
    mut version: Version,
    newer: impl AsyncFn() -> plinth_core::Result<Version>,
) -> plinth_core::Result<Verdict> {
    if servers.len() != replication {
        let count = servers.len();
        return Ok(Err(format!("the shard {range:?} has {count} replicas")));
    }
    let Some((first, others)) = servers.split_first() else {
        return Ok(Ok(()));
    };
    let mut left = range.clone();
    loop {
        let (expected, more) = read_page(transport, first, &left, version).await?;
        let mut page = left.clone();
        if let Some((last, _)) = expected.last().filter(|_| more) {
            page.end = key_after(last);
        }
        for server in others {
            let rows = read_all(transport, server, &page, version).await?;
            if rows != expected {
                return Ok(Err(difference(&expected, &rows, &page)));
            }
        }
        if page.end == range.end {
            return Ok(Ok(()));
        }
        left.begin = page.end;
        version = newer().await?;
    }
}

/// The map of shards, which must be the same on every commit proxy (pitfall 7). A proxy learns of a change with its
/// first batch after it. So maps may differ for a few intervals of empty commits. If the first difference is still
/// the same then, a proxy keeps a wrong map.
async fn agreed_map(
    transport: &Transport,
    shape: &Shape,
) -> plinth_core::Result<Result<Shards, String>> {
    let patience = Duration::from_millis(EMPTY_COMMIT_INTERVAL_MS.get()) * 4;
    let (mut left, mut before) = (patience, String::new());
    for _ in 0..MAPS_MAX {
        match one_map(transport, shape).await? {
            Err(differs) if !left.is_zero() || differs != before => {
                if differs != before {
                    // Another difference than before: shards are still moving, so the wait starts again.
                    (left, before) = (patience, differs);
                }
                let pause = left.min(PAUSE);
                plinth_runtime::sleep(pause).await;
                left -= pause;
            }
            map => return Ok(map),
        }
    }
    Err(Error::timed_out)
}

async fn one_map(
    transport: &Transport,
    shape: &Shape,
) -> plinth_core::Result<Result<Shards, String>> {
    let leader = election::current_leader(transport, &shape.coordinators())
        .await
        .ok_or(Error::timed_out)?;
    let endpoint = leader.controller.endpoint::<GetClientInfo>();
    let info = limited(transport.call(&endpoint, GetClientInfo { known: 0 })).await?;
    let mut first: Option<Shards> = None;
    for proxy in &info.commit_proxies {
        let shards = map_of(transport, proxy).await?;
        match &first {
            None => first = Some(shards),
            Some(expected) if *expected == shards => {}
            Some(expected) => {
                let at = expected.iter().zip(&shards).position(|(a, b)| a != b);
                let at = at.unwrap_or(expected.len().min(shards.len()));
                let (a, b) = (expected.get(at), shards.get(at));
                return Ok(Err(format!("two proxies have two maps: {a:?} and {b:?}")));
            }
        }
    }
    first.map(Ok).ok_or(Error::timed_out)
}

async fn map_of(transport: &Transport, proxy: &Interface) -> plinth_core::Result<Shards> {
    let mut range = KeyRange::new(Bytes::new(), Bytes::from_static(ALL_KEYS_END));
    let mut all = Shards::new();
    while range.begin < range.end {
        let request = GetKeyLocations {
            range: range.clone(),
            reverse: false,
            limit: SHARDS_MAX,
            token: Token::NONE,
        };
        let asked = transport.call(&proxy.endpoint::<GetKeyLocations>(), request);
        let shards = limited(asked).await?.shards;
        let (last, _) = shards.last().ok_or(Error::timed_out)?;
        range.begin = last.end.clone();
        all.extend(shards);
    }
    Ok(all)
}

async fn limited<T>(call: impl Future<Output = plinth_core::Result<T>>) -> plinth_core::Result<T> {
    let answered = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
    answered.unwrap_or(Err(Error::timed_out))
}

async fn read_all(
    transport: &Transport,
    server: &Interface,
    range: &KeyRange,
    version: Version,
) -> plinth_core::Result<Rows> {
    let (mut left, mut rows) = (range.clone(), Rows::new());
    loop {
        let (page, more) = read_page(transport, server, &left, version).await?;
        rows.extend(page);
        match rows.last() {
            Some((key, _)) if more => left.begin = key_after(key),
            _ => return Ok(rows),
        }
    }
}

/// The first rows of the range, as many as one reply holds, and whether there are more.
async fn read_page(
    transport: &Transport,
    server: &Interface,
    range: &KeyRange,
    version: Version,
) -> plinth_core::Result<(Rows, bool)> {
    let request = GetRange {
        begin: range.begin.clone(),
        end: range.end.clone(),
        version,
        limit_rows: u32::MAX,
        limit_bytes: 1 << 20,
        reverse: false,
        token: Token::NONE,
    };
    let reply = limited(transport.call(&server.endpoint::<GetRange>(), request)).await?;
    let rows = reply.decode_rows().ok_or(Error::io_error)?;
    Ok((rows, reply.more))
}

fn difference(a: &Rows, b: &Rows, range: &KeyRange) -> String {
    let at = a
        .iter()
        .zip(b)
        .position(|(x, y)| x != y)
        .unwrap_or(a.len().min(b.len()));
    let show = |rows: &Rows| {
        rows.get(at).map_or("nothing".into(), |(k, v)| {
            format!("{} = {}", printable(k), printable(v))
        })
    };
    format!(
        "replicas of {range:?} differ at row {at}: {} against {}",
        show(a),
        show(b)
    )
}
