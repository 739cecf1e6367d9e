//! Measures how many transactions a second one core judges.
//!
//! The standard test is that of FoundationDB's skip list: 500 batches of 2,500 transactions, each with one read
//! range and one write range of 1 to 10 keys, uniform over 20,000,000 keys of 16 bytes; read versions lie 50
//! batches behind, and history older than that is forgotten. Only the time inside `resolve` counts.
//!
//! `cargo bench --bench conflict_set` measures with Criterion; `cargo bench --bench conflict_set -- --once`
//! runs the whole test once for each shape of keys and prints a line each; `--once standard` only that one.

use bytes::{Bytes, BytesMut};
use criterion::measurement::{Measurement, WallTime};
use criterion::{Criterion, Throughput};
use plinth_core::Version;
use plinth_core::conflict_ranges::{ConflictRanges, ConflictRangesBuilder};
use plinth_transaction::conflict_set::{ConflictSet, TransactionConflicts, Verdict};
use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

const TRANSACTIONS: usize = 2_500;
const BATCHES: Version = 500;
const BEHIND: Version = 50;
const SINGLES: usize = 20_000;
const KEYS: u64 = 20_000_000;

/// A small generator with a fixed seed: every run judges the same transactions.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Twelve dots and four bytes: the standard test.
    Dots,
    /// Single keys of sixteen arbitrary bytes.
    Scattered,
    /// Two of a hundred long prefixes in turn, numbers in decimal.
    LongPrefixes,
    /// Single keys that only grow, as in a log.
    Growing,
    /// A hundred keys only.
    Hot,
    /// Single keys of 4,000 bytes that differ in the last eight.
    Long,
    /// Like `Dots`, but a tenth of the ranges span up to a quarter of all keys.
    Wide,
}

fn key(shape: Shape, number: u64) -> Vec<u8> {
    match shape {
        Shape::Dots | Shape::Wide | Shape::Growing | Shape::Hot => {
            [&b"............"[..], &(number as u32).to_be_bytes()].concat()
        }
        Shape::Scattered => {
            let mut random = Random(number);
            [random.next().to_be_bytes(), random.next().to_be_bytes()].concat()
        }
        Shape::Long => [&[b'x'; 3992][..], &number.to_be_bytes()].concat(),
        Shape::LongPrefixes => {
            let directory = number % 100;
            format!(
                "/application/{directory:03}/{}/table/{number:020}",
                "x".repeat(100)
            )
            .into_bytes()
        }
    }
}

fn pack(shape: Shape, random: &mut Random, version: Version, builder: &mut ConflictRangesBuilder) {
    let number = match shape {
        Shape::Growing => {
            version as u64 * 2 * TRANSACTIONS as u64 + random.below(2 * TRANSACTIONS as u64)
        }
        Shape::Hot => random.below(100),
        _ => random.below(KEYS),
    };
    let width = if shape == Shape::Wide && random.below(10) == 0 {
        random.below(KEYS / 4)
    } else {
        random.below(10)
    };
    let begin = key(shape, number);
    match shape {
        Shape::Dots | Shape::Wide => builder.add(&begin, &key(shape, number + 1 + width)),
        _ => builder.add_key(&begin),
    }
}

/// The ranges of one batch, slices of one frame as a resolver has them.
fn batch(
    shape: Shape,
    random: &mut Random,
    version: Version,
) -> Vec<(ConflictRanges, ConflictRanges)> {
    let mut frame = BytesMut::new();
    let mut pieces: Vec<Range<usize>> = Vec::new();
    for _ in 0..2 * TRANSACTIONS {
        let mut builder = ConflictRangesBuilder::new();
        pack(shape, random, version, &mut builder);
        let from = frame.len();
        frame.extend_from_slice(&builder.finish());
        pieces.push(from..frame.len());
    }
    let frame: Bytes = frame.freeze();
    let ranges = |piece: &Range<usize>| {
        ConflictRanges::parse(frame.slice(piece.clone())).expect("well formed")
    };
    pieces
        .chunks_exact(2)
        .map(|pair| (ranges(&pair[0]), ranges(&pair[1])))
        .collect()
}

/// The test, batch by batch.
struct Run {
    shape: Shape,
    set: ConflictSet,
    random: Random,
    version: Version,
    committed: usize,
}

impl Run {
    fn new(shape: Shape) -> Self {
        Run {
            shape,
            set: ConflictSet::new(0),
            random: Random(1),
            version: 0,
            committed: 0,
        }
    }

