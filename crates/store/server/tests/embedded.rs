//! The embedded cluster on real disks.

#![allow(clippy::disallowed_methods)] // the tests remove real directories

use plinth_client::{Database, TransactionOption};
use plinth_control::management;
use plinth_core::{Error, Uid};
use plinth_server::{Embedded, EmbeddedOptions, OpenEmbedded};
use std::path::PathBuf;

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plinth-embedded-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path); // left over from an earlier run
    path
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let path = directory("reopen");
    let first = path.clone();
    plinth_runtime::real::block_on(async move {
        let embedded = Database::open_embedded(&first).await.expect("opens");
        let database = embedded.database();
        for i in 0..100u32 {
            database
                .run(async |tr| {
                    tr.set(
                        format!("key{i:03}").into_bytes(),
                        i.to_string().into_bytes(),
                    );
                    Ok(())
                })
                .await
                .expect("commits");
        }
        embedded.close().await;
    });
    let again = path.clone();
    plinth_runtime::real::block_on(async move {
        let embedded = Embedded::open(&again, EmbeddedOptions::default())
            .await
            .expect("reopens");
        let value = embedded
            .database()
            .run(async |tr| tr.get(&b"key042"[..], false).await)
            .await;
        assert_eq!(value.expect("reads").as_deref(), Some(&b"42"[..]));
        embedded.close().await;
    });
    std::fs::remove_dir_all(&path).expect("removes");
}

#[test]
fn a_lock_holds_up_whoever_does_not_know_of_it_even_where_the_system_keyspace_changes() {
    let path = directory("lock");
    let place = path.clone();
    plinth_runtime::real::block_on(async move {
        let embedded = Database::open_embedded(&place).await.expect("opens");
        let database = embedded.database();
        let begin = async |row: &'static [u8], lock_aware: bool| {
            let transaction = database.create_transaction();
            let option = TransactionOption::AccessSystemKeys;
            transaction.set_option(option).expect("valid");
            if lock_aware {
                let option = TransactionOption::LockAware;
                transaction.set_option(option).expect("valid");
            }
            // Begun before the lock: later it would get no read version.
            transaction.get_read_version().await.expect("not locked");
            transaction.set(row, b"written");
            transaction
        };
        let unaware = begin(b"\xff/unaware", false).await;
        let aware = begin(b"\xff/aware", true).await;
        management::lock(&database, Uid(7)).await.expect("locks");
        assert_eq!(unaware.commit().await, Err(Error::database_locked));
        assert_eq!(aware.commit().await, Ok(()));
        management::unlock(&database, Uid(7))
            .await
            .expect("unlocks");
        let written = database.run(async |tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            let unaware = tr.get(&b"\xff/unaware"[..], false).await?;
            Ok((unaware, tr.get(&b"\xff/aware"[..], false).await?))
        });
        let (unaware, aware) = written.await.expect("reads");
        assert_eq!((unaware, aware.is_some()), (None, true));
        embedded.close().await;
    });
    std::fs::remove_dir_all(&path).expect("removes");
}
