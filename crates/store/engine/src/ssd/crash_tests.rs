//! The tree over a disk that loses power between any two operations.
//!
//! The simulator runs a commit of this engine in one piece, so the cut in its middle is made here. After a random
//! number of writes, lengths and syncs the disk is dead. What was not synced is kept, torn or lost, each change on its
//! own.

use super::frames::BlockFile;
use super::*;
use plinth_runtime::random;
use plinth_runtime::sim::{SimConfig, Simulation};
use redb::ReadableTable;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

fn apply_change(image: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, data) => {
            let end = at + data.len();
            image.resize(image.len().max(end), 0);
            image[*at..end].copy_from_slice(data);
        }
        Change::SetLen(len) => image.resize(*len, 0),
    }
}

#[derive(Debug, Default)]
struct State {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Change>,
    operations_left: u64,
}

impl State {
    fn spend(&mut self) -> io::Result<()> {
        self.operations_left = self
            .operations_left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("no power"))?;
        Ok(())
    }
    fn change(&mut self, change: Change) -> io::Result<()> {
        self.spend()?;
        apply_change(&mut self.current, &change);
        self.unsynced.push(change);
        Ok(())
    }
    /// The contents of the disk when the power is back.
    fn after_power_cut(&mut self) -> Vec<u8> {
        let keep = random::unit();
        let mut image = std::mem::take(&mut self.durable);
        for change in self.unsynced.drain(..) {
            if random::chance(keep) {
                apply_change(&mut image, &change);
            } else if let Change::Write(at, mut data) = change
                && random::chance(0.3)
            {
                data.truncate(random::below(data.len() as u64 / 512 + 1) as usize * 512);
                if random::chance(0.3) {
                    random::fill(&mut data);
                }
                apply_change(&mut image, &Change::Write(at, data));
            }
        }
        image
    }
}

#[derive(Clone, Debug)]
struct TestDisk(Arc<Mutex<State>>);

impl TestDisk {
    fn new(image: Vec<u8>, operations_left: u64) -> Self {
        let current = image.clone();
        TestDisk(Arc::new(Mutex::new(State {
            durable: image,
            current,
            unsynced: Vec::new(),
            operations_left,
        })))
    }
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }
}

impl BlockFile for TestDisk {
    type Synced = ();

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let from = offset as usize;
        let bytes = state.current.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state()
            .change(Change::Write(offset as usize, data.to_vec()))
    }
    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.spend()?;
        state.durable = state.current.clone();
        state.unsynced.clear();
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Change::SetLen(len as usize))
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().current.len() as u64)
    }
}

fn random_batch() -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..random::below(40) {
        let key = [random::below(200) as u8];
        match random::below(12) {
            0 => batch.clear_range(&key, &[key[0] + random::below(40) as u8]),
            1 => batch.set(
                &key,
                &vec![random::u64() as u8; random::below(9000) as usize],
            ),
            _ => batch.set(&key, &random::u64().to_le_bytes()),
        }
    }
    batch
}

fn apply_batch(model: &mut Model, batch: &WriteBatch) {
    let net = batch.net_effect();
    for (begin, end) in net.clears {
        model.retain(|key, _| &key[..] < begin || &key[..] >= end);
    }
    model.extend(
        net.sets
            .iter()
            .map(|(key, value)| (key.to_vec(), value.to_vec())),
    );
}

fn rows_of(tree: &Tree<TestDisk>) -> std::result::Result<Model, redb::Error> {
    let mut model = Model::new();
    for row in tree.reader()?.iter()? {
        let (key, value) = row?;
        model.insert(key.value().to_vec(), value.value().to_vec());
    }
    Ok(model)
}

/// Runs on `disk` until its power is gone. `states` gets the acknowledged state and the one under way.
fn live(
    disk: &TestDisk,
    states: &mut [Model; 2],
    commits: &mut u32,
) -> std::result::Result<(), redb::Error> {
    let tree = open_tree(disk.clone(), 128 << 10, None, &[])?;
    let found = rows_of(&tree)?;
    assert!(
        states.contains(&found),
        "after a power cut: neither the old state nor the new"
    );
    *states = [found.clone(), found];
    loop {
        let batch = random_batch();
        apply_batch(&mut states[1], &batch);
        commit(&tree, &batch)?;
        *commits += 1;
        states[0] = states[1].clone();
    }
}

fn commit(tree: &Tree<TestDisk>, batch: &WriteBatch) -> std::result::Result<(), redb::Error> {
    let mut removed = RowCache::new(0, 0).removed_rows();
    tree.commit(&batch.net_effect(), &mut removed).map(drop)
}

#[test]
fn a_commit_that_loses_its_power_anywhere_is_there_whole_or_not_at_all() {
    let mut commits = 0;
    for seed in 0..40 {
        let sim = Simulation::new(seed, SimConfig::default());
        let run = async move {
            let disk = TestDisk::new(Vec::new(), u64::MAX);
            let tree = open_tree(disk.clone(), 128 << 10, None, &[]).expect("make");
            commit(&tree, &WriteBatch::new()).expect("first commit");
            drop(tree);
            let mut image = disk.state().current.clone();
            let mut states = [Model::new(), Model::new()];
            let mut commits = 0;
            for _ in 0..15 {
                let disk = TestDisk::new(image, 0);
                // A process that is only killed leaves its writes to the next process, which may then lose its power.
                for _ in 0..random::range(1..4) {
                    disk.state().operations_left = random::below(150);
                    let end = live(&disk, &mut states, &mut commits);
                    let error = end.expect_err("a life ends with the power");
                    assert_eq!(disk.state().operations_left, 0, "{error:?}");
                    let is_power = matches!(&error, redb::Error::Io(_) | redb::Error::PreviousIo);
                    assert!(is_power, "{error:?}");
                }
                image = disk.state().after_power_cut();
            }
            commits
        };
        commits += sim.run(run).result;
    }
    assert!(commits > 200, "only {commits} commits");
}
