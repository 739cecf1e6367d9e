//! A task: its future, and its handle. Event loops know it as [`Runnable`].

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The interface of a task to the event loop.
pub(crate) trait Runnable {
    /// Polls the task once. `Ready` means that the loop may drop it.
    fn run(&self, context: &mut Context<'_>) -> Poll<()>;
    /// Drops the future now, or, during a poll, when the poll returns.
    fn cancel(&self);
}

/// Whose task it is: a simulated process, whose destructors run as that process, too.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub process: u32,
    /// Does some work as the process.
    pub run: fn(u32, &mut dyn FnMut()),
}

impl Owner {
    /// Of a task of a real process.
    pub const REAL: Owner = Owner {
        process: 0,
        run: |_, work| work(),
    };
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
    owner: Owner,
}

impl<T> TaskCell<T> {
    fn drop_future(&self, future: Pin<Box<dyn Future<Output = T>>>) {
        let mut future = Some(future);
        (self.owner.run)(self.owner.process, &mut || drop(future.take()));
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

/// A task that is to be given to the loop.
pub(crate) fn prepare<T: 'static>(
    future: impl Future<Output = T> + 'static,
    owner: Owner,
) -> (Task<T>, Rc<dyn Runnable>) {
    let cell = Rc::new(TaskCell {
        future: RefCell::new(Some(Box::pin(future))),
        output: RefCell::new(None),
        joiner: RefCell::new(None),
        driver: RefCell::new(None),
        state: Cell::new(State::Running),
        owner,
    });
    (
        Task {
            cell: Some(cell.clone()),
        },
        cell,
    )
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
