//! Some seeds of each workload, and the planted faults that they find.

use plinth_core::testing::is_nightly;
use plinth_farm_check::{Shown, Workload, run};
use plinth_runtime::{fault, probe};

/// All of it when tests run at their full length, and half of it otherwise.
fn share(all: u64) -> u64 {
    if is_nightly() { all } else { all / 2 }
}

/// So much has happened in the share of the seeds that was run.
fn enough(count: impl TryInto<u64>, all: u64) -> bool {
    count.try_into().is_ok_and(|count| count > share(all))
}

fn sum(workload: Workload, seeds: u64) -> Shown {
    let mut sum = Shown::default();
    for seed in 0..share(seeds) {
        let shown = run(workload, seed).unwrap_or_else(|violation| panic!("{violation}"));
        sum.committed += shown.committed;
        sum.judged += shown.judged;
        for (abort, count) in shown.aborts {
            *sum.aborts.entry(abort).or_default() += count;
        }
    }
    println!("{sum:?}");
    sum
}

/// The runs have come by these places.
fn assert_taken(paths: &[&str]) {
    let hits = probe::hits();
    for path in paths {
        assert!(hits.contains_key(path), "never: {path}");
    }
}

#[test]
fn a_tree_and_a_table_are_maps_at_every_timestamp() {
    let sum = sum(Workload::Structures, 60);
    assert!(enough(sum.committed, 2_000) && enough(sum.judged, 20_000));
    assert_taken(&[
        "btree_cache_is_stale",
        "farm object that came later",
        "farm old version read elsewhere",
        "farm read waits for a lock",
        "farm slab leaves its class",
        "hash_directory_is_stale",
    ]);
}

#[test]
fn keys_and_values_are_a_map_at_every_timestamp() {
    let sum = sum(Workload::Pairs, 60);
    assert!(enough(sum.committed, 2_000) && enough(sum.judged, 20_000));
    assert_taken(&["farm slab leaves its class", "farm_slab_goes_to_any_class"]);
}

#[test]
fn tpcc_keeps_its_conditions_on_several_machines() {
    let sum = sum(Workload::Orders, 24);
    assert!(enough(sum.committed, 1_000) && enough(sum.judged, 50));
}

#[test]
fn a_graph_is_the_model_at_every_timestamp_here_and_where_the_vertices_are() {
    let sum = sum(Workload::Graph, 40);
    assert!(
        enough(sum.committed, 1_000)
            && enough(sum.judged, 10_000)
            && enough(sum.aborts["shipped"], 500)
    );
    assert!(enough(sum.aborts["nobody answered"], 20));
    assert_taken(&[
        "graph_index_has_it_from_a_writer",
        "graph_list_becomes_a_tree",
        "graph_schema_is_stale",
        "graph_stage_is_shipped",
    ]);
}

#[test]
fn a_tree_and_a_table_are_maps_while_machines_fail() {
    let sum = sum(Workload::StructuresInStorm, 60);
    assert!(enough(sum.committed, 5_000) && enough(sum.judged, 50_000));
    assert!(enough(sum.aborts["kills"], 100) && enough(sum.aborts["unheard"], 10));
    assert!(enough(sum.aborts["configurations"], 500) && sum.aborts["lost"] < 2);
    assert!(enough(sum.aborts["freed twice"], 300) && enough(sum.aborts["Full"], 100));
    assert!(
        enough(sum.aborts["begun with an old record"], 40)
            && enough(sum.aborts["clock broken"], 20)
    );
    assert_taken(&[
        "farm clock has jumped",
        "farm cell copied again",
        "farm outcome told by a recovery",
        "farm piece of a letter sent again",
        "farm read goes on in the next configuration",
        "farm recovery has applied a write",
        "farm slab copied anew",
    ]);
}

#[test]
fn keys_and_values_are_a_map_while_machines_fail() {
    let sum = sum(Workload::PairsInStorm, 40);
    assert!(enough(sum.committed, 4_000) && enough(sum.judged, 40_000) && sum.aborts["lost"] < 2);
    assert!(enough(sum.aborts["kills"], 100) && enough(sum.aborts["unheard"], 40));
}

