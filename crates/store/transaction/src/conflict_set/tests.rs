//! Compares the conflict set with a list of all writes ever made.

use super::*;
use plinth_core::conflict_ranges::ConflictRangesBuilder;
use proptest::prelude::*;

type Range = (Vec<u8>, Vec<u8>);

#[derive(Clone, Debug)]
struct Transaction {
    /// Distance of its read version from the batch before.
    behind: Version,
    reads: Vec<Range>,
    writes: Vec<Range>,
}

/// Algorithm 1, word for word.
struct Model {
    writes: Vec<(Range, Version)>,
    oldest: Version,
}

impl Model {
    fn resolve(
        &mut self,
        version: Version,
        new_oldest: Version,
        batch: &[(Version, &Transaction)],
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut own: Vec<Range> = Vec::new();
        for (read_version, transaction) in batch {
            let meets = |a: &Range, b: &Range| a.0 < b.1 && b.0 < a.1;
            let reads: Vec<_> = transaction
                .reads
                .iter()
                .filter(|range| range.0 < range.1)
                .collect();
            let is_stale = |read: &&Range| {
                self.writes
                    .iter()
                    .any(|(range, written)| written > read_version && meets(range, read))
                    || own.iter().any(|range| meets(range, read))
            };
            verdicts.push(if *read_version < self.oldest && !reads.is_empty() {
                Verdict::TooOld
            } else if reads.iter().any(is_stale) {
                Verdict::Conflict
            } else {
                own.extend(
                    transaction
                        .writes
                        .iter()
                        .filter(|range| range.0 < range.1)
                        .cloned(),
                );
                Verdict::Committed
            });
        }
        self.writes
            .extend(own.into_iter().map(|range| (range, version)));
        self.oldest = self.oldest.max(new_oldest);
        verdicts
    }

    /// The ranges of `reads` that something has written since.
    fn newer_than(&self, read_version: Version, reads: &[Range]) -> Vec<KeyRange> {
        let is_newer = |read: &&Range| {
            let meets = |a: &Range| a.0 < read.1 && read.0 < a.1;
            let newer =
                |(range, written): &(Range, Version)| *written > read_version && meets(range);
            read_version < self.oldest || self.writes.iter().any(newer)
        };
        let named = reads
            .iter()
            .filter(|range| range.0 < range.1)
            .filter(is_newer);
        named
            .map(|(begin, end)| KeyRange::new(begin.clone(), end.clone()))
            .collect()
    }
}

fn pack(ranges: &[Range]) -> ConflictRanges {
    let mut builder = ConflictRangesBuilder::new();
    for (begin, end) in ranges {
        builder.add(begin, end);
    }
    ConflictRanges::parse(builder.finish()).expect("well formed")
}

/// Runs the batches through both, comparing verdicts, and checks the history after each.
fn compare(batches: &[Vec<Transaction>], window: Version) -> ConflictSet {
    let mut set = ConflictSet::new(100);
    let mut model = Model {
        writes: Vec::new(),
        oldest: 100,
    };
    for (index, batch) in batches.iter().enumerate() {
        let version = 110 + 10 * index as Version;
        let versioned: Vec<_> = batch
            .iter()
            .map(|transaction| (version - 10 - transaction.behind, transaction))
            .collect();
        let packed: Vec<_> = batch
            .iter()
            .map(|t| (pack(&t.reads), pack(&t.writes)))
            .collect();
        let conflicts: Vec<_> = versioned
            .iter()
            .zip(&packed)
            .map(
                |((read_version, _), (reads, writes))| TransactionConflicts {
                    read_version: *read_version,
                    reads,
                    writes,
                },
            )
            .collect();
        let expected = model.resolve(version, version - window, &versioned);
        assert_eq!(
            set.resolve(version, version - window, &conflicts),
            expected,
            "batch {index} of {batches:?}"
        );
        set.history.check();
        for ((read_version, transaction), (reads, _)) in versioned.iter().zip(&packed) {
            let named = set.newer_than(*read_version, reads);
            let expected = model.newer_than(*read_version, &transaction.reads);
            assert_eq!(
                named, expected,
                "{transaction:?} after batch {index} of {batches:?}"
            );
        }
    }
    set
}

