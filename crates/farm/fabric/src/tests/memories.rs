//! Memories that are not what they should be, and who may own one.

use super::stands::{Scratch, layout};
use crate::host::{Host, Layout};
use crate::local::path;
use crate::{Address, Asker, Error, Fabric, Local, Machine, Shared, attach};
use plinth_core::testing::fuzz;
use plinth_runtime::memory::Mapping;
use plinth_runtime::real::{block_on, spawn_worker};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, disk, fault, memory, now, sleep, spawn};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, Release};

fn image(layout: &Layout) -> Vec<u8> {
    let mapping = Mapping::private(layout.words().expect("a layout"));
    Host::make(&mapping, layout);
    let words = mapping.words().iter();
    words
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect()
}

#[test]
fn a_damaged_head_does_no_harm() {
    let small = |machines, ring_words, region_words: &[u64]| Layout {
        machines,
        ring_words,
        region_words: region_words.to_vec(),
    };
    let layouts = [
        small(1, 1, &[]),
        small(3, 9, &[1, 0, 70]),
        small(2, 100, &[8; 20]),
    ];
    fuzz("memory", 1, layouts.iter().map(image), |input| {
        let mapping = Mapping::private((input.len() / 8).max(1));
        for (word, bytes) in mapping.words().iter().zip(input.chunks_exact(8)) {
            word.store(
                u64::from_le_bytes(bytes.try_into().expect("eight")),
                Relaxed,
            );
        }
        let host = Host::open(mapping);
        if let Some(host) = &host {
            let regions = host.layout().region_words.iter().zip(0..);
            for (words, region) in regions {
                assert_eq!(host.region(region).expect("one").bytes(), words * 8);
            }
            let _ = host.readers();
        }
        host.is_some()
    });
}

#[test]
fn a_layout_that_no_memory_has_is_refused() {
    let layout = |machines, ring_words, region_words| Layout {
        machines,
        ring_words,
        region_words,
    };
    for none in [
        layout(0, 1, vec![]),
        layout(1025, 1, vec![]),
        layout(1, 0, vec![]),
        layout(1, u64::MAX, vec![]),
        layout(1, 1, vec![1; 1025]),
        layout(1, 1, vec![u64::MAX]),
        layout(1, 1, vec![1 << 60; 8]),
        layout(1024, 1 << 30, vec![1 << 59; 2]),
    ] {
        assert_eq!(none.words(), None, "{none:?}");
        let started = block_on(Local::start(Path::new("/nowhere"), Machine(0), &none));
        assert_eq!(
            started.err().map(|e| e.kind()),
            Some(ErrorKind::InvalidInput)
        );
    }
}

/// What somebody who starts finds: another owner, another layout, damage, nothing.
async fn start_and_find(directory: &Path) {
    let start = |layout: Layout| async move {
        let started = Local::start(directory, Machine(0), &layout).await;
        started.map(|_| ()).map_err(|e| (e.kind(), e.to_string()))
    };
    let missing = attach(directory, Machine(0)).await.err().map(|e| e.kind());
    assert_eq!(missing, Some(ErrorKind::NotFound));
    let path = path(directory, Machine(0));
    assert!(!memory::is_owned(&path).await.expect("an answer"));
    let first = Local::start(directory, Machine(0), &layout()).await;
    let first = first.expect("a memory");
    assert!(memory::is_owned(&path).await.expect("an answer"));
    let second = start(layout()).await.expect_err("it is owned");
    assert_eq!(second.0, ErrorKind::WouldBlock);
    let mapped = attach(directory, Machine(0)).await.expect("mapped");
    first.host().region(1).expect("one").words()[9].store(5, Relaxed);
    drop(first);
    let region = mapped.region(1).expect("one");
    assert_eq!(region.words()[9].load(Relaxed), 5);
    // Without an owner it is still there.
    assert!(!memory::is_owned(&path).await.expect("an answer"));
    let larger = Layout {
        ring_words: 5000,
        ..layout()
    };
    let other = start(larger).await.expect_err("another size");
    assert_eq!(other.0, ErrorKind::InvalidData);
    assert!(
        other.1.contains("machine-0.memory") && other.1.contains("remove"),
        "{}",
        other.1
    );
    let again = Local::start(directory, Machine(0), &layout()).await;
    let again = again.expect("the same");
    let head = &memory::attach(&path).await.expect("mapped");
    head.words()[1].store(77, Relaxed);
    drop(again);
    let damaged = start(layout()).await.expect_err("damaged");
    assert_eq!(damaged.0, ErrorKind::InvalidData);
}

