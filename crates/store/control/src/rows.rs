//! Rows of the system keyspace.

use bytes::Bytes;
use plinth_client::{RangeOptions, Transaction};
use plinth_core::Result;
use plinth_core::key::{KeyRange, prefix_end};

/// Every row whose key begins with `prefix`.
pub async fn read_rows(
    transaction: &Transaction,
    prefix: &'static [u8],
) -> Result<Vec<(Bytes, Bytes)>> {
    let end = prefix_end(prefix).expect("a prefix of the system keyspace has an end");
    let range = KeyRange::new(prefix, end);
    transaction
        .get_rows(range, RangeOptions::default(), false)
        .await
}
