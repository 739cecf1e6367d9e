//! The event loops of this process, on which the client runs: they are set up, run and stopped, once in a process.
//! Work for a loop is posted to it.

use plinth_core::{Error, Result};
use plinth_runtime::real::{self, Arrivals, Remote};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Either, race};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const LOOPS_MAX: i64 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    SetUp,
    Running,
    Stopped,
}

/// Called when the loops have ended, with the parameter that came with it.
pub type Hook = unsafe extern "C" fn(*mut c_void);

struct Network {
    phase: Phase,
    loops_wanted: usize,
    loops: Vec<Remote>,
    /// Queues of the loops that do not run yet.
    arrivals: Vec<Arrivals>,
    hooks: Vec<(Hook, Parameter)>,
}

struct Parameter(*mut c_void);
// SAFETY: only passed back to the caller's own function, never looked at.
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

pub fn is_network_thread() -> bool {
    IS_NETWORK_THREAD.get()
}

/// True if this process is a child of the one that set the network up. The threads of the loops do not exist in it,
/// and locks that they held stay locked. The child can go on without the client.
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

/// Posts work to the loop, unless the loop belongs to a parent process.
pub fn post(home: &Remote, work: impl FnOnce() + Send + 'static) {
    if check_not_forked().is_ok() {
        home.post(work);
    }
}

/// All loops, once the network is set up.
pub fn all() -> Result<Vec<Remote>> {
    check_not_forked()?;
    let network = network();
    if network.phase == Phase::New {
        return Err(Error::network_not_setup);
    }
    Ok(network.loops.clone())
}

/// The number, below `count`, of the loop for the next transaction.
pub fn next(count: usize) -> usize {
    NEXT_LOOP.fetch_add(1, Ordering::Relaxed) % count
}

/// Sets the number of loops. Only before they are set up.
pub fn set_count(count: i64) -> Result<()> {
    let mut network = network();
    if network.phase != Phase::New || !(1..=LOOPS_MAX).contains(&count) {
        return Err(Error::invalid_option_value);
    }
    network.loops_wanted = count as usize;
    Ok(())
}

/// Makes the loops. They run when [`run`] is called.
pub fn set_up() -> Result<()> {
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

async fn run_loop(arrivals: Arrivals, at_end: fn()) {
    IS_NETWORK_THREAD.set(true);
    let stopped = STOP_HERE.with(Notify::notified);
    match race(stopped, arrivals.run()).await {
        Either::Left(()) => {}
        Either::Right(never) => match never {},
    }
    drop(arrivals);
    at_end();
}

/// Runs the loops until they are stopped: one on this thread, each other on its own. Each calls `at_end` when it has
/// ended.
pub fn run(at_end: fn()) -> Result<()> {
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
        .map(|arrivals| real::spawn_worker("fdb network", move || run_loop(arrivals, at_end)))
        .collect();
    real::block_on(run_loop(own, at_end));
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

/// Ends the loops, those too that do not run yet.
pub fn stop() -> Result<()> {
    if check_not_forked().is_err() {
        return Ok(());
    }
    let mut network = network();
    match network.phase {
        Phase::New => return Err(Error::network_not_setup),
        Phase::Stopped => return Ok(()),
        Phase::SetUp | Phase::Running => network.phase = Phase::Stopped,
    }
    // A loop that does not run yet stops when it starts.
    for home in &network.loops {
        home.post(|| STOP_HERE.with(Notify::notify_one));
    }
    Ok(())
}

/// Adds a function to call when the loops have ended.
pub fn add_hook(hook: Option<Hook>, parameter: *mut c_void) -> Result<()> {
    let mut network = network();
    if network.phase == Phase::New {
        return Err(Error::network_not_setup);
    }
    let hook = hook.ok_or(Error::client_invalid_operation)?;
    network.hooks.push((hook, Parameter(parameter)));
    Ok(())
}
