//! Each workload runs for a moment, and what it has checked is right.

use crate::{Machines, Mode, Place, Report, reads, scans, tpcc, ycsb};
use plinth_farm_engine::{Options, Policy};
use plinth_farm_memory::Objects;
use plinth_farm_tpcc::Scale;
use plinth_runtime::Duration;
use plinth_runtime::real::block_on;

const MOMENT: Duration = Duration::from_millis(200);

fn is_good(report: Result<Report, String>) -> Report {
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.broken().is_empty(), "{}", report.text());
    assert!(!report.figures().is_empty());
    println!("{}", report.text());
    report
}

fn tell(_: &str) {}

fn small_tpcc(modes: Vec<Mode>) -> tpcc::Plan {
    tpcc::Plan {
        machines: Machines {
            machines: 2,
            replicas: 2,
            region_mib: 48,
            old_mib: 16,
        },
        place: Place::new(None),
        scale: Scale {
            warehouses: 2,
            items: 100,
            districts: 2,
            customers: 30,
        },
        clients: 4,
        duration: MOMENT,
        warmup: Duration::ZERO,
        rounds: 1,
        modes,
        seed: 1,
    }
}

#[test]
fn tpcc_runs_on_two_machines_with_and_without_opacity() {
    let modes = Mode::all(&[Policy::MvBlock, Policy::MvTruncate], true, true);
    is_good(block_on(tpcc::run(&small_tpcc(modes), &tell)));
}

#[test]
fn objects_are_read_here_and_elsewhere() {
    let plan = reads::Plan {
        place: Place::new(None),
        objects: 1000,
        bytes: 64,
        clients: 4,
        reads: 100,
        duration: MOMENT,
        seed: 1,
    };
    is_good(block_on(reads::run(&plan, &tell)));
}

#[test]
fn keys_are_read_changed_inserted_and_scanned_with_any_skew() {
    let plan = ycsb::Plan {
        place: Place::new(None),
        rows: 1000,
        value_bytes: 100,
        clients: 4,
        mixes: ycsb::Mix::ALL.to_vec(),
        thetas: vec![0.0, 0.99],
        duration: MOMENT,
        mode: Mode::opaque(Policy::MvBlock),
        region_mib: 64,
        old_mib: 16,
        seed: 1,
    };
    is_good(block_on(ycsb::run(&plan, &tell)));
}

#[test]
fn scans_run_beside_updates() {
    let plan = scans::Plan {
        place: Place::new(None),
        rows: 2000,
        value_bytes: 100,
        updaters: 3,
        scanners: 1,
        duration: MOMENT,
        rounds: 1,
        modes: Mode::all(&[Policy::MvBlock], true, false),
        region_mib: 64,
        old_mib: 64,
        seed: 1,
    };
    is_good(block_on(scans::run(&plan, &tell)));
}

#[test]
fn a_database_with_a_wrong_sum_fails_its_check() {
    block_on(async {
        let mode = Mode::opaque(Policy::MvBlock);
        let side = tpcc::Side::load(&small_tpcc(vec![mode]), mode).await;
        let side = side.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(side.verify(true).await, Vec::<String>::new());
        let (engine, at) = tpcc::sum_of_a_district(&side);
        let tx = engine.begin(Options::default()).await.expect("begun");
        let sum = tx.read(at).await.expect("it is there");
        let more: Vec<u8> = sum.iter().map(|byte| byte.wrapping_add(1)).collect();
        tx.write(at, more.into()).await.expect("it fits");
        tx.commit().await.expect("nobody else is here");
        assert_ne!(side.verify(false).await, Vec::<String>::new());
    });
}
