//! The API version, the texts of errors, and the C functions for the life of the loops.

use crate::arguments::{Code, bytes_at, code};
use crate::loops::{self, Hook};
use crate::{future, state, tls};
use plinth_core::{Error, Result};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

const VERSION_MIN: c_int = 510;
const VERSION_MAX: c_int = 800;
/// What FoundationDB 7.3's clients report about themselves: version, source, protocol.
const CLIENT_VERSION: &[u8] = b"7.3.69,plinth,fdb00b073000000\0";

static API_VERSION: AtomicI32 = AtomicI32::new(0);

pub fn api_version() -> c_int {
    API_VERSION.load(Ordering::Acquire)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_select_api_version_impl(runtime: c_int, header: c_int) -> Code {
    if runtime < VERSION_MIN || header > VERSION_MAX {
        return code(Err(Error::api_version_not_supported));
    }
    if runtime > header {
        return code(Err(Error::api_version_invalid));
    }
    let chosen = API_VERSION.compare_exchange(0, runtime, Ordering::AcqRel, Ordering::Acquire);
    code(chosen.map(drop).map_err(|_| Error::api_version_already_set))
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_max_api_version() -> c_int {
    VERSION_MAX
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_client_version() -> *const c_char {
    CLIENT_VERSION.as_ptr().cast()
}

/// Static text for every error code.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_error(error: Code) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let text = |code: u16| CString::new(Error(code).message()).unwrap_or_default();
        (0..=u16::from_be_bytes([0x1f, 0xff])).map(text).collect()
    });
    let known = usize::try_from(error).ok().and_then(|at| texts.get(at));
    known.map_or(c"An error that has no code".as_ptr(), |text| text.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_error_predicate(predicate: c_int, error: Code) -> c_int {
    let Ok(error) = u16::try_from(error).map(Error) else {
        return 0;
    };
    c_int::from(match predicate {
        50000 => error.is_retryable(),
        50001 => error.is_maybe_committed(),
        50002 => error.is_retryable_not_committed(),
        _ => false,
    })
}

/// Applies a network option.
fn set_option(option: c_int, value: &[u8]) -> Result<()> {
    let number = || {
        let bytes: [u8; 8] = value.try_into().map_err(|_| Error::invalid_option_value)?;
        Ok(i64::from_le_bytes(bytes))
    };
    match option {
        // Loops: each may carry transactions of its own.
        65 => loops::set_count(number()?),
        // A library for TLS, and an external library as the only client. Success would be wrong, because Plinth has
        // neither.
        41 | 64 => Err(Error::unsupported_operation),
        42 | 43 | 45..=47 | 52..=55 => tls::set_option(option, value),
        // Tracing, multi-version clients, buggify and the like: nothing here depends on them.
        10 | 20 | 30..=40 | 48..=51 | 60..=63 | 66..=73 | 80..=84 | 90 | 91 | 1000..=1002 => Ok(()),
        _ => Err(Error::invalid_option),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_network_set_option(
    option: c_int,
    value: *const u8,
    length: c_int,
) -> Code {
    // SAFETY: the header's contract.
    let value = unsafe { bytes_at(value, length) };
    code(value.and_then(|value| set_option(option, &value)))
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_setup_network() -> Code {
    code(match api_version() {
        0 => Err(Error::api_version_unset),
        _ => loops::set_up(),
    })
}

/// Drops what lives on the loop that has ended.
fn clear_loop() {
    state::clear();
    future::drop_work();
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_run_network() -> Code {
    code(loops::run(clear_loop))
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_stop_network() -> Code {
    code(loops::stop())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_add_network_thread_completion_hook(
    hook: Option<Hook>,
    parameter: *mut c_void,
) -> Code {
    code(loops::add_hook(hook, parameter))
}
