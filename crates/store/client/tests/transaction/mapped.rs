//! Mapped ranges, and their behaviour when they meet the transaction's own writes.

use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_client::{DatabaseOption, MappedResult, RangeOptions, Transaction, TransactionOption};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, KeySelector, Result};
use plinth_runtime::real::block_on;

fn text(text: &str) -> Element {
    Element::Text(text.into())
}

fn packed(elements: &[Element]) -> Bytes {
    tuple::pack(elements).expect("small")
}

fn index(i: i64) -> Bytes {
    packed(&[text("index"), Element::Int(i), text(&format!("id{i}"))])
}

fn part(i: i64, part: i64) -> Bytes {
    packed(&[text("record"), text(&format!("id{i}")), Element::Int(part)])
}

/// Ten rows of an index, each of which points to two parts of a record.
fn cluster() -> MemoryCluster {
    let rows = (0..10).flat_map(|i| {
        [
            (index(i), Bytes::new()),
            (part(i, 0), Bytes::from("zero")),
            (part(i, 1), Bytes::from("one")),
        ]
    });
    MemoryCluster::with_rows(rows)
}

async fn mapped(
    transaction: &Transaction,
    (from, to): (i64, i64),
    options: RangeOptions,
    snapshot: bool,
) -> Result<MappedResult> {
    let mapper = packed(&[text("record"), text("{K[2]}"), text("{...}")]);
    let begin = KeySelector::first_greater_or_equal(index(from));
    let end = KeySelector::first_greater_or_equal(index(to));
    let read = transaction.get_mapped_range(begin, end, mapper, options, snapshot);
    read.await
}

const ALL: RangeOptions = RangeOptions {
    limit: 0,
    target_bytes: 0,
    mode: plinth_client::StreamingMode::WantAll,
    iteration: 1,
    reverse: false,
};

#[test]
fn a_mapped_range_gives_the_rows_of_the_index_and_what_they_lead_to() {
    block_on(async {
        let transaction = cluster().database().create_transaction();
        let result = mapped(&transaction, (3, 6), ALL, false)
            .await
            .expect("reads");
        let keys: Vec<Bytes> = result.rows.iter().map(|row| row.key.clone()).collect();
        assert_eq!(keys, [index(3), index(4), index(5)]);
        for (row, i) in result.rows.iter().zip(3..) {
            let led_to = [(part(i, 0), "zero".into()), (part(i, 1), "one".into())];
            assert_eq!(row.rows, led_to);
        }
        assert!(!result.more);
    });
}

#[test]
fn a_mapped_range_that_meets_own_writes_is_refused_and_the_transaction_goes_on() {
    block_on(async {
        let ways: [(&str, fn(&Transaction)); 6] = [
            ("a row of the index set", |t| t.set(index(4), "")),
            ("a row between set", |t| {
                t.set(packed(&[text("index"), Element::Int(4), text("z")]), "")
            }),
            ("a row of the index cleared", |t| t.clear(index(5))),
            ("a part set", |t| t.set(part(3, 1), "mine")),
            ("a part added", |t| t.set(part(3, 7), "mine")),
            ("a record cleared", |t| {
                t.clear_range(part(5, 0), part(5, 9))
            }),
        ];
        for (name, write) in ways {
            let transaction = cluster().database().create_transaction();
            write(&transaction);
            let met = mapped(&transaction, (3, 6), ALL, false).await;
            assert_eq!(
                met,
                Err(Error::get_mapped_range_reads_your_writes),
                "{name}"
            );
            let beside = mapped(&transaction, (6, 9), ALL, false).await;
            assert_eq!(beside.expect("untouched").rows.len(), 3, "{name}");
            assert_eq!(transaction.commit().await, Ok(()), "{name}");
        }
    });
}

