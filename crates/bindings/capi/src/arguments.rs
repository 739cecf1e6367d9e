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
