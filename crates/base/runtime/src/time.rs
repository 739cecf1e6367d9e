//! Time of this machine's monotonic clock. Simulated machines' clocks drift apart, as real ones do.

pub mod instant;

use crate::{Duration, Either, race, real, sim, yield_now};
use instant::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

impl Instant {
    pub fn elapsed(self) -> Duration {
        now() - self
    }
}

pub fn now() -> Instant {
    match sim::current() {
        Some(world) => world.local_now(),
        None => real::now(),
    }
}

/// What the monotonic clock of the host showed when [`now`] was 0, in nanoseconds. All processes of a host have that
/// clock, so `now().0 + host_clock_origin()` is the same number for all of them at any moment, to within
/// [`HOST_CLOCK_ERROR_NS`](crate::HOST_CLOCK_ERROR_NS) and a reading's own error. `None` where there is no such clock.
///
/// A process that was started with another clock than its host's (a time namespace, `faketime`) cannot know it: who
/// relies on this compares it with another source.
pub fn host_clock_origin() -> Option<u64> {
    match sim::is_entered() {
        true => Some(0), // processes of a simulated machine have one clock
        false => real::host_clock_origin(),
    }
}

/// Another clock of this machine, with an origin of its own. It advances as [`now`] does, and it also counts while the
/// machine is suspended. The kernel is asked without the C library, so what a library has put in between (`faketime`)
/// does not change it. `None` where there is no such clock.
pub fn second_clock() -> Option<Instant> {
    match sim::current() {
        Some(world) => Some(world.second_now()),
        None => real::second_clock(),
    }
}

/// Lets another process that waits for this processor run first. It costs next to nothing if there is none. In
/// simulated time nobody waits for a processor.
pub fn give_processor() {
    if sim::current().is_none() {
        real::give_processor();
    }
}

/// The wall clock in milliseconds since 1970. Only for people (logs, the time keeper): no decision may depend on it.
pub fn unix_time_ms() -> u64 {
    match sim::current() {
        Some(world) => world.unix_time_ms(),
        None => real::unix_time_ms(),
    }
}

/// Waits for `d`. Real timers have a resolution of one millisecond.
pub fn sleep(d: Duration) -> Sleep {
    sleep_until(now() + d)
}

/// Waits for `d` as exactly as the clock can be read, by looking at it in every turn of the loop. The loop does not
/// rest meanwhile, so this is for waits that are shorter than the resolution of timers.
pub async fn spin(d: Duration) {
    let deadline = now() + d;
    if sim::is_entered() {
        return sleep_until(deadline).await; // where timers are exact, and time stands still in a turn
    }
    while now() < deadline {
        yield_now().await;
    }
}

/// Waits for the first multiple of `step` on this machine's clock that is after `earliest` and after now. Tasks that
/// wait so are woken together: a process that has little to do wakes up once for all of it.
pub async fn beat_after(earliest: Instant, step: Duration) {
    let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
    let beats = earliest.max(now()).0 / step + 1;
    sleep_until(Instant(beats.saturating_mul(step))).await;
}

pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        timer: Timer::Unset,
    }
}

/// Runs `future` for at most `d`; `None` if that is not enough. A future that is ready at once sets no timer.
pub async fn timeout<F: Future>(d: Duration, future: F) -> Option<F::Output> {
    match race(future, sleep(d)).await {
        Either::Left(output) => Some(output),
        Either::Right(()) => None,
    }
}

/// The future of [`sleep`] and [`sleep_until`]. The timer is set by the first poll.
pub struct Sleep {
    deadline: Instant,
    timer: Timer,
}

enum Timer {
    Unset,
    Real(Pin<Box<real::Sleep>>),
    Sim(sim::TimerHandle),
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if matches!(this.timer, Timer::Unset) {
            this.timer = match sim::current() {
                Some(world) => Timer::Sim(world.set_local_timer(this.deadline)),
                None => Timer::Real(Box::pin(real::sleep_until(this.deadline))),
            };
        }
        match &mut this.timer {
            Timer::Unset => unreachable!("set above"),
            Timer::Real(timer) => timer.as_mut().poll(context),
            Timer::Sim(timer) => timer.poll(context),
        }
    }
}
