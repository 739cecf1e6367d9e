//! The in-memory engine in the simulator: drawn by hunts, the same whenever it is run, and its oracles find what is
//! planted.

use plinth_farm_check as _;
use plinth_runtime::fault;
use plinth_sim::{HuntOptions, RunOptions, hunt, run, shrink};

/// A planted fault must be found within so many seeds.
const FOUND_WITHIN: u64 = 200;

/// The fault is found, and the command that is printed finds it again. The search begins at a seed that has shown it.
fn is_found(name: &str, first: u64) {
    let report = hunt(
        &HuntOptions {
            planted_fault: Some(name.into()),
            check_determinism_every: 0,
            ..HuntOptions::new(first..=first + FOUND_WITHIN - 1, "farm")
        },
        |_| (),
    );
    let found = report
        .failure
        .unwrap_or_else(|| panic!("{name} went unnoticed in {} runs", report.runs));
    println!("{}: {:?}", found.command(), found.result);
    let seed = found.seed;
    let command =
        format!("plinth tools sim run --seed {seed} --scenario farm --planted-fault {name}");
    assert_eq!(found.command(), command);
    let again = run(RunOptions {
        planted_fault: Some(name.into()),
        ..RunOptions::new(seed, "farm")
    });
    assert_eq!(
        (again.result, again.fingerprint),
        (found.result, found.fingerprint)
    );
    fault::found(name);
}

#[test]
fn timestamps_that_nobody_waits_for_are_found() {
    is_found("farm_no_uncertainty_wait", 2);
}

#[test]
fn a_clock_master_that_does_not_fast_forward_is_found() {
    is_found("farm_master_does_not_fast_forward", 3);
}

#[test]
fn a_clock_that_jumps_and_is_believed_is_found() {
    is_found("farm_jump_is_believed", 2);
}

#[test]
fn an_old_version_that_is_collected_early_is_found() {
    is_found("farm_old_version_collected_early", 1);
}

#[test]
fn a_recovery_that_forgets_locks_is_found() {
    is_found("farm_recovery_forgets_locks", 2);
}

#[test]
fn a_recovery_that_forgets_writes_is_found() {
    is_found("farm_recovery_forgets_writes", 2);
}

#[test]
fn a_query_with_a_stage_at_another_snapshot_is_found() {
    is_found("graph_stage_at_another_snapshot", 62);
}

#[test]
fn a_run_is_the_same_twice() {
    for seed in 1..12 {
        let outcome = run(RunOptions {
            check_determinism: true,
            ..RunOptions::new(seed, "farm")
        });
        assert_eq!(outcome.result, Ok(()), "{}", outcome.command());
    }
}

#[test]
fn a_failure_is_made_smaller() {
    let fails = |seed| {
        let options = RunOptions {
            planted_fault: Some("farm_old_version_collected_early".into()),
            ..RunOptions::new(seed, "farm")
        };
        let whole = run(options.clone());
        whole.result.is_err().then_some((options, whole))
    };
    let (options, whole) = (1..=FOUND_WITHIN).find_map(fails).expect("it is found");
    let smallest = shrink(&options, 2, |_, _| ()).expect("it fails");
    println!("{}", smallest.command());
    assert!(smallest.drawn.machines <= whole.drawn.machines);
    assert_eq!(smallest.drawn.workloads.len(), 1);
    let again = run(RunOptions {
        limits: smallest.limits.clone(),
        seed: smallest.seed,
        ..options
    });
    assert_eq!(again.fingerprint, smallest.fingerprint);
}
