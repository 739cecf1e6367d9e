//! The hash table against a map.

use super::judge::{History, Map, assert_taken, calls, client, key, value};
use crate::hash::{HashTable, Settings};
use crate::testing::{Store, Tx, interleave, run};
use crate::{Census, Error, Result};
use bytes::Bytes;
use plinth_core::testing::Generator;
use plinth_farm_memory::{Objects, Pointer};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Few small buckets: much moves, and chains are long.
fn small() -> Settings {
    Settings {
        buckets: 8,
        slots: 3,
        key_bytes_max: 12,
        inline_bytes_max: 10,
        ..Settings::default()
    }
}

fn create(store: &Rc<Store>, settings: Settings) -> HashTable {
    let made = store.run(async |tx| HashTable::create(tx, settings, Pointer::NULL).await);
    run(made).expect("a table")
}

/// One operation on the table and the map, which must say the same.
async fn step(
    table: &HashTable,
    tx: &Tx,
    map: &mut Map,
    random: &mut Generator,
    keys: usize,
) -> Result<()> {
    let (key, new) = (key(random, keys), value(random));
    match random.below(80) {
        0 => {
            let before = table.buckets(tx).await?;
            let rings = usize::from(before < 24);
            assert_eq!(table.grow(tx, rings).await?, before + 8 * rings);
        }
        1..20 => {
            let is_new = table.set(tx, &key, &new).await?;
            assert_eq!(is_new, map.insert(key.clone(), new.clone()).is_none());
            assert_eq!(table.get(tx, &key).await?, Some(new));
        }
        20..30 => {
            let is_new = table.insert(tx, &key, &new).await?;
            assert_eq!(is_new, !map.contains_key(&key));
            map.entry(key).or_insert(new);
        }
        30..34 => {
            let longer = |value: Bytes| Ok([&value[..], b"+"].concat());
            let was_there = table.modify(tx, &key, longer).await?;
            assert_eq!(was_there, map.contains_key(&key));
            map.entry(key)
                .and_modify(|value| *value = [&value[..], b"+"].concat().into());
        }
        34..40 => {
            let was_there = table.update(tx, &key, &new).await?;
            assert_eq!(was_there, map.contains_key(&key));
            map.entry(key).and_modify(|value| *value = new);
        }
        40..65 => {
            let was_there = table.remove(tx, &key).await?;
            assert_eq!(was_there, map.remove(&key).is_some());
        }
        _ => {
            assert_eq!(table.get(tx, &key).await?, map.get(&key).cloned());
            assert_eq!(table.contains(tx, &key).await?, map.contains_key(&key));
        }
    }
    Ok(())
}

fn assert_sound(store: &Rc<Store>, table: &HashTable, map: &Map) -> Census {
    let tx = store.begin();
    let (yields, aborts) = (store.yields.replace(false), store.abort_one_in.replace(0));
    let census = run(table.check(&tx)).expect("a sound table");
    assert_eq!(census.entries, map.len());
    let reachable: BTreeSet<_> = census.objects.iter().copied().collect();
    assert_eq!(reachable.len(), census.objects.len(), "no object twice");
    assert_eq!(reachable, store.allocated(), "no object is lost");
    let entries = run(table.entries(&tx)).expect("all entries");
    assert_eq!(&entries.into_iter().collect::<Map>(), map);
    store.yields.set(yields);
    store.abort_one_in.set(aborts);
    census
}

#[test]
fn a_table_holds_what_a_map_holds() {
    let mut overflow = 0;
    for seed in 0..20 {
        let mut random = Generator::new(seed);
        let store = Store::new(seed);
        let table = create(&store, Settings { seed, ..small() });
        let mut map = Map::new();
        let keys = [30, 60, 200][seed as usize % 3];
        for i in 0..400 {
            let tx = store.begin();
            let mut own = map.clone();
            for _ in 0..=random.below(8) {
                run(step(&table, &tx, &mut own, &mut random, keys)).expect("nothing fails");
            }
            if random.below(5) > 0 {
                run(tx.commit()).expect("nobody conflicts");
                map = own;
            }
            if i % 16 == 0 {
                overflow += assert_sound(&store, &table, &map).overflow;
            }
        }
        for key in map.keys() {
            let removed = store.run(async |tx| table.remove(tx, key).await);
            assert_eq!(run(removed), Ok(true));
        }
        let census = assert_sound(&store, &table, &Map::new());
        assert_eq!(census.overflow, 0, "chains are gone");
    }
    assert!(overflow > 100, "there were chains");
    assert_taken(&[
        "hash_overflow",
        "hash_room_is_moved",
        "hash_directory_is_stale",
    ]);
}

