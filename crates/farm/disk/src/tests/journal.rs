//! A process appends to a journal, cuts its begin off, and dies in every way. A model outside knows what was said to
//! be durable.

use super::{SEEDS, Violations, is_found, run};
use crate::{Durable, Error, Journal, Position};
use bytes::Bytes;
use plinth_runtime::disk;
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, TaskGroup, random, sleep};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const ID: u64 = 7;

#[derive(Default)]
struct Model {
    violations: Violations,
    /// By position, as appended last.
    appended: RefCell<Vec<Bytes>>,
    /// Positions below this were said to be durable.
    acknowledged: Cell<u64>,
    /// Positions below this were cut off.
    cut: Cell<u64>,
    is_at_rest: Cell<bool>,
    has_rested: Cell<bool>,
    acknowledgements: Cell<u64>,
    recoveries: Cell<u64>,
    fulls: Cell<u64>,
}

impl Model {
    fn begin(&self, found: &[(Position, Bytes)], end: Position) {
        let violations = &self.violations;
        let mut appended = self.appended.borrow_mut();
        let begin = found.first().map_or(end.0, |(position, _)| position.0);
        violations.check(begin <= self.cut.get(), || {
            format!(
                "the first record is {begin}, and {} was cut off",
                self.cut.get()
            )
        });
        for (expected, (position, record)) in (begin..).zip(found) {
            violations.check(position.0 == expected, || {
                format!("{position:?} comes out of order")
            });
            let is_it = appended.get(position.0 as usize) == Some(record);
            violations.check(is_it, || format!("{position:?} has changed"));
        }
        violations.check(end.0 >= self.acknowledged.get(), || {
            let acknowledged = self.acknowledged.get();
            format!(
                "{acknowledged} records were acknowledged, {} are there",
                end.0
            )
        });
        appended.truncate(end.0 as usize);
        self.acknowledged.set(end.0);
        self.recoveries.set(self.recoveries.get() + 1);
    }

    fn acknowledge(&self, durable: Durable) {
        self.acknowledged
            .set(self.acknowledged.get().max(durable.below.0));
        self.acknowledgements.set(self.acknowledgements.get() + 1);
    }
}

fn record() -> Bytes {
    let longest = [40, 400, 6000][random::below(3) as usize];
    let mut record = vec![0; random::below(longest) as usize];
    random::fill(&mut record);
    record.into()
}

async fn append(model: Rc<Model>, journal: Journal) {
    loop {
        for _ in 0..random::below(4) {
            let record = record();
            let Ok(position) = journal.append(record.clone()) else {
                continue; // it is full, or has failed
            };
            let mut appended = model.appended.borrow_mut();
            assert_eq!(position.0, appended.len() as u64);
            appended.push(record);
        }
        match journal.sync().await {
            Ok(durable) => {
                model.acknowledge(durable);
                if random::chance(0.1) {
                    let cut = durable.below.0 - random::below(30).min(durable.below.0);
                    model.cut.set(model.cut.get().max(cut));
                    journal.truncate_below(Position(cut), durable.synced);
                }
            }
            Err(Error::Full { .. }) => {
                model.fulls.set(model.fulls.get() + 1);
                sleep(Duration::from_millis(5)).await;
            }
            Err(_) => return,
        }
        if model.is_at_rest.get() {
            return;
        }
        sleep(Duration::from_micros(random::below(500))).await;
    }
}

async fn live(model: Rc<Model>) {
    let directory = Path::new("/data");
    if disk::create_dir_all(directory).await.is_err() {
        return;
    }
    let mut found = Vec::new();
    let prefix = directory.join("journal");
    let opened = Journal::open(&prefix, ID, |position, record| {
        found.push((position, record));
        Ok(())
    });
    let journal = match opened.await {
        Ok(journal) => journal,
        Err(Error::Full { .. } | Error::Failed { .. }) => return,
        Err(error) => return model.violations.say(error.to_string()),
    };
    model.begin(&found, journal.end());
    if model.is_at_rest.get() {
        model.has_rested.set(true);
    }
    let tasks = TaskGroup::new();
    tasks.spawn("append", append(model.clone(), journal.clone()));
    append(model, journal).await;
}

