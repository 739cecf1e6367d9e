//! Keys and values against a map, and the retry loop.

use super::judge::{Map, key, value};
use crate::btree::{BTree, Cache, Settings};
use crate::kv::{Database, RangeOptions, Transaction};
use crate::testing::Store;
use bytes::Bytes;
use plinth_core::key::key_after;
use plinth_core::testing::Generator;
use plinth_core::{Error, KeySelector, MutationKind, Result, atomic};
use plinth_farm_memory::Pointer;
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{join_all, spawn};
use std::rc::Rc;

type Db = Database<Rc<Store>>;

fn small() -> Settings {
    Settings {
        leaf_bytes: 150,
        inner_bytes: 150,
        key_bytes_max: 12,
        inline_bytes_max: 10,
        ..Settings::default()
    }
}

async fn create(seed: u64) -> (Rc<Store>, Db) {
    let store = Store::new(seed);
    let cache = Cache::new(3000);
    let tree = store.run(async |tx| BTree::create(tx, small(), Pointer::NULL, &cache).await);
    let tree = tree.await.expect("a tree");
    (Rc::clone(&store), Database::new(store, tree))
}

fn simulate<T: 'static>(seed: u64, main: impl Future<Output = T> + 'static) -> T {
    let config = SimConfig {
        buggify_enabled: true,
        ..SimConfig::default()
    };
    Simulation::new(seed, config).run(main).result
}

const KEYS: usize = 120;

/// Where a selector leads among the keys of the map.
fn resolve(map: &Map, selector: &KeySelector) -> Bytes {
    let anchor = match selector.or_equal {
        true => key_after(&selector.key),
        false => selector.key.clone(),
    };
    let before = map.range(..anchor).count() as i64;
    let index = before + i64::from(selector.offset) - 1;
    if index < 0 {
        return Bytes::new();
    }
    let found = map.keys().nth(index as usize).cloned();
    found.unwrap_or(Bytes::from_static(b"\xff"))
}

fn selector(random: &mut Generator) -> KeySelector {
    let offset = if random.below(2) == 0 {
        1
    } else {
        random.below(12) as i32 - 5
    };
    KeySelector::new(key(random, KEYS), random.below(2) == 0, offset)
}

async fn range(tx: &Transaction<Rc<Store>>, map: &Map, random: &mut Generator) -> Result<()> {
    let (begin, end) = (selector(random), selector(random));
    let limit = [0, 0, 1, 3, 50][random.below(5)];
    let reverse = random.below(2) == 0;
    let options = RangeOptions { limit, reverse };
    let found = tx.get_range(begin.clone(), end.clone(), options).await?;
    let (from, to) = (resolve(map, &begin), resolve(map, &end));
    let inside = map.iter().filter(|(key, _)| from <= **key && **key < to);
    let mut expected: Vec<_> = inside.map(|(k, v)| (k.clone(), v.clone())).collect();
    if reverse {
        expected.reverse();
    }
    if limit > 0 && expected.len() > limit as usize {
        assert!(found.more);
        expected.truncate(limit as usize);
    }
    assert_eq!(found.rows, expected);
    Ok(())
}

