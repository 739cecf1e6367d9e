//! The B-tree against a map.

use super::judge::{History, Map, assert_taken, calls, client, key, value};
use crate::btree::{BTree, Cache, Settings};
use crate::testing::{Store, Tx, interleave, run};
use crate::{Error, Result};
use bytes::Bytes;
use plinth_core::testing::Generator;
use plinth_farm_memory::{Objects, Pointer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// As small as nodes can be with such keys.
fn small() -> Settings {
    Settings {
        leaf_bytes: 150,
        inner_bytes: 150,
        key_bytes_max: 12,
        inline_bytes_max: 10,
        ..Settings::default()
    }
}

fn one_a_leaf() -> Settings {
    Settings {
        leaf_entries_max: 1,
        ..small()
    }
}

fn create(store: &Rc<Store>, settings: Settings, cache: &Cache) -> BTree {
    let made = store.run(async |tx| BTree::create(tx, settings, Pointer::NULL, cache).await);
    run(made).expect("a tree")
}

fn rows_of(map: &Map, begin: &[u8], end: Option<&[u8]>) -> Vec<(Bytes, Bytes)> {
    let inside = map
        .iter()
        .filter(|(k, _)| k[..] >= *begin && end.is_none_or(|end| k[..] < *end));
    inside.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// One operation on the tree and the map, which must say the same.
async fn step(
    tree: &BTree,
    tx: &Tx,
    map: &mut Map,
    random: &mut Generator,
    keys: usize,
) -> Result<()> {
    let (key, new) = (key(random, keys), value(random));
    match random.below(11) {
        0 | 1 => {
            let is_new = tree.set(tx, &key, &new).await?;
            assert_eq!(is_new, map.insert(key.clone(), new.clone()).is_none());
            // The sentence of §2: inserted in this transaction, and looked up in it.
            assert_eq!(tree.get(tx, &key).await?, Some(new));
        }
        2 => {
            let is_new = tree.insert(tx, &key, &new).await?;
            assert_eq!(is_new, !map.contains_key(&key));
            map.entry(key).or_insert(new);
        }
        3 => {
            let was_there = tree.update(tx, &key, &new).await?;
            assert_eq!(was_there, map.contains_key(&key));
            map.entry(key).and_modify(|value| *value = new);
        }
        4 | 5 => {
            let was_there = tree.remove(tx, &key).await?;
            assert_eq!(was_there, map.remove(&key).is_some());
        }
        6 => {
            assert_eq!(tree.get(tx, &key).await?, map.get(&key).cloned());
            assert_eq!(tree.contains(tx, &key).await?, map.contains_key(&key));
        }
        7 => {
            let longer = |value: Bytes| Ok([&value[..], b"+"].concat());
            let was_there = tree.modify(tx, &key, longer).await?;
            assert_eq!(was_there, map.contains_key(&key));
            map.entry(key)
                .and_modify(|value| *value = [&value[..], b"+"].concat().into());
        }
        8 => {
            let mut rows: Vec<_> = (0..random.below(9))
                .map(|_| (super::judge::key(random, keys), value(random)))
                .collect();
            if random.below(2) == 0 {
                rows.sort();
            }
            tree.set_many(tx, &rows).await?;
            map.extend(rows);
        }
        _ => range(tree, tx, map, random, key, keys).await?,
    }
    Ok(())
}

async fn range(
    tree: &BTree,
    tx: &Tx,
    map: &Map,
    random: &mut Generator,
    begin: Bytes,
    keys: usize,
) -> Result<()> {
    let end = (random.below(3) > 0).then(|| key(random, keys));
    let begin = if random.below(4) == 0 {
        Bytes::new()
    } else {
        begin
    };
    let limit = [0, 1, 2, 5, 20, usize::MAX][random.below(6)];
    let reverse = random.below(2) == 0;
    let found = tree
        .range(tx, &begin, end.as_deref(), limit, reverse)
        .await?;
    let mut expected = rows_of(map, &begin, end.as_deref());
    if reverse {
        expected.reverse();
    }
    if expected.len() > limit {
        assert!(found.more, "there is more");
        expected.truncate(limit);
    }
    assert_eq!(found.rows, expected);
    Ok(())
}

fn assert_sound(store: &Rc<Store>, tree: &BTree, map: &Map) {
    let tx = store.begin();
    let (yields, aborts) = (store.yields.replace(false), store.abort_one_in.replace(0));
    let census = run(tree.check(&tx)).expect("a sound tree");
    assert_eq!(census.entries, map.len());
    let reachable: std::collections::BTreeSet<_> = census.objects.iter().copied().collect();
    assert_eq!(reachable.len(), census.objects.len(), "no object twice");
    assert_eq!(reachable, store.allocated(), "no object is lost");
    let all = run(tree.range(&tx, b"", None, usize::MAX, false)).expect("all rows");
    assert_eq!(all.rows, rows_of(map, b"", None));
    store.yields.set(yields);
    store.abort_one_in.set(aborts);
}

/// One transaction after another; some are given up.
fn serial(seed: u64, settings: Settings, cache_bytes: usize, transactions: usize, keys: usize) {
    let mut random = Generator::new(seed);
    let store = Store::new(seed);
    let cache = Cache::new(cache_bytes);
    let tree = create(&store, settings, &cache);
    let mut map = Map::new();
    for i in 0..transactions {
        let tx = store.begin();
        let mut own = map.clone();
        for _ in 0..=random.below(8) {
            run(step(&tree, &tx, &mut own, &mut random, keys)).expect("nothing fails");
            if random.below(3) == 0 {
                cache.evict();
            }
        }
        if random.below(5) > 0 {
            run(tx.commit()).expect("nobody conflicts");
            map = own;
        }
        if i % 16 == 0 {
            assert_sound(&store, &tree, &map);
        }
    }
    assert_sound(&store, &tree, &map);
    // Until nothing is left.
    for key in map.keys().cloned().collect::<Vec<_>>() {
        let removed = store.run(async |tx| tree.remove(tx, &key).await);
        assert_eq!(run(removed), Ok(true));
    }
    assert_sound(&store, &tree, &Map::new());
    assert_eq!(store.allocated().len(), 2, "the root object and a leaf");
}

#[test]
fn a_tree_holds_what_a_map_holds() {
    for seed in 0..12 {
        serial(seed, small(), 2000, 400, 300);
        serial(seed, one_a_leaf(), 100_000, 250, 200);
        serial(seed, Settings::default(), 0, 60, 3000);
    }
    assert_taken(&[
        "btree_cache_is_stale",
        "btree_inner_split",
        "btree_branch_goes",
        "btree_root_falls",
    ]);
}

fn concurrent(seed: u64, settings: Settings, cache_bytes: usize, keys: usize) {
    let store = Store::new(seed);
    // Two machines with caches of their own.
    let caches = [Cache::new(cache_bytes), Cache::new(cache_bytes / 8)];
    let tree = create(&store, settings, &caches[0]);
    let opened = store.run(async |tx| BTree::open(tx, tree.root(), &caches[1]).await);
    let other = run(opened).expect("the tree");
    let history: History = RefCell::new(BTreeMap::from([(store.begin().snapshot, Map::new())]));
    store.yields.set(true);
    store.abort_one_in.set(200);
    let clients = (0..6).map(|i| {
        let tree = if i % 2 == 0 { &tree } else { &other };
        let step = async |tx: &Tx, map: &mut Map, random: &mut Generator| {
            if random.below(4) == 0 {
                tree.cache().evict();
            }
            step(tree, tx, map, random, keys).await
        };
        let client = client(&store, &history, seed * 100 + i, step);
        Box::pin(client) as Pin<Box<dyn Future<Output = ()>>>
    });
    interleave(seed, clients.collect());
    let history = history.borrow();
    let (_, newest) = history.last_key_value().expect("a version");
    assert!(history.len() > 20, "enough have committed");
    assert_sound(&store, &tree, newest);
}

#[test]
fn transactions_that_conflict_see_their_snapshot_and_their_own_changes() {
    for seed in 0..60 {
        concurrent(seed, small(), 4000, 60);
        concurrent(seed, one_a_leaf(), 20_000, 40);
    }
}

#[test]
fn a_late_fence_is_found() {
    plinth_runtime::fault::plant(Some("btree_fence_is_late"));
    let store = Store::new(1);
    let tree = create(&store, small(), &Cache::new(1000));
    let mut found = None;
    for i in 0..40 {
        let tx = store.begin();
        let key = Bytes::from(format!("{i:02}"));
        let outcome = run(async {
            tree.set(&tx, &key, b"value").await?;
            tree.check(&tx).await?;
            Ok(tx.commit().await?)
        });
        if let Err(error) = outcome {
            found = Some(error);
            break;
        }
    }
    plinth_runtime::fault::plant(None);
    assert!(matches!(found, Some(Error::Damaged { .. })), "{found:?}");
    plinth_runtime::fault::found("btree_fence_is_late");
}

#[test]
fn a_lookup_with_a_warm_cache_reads_one_object() {
    let store = Store::new(7);
    let tree = create(&store, one_a_leaf(), &Cache::new(1 << 20));
    for i in 0..500 {
        let key = format!("{i:03}");
        run(store.run(async |tx| tree.set(tx, key.as_bytes(), b"v").await)).expect("set");
    }
    run(tree.check(&store.begin())).expect("sound");
    let all = async |tx: &Tx| {
        tree.range(tx, b"", None, usize::MAX, false)
            .await
            .map(|_| ())
    };
    calls(&store, all);
    let get = calls(&store, async |tx| tree.get(tx, b"077").await.map(|_| ()));
    assert_eq!((get.reads, get.writes), (1, 0));
    let update = calls(&store, async |tx| {
        tree.set(tx, b"077", b"w").await.map(|_| ())
    });
    assert_eq!((update.reads, update.writes), (1, 1));
    let ten = async |tx: &Tx| tree.range(tx, b"100", None, 10, false).await.map(|_| ());
    assert_eq!(calls(&store, ten).reads, 10);
    let ten = async |tx: &Tx| tree.range(tx, b"", Some(b"4"), 10, true).await.map(|_| ());
    assert_eq!(calls(&store, ten).reads, 10);
}

#[test]
fn a_queue_gives_back_its_objects() {
    let store = Store::new(3);
    let cache = Cache::new(10_000);
    let tree = create(&store, small(), &cache);
    let mut most = 0;
    for i in 0..1500u32 {
        let put = store.run(async |tx| tree.insert(tx, &i.to_be_bytes(), b"job").await);
        assert_eq!(run(put), Ok(true));
        if let Some(first) = i.checked_sub(30) {
            let taken = store.run(async |tx| tree.remove(tx, &first.to_be_bytes()).await);
            assert_eq!(run(taken), Ok(true));
        }
        most = most.max(store.allocated().len());
    }
    assert!(most < 40, "{most} objects for 30 entries");
    run(tree.check(&store.begin())).expect("sound");
}

#[test]
fn keys_in_order_fill_their_leaves() {
    let store = Store::new(3);
    let tree = create(&store, Settings::default(), &Cache::new(100_000));
    for i in 0..2000u32 {
        let put = store.run(async |tx| tree.insert(tx, &i.to_be_bytes(), &[7; 40]).await);
        run(put).expect("a new key");
    }
    let census = run(tree.check(&store.begin())).expect("sound");
    // 51 bytes an entry, and room for two fences of 256 bytes.
    let leaves = 2000 * 51 / (4000 - 550);
    assert!(
        census.objects.len() <= leaves + 4,
        "{}",
        census.objects.len()
    );
}

#[test]
fn what_is_too_long_is_refused() {
    let store = Store::new(3);
    let tree = create(&store, small(), &Cache::new(1000));
    let tx = store.begin();
    let long = run(tree.set(&tx, &[1; 13], b""));
    assert_eq!(
        long,
        Err(Error::KeyTooLong {
            bytes: 13,
            most: 12
        })
    );
    assert_eq!(run(tree.get(&tx, &[1; 13])), Err(long.unwrap_err()));
    let most = crate::VALUE_BYTES_MAX;
    let value = vec![0; most + 1];
    let long = run(tree.set(&tx, b"a", &value));
    assert_eq!(
        long,
        Err(Error::ValueTooLong {
            bytes: most + 1,
            most
        })
    );
    let rows = [(&b"a"[..], &b"1"[..]), (&[1; 13], b"2")];
    assert!(run(tree.set_many(&tx, &rows)).is_err());
    assert_eq!(
        run(tree.get(&tx, b"a")),
        Ok(None),
        "nothing is done by halves"
    );
    run(tree.set(&tx, b"a", &value[1..])).expect("the longest value");
    assert_eq!(
        run(tree.get(&tx, b"a")),
        Ok(Some(Bytes::copy_from_slice(&value[1..])))
    );
    let tight = Settings {
        leaf_bytes: 100,
        ..small()
    };
    let made = run(BTree::create(&tx, tight, Pointer::NULL, &Cache::new(0)));
    assert!(matches!(made.err(), Some(Error::Settings(_))));
}

#[test]
fn a_tree_that_ends_leaves_nothing() {
    let store = Store::new(5);
    let tree = create(&store, small(), &Cache::new(1000));
    for i in 0..100u32 {
        let put = store.run(async |tx| tree.set(tx, &i.to_be_bytes(), &[1; 30]).await);
        run(put).expect("set");
    }
    run(store.run(async |tx| tree.clone().destroy(tx).await)).expect("it ends");
    assert!(store.allocated().is_empty());
}

#[test]
fn damaged_memory_is_an_error() {
    let store = Store::new(5);
    let tree = create(&store, small(), &Cache::new(0));
    for i in 0..60u32 {
        let put = store.run(async |tx| tree.set(tx, &i.to_be_bytes(), &[1; 30]).await);
        run(put).expect("set");
    }
    let mut random = Generator::new(9);
    let objects: Vec<_> = store.allocated().into_iter().collect();
    for _ in 0..3000 {
        let tx = store.begin();
        let at = objects[random.below(objects.len())];
        let outcome = run(async {
            let mut bytes = tx.read(at).await?.to_vec();
            for _ in 0..=random.below(3) {
                let i = random.below(bytes.len().min(64));
                bytes[i] = random.below(256) as u8;
            }
            tx.write(at, bytes.into()).await?;
            let key = (random.below(60) as u32).to_be_bytes();
            match random.below(6) {
                0 => tree.check(&tx).await.map(|_| ()),
                1 => tree.range(&tx, &key, None, 20, false).await.map(|_| ()),
                2 => tree.range(&tx, b"", Some(&key), 20, true).await.map(|_| ()),
                3 => tree.remove(&tx, &key).await.map(|_| ()),
                4 => tree.set(&tx, &key, &[2; 9]).await.map(|_| ()),
                _ => tree.get(&tx, &key).await.map(|_| ()),
            }
        });
        let is_fine = |e: Error| matches!(e, Error::Damaged { .. } | Error::Abort(_));
        assert!(outcome.is_ok() || outcome.is_err_and(is_fine));
    }
}

#[test]
fn a_cache_that_leads_into_other_objects_does_so_once() {
    let store = Store::new(5);
    let (near, far) = (Cache::new(10_000), Cache::new(10_000));
    let tree = create(&store, one_a_leaf(), &near);
    let opened = store.run(async |tx| BTree::open(tx, tree.root(), &far).await);
    let other = run(opened).expect("the tree");
    for i in 0..20u32 {
        let put = store.run(async |tx| tree.set(tx, &i.to_be_bytes(), b"v").await);
        run(put).expect("set");
    }
    let before = store.allocated();
    let all = run(other.range(&store.begin(), b"", None, usize::MAX, false));
    assert_eq!(all.expect("all rows").rows.len(), 20);
    for i in 5..10u32 {
        let removed = store.run(async |tx| tree.remove(tx, &i.to_be_bytes()).await);
        assert_eq!(run(removed), Ok(true));
    }
    let left = store.allocated();
    store.lost.borrow_mut().extend(before.difference(&left));
    for i in 5..10u32 {
        let mut attempts = 0;
        let found = store.run(async |tx| {
            attempts += 1;
            other.get(tx, &i.to_be_bytes()).await
        });
        assert_eq!(run(found), Ok(None));
        assert!(attempts <= 2);
    }
    assert_taken(&["btree_leads_astray"]);
}