fn concurrent(seed: u64, keys: usize) {
    let store = Store::new(seed);
    let table = create(&store, Settings { seed, ..small() });
    // Another machine, which does not hear of where buckets are.
    let opened = store.run(async |tx| HashTable::open(tx, table.root()).await);
    let other = run(opened).expect("the table");
    let history: History = RefCell::new(BTreeMap::from([(store.begin().snapshot, Map::new())]));
    store.yields.set(true);
    store.abort_one_in.set(200);
    let clients = (0..6).map(|i| {
        let table = if i % 2 == 0 { &table } else { &other };
        let step = async |tx: &Tx, map: &mut Map, random: &mut Generator| {
            step(table, tx, map, random, keys).await
        };
        let client = client(&store, &history, seed * 100 + i, step);
        Box::pin(client) as Pin<Box<dyn Future<Output = ()>>>
    });
    interleave(seed, clients.collect());
    let history = history.borrow();
    let (_, newest) = history.last_key_value().expect("a version");
    assert!(history.len() > 20, "enough have committed");
    assert_sound(&store, &table, newest);
}

#[test]
fn transactions_that_conflict_see_their_snapshot_and_their_own_changes() {
    for seed in 0..60 {
        concurrent(seed, 60);
        concurrent(seed, 30);
    }
}

#[test]
fn a_chain_that_is_left_is_found() {
    plinth_runtime::fault::plant(Some("hash_chain_is_left"));
    let store = Store::new(1);
    let table = create(&store, small());
    let mut found = None;
    for i in 0..200 {
        let tx = store.begin();
        let key = Bytes::from(format!("{:02}", i % 100));
        let outcome = run(async {
            if i < 100 {
                table.set(&tx, &key, b"value").await?;
            } else {
                table.remove(&tx, &key).await?;
            }
            table.check(&tx).await?;
            Ok(tx.commit().await?)
        });
        if let Err(error) = outcome {
            found = Some(error);
            break;
        }
    }
    plinth_runtime::fault::plant(None);
    assert!(matches!(found, Some(Error::Damaged { .. })), "{found:?}");
    plinth_runtime::fault::found("hash_chain_is_left");
}

#[test]
fn a_lookup_reads_two_buckets_or_fewer_while_the_table_is_not_full() {
    let store = Store::new(7);
    let settings = Settings {
        buckets: 256,
        ..Settings::default()
    };
    let table = create(&store, settings);
    let entries = 256 * 8 * 7 / 10;
    let (mut reads, mut writes) = (0, 0);
    for i in 0..entries as u32 {
        let insert = async |tx: &Tx| table.insert(tx, &i.to_be_bytes(), b"v").await.map(|_| ());
        let calls = calls(&store, insert);
        reads += calls.reads;
        writes += calls.writes;
    }
    println!("insert: {reads} reads, {writes} writes of {entries}");
    assert!(reads < entries * 5 / 4 && writes < entries * 5 / 4);
    for (first, is_there) in [(0, true), (1 << 20, false)] {
        let mut by_reads = [0; 8];
        for i in first..first + entries as u32 {
            let get = async |tx: &Tx| {
                let found = table.get(tx, &i.to_be_bytes()).await?;
                assert_eq!(found.is_some(), is_there);
                Ok(())
            };
            by_reads[calls(&store, get).reads] += 1;
        }
        println!("get, there {is_there}: by reads {by_reads:?}");
        assert!(
            by_reads[1] > entries * 7 / 10,
            "one read is the common case"
        );
        assert!(by_reads[3..].iter().sum::<usize>() < entries / 50);
    }
    let census = run(table.check(&store.begin())).expect("sound");
    println!("overflow blocks: {}", census.overflow);
}

#[test]
fn a_table_grows_until_its_chains_are_gone() {
    let store = Store::new(7);
    let table = create(&store, small());
    for i in 0..300u32 {
        let put = store.run(async |tx| table.insert(tx, &i.to_be_bytes(), b"v").await);
        assert_eq!(run(put), Ok(true));
    }
    let chains = run(table.check(&store.begin())).expect("sound").overflow;
    while run(table.buckets(&store.begin())).expect("buckets") < 256 {
        run(store.run(async |tx| table.grow(tx, 2).await)).expect("it grows");
        run(table.check(&store.begin())).expect("sound");
    }
    let census = run(table.check(&store.begin())).expect("sound");
    assert!(
        chains > 40 && census.overflow < 3,
        "{chains} {}",
        census.overflow
    );
    assert_eq!(census.entries, 300);
    let stale = create(&store, small());
    assert_eq!(run(stale.buckets(&store.begin())), Ok(8));
    run(store.run(async |tx| table.clone().destroy(tx).await)).expect("it ends");
}

