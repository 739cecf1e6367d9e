//! Work for a worker's loop from threads that are not its own: what a library needs whose callers bring their own threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Runs on the loop, in the order in which one thread posted it.
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
        // Nothing that can panic happens under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The senders' end. Clones send to the same loop.
#[derive(Clone)]
pub struct Remote(Arc<Shared>);

/// The loop's end. When it is dropped, what is posted is dropped.
pub struct Arrivals(Arc<Shared>);

/// A way into a loop.
pub fn remote() -> (Remote, Arrivals) {
    let shared = Arc::<Shared>::default();
    (Remote(shared.clone()), Arrivals(shared))
}

impl Remote {
    /// Has `work` run on the loop, soon. Dropped at once if the loop is over.
    pub fn post(&self, work: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        if queue.is_closed {
            drop(queue);
            return; // and with it, outside the lock, the work
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
    /// Runs what arrives, for ever.
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