#[test]
fn a_graph_is_the_model_while_machines_fail_here_and_where_the_vertices_are() {
    let sum = sum(Workload::GraphInStorm, 40);
    assert!(enough(sum.committed, 4_000) && enough(sum.judged, 20_000) && sum.aborts["lost"] < 2);
    assert!(enough(sum.aborts["kills"], 100) && enough(sum.aborts["unheard"], 10));
    assert!(enough(sum.aborts["shipped"], 800) && enough(sum.aborts["a machine is gone"], 5));
}

#[test]
fn tpcc_keeps_its_conditions_while_machines_fail() {
    let sum = sum(Workload::OrdersInStorm, 12);
    assert!(enough(sum.committed, 2_000) && enough(sum.judged, 1_000));
}

#[test]
fn nothing_that_was_reported_is_lost_when_the_power_fails_everywhere() {
    let sum = sum(Workload::DurableStructures, 30);
    assert!(enough(sum.committed, 3_000) && enough(sum.judged, 30_000));
    assert!(enough(sum.aborts["power cuts"], 100) && enough(sum.aborts["unheard"], 10));
    assert_taken(&[
        "farm commit kept for a former configuration",
        "farm recovery has applied a write",
        "farm_disk_manifest_whole",
    ]);
}

#[test]
fn tpcc_keeps_its_conditions_when_the_power_fails_everywhere() {
    let sum = sum(Workload::DurableOrders, 8);
    assert!(enough(sum.committed, 1_000) && enough(sum.judged, 300));
}

#[test]
fn primaries_load_objects_from_their_disks_while_they_are_read_and_written() {
    let sum = sum(Workload::StructuresOnDisk, 30);
    assert!(enough(sum.committed, 3_000) && enough(sum.judged, 30_000));
    assert_taken(&[
        "farm object read from the disk because somebody asked",
        "farm lock of an object that is away",
        "farm copy waits for an object that is away",
    ]);
}

#[test]
fn tpcc_keeps_its_conditions_while_primaries_load_objects_from_their_disks() {
    let sum = sum(Workload::OrdersOnDisk, 8);
    assert!(enough(sum.committed, 1_000) && enough(sum.judged, 300));
}

/// Seeds that have failed once, in code that was mended since.
#[test]
fn what_once_went_wrong_on_disks_goes_well() {
    // A read in a configuration whose regions were not open; loads that began anew with each configuration; members
    // that all did not know the time; a load that followed the log's end for ever.
    for seed in [16, 0, 30, 33, 1247, 1710] {
        if let Err(violation) = run(Workload::StructuresOnDisk, seed) {
            panic!("{violation}");
        }
    }
}

#[test]
fn an_object_on_the_disk_that_is_taken_for_nothing_is_found() {
    is_found("farm_away_is_nothing", &[(Workload::StructuresOnDisk, 0)]);
}

#[test]
fn an_old_version_that_is_loaded_over_a_newer_one_is_found() {
    is_found("farm_load_overwrites", &[(Workload::StructuresOnDisk, 0)]);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for workload in Workload::ALL {
        assert_eq!(run(workload, 7), run(workload, 7));
    }
}

/// Each of these workloads finds the fault, and says how to find it again. The search begins at a seed that has shown
/// it. It goes on from there when a change of the code has given the seeds new runs.
fn is_found(planted: &'static str, workloads: &[(Workload, u64)]) {
    for (workload, first) in workloads {
        fault::plant(Some(planted));
        let found = (*first..first + 60).find_map(|seed| run(*workload, seed).err());
        fault::plant(None);
        let found = found.unwrap_or_else(|| panic!("{planted}: {workload:?} does not find it"));
        let found = found.to_string();
        assert!(found.ends_with(planted), "{found}");
        println!("{found}");
    }
    fault::found(planted);
}

#[test]
fn a_commit_without_validation_is_found() {
    is_found(
        "farm_no_validation",
        &[(Workload::Structures, 0), (Workload::Pairs, 0)],
    );
}

#[test]
fn a_reader_that_ignores_a_lock_is_found() {
    is_found(
        "farm_reader_ignores_lock",
        &[
            (Workload::Structures, 0),
            (Workload::Pairs, 0),
            (Workload::Orders, 2),
            (Workload::Graph, 0),
            (Workload::StructuresInStorm, 0),
            (Workload::PairsInStorm, 0),
            (Workload::OrdersInStorm, 0),
            (Workload::GraphInStorm, 1),
            (Workload::DurableStructures, 0),
            (Workload::DurableOrders, 0),
            (Workload::StructuresOnDisk, 0),
            (Workload::OrdersOnDisk, 0),
        ],
    );
}

