//! How long a read waits for one replica before it asks a second one.
//!
//! About one answer in a hundred should take longer than that. Then a slow replica costs its readers little, and the
//! second requests add one percent to the load. The estimate follows the 99th percentile of the observed answers:
//! each answer moves it, up by a tenth if it took longer and down by a thousandth if not. This is in balance when one
//! in a hundred takes longer.

use plinth_runtime::Duration;
use std::cell::Cell;

const FIRST: Duration = Duration::from_millis(25);
/// A shorter time would be the noise of two event loops; a replica that takes longer is gone.
const RANGE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));
const UP: f64 = 1.1;
const DOWN: f64 = 0.99904;

pub(super) struct Patience(Cell<Duration>);

impl Patience {
    pub fn new() -> Self {
        Patience(Cell::new(FIRST))
    }

    pub fn get(&self) -> Duration {
        self.0.get()
    }

    /// Learns whether an answer came in time.
    pub fn learn(&self, in_time: bool) {
        let next = self.0.get().mul_f64(if in_time { DOWN } else { UP });
        self.0.set(next.clamp(RANGE.0, RANGE.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_settles_where_one_answer_in_a_hundred_takes_longer() {
        let patience = Patience::new();
        let mut late = 0;
        for i in 0..100_000u64 {
            // Uniform from 0 to 50 ms.
            let took = Duration::from_micros(i.wrapping_mul(7919) % 50_000);
            let in_time = took <= patience.get();
            late += u64::from(i >= 50_000 && !in_time);
            patience.learn(in_time);
        }
        assert!((300..900).contains(&late), "{late} of 50000 were late");
        assert!(
            patience.get() > Duration::from_millis(44),
            "{:?}",
            patience.get()
        );
    }

    #[test]
    fn it_stays_within_bounds() {
        let patience = Patience::new();
        (0..100_000).for_each(|_| patience.learn(true));
        assert_eq!(patience.get(), RANGE.0);
        (0..1000).for_each(|_| patience.learn(false));
        assert_eq!(patience.get(), RANGE.1);
    }
}
