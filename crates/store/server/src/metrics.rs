//! Metrics of a worker, for monitoring: one sample a number, in the terms of Prometheus.
//!
//! Roles are asked with the same requests that other processes use; a worker asks only its own roles.

mod whole;

use crate::hosting::Hosting;
use plinth_protocol::control::GetDistributorStatus;
use plinth_protocol::log::GetLogStatus;
use plinth_protocol::rate::{GetCommitProxyStatus, GetRateStatus};
use plinth_protocol::role::Role;
use plinth_protocol::storage::GetStorageStatus;
use plinth_protocol::tally as names;
use plinth_rpc::{Interface, Request, Transport};
use plinth_runtime::machine::Usage;
use plinth_runtime::metric::page::{Page, Sample, Samples};
use plinth_runtime::{Duration, Either, gauge, metric, race, sleep, tally};
use std::convert::Infallible;
use whole::Whole;

const INTERVAL: Duration = Duration::from_secs(1);
/// Between two words on whether the process is ready.
const READY_INTERVAL: Duration = Duration::from_millis(250);

metric! {
    ROLE: Gauge = "plinth_role", "1 for every role that the worker has";
    EPOCH: Gauge = "plinth_epoch", "the newest epoch that the worker knows of";
    LOOP_LAG_SECONDS: Gauge = "plinth_loop_lag_seconds",
        "worst lateness of a timer of the event loop in the last one to two seconds";
    BUILD: Gauge = "plinth_build_info", "1, with the version of the program";
    CPU_SECONDS: Counter = "plinth_process_cpu_seconds_total", "processor time of the process";
    RESIDENT_BYTES: Gauge = "plinth_process_resident_bytes", "memory of the process";
    CONNECTIONS: Gauge = "plinth_connections", "TCP connections of the process";
    SENT_BYTES: Counter = "plinth_sent_bytes_total", "bytes that the process has sent";
    RECEIVED_BYTES: Counter = "plinth_received_bytes_total", "bytes that the process has received";
    COORDINATOR: Gauge = "plinth_coordinator", "1 if the process is a coordinator";
    SLOW_TASKS: Counter = "plinth_slow_tasks_total",
        "tasks that held up the event loop for about 0.1 s or more; the trace names them";
    DISK_BYTES: Gauge = "plinth_disk_bytes", "bytes of the disk that holds the data directory";
    DISK_FREE_BYTES: Gauge = "plinth_disk_free_bytes", "bytes of that disk that are free";
    REQUESTS: Counter = "plinth_requests_total", "requests from other processes, by kind";
    REQUEST_SECONDS: Histogram = "plinth_request_seconds", "time until the answer; one request in sixteen is measured";
    LIST_LENGTH: Gauge = "plinth_list_length",
        "length of each list of waiting or remembered things; short after idling";
    STORAGE_VERSION: Gauge = "plinth_storage_version", "the newest version that a storage server has applied";
    STORAGE_DURABLE_VERSION: Gauge = "plinth_storage_durable_version", "the newest version that is on its disk";
    STORAGE_WINDOW_BYTES: Gauge = "plinth_storage_window_bytes",
        "bytes of recent versions in the memory of a storage server";
    STORAGE_INPUT_BYTES: Counter = "plinth_storage_input_bytes_total",
        "bytes of mutations that a storage server has received";
    STORAGE_STORED_BYTES: Gauge = "plinth_storage_stored_bytes",
        "approximate bytes of the keys and values of a storage server";
    STORAGE_DISK_BYTES: Gauge = "plinth_storage_disk_bytes", "bytes of the files of a storage server";
    STORAGE_WATCHES: Gauge = "plinth_storage_watches", "watches that wait at a storage server";
    LOG_VERSION: Gauge = "plinth_log_version", "the newest version that a log server has received";
    LOG_DURABLE_VERSION: Gauge = "plinth_log_durable_version", "the newest version that is on its disk";
    LOG_QUEUE_BYTES: Gauge = "plinth_log_queue_bytes", "bytes of the disk queue of a log server";
    LOG_MEMORY_BYTES: Gauge = "plinth_log_memory_bytes", "bytes of mutations in the memory of a log server";
    LOG_SYNC_SECONDS: Gauge = "plinth_log_sync_seconds",
        "standing delay of a write to the disk of a log server (its minimum over a second)";
    COMMIT_SECONDS: Gauge = "plinth_commit_seconds",
        "standing delay of a commit at the proxy, from arrival to answer (its minimum over a second)";
    COMMITS_ARRIVED: Counter = "plinth_commits_arrived_total", "transactions that a commit proxy has received";
    COMMITS_ANSWERED: Counter = "plinth_commits_answered_total", "transactions that a commit proxy has answered";
    COMMITTED: Counter = "plinth_transactions_committed_total", "transactions that a commit proxy has committed";
    CONFLICTED: Counter = "plinth_transactions_conflicted_total",
        "transactions that a commit proxy has refused because of a conflict";
    COMMIT_PROXY_BYTES: Gauge = "plinth_commit_proxy_bytes",
        "bytes of transactions that wait or are in progress at a commit proxy";
    RATE_LIMIT: Gauge = "plinth_rate_limit", "limit of transactions that begin in a second; no sample without a limit";
    RATE_ADMITTED: Gauge = "plinth_rate_admitted", "transactions that began in a second";
    RATE_PRESSURE: Gauge = "plinth_rate_pressure", "1 if a queue or a lag has reached its target";
    CONSISTENCY_COMPARED_BYTES: Counter = "plinth_consistency_compared_bytes_total", "bytes of replicas compared";
    CONSISTENCY_DIFFERENCES: Counter = "plinth_consistency_differences_total", "pages in which replicas differed";
}

