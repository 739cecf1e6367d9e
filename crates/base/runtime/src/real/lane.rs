//! A thread for the work of one owner. In a pool, each piece of the work would run on another thread.
//!
//! The allocator keeps free memory for the thread that freed it. A large commit of an engine allocates and frees a
//! hundred megabytes. On pool threads, the next commit found none of that memory, and took as much again from the
//! system.

use super::die;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// A lock for each lane of this loop, held while a job runs.
    static LANES: RefCell<Vec<Weak<Mutex<()>>>> = const { RefCell::new(Vec::new()) };
}

/// Runs closures one after another. The thread ends when the lane is dropped and the last closure has ended.
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

    /// As [`offload`](crate::offload): if the future is dropped, a closure that has not started never runs, and a
    /// closure that has started runs to its end.
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
            // Fails if the caller has stopped waiting; it needs no answer.
            let _ = done.send(result);
        };
        let sent = self.jobs.send(Box::new(job));
        sent.expect("the thread lives as long as its lane");
        output.await.expect("a job answers, or the process ends")
    }
}

/// Waits until no lane of this loop runs a job. Call it when the tasks that could submit more jobs are gone.
pub(super) fn finish() {
    for running in LANES.take() {
        if let Some(running) = running.upgrade() {
            drop(running.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
