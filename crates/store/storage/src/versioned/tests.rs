//! What every versioned store has to do. The same random work is done by a [`WindowedStore`] over an engine on a
//! simulated disk and by a store that keeps all versions itself; every read of both must agree.

use super::*;
use crate::windowed::WindowedStore;
use plinth_core::key::{KeyRange, is_single_key, key_after};
use plinth_core::{MutationKind, atomic};
use plinth_engine::Op;
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

const OWN: &[u8] = b"\xff\xff/own/";
const OWN_END: &[u8] = b"\xff\xff/own0";
const NO_LIMITS: RangeLimits = RangeLimits {
    rows: usize::MAX,
    bytes: usize::MAX,
    visits: 3,
};

type Row = (Vec<u8>, Vec<u8>);
/// The states of a key, oldest first.
type History = Vec<(Version, Option<Bytes>)>;

/// Keeps the history of every key. A commit writes one file, for its proof.
struct HistoryStore {
    rows: RefCell<BTreeMap<Vec<u8>, History>>,
    /// Ranges that versions above the durable one touched.
    touched: RefCell<Vec<(Version, KeyRange)>>,
    durable: Cell<Version>,
    oldest: Cell<Version>,
    latest: Cell<Version>,
}

impl HistoryStore {
    fn new() -> Self {
        HistoryStore {
            rows: RefCell::default(),
            touched: RefCell::default(),
            durable: Cell::new(0),
            oldest: Cell::new(0),
            latest: Cell::new(0),
        }
    }

    fn write(&self, key: &[u8], version: Version, value: Option<Bytes>) {
        let mut rows = self.rows.borrow_mut();
        let history = rows.entry(key.to_vec()).or_default();
        let place = history.partition_point(|(at, _)| *at < version);
        match history.get_mut(place).filter(|(at, _)| *at == version) {
            Some(same) => same.1 = value,
            None => history.insert(place, (version, value)),
        }
    }

    fn clear(&self, begin: &[u8], end: &[u8], version: Version) {
        let inside = |key: &&Vec<u8>| &key[..] >= begin && &key[..] < end;
        let keys: Vec<Vec<u8>> = self.rows.borrow().keys().filter(inside).cloned().collect();
        keys.iter().for_each(|key| self.write(key, version, None));
    }

    fn take_clear(&self, begin: &[u8], end: &[u8], version: Version) {
        self.touch(version, begin, end);
        self.clear(begin, end, version);
    }

