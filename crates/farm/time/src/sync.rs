//! What exchanges with the clock master tell about its time (FaRMv2 §4.1, Figures 1 and 2). Plain state.
//!
//! ```text
//!   member   ── sent ─────────────────────────── received ────────────── now
//!                    ╲                          ╱
//!   master             ╲──── read its time ───╱
//!
//!   upper bound now    the master's upper bound + the most that it can have advanced since `sent`
//!   lower bound now    the master's lower bound + the least that it can have advanced since `received`
//! ```
//! The master read its clock at some unknown moment between `sent` and `received`, so each bound assumes the extreme.
//!
//! What is widened, and why:
//! - **Upper bound**: all of `now - sent`, the round trip included, is measured by this machine's clock, and stands
//!   for an advance of the master's. It is multiplied by (1 + drift), because this clock may be the slower one.
//! - **Lower bound**: `now - received` likewise, by (1 - drift), because this clock may be the faster one.
//! - **Readings**: each of the two differences is between two readings, each wrong by [`Bounds::reading_ns`]. It is
//!   widened by twice that before the drift.
//! - **The master's reading** is in the interval that the master sends. Nothing else of it is widened: the master's
//!   clock is the time, and has no drift against itself.
//!
//! Processes of one host read one clock. If the master is on this host, its time is known without a message: it is
//! what this machine's clock shows, and a constant ([`Shared`]). There is no drift, only the error of readings.
//! Exchanges go on, and must agree with it: so a process whose clock is not the host's is found.
//!
//! The exchange with the highest lower bound and the one with the lowest upper bound are kept. Of two exchanges the
//! better one stays better, because all bounds move at the same rate; so two are enough.

use crate::interval::{Bounds, Interval};
use plinth_runtime::fault;

/// Local readings around a question to the master, and the master's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    pub sent: u64,
    pub received: u64,
    pub master: Interval,
}

impl Exchange {
    /// Local time that it took.
    pub fn round_trip(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// The time of a master whose clock is this machine's, too: `time` when the clock shows `local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The era of which this is the time.
    pub era: u64,
    pub time: u64,
    pub local: u64,
    /// How far `local` may be off.
    pub error_ns: u64,
}

/// Why there is no interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untimed {
    /// Nothing is known of the master's time yet.
    Unsynchronised,
    /// The clock is disabled: no lease, or a configuration change is under way.
    Disabled,
    /// A clock has broken its bounds: this one went back, or what is known of the master's time contradicts itself.
    Broken,
}

/// A time of the master, and a local reading that is surely before it (upper bounds) or after it (lower bounds).
#[derive(Clone, Copy, Debug)]
struct Anchor {
    time: u64,
    local: u64,
}

impl Anchor {
    fn elapsed(&self, now: u64) -> u64 {
        now.saturating_sub(self.local)
    }

    /// Orders anchors by the bounds that they give at any later reading, if the master's clock has this rate: in
    /// millionths of nanoseconds, at the reading 0. Exact, other than bounds, which are rounded.
    fn merit(&self, rate_ppm: u64) -> i128 {
        i128::from(self.time) * 1_000_000 - i128::from(self.local) * i128::from(rate_ppm)
    }
}

fn around(anchor: &Anchor, now: u64, error: u64) -> Interval {
    let time = anchor.time.saturating_add(anchor.elapsed(now));
    Interval {
        lower: time.saturating_sub(error),
        upper: time.saturating_add(error),
    }
}

/// The synchronisation state of one machine. Readings are passed in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Sync {
    bounds: Bounds,
    /// Set on the clock master: its own clock is the time.
    own: Option<Anchor>,
    /// Set beside a master whose clock is this machine's.
    shared: Option<Shared>,
    lower: Option<Anchor>,
    upper: Option<Anchor>,
    /// The highest lower bound that was given out.
    floor: u64,
    /// The latest reading.
    latest: u64,
}

impl Sync {
    pub fn new(bounds: Bounds) -> Sync {
        Sync {
            bounds,
            ..Sync::default()
        }
    }

    /// Becomes the clock master: its time is `time` when its clock shows `local`, and runs with its clock from there.
    pub fn lead(&mut self, time: u64, local: u64) {
        // A read of what was written before could be followed by a write that is dated before.
        let is_later = self.floor <= time;
        assert!(
            is_later || fault::is_planted("farm_master_does_not_fast_forward"), // for the oracles to find
            "a master goes on at {time}, and the time was {} already",
            self.floor
        );
        self.clear();
        self.own = Some(Anchor { time, local });
    }

    /// Forgets what was known, and knows only that the master's time is at most `time` at some moment after the local
    /// reading `local`.
    pub fn cap(&mut self, time: u64, local: u64) {
        self.clear();
        self.upper = Some(Anchor { time, local });
    }

    /// Forgets everything but the floor: lower bounds do not go back, whoever is master.
    pub fn clear(&mut self) {
        (self.own, self.shared, self.lower, self.upper) = (None, None, None, None);
    }

