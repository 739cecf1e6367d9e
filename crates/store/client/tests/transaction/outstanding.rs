//! Operations under way when a commit, a retry, a reset or a cancellation comes.

use plinth_client::testing::{CommitFault, MemoryCluster};
use plinth_client::{RangeOptions, Transaction, TransactionOption};
use plinth_core::{Error, Key, KeySelector, Result};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, join_all, spawn, timeout, yield_now};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A cluster that is so slow that no result is there when the commit is called.
fn slow() -> MemoryCluster {
    let rows = (0..100).map(|n| (format!("k{n:02}"), "value"));
    let cluster = MemoryCluster::with_rows(rows);
    cluster.set_delay_turns(3);
    cluster
}

fn first(key: &'static str) -> KeySelector {
    KeySelector::first_greater_or_equal(key)
}

type Ended = Pin<Box<dyn Future<Output = Result<()>>>>;

fn boxed<T: 'static>(read: impl Future<Output = Result<T>> + 'static) -> Ended {
    Box::pin(async move { read.await.map(drop) })
}

/// A future that ends at once, when it is awaited.
fn at_once(end: impl FnOnce() + 'static) -> Ended {
    Box::pin(async move {
        end();
        Ok(())
    })
}

/// One read of each kind.
fn reads_of_each_kind(transaction: &Transaction) -> Vec<Ended> {
    let all = RangeOptions::default();
    let mut reads = vec![
        boxed(transaction.get_read_version()),
        boxed(transaction.get_addresses_for_key("k00")),
        boxed(transaction.get_estimated_range_size_bytes("a".into(), "z".into())),
        boxed(transaction.get_range_split_points("a".into(), "z".into(), 100)),
        boxed(transaction.get(&b"\xff\xff/cluster_file_path"[..], false)),
    ];
    for snapshot in [false, true] {
        reads.push(boxed(transaction.get("k00", snapshot)));
        reads.push(boxed(transaction.get("absent", snapshot)));
        let several = ["k01", "absent"].map(|key| (0, Key::from(key), snapshot));
        reads.push(boxed(transaction.get_together(several, |_| {})));
        reads.push(boxed(transaction.get_key(first("k50"), snapshot)));
        reads.push(boxed(transaction.get_range(
            first("a"),
            first("z"),
            all,
            snapshot,
        )));
        reads.push(boxed(transaction.get_range(
            first("a"),
            first("z"),
            all.reversed(),
            snapshot,
        )));
    }
    reads
}

