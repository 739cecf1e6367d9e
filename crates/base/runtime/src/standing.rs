//! Standing delay: the minimum of a duration over the last half second to second.
//!
//! A queue that forms and drains delays some requests and not others; a standing queue delays all. The minimum
//! distinguishes them, and single hiccups do not change it (Nichols and Jacobson, *Controlling Queue Delay*, 2012).

use crate::{Duration, Instant};

const HALF: Duration = Duration::from_millis(500);

#[derive(Default, Debug)]
pub struct Standing {
    least: Option<Duration>,
    /// The minimum of the half second before.
    least_before: Option<Duration>,
    since: Instant,
}

impl Standing {
    pub fn add(&mut self, now: Instant, took: Duration) {
        self.turn(now);
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
    }

    /// The minimum; `None` if nothing was measured in that time.
    pub fn least(&mut self, now: Instant) -> Option<Duration> {
        self.turn(now);
        let both = self.least.into_iter().chain(self.least_before);
        both.min()
    }

    fn turn(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.since);
        if elapsed >= HALF {
            self.least_before = self.least.take().filter(|_| elapsed < HALF * 2);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_quick_shows_that_no_queue_stands() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let ms = Duration::from_millis;
        let mut standing = Standing::default();
        assert_eq!(standing.least(at(1000)), None);
        standing.add(at(1100), ms(80));
        standing.add(at(1200), ms(30));
        standing.add(at(1300), ms(70));
        assert_eq!(standing.least(at(1400)), Some(ms(30)));
        standing.add(at(1600), ms(90));
        assert_eq!(standing.least(at(1700)), Some(ms(30)));
        standing.add(at(2150), ms(95));
        assert_eq!(standing.least(at(2200)), Some(ms(90)));
        assert_eq!(standing.least(at(9000)), None);
    }
}
