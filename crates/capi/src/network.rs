//! The API version, and the life of the loops: chosen, set up, run, stopped. Each once a process.

use crate::arguments::{Code, bytes_at, code};
use crate::state;
use plinth_core::{Error, Result};
use plinth_runtime::real::{self, Arrivals, Remote};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Either, race};
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const VERSION_MIN: c_int = 510;
const VERSION_MAX: c_int = 800;
/// What FoundationDB 7.3's clients report of themselves: version, source, protocol.
const CLIENT_VERSION: &[u8] = b"7.3.69,plinth,fdb00b073000000\0";
const LOOPS_MAX: i64 = 64;

static API_VERSION: AtomicI32 = AtomicI32::new(0);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    SetUp,
    Running,
    Stopped,
}

type Hook = unsafe extern "C" fn(*mut c_void);

struct Network {
    phase: Phase,
    loops_wanted: usize,
    loops: Vec<Remote>,
    /// Not yet running.
    arrivals: Vec<Arrivals>,
    hooks: Vec<(Hook, Parameter)>,
}

struct Parameter(*mut c_void);
// SAFETY: handed back to the caller's own function and never looked at.
unsafe impl Send for Parameter {}

static NETWORK: Mutex<Network> = Mutex::new(Network {
    phase: Phase::New,
    loops_wanted: 1,
    loops: Vec::new(),
    arrivals: Vec::new(),
    hooks: Vec::new(),
});
static NEXT_LOOP: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_NETWORK_THREAD: Cell<bool> = const { Cell::new(false) };
    /// Ends this thread's loop.
    static STOP_HERE: Notify = Notify::new();
}

fn network() -> MutexGuard<'static, Network> {
    NETWORK.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn api_version() -> c_int {
    API_VERSION.load(Ordering::Acquire)
}

pub fn is_network_thread() -> bool {
    IS_NETWORK_THREAD.get()
}

/// This process is a child of the one that set the network up: the threads of the loops are not in it, and locks that they
/// held stay locked. It may go its own way, without the client.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_fork() {
    IS_FORKED.store(true, Ordering::Release);
}

pub fn check_not_forked() -> Result<()> {
    match IS_FORKED.load(Ordering::Acquire) {
        true => Err(Error::network_not_setup),
        false => Ok(()),
    }
}

/// Has the loop do it, unless that is the loop of a parent process.
pub fn post(home: &Remote, work: impl FnOnce() + Send + 'static) {
    if check_not_forked().is_ok() {
        home.post(work);
    }
}

/// All loops, once the network is set up.
pub fn loops() -> Result<Vec<Remote>> {
    check_not_forked()?;
    let network = network();
    if network.phase == Phase::New {
        return Err(Error::network_not_setup);
    }
    Ok(network.loops.clone())
}

/// Which of `count` loops the next transaction goes to.
pub fn next_loop(count: usize) -> usize {
    NEXT_LOOP.fetch_add(1, Ordering::Relaxed) % count
}

async fn run_loop(arrivals: Arrivals) {
    IS_NETWORK_THREAD.set(true);
    let stopped = STOP_HERE.with(Notify::notified);
    match race(stopped, arrivals.run()).await {
        Either::Left(()) => {}
        Either::Right(never) => match never {},
    }
    drop(arrivals);
    state::clear();
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

/// Static text for every code.
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

/// Network options: what they do here.
fn set_option(option: c_int, value: &[u8]) -> Result<()> {
    let number = || {
        let bytes: [u8; 8] = value.try_into().map_err(|_| Error::invalid_option_value)?;
        Ok(i64::from_le_bytes(bytes))
    };
    let mut network = network();
    match option {
        // Loops: each may carry transactions of its own.
        65 => {
            let count = number()?;
            if network.phase != Phase::New || !(1..=LOOPS_MAX).contains(&count) {
                return Err(Error::invalid_option_value);
            }
            network.loops_wanted = count as usize;
            Ok(())
        }
        // TLS, and an external library as the only client: going on without them would not be what was asked for.
        41..=43 | 45..=47 | 52..=55 | 64 => Err(Error::unsupported_operation),
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

fn set_up() -> Result<()> {
    if api_version() == 0 {
        return Err(Error::api_version_unset);
    }
    let mut network = network();
    match network.phase {
        Phase::New => {}
        Phase::Stopped => return Err(Error::network_cannot_be_restarted),
        Phase::SetUp | Phase::Running => return Err(Error::network_already_setup),
    }
    // SAFETY: the handler stores one atomic.
    unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
    let pairs: Vec<_> = (0..network.loops_wanted).map(|_| real::remote()).collect();
    (network.loops, network.arrivals) = pairs.into_iter().unzip();
    network.phase = Phase::SetUp;
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_setup_network() -> Code {
    code(set_up())
}

fn run() -> Result<()> {
    let mut arrivals = {
        let mut network = network();
        match network.phase {
            Phase::New => return Err(Error::network_not_setup),
            Phase::Running => return Err(Error::network_already_setup),
            Phase::Stopped if network.arrivals.is_empty() => {
                return Err(Error::network_cannot_be_restarted);
            }
            Phase::SetUp => network.phase = Phase::Running,
            Phase::Stopped => {}
        }
        std::mem::take(&mut network.arrivals)
    };
    let own = arrivals.remove(0);
    let others: Vec<_> = arrivals
        .into_iter()
        .map(|arrivals| real::spawn_worker("fdb network", move || run_loop(arrivals)))
        .collect();
    real::block_on(run_loop(own));
    for other in others {
        let _ = other.join(); // a panic in it has ended the process
    }
    IS_NETWORK_THREAD.set(false);
    let hooks = std::mem::take(&mut network().hooks);
    for (hook, parameter) in hooks {
        // SAFETY: the caller gave both together, for this call.
        unsafe { hook(parameter.0) };
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_run_network() -> Code {
    code(run())
}

fn stop() -> Result<()> {
    if check_not_forked().is_err() {
        return Ok(());
    }
    let mut network = network();
    match network.phase {
        Phase::New => return Err(Error::network_not_setup),
        Phase::Stopped => return Ok(()),
        Phase::SetUp | Phase::Running => network.phase = Phase::Stopped,
    }
    // Before the loops run it waits for them.
    for home in &network.loops {
        home.post(|| STOP_HERE.with(Notify::notify_one));
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_stop_network() -> Code {
    code(stop())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_add_network_thread_completion_hook(
    hook: Option<Hook>,
    parameter: *mut c_void,
) -> Code {
    let mut network = network();
    if network.phase == Phase::New {
        return code(Err(Error::network_not_setup));
    }
    let Some(hook) = hook else {
        return code(Err(Error::client_invalid_operation));
    };
    network.hooks.push((hook, Parameter(parameter)));
    0
}