/// Keys of a small space, which collide, nest and end in zeros; some behind long prefixes, some long.
fn small_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'm'), Just(0xff)];
    (
        prop_oneof![4 => Just(0usize), 1 => Just(9), 1 => Just(17)],
        prop::collection::vec(byte, 0..4),
        0..12usize,
    )
        .prop_map(|(prefix, bytes, stretch)| {
            let mut key = vec![b'p'; prefix];
            key.extend(&bytes);
            if stretch > 8 {
                key.extend([b'z'; 9]);
                key.extend(bytes);
            }
            key
        })
}

/// Many keys of one length, the common case of blocks.
fn number_key() -> impl Strategy<Value = Vec<u8>> {
    (0u32..3000).prop_map(|number| [&b"............"[..], &number.to_be_bytes()].concat())
}

fn range(key: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Range> {
    let key = key.boxed();
    (key.clone(), prop::option::weighted(0.6, key)).prop_map(|(a, b)| match b {
        Some(b) => (a.clone().min(b.clone()), a.max(b)),
        None => (a.clone(), plinth_core::key::key_after(&a).to_vec()),
    })
}

/// Number keys in three directories. The prefix that all share is more than a head shorter than the part that differs.
fn directory_key() -> impl Strategy<Value = Vec<u8>> {
    (0u8..3, number_key()).prop_map(|(directory, number)| [&[directory][..], &number].concat())
}

/// Ranges from a key to the same key with up to two zeros appended; some are empty.
fn directory_range() -> impl Strategy<Value = Range> {
    (directory_key(), 0usize..3)
        .prop_map(|(key, zeros)| (key.clone(), [key, vec![0; zeros]].concat()))
}

/// Ranges of at most a few numbers.
fn narrow_range() -> impl Strategy<Value = Range> {
    (number_key(), 1u32..10).prop_map(|(begin, width)| {
        let number = u32::from_be_bytes(begin[12..].try_into().expect("four bytes"));
        (
            begin,
            [&b"............"[..], &(number + width).to_be_bytes()].concat(),
        )
    })
}

fn batches(
    range: impl Strategy<Value = Range> + Clone,
    transactions: usize,
    count: usize,
) -> impl Strategy<Value = Vec<Vec<Transaction>>> {
    let transaction = (
        -5i64..80,
        prop::collection::vec(range.clone(), 0..3),
        prop::collection::vec(range, 0..3),
    )
        .prop_map(|(behind, reads, writes)| Transaction {
            behind,
            reads,
            writes,
        });
    prop::collection::vec(
        prop::collection::vec(transaction, 0..transactions),
        1..count,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn verdicts_are_those_of_algorithm_1_on_few_keys(batches in batches(range(small_key()).boxed(), 8, 20)) {
        compare(&batches, 50);
    }

    #[test]
    fn verdicts_are_those_of_algorithm_1_on_wide_ranges(batches in batches(range(number_key()).boxed(), 8, 20)) {
        compare(&batches, 50);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn verdicts_are_those_of_algorithm_1_on_many_blocks(batches in batches(narrow_range().boxed(), 200, 20)) {
        compare(&batches, 50);
    }

    #[test]
    fn verdicts_are_those_of_algorithm_1_when_narrow_and_wide_meet(
        batches in batches(prop_oneof![60 => narrow_range(), 1 => range(number_key())].boxed(), 150, 20),
    ) {
        compare(&batches, 70);
    }

    #[test]
    fn verdicts_are_those_of_algorithm_1_on_keys_told_apart_by_their_last_bytes(
        batches in batches(directory_range().boxed(), 200, 20),
    ) {
        compare(&batches, 50);
    }

    #[test]
    fn verdicts_are_those_of_algorithm_1_on_many_odd_keys(batches in batches(range(small_key()).boxed(), 120, 15)) {
        compare(&batches, 40);
    }
}

/// Runs batches of single keys, `number(batch, index)` each, that forget what lies ten batches back. Returns the
/// number of entries after each batch.
fn entries_after(batches: Version, number: impl Fn(u64, u64) -> u64) -> Vec<usize> {
    let mut set = ConflictSet::new(0);
    let none = ConflictRanges::default();
    let resolve = |version: Version| {
        let key = |index| number(version as u64, index).to_be_bytes();
        let writes: Vec<_> = (0..500)
            .map(|i| pack(&[(key(i).to_vec(), [&key(i)[..], &[0]].concat())]))
            .collect();
        let conflicts: Vec<_> = writes
            .iter()
            .map(|writes| TransactionConflicts {
                read_version: 0,
                reads: &none,
                writes,
            })
            .collect();
        set.resolve(version, (version - 10).max(0), &conflicts);
        set.history.check();
        set.entry_count()
    };
    (1..=batches).map(resolve).collect()
}

#[test]
fn forgetting_keeps_pace_with_writes_that_are_spread_over_all_keys() {
    let entries = entries_after(200, |batch, index| {
        (batch * 500 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    assert!(
        entries[100..].iter().all(|&count| count < 30_000),
        "{entries:?}"
    );
}

#[test]
fn forgetting_keeps_pace_with_writes_behind_all_others() {
    let entries = entries_after(200, |batch, index| (batch * 500 + index) * 3);
    assert!(
        entries[100..].iter().all(|&count| count < 30_000),
        "{entries:?}"
    );
}

#[test]
fn idle_batches_forget_everything() {
    let key = |index: u64| {
        index
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_be_bytes()
            .to_vec()
    };
    let mut set = ConflictSet::new(0);
    let none = ConflictRanges::default();
    let writes = pack(
        &(0..20_000)
            .map(|i| (key(i), [key(i), vec![0]].concat()))
            .collect::<Vec<_>>(),
    );
    set.resolve(
        1,
        0,
        &[TransactionConflicts {
            read_version: 0,
            reads: &none,
            writes: &writes,
        }],
    );
    assert_eq!(set.entry_count(), 40_001);
    for version in 2..500 {
        set.resolve(version, version - 1, &[]);
    }
    set.history.check();
    assert_eq!(set.entry_count(), 1);
    assert!(set.bytes() < 10_000, "{} bytes", set.bytes());
}

/// `lastCommit` as a map of its boundaries: slower, and too simple to be wrong.
struct Boundaries(std::collections::BTreeMap<Vec<u8>, Version>);

impl Boundaries {
    fn at(&self, key: &[u8]) -> Version {
        self.0
            .range(..=key.to_vec())
            .next_back()
            .map_or(0, |(_, &version)| version)
    }
    fn newest(&self, (begin, end): &Range) -> Version {
        let inside = self
            .0
            .range(begin.clone()..end.clone())
            .map(|(_, &version)| version);
        inside.max().unwrap_or(0).max(self.at(begin))
    }
    fn write(&mut self, (begin, end): &Range, version: Version) {
        let behind = self.at(end);
        let covered: Vec<_> = self
            .0
            .range(begin.clone()..end.clone())
            .map(|(key, _)| key.clone())
            .collect();
        for key in covered {
            self.0.remove(&key);
        }
        self.0.insert(begin.clone(), version);
        self.0.insert(end.clone(), behind);
    }
}

#[test]
fn verdicts_are_those_of_algorithm_1_in_large_batches_over_many_versions() {
    let mut state = 1u64;
    let mut random = move |bound: u64| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % bound
    };
    let key = |number: u64| [&b"............"[..], &(number as u32).to_be_bytes()].concat();
    let mut range = || {
        let begin = random(300_000);
        (key(begin), key(begin + 1 + random(10)))
    };
    let mut set = ConflictSet::new(0);
    let mut model = Boundaries(Default::default());
    let mut counts = [0; 2];
    for version in 1..=150 {
        let read_version = (version - 30).max(0);
        let ranges: Vec<_> = (0..400).map(|_| (range(), range())).collect();
        let packed: Vec<_> = ranges
            .iter()
            .map(|(read, write)| {
                (
                    pack(std::slice::from_ref(read)),
                    pack(std::slice::from_ref(write)),
                )
            })
            .collect();
        let conflicts: Vec<_> = packed
            .iter()
            .map(|(reads, writes)| TransactionConflicts {
                read_version,
                reads,
                writes,
            })
            .collect();
        let verdicts = set.resolve(version, read_version, &conflicts);
        // In order: the batch's own writes are newer than every read version.
        for ((read, write), verdict) in ranges.iter().zip(verdicts) {
            let is_stale = model.newest(read) > read_version;
            assert_eq!(
                verdict,
                if is_stale {
                    Verdict::Conflict
                } else {
                    Verdict::Committed
                }
            );
            counts[usize::from(is_stale)] += 1;
            if !is_stale {
                model.write(write, version);
            }
        }
        set.history.check();
    }
    assert!(counts.iter().all(|&count| count > 5_000), "{counts:?}");
}

/// A read over hundreds of blocks finds nothing but the one newer write, wherever that write is.
#[test]
fn a_read_across_many_blocks_finds_the_one_newer_write_and_nothing_else() {
    const KEYS: u32 = 40_000;
    let key = |number: u32| number.to_be_bytes().to_vec();
    let single = |number: u32| (key(number), [key(number), vec![0]].concat());
    let none = ConflictRanges::default();
    let mut set = ConflictSet::new(0);
    let all = pack(&(0..KEYS).map(single).collect::<Vec<_>>());
    set.resolve(
        1,
        0,
        &[TransactionConflicts {
            read_version: 0,
            reads: &none,
            writes: &all,
        }],
    );
    for round in 0..300 {
        let version = 10 + 10 * round;
        let written = (version as u32).wrapping_mul(2_654_435_761) % KEYS;
        let write = pack(&[single(written)]);
        set.resolve(
            version,
            0,
            &[TransactionConflicts {
                read_version: 0,
                reads: &none,
                writes: &write,
            }],
        );
        let read_version = version - 1;
        let reads = [
            ((0, KEYS), true),
            ((written, KEYS), true),
            ((0, written + 1), true),
            ((0, written), false),
            ((written + 1, KEYS), false),
        ];
        for (at, ((begin, end), is_stale)) in reads.into_iter().enumerate() {
            let reads = pack(&[(key(begin), key(end))]);
            let read = TransactionConflicts {
                read_version,
                reads: &reads,
                writes: &none,
            };
            let verdicts = set.resolve(version + 1 + at as Version, 0, &[read]);
            let expected = if is_stale {
                Verdict::Conflict
            } else {
                Verdict::Committed
            };
            assert_eq!(
                verdicts,
                [expected],
                "[{begin}, {end}) at {read_version}, {written} was written"
            );
        }
    }
}

#[test]
fn room_for_many_blocks_is_given_back() {
    let mut set = ConflictSet::new(0);
    let none = ConflictRanges::default();
    for version in 1..=20u64 {
        let key = |i: u64| (i * 20 + version).to_be_bytes().to_vec();
        let ranges: Vec<Range> = (0..30_000)
            .map(|i| (key(i), [key(i), vec![0]].concat()))
            .collect();
        let writes = pack(&ranges);
        let transaction = TransactionConflicts {
            read_version: 0,
            reads: &none,
            writes: &writes,
        };
        set.resolve(version as Version, 0, &[transaction]);
    }
    assert!(set.history.room() > 10_000, "{} blocks", set.history.room());
    for version in 21..3000 {
        set.resolve(version, version - 1, &[]);
    }
    assert_eq!(set.entry_count(), 1);
    assert!(set.history.room() < 5000, "{} blocks", set.history.room());
}
