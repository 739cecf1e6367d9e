//! True time, and clocks that are wrong by as much as they may be.

use crate::{Bounds, Exchange, Interval, Sync};
use proptest::prelude::*;

pub const BOUNDS: Bounds = Bounds {
    drift_ppm: 1000,
    reading_ns: 400,
};

/// Two clocks within this of true time are within [`BOUNDS`] of each other.
pub const RATE_MAX_PPM: i64 = 499;
/// A reading is rounded down, too.
const ERROR_MAX_NS: i64 = 399;

pub const MILLION: i128 = 1_000_000;

/// A clock that changes its rate now and then. It shows `origin` at true time 0.
#[derive(Clone, Debug)]
pub struct TrueClock {
    pub origin: u64,
    /// From when on, in true nanoseconds, it runs at true time and so many millionths. The first begins at 0.
    pub rates: Vec<(u64, i64)>,
}

impl TrueClock {
    /// What the clock shows, in millionths of nanoseconds: exact.
    pub fn exact(&self, at: u64) -> i128 {
        let mut shown = i128::from(self.origin) * MILLION;
        for (which, (from, ppm)) in self.rates.iter().enumerate() {
            let next = self.rates.get(which + 1).map_or(u64::MAX, |next| next.0);
            let passed = at.min(next).saturating_sub(*from);
            shown += i128::from(passed) * (MILLION + i128::from(*ppm));
        }
        shown
    }

    /// A reading with an error.
    pub fn read(&self, at: u64, error: i64) -> u64 {
        let exact = u64::try_from(self.exact(at) / MILLION).expect("an age");
        exact.saturating_add_signed(error)
    }

    /// The first moment after `at` by which the clock has advanced by `ns`.
    pub fn after(&self, at: u64, ns: u64) -> u64 {
        let until = self.exact(at) + i128::from(ns) * MILLION;
        let (mut early, mut late) = (at, at + 2 * ns);
        while early < late {
            let middle = early + (late - early) / 2;
            match self.exact(middle) < until {
                true => early = middle + 1,
                false => late = middle,
            }
        }
        early
    }
}

pub fn error() -> impl Strategy<Value = i64> {
    prop_oneof![
        -ERROR_MAX_NS..=ERROR_MAX_NS,
        Just(-ERROR_MAX_NS),
        Just(ERROR_MAX_NS)
    ]
}

/// Clocks that change their rates within `span` nanoseconds.
pub fn clock(span: u64) -> impl Strategy<Value = TrueClock> {
    let rate = || {
        prop_oneof![
            -RATE_MAX_PPM..=RATE_MAX_PPM,
            Just(-RATE_MAX_PPM),
            Just(RATE_MAX_PPM)
        ]
    };
    let later = prop::collection::vec((1..span, rate()), 0..4);
    (1_000_000..1u64 << 60, rate(), later).prop_map(|(origin, first, mut later)| {
        later.sort_unstable();
        later.dedup_by_key(|change| change.0);
        let mut rates = vec![(0, first)];
        rates.extend(later);
        TrueClock { origin, rates }
    })
}

/// Delays of a network: mostly short, sometimes as long as `span`.
fn delay(span: u64) -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..30_000, 1 => 0u64..3_000_000, 1 => 0..span]
}

/// An exchange as the network makes of it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub sent_at: u64,
    pub there: u64,
    pub back: u64,
    pub errors: [i64; 3],
}

impl Plan {
    pub fn read_at(&self) -> u64 {
        self.sent_at + self.there
    }

    pub fn received_at(&self) -> u64 {
        self.read_at() + self.back
    }
}

/// Those that are lost are left out, or rather: they are not there.
pub fn plans(span: u64, most: usize) -> impl Strategy<Value = Vec<Plan>> {
    let plan = (
        0..span,
        delay(span),
        delay(span),
        [error(), error(), error()],
    );
    let plan = plan.prop_map(|(sent_at, there, back, errors)| Plan {
        sent_at,
        there,
        back,
        errors,
    });
    prop::collection::vec(plan, 0..most)
}

/// A master whose time begins at true time 0.
pub struct Master {
    pub clock: TrueClock,
    begin: u64,
    first: u64,
}

impl Master {
    pub fn new(clock: TrueClock, begin: u64) -> Master {
        let first = clock.read(0, 0);
        Master {
            clock,
            begin,
            first,
        }
    }

    pub fn sync(&self) -> Sync {
        let mut sync = Sync::new(BOUNDS);
        sync.lead(self.begin, self.first);
        sync
    }

    /// The master's time, in millionths of nanoseconds.
    pub fn exact(&self, at: u64) -> i128 {
        let begin = i128::from(self.begin) - i128::from(self.first);
        begin * MILLION + self.clock.exact(at)
    }

    pub fn is_in(&self, interval: Interval, at: u64) -> bool {
        let time = self.exact(at);
        i128::from(interval.lower) * MILLION <= time && time <= i128::from(interval.upper) * MILLION
    }

    /// The exchange that a member with this clock makes.
    pub fn exchange(&self, member: &TrueClock, plan: &Plan) -> Exchange {
        let reading = self.clock.read(plan.read_at(), plan.errors[1]);
        Exchange {
            sent: member.read(plan.sent_at, plan.errors[0]),
            received: member.read(plan.received_at(), plan.errors[2]),
            master: self.sync().time(reading).expect("its own time"),
        }
    }
}
