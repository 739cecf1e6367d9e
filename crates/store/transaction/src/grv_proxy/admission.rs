//! Admission of requests for read versions (FDB §2.3.1: Ratekeeper provides overload protection).
//!
//! Requests wait in one queue per priority. System transactions always pass. Transactions of default priority pass
//! while their bucket has tokens. Those of batch priority pass while, in addition, the sum of all is below a lower
//! rate. A request stands for many transactions of one client. It is admitted for as many as there is room for, and
//! the client asks again for the rest. So every client gets its turn, however many transactions it has waiting.
//! Transactions with a [throttled](Throttle) tag wait for their tag first.

use super::bucket::Bucket;
use super::throttle::{Asked, Throttle};
use plinth_protocol::rate::{Rate, TagCount};
use plinth_protocol::transaction::{PRIORITY_BATCH, PRIORITY_DEFAULT, PRIORITY_SYSTEM};
use plinth_runtime::{Duration, Instant};
use std::collections::VecDeque;

/// Too many requests wait already: in total, or with the same tags.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Queue,
    Tag,
}

/// The state machine.
pub(super) struct Admission<T> {
    /// By priority.
    queues: [VecDeque<Asked<T>>; 3],
    default: Bucket,
    /// Every admission draws on it; only batch priority waits for it.
    batch: Bucket,
    throttle: Throttle<T>,
    admitted: u64,
}

impl<T> Admission<T> {
    /// No limit, until the ratekeeper sets one.
    pub fn new(now: Instant) -> Self {
        Admission {
            queues: std::array::from_fn(|_| VecDeque::new()),
            default: Bucket::unlimited(now),
            batch: Bucket::unlimited(now),
            throttle: Throttle::new(),
            admitted: 0,
        }
    }

