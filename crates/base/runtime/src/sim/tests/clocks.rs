//! Clocks that drift and jump.

use super::*;
use crate::second_clock;

#[test]
fn clocks_drift_apart() {
    let sim = simulation(5);
    let machines: Vec<MachineId> = (0..5)
        .map(|_| sim.add_machine(Locality::default()))
        .collect();
    let mut seen = BTreeSet::new();
    for machine in machines {
        let local = sim.run_on(machine, async {
            let true_start = control().elapsed();
            let start = now();
            sleep(Duration::from_secs(1000)).await;
            let (local, passed) = (start.elapsed(), control().elapsed() - true_start);
            assert!(
                local >= Duration::from_secs(1000),
                "a sleep never ends early"
            );
            let ratio = passed.as_secs_f64() / local.as_secs_f64();
            assert!((ratio - 1.0).abs() < 0.0102, "drift of {ratio}");
            passed
        });
        seen.insert(local.unwrap());
    }
    assert_eq!(seen.len(), 5);
}

#[test]
fn a_clock_that_jumps_leaves_its_second_clock_behind() {
    let sim = simulation(5);
    let machine = sim.add_machine(Locality::default());
    let jumped = sim.run_on(machine, async move {
        let second = || second_clock().expect("simulated machines have one").0;
        let difference = || i128::from(now().0) - i128::from(second());
        sleep(Duration::from_secs(10)).await;
        let (begin, at_begin) = (second(), difference());
        let mut total = 0;
        for by in [5_000, -3_000_000_000, 1, 86_400_000_000_000] {
            control().jump_clock(machine, by);
            control().set_clock_drift(machine, by % 100);
            total += i128::from(by);
            assert_eq!(difference(), at_begin + total);
            sleep(Duration::from_millis(10)).await;
            assert_eq!(difference(), at_begin + total, "both run at the same rate");
        }
        second() - begin
    });
    let slept = jumped.expect("it ends");
    assert!((40_000_000..41_000_000).contains(&slept), "{slept}");
}

#[test]
fn a_clock_is_inverted_exactly() {
    for drift in [-10_000, -1, 0, 3, 10_000] {
        let clock = machine::Clock::new(1_000_000_000, 77, drift);
        for local in (77..3_000_000).step_by(997) {
            let at = clock.true_time(local);
            assert!(clock.local(at) >= local);
            assert!(at == 1_000_000_000 || clock.local(at - 1) < local);
        }
    }
}
