//! Futures: a result that comes once, waited for by threads, callbacks, or not at all.
//!
//! A future is shared by its handle and by the work that fills it. It is set once, by a loop, or by its cancellation. Pointers
//! that getters give point into the result, which stays where it is until the handle is destroyed or its memory released.

use crate::arguments::{Code, Flag};
use crate::{network, state};
use bytes::Bytes;
use plinth_client::{MappedResult, MappedRow};
use plinth_core::{Error, Result};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// `FDBKey`, packed as the header packs it.
#[repr(C, packed(4))]
pub struct KeyEntry {
    key: *const u8,
    key_length: c_int,
}

/// `FDBKeyValue`.
#[repr(C, packed(4))]
pub struct RowEntry {
    key: *const u8,
    key_length: c_int,
    value: *const u8,
    value_length: c_int,
}

impl RowEntry {
    /// Points into the row: valid as long as that is.
    pub fn of((key, value): &(Bytes, Bytes)) -> Self {
        RowEntry {
            key: key.as_ptr(),
            key_length: key.len() as c_int,
            value: value.as_ptr(),
            value_length: value.len() as c_int,
        }
    }
}

impl KeyEntry {
    fn of(key: &Bytes) -> Self {
        KeyEntry {
            key: key.as_ptr(),
            key_length: key.len() as c_int,
        }
    }
}

/// `FDBKeySelector`.
#[repr(C, packed(4))]
struct SelectorEntry {
    key: KeyEntry,
    or_equal: Flag,
    offset: c_int,
}

/// `FDBMappedKeyValue`, 112 bytes: a row of the index, the range that it leads to, and what is there.
#[repr(C, packed(4))]
pub struct MappedEntry {
    key: KeyEntry,
    value: KeyEntry,
    begin: SelectorEntry,
    end: SelectorEntry,
    rows: *const RowEntry,
    row_count: c_int,
    capacity: c_int,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<MappedEntry>() == 112);

impl MappedEntry {
    /// Points into the row and into the entries of what it leads to.
    fn of(row: &MappedRow, entries: &[RowEntry]) -> Self {
        let selector = |key| SelectorEntry {
            key: KeyEntry::of(key),
            or_equal: 0,
            offset: 1,
        };
        MappedEntry {
            key: KeyEntry::of(&row.key),
            value: KeyEntry::of(&row.value),
            begin: selector(&row.begin),
            end: selector(&row.end),
            rows: entries.as_ptr(),
            row_count: entries.len() as c_int,
            capacity: entries.len() as c_int,
            reserved: [0; 32],
        }
    }
}

/// What a future holds.
pub enum Payload {
    Nothing,
    Int64(i64),
    Uint64(u64),
    Key(Bytes),
    Value(Option<Bytes>),
    Rows(Rows),
    #[allow(dead_code)] // keeps what the entries point to
    Mapped(Vec<MappedRow>, Vec<Vec<RowEntry>>, Vec<MappedEntry>, bool),
    #[allow(dead_code)] // keeps what the entries point to
    Keys(Vec<Bytes>, Vec<KeyEntry>),
    #[allow(dead_code)]
    Strings(Vec<CString>, Vec<*const c_char>),
}

// SAFETY: the raw pointers inside point into the byte strings beside them, which are never changed.
unsafe impl Send for Payload {}

pub struct Rows {
    #[allow(dead_code)] // keeps what the entries point to
    rows: Vec<(Bytes, Bytes)>,
    entries: Vec<RowEntry>,
    more: bool,
}

impl Payload {
    pub fn rows(rows: Vec<(Bytes, Bytes)>, more: bool) -> Self {
        let entries = rows.iter().map(RowEntry::of).collect();
        Payload::Rows(Rows {
            rows,
            entries,
            more,
        })
    }

    pub fn mapped(MappedResult { rows, more }: MappedResult) -> Self {
        let led_to = |row: &MappedRow| row.rows.iter().map(RowEntry::of).collect();
        let inner: Vec<Vec<RowEntry>> = rows.iter().map(led_to).collect();
        let both = rows.iter().zip(&inner);
        let entries = both
            .map(|(row, inner)| MappedEntry::of(row, inner))
            .collect();
        Payload::Mapped(rows, inner, entries, more)
    }

    pub fn keys(keys: Vec<Bytes>) -> Self {
        let entries = keys.iter().map(KeyEntry::of).collect();
        Payload::Keys(keys, entries)
    }

