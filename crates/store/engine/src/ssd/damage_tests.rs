//! Files that a disk has cut short, writes that it has lost, and a lack of room that it reports late.

use super::frames::BlockFile;
use super::*;
use plinth_core::key::KeyRange;
use plinth_runtime::sim::{Locality, MachineId, SimConfig, Simulation, control};
use std::io;
use std::sync::Mutex;

/// A file in memory whose syncs may find the disk full.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<(Vec<u8>, bool)>>);

impl Memory {
    fn with<T>(&self, work: impl FnOnce(&mut (Vec<u8>, bool)) -> T) -> T {
        work(&mut self.0.lock().expect("no panic while it is held"))
    }
}

impl BlockFile for Memory {
    type Synced = ();

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|(bytes, _)| {
            let found = bytes.get(offset as usize..offset as usize + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|(bytes, _)| {
            let end = offset as usize + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(data);
            Ok(())
        })
    }
    fn sync(&self) -> io::Result<()> {
        match self.with(|(_, is_full)| *is_full) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|(bytes, _)| bytes.resize(len as usize, 0));
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|(bytes, _)| bytes.len() as u64))
    }
}

fn commit(tree: &Tree<Memory>, rows: std::ops::Range<u8>) -> std::result::Result<(), redb::Error> {
    let mut batch = WriteBatch::new();
    rows.for_each(|i| batch.set(&[i], &[i; 3000]));
    let mut removed = RowCache::new(0, 1).removed_rows();
    tree.commit(&batch.net_effect(), &mut removed).map(drop)
}

#[test]
fn a_file_that_was_cut_short_is_damaged_and_no_panic() {
    for cut in [1, 4104, 100_000] {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let run = sim.run_on(machine, async move {
            disk::create_dir_all(Path::new("/data"))
                .await
                .expect("makes it");
            let path = Path::new("/data/engine");
            let engine = SsdEngine::open(path, true, 1 << 20).await.expect("opens");
            for i in 0..100 {
                let mut batch = WriteBatch::new();
                batch.set(&[i], &[i; 3000]);
                engine.commit(batch).await.expect("commits");
            }
            // The file as a killed process leaves it.
            let path_of_file = Path::new("/data/engine.redb");
            let file = disk::open(path_of_file, Default::default()).await;
            let file = file.expect("it is there");
            let size = file.size().await.expect("it has one");
            let whole = file.read_at(0, size as usize).await.expect("reads");
            engine.close().await.expect("closes");
            let cut_short = whole.slice(..whole.len() - cut);
            disk::write_file_durably(path_of_file, cut_short)
                .await
                .expect("writes");
            SsdEngine::open(path, false, 1 << 20).await.map(drop)
        });
        assert_eq!(
            run.expect("it ends"),
            Err(Error::file_corrupt),
            "{cut} bytes"
        );
    }
}

#[test]
fn a_write_that_the_disk_has_lost_is_damage_and_never_the_rows_of_before() {
    let file = Memory::default();
    let tree = open_tree(file.clone(), 0, None, &[]).expect("opens");
    commit(&tree, 0..200).expect("commits");
    let before = file.with(|(bytes, _)| bytes.clone());
    // Everything but the header goes back: pages that were used again get their old contents.
    for _ in 0..3 {
        commit(&tree, 0..200).expect("commits");
    }
    file.with(|(bytes, _)| {
        let frames = 8192..before.len().min(bytes.len());
        bytes[frames.clone()].copy_from_slice(&before[frames]);
    });
    let read = tree.touch(&[0], &[255], false, usize::MAX);
    assert!(read.is_err());
    assert!(tree.frames.damaged_at().is_some());
    // Nor when the file is opened again for what is intact.
    tree.frames.leave();
    let again = open_tree(file, 0, Some(&tree), &[]);
    let read = again.and_then(|again| again.touch(&[0], &[255], false, usize::MAX));
    assert!(read.is_err());
}

#[test]
fn a_sync_that_finds_the_disk_full_takes_nothing_back_and_loses_nothing() {
    let file = Memory::default();
    let tree = open_tree(file.clone(), 1 << 20, None, &[]).expect("opens");
    commit(&tree, 0..10).expect("commits");
    file.with(|(_, is_full)| *is_full = true);
    let _ = commit(&tree, 10..20);
    assert!(tree.frames.is_full(), "it is a state, not an error");
    drop(tree);
    file.with(|(_, is_full)| *is_full = false);
    let tree = open_tree(file, 1 << 20, None, &[]).expect("opens");
    let rows = tree.reader().expect("reads");
    for i in 0..10u8 {
        let row = rows
            .get(&[i][..])
            .expect("reads")
            .expect("it was committed");
        assert_eq!(row.value(), [i; 3000]);
    }
}

