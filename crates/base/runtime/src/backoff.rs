//! How long to wait before another try.
//!
//! Whoever is turned away and comes back at once makes it worse for everybody. So waits double from one try to the
//! next, up to a longest one.

use crate::{Duration, random, sleep};

const GROWTH: u32 = 2;

/// Waits that grow. Only one [at random](Backoff::at_random) draws from the source of randomness.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    /// The next wait, unless it is longer than the longest.
    next: Duration,
    is_random: bool,
}

impl Backoff {
    pub const fn new(first: Duration, most: Duration) -> Backoff {
        Backoff {
            first,
            most,
            next: first,
            is_random: false,
        }
    }

    /// Each wait is random between nothing and all of it, so that those who collided once do not collide again.
    pub const fn at_random(self) -> Backoff {
        Backoff {
            is_random: true,
            ..self
        }
    }

    /// How long to wait now. The wait after it is longer.
    pub fn next_wait(&mut self) -> Duration {
        self.next_wait_within(self.most)
    }

    /// The same with another longest wait, which holds for this wait and for how the next ones grow.
    pub fn next_wait_within(&mut self, most: Duration) -> Duration {
        let wait = self.next.min(most);
        self.next = wait.saturating_mul(GROWTH).min(most);
        match self.is_random {
            true => wait.mul_f64(random::unit()),
            false => wait,
        }
    }

    /// Waits, each time longer.
    pub async fn wait(&mut self) {
        sleep(self.next_wait()).await;
    }

    /// A try has succeeded: the next wait is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(ms(20), ms(500));
        let waits: Vec<Duration> = (0..7).map(|_| backoff.next_wait()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 500, 500].map(ms));
        backoff.reset();
        assert_eq!((backoff.next_wait(), backoff.next_wait()), (ms(20), ms(40)));
    }

    #[test]
    fn the_longest_wait_may_be_another_one_for_one_error() {
        let mut backoff = Backoff::new(ms(400), ms(1000));
        let waits = [1000, 30_000, 30_000, 30_000, 1000, 30_000, 3, 30_000];
        let waits = waits.map(|most| backoff.next_wait_within(ms(most)).as_millis());
        assert_eq!(waits, [400, 800, 1600, 3200, 1000, 1000, 3, 3]);
    }

    #[test]
    fn only_waits_at_random_draw_and_they_are_not_above_the_others() {
        let before = random::replace(Generator::new(1));
        let mut all = Backoff::new(ms(10), ms(1000));
        let mut parts = all.at_random();
        let draws = [ms(10), ms(20), ms(40)].map(|most| {
            assert_eq!(all.next_wait(), most);
            let part = parts.next_wait();
            assert!(part < most, "{part:?} of {most:?}");
            part
        });
        let mut same = Generator::new(1);
        assert_eq!(
            draws,
            [10, 20, 40].map(|most| ms(most).mul_f64(same.unit()))
        );
        random::replace(before);
    }
}
