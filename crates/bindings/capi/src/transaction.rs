//! Transactions: every call is posted to the transaction's loop; calls with a result return a future.

use crate::arguments::{Code, Flag, both, bytes_at, code, functions};
use crate::connection::Connection;
use crate::future::{Future, Promise};
use crate::payload::Payload;
use crate::state::Order;
use crate::{loops, network, options, state};
use bytes::Bytes;
use plinth_client::{
    AuthorizationToken, Database as LocalDatabase, RangeOptions, StreamingMode,
    Transaction as Local,
};
use plinth_core::{Error, KeySelector, MutationKind, Result};
use plinth_runtime::real::Remote;
use std::ffi::c_int;
use std::future::Future as Async;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const NO_VERSION: i64 = -1;
/// Since this version addresses include their ports.
const PORTS_SINCE: i32 = 630;

/// `FDBTransaction`.
pub struct Transaction {
    /// The database lives as long as its transactions.
    _connection: Arc<Connection>,
    id: u64,
    home: Remote,
    committed_version: Arc<AtomicI64>,
}

impl Transaction {
    pub fn new(connection: &Arc<Connection>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (database, home) = (connection.id(), connection.next_loop().clone());
        // Its time runs from here, whenever its loop gets to it.
        let now = plinth_runtime::now();
        loops::post(&home, move || state::create_transaction(database, id, now));
        Transaction {
            _connection: connection.clone(),
            id,
            home,
            committed_version: Arc::new(AtomicI64::new(NO_VERSION)),
        }
    }

    fn post(&self, act: impl FnOnce(&Local) + Send + 'static) {
        let id = self.id;
        loops::post(&self.home, move || state::on_transaction(id, act));
    }

    /// For calls without a result: the next read or the commit reports a bad argument.
    fn post_valid<T: Send + 'static>(
        &self,
        arguments: Result<T>,
        act: impl FnOnce(&Local, T) + Send + 'static,
    ) {
        match arguments {
            Ok(arguments) => self.post(move |transaction| act(transaction, arguments)),
            Err(error) => self.post(move |transaction| transaction.defer_error(error)),
        }
    }

    /// For calls without a result that may fail: the next read or the commit reports it.
    fn post_checked(&self, act: impl FnOnce(&Local) -> Result<()> + Send + 'static) {
        self.post(move |transaction| {
            if let Err(error) = act(transaction) {
                transaction.defer_error(error);
            }
        });
    }

    /// For calls with a result. The result is there before the next commit ends.
    fn ask<A, T, F>(
        &self,
        arguments: Result<A>,
        start: impl FnOnce(&Local, A) -> F + Send + 'static,
        payload: impl FnOnce(T) -> Payload + Send + 'static,
    ) -> *mut Future
    where
        A: Send + 'static,
        T: 'static,
        F: Async<Output = Result<T>> + 'static,
    {
        self.ask_in_order(Order::BeforeTheEnd, arguments, start, payload)
    }

    fn ask_in_order<A, T, F>(
        &self,
        order: Order,
        arguments: Result<A>,
        start: impl FnOnce(&Local, A) -> F + Send + 'static,
        payload: impl FnOnce(T) -> Payload + Send + 'static,
    ) -> *mut Future
    where
        A: Send + 'static,
        T: 'static,
        F: Async<Output = Result<T>> + 'static,
    {
        let arguments = match loops::check_not_forked().and(arguments) {
            Err(error) => return Future::early(Err(error)),
            Ok(arguments) => arguments,
        };
        let future = Future::new(Some(self.home.clone()));
        // If the loop has ended, or the transaction is gone, the promise sets the future when it is dropped.
        let promise = Promise(future.clone());
        let id = self.id;
        loops::post(&self.home, move || {
            let start = |transaction: &Local| start(transaction, arguments);
            state::ask(id, promise, order, start, payload);
        });
        future.into_handle()
    }
}

impl Transaction {
    /// The number of the database's tenant of that name.
    pub fn tenant_id(&self, name: Bytes) -> *mut Future {
        let look_up = async |database: LocalDatabase, name| database.tenant_id(name).await;
        self.ask_database(Ok(name), look_up, Payload::Int64)
    }

