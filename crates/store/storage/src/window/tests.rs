//! Compares the window over an engine with a map per version.

use super::*;
use bytes::Bytes;
use plinth_core::{EngineKind, Mutation};
use plinth_engine::{KeyValueStore, LocalBoxFuture, Op};
use plinth_runtime::disk::Synced;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::rc::Rc;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine that is a map.
#[derive(Default)]
struct MapEngine(State);

impl MapEngine {
    fn apply(&mut self, batch: &WriteBatch) {
        for op in batch.ops() {
            match op {
                Op::Set(k, v) => drop(self.0.insert(k.to_vec(), v.to_vec())),
                Op::ClearRange(b, e) => self.0.retain(|k, _| &k[..] < b || &k[..] >= e),
            }
        }
    }
}

impl KeyValueStore for MapEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0.get(key).map(|v| Bytes::copy_from_slice(v)))
    }
    fn range(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        assert!(begin < end, "the engine is asked for an empty range");
        let mut rows: Vec<_> = self.0.range(begin.to_vec()..end.to_vec()).collect();
        if reverse {
            rows.reverse();
        }
        rows.into_iter().all(|(k, v)| visit(k, v));
        Ok(())
    }
    fn commit(&self, _: WriteBatch) -> LocalBoxFuture<'_, Result<Synced>> {
        unreachable!("the test applies batches itself")
    }
    fn bytes_used(&self) -> u64 {
        0
    }
    fn kind(&self) -> EngineKind {
        EngineKind::Memory
    }
    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Window and engine, and the expected state of both together at every version.
struct Pair {
    window: VersionedWindow,
    engine: MapEngine,
    versions: BTreeMap<Version, State>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Mutations of one version, and its distance from the last version.
    Commit(Vec<Mutation>, i64),
    /// Moves versions up to this share of the present ones to the engine. If `.1` is set, commits come between the
    /// steps.
    MakeDurable(f64, bool),
    Rollback(f64),
    ReadRange {
        begin: Vec<u8>,
        end: Vec<u8>,
        at: f64,
        rows: usize,
        bytes: usize,
        visits: usize,
    },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]), 0..4)
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let value = || prop::collection::vec(any::<u8>(), 0..12);
    prop_oneof![
        6 => (key(), value()).prop_map(|(k, v)| Mutation::set(k, v)),
        2 => key().prop_map(|k| {
            let end = plinth_core::key::key_after(&k);
            Mutation::clear_range(k, end)
        }),
        2 => (key(), key()).prop_map(|(a, b)| Mutation::clear_range(a, b)),
        2 => (key(), value(), prop::sample::select(vec![
            MutationKind::Add, MutationKind::ByteMax, MutationKind::AppendIfFits, MutationKind::CompareAndClear,
        ])).prop_map(|(k, v, kind)| Mutation { kind, first: k.into(), second: v.into() }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::collection::vec(mutation(), 0..6), 1i64..5).prop_map(|(m, gap)| Step::Commit(m, gap)),
        2 => (0.0..1.0, any::<bool>()).prop_map(|(share, busy)| Step::MakeDurable(share, busy)),
        1 => (0.0..1.0).prop_map(Step::Rollback),
        4 => (key(), key(), 0.0..1.0, 1usize..8, 1usize..40, 1usize..30)
            .prop_map(|(begin, end, at, rows, bytes, visits)| {
                Step::ReadRange { begin, end, at, rows, bytes, visits }
            }),
    ]
}

impl Pair {
    fn new() -> Self {
        let rows = ["", "a", "aa", "b", "ba"].map(|k| (k.as_bytes().to_vec(), b"old".to_vec()));
        let engine = MapEngine(rows.into());
        let versions = [(10, engine.0.clone())].into();
        Pair {
            window: VersionedWindow::new(10),
            engine,
            versions,
        }
    }

    fn version_at(&self, share: f64) -> Version {
        let (low, high) = (self.window.oldest_version(), self.window.latest_version());
        low + ((high - low) as f64 * share).round() as i64
    }

    fn state_at(&self, version: Version) -> &State {
        self.versions
            .range(..=version)
            .next_back()
            .expect("the first version stays")
            .1
    }

