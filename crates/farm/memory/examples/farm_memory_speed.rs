//! Figures of objects in this machine's memory:
//! `cargo run --release -p plinth-farm-memory --example farm_memory_speed`.
//!
//! Objects of 64 bytes: in no order, all over a region of 128 MiB, and a few that lie in the processor's cache.

use plinth_farm_fabric::Memory;
use plinth_farm_memory::{
    BLOCK_WORDS, Class, Header, Old, Pointer, Region, SLAB_WORDS, Seen, Slabs, Snapshot,
};
use plinth_runtime::now;
use plinth_runtime::real::block_on;
use std::hint::black_box;

const OBJECT_BYTES: usize = 64;
const REGION_WORDS: usize = 16 << 20;
const ROUNDS: usize = 5_000_000;

/// Nanoseconds of each of `rounds` calls, which get numbers in no order.
fn time(what: &str, rounds: usize, mut call: impl FnMut(usize)) {
    let begin = now();
    for n in 0..rounds {
        call((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8);
    }
    let nanos = (now() - begin).as_nanos() as f64;
    println!("{what}: {:.1} ns", nanos / rounds as f64);
}

fn fill(slabs: &mut Slabs, class: Class) -> Vec<Pointer> {
    let mut all = Vec::new();
    while let Some((pointer, _)) = slabs.reserve(class) {
        let cell = slabs.region().cell(pointer).expect("reserved");
        cell.apply(1, true, &[7; OBJECT_BYTES]);
        all.push(pointer);
    }
    all
}

fn reads(region: &Region, memory: &Memory, objects: &[Pointer]) {
    let object = |n: usize| objects[n % objects.len()];
    time("a read, copied into one allocation", ROUNDS, |n| {
        let cell = region.cell(object(n)).expect("allocated");
        let Seen::Version { payload, .. } = cell.read() else {
            panic!("nobody writes");
        };
        black_box(payload);
    });
    let mut into = [0; OBJECT_BYTES];
    time("a read into a buffer of the caller's", ROUNDS, |n| {
        let cell = region.cell(object(n)).expect("allocated");
        assert!(matches!(cell.read_into(&mut into), Seen::Version { .. }));
        black_box(into[0]);
    });
    let class = objects[0].class();
    let mut bytes = vec![0; Snapshot::bytes(class)];
    time("a read as another machine does it", ROUNDS, |n| {
        let read = memory.read(8 * object(n).word(), &mut bytes);
        read.expect("in the memory");
        assert!(matches!(
            Snapshot::judge(&bytes, class),
            Seen::Version { .. }
        ));
    });
}

fn writes(region: &Region, objects: &[Pointer], timestamp: &mut u64) {
    let memory = Memory::private(BLOCK_WORDS as usize * 64);
    let mut old = Old::new(&memory, BLOCK_WORDS).expect("sizes");
    time(
        "a write: lock, keep the old version, install",
        ROUNDS,
        |n| {
            let cell = region.cell(objects[n % objects.len()]).expect("one");
            let header = cell.header();
            assert!(cell.lock(header));
            let kept = old.keep(cell).unwrap_or_else(|| {
                old.collect(*timestamp);
                old.keep(cell).expect("room")
            });
            *timestamp += 1;
            cell.install(*timestamp, true, kept.older(), &[8; OBJECT_BYTES]);
            old.commit(kept, *timestamp);
        },
    );
}

fn reservations(slabs: &mut Slabs, objects: &[Pointer]) {
    for pointer in objects {
        let cell = slabs.region().cell(*pointer).expect("one");
        cell.apply(u64::MAX >> 2, false, &[]);
        slabs.release(*pointer, 1).expect("freed");
    }
    let class = objects[0].class();
    time("a reservation, given back", ROUNDS, |_| {
        let (pointer, _) = slabs.reserve(class).expect("room");
        slabs.release(pointer, 1).expect("reserved");
    });
    time("a reservation of fresh memory", objects.len(), |_| {
        black_box(slabs.reserve(class)).expect("room");
    });
}

fn main() {
    block_on(async {
        let memory = Memory::private(REGION_WORDS);
        let region = Region::make(&memory, 1, SLAB_WORDS).expect("sizes");
        let class = Class::of(OBJECT_BYTES).expect("a class");
        let mut slabs = Slabs::open(&region);
        let objects = fill(&mut slabs, class);
        let begin = now();
        let mut promoted = Slabs::scan(&region, 1);
        let scan = now() - begin;
        assert_eq!(promoted.reserve(class), None);
        println!(
            "a new primary looks at {} objects in {scan:?}",
            objects.len()
        );
        let first = region.cell(objects[0]).expect("one").header();
        assert_eq!(first, Header::new(1, true));
        let mut timestamp = 1;
        for objects in [&objects[..], &objects[..200]] {
            println!("{} objects:", objects.len());
            reads(&region, &memory, objects);
            writes(&region, objects, &mut timestamp);
        }
        reservations(&mut slabs, &objects);
    });
}
