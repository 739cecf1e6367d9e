//! Each workload runs for a moment, and finds out if its data is damaged.

use crate::cluster::{Machines, Place};
use crate::kv::Access;
use crate::mode::Mode;
use crate::values::{key, value};
use crate::{Report, lengths, parse_policy, policy_name, reads, scans, tpcc, ycsb};
use bytes::Bytes;
use plinth_farm_engine::Policy;
use plinth_farm_memory::{Objects, Pointer};
use plinth_farm_structures::btree::BTree;
use plinth_farm_tpcc::{Scale, load};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, fault};

const QUIET: &dyn Fn(&str) = &|_| ();
const MOMENT: Duration = Duration::from_millis(150);
const POLICIES: [Policy; 4] = [
    Policy::MvBlock,
    Policy::MvAbort,
    Policy::MvTruncate,
    Policy::SingleVersion,
];

fn place() -> Place {
    Place::new(None)
}

fn sound(report: &Report, figures: usize) {
    assert_eq!(report.broken(), Vec::<String>::new());
    assert_eq!(report.figures().len(), figures, "{}", report.text());
}

/// Overwrites an object.
async fn damage(access: &Access, at: Pointer, with: &'static [u8]) {
    let damaged = load::run(access, async |tx| {
        Ok(tx.write(at, Bytes::from_static(with)).await?)
    });
    damaged.await.expect("it is written");
}

async fn set(access: &Access, tree: &BTree, row: u64, with: &[u8]) {
    let changed = load::run(access, async |tx| tree.set(tx, &key(row), with).await);
    assert_eq!(changed.await, Ok(false), "the row was there");
}

fn tpcc_plan(machines: u16, replicas: u16, modes: Vec<Mode>) -> tpcc::Plan {
    tpcc::Plan {
        machines: Machines {
            machines,
            replicas,
            region_mib: 40,
            old_mib: 4,
        },
        place: place(),
        scale: Scale {
            warehouses: 2,
            items: 100,
            districts: 3,
            customers: 30,
        },
        clients: 6,
        duration: MOMENT,
        warmup: MOMENT / 4,
        rounds: 2,
        modes,
        seed: 1,
    }
}

#[test]
fn tpcc_runs_under_every_policy_and_without_opacity() {
    let plan = tpcc_plan(1, 1, Mode::all(&POLICIES, true, true));
    let report = block_on(tpcc::run(&plan, QUIET)).expect("it runs");
    sound(&report, 5);
    for figure in report.figures() {
        assert!(
            figure["new_orders_a_second"].as_f64() > Some(0.0),
            "{figure}"
        );
        assert!(figure["latency"]["new order"]["p99_us"].as_f64() > Some(0.0));
        assert!(figure["ratio_to_first"].as_f64() > Some(0.0));
    }
    let names: Vec<_> = report
        .figures()
        .iter()
        .map(|figure| &figure["mode"])
        .collect();
    assert_eq!(
        names,
        ["block", "abort", "truncate", "single", "no opacity"]
    );
    assert_eq!(report.to_json()["workload"], "tpcc");
}

#[test]
fn tpcc_runs_on_three_machines_with_replicas() {
    let plan = tpcc_plan(3, 3, vec![Mode::opaque(Policy::MvTruncate)]);
    let report = block_on(tpcc::run(&plan, QUIET)).expect("it runs");
    sound(&report, 1);
}

#[test]
fn tpcc_whose_data_was_damaged_fails_its_check() {
    let plan = tpcc_plan(1, 1, vec![Mode::opaque(Policy::MvTruncate)]);
    let broken = block_on(async {
        let mut side = tpcc::Side::load(&plan, plan.modes[0])
            .await
            .expect("it loads");
        side.round(&plan, MOMENT).await.expect("it runs");
        assert_eq!(side.verify(false).await, Vec::<String>::new());
        let at = side.databases[0].warehouse(1).district(1).year_to_date;
        damage(&side.cluster.machine(0), at, &[1, 0, 0, 0, 0, 0, 0, 0]).await;
        side.verify(false).await
    });
    for condition in ["condition 1:", "condition 9:"] {
        assert!(
            broken.iter().any(|line| line.starts_with(condition)),
            "{broken:?}"
        );
    }
}

