//! Tasks: futures that run on this worker's loop.
//!
//! A [`Task`] owns its future. Dropping the handle drops the future before `drop` returns, so the sockets, locks and
//! handlers of a dead role are gone at once and its successor never meets them. The one exception is a task that is
//! dropped from inside its own poll: its future is dropped when that poll returns.

pub(crate) mod cell;

use crate::{real, sim};
use cell::{Owner, Task};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// Starts `future` on this worker's loop. Dropping the [`Task`] cancels it; [`Task::detach`] lets it run on.
///
/// The name appears in a panic's message and, under simulation, in the run's fingerprint.
#[must_use = "dropping a task cancels it: keep it, await it or detach it"]
pub fn spawn<T: 'static>(name: &'static str, future: impl Future<Output = T> + 'static) -> Task<T> {
    match sim::current() {
        Some(world) => world.start(name, future),
        None => {
            let (task, runnable) = cell::prepare(future, Owner::REAL);
            real::spawn(name, runnable);
            task
        }
    }
}

/// Holds the tasks of a role; when the last clone is dropped they are all cancelled.
///
/// A task of the group must not own a clone of it, or the group keeps itself alive.
#[derive(Clone, Default)]
pub struct TaskGroup {
    tasks: Rc<RefCell<GroupTasks>>,
}

#[derive(Default)]
struct GroupTasks {
    tasks: Vec<Task<()>>,
    /// Finished tasks are removed when the list has doubled since the last sweep: amortised constant work for each
    /// spawn.
    sweep_at: usize,
}

const SWEEP_TASKS_MIN: usize = 16;

impl TaskGroup {
    pub fn new() -> TaskGroup {
        TaskGroup::default()
    }

    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + 'static) {
        let task = spawn(name, future);
        let finished: Vec<Task<()>> = {
            let mut group = self.tasks.borrow_mut();
            group.tasks.push(task);
            if group.tasks.len() <= group.sweep_at.max(SWEEP_TASKS_MIN) {
                return;
            }
            let all = std::mem::take(&mut group.tasks);
            let (finished, live) = all.into_iter().partition(Task::is_finished);
            group.tasks = live;
            group.sweep_at = 2 * group.tasks.len();
            finished
        };
        drop(finished);
    }

    /// Cancels every task. The group can be used again afterwards.
    pub fn cancel_all(&self) {
        // Destructors may use this group, so nothing is borrowed while they run.
        let tasks = std::mem::take(&mut self.tasks.borrow_mut().tasks);
        drop(tasks);
    }

    /// Number of tasks held, including finished ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.tasks.borrow().tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Runs a blocking or CPU-heavy closure outside the loop: on a pool thread, or, simulated, in place with a delay.
///
/// If the future is dropped, a closure that has not started never runs, and a closure that has started runs to its
/// end.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match sim::current() {
        Some(world) => world.offload(work).await,
        None => real::offload(work).await,
    }
}
