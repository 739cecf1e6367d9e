//! Reads, limits, errors and options, one behaviour a test.

use plinth_client::testing::{CommitFault, MemoryCluster};
use plinth_client::{DatabaseOption, RangeOptions, StreamingMode, Transaction, TransactionOption};
use plinth_core::conflict_ranges::{ConflictRanges, Endpoint};
use plinth_core::{Error, Key, KeySelector, MutationKind, Version};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, join_all, now, sleep, spawn};
use std::cell::RefCell;
use std::rc::Rc;

fn selectors(begin: &'static str, end: &'static str) -> (KeySelector, KeySelector) {
    (
        KeySelector::first_greater_or_equal(begin),
        KeySelector::first_greater_or_equal(end),
    )
}

/// The ranges as text, `begin..end`, without the made-up ones.
fn texts(packed: bytes::Bytes) -> Vec<String> {
    let ranges = ConflictRanges::parse(packed).expect("well formed");
    let text = |bytes: &[u8]| plinth_core::key::printable(bytes);
    let real = ranges
        .iter()
        .filter(|range| !range.begin.starts_with(b"\xff/SC/"));
    real.map(|range| match range.end == Endpoint::after(range.begin) {
        true => text(range.begin),
        false => format!("{}..{}", text(range.begin), text(&range.end.to_key())),
    })
    .collect()
}

async fn read_conflicts(cluster: &MemoryCluster, transaction: &Transaction) -> Vec<String> {
    transaction.add_write_conflict_key("zz");
    transaction.commit().await.expect("nobody else is there");
    texts(cluster.commits().pop().expect("sent").reads)
}

