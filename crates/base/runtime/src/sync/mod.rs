//! Ways for the tasks of one worker to wait for each other.
//!
//! All of them are single-threaded (`Rc`, no locks), serve waiters in order of arrival, and need no runtime: they use
//! wakers only. Dropping a waiting future removes its waker, so a wait under `timeout` leaks nothing.

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

/// Stores the context's waker, without a clone if the same one is there already.
fn remember(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}

#[cfg(test)]
mod tests;
