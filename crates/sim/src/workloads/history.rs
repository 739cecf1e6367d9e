//! Serializability of a recorded history. Every transaction's reads and writes are recorded, with its read version; each
//! leaves a marker that holds its versionstamp, so that it is known afterwards which committed, and in which order.
//! Then the history is replayed in that order and every read of every transaction, aborted ones too, is compared.
//!
//! Strictness is checked as well: a read version is at or above every commit that had been acknowledged when the
//! transaction began.

use super::{Boxed, Complaints, Ending, Verdict, Workload, ending, think, until_done};
use bytes::Bytes;
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::{KeySelector, MutationKind, Result, Version, Versionstamp};
use plinth_runtime::{Instant, random};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const KEYS: u64 = 12;
const MARKERS: &[u8] = b"history/marker/";

fn key(i: u64) -> Bytes {
    format!("history/key/{i:03}").into_bytes().into()
}

#[derive(Clone, Debug)]
enum Read {
    Key(Bytes, Option<Bytes>),
    Range(Bytes, Bytes, Vec<(Bytes, Bytes)>),
}

#[derive(Clone, Debug)]
enum Write {
    Set(Bytes, Bytes),
    Clear(Bytes, Bytes),
}

#[derive(Clone, Debug)]
struct Record {
    id: u64,
    read_version: Version,
    reads: Vec<Read>,
    writes: Vec<Write>,
    ending: Ending,
    /// What the client was told of its commit.
    version: Option<Version>,
}

pub struct History {
    next: Cell<u64>,
    records: RefCell<Vec<Record>>,
    /// The newest commit that some client knows of.
    acknowledged: Cell<Version>,
    complaints: Complaints,
}

impl History {
    pub fn new() -> Self {
        History {
            next: Cell::new(0),
            records: RefCell::default(),
            acknowledged: Cell::new(0),
            complaints: Complaints::default(),
        }
    }

    async fn attempt(&self, database: &Database) {
        let id = self.next.replace(self.next.get() + 1);
        let known = self.acknowledged.get();
        let tr = database.create_transaction();
        let Ok(read_version) = tr.get_read_version().await else {
            return;
        };
        if read_version < known {
            self.complaints.add(format!(
                "read version {read_version} after the commit of {known} was acknowledged"
            ));
        }
        let mut record = Record {
            id,
            read_version,
            reads: vec![],
            writes: vec![],
            ending: Ending::Failed,
            version: None,
        };
        if self.read_and_write(&tr, &mut record).await.is_ok() {
            let mut marker = MARKERS.to_vec();
            marker.extend_from_slice(format!("{id:06}").as_bytes());
            let mut stamp = vec![0u8; 10];
            stamp.extend_from_slice(&0u32.to_le_bytes());
            tr.atomic_op(MutationKind::SetVersionstampedValue, &marker, &stamp);
            record.ending = ending(tr.commit().await);
            if record.ending == Ending::Committed {
                let version = tr.get_committed_version();
                record.version = Some(version);
                self.acknowledged.set(self.acknowledged.get().max(version));
            }
        }
        self.records.borrow_mut().push(record);
    }

    async fn read_and_write(&self, tr: &Transaction, record: &mut Record) -> Result<()> {
        for _ in 0..random::range(1..4) {
            if random::chance(0.3) {
                let (a, b) = (key(random::below(KEYS)), key(random::below(KEYS)));
                let (begin, end) = (a.clone().min(b.clone()), a.max(b));
                let from = KeySelector::first_greater_or_equal(begin.clone());
                let to = KeySelector::first_greater_or_equal(end.clone());
                let rows = tr
                    .get_range_all(from, to, RangeOptions::default(), false)
                    .await?;
                record.reads.push(Read::Range(begin, end, rows));
            } else {
                let key = key(random::below(KEYS));
                let value = tr.get(key.clone(), false).await?;
                record.reads.push(Read::Key(key, value));
            }
            if random::chance(0.2) {
                think().await; // let others in between
            }
        }
        for i in 0..random::range(1..4) {
            if random::chance(0.2) {
                let (a, b) = (key(random::below(KEYS)), key(random::below(KEYS)));
                let (begin, end) = (a.clone().min(b.clone()), a.max(b));
                tr.clear_range(&begin, &end);
                record.writes.push(Write::Clear(begin, end));
            } else {
                let (key, value) = (
                    key(random::below(KEYS)),
                    Bytes::from(format!("{}.{i}", record.id)),
                );
                tr.set(&key, &value);
                record.writes.push(Write::Set(key, value));
            }
        }
        Ok(())
    }

