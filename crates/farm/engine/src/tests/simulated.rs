//! Machines in the simulator, with clocks that drift, over a network that delays: random transactions on few objects,
//! whose histories are judged for opacity. Nothing fails here.

mod client;
mod machine;
mod world;

use crate::Policy;
use crate::testing::machines::address;
use plinth_farm_judge::{Summary, judge};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, fault, probe, sleep};
use std::collections::BTreeMap;
use std::rc::Rc;
use world::World;

const POLICIES: [Policy; 4] = [
    Policy::MvTruncate,
    Policy::MvBlock,
    Policy::MvAbort,
    Policy::SingleVersion,
];

/// What a run has shown.
struct Shown {
    summary: Summary,
    aborts: BTreeMap<String, u64>,
    fingerprint: u64,
}

/// Runs one seed; an error is what was found.
fn run(seed: u64) -> Result<Shown, String> {
    let latency = [5..50, 20..300, 50..1000][seed as usize % 3].clone();
    let config = SimConfig {
        clock_drift_ppm_max: 499,
        network_latency_us: latency.clone(),
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let machines = 3 + seed as usize % 3;
    let policy = POLICIES[seed as usize / 3 % 4];
    let latency = Duration::from_micros(latency.end);
    let world = Rc::new(World::new(machines, policy, latency, seed));
    let mut host = None;
    for which in 0..machines as u16 {
        let one = host.filter(|_| world.is_one_host);
        let id = one.unwrap_or_else(|| sim.add_machine(Locality::default()));
        host = Some(id);
        let world = world.clone();
        let live = move || Box::pin(machine::live(world.clone(), which)) as _;
        sim.start_process(id, address(which), live);
    }
    let judged = world.clone();
    sim.run(async move {
        while !world.has_ended() {
            sleep(Duration::from_millis(1)).await;
        }
        world.check_end().await;
    });
    if let Some(blame) = judged.blame.borrow().clone() {
        return Err(format!("seed {seed}: {blame}"));
    }
    let summary = judge(&judged.recorder.history());
    let summary = summary.map_err(|violation| format!("seed {seed}: {violation}"))?;
    Ok(Shown {
        summary,
        aborts: judged.aborts.borrow().clone(),
        fingerprint: sim.fingerprint(),
    })
}

/// What these runs have to come by.
const PATHS: [&str; 8] = [
    "farm backup has a newer version already",
    "farm cell of an object that the snapshot has",
    "farm commit without its caller",
    "farm old version read elsewhere",
    "farm read waits for a lock",
    "farm ring full",
    "farm slab leaves its class",
    "farm writer refused after it was blocked",
];

#[test]
fn transactions_are_opaque_and_replicas_are_equal_in_the_end() {
    let (mut sum, mut aborts) = (Summary::default(), BTreeMap::<String, u64>::new());
    for seed in 0..200 {
        let shown = run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        for (abort, count) in &shown.aborts {
            *aborts.entry(abort.clone()).or_default() += count;
        }
        sum.committed += shown.summary.committed;
        sum.read_only += shown.summary.read_only;
        sum.aborted += shown.summary.aborted;
        sum.unknown += shown.summary.unknown;
        sum.reads += shown.summary.reads;
        sum.aborted_reads += shown.summary.aborted_reads;
    }
    println!("{sum:?} {aborts:?}");
    let hits = probe::hits();
    for path in PATHS {
        assert!(hits.contains_key(path), "never: {path}");
    }
    for path in ["farm backup has no such cell", "farm cell given back twice"] {
        assert!(!hits.contains_key(path), "{path}");
    }
    assert!(sum.committed > 10_000 && sum.read_only > 5_000 && sum.aborted_reads > 1_000);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let fingerprint = |seed| run(seed).map(|shown| shown.fingerprint);
    assert_eq!(fingerprint(7), fingerprint(7));
}

fn is_found(planted: &'static str) {
    fault::plant(Some(planted));
    let found = (0..200).find_map(|seed| run(seed).err());
    fault::plant(None);
    println!("{planted}: {}", found.expect("the judge finds it"));
    fault::found(planted);
}

#[test]
fn a_commit_without_validation_is_found() {
    is_found("farm_no_validation");
}

#[test]
fn a_reader_that_ignores_a_lock_is_found() {
    is_found("farm_reader_ignores_lock");
}

#[test]
fn a_timestamp_that_is_used_in_the_future_is_found() {
    is_found("farm_no_uncertainty_wait");
}

#[test]
fn an_old_version_that_is_collected_early_is_found() {
    is_found("farm_old_version_collected_early");
}