fn atomic_op(tx: &Transaction<Rc<Store>>, map: &mut Map, key: Bytes, random: &mut Generator) {
    let kinds = [
        MutationKind::Add,
        MutationKind::Max,
        MutationKind::AppendIfFits,
        MutationKind::CompareAndClear,
    ];
    let kind = kinds[random.below(kinds.len())];
    let operand = [random.below(3) as u8; 2];
    tx.atomic_op(kind, &key, operand);
    let after = atomic::apply(kind, map.get(&key).map(|v| &v[..]), &operand);
    match after {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

async fn step(tx: &Transaction<Rc<Store>>, map: &mut Map, random: &mut Generator) -> Result<()> {
    let (key, new) = (key(random, KEYS), value(random));
    match random.below(12) {
        0..4 => {
            tx.set(&key, &new);
            map.insert(key, new);
        }
        4 => {
            tx.clear(&key);
            map.remove(&key);
        }
        5 if random.below(3) == 0 => {
            let other = super::judge::key(random, KEYS);
            let (begin, end) = (key.clone().min(other.clone()), key.max(other));
            tx.clear_range(&begin, &end);
            map.retain(|key, _| *key < begin || *key >= end);
        }
        6 => atomic_op(tx, map, key, random),
        7 => assert_eq!(tx.get(&key).await?, map.get(&key).cloned()),
        8 => {
            let selector = selector(random);
            assert_eq!(tx.get_key(selector.clone()).await?, resolve(map, &selector));
        }
        _ => range(tx, map, random).await?,
    }
    Ok(())
}

#[test]
fn a_transaction_sees_the_map_with_its_own_writes() {
    for seed in 0..10 {
        simulate(seed, async move {
            let (store, db) = create(seed).await;
            let mut random = Generator::new(seed);
            let mut map = Map::new();
            for _ in 0..150 {
                let tx = db.create_transaction();
                let mut own = map.clone();
                for _ in 0..random.below(12) {
                    step(&tx, &mut own, &mut random).await.expect("it works");
                }
                if random.below(5) > 0 {
                    tx.commit().await.expect("nobody conflicts");
                    map = own;
                }
            }
            let census = db.tree().check(&store.begin()).await.expect("sound");
            assert_eq!(census.entries, map.len());
            assert_eq!(census.objects.len(), store.allocated().len());
        });
    }
}

fn number(value: Option<Bytes>) -> u64 {
    let bytes = value.map(|v| v[..].try_into().expect("eight bytes"));
    bytes.map_or(0, u64::from_le_bytes)
}

#[test]
fn counters_lose_nothing_and_money_is_moved_whole() {
    for seed in 0..8 {
        simulate(seed, async move {
            let (store, db) = create(seed).await;
            store.yields.set(true);
            store.abort_one_in.set(60);
            let tasks = (0..5u64).map(|i| spawn("client", client(db.clone(), seed * 10 + i)));
            join_all(tasks).await;
            store.abort_one_in.set(0);
            let read = db.run(async |tx| {
                assert_eq!(number(tx.get("added").await?), 100);
                assert_eq!(number(tx.get("counted").await?), 100);
                let end = KeySelector::first_greater_or_equal("n");
                let begin = KeySelector::first_greater_or_equal("m");
                let found = tx.get_range(begin, end, RangeOptions::default()).await?;
                let sum = found.rows.iter().fold(0, |sum: u64, (_, value)| {
                    sum.wrapping_add(number(Some(value.clone())))
                });
                assert_eq!(sum, 0);
                Ok(found.rows.len())
            });
            assert!(read.await.expect("it works") > 5);
            db.tree().check(&store.begin()).await.expect("sound");
        });
    }
}

async fn client(db: Db, seed: u64) {
    let mut random = Generator::new(seed);
    for _ in 0..20 {
        let accounts = [random.below(10), random.below(10)].map(|i| format!("m{i}"));
        let run = db.run(async |tx| {
            let counted = number(tx.get("counted").await?);
            tx.set("counted", (counted + 1).to_le_bytes());
            tx.atomic_op(MutationKind::Add, "added", 1u64.to_le_bytes());
            for (account, gets) in accounts.iter().zip([7u64, 7u64.wrapping_neg()]) {
                let has = number(tx.get(account).await?);
                tx.set(account, has.wrapping_add(gets).to_le_bytes());
            }
            Ok(())
        });
        run.await.expect("it works");
    }
}

#[test]
fn errors_are_those_of_the_store() {
    simulate(1, async {
        let (_, db) = create(1).await;
        let failing = async |write: &dyn Fn(&Transaction<Rc<Store>>)| {
            let tx = db.create_transaction();
            write(&tx);
            let error = tx.get("a").await.expect_err("the write was wrong");
            assert_eq!(tx.commit().await, Err(error));
            assert_eq!(tx.on_error(error).await, Err(error));
            error
        };
        let long = failing(&|tx| tx.set([b'k'; 13], "v")).await;
        assert_eq!(long, Error::key_too_large);
        let long = failing(&|tx| tx.set("k", vec![0; 100_001])).await;
        assert_eq!(long, Error::value_too_large);
        let system = failing(&|tx| tx.set(b"\xffa", "v")).await;
        assert_eq!(system, Error::key_outside_legal_range);
        let inverted = failing(&|tx| tx.clear_range("b", "a")).await;
        assert_eq!(inverted, Error::inverted_range);
        let stamp = failing(&|tx| {
            tx.atomic_op(MutationKind::SetVersionstampedKey, "a", [0; 14]);
        });
        assert_eq!(stamp.await, Error::unsupported_operation);
        let kind = failing(&|tx| tx.atomic_op(MutationKind::ClearRange, "a", "b")).await;
        assert_eq!(kind, Error::invalid_mutation_type);

        let tx = db.create_transaction();
        assert_eq!(tx.get([b'k'; 13]).await, Ok(None));
        assert_eq!(tx.get(b"\xff").await, Err(Error::key_outside_legal_range));
        let begin = KeySelector::first_greater_or_equal("");
        let end = KeySelector::first_greater_than("\u{7f}");
        let negative = tx.get_range(begin, end, RangeOptions::limit(-1)).await;
        assert_eq!(negative, Err(Error::range_limits_invalid));
        tx.set("a", "b");
        assert_eq!(tx.commit().await, Ok(()));
        assert_eq!(tx.commit().await, Err(Error::used_during_commit));
        tx.reset();
        assert_eq!(tx.get("a").await, Ok(Some(Bytes::from_static(b"b"))));
        tx.cancel();
        assert_eq!(tx.get("a").await, Err(Error::transaction_cancelled));

        let tx = db.create_transaction();
        assert!(tx.get("a").await.is_ok());
        db.run(async |tx| {
            tx.set("a", "c");
            Ok(())
        })
        .await
        .expect("it commits");
        tx.set("x", "y");
        assert_eq!(tx.commit().await, Err(Error::not_committed));
        assert_eq!(tx.get("a").await, Err(Error::not_committed));
        tx.on_error(Error::not_committed).await.expect("again");
        assert_eq!(tx.get("a").await, Ok(Some(Bytes::from_static(b"c"))));
    });
}

#[test]
fn a_commit_waits_for_no_read() {
    for seed in 0..20 {
        simulate(seed, async move {
            let (store, db) = create(seed).await;
            store.yields.set(true);
            let tx = db.create_transaction();
            let read = spawn("read", {
                let tx = tx.clone();
                async move { tx.get("a").await }
            });
            plinth_runtime::yield_now().await;
            tx.set("b", "c");
            match tx.commit().await {
                Ok(()) => {
                    let read = read.await;
                    assert!(read.is_ok() || read == Err(Error::used_during_commit));
                }
                Err(error) => assert_eq!(error, Error::commit_read_incomplete),
            }
        });
    }
}
