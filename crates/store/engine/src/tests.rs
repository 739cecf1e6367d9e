//! Compares both engines with a map, on simulated disks that lose, tear and change what was written to them.

#![allow(clippy::disallowed_methods)] // tests on the real disk clean up after themselves

use super::{open as open_with_cache, *};
use plinth_core::Error;
use plinth_runtime::sim::{Locality, MachineId, Sickness, SimConfig, Simulation};
use plinth_runtime::{Duration, disk, probe, random};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const BOTH: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];

fn prefix() -> &'static Path {
    Path::new("/data/storage")
}

/// With a cache so small that pages are read back from the disk.
async fn open(kind: EngineKind, path: &Path, create: bool) -> Result<Rc<dyn KeyValueStore>> {
    open_with_cache(kind, path, create, 256 << 10).await
}

fn simulation(seed: u64) -> (Simulation, MachineId) {
    simulation_with(seed, SimConfig::default())
}

fn simulation_with(seed: u64, config: SimConfig) -> (Simulation, MachineId) {
    let sim = Simulation::new(
        seed,
        SimConfig {
            knob_randomise: true,
            knob_randomise_probability: 1.0,
            ..config
        },
    );
    let machine = sim.add_machine(Locality::default());
    let made = sim.run_on(machine, async {
        disk::create_dir_all(Path::new("/data"))
            .await
            .expect("a directory");
        disk::sync_dir(Path::new("/")).await.expect("its name");
    });
    made.expect("nothing kills it");
    (sim, machine)
}

fn apply(model: &mut Model, batch: &WriteBatch) {
    for op in batch.ops() {
        match op {
            Op::Set(k, v) => drop(model.insert(k.to_vec(), v.to_vec())),
            Op::ClearRange(b, e) => model.retain(|k, _| &k[..] < b || &k[..] >= e),
        }
    }
}

fn random_key() -> Vec<u8> {
    format!("{:04}", random::below(400)).into_bytes()
}

/// Sets and clears of a few hundred keys; now and then a value of many pages.
fn random_batch() -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..random::below(30) {
        match random::below(20) {
            0 => {
                let (a, b) = (random_key(), random_key());
                batch.clear_range(a.as_slice().min(&b), a.as_slice().max(&b));
            }
            1 | 2 => batch.clear(&random_key()),
            3 => batch.set(
                &random_key(),
                &vec![random::u64() as u8; random::below(20_000) as usize],
            ),
            _ => batch.set(&random_key(), &random::u64().to_le_bytes()),
        }
    }
    batch
}

fn rows_of(
    engine: &dyn KeyValueStore,
    begin: &[u8],
    end: &[u8],
    reverse: bool,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    engine.range(begin, end, reverse, &mut |k, v| {
        rows.push((k.to_vec(), v.to_vec()));
        true
    })?;
    Ok(rows)
}

fn state_of(engine: &dyn KeyValueStore) -> Result<Model> {
    Ok(rows_of(engine, b"", b"\xff", false)?.into_iter().collect())
}

fn check_reads(engine: &dyn KeyValueStore, model: &Model) {
    if random::chance(0.1) {
        assert!(
            state_of(engine).expect("range") == *model,
            "the whole differs"
        );
    }
    let (a, b) = (random_key(), random_key());
    let mut expected = Vec::new();
    if a < b {
        expected = model
            .range(a.clone()..b.clone())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
    }
    assert_eq!(rows_of(engine, &a, &b, false).expect("range"), expected);
    expected.reverse();
    assert_eq!(rows_of(engine, &a, &b, true).expect("range"), expected);
    // Many reads, each twice: the second time a row may come from a cache.
    for key in (0..20).map(|_| random_key()) {
        for _ in 0..2 {
            assert_eq!(
                engine.get(&key).expect("get").map(|v| v.to_vec()),
                model.get(&key).cloned()
            );
        }
    }
    let mut seen = 0;
    engine
        .range(b"", b"\xff", false, &mut |_, _| {
            seen += 1;
            seen < 3
        })
        .expect("range");
    assert_eq!(
        seen,
        model.len().min(3),
        "a visit that answers false is the last"
    );
}