fn abc() -> MemoryCluster {
    MemoryCluster::with_rows([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")])
}

/// The error of a setter, which the transaction reports later.
async fn complaint(transaction: &Transaction) -> Option<Error> {
    let first = transaction.get("a", true).await.err();
    assert_eq!(
        transaction.commit().await.err(),
        first,
        "commit says the same"
    );
    first
}

#[test]
fn a_limited_range_read_conflicts_up_to_its_last_row_only() {
    block_on(async {
        let (begin, end) = selectors("a", "z");
        for (options, want) in [
            (RangeOptions::limit(2), "a..b\\x00"),
            (RangeOptions::limit(2).reversed(), "c..z"),
            (RangeOptions::default(), "a..z"),
        ] {
            let cluster = abc();
            let transaction = cluster.database().create_transaction();
            let result = transaction
                .get_range(begin.clone(), end.clone(), options, false)
                .await
                .expect("readable");
            assert_eq!(result.more, options.limit == 2);
            assert_eq!(read_conflicts(&cluster, &transaction).await, [want]);
        }
    });
}

#[test]
fn reads_that_are_started_together_are_what_each_would_be_alone() {
    block_on(async {
        let cluster = abc();
        let keys: [(&'static [u8], bool); 7] = [
            (b"a", false),
            (b"b", true),
            (b"c", false),
            (b"d", false),
            (b"e", false),
            (b"\xff/s", false),
            (b"\xff\xff/cluster_file_path", false),
        ];
        let mut of_each_way = Vec::new();
        for together in [false, true] {
            let transaction = cluster.database().create_transaction();
            transaction.set("c", "own");
            transaction.atomic_op(MutationKind::ByteMax, "d", "9");
            let results = match together {
                false => {
                    let reads = keys.map(|(key, snapshot)| transaction.get(key, snapshot));
                    join_all(reads.into_iter().collect::<Vec<_>>()).await
                }
                true => {
                    let come = Rc::new(RefCell::new(vec![None; keys.len()]));
                    let kept = come.clone();
                    let reads = keys.iter().enumerate();
                    let reads =
                        reads.map(|(at, (key, snapshot))| (at, Key::from_static(key), *snapshot));
                    let reading = transaction.get_together(reads, move |results| {
                        for (at, result) in results.drain(..) {
                            let before = kept.borrow_mut()[at].replace(result);
                            assert_eq!(before, None, "{at} came twice");
                        }
                    });
                    reading.await.expect("nothing was cancelled");
                    come.take().into_iter().map(Option::unwrap).collect()
                }
            };
            assert_eq!(results[2], Ok(Some("own".into())));
            assert_eq!(results[5], Err(Error::key_outside_legal_range));
            of_each_way.push((results, read_conflicts(&cluster, &transaction).await));
        }
        assert_eq!(of_each_way[0], of_each_way[1]);
        assert_eq!(of_each_way[0].1, ["a", "d", "e"]);
    });
}

#[test]
fn a_selector_conflicts_between_its_key_and_its_result() {
    block_on(async {
        for (selector, found, want) in [
            (KeySelector::first_greater_or_equal("b"), "b", "b"),
            (KeySelector::first_greater_than("b"), "c", "b\\x00..c\\x00"),
            (KeySelector::last_less_than("c"), "b", "b..c"),
            (KeySelector::last_less_or_equal("c"), "c", "c"),
            (KeySelector::last_less_than("a"), "", "..a"),
            (KeySelector::new("b", false, 9), "\u{0}", "b..\\xff"),
        ] {
            let cluster = abc();
            let transaction = cluster.database().create_transaction();
            let key = transaction
                .get_key(selector, false)
                .await
                .expect("readable");
            assert!(key == found || key[..] == *b"\xff", "{key:?} for {found:?}");
            assert_eq!(read_conflicts(&cluster, &transaction).await, [want]);
        }
    });
}

#[test]
fn reads_that_own_writes_answer_conflict_with_nothing_and_ask_nobody() {
    block_on(async {
        let cluster = abc();
        let transaction = cluster.database().create_transaction();
        transaction.set("a", "x");
        transaction.clear_range("b", "d");
        transaction.atomic_op(MutationKind::Add, "c", [1]);
        assert_eq!(
            transaction
                .get("a", false)
                .await
                .expect("readable")
                .as_deref(),
            Some(&b"x"[..])
        );
        assert_eq!(transaction.get("b", false).await.expect("readable"), None);
        assert_eq!(
            transaction
                .get("c", false)
                .await
                .expect("readable")
                .as_deref(),
            Some(&[1][..])
        );
        let (begin, end) = selectors("b", "d");
        let rows = transaction
            .get_range_all(begin, end, RangeOptions::default(), false)
            .await
            .expect("readable");
        assert_eq!(rows.len(), 1);
        assert_eq!(cluster.reads(), 0);
        assert_eq!(read_conflicts(&cluster, &transaction).await, [""; 0]);
    });
}

#[test]
fn an_atomic_operation_conflicts_when_it_is_read_and_not_before() {
    block_on(async {
        for (read, snapshot, want) in [
            (false, false, vec![]),
            (true, true, vec![]),
            (true, false, vec!["a"]),
        ] {
            let cluster = MemoryCluster::with_rows([("a", [5u8].to_vec())]);
            let transaction = cluster.database().create_transaction();
            transaction.atomic_op(MutationKind::Add, "a", [2]);
            if read {
                assert_eq!(
                    transaction
                        .get("a", snapshot)
                        .await
                        .expect("readable")
                        .as_deref(),
                    Some(&[7][..])
                );
            }
            assert_eq!(read_conflicts(&cluster, &transaction).await, want);
            assert_eq!(
                cluster.rows().get(&b"a"[..]).map(|v| &v[..]),
                Some(&[7][..])
            );
        }
    });
}

#[test]
fn a_versionstamped_operation_makes_its_keys_unreadable_and_the_commit_fails_like_the_read() {
    block_on(async {
        let cluster = abc();
        let database = cluster.database();
        let transaction = database.create_transaction();
        transaction.atomic_op(
            MutationKind::SetVersionstampedValue,
            "b",
            b"0123456789\0\0\0\0",
        );
        assert_eq!(
            transaction.get("a", false).await.map(|v| v.is_some()),
            Ok(true)
        );
        let (begin, end) = selectors("a", "c");
        let one = transaction
            .get_range(begin.clone(), end.clone(), RangeOptions::limit(1), true)
            .await;
        assert_eq!(
            one.map(|r| r.rows.len()),
            Ok(1),
            "what lies before it can be read"
        );
        assert_eq!(
            transaction
                .get_range(begin, end, RangeOptions::default(), true)
                .await
                .err(),
            Some(Error::accessed_unreadable)
        );
        assert_eq!(transaction.commit().await, Err(Error::accessed_unreadable));
    });
}

#[test]
fn a_versionstamped_key_hides_what_it_may_become_and_declares_it_written() {
    block_on(async {
        let cluster = abc();
        let database = cluster.database();
        let transaction = database.create_transaction();
        let version = transaction.get_read_version().await.expect("a version");
        transaction.atomic_op(
            MutationKind::SetVersionstampedKey,
            b"q/0123456789\x02\0\0\0",
            "v",
        );
        let key = |v: Version| [&b"q/"[..], &v.to_be_bytes(), &[0, 0]].concat();
        assert_eq!(
            transaction.get(key(version + 1), true).await,
            Err(Error::accessed_unreadable)
        );
        assert_eq!(transaction.get(key(version - 1), true).await, Ok(None));
        transaction.reset();
        transaction.atomic_op(
            MutationKind::SetVersionstampedKey,
            b"q/0123456789\x02\0\0\0",
            "v",
        );
        let stamp = transaction.get_versionstamp();
        transaction.commit().await.expect("nobody else is there");
        let stamp = stamp.await.expect("committed");
        assert_eq!(stamp.version(), transaction.get_committed_version());
        assert!(
            cluster
                .rows()
                .contains_key(&[&b"q/"[..], &stamp.0].concat()[..])
        );
        let sent = cluster.commits().pop().expect("sent");
        let written = ConflictRanges::parse(sent.writes).expect("well formed");
        let range = written.iter().next().expect("one");
        assert!(
            range.begin <= &key(stamp.version())[..],
            "the stamp lies in what was declared written"
        );
        assert!(
            range.begin > &key(sent.read_version - 1)[..],
            "and nothing older does"
        );
    });
}

#[test]
fn what_is_wrong_with_a_setter_comes_out_of_the_next_read_and_of_the_commit() {
    block_on(async {
        let database = abc().database();
        let cases: Vec<(Error, Box<dyn Fn(&Transaction)>)> = vec![
            (
                Error::key_too_large,
                Box::new(|t| t.set(vec![b'k'; 10_001], "v")),
            ),
            (
                Error::value_too_large,
                Box::new(|t| t.set("k", vec![0; 100_001])),
            ),
            (
                Error::key_outside_legal_range,
                Box::new(|t| t.set(b"\xff/x", "v")),
            ),
            (
                Error::key_outside_legal_range,
                Box::new(|t| t.clear(b"\xff")),
            ),
            (
                Error::key_outside_legal_range,
                Box::new(|t| t.clear_range("a", b"\xff\x01")),
            ),
            (Error::inverted_range, Box::new(|t| t.clear_range("b", "a"))),
            (
                Error::inverted_range,
                Box::new(|t| t.add_read_conflict_range("b", "a")),
            ),
            (
                Error::key_outside_legal_range,
                Box::new(|t| t.add_write_conflict_range("a", b"\xff\x01")),
            ),
            (
                Error::invalid_mutation_type,
                Box::new(|t| t.atomic_op(MutationKind::Set, "a", "v")),
            ),
            (
                Error::client_invalid_operation,
                Box::new(|t| {
                    t.atomic_op(MutationKind::SetVersionstampedValue, "a", b"short\0\0\0\0")
                }),
            ),
            (Error::version_invalid, Box::new(|t| t.set_read_version(0))),
        ];
        for (error, call) in cases {
            let transaction = database.create_transaction();
            call(&transaction);
            assert_eq!(complaint(&transaction).await, Some(error));
        }
        let fine = database.create_transaction();
        fine.set(vec![b'k'; 10_000], vec![0; 100_000]);
        fine.clear(vec![b'k'; 20_000]);
        fine.clear_range("a", b"\xff");
        fine.clear_range("b", "b");
        fine.commit().await.expect("all within limits");
    });
}

#[test]
fn a_read_outside_the_legal_range_or_with_senseless_limits_is_refused() {
    block_on(async {
        let transaction = abc().database().create_transaction();
        assert_eq!(
            transaction.get(b"\xff", false).await,
            Err(Error::key_outside_legal_range)
        );
        assert_eq!(
            transaction.get(vec![b'k'; 10_001], false).await,
            Ok(None),
            "no such key can be"
        );
        let outside = KeySelector::first_greater_or_equal(&b"\xff\x01"[..]);
        assert_eq!(
            transaction.get_key(outside, false).await,
            Err(Error::key_outside_legal_range)
        );
        let (begin, end) = selectors("a", "z");
        let read = |options| transaction.get_range(begin.clone(), end.clone(), options, false);
        assert_eq!(
            read(RangeOptions::limit(-1)).await.err(),
            Some(Error::range_limits_invalid)
        );
        let exact = RangeOptions {
            mode: StreamingMode::Exact,
            ..Default::default()
        };
        assert_eq!(
            read(exact).await.err(),
            Some(Error::exact_mode_without_limits)
        );
        let system = transaction.database().create_transaction();
        system
            .set_option(TransactionOption::ReadSystemKeys)
            .expect("valid");
        assert_eq!(system.get(b"\xff/x", false).await, Ok(None));
        system.set(b"\xff/x", "v");
        assert_eq!(
            complaint(&system).await,
            Some(Error::key_outside_legal_range)
        );
        system.reset();
        system
            .set_option(TransactionOption::AccessSystemKeys)
            .expect("valid");
        system.set(b"\xff/x", "v");
        system.commit().await.expect("allowed now");
    });
}

#[test]
fn a_read_that_goes_past_own_writes_is_chosen_before_the_first_operation() {
    block_on(async {
        let cluster = abc();
        let transaction = cluster.database().create_transaction();
        transaction
            .set_option(TransactionOption::ReadYourWritesDisable)
            .expect("nothing has happened yet");
        transaction.set("a", "x");
        assert_eq!(
            transaction
                .get("a", false)
                .await
                .expect("readable")
                .as_deref(),
            Some(&b"1"[..])
        );
        assert_eq!(transaction.watch("a").await, Err(Error::watches_disabled));
        assert_eq!(read_conflicts(&cluster, &transaction).await, ["a"]);
        let late = cluster.database().create_transaction();
        late.set("a", "x");
        let refused = late.set_option(TransactionOption::ReadYourWritesDisable);
        assert_eq!(refused, Err(Error::client_invalid_operation));
    });
}

#[test]
fn everything_fails_when_the_time_is_up_and_a_retry_does_not_help() {
    block_on(async {
        let cluster = abc();
        cluster.set_hung(true);
        let database = cluster.database();
        database
            .set_option(DatabaseOption::TransactionTimeout(30))
            .expect("valid");
        let transaction = database.create_transaction();
        let started = now();
        let (begin, end) = selectors("a", "z");
        let range = transaction.get_range(begin, end, RangeOptions::default(), false);
        let point = transaction.get("a", false);
        let version = transaction.get_read_version();
        assert_eq!(point.await, Err(Error::transaction_timed_out));
        assert_eq!(range.await, Err(Error::transaction_timed_out));
        assert_eq!(version.await, Err(Error::transaction_timed_out));
        assert!(started.elapsed() >= Duration::from_millis(30));
        assert_eq!(
            transaction.commit().await,
            Err(Error::transaction_timed_out)
        );
        assert_eq!(
            transaction.on_error(Error::not_committed).await,
            Err(Error::transaction_timed_out)
        );
        cluster.set_hung(false);
        transaction.reset();
        assert_eq!(
            transaction.get("a", false).await.map(|v| v.is_some()),
            Ok(true),
            "the time starts anew"
        );
    });
}

#[test]
fn a_commit_that_was_sent_when_the_time_is_up_stays_unanswered() {
    block_on(async {
        let cluster = abc();
        let database = cluster.database();
        let write = async || {
            let transaction = database.create_transaction();
            let timeout = TransactionOption::Timeout(30);
            transaction.set_option(timeout).expect("valid");
            transaction.set("a", "1");
            transaction.commit().await
        };
        assert_eq!(write().await, Ok(()));
        cluster.set_hung(true);
        assert_eq!(write().await, Err(Error::transaction_timed_out));
        assert_eq!(database.unanswered_commits(), 0, "it had no read version");
        cluster.set_hung(false);
        cluster.set_commits_late(Duration::ZERO, Duration::from_secs(60));
        assert_eq!(write().await, Err(Error::transaction_timed_out));
        assert_eq!(database.unanswered_commits(), 1);
    });
}

#[test]
fn time_that_passed_before_the_loop_heard_of_the_transaction_counts() {
    block_on(async {
        let asked_for = now();
        sleep(Duration::from_millis(30)).await;
        let transaction = abc().database().create_transaction_at(asked_for);
        transaction
            .set_option(TransactionOption::Timeout(20))
            .expect("valid");
        let late = transaction.get("a", false).await;
        assert_eq!(late, Err(Error::transaction_timed_out));
        let asked_for = now();
        transaction.reset_at(asked_for);
        transaction
            .set_option(TransactionOption::Timeout(60_000))
            .expect("valid");
        assert!(transaction.get("a", false).await.is_ok());
    });
}

#[test]
fn the_time_runs_on_through_retries() {
    block_on(async {
        let transaction = abc().database().create_transaction();
        transaction
            .set_option(TransactionOption::Timeout(40))
            .expect("valid");
        transaction
            .set_option(TransactionOption::MaxRetryDelay(5))
            .expect("valid");
        let started = now();
        let error = loop {
            if let Err(error) = transaction.on_error(Error::not_committed).await {
                break error;
            }
        };
        assert_eq!(error, Error::transaction_timed_out);
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn cancelling_ends_what_is_under_way() {
    block_on(async {
        let cluster = abc();
        cluster.set_hung(true);
        let transaction = cluster.database().create_transaction();
        let reads: Vec<_> = ["a", "b"].map(|key| transaction.get(key, false)).into();
        let other = transaction.clone();
        let cancel = spawn("cancel", async move {
            sleep(Duration::from_millis(1)).await;
            other.cancel();
        });
        let results = join_all(reads).await;
        cancel.await;
        assert_eq!(results, [const { Err(Error::transaction_cancelled) }; 2]);
        transaction.reset();
        cluster.set_hung(false);
        assert_eq!(
            transaction.get("a", false).await.map(|v| v.is_some()),
            Ok(true)
        );
        let orphan = transaction.get("b", false);
        cluster.set_hung(true);
        drop(transaction);
        assert_eq!(
            orphan.await,
            Err(Error::transaction_cancelled),
            "the last handle is gone"
        );
    });
}

#[test]
fn only_errors_that_pass_are_retried_and_only_so_often() {
    block_on(async {
        let transaction = abc().database().create_transaction();
        transaction
            .set_option(TransactionOption::RetryLimit(2))
            .expect("valid");
        transaction
            .set_option(TransactionOption::MaxRetryDelay(1))
            .expect("valid");
        transaction.set("a", "x");
        assert_eq!(transaction.on_error(Error::not_committed).await, Ok(()));
        assert_eq!(
            transaction
                .get("a", true)
                .await
                .expect("readable")
                .as_deref(),
            Some(&b"1"[..]),
            "forgotten"
        );
        assert_eq!(
            transaction.on_error(Error::transaction_too_old).await,
            Ok(())
        );
        assert_eq!(
            transaction.on_error(Error::not_committed).await,
            Err(Error::not_committed)
        );
        assert_eq!(
            transaction.get("a", true).await,
            Err(Error::transaction_cancelled)
        );
        transaction.reset();
        assert_eq!(
            transaction.on_error(Error::key_too_large).await,
            Err(Error::key_too_large)
        );
    });
}

#[test]
fn the_retry_loop_runs_until_it_has_committed() {
    block_on(async {
        let cluster = MemoryCluster::with_rows([("n", [0u8].to_vec())]);
        let database = cluster.database();
        database
            .set_option(DatabaseOption::TransactionMaxRetryDelay(2))
            .expect("valid");
        for fault in [
            CommitFault::Refused(Error::not_committed),
            CommitFault::RequestLost,
            CommitFault::Refused(Error::database_locked),
        ] {
            cluster.inject(fault);
        }
        let mut runs = 0;
        let increment = async |transaction: Transaction| {
            runs += 1;
            let value = transaction.get("n", false).await?.expect("there");
            transaction.set("n", [value[0] + 1]);
            Ok(value[0])
        };
        assert_eq!(database.run(increment).await, Ok(0));
        assert_eq!(cluster.rows().get(&b"n"[..]).map(|v| v[0]), Some(1));
        // The last fault hit the dummy that fences off the lost request.
        assert_eq!(runs, 3);
        let refused = database
            .run(|_| async { Err::<(), _>(Error::client_invalid_operation) })
            .await;
        assert_eq!(refused, Err(Error::client_invalid_operation));
    });
}

#[test]
fn a_watch_ends_when_the_value_is_no_longer_what_its_transaction_saw() {
    block_on(async {
        let cluster = abc();
        let database = cluster.database();
        let transaction = database.create_transaction();
        let unchanged = transaction.watch("a");
        let own_before = {
            transaction.set("b", "x");
            transaction.watch("b")
        };
        let own_after = transaction.watch("c");
        transaction.set("c", "x");
        transaction.commit().await.expect("nobody else is there");
        assert_eq!(
            own_after.await,
            Ok(()),
            "changed by its own transaction after it was set"
        );
        let set = |key: &'static str, value: &'static str| {
            let database = database.clone();
            async move {
                database
                    .run(async |t: Transaction| {
                        t.set(key, value);
                        Ok(())
                    })
                    .await
                    .expect("committed");
            }
        };
        let mut own_before = own_before;
        set("a", "1").await;
        let early = plinth_runtime::timeout(Duration::from_millis(5), &mut own_before).await;
        assert_eq!(early, None, "it saw its own write");
        set("b", "y").await;
        assert_eq!(own_before.await, Ok(()));
        set("a", "9").await;
        assert_eq!(unchanged.await, Ok(()));
    });
}

#[test]
fn a_watch_of_a_read_only_transaction_is_registered_by_its_commit_and_fails_without_one() {
    block_on(async {
        let cluster = abc();
        let database = cluster.database();
        database
            .set_option(DatabaseOption::MaxWatches(1))
            .expect("valid");
        let transaction = database.create_transaction();
        let watch = transaction.watch("a");
        assert_eq!(transaction.watch("b").await, Err(Error::too_many_watches));
        transaction.commit().await.expect("read-only");
        assert!(cluster.commits().is_empty());
        database
            .run(async |t: Transaction| {
                t.clear("a");
                Ok(())
            })
            .await
            .expect("committed");
        assert_eq!(watch.await, Ok(()));
        let orphan = database.create_transaction().watch("a");
        assert_eq!(
            orphan.await,
            Err(Error::transaction_cancelled),
            "its place is free, its transaction gone"
        );
    });
}

#[test]
fn a_read_version_is_set_once_and_rules_every_read() {
    block_on(async {
        let cluster = abc();
        let database = cluster.database();
        let old = cluster.version();
        database
            .run(async |t: Transaction| {
                t.set("a", "new");
                Ok(())
            })
            .await
            .expect("committed");
        let transaction = database.create_transaction();
        transaction.set_read_version(old);
        assert_eq!(transaction.get_read_version().await, Ok(old));
        assert_eq!(
            transaction
                .get("a", false)
                .await
                .expect("readable")
                .as_deref(),
            Some(&b"1"[..])
        );
        transaction.set_read_version(old + 1);
        assert_eq!(
            complaint(&transaction).await,
            Some(Error::read_version_already_set)
        );
        transaction.reset();
        transaction.set_read_version(cluster.version() + 1_000);
        assert_eq!(
            transaction.get("a", false).await,
            Err(Error::future_version)
        );
        transaction.reset();
        cluster.set_oldest(cluster.version());
        transaction.set_read_version(old);
        assert_eq!(
            transaction.get("a", false).await,
            Err(Error::transaction_too_old)
        );
    });
}

#[test]
fn a_watch_and_a_read_outlive_the_transaction_that_committed_them() {
    block_on(async {
        let cluster = abc();
        cluster.set_delay_turns(2);
        let database = cluster.database();
        let transaction = database.create_transaction();
        let watch = transaction.watch("a");
        let read = transaction.get_key(KeySelector::first_greater_than("a"), false);
        transaction.set("z", "x");
        transaction.commit().await.expect("nobody else is there");
        drop(transaction);
        assert_eq!(read.await.as_deref(), Ok(&b"b"[..]));
        let change = async |t: Transaction| {
            t.clear("a");
            Ok(())
        };
        database.run(change).await.expect("committed");
        assert_eq!(watch.await, Ok(()));
    });
}

#[test]
fn a_read_that_failed_fails_the_commit() {
    block_on(async {
        let cluster = abc();
        let transaction = cluster.database().create_transaction();
        transaction.set_read_version(cluster.version());
        cluster.set_oldest(cluster.version() + 1);
        assert_eq!(
            transaction.get("a", true).await,
            Err(Error::transaction_too_old)
        );
        transaction.set("b", "x");
        assert_eq!(transaction.commit().await, Err(Error::transaction_too_old));
        assert!(cluster.commits().is_empty());
    });
}
