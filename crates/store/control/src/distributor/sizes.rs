//! The size of each shard, and since when it has been empty, from the servers' last answers. A large cluster has
//! 100,000 shards, so everything here goes over them once and in order.

use crate::movement::SHARDS_A_LOOK;
use plinth_core::key::KeyRange;
use plinth_core::system_keys::ShardRecord;
use plinth_protocol::storage::RangeMetric;
use plinth_runtime::{Duration, Instant, Pace};

/// A shard that has been empty for this long is joined to a neighbour. A shard that is emptied to be filled again is
/// not.
const STAYS_EMPTY: Duration = Duration::from_secs(20);

struct Size {
    range: KeyRange,
    /// The last answer for exactly this range.
    metric: Option<RangeMetric>,
    empty_since: Option<Instant>,
}

/// Sizes in key order.
#[derive(Default)]
pub(super) struct Sizes(Vec<Size>);

impl Sizes {
    /// Adopts these shards, numbered in their order. Keeps what is known of a range that is still a shard.
    pub async fn follow(&mut self, shards: &[(KeyRange, ShardRecord)], pace: &mut Pace) {
        let mut before = std::mem::take(&mut self.0).into_iter().peekable();
        self.0.reserve(shards.len());
        for (at, (range, _)) in shards.iter().enumerate() {
            if at.is_multiple_of(SHARDS_A_LOOK) {
                pace.rest_if_over().await;
            }
            while before
                .next_if(|size| size.range.begin < range.begin)
                .is_some()
            {}
            let size = match before.next_if(|size| size.range.begin == range.begin) {
                Some(same) if same.range.end == range.end => same,
                other => Size {
                    range: range.clone(),
                    metric: None,
                    empty_since: other.and_then(|size| size.empty_since),
                },
            };
            self.0.push(size);
        }
    }

    /// Stores the answer of a holder of the shard with this number.
    pub fn learn(&mut self, number: usize, metric: RangeMetric) {
        self.0[number].metric = Some(metric);
    }

    /// Updates since when shards have been empty. Must be called once for each look. A shard of unknown size keeps
    /// its state.
    pub fn note_empty(&mut self, now: Instant) {
        for size in &mut self.0 {
            let is_empty = match &size.metric {
                Some(metric) => metric.bytes == 0 && metric.write_bytes_a_second == 0,
                None => size.empty_since.is_some(),
            };
            size.empty_since = is_empty.then(|| size.empty_since.unwrap_or(now));
        }
    }

    pub fn metric(&self, number: usize) -> Option<&RangeMetric> {
        self.0[number].metric.as_ref()
    }

    pub fn stays_empty(&self, number: usize, now: Instant) -> bool {
        let since = self.0[number].empty_since;
        since.is_some_and(|since| now.saturating_since(since) >= STAYS_EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real;

    fn shards(begins: &[&'static str]) -> Vec<(KeyRange, ShardRecord)> {
        let ends = begins.iter().skip(1).chain(&["z"]);
        let ranges = begins.iter().zip(ends);
        let record = ShardRecord {
            team: vec![],
            destination: vec![],
        };
        ranges
            .map(|(begin, end)| (KeyRange::new(*begin, *end), record.clone()))
            .collect()
    }

    fn follow(sizes: &mut Sizes, begins: &[&'static str]) {
        let shards = shards(begins);
        real::block_on(async { sizes.follow(&shards, &mut Pace::new()).await });
        assert_eq!(sizes.0.len(), begins.len());
    }

    fn of_bytes(bytes: u64) -> RangeMetric {
        RangeMetric {
            bytes,
            write_bytes_a_second: 0,
        }
    }

    #[test]
    fn the_size_of_a_shard_that_is_cut_or_joined_is_no_longer_known_and_the_others_are() {
        let mut sizes = Sizes::default();
        follow(&mut sizes, &["", "b", "d", "f"]);
        (0..4).for_each(|i| sizes.learn(i, of_bytes(10 + i as u64)));
        let known = |sizes: &Sizes| -> Vec<Option<u64>> {
            let bytes = |size: &Size| size.metric.as_ref().map(|metric| metric.bytes);
            sizes.0.iter().map(bytes).collect()
        };
        follow(&mut sizes, &["", "b", "c", "d", "f"]);
        assert_eq!(known(&sizes), [Some(10), None, None, Some(12), Some(13)]);
        follow(&mut sizes, &["", "d"]);
        assert_eq!(known(&sizes), [None, None]);
    }

    #[test]
    fn a_shard_is_empty_since_it_was_first_seen_so_until_there_is_something_in_it() {
        let at = |s: u64| Instant(s * 1_000_000_000);
        let mut sizes = Sizes::default();
        follow(&mut sizes, &["", "b"]);
        sizes.learn(0, of_bytes(0));
        sizes.note_empty(at(1));
        follow(&mut sizes, &["", "a", "b"]);
        sizes.note_empty(at(15));
        assert!(!sizes.stays_empty(0, at(20)));
        assert!(sizes.stays_empty(0, at(21)));
        assert!(!sizes.stays_empty(1, at(99)) && !sizes.stays_empty(2, at(99)));
        sizes.learn(0, of_bytes(1));
        sizes.note_empty(at(22));
        sizes.learn(0, of_bytes(0));
        sizes.note_empty(at(23));
        assert!(!sizes.stays_empty(0, at(42)));
    }
}