/// What the test still knows when the machine loses its power.
#[derive(Default)]
struct Known {
    acknowledged: Model,
    /// The state that the commit in progress would produce.
    attempted: Option<Model>,
    commits: u64,
}

/// Opens the engine, checks its contents, then commits for ever.
async fn live(kind: EngineKind, known: Rc<RefCell<Known>>) {
    let engine = open(kind, prefix(), true).await.expect("open");
    let found = state_of(&*engine).expect("read");
    {
        let mut known = known.borrow_mut();
        let attempted = known.attempted.take();
        if found != known.acknowledged {
            assert!(
                Some(&found) == attempted.as_ref(),
                "after a crash: neither the old state nor the new"
            );
            known.acknowledged = found;
        }
    }
    loop {
        let batch = random_batch();
        let mut next = known.borrow().acknowledged.clone();
        apply(&mut next, &batch);
        known.borrow_mut().attempted = Some(next);
        let commit = engine.commit(batch);
        check_reads(&*engine, &known.borrow().acknowledged);
        commit.await.expect("commit");
        let mut known = known.borrow_mut();
        known.acknowledged = known.attempted.take().expect("just put there");
        known.commits += 1;
        check_reads(&*engine, &known.acknowledged);
    }
}

fn crash_and_reopen(kind: EngineKind, seed: u64) -> u64 {
    let (sim, machine) = simulation(seed);
    let known = Rc::new(RefCell::new(Known::default()));
    for _ in 0..8 {
        let control = (*sim).clone();
        let mine = known.clone();
        let process = sim.start_process(
            machine,
            "10.0.0.1:4500".parse().expect("an address"),
            move || Box::pin(live(kind, mine.clone())),
        );
        // A commit of the ssd engine takes next to no simulated time.
        let life_ms_max = if kind == EngineKind::Ssd { 10 } else { 80 };
        sim.run(async move {
            let life_ms = if random::chance(0.5) {
                random::range(1..10)
            } else {
                random::range(1..life_ms_max)
            };
            plinth_runtime::sleep(Duration::from_millis(life_ms)).await;
            if random::chance(0.5) {
                control.kill_process(process, plinth_runtime::sim::KillKind::Kill);
            } else {
                control.power_cut(machine);
                control.boot(machine);
                control.kill_process(process, plinth_runtime::sim::KillKind::Kill);
            }
        });
    }
    let commits = known.borrow().commits;
    commits ^ sim.fingerprint()
}

async fn commit_random(engine: &dyn KeyValueStore, model: &mut Model) {
    let batch = random_batch();
    apply(model, &batch);
    engine.commit(batch).await.expect("commits");
}

/// A read that still waits keeps an engine that was given up. When the read ends, the engine closes its file, which
/// writes to it.
#[test]
fn an_engine_that_somebody_has_forgotten_does_not_write_into_the_file_of_the_next() {
    for (kind, seed) in BOTH
        .into_iter()
        .flat_map(|kind| (0..20).map(move |seed| (kind, seed)))
    {
        let (sim, machine) = simulation(seed);
        let run = sim.run_on(machine, async move {
            let mut model = Model::new();
            let mut forgotten = Some(open(kind, prefix(), true).await.expect("opens"));
            for _ in 0..10 {
                commit_random(forgotten.as_deref().expect("kept"), &mut model).await;
            }
            let opening = open(kind, prefix(), false);
            let next = match plinth_runtime::timeout(Duration::from_secs(1), opening).await {
                Some(opened) => opened.expect("opens"),
                None => {
                    forgotten = None;
                    open(kind, prefix(), false).await.expect("opens")
                }
            };
            for _ in 0..10 {
                commit_random(&*next, &mut model).await;
            }
            drop(forgotten.take());
            commit_random(&*next, &mut model).await;
            drop(next);
            let next = open(kind, prefix(), false).await.expect("opens");
            commit_random(&*next, &mut model).await;
            assert_eq!(
                state_of(&*next).expect("reads"),
                model,
                "{kind:?}, seed {seed}"
            );
        });
        run.expect("finished");
    }
}

