//! Futures: results that are set once, and awaited by threads, callbacks, or not at all.
//!
//! A future is shared by its handle and by the work that fills it. It is set once, by a loop, or by its cancellation.
//! The work is a task of its loop, found by the future's number: a cancellation drops it.
//! The pointers that getters return point into the result, which stays in place until the handle is destroyed or its
//! memory released.

use crate::arguments::{Code, Flag};
use crate::entries::KeyEntry;
use crate::loops;
use crate::payload::{MappedEntry, Payload, RowEntry};
use plinth_core::hash::HashMap;
use plinth_core::{Error, Result};
use plinth_runtime::Task;
use plinth_runtime::real::Remote;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::future::Future as Async;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type CallbackFunction = unsafe extern "C" fn(*mut Future, *mut c_void);

struct Callback {
    function: CallbackFunction,
    parameter: *mut c_void,
}

// SAFETY: the parameter is the caller's own. It is only passed back to the caller's function, never looked at.
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
    /// Number of threads that block on it. Waking them is a system call, which most futures do not need.
    waiting: u32,
}

/// `FDBFuture`.
pub struct Future {
    inside: Mutex<Inside>,
    ready: Condvar,
    /// Identifies the work on its loop, so that the work can be cancelled.
    id: u64,
    /// The loop of that work.
    home: Option<Remote>,
}

impl Future {
    pub fn new(home: Option<Remote>) -> Arc<Self> {
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

    /// A handle to a future that is ready from the start.
    pub fn early(result: Result<Payload>) -> *mut Future {
        let future = Future::new(None);
        future.set(result);
        future.into_handle()
    }

    pub fn into_handle(self: Arc<Self>) -> *mut Future {
        Arc::into_raw(self).cast_mut()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A callback that panics ends the process, so no half-done change is visible here.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the result, unless there is one. Wakes the waiting threads and calls the callback.
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
            // SAFETY: the caller gave both together, for this call. It may destroy its handle meanwhile: we hold our
            // own.
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

    /// Passes the payload to `get`, which returns `None` if it is of another kind.
    pub fn read(&self, get: impl FnOnce(&Payload) -> Option<()>) -> Code {
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
            loops::post(home, move || drop(working(|tasks| tasks.remove(&id))));
        }
    }
}

thread_local! {
    /// One task for each future whose work is under way on this loop. Dropping the task ends the work.
    static WORKING: RefCell<HashMap<u64, Task<()>>> = RefCell::default();
}

fn working<T>(change: impl FnOnce(&mut HashMap<u64, Task<()>>) -> T) -> T {
    WORKING.with(|working| change(&mut working.borrow_mut()))
}

/// Ends all work of this loop. The futures that it should have filled are set to an error.
pub fn drop_work() {
    // Destructors may access the tasks again.
    drop(working(std::mem::take));
}

/// Sets the future when the work that should have done so is dropped.
pub struct Promise(pub Arc<Future>);

impl Promise {
    /// Fills the future with the result of `work`, and then drops `held`. If the future is cancelled first, the work
    /// and the promise are dropped, which fills the future too.
    pub fn fill(
        self,
        work: impl Async<Output = Result<Payload>> + 'static,
        held: impl Sized + 'static,
    ) {
        let id = self.0.id;
        let task = plinth_runtime::spawn("future", async move {
            let result = work.await;
            if let Some(own) = working(|tasks| tasks.remove(&id)) {
                own.detach();
            }
            self.0.set(result);
            drop(held);
        });
        working(|tasks| tasks.insert(id, task));
    }
}

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
    if matches!(inside.outcome, Outcome::Pending) && loops::is_network_thread() {
        return Code::from(Error::blocked_from_network_thread.code());
    }
    while matches!(inside.outcome, Outcome::Pending) {
        if let Err(error) = loops::check_not_forked() {
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

/// Functions that tell what a future holds, if it holds that.
macro_rules! getters {
    ($($(#[$meta:meta])* $name:ident($($out:ident: $type:ty),*) of $held:pat => $tell:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            future: &$crate::future::Future,
            $($out: &mut $type,)*
        ) -> $crate::arguments::Code {
            future.read(|payload| match payload {
                $held => {
                    $tell
                    Some(())
                }
                _ => None,
            })
        }
    )*};
}
pub(crate) use getters;

getters! {
    fdb_future_get_int64(out: i64) of Payload::Int64(number) => { *out = *number; }
    /// Name of the function before API version 620.
    fdb_future_get_version(out: i64) of Payload::Int64(number) => { *out = *number; }
    fdb_future_get_uint64(out: u64) of Payload::Uint64(number) => { *out = *number; }
    fdb_future_get_key(key: *const u8, length: c_int) of Payload::Key(bytes) => {
        (*key, *length) = (bytes.as_ptr(), bytes.len() as c_int);
    }
    fdb_future_get_value(present: Flag, value: *const u8, length: c_int) of Payload::Value(found) => {
        let bytes = found.as_deref().unwrap_or_default();
        *present = Flag::from(found.is_some());
        (*value, *length) = (bytes.as_ptr(), bytes.len() as c_int);
    }
    fdb_future_get_keyvalue_array(rows: *const RowEntry, count: c_int, more: Flag) of Payload::Rows(found) => {
        (*rows, *count) = (found.entries.as_ptr(), found.entries.len() as c_int);
        *more = Flag::from(found.more);
    }
    fdb_future_get_mappedkeyvalue_array(rows: *const MappedEntry, count: c_int, more: Flag)
    of Payload::Mapped(_, _, entries, has_more) => {
        (*rows, *count) = (entries.as_ptr(), entries.len() as c_int);
        *more = Flag::from(*has_more);
    }
    fdb_future_get_key_array(keys: *const KeyEntry, count: c_int) of Payload::Keys(_, entries) => {
        (*keys, *count) = (entries.as_ptr(), entries.len() as c_int);
    }
    fdb_future_get_string_array(strings: *const *const c_char, count: c_int) of Payload::Strings(_, pointers) => {
        (*strings, *count) = (pointers.as_ptr(), pointers.len() as c_int);
    }
}