    /// Judges `count` transactions, one per batch, against the present history. Nothing of it is forgotten meanwhile.
    fn singles(&mut self, count: usize) -> Duration {
        let oldest = self.set.oldest_version();
        let mut time = Duration::ZERO;
        let ranges: Vec<_> = (0..count.div_ceil(TRANSACTIONS))
            .flat_map(|_| batch(self.shape, &mut self.random, self.version))
            .collect();
        for (reads, writes) in &ranges[..count] {
            self.version += 1;
            let transaction = TransactionConflicts {
                read_version: self.version - 1,
                reads,
                writes,
            };
            let start = WallTime.start();
            black_box(
                self.set
                    .resolve(self.version, oldest, black_box(&[transaction])),
            );
            time += WallTime.end(start);
        }
        time
    }

    /// Judges `count` batches and returns the time that this took.
    fn batches(&mut self, count: Version) -> Duration {
        let mut time = Duration::ZERO;
        for _ in 0..count {
            self.version += 1;
            let read_version = self.version - BEHIND;
            let ranges = batch(self.shape, &mut self.random, self.version);
            // The first batches have no version that old.
            let read_version = read_version.max(0);
            let transactions: Vec<_> = ranges
                .iter()
                .map(|(reads, writes)| TransactionConflicts {
                    read_version,
                    reads,
                    writes,
                })
                .collect();
            let start = WallTime.start();
            let verdicts = black_box(self.set.resolve(
                self.version,
                read_version,
                black_box(&transactions),
            ));
            time += WallTime.end(start);
            assert!(!verdicts.contains(&Verdict::TooOld));
            self.committed += verdicts
                .iter()
                .filter(|&&verdict| verdict == Verdict::Committed)
                .count();
        }
        time
    }
}

fn once(only: Option<&str>) {
    let rate =
        |count: Version, time: Duration| count as f64 * TRANSACTIONS as f64 / time.as_secs_f64();
    let shapes = [
        ("standard", Shape::Dots),
        ("scattered", Shape::Scattered),
        ("long prefixes", Shape::LongPrefixes),
        ("growing", Shape::Growing),
        ("hot", Shape::Hot),
        ("long", Shape::Long),
        ("wide", Shape::Wide),
    ];
    for (name, shape) in shapes
        .into_iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
    {
        let mut run = Run::new(shape);
        let filling = run.batches(BEHIND);
        let steady = run.batches(BATCHES - BEHIND);
        println!(
            "{name:14} {:>10.0} transactions/s   first {BEHIND} batches {:>10.0}   after that {:>10.0}   \
            committed {:>5.1} %   {} entries   {} KiB",
            rate(BATCHES, filling + steady),
            rate(BEHIND, filling),
            rate(BATCHES - BEHIND, steady),
            100.0 * run.committed as f64 / (BATCHES as f64 * TRANSACTIONS as f64),
            run.set.entry_count(),
            run.set.bytes() / 1024,
        );
        let singles = run.singles(SINGLES);
        println!(
            "{:14} {:.2} µs for a batch of one",
            "",
            singles.as_secs_f64() * 1e6 / SINGLES as f64
        );
    }
}

fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("conflict_set");
    group.sample_size(10);
    group.throughput(Throughput::Elements(BATCHES as u64 * TRANSACTIONS as u64));
    group.bench_function("standard, 500 batches", |bencher| {
        bencher.iter_custom(|runs| {
            (0..runs)
                .map(|_| Run::new(Shape::Dots).batches(BATCHES))
                .sum()
        });
    });
    group.throughput(Throughput::Elements(BEHIND as u64 * TRANSACTIONS as u64));
    group.bench_function("standard, first 50 batches", |bencher| {
        bencher.iter_custom(|runs| {
            (0..runs)
                .map(|_| Run::new(Shape::Dots).batches(BEHIND))
                .sum()
        });
    });
    for (name, shape) in [
        ("standard, one batch", Shape::Dots),
        ("scattered single keys, one batch", Shape::Scattered),
    ] {
        let mut run = Run::new(shape);
        run.batches(2 * BEHIND);
        group.throughput(Throughput::Elements(TRANSACTIONS as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|batches| run.batches(batches as Version))
        });
    }
    group.finish();
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .filter(|argument| argument != "--bench")
        .collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--once") {
        return once(arguments.get(at + 1).map(String::as_str));
    }
    let mut criterion = Criterion::default().configure_from_args();
    measure(&mut criterion);
    criterion.final_summary();
}