    /// Transactions admitted so far.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        let queued: usize = self.queues.iter().map(VecDeque::len).sum();
        queued + self.throttle.waiting()
    }

    /// Number of entries kept for tags.
    pub fn tags(&self) -> usize {
        self.throttle.tags()
    }

    /// Admitted transactions by tag, for tags that may be throttled automatically.
    pub fn tell_tag_counts(&mut self) -> Vec<TagCount> {
        self.throttle.tell_counts()
    }

    pub fn set_rate(&mut self, now: Instant, rate: &Rate) {
        self.default.set_rate(now, rate.default);
        self.batch.set_rate(now, rate.batch);
        self.throttle.set_rates(now, &rate.tags);
    }

    /// Queues a request. Gives it back if `waiting_max` requests wait already, or too many with its tags.
    pub fn push(
        &mut self,
        mut asked: Asked<T>,
        waiting_max: usize,
    ) -> Result<(), (Asked<T>, Refused)> {
        if self.waiting() >= waiting_max {
            return Err((asked, Refused::Queue));
        }
        asked.priority = asked.priority.min(PRIORITY_BATCH);
        match self.throttle.hold(asked) {
            Ok(None) => {}
            Ok(Some(asked)) => self.enqueue(asked),
            Err(asked) => return Err((asked, Refused::Tag)),
        }
        Ok(())
    }

    fn enqueue(&mut self, asked: Asked<T>) {
        self.queues[asked.priority as usize].push_back(asked);
    }

    /// The requests that may proceed, the priority of each, and for how many transactions.
    pub fn take(&mut self, now: Instant) -> Vec<(T, u8, u32)> {
        for released in self.throttle.release(now) {
            self.enqueue(released);
        }
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
                let first = first.expect("just seen");
                self.throttle.count(&first.tags, count);
                taken.push((first.item, priority, count));
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

    /// Time until [`Admission::take`] has something to give; `None` if no request waits.
    pub fn wait(&self) -> Option<Duration> {
        let (queued, held) = (self.wait_of_queues(), self.throttle.wait());
        match (queued, held) {
            (Some(queued), Some(held)) => Some(queued.min(held)),
            (queued, held) => queued.or(held),
        }
    }

    fn wait_of_queues(&self) -> Option<Duration> {
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
    use plinth_core::transaction_tag::TransactionTag;
    use plinth_protocol::rate::TagRate;

    const SYSTEM: u8 = PRIORITY_SYSTEM;
    const DEFAULT: u8 = PRIORITY_DEFAULT;
    const BATCH: u8 = PRIORITY_BATCH;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Without the priorities.
    fn take(admission: &mut Admission<&'static str>, now: Instant) -> Vec<(&'static str, u32)> {
        let taken = admission.take(now).into_iter();
        taken.map(|(item, _, count)| (item, count)).collect()
    }

    fn limited(default: f64, batch: f64) -> Admission<&'static str> {
        let mut admission = Admission::new(at(0));
        let rate = Rate {
            default,
            batch,
            tags: vec![],
        };
        admission.set_rate(at(0), &rate);
        admission
    }

    fn tag(name: &str) -> TransactionTag {
        TransactionTag::new(name.as_bytes()).expect("short")
    }

    fn ask_tagged(
        admission: &mut Admission<&'static str>,
        item: &'static str,
        tags: &[&str],
        count: u32,
    ) {
        let asked = Asked {
            count,
            priority: DEFAULT,
            tags: tags.iter().map(|name| (tag(name), true)).collect(),
            item,
        };
        admission
            .push(asked, 1000)
            .map_err(|(_, why)| why)
            .expect("there is room");
    }

    fn throttled(tag_rates: &[(&str, u8, f64)]) -> Admission<&'static str> {
        let mut admission = Admission::new(at(0));
        let rate = |(name, priority, rate): &(&str, u8, f64)| TagRate {
            tag: tag(name),
            priority: *priority,
            rate: *rate,
        };
        let rate = Rate {
            default: f64::INFINITY,
            batch: f64::INFINITY,
            tags: tag_rates.iter().map(rate).collect(),
        };
        admission.set_rate(at(0), &rate);
        admission
    }

    #[test]
    fn a_throttled_tag_gets_its_rate_and_holds_up_nobody_else() {
        let mut admission = throttled(&[("hot", DEFAULT, 100.0)]);
        let (mut hot, mut others) = (0, 0);
        for ms in 0..1000 {
            if admission.waiting() == 0 {
                ask_tagged(&mut admission, "hot", &["hot"], 1000);
            }
            ask_tagged(&mut admission, "cold", &["cold"], 1);
            ask(&mut admission, "none", DEFAULT, 1);
            for (item, count) in take(&mut admission, at(ms)) {
                *(if item == "hot" { &mut hot } else { &mut others }) += count;
            }
        }
        assert!((95..=101).contains(&hot), "{hot}");
        assert_eq!(others, 2000);
        let counts = admission.tell_tag_counts();
        let names: Vec<_> = counts.iter().map(|c| (c.tag, c.admitted)).collect();
        assert_eq!(names, [(tag("cold"), 1000), (tag("hot"), u64::from(hot))]);
    }

    #[test]
    fn tags_that_are_used_are_counted_however_many_there_were_before() {
        let mut admission = throttled(&[]);
        let mut told = 0;
        for i in 0..5000 {
            ask_tagged(&mut admission, "one", &[&i.to_string(), "steady"], 1);
            take(&mut admission, at(i));
            if i % 100 == 99 {
                let counts = admission.tell_tag_counts();
                let of = |name: &str| counts.iter().find(|count| count.tag == tag(name));
                assert_eq!(of("steady").map(|count| count.admitted), Some(i + 1));
                assert_eq!(of(&i.to_string()).map(|count| count.admitted), Some(1));
                told = counts.len();
            }
        }
        assert!(told < 1000, "{told} are remembered");
    }

    #[test]
    fn of_several_throttled_tags_the_slowest_counts_and_more_urgent_work_is_free() {
        let mut admission = throttled(&[("a", DEFAULT, 1000.0), ("b", BATCH, 10.0)]);
        ask_tagged(&mut admission, "both, default priority", &["a", "b"], 50);
        assert_eq!(
            take(&mut admission, at(100)),
            [("both, default priority", 50)]
        );
        let batch = Asked {
            count: 50,
            priority: BATCH,
            tags: vec![(tag("a"), false), (tag("b"), false)],
            item: "both, batch",
        };
        admission
            .push(batch, 1000)
            .map_err(|(_, why)| why)
            .expect("there is room");
        assert_eq!(take(&mut admission, at(101)), [("both, batch", 1)]);
        assert_eq!(admission.waiting(), 0);
    }

    #[test]
    fn a_tag_that_is_set_free_passes_at_once_and_too_many_waiting_are_refused() {
        let mut admission = throttled(&[("hot", DEFAULT, 0.0)]);
        let mut refused = 0;
        for _ in 0..2000 {
            let asked = Asked {
                count: 1,
                priority: DEFAULT,
                tags: vec![(tag("hot"), false)],
                item: "hot",
            };
            let pushed = admission.push(asked, 100_000);
            refused += usize::from(matches!(pushed, Err((_, Refused::Tag))));
        }
        assert_eq!((admission.waiting(), refused), (1000, 1000));
        assert_eq!(take(&mut admission, at(1000)), []);
        assert!(admission.wait().expect("they wait").as_secs() > 1000);
        let free = Rate {
            default: f64::INFINITY,
            batch: f64::INFINITY,
            tags: vec![],
        };
        admission.set_rate(at(1001), &free);
        assert_eq!(take(&mut admission, at(1001)).len(), 1000);
    }

    fn ask(admission: &mut Admission<&'static str>, item: &'static str, priority: u8, count: u32) {
        let asked = Asked {
            count,
            priority,
            tags: vec![],
            item,
        };
        let pushed = admission.push(asked, 1_000_000);
        pushed.map_err(|(_, why)| why).expect("there is room");
    }

    #[test]
    fn without_a_limit_everybody_passes_at_once_in_order_of_priority() {
        let mut admission = Admission::new(at(0));
        ask(&mut admission, "batch", BATCH, 7);
        ask(&mut admission, "default", DEFAULT, 1_000_000);
        ask(&mut admission, "system", SYSTEM, 1);
        let taken = take(&mut admission, at(0));
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
            passed += take(&mut admission, at(ms))
                .iter()
                .map(|(_, n)| n)
                .sum::<u32>();
        }
        assert!((990..=1000).contains(&passed), "{passed}");
    }

    #[test]
    fn system_transactions_pass_whatever_the_limit() {
        let mut admission = limited(0.0, 0.0);
        ask(&mut admission, "default", DEFAULT, 1);
        ask(&mut admission, "system", SYSTEM, 500);
        assert_eq!(take(&mut admission, at(1000)), [("system", 500)]);
        assert_eq!(admission.waiting(), 1);
    }

    #[test]
    fn batch_work_gets_what_the_others_leave_below_its_rate() {
        let mut admission = limited(1000.0, 500.0);
        let (mut default, mut batch) = (0, 0);
        for ms in 0..2000 {
            if ms % 10 == 0 {
                // 300 transactions a second of default priority.
                ask(&mut admission, "default", DEFAULT, 3);
            }
            if ms % 100 == 0 {
                ask(&mut admission, "batch", BATCH, 1000);
            }
            for (item, count) in take(&mut admission, at(ms)) {
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
        assert_eq!(take(&mut admission, at(50)), [("many", 5)]);
        ask(&mut admission, "many", DEFAULT, 995);
        assert_eq!(take(&mut admission, at(60)), [("one", 1)]);
    }

    #[test]
    fn who_waits_is_told_when_there_will_be_room() {
        let mut admission = limited(10.0, 10.0);
        ask(&mut admission, "a", DEFAULT, 1);
        assert_eq!(take(&mut admission, at(0)), []);
        let wait = admission.wait().expect("somebody waits");
        assert_eq!(wait.as_millis(), 100);
        assert_eq!(take(&mut admission, at(101)), [("a", 1)]);
    }
}