    fn commit(&mut self, mutations: &[Mutation], gap: i64) {
        let version = self.window.latest_version() + gap;
        let mut state = self.state_at(version).clone();
        for m in mutations {
            let is_wide = m.kind == MutationKind::ClearRange && !is_single_key(&m.first, &m.second);
            if is_wide && version % 2 == 0 {
                self.clear_in_steps(version, &m.first, &m.second);
            } else {
                let engine = &self.engine;
                self.window
                    .apply(version, m.as_ref(), |key| engine.get(key))
                    .expect("the engine answers");
            }
            let (first, second) = (m.first.to_vec(), m.second.to_vec());
            match m.kind {
                MutationKind::ClearRange => state.retain(|k, _| *k < first || *k >= second),
                kind => match atomic::apply(kind, state.get(&first).map(|v| &v[..]), &second) {
                    Some(value) => drop(state.insert(first, value.to_vec())),
                    None => drop(state.remove(&first)),
                },
            }
        }
        self.versions.insert(version, state);
        self.window.advance(version);
    }

    /// In the smallest steps. Reads at readable versions must give the same answers meanwhile.
    fn clear_in_steps(&mut self, version: Version, begin: &[u8], end: &[u8]) {
        let mut next = Some(Bytes::copy_from_slice(begin));
        while let Some(from) = next {
            next = self.window.clear_some(version, &from, end, 1);
            self.check_points();
        }
        self.window.note_clear(version, begin, end);
    }

    /// In the smallest steps, with commits between them if `busy`.
    fn make_durable(&mut self, share: f64, busy: bool) {
        let up_to = self.version_at(share);
        let mut taking = self.window.begin_taking(up_to);
        while self.window.take_some(&mut taking, 1) {
            self.commit_meanwhile(busy);
        }
        self.commit_meanwhile(busy);
        // Reads at readable versions must give the same answers before and after the engine's commit.
        self.check_points();
        self.engine.apply(&taking.batch);
        self.check_points();
        assert_eq!(&self.engine.0, self.state_at(up_to));
        while self.window.forget_some(up_to, 1) {
            self.check_points();
            self.commit_meanwhile(busy);
        }
    }

    fn rollback(&mut self, to: Version) {
        self.window.begin_rollback(to);
        self.versions.retain(|v, _| *v <= to);
        while self.window.undo_some(1) {
            self.check_points();
        }
    }

    fn commit_meanwhile(&mut self, busy: bool) {
        if busy && self.window.latest_version() - self.window.oldest_version() < 20 {
            let later = [
                Mutation::set(&b"a"[..], &b"later"[..]),
                Mutation::clear_range(&b"aa"[..], &b"b"[..]),
                Mutation {
                    kind: MutationKind::AppendIfFits,
                    first: Bytes::from_static(b"ab"),
                    second: Bytes::from_static(b"."),
                },
            ];
            self.commit(&later, 1);
        }
    }

    fn check_points(&self) {
        let keys: std::collections::BTreeSet<_> =
            self.versions.values().flat_map(|s| s.keys()).collect();
        for version in self.window.oldest_version()..=self.window.latest_version() {
            for key in &keys {
                let value = match self.window.get(key, version) {
                    Lookup::Value(value) => Some(value.to_vec()),
                    Lookup::Cleared => None,
                    Lookup::Engine => self.engine.0.get(*key).cloned(),
                };
                assert_eq!(
                    value.as_ref(),
                    self.state_at(version).get(*key),
                    "{key:?} at {version}"
                );
            }
        }
    }