#[test]
fn a_timestamp_that_is_used_in_the_future_is_found() {
    is_found(
        "farm_no_uncertainty_wait",
        &[(Workload::Structures, 0), (Workload::Pairs, 0)],
    );
}

#[test]
fn an_old_version_that_is_collected_early_is_found() {
    is_found(
        "farm_old_version_collected_early",
        &[
            (Workload::Structures, 0),
            (Workload::Pairs, 0),
            (Workload::Orders, 1),
            (Workload::Graph, 0),
            (Workload::StructuresInStorm, 0),
            (Workload::PairsInStorm, 0),
            (Workload::OrdersInStorm, 0),
            (Workload::GraphInStorm, 0),
            (Workload::DurableStructures, 0),
            (Workload::DurableOrders, 1),
            (Workload::StructuresOnDisk, 1),
            (Workload::OrdersOnDisk, 0),
        ],
    );
}

#[test]
fn a_recovery_that_forgets_writes_is_found() {
    is_found(
        "farm_recovery_forgets_writes",
        &[(Workload::StructuresInStorm, 0)],
    );
}

#[test]
fn a_recovery_that_forgets_locks_is_found() {
    is_found(
        "farm_recovery_forgets_locks",
        &[(Workload::StructuresInStorm, 2)],
    );
}

#[test]
fn a_jump_of_a_clock_that_is_believed_is_found() {
    is_found("farm_jump_is_believed", &[(Workload::StructuresInStorm, 2)]);
}

#[test]
fn a_clock_master_that_does_not_fast_forward_is_found() {
    is_found(
        "farm_master_does_not_fast_forward",
        &[
            (Workload::StructuresInStorm, 0),
            (Workload::PairsInStorm, 0),
        ],
    );
}

#[test]
fn a_replica_that_is_whole_before_it_has_copied_is_found() {
    is_found(
        "farm_new_replica_is_whole",
        &[(Workload::StructuresInStorm, 0)],
    );
}

#[test]
fn a_fabric_that_closes_nothing_is_found() {
    is_found("farm_fence_is_open", &[(Workload::StructuresInStorm, 55)]);
}

#[test]
fn a_commit_that_no_disk_has_is_found() {
    is_found(
        "farm_commit_is_not_kept",
        &[(Workload::DurableStructures, 0)],
    );
}

#[test]
fn a_journal_that_is_cut_without_a_mark_is_found() {
    is_found(
        "farm_journal_is_cut_without_a_mark",
        &[(Workload::DurableStructures, 4)],
    );
}

#[test]
fn a_memory_that_is_loaded_under_its_readers_is_found() {
    is_found(
        "farm_disk_is_loaded_under_readers",
        &[(Workload::DurableStructures, 7)],
    );
}

#[test]
fn a_fence_that_is_late_is_found() {
    let workloads = [
        (Workload::Structures, 0),
        (Workload::Pairs, 0),
        (Workload::Orders, 0),
    ];
    is_found("btree_fence_is_late", &workloads);
}

#[test]
fn a_chain_that_is_left_is_found() {
    is_found("hash_chain_is_left", &[(Workload::Structures, 26)]);
}

#[test]
fn a_payment_that_forgets_its_district_is_found() {
    is_found("tpcc_payment_forgets_district", &[(Workload::Orders, 0)]);
}

#[test]
fn an_edge_that_stays_at_one_end_is_found() {
    is_found("graph_edge_stays_at_one_end", &[(Workload::Graph, 0)]);
}

#[test]
fn an_index_that_keeps_a_former_value_is_found() {
    is_found("graph_index_keeps_former_value", &[(Workload::Graph, 7)]);
}

#[test]
fn a_schema_that_is_not_read_is_found() {
    is_found("graph_schema_is_not_read", &[(Workload::Graph, 0)]);
}

#[test]
fn a_stage_at_another_snapshot_is_found() {
    is_found("graph_stage_at_another_snapshot", &[(Workload::Graph, 1)]);
}
