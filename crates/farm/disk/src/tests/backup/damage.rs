//! Damaged, full and foreign images; calls that cannot be; what maps cost.

use super::{SLAB_WORDS, layout};
use crate::{Backup, Error, Layout, Version};
use bytes::Bytes;
use plinth_farm_memory::{Class, Pointer};
use plinth_runtime::disk;
use plinth_runtime::sim::{Locality, MachineId, SimConfig, Simulation, control};
use std::collections::BTreeMap;
use std::path::Path;

const ID: u64 = 3;
const IMAGE: &str = "/data/backup.image";

fn machine() -> (Simulation, MachineId) {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    (sim, machine)
}

async fn open(id: u64, layout: Layout) -> Result<Backup, Error> {
    let directory = Path::new("/data");
    disk::create_dir_all(directory).await.expect("it is well");
    Backup::open(directory, id, layout).await
}

fn class(bytes: usize) -> Class {
    Class::of(bytes).expect("a size")
}

fn pointer(region: u16, slab: u64, cell: u64) -> Pointer {
    let class = class(100);
    let word = 16 + slab * SLAB_WORDS + cell * class.cell_words() as u64;
    Pointer::new(region, class, word)
}

fn version(pointer: Pointer, timestamp: u64) -> Version {
    let number = pointer.word() as u8 ^ timestamp as u8;
    Version {
        pointer,
        timestamp,
        is_allocated: true,
        payload: vec![number; 90].into(),
    }
}

/// Versions of objects in some slabs of two regions.
fn some(timestamp: u64) -> Vec<Version> {
    let slabs = (0..2).flat_map(|region| (0..10).map(move |slab| (region, slab)));
    let all = slabs.flat_map(|(region, slab)| (0..6).map(move |cell| pointer(region, slab, cell)));
    all.map(|pointer| version(pointer, timestamp)).collect()
}

/// What is in a backup, read one by one.
async fn read_all(backup: &Backup) -> Result<BTreeMap<Pointer, Version>, Error> {
    let mut all = BTreeMap::new();
    for Version { pointer, .. } in some(1) {
        if let Some(found) = backup.read(pointer).await? {
            all.insert(pointer, found);
        }
    }
    Ok(all)
}

fn map(versions: &[Version]) -> BTreeMap<Pointer, Version> {
    versions.iter().map(|v| (v.pointer, v.clone())).collect()
}

/// Two versions of each object, the newer one on disk.
async fn fill() {
    let backup = open(ID, layout(1)).await.expect("a new one");
    for timestamp in [10, 20] {
        backup.apply(&some(timestamp)).await.expect("room");
        backup.sync().await.expect("well");
    }
}

#[test]
fn a_changed_bit_of_the_image_is_named_at_the_opening_and_on_demand_and_never_read() {
    let (mut named, mut late, mut unread) = (0, 0, 0);
    for at in (0..60_000).step_by(487) {
        let (sim, machine) = machine();
        sim.run_on(machine, fill()).expect("it ends");
        if !sim.flip_bit_in_file(machine, Path::new(IMAGE), at..at + 1) {
            continue;
        }
        let check = move |error: Error| match error {
            Error::Damaged { path, offset, .. } => {
                assert_eq!(path, Path::new(IMAGE));
                assert!(offset <= at && at < offset + 512, "{offset}, not {at}");
            }
            error => panic!("{error}"),
        };
        let opened = sim.run_on(machine, async move {
            let backup = open(ID, layout(1)).await?;
            read_all(&backup).await
        });
        match opened.expect("it ends") {
            Err(error) => {
                check(error);
                named += 1;
            }
            Ok(found) => {
                assert_eq!(found, map(&some(20)));
                unread += 1;
            }
        }
        let (sim, machine) = self::machine();
        let found = sim.run_on(machine, async move {
            fill().await;
            let backup = open(ID, layout(1)).await.expect("it is well");
            control().flip_bit_in_file(machine, Path::new(IMAGE), at..at + 1);
            let mut errors = Vec::new();
            for expected in some(20) {
                match backup.read(expected.pointer).await {
                    Ok(found) => assert_eq!(found, Some(expected)),
                    Err(error) => errors.push(error),
                }
            }
            errors
        });
        let found = found.expect("it ends");
        late += usize::from(!found.is_empty());
        found.into_iter().for_each(check);
    }
    println!("named {named}, on demand {late}, nowhere used {unread}");
    assert!(named > 30 && late > 10);
}

