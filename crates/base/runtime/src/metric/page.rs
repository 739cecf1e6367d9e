//! A page of metrics, in the terms of Prometheus.

use super::history::History;
use super::latency::{BUCKETS, Timed, bucket_end};
use super::{Family, Kind, Labelled, counts, values};
use crate::{Duration, Instant, now, sleep};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

crate::metric! {
    TURN_SECONDS: Histogram = "plinth_loop_turn_seconds",
        "length of a turn of the event loop: all that runs between two looks at its sockets and timers";
}

/// Who looks at a page that renews itself looks again within this time.
const LOOKING: Duration = Duration::from_secs(20);
/// Between two statuses while somebody looks.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// Until it is known that somebody looks.
const UNTIL_LOOKED_AT: Duration = Duration::from_millis(250);
/// A process that has not said for so long whether it is ready is not.
const SILENT_LIMIT: Duration = Duration::from_secs(5);

/// What a process says to whoever asks whether it is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub is_ready: bool,
    /// Why it is not ready, or what is remarkable although it is. Empty: nothing.
    pub words: String,
}

impl Verdict {
    pub fn not(words: impl Into<String>) -> Verdict {
        Verdict {
            is_ready: false,
            words: words.into(),
        }
    }
}

/// One number of a page.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub family: &'static Family,
    /// For a histogram: which of its numbers this is.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// The samples of a process, as new as their owner keeps them, and whether it is ready. Shared with the thread that
/// serves them.
#[derive(Clone, Default, Debug)]
pub struct Page(Arc<Mutex<Content>>);

#[derive(Default, Debug)]
struct Content {
    cluster: String,
    samples: Vec<Sample>,
    /// What the process said, and when.
    ready: Option<(Instant, Verdict)>,
    /// The cluster's status, and when it was so.
    status: Option<(Instant, Arc<str>)>,
    /// When somebody looked at the status last.
    looked: Option<Instant>,
    history: History,
}

impl Page {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All samples, with the label `cluster` if that is known.
    pub fn samples(&self) -> Vec<Sample> {
        let content = self.content();
        of_cluster(&content.cluster, content.samples.clone())
    }

    /// The cluster or service of the process: one Prometheus watches several.
    pub fn name_cluster(&self, cluster: &str) {
        let mut content = self.content();
        if content.cluster != cluster {
            content.cluster = cluster.to_owned();
        }
    }

    /// Replaces all samples.
    pub fn set(&self, samples: Vec<Sample>) {
        let mut content = self.content();
        content.history.add(now(), |metric, suffix| {
            let is_it = |of: &&Sample| of.family.name == metric && of.suffix == suffix;
            let own = samples.iter().filter(is_it);
            own.map(|sample| sample.value).reduce(|a, b| a + b)
        });
        content.samples = samples;
    }

    /// The newest status of the cluster that is known, and how old it is. From now on, as long as somebody looks, it
    /// is kept up to date.
    pub fn look(&self) -> Option<(Arc<str>, Duration)> {
        let mut content = self.content();
        content.looked = Some(now());
        let (at, status) = content.status.clone()?;
        Some((status, at.elapsed()))
    }

    /// Whether somebody looks.
    pub fn is_looked_at(&self) -> bool {
        let looked = self.content().looked;
        looked.is_some_and(|at| at.elapsed() < LOOKING)
    }

    pub fn set_status(&self, status: &str) {
        self.content().status = Some((now(), status.into()));
    }

    /// Keeps the status up to date while somebody looks, for ever: `ask` gives the newest, or nothing.
    pub async fn keep_status(&self, ask: impl AsyncFn() -> Option<String>) -> Infallible {
        loop {
            if !self.is_looked_at() {
                sleep(UNTIL_LOOKED_AT).await;
                continue;
            }
            if let Some(status) = ask().await {
                self.set_status(&status);
            }
            sleep(LOOKED_AT).await;
        }
    }

    /// The numbers of the last hour, by name.
    pub fn history(&self) -> Vec<(&'static str, Vec<f64>)> {
        self.content().history.lines()
    }

    pub fn cluster(&self) -> String {
        self.content().cluster.clone()
    }

    /// Replaces what the process says of itself.
    pub fn set_ready(&self, verdict: Verdict) {
        self.content().ready = Some((now(), verdict));
    }

    /// What the process said last, however long ago.
    pub fn said(&self) -> Verdict {
        let said = self.content().ready.clone();
        said.map_or_else(|| Verdict::not("it has just begun"), |(_, verdict)| verdict)
    }

