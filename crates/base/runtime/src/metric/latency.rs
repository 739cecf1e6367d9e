//! How many requests of each kind a process received, and how long its answers took.

use crate::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// [`Latency::ask`] has one request in this many timed: to read the clock twice for each would cost a point read five
/// percent.
const SAMPLED: u64 = 16;
/// Bucket `i` ends at 1 µs · 2ⁱ, up to about 17 s; the last bucket holds all longer times.
pub const BUCKETS: usize = 26;

/// Requests of one kind.
#[derive(Default)]
pub struct Latency {
    asked: Cell<u64>,
    timed: RefCell<Timed>,
}

/// The times of the timed requests, as a histogram.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Timed {
    pub count: u64,
    pub sum: Duration,
    pub buckets: [u64; BUCKETS],
}

/// The end of bucket `i`; none for the last.
pub fn bucket_end(i: usize) -> Option<Duration> {
    (i + 1 < BUCKETS).then(|| Duration::from_micros(1 << i))
}

/// The bucket that holds the quantile: so large a share of the times is there or in those before it. `None` if there
/// are no times.
pub fn bucket_of(buckets: &[u64], share: f64) -> Option<usize> {
    let count: u64 = buckets.iter().sum();
    let wanted = ((count as f64 * share).ceil() as u64).max(1);
    let mut up_to = 0;
    buckets.iter().position(|times| {
        up_to += times;
        up_to >= wanted
    })
}

impl Timed {
    pub(crate) fn add(&mut self, took: Duration) {
        let us = took.as_micros().max(1) as u64;
        // The first bucket whose end is not below `took`.
        let bucket = (u64::BITS - (us - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum += took;
    }

    /// Those that came after `before`, which counted the same requests.
    pub fn since(&self, before: &Timed) -> Timed {
        let mut since = self.clone();
        since.count = since.count.saturating_sub(before.count);
        since.sum = since.sum.saturating_sub(before.sum);
        for (now, before) in since.buckets.iter_mut().zip(before.buckets) {
            *now = now.saturating_sub(before);
        }
        since
    }

    /// Adds the times of other requests.
    pub fn add_all(&mut self, other: &Timed) {
        self.count += other.count;
        self.sum += other.sum;
        for (all, more) in self.buckets.iter_mut().zip(other.buckets) {
            *all += more;
        }
    }
}

impl Latency {
    /// Counts a request; true if it is to be timed.
    pub fn ask(&self) -> bool {
        let asked = self.asked.get() + 1;
        self.asked.set(asked);
        asked.is_multiple_of(SAMPLED)
    }

    /// Notes how long a request took that was to be timed.
    pub fn answered(&self, since: Instant) {
        self.timed.borrow_mut().add(since.elapsed());
    }

    pub fn asked(&self) -> u64 {
        self.asked.get()
    }

    pub fn timed(&self) -> Timed {
        self.timed.borrow().clone()
    }
}

/// Latencies by name of the request.
#[derive(Default)]
pub struct Latencies(RefCell<BTreeMap<&'static str, Rc<Latency>>>);

impl Latencies {
    pub fn of(&self, name: &'static str) -> Rc<Latency> {
        self.0.borrow_mut().entry(name).or_default().clone()
    }

    pub fn all(&self) -> Vec<(&'static str, Rc<Latency>)> {
        let all = self.0.borrow();
        all.iter().map(|(name, l)| (*name, l.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_not_longer_than_its_end() {
        let bucket_of = |us: u64| {
            let mut timed = Timed::default();
            timed.add(Duration::from_micros(us));
            timed.buckets.iter().position(|n| *n == 1).expect("one")
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 1024, 1025].map(bucket_of),
            [0, 1, 2, 2, 3, 10, 11]
        );
        for us in [1u64, 7, 100, 4096, 1_000_000] {
            let bucket = bucket_of(us);
            assert!(bucket_end(bucket).expect("an end") >= Duration::from_micros(us));
        }
        assert_eq!(bucket_of(3_600_000_000), BUCKETS - 1);
        assert_eq!(bucket_end(BUCKETS - 1), None);
    }

    #[test]
    fn a_quantile_is_in_the_bucket_up_to_which_there_are_so_many() {
        let quantiles =
            |buckets: &[u64]| [0.0, 0.5, 0.99, 1.0].map(|share| bucket_of(buckets, share));
        assert_eq!(
            quantiles(&[0, 99, 0, 1]),
            [Some(1), Some(1), Some(1), Some(3)]
        );
        assert_eq!(quantiles(&[98, 0, 2]), [Some(0), Some(0), Some(2), Some(2)]);
        assert_eq!(quantiles(&[0, 0]), [None; 4]);
        assert_eq!(quantiles(&[]), [None; 4]);
    }

    #[test]
    fn every_request_is_counted_and_one_in_sixteen_timed() {
        let latency = Latencies::default().of("Get");
        assert_eq!((0..160).filter(|_| latency.ask()).count(), 10);
        assert_eq!(latency.asked(), 160);
    }
}
