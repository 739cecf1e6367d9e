//! The program's allocator, and when it returns free memory to the system.

use std::ffi::{c_int, c_long};
use std::time::Duration;

/// Roles allocate many small objects with all lifetimes; this allocator is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    // The `mimalloc` crate exposes these functions of the allocator only with its extended features.
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_collect(force: bool);
}

/// Milliseconds until the allocator returns free memory to the system. Its default is one second, less than the five
/// seconds for which a storage server keeps versions. With the default, the memory of old versions was returned and
/// requested again, page by page, all the time.
const PURGE_DELAY_OPTION: c_int = 15;
const PURGE_DELAY_MS: c_long = 10_000;

/// Call it before the program starts threads.
pub fn keep_free_memory_for_a_while() {
    // SAFETY: nothing else sets options, and there is only one thread so far.
    unsafe { mi_option_set(PURGE_DELAY_OPTION, PURGE_DELAY_MS) }
}

/// How often free memory is looked at. One look covers a quarter of the allocator's arenas.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;

/// Starts a thread that returns free memory when its delay is over. By itself the allocator looks only while it
/// allocates: a server that had gone idle after large transactions kept tens of megabytes for minutes. The system
/// calls are also no longer on the event loop.
pub fn return_free_memory_when_idle() -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "the thread has no event loop")]
    let look = || {
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            // SAFETY: any thread may call it at any time. It collects this thread's own heap, which is almost empty,
            // and what all threads have returned to the arenas.
            unsafe { mi_collect(false) }
        }
    };
    let thread = std::thread::Builder::new()
        .name("allocator".into())
        .stack_size(STACK_BYTES);
    #[expect(clippy::disallowed_methods, reason = "it runs beside the event loops")]
    let started = thread.spawn(look);
    started
        .map(drop)
        .map_err(|error| format!("cannot start a thread: {error}"))
}
