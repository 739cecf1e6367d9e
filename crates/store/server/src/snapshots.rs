//! Reads of storage servers of this worker from the holders of a range. They go through the client, which finds the
//! holders.

use plinth_client::{Database, RangeOptions, StreamingMode, TransactionOption};
use plinth_core::{KeyRange, Result, Version};
use plinth_engine::LocalBoxFuture;
use plinth_storage::server::{SnapshotPage, Snapshots};

pub struct ClientSnapshots(pub Database);

impl Snapshots for ClientSnapshots {
    fn newest(&self) -> LocalBoxFuture<'_, Result<Version>> {
        Box::pin(async move {
            let transaction = self.0.create_transaction();
            transaction.set_option(TransactionOption::ReadLockAware)?;
            transaction.set_option(TransactionOption::PrioritySystemImmediate)?;
            transaction.get_read_version().await
        })
    }

    fn read(
        &self,
        range: KeyRange,
        version: Version,
        bytes_max: usize,
    ) -> LocalBoxFuture<'_, Result<SnapshotPage>> {
        Box::pin(async move {
            let transaction = self.0.create_transaction();
            transaction.set_option(TransactionOption::ReadSystemKeys)?;
            transaction.set_option(TransactionOption::ReadLockAware)?;
            transaction.set_read_version(version);
            let (begin, end) = range.selectors();
            let options = RangeOptions {
                mode: StreamingMode::Exact,
                target_bytes: i32::try_from(bytes_max).unwrap_or(i32::MAX),
                ..RangeOptions::default()
            };
            let page = transaction.get_range(begin, end, options, true).await?;
            Ok(SnapshotPage {
                rows: page.rows,
                more: page.more,
            })
        })
    }
}
