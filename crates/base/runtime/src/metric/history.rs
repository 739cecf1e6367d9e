//! What some numbers of a process were in the last hour. A process keeps the lines of the metrics that it has.

use super::Kind;
use crate::{Duration, Instant};
use std::collections::VecDeque;

/// Between two points.
const INTERVAL: Duration = Duration::from_secs(10);
const POINTS: usize = 360;

/// A line, and the metric whose samples add up to it: of a counter, how much it grows in a second; of a histogram of
/// seconds, the mean in milliseconds of what was measured since the point before.
const LINES: [(&str, &str, Kind); 18] = [
    ("requests a second", "plinth_requests_total", Kind::Counter),
    (
        "requests of clients a second",
        "plinth_keeper_requests_total",
        Kind::Counter,
    ),
    (
        "transactions committed by its proxies a second",
        "plinth_transactions_committed_total",
        Kind::Counter,
    ),
    (
        "transactions committed a second",
        "plinth_farm_transactions_committed_total",
        Kind::Counter,
    ),
    (
        "transactions aborted a second",
        "plinth_farm_transactions_aborted_total",
        Kind::Counter,
    ),
    // A position that only grows.
    (
        "entries applied a second",
        "plinth_delos_applied_position",
        Kind::Counter,
    ),
    (
        "requests answered in, milliseconds",
        "plinth_request_seconds",
        Kind::Histogram,
    ),
    (
        "requests of clients answered in, milliseconds",
        "plinth_keeper_request_seconds",
        Kind::Histogram,
    ),
    (
        "proposals answered in, milliseconds",
        "plinth_delos_propose_seconds",
        Kind::Histogram,
    ),
    (
        "probes of the database answered in, milliseconds",
        "plinth_probe_seconds",
        Kind::Histogram,
    ),
    (
        "storage server that lags most, seconds behind",
        "plinth_storage_lag_seconds",
        Kind::Gauge,
    ),
    (
        "bytes of shards that move",
        "plinth_moving_bytes",
        Kind::Gauge,
    ),
    (
        "safe point, seconds behind",
        "plinth_farm_safe_point_age_seconds",
        Kind::Gauge,
    ),
    ("sessions of this gateway", "global_sessions", Kind::Gauge),
    (
        "watches of clients of this gateway",
        "watch_count",
        Kind::Gauge,
    ),
    (
        "writes that wait for a transaction",
        "outstanding_requests",
        Kind::Gauge,
    ),
    (
        "processor, cores",
        "plinth_process_cpu_seconds_total",
        Kind::Counter,
    ),
    (
        "event loop late, seconds",
        "plinth_loop_lag_seconds",
        Kind::Gauge,
    ),
];

/// `None`: the process has no such metric now. Of a histogram: the sum of its values, and their number.
type Sums = [Option<(f64, f64)>; LINES.len()];

#[derive(Debug, Default)]
pub struct History {
    last: Option<(Instant, Sums)>,
    /// Not a number where nothing was known.
    points: VecDeque<[f32; LINES.len()]>,
}

impl History {
    /// `sum` gives the sum of the samples of a metric with a suffix, if there is one.
    pub fn add(&mut self, at: Instant, sum: impl Fn(&str, &str) -> Option<f64>) {
        let since = self.last.map(|(before, _)| at.saturating_since(before));
        if since.is_some_and(|passed| passed < INTERVAL) {
            return;
        }
        let sums: Sums = LINES.map(|(_, metric, kind)| match kind {
            Kind::Histogram => Some((sum(metric, "_sum")?, sum(metric, "_count")?)),
            _ => Some((sum(metric, "")?, 0.0)),
        });
        let before = self.last.replace((at, sums));
        let (Some((_, before)), Some(passed)) = (before, since) else {
            return;
        };
        let point = std::array::from_fn(|i| {
            let at = point(LINES[i].2, sums[i], before[i], passed.as_secs_f64());
            at.map_or(f32::NAN, |at| at as f32)
        });
        match self.points.len() {
            0 => self.points.reserve_exact(POINTS),
            POINTS => drop(self.points.pop_front()),
            _ => {}
        }
        self.points.push_back(point);
    }

    /// The lines of which something was known in this hour, a point every ten seconds. What was not known is no
    /// number.
    pub fn lines(&self) -> Vec<(&'static str, Vec<f64>)> {
        let line = |i: usize| -> Vec<f64> {
            let points = self.points.iter();
            points.map(|point| f64::from(point[i])).collect()
        };
        let lines = LINES.iter().enumerate();
        let lines = lines.map(|(i, (name, ..))| (*name, line(i)));
        lines
            .filter(|(_, points)| points.iter().any(|point| !point.is_nan()))
            .collect()
    }
}

fn point(
    kind: Kind,
    now: Option<(f64, f64)>,
    before: Option<(f64, f64)>,
    seconds: f64,
) -> Option<f64> {
    let (sum, count) = now?;
    match kind {
        Kind::Gauge => Some(sum),
        Kind::Counter => Some((sum - before?.0).max(0.0) / seconds),
        Kind::Histogram => {
            let (earlier, measured) = before?;
            let measured = count - measured;
            (measured > 0.0).then(|| 1e3 * (sum - earlier).max(0.0) / measured)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_a_rate_a_histogram_a_mean_and_no_more_than_an_hour_is_kept() {
        let mut history = History::default();
        for second in 0..4000u32 {
            let at = Instant(1_000_000_000) + Duration::from_secs(second.into());
            history.add(at, |metric, suffix| match (metric, suffix) {
                ("plinth_process_cpu_seconds_total", "") => Some(f64::from(second) / 2.0),
                ("plinth_loop_lag_seconds", "") => Some(0.25),
                ("plinth_probe_seconds", "_sum") => Some(f64::from(second) / 100.0),
                ("plinth_probe_seconds", "_count") => Some(f64::from(second)),
                _ => None,
            });
        }
        let lines = history.lines();
        let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
        let wanted = [
            "probes of the database answered in, milliseconds",
            "processor, cores",
            "event loop late, seconds",
        ];
        assert_eq!(names, wanted);
        assert!(lines[0].1.iter().all(|at| (at - 10.0).abs() < 1e-3));
        assert_eq!(lines[1].1, vec![0.5; POINTS]);
        assert_eq!(lines[2].1, vec![0.25; POINTS]);
    }

    #[test]
    fn what_a_process_keeps_of_the_hour_takes_at_most_64_kb() {
        let mut history = History::default();
        for second in 0..8000u32 {
            let at = Instant(1_000_000_000) + Duration::from_secs(second.into());
            history.add(at, |_, _| Some(f64::from(second)));
        }
        assert_eq!(history.lines().len(), LINES.len());
        let kept =
            history.points.capacity() * size_of::<[f32; LINES.len()]>() + size_of::<History>();
        assert!(kept <= 64 << 10, "{kept} bytes");
    }

    #[test]
    fn a_metric_that_comes_later_or_goes_away_leaves_a_gap() {
        let mut history = History::default();
        for step in 0..4u32 {
            let at = Instant(1_000_000_000) + Duration::from_secs(u64::from(step) * 10);
            let known = matches!(step, 1 | 2);
            history.add(at, |metric, _| {
                (metric == "plinth_requests_total" && known).then(|| f64::from(step) * 50.0)
            });
        }
        let [(_, points)] = &history.lines()[..] else {
            panic!("one line");
        };
        assert!(points[0].is_nan() && points[2].is_nan());
        assert_eq!(points[1], 5.0);
    }
}
