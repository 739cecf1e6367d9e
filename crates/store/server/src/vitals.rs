//! State of the process and its machine, measured once a second, for status requests.

use crate::data_directory::DataDirectory;
use plinth_protocol::control::WorkerStatus;
use plinth_runtime::{Duration, disk, now, sleep};
use std::cell::RefCell;
use std::convert::Infallible;

/// How often the lag of the event loop is measured.
const TICK: Duration = Duration::from_millis(100);
/// Ticks in a round. Each round reads the free space, and drops the lag of the round before last.
const TICKS_A_ROUND: u32 = 10;

pub struct Vitals(RefCell<WorkerStatus>);

impl Default for Vitals {
    fn default() -> Self {
        Vitals(RefCell::new(WorkerStatus {
            disk_total: 0,
            disk_free: 0,
            loop_lag_ms: 0.0,
        }))
    }
}

impl Vitals {
    pub fn status(&self) -> WorkerStatus {
        self.0.borrow().clone()
    }

    pub async fn measure(&self, directory: &DataDirectory) -> Infallible {
        let mut before = Duration::ZERO;
        loop {
            // The loop goes on if the disk does not answer: file operations will report that.
            if let Ok(space) = disk::space(&directory.path).await {
                let mut status = self.0.borrow_mut();
                (status.disk_total, status.disk_free) = (space.total, space.free);
            }
            let mut worst = Duration::ZERO;
            for _ in 0..TICKS_A_ROUND {
                let due = now() + TICK;
                sleep(TICK).await;
                worst = worst.max(now().saturating_since(due));
                self.0.borrow_mut().loop_lag_ms = worst.max(before).as_secs_f64() * 1000.0;
            }
            before = worst;
        }
    }
}
