//! A thread for the work of one owner, where a pool would give each piece of it to another thread.
//!
//! The allocator keeps free memory by the thread that had it. A large commit of an engine takes and frees a hundred megabytes; on a pool
//! thread the next one found nothing of it, and took as much again, fresh from the system.

use super::die;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Held while a job runs, one for each lane of this loop.
    static LANES: RefCell<Vec<Weak<Mutex<()>>>> = const { RefCell::new(Vec::new()) };
}

/// Runs closures one after another. The thread ends when the lane is dropped and the last of them is over.
#[derive(Debug)]
pub(crate) struct Lane {
    jobs: mpsc::Sender<Job>,
}

impl Lane {
    pub(crate) fn start() -> Self {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let running = Arc::new(Mutex::new(()));
        LANES.with_borrow_mut(|lanes| {
            lanes.retain(|lane| lane.strong_count() > 0);
            lanes.push(Arc::downgrade(&running));
        });
        std::thread::Builder::new()
            .name("lane".into())
            .spawn(move || {
                while let Ok(job) = waiting.recv() {
                    let _running = running.lock().unwrap_or_else(PoisonError::into_inner);
                    job();
                }
            })
            .expect("the operating system gives a lane its thread");
        Lane { jobs }
    }

    /// As [`offload`](crate::offload): if the future is dropped, a closure that has not started never runs, and one that has runs
    /// to its end.
    pub(crate) async fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (done, output) = oneshot::channel();
        let job = move || {
            if done.is_closed() {
                return;
            }
            let result =
                catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| die("task", "lane"));
            // Whoever has stopped waiting wants no answer.
            let _ = done.send(result);
        };
        let sent = self.jobs.send(Box::new(job));
        sent.expect("the thread lives as long as its lane");
        output.await.expect("a job answers, or the process ends")
    }
}

/// Waits until no lane of this loop runs anything. To be called when the tasks that could give them more are gone.
pub(super) fn finish() {
    for running in LANES.take() {
        if let Some(running) = running.upgrade() {
            drop(running.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
