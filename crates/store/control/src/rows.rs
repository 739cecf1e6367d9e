//! Rows of the system keyspace.

use bytes::Bytes;
use plinth_client::{RangeOptions, Transaction};
use plinth_core::key::prefix_end;
use plinth_core::{KeySelector, Result};

/// Every row whose key begins with `prefix`.
pub async fn read_rows(
    transaction: &Transaction,
    prefix: &'static [u8],
) -> Result<Vec<(Bytes, Bytes)>> {
    let end = prefix_end(prefix).expect("a prefix of the system keyspace has an end");
    let begin = KeySelector::first_greater_or_equal(prefix);
    let end = KeySelector::first_greater_or_equal(end);
    let options = RangeOptions::default();
    transaction.get_range_all(begin, end, options, false).await
}
