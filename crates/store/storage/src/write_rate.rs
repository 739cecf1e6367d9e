//! The rate of writes by key over the last seconds, from a sample of the writes. Pure.

use crate::sample::cut;
use bytes::Bytes;
use plinth_runtime::{Duration, Instant};
use std::collections::VecDeque;

/// A key is noted each time that this many bytes have been written.
const UNIT: usize = 32 << 10;
/// Older notes do not count.
const SPAN: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct WriteRate {
    /// Bytes written since the last note.
    since: usize,
    notes: VecDeque<(Instant, Bytes)>,
}

impl WriteRate {
    /// Reads the clock with `now`, and only if the key is noted: this is in the hot path.
    #[inline]
    pub fn write(&mut self, key: &[u8], bytes: usize, now: impl FnOnce() -> Instant) {
        self.since += bytes;
        if self.since >= UNIT {
            let now = now();
            // A write larger than the unit is noted several times.
            while self.since >= UNIT {
                self.since -= UNIT;
                self.notes.push_back((now, Bytes::copy_from_slice(key)));
            }
            self.forget(now);
        }
    }

    fn forget(&mut self, now: Instant) {
        while self
            .notes
            .pop_front_if(|(at, _)| now.saturating_since(*at) > SPAN)
            .is_some()
        {}
    }

    /// The noted keys, in order, so that many questions can be answered.
    pub fn sorted(&mut self, now: Instant) -> Noted {
        self.forget(now);
        let mut keys: Vec<Bytes> = self.notes.iter().map(|(_, key)| key.clone()).collect();
        keys.sort();
        Noted(keys)
    }
}

pub struct Noted(Vec<Bytes>);

impl Noted {
    fn inside(&self, begin: &[u8], end: &[u8]) -> &[Bytes] {
        let at = |key: &[u8]| self.0.partition_point(|noted| noted[..] < *key);
        &self.0[at(begin)..at(end).max(at(begin))]
    }

    /// Bytes a second written to `[begin, end)`.
    pub fn bytes_a_second(&self, begin: &[u8], end: &[u8]) -> u64 {
        (self.inside(begin, end).len() * UNIT) as u64 / SPAN.as_secs()
    }

    /// Keys that cut the writes to `[begin, end)` into parts of about `part` bytes a second.
    pub fn split_points(&self, begin: &[u8], end: &[u8], part: u64) -> Vec<Bytes> {
        let mut weights: Vec<(&Bytes, u64)> = Vec::new();
        for key in self.inside(begin, end) {
            match weights.last_mut() {
                Some((last, weight)) if *last == key => *weight += UNIT as u64,
                _ => weights.push((key, UNIT as u64)),
            }
        }
        cut(
            weights.into_iter(),
            begin,
            part.saturating_mul(SPAN.as_secs()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn the_clock_is_read_only_when_a_key_is_noted() {
        let mut rate = WriteRate::default();
        rate.write(b"a", UNIT - 1, || panic!("nothing is noted"));
        assert!(rate.sorted(at(0)).0.is_empty());
        rate.write(b"b", 1, || at(0));
        assert_eq!(rate.sorted(at(0)).0, [Bytes::from("b")]);
    }

    #[test]
    fn a_write_counts_for_twenty_seconds() {
        let mut rate = WriteRate::default();
        rate.write(b"a", 5 * UNIT, || at(1));
        rate.write(b"b", 2 * UNIT, || at(11));
        assert_eq!(rate.sorted(at(21)).0.len(), 7);
        assert_eq!(rate.sorted(at(22)).0.len(), 2);
        rate.write(b"c", UNIT, || at(32));
        assert_eq!(rate.notes.len(), 1, "a write forgets what is old");
    }

    #[test]
    fn writes_count_where_they_went() {
        let noted = Noted(
            ["a", "b", "b", "b", "c", "d"]
                .into_iter()
                .map(Bytes::from)
                .collect(),
        );
        let rate = UNIT as u64 / SPAN.as_secs();
        assert_eq!(
            noted.bytes_a_second(b"b", b"c"),
            3 * UNIT as u64 / SPAN.as_secs()
        );
        assert_eq!(noted.bytes_a_second(b"x", b"z"), 0);
        assert_eq!(noted.split_points(b"", b"z", rate * 3), [Bytes::from("c")]);
        assert!(noted.split_points(b"b", b"c", rate).is_empty());
    }
}
