//! Work for a worker's loop from other threads: for a library whose callers bring their own threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A closure to run on the loop. Closures of one thread run in the order in which it posted them.
pub type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    work: Vec<Work>,
    /// Set while the loop waits for work.
    waiting: Option<Waker>,
    is_closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code under the lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end. Clones send to the same loop.
#[derive(Clone)]
pub struct Remote(Arc<Shared>);

/// The loop's end. When it is dropped, pending and later work is dropped.
pub struct Arrivals(Arc<Shared>);

/// Makes a channel for work to a loop.
pub fn remote() -> (Remote, Arrivals) {
    let shared = Arc::<Shared>::default();
    (Remote(shared.clone()), Arrivals(shared))
}

impl Remote {
    /// Posts `work` to run on the loop soon. It is dropped at once if the loop has ended.
    pub fn post(&self, work: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        if queue.is_closed {
            drop(queue);
            return; // this drops the work, outside the lock
        }
        queue.work.push(Box::new(work));
        let waiting = queue.waiting.take();
        drop(queue);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl Arrivals {
    /// Runs the work that arrives, for ever.
    pub async fn run(&self) -> std::convert::Infallible {
        loop {
            let arrived = std::future::poll_fn(|context| {
                let mut queue = self.0.lock();
                if queue.work.is_empty() {
                    queue.waiting = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(std::mem::take(&mut queue.work))
            });
            arrived.await.into_iter().for_each(|work| work());
            crate::yield_now().await;
        }
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.work);
        drop(queue);
        drop(left);
    }
}
