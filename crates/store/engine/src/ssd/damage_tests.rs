//! Files that a disk has cut short, writes that it has lost, and a lack of room that it reports late.

use super::frames::BlockFile;
use super::*;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
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
    let tree = open_tree(file.clone(), 0).expect("opens");
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
}

#[test]
fn a_sync_that_finds_the_disk_full_takes_nothing_back_and_loses_nothing() {
    let file = Memory::default();
    let tree = open_tree(file.clone(), 1 << 20).expect("opens");
    commit(&tree, 0..10).expect("commits");
    file.with(|(_, is_full)| *is_full = true);
    let _ = commit(&tree, 10..20);
    assert!(tree.frames.is_full(), "it is a state, not an error");
    drop(tree);
    file.with(|(_, is_full)| *is_full = false);
    let tree = open_tree(file, 1 << 20).expect("opens");
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
    let first = open_tree(file.clone(), 0).expect("a tree");
    commit(&first, 0..40).expect("there is room");
    drop(first);
    // It has written nothing itself, and without a cache every block comes from the file.
    let left = open_tree(file.clone(), 0).expect("the same tree");
    left.touch(b"", b"\xff", false, usize::MAX)
        .expect("its own");
    let next = open_tree(file, 0).expect("the same tree");
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
