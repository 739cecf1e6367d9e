//! Watches the rate of this machine's clock against the master's (FaRMv2 §4.1).
//!
//! Of two exchanges it is known between which local readings the master's clock was read, and between which bounds it
//! stood. So the rate over the time between them lies between
//!
//! ```text
//!             later.lower - earlier.upper                          later.upper - earlier.lower
//!   ─────────────────────────────────────────────   and   ─────────────────────────────────────────────
//!   later.received - earlier.sent + 2 * reading           later.sent - earlier.received - 2 * reading
//! ```
//! A clock is reported if all of this range is outside the limit. A slow network makes the range wider and never moves
//! it off the true rate: it hides a bad clock for a while, and never accuses a good one.

use crate::interval::Bounds;
use crate::sync::Exchange;
use std::collections::VecDeque;

/// Rates that differ by more are reported. FaRMv2 §4.1: five times stricter than the bound that correctness needs.
pub const REPORTED_PPM: u32 = 200;
/// Exchanges are remembered for this long. If round trips take 1 ms, it shows the rate to within 125 ppm.
const MEMORY_NS: u64 = 16_000_000_000;
const SLOTS: u64 = 16;

const MILLION: i128 = 1_000_000;

/// What is known of the master's rate relative to this machine's, over some time: 0 if they agree, positive if the
/// master's clock is faster. Both bounds are rounded outwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub slowest_ppm: i64,
    pub fastest_ppm: i64,
    /// Nanoseconds of the local clock between the two exchanges.
    pub over_ns: u64,
}

impl Rate {
    /// The rate between two exchanges; `None` if they overlap.
    pub fn between(earlier: &Exchange, later: &Exchange, bounds: &Bounds) -> Option<Rate> {
        let span = |from: u64, to: u64| i128::from(to) - i128::from(from);
        let readings = 2 * i128::from(bounds.reading_ns);
        let shortest = span(earlier.received, later.sent) - readings;
        if shortest <= 0 {
            return None;
        }
        let longest = span(earlier.sent, later.received) + readings;
        let least = span(earlier.master.upper, later.master.lower).max(0);
        let most = span(earlier.master.lower, later.master.upper).max(0);
        let bounded = |ppm: i128| ppm.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Some(Rate {
            slowest_ppm: bounded((least * MILLION).div_euclid(longest) - MILLION),
            fastest_ppm: bounded((most * MILLION).div_euclid(shortest) + 1 - MILLION),
            over_ns: later.received.saturating_sub(earlier.sent),
        })
    }

    /// The rate is surely outside `limit_ppm`.
    pub fn is_beyond(&self, limit_ppm: u32) -> bool {
        let limit = i64::from(limit_ppm);
        self.slowest_ppm > limit || self.fastest_ppm < -limit
    }

    fn width(&self) -> u64 {
        self.fastest_ppm.abs_diff(self.slowest_ppm)
    }
}

/// Remembers exchanges with one master. The best one of each second is kept: the one with the shortest round trip.
#[derive(Clone, Debug)]
pub struct Watch {
    bounds: Bounds,
    remembered: VecDeque<Exchange>,
    tightest: Option<Rate>,
}

impl Watch {
    pub fn new(bounds: Bounds) -> Watch {
        Watch {
            bounds,
            remembered: VecDeque::new(),
            tightest: None,
        }
    }

    /// There is another master.
    pub fn clear(&mut self) {
        *self = Watch::new(self.bounds);
    }

    /// The rate as the newest exchange shows it, in the narrowest range.
    pub fn rate(&self) -> Option<Rate> {
        self.tightest
    }

    /// Takes an exchange in. Returns the rate if it is surely outside [`REPORTED_PPM`].
    pub fn learn(&mut self, exchange: &Exchange) -> Option<Rate> {
        let is_old = |old: &Exchange| exchange.received.saturating_sub(old.sent) > MEMORY_NS;
        while self.remembered.front().is_some_and(is_old) {
            self.remembered.pop_front();
        }
        let rates = self.remembered.iter();
        let rates = rates.filter_map(|old| Rate::between(old, exchange, &self.bounds));
        let rates: Vec<Rate> = rates.collect();
        self.tightest = rates.iter().copied().min_by_key(Rate::width);
        self.remember(*exchange);
        rates.into_iter().find(|rate| rate.is_beyond(REPORTED_PPM))
    }

    fn remember(&mut self, exchange: Exchange) {
        let slot = |e: &Exchange| e.sent / (MEMORY_NS / SLOTS);
        match self.remembered.back_mut() {
            Some(last) if slot(last) >= slot(&exchange) => {
                if exchange.round_trip() < last.round_trip() {
                    *last = exchange;
                }
            }
            _ => self.remembered.push_back(exchange),
        }
    }
}