    /// The master's time at its beginning, and its clock then.
    pub fn own(&self) -> Option<(u64, u64)> {
        self.own.map(|own| (own.time, own.local))
    }

    /// Knows the time from the clock that this machine has together with the master. False if that contradicts what
    /// exchanges have told: it is another clock.
    #[must_use]
    pub fn share(&mut self, shared: Shared, now: u64) -> bool {
        let (Some(lower), Some(upper)) = (self.lower_at(now), self.ceiling(now)) else {
            return false;
        };
        let found = self.shared_at(&shared, now);
        let is_begun = shared.local <= now.saturating_add(found.uncertainty());
        let is_possible = found.lower <= upper && lower <= found.upper && self.floor <= found.upper;
        let is_possible = is_possible && is_begun;
        if is_possible {
            self.shared = Some(shared);
        }
        is_possible
    }

    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Takes an exchange in; false if it contradicts what is known, so that some clock has broken its bounds.
    #[must_use]
    pub fn learn(&mut self, exchange: &Exchange) -> bool {
        let now = exchange.received;
        // The reading after may be a little below the one before: they are of two threads.
        let is_back = self.bounds.has_passed(now, exchange.sent);
        let is_sane = !is_back && exchange.master.lower <= exchange.master.upper;
        if !is_sane || self.own.is_some() || !self.note(now) {
            return false;
        }
        let (time, local) = (exchange.master.upper, exchange.sent);
        let upper = Anchor { time, local };
        let (time, local) = (exchange.master.lower, exchange.received);
        let lower = Anchor { time, local };
        let (least, most) = (self.lower_of(&lower, now), self.upper_of(&upper, now));
        let (known_least, known_most) = (self.lower_at(now), self.ceiling(now));
        let is_possible = least <= known_most.unwrap_or(u64::MAX)
            && most >= known_least.unwrap_or(0)
            && most >= self.floor;
        if !is_possible {
            return false;
        }
        let bounds = self.bounds;
        let is_higher = |old: Anchor| lower.merit(bounds.slowest()) > old.merit(bounds.slowest());
        if self.lower.is_none_or(is_higher) {
            self.lower = Some(lower);
        }
        let is_lower = |old: Anchor| upper.merit(bounds.fastest()) < old.merit(bounds.fastest());
        if self.upper.is_none_or(is_lower) {
            self.upper = Some(upper);
        }
        true
    }

    /// The master's time at the local reading `now`. The lower bound never goes back.
    pub fn time(&mut self, now: u64) -> Result<Interval, Untimed> {
        if !self.note(now) {
            return Err(Untimed::Broken);
        }
        let (Some(lower), Some(upper)) = (self.lower_at(now), self.ceiling(now)) else {
            return Err(Untimed::Unsynchronised);
        };
        let lower = lower.max(self.floor);
        if lower > upper {
            return Err(Untimed::Broken);
        }
        self.floor = lower;
        Ok(Interval { lower, upper })
    }

    /// The highest lower bound that was given out. The master's time is not below it now, and never will be.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The upper bound of the master's time at the local reading `now`, if there is one.
    pub fn ceiling(&self, now: u64) -> Option<u64> {
        if let Some(own) = &self.own {
            return Some(self.own_at(own, now).upper);
        }
        let told = self.upper.map(|upper| self.upper_of(&upper, now));
        let shared = self.shared.map(|shared| self.shared_at(&shared, now).upper);
        told.into_iter().chain(shared).min()
    }

    /// The lower bound at `now`, not given out: the floor stays. It may be of a time that has ended.
    pub(crate) fn lower_at(&self, now: u64) -> Option<u64> {
        if let Some(own) = &self.own {
            return Some(self.own_at(own, now).lower);
        }
        let told = self.lower.map(|lower| self.lower_of(&lower, now));
        let shared = self.shared.map(|shared| self.shared_at(&shared, now).lower);
        told.into_iter().chain(shared).max()
    }

    fn lower_of(&self, anchor: &Anchor, now: u64) -> u64 {
        let advance = self.bounds.least(anchor.elapsed(now));
        anchor.time.saturating_add(advance)
    }

    fn upper_of(&self, anchor: &Anchor, now: u64) -> u64 {
        let advance = self.bounds.most(anchor.elapsed(now));
        anchor.time.saturating_add(advance)
    }

    /// The clock is the time. Only the reading is uncertain.
    fn own_at(&self, own: &Anchor, now: u64) -> Interval {
        around(own, now, self.bounds.reading_ns)
    }

    /// The same clock, read by another process: where its count begins is uncertain, too.
    fn shared_at(&self, shared: &Shared, now: u64) -> Interval {
        let Shared { time, local, .. } = *shared;
        let error = self.bounds.reading_ns.saturating_add(shared.error_ns);
        around(&Anchor { time, local }, now, error)
    }

    /// Notes a reading; false if the clock went back by more than readings can differ.
    fn note(&mut self, now: u64) -> bool {
        let is_back = self.bounds.has_passed(now, self.latest);
        self.latest = self.latest.max(now);
        !is_back
    }
}
