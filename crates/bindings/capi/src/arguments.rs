//! Arguments from callers: pointers with lengths, flags, out-parameters.

use bytes::Bytes;
use plinth_core::{Error, Result};
use std::ffi::{CStr, c_char, c_int};

/// `fdb_error_t`: 0 for success.
pub type Code = c_int;
/// `fdb_bool_t`.
pub type Flag = c_int;

pub fn code(result: Result<()>) -> Code {
    result.err().map_or(0, |error| Code::from(error.code()))
}

/// The bytes at `data`. A negative length is an error, a null pointer is no bytes.
///
/// # Safety
/// `data` points to `length` readable bytes, or is null.
pub unsafe fn bytes_at(data: *const u8, length: c_int) -> Result<Bytes> {
    let length = usize::try_from(length).map_err(|_| Error::client_invalid_operation)?;
    if data.is_null() || length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the caller's promise.
    Ok(Bytes::copy_from_slice(unsafe {
        std::slice::from_raw_parts(data, length)
    }))
}

/// The text at `text`; `None` for a null pointer.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub unsafe fn text_at(text: *const c_char) -> Result<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Error::client_invalid_operation)?;
    Ok(Some(text.to_owned()))
}

/// Functions of the C API. `[key, length]` is the bytes at `key`, of this length: a `Result<Bytes>` named `key`.
macro_rules! functions {
    ($(
        $(#[$meta:meta])*
        fn $name:ident(
            $object:ident: $type:ty $(, [$bytes:ident, $length:ident])* $(, $argument:ident: $kind:ty)* $(,)?
        ) $(-> $result:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $object: $type,
            $($bytes: *const u8, $length: std::ffi::c_int,)*
            $($argument: $kind,)*
        ) $(-> $result)? {
            $(
                // SAFETY: the header's contract.
                let $bytes = unsafe { $crate::arguments::bytes_at($bytes, $length) };
            )*
            $body
        }
    )*};
}
pub(crate) use functions;

/// Both, or the error of the first that is wrong.
pub fn both<A, B>(first: Result<A>, second: Result<B>) -> Result<(A, B)> {
    first.and_then(|first| Ok((first, second?)))
}
