//! Who gets a read version, and when (FDB §2.3.1: Ratekeeper provides overload protection).
//!
//! Requests wait in one queue a priority. System transactions always pass. Those of default priority pass while their
//! bucket has something left; those of batch priority while, beside that, the sum of all is below a lower rate. A request
//! speaks for many transactions of one client: it is let in for as many as there is room for, and the client asks again for
//! the rest. So every client gets its turn, however many it has waiting.

use super::bucket::Bucket;
use plinth_protocol::rate::Rate;
use plinth_protocol::transaction::{PRIORITY_BATCH, PRIORITY_DEFAULT, PRIORITY_SYSTEM};
use plinth_runtime::{Duration, Instant};
use std::collections::VecDeque;

pub(super) struct Asked<T> {
    pub count: u32,
    pub priority: u8,
    pub item: T,
}

/// The state machine.
pub(super) struct Admission<T> {
    /// By priority.
    queues: [VecDeque<Asked<T>>; 3],
    default: Bucket,
    /// Everybody draws on it; only work of batch priority depends on it.
    batch: Bucket,
    admitted: u64,
}

impl<T> Admission<T> {
    /// Without a limit, until the ratekeeper names one.
    pub fn new(now: Instant) -> Self {
        Admission {
            queues: std::array::from_fn(|_| VecDeque::new()),
            default: Bucket::unlimited(now),
            batch: Bucket::unlimited(now),
            admitted: 0,
        }
    }

    /// Transactions let in so far.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub fn set_rate(&mut self, now: Instant, rate: &Rate) {
        self.default.set_rate(now, rate.default);
        self.batch.set_rate(now, rate.batch);
    }

    pub fn push(&mut self, asked: Asked<T>) {
        let priority = asked.priority.min(PRIORITY_BATCH);
        self.queues[priority as usize].push_back(asked);
    }

    /// Those that may go on, and for how many transactions each.
    pub fn take(&mut self, now: Instant) -> Vec<(T, u32)> {
        let mut taken = Vec::new();
        for priority in [PRIORITY_SYSTEM, PRIORITY_DEFAULT, PRIORITY_BATCH] {
            while let Some(first) = self.queues[priority as usize].front() {
                let wanted = first.count.max(1);
                let count = wanted.min(self.room(now, priority));
                if count == 0 {
                    break;
                }
                self.default.draw(count);
                self.batch.draw(count);
                self.admitted += u64::from(count);
                let first = self.queues[priority as usize].pop_front();
                taken.push((first.expect("just seen").item, count));
            }
        }
        taken
    }

    fn room(&mut self, now: Instant, priority: u8) -> u32 {
        match priority {
            PRIORITY_SYSTEM => u32::MAX,
            PRIORITY_DEFAULT => self.default.room(now),
            _ => self.default.room(now).min(self.batch.room(now)),
        }
    }

    /// After how long [`Admission::take`] has something to give; `None` if nobody waits.
    pub fn wait(&self) -> Option<Duration> {
        let default = self.default.wait();
        if !self.queues[PRIORITY_DEFAULT as usize].is_empty() {
            return Some(default);
        }
        let waits = !self.queues[PRIORITY_BATCH as usize].is_empty();
        waits.then(|| default.max(self.batch.wait()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: u8 = PRIORITY_SYSTEM;
    const DEFAULT: u8 = PRIORITY_DEFAULT;
    const BATCH: u8 = PRIORITY_BATCH;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn limited(default: f64, batch: f64) -> Admission<&'static str> {
        let mut admission = Admission::new(at(0));
        admission.set_rate(at(0), &Rate { default, batch });
        admission
    }

    fn ask(admission: &mut Admission<&'static str>, item: &'static str, priority: u8, count: u32) {
        admission.push(Asked {
            count,
            priority,
            item,
        });
    }

    #[test]
    fn without_a_limit_everybody_passes_at_once_in_order_of_priority() {
        let mut admission = Admission::new(at(0));
        ask(&mut admission, "batch", BATCH, 7);
        ask(&mut admission, "default", DEFAULT, 1_000_000);
        ask(&mut admission, "system", SYSTEM, 1);
        let taken = admission.take(at(0));
        assert_eq!(taken, [("system", 1), ("default", 1_000_000), ("batch", 7)]);
        assert_eq!(admission.admitted(), 1_000_008);
        assert_eq!(admission.wait(), None);
    }

    #[test]
    fn a_limit_lets_in_as_many_as_it_says_over_any_second() {
        let mut admission = limited(1000.0, 1000.0);
        let mut passed = 0;
        for ms in 0..1000 {
            if admission.waiting() == 0 {
                ask(&mut admission, "many", DEFAULT, 100_000);
            }
            passed += admission.take(at(ms)).iter().map(|(_, n)| n).sum::<u32>();
        }
        assert!((990..=1000).contains(&passed), "{passed}");
    }

    #[test]
    fn system_transactions_pass_whatever_the_limit() {
        let mut admission = limited(0.0, 0.0);
        ask(&mut admission, "default", DEFAULT, 1);
        ask(&mut admission, "system", SYSTEM, 500);
        assert_eq!(admission.take(at(1000)), [("system", 500)]);
        assert_eq!(admission.waiting(), 1);
    }

    #[test]
    fn batch_work_gets_what_the_others_leave_below_its_rate() {
        let mut admission = limited(1000.0, 500.0);
        let (mut default, mut batch) = (0, 0);
        for ms in 0..2000 {
            if ms % 10 == 0 {
                // 300 a second of the urgent kind.
                ask(&mut admission, "default", DEFAULT, 3);
            }
            if ms % 100 == 0 {
                ask(&mut admission, "batch", BATCH, 1000);
            }
            for (item, count) in admission.take(at(ms)) {
                *(if item == "batch" {
                    &mut batch
                } else {
                    &mut default
                }) += count;
            }
        }
        assert!((590..=600).contains(&default), "{default}");
        assert!((370..=410).contains(&batch), "{batch}");
    }

    #[test]
    fn clients_take_turns_however_many_each_has_waiting() {
        let mut admission = limited(100.0, 100.0);
        ask(&mut admission, "many", DEFAULT, 1000);
        ask(&mut admission, "one", DEFAULT, 1);
        assert_eq!(admission.take(at(50)), [("many", 5)]);
        ask(&mut admission, "many", DEFAULT, 995);
        assert_eq!(admission.take(at(60)), [("one", 1)]);
    }

    #[test]
    fn who_waits_is_told_when_there_will_be_room() {
        let mut admission = limited(10.0, 10.0);
        ask(&mut admission, "a", DEFAULT, 1);
        assert_eq!(admission.take(at(0)), []);
        let wait = admission.wait().expect("somebody waits");
        assert_eq!(wait.as_millis(), 100);
        assert_eq!(admission.take(at(101)), [("a", 1)]);
    }
}
