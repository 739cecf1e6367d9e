//! A database through a `libfdb_c` library: FoundationDB's own, or Plinth's.
//!
//! The library is loaded at run time, so nothing depends on it. Only the calls that copying and measuring need are
//! here: range reads, writes, commits, retries, split points.

#![allow(clippy::disallowed_types)] // the library wants a thread of its own for its network

mod future;
mod library;

pub use library::{Library, LoadError};

use bytes::Bytes;
use future::Future;
use library::{Code, RawDatabase, RawTransaction};
use plinth_core::{Error, Key, Result, Value, Version};
use std::ffi::{CString, c_int};
use std::path::Path;
use std::rc::Rc;

/// A chunk of a range, in order.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub rows: Vec<(Key, Value)>,
    /// There may be rows behind the last.
    pub more: bool,
}

const STREAMING_WANT_ALL: c_int = -2;
const STREAMING_EXACT: c_int = 0;

fn check(code: Code) -> Result<()> {
    match u16::try_from(code) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Error(code)),
        Err(_) => Err(Error::internal_error),
    }
}

fn length(bytes: &[u8]) -> c_int {
    // A database takes nothing longer; a shortened length would be refused anyway.
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// A handle; clones are the same database.
#[derive(Clone)]
pub struct Database(Rc<Inside>);

struct Inside {
    library: Library,
    raw: *mut RawDatabase,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: made by the library, given back once: every transaction holds its database.
        unsafe { (self.library.calls().database_destroy)(self.raw) };
    }
}

impl Library {
    pub fn open(&self, cluster_file: &Path) -> Result<Database> {
        let path = cluster_file.as_os_str().as_encoded_bytes();
        let path = CString::new(path).map_err(|_| Error::file_not_readable)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a C string, and a place for the result.
        check(unsafe { (self.calls().create_database)(path.as_ptr(), &mut raw) })?;
        let library = self.clone();
        Ok(Database(Rc::new(Inside { library, raw })))
    }
}

impl Database {
    pub fn create_transaction(&self) -> Result<Transaction> {
        let mut raw = std::ptr::null_mut();
        let create = self.0.library.calls().database_create_transaction;
        // SAFETY: a living database, and a place for the result.
        check(unsafe { create(self.0.raw, &mut raw) })?;
        Ok(Transaction {
            database: self.clone(),
            raw,
        })
    }

    /// Runs `body` in a transaction and commits it, until it has committed or another attempt would not help.
    pub async fn run<T>(&self, body: impl AsyncFn(&Transaction) -> Result<T>) -> Result<T> {
        let transaction = self.create_transaction()?;
        loop {
            let done = match body(&transaction).await {
                Ok(output) => transaction.commit().await.map(|()| output),
                Err(error) => Err(error),
            };
            match done {
                Ok(output) => return Ok(output),
                Err(error) => transaction.on_error(error).await?,
            }
        }
    }
}

pub struct Transaction {
    database: Database,
    raw: *mut RawTransaction,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: made by the library, given back once.
        unsafe { (self.database.0.library.calls().transaction_destroy)(self.raw) };
    }
}

impl Transaction {
    fn library(&self) -> &Library {
        &self.database.0.library
    }

    /// Sets an option by its public number.
    pub fn set_option(&self, code: u32, value: Option<i64>) -> Result<()> {
        let value = value.map(i64::to_le_bytes);
        let (pointer, bytes) = match &value {
            Some(value) => (value.as_ptr(), length(value)),
            None => (std::ptr::null(), 0),
        };
        let set = self.library().calls().transaction_set_option;
        // SAFETY: a living transaction, and bytes of that length or none.
        check(unsafe { set(self.raw, code as c_int, pointer, bytes) })
    }

    /// The first rows of `[begin, end)`, as many as the library gives at once, at most about `bytes_max` bytes. A
    /// snapshot read.
    pub async fn get_range(&self, begin: &[u8], end: &[u8], bytes_max: i32) -> Result<Rows> {
        let future = self.start_range(
            begin,
            end,
            (0, bytes_max),
            STREAMING_WANT_ALL,
            (false, true),
        );
        future.rows().await
    }

