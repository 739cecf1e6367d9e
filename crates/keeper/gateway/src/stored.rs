//! The store as what a gateway stands on.

use crate::backing::{Backing, Beginning, Begun, NoLife};
use crate::pipeline::Pipeline;
use crate::replica::Replica;
use crate::store::{Boxed, Most, Page, Store};
use crate::tree::rows::Rows;
use crate::zxid::Zxids;
use crate::{CACHE_BYTES_MAX, quotas, setup};
use bytes::Bytes;
use plinth_client::{Database, RangeOptions, StreamingMode, Transaction};
use plinth_core::key::KeyRange;
use plinth_core::{KeySelector, Result, Version};
use std::cell::Cell;
use std::rc::Rc;

impl Store for Database {
    fn row<'a>(&'a self, version: Version, key: &'a [u8]) -> Boxed<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            let transaction = self.create_transaction();
            transaction.set_read_version(version);
            transaction.get(key.to_vec(), true).await
        })
    }

    fn page(&self, version: Version, range: KeyRange, most: Most) -> Boxed<'_, Result<Page>> {
        Box::pin(async move {
            let transaction = self.create_transaction();
            transaction.set_read_version(version);
            read_page(&transaction, range, most).await
        })
    }
}

/// Rows of a range, without conflicts.
///
/// # Errors
/// Those of the reads.
pub async fn read_page(transaction: &Transaction, range: KeyRange, most: Most) -> Result<Page> {
    let mut begin = KeySelector::first_greater_or_equal(range.begin);
    let end = KeySelector::first_greater_or_equal(range.end);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    // A limit of 0 is none.
    let limit = |most: usize| i32::try_from(most).unwrap_or(0);
    loop {
        let options = RangeOptions {
            limit: limit(most.rows - rows.len()),
            target_bytes: limit(most.bytes - bytes),
            mode: StreamingMode::WantAll,
            ..RangeOptions::default()
        };
        let reading = transaction.get_range(begin, end.clone(), options, true);
        let chunk = reading.await?;
        let sizes = chunk
            .rows
            .iter()
            .map(|(key, value)| key.len() + value.len());
        bytes += sizes.sum::<usize>();
        rows.extend(chunk.rows);
        match rows.last() {
            Some((last, _)) if chunk.more && bytes < most.bytes && rows.len() < most.rows => {
                begin = KeySelector::first_greater_than(last.clone());
            }
            _ => {
                return Ok(Page {
                    rows,
                    more: chunk.more,
                });
            }
        }
    }
}

/// A tree of a database.
pub struct Stored {
    database: Database,
    /// The tree that lives before have had: no later one takes another.
    had: Cell<Option<Zxids>>,
}

impl Stored {
    pub fn new(database: Database) -> Self {
        Stored {
            database,
            had: Cell::new(None),
        }
    }
}

impl Backing for Stored {
    fn begin<'a>(&'a self, by: Beginning<'a>) -> Boxed<'a, std::result::Result<Begun, NoLife>> {
        Box::pin(async move {
            let rows = Rows::new(by.tree);
            let tree = setup::open(&self.database, &rows, by.tree, self.had.get()).await?;
            self.had.set(Some(tree.zxids));
            let store = Rc::new(self.database.clone());
            let cache_bytes = CACHE_BYTES_MAX.get();
            let replica = Replica::new(store, rows, tree.zxids, tree.version, cache_bytes);
            quotas::load(&replica).await?;
            let replica = Rc::new(replica);
            let database = self.database.clone();
            let opened = (database, tree.stream);
            let writes = Pipeline::new(replica.clone(), opened, by.gateway, by.listener);
            Ok(Begun { replica, writes })
        })
    }
}
