//! What transactions promise, one thing a test.

use super::cluster::{MS, Shape, on, on_hosts};
use crate::Options;
use bytes::Bytes;
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_runtime::{Duration, TaskGroup, sleep, timeout, yield_now};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_them_after_the_commit() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"before  ").await;
        for from in 0..3 {
            let value = [&b"first   "[..], b"second  ", b"third   "][from];
            let before = cluster.value(from, at).await.expect("it is there");
            let writer = cluster.begin(from, Options::default()).await;
            writer
                .write(at, Bytes::from_static(&value[..6]))
                .await
                .expect("written");
            let own = writer.read(at).await.expect("its own");
            assert_eq!((&own[..6], &own[6..8]), (&value[..6], &[0, 0][..]));
            writer
                .write(at, Bytes::from_static(value))
                .await
                .expect("written");
            assert_eq!(cluster.value(2 - from, at).await.as_ref(), Ok(&before));
            let committed = writer.commit().await.expect("no conflict");
            assert!(committed.written_at > Some(committed.read_at));
            for reader in 0..3 {
                let after = cluster.value(reader, at).await;
                assert_eq!(&after.expect("it is there")[..8], value);
            }
        }
    });
}

#[test]
fn others_have_their_turn_while_a_transaction_reads_its_own_memory() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(0, b"value").await;
        let reader = cluster.begin(0, Options::read_only()).await;
        let turns = Rc::new(Cell::new(0));
        let (group, counted) = (TaskGroup::new(), turns.clone());
        group.spawn("other", async move {
            loop {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
        for _ in 0..10_000 {
            reader.read(at).await.expect("it is there");
        }
        assert!(turns.get() >= 30, "{} turns", turns.get());
    });
}

#[test]
fn everything_is_truncated_after_a_while_and_the_safe_point_goes_on() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(2, b"value").await;
        let written_at = cluster.update(0, at, b"other").await.expect("no conflict");
        let reader = cluster.begin(1, Options::read_only()).await;
        sleep(50 * MS).await;
        for engine in &cluster.engines {
            let accounts = engine.accounts();
            assert!(accounts.iter().all(|account| account.known.is_empty()));
            assert!(engine.coordinated().is_empty());
            assert!(engine.safe_point() <= reader.read_at());
            assert!(engine.safe_point() > written_at);
        }
        drop(reader);
        cluster.quiet().await;
        let before = cluster.engines[1].safe_point();
        sleep(20 * MS).await;
        assert!(cluster.engines[1].safe_point() > before);
    });
}

#[test]
fn a_transaction_that_is_dropped_has_no_effect_and_gives_its_cells_back() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"stays").await;
        let mut counts = Vec::new();
        for from in [0, 1, 2] {
            let maker = cluster.begin(from, Options::default()).await;
            maker
                .write(at, Bytes::from_static(b"comes"))
                .await
                .expect("written");
            let mut count = 0;
            let full = loop {
                match maker.allocate(300, at).await {
                    Ok(_) => count += 1,
                    Err(abort) => break abort,
                }
            };
            assert_eq!(full, Abort::Full);
            assert_eq!(maker.read(at).await, Err(Abort::Full), "it can only abort");
            drop(maker);
            sleep(20 * MS).await;
            counts.push(count);
        }
        assert!(
            counts[0] > 20 && counts.iter().all(|count| *count == counts[0]),
            "{counts:?}"
        );
        assert_eq!(&cluster.value(0, at).await.expect("there")[..5], b"stays");
    });
}

#[test]
fn a_new_object_does_not_lie_where_the_snapshot_has_another() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"old").await;
        let (near, far) = (
            cluster.begin(1, Options::snapshot_isolation()).await,
            cluster.begin(0, Options::snapshot_isolation()).await,
        );
        let other = cluster.begin(1, Options::default()).await;
        other.free(at).await.expect("it is there");
        other.commit().await.expect("no conflict");
        // Neither has looked there before.
        for transaction in [near, far] {
            let new = transaction.allocate(3, at).await.expect("room");
            assert_ne!(new, at);
            let found = transaction.read(at).await.expect("the snapshot has it");
            assert_eq!(&found[..3], b"old");
        }
    });
}

