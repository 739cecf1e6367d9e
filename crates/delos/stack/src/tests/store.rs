//! The local store against a map: rows of the engine, of unflushed entries and of nested levels, read forwards and
//! backwards.

use crate::store::{LocalStore, Reads, RoTx, RwTx};
use bytes::Bytes;
use plinth_core::EngineKind;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Read<'a> = &'a dyn Fn(&[u8], &[u8], usize, bool) -> Vec<(Bytes, Bytes)>;

/// Short keys, so that they meet.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 0..4)
}

#[derive(Clone, Debug)]
enum Act {
    Set(Vec<u8>, u8),
    Clear(Vec<u8>),
    ClearRange(Vec<u8>, Vec<u8>),
    /// The acts are nested, and kept or not.
    Nested(Vec<Act>, bool),
}

fn act() -> impl Strategy<Value = Act> {
    let simple = prop_oneof![
        4 => (key(), any::<u8>()).prop_map(|(key, value)| Act::Set(key, value)),
        2 => key().prop_map(Act::Clear),
        1 => (key(), key()).prop_map(|(begin, end)| Act::ClearRange(begin, end)),
    ];
    simple.prop_recursive(3, 20, 6, |inner| {
        let acts = prop::collection::vec(inner, 0..6);
        (acts, any::<bool>()).prop_map(|(acts, kept)| Act::Nested(acts, kept))
    })
}

fn check(rows: &Rows, read: Read<'_>) {
    let bounds: [&[u8]; 5] = [b"", &[0, 1], &[1], &[1, 1, 1], &[3]];
    for begin in bounds {
        for end in bounds {
            for limit in [1, 2, 5, usize::MAX] {
                let inside = rows
                    .iter()
                    .filter(|(key, _)| key[..] >= *begin && key[..] < *end);
                let mut expected: Vec<_> = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
                for reverse in [false, true] {
                    let found = read(begin, end, limit, reverse);
                    let found: Vec<_> = found
                        .iter()
                        .map(|(k, v)| (k.to_vec(), v.to_vec()))
                        .collect();
                    let part = &expected[..limit.min(expected.len())];
                    assert_eq!(found, part, "{begin:?} to {end:?}, {limit}, {reverse}");
                    expected.reverse();
                }
            }
        }
    }
}

fn check_tx(rows: &Rows, tx: &RwTx) {
    check(rows, &|begin, end, limit, reverse| {
        let found = Reads::range(tx, (begin, end), limit, reverse).expect("it is read");
        if !reverse {
            assert_eq!(tx.range(begin, end, limit), Ok(found.clone()));
        }
        found
    });
}

fn check_snapshot(rows: &Rows, tx: &RoTx) {
    check(rows, &|begin, end, limit, reverse| {
        let found = Reads::range(tx, (begin, end), limit, reverse).expect("it is read");
        if !reverse {
            assert_eq!(tx.range(begin, end, limit), Ok(found.clone()));
        }
        found
    });
}

fn perform(tx: &mut RwTx, rows: &mut Rows, acts: &[Act]) {
    for act in acts {
        match act {
            Act::Set(key, value) => {
                tx.set(key, vec![*value]);
                rows.insert(key.clone(), vec![*value]);
            }
            Act::Clear(key) => {
                tx.clear(key);
                rows.remove(key);
            }
            Act::ClearRange(begin, end) => {
                tx.clear_range(begin, end).expect("it is cleared");
                rows.retain(|key, _| key < begin || key >= end);
            }
            Act::Nested(acts, kept) => {
                let mut inner = rows.clone();
                let done = tx.nested(|tx| {
                    perform(tx, &mut inner, acts);
                    check_tx(&inner, tx);
                    kept.then_some(()).ok_or(())
                });
                if done.is_ok() {
                    *rows = inner;
                }
            }
        }
    }
}

async fn run(entries: Vec<(Vec<Act>, bool)>) {
    let engine = plinth_engine::open(EngineKind::Memory, Path::new("/a"), true, 1 << 20);
    let store = LocalStore::open(engine.await.expect("an engine")).expect("a store");
    let mut rows = Rows::new();
    for (pos, (acts, flushes)) in (1..).zip(entries) {
        let (before, snapshot) = (rows.clone(), store.snapshot());
        let mut tx = store.begin(pos);
        perform(&mut tx, &mut rows, &acts);
        check_tx(&rows, &tx);
        tx.commit().expect("it is committed");
        check_snapshot(&before, &snapshot);
        drop(snapshot);
        if flushes {
            store.flush().await.expect("it is flushed");
        }
        check_snapshot(&rows, &store.snapshot());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn ranges_are_those_of_a_map_in_both_directions(
        entries in prop::collection::vec((prop::collection::vec(act(), 0..8), any::<bool>()), 1..6)
    ) {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        sim.run_on(machine, run(entries)).expect("nothing kills it");
    }
}
