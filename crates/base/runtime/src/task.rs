//! Tasks: futures that run on this worker's loop, and the ways to combine them.
//!
//! A [`Task`] owns its future. Dropping the handle drops the future before `drop` returns, so the sockets, locks and
//! handlers of a dead role are gone at once and its successor never meets them. The one exception is a task that is
//! dropped from inside its own poll: its future is dropped when that poll returns.

use crate::{real, sim};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A future whose code stays in the crate that makes it.
///
/// The compiler makes the code of an `async fn` anew in each crate that awaits it, with all that it awaits in turn. So
/// what a crate offers to others, and is not called for each key, returns this: one allocation for each call.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The interface of a task to the event loop.
pub(crate) trait Runnable {
    /// Polls the task once. `Ready` means that the loop may drop it.
    fn run(&self, context: &mut Context<'_>) -> Poll<()>;
    /// Drops the future now, or, during a poll, when the poll returns.
    fn cancel(&self);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    Finished,
    Cancelled,
}

struct TaskCell<T> {
    /// `None` while the future is being polled, and after its end.
    future: RefCell<Option<Pin<Box<dyn Future<Output = T>>>>>,
    output: RefCell<Option<T>>,
    joiner: RefCell<Option<Waker>>,
    /// Wakes the event loop's side of the task, so that the loop drops it soon after it was cancelled.
    driver: RefCell<Option<Waker>>,
    state: Cell<State>,
    /// The simulated process of the task: its destructors run as that process, too.
    process: sim::ProcessId,
}

impl<T> TaskCell<T> {
    fn drop_future(&self, future: Pin<Box<dyn Future<Output = T>>>) {
        let _as_its_process = sim::enter_process(self.process);
        drop(future);
    }
}

impl<T> Runnable for TaskCell<T> {
    fn run(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut future) = self.future.take() else {
            return Poll::Ready(());
        };
        if self.driver.borrow().is_none() {
            *self.driver.borrow_mut() = Some(context.waker().clone());
        }
        let polled = future.as_mut().poll(context);
        match (polled, self.state.get()) {
            (Poll::Pending, State::Running) => {
                *self.future.borrow_mut() = Some(future);
                return Poll::Pending;
            }
            (Poll::Ready(output), State::Running) => {
                self.drop_future(future);
                // The destructors may have cancelled the task; the output is then dropped.
                if self.state.get() == State::Running {
                    self.state.set(State::Finished);
                    *self.output.borrow_mut() = Some(output);
                }
            }
            _ => self.drop_future(future),
        }
        if let Some(joiner) = self.joiner.take() {
            joiner.wake();
        }
        Poll::Ready(())
    }

    fn cancel(&self) {
        if self.state.get() == State::Running {
            self.state.set(State::Cancelled);
        }
        let future = self.future.take();
        if let Some(future) = future {
            self.drop_future(future);
            let driver = self.driver.take();
            if let Some(driver) = driver {
                driver.wake();
            }
        }
    }
}

/// Starts `future` on this worker's loop. Dropping the [`Task`] cancels it; [`Task::detach`] lets it run on.
///
/// The name appears in a panic's message and, under simulation, in the run's fingerprint.
#[must_use = "dropping a task cancels it: keep it, await it or detach it"]
pub fn spawn<T: 'static>(name: &'static str, future: impl Future<Output = T> + 'static) -> Task<T> {
    let cell = Rc::new(TaskCell {
        future: RefCell::new(Some(Box::pin(future))),
        output: RefCell::new(None),
        joiner: RefCell::new(None),
        driver: RefCell::new(None),
        state: Cell::new(State::Running),
        process: sim::current_process(),
    });
    match sim::current() {
        Some(world) => world.spawn(name, cell.clone()),
        None => real::spawn(name, cell.clone()),
    }
    Task { cell: Some(cell) }
}

/// A running task. Awaiting it gives the output; dropping it cancels it.
///
/// Awaiting a task whose simulated process was killed from outside never ends, because its output never comes.
pub struct Task<T> {
    cell: Option<Rc<TaskCell<T>>>,
}

impl<T> Task<T> {
    /// Lets the task run to its end without a handle.
    pub fn detach(mut self) {
        self.cell = None;
    }

    /// True once the future is gone: it returned, or was cancelled.
    pub fn is_finished(&self) -> bool {
        let cell = self.cell.as_ref().expect("present until detached");
        cell.state.get() != State::Running
    }

    /// The output, if the task has returned and the output was not taken yet.
    pub(crate) fn take_output(&self) -> Option<T> {
        let cell = self.cell.as_ref().expect("present until detached");
        cell.output.take()
    }
}

impl<T> Future for Task<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let cell = self.cell.as_ref().expect("present until detached");
        if let Some(output) = cell.output.take() {
            return Poll::Ready(output);
        }
        let mut joiner = cell.joiner.borrow_mut();
        if joiner
            .as_ref()
            .is_none_or(|w| !w.will_wake(context.waker()))
        {
            *joiner = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.cancel();
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

/// Lets every task that is ready now run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The winner of a [`race`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures and drops the other. When both are ready, `a` wins.
pub async fn race<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let mut a = pin!(a);
    let mut b = pin!(b);
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = a.as_mut().poll(context) {
            return Poll::Ready(Either::Left(output));
        }
        b.as_mut().poll(context).map(Either::Right)
    })
    .await
}

/// Waits for all of a few futures; the outputs are in the order of the inputs.
///
/// Every wake-up polls every unfinished future, so this is for replica sets, not for thousands of futures.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<(Option<Pin<Box<F>>>, Option<F::Output>)> = futures
        .into_iter()
        .map(|f| (Some(Box::pin(f)), None))
        .collect();
    std::future::poll_fn(|context| {
        let mut all_done = true;
        for (future, output) in &mut pending {
            let Some(running) = future else { continue };
            match running.as_mut().poll(context) {
                Poll::Ready(value) => {
                    *output = Some(value);
                    *future = None;
                }
                Poll::Pending => all_done = false,
            }
        }
        if all_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    pending
        .into_iter()
        .map(|(_, output)| output.expect("every future has finished"))
        .collect()
}
