//! Commit latency, for the ratekeeper: from the arrival of a batch's first transaction to its answer.

use plinth_runtime::standing::Standing;
use plinth_runtime::{Duration, Instant};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Latency {
    /// Arrival of the first transaction of each batch under way, by the batch's number.
    under_way: BTreeMap<i64, Instant>,
    standing: Standing,
    /// Transactions answered so far.
    pub answered: u64,
}

impl Latency {
    pub fn begin(&mut self, batch: i64, arrival: Instant) {
        self.under_way.insert(batch, arrival);
    }

    pub fn end(&mut self, batch: i64, count: usize, now: Instant) {
        self.answered += count as u64;
        if let Some(arrival) = self.under_way.remove(&batch) {
            self.standing.add(now, now.saturating_since(arrival));
        }
    }

    /// The least latency of recent batches. If none has ended lately, the time that the oldest batch has been waiting.
    pub fn standing(&mut self, now: Instant) -> Duration {
        let oldest = self.under_way.values().next();
        let waiting = || oldest.map_or(Duration::ZERO, |at| now.saturating_since(*at));
        self.standing.least(now).unwrap_or_else(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_counts_when_nothing_else_has() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let mut latency = Latency::default();
        latency.begin(1, at(1000));
        assert_eq!(latency.standing(at(1030)).as_millis(), 30);
        latency.begin(2, at(1035));
        latency.end(1, 5, at(1040));
        assert_eq!(latency.standing(at(1100)).as_millis(), 40);
        assert_eq!(latency.standing(at(3035)).as_millis(), 2000);
        assert_eq!(latency.answered, 5);
    }
}
