//! What an engine keeps twice, and what it has refused, after it was opened again.

use super::frames::former_header;
use super::*;
use plinth_runtime::sim::{Locality, MachineId, SimConfig, Simulation, control};

const DURABLE: &[u8] = b"\xff\xff/durable";
const HELD: &[u8] = b"\xff\xff/held/";
const FILE: &str = "/data/engine.redb";
const BLOCKS_AT: u64 = 8192;
const BLOCK_BYTES: u64 = 4104;

fn on_disk<T: 'static>(work: impl AsyncFnOnce(MachineId) -> T + 'static) -> T {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let run = sim.run_on(machine, async move {
        let made = disk::create_dir_all(Path::new("/data")).await;
        made.expect("makes it");
        work(machine).await
    });
    run.expect("nothing kills it")
}

async fn opened(create: bool) -> Result<Rc<SsdEngine>> {
    SsdEngine::open(Path::new("/data/engine"), create, 0).await
}

fn row(i: u32) -> (String, String) {
    (format!("row/{i:05}"), format!("[{i:05}]").repeat(100))
}

async fn commit(engine: &SsdEngine, version: u64, rows: std::ops::Range<u32>) {
    let mut batch = WriteBatch::new();
    for (key, value) in rows.map(row) {
        batch.set(key.as_bytes(), value.as_bytes());
    }
    batch.set(DURABLE, &version.to_be_bytes());
    batch.clear_range(HELD, b"\xff\xff/held0");
    batch.set(HELD, &[2]);
    batch.set(b"\xff\xff/sample/row", b"1234");
    engine.commit(batch).await.expect("commits");
}

async fn filled() {
    let engine = opened(true).await.expect("opens");
    for version in 1..5 {
        commit(&engine, version, 0..200).await;
    }
    engine.close().await.expect("closes");
}

/// Damages the blocks that have these bytes, if they are meant.
fn damage(machine: MachineId, bytes: &[u8], is_meant: impl Fn(u64) -> bool) -> Vec<u64> {
    let places = control().places_in_file(machine, Path::new(FILE), bytes);
    let block = |at: &u64| (at - BLOCKS_AT) / BLOCK_BYTES;
    let places: Vec<u64> = places
        .into_iter()
        .filter(|at| is_meant(block(at)))
        .collect();
    for at in &places {
        assert!(control().flip_bit_in_file(machine, Path::new(FILE), *at..at + 1));
    }
    places
}

fn blocks_with(machine: MachineId, bytes: &[u8]) -> Vec<u64> {
    let places = control().places_in_file(machine, Path::new(FILE), bytes);
    places
        .iter()
        .map(|at| (at - BLOCKS_AT) / BLOCK_BYTES)
        .collect()
}

fn version_of(engine: &SsdEngine) -> Result<Option<u64>> {
    let found = engine.get(DURABLE)?;
    Ok(found.map(|bytes| u64::from_be_bytes(bytes[..].try_into().expect("eight bytes"))))
}

#[test]
fn an_engine_whose_own_rows_are_damaged_in_one_place_opens_with_those_of_the_other() {
    on_disk(async |machine| {
        filled().await;
        // The rows of the sample are in the first place only.
        let first = blocks_with(machine, b"\xff\xff/sample/");
        assert!(!damage(machine, DURABLE, |block| first.contains(&block)).is_empty());
        let engine = opened(false).await.expect("opens");
        assert_eq!(version_of(&engine), Ok(Some(4)));
        assert_eq!(engine.get(HELD).expect("reads").as_deref(), Some(&[2][..]));
        let mut own = Vec::new();
        let read = engine.range(b"\xff\xff/", b"\xff\xff/i", false, &mut |key, _| {
            own.push(key.to_vec());
            true
        });
        assert_eq!((read, own), (Ok(()), vec![DURABLE.to_vec(), HELD.to_vec()]));
        // So that its server tells it, and another one gets the data.
        assert!(!engine.damage().parts.is_empty());
        let (key, value) = row(7);
        let found = engine.get(key.as_bytes()).expect("reads");
        assert_eq!(found.as_deref(), Some(value.as_bytes()));
        engine.close().await.expect("closes");
        // In both places.
        assert!(!damage(machine, DURABLE, |block| !first.contains(&block)).is_empty());
        let refused = opened(false).await.err();
        assert!(refused.is_some_and(Error::is_damage), "{refused:?}");
    });
}

#[test]
fn the_second_place_alone_being_damaged_is_noticed_by_no_reader() {
    on_disk(async |machine| {
        filled().await;
        let first = blocks_with(machine, b"\xff\xff/sample/");
        assert!(!damage(machine, DURABLE, |block| !first.contains(&block)).is_empty());
        let engine = opened(false).await.expect("opens");
        assert_eq!(version_of(&engine), Ok(Some(4)));
        assert!(engine.damage().parts.is_empty());
    });
}

