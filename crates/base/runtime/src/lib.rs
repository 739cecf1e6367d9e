//! The only access to the outside world.
//!
//! Everything above this crate is single-threaded async code that reaches time, randomness, tasks, sockets and files
//! only through the functions here. They have two backends:
//!
//! - [`real`]: one event loop a worker thread, real sockets, real files behind a small pool of threads;
//! - [`sim`]: a whole data center in one thread (FDB §4): virtual time, machines with clocks that drift, disks
//!   that lose or tear what was not synced, networks that delay, cut and corrupt. Everything random in it comes
//!   from one seed, so a run that failed once fails again.
//!
//! Promises: both backends keep the same contract. Dropping a [`Task`] drops its future at once; bytes of one
//! connection arrive in order or not at all; a file write is durable when a later `sync` has returned `Ok`, and not
//! before; a task that panics ends its process.
//! What may never happen: under simulation, a result that depends on the machine on which the simulator runs.

mod backoff;
pub mod buggify;
pub mod checks;
mod combine;
pub mod disk;
pub mod fault;
pub mod gauge;
pub mod knobs;
pub mod machine;
pub mod memory;
pub mod metric;
pub mod net;
mod pace;
pub mod probe;
pub mod random;
pub mod readiness;
pub mod real;
pub mod secret;
pub mod serve;
pub mod sim;
pub mod standing;
pub mod sync;
pub mod tally;
mod task;
mod time;
pub mod trace;

pub use backoff::Backoff;
pub use combine::{Boxed, Either, join_all, race, yield_now};
pub use pace::{Chore, Pace};
pub use std::time::Duration;
pub use task::cell::Task;
pub use task::{TaskGroup, offload, spawn};
pub use time::instant::{HOST_CLOCK_ERROR_NS, Instant};
pub use time::{
    Sleep, beat_after, give_processor, host_clock_origin, now, second_clock, sleep, sleep_until,
    spin, timeout, unix_time_ms,
};

/// What the macros need from this crate's dependencies; not for direct use.
#[doc(hidden)]
pub mod macro_support {
    pub use linkme;
}

/// Number of times that a task has held up this thread's loop: it ran for about 40 ms or more, or blocked the loop for
/// about a tenth of a second. Each time is in the trace.
pub fn slow_tasks() -> u64 {
    real::watchdog::slow_tasks()
}

/// How long the turns of this thread's event loop took: everything that runs between two looks at sockets and timers.
/// In a simulation there are none.
pub fn turns() -> metric::latency::Timed {
    match sim::is_entered() {
        true => metric::latency::Timed::default(),
        false => real::pulse::lengths(),
    }
}

/// True inside a simulation in which no disk has lied or lost a write and no attacker interferes, so that no process
/// loses durable data. For assertions; a real process cannot know this and gets false.
pub fn nobody_has_lied() -> bool {
    sim::nobody_has_lied()
}

/// True inside a simulation. For tests and tools. A role must not use it to behave differently under test.
pub fn is_simulated() -> bool {
    sim::is_entered()
}
