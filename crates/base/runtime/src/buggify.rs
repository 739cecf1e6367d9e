//! `buggify!()`: a place where the code misbehaves on purpose under simulation (FDB §4).
//!
//! Each site is enabled in a quarter of the runs, and in those it fires with a probability of a quarter. So every run
//! leaves most rare events out and exaggerates a few. Always false on a real worker.

use crate::random;
use std::cell::Cell;

thread_local! {
    /// The run's seed for the choice of sites; `None` when nothing may fire.
    static RUN: Cell<Option<u64>> = const { Cell::new(None) };
}

pub const FIRE_PROBABILITY: f64 = 0.25;
const SITES_ENABLED_ONE_IN: u64 = 4;

/// True when this site should misbehave now. `buggify!(p)` overrides the probability of firing.
#[macro_export]
macro_rules! buggify {
    () => {
        $crate::buggify!($crate::buggify::FIRE_PROBABILITY)
    };
    ($p:expr) => {{
        const SITE: u64 = $crate::buggify::site(file!(), line!(), column!());
        $crate::buggify::fires(SITE, $p)
    }};
}

/// A number for a place in the source, the same in every build of it.
#[doc(hidden)]
pub const fn site(file: &str, line: u32, column: u32) -> u64 {
    let bytes = file.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ ((line as u64) << 32) ^ column as u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

#[doc(hidden)]
#[inline]
pub fn fires(site: u64, p: f64) -> bool {
    let Some(seed) = RUN.get() else { return false };
    random::spread(seed ^ site).is_multiple_of(SITES_ENABLED_ONE_IN) && random::chance(p)
}

/// Sets this thread's seed for the sites and returns the previous one.
pub(crate) fn replace(run: Option<u64>) -> Option<u64> {
    RUN.replace(run)
}