#[test]
fn a_full_disk_is_an_error_that_loses_nothing_and_ends() {
    let (sim, machine) = machine();
    let ends = sim.run_on(machine, async move {
        let backup = open(ID, layout(1)).await.expect("a new one");
        backup.apply(&some(10)).await.expect("room");
        backup.sync().await.expect("room");
        control().set_disk_full(machine, true);
        let mut newest = map(&some(10));
        let mut timestamp = 20;
        let full = loop {
            // Every other object, so that nothing can be cleaned without a copy.
            timestamp += 1;
            let mut failed = None;
            for version in some(timestamp)
                .into_iter()
                .step_by(1 + timestamp as usize % 3)
            {
                match backup.apply(std::slice::from_ref(&version)).await {
                    Ok(_) => drop(newest.insert(version.pointer, version)),
                    Err(error) => failed = Some(error),
                }
            }
            assert_eq!(read_all(&backup).await.expect("well"), newest);
            if failed.is_some() || timestamp > 200 {
                break failed;
            }
        };
        // Old versions are cleaned away instead, for as long as there is room to copy to.
        if let Some(full) = full {
            assert!(full.is_full(), "{full}");
        }
        for region in 2..40 {
            let here = (0..6).map(|cell| version(pointer(region, 0, cell), 500));
            let here: Vec<_> = here.collect();
            let applied = backup.apply(&here).await;
            if let Err(error) = applied {
                assert!(error.is_full(), "{error}");
                assert!(error.to_string().contains("the disk is full"));
                control().set_disk_full(machine, false);
                backup.apply(&here).await.expect("there is room again");
                backup.sync().await.expect("there is room again");
                assert_eq!(read_all(&backup).await.expect("well"), newest);
                return true;
            }
        }
        false
    });
    assert_eq!(ends, Some(true), "the disk was never full");
}

#[test]
fn a_backup_with_other_sizes_or_of_somebody_else_is_not_opened() {
    let (sim, machine) = machine();
    sim.run_on(machine, fill()).expect("it ends");
    let other = Layout {
        extent_blocks: 16,
        ..layout(1)
    };
    for (id, layout, said) in [
        (ID, other, "other sizes"),
        (ID + 1, layout(1), "another journal"),
    ] {
        let opened = sim.run_on(machine, open(id, layout)).expect("it ends");
        let error = opened.map(|_| ()).expect_err("not its own").to_string();
        assert!(
            error.starts_with("/data/backup.manifest") && error.contains(said),
            "{error}"
        );
    }
}

#[test]
fn a_second_owner_waits_and_is_refused() {
    let (sim, machine) = machine();
    let refused = sim.run_on(machine, async {
        let _first = open(ID, layout(1)).await.expect("a new one");
        open(ID, layout(1))
            .await
            .map(|_| ())
            .expect_err("held")
            .to_string()
    });
    let refused = refused.expect("it ends");
    assert!(refused.contains("held by somebody else"), "{refused}");
}

#[test]
fn what_cannot_be_an_object_is_refused_and_nothing_is_done() {
    let (sim, machine) = machine();
    let refused = sim.run_on(machine, async {
        let backup = open(ID, layout(1)).await.expect("a new one");
        let good = version(pointer(0, 0, 1), 5);
        let off = Pointer::new(0, class(100), good.pointer.word() + 1);
        let in_head = Pointer::new(0, class(100), 3);
        let beyond = Pointer::new(0, class(900), 16 + SLAB_WORDS / 2);
        let other_size = Pointer::new(0, class(30), 16);
        let bad = [
            version(off, 5),
            version(in_head, 5),
            version(beyond, 5),
            version(good.pointer, 0),
            version(good.pointer, 1 << 62),
            Version {
                payload: Bytes::from(vec![0; class(100).payload_bytes() + 1]),
                ..good.clone()
            },
            Version {
                payload: Bytes::new(),
                ..version(other_size, 5)
            },
        ];
        backup.apply(&[good]).await.expect("it is one");
        for version in bad {
            let error = backup.apply(&[version]).await.expect_err("it is none");
            assert!(matches!(error, Error::Refused { .. }), "{error}");
        }
        for nowhere in [off, in_head, beyond, other_size, pointer(7, 1, 1)] {
            assert_eq!(backup.read(nowhere).await, Ok(None));
        }
        backup.figures().objects
    });
    assert_eq!(refused, Some(1));
    let tiny = Layout {
        extent_blocks: 1,
        ..layout(1)
    };
    let refused = sim.run_on(machine, open(ID, tiny)).expect("it ends");
    let error = refused.map(|_| ()).expect_err("too small").to_string();
    assert!(error.contains("no room in an extent"), "{error}");
}