/// Keeps the page up to date, for ever. `controller` gives the cluster's, if that is known.
pub async fn collect(
    transport: Transport,
    hosting: &Hosting,
    page: &Page,
    controller: impl Fn() -> Option<Interface>,
) -> Infallible {
    let whole = Whole::default();
    let samples = async {
        loop {
            page.set(samples(&transport, hosting, &whole).await);
            sleep(INTERVAL).await;
        }
    };
    // Apart: a role that does not answer holds up the samples.
    let ready = async {
        loop {
            page.set_ready(hosting.verdict());
            sleep(READY_INTERVAL).await;
        }
    };
    let looking = whole.keep(&transport, page, controller);
    match race(samples, race(ready, looking)).await {
        Either::Left(never) | Either::Right(Either::Left(never) | Either::Right(never)) => never,
    }
}

async fn samples(transport: &Transport, hosting: &Hosting, whole: &Whole) -> Vec<Sample> {
    let Some(address) = transport.address() else {
        return Vec::new();
    };
    let mut out = Samples::of_process(address);
    let vitals = hosting.vitals();
    let version = ("version", env!("CARGO_PKG_VERSION").to_string());
    out.add(&BUILD, &[version], 1.0);
    add_usage(&mut out, &hosting.usage());
    let is_coordinator = hosting.is_coordinator();
    hosting.add_readiness(&mut out);
    out.add(&COORDINATOR, &[], f64::from(u8::from(is_coordinator)));
    out.add(&EPOCH, &[], hosting.epoch() as f64);
    out.add(&LOOP_LAG_SECONDS, &[], vitals.loop_lag_ms / 1000.0);
    let slow_tasks = plinth_runtime::slow_tasks() as f64;
    out.add(&SLOW_TASKS, &[], slow_tasks);
    out.add(&DISK_BYTES, &[], vitals.disk_total as f64);
    out.add(&DISK_FREE_BYTES, &[], vitals.disk_free as f64);
    add_requests(&mut out, transport);
    whole.add_to(&mut out);
    out.add_counted();
    for (name, length) in gauge::read() {
        let list = ("list", name.to_string());
        out.add(&LIST_LENGTH, &[list], length as f64);
    }
    for (id, name) in hosting.roles() {
        let labels = [("role", name.to_string()), ("id", id.to_string())];
        out.add(&ROLE, &labels, 1.0);
        add_role(
            &mut out,
            transport,
            name,
            Interface::new(address, id),
            &labels[1..],
        )
        .await;
    }
    out.into_list()
}