#[test]
fn tpcc_with_a_payment_that_forgets_its_district_says_that_it_is_broken() {
    fault::plant(Some("tpcc_payment_forgets_district"));
    let plan = tpcc_plan(1, 1, vec![Mode::opaque(Policy::SingleVersion)]);
    let report = block_on(tpcc::run(&plan, QUIET));
    fault::plant(None);
    let report = report.expect("it runs");
    assert!(
        report
            .broken()
            .iter()
            .any(|line| line.starts_with("single: condition 9:"))
    );
    assert!(report.text().contains("BROKEN single: condition 9:"));
    fault::found("tpcc_payment_forgets_district");
}

fn reads_plan() -> reads::Plan {
    reads::Plan {
        place: place(),
        objects: 500,
        bytes: 64,
        clients: 4,
        reads: 100,
        duration: MOMENT / 3,
        seed: 1,
    }
}

#[test]
fn reads_of_the_own_memory_and_of_another_machine_are_measured() {
    let report = block_on(reads::run(&reads_plan(), QUIET)).expect("it runs");
    sound(&report, 6);
    for figure in report.figures() {
        assert!(figure["reads_a_second"].as_f64() > Some(0.0), "{figure}");
    }
}

#[test]
fn reads_find_an_object_that_was_damaged() {
    let plan = reads_plan();
    let broken = block_on(async {
        let loaded = reads::Loaded::make(&plan).await.expect("it loads");
        assert_eq!(loaded.verify(&plan).await, Vec::<String>::new());
        damage(&loaded.cluster.machine(0), loaded.objects.0[7], b"damaged").await;
        loaded.verify(&plan).await
    });
    assert_eq!(broken.len(), 2, "both machines see it: {broken:?}");
}

fn ycsb_plan() -> ycsb::Plan {
    ycsb::Plan {
        place: place(),
        rows: 400,
        value_bytes: 100,
        clients: 4,
        mixes: ycsb::Mix::ALL.to_vec(),
        thetas: vec![0.0, 0.99],
        duration: MOMENT / 3,
        mode: Mode::opaque(Policy::MvTruncate),
        region_mib: 64,
        old_mib: 4,
        seed: 1,
    }
}

#[test]
fn ycsb_runs_each_mix_with_and_without_skew() {
    let report = block_on(ycsb::run(&ycsb_plan(), QUIET)).expect("it runs");
    sound(&report, 8);
    for figure in report.figures() {
        assert!(
            figure["transactions_a_second"].as_f64() > Some(0.0),
            "{figure}"
        );
    }
}

#[test]
fn ycsb_finds_rows_that_were_damaged_lost_or_not_updated() {
    let plan = ycsb_plan();
    block_on(async {
        let loaded = ycsb::Loaded::make(&plan).await.expect("it loads");
        assert_eq!(loaded.verify().await, Vec::<String>::new());
        let (access, tree) = (loaded.database.engine(), loaded.database.tree());
        set(access, tree, 3, b"damaged").await;
        set(access, tree, 4, &value(4, 77, plan.value_bytes)).await;
        let broken = loaded.verify().await;
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert_eq!(broken[0], "row 3 is missing or damaged");
        assert_eq!(broken[1], "row 4 has a value that nobody has written");
        let removed = load::run(access, async |tx| tree.remove(tx, &key(5)).await);
        assert_eq!(removed.await, Ok(true));
        let broken = loaded.verify().await;
        assert!(broken.contains(&"399 rows, not 400".into()), "{broken:?}");
    });
}

fn scans_plan(modes: Vec<Mode>) -> scans::Plan {
    scans::Plan {
        place: place(),
        rows: 300,
        value_bytes: 40,
        updaters: 4,
        scanners: 2,
        duration: MOMENT,
        rounds: 2,
        modes,
        region_mib: 40,
        old_mib: 16,
        seed: 1,
    }
}