    /// Whether the process is ready. A process that has said nothing for long is not: its event loop stands.
    pub fn ready(&self) -> Verdict {
        let age = self.content().ready.as_ref().map(|(at, _)| at.elapsed());
        match age {
            Some(age) if age > SILENT_LIMIT => {
                let age = age.as_secs_f64();
                Verdict::not(format!("its event loop has stood for {age:.1} s"))
            }
            _ => self.said(),
        }
    }
}

/// Samples that are being collected, all with the label `process`.
pub struct Samples {
    process: String,
    list: Vec<Sample>,
}

impl Samples {
    /// No samples yet, of the process with this address.
    pub fn of_process(address: SocketAddr) -> Self {
        Samples {
            process: address.to_string(),
            list: Vec::new(),
        }
    }

    pub fn add(&mut self, family: &'static Family, labels: &[(&'static str, String)], value: f64) {
        self.add_part(family, "", labels, value);
    }

    fn add_part(
        &mut self,
        family: &'static Family,
        suffix: &'static str,
        labels: &[(&'static str, String)],
        value: f64,
    ) {
        let mut all = vec![("process", self.process.clone())];
        all.extend_from_slice(labels);
        self.list.push(Sample {
            family,
            suffix,
            labels: all,
            value,
        });
    }

    /// Adds what [`Family::add`] and [`Values`](super::Values) have counted on this thread, and the turns of its loop.
    pub fn add_counted(&mut self) {
        self.add_histogram(&TURN_SECONDS, ("loop", "main".into()), &crate::turns());
        for (family, count) in counts() {
            self.add(family, &[], count as f64);
        }
        // Two who follow the same file say the same.
        let mut told = BTreeSet::new();
        for Labelled {
            family,
            labels,
            value,
        } in values()
        {
            if told.insert((family.name, labels.clone())) {
                self.add(family, &labels, value);
            }
        }
    }

    /// Adds all numbers of a histogram of seconds.
    pub fn add_histogram(
        &mut self,
        family: &'static Family,
        label: (&'static str, String),
        timed: &Timed,
    ) {
        let mut up_to = 0;
        for i in 0..BUCKETS {
            up_to += timed.buckets[i];
            let end = bucket_end(i).map_or("+Inf".into(), |end| end.as_secs_f64().to_string());
            let labels = [label.clone(), ("le", end)];
            self.add_part(family, "_bucket", &labels, up_to as f64);
        }
        let labels = [label];
        self.add_part(family, "_sum", &labels, timed.sum.as_secs_f64());
        self.add_part(family, "_count", &labels, timed.count as f64);
    }

    pub fn into_list(self) -> Vec<Sample> {
        self.list
    }
}

/// Samples with the label `cluster`, unless that is empty.
pub fn of_cluster(cluster: &str, mut samples: Vec<Sample>) -> Vec<Sample> {
    if !cluster.is_empty() {
        for sample in &mut samples {
            sample.labels.insert(0, ("cluster", cluster.to_owned()));
        }
    }
    samples
}

/// Prometheus' text format (0.0.4): families one after the other, each with its help text.
pub fn text(mut samples: Vec<Sample>) -> String {
    const INFALLIBLE: &str = "writing to a string";
    samples.sort_by_key(|sample| sample.family.name); // stable: the samples of a family keep their order
    let (mut out, mut before) = (String::new(), "");
    for sample in &samples {
        let Family { name, kind, help } = sample.family;
        if *name != before {
            before = name;
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
        }
        let labels = sample.labels.iter();
        let labels = labels.map(|(label, value)| format!("{label}=\"{}\"", escape(value)));
        let labels: Vec<String> = labels.collect();
        let (suffix, value) = (sample.suffix, sample.value);
        writeln!(out, "{name}{suffix}{{{}}} {value}", labels.join(",")).expect(INFALLIBLE);
    }
    out
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric;

    metric! {
        BYTES: Gauge = "plinth_test_a_bytes", "bytes of a test";
        NUMBER: Gauge = "plinth_test_b_number", "the newest number of a test";
    }

    #[test]
    fn families_stand_together_each_with_its_help_and_type() {
        let sample = |family, process: &str, value| Sample {
            family,
            suffix: "",
            labels: vec![("process", process.to_string())],
            value,
        };
        let text = text(vec![
            sample(&NUMBER, "a\"b", 3.0),
            sample(&BYTES, "a", 1e12),
            sample(&NUMBER, "c", 4.5),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "# TYPE plinth_test_a_bytes gauge");
        assert_eq!(lines[2], "plinth_test_a_bytes{process=\"a\"} 1000000000000");
        assert!(lines[3].starts_with("# HELP plinth_test_b_number the newest"));
        assert_eq!(lines[5], "plinth_test_b_number{process=\"a\\\"b\"} 3");
        assert_eq!(lines[6], "plinth_test_b_number{process=\"c\"} 4.5");
    }
}
