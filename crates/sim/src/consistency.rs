//! All replicas of a shard hold the same rows.

use crate::cluster::Shape;
use crate::{Failure, FailureKind};
use bytes::Bytes;
use plinth_client::Database;
use plinth_coordination::election;
use plinth_core::key::{ALL_KEYS_END, KeyRange, printable};
use plinth_core::{Error, Version};
use plinth_protocol::control::GetClientInfo;
use plinth_protocol::storage::GetRange;
use plinth_protocol::transaction::GetKeyLocations;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::Duration;
use plinth_runtime::knobs::knobs;

/// Replicas that were lost are made anew: that takes its time.
const ATTEMPTS_MAX: u32 = 1200;
const PAUSE: Duration = Duration::from_millis(500);

/// Looks at the maps before all begins anew: data is moved all the while.
const MAPS_MAX: u32 = 1000;

const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Of each answer.
const SHARDS_MAX: u32 = 10_000;
/// Of so many shards, each is compared by itself; of more, several at the same time.
const SHARDS_ONE_BY_ONE: usize = 1000;

type Rows = Vec<(Bytes, Bytes)>;
type Shards = Vec<(KeyRange, Vec<Interface>)>;
type Verdict = Result<(), String>;

/// Compares every replica of every shard at one version. Tries again while the cluster is settling.
pub async fn check(database: &Database, shape: &Shape) -> Result<(), Failure> {
    let transport = Transport::client();
    let mut reason = Error::timed_out;
    for _ in 0..ATTEMPTS_MAX {
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
    // Nobody can read 100,000 shards one after the other while a version may be read.
    for some in shards.chunks((shards.len() / SHARDS_ONE_BY_ONE).max(1)) {
        let version = database.run(async |tr| tr.get_read_version().await).await?;
        let compared = some
            .iter()
            .map(|(range, servers)| compare_shard(transport, range, servers, replication, version));
        for verdict in plinth_runtime::join_all(compared.collect::<Vec<_>>()).await {
            if let Err(broken) = verdict? {
                return Ok(Err(broken));
            }
        }
    }
    Ok(Ok(()))
}

async fn compare_shard(
    transport: &Transport,
    range: &KeyRange,
    servers: &[Interface],
    replication: usize,
    version: Version,
) -> plinth_core::Result<Verdict> {
    if servers.len() != replication {
        let count = servers.len();
        return Ok(Err(format!("the shard {range:?} has {count} replicas")));
    }
    let mut first: Option<Rows> = None;
    for server in servers {
        let rows = read_all(transport, server, range, version).await?;
        match &first {
            None => first = Some(rows),
            Some(expected) if *expected == rows => {}
            Some(expected) => return Ok(Err(difference(expected, &rows, range))),
        }
    }
    Ok(Ok(()))
}

/// The map of shards, on which every commit proxy must agree (pitfall 7), each as soon as it has had a batch since the last
/// change: one that keeps to another map while the first difference stays the same does not.
async fn agreed_map(
    transport: &Transport,
    shape: &Shape,
) -> plinth_core::Result<Result<Shards, String>> {
    let patience = Duration::from_millis(knobs().empty_commit_interval_ms) * 4;
    let (mut left, mut before) = (patience, String::new());
    for _ in 0..MAPS_MAX {
        match one_map(transport, shape).await? {
            Err(differs) if !left.is_zero() || differs != before => {
                if differs != before {
                    // Shards are still on the move: this is another one.
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
    let mut begin = range.begin.clone();
    let mut rows = Rows::new();
    loop {
        let request = GetRange {
            begin: begin.clone(),
            end: range.end.clone(),
            version,
            limit_rows: u32::MAX,
            limit_bytes: 1 << 20,
            reverse: false,
        };
        let reply = limited(transport.call(&server.endpoint::<GetRange>(), request)).await?;
        rows.extend(reply.decode_rows().ok_or(Error::io_error)?);
        match rows.last() {
            Some((key, _)) if reply.more => begin = plinth_core::key::key_after(key),
            _ => return Ok(rows),
        }
    }
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