    fn touch(&self, version: Version, begin: &[u8], end: &[u8]) {
        let (begin, end) = (Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        let mut touched = self.touched.borrow_mut();
        touched.push((version, KeyRange { begin, end }));
    }

    fn state(history: &History, version: Version) -> Option<&Bytes> {
        let at_or_below = history.iter().rfind(|(at, _)| *at <= version);
        at_or_below.and_then(|(_, value)| value.as_ref())
    }

    fn rows_at(&self, begin: &[u8], end: &[u8], version: Version) -> Vec<Row> {
        let rows = self.rows.borrow();
        let inside = rows.range(begin.to_vec()..end.to_vec());
        inside
            .filter_map(|(key, history)| {
                Self::state(history, version).map(|value| (key.clone(), value.to_vec()))
            })
            .collect()
    }
}

impl VersionedStore for HistoryStore {
    fn durable_version(&self) -> Version {
        self.durable.get()
    }
    fn oldest_version(&self) -> Version {
        self.oldest.get()
    }
    fn window_bytes(&self) -> usize {
        0
    }
    fn apply(&self, version: Version, mutation: MutationRef<'_>) -> Result<()> {
        let (first, second) = (mutation.first, mutation.second);
        match mutation.kind {
            MutationKind::ClearRange => self.take_clear(first, second, version),
            kind => {
                self.touch(version, first, &key_after(first));
                let existing = self.rows.borrow().get(first).and_then(|history| {
                    let newest = history.last();
                    newest.and_then(|(_, value)| value.clone())
                });
                let value = atomic::apply(kind, existing.as_deref(), second);
                self.write(first, version, value);
            }
        }
        Ok(())
    }
    fn clear_some(
        &self,
        version: Version,
        (_, end): (&[u8], &[u8]),
        from: &[u8],
        _: usize,
    ) -> Option<Bytes> {
        self.take_clear(from, end, version);
        None
    }
    fn advance(&self, version: Version) {
        self.latest.set(version);
    }
    fn begin_rollback(&self, to: Version) {
        self.latest.set(self.latest.get().min(to));
    }
    fn undo_some(&self, _: usize) -> bool {
        let latest = self.latest.get();
        self.touched.borrow_mut().retain(|(at, _)| *at <= latest);
        let mut rows = self.rows.borrow_mut();
        let histories = rows.values_mut();
        histories.for_each(|history| history.retain(|(at, _)| *at <= latest));
        false
    }
    fn get(&self, key: &[u8], version: Version) -> Result<Option<Bytes>> {
        let rows = self.rows.borrow();
        Ok(rows.get(key).and_then(|h| Self::state(h, version).cloned()))
    }
    fn range(&self, read: &RangeRead<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<RangeEnd> {
        let mut rows = self.rows_at(read.begin, read.end, read.version);
        if read.reverse {
            rows.reverse();
        }
        let mut end = RangeEnd::default();
        for (key, value) in rows {
            emit(&key, &value);
            end.rows += 1;
            end.bytes += key.len() + value.len();
            end.more = end.rows >= read.limits.rows || end.bytes >= read.limits.bytes;
            if end.more {
                break;
            }
        }
        Ok(end)
    }
    fn is_cold(&self) -> bool {
        false
    }
    fn warm(&self, _: &Wanted<'_>) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }
    fn is_untouched(&self, begin: &[u8], end: &[u8]) -> bool {
        let touched = self.touched.borrow();
        let overlaps = |range: &KeyRange| range.begin < end && range.end > begin;
        !touched
            .iter()
            .any(|(_, range)| range.begin < range.end && overlaps(range))
    }
    fn own_rows(
        &self,
        begin: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let rows = self.rows_at(begin, end, Version::MAX);
        rows.iter().all(|(key, value)| visit(key, value));
        Ok(())
    }
    fn begin_taking(&self, up_to: Version) -> Taking {
        self.oldest.set(up_to);
        let mut batch = WriteBatch::new();
        for (key, history) in self.rows.borrow().iter() {
            let newest = history.iter().rfind(|(at, _)| *at <= up_to);
            match newest.filter(|(at, _)| *at > self.durable.get()) {
                Some((_, Some(value))) => batch.set(key, value),
                Some((_, None)) => batch.clear(key),
                None => {}
            }
        }
        Taking {
            up_to,
            batch,
            place: (0, 0),
        }
    }
    fn take_some(&self, _: &mut Taking, _: usize) -> bool {
        false
    }
    fn commit(
        &self,
        up_to: Version,
        batch: WriteBatch,
    ) -> LocalBoxFuture<'_, Result<DurableVersion>> {
        Box::pin(async move {
            let path = Path::new("/data/history");
            let written = plinth_runtime::disk::write_file_durably(path, Bytes::new()).await;
            let synced = written.expect("the disk works");
            for op in batch.ops() {
                match op {
                    Op::Set(key, value) => {
                        self.write(key, up_to, Some(Bytes::copy_from_slice(value)))
                    }
                    Op::ClearRange(begin, end) if is_single_key(begin, end) => {
                        self.write(begin, up_to, None)
                    }
                    Op::ClearRange(begin, end) => self.clear(begin, end, up_to),
                }
            }
            Ok(DurableVersion::new(up_to, synced))
        })
    }
    fn forget_some(&self, durable: DurableVersion, _: usize) -> bool {
        self.durable.set(durable.version());
        let mut touched = self.touched.borrow_mut();
        touched.retain(|(at, _)| *at > durable.version());
        for history in self.rows.borrow_mut().values_mut() {
            let below = history.partition_point(|(at, _)| *at <= durable.version());
            history.drain(..below.saturating_sub(1));
        }
        false
    }
    fn kind(&self) -> EngineKind {
        EngineKind::Memory
    }
    fn has_failed(&self) -> bool {
        false
    }

    fn damage(&self) -> FileDamage {
        FileDamage::default()
    }

    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn disk_bytes(&self) -> u64 {
        0
    }
}

/// The two stores, and what has been done to them.
struct Both {
    stores: [Rc<dyn VersionedStore>; 2],
    latest: Version,
    commits: u32,
}

fn key(number: u64) -> [u8; 2] {
    [b'a' + (number / 8) as u8, b'0' + (number % 8) as u8]
}

fn any_key() -> [u8; 2] {
    key(below(40))
}

impl Both {
    /// Commits one version of a few mutations.
    fn version(&mut self) {
        let version = self.latest + range(1..5) as Version;
        for _ in 0..below(4) {
            let (first, other) = (any_key(), any_key());
            let (begin, end) = (first.min(other), first.max(other));
            match below(4) {
                0 => self.clear(version, &begin, &end),
                1 => self.apply(version, MutationKind::Add, &first, b"\x01"),
                2 => self.apply(version, MutationKind::CompareAndClear, &first, b"x"),
                _ => self.apply(version, MutationKind::Set, &first, b"x"),
            }
        }
        self.stores.iter().for_each(|store| store.advance(version));
        self.latest = version;
    }

    fn apply(&self, version: Version, kind: MutationKind, first: &[u8], second: &[u8]) {
        for store in &self.stores {
            let mutation = MutationRef {
                kind,
                first,
                second,
            };
            store.apply(version, mutation).expect("no disk is read");
        }
    }

    fn clear(&self, version: Version, begin: &[u8], end: &[u8]) {
        for store in &self.stores {
            let mut from = Some(Bytes::copy_from_slice(begin));
            while let Some(at) = from {
                from = store.clear_some(version, (begin, end), &at, 1);
            }
        }
    }