#[test]
fn what_was_refused_is_refused_when_the_engine_is_opened_again_and_its_bytes_read_well() {
    on_disk(async |machine| {
        filled().await;
        let before = disk::read_file(Path::new(FILE)).await.expect("reads");
        let wanted = row(60);
        assert!(!damage(machine, wanted.1.as_bytes(), |_| true).is_empty());
        let engine = opened(false).await.expect("opens");
        assert_eq!(engine.get(wanted.0.as_bytes()), Err(Error::checksum_failed));
        engine.open_again().await.expect("opens");
        let told = engine.damage();
        drop(engine);
        let heal = |bytes: &mut Vec<u8>| *bytes = before.to_vec();
        assert!(control().change_file(machine, Path::new(FILE), heal));
        let lost = Path::new("/data/engine.lost");
        for at in [4100, 20, 8] {
            let engine = opened(false).await.expect("opens");
            assert_eq!(engine.get(wanted.0.as_bytes()), Err(Error::checksum_failed));
            assert_eq!(
                (engine.damage(), engine.has_failed()),
                (told.clone(), false)
            );
            let (key, value) = row(150);
            let found = engine.get(key.as_bytes()).expect("reads");
            assert_eq!(found.as_deref(), Some(value.as_bytes()));
            drop(engine);
            // One of its images is enough.
            assert!(control().change_file(machine, lost, |bytes| bytes[at] ^= 4));
            drop(opened(false).await.expect("opens"));
            assert!(control().change_file(machine, lost, |bytes| bytes[at] ^= 4));
        }
        // Nor are others of its block read, which nobody has asked for.
        let engine = opened(false).await.expect("opens");
        let mut beside = 0;
        for i in 50..70 {
            beside += u32::from(engine.get(row(i).0.as_bytes()).is_err());
            engine.open_again().await.expect("opens");
        }
        assert!((2..=10).contains(&beside), "{beside}");
        drop(engine);
        // What was refused must be known.
        assert!(control().change_file(machine, lost, |bytes| {
            bytes[30] ^= 4;
            bytes[4100] ^= 4;
        }));
        assert_eq!(opened(false).await.err(), Some(Error::checksum_failed));
    });
}

#[test]
fn on_a_full_disk_what_was_refused_is_written_down_when_there_is_room() {
    on_disk(async |machine| {
        filled().await;
        let wanted = row(60);
        assert!(!damage(machine, wanted.1.as_bytes(), |_| true).is_empty());
        let engine = opened(false).await.expect("opens");
        control().set_disk_full(machine, true);
        assert_eq!(engine.get(wanted.0.as_bytes()), Err(Error::checksum_failed));
        engine.open_again().await.expect("opens");
        let (key, value) = row(150);
        let found = engine.get(key.as_bytes()).expect("it serves meanwhile");
        assert_eq!(found.as_deref(), Some(value.as_bytes()));
        let lost = Path::new("/data/engine.lost");
        assert!(!disk::exists(lost).await.expect("looks"));
        control().set_disk_full(machine, false);
        plinth_runtime::sleep(Duration::from_secs(3)).await;
        assert!(disk::exists(lost).await.expect("looks"));
    });
}

/// Makes a file what the version before has written: without the second tree, in the former format.
async fn as_a_former_version() {
    let engine = opened(false).await.expect("opens");
    let tree = engine.tree.borrow().clone().expect("it is open");
    let removed = engine.file.offload(true, move || {
        let mut transaction = tree.database.begin_write().expect("nobody else writes");
        transaction.set_quick_repair(true);
        transaction.delete_table(own::OWN).expect("it is there");
        transaction.commit().expect("there is room");
    });
    removed.await;
    engine.close().await.expect("closes");
    let machine = control().machines()[0].id;
    assert!(control().change_file(machine, Path::new(FILE), |bytes| former_header(bytes)));
}

#[test]
fn a_file_of_the_former_format_opens_and_has_its_own_rows_twice_with_the_next_commit() {
    on_disk(async |machine| {
        filled().await;
        as_a_former_version().await;
        let engine = opened(false).await.expect("opens");
        assert_eq!(version_of(&engine), Ok(Some(4)));
        engine.close().await.expect("closes");
        let engine = opened(false).await.expect("opens");
        commit(&engine, 5, 0..3).await;
        engine.close().await.expect("closes");
        let first = blocks_with(machine, b"\xff\xff/sample/");
        assert!(!damage(machine, DURABLE, |block| first.contains(&block)).is_empty());
        let engine = opened(false).await.expect("opens");
        assert_eq!(version_of(&engine), Ok(Some(5)));
    });
    on_disk(async |machine| {
        filled().await;
        as_a_former_version().await;
        damage(machine, DURABLE, |_| true);
        let refused = opened(false).await.err();
        assert!(refused.is_some_and(Error::is_damage), "{refused:?}");
    });
}
