//! Throughput, latencies and ratios.

use hdrhistogram::Histogram;
use plinth_measure::latency::{histogram, record};
use plinth_measure::samples::median;
use plinth_runtime::{Duration, Instant, now};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Processor time of this thread, in seconds.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Time and processor time from its making on.
pub struct Watch {
    begun: Instant,
    cpu_s: f64,
}

/// A future whose processor time is added up, apart from that of others on its thread.
pub struct Timed<'a, F> {
    future: Pin<Box<F>>,
    cpu_s: &'a Cell<f64>,
}

impl<'a, F> Timed<'a, F> {
    pub fn new(future: F, cpu_s: &'a Cell<f64>) -> Timed<'a, F> {
        let future = Box::pin(future);
        Timed { future, cpu_s }
    }
}

impl<F: Future> Future for Timed<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let before = cpu_s();
        let polled = self.future.as_mut().poll(context);
        self.cpu_s.set(self.cpu_s.get() + cpu_s() - before);
        polled
    }
}

/// Seconds of a measured interval.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spent {
    pub wall_s: f64,
    pub cpu_s: f64,
}

impl Watch {
    pub fn start() -> Watch {
        Watch {
            begun: now(),
            cpu_s: cpu_s(),
        }
    }

    pub fn stop(&self) -> Spent {
        Spent {
            wall_s: self.begun.elapsed().as_secs_f64(),
            cpu_s: cpu_s() - self.cpu_s,
        }
    }
}

impl Spent {
    pub fn add(&mut self, other: Spent) {
        self.wall_s += other.wall_s;
        self.cpu_s += other.cpu_s;
    }

    pub fn a_second(&self, count: u64) -> f64 {
        count as f64 / self.wall_s.max(1e-9)
    }

    /// Per second of the thread's processor time: what one core would do alone.
    pub fn a_core(&self, count: u64) -> f64 {
        count as f64 / self.cpu_s.max(1e-9)
    }
}

/// Latencies in nanoseconds.
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(histogram())
    }
}

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        record(&mut self.0, latency);
    }

    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("the same bounds");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        match self.0.is_empty() {
            true => 0.0,
            false => self.0.value_at_quantile(quantile) as f64 / 1000.0,
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "count": self.count(),
            "p50_us": self.quantile_us(0.5),
            "p99_us": self.quantile_us(0.99),
        })
    }
}

/// How often attempts have ended without effect, by reason.
#[derive(Default)]
pub struct Aborts(BTreeMap<String, u64>);

impl Aborts {
    pub fn add(&mut self, reason: String) {
        *self.0.entry(reason).or_default() += 1;
    }

    pub fn merge(&mut self, other: Aborts) {
        for (reason, count) in other.0 {
            *self.0.entry(reason).or_default() += count;
        }
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn to_json(&self) -> Value {
        json!(self.0)
    }
}

/// The median of `of[i] / by[i]`: what was measured in the same round is compared. 0 if there was none.
pub fn ratio(of: &[f64], by: &[f64]) -> f64 {
    let both = of.iter().zip(by).filter(|(_, by)| **by > 0.0);
    median(both.map(|(of, by)| of / by).collect()).unwrap_or(0.0)
}
