//! The contents of a commit message, and the outcome of a commit whose answer is lost.

use plinth_client::testing::{CommitFault, MemoryCluster};
use plinth_client::{Transaction, TransactionOption};
use plinth_core::conflict_ranges::ConflictRanges;
use plinth_core::system_keys::{IDEMPOTENCY, IDEMPOTENCY_KEPT};
use plinth_core::{Error, MutationKind};
use plinth_runtime::real::block_on;

fn cluster() -> MemoryCluster {
    MemoryCluster::with_rows([("a", "1"), ("b", "2")])
}

fn begins(packed: &bytes::Bytes) -> Vec<Vec<u8>> {
    let ranges = ConflictRanges::parse(packed.clone()).expect("well formed");
    ranges.iter().map(|range| range.begin.to_vec()).collect()
}

async fn write_after_read(transaction: &Transaction) {
    let _ = transaction.get("a", false).await.expect("readable");
    transaction.set("a", "mine");
}

#[test]
fn a_transaction_that_wrote_nothing_sends_nothing() {
    block_on(async {
        let cluster = cluster();
        let transaction = cluster.database().create_transaction();
        let _ = transaction.get("a", false).await.expect("readable");
        transaction.add_read_conflict_key("b");
        let stamp = transaction.get_versionstamp();
        assert_eq!(transaction.commit().await, Ok(()));
        assert_eq!(stamp.await, Err(Error::no_commit_version));
        assert_eq!(transaction.get_committed_version(), -1);
        assert!(cluster.commits().is_empty());
        let explicit = cluster.database().create_transaction();
        explicit.add_write_conflict_key("a");
        assert_eq!(explicit.commit().await, Ok(()));
        assert_eq!(cluster.commits().len(), 1);
        assert!(explicit.get_committed_version() > 0);
    });
}

#[test]
fn two_transactions_that_read_what_the_other_writes_do_not_both_commit() {
    block_on(async {
        let database = cluster().database();
        let (one, two) = (database.create_transaction(), database.create_transaction());
        for (transaction, read, write) in [(&one, "a", "b"), (&two, "b", "a")] {
            let _ = transaction.get(read, false).await.expect("readable");
            transaction.set(write, "x");
        }
        let stamp = two.get_versionstamp();
        assert_eq!(one.commit().await, Ok(()));
        assert_eq!(two.commit().await, Err(Error::not_committed));
        assert_eq!(stamp.await, Err(Error::transaction_invalid_version));
    });
}

#[test]
fn a_write_that_is_told_not_to_conflict_does_not() {
    block_on(async {
        let database = cluster().database();
        let (reader, writer) = (database.create_transaction(), database.create_transaction());
        write_after_read(&reader).await;
        writer
            .set_option(TransactionOption::NextWriteNoWriteConflictRange)
            .expect("valid");
        writer.atomic_op(MutationKind::Add, "a", [1]);
        writer.set("b", "x");
        assert_eq!(writer.commit().await, Ok(()));
        assert_eq!(reader.commit().await, Ok(()));
    });
}

#[test]
fn a_commit_waits_for_reads_that_were_issued_before_it() {
    block_on(async {
        let cluster = cluster();
        cluster.set_delay_turns(3);
        let transaction = cluster.database().create_transaction();
        let selector = plinth_core::KeySelector::first_greater_than("a");
        let read = transaction.get_key(selector, false);
        let dropped = transaction.get_key(plinth_core::KeySelector::last_less_than("a"), false);
        drop(dropped);
        transaction.set("z", "x");
        assert_eq!(transaction.commit().await, Ok(()));
        assert!(
            begins(&cluster.commits()[0].reads).contains(&b"a\0".to_vec()),
            "its conflict was sent"
        );
        assert_eq!(
            read.await.as_deref(),
            Ok(&b"b"[..]),
            "and its result is still there"
        );
    });
}

#[test]
fn using_a_transaction_during_its_commit_fails_both() {
    block_on(async {
        for protection in [true, false] {
            let cluster = cluster();
            let transaction = cluster.database().create_transaction();
            if !protection {
                transaction
                    .set_option(TransactionOption::UsedDuringCommitProtectionDisable)
                    .expect("valid");
            }
            transaction.set("a", "x");
            let commit = transaction.commit();
            assert_eq!(
                transaction.get("a", false).await,
                Err(Error::used_during_commit)
            );
            let want = if protection {
                Err(Error::used_during_commit)
            } else {
                Ok(())
            };
            assert_eq!(commit.await, want);
            assert_eq!(
                transaction.commit().await,
                Err(Error::used_during_commit),
                "until it is reset"
            );
        }
    });
}

#[test]
fn every_transaction_conflicts_with_itself_unless_it_takes_the_risk() {
    block_on(async {
        let cluster = cluster();
        let database = cluster.database();
        let made_up = |packed: &bytes::Bytes| {
            begins(packed)
                .iter()
                .filter(|k| k.starts_with(b"\xff/SC/"))
                .count()
        };
        for (reads, risky, want) in [(false, false, 1), (true, false, 0), (false, true, 0)] {
            let transaction = database.create_transaction();
            if risky {
                transaction
                    .set_option(TransactionOption::CausalWriteRisky)
                    .expect("valid");
            }
            if reads {
                write_after_read(&transaction).await;
            } else {
                transaction.set("a", "x");
            }
            transaction.commit().await.expect("nobody else is there");
            let sent = cluster.commits().pop().expect("sent");
            assert_eq!((made_up(&sent.reads), made_up(&sent.writes)), (want, want));
        }
    });
}