#[test]
fn an_object_is_freed_once() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"object").await;
        let snapshot = cluster.begin(0, Options::read_only()).await;
        let late = cluster.begin(2, Options::default()).await;
        let first = cluster.begin(0, Options::default()).await;
        first.free(at).await.expect("it is there");
        assert_eq!(first.free(at).await, Err(Abort::NotAllocated));
        assert_eq!(first.read(at).await, Err(Abort::NotAllocated));
        let write = first.write(at, Bytes::from_static(b"x")).await;
        assert_eq!(write, Err(Abort::NotAllocated));
        first.commit().await.expect("no conflict");
        assert_eq!(cluster.value(1, at).await, Err(Abort::NotAllocated));
        let second = cluster.begin(1, Options::default()).await;
        assert_eq!(second.free(at).await, Err(Abort::NotAllocated));
        // One that has begun before takes it for an object.
        late.free(at).await.expect("it was there");
        assert_eq!(late.commit().await.err(), Some(Abort::Conflict));
        assert_eq!(
            &snapshot.read(at).await.expect("it was there")[..6],
            b"object"
        );
        // Whoever writes without a look finds nothing.
        let blind = cluster.update(2, at, b"x").await;
        assert_eq!(blind, Err(Abort::NotAllocated));
    });
}

#[test]
fn an_object_that_is_made_and_freed_at_once_was_never_there() {
    on(Shape::default(), async |cluster| {
        let maker = cluster.begin(0, Options::default()).await;
        let near = Pointer::NULL;
        let at = maker.allocate(8, near).await.expect("room");
        assert_eq!(
            maker.read(at).await.expect("zeros"),
            vec![0; at.class().payload_bytes()]
        );
        maker.free(at).await.expect("it is there");
        assert_eq!(maker.read(at).await, Err(Abort::NotAllocated));
        let committed = maker.commit().await.expect("nothing to do");
        assert_eq!(committed.written_at, None);
        let next = cluster.begin(0, Options::default()).await;
        assert_eq!(next.allocate(8, near).await, Ok(at), "the cell is free");
    });
}

#[test]
fn of_two_that_write_one_commits() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(2, b"zero").await;
        let (a, b) = (
            cluster.begin(0, Options::default()).await,
            cluster.begin(1, Options::snapshot_isolation()).await,
        );
        for writer in [&a, &b] {
            writer.read(at).await.expect("there");
            writer
                .write(at, Bytes::from_static(b"more"))
                .await
                .expect("written");
        }
        b.commit().await.expect("the first");
        assert_eq!(a.commit().await.err(), Some(Abort::Conflict));
        assert_eq!(&cluster.value(0, at).await.expect("there")[..4], b"more");
    });
}

#[test]
fn a_commit_goes_on_when_its_caller_is_gone() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(2, b"zero").await;
        for limit in (0..2000).step_by(100) {
            let writer = cluster.begin(0, Options::default()).await;
            writer
                .write(at, Bytes::from_static(b"more"))
                .await
                .expect("written");
            let _ = timeout(Duration::from_micros(limit), writer.commit()).await;
            // No lock stays.
            let read = timeout(100 * MS, cluster.value(1, at)).await;
            assert!(read.expect("it ends").is_ok());
        }
        cluster.quiet().await;
        assert_eq!(&cluster.value(0, at).await.expect("there")[..4], b"more");
    });
}