/// The result of a future if it has ended, without waiting.
fn ended<T>(read: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[test]
fn when_a_commit_has_ended_so_has_every_read_that_was_begun_before_it() {
    for (writes, disabled) in [(false, false), (true, false), (false, true), (true, true)] {
        block_on(async {
            let cluster = slow();
            let transaction = cluster.database().create_transaction();
            if disabled {
                let option = TransactionOption::ReadYourWritesDisable;
                transaction.set_option(option).expect("nothing was read");
            }
            if writes {
                transaction.set("written", "x");
            }
            let mut reads = reads_of_each_kind(&transaction);
            let mut stamp: Pin<Box<dyn Future<Output = _>>> =
                Box::pin(transaction.get_versionstamp());
            transaction.commit().await.expect("nobody else is there");
            drop(transaction);
            for (at, read) in reads.iter_mut().enumerate() {
                let result = ended(read).unwrap_or_else(|| panic!("read {at} is under way"));
                // The cluster in memory does not know where keys are.
                let known = [Ok(()), Err(Error::locality_information_unavailable)];
                assert!(known.contains(&result), "read {at}: {result:?}");
            }
            assert_eq!(ended(&mut stamp).expect("known by now").is_ok(), writes);
        });
    }
}

#[test]
fn a_read_that_the_retry_loop_gives_back_unawaited_has_its_value() {
    block_on(async {
        let database = slow().database();
        for _ in 0..300 {
            let read = database
                .run(async |transaction| Ok(transaction.get("k07", false)))
                .await;
            let value = read.expect("commits").await.expect("the commit waited");
            assert_eq!(value.as_deref(), Some(&b"value"[..]));
        }
    });
}

#[test]
fn a_watch_set_beside_a_read_outlives_a_commit_that_waited_for_both() {
    block_on(async {
        let database = slow().database();
        let both = database
            .run(async |transaction| Ok((transaction.get("k01", true), transaction.watch("k01"))));
        let (read, watch) = both.await.expect("commits");
        assert!(read.await.expect("readable").is_some());
        let change = async |transaction: Transaction| {
            transaction.clear("k01");
            Ok(())
        };
        database.run(change).await.expect("commits");
        assert_eq!(watch.await, Ok(()));
    });
}

#[test]
fn a_commit_does_not_wait_for_a_read_that_nobody_holds_any_more() {
    block_on(async {
        let cluster = slow();
        let database = cluster.database();
        let transaction = database.create_transaction();
        cluster.set_hung(true);
        let abandoned =
            transaction.get_range(first("a"), first("z"), RangeOptions::default(), true);
        let commit = spawn("commit", transaction.commit());
        for _ in 0..10 {
            yield_now().await;
        }
        drop(abandoned);
        let ended = timeout(Duration::from_secs(10), commit).await;
        assert_eq!(ended, Some(Ok(())), "it is told when the read goes");
    });
}

#[test]
fn ten_thousand_reads_under_way_do_not_make_a_commit_slow() {
    block_on(async {
        let cluster = slow();
        let transaction = cluster.database().create_transaction();
        let reads: Vec<_> = (0..10_000)
            .map(|n| boxed(transaction.get(format!("k{n:05}"), true)))
            .collect();
        transaction.commit().await.expect("nobody else is there");
        assert!(join_all(reads).await.into_iter().all(|read| read.is_ok()));
    });
}

#[test]
fn what_is_under_way_is_cancelled_by_a_reset_a_retry_a_cancellation_and_the_end_of_the_handle() {
    block_on(async {
        let cluster = slow();
        let database = cluster.database();
        type End = fn(Transaction) -> Ended;
        let ends: [(&str, End); 4] = [
            ("reset", |t| at_once(move || t.reset())),
            ("cancel", |t| at_once(move || t.cancel())),
            ("drop", |t| at_once(move || drop(t))),
            ("retry", |t| {
                boxed(async move { t.on_error(Error::not_committed).await })
            }),
        ];
        for (name, end) in ends {
            cluster.set_hung(false);
            let transaction = database.create_transaction();
            transaction.get("k00", false).await.expect("readable");
            let mut done = boxed(transaction.get("k01", false));
            transaction.get("k02", false).await.expect("readable");
            cluster.set_hung(true);
            let all = RangeOptions::default();
            let mut under_way = [
                boxed(transaction.get("k03", false)),
                boxed(transaction.get("k03", true)),
                boxed(transaction.get_key(first("k04"), false)),
                boxed(transaction.get_range(first("a"), first("z"), all, true)),
                boxed(transaction.get_addresses_for_key("k00")),
                boxed(transaction.watch("k05")),
                boxed(transaction.get_versionstamp()),
            ];
            for read in &mut under_way {
                assert_eq!(ended(read), None);
            }
            end(transaction).await.expect("another attempt begins");
            for (at, read) in under_way.iter_mut().enumerate() {
                let result = ended(read);
                let cancelled = Some(Err(Error::transaction_cancelled));
                assert_eq!(result, cancelled, "{name}: read {at}");
            }
            cluster.set_hung(false);
            let _ = ended(&mut done); // it was begun and never driven: either result will do
        }
    });
}

#[test]
fn a_watch_fails_as_its_commit_failed() {
    block_on(async {
        for error in [
            Error::not_committed,
            Error::commit_proxy_memory_limit_exceeded,
        ] {
            let cluster = slow();
            let transaction = cluster.database().create_transaction();
            let watch = transaction.watch("k00");
            transaction.set("k01", "x");
            cluster.inject(CommitFault::Refused(error));
            assert_eq!(transaction.commit().await, Err(error));
            assert_eq!(watch.await, Err(error));
        }
        let cluster = slow();
        let transaction = cluster.database().create_transaction();
        let watch = transaction.watch("k00");
        transaction.set("k01", "x");
        cluster.inject(CommitFault::AnswerLost);
        assert_eq!(
            transaction.commit().await,
            Err(Error::commit_unknown_result)
        );
        assert_eq!(watch.await, Err(Error::commit_unknown_result));
    });
}

#[test]
fn a_commit_that_was_refused_before_it_began_decides_watches_and_stamps_too() {
    block_on(async {
        let transaction = slow().database().create_transaction();
        let watch = transaction.watch("k00");
        let stamp = transaction.get_versionstamp();
        transaction.set("k01", vec![0; 200_000]);
        assert_eq!(transaction.commit().await, Err(Error::value_too_large));
        assert_eq!(transaction.commit().await, Err(Error::value_too_large));
        let mut stamp: Pin<Box<dyn Future<Output = _>>> = Box::pin(stamp);
        assert_eq!(
            ended(&mut stamp),
            Some(Err(Error::transaction_invalid_version))
        );
        let watch = pin!(watch);
        assert_eq!(
            timeout(Duration::from_secs(10), watch).await,
            Some(Err(Error::value_too_large))
        );
    });
}

#[test]
fn a_time_out_cuts_questions_about_places_short() {
    block_on(async {
        let cluster = slow();
        let transaction = cluster.database().create_transaction();
        cluster.set_hung(true);
        transaction
            .set_option(TransactionOption::Timeout(20))
            .expect("valid");
        let reads = [
            boxed(transaction.get_addresses_for_key("k00")),
            boxed(transaction.get_estimated_range_size_bytes("a".into(), "z".into())),
            boxed(transaction.get_range_split_points("a".into(), "z".into(), 100)),
        ];
        for read in join_all(reads).await {
            assert_eq!(read, Err(Error::transaction_timed_out));
        }
    });
}
