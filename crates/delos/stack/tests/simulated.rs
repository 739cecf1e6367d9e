//! Stacks in the simulator: replicas on the machines of a cluster, clients and an operator with every fault, and
//! proofs that the oracles can fail.

use plinth_core::testing::is_nightly;
use plinth_delos as _;
use plinth_runtime::fault;
use plinth_sim::{HuntOptions, HuntReport, Limits, hunt};
use std::ops::RangeInclusive;

fn look(workload: &str, seeds: RangeInclusive<u64>, fault: Option<&str>) -> HuntReport {
    let limits = Limits {
        workloads: Some(vec![workload.into()]),
        ..Limits::default()
    };
    let options = HuntOptions {
        jobs: 2,
        planted_fault: fault.map(String::from),
        limits,
        ..HuntOptions::new(seeds, "applications")
    };
    hunt(&options, |_| ())
}

/// Within 200 seeds from `first` on, a seed that has shown the fault: those before it are left out to save time.
fn is_found(workload: &str, name: &str, first: u64) {
    let report = look(workload, first..=first + 199, Some(name));
    let found = report
        .failure
        .unwrap_or_else(|| panic!("{name} went unnoticed in {} runs", report.runs));
    println!("{name}: seed {}: {:?}", found.seed, found.result);
    fault::found(name);
}

/// With half of the seeds unless tests run at their full length.
fn keeps_every_promise(workload: &str, seeds: u64) {
    let seeds = if is_nightly() { seeds } else { seeds / 2 };
    let report = look(workload, 1..=seeds, None);
    if let Some(failed) = report.failure {
        panic!("{:?}\nagain with: {}", failed.result, failed.command());
    }
    assert_eq!(report.runs, seeds);
}

#[test]
fn replicas_on_log_servers_keep_every_promise() {
    keeps_every_promise("delos", 16);
}

#[test]
fn replicas_on_streams_of_the_store_keep_every_promise() {
    keeps_every_promise("delos_stream", 16);
}

#[test]
fn an_engine_that_acts_before_it_is_enabled_is_found() {
    is_found("delos", "delos_acts_before_enabled", 18);
}

#[test]
fn a_lease_that_is_used_after_its_end_is_found() {
    is_found("delos", "delos_lease_stale", 8);
}

#[test]
fn a_batch_that_is_applied_in_two_transactions_is_found() {
    is_found("delos", "delos_batch_in_two", 1);
}

#[test]
fn a_header_that_an_old_replica_drops_is_found() {
    is_found("delos", "delos_header_dropped", 2);
}

#[test]
fn entries_that_are_trimmed_before_they_are_in_the_backup_are_found() {
    is_found("delos", "delos_trims_beyond_backup", 2);
}
