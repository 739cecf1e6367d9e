//! The keeper in the simulator: gateways on the machines of a cluster, clients with every fault, and proofs that the
//! oracle can fail.

use plinth_core::testing::is_nightly;
use plinth_keeper as _;
use plinth_runtime::fault;
use plinth_sim::{HuntOptions, HuntReport, Limits, hunt};
use std::ops::RangeInclusive;

/// Looks at runs of the scenario with applications that have the keeper, without other workloads beside it.
fn look(seeds: RangeInclusive<u64>, fault: Option<&str>, narrow: Limits) -> HuntReport {
    let limits = Limits {
        workloads: Some(vec!["keeper".into()]),
        ..narrow
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
fn is_found(name: &str, first: u64) {
    is_found_in(name, first, Limits::default());
}

/// The same in runs that are narrowed to those in which the fault shows often.
fn is_found_in(name: &str, first: u64, narrow: Limits) {
    let report = look(first..=first + 199, Some(name), narrow);
    let found = report.failure.expect("the oracle finds it");
    println!("{name}: seed {}: {:?}", found.seed, found.result);
    fault::found(name);
}

/// One machine without faults, and at most so many gateways on it.
fn calm(gateways: usize) -> Limits {
    Limits {
        machines: Some(1),
        processes: Some(gateways),
        faults: Some(Vec::new()),
        ..Limits::default()
    }
}

#[test]
fn sessions_reads_watches_and_ephemerals_are_what_clients_were_promised() {
    let seeds = if is_nightly() { 16 } else { 8 };
    let report = look(1..=seeds, None, Limits::default());
    if let Some(failed) = report.failure {
        panic!("{:?}\nagain with: {}", failed.result, failed.command());
    }
    assert_eq!(report.runs, seeds);
}

#[test]
fn a_watch_that_is_lost_is_found() {
    is_found_in("keeper_watch_lost", 21, calm(2));
}

#[test]
fn a_written_node_that_is_driven_out_before_its_answer_is_found() {
    is_found("keeper_written_node_driven_out", 1);
}

#[test]
fn an_ephemeral_node_that_is_left_is_found() {
    is_found("keeper_ephemeral_left", 2);
}

#[test]
fn a_read_that_goes_back_is_found() {
    is_found("keeper_read_goes_back", 2);
}

#[test]
fn reads_of_one_request_that_see_two_states_are_found() {
    is_found("keeper_multi_read_torn", 3);
}

#[test]
fn a_transaction_that_is_shown_in_part_is_found() {
    is_found("keeper_multi_shown_in_part", 4);
}

#[test]
fn a_tree_that_is_deleted_in_part_is_found() {
    is_found_in("keeper_deleted_in_part", 2, calm(2));
}

#[test]
fn a_watch_among_several_reads_that_is_forgotten_is_found() {
    is_found_in("keeper_watch_among_reads_lost", 2, calm(2));
}

#[test]
fn a_batch_that_overlooks_the_one_before_it_is_found() {
    // A gateway that has others beside it gives its transactions conflict ranges, which hide the fault.
    is_found_in("keeper_batches_overlap", 4, calm(1));
}

#[test]
fn an_operation_that_does_not_rely_on_the_existence_of_nodes_is_found() {
    is_found("keeper_existence_not_locked", 2);
}

#[test]
fn an_operation_that_does_not_rely_on_the_data_of_nodes_is_found() {
    is_found("keeper_data_not_locked", 2);
}

#[test]
fn an_operation_that_does_not_rely_on_lists_of_children_is_found() {
    is_found_in("keeper_children_not_locked", 8, calm(2));
}

#[test]
fn a_change_of_an_access_list_that_no_other_operation_hears_of_is_found() {
    is_found_in("keeper_access_list_not_locked", 3, calm(2));
}

#[test]
fn an_operation_that_does_not_rely_on_its_session_is_found() {
    // A gateway that is slow for a while lags behind what others do with its sessions.
    let faults = [
        "pause_process",
        "suspend",
        "busy_process",
        "partition",
        "kill_process",
    ];
    let slow = Limits {
        faults: Some(faults.map(String::from).to_vec()),
        ..Limits::default()
    };
    is_found_in("keeper_session_not_locked", 31, slow);
}

#[test]
fn an_operation_that_does_not_rely_on_the_use_of_its_quota_is_found() {
    is_found_in("keeper_quota_not_locked", 3, calm(2));
}

#[test]
fn an_unknown_node_that_is_taken_for_an_absent_one_is_found() {
    is_found_in("keeper_unknown_is_absent", 12, calm(2));
}

#[test]
fn a_watch_that_misses_something_between_two_gateways_is_found() {
    is_found_in("keeper_missed_event_not_told", 2, calm(2));
}

#[test]
fn an_event_in_another_form_than_its_client_asked_for_is_found() {
    is_found_in("keeper_event_is_narrow", 1, calm(1));
}

#[test]
fn a_frame_without_a_block_to_a_compressed_connection_is_found() {
    is_found_in("keeper_frame_without_block", 1, calm(1));
}