#[test]
fn a_mapped_range_that_stopped_before_own_writes_has_not_met_them() {
    block_on(async {
        let transaction = cluster().database().create_transaction();
        transaction.set(index(5), "mine");
        let limited = RangeOptions { limit: 2, ..ALL };
        let result = mapped(&transaction, (3, 9), limited, false).await;
        assert_eq!(result.expect("it ends before").rows.len(), 2);
    });
}

#[test]
fn snapshots_reverse_and_reads_past_own_writes_are_not_supported_unless_asked_for() {
    block_on(async {
        let database = cluster().database();
        let reverse = ALL.reversed();
        for (options, snapshot, disabled) in [
            (ALL, true, false),
            (reverse, false, false),
            (ALL, false, true),
        ] {
            let transaction = database.create_transaction();
            if disabled {
                let option = TransactionOption::ReadYourWritesDisable;
                transaction.set_option(option).expect("nothing was read");
            }
            let refused = mapped(&transaction, (3, 6), options, snapshot).await;
            assert_eq!(refused, Err(Error::unsupported_operation));
            assert_eq!(transaction.commit().await, Ok(()));
        }
        database
            .set_option(DatabaseOption::MappedRangeReadsOwnWrites)
            .expect("valid");
        let transaction = database.create_transaction();
        transaction.set(part(3, 1), "mine");
        transaction.clear(index(4));
        for (options, snapshot) in [(ALL, false), (ALL, true), (reverse, false)] {
            let result = mapped(&transaction, (3, 6), options, snapshot).await;
            let mut rows = result.expect("asked for").rows;
            rows.sort_by_key(|row| row.key.clone());
            assert_eq!(rows.len(), 2, "{options:?}");
            assert_eq!(rows[0].rows[1].1, "mine");
        }
    });
}

#[test]
fn a_mapped_range_conflicts_over_the_index_and_over_what_it_leads_to() {
    block_on(async {
        for changed in [index(4), part(4, 1), part(5, 8)] {
            let database = cluster().database();
            let transaction = database.create_transaction();
            mapped(&transaction, (3, 6), ALL, false)
                .await
                .expect("reads");
            transaction.set("z", "x");
            let other = database.create_transaction();
            other.set(changed, "theirs");
            other.commit().await.expect("nobody else is there");
            assert_eq!(transaction.commit().await, Err(Error::not_committed));
        }
    });
}

#[test]
fn a_commit_waits_for_a_mapped_range() {
    block_on(async {
        let cluster = cluster();
        cluster.set_delay_turns(3);
        let database = cluster.database();
        let read = database
            .run(async |transaction| {
                let mapper = packed(&[text("record"), text("{K[2]}"), text("{...}")]);
                let begin = KeySelector::first_greater_or_equal(index(0));
                let end = KeySelector::first_greater_or_equal(index(10));
                Ok(transaction.get_mapped_range(begin, end, mapper, ALL, false))
            })
            .await;
        let result = read.expect("commits").await.expect("the commit waited");
        assert_eq!(result.rows.len(), 10);
    });
}

#[test]
fn what_is_wrong_with_a_mapper_is_said() {
    block_on(async {
        let transaction = cluster().database().create_transaction();
        let wrong = [
            (Bytes::from("\u{7f}no tuple"), Error::mapper_not_tuple),
            (packed(&[text("{K[9]}")]), Error::mapper_bad_index),
            (packed(&[text("{what}")]), Error::mapper_bad_index),
            (packed(&[text("{V[0]}")]), Error::mapper_bad_index),
            (
                packed(&[text("{...}"), text("x")]),
                Error::mapper_bad_range_decriptor,
            ),
        ];
        for (mapper, error) in wrong {
            let begin = KeySelector::first_greater_or_equal(index(0));
            let end = KeySelector::first_greater_or_equal(index(10));
            let read = transaction.get_mapped_range(begin, end, mapper.clone(), ALL, false);
            assert_eq!(read.await, Err(error), "{mapper:?}");
        }
    });
}
