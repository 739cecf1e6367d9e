//! A future that several tasks may drive: each poll of any handle polls it, and all that wait are woken.
//!
//! The read version of a transaction is one (every read waits for it), and so is each range read (the
//! application waits for it, and a commit drives those that the application has put aside).

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A cheap handle; the future is dropped with the last.
pub(crate) struct Shared<T>(Rc<Core<T>>);

pub(crate) struct Core<T> {
    /// `None` while it is polled, and after the end.
    future: RefCell<Option<Pin<Box<dyn Future<Output = T>>>>>,
    output: RefCell<Option<T>>,
    waiters: Arc<Waiters>,
}

/// Something that can be driven to its end by whoever has an interest in it.
pub(crate) trait Drive {
    /// Ready when the output is there, or was.
    fn drive(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// The waker that the inner future sees: it wakes whoever polled since it was last called, so the future goes
/// on when one of them has lost interest.
#[derive(Default)]
struct Waiters(Mutex<Vec<Waker>>);

impl Waiters {
    fn add(&self, waker: &Waker) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|w| w.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let woken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        woken.into_iter().for_each(Waker::wake);
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Shared<T> {
    pub fn new(future: Pin<Box<dyn Future<Output = T>>>) -> Self {
        Shared(Rc::new(Core {
            future: RefCell::new(Some(future)),
            output: RefCell::new(None),
            waiters: Arc::default(),
        }))
    }

    /// Ready from the start.
    pub fn ready(output: T) -> Self {
        Shared(Rc::new(Core {
            future: RefCell::new(None),
            output: RefCell::new(Some(output)),
            waiters: Arc::default(),
        }))
    }

    /// Nothing is left to wait for.
    pub fn is_done(&self) -> bool {
        self.0.output.borrow().is_some()
    }

    pub fn core(&self) -> &Rc<Core<T>> {
        &self.0
    }

    /// For the one handle whose holder wants the output for itself.
    pub fn poll_take(&self, context: &mut Context<'_>) -> Poll<T> {
        match self.0.drive(context) {
            Poll::Ready(()) => Poll::Ready(self.0.output.take().expect("the output is taken once")),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: Clone> Shared<T> {
    pub fn peek(&self) -> Option<T> {
        self.0.output.borrow().clone()
    }

    pub fn poll_clone(&self, context: &mut Context<'_>) -> Poll<T> {
        match self.0.drive(context) {
            Poll::Ready(()) => Poll::Ready(self.peek().expect("the output stays")),
            Poll::Pending => Poll::Pending,
        }
    }

    pub async fn get(&self) -> T {
        std::future::poll_fn(|context| self.poll_clone(context)).await
    }
}

impl<T> Drive for Core<T> {
    fn drive(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.output.borrow().is_some() {
            return Poll::Ready(());
        }
        let Some(mut future) = self.future.take() else {
            // Taken already, or polled from within its own poll: then that poll goes on.
            return Poll::Ready(());
        };
        self.waiters.add(context.waker());
        let waker = Waker::from(self.waiters.clone());
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => {
                *self.output.borrow_mut() = Some(output);
                self.waiters.wake_by_ref();
                Poll::Ready(())
            }
            Poll::Pending => {
                *self.future.borrow_mut() = Some(future);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sync::oneshot;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Counter(AtomicU32);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_that_wait_are_woken_although_the_last_to_poll_is_gone() {
        let (sender, receiver) = oneshot::<u32>();
        let shared = Shared::new(Box::pin(receiver));
        let first = Arc::new(Counter(AtomicU32::new(0)));
        let last = Arc::new(Counter(AtomicU32::new(0)));
        let (first_waker, last_waker) = (Waker::from(first.clone()), Waker::from(last.clone()));
        assert!(
            shared
                .poll_clone(&mut Context::from_waker(&first_waker))
                .is_pending()
        );
        let other = shared.clone();
        assert!(
            other
                .poll_clone(&mut Context::from_waker(&last_waker))
                .is_pending()
        );
        drop(other);
        sender.send(7).expect("somebody waits");
        assert_eq!(first.0.load(Ordering::Relaxed), 1);
        assert_eq!(
            shared.poll_clone(&mut Context::from_waker(&first_waker)),
            Poll::Ready(Ok(7))
        );
    }
}