    /// Makes a part of the versions durable. Some commits bring rows of the server's own, and rows of a range that no
    /// version touched; between its steps come new versions.
    async fn make_durable(&mut self) {
        let oldest = self.stores[0].oldest_version();
        let up_to = oldest + below((self.latest - oldest) as u64 + 1) as Version;
        let mut takings: Vec<Taking> = self.begin_taking(up_to);
        if chance(0.3) {
            self.version();
            takings = self.begin_taking(up_to); // a full disk refused the last
        }
        for (store, taking) in self.stores.iter().zip(&mut takings) {
            while store.take_some(taking, 2) {}
        }
        let (begin, end) = (any_key(), any_key());
        let fetched = begin < end && chance(0.5);
        let fetched = fetched && self.agree(|store| store.is_untouched(&begin, &end));
        self.commits += 1;
        let mut durable = Vec::new();
        for (store, taking) in self.stores.iter().zip(takings) {
            let mut batch = taking.batch;
            if fetched {
                batch.clear_range(&begin, &end);
                batch.set(&begin, b"fetched");
            }
            batch.set(&[OWN, b"n"].concat(), &self.commits.to_le_bytes());
            durable.push(store.commit(up_to, batch).await.expect("the disk works"));
        }
        if chance(0.5) {
            self.version();
        }
        for (store, durable) in self.stores.iter().zip(durable) {
            while store.forget_some(durable, 1) {}
        }
        assert_eq!(self.agree(|store| store.durable_version()), up_to);
    }

    fn begin_taking(&self, up_to: Version) -> Vec<Taking> {
        let begin = |store: &Rc<dyn VersionedStore>| store.begin_taking(up_to);
        self.stores.iter().map(begin).collect()
    }

    fn roll_back(&mut self) {
        let oldest = self.stores[0].oldest_version();
        self.latest -= below((self.latest - oldest) as u64 + 1) as Version;
        for store in &self.stores {
            store.begin_rollback(self.latest);
            while store.undo_some(1) {}
        }
    }

    /// What both say.
    fn agree<T: PartialEq + std::fmt::Debug>(&self, ask: impl Fn(&dyn VersionedStore) -> T) -> T {
        let [one, other] = &self.stores;
        let said = ask(&**one);
        assert_eq!(said, ask(&**other), "the stores differ");
        said
    }

    /// Reads every readable version of both.
    fn compare(&self) {
        let oldest = self.agree(|store| store.oldest_version());
        for version in oldest..=self.latest {
            let all = self.agree(|store| rows(store, b"", b"\xff", version, false));
            let mut backwards = self.agree(|store| rows(store, b"", b"\xff", version, true));
            backwards.reverse();
            assert_eq!(all, backwards);
            let wanted = any_key();
            let found = self.agree(|store| store.get(&wanted, version).expect("a value"));
            let listed = all.iter().find(|(key, _)| key[..] == wanted);
            assert_eq!(found.as_deref(), listed.map(|(_, value)| &value[..]));
        }
        self.agree(|store| {
            let mut own = Vec::new();
            let visit = &mut |key: &[u8], value: &[u8]| {
                own.push((key.to_vec(), value.to_vec()));
                true
            };
            store.own_rows(OWN, OWN_END, visit).expect("rows");
            own
        });
    }
}

/// All rows of a range, read in as many parts as the store likes.
fn rows(
    store: &dyn VersionedStore,
    begin: &[u8],
    end: &[u8],
    version: Version,
    reverse: bool,
) -> Vec<Row> {
    let (mut begin, mut end, mut found) = (begin.to_vec(), end.to_vec(), Vec::new());
    loop {
        let read = RangeRead {
            begin: &begin,
            end: &end,
            version,
            limits: NO_LIMITS,
            reverse,
        };
        let emit = &mut |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        let ended = store.range(&read, emit).expect("rows");
        assert!(!ended.more, "no limit was set");
        match ended.stopped_at {
            Some(at) if reverse => end = at.to_vec(),
            Some(at) => begin = at.to_vec(),
            None => return found,
        }
    }
}

fn work(seed: u64, kind: EngineKind) {
    let simulation = Simulation::new(seed, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let done = simulation.run_on(machine, async move {
        let data = Path::new("/data");
        plinth_runtime::disk::create_dir_all(data)
            .await
            .expect("a directory");
        let engine = plinth_engine::open(kind, &data.join("rows"), true, 1 << 20).await;
        let windowed = WindowedStore::open(engine.expect("a new engine"), 0).expect("it is empty");
        let mut both = Both {
            stores: [Rc::new(windowed), Rc::new(HistoryStore::new())],
            latest: 0,
            commits: 0,
        };
        for _ in 0..60 {
            match below(10) {
                0 => both.roll_back(),
                1 | 2 => both.make_durable().await,
                _ => both.version(),
            }
            both.compare();
        }
    });
    done.expect("nothing kills it");
}

#[test]
fn every_store_answers_every_read_alike() {
    for seed in 0..40 {
        work(seed, EngineKind::Memory);
        work(seed, EngineKind::Ssd);
    }
}
