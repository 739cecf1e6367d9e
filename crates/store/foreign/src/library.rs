//! The shared library itself: its functions, its API version, its network thread.

use plinth_core::Error;
use plinth_core::texts;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

pub type Code = c_int;

/// The network option `client_threads_per_version`.
const CLIENT_THREADS: c_int = 65;

pub enum RawDatabase {}
pub enum RawTransaction {}
pub enum RawFuture {}

/// `FDBKeyValue`, packed as the public header packs it.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct RawRow {
    pub key: *const u8,
    pub key_length: c_int,
    pub value: *const u8,
    pub value_length: c_int,
}

/// `FDBKey`.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct RawKey {
    pub key: *const u8,
    pub key_length: c_int,
}

pub type Callback = unsafe extern "C" fn(*mut RawFuture, *mut c_void);

texts! {
    /// Why a library cannot be used.
    #[derive(Debug)]
    pub enum LoadError {
        /// There is no such file, or it is not a library.
        Unloadable(why: String) = "{why}";
        /// It lacks a function.
        Incomplete(name: &'static str) = "it has no function {name}";
        /// It refused a call.
        Refused(error: Error) = "{error}";
    }
}

impl std::error::Error for LoadError {}

/// The functions, by their names without `fdb_`.
macro_rules! calls {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        pub struct Calls {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Calls {
            fn of(library: &libloading::Library) -> Result<Calls, LoadError> {
                Ok(Calls {
                    $($name: {
                        let name = concat!("fdb_", stringify!($name));
                        // SAFETY: the public header says that these are the functions' types.
                        let found = unsafe { library.get(name.as_bytes()) };
                        *found.map_err(|_| LoadError::Incomplete(name))?
                    },)*
                })
            }
        }
    };
}

calls! {
    select_api_version_impl: fn(c_int, c_int) -> Code;
    network_set_option: fn(c_int, *const u8, c_int) -> Code;
    setup_network: fn() -> Code;
    run_network: fn() -> Code;
    stop_network: fn() -> Code;
    create_database: fn(*const c_char, *mut *mut RawDatabase) -> Code;
    database_destroy: fn(*mut RawDatabase);
    database_create_transaction: fn(*mut RawDatabase, *mut *mut RawTransaction) -> Code;
    transaction_destroy: fn(*mut RawTransaction);
    transaction_set_option: fn(*mut RawTransaction, c_int, *const u8, c_int) -> Code;
    transaction_get: fn(*mut RawTransaction, *const u8, c_int, c_int) -> *mut RawFuture;
    transaction_get_key: fn(*mut RawTransaction, *const u8, c_int, c_int, c_int, c_int) -> *mut RawFuture;
    transaction_get_range: fn(
        *mut RawTransaction, *const u8, c_int, c_int, c_int, *const u8, c_int, c_int, c_int,
        c_int, c_int, c_int, c_int, c_int, c_int
    ) -> *mut RawFuture;
    transaction_set: fn(*mut RawTransaction, *const u8, c_int, *const u8, c_int);
    transaction_clear_range: fn(*mut RawTransaction, *const u8, c_int, *const u8, c_int);
    transaction_get_read_version: fn(*mut RawTransaction) -> *mut RawFuture;
    transaction_get_committed_version: fn(*mut RawTransaction, *mut i64) -> Code;
    transaction_commit: fn(*mut RawTransaction) -> *mut RawFuture;
    transaction_on_error: fn(*mut RawTransaction, Code) -> *mut RawFuture;
    transaction_get_range_split_points: fn(
        *mut RawTransaction, *const u8, c_int, *const u8, c_int, i64
    ) -> *mut RawFuture;
    future_destroy: fn(*mut RawFuture);
    future_set_callback: fn(*mut RawFuture, Callback, *mut c_void) -> Code;
    future_get_error: fn(*mut RawFuture) -> Code;
    future_get_int64: fn(*mut RawFuture, *mut i64) -> Code;
    future_get_value: fn(*mut RawFuture, *mut c_int, *mut *const u8, *mut c_int) -> Code;
    future_get_key: fn(*mut RawFuture, *mut *const u8, *mut c_int) -> Code;
    future_get_keyvalue_array: fn(*mut RawFuture, *mut *const RawRow, *mut c_int, *mut c_int) -> Code;
    future_get_key_array: fn(*mut RawFuture, *mut *const RawKey, *mut c_int) -> Code;
}

/// A loaded library whose network runs. Clones share it; the network stops with the last.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

struct Loaded {
    calls: Calls,
    network: Option<JoinHandle<()>>,
    /// Keeps the functions loaded.
    _library: libloading::Library,
}

/// The system's own words: those of the error say only which call has failed.
fn why(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    let line = source.map_or_else(|| error.to_string(), ToString::to_string);
    format!("{line}; name a libfdb_c.so, of FoundationDB or of Plinth")
}

impl Library {
    /// Loads the library, selects the API version and starts its network, with `threads` threads if that is more than
    /// one. A library can be used once in a process.
    pub fn load(path: &Path, api_version: i32, threads: u32) -> Result<Library, LoadError> {
        // SAFETY: the user names a library and wants its code to run.
        let library = unsafe { libloading::Library::new(path) };
        let library = library.map_err(|error| LoadError::Unloadable(why(&error)))?;
        let calls = Calls::of(&library)?;
        let refused = |code| match crate::check(code) {
            Ok(()) => Ok(()),
            Err(error) => Err(LoadError::Refused(error)),
        };
        // SAFETY: the first calls, in the order that the API wants.
        unsafe {
            refused((calls.select_api_version_impl)(api_version, api_version))?;
            if threads > 1 {
                let count = i64::from(threads).to_le_bytes();
                refused((calls.network_set_option)(
                    CLIENT_THREADS,
                    count.as_ptr(),
                    8,
                ))?;
            }
            refused((calls.setup_network)())?;
        }
        let run = calls.run_network;
        let network = std::thread::Builder::new().name("libfdb_c network".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the C library takes a thread for its network"
        )]
        let network = network
            .spawn(move || {
                // SAFETY: it has been set up, and runs once.
                let _ = unsafe { run() }; // it ends when it is told to
            })
            .map_err(|error| LoadError::Unloadable(error.to_string()))?;
        Ok(Library(Arc::new(Loaded {
            calls,
            network: Some(network),
            _library: library,
        })))
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: it runs, and is no longer used.
        let stopped = unsafe { (self.calls.stop_network)() };
        if let Some(network) = self.network.take().filter(|_| stopped == 0) {
            let _ = network.join(); // it does not panic
        }
    }
}
