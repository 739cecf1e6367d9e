//! A result that a loop hands over to whoever awaits it, on another thread.
//!
//! The two ends share one allocation. The loop holds the [`Promise`], the application the [`Answer`]. A promise that
//! is dropped answers by itself, so nobody waits for a loop that has ended. An answer that is dropped tells the loop,
//! which can then stop the work.

use crate::open_error::Result;
use plinth_core::Error;
use plinth_runtime::sync::Notify;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<T> {
    /// The application's task.
    Waiting(Option<Waker>),
    Ready(Result<T>),
    /// The result was taken.
    Taken,
}

struct Slot<T>(Mutex<State<T>>);

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code under the lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result and returns the task to wake.
    fn fill(&self, result: Result<T>) -> Option<Waker> {
        let mut state = self.lock();
        match &mut *state {
            State::Waiting(reader) => {
                let reader = reader.take();
                *state = State::Ready(result);
                reader
            }
            // The result is dropped outside the lock, with this function's arguments.
            State::Ready(_) | State::Taken => {
                drop(state);
                None
            }
        }
    }
}

/// The loop's end.
pub(crate) struct Promise<T>(Arc<Slot<T>>);

/// The application's end: a future of the result.
pub(crate) struct Answer<T>(Arc<Slot<T>>);

/// The two ends of a result that is not there yet.
pub(crate) fn pair<T>() -> (Promise<T>, Answer<T>) {
    let slot = Arc::new(Slot(Mutex::new(State::Waiting(None))));
    (Promise(slot.clone()), Answer(slot))
}

thread_local! {
    /// Tasks to wake when this turn of the loop ends.
    static TO_WAKE: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
    /// Rung when the first of them comes.
    static BELL: Notify = Notify::new();
}

/// Wakes the task at the end of this turn of the loop.
pub(crate) fn wake_in_turn(task: Waker) {
    let is_first = TO_WAKE.with_borrow_mut(|to_wake| {
        to_wake.push(task);
        to_wake.len() == 1
    });
    if is_first {
        BELL.with(Notify::notify_one);
    }
}

/// Wakes the tasks whose results have come since the last call. Returns whether there were any.
pub(crate) fn wake_all() -> bool {
    let woken = TO_WAKE.take();
    let any = !woken.is_empty();
    woken.into_iter().for_each(Waker::wake);
    any
}

/// Wakes them at the end of each turn of this loop, for ever: the task that runs this stands behind those that are
/// about to fill promises.
pub(crate) async fn wake_in_turns() {
    loop {
        BELL.with(Notify::notified).await;
        wake_all();
    }
}

impl<T> Promise<T> {
    /// Hands the result over, and wakes the application at the end of the loop's turn: one task often awaits many
    /// results, which come together.
    pub fn fill_in_turn(self, result: Result<T>) {
        if let Some(reader) = self.0.fill(result) {
            wake_in_turn(reader);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(reader) = self.0.fill(Err(Error::operation_cancelled)) {
            reader.wake();
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.0.lock();
        match &mut *state {
            State::Waiting(reader) => {
                if !reader
                    .as_ref()
                    .is_some_and(|known| known.will_wake(context.waker()))
                {
                    *reader = Some(context.waker().clone());
                }
                Poll::Pending
            }
            State::Ready(_) => match std::mem::replace(&mut *state, State::Taken) {
                State::Ready(result) => Poll::Ready(result),
                State::Waiting(_) | State::Taken => unreachable!("it was ready"),
            },
            State::Taken => panic!("a future is not polled after its end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    struct Counts(std::sync::atomic::AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn counting() -> (Arc<Counts>, Waker) {
        let counts = Arc::new(Counts(0.into()));
        (counts.clone(), Waker::from(counts))
    }

    fn count(counts: &Counts) -> usize {
        counts.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[test]
    fn a_result_wakes_its_task_once_and_at_the_end_of_the_turn() {
        let (counts, waker) = counting();
        let mut context = Context::from_waker(&waker);
        let (promise, mut answer) = pair();
        assert!(Pin::new(&mut answer).poll(&mut context).is_pending());
        promise.fill_in_turn(Ok(7));
        assert_eq!(count(&counts), 0);
        assert!(wake_all() && !wake_all());
        assert_eq!(count(&counts), 1);
        assert_eq!(Pin::new(&mut answer).poll(&mut context), Poll::Ready(Ok(7)));
    }

    #[test]
    fn a_promise_that_is_dropped_answers_at_once() {
        let (counts, waker) = counting();
        let mut context = Context::from_waker(&waker);
        let (promise, mut answer) = pair::<()>();
        assert!(Pin::new(&mut answer).poll(&mut context).is_pending());
        drop(promise);
        assert_eq!(count(&counts), 1);
        assert_eq!(
            Pin::new(&mut answer).poll(&mut context),
            Poll::Ready(Err(Error::operation_cancelled))
        );
    }
}
