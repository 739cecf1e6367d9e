//! Damage in the log: what is lost is refused, all else is served, and it stays so.

use super::*;
use plinth_runtime::sim::{Locality, MachineId, SimConfig, Simulation, control};
use plinth_runtime::{fault, random};
use std::collections::BTreeMap;

const DURABLE: &[u8] = b"\xff\xff/durable";
const HELD: &[u8] = b"\xff\xff/held/";
const SECTOR: usize = 512;
const SEEDS: u64 = 300;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn path() -> &'static Path {
    Path::new("/rows")
}

async fn opened() -> Rc<MemoryEngine> {
    let engine = MemoryEngine::open(path(), false).await;
    engine.expect("it opens")
}

/// With segments of any size.
fn on_disk<T: 'static>(seed: u64, work: impl Future<Output = T> + 'static) -> T {
    let config = SimConfig {
        knob_randomise: true,
        knob_randomise_probability: 1.0,
        ..SimConfig::default()
    };
    run_with(config, seed, work)
}

/// With one segment.
fn on_one_file<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    run_with(SimConfig::default(), 1, work)
}

fn run_with<T: 'static>(
    config: SimConfig,
    seed: u64,
    work: impl Future<Output = T> + 'static,
) -> T {
    let sim = Simulation::new(seed, config);
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, work).expect("nothing kills it")
}

fn key(i: u64) -> Vec<u8> {
    format!("row/{i:05}").into_bytes()
}

/// A commit as a storage server makes them, with its own rows.
async fn commit(engine: &MemoryEngine, model: &mut Model, version: u64, rows: &[(u64, usize)]) {
    let mut batch = WriteBatch::new();
    for (row, len) in rows {
        let value = format!("{version:08}.").repeat(len / 9 + 1).into_bytes();
        batch.set(&key(*row), &value);
        model.insert(key(*row), value);
    }
    if version.is_multiple_of(7) {
        let (begin, end) = (key(random::below(300)), key(random::below(300)));
        batch.clear_range(&begin, &end);
        if begin < end {
            model.retain(|key, _| *key < begin || *key >= end);
        }
    }
    for (key, value) in [(DURABLE, version), (HELD, version / 20)] {
        batch.set(key, &value.to_be_bytes());
        model.insert(key.to_vec(), value.to_be_bytes().to_vec());
    }
    engine.commit(batch).await.expect("commits");
}

/// What is refused. All else is as the model has it.
fn refused(engine: &MemoryEngine, model: &Model, seed: u64) -> Vec<Vec<u8>> {
    let mut refused = Vec::new();
    let keys = (0..300).map(key).chain([DURABLE.to_vec(), HELD.to_vec()]);
    for key in keys {
        match engine.get(&key) {
            Ok(found) => {
                let expected = model.get(&key);
                assert!(
                    found.as_deref() == expected.map(Vec::as_slice),
                    "seed {seed}: {key:?}"
                );
            }
            Err(error) => {
                assert_eq!(error, Error::checksum_failed);
                refused.push(key);
            }
        }
    }
    for reverse in [false, true] {
        ranges_agree(engine, model, reverse, seed);
    }
    refused
}

/// Reads ranges: they give every row up to the first that is refused.
fn ranges_agree(engine: &MemoryEngine, model: &Model, reverse: bool, seed: u64) {
    for _ in 0..20 {
        let (begin, end) = (key(random::below(300)), key(random::below(300)));
        if begin >= end {
            continue;
        }
        let mut found = Vec::new();
        let read = engine.range(&begin, &end, reverse, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        });
        let rows = model.range(begin.clone()..end.clone());
        let rows = rows.map(|(key, value)| (key.clone(), value.clone()));
        let mut expected: Vec<_> = rows.collect();
        if reverse {
            expected.reverse();
        }
        if read.is_err() {
            assert!(!engine.rows.borrow().lost.parts_in(&begin, &end).is_empty());
            assert!(found.len() <= expected.len(), "seed {seed}");
            expected.truncate(found.len());
        }
        assert!(found == expected, "seed {seed}: {begin:?} to {end:?}");
    }
}

fn here() -> MachineId {
    control().machines()[0].id
}

async fn whole(path: &Path) -> Vec<u8> {
    let bytes = disk::read_file(path).await;
    bytes.expect("it can be read").to_vec()
}