#[test]
fn a_made_up_key_is_not_sent_twice_if_the_transaction_read_all_system_keys() {
    block_on(async {
        let cluster = cluster();
        let transaction = cluster.database().create_transaction();
        transaction
            .set_option(TransactionOption::ReadSystemKeys)
            .expect("valid");
        transaction.add_read_conflict_range(&b"\xff"[..], &b"\xff\xff"[..]);
        transaction.set("a", "x");
        transaction.commit().await.expect("nobody else is there");
        let sent = cluster.commits().pop().expect("sent");
        assert_eq!(begins(&sent.reads), [b"\xff".to_vec()]);
        let writes = begins(&sent.writes);
        assert!(
            matches!(&writes[..], [own, made_up] if own == b"a" && made_up.starts_with(b"\xff/SC/"))
        );
    });
}

#[test]
fn after_an_unknown_result_the_lost_commit_can_no_longer_happen() {
    block_on(async {
        for reads in [false, true] {
            let cluster = cluster();
            cluster.inject(CommitFault::Late);
            // The answer to the dummy may be lost, or the dummy may be refused: the client repeats it.
            cluster.inject(CommitFault::AnswerLost);
            cluster.inject(CommitFault::Refused(Error::database_locked));
            let transaction = cluster.database().create_transaction();
            if reads {
                write_after_read(&transaction).await;
            } else {
                transaction.set("a", "mine");
            }
            assert_eq!(
                transaction.commit().await,
                Err(Error::commit_unknown_result)
            );
            assert!(transaction.get_committed_version() < 0);
            assert_eq!(cluster.deliver_late_commits(), [Err(Error::not_committed)]);
            assert_eq!(
                cluster.rows().get(&b"a"[..]).map(|v| &v[..]),
                Some(&b"1"[..])
            );
            let dummies = cluster.commits().len() - 1;
            assert!(dummies >= 2, "{dummies} dummies");
            assert!(
                cluster.commits()[1..]
                    .iter()
                    .all(|dummy| dummy.mutations.is_empty())
            );
        }
    });
}

#[test]
fn without_the_fence_a_lost_commit_may_come_late() {
    block_on(async {
        let cluster = cluster();
        cluster.inject(CommitFault::Late);
        let transaction = cluster.database().create_transaction();
        transaction
            .set_option(TransactionOption::CausalWriteRisky)
            .expect("valid");
        transaction.set("a", "mine");
        assert_eq!(
            transaction.commit().await,
            Err(Error::commit_unknown_result)
        );
        assert!(matches!(cluster.deliver_late_commits()[..], [Ok(_)]));
    });
}

#[test]
fn with_automatic_idempotency_a_lost_answer_is_looked_up() {
    block_on(async {
        for (fault, happens) in [
            (CommitFault::AnswerLost, true),
            (CommitFault::RequestLost, false),
            (CommitFault::Late, false),
        ] {
            let cluster = cluster();
            cluster.inject(fault);
            let transaction = cluster.database().create_transaction();
            for option in [
                TransactionOption::AutomaticIdempotency,
                TransactionOption::CausalWriteRisky,
            ] {
                transaction.set_option(option).expect("valid");
            }
            transaction.set("a", "mine");
            let outcome = transaction.commit().await;
            let rows = cluster.rows();
            let proofs = rows
                .keys()
                .filter(|key| key.starts_with(IDEMPOTENCY))
                .count();
            if happens {
                assert_eq!(outcome, Ok(()));
                assert!(transaction.get_committed_version() > 0 && proofs == 1);
                assert_eq!(rows.get(&b"a"[..]).map(|v| &v[..]), Some(&b"mine"[..]));
            } else {
                // The commit never will happen: the application may simply run it again.
                assert_eq!(outcome, Err(Error::not_committed));
                assert_eq!(proofs, 0);
                let late = cluster.deliver_late_commits();
                assert!(
                    late.iter()
                        .all(|commit| *commit == Err(Error::not_committed))
                );
            }
        }
    });
}

#[test]
fn a_transaction_beyond_its_size_is_not_sent() {
    block_on(async {
        let cluster = cluster();
        let database = cluster.database();
        let transaction = database.create_transaction();
        for i in 0..101u8 {
            transaction.set([i], vec![0; 100_000]);
        }
        assert!(transaction.get_approximate_size() > 10_000_000);
        assert_eq!(
            transaction.commit().await,
            Err(Error::transaction_too_large)
        );
        let small = database.create_transaction();
        small
            .set_option(TransactionOption::SizeLimit(100))
            .expect("valid");
        small.set("k", "v");
        assert!(small.get_approximate_size() < 100);
        small.add_read_conflict_range("a", vec![b'b'; 100]);
        assert_eq!(
            small.commit().await,
            Err(Error::transaction_too_large),
            "conflict ranges count"
        );
        assert!(cluster.commits().is_empty());
    });
}

#[test]
fn a_client_that_looks_for_its_commit_a_day_later_is_not_told_that_it_did_not_happen() {
    block_on(async {
        for (versions, expected) in [
            (IDEMPOTENCY_KEPT / 2, Ok(())),
            (IDEMPOTENCY_KEPT * 2, Err(Error::commit_unknown_result)),
        ] {
            let cluster = cluster();
            cluster.inject(CommitFault::AnswerLostFor(versions));
            let transaction = cluster.database().create_transaction();
            let option = TransactionOption::AutomaticIdempotency;
            transaction.set_option(option).expect("valid");
            transaction.set("a", "mine");
            assert_eq!(transaction.commit().await, expected);
            assert!(cluster.rows().contains_key(&b"a"[..]));
        }
    });
}
