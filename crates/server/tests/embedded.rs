//! The embedded cluster on real disks.

use plinth_client::Database;
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