    fn check_range(&self, begin: &[u8], end: &[u8], version: Version, limits: RangeLimits) {
        for reverse in [false, true] {
            let mut rows = Vec::new();
            let emit = &mut |k: &[u8], v: &[u8]| rows.push((k.to_vec(), v.to_vec()));
            let (mut from, mut to, mut got) = (begin.to_vec(), end.to_vec(), RangeEnd::default());
            loop {
                let left = RangeLimits {
                    rows: limits.rows - got.rows,
                    bytes: limits.bytes - got.bytes.min(limits.bytes),
                    visits: limits.visits,
                };
                let (window, engine) = (&self.window, &self.engine);
                let read = RangeRead {
                    begin: &from,
                    end: &to,
                    version,
                    limits: left,
                    reverse,
                };
                let part = read_range(window, engine, &read, emit);
                let part = part.expect("no disk");
                got.rows += part.rows;
                got.bytes += part.bytes;
                got.more = part.more;
                match part.stopped_at {
                    Some(at) if reverse => to = at.to_vec(),
                    Some(at) => from = at.to_vec(),
                    None => break,
                }
            }
            let mut all: Vec<_> = self
                .state_at(version)
                .iter()
                .filter(|(k, _)| &k[..] >= begin && &k[..] < end)
                .collect();
            if reverse {
                all.reverse();
            }
            let mut expected = RangeEnd::default();
            for (k, v) in all {
                if expected.more {
                    break;
                }
                assert_eq!((k, v), (&rows[expected.rows].0, &rows[expected.rows].1));
                expected.rows += 1;
                expected.bytes += k.len() + v.len();
                expected.more = expected.rows >= limits.rows || expected.bytes >= limits.bytes;
            }
            let count = expected.rows;
            assert_eq!((got, rows.len()), (expected, count));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_version_in_the_window_reads_as_it_was(steps in prop::collection::vec(step(), 1..40)) {
        let mut pair = Pair::new();
        let everything = RangeLimits { rows: usize::MAX, bytes: usize::MAX, visits: usize::MAX };
        for step in steps {
            match step {
                Step::Commit(mutations, gap) => pair.commit(&mutations, gap),
                Step::MakeDurable(share, busy) => pair.make_durable(share, busy),
                Step::Rollback(share) => {
                    let to = pair.version_at(share);
                    pair.rollback(to);
                }
                Step::ReadRange { begin, end, at, rows, bytes, visits } => {
                    let version = pair.version_at(at);
                    pair.check_range(&begin, &end, version, RangeLimits { rows, bytes, visits });
                    pair.check_range(b"", b"\xff\xff\xff\xff\xff", version, everything);
                }
            }
            pair.check_points();
        }
        pair.make_durable(1.0, false);
        prop_assert!(pair.window.is_empty());
        prop_assert_eq!(pair.window.bytes(), 0, "nothing is held when nothing is in the window");
    }
}

fn set(window: &mut VersionedWindow, version: Version, key: &[u8], value: &[u8]) {
    window
        .apply(
            version,
            Mutation::set(key.to_vec(), value.to_vec()).as_ref(),
            |_| Ok(None),
        )
        .expect("no engine");
}

#[test]
#[should_panic(expected = "was taken for the engine")]
fn a_rollback_below_what_was_taken_is_refused() {
    let mut window = VersionedWindow::new(0);
    set(&mut window, 5, b"k", b"v");
    window.advance(9);
    window.begin_taking(6);
    window.begin_rollback(5);
}

#[test]
fn large_states_are_taken_few_at_a_time() {
    let mut window = VersionedWindow::new(0);
    for key in 0..100u8 {
        set(&mut window, 5, &[key], &[b'x'; 100_000]);
    }
    window.advance(9);
    let mut taking = window.begin_taking(6);
    loop {
        let before = taking.batch.bytes();
        let goes_on = window.take_some(&mut taking, 500);
        assert!(taking.batch.bytes() - before < BYTES_A_STEP + 100_001);
        if !goes_on {
            break;
        }
    }
    assert_eq!(taking.batch.len(), 100);
}

#[test]
fn an_atomic_operation_on_a_failed_engine_changes_nothing() {
    let mut window = VersionedWindow::new(0);
    let add = Mutation {
        kind: MutationKind::Add,
        first: Bytes::from_static(b"k"),
        second: Bytes::from_static(b"\x01"),
    };
    let result = window.apply(5, add.as_ref(), |_| Err(plinth_core::Error::io_error));
    assert_eq!(result, Err(plinth_core::Error::io_error));
    window.advance(5);
    assert_eq!(window.get(b"k", 5), Lookup::Engine);
    assert!(window.is_empty());
}

#[test]
fn an_entry_costs_less_than_a_hundred_bytes_beside_its_key_and_value() {
    let mut window = VersionedWindow::new(0);
    let count = 20_000u32;
    for n in 0..count {
        set(
            &mut window,
            i64::from(n / 100) + 1,
            &format!("{:016}", n.wrapping_mul(2_654_435_761)).into_bytes(),
            &[7; 54],
        );
    }
    let overhead = window.bytes() / count as usize - 70;
    assert!(
        overhead < 100 + 17,
        "{overhead} bytes, of which 17 are the journal's copy of the key"
    );
}
