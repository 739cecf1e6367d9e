//! What a worker can say of itself in numbers, for monitoring: one sample a number, in the words of Prometheus.
//!
//! Roles are asked through the same requests as everybody asks them; a worker asks only its own.

use crate::hosting::Hosting;
use plinth_core::Uid;
use plinth_protocol::control::GetDistributorStatus;
use plinth_protocol::log::GetLogStatus;
use plinth_protocol::rate::{GetCommitProxyStatus, GetRateStatus};
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::latency::{BUCKETS, bucket_end};
use plinth_rpc::{Interface, Request, Transport};
use plinth_runtime::{Duration, gauge, sleep};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub family: &'static str,
    pub kind: Kind,
    /// Of a histogram: which of its numbers.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// The samples of a worker as of a second ago at most: shared with whoever serves them, on another thread.
#[derive(Clone, Default, Debug)]
pub struct Page(Arc<Mutex<Vec<Sample>>>);

impl Page {
    pub fn samples(&self) -> Vec<Sample> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.clone()
    }

    fn set(&self, samples: Vec<Sample>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = samples;
    }
}

/// What every family means.
pub const HELP: &[(&str, &str)] = &[
    ("plinth_role", "1 for every role that the worker has"),
    ("plinth_epoch", "the newest epoch that the worker knows of"),
    (
        "plinth_loop_lag_seconds",
        "by how much timers of the event loop were late at worst in the last second or two",
    ),
    (
        "plinth_slow_tasks_total",
        "how often a task held up the event loop for about a tenth of a second or more; the trace names it",
    ),
    (
        "plinth_disk_bytes",
        "bytes of the disk that holds the data directory",
    ),
    ("plinth_disk_free_bytes", "bytes of that disk that are free"),
    (
        "plinth_requests_total",
        "requests from other processes, by kind",
    ),
    (
        "plinth_request_seconds",
        "how long their answers took, one in sixteen measured",
    ),
    (
        "plinth_list_length",
        "how much waits, or is remembered, in each list of the process; after idling as little as at the start",
    ),
    (
        "plinth_storage_version",
        "the newest version that a storage server has applied",
    ),
    (
        "plinth_storage_durable_version",
        "the newest version that it has on disk",
    ),
    (
        "plinth_storage_window_bytes",
        "bytes of versions in its memory",
    ),
    (
        "plinth_storage_input_bytes_total",
        "bytes of mutations that it has taken in",
    ),
    (
        "plinth_storage_stored_bytes",
        "keys and values that it holds, about",
    ),
    ("plinth_storage_disk_bytes", "bytes of its files"),
    ("plinth_storage_watches", "watches that wait"),
    (
        "plinth_log_version",
        "the newest version that a log server has taken",
    ),
    (
        "plinth_log_durable_version",
        "the newest version that it has on disk",
    ),
    ("plinth_log_queue_bytes", "bytes of its disk queue"),
    ("plinth_log_memory_bytes", "bytes of messages in its memory"),
    (
        "plinth_log_sync_seconds",
        "what a write to its disk takes at least",
    ),
    (
        "plinth_commit_seconds",
        "what a commit takes at least, from its arrival at the proxy to the answer",
    ),
    (
        "plinth_commits_arrived_total",
        "transactions that a commit proxy has taken in",
    ),
    (
        "plinth_commits_answered_total",
        "transactions that it has answered",
    ),
    (
        "plinth_commit_proxy_bytes",
        "bytes of transactions that wait or are under way",
    ),
    (
        "plinth_rate_limit",
        "transactions a second that may begin; no sample without a limit",
    ),
    (
        "plinth_rate_admitted",
        "transactions a second that did begin",
    ),
    (
        "plinth_rate_pressure",
        "1 where something is as full or as late as it should ever be",
    ),
    (
        "plinth_consistency_compared_bytes_total",
        "bytes of replicas compared",
    ),
    (
        "plinth_consistency_differences_total",
        "pages in which replicas differed",
    ),
];

pub async fn collect(transport: Transport, hosting: &Hosting, page: &Page) -> Infallible {
    loop {
        page.set(samples(&transport, hosting).await);
        sleep(INTERVAL).await;
    }
}

struct Collected {
    process: String,
    samples: Vec<Sample>,
}

