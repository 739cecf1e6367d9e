//! Finds tasks that hold up their loop. Everything on a loop waits while one task computes or blocks, the answers to
//! pings included, so that the process may be taken for dead.
//!
//! A loop counts its polls, which costs next to nothing. A thread reads the counts at intervals. A poll that it meets
//! a second time is long, and the thread notes the time. When such a poll ends, the loop computes how long it took,
//! and how much of that time it ran: on a machine with fewer processors than work, a task may take long without having
//! run.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Interval of the thread; also about the time by which the measured length of a poll falls short.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A poll that has run for this long is slow.
const SLOW: Duration = Duration::from_millis(40);
/// A poll that has taken this long is slow, even if it has not run all the time.
const SLOW_WAITING: Duration = Duration::from_millis(100);

struct Pulse {
    /// Odd during a poll.
    count: AtomicU64,
    /// The count at the last look.
    seen: AtomicU64,
    /// When the current poll was met for the second time, and what the thread had run by then, in nanoseconds; 0: not
    /// yet.
    long_since: AtomicU64,
    ran_before: AtomicU64,
    thread: rustix::thread::Pid,
}

thread_local! {
    static PULSE: Arc<Pulse> = register();
    static SLOW_POLLS: Cell<u64> = const { Cell::new(0) };
}

fn register() -> Arc<Pulse> {
    static WATCHED: Mutex<Vec<Weak<Pulse>>> = Mutex::new(Vec::new());
    static WATCHDOG: Once = Once::new();
    WATCHDOG.call_once(|| {
        let watch = || {
            loop {
                std::thread::sleep(LOOK_INTERVAL);
                let mut watched = WATCHED.lock().expect("no panic while it is held");
                watched.retain(|pulse| pulse.strong_count() > 0);
                watched.iter().filter_map(Weak::upgrade).for_each(look);
            }
        };
        // If the thread cannot start, slow tasks are not found; nothing else changes.
        let _ = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch);
    });
    let pulse = Arc::new(Pulse {
        count: AtomicU64::new(0),
        seen: AtomicU64::new(0),
        long_since: AtomicU64::new(0),
        ran_before: AtomicU64::new(0),
        thread: rustix::thread::gettid(),
    });
    let mut watched = WATCHED.lock().expect("no panic while it is held");
    watched.push(Arc::downgrade(&pulse));
    pulse
}

/// Nanoseconds since the first call, plus one, so that 0 can mean never.
pub(super) fn clock() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

fn look(pulse: Arc<Pulse>) {
    let count = pulse.count.load(Relaxed);
    let met_before = count == pulse.seen.swap(count, Relaxed);
    if count % 2 == 1 && met_before && pulse.long_since.load(Relaxed) == 0 {
        pulse.ran_before.store(time_run_by(pulse.thread), Relaxed);
        pulse.long_since.store(clock(), Relaxed);
    }
}

/// Nanoseconds that a thread of this process has run; 0 if the system does not report it.
fn time_run_by(thread: rustix::thread::Pid) -> u64 {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let first = text.split_ascii_whitespace().next();
    first.and_then(|run| run.parse().ok()).unwrap_or(0)
}

fn time_run_here() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs one poll of the task with this name.
pub(super) fn watched<T>(name: &'static str, poll: impl FnOnce() -> T) -> T {
    PULSE.with(|pulse| {
        let count = pulse.count.load(Relaxed);
        if count % 2 == 1 {
            return poll(); // a poll inside another: the outer one is watched
        }
        pulse.count.store(count + 1, Relaxed);
        let output = poll();
        pulse.count.store(count + 2, Relaxed);
        if pulse.long_since.load(Relaxed) > 0 {
            was_long(name, pulse);
        }
        output
    })
}

#[cold]
fn was_long(name: &'static str, pulse: &Pulse) {
    let took = clock().saturating_sub(pulse.long_since.swap(0, Relaxed));
    let took = Duration::from_nanos(took) + LOOK_INTERVAL;
    let ran = time_run_here().saturating_sub(pulse.ran_before.load(Relaxed));
    let ran = (Duration::from_nanos(ran) + LOOK_INTERVAL).min(took);
    if ran >= SLOW || took >= SLOW_WAITING {
        SLOW_POLLS.set(SLOW_POLLS.get() + 1);
        let (took, ran) = (took.as_millis() as u64, ran.as_millis() as u64);
        super::warn(
            "SlowTask",
            &[
                ("task", &name),
                ("milliseconds", &took),
                ("ran_milliseconds", &ran),
            ],
        );
    }
}

/// Slow polls on this thread so far.
pub(crate) fn slow_tasks() -> u64 {
    SLOW_POLLS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_that_holds_up_its_loop_is_counted_and_others_are_not() {
        for _ in 0..20 {
            watched("quick", || std::thread::sleep(Duration::from_millis(5)));
        }
        assert_eq!(slow_tasks(), 0);
        watched("slow", || {
            watched("inner", || std::thread::sleep(SLOW_WAITING * 4))
        });
        assert_eq!(slow_tasks(), 1);
        watched("busy", || {
            let began = time_run_here();
            while time_run_here() - began < SLOW.as_nanos() as u64 * 2 {}
        });
        assert_eq!(slow_tasks(), 2);
    }

    #[test]
    fn what_a_thread_has_run_is_what_it_says_itself() {
        let began = time_run_here();
        while time_run_here() - began < 20_000_000 {}
        let seen = time_run_by(rustix::thread::gettid());
        assert!(seen.abs_diff(time_run_here()) < 15_000_000, "{seen}");
    }
}
