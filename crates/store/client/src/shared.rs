//! A future that several tasks may drive: each poll of any handle polls it, and all waiting tasks are woken.
//!
//! The read version of a transaction is such a future, since every read waits for it. So is each read: the
//! application waits for it, and a commit drives the reads that the application does not await.
//!
//! While only one task drives it, the inner future gets that task's waker. A second task makes the waker shared.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A cheap handle; the future is dropped with the last one.
pub(crate) struct Shared<T>(Rc<dyn Driven<T>>);

/// Contains the future: one allocation a read.
struct Core<F: Future> {
    /// Borrowed while it is polled; `None` after the end.
    future: RefCell<Option<F>>,
    output: RefCell<Option<F::Output>>,
    waiters: RefCell<Interested>,
}

/// Tasks that are woken when the future may go on.
#[derive(Default)]
enum Interested {
    #[default]
    Nobody,
    One(Waker),
    Several(Arc<Waiters>),
}

impl Interested {
    /// The waker for the inner future when the task of `waker` drives it; `None` means `waker` itself.
    fn join(&mut self, waker: &Waker) -> Option<Waker> {
        match self {
            Interested::One(first) if !first.will_wake(waker) => {
                let waiters = Arc::<Waiters>::default();
                waiters.add(first);
                waiters.add(waker);
                *self = Interested::Several(waiters.clone());
                Some(Waker::from(waiters))
            }
            Interested::Several(waiters) => {
                waiters.add(waker);
                Some(Waker::from(waiters.clone()))
            }
            Interested::One(_) => None,
            Interested::Nobody => {
                *self = Interested::One(waker.clone());
                None
            }
        }
    }
}

/// A future that any interested task can drive to its end.
pub(crate) trait Drive {
    /// Ready when the output is there, or was taken.
    fn drive(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// Something whose output is of type `T`.
trait Driven<T>: Drive {
    /// `None` before the end, and after the output was taken.
    fn output(&self) -> &RefCell<Option<T>>;
}

impl<F: Future> Drop for Core<F> {
    /// Wakes tasks that drive the future without a handle: there is nothing to wait for any more.
    fn drop(&mut self) {
        match self.waiters.take() {
            Interested::Nobody => {}
            Interested::One(waker) => waker.wake(),
            Interested::Several(waiters) => waiters.wake(),
        }
    }
}

/// The waker that the inner future sees. It wakes all tasks that polled since it was last called, so the future goes
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

impl<T: 'static> Shared<T> {
    pub fn new(future: impl Future<Output = T> + Unpin + 'static) -> Self {
        Shared(Rc::new(Core {
            future: RefCell::new(Some(future)),
            output: RefCell::new(None),
            waiters: RefCell::default(),
        }))
    }

    /// Ready from the start.
    pub fn ready(output: T) -> Self {
        Shared(Rc::new(Core {
            future: RefCell::new(None::<std::future::Ready<T>>),
            output: RefCell::new(Some(output)),
            waiters: RefCell::default(),
        }))
    }

    pub fn weak(&self) -> Weak<dyn Drive> {
        let driven: Rc<dyn Drive> = self.0.clone();
        Rc::downgrade(&driven)
    }
}

impl<T> Shared<T> {
    /// True if the output is there.
    pub fn is_done(&self) -> bool {
        self.0.output().borrow().is_some()
    }

    /// Takes the output. Only one handle may do so.
    pub fn poll_take(&self, context: &mut Context<'_>) -> Poll<T> {
        match self.0.drive(context) {
            Poll::Ready(()) => {
                let output = self.0.output().take();
                Poll::Ready(output.expect("the output is taken once"))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: Clone> Shared<T> {
    pub fn peek(&self) -> Option<T> {
        self.0.output().borrow().clone()
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

impl<F: Future + Unpin> Drive for Core<F> {
    fn drive(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.output.borrow().is_some() {
            return Poll::Ready(());
        }
        // Polled from within its own poll: the outer poll goes on.
        let Ok(mut future) = self.future.try_borrow_mut() else {
            return Poll::Ready(());
        };
        let Some(polled) = &mut *future else {
            return Poll::Ready(()); // its output was taken
        };
        let waker = self.waiters.borrow_mut().join(context.waker());
        let output = match waker {
            None => Pin::new(polled).poll(context),
            Some(waker) => Pin::new(polled).poll(&mut Context::from_waker(&waker)),
        };
        let Poll::Ready(output) = output else {
            return Poll::Pending;
        };
        // Its destructor may run any code: nothing is borrowed while it runs.
        let ended = future.take();
        drop(future);
        *self.output.borrow_mut() = Some(output);
        // A single waiter is the task that drives it now.
        let waiters = self.waiters.take();
        if let Interested::Several(waiters) = waiters {
            waiters.wake();
        }
        drop(ended);
        Poll::Ready(())
    }
}

impl<F: Future + Unpin> Driven<F::Output> for Core<F> {
    fn output(&self) -> &RefCell<Option<F::Output>> {
        &self.output
    }
}

/// Drives all reads to their ends. A read without handles counts as ended. Each is polled when it can go on, not when
/// any can: a commit may wait for thousands.
pub(crate) async fn drive_all(mut reads: Vec<Weak<dyn Drive>>) {
    // Most have been awaited, and are gone.
    reads.retain(|read| read.strong_count() > 0);
    if reads.is_empty() {
        return;
    }
    let queue = Arc::<Queue>::default();
    let slot = |at| Waker::from(Arc::new(Slot(queue.clone(), at)));
    let wakers: Vec<Waker> = (0..reads.len()).map(slot).collect();
    let mut under_way: Vec<bool> = vec![true; reads.len()];
    let mut left = reads.len();
    let mut ready: Vec<usize> = (0..reads.len()).collect();
    poll_fn(|context| {
        queue.lock().waker = Some(context.waker().clone());
        loop {
            for at in ready.drain(..) {
                if !under_way[at] {
                    continue;
                }
                let read = reads[at].upgrade();
                let mut context = Context::from_waker(&wakers[at]);
                under_way[at] = read.is_some_and(|read| read.drive(&mut context).is_pending());
                left -= usize::from(!under_way[at]);
            }
            std::mem::swap(&mut queue.lock().ready, &mut ready);
            match ready.is_empty() {
                true if left == 0 => return Poll::Ready(()),
                true => return Poll::Pending,
                false => {}
            }
        }
    })
    .await;
}

/// The driven reads that can go on.
#[derive(Default)]
struct Queue(Mutex<Ready>);

#[derive(Default)]
struct Ready {
    ready: Vec<usize>,
    waker: Option<Waker>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Slot(Arc<Queue>, usize);

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        let mut queue = self.0.lock();
        queue.ready.push(self.1);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
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
