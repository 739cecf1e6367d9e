//! The numbers of a gateway that monitoring reads, under ZooKeeper's names.

use crate::counters::Kind;
use crate::life::{Gateway, Life};
use crate::paths;
use crate::wire::Text;
use plinth_runtime::metric::Family;
use plinth_runtime::metric::latency::{BUCKETS, Timed, bucket_end, bucket_of};
use plinth_runtime::metric::page::{Sample, Samples};
use plinth_runtime::readiness::Verdict;
use plinth_runtime::{metric, net, now};
use std::collections::BTreeMap;

metric! {
    AVG_LATENCY: Gauge = "avg_latency", "mean time to answer a request, in milliseconds";
    MAX_LATENCY: Gauge = "max_latency", "longest time to answer a request, in milliseconds";
    MIN_LATENCY: Gauge = "min_latency", "shortest time to answer a request, in milliseconds";
    PACKETS_RECEIVED: Counter = "packets_received", "requests received";
    PACKETS_SENT: Counter = "packets_sent", "answers and events sent";
    CONNECTIONS: Gauge = "num_alive_connections", "connections of clients";
    REJECTED: Counter = "connection_rejected", "connections that were refused because their address had too many";
    FAILED_HANDSHAKES: Counter = "unsuccessful_handshake",
        "connections at the secure port that were refused: by their certificate, or because they speak no TLS";
    HANDSHAKES: Gauge = "outstanding_tls_handshake", "TLS handshakes that are under way";
    OUTSTANDING: Gauge = "outstanding_requests", "writes that wait for a transaction";
    ZNODES: Gauge = "znode_count", "nodes of the tree, as ZooKeeper counts them: the root counts twice";
    WATCHES: Gauge = "watch_count", "watches of clients of this gateway";
    EPHEMERALS: Gauge = "ephemerals_count", "ephemeral nodes of the tree";
    DATA_BYTES: Gauge = "approximate_data_size", "bytes of the paths and the data of all nodes of the tree";
    SESSIONS: Gauge = "global_sessions", "sessions of this gateway";
    OPEN_FILES: Gauge = "open_file_descriptor_count", "files that the process has open, with its connections";
    OPEN_FILES_MAX: Gauge = "max_file_descriptor_count", "most files that the process may have open";
    QUOTA_NODES_MAX: Gauge = "quota_count_limit_per_namespace",
        "nodes that quotas allow, by the first name of their paths; -1 for a quota without a limit";
    QUOTA_BYTES_MAX: Gauge = "quota_bytes_limit_per_namespace",
        "bytes of data that quotas allow, by the first name of their paths; -1 for a quota without a limit";
    QUOTA_NODES: Gauge = "quota_count_usage_per_namespace", "nodes in quotas, by the first name of their paths";
    QUOTA_BYTES: Gauge = "quota_bytes_usage_per_namespace",
        "bytes of data in quotas, by the first name of their paths";
    QUOTA_EXCEEDED: Counter = "quota_exceeded_error_per_namespace",
        "changes that this gateway has refused because of a quota, by the first name of their paths";
    SERVING: Gauge = "plinth_keeper_serving",
        "1 if the gateway serves clients, 0 while it cannot reach the database, or has no tree";
    UPTIME: Gauge = "uptime", "milliseconds since the gateway's start";
    CACHED_NODES: Gauge = "plinth_cached_nodes", "nodes in the gateway's memory";
    CACHED_BYTES: Gauge = "plinth_cached_bytes", "bytes of nodes in the gateway's memory";
    ARRIVED_BYTES: Gauge = "plinth_keeper_arrived_bytes",
        "bytes of requests that have been read of clients, and are not whole or wait for those before them";
    OPERATIONS_STUCK: Gauge = "plinth_keeper_operations_stuck",
        "1 while the disk does not take lines of the log of operations, 0 otherwise; absent without that log";
    OPERATIONS_LOST: Counter = "plinth_keeper_operations_lost_total",
        "lines of the log of operations that are lost, because the disk takes them too slowly or not at all";
    REQUESTS: Counter = "plinth_keeper_requests_total", "requests of ZooKeeper's clients, by kind";
    REQUEST_SECONDS: Histogram = "plinth_keeper_request_seconds",
        "time until the answer: of every write, and of one in sixteen other requests";
}