    fn split_points(&self, range: Result<(Bytes, Bytes)>, chunk_bytes: i64) -> *mut Future {
        let range = range.and_then(|range| match chunk_bytes {
            1.. => Ok(range),
            _ => Err(Error::invalid_option_value),
        });
        let ask = move |transaction: &Local, (begin, end)| {
            transaction.get_range_split_points(begin, end, chunk_bytes)
        };
        self.ask(range, ask, Payload::keys)
    }

    /// For calls of the database: this transaction only gives it.
    pub fn ask_database<A, T, F>(
        &self,
        arguments: Result<A>,
        start: impl FnOnce(LocalDatabase, A) -> F + Send + 'static,
        payload: impl FnOnce(T) -> Payload + Send + 'static,
    ) -> *mut Future
    where
        A: Send + 'static,
        T: 'static,
        F: Async<Output = Result<T>> + 'static,
    {
        let ask = |transaction: &Local, arguments| start(transaction.database().clone(), arguments);
        self.ask(arguments, ask, payload)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let id = self.id;
        loops::post(&self.home, move || state::destroy_transaction(id));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_destroy(transaction: *mut Transaction) {
    if !transaction.is_null() {
        // SAFETY: made by `create_transaction`, and given back once.
        drop(unsafe { Box::from_raw(transaction) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_set_option(
    transaction: &Transaction,
    option: c_int,
    value: *const u8,
    length: c_int,
) -> Code {
    // SAFETY: the header's contract.
    let given = unsafe { bytes_at(value, length) };
    if option == options::AUTHORIZATION_TOKEN {
        return code(given.and_then(|token| {
            // A token that is too long or empty is told at once, as other values are.
            AuthorizationToken::new(token.clone()).ok_or(Error::invalid_option_value)?;
            transaction.post_checked(move |transaction| transaction.set_authorization_token(token));
            Ok(())
        }));
    }
    let option = given.and_then(|given| {
        let given = (!value.is_null()).then_some(&given[..]);
        options::of_transaction(option, given)
    });
    code(option.map(|option| {
        if let Some(option) = option {
            transaction.post_checked(move |transaction| transaction.set_option(option));
        }
    }))
}

functions! {
    fn fdb_transaction_cancel(transaction: &Transaction) {
        transaction.post(Local::cancel);
    }

    fn fdb_transaction_reset(transaction: &Transaction) {
        transaction.committed_version.store(NO_VERSION, Ordering::Release);
        let now = plinth_runtime::now();
        transaction.post(move |transaction| transaction.reset_at(now));
    }
}

// ---- reads ----

functions! {
    fn fdb_transaction_set_read_version(transaction: &Transaction, version: i64) {
        transaction.post(move |transaction| transaction.set_read_version(version));
    }

    fn fdb_transaction_get_read_version(transaction: &Transaction) -> *mut Future {
        let ask = |transaction: &Local, ()| transaction.get_read_version();
        transaction.ask(Ok(()), ask, Payload::Int64)
    }

    fn fdb_transaction_get(
        transaction: &Transaction, [key, length], snapshot: Flag
    ) -> *mut Future {
        let get = move |transaction: &Local, key: Bytes| transaction.get(key, snapshot != 0);
        transaction.ask(key, get, Payload::Value)
    }

    fn fdb_transaction_get_key(
        transaction: &Transaction, [key, length], or_equal: Flag, offset: c_int, snapshot: Flag
    ) -> *mut Future {
        let selector = key.map(|key| KeySelector::new(key, or_equal != 0, offset));
        let get = move |transaction: &Local, selector| transaction.get_key(selector, snapshot != 0);
        transaction.ask(selector, get, Payload::Key)
    }

    fn fdb_transaction_watch(transaction: &Transaction, [key, length]) -> *mut Future {
        let watch = |transaction: &Local, key: Bytes| transaction.watch(key);
        transaction.ask_in_order(Order::Apart, key, watch, |()| Payload::Nothing)
    }
}

fn range_options(
    limit: c_int,
    target_bytes: c_int,
    mode: c_int,
    iteration: c_int,
    reverse: Flag,
) -> Result<RangeOptions> {
    Ok(RangeOptions {
        limit,
        target_bytes,
        mode: StreamingMode::from_code(mode)?,
        iteration,
        reverse: reverse != 0,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_range(
    transaction: &Transaction,
    begin: *const u8,
    begin_length: c_int,
    begin_or_equal: Flag,
    begin_offset: c_int,
    end: *const u8,
    end_length: c_int,
    end_or_equal: Flag,
    end_offset: c_int,
    limit: c_int,
    target_bytes: c_int,
    mode: c_int,
    iteration: c_int,
    snapshot: Flag,
    reverse: Flag,
) -> *mut Future {
    // SAFETY: the header's contract.
    let (begin, end) = unsafe { (bytes_at(begin, begin_length), bytes_at(end, end_length)) };
    let begin = begin.map(|key| KeySelector::new(key, begin_or_equal != 0, begin_offset));
    let end = end.map(|key| KeySelector::new(key, end_or_equal != 0, end_offset));
    let arguments = range_options(limit, target_bytes, mode, iteration, reverse)
        .and_then(|options| Ok((begin?, end?, options)));
    transaction.ask(
        arguments,
        move |transaction, (begin, end, options)| {
            transaction.get_range(begin, end, options, snapshot != 0)
        },
        |result| Payload::rows(result.rows, result.more),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_mapped_range(
    transaction: &Transaction,
    begin: *const u8,
    begin_length: c_int,
    begin_or_equal: Flag,
    begin_offset: c_int,
    end: *const u8,
    end_length: c_int,
    end_or_equal: Flag,
    end_offset: c_int,
    mapper: *const u8,
    mapper_length: c_int,
    limit: c_int,
    target_bytes: c_int,
    mode: c_int,
    iteration: c_int,
    snapshot: Flag,
    reverse: Flag,
) -> *mut Future {
    // SAFETY: the header's contract.
    let (begin, end, mapper) = unsafe {
        (
            bytes_at(begin, begin_length),
            bytes_at(end, end_length),
            bytes_at(mapper, mapper_length),
        )
    };
    let arguments = both(begin, end).and_then(|(begin, end)| {
        let options = range_options(limit, target_bytes, mode, iteration, reverse)?;
        let begin = KeySelector::new(begin, begin_or_equal != 0, begin_offset);
        let end = KeySelector::new(end, end_or_equal != 0, end_offset);
        Ok((begin, end, mapper?, options))
    });
    transaction.ask(
        arguments,
        move |transaction, (begin, end, mapper, options)| {
            transaction.get_mapped_range(begin, end, mapper, options, snapshot != 0)
        },
        Payload::mapped,
    )
}

// ---- writes ----

/// Before version 520 a versionstamped key's offset had two bytes, and a versionstamped value began with the stamp.
fn atomic_operand(kind: MutationKind, key: Bytes, operand: Bytes) -> (Bytes, Bytes) {
    let longer = |bytes: &Bytes, zeros: usize| Bytes::from([&bytes[..], &vec![0; zeros]].concat());
    match kind {
        _ if network::api_version() >= 520 => (key, operand),
        MutationKind::SetVersionstampedKey => (longer(&key, 2), operand),
        MutationKind::SetVersionstampedValue => (key, longer(&operand, 4)),
        _ => (key, operand),
    }
}

functions! {
    fn fdb_transaction_set(transaction: &Transaction, [key, key_length], [value, value_length]) {
        let row = both(key, value);
        transaction.post_valid(row, |transaction, (key, value)| transaction.set(key, value));
    }

    fn fdb_transaction_atomic_op(
        transaction: &Transaction, [key, key_length], [operand, operand_length], kind: c_int
    ) {
        let kind = u8::try_from(kind).ok().and_then(MutationKind::from_u8);
        let kind = kind.filter(|kind| kind.is_atomic());
        let kind = kind.ok_or(Error::invalid_mutation_type);
        let arguments = both(kind, both(key, operand));
        transaction.post_valid(arguments, |transaction, (kind, (key, operand))| {
            let (key, operand) = atomic_operand(kind, key, operand);
            transaction.atomic_op(kind, key, operand)
        });
    }

    fn fdb_transaction_clear(transaction: &Transaction, [key, length]) {
        transaction.post_valid(key, |transaction, key| transaction.clear(key));
    }

    fn fdb_transaction_clear_range(transaction: &Transaction, [begin, begin_length], [end, end_length]) {
        transaction.post_valid(both(begin, end), |transaction, (begin, end)| {
            transaction.clear_range(begin, end)
        });
    }

    fn fdb_transaction_add_conflict_range(
        transaction: &Transaction, [begin, begin_length], [end, end_length], kind: c_int
    ) -> Code {
        let range = both(begin, end).and_then(|(begin, end)| match kind {
            0 | 1 if begin > end => Err(Error::inverted_range),
            0 | 1 => Ok((begin, end)),
            _ => Err(Error::client_invalid_operation),
        });
        code(range.map(|(begin, end)| {
            transaction.post(move |transaction| {
                if kind == 0 {
                    transaction.add_read_conflict_range(begin, end);
                } else {
                    transaction.add_write_conflict_range(begin, end);
                }
            });
        }))
    }
}

// ---- the end ----

functions! {
    fn fdb_transaction_commit(transaction: &Transaction) -> *mut Future {
        let committed_version = transaction.committed_version.clone();
        let commit = move |transaction: &Local, ()| {
            let (transaction, committing) = (transaction.clone(), transaction.commit());
            async move {
                committing.await?;
                committed_version.store(transaction.get_committed_version(), Ordering::Release);
                Ok(())
            }
        };
        transaction.ask_in_order(Order::Ending, Ok(()), commit, |()| Payload::Nothing)
    }

    fn fdb_transaction_get_committed_version(transaction: &Transaction, out: &mut i64) -> Code {
        *out = transaction.committed_version.load(Ordering::Acquire);
        0
    }

    fn fdb_transaction_get_versionstamp(transaction: &Transaction) -> *mut Future {
        let ask = |transaction: &Local, ()| transaction.get_versionstamp();
        transaction.ask(Ok(()), ask, |stamp| Payload::Key(Bytes::copy_from_slice(&stamp.0)))
    }

    fn fdb_transaction_on_error(transaction: &Transaction, error: Code) -> *mut Future {
        let error = u16::try_from(error).map_err(|_| Error::client_invalid_operation);
        let committed_version = transaction.committed_version.clone();
        let wait = move |transaction: &Local, error| {
            let waiting = transaction.on_error(error);
            async move {
                waiting.await?;
                committed_version.store(NO_VERSION, Ordering::Release);
                Ok(())
            }
        };
        transaction.ask_in_order(Order::Ending, error.map(Error), wait, |()| Payload::Nothing)
    }

    fn fdb_transaction_get_approximate_size(transaction: &Transaction) -> *mut Future {
        let size =
            |transaction: &Local, ()| std::future::ready(Ok(transaction.get_approximate_size()));
        transaction.ask(Ok(()), size, |bytes| Payload::Int64(bytes as i64))
    }
}

// ---- where data is ----

functions! {
    fn fdb_transaction_get_addresses_for_key(
        transaction: &Transaction, [key, length]
    ) -> *mut Future {
        let ask = |transaction: &Local, key: Bytes| transaction.get_addresses_for_key(key);
        transaction.ask(key, ask, |addresses| {
            let ports = network::api_version() >= PORTS_SINCE;
            let text = |address: SocketAddr| match ports {
                true => address.to_string(),
                false => address.ip().to_string(),
            };
            Payload::strings(addresses.into_iter().map(text).collect())
        })
    }

    fn fdb_transaction_get_estimated_range_size_bytes(
        transaction: &Transaction, [begin, begin_length], [end, end_length]
    ) -> *mut Future {
        let ask = |transaction: &Local, (begin, end)| {
            transaction.get_estimated_range_size_bytes(begin, end)
        };
        transaction.ask(both(begin, end), ask, Payload::Int64)
    }

    fn fdb_transaction_get_range_split_points(
        transaction: &Transaction, [begin, begin_length], [end, end_length], chunk_bytes: i64
    ) -> *mut Future {
        transaction.split_points(both(begin, end), chunk_bytes)
    }

    /// Since version 800: as above, with at most this many points.
    fn fdb_transaction_get_range_split_points_with_limit(
        transaction: &Transaction,
        [begin, begin_length], [end, end_length], chunk_bytes: i64, _limit: c_int
    ) -> *mut Future {
        transaction.split_points(both(begin, end), chunk_bytes)
    }
}