    /// Which transactions committed, and where in the serial order.
    async fn markers(
        &self,
        database: &Database,
    ) -> std::result::Result<BTreeMap<u64, Versionstamp>, String> {
        let rows = until_done(database, async |tr| {
            let begin = KeySelector::first_greater_or_equal(MARKERS);
            let end = KeySelector::first_greater_or_equal(&b"history/marker0"[..]);
            tr.get_range_all(begin, end, RangeOptions::default(), false)
                .await
        })
        .await;
        let mut markers = BTreeMap::new();
        for (key, value) in rows {
            let id = super::number(&key[MARKERS.len()..]) as u64;
            let stamp = value[..]
                .try_into()
                .map_err(|_| format!("the marker of {id} is not a stamp"))?;
            markers.insert(id, Versionstamp(stamp));
        }
        Ok(markers)
    }
}

/// Every value that each key has had, by the stamp of the transaction that wrote it.
#[derive(Default)]
struct Serial {
    by_key: BTreeMap<Bytes, BTreeMap<Versionstamp, Option<Bytes>>>,
}

impl Serial {
    fn write(&mut self, stamp: Versionstamp, write: &Write) {
        match write {
            Write::Set(key, value) => self.put(key.clone(), stamp, Some(value.clone())),
            Write::Clear(begin, end) => {
                for key in (0..KEYS).map(key).filter(|key| begin <= key && key < end) {
                    self.put(key, stamp, None);
                }
            }
        }
    }
    fn put(&mut self, key: Bytes, stamp: Versionstamp, value: Option<Bytes>) {
        self.by_key.entry(key).or_default().insert(stamp, value);
    }
    /// The value before `stamp`.
    fn value(&self, key: &Bytes, before: Versionstamp) -> Option<Bytes> {
        self.by_key.get(key)?.range(..before).next_back()?.1.clone()
    }
    fn agrees(&self, read: &Read, before: Versionstamp) -> bool {
        match read {
            Read::Key(key, value) => self.value(key, before) == *value,
            Read::Range(begin, end, rows) => {
                let keys = (0..KEYS).map(key).filter(|key| begin <= key && key < end);
                let expected: Vec<(Bytes, Bytes)> = keys
                    .filter_map(|key| Some((key.clone(), self.value(&key, before)?)))
                    .collect();
                expected == *rows
            }
        }
    }
}

impl Workload for History {
    fn name(&self) -> &'static str {
        "serializability"
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn work(&self, database: Database, _: u64, end: Instant) -> Boxed<'_, ()> {
        Box::pin(async move {
            while plinth_runtime::now() < end {
                self.attempt(&database).await;
                think().await;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let markers = self.markers(&database).await?;
            let records = self.records.borrow();
            let mut serial = Serial::default();
            for record in records.iter() {
                if let Some(stamp) = markers.get(&record.id) {
                    record
                        .writes
                        .iter()
                        .for_each(|write| serial.write(*stamp, write));
                }
            }
            for record in records.iter() {
                judge(record, markers.get(&record.id).copied(), &serial)?;
            }
            self.complaints.verdict()
        })
    }

    fn clients(&self) -> u64 {
        4
    }
}

fn judge(record: &Record, stamp: Option<Versionstamp>, serial: &Serial) -> Verdict {
    match (record.ending, stamp) {
        (Ending::Committed, None) => {
            return Err(format!("an acknowledged commit is lost: {record:?}"));
        }
        (Ending::Failed, Some(_)) => {
            return Err(format!(
                "a transaction that failed has committed: {record:?}"
            ));
        }
        (Ending::Committed, Some(stamp)) if Some(stamp.version()) != record.version => {
            return Err(format!(
                "committed at {stamp:?}, but the client was told otherwise: {record:?}"
            ));
        }
        _ => {}
    }
    // Reads see everything up to the read version …
    let snapshot = Versionstamp::new(record.read_version + 1, 0);
    // … and nothing that they saw had changed when the transaction committed.
    for (moment, when) in [
        (Some(snapshot), "at its read version"),
        (stamp, "when it committed"),
    ] {
        let Some(moment) = moment else { continue };
        if let Some(read) = record
            .reads
            .iter()
            .find(|read| !serial.agrees(read, moment))
        {
            return Err(format!("{read:?} is not what was there {when}: {record:?}"));
        }
    }
    Ok(())
}
