//! Proves that the oracles work: each planted fault of the store is found. Those of services are planted in their own
//! tests; the test `simulated` of the binary runs every scenario without faults of this kind.

use plinth_runtime::fault;
use plinth_sim::{
    FailureKind, HuntOptions, Limits, Outcome, RunOptions, hunt, run, scenarios, shrink, workloads,
};

/// A planted fault must be found within so many seeds. It is no time that ends the search: a slow machine finds what a
/// fast one finds.
const FOUND_WITHIN: u64 = 100;

/// Asserts that the fault is found. Each test names the scenario in which the fault shows soonest, and a seed that has
/// shown it: the search begins there. It goes on from there when a change of the code has given the seeds new runs.
fn is_found(name: &str, scenario: &str, first: u64) {
    is_found_in(name, scenario, first, Limits::default());
}

/// The same in narrower runs. A fault that fewer than one run in thirty shows is looked for in those that show it more
/// often: otherwise the next change of the code, which gives the seeds new runs, makes the search long.
fn is_found_in(name: &str, scenario: &str, first: u64, limits: Limits) {
    let options = HuntOptions {
        planted_fault: Some(name.into()),
        limits,
        ..HuntOptions::new(first..=first + FOUND_WITHIN - 1, scenario)
    };
    let report = hunt(&options, |_| ());
    let found = report
        .failure
        .unwrap_or_else(|| panic!("{name} went unnoticed in {} runs", report.runs));
    println!(
        "{name}: seed {} of {scenario}: {:?}",
        found.seed, found.result
    );
    fault::found(name);
}

/// Runs with these kinds of fault, and these of the workloads that their seeds draw.
fn only(faults: Option<&[&str]>, workloads: &[&str]) -> Limits {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Limits {
        faults: faults.map(names),
        workloads: Some(names(workloads)),
        ..Limits::default()
    }
}

#[test]
fn without_services_there_are_the_store_s_scenarios_and_workloads_only() {
    let names: Vec<&str> = scenarios().iter().map(|scenario| scenario.name).collect();
    assert!(names.contains(&"standard") && !names.contains(&"applications"));
    let workloads = workloads::names();
    assert!(workloads.contains(&"bank") && workloads.contains(&"tokens"));
    assert_eq!(workloads.len(), 15);
}

#[test]
fn a_failure_is_made_smaller_and_stays_the_same() {
    // A fault that most runs show in the same way. A smaller run that has a rare failure, too, is found by luck only.
    let first = 1;
    let (options, whole) = (first..first + FOUND_WITHIN)
        .map(|seed| RunOptions {
            planted_fault: Some("skip_resolver".into()),
            ..RunOptions::new(seed, "recovery")
        })
        .map(|options| (options.clone(), run(options)))
        .find(|(_, outcome)| {
            let failure = outcome.result.as_ref().err();
            failure.is_some_and(|failure| failure.kind == FailureKind::Correctness)
        })
        .expect("the fault is found");
    let smallest = shrink(&options, 3, |_, _| ()).expect("it fails");
    let kind = |outcome: &Outcome| outcome.result.clone().map_err(|failure| failure.kind);
    assert_eq!(kind(&smallest), kind(&whole));
    assert!(smallest.drawn.workloads.len() < whole.drawn.workloads.len());
    assert!(smallest.drawn.machines <= whole.drawn.machines);
    // The printed command reproduces the run.
    let again = run(RunOptions {
        seed: smallest.seed,
        limits: smallest.limits.clone(),
        ..options
    });
    assert_eq!(again.fingerprint, smallest.fingerprint);
    println!("{}", smallest.command());
}

#[test]
fn an_audience_that_is_not_checked_is_found() {
    is_found("rpc_audience_is_not_checked", "standard", 47);
}

#[test]
fn a_commit_that_believes_the_flags_of_a_client_is_found() {
    is_found("commit_believes_the_client", "standard", 7);
}

#[test]
fn a_token_that_counts_after_its_end_is_found() {
    is_found_in(
        "token_outlives_its_end",
        "standard",
        1,
        only(None, &["tokens"]),
    );
}

#[test]
fn a_reply_before_the_sync_is_found() {
    is_found("reply_before_fsync", "power", 1);
}

#[test]
fn a_resolver_that_is_skipped_is_found() {
    is_found("skip_resolver", "recovery", 1);
}

#[test]
fn a_rollback_that_is_lost_is_found() {
    is_found("lose_rollback", "recovery", 5);
}

#[test]
fn a_sick_disk_that_is_trusted_is_found() {
    is_found_in(
        "sick_disks_are_trusted",
        "disks",
        4,
        only(Some(&["sick_disk"]), &["cycle"]),
    );
}