/// Every number that has a family of its own. Those of the tree are at most a second old.
pub fn numbers(gateway: &Gateway, life: &Life) -> Vec<(&'static Family, f64)> {
    let counters = &gateway.counters;
    let latency = *counters.latency.borrow();
    let (watches, _, _) = life.clients.watches.borrow().counts();
    let (nodes, bytes) = life.replica.cached();
    let totals = life.totals.get();
    let clients = life.clients.connections.borrow();
    let arrived: usize = clients.values().map(|client| client.arrived.get()).sum();
    let connections = clients.len();
    let sessions = life.clients.sessions.borrow().len();
    let mut numbers = vec![
        (&AVG_LATENCY, latency.average_ms()),
        (&MAX_LATENCY, latency.max_ms as f64),
        (&MIN_LATENCY, latency.min_ms as f64),
        (&PACKETS_RECEIVED, counters.received.get() as f64),
        (&PACKETS_SENT, counters.sent.get() as f64),
        (&CONNECTIONS, connections as f64),
        (&REJECTED, gateway.addresses.refused() as f64),
        (&OUTSTANDING, life.pipeline.queued() as f64),
        (&ZNODES, totals.nodes as f64),
        (&WATCHES, watches as f64),
        (&EPHEMERALS, totals.ephemerals as f64),
        (&DATA_BYTES, totals.bytes as f64),
        (&SESSIONS, sessions as f64),
        (&UPTIME, gateway.started.elapsed().as_millis() as f64),
        (&CACHED_NODES, nodes as f64),
        (&CACHED_BYTES, bytes as f64),
        (&ARRIVED_BYTES, arrived as f64),
    ];
    if let Some(secure) = &gateway.secure {
        numbers.push((&FAILED_HANDSHAKES, secure.failed() as f64));
        numbers.push((&HANDSHAKES, secure.under_way() as f64));
    }
    if let Some((open, most)) = net::open_files() {
        numbers.push((&OPEN_FILES, open as f64));
        numbers.push((&OPEN_FILES_MAX, most as f64));
    }
    numbers
}

/// Numbers of quotas, each with the first name of the paths that it is about.
pub fn quotas(gateway: &Gateway, life: &Life) -> Vec<(&'static Family, Text, f64)> {
    let mut by_name: BTreeMap<&str, [i64; 4]> = BTreeMap::new();
    let quotas = life.replica.quotas.borrow();
    for (path, watched) in quotas.iter() {
        let limit = |of: Option<(i64, bool)>| of.map_or(-1, |(limit, _)| limit);
        let (limits, used) = (&watched.quota.limits, watched.used);
        let more = [
            limit(limits.of_nodes()),
            limit(limits.of_bytes()),
            used.nodes,
            used.bytes,
        ];
        let sums = by_name.entry(paths::first_name(path)).or_default();
        for (sum, more) in sums.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
    }
    let families = [
        &QUOTA_NODES_MAX,
        &QUOTA_BYTES_MAX,
        &QUOTA_NODES,
        &QUOTA_BYTES,
    ];
    let mut numbers = Vec::new();
    for (name, sums) in by_name {
        for (family, sum) in families.into_iter().zip(sums) {
            numbers.push((family, name.into(), sum as f64));
        }
    }
    let refused = gateway.alarm.refused().into_iter();
    numbers.extend(refused.map(|(name, count)| (&QUOTA_EXCEEDED, name, count as f64)));
    numbers
}