async fn put(path: &Path, bytes: &[u8]) {
    let written = disk::write_file_durably(path, Bytes::copy_from_slice(bytes)).await;
    written.expect("writes");
}

/// Random commits of an engine that is closed behind them. Gives the number of the last one and where it begins in the
/// newest segment. It is never damaged: it would look torn.
async fn filled(model: &mut Model) -> (u64, u64) {
    let engine = MemoryEngine::open(path(), true).await.expect("opens");
    let commits = random::range(5..60);
    let largest = [30, 400, 6000][random::below(3) as usize];
    for version in 0..commits {
        let rows = (0..random::below(40)).map(|_| {
            let len = random::below(largest) as usize;
            (random::below(300), len)
        });
        let rows: Vec<(u64, usize)> = rows.collect();
        commit(&engine, model, version, &rows).await;
    }
    let place = || {
        let current = &engine.log.borrow().current;
        (current.number, current.end)
    };
    let before = place();
    commit(&engine, model, commits, &[(0, 10)]).await;
    match place().0 == before.0 {
        true => (commits, before.1),
        false => (commits, first_record_at(FORMAT)),
    }
}

/// Damages a sector, or cuts a segment, and opens what is left, also when its bytes read well again. How many rows
/// were read, and how many of them refused; none if it cannot be opened.
fn damages_a_sector(seed: u64) -> (usize, usize) {
    on_disk(seed, async move {
        let mut model = Model::new();
        let (last, last_at) = filled(&mut model).await;
        let files = control().files(here());
        let file = files[random::below(files.len() as u64) as usize].clone();
        let before = whole(&file).await;
        damage_somewhere(&file, files.last() == Some(&file), &before, last_at).await;
        let engine = match MemoryEngine::open(path(), false).await {
            Ok(engine) => engine,
            Err(error) => {
                assert!(error.is_damage(), "seed {seed}: {error}");
                return (0, 0);
            }
        };
        let first = refused(&engine, &model, seed);
        drop(engine);
        if control().files(here()).contains(&file) {
            let mut healed = before.clone();
            let after = whole(&file).await;
            healed.extend_from_slice(after.get(before.len()..).unwrap_or_default());
            put(&file, &healed).await;
        }
        let engine = opened().await;
        assert_eq!(refused(&engine, &model, seed), first, "seed {seed}");
        // What is written is known again, through passes of the snapshot and openings.
        for round in 0..20 {
            let version = last + 1 + round;
            let rows = [(round, 5000), (round + 100, 9)];
            commit(&engine, &mut model, version, &rows).await;
        }
        let then = refused(&engine, &model, seed);
        assert!(then.iter().all(|key| first.contains(key)), "seed {seed}");
        assert!(!then.contains(&key(19)) && !then.contains(&DURABLE.to_vec()));
        drop(engine);
        assert_eq!(refused(&*opened().await, &model, seed), then, "seed {seed}");
        (302, first.len())
    })
}

/// Spares the last record: that would look torn.
async fn damage_somewhere(file: &Path, is_newest: bool, before: &[u8], last_at: u64) {
    let mut bytes = before.to_vec();
    let end = match is_newest {
        true => last_at as usize,
        false => bytes.len(),
    };
    if end == 0 {
        return;
    }
    let at = random::below(end as u64) as usize / SECTOR * SECTOR;
    match random::below(4) {
        0 => bytes[at] ^= 1 << random::below(8),
        1 => bytes[at..end.min(at + SECTOR)].fill(0),
        2 => bytes[at..end.min(at + 20_000)].fill(0),
        _ if !is_newest => bytes.truncate(at),
        _ => bytes[at..end.min(at + 4096)].fill(0x5a),
    }
    put(file, &bytes).await;
}

#[test]
fn whatever_sector_is_damaged_each_row_is_right_or_refused_and_stays_refused() {
    let outcomes: Vec<(usize, usize)> = (0..SEEDS).map(damages_a_sector).collect();
    let hits = probe::hits();
    for rare in [
        "memory engine: a block is lost",
        "memory engine: a record is lost, and the next one says what it was about",
        "memory engine: records are lost, and nothing says what they were about",
        "memory engine: the second header of a segment is read",
        "memory engine: a snapshot pass completes",
    ] {
        assert!(hits.contains_key(rare), "the test never came by {rare:?}");
    }
    let opened = outcomes.iter().filter(|(rows, _)| *rows > 0).count();
    let lost: usize = outcomes.iter().map(|(_, lost)| lost).sum();
    assert!(
        opened * 20 > SEEDS as usize * 19,
        "only {opened} of {SEEDS} are opened"
    );
    assert!(
        lost * 5 < 302 * opened,
        "{lost} rows are lost in {opened} runs"
    );
}