/// Adds what a role says about itself. `id` is its label.
async fn add_role(
    out: &mut Samples,
    transport: &Transport,
    kind: Role,
    role: Interface,
    id: &[(&'static str, String)],
) {
    match kind {
        Role::Storage => {
            if let Some(status) = ask(transport, role, GetStorageStatus {}).await {
                add_storage(out, id, &status);
            }
        }
        Role::Log => {
            if let Some(s) = ask(transport, role, GetLogStatus {}).await {
                out.add(&LOG_VERSION, id, s.version as f64);
                out.add(&LOG_DURABLE_VERSION, id, s.durable as f64);
                out.add(&LOG_QUEUE_BYTES, id, s.queue_bytes as f64);
                out.add(&LOG_MEMORY_BYTES, id, s.memory_bytes as f64);
                out.add(&LOG_SYNC_SECONDS, id, s.sync_s);
            }
        }
        Role::CommitProxy => {
            if let Some(s) = ask(transport, role, GetCommitProxyStatus {}).await {
                out.add(&COMMIT_SECONDS, id, s.latency_s);
                out.add(&COMMITS_ARRIVED, id, s.arrived as f64);
                out.add(&COMMITS_ANSWERED, id, s.answered as f64);
                out.add(&COMMIT_PROXY_BYTES, id, s.bytes_held as f64);
            }
            for (name, count) in tally::of(role.id) {
                match name {
                    names::COMMITTED => out.add(&COMMITTED, id, count as f64),
                    names::CONFLICTED => out.add(&CONFLICTED, id, count as f64),
                    _ => {}
                }
            }
        }
        Role::Ratekeeper => {
            if let Some(status) = ask(transport, role, GetRateStatus {}).await {
                add_rate(out, &status);
            }
        }
        Role::Distributor => {
            if let Some(s) = ask(transport, role, GetDistributorStatus {}).await {
                out.add(&CONSISTENCY_COMPARED_BYTES, &[], s.bytes as f64);
                out.add(&CONSISTENCY_DIFFERENCES, &[], s.found as f64);
            }
        }
        _ => {}
    }
}

fn add_usage(out: &mut Samples, usage: &Usage) {
    let connections = &usage.connections;
    out.add(&CPU_SECONDS, &[], usage.process_cpu.as_secs_f64());
    out.add(&RESIDENT_BYTES, &[], usage.resident_bytes as f64);
    let open = connections.established.saturating_sub(connections.closed);
    out.add(&CONNECTIONS, &[], open as f64);
    out.add(&SENT_BYTES, &[], connections.sent_bytes as f64);
    out.add(&RECEIVED_BYTES, &[], connections.received_bytes as f64);
}

fn add_storage(
    out: &mut Samples,
    id: &[(&'static str, String)],
    s: &<GetStorageStatus as Request>::Reply,
) {
    out.add(&STORAGE_VERSION, id, s.version as f64);
    out.add(&STORAGE_DURABLE_VERSION, id, s.durable as f64);
    out.add(&STORAGE_WINDOW_BYTES, id, s.window_bytes as f64);
    out.add(&STORAGE_INPUT_BYTES, id, s.input_bytes as f64);
    out.add(&STORAGE_STORED_BYTES, id, s.stored_bytes as f64);
    out.add(&STORAGE_DISK_BYTES, id, s.disk_bytes as f64);
    out.add(&STORAGE_WATCHES, id, s.watches as f64);
}

fn add_rate(out: &mut Samples, s: &<GetRateStatus as Request>::Reply) {
    for (priority, limit) in [("default", s.default), ("batch", s.batch)] {
        if limit.is_finite() {
            let labels = [("priority", priority.to_string())];
            out.add(&RATE_LIMIT, &labels, limit);
        }
    }
    out.add(&RATE_ADMITTED, &[], s.admitted);
    out.add(&RATE_PRESSURE, &[], s.pressure);
}

fn add_requests(out: &mut Samples, transport: &Transport) {
    for (name, latency) in transport.latencies() {
        if latency.asked() > 0 {
            let kind = ("request", name.to_string());
            out.add(
                &REQUESTS,
                std::slice::from_ref(&kind),
                latency.asked() as f64,
            );
            out.add_histogram(&REQUEST_SECONDS, kind, &latency.timed());
        }
    }
}

/// Asks a role of this worker. The role answers at once, unless it is just ending.
async fn ask<R: Request>(transport: &Transport, role: Interface, request: R) -> Option<R::Reply> {
    let call = transport.call(&role.endpoint::<R>(), request);
    plinth_runtime::timeout(INTERVAL, call).await?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_asks_for_nothing_that_there_is_not() {
        asks_for_what_there_is(include_str!("../../../../docs/monitoring/grafana.json"));
    }

    fn asks_for_what_there_is(dashboard: &str) {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = dashboard.split(|c| !is_name(c));
        let mut asked = 0;
        for word in words.filter(|word| word.starts_with("plinth_")) {
            let family = word.trim_end_matches("_bucket");
            let mut known = metric::families().into_iter();
            assert!(known.any(|known| known.name == family), "{word}");
            asked += 1;
        }
        assert!(asked > 10);
    }
}