#[test]
fn a_read_past_its_version_is_found() {
    is_found("read_past_version", "quiet", 10);
}

#[test]
fn a_tag_dropped_at_recovery_is_found() {
    is_found("drop_tag_at_recovery", "recovery", 3);
}

#[test]
fn a_recovery_that_keeps_what_is_not_on_every_disk_is_found() {
    is_found("recovery_keeps_unfinished", "recovery", 2);
}

#[test]
fn a_recovery_that_forgets_the_newest_commits_is_found() {
    is_found("recovery_ends_too_early", "recovery", 1);
}

#[test]
fn a_recovery_that_believes_the_shorter_log_is_found() {
    // Without clients nothing is known committed that came after what the disk has lost.
    is_found_in(
        "shorter_log_is_believed",
        "lies",
        8,
        only(Some(&["lying_sync"]), &[]),
    );
}

#[test]
fn a_role_that_is_made_twice_is_found() {
    is_found("role_made_twice", "recovery", 9);
}

#[test]
fn a_part_taken_over_without_its_queue_is_found() {
    is_found("fetch_forgets_queue", "quiet", 9);
}

#[test]
fn a_commit_whose_proof_is_overlooked_is_found() {
    is_found("idempotency_overlooks_row", "standard", 10);
}

#[test]
fn a_recovery_with_coordinators_that_have_moved_is_found() {
    is_found("move_of_coordinators_forgotten", "coordinators", 3);
}

#[test]
fn a_state_that_only_a_minority_has_and_that_is_acted_on_is_found() {
    is_found_in(
        "minority_is_enough",
        "coordinators",
        44,
        only(Some(&[]), &[]),
    );
}

#[test]
fn a_process_that_takes_rising_versions_for_commits_is_found() {
    is_found("ready_without_a_commit", "ready", 1);
}

#[test]
fn a_last_copy_that_is_set_aside_is_found() {
    is_found("last_copy_set_aside", "damage", 1);
}

#[test]
fn a_damaged_copy_that_counts_is_found() {
    is_found("damaged_copy_counts", "damage", 1);
}

#[test]
fn a_server_that_serves_what_it_had_refused_before_it_was_started_again_is_found() {
    is_found("refused_is_forgotten", "damage", 1);
}

#[test]
fn nobody_is_ready_while_versions_rise_and_commits_hang() {
    let name = "commits_hang_while_versions_rise";
    let seen = (1..=3).map(|seed| {
        let outcome = run(RunOptions {
            planted_fault: Some(name.into()),
            ..RunOptions::new(seed, "ready")
        });
        assert_eq!(outcome.result, Ok(()), "{}", outcome.command());
        outcome
            .probes
            .contains_key("nobody_is_ready_while_nothing_commits")
    });
    assert_eq!(seen.filter(|seen| *seen).count(), 3);
    fault::found(name);
}

#[test]
fn a_stale_replica_that_is_counted_is_found() {
    is_found("stale_replica_is_counted", "stale", 1);
}

#[test]
fn a_shard_that_moves_although_all_its_copies_lag_is_found() {
    is_found("lagging_copies_are_moved", "stale", 16);
}

#[test]
fn a_coordinator_that_cannot_serve_and_is_counted_is_found() {
    is_found("silent_coordinators_count", "words", 33);
}

#[test]
fn a_name_that_is_resolved_once_is_found() {
    is_found("name_is_resolved_once", "names", 2);
}

#[test]
fn a_process_that_votes_for_whatever_name_leads_to_it_is_found() {
    is_found("whoever_answers_is_believed", "names", 1);
}

#[test]
fn a_coordinator_that_forgets_its_promises_is_found() {
    is_found_in("coordinator_forgets", "coordinators", 142, only(None, &[]));
}

#[test]
fn a_read_that_only_its_new_resolver_judges_is_found() {
    is_found("reads_follow_resolvers", "recovery", 4);
}

#[test]
fn a_stream_that_loses_rows_is_found() {
    is_found("stream_loses_rows", "quiet", 12);
}

#[test]
fn a_stream_that_one_proxy_does_not_know_is_found() {
    is_found("stream_known_to_one_proxy", "quiet", 12);
}

#[test]
fn a_stream_that_is_cut_and_does_not_say_so_is_found() {
    is_found("stream_cut_unsaid", "quiet", 14);
}

#[test]
fn system_transactions_that_are_never_forgotten_are_found() {
    is_found("proxy_never_says_what_it_has", "idle", 1);
}
