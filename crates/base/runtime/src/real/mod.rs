//! The real backend: one tokio current-thread loop a worker, real sockets, files behind a pool of threads.
//!
//! A panic in a task prints its message and aborts the whole process. A role that meets a broken invariant ends, and
//! recovery replaces it; it never continues with only some of its tasks.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // this module is the access to the outside world

pub(crate) mod bell;
pub(crate) mod disk;
pub(crate) mod lane;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod pulse;
mod remote;
pub(crate) mod watchdog;

use crate::Instant;
use crate::task::cell::Runnable;
use crate::trace::lines::{Severity, send};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

pub use remote::{Arrivals, Remote, Work, remote};
pub(crate) use tokio::time::Sleep;

/// Most blocking calls (fsyncs, cold reads, engine commits) of a worker in flight; others queue.
const POOL_THREADS_MAX: usize = 16;
/// A pool thread that is idle for this long ends. Its free memory, up to 4 MiB for each size class, can then be used
/// by all threads or be returned. With ten seconds, tokio's default, the few calls of an idle server kept every thread
/// of a past burst alive: they go to the idle threads in turn. To start a thread again costs less than a tenth of an
/// fsync.
const POOL_THREAD_IDLE: std::time::Duration = std::time::Duration::from_millis(200);

/// Runs `future` to its end on this thread, with all tasks that it spawns. Tasks that are left then are dropped.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    run(std::pin::pin!(async { output = Some(future.await) }));
    output.expect("the future has come to its end")
}

/// The loop, which is compiled once and not for each future.
fn run(mut main: Pin<&mut dyn Future<Output = ()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(POOL_THREADS_MAX)
        .thread_keep_alive(POOL_THREAD_IDLE)
        // Poll sockets and timers after every turn of the loop (some sixty tasks), not after 61 turns. A loop that is
        // busy with long tasks must not be silent for so long that it is taken for dead.
        .event_interval(1)
        .build()
        .expect("the operating system gives an event loop its file descriptors");
    let tasks = tokio::task::LocalSet::new();
    let main =
        std::future::poll_fn(|context| watchdog::watched("main", || main.as_mut().poll(context)));
    runtime.block_on(pulse::in_turns(tasks.run_until(main)));
    // Dropped before the runtime, because the destructors of the remaining tasks may still use timers and sockets.
    let _entered = runtime.enter();
    drop(tasks);
    lane::finish();
}

/// Starts another worker: a thread with an event loop of its own. A panic in it aborts the process.
pub fn spawn_worker<T, F>(
    name: &str,
    main: impl FnOnce() -> F + Send + 'static,
) -> std::thread::JoinHandle<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let label = name.to_owned();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let run = AssertUnwindSafe(|| block_on(async move { main().await }));
            catch_unwind(run).unwrap_or_else(|_| die("worker", &label))
        })
        .expect("the operating system gives a worker its thread")
}

/// Waits until the process is asked to stop: interrupt or terminate.
pub async fn interrupted() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    crate::race(interrupt.recv(), terminate.recv()).await;
    Ok(())
}

/// Waits until the user presses Ctrl-C. From the first call on, that ends the process no more.
pub async fn interrupted_by_user() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::interrupt())?.recv().await;
    Ok(())
}

/// Aborts the process. The panic hook has printed the message; this adds the name of the task or worker.
fn die(what: &str, name: &str) -> ! {
    eprintln!("fatal: {what} '{name}' panicked; the process stops here");
    std::process::abort()
}

/// The event loop's side of a task.
struct Driver {
    name: &'static str,
    task: Rc<dyn Runnable>,
}

impl Future for Driver {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        watchdog::watched(self.name, || {
            catch_unwind(AssertUnwindSafe(|| self.task.run(context)))
                .unwrap_or_else(|_| die("task", self.name))
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.cancel();
    }
}

pub(crate) fn spawn(name: &'static str, task: Rc<dyn Runnable>) {
    tokio::task::spawn_local(Driver { name, task });
}

/// Cancels a closure that still waits for a pool thread when its caller stops waiting.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let mut handle = AbortOnDrop(tokio::task::spawn_blocking(move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| die("task", "offload"))
    }));
    match (&mut handle.0).await {
        Ok(output) => output,
        // Only a loop that is shutting down cancels the closure; this future is dropped next.
        Err(_) => std::future::pending().await,
    }
}

/// Ends when all tasks that are ready now have run, and the loop has looked at its sockets and timers.
pub(crate) async fn let_others_in() {
    tokio::task::yield_now().await;
}

fn origin() -> std::time::Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    *ORIGIN.get_or_init(std::time::Instant::now)
}

pub(crate) fn now() -> Instant {
    Instant(origin().elapsed().as_nanos() as u64)
}

/// See [`crate::give_processor`].
pub(crate) fn give_processor() {
    std::thread::yield_now();
}

/// See [`crate::second_clock`].
pub(crate) fn second_clock() -> Option<Instant> {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Some(Instant(
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        ))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// See [`crate::host_clock_origin`].
pub(crate) fn host_clock_origin() -> Option<u64> {
    static ORIGIN: OnceLock<Option<u64>> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        // Elsewhere the standard library's clock is another one.
        if !cfg!(target_os = "linux") {
            return None;
        }
        let look = |_| {
            let before = now().0;
            let host = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let half = (now().0 - before) / 2;
            let host = u64::try_from(host.tv_sec).ok()? * 1_000_000_000 + host.tv_nsec as u64;
            let is_exact = half < crate::HOST_CLOCK_ERROR_NS;
            is_exact.then(|| host.checked_sub(before + half)).flatten()
        };
        (0..1000).find_map(look)
    })
}

pub(crate) fn unix_time_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

/// A deadline further away than this counts as never: tokio could overflow on it.
const SLEEP_NS_MAX: u64 = 1_000_000_000 * 86_400 * 365;

pub(crate) fn sleep_until(deadline: Instant) -> Sleep {
    let nanoseconds = deadline.0.min(now().0.saturating_add(SLEEP_NS_MAX));
    tokio::time::sleep_until((origin() + std::time::Duration::from_nanos(nanoseconds)).into())
}

/// As `trace_warn!`, which stands above both backends.
fn warn(name: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
    send(unix_time_ms(), Severity::Warn, name, fields);
}

#[cfg(test)]
mod tests;
