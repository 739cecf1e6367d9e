//! A few seeds of each scenario; `plinth sim hunt` does many.

use plinth_sim::{HuntOptions, SCENARIOS, hunt};

fn all_pass(scenario: &str, seeds: std::ops::RangeInclusive<u64>) {
    let options = HuntOptions {
        seeds,
        jobs: 2,
        budget: None,
        scenarios: vec![scenario.to_string()],
        planted_fault: None,
    };
    let report = hunt(&options, |outcome| println!("{outcome}"));
    if let Some(failed) = report.failure {
        failed
            .trace_tail
            .iter()
            .rev()
            .take(80)
            .rev()
            .for_each(|line| eprintln!("{line}"));
        panic!(
            "{failed}\n{:?}\nagain with: {}",
            failed.failure,
            failed.command()
        );
    }
    assert!(report.runs > 0);
}

#[test]
fn a_quiet_cluster_keeps_every_promise() {
    all_pass("quiet", 1..=8);
}

#[test]
fn a_cluster_that_breaks_all_the_time_keeps_every_promise() {
    let seeds = std::env::var("PLINTH_SIM_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(6);
    let first = std::env::var("PLINTH_SIM_FIRST")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    for scenario in SCENARIOS.iter().filter(|s| s.fault_interval_ms > 0) {
        all_pass(scenario.name, first..=first + seeds - 1);
    }
}
