//! Compares sorted blocks with a tree map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq)]
struct Row(Vec<u8>, u32);

impl Keyed for Row {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u32),
    Remove(Vec<u8>),
    RemoveRange(Vec<u8>, Vec<u8>),
    Bump(Vec<u8>, Vec<u8>),
    Read(Vec<u8>, Vec<u8>),
}

/// Keys that share prefixes, differ by trailing zeros and fall on both sides of the eight-byte heads.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..3, 0..4),
        (0u32..4000).prop_map(
            |n| format!("a-rather-long-shared-prefix-of-forty-bytes-{n:05}").into_bytes()
        ),
        (0u32..4000).prop_map(|n| format!("p{n:04}").into_bytes()),
        (0u8..3, prop::collection::vec(0u8..2, 0..12)).prop_map(|(n, mut tail)| {
            tail.insert(0, n);
            tail
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), any::<u32>()).prop_map(|(k, v)| Step::Put(k, v)),
        8 => key().prop_map(Step::Remove),
        1 => (key(), key()).prop_map(|(a, b)| Step::RemoveRange(a, b)),
        1 => (key(), key()).prop_map(|(a, b)| Step::Bump(a, b)),
        2 => (key(), key()).prop_map(|(a, b)| Step::Read(a, b)),
    ]
}

fn put(map: &mut SortedBlocks<Row>, key: &[u8], value: u32) {
    map.upsert(key, |found| match found {
        Some(row) => {
            row.1 = value;
            None
        }
        None => Some(Row(key.to_vec(), value)),
    });
}

fn check_range(map: &SortedBlocks<Row>, model: &BTreeMap<Vec<u8>, u32>, a: &[u8], b: &[u8]) {
    let mut expected: Vec<Row> = Vec::new();
    if a < b {
        expected = model
            .range(a.to_vec()..b.to_vec())
            .map(|(k, v)| Row(k.clone(), *v))
            .collect();
    }
    assert!(map.range(a, b, false).eq(expected.iter()));
    assert!(map.range(a, b, true).eq(expected.iter().rev()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn it_answers_as_a_tree_map_does(steps in prop::collection::vec(step(), 1..1500)) {
        let mut map = SortedBlocks::new();
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(k, v) => {
                    put(&mut map, &k, v);
                    model.insert(k, v);
                }
                Step::Remove(k) => {
                    map.update_or_remove(&k, |_| false);
                    model.remove(&k);
                }
                Step::RemoveRange(a, b) => {
                    map.remove_range(&a, &b, |row| assert_eq!(model.remove(&row.0), Some(row.1)));
                    assert!(a >= b || model.range(a..b).next().is_none());
                }
                Step::Bump(a, b) => {
                    map.for_each_mut(&a, &b, |row| row.1 ^= 1);
                    if a < b {
                        model.range_mut(a..b).for_each(|(_, v)| *v ^= 1);
                    }
                }
                Step::Read(a, b) => {
                    assert_eq!(map.get(&a).map(|row| row.1), model.get(&a).copied());
                    check_range(&map, &model, &a, &b);
                }
            }
        }
        map.check();
        check_range(&map, &model, b"", b"\xff");
    }
}

#[test]
fn a_hundred_thousand_keys_in_and_out_leave_nothing_behind() {
    let mut map = SortedBlocks::new();
    let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
    for n in 0..100_000 {
        put(&mut map, &key(n), n);
    }
    map.check();
    for n in 0..100_000 {
        assert_eq!(map.get(&key(n)).map(|row| row.1), Some(n));
    }
    for n in 0..100_000 {
        map.update_or_remove(&key(n), |_| false);
    }
    map.check();
    assert!(
        map.is_empty()
            && map
                .range(b"", b"\xff\xff\xff\xff\xff", false)
                .next()
                .is_none()
    );
}

/// A key that counts how often its bytes are asked for.
struct Counted<'a>(Vec<u8>, &'a std::cell::Cell<u32>);

impl Keyed for Counted<'_> {
    fn key(&self) -> &[u8] {
        self.1.set(self.1.get() + 1);
        &self.0
    }
}

/// The keys of nodes in a tree, rows of a directory: what they share is longer than what a leaf keeps of it.
#[test]
fn a_search_among_keys_that_begin_alike_looks_at_few_of_them() {
    let looks = std::cell::Cell::new(0);
    let mut map = SortedBlocks::new();
    let key = |n: u32| [&[b'a'; 200][..], format!("{n:08}").as_bytes()].concat();
    for n in 0..20_000u32 {
        let key = key(n.wrapping_mul(2_654_435_761) % 1_000_000);
        map.upsert(&key, |found| match found {
            Some(_) => None,
            None => Some(Counted(key.clone(), &looks)),
        });
    }
    map.check();
    looks.set(0);
    for n in 0..1000 {
        let key = key(n * 1000);
        map.get(&key);
        let range = map.range(&key, b"b", false).next();
        assert!(range.is_none_or(|row| row.0 >= key));
    }
    let each = looks.get() / 1000;
    assert!(each <= 22, "{each} keys are looked at for each search");
}