/// ZooKeeper's `readlatency` or `updatelatency`, in milliseconds: names of numbers, and the numbers.
pub fn latencies(gateway: &Gateway, name: &str, is_write: bool) -> Vec<(String, f64)> {
    let mut all = Timed::default();
    let reads_or_writes = |(kind, _): &(Kind, _)| {
        kind.is_write() == is_write && !matches!(kind, Kind::Ping | Kind::Other)
    };
    for (_, latency) in gateway.counters.requests().filter(reads_or_writes) {
        all.add_all(&latency.timed());
    }
    let sum = all.sum.as_secs_f64() * 1000.0;
    let mut rows = vec![
        (format!("avg_{name}"), sum / all.count.max(1) as f64),
        (format!("cnt_{name}"), all.count as f64),
        (format!("sum_{name}"), sum),
    ];
    for (part, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
        rows.push((format!("{part}_{name}"), quantile_ms(&all, share)));
    }
    rows
}

/// The end of the bucket that holds the quantile; that of the one before, if the bucket has none.
fn quantile_ms(timed: &Timed, share: f64) -> f64 {
    let bucket = bucket_of(&timed.buckets, share);
    let end = bucket.and_then(|i| bucket_end(i.min(BUCKETS - 2)));
    end.map_or(0.0, |end| end.as_secs_f64() * 1000.0)
}

/// True if it serves clients: it has a tree, and can reach the database.
pub fn serves(gateway: &Gateway) -> bool {
    let life = gateway.life.get();
    life.is_some_and(|life| !life.is_isolated() && life.contact.is_in_touch())
}

/// Whether a user of ZooKeeper could work here just now: the gateway's beats land, and it reads what is new.
pub fn verdict(gateway: &Gateway) -> Verdict {
    match gateway.stopped.get() {
        Some(why) => Verdict::not(&*why),
        None => gateway.readiness.borrow().verdict(now()),
    }
}

/// All of it as a page for Prometheus.
pub fn samples(gateway: &Gateway) -> Vec<Sample> {
    let mut out = Samples::of_process(gateway.address);
    let life = gateway.life.get();
    out.add(&SERVING, &[], f64::from(u8::from(serves(gateway))));
    let readiness = gateway.readiness.borrow();
    readiness.add_to(&mut out, &verdict(gateway));
    if let Some(life) = life {
        for (family, value) in numbers(gateway, &life) {
            out.add(family, &[], value);
        }
        for (family, name, value) in quotas(gateway, &life) {
            out.add(family, &[("key", name.to_string())], value);
        }
    }
    if let Some(operations) = &gateway.operations {
        let is_stuck = f64::from(u8::from(operations.is_stuck()));
        out.add(&OPERATIONS_STUCK, &[], is_stuck);
        out.add(&OPERATIONS_LOST, &[], operations.lost() as f64);
    }
    for (kind, latency) in gateway.counters.requests() {
        if latency.asked() > 0 {
            let label = ("request", kind.name().to_string());
            let labels = std::slice::from_ref(&label);
            out.add(&REQUESTS, labels, latency.asked() as f64);
            out.add_histogram(&REQUEST_SECONDS, label, &latency.timed());
        }
    }
    out.add_counted();
    out.into_list()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::Duration;

    #[test]
    fn the_dashboard_asks_for_nothing_that_there_is_not() {
        let dashboard = include_str!("../../../../docs/monitoring/keeper.json");
        let asked = dashboard.lines().filter(|line| line.contains("\"expr\""));
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        for line in asked {
            let known = |word: &str| {
                let family = word.trim_end_matches("_bucket");
                let mut all = metric::families().into_iter();
                all.any(|known| known.name == family)
            };
            let mut words = line.split(|c| !is_name(c));
            assert!(words.any(known), "{line}");
            for word in line.split(|c| !is_name(c)) {
                assert!(!word.starts_with("plinth_") || known(word), "{word}");
            }
        }
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let latency = plinth_runtime::metric::latency::Latency::default();
        assert_eq!(quantile_ms(&latency.timed(), 0.5), 0.0);
        let mut timed = Timed::default();
        timed.buckets[10] = 99; // up to 1.024 ms
        timed.buckets[12] = 1; // up to 4.096 ms
        timed.count = 100;
        timed.sum = Duration::from_millis(100);
        assert_eq!(quantile_ms(&timed, 0.5), 1.024);
        assert_eq!(quantile_ms(&timed, 0.99), 1.024);
        assert_eq!(quantile_ms(&timed, 0.999), 4.096);
    }
}
