//! Long work in short turns.
//!
//! While one task computes, everything else on its loop waits: other requests, timers, the answers to pings. So work
//! of unbounded size runs until its turn is over, lets all ready tasks run, and continues.

use crate::{Duration, Instant, now, random, sim, yield_now};

/// Approximate length of a turn: far below a noticeable delay, far above the cost of a change of turns.
const TURN: Duration = Duration::from_millis(4);
/// Virtual time stands still while a task computes, so simulated turns end at random.
const SIMULATED_TURN_ENDS: f64 = 0.1;

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

    /// Lets all other ready tasks run, and begins another turn.
    pub async fn rest(&mut self) {
        yield_now().await;
        self.began = now();
    }

    /// Rests if the turn is over.
    pub async fn rest_if_over(&mut self) {
        if self.is_over() {
            self.rest().await;
        }
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
}
