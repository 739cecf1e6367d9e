//! The application in the simulator, and a proof that its oracle can fail.

use plinth_counter as _;
use plinth_runtime::fault;
use plinth_sim::{HuntOptions, HuntReport, Limits, hunt};

fn look(seeds: u64, fault: Option<&str>) -> HuntReport {
    let limits = Limits {
        workloads: Some(vec!["counter".into()]),
        ..Limits::default()
    };
    let options = HuntOptions {
        jobs: 2,
        planted_fault: fault.map(String::from),
        limits,
        ..HuntOptions::new(1..=seeds, "applications")
    };
    hunt(&options, |_| ())
}

#[test]
fn no_acknowledged_addition_is_lost_or_counted_twice() {
    let report = look(8, None);
    if let Some(failed) = report.failure {
        panic!("{:?}\nagain with: {}", failed.result, failed.command());
    }
    assert_eq!(report.runs, 8);
}

#[test]
fn an_answer_without_a_commit_is_found() {
    let name = "counter_drops_additions";
    let found = look(100, Some(name)).failure.expect("the oracle finds it");
    println!("{name}: seed {}: {:?}", found.seed, found.result);
    fault::found(name);
}
