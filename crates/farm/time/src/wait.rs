//! Timestamps (FaRMv2 §4.2, Figures 4 and 5): the upper bound, taken now and used when it has passed.
//!
//! ```text
//!   master's time   ────[ lower      upper ]─────────────────[ lower   upper ]────▶
//!                        the call begins ┆                     ┆ the call ends
//!                                        timestamp   <   lower bound at the end
//! ```
//! With G for the master's time, of a timestamp `ts` holds (Lemma 1 of §7):
//!
//! > G(the call begins) ≤ ts < G(the call ends).
//!
//! The left part holds because `ts` is an upper bound that was read after the beginning, the right one because it is
//! below a lower bound that was read before the end. So if one call ends before another begins, on whatever machines,
//! then `ts₁ < G(end₁) ≤ G(begin₂) ≤ ts₂`: its timestamp is smaller, and never equal.
//!
//! The lower bound may be one that somebody else of the process has read: once it was given out, it is below G for
//! good. A call that ends by it needs no reading of its own.
//!
//! A read timestamp needs the right part before the first read: no later write then gets a timestamp at or below it.
//! A write timestamp needs the left part when all locks are held, so that a reader at or above it finds the lock or
//! the new version, and the right part before reads are validated. No part of the wait may be left out (§7.3).

use crate::interval::{Bounds, Interval};
use plinth_runtime::planted;

/// A timestamp that is not known to be in the past yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pending(u64);

/// What the clock says about a pending timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is in the past, and may be used.
    Past(u64),
    /// Look again when the local clock has advanced by so many nanoseconds. It may take longer.
    Wait(u64),
}

impl Pending {
    /// A timestamp for the call that has begun before `now` was read.
    pub fn new(now: Interval) -> Pending {
        Pending(now.upper)
    }

    /// Judges the timestamp by a later reading, which may be of another configuration.
    pub fn check(&self, now: Interval, bounds: &Bounds) -> Verdict {
        let is_unwaited = planted!(
            "farm_no_uncertainty_wait",
            "a timestamp is used while it may be in the future"
        );
        if now.lower > self.0 || is_unwaited {
            return Verdict::Past(self.0);
        }
        let lacking = (self.0 - now.lower).saturating_add(1);
        Verdict::Wait(bounds.until_least(lacking))
    }
}

/// The read timestamp of a transaction that need not see what others have just committed: it is in the past already,
/// and only the right part of the relation holds, with ≤. Not for writes.
pub fn non_strict(now: Interval) -> u64 {
    now.lower
}
