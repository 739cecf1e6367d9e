//! What the tests of all structures share: contents as maps, and transactions that are judged by them.

use crate::testing::{Calls, Store, Tx, run};
use crate::{Error, Result};
use bytes::Bytes;
use plinth_core::testing::Generator;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub type Map = BTreeMap<Bytes, Bytes>;

/// Lengths vary, and some keys are prefixes of others.
pub fn key(random: &mut Generator, keys: usize) -> Bytes {
    let number = random.below(keys);
    Bytes::from(format!("{number:04}")[..1 + number % 4].repeat(1 + number % 3))
}

pub fn value(random: &mut Generator) -> Bytes {
    let lengths = [0, 3, 10, 11, 60, 300];
    let length = lengths[random.below(lengths.len())];
    Bytes::from(vec![random.below(256) as u8; length])
}

/// Maps by the version that committed them.
pub type History = RefCell<BTreeMap<u64, Map>>;

/// What a commit makes of the newest map: others may have committed since its snapshot.
fn record(history: &mut BTreeMap<u64, Map>, tx: &Tx, version: u64, own: Map) {
    let before = &history[&tx.snapshot];
    let mut newest = history[&(version - 1)].clone();
    newest.retain(|key, _| own.contains_key(key) || !before.contains_key(key));
    for (key, value) in own {
        if before.get(&key) != Some(&value) {
            newest.insert(key, value);
        }
    }
    history.insert(version, newest);
}

/// Transactions one after the other, beside those of others that conflict with them. Every one, also one that
/// aborts, sees the map of its snapshot with its own changes at each step.
pub async fn client(
    store: &Rc<Store>,
    history: &History,
    seed: u64,
    mut step: impl AsyncFnMut(&Tx, &mut Map, &mut Generator) -> Result<()>,
) {
    let mut random = Generator::new(seed);
    for _ in 0..40 {
        let tx = store.begin();
        let mut own = history.borrow()[&tx.snapshot].clone();
        let steps = 1 + random.below(6);
        let attempt = async {
            for _ in 0..steps {
                step(&tx, &mut own, &mut random).await?;
            }
            Ok(tx.commit().await?)
        };
        match attempt.await {
            Ok(version) if version == tx.snapshot => assert_eq!(own, history.borrow()[&version]),
            Ok(version) => record(&mut history.borrow_mut(), &tx, version, own),
            Err(error) => assert!(Error::is_retryable(error), "{error}"),
        }
    }
}
pub fn calls(store: &Rc<Store>, body: impl AsyncFnOnce(&Tx) -> Result<()>) -> Calls {
    let tx = store.begin();
    run(body(&tx)).expect("nothing fails");
    let calls = tx.calls.get();
    run(tx.commit()).expect("nobody conflicts");
    calls
}

/// This test has come past these places.
pub fn assert_taken(probes: &[&str]) {
    let hits = plinth_runtime::probe::hits();
    for probe in probes {
        assert!(
            hits.contains_key(probe),
            "{probe} was never taken: {hits:?}"
        );
    }
}