#[test]
fn scans_see_the_same_sum_beside_updates_and_none_aborts_that_has_old_versions() {
    let plan = scans_plan(Mode::all(&POLICIES, true, false));
    let report = block_on(scans::run(&plan, QUIET)).expect("it runs");
    sound(&report, 4);
    for figure in &report.figures()[..3] {
        assert!(figure["scans"].as_u64() > Some(0), "{figure}");
        assert!(
            figure["updates_a_second_alone"].as_f64() > Some(0.0),
            "{figure}"
        );
        assert_eq!(figure["scan_aborts"], serde_json::json!({}), "{figure}");
    }
    let single = &report.figures()[3];
    assert!(
        single["scan_aborts"]["TooOld"].as_u64() > Some(0),
        "{single}"
    );
}

fn lengths_plan(lengths: &[u64]) -> lengths::Plan {
    lengths::Plan {
        scans: scans::Plan {
            duration: MOMENT / 3,
            ..scans_plan(Mode::all(&POLICIES, true, false))
        },
        lengths: lengths.to_vec(),
    }
}

#[test]
fn scans_of_every_length_see_sums_that_updates_leave_as_they_are() {
    let plan = lengths_plan(&[1, 20, 300]);
    let report = block_on(lengths::run(&plan, QUIET)).expect("it runs");
    sound(&report, 12);
    for figure in report.figures() {
        assert!(
            figure["keys_updated_a_second"].as_f64() > Some(0.0),
            "{figure}"
        );
    }
}

#[test]
fn scans_of_some_rows_find_an_amount_that_is_gone() {
    let plan = lengths_plan(&[20]);
    let found = block_on(async {
        let side = scans::Side::load(&plan.scans, plan.scans.modes[0])
            .await
            .expect("it loads");
        set(&side.access, &side.tree, 7, &[0; 40]).await;
        let mut found = Vec::new();
        for rows in [0..6, 6..8, 8..300] {
            let broken = side.scan_once(rows, None).await.expect("it scans");
            found.push(broken.map_or(0, |lines| lines.len()));
        }
        found
    });
    assert_eq!(found, [0, 1, 0]);
}

#[test]
fn scans_that_part_a_pair_are_refused() {
    for lengths in [&[3][..], &[0], &[302]] {
        let refused = block_on(lengths::run(&lengths_plan(lengths), QUIET));
        let line = refused.expect_err("it is refused");
        assert!(line.contains("rows come in pairs"), "{line}");
    }
}

#[test]
fn scans_find_an_amount_that_is_gone() {
    let plan = scans_plan(vec![Mode::opaque(Policy::MvBlock)]);
    let broken = block_on(async {
        let side = scans::Side::load(&plan, plan.modes[0])
            .await
            .expect("it loads");
        assert_eq!(side.verify(&plan).await, Vec::<String>::new());
        set(&side.access, &side.tree, 7, &[0; 40]).await;
        side.verify(&plan).await
    });
    assert_eq!(broken.len(), 1, "{broken:?}");
}

#[test]
fn bad_input_gets_one_line() {
    let mut plan = tpcc_plan(1, 2, vec![Mode::opaque(Policy::MvTruncate)]);
    let line = |plan: &tpcc::Plan| block_on(tpcc::run(plan, QUIET)).expect_err("it is refused");
    assert!(line(&plan).contains("at most as many replicas"));
    plan.machines.replicas = 1;
    plan.place = Place::new(Some("/proc/nowhere".into()));
    assert!(line(&plan).starts_with("/proc/nowhere: no memory can be made there"));
    plan.place = place();
    plan.scale.warehouses = 0;
    assert!(line(&plan).contains("sizes of TPC-C that make no sense"));
    plan.scale.warehouses = 40;
    plan.machines.region_mib = 4;
    assert!(
        line(&plan).contains("give them more with --region-mib"),
        "{}",
        line(&plan)
    );
}

#[test]
fn policies_and_mixes_have_names() {
    for policy in POLICIES {
        assert_eq!(parse_policy(policy_name(policy)), Ok(policy));
    }
    assert!(parse_policy("both").is_err());
    for mix in ycsb::Mix::ALL {
        assert_eq!(ycsb::Mix::parse(mix.name()), Ok(mix));
    }
    assert!(ycsb::Mix::parse("d").is_err());
}
