//! Intervals contain the master's time, and stay narrow.

use super::model::{BOUNDS, Master, Plan, TrueClock, clock, error, plans};
use crate::{Bounds, Exchange, Interval, Shared, Sync, Untimed};
use proptest::prelude::*;

const SPAN: u64 = 100_000_000_000;

fn begins() -> impl Strategy<Value = u64> {
    1_000_000..1u64 << 60
}

/// What a member does, at true times.
enum Step<'a> {
    Learn(&'a Plan),
    Read(i64),
}

fn steps<'a>(plans: &'a [Plan], reads: &[(u64, i64)]) -> Vec<(u64, Step<'a>)> {
    let learns = plans.iter().map(|p| (p.received_at(), Step::Learn(p)));
    let reads = reads.iter().map(|(at, error)| (*at, Step::Read(*error)));
    let mut steps: Vec<_> = learns.chain(reads).collect();
    steps.sort_by_key(|step| step.0);
    steps
}

/// All that a plan could tell at `now`, by the formulas of Figure 2 alone.
fn alone(exchange: &Exchange, now: u64) -> Interval {
    let since = |local: u64| now.saturating_sub(local);
    Interval {
        lower: exchange.master.lower + BOUNDS.least(since(exchange.received)),
        upper: exchange.master.upper + BOUNDS.most(since(exchange.sent)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_time_of_a_shared_clock_is_as_exact_as_its_readings(
        master in (clock(SPAN), begins()),
        plans in plans(SPAN, 40),
        reads in prop::collection::vec((0..2 * SPAN, error()), 1..60),
        // Where this process begins to count, and how wrong it is about that.
        origin in 0u64..1 << 50,
        wrong in -200i64..=200,
    ) {
        let master = Master::new(master.0, master.1);
        let mut clock = master.clock.clone();
        clock.origin += origin;
        let (time, local) = master.sync().own().expect("it leads");
        let local = (local + origin).saturating_add_signed(wrong);
        let shared = Shared { era: 1, time, local, error_ns: 200 };
        let mut sync = Sync::new(BOUNDS);
        prop_assert!(!sync.share(shared, clock.read(0, 0)), "nothing else is known");
        for (at, step) in steps(&plans, &reads) {
            match step {
                Step::Learn(plan) => {
                    prop_assert!(sync.learn(&master.exchange(&clock, plan)));
                    prop_assert!(sync.share(shared, clock.read(at, 0)));
                }
                Step::Read(error) => if let Ok(interval) = sync.time(clock.read(at, error)) {
                    prop_assert!(master.is_in(interval, at), "{interval:?} at {at}");
                    prop_assert!(interval.uncertainty() <= 2 * (BOUNDS.reading_ns + 200));
                },
            }
        }
    }

    #[test]
    fn a_clock_that_is_not_shared_is_found(
        master in (clock(SPAN), begins()), plan in plans(SPAN, 2), apart in 1u64..1 << 34,
    ) {
        let Some(plan) = plan.first() else { return Ok(()) };
        let master = Master::new(master.0, master.1);
        let (time, local) = master.sync().own().expect("it leads");
        let mut sync = Sync::new(BOUNDS);
        let exchange = master.exchange(&master.clock, plan);
        prop_assert!(sync.learn(&exchange));
        let now = exchange.received;
        let uncertainty = sync.time(now).expect("a time").uncertainty();
        let local = local + uncertainty + 2000 + apart;
        let shared = Shared { era: 1, time, local, error_ns: 200 };
        // One that is nearer than the exchange can tell is found when a better exchange comes.
        prop_assert!(!sync.share(shared, now));
    }

    #[test]
    fn every_interval_contains_the_masters_time_and_lower_bounds_do_not_go_back(
        master in (clock(SPAN), begins()),
        member in clock(SPAN),
        plans in plans(SPAN, 40),
        reads in prop::collection::vec((0..2 * SPAN, error()), 1..60),
    ) {
        let master = Master::new(master.0, master.1);
        let mut sync = Sync::new(BOUNDS);
        let (mut is_synchronised, mut floor) = (false, 0);
        for (at, step) in steps(&plans, &reads) {
            match step {
                Step::Learn(plan) => {
                    let exchange = master.exchange(&member, plan);
                    prop_assert!(sync.learn(&exchange), "an honest exchange is refused");
                    is_synchronised = true;
                }
                Step::Read(error) => match sync.time(member.read(at, error)) {
                    Ok(interval) => {
                        prop_assert!(is_synchronised);
                        prop_assert!(master.is_in(interval, at), "{interval:?} at {at}");
                        prop_assert!(interval.lower >= floor);
                        floor = interval.lower;
                    }
                    Err(why) => {
                        prop_assert_eq!(why, Untimed::Unsynchronised);
                        prop_assert!(!is_synchronised);
                    }
                },
            }
        }
    }

    #[test]
    fn two_exchanges_tell_as_much_as_all_of_them(
        master in (clock(SPAN), begins()),
        member in clock(SPAN),
        plans in plans(SPAN, 20),
        now in SPAN..3 * SPAN,
    ) {
        let master = Master::new(master.0, master.1);
        let mut sync = Sync::new(BOUNDS);
        let now = 4 * SPAN + now;
        let mut best = Interval { lower: 0, upper: u64::MAX };
        for (_, step) in steps(&plans, &[]) {
            let Step::Learn(plan) = step else { continue };
            let exchange = master.exchange(&member, plan);
            prop_assert!(sync.learn(&exchange));
            let alone = alone(&exchange, member.read(now, 0));
            best.lower = best.lower.max(alone.lower);
            best.upper = best.upper.min(alone.upper);
        }
        if let Ok(interval) = sync.time(member.read(now, 0)) {
            // Each bound is rounded by less than a nanosecond, so the better of two may seem worse by one.
            prop_assert!(interval.lower.abs_diff(best.lower) <= 1, "{interval:?}, {best:?}");
            prop_assert!(interval.upper.abs_diff(best.upper) <= 1, "{interval:?}, {best:?}");
        }
    }

    #[test]
    fn any_numbers_are_taken_and_no_bound_overflows(
        bounds in (any::<u32>(), any::<u64>()),
        exchanges in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..8),
        own in any::<(bool, u64, u64)>(),
        reads in prop::collection::vec(any::<u64>(), 1..8),
    ) {
        let mut sync = Sync::new(Bounds { drift_ppm: bounds.0, reading_ns: bounds.1 });
        if own.0 {
            sync.lead(own.1, own.2);
        }
        for (sent, received, lower, upper) in exchanges {
            let master = Interval { lower, upper };
            let is_taken = sync.learn(&Exchange { sent, received, master });
            let is_late = u128::from(sent) > u128::from(received) + 2 * u128::from(bounds.1);
            prop_assert!(!is_taken || (!is_late && lower <= upper && !own.0));
        }
        let mut floor = 0;
        for now in reads {
            if let Ok(interval) = sync.time(now) {
                prop_assert!(interval.lower <= interval.upper && floor <= interval.lower);
                floor = interval.lower;
            }
        }
    }
}

fn steady(ppm: i64) -> TrueClock {
    TrueClock {
        origin: 5_000_000_000,
        rates: vec![(0, ppm)],
    }
}

fn plan(sent_at: u64) -> Plan {
    Plan {
        sent_at,
        there: 10_000,
        back: 10_000,
        errors: [0; 3],
    }
}

#[test]
fn the_uncertainty_is_the_round_trip_and_a_thousandth_on_either_side() {
    let master = Master::new(steady(0), 0);
    let (member, mut sync) = (steady(0), Sync::new(BOUNDS));
    assert!(sync.learn(&master.exchange(&member, &plan(1_000_000))));
    let at_once = sync.time(member.read(1_020_000, 0)).expect("a time");
    // The round trip, three readings of which two count on either side, and what drift adds to them.
    assert_eq!(at_once.uncertainty(), 20_000 + 2 * 400 + 2 * 400 + 21);
    let later = sync.time(member.read(101_020_000, 0)).expect("a time");
    let grown = later.uncertainty() - at_once.uncertainty();
    assert!((200_000..=201_000).contains(&grown), "{grown}");
}

#[test]
fn readings_of_two_threads_may_be_apart_the_wrong_way() {
    let master = Master::new(steady(0), 0);
    let mut sync = Sync::new(BOUNDS);
    let mut exchange = master.exchange(&steady(0), &plan(1_000_000));
    exchange.received = exchange.sent - 2 * 400;
    assert!(sync.learn(&exchange));
    exchange.received = exchange.sent - 2 * 400 - 1;
    assert!(!sync.learn(&exchange));
}

#[test]
fn a_clock_that_jumps_is_found() {
    let master = Master::new(steady(0), 0);
    let member = steady(0);
    let synchronised = || {
        let mut sync = Sync::new(BOUNDS);
        assert!(sync.learn(&master.exchange(&member, &plan(1_000_000))));
        assert!(sync.time(member.read(2_000_000, 0)).is_ok());
        sync
    };
    let mut back = synchronised();
    let before = member.read(1_990_000, 0);
    assert_eq!(back.time(before), Err(Untimed::Broken));
    for jump in [-10_000_000i64, 10_000_000] {
        let mut sync = synchronised();
        let mut exchange = master.exchange(&member, &plan(3_000_000));
        exchange.sent = exchange.sent.saturating_add_signed(jump);
        exchange.received = exchange.received.saturating_add_signed(jump);
        assert!(!sync.learn(&exchange), "a jump by {jump}");
    }
}
