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
use plinth_protocol::transaction::{GetKeyLocations, KeyLocations};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::Duration;

const ATTEMPTS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(500);

type Rows = Vec<(Bytes, Bytes)>;

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
) -> plinth_core::Result<Result<(), String>> {
    let version = database.run(async |tr| tr.get_read_version().await).await?;
    for (range, servers) in locations(transport, shape).await?.shards {
        if servers.len() != shape.config.replication as usize {
            return Ok(Err(format!(
                "the shard {range:?} has {} replicas",
                servers.len()
            )));
        }
        let mut first: Option<Rows> = None;
        for server in &servers {
            let rows = read_all(transport, server, &range, version).await?;
            match &first {
                None => first = Some(rows),
                Some(expected) if *expected == rows => {}
                Some(expected) => return Ok(Err(difference(expected, &rows, &range))),
            }
        }
    }
    Ok(Ok(()))
}

async fn locations(transport: &Transport, shape: &Shape) -> plinth_core::Result<KeyLocations> {
    let leader = election::current_leader(transport, &shape.cluster_file())
        .await
        .ok_or(Error::timed_out)?;
    let info = transport
        .call(
            &leader.controller.endpoint::<GetClientInfo>(),
            GetClientInfo { known: 0 },
        )
        .await?;
    let proxy = info.commit_proxies.first().ok_or(Error::timed_out)?;
    let range = KeyRange::new(Bytes::new(), Bytes::from_static(ALL_KEYS_END));
    transport
        .call(
            &proxy.endpoint::<GetKeyLocations>(),
            GetKeyLocations {
                range,
                reverse: false,
                limit: 1000,
            },
        )
        .await
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
        let call = transport.call(&server.endpoint::<GetRange>(), request);
        let reply = plinth_runtime::timeout(Duration::from_secs(5), call)
            .await
            .unwrap_or(Err(Error::timed_out))?;
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