#[test]
fn what_the_memory_engine_acknowledged_survives_power_cuts_and_kills() {
    for seed in 0..60 {
        crash_and_reopen(EngineKind::Memory, seed);
    }
    let hits = probe::hits();
    for rare in [
        "memory engine: a torn tail is dropped",
        "memory engine: a snapshot pass completes",
        "memory engine: a segment is full",
    ] {
        assert!(hits.contains_key(rare), "the test never came by {rare:?}");
    }
}

#[test]
fn what_the_ssd_engine_acknowledged_survives_power_cuts_and_kills() {
    for seed in 0..8 {
        crash_and_reopen(EngineKind::Ssd, seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for kind in BOTH {
        assert_eq!(crash_and_reopen(kind, 77), crash_and_reopen(kind, 77));
        assert_ne!(crash_and_reopen(kind, 77), crash_and_reopen(kind, 78));
    }
}

/// Fills an engine and closes it. Returns its contents.
async fn filled(kind: EngineKind) -> Model {
    let engine = open(kind, prefix(), true).await.expect("open");
    let mut model = Model::new();
    for _ in 0..30 {
        let batch = random_batch();
        apply(&mut model, &batch);
        engine.commit(batch).await.expect("commit");
    }
    engine.close().await.expect("close");
    model
}

/// Reads everything twice, by range and by key, and fails if any read fails.
async fn read_all(kind: EngineKind) -> Result<(Model, Model)> {
    let engine = open(kind, prefix(), false).await?;
    let by_range = state_of(&*engine)?;
    let mut by_key = Model::new();
    for n in 0..400 {
        let key = format!("{n:04}").into_bytes();
        if let Some(value) = engine.get(&key)? {
            by_key.insert(key, value.to_vec());
        }
    }
    Ok((by_range, by_key))
}

#[test]
fn a_flipped_bit_is_never_read_as_data() {
    for kind in BOTH {
        let (mut noticed, mut harmless) = (0, 0);
        for seed in 0..150 {
            let (sim, machine) = simulation(seed);
            let model = sim.run_on(machine, filled(kind)).expect("finished");
            let files: Vec<PathBuf> = sim.files(machine);
            let path = files[seed as usize % files.len()].clone();
            assert!(sim.flip_bit_in_file(machine, &path, 0..u64::MAX));
            match sim.run_on(machine, read_all(kind)).expect("finished") {
                Err(code) => {
                    assert!(
                        [Error::checksum_failed, Error::file_corrupt].contains(&code),
                        "{code:?}"
                    );
                    noticed += 1;
                }
                Ok((by_range, by_key)) if kind == EngineKind::Memory => {
                    // A flip in the newest record looks like a torn append: that record is dropped, whole.
                    assert!(
                        by_range == by_key && (by_range == model || files.last() == Some(&path))
                    );
                    harmless += 1;
                }
                Ok((by_range, by_key)) => {
                    assert!(by_range == model && by_key == model, "seed {seed}");
                    harmless += 1;
                }
            }
        }
        assert!(
            noticed > 5,
            "{}: {noticed} noticed, {harmless} harmless",
            kind.name()
        );
    }
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room_and_serves_reads_meanwhile() {
    for kind in BOTH {
        for seed in 0..10 {
            let (sim, machine) = simulation(seed);
            let control = (*sim).clone();
            let main = async move {
                let engine = open(kind, prefix(), true).await.expect("open");
                let mut model = Model::new();
                for round in 0..12 {
                    let is_full = round % 3 == 2;
                    control.set_disk_full(machine, is_full);
                    let batch = random_batch();
                    let mut next = model.clone();
                    apply(&mut next, &batch);
                    match engine.commit(batch).await {
                        Ok(_) => model = next,
                        Err(code) => assert!(is_full && code == Error::disk_full, "{code:?}"),
                    }
                    check_reads(&*engine, &model);
                }
                control.set_disk_full(machine, false);
                engine.close().await.expect("close");
                let engine = open(kind, prefix(), false).await.expect("open again");
                check_reads(&*engine, &model);
            };
            sim.run_on(machine, main).expect("finished");
        }
    }
    assert!(probe::hits().contains_key("ssd engine: the disk is full"));
}

/// After a full disk the ssd engine opens its file anew. A cold read that is still under way holds the old tree, which
/// writes when it is closed.
#[test]
fn a_cold_read_that_outlasts_a_full_disk_does_not_write_into_the_file() {
    let mut outlasted = 0;
    for seed in 0..40 {
        let config = SimConfig {
            buggify_enabled: true,
            ..SimConfig::default()
        };
        let (sim, machine) = simulation_with(seed, config);
        let control = (*sim).clone();
        let main = async move {
            let engine = open(EngineKind::Ssd, prefix(), true).await.expect("open");
            let mut model = Model::new();
            for _ in 0..10 {
                commit_random(&*engine, &mut model).await;
            }
            engine.close().await.expect("close");
            let engine = open(EngineKind::Ssd, prefix(), false).await.expect("open");
            let wanted = Wanted {
                begin: b"",
                end: b"\xff",
                reverse: false,
                bytes: 1 << 20,
            };
            // No simulated read waits for the disk, but sometimes one is treated as if it did.
            let under_way = (0..1000).find_map(|_| engine.warm(&wanted));
            let is_cold = under_way.is_some();
            control.set_disk_full(machine, true);
            let working = async {
                while engine.commit(random_batch()).await.is_ok() {}
                control.set_disk_full(machine, false);
                let mut commits = 0;
                while commits < 10 {
                    match engine.commit(random_batch()).await {
                        Ok(_) => commits += 1,
                        Err(code) => assert_eq!(code, Error::disk_full),
                    }
                }
            };
            // It ends while the commits go on, or after them.
            let reading = async {
                let pause = Duration::from_micros(random::below(20_000));
                plinth_runtime::sleep(pause).await;
                if let Some(reading) = under_way {
                    reading.await;
                }
            };
            let both: [LocalBoxFuture<'_, ()>; 2] = [Box::pin(working), Box::pin(reading)];
            plinth_runtime::join_all(both).await;
            engine.commit(random_batch()).await.expect("commits");
            let model = state_of(&*engine).expect("reads");
            engine.clone().close().await.expect("close");
            drop(engine);
            let engine = open(EngineKind::Ssd, prefix(), false)
                .await
                .expect("open again");
            assert_eq!(state_of(&*engine).expect("reads"), model);
            is_cold
        };
        outlasted += u32::from(sim.run_on(machine, main).expect("finished"));
    }
    assert!(outlasted > 0);
}

#[test]
fn a_commit_much_larger_than_the_cache_meets_a_full_disk_and_changes_nothing() {
    for kind in BOTH {
        let (sim, machine) = simulation(1);
        let control = (*sim).clone();
        let main = async move {
            let engine = open(kind, prefix(), true).await.expect("open");
            let large = |salt: u8| {
                let mut batch = WriteBatch::new();
                for i in 0..20_000u32 {
                    let key = i.wrapping_mul(0x9e37_79b1).to_be_bytes();
                    batch.set(&key, &[salt; 100]);
                }
                batch
            };
            engine.commit(large(1)).await.expect("room");
            let before = state_of(&*engine).expect("rows");
            control.set_disk_full(machine, true);
            let refused = engine.commit(large(2)).await;
            assert_eq!(refused.err(), Some(Error::disk_full));
            assert!(state_of(&*engine).expect("rows") == before);
            control.set_disk_full(machine, false);
            engine.commit(large(3)).await.expect("room again");
            assert_eq!(state_of(&*engine).expect("rows").len(), before.len());
        };
        sim.run_on(machine, main).expect("finished");
    }
}

#[test]
fn an_engine_that_is_not_there_is_not_made_by_accident() {
    for kind in BOTH {
        let (sim, machine) = simulation(1);
        let result = sim.run_on(
            machine,
            async move { open(kind, prefix(), false).await.err() },
        );
        assert_eq!(result.expect("finished"), Some(Error::file_not_found));
        assert!(sim.files(machine).is_empty());
    }
}

#[test]
fn a_failed_sync_kills_the_engine_for_good() {
    for kind in BOTH {
        let (sim, machine) = simulation(1);
        let control = (*sim).clone();
        let main = async move {
            let engine = open(kind, prefix(), true).await.expect("open");
            let mut batch = WriteBatch::new();
            batch.set(b"k", b"v");
            control.set_disk_sickness(machine, Sickness::errors(1.0));
            assert!(engine.commit(batch.clone()).await.is_err());
            control.set_disk_sickness(machine, Sickness::errors(0.0));
            assert!(engine.commit(batch).await.is_err());
            assert!(engine.get(b"k").is_err());
        };
        sim.run_on(machine, main).expect("finished");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn real_files_keep_what_a_map_keeps(seed in any::<u64>(), reopen_every in 1usize..6) {
        let dir = std::env::temp_dir().join(format!("plinth-engine-{}-{seed:x}", std::process::id()));
        let path = dir.join("engine");
        let main = async {
            disk::create_dir_all(&dir).await.expect("a directory");
            for kind in BOTH {
                let mut model = Model::new();
                let mut engine = open(kind, &path, true).await.expect("open");
                for round in 0..12 {
                    let batch = random_batch();
                    apply(&mut model, &batch);
                    engine.commit(batch).await.expect("commit");
                    check_reads(&*engine, &model);
                    if round % reopen_every == 0 {
                        engine.close().await.expect("close");
                        engine = open(kind, &path, false).await.expect("open again");
                        check_reads(&*engine, &model);
                    }
                }
                engine.close().await.expect("close");
            }
        };
        plinth_runtime::real::block_on(main);
        std::fs::remove_dir_all(&dir).expect("its removal");
    }
}

fn large_batch(value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.clear_range(b"row2", b"row3");
    for i in 0..5000 {
        // The later of the two counts.
        batch.set(format!("row{i:04}").as_bytes(), b"overwritten");
        batch.set(format!("row{i:04}").as_bytes(), value);
    }
    batch.clear_range(b"row4500", b"row5");
    batch
}

#[test]
fn whoever_reads_while_a_large_commit_is_shown_sees_each_row_as_before_or_after_and_then_as_after()
{
    for (seed, kind) in (1..7).zip(BOTH.into_iter().cycle()) {
        let (sim, machine) = simulation(seed);
        let work = sim.run_on(machine, async move {
            let engine = open_with_cache(kind, prefix(), true, 8 << 20).await;
            let engine = engine.expect("opens");
            engine.commit(large_batch(b"old")).await.expect("commits");
            let reader = engine.clone();
            let reading = plinth_runtime::spawn("read", async move {
                for n in 1u32.. {
                    let i = random::below(5000);
                    let value = reader.get(format!("row{i:04}").as_bytes()).expect("reads");
                    let known = [Some(&b"old"[..]), Some(b"new"), None];
                    assert!(known.contains(&value.as_deref()), "{i}: {value:?}");
                    // Time goes on only when no task is ready to run.
                    match n % 50 {
                        0 => plinth_runtime::sleep(Duration::from_micros(100)).await,
                        _ => plinth_runtime::yield_now().await,
                    }
                }
            });
            engine.commit(large_batch(b"new")).await.expect("commits");
            drop(reading);
            for i in 0..5000 {
                let value = engine.get(format!("row{i:04}").as_bytes()).expect("reads");
                let expected = (i < 4500).then_some(&b"new"[..]);
                assert_eq!(value.as_deref(), expected, "row{i:04} of {kind:?}");
            }
        });
        work.expect("nothing kills it");
    }
}

#[test]
fn what_is_cached_is_read_once_however_much_it_is() {
    let directory = std::env::temp_dir().join(format!("plinth-warm-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    plinth_runtime::real::block_on(async {
        let path = directory.join("storage");
        let engine = open_with_cache(EngineKind::Ssd, &path, true, 32 << 20).await;
        let engine = engine.expect("opens");
        engine.commit(large_batch(b"old")).await.expect("commits");
        let rows = rows_of(&*engine, b"", b"z", false).expect("reads");
        assert_eq!(rows.len(), 4500);
        let wanted = Wanted {
            begin: b"",
            end: b"z",
            reverse: false,
            bytes: 1 << 20,
        };
        assert!(
            engine.warm(&wanted).is_none(),
            "nothing has waited for the disk"
        );
    });
    std::fs::remove_dir_all(&directory).expect("it is ours");
}