#[test]
fn a_memory_has_one_owner_and_is_taken_over_as_it_is() {
    let scratch = Scratch::new("owner");
    block_on(async { start_and_find(&scratch.make().await).await });
    let sim = Simulation::new(1, SimConfig::default());
    sim.run(start_and_find(Path::new("/m")));
}

#[test]
fn who_ends_a_machine_removes_its_memory_and_never_that_of_the_next_one() {
    let scratch = Scratch::new("ended");
    block_on(async {
        let directory = &scratch.make().await;
        let start = async || {
            let started = Local::start(directory, Machine(0), &layout()).await;
            started.expect("a memory")
        };
        let first = start().await;
        let file = first.file();
        drop(first);
        let second = start().await;
        file.remove().await.expect("it does nothing");
        assert!(attach(directory, Machine(0)).await.is_ok());
        second.file().remove().await.expect("it is there");
        let gone = attach(directory, Machine(0)).await.err().map(|e| e.kind());
        assert_eq!(gone, Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_file_that_is_no_memory_is_refused() {
    let scratch = Scratch::new("file");
    block_on(async {
        let directory = scratch.make().await;
        let create = disk::OpenOptions {
            create: true,
            ..Default::default()
        };
        let file = disk::open(&path(&directory, Machine(0)), create).await;
        let file = file.expect("a file");
        for bytes in [0, 7, 4096] {
            file.write_at(0, vec![1; bytes].into())
                .await
                .expect("written");
            let attached = attach(&directory, Machine(0)).await;
            assert_eq!(
                attached.err().map(|e| e.kind()),
                Some(ErrorKind::InvalidData)
            );
        }
    });
}

#[test]
fn memory_outlives_a_simulated_process_and_not_its_machine() {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let count = || {
        sim.run_on(machine, async {
            let owned = memory::own(Path::new("/m"), 4).await.expect("owned");
            owned.mapping.words()[0].fetch_add(1, Relaxed)
        })
    };
    assert_eq!((count(), count()), (Some(0), Some(1)));
    let elsewhere = sim.add_machine(Locality::default());
    let found = sim.run_on(elsewhere, async {
        memory::attach(Path::new("/m")).await.is_ok()
    });
    assert_eq!(found, Some(false));
    sim.power_cut(machine);
    sim.boot(machine);
    assert_eq!(count(), Some(0));
}

#[test]
fn what_is_written_goes_to_a_memory_that_was_made_anew_and_not_to_the_removed_one() {
    let scratch = Scratch::new("anew");
    let all = [Machine(0), Machine(1)];
    let place = Address {
        machine: Machine(0),
        region: 0,
        offset: 0,
    };
    block_on(async {
        let directory = scratch.make().await;
        let start = |machine| {
            let directory = &directory;
            async move {
                let local = Local::start(directory, machine, &layout()).await;
                Shared::new(local.expect("a memory"))
            }
        };
        let (former, writer) = (start(Machine(0)).await, start(Machine(1)).await);
        former.configure(1, &all).await.expect("the first");
        writer.configure(1, &all).await.expect("the first");
        writer.open(Machine(0)).await.expect("it is there");
        // The same life, and the next, keep the connection.
        writer.configure(2, &all).await.expect("a later one");
        assert_eq!(writer.write(place, &[1; 8]).await, Ok(()));
        drop(former);
        writer.configure(3, &all).await.expect("a later one");
        assert_eq!(writer.write(place, &[2; 8]).await, Ok(()));
        disk::remove(&path(&directory, Machine(0)))
            .await
            .expect("removed");
        let machine = start(Machine(0)).await;
        for member in [&machine, &writer] {
            member.configure(4, &all).await.expect("a later one");
        }
        let unopened = writer.write(place, &[3; 8]).await;
        assert_eq!(unopened, Err(Error::Unreachable));
        writer.open(Machine(0)).await.expect("it is there");
        assert_eq!(writer.write(place, &[4; 8]).await, Ok(()));
        let mut found = [0; 8];
        machine.read(place, &mut found).await.expect("read");
        assert_eq!(found, [4; 8]);
    });
}

#[test]
fn a_memory_that_is_closed_is_read_by_nobody_until_it_is_configured_anew() {
    let all = [Machine(0), Machine(1)];
    let place = Address {
        machine: Machine(0),
        region: 0,
        offset: 0,
    };
    Simulation::new(1, SimConfig::default()).run(async move {
        let start = |machine| async move {
            let local = Local::start(Path::new("/m"), machine, &layout()).await;
            Shared::new(local.expect("a memory"))
        };
        let (former, reader) = (start(Machine(0)).await, start(Machine(1)).await);
        former.configure(7, &all).await.expect("the first");
        reader.configure(7, &all).await.expect("the first");
        reader.open(Machine(0)).await.expect("it is there");
        drop(former);
        let mut found = [0; 8];
        assert_eq!(reader.read(place, &mut found).await, Ok(()));
        let next = start(Machine(0)).await;
        next.local().close().await;
        assert_eq!(reader.read(place, &mut found).await, Err(Error::Closed));
        // The former life has been in the seventh.
        assert_eq!(next.configure(6, &all).await, Err(Error::Closed));
        next.configure(8, &all).await.expect("a later one");
        assert_eq!(reader.read(place, &mut found).await, Err(Error::Closed));
        reader.configure(8, &all).await.expect("a later one");
        assert_eq!(reader.read(place, &mut found).await, Ok(()));
    });
}

/// One thread closes configurations and stores the number of the newest, another reads it in the one that it knows.
/// Returns whether it has ever seen a later one.
fn sees_what_came_after(planted: Option<&'static str>) -> bool {
    const TIME: Duration = Duration::from_millis(500);
    let scratch = Scratch::new(planted.unwrap_or("read-fence"));
    let path = block_on(scratch.make()).join("memory");
    let open = |path: PathBuf| async move {
        let words = layout().words().expect("a layout");
        match memory::own(&path, words).await {
            Ok(owned) if owned.is_new => Host::make(&owned.mapping, &layout()),
            _ => (),
        }
        Host::open(memory::attach(&path).await.expect("mapped")).expect("a memory")
    };
    let reader = Machine(1);
    block_on(async { open(path.clone()).await.set_fence(reader, 1) });
    let of_owner = path.clone();
    let owner = spawn_worker("owner", move || async move {
        let (host, begin) = (open(of_owner).await, now());
        for number in 2.. {
            host.set_fence(reader, number);
            host.region(0).expect("one").words()[0].store(number, Release);
            if begin.elapsed() > TIME {
                return;
            }
        }
    });
    let sees = block_on(async {
        fault::plant(planted);
        let (host, begin) = (open(path).await, now());
        let (mut configuration, mut word) = (1, [0; 8]);
        while begin.elapsed() < TIME {
            let at = Address {
                machine: Machine(0),
                region: 0,
                offset: 0,
            };
            let who = Asker {
                machine: reader,
                configuration,
            };
            let is_later = match host.read(who, at, &mut word) {
                Ok(()) => u64::from_le_bytes(word) > configuration,
                Err(_) => false,
            };
            if is_later {
                return true;
            }
            configuration = host.fence(reader);
        }
        false
    });
    fault::plant(None);
    owner.join().expect("no panic");
    sees
}

#[test]
fn a_read_sees_nothing_that_was_stored_after_its_configuration_was_closed() {
    assert!(!sees_what_came_after(None));
    assert!(sees_what_came_after(Some("farm_read_looks_first")));
    fault::found("farm_read_looks_first");
}

/// Opens the door of machine 1 at machine 0, as one who is in the middle of an operation.
async fn wait_for_doors(directory: &Path) {
    let all = [Machine(0), Machine(1)];
    let closes = Local::start(directory, Machine(0), &layout()).await;
    let closes = Rc::new(closes.expect("a memory"));
    let writes = Local::start(directory, Machine(1), &layout()).await;
    let writes = writes.expect("a memory");
    let mapping = memory::attach(&path(directory, Machine(0))).await;
    let mapping = mapping.expect("mapped");
    // Behind two lines of the head; see the drawing in `host`.
    let door = &mapping.words()[16 + 8 + 1];
    let close = |number| {
        let closes = closes.clone();
        spawn("close", async move { closes.configure(number, &all).await })
    };
    door.store(1, Relaxed);
    let closing = close(1);
    sleep(Duration::from_millis(50)).await;
    assert!(!closing.is_finished(), "it lives, and is inside");
    door.store(0, Relaxed);
    assert_eq!(closing.await, Ok(()));
    door.store(1, Relaxed);
    let closing = close(2);
    sleep(Duration::from_millis(20)).await;
    assert!(!closing.is_finished(), "it lives, and is inside");
    drop(writes);
    assert_eq!(closing.await, Ok(()), "it is dead");
}

#[test]
fn who_closes_a_configuration_waits_for_a_living_writer_and_not_for_a_dead_one() {
    let scratch = Scratch::new("doors");
    block_on(async { wait_for_doors(&scratch.make().await).await });
    let sim = Simulation::new(1, SimConfig::default());
    sim.run(wait_for_doors(Path::new("/m")));
}
