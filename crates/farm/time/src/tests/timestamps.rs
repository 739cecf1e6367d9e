//! Timestamps of many machines: Lemma 1 of §7, and its consequence.

use super::model::{BOUNDS, MILLION, Master, Plan, TrueClock, clock, error, plans};
use crate::{Interval, Pending, Sync, Verdict, non_strict};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SPAN: u64 = 1_000_000_000;
const MEMBERS: usize = 3;

/// A call of `GET_TS`. The machine is late by `lag` each time it wakes.
#[derive(Clone, Debug)]
struct Call {
    machine: usize,
    begin: u64,
    lag: u64,
    error: i64,
}

fn call() -> impl Strategy<Value = Call> {
    let lag = prop_oneof![Just(0u64), 0u64..1_000_000];
    let parts = (0..=MEMBERS, 0..2 * SPAN, lag, error());
    parts.prop_map(|(machine, begin, lag, error)| Call {
        machine,
        begin,
        lag,
        error,
    })
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    begin: u64,
    end: u64,
    timestamp: u64,
}

enum Event<'a> {
    Learn(usize, &'a Plan),
    Begin(&'a Call),
    Check(&'a Call, Pending),
}

struct World<'a> {
    master: &'a Master,
    clocks: Vec<TrueClock>,
    syncs: Vec<Sync>,
    events: BTreeMap<(u64, usize), Event<'a>>,
    scheduled: usize,
    ended: Vec<Ended>,
}

impl<'a> World<'a> {
    fn schedule(&mut self, at: u64, event: Event<'a>) {
        self.events.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    fn happen(&mut self, at: u64, event: Event<'a>) {
        match event {
            Event::Learn(member, plan) => {
                let exchange = self.master.exchange(&self.clocks[member], plan);
                assert!(self.syncs[member].learn(&exchange));
            }
            Event::Begin(call) => {
                let now = self.clocks[call.machine].read(at, call.error);
                if let Ok(interval) = self.syncs[call.machine].time(now) {
                    let past = i128::from(non_strict(interval)) * MILLION;
                    assert!(past <= self.master.exact(at), "not in the past");
                    self.check(at, call, Pending::new(interval));
                }
            }
            Event::Check(call, pending) => self.check(at, call, pending),
        }
    }

    fn check(&mut self, at: u64, call: &'a Call, pending: Pending) {
        let clock = &self.clocks[call.machine];
        let now = clock.read(at, -call.error);
        let interval = self.syncs[call.machine].time(now).expect("a time");
        match pending.check(interval, &BOUNDS) {
            Verdict::Past(timestamp) => self.ended.push(Ended {
                begin: call.begin,
                end: at,
                timestamp,
            }),
            Verdict::Wait(ns) => {
                let wake = clock.after(at, ns) + call.lag;
                self.schedule(wake, Event::Check(call, pending));
            }
        }
    }
}

fn run(master: &Master, clocks: &[TrueClock], plans: &[Vec<Plan>], calls: &[Call]) -> Vec<Ended> {
    let mut world = World {
        master,
        clocks: clocks.to_vec(),
        syncs: vec![Sync::new(BOUNDS); MEMBERS],
        events: BTreeMap::new(),
        scheduled: 0,
        ended: Vec::new(),
    };
    world.clocks.push(master.clock.clone());
    world.syncs.push(master.sync());
    for (member, plans) in plans.iter().enumerate() {
        for plan in plans {
            world.schedule(plan.received_at(), Event::Learn(member, plan));
        }
    }
    for call in calls {
        world.schedule(call.begin, Event::Begin(call));
    }
    while let Some(((at, _), event)) = world.events.pop_first() {
        world.happen(at, event);
    }
    world.ended
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_timestamp_was_not_past_when_its_call_began_and_is_past_when_it_ends(
        master in (clock(SPAN), 1_000_000..1u64 << 60),
        clocks in prop::collection::vec(clock(SPAN), MEMBERS),
        plans in prop::collection::vec(plans(SPAN, 10), MEMBERS),
        calls in prop::collection::vec(call(), 1..40),
    ) {
        let master = Master::new(master.0, master.1);
        let ended = run(&master, &clocks, &plans, &calls);
        for call in &ended {
            let timestamp = i128::from(call.timestamp) * MILLION;
            prop_assert!(master.exact(call.begin) <= timestamp, "it was past: {call:?}");
            prop_assert!(timestamp < master.exact(call.end), "it is not past yet: {call:?}");
        }
        for first in &ended {
            for second in ended.iter().filter(|second| first.end < second.begin) {
                prop_assert!(first.timestamp < second.timestamp, "{first:?}, {second:?}");
            }
        }
    }

    #[test]
    fn a_wait_is_long_enough_the_first_time(
        master in clock(SPAN), member in clock(SPAN), plan in plans(SPAN, 2), error in error(),
    ) {
        let master = Master::new(master, 1_000_000);
        let Some(plan) = plan.first() else { return Ok(()) };
        let mut sync = Sync::new(BOUNDS);
        prop_assert!(sync.learn(&master.exchange(&member, plan)));
        let begin = plan.received_at() + 1000;
        let interval = sync.time(member.read(begin, error)).expect("a time");
        let pending = Pending::new(interval);
        let Verdict::Wait(ns) = pending.check(interval, &BOUNDS) else {
            panic!("an upper bound is never past at once");
        };
        // The reading that ends the wait has the same error: what a sleep measures.
        let end = member.after(begin, ns);
        let interval = sync.time(member.read(end, error) + 1).expect("a time");
        prop_assert!(matches!(pending.check(interval, &BOUNDS), Verdict::Past(_)));
        prop_assert!(interval.uncertainty() <= ns + ns / 500 + 10_000);
    }
}

#[test]
fn a_timestamp_that_may_be_now_is_not_past() {
    let interval = |lower, upper| Interval { lower, upper };
    let pending = Pending::new(interval(10, 20));
    assert!(matches!(
        pending.check(interval(20, 25), &BOUNDS),
        Verdict::Wait(_)
    ));
    assert_eq!(pending.check(interval(21, 25), &BOUNDS), Verdict::Past(20));
}
