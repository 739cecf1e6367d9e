//! The clock of a process: the state of its server, read and moved on with this machine's clock.

use crate::failover::Server;
use crate::guard::{Guard, Jumped};
use crate::interval::{Bounds, Interval};
use crate::sync::Untimed;
use crate::wait::{self, Pending, Verdict};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Task, race, sleep, spawn, spin};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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

/// Waits that are shorter than this are spent looking at the clock: timers have a resolution of a millisecond.
const SHORT_NS: u64 = 1_000_000;

pub struct Clock {
    inner: Rc<Inner>,
    looking: OnceCell<Task<()>>,
}

struct Inner {
    server: RefCell<Server>,
    guard: Guard,
    bounds: Bounds,
    /// The server has changed: its clock may be enabled.
    changed: Notify,
    waiting: RefCell<Waiting>,
    /// There is a timestamp that is past before all others.
    is_first: Notify,
}

/// Timestamps that are not past yet. One task looks at the clock for all of them.
#[derive(Default)]
struct Waiting {
    /// In the order in which they are past. The number tells those apart that are the same.
    calls: BTreeMap<(Pending, u64), Waker>,
    next_number: u64,
    is_broken: bool,
}

/// A call that waits until its timestamp is past. It is when it is not in the list any more.
struct Past {
    inner: Rc<Inner>,
    call: (Pending, u64),
}

impl Future for Past {
    type Output = Result<(), Broken>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let waiting = &mut *self.inner.waiting.borrow_mut();
        if waiting.is_broken {
            return Poll::Ready(Err(Broken));
        }
        let Some(waker) = waiting.calls.get_mut(&self.call) else {
            return Poll::Ready(Ok(()));
        };
        waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl Drop for Past {
    fn drop(&mut self) {
        self.inner.waiting.borrow_mut().calls.remove(&self.call);
    }
}

impl Inner {
    /// The interval that the master's time is in now. Waits while the clock is disabled.
    fn time(&self) -> Result<Interval, Untimed> {
        self.at_reading(Server::time)
    }

    /// A clock that has jumped breaks the server down before it does anything else.
    fn at_reading<T>(&self, change: impl FnOnce(&mut Server, u64) -> T) -> T {
        let server = &mut *self.server.borrow_mut();
        match self.guard.read() {
            Ok(reading) => change(server, reading),
            Err(Jumped(reading)) => {
                server.distrust();
                change(server, reading)
            }
        }
    }

    async fn interval(&self) -> Result<Interval, Broken> {
        loop {
            let changed = self.changed.notified();
            match self.time() {
                Ok(interval) => return Ok(interval),
                Err(Untimed::Broken) => return Err(Broken),
                Err(Untimed::Disabled | Untimed::Unsynchronised) => changed.await,
            }
        }
    }

    fn enter(self: &Rc<Inner>, pending: Pending) -> Past {
        let waiting = &mut *self.waiting.borrow_mut();
        let call = (pending, waiting.next_number);
        waiting.next_number += 1;
        let before = waiting.calls.insert(call, Waker::noop().clone());
        assert!(before.is_none(), "two calls wait as {call:?}");
        if waiting.calls.first_key_value().map(|(first, _)| *first) == Some(call) {
            self.is_first.notify_all();
        }
        Past {
            inner: self.clone(),
            call,
        }
    }

    /// Wakes the calls whose timestamps are past. How long the next one has to wait, in nanoseconds.
    fn pass(&self, now: Interval) -> Option<u64> {
        let waiting = &mut *self.waiting.borrow_mut();
        while let Some(first) = waiting.calls.first_entry() {
            match first.key().0.check(now, &self.bounds) {
                Verdict::Past(_) => first.remove().wake(),
                Verdict::Wait(ns) => return Some(ns),
            }
        }
        None
    }

    /// Looks at the clock until it breaks.
    async fn look(&self) -> Broken {
        loop {
            let is_first = self.is_first.notified();
            if self.waiting.borrow().calls.is_empty() {
                is_first.await;
                continue;
            }
            let now = match self.interval().await {
                Ok(now) => now,
                Err(broken) => return broken,
            };
            match self.pass(now) {
                None => (),
                Some(ns) if ns < SHORT_NS => {
                    race(is_first, spin(Duration::from_nanos(ns))).await;
                }
                Some(ns) => {
                    race(is_first, sleep(Duration::from_nanos(ns))).await;
                }
            }
        }
    }

    fn break_down(&self) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.is_broken = true;
        let calls = std::mem::take(&mut waiting.calls);
        drop(waiting);
        calls.into_values().for_each(Waker::wake);
    }
}

impl Clock {
    pub fn new(server: Server) -> Clock {
        Clock {
            inner: Rc::new(Inner {
                bounds: *server.bounds(),
                guard: Guard::new(server.bounds()),
                server: RefCell::new(server),
                changed: Notify::new(),
                waiting: RefCell::default(),
                is_first: Notify::new(),
            }),
            looking: OnceCell::new(),
        }
    }

    /// Moves the server on, at a reading of the clock.
    pub fn update<T>(&self, change: impl FnOnce(&mut Server, u64) -> T) -> T {
        let changed = self.inner.at_reading(change);
        self.inner.changed.notify_all();
        changed
    }

    /// Looks at the server without a reading of the clock.
    pub fn look<T>(&self, look: impl FnOnce(&Server) -> T) -> T {
        look(&self.inner.server.borrow())
    }

    /// The master's time now. Wakes nobody, so it may be asked again and again.
    pub fn time(&self) -> Result<Interval, Untimed> {
        self.inner.time()
    }

    /// A read or write timestamp for a strictly serializable transaction (`GET_TS` of Figure 4): when it is returned
    /// it is in the past, and when this was called it was not.
    ///
    /// Each call reads the clock when it begins, because a timestamp that was taken before may be past by then. The
    /// looks that follow are shared by all calls that wait.
    pub async fn timestamp(&self) -> Result<u64, Broken> {
        let inner = &self.inner;
        let now = inner.interval().await?;
        self.looking.get_or_init(|| {
            let inner = inner.clone();
            spawn("timestamps", async move {
                let Broken = inner.look().await;
                inner.break_down();
            })
        });
        inner.enter(Pending::new(now)).await?;
        Ok(now.upper)
    }

    /// A read timestamp without strictness: the lower bound, at once if the clock is enabled.
    pub async fn non_strict(&self) -> Result<u64, Broken> {
        Ok(wait::non_strict(self.inner.interval().await?))
    }
}
