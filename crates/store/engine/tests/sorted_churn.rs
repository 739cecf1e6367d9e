//! Keys that come and go in a table that was emptied from its lower end: none is lost.

use plinth_engine::sorted::{Keyed, SortedBlocks};
use std::collections::{BTreeSet, VecDeque};

struct Row(Vec<u8>);

impl Keyed for Row {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

fn spread(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

fn key(i: u64, rows: u64) -> Vec<u8> {
    let mut key = (i * ((0xff << 56) / rows)).to_be_bytes().to_vec();
    key.extend_from_slice(&spread(i).to_be_bytes());
    key
}

fn insert(map: &mut SortedBlocks<Row>, key: &[u8]) {
    map.upsert(key, |found| {
        assert!(found.is_none());
        Some(Row(key.to_vec()))
    });
}

fn churn(rows: u64, window: usize, steps: u64) {
    let mut map = SortedBlocks::new();
    (0..rows).for_each(|i| insert(&mut map, &key(i, rows)));
    for i in 0..rows {
        let key = key(i, rows);
        assert!(map.get(&key).is_some(), "row {i} of {rows}");
        map.update_or_remove(&key, |_| false);
    }
    assert!(map.is_empty());
    let (mut live, mut there, mut seed) = (VecDeque::new(), BTreeSet::new(), 1);
    for step in 0..steps {
        seed = spread(seed);
        let key = key(seed % rows, rows);
        if there.insert(key.clone()) {
            insert(&mut map, &key);
            live.push_back(key);
        }
        if live.len() > window {
            let oldest: Vec<u8> = live.pop_front().expect("just counted");
            assert!(map.get(&oldest).is_some(), "step {step} of {rows} rows");
            map.update_or_remove(&oldest, |_| false);
            there.remove(&oldest);
        }
    }
    map.check();
    assert_eq!(map.len(), there.len());
}

#[test]
fn no_key_is_lost_after_a_table_was_emptied_from_its_lower_end() {
    churn(100_000, 200, 200_000);
    churn(100_000, 5_000, 200_000);
    churn(1_000, 300, 100_000);
    churn(100_000, 20_000, 200_000);
}
