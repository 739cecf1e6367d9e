//! Finds tasks that hold up their loop. Everything on a loop waits while one task computes or blocks: heartbeats too, so that
//! the process may be taken for dead.
//!
//! A loop counts its polls, which costs next to nothing. A thread looks at the counts; a poll that it meets again and again is
//! slow. It marks that, and the loop, when the poll is over, says which task it was.

use crate::trace_warn;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Looks at the same poll that make it slow: it has taken at least so many intervals.
const SLOW_LOOKS: u64 = 5;

#[derive(Default)]
struct Pulse {
    /// Odd during a poll.
    count: AtomicU64,
    /// The count at the last look.
    seen: AtomicU64,
    /// Looks that have met the poll under way.
    looks: AtomicU64,
}

thread_local! {
    static PULSE: Arc<Pulse> = register();
    static SLOW: Cell<u64> = const { Cell::new(0) };
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
        // Without it nothing is found, and nothing else is worse.
        let _ = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch);
    });
    let pulse = Arc::new(Pulse::default());
    let mut watched = WATCHED.lock().expect("no panic while it is held");
    watched.push(Arc::downgrade(&pulse));
    pulse
}

fn look(pulse: Arc<Pulse>) {
    let count = pulse.count.load(Relaxed);
    if count % 2 == 1 && count == pulse.seen.swap(count, Relaxed) {
        pulse.looks.fetch_add(1, Relaxed);
    }
}

/// Runs one poll of the task with this name.
pub(super) fn watched<T>(name: &'static str, poll: impl FnOnce() -> T) -> T {
    PULSE.with(|pulse| {
        let count = pulse.count.load(Relaxed);
        if count % 2 == 1 {
            return poll(); // inside another: that one is watched
        }
        pulse.count.store(count + 1, Relaxed);
        let output = poll();
        pulse.count.store(count + 2, Relaxed);
        if pulse.looks.load(Relaxed) > 0 {
            let looks = pulse.looks.swap(0, Relaxed);
            if looks >= SLOW_LOOKS {
                SLOW.set(SLOW.get() + 1);
                let at_least = LOOK_INTERVAL.as_millis() as u64 * looks;
                trace_warn!("SlowTask", "task" => name, "milliseconds" => at_least);
            }
        }
        output
    })
}

/// Slow polls on this thread so far.
pub(crate) fn slow_tasks() -> u64 {
    SLOW.get()
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
            watched("inner", || std::thread::sleep(LOOK_INTERVAL * 20))
        });
        assert_eq!(slow_tasks(), 1);
    }
}