    pub fn strings(strings: Vec<String>) -> Self {
        let strings: Vec<CString> = strings
            .into_iter()
            .filter_map(|text| CString::new(text).ok())
            .collect();
        let pointers = strings.iter().map(|text| text.as_ptr()).collect();
        Payload::Strings(strings, pointers)
    }
}

type CallbackFunction = unsafe extern "C" fn(*mut Future, *mut c_void);

struct Callback {
    function: CallbackFunction,
    parameter: *mut c_void,
}

// SAFETY: the parameter is the caller's own, handed back to its function and never looked at.
unsafe impl Send for Callback {}

enum Outcome {
    Pending,
    Failed(Error),
    Holds(Payload),
    Released,
}

struct Inside {
    outcome: Outcome,
    callback: Option<Callback>,
    /// Threads that block. Waking them is a system call, which most futures are spared.
    waiting: u32,
}

/// `FDBFuture`.
pub struct Future {
    inside: Mutex<Inside>,
    ready: Condvar,
    /// Names the work on its loop, so that it can be cancelled.
    pub id: u64,
    /// Where that work is.
    home: Option<plinth_runtime::real::Remote>,
}

impl Future {
    pub fn new(home: Option<plinth_runtime::real::Remote>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Future {
            inside: Mutex::new(Inside {
                outcome: Outcome::Pending,
                callback: None,
                waiting: 0,
            }),
            ready: Condvar::new(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            home,
        })
    }

    /// A handle to a future that is ready from the beginning.
    pub fn early(result: Result<Payload>) -> *mut Future {
        let future = Future::new(None);
        future.set(result);
        future.into_handle()
    }

