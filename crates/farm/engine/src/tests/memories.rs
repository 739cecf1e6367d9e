//! Memory that is full, and memory that is used again.

use super::cluster::{Cluster, MS, Shape, on};
use crate::{Options, Policy};
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_runtime::{now, sleep, timeout};

fn shape(policy: Policy) -> Shape {
    Shape {
        policy,
        ..Shape::default()
    }
}

/// Updates an object until its machine has no memory for old versions, because of a reader.
async fn fill(cluster: &Cluster, at: Pointer) -> Result<(), Abort> {
    for _ in 0..200 {
        cluster.update(0, at, b"newer").await?;
    }
    Ok(())
}

#[test]
fn without_memory_for_old_versions_a_writer_is_refused() {
    on(shape(Policy::MvAbort), async |cluster| {
        let at = cluster.object(1, b"first").await;
        let reader = cluster.begin(2, Options::read_only()).await;
        assert_eq!(fill(cluster, at).await, Err(Abort::Full));
        assert_eq!(&reader.read(at).await.expect("it is kept")[..5], b"first");
        drop(reader);
        sleep(20 * MS).await;
        cluster
            .update(0, at, b"again")
            .await
            .expect("there is room again");
    });
}

#[test]
fn without_memory_for_old_versions_a_writer_waits_and_is_refused_in_the_end() {
    on(shape(Policy::MvBlock), async |cluster| {
        let at = cluster.object(1, b"first").await;
        let reader = cluster.begin(2, Options::read_only()).await;
        let begun = now();
        assert_eq!(fill(cluster, at).await, Err(Abort::Full));
        assert!(now() - begun >= 50 * MS);
        assert_eq!(&reader.read(at).await.expect("it is kept")[..5], b"first");
        // If the reader ends in time, the writer goes on.
        let ends = async move {
            sleep(10 * MS).await;
            drop(reader);
        };
        let _ends = plinth_runtime::spawn("end", ends);
        let written = cluster.update(0, at, b"again").await;
        written.expect("there is room in time");
    });
}

#[test]
fn without_memory_for_old_versions_the_history_may_be_cut() {
    on(shape(Policy::MvTruncate), async |cluster| {
        let at = cluster.object(1, b"first").await;
        let other = cluster.object(1, b"other").await;
        let reader = cluster.begin(2, Options::read_only()).await;
        assert_eq!(fill(cluster, at).await, Ok(()));
        assert_eq!(reader.read(at).await, Err(Abort::TooOld));
        assert_eq!(
            reader.read(other).await,
            Err(Abort::TooOld),
            "it can only abort"
        );
        assert_eq!(&cluster.value(2, at).await.expect("there")[..5], b"newer");
    });
}

#[test]
fn without_old_versions_a_reader_aborts_when_an_object_changes() {
    let mut shape = shape(Policy::SingleVersion);
    shape.sizes.old_words = 0;
    on(shape, async |cluster| {
        let at = cluster.object(1, b"first").await;
        for from in 0..3 {
            let reader = cluster.begin(from, Options::read_only()).await;
            cluster.update(0, at, b"newer").await.expect("alone");
            assert_eq!(reader.read(at).await, Err(Abort::TooOld));
        }
    });
}

/// Makes objects until there is no room for another.
async fn make(cluster: &Cluster, bytes: usize) -> Vec<Pointer> {
    let mut made = Vec::new();
    loop {
        let maker = cluster.begin(0, Options::default()).await;
        match maker.allocate(bytes, Pointer::NULL).await {
            Ok(at) => made.push(at),
            Err(Abort::Full) => return made,
            Err(abort) => panic!("{abort}"),
        }
        maker.commit().await.expect("alone");
    }
}

#[test]
fn slabs_go_to_objects_of_another_size_when_nobody_reads_the_former_ones() {
    on(Shape::default(), async |cluster| {
        let small = make(cluster, 40).await;
        assert!(small.len() > 100);
        let reader = cluster.begin(1, Options::read_only()).await;
        for at in &small {
            let freeing = cluster.begin(2, Options::default()).await;
            freeing.free(*at).await.expect("there");
            freeing.commit().await.expect("alone");
        }
        sleep(50 * MS).await;
        assert!(make(cluster, 300).await.is_empty(), "a reader is there");
        drop(reader);
        sleep(50 * MS).await;
        let large = make(cluster, 300).await;
        assert!(large.len() > 20, "{}", large.len());
        cluster.quiet().await;
        for at in large {
            let value = cluster.value(1, at).await.expect("there");
            assert!(value.iter().all(|byte| *byte == 0));
        }
    });
}

#[test]
fn a_snapshot_sees_that_an_object_came_later() {
    for policy in [Policy::MvBlock, Policy::MvTruncate, Policy::SingleVersion] {
        on(shape(policy), async |cluster| {
            let early = cluster.begin(2, Options::read_only()).await;
            let known = cluster.object(1, b"known").await;
            assert_eq!(early.read(known).await, Err(Abort::NotAllocated));
            let other = cluster.object(1, b"other").await;
            let reader = cluster.begin(1, Options::at(early.read_at())).await;
            assert_eq!(reader.read(other).await, Err(Abort::NotAllocated));
            let known = early.read(known).await;
            assert_eq!(known, Err(Abort::NotAllocated), "it goes on");
        });
    }
}

/// The payload of a large object. Where small ones of eight words were, its words look like a version that was
/// replaced by a later one, or like a lock that does not end.
fn like_headers(is_lock: bool) -> Vec<u8> {
    let word = |at: usize| match (is_lock, (at + 2) % 8) {
        (true, 0) => 1 << 63 | 5,
        (true, _) => 5,
        (false, _) => 0x1111_1111_1111_1111u64,
    };
    (0..37).flat_map(|at| word(at).to_le_bytes()).collect()
}

#[test]
fn a_pointer_to_objects_of_another_size_finds_no_object() {
    for is_lock in [false, true] {
        on(Shape::default(), async move |cluster| {
            let small = make(cluster, 40).await;
            for at in &small {
                let freeing = cluster.begin(2, Options::default()).await;
                freeing.free(*at).await.expect("there");
                freeing.commit().await.expect("alone");
            }
            sleep(50 * MS).await;
            for at in make(cluster, 300).await {
                let writer = cluster.begin(0, Options::default()).await;
                let payload = like_headers(is_lock).into();
                writer.write(at, payload).await.expect("written");
                writer.commit().await.expect("alone");
            }
            for at in small {
                let found = timeout(1000 * MS, cluster.value(1, at)).await;
                assert_eq!(found, Some(Err(Abort::NotAllocated)), "{at:?}");
            }
        });
    }
}
