//! Machines on the real clock, which share the memory of this host, on one thread.

use crate::testing::clocks::{hear_time, keep_time, new_clock};
use crate::{Engine, Options, Place, Policy, Replicas, Settings, View};
use bytes::Bytes;
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Shared};
use plinth_farm_memory::{Abort, Objects, Pointer, Sizes};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, TaskGroup, disk, join_all, timeout};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const MACHINES: u16 = 3;
const TIMES: u64 = 50;

fn sizes() -> Sizes {
    Sizes {
        slots: 1,
        region_words: 5000,
        slab_words: 1024,
        old_words: 16 * 1024,
        block_words: 1024,
    }
}

/// One region, on all machines.
fn view() -> View {
    let place = |machine| Place {
        machine: Machine(machine),
        slot: 0,
    };
    View {
        number: 1,
        machines: (0..MACHINES).map(Machine).collect(),
        master: Machine(1),
        regions: vec![Replicas {
            primary: place(0),
            backups: (1..MACHINES).map(place).collect(),
        }],
    }
}

async fn start(directory: &Path, group: &TaskGroup) -> Vec<Engine<Shared>> {
    let layout = Layout {
        machines: usize::from(MACHINES),
        ring_words: 1000,
        region_words: sizes().region_words(),
    };
    let mut fabrics = Vec::new();
    for machine in view().machines {
        let local = Local::start(directory, machine, &layout).await;
        let fabric = Rc::new(Shared::new(local.expect("a memory")));
        fabric
            .configure(1, &view().machines)
            .await
            .expect("the first");
        fabrics.push(fabric);
    }
    let mut engines = Vec::new();
    for fabric in fabrics {
        for other in view().machines {
            fabric.open(other).await.expect("it is there");
        }
        let clock = new_clock(fabric.local().machine());
        let (policy, settings) = (Policy::MvTruncate, Settings::default());
        let engine = Engine::start(
            fabric.clone(),
            clock.clone(),
            view(),
            sizes(),
            policy,
            settings,
        );
        let engine = engine.expect("memory that fits");
        hear_time(&engine, &clock);
        group.spawn("time", keep_time(view(), clock, fabric));
        engines.push(engine);
    }
    engines
}

/// Adds one to a counter. The commit may fail.
async fn add(engine: &Engine<Shared>, counter: Pointer) -> Result<(), Abort> {
    let adder = engine.begin(Options::default()).await?;
    let value = adder.read(counter).await?;
    let value = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    let value = Bytes::copy_from_slice(&(value + 1).to_le_bytes());
    adder.write(counter, value).await?;
    adder.commit().await.map(|_| ())
}

async fn count(directory: &Path) -> u64 {
    let group = TaskGroup::new();
    let engines = start(directory, &group).await;
    let maker = engines[2]
        .begin(Options::default())
        .await
        .expect("a snapshot");
    let counter = maker.allocate(8, Pointer::NULL).await.expect("room");
    maker.commit().await.expect("alone");
    let task = async |engine: &Engine<Shared>| {
        let mut done = 0;
        while done < TIMES {
            match add(engine, counter).await {
                Ok(()) => done += 1,
                Err(abort) => assert!(abort.is_retryable(), "{abort}"),
            }
        }
    };
    join_all(engines.iter().chain(&engines).map(task)).await;
    let reader = engines[1]
        .begin(Options::read_only())
        .await
        .expect("a snapshot");
    let value = reader.read(counter).await.expect("it is there");
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

#[test]
#[allow(clippy::disallowed_methods)] // it removes what it has made
fn machines_of_this_host_count_together_on_the_real_clock() {
    let base = match Path::new("/dev/shm").is_dir() {
        true => PathBuf::from("/dev/shm"),
        false => std::env::temp_dir(),
    };
    let directory = base.join(format!("plinth-engine-{}", std::process::id()));
    let counted = block_on(async {
        disk::create_dir_all(&directory).await.expect("a directory");
        timeout(Duration::from_secs(60), count(&directory)).await
    });
    let _ = std::fs::remove_dir_all(&directory);
    assert_eq!(counted, Some(2 * u64::from(MACHINES) * TIMES));
}
