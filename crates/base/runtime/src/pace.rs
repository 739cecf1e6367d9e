//! Long work in short turns.
//!
//! While one task computes, everything else on its loop waits: other requests, timers, the answers to pings. So work
//! of unbounded size runs until its turn is over, lets all ready tasks run, and continues.

use crate::{Duration, Instant, now, random, real, sim, sleep, yield_now};

/// Approximate length of a turn: far below a noticeable delay, far above the cost of a change of turns.
const TURN: Duration = Duration::from_millis(4);
/// Virtual time stands still while a task computes, so simulated turns end at random.
const SIMULATED_TURN_ENDS: f64 = 0.1;

/// The shortest stretch of a [`Chore`]: to look at the sockets costs a few microseconds.
const STRETCH_MIN: Duration = Duration::from_micros(250);
/// A chore has a share of the loop between these.
const SHARES: std::ops::RangeInclusive<f64> = 0.1..=0.8;

/// Lets all ready tasks run, and the loop look at its sockets and timers.
async fn let_others_in() {
    match sim::is_entered() {
        true => yield_now().await,
        false => real::let_others_in().await,
    }
}

/// The current turn. It began when this was created, or at the last rest.
pub struct Pace {
    began: Instant,
}

impl Pace {
    pub fn new() -> Self {
        Pace { began: now() }
    }

    /// True if the turn has taken long enough. Reads the clock, so call it about every ten microseconds of work.
    pub fn is_over(&self) -> bool {
        match sim::is_entered() {
            true => random::chance(SIMULATED_TURN_ENDS),
            false => self.began.elapsed() >= TURN,
        }
    }

    /// Lets everybody else in, and begins another turn.
    pub async fn rest(&mut self) {
        let_others_in().await;
        self.began = now();
    }

    /// Rests if the turn is over.
    pub async fn rest_if_over(&mut self) {
        if self.is_over() {
            self.rest().await;
        }
    }
}

/// Work in small steps that nobody waits for now, but that must not be put off for ever.
///
/// It has a share of the loop's time, whoever else is busy: after a rest it goes on for as long as its share allows
/// for the time that others had meanwhile. So a loop without other work does nothing else, and one that is busy is
/// late by one stretch, and not by as many as there are ready tasks in a turn.
pub struct Chore {
    began: Instant,
    stretch: Duration,
}

impl Chore {
    /// Begins its first stretch.
    #[allow(clippy::new_without_default)] // it begins now
    pub fn new() -> Self {
        Chore {
            began: now(),
            stretch: STRETCH_MIN,
        }
    }

    /// Call it after each step. Lets everybody else in if the stretch is over; `share` of the loop's time is for the
    /// chore until its next rest. It says how far the work is behind: 0 is not at all, 1 as far as it may be.
    pub async fn rest_if_over(&mut self, share: f64) {
        if sim::is_entered() {
            return rest_in_simulation().await;
        }
        let rests = now();
        if rests.saturating_since(self.began) < self.stretch {
            return;
        }
        let_others_in().await;
        self.began = now();
        let others = self.began.saturating_since(rests);
        self.stretch = stretch(others, share);
    }
}

/// How long a chore goes on that has rested for as long as `others` were at work. The less it is behind, the shorter:
/// others wait for it. Where it is far behind, short stretches would not be enough of them.
fn stretch(others: Duration, share: f64) -> Duration {
    let share = share.clamp(*SHARES.start(), *SHARES.end());
    let stretch = others.mul_f64(share / (1.0 - share));
    stretch.clamp(STRETCH_MIN, TURN.mul_f64(share))
}

/// Virtual time stands still while a task computes, so some simulated steps take time.
async fn rest_in_simulation() {
    let_others_in().await;
    if random::chance(SIMULATED_TURN_ENDS / 10.0) {
        let turn = random::below(TURN.as_micros() as u64);
        sleep(Duration::from_micros(turn)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{real, spawn};
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn others_run_while_work_goes_on_that_takes_many_turns() {
        real::block_on(async {
            let turns = Rc::new(Cell::new(0));
            let counted = turns.clone();
            let _other = spawn("other", async move {
                loop {
                    counted.set(counted.get() + 1);
                    yield_now().await;
                }
            });
            let mut pace = Pace::new();
            let began = now();
            while began.elapsed() < TURN * 10 {
                pace.rest_if_over().await;
            }
            assert!(turns.get() >= 5, "{} turns", turns.get());
        });
    }

    #[test]
    fn a_chore_has_its_share_of_the_loop_and_never_more_than_a_turn() {
        let ms = Duration::from_millis;
        assert_eq!(stretch(ms(0), 0.5), STRETCH_MIN);
        assert_eq!(stretch(ms(2), 0.5), ms(2));
        assert_eq!(stretch(ms(2), 0.2), Duration::from_micros(500));
        assert_eq!(stretch(ms(1), 0.75), ms(3));
        assert_eq!(stretch(ms(100), 0.5), TURN / 2, "it is half behind");
        // Never nothing, and never the whole loop.
        assert!(stretch(ms(9), 0.0) >= STRETCH_MIN && stretch(ms(1), 9.0) <= TURN);
    }

    #[test]
    fn a_loop_with_a_chore_looks_at_its_timers_between_two_stretches() {
        real::block_on(async {
            let _chore = spawn("chore", async {
                let mut chore = Chore::new();
                loop {
                    chore.rest_if_over(1.0).await;
                }
            });
            let _other = spawn("turns", async {
                let mut pace = Pace::new();
                loop {
                    pace.rest_if_over().await;
                }
            });
            let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let before = used();
            for _ in 0..20 {
                sleep(Duration::from_millis(1)).await;
            }
            // Each turn has one stretch of each of the two: without a look between them it would have sixty. What
            // others do on this machine costs this thread no processor time.
            let took = used() - before;
            assert!(
                took < rustix::time::Timespec {
                    tv_sec: 1,
                    tv_nsec: 0
                },
                "{took:?}"
            );
        });
    }
}
