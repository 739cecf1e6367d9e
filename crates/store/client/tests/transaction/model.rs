//! Random operations inside one transaction against a map that does the same, naively; and conflict ranges against
//! their purpose: every key that could have changed a result is inside them.

use bytes::Bytes;
use plinth_client::testing::{MemoryCluster, resolve_selector};
use plinth_client::{RangeOptions, RangeResult, StreamingMode, Transaction, TransactionOption};
use plinth_core::conflict_ranges::{ConflictRanges, Endpoint};
use plinth_core::{Key, KeySelector, MutationKind, Result, Value, atomic};
use plinth_runtime::real::block_on;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Rows = BTreeMap<Key, Value>;

#[derive(Clone, Debug)]
enum Operation {
    Set(Key, Value),
    Clear(Key),
    ClearRange(Key, Key),
    Atomic(MutationKind, Key, Value),
    Get(Key, bool),
    GetKey(KeySelector, bool),
    GetRange(KeySelector, KeySelector, RangeOptions, bool),
}

impl Operation {
    fn is_snapshot(&self) -> bool {
        matches!(
            self,
            Operation::Get(_, true)
                | Operation::GetKey(_, true)
                | Operation::GetRange(_, _, _, true)
        )
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Observed {
    Nothing,
    Value(Option<Value>),
    Key(Key),
    Range(RangeResult),
}

/// Every key that can occur: few, so that operations meet.
fn universe() -> Vec<Key> {
    (b'a'..=b'f')
        .flat_map(|c| [vec![c], vec![c, 0], vec![c, b'x']])
        .map(Key::from)
        .collect()
}

fn key() -> impl Strategy<Value = Key> {
    prop::sample::select(universe())
}

fn value() -> impl Strategy<Value = Value> {
    prop::collection::vec(0u8..4, 0..4).prop_map(Bytes::from)
}

fn selector() -> impl Strategy<Value = KeySelector> {
    let ends = prop_oneof![8 => key(), 1 => Just(Key::new()), 1 => Just(Key::from_static(b"\xff"))];
    let offset = prop_oneof![4 => Just(1), 4 => -3i32..5, 1 => -40i32..40];
    (ends, any::<bool>(), offset)
        .prop_map(|(key, or_equal, offset)| KeySelector::new(key, or_equal, offset))
}

fn range_options() -> impl Strategy<Value = RangeOptions> {
    let modes = vec![
        StreamingMode::WantAll,
        StreamingMode::Iterator,
        StreamingMode::Small,
        StreamingMode::Exact,
    ];
    (
        0i32..6,
        prop_oneof![3 => Just(0), 1 => 1i32..60],
        prop::sample::select(modes),
        any::<bool>(),
    )
        .prop_map(|(limit, target_bytes, mode, reverse)| {
            let mode = if limit == 0 && target_bytes == 0 && mode == StreamingMode::Exact {
                StreamingMode::WantAll
            } else {
                mode
            };
            RangeOptions {
                limit,
                target_bytes,
                mode,
                iteration: 1,
                reverse,
            }
        })
}

fn write() -> impl Strategy<Value = Operation> {
    let kinds = vec![
        MutationKind::Add,
        MutationKind::And,
        MutationKind::Or,
        MutationKind::Xor,
        MutationKind::AppendIfFits,
        MutationKind::Max,
        MutationKind::Min,
        MutationKind::ByteMin,
        MutationKind::ByteMax,
        MutationKind::CompareAndClear,
    ];
    prop_oneof![
        3 => (key(), value()).prop_map(|(k, v)| Operation::Set(k, v)),
        1 => key().prop_map(Operation::Clear),
        2 => (key(), key()).prop_map(|(a, b)| Operation::ClearRange(a.clone().min(b.clone()), a.max(b))),
        3 => (prop::sample::select(kinds), key(), value()).prop_map(|(kind, k, v)| Operation::Atomic(kind, k, v)),
    ]
}

fn read() -> impl Strategy<Value = Operation> {
    let snapshot = || prop::bool::weighted(0.2);
    prop_oneof![
        2 => (key(), snapshot()).prop_map(|(k, s)| Operation::Get(k, s)),
        3 => (selector(), snapshot()).prop_map(|(k, s)| Operation::GetKey(k, s)),
        5 => (selector(), selector(), range_options(), snapshot())
            .prop_map(|(b, e, o, s)| Operation::GetRange(b, e, o, s)),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(prop_oneof![write(), read()], 1..20)
}

fn rows() -> impl Strategy<Value = Rows> {
    prop::collection::btree_map(key(), value(), 0..14)
}

fn apply_to_model(rows: &mut Rows, operation: &Operation) {
    match operation {
        Operation::Set(key, value) => drop(rows.insert(key.clone(), value.clone())),
        Operation::Clear(key) => drop(rows.remove(key)),
        Operation::ClearRange(begin, end) => rows.retain(|key, _| key < begin || key >= end),
        Operation::Atomic(kind, key, operand) => {
            match atomic::apply(*kind, rows.get(key).map(|v| &v[..]), operand) {
                Some(value) => drop(rows.insert(key.clone(), value)),
                None => drop(rows.remove(key)),
            }
        }
        _ => {}
    }
}

/// Panics if `observed` is not what a reader of `rows` may see.
fn check_against_model(rows: &Rows, operation: &Operation, observed: &Observed) {
    let keys_end = Key::from_static(b"\xff");
    let resolve = |selector: &KeySelector| resolve_selector(rows.keys(), selector, &keys_end);
    match (operation, observed) {
        (Operation::Get(key, _), Observed::Value(value)) => {
            assert_eq!(rows.get(key), value.as_ref())
        }
        (Operation::GetKey(selector, _), Observed::Key(key)) => assert_eq!(&resolve(selector), key),
        (Operation::GetRange(begin, end, options, _), Observed::Range(result)) => {
            let (begin, end) = (resolve(begin), resolve(end));
            let mut want: Vec<(Key, Value)> = Vec::new();
            if begin < end {
                want.extend(rows.range(begin..end).map(|(k, v)| (k.clone(), v.clone())));
            }
            if options.reverse {
                want.reverse();
            }
            let got = &result.rows;
            assert!(
                got.len() <= want.len() && got[..] == want[..got.len()],
                "{got:?} is no beginning of {want:?}"
            );
            if result.more {
                assert!(!got.is_empty(), "more rows, but none given");
            } else {
                assert_eq!(got.len(), want.len(), "no more rows, but not all given");
            }
            if options.limit > 0 {
                assert!(got.len() <= options.limit as usize);
            }
            let wants_whole = options.target_bytes == 0 && options.mode != StreamingMode::Small;
            if wants_whole {
                let limit = if options.limit == 0 {
                    usize::MAX
                } else {
                    options.limit as usize
                };
                assert_eq!(got.len(), want.len().min(limit));
            }
        }
        (_, Observed::Nothing) => {}
        _ => unreachable!("{operation:?} observed {observed:?}"),
    }
}

async fn run(transaction: &Transaction, operation: &Operation) -> Result<Observed> {
    Ok(match operation.clone() {
        Operation::Set(key, value) => {
            transaction.set(key, value);
            Observed::Nothing
        }
        Operation::Clear(key) => {
            transaction.clear(key);
            Observed::Nothing
        }
        Operation::ClearRange(begin, end) => {
            transaction.clear_range(begin, end);
            Observed::Nothing
        }
        Operation::Atomic(kind, key, operand) => {
            transaction.atomic_op(kind, key, operand);
            Observed::Nothing
        }
        Operation::Get(key, snapshot) => Observed::Value(transaction.get(key, snapshot).await?),
        Operation::GetKey(selector, snapshot) => {
            Observed::Key(transaction.get_key(selector, snapshot).await?)
        }
        Operation::GetRange(begin, end, options, snapshot) => {
            Observed::Range(transaction.get_range(begin, end, options, snapshot).await?)
        }
    })
}

async fn run_all(
    cluster: &MemoryCluster,
    operations: &[Operation],
) -> (Vec<Observed>, ConflictRanges) {
    let transaction = cluster.database().create_transaction();
    let mut observed = Vec::new();
    for operation in operations {
        observed.push(
            run(&transaction, operation)
                .await
                .expect("no operation is wrong"),
        );
    }
    // Forces a message, so that the ranges can be inspected.
    transaction.add_write_conflict_key(b"zz");
    transaction.commit().await.expect("nobody else is there");
    let sent = cluster.commits().pop().expect("sent");
    (
        observed,
        ConflictRanges::parse(sent.reads).expect("well formed"),
    )
}

fn holds(ranges: &ConflictRanges, key: &[u8]) -> bool {
    ranges
        .iter()
        .any(|range| range.begin <= key && Endpoint::at(key) < range.end)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_transaction_reads_the_snapshot_with_its_own_writes_over_it(
        base in rows(), operations in operations(), chunk_rows in 1usize..5, delay_turns in 0u32..2,
        snapshot_ryw in any::<bool>(),
    ) {
        block_on(async {
            let cluster = MemoryCluster::with_rows(base.clone());
            cluster.set_chunk_rows_max(chunk_rows);
            cluster.set_delay_turns(delay_turns);
            let transaction = cluster.database().create_transaction();
            if !snapshot_ryw {
                transaction.set_option(TransactionOption::SnapshotRywDisable).expect("valid");
            }
            let mut model = base.clone();
            for operation in &operations {
                let observed = run(&transaction, operation).await.expect("no operation is wrong");
                let seen = if operation.is_snapshot() && !snapshot_ryw { &base } else { &model };
                check_against_model(seen, operation, &observed);
                if observed != Observed::Nothing {
                    let asked = cluster.reads();
                    let again = run(&transaction, operation).await.expect("what is known can be read");
                    assert_eq!(again, observed);
                    assert_eq!(cluster.reads(), asked, "{operation:?} was just read");
                }
                apply_to_model(&mut model, operation);
            }
            transaction.commit().await.expect("nobody else is there");
            assert_eq!(cluster.rows(), model, "what was committed is what was seen");
        });
    }

    #[test]
    fn a_transaction_that_has_read_everything_asks_nobody_again(
        base in rows(), before in prop::collection::vec(write(), 0..4), operations in operations(),
        chunk_rows in 1usize..5, reverse in any::<bool>(), snapshot in any::<bool>(),
    ) {
        block_on(async {
            let cluster = MemoryCluster::with_rows(base.clone());
            cluster.set_chunk_rows_max(chunk_rows);
            let transaction = cluster.database().create_transaction();
            transaction.set_option(TransactionOption::SnapshotRywDisable).expect("valid");
            let everything = transaction.get_range_all(
                KeySelector::first_greater_or_equal(""),
                KeySelector::first_greater_or_equal(&b"\xff"[..]),
                RangeOptions { reverse, ..RangeOptions::default() },
                snapshot,
            );
            everything.await.expect("readable");
            // Five seconds later: a server refuses any read.
            cluster.set_oldest(cluster.version() + 1);
            let asked = cluster.reads();
            let mut model = base.clone();
            for operation in before.iter().chain(&operations) {
                let observed = run(&transaction, operation).await.expect("all of it is known");
                let seen = if operation.is_snapshot() { &base } else { &model };
                check_against_model(seen, operation, &observed);
                apply_to_model(&mut model, operation);
            }
            assert_eq!(cluster.reads(), asked);
        });
    }

    #[test]
    fn reads_issued_together_see_the_writes_before_them_and_none_after(
        base in rows(), operations in operations(), chunk_rows in 1usize..5,
    ) {
        block_on(async {
            let cluster = MemoryCluster::with_rows(base.clone());
            cluster.set_chunk_rows_max(chunk_rows);
            cluster.set_delay_turns(3);
            let transaction = cluster.database().create_transaction();
            let mut model = base.clone();
            let mut under_way = Vec::new();
            for operation in &operations {
                let seen = model.clone();
                // Writes take effect with the call, and reads are issued by it: nothing is awaited here.
                let checked: std::pin::Pin<Box<dyn Future<Output = ()>>> = match operation.clone() {
                    Operation::Get(key, snapshot) => {
                        let read = transaction.get(key, snapshot);
                        Box::pin(async move {
                            let value = read.await.expect("readable");
                            check_against_model(&seen, operation, &Observed::Value(value));
                        })
                    }
                    Operation::GetKey(selector, snapshot) => {
                        let read = transaction.get_key(selector, snapshot);
                        Box::pin(async move {
                            let key = read.await.expect("readable");
                            check_against_model(&seen, operation, &Observed::Key(key));
                        })
                    }
                    Operation::GetRange(begin, end, options, snapshot) => {
                        let read = transaction.get_range(begin, end, options, snapshot);
                        Box::pin(async move {
                            let result = read.await.expect("readable");
                            check_against_model(&seen, operation, &Observed::Range(result));
                        })
                    }
                    _ => {
                        run(&transaction, operation).await.expect("a write waits for nothing");
                        Box::pin(async {})
                    }
                };
                under_way.push(checked);
                apply_to_model(&mut model, operation);
            }
            plinth_runtime::join_all(under_way).await;
        });
    }

    #[test]
    fn whatever_could_have_changed_a_result_is_in_a_read_conflict_range(
        base in rows(), operations in operations(), chunk_rows in 1usize..5,
    ) {
        block_on(async {
            let cluster = |rows: &Rows| {
                let cluster = MemoryCluster::with_rows(rows.clone());
                cluster.set_chunk_rows_max(chunk_rows);
                cluster
            };
            let (observed, ranges) = run_all(&cluster(&base), &operations).await;
            for key in universe() {
                let others = [None, Some(Bytes::from_static(b"")), Some(Bytes::from_static(b"\x09\x09\x09\x09\x09"))];
                for other in others.into_iter().filter(|v| v.as_ref() != base.get(&key)) {
                    let mut altered = base.clone();
                    match other {
                        Some(value) => drop(altered.insert(key.clone(), value)),
                        None => drop(altered.remove(&key)),
                    }
                    let (again, _) = run_all(&cluster(&altered), &operations).await;
                    for ((operation, before), after) in operations.iter().zip(&observed).zip(&again) {
                        if !operation.is_snapshot() && before != after {
                            assert!(
                                holds(&ranges, &key),
                                "{key:?} decides {operation:?} ({before:?} or {after:?}) but is not in {ranges:?}"
                            );
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn a_key_that_own_writes_answer_is_in_no_read_conflict_range(
        base in rows(),
        writes in prop::collection::vec(write(), 0..12),
        reads in prop::collection::vec(read(), 1..8),
    ) {
        block_on(async {
            let operations: Vec<Operation> = writes.iter().chain(&reads).cloned().collect();
            let (_, ranges) = run_all(&MemoryCluster::with_rows(base), &operations).await;
            // The same writes on two different databases give the same result for exactly the keys that they decide
            // alone.
            let ends = |start: Option<&'static [u8]>| {
                let mut rows: Rows =
                    start.into_iter().flat_map(|v| universe().into_iter().map(move |k| (k, v.into()))).collect();
                writes.iter().for_each(|operation| apply_to_model(&mut rows, operation));
                rows
            };
            let touched = |key: &Key| writes.iter().any(|operation| match operation {
                Operation::Set(k, _) | Operation::Clear(k) => k == key,
                Operation::ClearRange(begin, end) => begin <= key && key < end,
                _ => false,
            });
            let (empty, full) = (ends(None), ends(Some(b"\x07\x07\x07\x07\x07\x07\x07\x07")));
            for key in universe().iter().filter(|key| touched(key)) {
                assert_eq!(empty.get(key), full.get(key), "a set or a clear decides the rest");
                assert!(!holds(&ranges, key), "{key:?} was written, and is in {ranges:?}");
            }
        });
    }

    #[test]
    fn a_stream_gives_the_whole_range_however_small_its_chunks(
        base in rows(), writes in prop::collection::vec(write(), 0..8),
        begin in selector(), end in selector(), options in range_options(), chunk_rows in 1usize..4,
    ) {
        block_on(async {
            // Selectors with offsets would count anew for every chunk, so these are plain bounds.
            let (begin, end) = (KeySelector { offset: 1, ..begin }, KeySelector { offset: 1, ..end });
            let cluster = MemoryCluster::with_rows(base.clone());
            cluster.set_chunk_rows_max(chunk_rows);
            let transaction = cluster.database().create_transaction();
            let mut model = base.clone();
            for operation in &writes {
                run(&transaction, operation).await.expect("valid");
                apply_to_model(&mut model, operation);
            }
            let options = RangeOptions { limit: options.limit * 2, ..options };
            let all = transaction.get_range_all(begin.clone(), end.clone(), options, false).await;
            let limit = if options.limit == 0 { usize::MAX } else { options.limit as usize };
            let keys_end = Key::from_static(b"\xff");
            let (from, to) =
                (resolve_selector(model.keys(), &begin, &keys_end), resolve_selector(model.keys(), &end, &keys_end));
            let mut want: Vec<(Key, Value)> = Vec::new();
            if from < to {
                want.extend(model.range(from..to).map(|(k, v)| (k.clone(), v.clone())));
            }
            if options.reverse {
                want.reverse();
            }
            want.truncate(limit);
            assert_eq!(all.expect("readable"), want);
        });
    }
}