    pub fn into_handle(self: Arc<Self>) -> *mut Future {
        Arc::into_raw(self).cast_mut()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A callback that panics takes the process down, so there is nothing half-done to see.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the result, unless there is one. Wakes who waits and calls who wants to be called.
    pub fn set(self: &Arc<Self>, result: Result<Payload>) {
        let mut inside = self.lock();
        if !matches!(inside.outcome, Outcome::Pending) {
            return;
        }
        inside.outcome = match result {
            Ok(payload) => Outcome::Holds(payload),
            Err(error) => Outcome::Failed(error),
        };
        let callback = inside.callback.take();
        let waiting = inside.waiting;
        drop(inside);
        if waiting > 0 {
            self.ready.notify_all();
        }
        if let Some(callback) = callback {
            let handle = Arc::as_ptr(self).cast_mut();
            // SAFETY: the caller gave both together, for this call. It may destroy its handle meanwhile: we hold our own.
            unsafe { (callback.function)(handle, callback.parameter) };
        }
    }

    fn is_ready(&self) -> bool {
        !matches!(self.lock().outcome, Outcome::Pending)
    }

    fn error(&self) -> Code {
        let error = match &self.lock().outcome {
            Outcome::Pending => Error::future_not_set,
            Outcome::Failed(error) => *error,
            Outcome::Holds(_) => return 0,
            Outcome::Released => Error::future_released,
        };
        Code::from(error.code())
    }

    /// Shows the payload to `get`, which answers `None` if it is of another kind.
    fn read(&self, get: impl FnOnce(&Payload) -> Option<()>) -> Code {
        let inside = self.lock();
        if let Outcome::Holds(payload) = &inside.outcome {
            return match get(payload) {
                Some(()) => 0,
                None => Code::from(Error::client_invalid_operation.code()),
            };
        }
        drop(inside);
        self.error()
    }

    fn cancel(&self) {
        let (id, Some(home)) = (self.id, &self.home) else {
            return;
        };
        if !self.is_ready() {
            network::post(home, move || state::cancel(id));
        }
    }
}

/// Sets the future when the work that should have done so is dropped.
pub struct Promise(pub Arc<Future>);

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.set(Err(Error::operation_cancelled));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_cancel(future: &Future) {
    future.cancel();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_destroy(future: *mut Future) {
    if future.is_null() {
        return;
    }
    // SAFETY: the handle was made by `into_handle` and is given back once.
    let future = unsafe { Arc::from_raw(future.cast_const()) };
    future.lock().callback = None;
    future.cancel();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_release_memory(future: &Future) {
    let mut inside = future.lock();
    if matches!(inside.outcome, Outcome::Holds(_)) {
        inside.outcome = Outcome::Released;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_block_until_ready(future: &Future) -> Code {
    let mut inside = future.lock();
    if matches!(inside.outcome, Outcome::Pending) && network::is_network_thread() {
        return Code::from(Error::blocked_from_network_thread.code());
    }
    while matches!(inside.outcome, Outcome::Pending) {
        if let Err(error) = network::check_not_forked() {
            return Code::from(error.code());
        }
        inside.waiting += 1;
        inside = future
            .ready
            .wait(inside)
            .unwrap_or_else(PoisonError::into_inner);
        inside.waiting -= 1;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_is_ready(future: &Future) -> Flag {
    Flag::from(future.is_ready())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_is_error(future: &Future) -> Flag {
    Flag::from(matches!(future.lock().outcome, Outcome::Failed(_)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_set_callback(
    future: *mut Future,
    function: Option<CallbackFunction>,
    parameter: *mut c_void,
) -> Code {
    let Some(function) = function else {
        return Code::from(Error::client_invalid_operation.code());
    };
    // SAFETY: a handle that lives.
    let mut inside = unsafe { &*future }.lock();
    if matches!(inside.outcome, Outcome::Pending) {
        if inside.callback.is_some() {
            return Code::from(Error::client_invalid_operation.code());
        }
        inside.callback = Some(Callback {
            function,
            parameter,
        });
        return 0;
    }
    drop(inside);
    // SAFETY: the caller gave both together, for this call.
    unsafe { function(future, parameter) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_error(future: &Future) -> Code {
    future.error()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_int64(future: &Future, out: &mut i64) -> Code {
    future.read(|payload| match payload {
        Payload::Int64(number) => {
            *out = *number;
            Some(())
        }
        _ => None,
    })
}

/// Before API version 620.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_version(future: &Future, out: &mut i64) -> Code {
    // SAFETY: the same contract.
    unsafe { fdb_future_get_int64(future, out) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_uint64(future: &Future, out: &mut u64) -> Code {
    future.read(|payload| match payload {
        Payload::Uint64(number) => {
            *out = *number;
            Some(())
        }
        _ => None,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_key(
    future: &Future,
    key: &mut *const u8,
    length: &mut c_int,
) -> Code {
    future.read(|payload| match payload {
        Payload::Key(bytes) => {
            (*key, *length) = (bytes.as_ptr(), bytes.len() as c_int);
            Some(())
        }
        _ => None,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_value(
    future: &Future,
    present: &mut Flag,
    value: &mut *const u8,
    length: &mut c_int,
) -> Code {
    future.read(|payload| match payload {
        Payload::Value(found) => {
            let bytes = found.as_deref().unwrap_or_default();
            *present = Flag::from(found.is_some());
            (*value, *length) = (bytes.as_ptr(), bytes.len() as c_int);
            Some(())
        }
        _ => None,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_keyvalue_array(
    future: &Future,
    rows: &mut *const RowEntry,
    count: &mut c_int,
    more: &mut Flag,
) -> Code {
    future.read(|payload| match payload {
        Payload::Rows(found) => {
            (*rows, *count) = (found.entries.as_ptr(), found.entries.len() as c_int);
            *more = Flag::from(found.more);
            Some(())
        }
        _ => None,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_mappedkeyvalue_array(
    future: &Future,
    rows: &mut *const MappedEntry,
    count: &mut c_int,
    more: &mut Flag,
) -> Code {
    future.read(|payload| match payload {
        Payload::Mapped(_, _, entries, has_more) => {
            (*rows, *count) = (entries.as_ptr(), entries.len() as c_int);
            *more = Flag::from(*has_more);
            Some(())
        }
        _ => None,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_key_array(
    future: &Future,
    keys: &mut *const KeyEntry,
    count: &mut c_int,
) -> Code {
    future.read(|payload| match payload {
        Payload::Keys(_, entries) => {
            (*keys, *count) = (entries.as_ptr(), entries.len() as c_int);
            Some(())
        }
        _ => None,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_string_array(
    future: &Future,
    strings: &mut *const *const c_char,
    count: &mut c_int,
) -> Code {
    future.read(|payload| match payload {
        Payload::Strings(_, pointers) => {
            (*strings, *count) = (pointers.as_ptr(), pointers.len() as c_int);
            Some(())
        }
        _ => None,
    })
}
