//! Handles in tokio and out of it, against an embedded cluster: what they promise beyond the client below them.

#![allow(clippy::disallowed_methods)] // tests run in a runtime of their own

use futures_util::future::poll_immediate;
use futures_util::{StreamExt, TryStreamExt};
use plinth::{Database, DatabaseOption, Error, KeyRange, MutationKind, Result, Selector, Subspace};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An embedded cluster in a directory of its own, and that directory.
async fn open_in(name: &str) -> (Database, PathBuf) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("handles-{name}"));
    let _ = std::fs::remove_dir_all(&directory);
    let database = Database::open_embedded(&directory).await;
    (database.expect("it opens"), directory)
}

/// Runs a test with a database, and removes its directory.
async fn with<Fut: Future<Output = ()>>(name: &str, test: impl FnOnce(Database) -> Fut) {
    let (database, directory) = open_in(name).await;
    test(database.clone()).await;
    database.close().await;
    std::fs::remove_dir_all(directory).expect("it is there");
}

async fn put(db: &Database, key: &str, value: &str) {
    db.run(async |tr| {
        tr.set(key, value);
        Ok(())
    })
    .await
    .expect("commits");
}

fn number(value: Option<plinth::Value>) -> u64 {
    value.map_or(0, |bytes| {
        u64::from_le_bytes(bytes[..].try_into().expect("eight bytes"))
    })
}

#[test]
fn handles_may_go_to_any_thread() {
    fn everywhere<T: Clone + Send + Sync + 'static>() {}
    everywhere::<Database>();
    everywhere::<plinth::Transaction>();
    everywhere::<plinth::Snapshot>();
    fn between<T: Send + Sync + 'static>() {}
    between::<plinth::Reply<Option<plinth::Value>>>();
    between::<plinth::Rows>();
    between::<plinth::Tuples<(String, i64)>>();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_that_add_to_one_number_lose_nothing() {
    with("count", async |db| {
        let tasks = (0..100).map(|task| {
            let (db, name) = (db.clone(), format!("task {task}"));
            tokio::spawn(async move {
                db.run(async |tr| {
                    let count = number(tr.get("count").await?) + 1;
                    tr.set("count", count.to_le_bytes());
                    tr.set(&name, count.to_le_bytes());
                    Ok(())
                })
                .await
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("it ends").expect("it commits");
        }
        let read = db.run(async |tr| {
            let seen = tr.range(KeyRange::prefix("task ")).all().await?;
            Ok((number(tr.get("count").await?), seen))
        });
        let (count, seen) = read.await.expect("reads");
        let mut seen: Vec<u64> = seen.into_iter().map(|(_, v)| number(Some(v))).collect();
        seen.sort_unstable();
        assert_eq!(count, 100);
        assert_eq!(seen, (1..=100).collect::<Vec<_>>());
    })
    .await;
}

/// An executor that is not tokio.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_database_works_without_tokio() {
    block_on(with("no-tokio", async |db| {
        put(&db, "a", "1").await;
        let value = db.run(async |tr| tr.get("a").await).await.expect("reads");
        assert_eq!(value.as_deref(), Some(&b"1"[..]));
    }));
}

#[derive(Debug)]
enum AppError {
    Refused,
    Database(#[allow(dead_code)] Error),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        AppError::Database(error)
    }
}

#[tokio::test]
async fn an_error_of_the_application_ends_the_run_and_nothing_happens() {
    with("refused", async |db| {
        let tries = AtomicUsize::new(0);
        let refused: Result<(), AppError> = db
            .try_run(async |tr| {
                tries.fetch_add(1, Ordering::Relaxed);
                tr.get("a").await?;
                tr.set("a", "1");
                Err(AppError::Refused)
            })
            .await;
        assert!(matches!(refused, Err(AppError::Refused)));
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        let value = db.run(async |tr| tr.get("a").await).await;
        assert_eq!(value, Ok(None));
    })
    .await;
}

#[tokio::test]
async fn a_retryable_error_inside_one_of_the_application_is_retried() {
    with("retried", async |db| {
        // A version before the database's first: too old, in the first attempt only.
        let tries = AtomicUsize::new(0);
        let too_old = |tr: &plinth::Transaction| {
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                tr.set_read_version(1);
            }
        };
        let wrapped: Result<(), AppError> = db
            .try_run(async |tr| {
                too_old(&tr);
                tr.get("a").await?;
                Ok(())
            })
            .await;
        wrapped.expect("the second attempt succeeds");
        assert_eq!(tries.swap(0, Ordering::Relaxed), 2);
        // Made into something else by the body.
        let lost: Result<(), AppError> = db
            .try_run(async |tr| {
                too_old(&tr);
                tr.get("a").await.map_err(|_| AppError::Refused)?;
                Ok(())
            })
            .await;
        lost.expect("the second attempt succeeds");
        assert_eq!(tries.swap(0, Ordering::Relaxed), 2);
        // In a box, and not from this transaction.
        type Boxed = Box<dyn std::error::Error + Send + Sync>;
        let boxed: Result<(), Boxed> = db
            .try_run(async |_| match tries.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::not_committed.into()),
                _ => Ok(()),
            })
            .await;
        boxed.expect("the second attempt succeeds");
        assert_eq!(tries.load(Ordering::Relaxed), 2);
    })
    .await;
}

