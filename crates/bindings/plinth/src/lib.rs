//! The client that applications use, in any async runtime.
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod database;
#[cfg(feature = "directory")]
pub mod directory;
mod group;
mod log;
mod open;
mod open_error;
mod outages;
mod range;
mod reads;
mod rows;
mod slot;
mod subspace;
mod threads;
mod transaction;
pub mod tuple;
mod writes;

pub use database::Database;
pub use log::set_log;
pub use open::OpenOptions;
pub use open_error::{OpenError, Result};
pub use range::{IntoKeyRange, IntoReadRange, KeyRange, Selector};
pub use reads::Snapshot;
pub use rows::{Row, Rows, Tuples};
pub use subspace::Subspace;
pub use transaction::{Reply, Transaction};

pub use bytes::Bytes;
pub use plinth_client::{
    DatabaseOption, MappedResult, MappedRow, StreamingMode, TransactionOption,
};
pub use plinth_core::transaction_tag::TransactionTag;
pub use plinth_core::{Error, Key, MutationKind, Value, Versionstamp};

/// Runs an example of the documentation against an embedded cluster of its own.
#[cfg(feature = "embedded")]
#[doc(hidden)]
pub fn doc_test<Fut: Future<Output = Result<(), Box<dyn std::error::Error>>>>(
    body: impl FnOnce(Database) -> Fut,
) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "plinth-example-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let directory = std::env::temp_dir().join(name);
    plinth_runtime::real::block_on(async {
        let database = Database::open_embedded(&directory).await.expect("it opens");
        let tested = body(database.clone()).await;
        database.close().await;
        #[expect(
            clippy::disallowed_methods,
            reason = "the directory is the example's own"
        )]
        let removed = std::fs::remove_dir_all(&directory);
        removed.expect("the directory is there");
        tested.expect("the example runs");
    });
}

/// Compiles the examples of the user's page.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/rust.md")]
struct RustPage;
