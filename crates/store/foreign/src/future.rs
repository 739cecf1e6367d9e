//! Futures of the library, as Rust futures.

use crate::library::{Library, RawFuture, RawKey, RawRow};
use crate::{Rows, check};
use bytes::Bytes;
use plinth_core::{Result, Value};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// The waiting task, and whether the result is ready.
#[derive(Default)]
struct Signal {
    ready: bool,
    waker: Option<Waker>,
}

/// A future of the library. It keeps the library, not the transaction, which may be gone before it.
pub struct Future {
    library: Library,
    raw: *mut RawFuture,
}

impl Drop for Future {
    fn drop(&mut self) {
        // SAFETY: made by the library, given back once.
        unsafe { (self.library.calls().future_destroy)(self.raw) };
    }
}

unsafe extern "C" fn ready(_: *mut RawFuture, signal: *mut c_void) {
    // SAFETY: the library hands back, once, what `wait` has given it.
    let signal = unsafe { Arc::from_raw(signal.cast::<Mutex<Signal>>().cast_const()) };
    let mut inside = signal.lock().unwrap_or_else(PoisonError::into_inner);
    inside.ready = true;
    let waker = inside.waker.take();
    drop(inside);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// # Safety
/// If `length` is positive, `bytes` points to that many readable bytes.
unsafe fn copied(bytes: *const u8, length: c_int) -> Bytes {
    match usize::try_from(length) {
        // SAFETY: the caller's promise.
        Ok(length @ 1..) => unsafe {
            Bytes::copy_from_slice(std::slice::from_raw_parts(bytes, length))
        },
        _ => Bytes::new(),
    }
}

/// # Safety
/// If `length` is positive, `first` points to that many entries.
unsafe fn entries<'a, T>(first: *const T, length: c_int) -> &'a [T] {
    match usize::try_from(length) {
        // SAFETY: the caller's promise; packed types want no alignment beyond their own.
        Ok(length @ 1..) => unsafe { std::slice::from_raw_parts(first, length) },
        _ => &[],
    }
}

impl Future {
    pub fn new(library: &Library, raw: *mut RawFuture) -> Self {
        let library = library.clone();
        Future { library, raw }
    }

    /// Waits until the future is ready. If this is dropped while it waits, the library may never call back: then a
    /// few bytes leak.
    async fn wait(&self) -> Result<()> {
        let signal: Arc<Mutex<Signal>> = Arc::default();
        let given = Arc::into_raw(signal.clone()).cast_mut().cast::<c_void>();
        // SAFETY: the callback takes back what it is given here.
        check(unsafe { (self.library.calls().future_set_callback)(self.raw, ready, given) })?;
        std::future::poll_fn(|context| {
            let mut inside = signal.lock().unwrap_or_else(PoisonError::into_inner);
            if inside.ready {
                return Poll::Ready(());
            }
            let waker = context.waker();
            if inside
                .waker
                .as_ref()
                .is_none_or(|known| !known.will_wake(waker))
            {
                inside.waker = Some(waker.clone());
            }
            Poll::Pending
        })
        .await;
        // SAFETY: it is ready.
        check(unsafe { (self.library.calls().future_get_error)(self.raw) })
    }

    pub async fn done(self) -> Result<()> {
        self.wait().await
    }

    pub async fn number(self) -> Result<i64> {
        self.wait().await?;
        let mut number = 0;
        // SAFETY: it is ready.
        check(unsafe { (self.library.calls().future_get_int64)(self.raw, &mut number) })?;
        Ok(number)
    }

    pub async fn value(self) -> Result<Option<Value>> {
        self.wait().await?;
        let (mut present, mut bytes, mut length) = (0, std::ptr::null(), 0);
        let get = self.library.calls().future_get_value;
        // SAFETY: it is ready and holds a value; what is pointed to stays until it is destroyed.
        unsafe {
            check(get(self.raw, &mut present, &mut bytes, &mut length))?;
            Ok((present != 0).then(|| copied(bytes, length)))
        }
    }

    pub async fn key(self) -> Result<Bytes> {
        self.wait().await?;
        let (mut bytes, mut length) = (std::ptr::null(), 0);
        let get = self.library.calls().future_get_key;
        // SAFETY: it is ready and holds a key; what is pointed to stays until it is destroyed.
        unsafe {
            check(get(self.raw, &mut bytes, &mut length))?;
            Ok(copied(bytes, length))
        }
    }

    pub async fn rows(self) -> Result<Rows> {
        self.wait().await?;
        let (mut first, mut count, mut more) = (std::ptr::null::<RawRow>(), 0, 0);
        let get = self.library.calls().future_get_keyvalue_array;
        // SAFETY: as above.
        let rows = unsafe {
            check(get(self.raw, &mut first, &mut count, &mut more))?;
            let row = |row: &RawRow| {
                (
                    copied(row.key, row.key_length),
                    copied(row.value, row.value_length),
                )
            };
            entries(first, count).iter().map(row).collect()
        };
        Ok(Rows {
            rows,
            more: more != 0,
        })
    }

    pub async fn keys(self) -> Result<Vec<Bytes>> {
        self.wait().await?;
        let (mut first, mut count) = (std::ptr::null::<RawKey>(), 0);
        let get = self.library.calls().future_get_key_array;
        // SAFETY: as above.
        unsafe {
            check(get(self.raw, &mut first, &mut count))?;
            let key = |key: &RawKey| copied(key.key, key.key_length);
            Ok(entries(first, count).iter().map(key).collect())
        }
    }
}