impl Collected {
    fn add(
        &mut self,
        kind: Kind,
        family: &'static str,
        labels: &[(&'static str, String)],
        value: f64,
    ) {
        self.add_part(kind, family, "", labels, value);
    }

    fn add_part(
        &mut self,
        kind: Kind,
        family: &'static str,
        suffix: &'static str,
        labels: &[(&'static str, String)],
        value: f64,
    ) {
        let mut all = vec![("process", self.process.clone())];
        all.extend_from_slice(labels);
        self.samples.push(Sample {
            family,
            kind,
            suffix,
            labels: all,
            value,
        });
    }
}

async fn samples(transport: &Transport, hosting: &Hosting) -> Vec<Sample> {
    use Kind::{Counter, Gauge};
    let Some(address) = transport.address() else {
        return Vec::new();
    };
    let mut out = Collected {
        process: address.to_string(),
        samples: Vec::new(),
    };
    let vitals = hosting.vitals();
    out.add(Gauge, "plinth_epoch", &[], hosting.epoch() as f64);
    out.add(
        Gauge,
        "plinth_loop_lag_seconds",
        &[],
        vitals.loop_lag_ms / 1000.0,
    );
    let slow_tasks = plinth_runtime::slow_tasks() as f64;
    out.add(Counter, "plinth_slow_tasks_total", &[], slow_tasks);
    out.add(Gauge, "plinth_disk_bytes", &[], vitals.disk_total as f64);
    out.add(
        Gauge,
        "plinth_disk_free_bytes",
        &[],
        vitals.disk_free as f64,
    );
    add_requests(&mut out, transport);
    for (name, length) in gauge::read() {
        let list = ("list", name.to_string());
        out.add(Gauge, "plinth_list_length", &[list], length as f64);
    }
    for (id, name) in hosting.roles() {
        let labels = [("role", name.to_string()), ("id", id.to_string())];
        out.add(Gauge, "plinth_role", &labels, 1.0);
        let role = Interface::new(address, id);
        let id = &labels[1..];
        match name {
            "storage" => {
                if let Some(s) = ask(transport, role, GetStorageStatus {}).await {
                    out.add(Gauge, "plinth_storage_version", id, s.version as f64);
                    out.add(
                        Gauge,
                        "plinth_storage_durable_version",
                        id,
                        s.durable as f64,
                    );
                    out.add(
                        Gauge,
                        "plinth_storage_window_bytes",
                        id,
                        s.window_bytes as f64,
                    );
                    out.add(
                        Counter,
                        "plinth_storage_input_bytes_total",
                        id,
                        s.input_bytes as f64,
                    );
                    out.add(
                        Gauge,
                        "plinth_storage_stored_bytes",
                        id,
                        s.stored_bytes as f64,
                    );
                    out.add(Gauge, "plinth_storage_disk_bytes", id, s.disk_bytes as f64);
                    out.add(Gauge, "plinth_storage_watches", id, s.watches as f64);
                }
            }
            "log" => {
                if let Some(s) = ask(transport, role, GetLogStatus {}).await {
                    out.add(Gauge, "plinth_log_version", id, s.version as f64);
                    out.add(Gauge, "plinth_log_durable_version", id, s.durable as f64);
                    out.add(Gauge, "plinth_log_queue_bytes", id, s.queue_bytes as f64);
                    out.add(Gauge, "plinth_log_memory_bytes", id, s.memory_bytes as f64);
                    out.add(Gauge, "plinth_log_sync_seconds", id, s.sync_s);
                }
            }
            "commit proxy" => {
                if let Some(s) = ask(transport, role, GetCommitProxyStatus {}).await {
                    out.add(Gauge, "plinth_commit_seconds", id, s.latency_s);
                    out.add(
                        Counter,
                        "plinth_commits_arrived_total",
                        id,
                        s.arrived as f64,
                    );
                    out.add(
                        Counter,
                        "plinth_commits_answered_total",
                        id,
                        s.answered as f64,
                    );
                    out.add(Gauge, "plinth_commit_proxy_bytes", id, s.bytes_held as f64);
                }
            }
            "ratekeeper" => {
                if let Some(s) = ask(transport, role, GetRateStatus {}).await {
                    for (priority, limit) in [("default", s.default), ("batch", s.batch)] {
                        if limit.is_finite() {
                            let labels = [("priority", priority.to_string())];
                            out.add(Gauge, "plinth_rate_limit", &labels, limit);
                        }
                    }
                    out.add(Gauge, "plinth_rate_admitted", &[], s.admitted);
                    out.add(Gauge, "plinth_rate_pressure", &[], s.pressure);
                }
            }
            "distributor" => {
                if let Some(s) = ask(transport, role, GetDistributorStatus {}).await {
                    let compared = "plinth_consistency_compared_bytes_total";
                    out.add(Counter, compared, &[], s.bytes as f64);
                    let found = "plinth_consistency_differences_total";
                    out.add(Counter, found, &[], s.found as f64);
                }
            }
            _ => {}
        }
    }
    out.samples
}

fn add_requests(out: &mut Collected, transport: &Transport) {
    for (name, latency) in transport.latencies() {
        if latency.asked() == 0 {
            continue;
        }
        let kind = ("request", name.to_string());
        let total = latency.asked() as f64;
        out.add(
            Kind::Counter,
            "plinth_requests_total",
            std::slice::from_ref(&kind),
            total,
        );
        let timed = latency.timed();
        let mut add = |suffix, labels: &[(&'static str, String)], value| {
            let family = "plinth_request_seconds";
            out.add_part(Kind::Histogram, family, suffix, labels, value);
        };
        let mut up_to = 0;
        for i in 0..BUCKETS {
            up_to += timed.buckets[i];
            let end = bucket_end(i).map_or("+Inf".into(), |end| end.as_secs_f64().to_string());
            add("_bucket", &[kind.clone(), ("le", end)], up_to as f64);
        }
        add("_sum", std::slice::from_ref(&kind), timed.sum.as_secs_f64());
        add("_count", std::slice::from_ref(&kind), timed.count as f64);
    }
}

/// A role of this worker: it answers at once, or is just ending.
async fn ask<R: Request>(transport: &Transport, role: Interface, request: R) -> Option<R::Reply> {
    let call = transport.call(&role.endpoint::<R>(), request);
    plinth_runtime::timeout(INTERVAL, call).await?.ok()
}

/// Prometheus' text format (0.0.4): families one after the other, each with what it means.
pub fn text(mut samples: Vec<Sample>) -> String {
    use std::fmt::Write;
    const INFALLIBLE: &str = "writing to a string";
    samples.sort_by_key(|sample| sample.family); // stable: the samples of a family keep their order
    let (mut out, mut family) = (String::new(), "");
    for sample in &samples {
        if sample.family != family {
            family = sample.family;
            let help = HELP.iter().find(|(name, _)| *name == family);
            let help = help.map_or("", |(_, help)| help);
            let kind = match sample.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            writeln!(out, "# HELP {family} {help}\n# TYPE {family} {kind}").expect(INFALLIBLE);
        }
        let labels = sample.labels.iter();
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
        let labels: Vec<String> = labels.collect();
        let (suffix, value) = (sample.suffix, sample.value);
        writeln!(out, "{family}{suffix}{{{}}} {value}", labels.join(",")).expect(INFALLIBLE);
    }
    out
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The id of a role, and what it is called.
pub(crate) type NamedRole = (Uid, &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_asks_for_nothing_that_there_is_not() {
        let dashboard = include_str!("../../../docs/monitoring/grafana.json");
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = dashboard.split(|c| !is_name(c));
        let mut asked = 0;
        for word in words.filter(|word| word.starts_with("plinth_")) {
            let family = word.trim_end_matches("_bucket");
            assert!(HELP.iter().any(|(name, _)| *name == family), "{word}");
            asked += 1;
        }
        assert!(asked > 10);
    }

    #[test]
    fn families_stand_together_each_with_its_help_and_type() {
        let sample = |family, process: &str, value| Sample {
            family,
            kind: Kind::Gauge,
            suffix: "",
            labels: vec![("process", process.to_string())],
            value,
        };
        let text = text(vec![
            sample("plinth_epoch", "a\"b", 3.0),
            sample("plinth_disk_bytes", "a", 1e12),
            sample("plinth_epoch", "c", 4.5),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "# TYPE plinth_disk_bytes gauge");
        assert_eq!(lines[2], "plinth_disk_bytes{process=\"a\"} 1000000000000");
        assert!(lines[3].starts_with("# HELP plinth_epoch the newest"));
        assert_eq!(lines[5], "plinth_epoch{process=\"a\\\"b\"} 3");
        assert_eq!(lines[6], "plinth_epoch{process=\"c\"} 4.5");
    }
}