#[test]
fn an_engine_that_forgets_what_is_lost_is_found() {
    for name in [
        "memory_gap_is_nothing",
        "memory_block_names_no_keys",
        "memory_snapshot_forgets_lost",
        "refused_is_forgotten",
    ] {
        fault::makes_panic(name, "", || {
            for seed in 0..SEEDS {
                damages_a_sector(seed);
            }
        });
    }
}

/// The directory of a record may have the key as well, before it.
fn in_value_of(row: u64, file: &Path) -> u64 {
    let places = control().places_in_file(here(), file, &key(row));
    places.last().expect("it is there") + 100
}

#[test]
fn a_bit_in_a_value_loses_the_rows_beside_it_and_no_others() {
    let refused = on_one_file(async {
        let mut model = Model::new();
        let engine = MemoryEngine::open(path(), true).await.expect("opens");
        let all: Vec<(u64, usize)> = (0..300).map(|row| (row, 400)).collect();
        commit(&engine, &mut model, 1, &all).await;
        commit(&engine, &mut model, 2, &[(250, 20)]).await;
        drop(engine);
        let file = control().files(here())[0].clone();
        let at = in_value_of(150, &file);
        control().flip_bit_in_file(here(), &file, at..at + 1);
        let engine = opened().await;
        let damage = engine.damage();
        assert!(damage.file == file && damage.parts.len() <= 8);
        assert!(damage.parts[0].at <= at && damage.parts[0].at + 9000 > at);
        refused(&engine, &model, 1)
    });
    assert!(refused.contains(&key(150)), "{refused:?}");
    assert!(refused.len() < 40, "{}", refused.len());
    let near = |key: &Vec<u8>| *key > self::key(110) && *key < self::key(190);
    assert!(refused.iter().all(near), "{refused:?}");
}

#[test]
fn a_segment_that_is_gone_loses_what_was_not_written_since() {
    let mut opened_ones = 0;
    for seed in 0..40 {
        opened_ones += on_disk(seed, async move {
            let mut model = Model::new();
            filled(&mut model).await;
            let files = control().files(here());
            if files.len() < 3 {
                return 0;
            }
            let gone = random::below(files.len() as u64 - 1) as usize;
            control().lose_file(here(), &files[gone]);
            let Ok(engine) = MemoryEngine::open(path(), false).await else {
                return 0;
            };
            let first = refused(&engine, &model, seed);
            assert!(!first.contains(&DURABLE.to_vec()) && !first.contains(&HELD.to_vec()));
            drop(engine);
            assert_eq!(
                refused(&*opened().await, &model, seed),
                first,
                "seed {seed}"
            );
            1
        });
    }
    assert!(opened_ones > 10, "{opened_ones}");
}

/// It was written by the version before blocks had checksums of their own.
#[test]
fn files_of_the_former_format_are_read_and_the_next_commit_is_of_the_present_one() {
    let former = include_bytes!("former-segment.bin");
    let expected = |engine: &MemoryEngine| {
        let mut rows = Vec::new();
        let read = engine.range(b"", b"\xff\xff\xff", false, &mut |key, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            rows.push(match key.starts_with(b"row") {
                true => format!("{}={}", text(key), text(value)),
                false => format!("{}={value:?}", text(&key[2..])),
            });
            true
        });
        read.map(|()| rows.join(" "))
    };
    on_disk(1, async move {
        put(&segment::segment_path(path(), 1), former).await;
        let rows = expected(&*opened().await).expect("reads");
        assert_eq!(rows, FORMER_ROWS);
        let engine = opened().await;
        let mut model = Model::new();
        commit(&engine, &mut model, 1, &[(500, 10)]).await;
        drop(engine);
        let engine = opened().await;
        assert_eq!(
            engine.get(&key(500)).expect("reads").map(|v| v.len()),
            Some(18)
        );
        assert_eq!(
            engine.get(b"row/04").expect("reads").as_deref(),
            Some(&b"turn 4"[..])
        );
        // The snapshot that came with it needs nothing of the former format.
        assert_eq!(control().files(here()), [segment::segment_path(path(), 2)]);
    });
    on_disk(2, async move {
        let mut damaged = former.to_vec();
        damaged[150] ^= 1;
        put(&segment::segment_path(path(), 1), &damaged).await;
        let engine = opened().await;
        // No record says what the damaged one was about: what later ones have not written is not known.
        assert!(engine.get(b"row/nothing").is_err());
        assert_eq!(
            engine.get(b"row/02").expect("reads").as_deref(),
            Some(&b"turn 5"[..])
        );
    });
}

