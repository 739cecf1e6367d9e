//! Options of transactions, and snapshots.

use super::cluster::{Shape, on};
use crate::Options;
use bytes::Bytes;
use plinth_farm_memory::{Abort, Objects, Pointer};
use std::task::{Context, Waker};

const X: Bytes = Bytes::from_static(b"x");

#[test]
fn who_only_reads_may_not_write() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"value").await;
        let reader = async || cluster.begin(0, Options::read_only()).await;
        assert_eq!(reader().await.write(at, X).await, Err(Abort::NotAllowed));
        assert_eq!(reader().await.free(at).await, Err(Abort::NotAllowed));
        let allocated = reader().await.allocate(8, at).await;
        assert_eq!(allocated, Err(Abort::NotAllowed));
    });
}

#[test]
fn a_snapshot_stays_while_objects_change() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"first").await;
        let mut readers = Vec::new();
        for value in [&b"first"[..], b"again", b"third"] {
            for from in 0..3 {
                readers.push((cluster.begin(from, Options::read_only()).await, value));
            }
            cluster
                .update(
                    2,
                    at,
                    [&b"again"[..], b"third", b"final"][readers.len() / 3 - 1],
                )
                .await
                .expect("alone");
        }
        for (reader, value) in &readers {
            assert_eq!(&reader.read(at).await.expect("it is kept")[..5], *value);
        }
    });
}

#[test]
fn who_will_write_gives_up_when_it_reads_an_old_version() {
    on(Shape::default(), async |cluster| {
        let (at, other) = (
            cluster.object(1, b"first").await,
            cluster.object(2, b"other").await,
        );
        let hinted = Options {
            will_write: true,
            ..Options::default()
        };
        for (options, writes, gives_up) in [
            (hinted, false, true),
            (Options::default(), true, true),
            (Options::default(), false, false),
            (Options::snapshot_isolation(), true, false),
        ] {
            let writer = cluster.begin(0, options).await;
            if writes {
                writer.write(other, X).await.expect("written");
            }
            cluster.update(1, at, b"newer").await.expect("alone");
            let read = writer.read(at).await;
            match gives_up {
                true => assert_eq!(read, Err(Abort::Conflict)),
                false => assert!(read.is_ok()),
            }
        }
    });
}

/// Two transactions read both objects, and each writes the one that the other does not.
async fn skew(cluster: &super::cluster::Cluster, options: Options) -> [bool; 2] {
    let (a, b) = (cluster.object(1, b"a").await, cluster.object(2, b"b").await);
    // A snapshot that is not strict is a little older.
    plinth_runtime::sleep(5 * super::cluster::MS).await;
    let (one, two) = (
        cluster.begin(0, options).await,
        cluster.begin(1, options).await,
    );
    for (transaction, at) in [(&one, a), (&two, b)] {
        transaction.read(a).await.expect("there");
        transaction.read(b).await.expect("there");
        transaction.write(at, X).await.expect("written");
    }
    [one.commit().await.is_ok(), two.commit().await.is_ok()]
}

#[test]
fn snapshot_isolation_lets_both_of_a_skew_commit_and_serializability_does_not() {
    on(Shape::default(), async |cluster| {
        let serializable = Options::default();
        assert_eq!(skew(cluster, serializable).await, [true, false]);
        assert_eq!(
            skew(cluster, serializable.not_strict()).await,
            [true, false]
        );
        let snapshot = Options::snapshot_isolation();
        assert_eq!(skew(cluster, snapshot).await, [true, true]);
        assert_eq!(skew(cluster, snapshot.not_strict()).await, [true, true]);
    });
}

#[test]
fn other_machines_read_at_the_snapshot_of_a_transaction() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"then").await;
        let first = cluster.begin(0, Options::read_only()).await;
        let snapshot = first.read_at();
        cluster.update(2, at, b"now ").await.expect("alone");
        for _ in 0..3 {
            for from in 0..3 {
                let part = cluster.begin(from, Options::at(snapshot)).await;
                assert_eq!(part.read_at(), snapshot);
                assert_eq!(&part.read(at).await.expect("it is kept")[..4], b"then");
            }
            plinth_runtime::sleep(10 * super::cluster::MS).await;
        }
        drop(first);
        cluster.quiet().await;
        plinth_runtime::sleep(20 * super::cluster::MS).await;
        let refused = async |options| cluster.engines[1].begin(options).await.err();
        assert_eq!(
            refused(Options::at(snapshot)).await,
            Some(Abort::NotAllowed)
        );
        assert_eq!(refused(Options::at(0)).await, Some(Abort::NotAllowed));
        assert_eq!(
            refused(Options::at(u64::MAX)).await,
            Some(Abort::NotAllowed)
        );
        let now = cluster.begin(0, Options::read_only()).await.read_at();
        let writes = Options {
            at: Some(now),
            ..Options::default()
        };
        assert_eq!(refused(writes).await, Some(Abort::NotAllowed));
    });
}

#[test]
fn a_pointer_to_nowhere_is_no_object() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"there").await;
        let class = at.class();
        let nowhere = [
            Pointer::new(at.region(), class, at.word() + 1),
            Pointer::new(at.region(), class, (1 << 40) - 1),
            Pointer::new(at.region(), class, 1),
            Pointer::new(9, class, at.word()),
            Pointer::new(
                at.region(),
                plinth_farm_memory::Class::of(500).expect("one"),
                at.word(),
            ),
        ];
        for from in 0..3 {
            for pointer in nowhere.into_iter().chain([Pointer::NULL]) {
                let reader = cluster.begin(from, Options::default()).await;
                assert_eq!(
                    reader.read(pointer).await,
                    Err(Abort::NotAllocated),
                    "{pointer:?}"
                );
                assert_eq!(
                    reader.free(pointer).await,
                    Err(Abort::NotAllocated),
                    "{pointer:?}"
                );
                let written = match reader.write(pointer, X).await {
                    Ok(()) => reader.commit().await.map(|_| ()),
                    refused => refused,
                };
                assert_eq!(written, Err(Abort::NotAllocated), "{pointer:?}");
            }
        }
    });
}

#[test]
fn a_transaction_counts_as_active_while_it_waits_for_its_snapshot() {
    on(Shape::default(), async |cluster| {
        let at = cluster.object(1, b"value").await;
        for from in 0..3 {
            let engine = cluster.engines[from].clone();
            let mut begun = Box::pin(async move { engine.begin(Options::read_only()).await });
            // It has begun, and nobody asks it again for a long time.
            let mut context = Context::from_waker(Waker::noop());
            assert!(begun.as_mut().poll(&mut context).is_pending());
            for _ in 0..5 {
                cluster.update(0, at, b"later").await.expect("alone");
                plinth_runtime::sleep(5 * super::cluster::MS).await;
            }
            let reader = begun.await.expect("a snapshot");
            for engine in &cluster.engines {
                assert!(engine.safe_point() <= reader.read_at());
            }
        }
    });
}