#[test]
fn a_table_stops_growing_at_its_limit() {
    let store = Store::new(7);
    let settings = Settings {
        slots: 1,
        key_bytes_max: 1,
        inline_bytes_max: 1,
        ..small()
    };
    let table = create(&store, settings);
    let most = 8 * 1024;
    while run(table.buckets(&store.begin())).expect("buckets") < most {
        run(store.run(async |tx| table.grow(tx, 64).await)).expect("it grows");
    }
    assert_eq!(run(store.run(async |tx| table.grow(tx, 1).await)), Ok(most));
}

#[test]
fn what_cannot_be_is_refused() {
    let store = Store::new(3);
    let table = create(&store, small());
    let tx = store.begin();
    let long = run(table.set(&tx, &[1; 13], b""));
    assert_eq!(
        long,
        Err(Error::KeyTooLong {
            bytes: 13,
            most: 12
        })
    );
    let most = crate::VALUE_BYTES_MAX;
    let long = run(table.set(&tx, b"a", &vec![0; most + 1]));
    let expected = Error::ValueTooLong {
        bytes: most + 1,
        most,
    };
    assert_eq!(long, Err(expected));
    for wrong in [
        Settings {
            buckets: 9,
            ..small()
        },
        Settings {
            buckets: 4,
            ..small()
        },
        Settings {
            buckets: 1 << 14,
            ..small()
        },
        Settings {
            slots: 0,
            ..small()
        },
        Settings {
            slots: usize::MAX,
            ..small()
        },
        Settings {
            slots: 30_000,
            ..small()
        },
    ] {
        let made = run(HashTable::create(&tx, wrong, Pointer::NULL));
        assert!(matches!(made.err(), Some(Error::Settings(_))), "{wrong:?}");
    }
}

#[test]
fn damaged_memory_is_an_error() {
    let store = Store::new(5);
    let table = create(&store, small());
    for i in 0..60u32 {
        let put = store.run(async |tx| table.set(tx, &i.to_be_bytes(), &[1; 30]).await);
        run(put).expect("set");
    }
    let mut random = Generator::new(9);
    let objects: Vec<_> = store.allocated().into_iter().collect();
    let mut errors = 0;
    for _ in 0..5000 {
        let tx = store.begin();
        let at = objects[random.below(objects.len())];
        let outcome = run(async {
            let mut bytes = tx.read(at).await?.to_vec();
            for _ in 0..=random.below(3) {
                let i = random.below(bytes.len().min(80));
                bytes[i] = random.below(256) as u8;
            }
            tx.write(at, bytes.into()).await?;
            let key = (random.below(60) as u32).to_be_bytes();
            match random.below(5) {
                0 => table.check(&tx).await.map(|_| ()),
                1 => table.grow(&tx, 1).await.map(|_| ()),
                2 => table.remove(&tx, &key).await.map(|_| ()),
                3 => table.set(&tx, &key, &[2; 9]).await.map(|_| ()),
                _ => table.get(&tx, &key).await.map(|_| ()),
            }
        });
        errors += usize::from(outcome.is_err());
        let is_fine = |e: Error| matches!(e, Error::Damaged { .. } | Error::Abort(_));
        assert!(outcome.is_ok() || outcome.is_err_and(is_fine));
    }
    assert!(errors > 100);
}

#[test]
fn a_scan_ring_by_ring_misses_no_key_of_a_table_that_grows() {
    let store = Store::new(5);
    let settings = Settings {
        buckets: 8,
        slots: 2,
        ..Settings::default()
    };
    let table = run(store.run(async |tx| HashTable::create(tx, settings, Pointer::NULL).await));
    let table = table.expect("a table");
    let filled: Result<()> = run(store.run(async |tx| {
        for i in 0..200u32 {
            table.set(tx, &i.to_be_bytes(), b"value").await?;
        }
        Ok(())
    }));
    assert_eq!(filled, Ok(()));
    let (mut seen, mut ring) = (BTreeSet::new(), 0);
    loop {
        let piece = run(store.run(async |tx| {
            let grows = ring < 12 && ring % 2 == 0;
            table.grow(tx, if grows { 2 } else { 0 }).await?;
            table.ring(tx, ring).await
        }));
        let Some(entries) = piece.expect("nothing fails") else {
            break;
        };
        seen.extend(entries.into_iter().map(|(key, _)| key));
        ring += 1;
    }
    assert!(ring > 3, "it has grown: {ring}");
    assert_eq!(seen.len(), 200);
    // At one snapshot the rings share out all entries.
    let shared: Result<()> = run(store.run(async |tx| {
        let mut entries = Vec::new();
        for ring in 0.. {
            match table.ring(tx, ring).await? {
                Some(more) => entries.extend(more),
                None => break,
            }
        }
        assert_eq!(entries, table.entries(tx).await?);
        Ok(())
    }));
    assert_eq!(shared, Ok(()));
}