#[test]
fn what_is_too_large_is_refused() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"small").await;
        let writer = cluster.begin(0, Options::default()).await;
        let large = Bytes::from(vec![1; at.class().payload_bytes() + 1]);
        assert_eq!(writer.write(at, large).await, Err(Abort::TooLarge));
        assert_eq!(writer.commit().await.err(), Some(Abort::TooLarge));
        let maker = cluster.begin(0, Options::default()).await;
        let huge = maker
            .allocate(plinth_farm_memory::OBJECT_BYTES_MAX + 1, at)
            .await;
        assert_eq!(huge, Err(Abort::TooLarge));
        // More than a ring has room for.
        let maker = cluster.begin(0, Options::default()).await;
        let mut written = Ok(());
        for _ in 0..100 {
            written = match maker.allocate(400, Pointer::NULL).await {
                Ok(at) => maker.write(at, Bytes::from(vec![1; 400])).await,
                Err(abort) => Err(abort),
            };
            if written.is_err() {
                break;
            }
        }
        assert_eq!(written, Err(Abort::TooLarge));
        assert_eq!(maker.commit().await.err(), Some(Abort::TooLarge));
        // Nothing is left of them.
        assert_eq!(&cluster.value(2, at).await.expect("there")[..5], b"small");
    });
}

#[test]
fn what_is_on_one_machine_needs_no_message() {
    let mut shape = Shape {
        backups: 0,
        ..Shape::default()
    };
    shape.settings.round = Duration::from_secs(3600);
    on(shape, async |cluster| {
        let before = cluster.engines[1].messages();
        let at = cluster.object(1, b"own").await;
        cluster.update(1, at, b"new").await.expect("no conflict");
        assert_eq!(&cluster.value(1, at).await.expect("there")[..3], b"new");
        assert_eq!(cluster.engines[1].messages(), before);
        assert_eq!(cluster.engines[1].active(), 0, "truncated at once");
        assert_eq!(cluster.engines[1].accounts()[1].below, 3, "and forgotten");
        // Nor does who only reads.
        let before = cluster.engines[0].messages();
        assert_eq!(&cluster.value(0, at).await.expect("there")[..3], b"new");
        assert_eq!(cluster.engines[0].messages(), before);
    });
}

#[test]
fn a_machine_that_is_cut_off_fails_transactions_and_holds_up_nobody() {
    on_hosts(Shape::default(), async |cluster| {
        let (near, far) = (
            cluster.object(0, b"near").await,
            cluster.object(2, b"far ").await,
        );
        let begin = || cluster.begin(0, Options::default());
        let (reader, locks, logs) = (begin().await, begin().await, begin().await);
        let (again, makes) = (begin().await, begin().await);
        for (writer, at) in [(&locks, far), (&logs, near), (&again, far)] {
            writer
                .write(at, Bytes::from_static(b"more"))
                .await
                .expect("written");
        }
        cluster.cut_off(2);
        assert_eq!(reader.read(far).await, Err(Abort::Failed));
        // The primary does not lock it: it has had no effect.
        assert_eq!(locks.commit().await.err(), Some(Abort::Failed));
        // A backup may have it. Recovery decides.
        assert_eq!(logs.commit().await.err(), Some(Abort::Unknown));
        assert_eq!(again.commit().await.err(), Some(Abort::Failed));
        assert_eq!(makes.allocate(8, far).await, Err(Abort::Failed));
        let engine = &cluster.engines[0];
        let known = &engine.accounts()[0].known;
        assert!(
            known
                .iter()
                .any(|known| known.is_locked && known.regions == [0]),
            "{known:?}"
        );
        assert!(engine.active() > 0, "what is not truncated counts");
    });
}

#[test]
fn a_read_of_one_configuration_fails_in_another() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"here").await;
        let site = &cluster.engines[0].site;
        let primary = site.core.view().primary(at.region()).expect("one");
        let place = (primary.machine, primary.slot);
        assert!(site.header(1, place, at.word()).await.is_ok());
        let former = site.header(0, place, at.word()).await;
        assert_eq!(former.map(|_| ()), Err(Abort::Failed));
    });
}