#[test]
fn a_dropped_region_gives_its_place_back_and_stays_away() {
    let (sim, machine) = machine();
    let lives = sim.run_on(machine, async {
        let backup = open(ID, layout(1)).await.expect("a new one");
        backup.apply(&some(10)).await.expect("room");
        let before = backup.figures();
        backup.drop_region(0);
        backup.sync().await.expect("well");
        let after = backup.figures();
        assert!(after.free_extents > before.free_extents);
        assert_eq!(after.objects * 2, before.objects);
        drop(backup);
        let backup = open(ID, layout(1)).await.expect("it is well");
        assert_eq!(backup.regions(), [1].into());
        assert_eq!(backup.scan(0).next().await, Ok(None));
        let all = read_all(&backup).await.expect("well");
        let mut expected = map(&some(10));
        expected.retain(|pointer, _| pointer.region() == 1);
        assert_eq!(all, expected);
    });
    lives.expect("it ends");
}

#[test]
fn an_object_costs_one_or_two_bytes_and_its_timestamp_until_the_safe_point_passes() {
    for (extents, bytes) in [(28, 1), (40, 2)] {
        let (sim, machine) = machine();
        let lives = sim.run_on(machine, async move {
            let layout = Layout {
                slab_words: 1 << 12,
                block_bytes: 4096,
                extent_blocks: 9,
                group_extents: extents,
                subregion_slabs: 25,
                ..layout(0)
            };
            let backup = open(ID, layout).await.expect("a new one");
            let class = class(40);
            let words = class.cell_words() as u64;
            let cells = (1 << 12) / words;
            for slab in 0..25 {
                let word = |cell: u64| 16 + (slab << 12) + cell * words;
                let pointers = (0..cells).map(|cell| Pointer::new(0, class, word(cell)));
                let versions: Vec<_> = pointers
                    .map(|pointer| Version {
                        payload: Bytes::from_static(&[7; 20]),
                        ..version(pointer, 10 + slab)
                    })
                    .collect();
                backup.apply(&versions).await.expect("room");
            }
            let figures = backup.figures();
            let objects = 25 * cells;
            assert_eq!(figures.objects, objects);
            assert_eq!(figures.versions as u64, objects);
            let of_maps = figures.map_bytes as f64 / objects as f64;
            assert!((of_maps - f64::from(bytes)).abs() < 0.2, "{of_maps}");
            backup.set_safe_point(30);
            assert_eq!(backup.figures().versions as u64, 5 * cells);
        });
        lives.expect("it ends");
    }
}

#[test]
fn a_backup_tells_what_is_in_a_slab_and_what_would_be_news() {
    let (sim, machine) = machine();
    let lives = sim.run_on(machine, async {
        let backup = open(ID, layout(1)).await.expect("a new one");
        let (one, other) = (pointer(3, 0, 0), pointer(3, 2, 1));
        backup
            .apply(&[version(one, 10), version(other, 30)])
            .await
            .expect("room");
        backup.apply(&[version(one, 20)]).await.expect("room");
        assert!(backup.has(one) && !backup.has(pointer(3, 0, 1)) && !backup.has(pointer(4, 0, 0)));
        let newest: Vec<u64> = backup
            .slabs(3)
            .into_iter()
            .map(|(.., newest)| newest)
            .collect();
        assert_eq!(newest, [20, 30]);
        assert!(backup.is_news(&version(one, 21)) && !backup.is_news(&version(one, 20)));
        assert!(backup.is_news(&version(pointer(3, 0, 1), 5)));
        // What is below the safe point was there before.
        backup.set_safe_point(40);
        assert!(backup.is_news(&version(one, 40)) && !backup.is_news(&version(one, 39)));
        backup
            .free_slab(3, backup.slabs(3)[0].0, 50)
            .expect("a slab");
        assert!(!backup.has(one) && backup.slabs(3).len() == 1);
        assert!(!backup.is_news(&version(one, 50)) && backup.is_news(&version(one, 51)));
    });
    lives.expect("it ends");
}