#[test]
fn a_tree_whose_file_was_opened_anew_reads_nothing_of_the_next_one() {
    let file = Memory::default();
    let first = open_tree(file.clone(), 0, None, &[]).expect("a tree");
    commit(&first, 0..40).expect("there is room");
    drop(first);
    // It has written nothing itself, and without a cache every block comes from the file.
    let left = open_tree(file.clone(), 0, None, &[]).expect("the same tree");
    left.touch(b"", b"\xff", false, usize::MAX)
        .expect("its own");
    let next = open_tree(file, 0, None, &[]).expect("the same tree");
    left.frames.leave();
    for i in 0..20 {
        commit(&next, i..i + 20).expect("there is room");
    }
    let refused = left.touch(b"", b"\xff", false, usize::MAX);
    let line = refused.expect_err("the blocks are another's").to_string();
    assert!(line.contains("opened anew"), "{line}");
    next.touch(b"", b"\xff", false, usize::MAX)
        .expect("its own");
}

const ROWS_MADE: u32 = 200;

fn row(i: u32) -> (String, String) {
    (format!("row/{i:05}"), format!("[{i:05}]").repeat(100))
}

/// An engine with rows, of which those are damaged.
async fn damaged_engine(machine: MachineId, damaged: &[u32]) -> Rc<SsdEngine> {
    disk::create_dir_all(Path::new("/data"))
        .await
        .expect("makes it");
    let path = Path::new("/data/engine");
    let engine = SsdEngine::open(path, true, 0).await.expect("opens");
    let mut batch = WriteBatch::new();
    for (key, value) in (0..ROWS_MADE).map(row) {
        batch.set(key.as_bytes(), value.as_bytes());
    }
    engine.commit(batch).await.expect("commits");
    engine.close().await.expect("closes");
    let file = Path::new("/data/engine.redb");
    for i in damaged {
        for at in control().places_in_file(machine, file, row(*i).1.as_bytes()) {
            assert!(control().flip_bit_in_file(machine, file, at..at + 1));
        }
    }
    SsdEngine::open(path, false, 0).await.expect("opens")
}

/// Reads rows in order until damage is met. How many there were.
fn rows_until_damage(engine: &SsdEngine, from: u32, reverse: bool) -> u32 {
    let (key, mut rows) = (row(from).0.into_bytes(), 0);
    let range: (&[u8], &[u8]) = match reverse {
        true => (b"row/", &key),
        false => (&key, b"row0"),
    };
    let read = engine.range(range.0, range.1, reverse, &mut |_, _| {
        rows += 1;
        true
    });
    assert_eq!(read, Err(Error::checksum_failed));
    rows
}

#[test]
fn what_was_found_damaged_is_refused_without_a_look_at_the_disk_and_the_rest_is_read() {
    for seed in 0..5 {
        let sim = Simulation::new(seed, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let run = sim.run_on(machine, async move {
            let engine = damaged_engine(machine, &[60, 140]).await;
            let read = async |i: u32| {
                let found = engine.get(row(i).0.as_bytes());
                let is_first = engine.has_failed();
                engine.open_again().await.expect("opens");
                (found, is_first)
            };
            assert_eq!(read(60).await, (Err(Error::checksum_failed), true));
            assert_eq!(read(60).await, (Err(Error::checksum_failed), false));
            // In order and in reverse order, twice each: the first time it is met.
            let before = rows_until_damage(&engine, 0, false);
            assert!((40..=60).contains(&before) && engine.has_failed());
            engine.open_again().await.expect("opens");
            assert_eq!(rows_until_damage(&engine, 0, false), before);
            assert!(!engine.has_failed());
            let behind = rows_until_damage(&engine, 130, true);
            assert!((50..70).contains(&behind) && engine.has_failed());
            engine.open_again().await.expect("opens");
            assert_eq!(rows_until_damage(&engine, 130, true), behind);
            assert!(!engine.has_failed());
            let parts = engine.damage().parts;
            let bounds =
                KeyRange::new(key_after(row(before - 1).0.as_bytes()), row(130 - behind).0);
            assert_eq!(parts.len(), 1);
            assert_eq!(parts[0].keys, Some(bounds.clone()), "seed {seed}");
            for i in (0..ROWS_MADE).filter(|i| !(120..160).contains(i)) {
                let (found, is_first) = read(i).await;
                let (key, value) = row(i);
                let expected = match bounds.contains(key.as_bytes()) {
                    true => Err(Error::checksum_failed),
                    false => Ok(Some(Bytes::from(value))),
                };
                assert_eq!((found, is_first), (expected, false), "seed {seed}, row {i}");
            }
            // What is written anew, and can be, is known no more.
            let mut batch = WriteBatch::new();
            batch.set(b"row/00000", b"anew");
            engine
                .commit(batch)
                .await
                .expect("it is far from the damage");
            assert_eq!(engine.damage().parts, parts);
        });
        assert_eq!(run, Some(()), "seed {seed}");
    }
}
