//! The reading side of a transaction, and its snapshot view.

use crate::range::{IntoKeyRange, IntoReadRange, KeyRange, Selector};
use crate::rows::Rows;
use crate::transaction::{Kind, Reply, Transaction};
use plinth_client::{IntoKey, MappedResult, RangeOptions, Transaction as Local};
#[allow(unused_imports)] // for the documentation
use plinth_core::Error;
use plinth_core::{Key, Value, Versionstamp};
use std::net::SocketAddr;

fn key(bytes: impl AsRef<[u8]>) -> Key {
    bytes.as_ref().into_key()
}

impl Transaction {
    /// The value of a key; `None` if there is none.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// let value = db.run(async |tr| tr.get("hello").await).await?;
    /// assert_eq!(value, None);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::key_outside_legal_range`] for a key from `\xff` on, [`Error::transaction_too_old`] more than five
    /// seconds after the transaction's first read, and the other errors of reads.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Reply<Option<Value>> {
        self.get_value(key.as_ref(), false)
    }

    /// The key that the selector names among the keys that the transaction sees. The empty key if it lies before all
    /// keys, and `\xff` if it lies behind them.
    pub fn get_key(&self, selector: Selector) -> Reply<Key> {
        self.select(selector, false)
    }

    /// The rows of a range, as a stream; see [`IntoKeyRange`] for what a range is. Nothing is sent before the first
    /// row is awaited.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// db.run(async |tr| {
    ///     tr.set("fruit/apple", "red");
    ///     tr.set("fruit/banana", "yellow");
    ///     let mut rows = tr.range("fruit/".."fruit0").reverse();
    ///     let (key, value) = rows.try_next().await?.expect("its own writes are there");
    ///     assert_eq!((&key[..], &value[..]), (&b"fruit/banana"[..], &b"yellow"[..]));
    ///     Ok(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn range(&self, range: impl IntoReadRange) -> Rows {
        Rows::new(self, range, false)
    }

    /// A view whose reads conflict with nothing: a later change of what they have read does not stop the commit. They
    /// see the same snapshot.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            transaction: self.clone(),
        }
    }

    /// Rows of an index, each with the rows that it points to, in one request. The mapper is a packed tuple that says
    /// how a row of the index names its rows: `{K[i]}` and `{V[i]}` stand for elements of its key and value, and
    /// `{...}` at the end for all rows below. Gives one chunk; `limit` 0 leaves its size to the database.
    ///
    /// # Errors
    ///
    /// [`Error::get_mapped_range_reads_your_writes`] if the transaction wrote what it meets. The option
    /// [`MappedRangeReadsOwnWrites`](crate::TransactionOption::MappedRangeReadsOwnWrites) lifts that.
    pub fn mapped_range(
        &self,
        range: impl IntoReadRange,
        mapper: impl AsRef<[u8]>,
        limit: u32,
    ) -> Reply<MappedResult> {
        let (begin, end, _) = range.into_read_range();
        let mapper = key(mapper);
        let options = RangeOptions::limit(limit.min(i32::MAX as u32) as i32);
        self.ask(Kind::Read, move |transaction| {
            transaction.get_mapped_range(begin.0, end.0, mapper, options, false)
        })
    }

    /// Ends when the value of the key differs from what this transaction sees. The watch begins when the transaction
    /// has committed, and outlives it. Dropping it ends it.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// let watch = db.run(async |tr| Ok(tr.watch("leader"))).await?;
    /// db.run(async |tr| {
    ///     tr.set("leader", "ada");
    ///     Ok(())
    /// })
    /// .await?;
    /// watch.await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the commit, or [`Error::transaction_cancelled`] without a commit. [`Error::too_many_watches`]
    /// above the database's limit, 10,000 unless [`MaxWatches`](crate::DatabaseOption::MaxWatches) says otherwise. A
    /// watch may end although the value is the same again: read it.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> Reply<()> {
        let key = self::key(key);
        self.ask(Kind::Apart, move |transaction| transaction.watch(key))
    }

    /// The stamp of this transaction: ten bytes in the order of commits. Ask for it before the commit, await it after.
    ///
    /// # Errors
    ///
    /// The error of the commit. [`Error::no_commit_version`] if the transaction wrote nothing.
    pub fn versionstamp(&self) -> Reply<Versionstamp> {
        self.ask(Kind::Apart, Local::get_versionstamp)
    }

    /// The version of the snapshot.
    pub fn read_version(&self) -> Reply<i64> {
        self.ask(Kind::Read, Local::get_read_version)
    }

    /// Reads at `version` instead of the newest. Only before the first read. A version older than five seconds gives
    /// [`Error::transaction_too_old`].
    pub fn set_read_version(&self, version: i64) {
        self.act(move |transaction| transaction.set_read_version(version));
    }

    /// Bytes that the transaction would have if it were committed, about. The limit is 10,000,000.
    pub fn approximate_size(&self) -> Reply<usize> {
        self.ask(Kind::Other, |transaction| {
            std::future::ready(Ok(transaction.get_approximate_size()))
        })
    }

    /// The storage servers that hold the key.
    pub fn addresses_for_key(&self, key: impl AsRef<[u8]>) -> Reply<Vec<SocketAddr>> {
        let key = self::key(key);
        self.ask(Kind::Other, move |transaction| {
            transaction.get_addresses_for_key(key)
        })
    }

    /// Bytes of the keys and values in the range, at versions of its own.
    pub fn estimated_size(&self, range: impl IntoKeyRange) -> Reply<i64> {
        let KeyRange { begin, end, .. } = range.into_key_range();
        self.ask(Kind::Other, move |transaction| {
            transaction.get_estimated_range_size_bytes(begin, end)
        })
    }

    /// Keys that cut the range into pieces of about `chunk_bytes`, both ends included: for work that many tasks share.
    pub fn split_points(&self, range: impl IntoKeyRange, chunk_bytes: i64) -> Reply<Vec<Key>> {
        let KeyRange { begin, end, .. } = range.into_key_range();
        self.ask(Kind::Other, move |transaction| {
            transaction.get_range_split_points(begin, end, chunk_bytes)
        })
    }

    fn select(&self, selector: Selector, snapshot: bool) -> Reply<Key> {
        self.ask(Kind::Read, move |transaction| {
            transaction.get_key(selector.0, snapshot)
        })
    }
}

/// The snapshot view of a [`Transaction`]: its reads conflict with nothing.
///
/// Use it for what may change without harm, for example a counter that is only shown, or a list from which one row is
/// taken and then read again by the transaction itself.
#[derive(Clone)]
pub struct Snapshot {
    transaction: Transaction,
}

impl Snapshot {
    /// As [`Transaction::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Reply<Option<Value>> {
        self.transaction.get_value(key.as_ref(), true)
    }

    /// As [`Transaction::get_key`].
    pub fn get_key(&self, selector: Selector) -> Reply<Key> {
        self.transaction.select(selector, true)
    }

    /// As [`Transaction::range`].
    pub fn range(&self, range: impl IntoReadRange) -> Rows {
        Rows::new(&self.transaction, range, true)
    }
}