fn run_one(seed: u64) -> Result<(u64, Rc<Model>), String> {
    let model = Rc::new(Model::default());
    let (lives, rests) = (model.clone(), model.clone());
    let knobs = [("farm_journal_segment_bytes", 4096 << (seed % 4))];
    let fingerprint = run(
        seed,
        &knobs,
        &model.violations,
        move || Box::pin(live(lives.clone())),
        move || rests.is_at_rest.set(true),
    );
    match model.violations.first() {
        Some(violation) => Err(format!("seed {seed}: {violation}")),
        None if !model.has_rested.get() => Err(format!("seed {seed}: it did not begin again")),
        None => Ok((fingerprint, model)),
    }
}

#[test]
fn what_the_journal_has_acknowledged_is_there_after_any_crash() {
    let mut sum = [0; 3];
    for seed in 0..SEEDS {
        let (_, model) = run_one(seed).unwrap_or_else(|violation| panic!("{violation}"));
        let shown = [&model.acknowledgements, &model.recoveries, &model.fulls];
        sum.iter_mut()
            .zip(shown)
            .for_each(|(sum, n)| *sum += n.get());
    }
    println!("acknowledgements, recoveries, full: {sum:?}");
    assert!(sum[0] > 10_000 && sum[1] > 1000 && sum[2] > 100);
}

#[test]
fn an_acknowledgement_of_the_journal_before_its_sync_is_found() {
    is_found("farm_journal_acks_before_sync", |seed| {
        run_one(seed).map(|(fingerprint, _)| fingerprint)
    });
}

async fn open(id: u64) -> Result<(Journal, Vec<Bytes>), Error> {
    let mut found = Vec::new();
    let journal = Journal::open(Path::new("/data/journal"), id, |_, record| {
        found.push(record);
        Ok(())
    });
    Ok((journal.await?, found))
}

/// A machine with a journal of several files, and what they are called.
fn with_files() -> (Simulation, plinth_runtime::sim::MachineId, Vec<PathBuf>) {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let made = sim.run_on(machine, async {
        let mut knobs = Knobs::default();
        knobs
            .set("farm_journal_segment_bytes", "4096")
            .expect("legal");
        set_knobs(knobs);
        disk::create_dir_all(Path::new("/data")).await.expect("it");
        let (journal, _) = open(ID).await.expect("a new one");
        for number in 0..30 {
            journal.append(vec![number; 500].into()).expect("room");
            journal.sync().await.expect("well");
        }
    });
    made.expect("it ends");
    let mut files = sim.files(machine);
    files.retain(|file| !file.ends_with("journal.spare"));
    assert!(files.len() > 3);
    (sim, machine, files)
}

#[test]
fn a_damaged_or_missing_file_of_a_journal_is_named_and_nothing_else_is_believed() {
    let (_, _, files) = with_files();
    let last = files.len() - 1;
    for (which, file) in files.iter().enumerate() {
        for at in [0, 20, 64, 70, 200, 1500, 3000] {
            let (sim, machine, _) = with_files();
            assert!(sim.flip_bit_in_file(machine, file, at..at + 1));
            let opened = sim.run_on(machine, open(ID)).expect("it ends");
            match opened.map(|(_, found)| found) {
                Err(Error::Damaged { path, offset, .. }) => {
                    assert!(path == *file && offset <= at, "{path:?} {offset}, not {at}")
                }
                Err(error) => panic!("{file:?} {at}: {error}"),
                // The last block, or what is behind it.
                Ok(found) => assert!(which == last && found.len() >= 29, "{file:?} {at}"),
            }
        }
        let (sim, machine, _) = with_files();
        assert!(sim.lose_file(machine, file));
        let opened = sim.run_on(machine, open(ID)).expect("it ends");
        let is_damage = matches!(opened, Err(Error::Damaged { .. }));
        assert!(is_damage || which == last, "{file:?}");
    }
}

#[test]
fn a_journal_of_somebody_else_is_not_opened() {
    let (sim, machine, files) = with_files();
    let opened = sim.run_on(machine, open(ID + 1)).expect("it ends");
    let error = opened.map(|_| ()).expect_err("another id");
    assert!(matches!(&error, Error::Unlike { path, .. } if *path == files[0]));
    let said = error.to_string();
    assert!(said.contains("belongs to another journal"), "{said}");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let fingerprint = |seed| run_one(seed).map(|(fingerprint, _)| fingerprint);
    assert_eq!(fingerprint(7), fingerprint(7));
}
