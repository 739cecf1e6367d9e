//! Figures of the engine in one process of this host, which has all objects:
//! `cargo run --release -p plinth-farm-engine --example farm_engine_speed`.
//!
//! Reads of 64 bytes at random places, and transactions that read one object and write another. A transaction that is
//! strict waits for the uncertainty of the clock, so many of them run side by side.

use bytes::Bytes;
use plinth_core::id::Uid;
use plinth_farm_engine::{Engine, Options, Place, Policy, Replicas, Settings, View};
use plinth_farm_fabric::{Fabric, Layout, Local, Machine, Shared};
use plinth_farm_memory::{Abort, Objects, Pointer, Sizes};
use plinth_farm_time::{Bounds, Clock, Server};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, disk, join_all, now, sleep, spawn};
use std::path::Path;
use std::rc::Rc;

const OWN: Machine = Machine(0);
const OBJECTS: usize = 100_000;
/// Transactions side by side.
const TASKS: u64 = 32;
const READS: u64 = 2_000_000;
const WRITES: u64 = 500_000;
const PAYLOAD: usize = 64;
/// Between two ticks of the clock: shorter than its lease.
const TICK: Duration = Duration::from_millis(2);

type One = Engine<Shared>;

fn view() -> View {
    let primary = Place {
        machine: OWN,
        slot: 0,
    };
    View {
        number: 1,
        machines: vec![OWN],
        master: OWN,
        regions: vec![Replicas {
            primary,
            backups: Vec::new(),
        }],
    }
}

/// This machine's clock is the time.
fn own_clock() -> Rc<Clock> {
    let id = Uid::from_parts(1, 1);
    let settings = plinth_farm_time::Settings {
        bounds: Bounds::default(),
        lease_ns: 1_000_000_000,
        sync_ns: 100_000_000,
        resend_ns: 100_000_000,
        origin: 0,
    };
    let clock = Rc::new(Clock::new(Server::new(id, settings)));
    clock.update(|server, now| {
        server.propose(&[id], now).expect("the first");
        server.taken(now);
    });
    clock
}

async fn start(directory: &Path, policy: Policy) -> One {
    let sizes = Sizes::new(1, 4 << 20, 4 << 20);
    let layout = Layout {
        machines: 1,
        ring_words: 1 << 16,
        region_words: sizes.region_words(),
    };
    let local = Local::start(directory, OWN, &layout).await;
    let fabric = Rc::new(Shared::new(local.expect("a memory")));
    fabric.configure(1, &[OWN]).await.expect("the first");
    let clock = own_clock();
    let ticks = clock.clone();
    let tick = async move {
        loop {
            ticks.update(|server, now| server.tick(now));
            sleep(TICK).await;
        }
    };
    spawn("tick", tick).detach();
    let engine = Engine::start(fabric, clock, view(), sizes, policy, Settings::default());
    engine.expect("memory that fits")
}

async fn make(engine: &One) -> Vec<Pointer> {
    let mut made = Vec::new();
    while made.len() < OBJECTS {
        let maker = engine.begin(Options::default()).await.expect("a snapshot");
        for _ in 0..100 {
            let at = maker.allocate(PAYLOAD, Pointer::NULL).await.expect("room");
            let value = Bytes::from_static(&[7; PAYLOAD]);
            maker.write(at, value).await.expect("written");
            made.push(at);
        }
        maker.commit().await.expect("alone");
    }
    made
}

fn some(objects: &[Pointer], n: u64) -> Pointer {
    objects[(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % objects.len()]
}

/// Many tasks do `work` with each number below `count`. Prints how many a second.
async fn measure(name: &str, tasks: u64, count: u64, work: impl AsyncFn(u64) -> u64) {
    let begin = now();
    let task = async |first: u64| {
        let mut done = 0;
        for n in (first..count).step_by(tasks as usize) {
            done += work(n).await;
        }
        done
    };
    let done: u64 = join_all((0..tasks).map(task)).await.into_iter().sum();
    let a_second = done as f64 / begin.elapsed().as_secs_f64();
    println!("{name:<52} {a_second:>12.0} a second");
}

async fn read_one(engine: &One, at: Pointer, options: Options) -> u64 {
    let reader = engine.begin(options).await.expect("a snapshot");
    let value = reader.read(at).await.expect("it is there");
    u64::from(std::hint::black_box(value[0] == 7))
}

async fn write_one(engine: &One, read: Pointer, written: Pointer, options: Options) -> u64 {
    let writer = engine.begin(options).await.expect("a snapshot");
    let value = match writer.read(read).await {
        Ok(value) => value,
        Err(abort) => return u64::from(!abort.is_retryable()),
    };
    writer.write(written, value).await.expect("written");
    match writer.commit().await {
        Ok(_) => 1,
        Err(Abort::Conflict | Abort::Full) => 0,
        Err(abort) => panic!("{abort}"),
    }
}

async fn figures(directory: &Path) {
    let engine = start(directory, Policy::MvTruncate).await;
    let objects = make(&engine).await;
    let at = |n: u64| some(&objects, n);
    let strict = Options::read_only();
    let loose = strict.not_strict();
    measure("reads, one a transaction", TASKS, READS, async |n| {
        read_one(&engine, at(n), strict).await
    })
    .await;
    measure(
        "reads, one a transaction, not strict",
        1,
        READS,
        async |n| read_one(&engine, at(n), loose).await,
    )
    .await;
    let reader = engine.begin(strict).await.expect("a snapshot");
    measure("reads in one transaction", 1, 2 * READS, async |n| {
        let value = reader.read(at(n)).await.expect("it is there");
        u64::from(std::hint::black_box(value[0] == 7))
    })
    .await;
    drop(reader);
    for (name, options) in [
        ("transactions of a read and a write", Options::default()),
        (
            "the same with snapshot isolation, not strict",
            Options::snapshot_isolation().not_strict(),
        ),
    ] {
        let work = async |n: u64| write_one(&engine, at(n), at(n + WRITES), options).await;
        measure(name, TASKS, WRITES, work).await;
    }
}

#[allow(clippy::disallowed_methods)] // it removes what it has made
fn main() {
    let name = format!("/dev/shm/plinth-engine-figures-{}", std::process::id());
    let directory = Path::new(&name);
    block_on(async {
        disk::create_dir_all(directory).await.expect("a directory");
        figures(directory).await;
    });
    std::fs::remove_dir_all(directory).expect("it is ours");
}