const FORMER_ROWS: &str = "row/00=turn 3 row/01=turn 4 row/02=turn 5 row/03=turn 3 row/04=turn 4 row/05=turn 5 \
     row/07=turn 4 row/08=turn 5 row/09=turn 3 /durable=[0, 0, 0, 0, 0, 0, 0, 5] /held/=[2]";

#[test]
fn a_segment_of_a_newer_format_is_refused_and_not_touched() {
    on_disk(1, async {
        let mut model = Model::new();
        let engine = MemoryEngine::open(path(), true).await.expect("opens");
        commit(&engine, &mut model, 1, &[(1, 10)]).await;
        drop(engine);
        let file = segment::segment_path(path(), 1);
        let mut bytes = whole(&file).await;
        for at in [0, 4096] {
            let salt = u64::from_le_bytes(bytes[at + 24..at + 32].try_into().expect("eight"));
            let newer = segment::file_header(FORMAT + 1, 1, salt);
            bytes[at..at + 32].copy_from_slice(&newer);
        }
        put(&file, &bytes).await;
        let refused = MemoryEngine::open(path(), false).await.err();
        assert_eq!(refused, Some(Error::file_corrupt));
        assert_eq!(whole(&file).await, bytes);
        put(&file, &bytes[..4128]).await;
        let refused = MemoryEngine::open(path(), true).await.err();
        assert_eq!(refused, Some(Error::file_corrupt));
        assert_eq!(whole(&file).await, bytes[..4128]);
    });
}

#[test]
fn on_a_full_disk_the_next_commit_writes_down_what_is_lost() {
    on_one_file(async {
        let mut model = Model::new();
        let engine = MemoryEngine::open(path(), true).await.expect("opens");
        let all: Vec<(u64, usize)> = (0..300).map(|row| (row, 400)).collect();
        commit(&engine, &mut model, 1, &all).await;
        commit(&engine, &mut model, 2, &[(250, 20)]).await;
        drop(engine);
        let file = control().files(here())[0].clone();
        let before = whole(&file).await;
        let at = in_value_of(150, &file);
        control().flip_bit_in_file(here(), &file, at..at + 1);
        control().set_disk_full(here(), true);
        let engine = opened().await;
        let first = refused(&engine, &model, 1);
        assert!(first.contains(&key(150)));
        control().set_disk_full(here(), false);
        commit(&engine, &mut model, 3, &[(250, 20)]).await;
        drop(engine);
        if let Some(bytes) = whole(&file).await.get(before.len()..) {
            put(&file, &[&before, bytes].concat()).await;
        }
        assert_eq!(refused(&*opened().await, &model, 1), first);
    });
}

/// With a snapshot of all rows.
#[test]
fn a_large_record_is_made_in_parts_and_what_the_batch_holds_is_not_copied() {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let made = sim.run_on(machine, async {
        let engine = MemoryEngine::open(Path::new("/rows"), true).await;
        let engine = engine.expect("a new engine");
        for key in 0..400u32 {
            let (mut rows, key) = (engine.rows.borrow_mut(), key.to_be_bytes());
            rows.set(&key, &vec![7; if key[3] == 0 { 5 << 20 } else { 50_000 }]);
        }
        engine.log.borrow_mut().bytes_since_pass = u64::MAX;
        let mut batch = WriteBatch::new();
        batch.set(b"key", &vec![7; 20 << 20]);
        let net = Net::of(&batch);
        let append = engine.prepare(&net).await;
        let (last, slice) = append.parts.split_last().expect("parts");
        assert_eq!(last.as_ptr(), net.batch.bytes().as_ptr());
        let snapshot: usize = slice.iter().map(Bytes::len).sum();
        assert!(snapshot > 25 << 20, "{snapshot} bytes of the snapshot");
        let longest = slice.iter().map(Bytes::len).max();
        assert!(longest < Some(7 << 20), "a part has {longest:?}");
        engine.append(&append).await.expect("a disk");
    });
    made.expect("nothing kills it");
}
