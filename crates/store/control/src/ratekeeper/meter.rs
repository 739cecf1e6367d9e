//! How fast a counter grows, and when the committed version had which value.

use plinth_core::Version;
use plinth_runtime::{Duration, Instant};
use std::collections::VecDeque;

/// Rates are measured over about this time.
const WINDOW: Duration = Duration::from_millis(1000);
/// Length of a history.
const HISTORY: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(super) struct Meter {
    readings: VecDeque<(Instant, f64)>,
    /// Rates are over this many windows: more where the counted events come in bursts.
    windows: u32,
}

impl Meter {
    pub fn lumpy() -> Self {
        Meter {
            readings: VecDeque::new(),
            windows: 5,
        }
    }

    /// Records the current value of the counter. If it is lower than before, the counter has started again.
    pub fn read(&mut self, now: Instant, total: f64) {
        let readings = &mut self.readings;
        if readings.back().is_some_and(|(_, before)| total < *before) {
            readings.clear();
        }
        let last = readings.back().map(|(at, _)| *at);
        assert!(
            last.is_none_or(|last| last <= now),
            "a reading at {now:?} after {last:?}"
        );
        readings.push_back((now, total));
        let window = WINDOW * self.windows.max(1);
        while readings.len() > 2 && now.saturating_since(readings[1].0) >= window {
            readings.pop_front();
        }
    }

    pub fn last(&self) -> Option<Instant> {
        self.readings.back().map(|(at, _)| *at)
    }

    /// Growth a second; 0 until there are two readings.
    pub fn rate(&self) -> f64 {
        let (Some((from, before)), Some((to, after))) =
            (self.readings.front(), self.readings.back())
        else {
            return 0.0;
        };
        let seconds = to.saturating_since(*from).as_secs_f64();
        if seconds > 0.0 {
            (after - before) / seconds
        } else {
            0.0
        }
    }
}

/// When the newest committed version had which value. Versions jump by a hundred seconds at a recovery, so only this
/// history shows how long a server really is behind.
#[derive(Default)]
pub(super) struct History(VecDeque<(Instant, Version)>);

impl History {
    pub fn read(&mut self, now: Instant, version: Version) {
        if self.0.back().is_none_or(|(_, newest)| version > *newest) {
            self.0.push_back((now, version));
        }
        while self.0.len() > 2 && now.saturating_since(self.0[1].0) >= HISTORY {
            self.0.pop_front();
        }
    }

    /// Seconds, at least, since the first version above `version` was seen.
    pub fn behind_s(&self, now: Instant, version: Version) -> f64 {
        let at = self.0.partition_point(|(_, known)| *known <= version);
        let newer_since = self.0.get(at).map(|(since, _)| *since);
        newer_since.map_or(0.0, |since| now.saturating_since(since).as_secs_f64())
    }
}

/// The output as a share of the input; 1 if the input is at most `input_least`.
pub(super) fn share(output: &Meter, input: &Meter, input_least: f64) -> f64 {
    if input.rate() <= input_least {
        1.0
    } else {
        (output.rate() / input.rate()).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_come_past_a_jump_of_versions_is_behind_since_the_jump_was_seen() {
        let at = |s: u64| Instant(s * 1_000_000_000);
        let mut history = History::default();
        history.read(at(1), 1_000_000);
        history.read(at(2), 2_000_000);
        history.read(at(3), 103_000_000);
        history.read(at(4), 104_000_000);
        assert_eq!(history.behind_s(at(5), 104_000_000), 0.0);
        assert_eq!(history.behind_s(at(5), 103_500_000), 1.0);
        assert_eq!(history.behind_s(at(5), 2_000_000), 2.0);
        assert_eq!(history.behind_s(at(5), 0), 4.0);
        history.read(at(200), 300_000_000);
        history.read(at(201), 301_000_000);
        assert!(history.0.len() <= 4);
    }

    #[test]
    fn it_forgets_what_is_older_than_a_second() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let mut meter = Meter::default();
        assert_eq!(meter.rate(), 0.0);
        meter.read(at(0), 0.0);
        meter.read(at(500), 100.0);
        assert_eq!(meter.rate(), 200.0);
        (2..10).for_each(|i| meter.read(at(i * 500), 100.0 + (i - 1) as f64 * 10.0));
        assert_eq!(meter.rate(), 20.0);
        meter.read(at(5000), 5.0);
        assert_eq!(meter.rate(), 0.0);
    }
}
