//! What some numbers of a process were in the last hour: three lines of 360 points, 12 KB.

use super::Kind;
use crate::{Duration, Instant};
use std::collections::VecDeque;

/// Between two points.
const INTERVAL: Duration = Duration::from_secs(10);
const POINTS: usize = 360;

/// A line, and the metric whose samples add up to it: of a counter, how much it grows in a second.
const LINES: [(&str, &str, Kind); 3] = [
    ("requests a second", "plinth_requests_total", Kind::Counter),
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

#[derive(Debug, Default)]
pub struct History {
    last: Option<(Instant, [f64; LINES.len()])>,
    points: VecDeque<[f64; LINES.len()]>,
}

impl History {
    /// `sum` gives the sum of the samples of a metric.
    pub fn add(&mut self, at: Instant, sum: impl Fn(&str) -> f64) {
        let sums = LINES.map(|(_, metric, _)| sum(metric));
        let Some((before_at, before)) = self.last else {
            self.last = Some((at, sums));
            return;
        };
        let passed = at.saturating_since(before_at);
        if passed < INTERVAL {
            return;
        }
        let point = std::array::from_fn(|i| match LINES[i].2 {
            Kind::Counter => (sums[i] - before[i]).max(0.0) / passed.as_secs_f64(),
            _ => sums[i],
        });
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.last = Some((at, sums));
    }

    pub fn lines(&self) -> Vec<(&'static str, Vec<f64>)> {
        let line = |i: usize| self.points.iter().map(|point| point[i]).collect();
        let lines = LINES.iter().enumerate();
        lines.map(|(i, (name, ..))| (*name, line(i))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_a_rate_and_no_more_than_an_hour_is_kept() {
        let mut history = History::default();
        for second in 0..4000u32 {
            let at = Instant(1_000_000_000) + Duration::from_secs(second.into());
            history.add(at, |metric| match metric {
                "plinth_process_cpu_seconds_total" => f64::from(second) / 2.0,
                _ => 0.25,
            });
        }
        let lines = history.lines();
        assert_eq!(lines[0].1, vec![0.0; POINTS]);
        assert_eq!(lines[1].1, vec![0.5; POINTS]);
        assert_eq!(lines[2].1, vec![0.25; POINTS]);
        assert!(size_of::<[f64; LINES.len()]>() * POINTS < 16 << 10);
    }
}
