//! The watch on drift: finds bad clocks, and accuses no good one.

use super::model::{BOUNDS, MILLION, Master, Plan, TrueClock, plans};
use crate::{REPORTED_PPM, Watch};
use proptest::prelude::*;

const SPAN: u64 = 60_000_000_000;

/// A clock whose rates lie within `ppm` of true time.
fn within(ppm: i64) -> impl Strategy<Value = TrueClock> {
    let rate = move || prop_oneof![-ppm..=ppm, Just(-ppm), Just(ppm)];
    (1_000_000..1u64 << 60, rate(), 1..SPAN, rate()).prop_map(|(origin, first, at, then)| {
        let rates = vec![(0, first), (at, then)];
        TrueClock { origin, rates }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_honest_clock_is_never_reported_whatever_the_network_does(
        // 99 and 99 ppm apart, in opposite directions: just below 200 relative to each other.
        master in within(99), member in within(99), mut plans in plans(SPAN, 60),
    ) {
        let master = Master::new(master, 1_000_000);
        plans.sort_by_key(Plan::received_at);
        let mut watch = Watch::new(BOUNDS);
        for plan in &plans {
            let exchange = master.exchange(&member, plan);
            prop_assert_eq!(watch.learn(&exchange), None);
            if let Some(rate) = watch.rate() {
                prop_assert!(rate.slowest_ppm <= 199 && rate.fastest_ppm >= -199, "{rate:?}");
            }
        }
    }

    #[test]
    fn the_range_of_a_rate_contains_it(
        ppm in -400i64..400, own_ppm in -400i64..400, mut plans in plans(SPAN, 60),
    ) {
        let steady = |ppm| TrueClock { origin: 1_000_000, rates: vec![(0, ppm)] };
        let (master, member) = (Master::new(steady(ppm), 0), steady(own_ppm));
        plans.sort_by_key(Plan::received_at);
        let mut watch = Watch::new(BOUNDS);
        for plan in &plans {
            watch.learn(&master.exchange(&member, plan));
            if let Some(rate) = watch.rate() {
                let of_member = MILLION + i128::from(own_ppm);
                let relative = i128::from(ppm - own_ppm) * MILLION;
                prop_assert!(i128::from(rate.slowest_ppm) * of_member <= relative);
                prop_assert!(i128::from(rate.fastest_ppm) * of_member >= relative);
            }
        }
    }
}

fn reported_after(ppm: i64, round_trip: u64) -> Option<u64> {
    let steady = |ppm| TrueClock {
        origin: 1_000_000,
        rates: vec![(0, ppm)],
    };
    let (master, member) = (Master::new(steady(0), 0), steady(ppm));
    let mut watch = Watch::new(BOUNDS);
    let plans = (0..4000).map(|i| Plan {
        sent_at: i * 10_000_000,
        there: round_trip / 2,
        back: round_trip / 2,
        errors: [0; 3],
    });
    let mut found = plans.filter(|plan| {
        let rate = watch.learn(&master.exchange(&member, plan));
        rate.is_some_and(|rate| rate.is_beyond(REPORTED_PPM))
    });
    found.next().map(|plan| plan.sent_at)
}

#[test]
fn a_clock_beyond_the_limit_is_reported_sooner_on_a_faster_network() {
    let fast = reported_after(300, 20_000).expect("a report");
    let slow = reported_after(300, 1_000_000).expect("a report");
    assert!(fast < 1_000_000_000, "{fast}");
    assert!(fast < slow && slow < 40_000_000_000, "{slow}");
    assert!(reported_after(-300, 20_000).is_some());
    assert_eq!(reported_after(150, 20_000), None);
    assert_eq!(reported_after(-150, 20_000), None);
}
