//! The measured client: the Rust client, or a `libfdb_c`.

use plinth_client::{RangeOptions, StreamingMode};
use plinth_core::{Error, Key, KeyRange, KeySelector, Result, Value, Version};
use std::future::Future;
use std::pin::Pin;

/// A database that creates transactions.
pub trait Target: 'static {
    type Transaction: Transaction;
    fn create_transaction(&self) -> Result<Self::Transaction>;
}

/// The operations that the workloads use.
#[allow(async_fn_in_trait)] // used on one thread, by this crate
pub trait Transaction {
    type Get: Future<Output = Result<Option<Value>>> + Unpin;
    async fn get_read_version(&self) -> Result<Version>;
    fn get(&self, key: &[u8]) -> Self::Get;
    /// Reads exactly `rows` rows from `begin` on, or fewer if `end` comes first; returns the number of rows.
    async fn get_range(&self, begin: Key, end: Key, rows: u64) -> Result<u64>;
    /// Reads the first row of `[begin, end)`, or the last if `reverse`; returns the number of rows.
    async fn get_one(&self, begin: Key, end: Key, reverse: bool) -> Result<u64>;
    /// The first key at or after `key`.
    async fn get_key(&self, key: Key) -> Result<Key>;
    fn set(&self, key: &[u8], value: &[u8]);
    async fn commit(&self) -> Result<()>;
    fn committed_version(&self) -> Version;
    async fn on_error(&self, error: Error) -> Result<()>;
}

impl Target for plinth_client::Database {
    type Transaction = plinth_client::Transaction;
    fn create_transaction(&self) -> Result<Self::Transaction> {
        Ok(plinth_client::Database::create_transaction(self))
    }
}

impl Transaction for plinth_client::Transaction {
    type Get = plinth_client::ValueFuture;

    async fn get_read_version(&self) -> Result<Version> {
        plinth_client::Transaction::get_read_version(self).await
    }

    fn get(&self, key: &[u8]) -> Self::Get {
        plinth_client::Transaction::get(self, key, false)
    }

    async fn get_range(&self, begin: Key, end: Key, rows: u64) -> Result<u64> {
        let options = RangeOptions {
            mode: StreamingMode::Exact,
            ..RangeOptions::limit(rows as i32)
        };
        let (begin, end) = KeyRange::new(begin, end).selectors();
        let mut stream = self.get_range_stream(begin, end, options, false);
        let mut found = 0;
        while let Some(rows) = stream.next_chunk().await? {
            found += rows.len() as u64;
        }
        Ok(found)
    }

    async fn get_one(&self, begin: Key, end: Key, reverse: bool) -> Result<u64> {
        let options = RangeOptions {
            mode: StreamingMode::Exact,
            reverse,
            ..RangeOptions::limit(1)
        };
        let (begin, end) = KeyRange::new(begin, end).selectors();
        let found = plinth_client::Transaction::get_range(self, begin, end, options, false);
        Ok(found.await?.rows.len() as u64)
    }

    async fn get_key(&self, key: Key) -> Result<Key> {
        let selector = KeySelector::first_greater_or_equal(key);
        plinth_client::Transaction::get_key(self, selector, false).await
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        plinth_client::Transaction::set(self, key, value);
    }

    async fn commit(&self) -> Result<()> {
        plinth_client::Transaction::commit(self).await
    }

    fn committed_version(&self) -> Version {
        self.get_committed_version()
    }

    async fn on_error(&self, error: Error) -> Result<()> {
        plinth_client::Transaction::on_error(self, error).await
    }
}

impl Target for plinth_foreign::Database {
    type Transaction = plinth_foreign::Transaction;
    fn create_transaction(&self) -> Result<Self::Transaction> {
        plinth_foreign::Database::create_transaction(self)
    }
}

impl Transaction for plinth_foreign::Transaction {
    type Get = Pin<Box<dyn Future<Output = Result<Option<Value>>>>>;

    async fn get_read_version(&self) -> Result<Version> {
        plinth_foreign::Transaction::get_read_version(self).await
    }

    fn get(&self, key: &[u8]) -> Self::Get {
        Box::pin(plinth_foreign::Transaction::get(self, key, false))
    }

    async fn get_range(&self, begin: Key, end: Key, rows: u64) -> Result<u64> {
        let found = self.get_exact_range(&begin, &end, rows as i32, false);
        Ok(found.await?.rows.len() as u64)
    }

    async fn get_one(&self, begin: Key, end: Key, reverse: bool) -> Result<u64> {
        let found = self.get_exact_range(&begin, &end, 1, reverse).await?;
        Ok(found.rows.len() as u64)
    }

    async fn get_key(&self, key: Key) -> Result<Key> {
        plinth_foreign::Transaction::get_key(self, &key).await
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        plinth_foreign::Transaction::set(self, key, value);
    }

    async fn commit(&self) -> Result<()> {
        plinth_foreign::Transaction::commit(self).await
    }

    fn committed_version(&self) -> Version {
        self.get_committed_version()
    }

    async fn on_error(&self, error: Error) -> Result<()> {
        plinth_foreign::Transaction::on_error(self, error).await
    }
}
