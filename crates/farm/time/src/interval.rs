//! Intervals of the master's time, and how far clocks can be wrong.
//!
//! All arithmetic is on whole nanoseconds, rounds outwards and saturates. A bound that has reached the end of the
//! numbers stays there: it is 584 years away.

use plinth_core::record;

const MILLION: u64 = 1_000_000;

record! {
    /// The master's time lies in it, bounds included, at the moment when the clock was read. In nanoseconds.
    #[derive(Copy, Eq)]
    pub struct Interval {
        pub lower: u64,
        pub upper: u64,
    }
}

impl Interval {
    pub fn uncertainty(&self) -> u64 {
        self.upper.saturating_sub(self.lower)
    }

    pub fn contains(&self, time: u64) -> bool {
        self.lower <= time && time <= self.upper
    }
}

/// How far the clocks of a cluster can be wrong. Correctness rests on these two numbers.
///
/// The drift is *relative*, between any two machines: while one clock advances by `d`, every other advances by at
/// least `d * (1 - drift)` and at most `d * (1 + drift)`. Clocks that are within 499 ppm of true time keep a bound of
/// 1000 ppm; those at 500 ppm do not, because (1 + 0.0005) / (1 - 0.0005) is above 1.001.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Parts per million, below 1,000,000.
    pub drift_ppm: u32,
    /// A reading differs from the machine's clock by at most this: threads see the counter a little apart, and a
    /// reading is a whole number. At least 1.
    pub reading_ns: u64,
}

impl Default for Bounds {
    /// FaRMv2 §4.1: ten times what the hardware allows, and 1024 ticks of the counter between threads.
    fn default() -> Bounds {
        Bounds {
            drift_ppm: 1000,
            reading_ns: 400,
        }
    }
}

fn saturated(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

impl Bounds {
    /// Both readings of an elapsed time are wrong, in the worst case in opposite directions.
    fn of_two_readings(&self) -> u128 {
        2 * u128::from(self.reading_ns)
    }

    /// The highest rate of another clock, in millionths of this one's.
    pub fn fastest(&self) -> u64 {
        MILLION + u64::from(self.drift_ppm)
    }

    /// The lowest rate of another clock, in millionths of this one's.
    pub fn slowest(&self) -> u64 {
        MILLION.saturating_sub(self.drift_ppm.into())
    }

    /// The most by which another clock has advanced while two readings of this one were `elapsed` nanoseconds apart.
    pub fn most(&self, elapsed: u64) -> u64 {
        let elapsed = u128::from(elapsed) + self.of_two_readings();
        saturated((elapsed * u128::from(self.fastest())).div_ceil(MILLION.into()))
    }

    /// The least by which another clock has advanced while two readings of this one were `elapsed` nanoseconds apart.
    pub fn least(&self, elapsed: u64) -> u64 {
        let elapsed = u128::from(elapsed).saturating_sub(self.of_two_readings());
        saturated(elapsed * u128::from(self.slowest()) / u128::from(MILLION))
    }

    /// How long this clock must run until another has surely advanced by `ns`: [`least`](Bounds::least) of it is at
    /// least `ns`.
    pub fn until_least(&self, ns: u64) -> u64 {
        match (ns, u128::from(self.slowest())) {
            (0, _) => 0,
            (_, 0) => u64::MAX,
            (_, rate) => {
                let elapsed = (u128::from(ns) * u128::from(MILLION)).div_ceil(rate);
                saturated(elapsed + self.of_two_readings())
            }
        }
    }

    /// A point on this clock that is surely not before `deadline`, whatever the readings' errors, has passed.
    pub fn has_passed(&self, deadline: u64, now: u64) -> bool {
        u128::from(now) > u128::from(deadline) + self.of_two_readings()
    }

    /// From this reading on, `deadline` [has](Bounds::has_passed).
    pub fn passed_at(&self, deadline: u64) -> u64 {
        saturated(u128::from(deadline) + self.of_two_readings() + 1)
    }

    /// `deadline` is surely still ahead.
    pub fn is_ahead(&self, deadline: u64, now: u64) -> bool {
        u128::from(now) + self.of_two_readings() < u128::from(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_numbers_are_rounded_outwards_and_none_overflows(
            drift_ppm in any::<u32>(), reading_ns in any::<u64>(), elapsed in any::<u64>(), now in any::<u64>(),
        ) {
            let bounds = Bounds { drift_ppm, reading_ns };
            prop_assert!(bounds.least(elapsed) <= elapsed && elapsed <= bounds.most(elapsed));
            let waited = bounds.until_least(elapsed);
            prop_assert!(waited == u64::MAX || bounds.least(waited) >= elapsed);
            prop_assert!(!(bounds.has_passed(elapsed, now) && bounds.is_ahead(elapsed, now)));
        }

        #[test]
        fn the_bounds_are_at_most_a_nanosecond_wider_than_the_drift(elapsed in 0u64..1 << 50) {
            let bounds = Bounds { drift_ppm: 1000, reading_ns: 0 };
            let exact = elapsed as f64;
            prop_assert!((bounds.most(elapsed) as f64 - exact * 1.001).abs() <= 1.0 + exact * 1e-15);
            prop_assert!((bounds.least(elapsed) as f64 - exact * 0.999).abs() <= 1.0 + exact * 1e-15);
        }
    }
}
