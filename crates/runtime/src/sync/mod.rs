//! Ways for the tasks of one worker to wait for each other.
//!
//! All of it is single-threaded (`Rc`, no locks), first come first served, and needs no runtime: the wakers
//! do the work. Dropping a waiting future takes its waker out again, so a wait under `timeout` leaks nothing.

mod gate;
mod notify;
mod oneshot;
mod permits;
mod queue;
mod watch;

pub use gate::{AtLeast, VersionGate};
pub use notify::{Notified, Notify};
pub use oneshot::{Closed, OneshotReceiver, OneshotSender, oneshot};
pub use permits::{Permit, Permits};
pub use queue::{QueueReceiver, QueueSender, queue};
pub use watch::{Changed, Watch};

use std::task::{Context, Waker};

/// Remembers the context's waker, without a clone if it is the one already there.
fn remember(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}

#[cfg(test)]
mod tests;
