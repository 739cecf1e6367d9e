//! The directory layer.

use plinth_client::testing::MemoryCluster;
use plinth_client::tuple::Element;
use plinth_client::{Database, DirectoryLayer, PARTITION, Subspace, Transaction};
use plinth_core::{Error, Key, Result};
use plinth_runtime::join_all;
use plinth_runtime::real::block_on;
use std::collections::BTreeSet;

fn path(text: &str) -> Vec<String> {
    text.split('/')
        .filter(|name| !name.is_empty())
        .map(String::from)
        .collect()
}

async fn committed<T>(database: &Database, body: impl AsyncFn(&Transaction) -> Result<T>) -> T {
    let done = database.run(async |transaction| body(&transaction).await);
    done.await.expect("commits")
}

#[test]
fn a_directory_is_found_again_moved_listed_and_removed_with_all_below_it() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let layer = DirectoryLayer::default();
        let made = committed(&database, async |tr| {
            layer.create_or_open(tr, &path("a/b/c"), b"x").await
        })
        .await;
        assert_eq!(
            (made.path(), &made.layer()[..]),
            (&path("a/b/c")[..], &b"x"[..])
        );
        let prefix = made.subspace().expect("no partition").key().clone();
        committed(&database, async |tr| {
            tr.set(made.subspace()?.pack(&[Element::Int(1)])?, "row");
            Ok(())
        })
        .await;
        let moved = committed(&database, async |tr| {
            layer.move_within(tr, &path("a/b"), &path("d")).await
        })
        .await;
        let opened = committed(&database, async |tr| moved.open(tr, &path("c"), b"x").await).await;
        assert_eq!(opened.subspace().expect("no partition").key(), &prefix);
        assert_eq!(opened.path(), path("d/c"));
        let names = committed(&database, async |tr| layer.list(tr, &[]).await).await;
        assert_eq!(names, ["a", "d"]);
        committed(&database, async |tr| {
            assert_eq!(
                layer.open(tr, &path("d/c"), b"y").await.err(),
                Some(Error::mismatched_layer)
            );
            assert_eq!(
                layer.open(tr, &path("none"), b"").await.err(),
                Some(Error::directory_does_not_exist)
            );
            assert_eq!(
                layer.create(tr, &path("d"), b"", None).await.err(),
                Some(Error::directory_already_exists)
            );
            let into_itself = layer.move_within(tr, &path("d"), &path("d/e")).await;
            assert_eq!(
                into_itself.err(),
                Some(Error::invalid_destination_directory)
            );
            assert_eq!(
                layer.remove(tr, &[]).await,
                Err(Error::cannot_modify_root_directory)
            );
            Ok(())
        })
        .await;
        committed(&database, async |tr| layer.remove(tr, &path("d")).await).await;
        assert!(!cluster.rows().keys().any(|key| key.starts_with(&prefix)));
        assert!(!committed(&database, async |tr| layer.exists(tr, &path("d/c")).await).await);
        assert!(
            !committed(&database, async |tr| layer
                .remove_if_exists(tr, &path("d"))
                .await)
            .await
        );
    });
}

#[test]
fn a_partition_keeps_its_directories_inside_its_prefix() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let layer = DirectoryLayer::default();
        let partition = committed(&database, async |tr| {
            layer.create(tr, &path("p"), PARTITION, None).await
        })
        .await;
        assert_eq!(
            partition.subspace().err(),
            Some(Error::cannot_use_partition_as_subspace)
        );
        let inside = committed(&database, async |tr| {
            layer.create_or_open(tr, &path("p/a/b"), b"").await
        })
        .await;
        let same = committed(&database, async |tr| {
            partition.open(tr, &path("a/b"), b"").await
        })
        .await;
        assert_eq!(inside.path(), same.path());
        assert_eq!(
            inside.subspace().expect("none"),
            same.subspace().expect("none")
        );
        committed(&database, async |tr| {
            let over = layer.move_within(tr, &path("p/a"), &path("a")).await;
            assert_eq!(
                over.err(),
                Some(Error::cannot_move_directory_between_partitions)
            );
            assert_eq!(partition.list(tr, &[]).await?, ["a"]);
            assert_eq!(layer.list(tr, &path("p")).await?, ["a"]);
            assert!(layer.exists(tr, &path("p/a")).await? && partition.exists(tr, &[]).await?);
            Ok(())
        })
        .await;
        let moved = committed(&database, async |tr| inside.move_to(tr, &path("p/c")).await).await;
        assert_eq!(moved.path(), path("p/c"));
        committed(&database, async |tr| partition.remove(tr, &[]).await).await;
        assert!(!committed(&database, async |tr| layer.exists(tr, &path("p")).await).await);
    });
}

#[test]
fn a_chosen_prefix_must_be_allowed_and_free() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let layer = DirectoryLayer::default();
        let manual = DirectoryLayer::new(Subspace::new(&b"\xfe"[..]), Subspace::default(), true);
        let manual = manual.expect("short");
        let chosen = |prefix: &'static str| Some(Key::from(prefix));
        committed(&database, async |tr| {
            let refused = layer.create(tr, &path("a"), b"", chosen("x")).await;
            assert_eq!(refused.err(), Some(Error::manual_prefixes_not_enabled));
            let made = manual.create(tr, &path("a"), b"", chosen("xy")).await?;
            assert_eq!(made.subspace()?.key(), "xy");
            for taken in ["x", "xy", "xyz"] {
                let refused = manual.create(tr, &path("b"), b"", chosen(taken)).await;
                assert_eq!(
                    refused.err(),
                    Some(Error::directory_prefix_in_use),
                    "{taken}"
                );
            }
            Ok(())
        })
        .await;
    });
}

#[test]
fn many_at_once_get_different_prefixes_none_of_which_begins_with_another() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let layer = DirectoryLayer::default();
        committed(&database, async |tr| {
            layer.create_or_open(tr, &path("root"), b"").await
        })
        .await;
        let make = |i: usize| {
            let (database, layer) = (database.clone(), layer.clone());
            async move {
                let path = path(&format!("root/{i}"));
                let made = committed(&database, async |tr| {
                    layer.create_or_open(tr, &path, b"").await
                })
                .await;
                made.subspace().expect("no partition").key().clone()
            }
        };
        let mut prefixes = BTreeSet::new();
        for round in 0..40 {
            prefixes.extend(join_all((0..10).map(|i| make(10 * round + i))).await);
        }
        assert_eq!(prefixes.len(), 400);
        let sorted: Vec<_> = prefixes.into_iter().collect();
        assert!(sorted.windows(2).all(|pair| !pair[1].starts_with(&pair[0])));
    });
}
