//! The clock of a process: the state of its server, read and moved on with this machine's clock.

use crate::failover::Server;
use crate::interval::Interval;
use crate::sync::Untimed;
use crate::wait::{self, Pending, Verdict};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, now, sleep};
use std::cell::RefCell;
use std::fmt;

/// The clock has broken its bounds, and gives out no timestamp any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a clock has drifted or jumped beyond its bounds: this process must leave the cluster"
        )
    }
}

impl std::error::Error for Broken {}

pub struct Clock {
    server: RefCell<Server>,
    /// The server has changed: its clock may be enabled.
    changed: Notify,
}

impl Clock {
    pub fn new(server: Server) -> Clock {
        Clock {
            server: RefCell::new(server),
            changed: Notify::new(),
        }
    }

    /// Moves the server on, at a reading of the clock.
    pub fn update<T>(&self, change: impl FnOnce(&mut Server, u64) -> T) -> T {
        let changed = change(&mut self.server.borrow_mut(), now().0);
        self.changed.notify_all();
        changed
    }

    /// The interval that the master's time is in now. Waits while the clock is disabled.
    async fn interval(&self) -> Result<Interval, Broken> {
        loop {
            let changed = self.changed.notified();
            let time = self.server.borrow_mut().time(now().0);
            match time {
                Ok(interval) => return Ok(interval),
                Err(Untimed::Broken) => return Err(Broken),
                Err(Untimed::Disabled | Untimed::Unsynchronised) => changed.await,
            }
        }
    }

    /// A read or write timestamp for a strictly serializable transaction (`GET_TS` of Figure 4): when it is returned
    /// it is in the past, and when this was called it was not.
    pub async fn timestamp(&self) -> Result<u64, Broken> {
        let bounds = *self.server.borrow().bounds();
        let mut now = self.interval().await?;
        let pending = Pending::new(now);
        loop {
            match pending.check(now, &bounds) {
                Verdict::Past(timestamp) => return Ok(timestamp),
                Verdict::Wait(ns) => sleep(Duration::from_nanos(ns)).await,
            }
            now = self.interval().await?;
        }
    }

    /// A read timestamp without strictness: the lower bound, at once if the clock is enabled.
    pub async fn non_strict(&self) -> Result<u64, Broken> {
        Ok(wait::non_strict(self.interval().await?))
    }
}