#[tokio::test]
async fn a_run_gives_up_with_the_error_of_the_application() {
    with("gives-up", async |db| {
        db.set_option(DatabaseOption::TransactionRetryLimit(2))
            .await
            .expect("a good value");
        let tries = AtomicUsize::new(0);
        let refused: Result<(), AppError> = db
            .try_run(async |tr| {
                tries.fetch_add(1, Ordering::Relaxed);
                tr.set_read_version(1);
                tr.get("a").await.map_err(|_| AppError::Refused)?;
                Ok(())
            })
            .await;
        assert!(matches!(refused, Err(AppError::Refused)), "{refused:?}");
        assert_eq!(tries.load(Ordering::Relaxed), 3);
        let out_of_range = db.set_option(DatabaseOption::MaxWatches(-1)).await;
        assert_eq!(out_of_range, Err(Error::invalid_option_value));
    })
    .await;
}

#[tokio::test]
async fn a_read_sees_the_writes_called_before_it_and_none_called_after() {
    with("order", async |db| {
        let tr = db.create_transaction();
        let before = tr.get("a");
        tr.set("a", "1");
        let between = tr.get("a");
        tr.clear_range("a".."b");
        let after = tr.get("a");
        // Awaited in another order.
        assert_eq!(after.await, Ok(None));
        assert_eq!(before.await, Ok(None));
        assert_eq!(between.await.expect("reads").as_deref(), Some(&b"1"[..]));
        // More than a buffer holds.
        for i in 0..5000u32 {
            tr.set(plinth::tuple::pack((i,)), [0; 100]);
        }
        let rows = tr.range(..).all().await.expect("reads");
        assert_eq!(rows.len(), 5000);
        tr.commit().await.expect("commits");
        assert!(tr.committed_version().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_only_reads_commits_and_then_is_over() {
    with("only-reads", async |db| {
        let tr = db.create_transaction();
        assert_eq!(tr.get("a").await, Ok(None));
        tr.commit().await.expect("commits");
        assert_eq!(tr.committed_version(), None);
        assert_eq!(tr.get("a").await, Err(Error::used_during_commit));
        tr.reset();
        assert_eq!(tr.get("a").await, Ok(None));
        // A read that failed fails the commit.
        tr.reset();
        tr.set_read_version(1);
        assert_eq!(tr.get("a").await, Err(Error::transaction_too_old));
        assert_eq!(tr.commit().await, Err(Error::transaction_too_old));
    })
    .await;
}

#[tokio::test]
async fn a_commit_ends_after_the_reads_that_began_before_it() {
    with("waits", async |db| {
        let tr = db.create_transaction();
        let read = tr.get("a");
        tr.commit().await.expect("commits");
        put(&db, "a", "later").await;
        assert_eq!(read.await, Ok(None));
    })
    .await;
}

#[tokio::test]
async fn only_reads_outside_the_snapshot_view_conflict() {
    with("conflicts", async |db| {
        let reader = db.create_transaction();
        reader.snapshot().get("a").await.expect("reads");
        reader
            .snapshot()
            .range("a".."b")
            .all()
            .await
            .expect("reads");
        reader.set("out", "1");
        let other = db.create_transaction();
        other.get("a").await.expect("reads");
        other.set("out", "2");
        put(&db, "a", "new").await;
        reader
            .commit()
            .await
            .expect("a snapshot read is no conflict");
        assert_eq!(other.commit().await, Err(Error::not_committed));
    })
    .await;
}

#[tokio::test]
async fn ranges_are_streams_of_rows_and_of_tuples() {
    with("ranges", async |db| {
        let space = Subspace::new(("space", 1));
        db.run(async |tr| {
            for i in 0..3000i64 {
                tr.set(space.pack((format!("{}", i % 3), i)), vec![7; 100]);
            }
            tr.set(space.key(), "the prefix itself is no tuple");
            Ok(())
        })
        .await
        .expect("commits");
        let tr = db.create_transaction();
        let ones: Vec<(String, i64)> = tr
            .range(space.range(("1",)))
            .tuples::<(String, i64)>()
            .map_ok(|(tuple, _)| tuple)
            .try_collect()
            .await
            .expect("reads");
        let wanted = (0..1000).map(|i| ("1".to_owned(), 3 * i + 1));
        assert_eq!(ones, wanted.collect::<Vec<_>>());
        // From the end, with a limit, as whole keys.
        let last = tr.range(("space", 1)).reverse().limit(2);
        let last: Vec<_> = last
            .tuples::<(String, i64, String, i64)>()
            .map(|row| row.expect("a tuple").0.3)
            .collect()
            .await;
        assert_eq!(last, [2999, 2996]);
        assert_eq!(tr.range(&space).all().await.expect("reads").len(), 3000);
        assert_eq!(tr.range(&space).limit(0).all().await, Ok(vec![]));
        let wrong = tr.range(&space).tuples::<(i64,)>().try_next().await;
        assert_eq!(wrong.map(drop), Err(Error::invalid_tuple_data_type));
        // Between selectors.
        let first = Selector::first_greater_than(space.key());
        let third = tr.range(first.clone().plus(1)..first.plus(2)).all().await;
        let third = third.expect("reads");
        assert_eq!(third.len(), 1);
        assert_eq!(
            space.unpack::<(String, i64)>(&third[0].0),
            Ok(("0".into(), 3))
        );
    })
    .await;
}

#[tokio::test]
async fn a_watch_that_is_dropped_makes_room_for_another() {
    with("watches", async |db| {
        db.set_option(DatabaseOption::MaxWatches(1))
            .await
            .expect("set");
        let watch = async || db.run(async |tr| Ok(tr.watch("a"))).await;
        let mut first = watch().await.expect("commits");
        assert!(poll_immediate(&mut first).await.is_none());
        let second = watch().await.expect("commits");
        assert_eq!(second.await, Err(Error::too_many_watches));
        drop(first);
        drop(watch().await.expect("commits")); // without having been awaited
        let third = watch().await.expect("commits");
        put(&db, "a", "1").await;
        third.await.expect("the value has changed");
    })
    .await;
}

#[tokio::test]
async fn a_stamp_is_known_after_the_commit_and_stands_in_the_key() {
    with("stamps", async |db| {
        let log = Subspace::new(("log",));
        let stamp = db
            .run(async |tr| {
                tr.set_versionstamped_key(log.pack_with_versionstamp(("a",), 5, (true,)), "x");
                tr.atomic(MutationKind::Max, "max", [9]);
                Ok(tr.versionstamp())
            })
            .await
            .expect("commits");
        let stamp = stamp.await.expect("it wrote");
        type Entry = (String, plinth::tuple::Stamp, bool);
        let read = db.run(async |tr| tr.range(&log).tuples::<Entry>().all().await);
        let entries = read.await.expect("reads");
        let (name, written, flag) = &entries[0].0;
        assert_eq!((name.as_str(), *flag), ("a", true));
        assert_eq!((written.transaction, written.user_version), (stamp, 5));
        let tr = db.create_transaction();
        tr.atomic(MutationKind::Set, "a", "no atomic operation");
        assert_eq!(tr.commit().await, Err(Error::invalid_mutation_type));
    })
    .await;
}

#[tokio::test]
async fn a_database_that_is_closed_answers_everybody_and_leaves_its_directory() {
    let (db, directory) = open_in("closed").await;
    put(&db, "kept", "1").await;
    let watch = db.run(async |tr| Ok(tr.watch("kept"))).await;
    let mut watch = watch.expect("commits");
    assert!(poll_immediate(&mut watch).await.is_none());
    let (tr, tenant) = (db.create_transaction(), db.open_tenant("t"));
    db.close().await;
    assert_eq!(watch.await, Err(Error::operation_cancelled));
    assert_eq!(tr.get("kept").await, Err(Error::operation_cancelled));
    let run = tenant.run(async |tr| tr.get("kept").await).await;
    assert_eq!(run, Err(Error::operation_cancelled));
    db.close().await;
    let db = Database::open_embedded(&directory)
        .await
        .expect("it is free");
    let kept = db.run(async |tr| tr.get("kept").await).await;
    assert_eq!(kept.expect("reads").as_deref(), Some(&b"1"[..]));
    let second = Database::open_embedded(&directory).await;
    let line = second.err().expect("it is in use").to_string();
    assert!(line.contains("handles-closed"), "{line}");
    db.close().await;
    std::fs::remove_dir_all(directory).expect("it is there");
}

#[tokio::test]
async fn a_cluster_file_that_is_not_there_is_named() {
    let opened = Database::open("/nowhere/plinth.cluster").await;
    let line = opened.err().expect("there is none").to_string();
    assert!(line.contains("/nowhere/plinth.cluster"), "{line}");
}