    /// The first `limit` rows, all at once; the last ones if `reverse`.
    pub async fn get_exact_range(
        &self,
        begin: &[u8],
        end: &[u8],
        limit: i32,
        reverse: bool,
    ) -> Result<Rows> {
        let future = self.start_range(begin, end, (limit, 0), STREAMING_EXACT, (reverse, false));
        future.rows().await
    }

    /// The first key at or after `key`.
    pub async fn get_key(&self, key: &[u8]) -> Result<Key> {
        let get = self.library().calls().transaction_get_key;
        // SAFETY: as for `set`.
        let raw = unsafe { get(self.raw, key.as_ptr(), length(key), 0, 1, 0) };
        Future::new(self.library(), raw).key().await
    }

    fn start_range(
        &self,
        begin: &[u8],
        end: &[u8],
        (limit, bytes_max): (i32, i32),
        mode: c_int,
        (reverse, snapshot): (bool, bool),
    ) -> Future {
        let get = self.library().calls().transaction_get_range;
        // SAFETY: a living transaction, and keys of these lengths.
        let raw = unsafe {
            get(
                self.raw,
                begin.as_ptr(),
                length(begin),
                0,
                1,
                end.as_ptr(),
                length(end),
                0,
                1,
                limit,
                bytes_max,
                mode,
                1,
                c_int::from(snapshot),
                c_int::from(reverse),
            )
        };
        Future::new(self.library(), raw)
    }

    pub async fn get_read_version(&self) -> Result<Version> {
        // SAFETY: a living transaction.
        let raw = unsafe { (self.library().calls().transaction_get_read_version)(self.raw) };
        Future::new(self.library(), raw).number().await
    }

    /// The version of the commit; -1 if the transaction has not written or not committed.
    pub fn get_committed_version(&self) -> Version {
        let mut version = -1;
        let get = self.library().calls().transaction_get_committed_version;
        // SAFETY: a living transaction, and a place for the result.
        match check(unsafe { get(self.raw, &mut version) }) {
            Ok(()) => version,
            Err(_) => -1,
        }
    }

    pub fn set(&self, key: &[u8], value: &[u8]) {
        let set = self.library().calls().transaction_set;
        // SAFETY: a living transaction, and bytes of these lengths, which are copied.
        unsafe {
            set(
                self.raw,
                key.as_ptr(),
                length(key),
                value.as_ptr(),
                length(value),
            );
        }
    }

    pub fn clear_range(&self, begin: &[u8], end: &[u8]) {
        let clear = self.library().calls().transaction_clear_range;
        // SAFETY: as for `set`.
        unsafe {
            clear(
                self.raw,
                begin.as_ptr(),
                length(begin),
                end.as_ptr(),
                length(end),
            );
        }
    }

    /// The value of `key`. The request is sent by the call, not by the first poll.
    pub fn get(
        &self,
        key: &[u8],
        snapshot: bool,
    ) -> impl std::future::Future<Output = Result<Option<Value>>> + use<> {
        let get = self.library().calls().transaction_get;
        // SAFETY: as for `set`.
        let raw = unsafe { get(self.raw, key.as_ptr(), length(key), c_int::from(snapshot)) };
        Future::new(self.library(), raw).value()
    }

    pub async fn commit(&self) -> Result<()> {
        // SAFETY: a living transaction.
        let raw = unsafe { (self.library().calls().transaction_commit)(self.raw) };
        Future::new(self.library(), raw).done().await
    }

    pub async fn on_error(&self, error: Error) -> Result<()> {
        let on_error = self.library().calls().transaction_on_error;
        // SAFETY: a living transaction.
        let raw = unsafe { on_error(self.raw, Code::from(error.code())) };
        Future::new(self.library(), raw).done().await
    }

    /// Keys that cut `[begin, end)` into pieces of about `bytes` bytes, both ends included.
    pub async fn get_range_split_points(
        &self,
        begin: &[u8],
        end: &[u8],
        bytes: i64,
    ) -> Result<Vec<Bytes>> {
        let split = self.library().calls().transaction_get_range_split_points;
        // SAFETY: as for `set`.
        let raw = unsafe {
            split(
                self.raw,
                begin.as_ptr(),
                length(begin),
                end.as_ptr(),
                length(end),
                bytes,
            )
        };
        Future::new(self.library(), raw).keys().await
    }
}
