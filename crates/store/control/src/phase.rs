//! The phases of a recovery, and how long each took.

use plinth_runtime::{Duration, Instant, trace};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Recoveries that are remembered.
const RECOVERIES_MAX: usize = 32;
/// Letters of a cause that are remembered.
const CAUSE_MAX: usize = 300;

/// A recovery that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    pub epoch: u64,
    /// When the database accepted commits again, in milliseconds of Unix time.
    pub at_ms: u64,
    /// From the end of the epoch before, or the election of the controller, with all attempts.
    pub took: Duration,
    pub cause: String,
}

pub struct Phases {
    current: Cell<(&'static str, Instant)>,
    /// Finished phases of the recovery under way, or else of the last one.
    over: RefCell<Vec<(&'static str, Duration)>>,
    /// What the current phase waits for, if that is known; for people.
    waits_for: RefCell<String>,
    /// Why the last epoch that this controller kept has ended; for people.
    why_ended: RefCell<String>,
    /// Since when no commits are accepted, if they are not.
    down: Cell<Option<Instant>>,
    recoveries: RefCell<VecDeque<Recovered>>,
}

impl Default for Phases {
    fn default() -> Self {
        Phases {
            current: Cell::new(("starting", plinth_runtime::now())),
            over: RefCell::default(),
            waits_for: RefCell::default(),
            why_ended: RefCell::default(),
            down: Cell::new(Some(plinth_runtime::now())),
            recoveries: RefCell::default(),
        }
    }
}

impl Phases {
    /// Begins the first phase of another recovery.
    pub fn begin(&self, name: &'static str) {
        self.over.borrow_mut().clear();
        self.wait_for(String::new());
        trace!("RecoveryPhase", "phase" => name);
        self.current.set((name, plinth_runtime::now()));
    }

    pub fn set(&self, name: &'static str) {
        self.wait_for(String::new());
        trace!("RecoveryPhase", "phase" => name);
        let now = plinth_runtime::now();
        let (before, since) = self.current.replace((name, now));
        let took = now.saturating_since(since);
        self.over.borrow_mut().push((before, took));
    }

    /// Sets what the current phase waits for, until the next phase or the next call.
    pub fn wait_for(&self, what: String) {
        self.waits_for.replace(what);
    }

    pub fn ended(&self, why: String) {
        self.down.set(Some(plinth_runtime::now()));
        self.why_ended.replace(why);
    }

    pub fn why_ended(&self) -> String {
        self.why_ended.borrow().clone()
    }

    pub fn waits_for(&self) -> String {
        self.waits_for.borrow().clone()
    }

    pub fn current(&self) -> &'static str {
        self.current.get().0
    }

    /// How long the current phase has lasted.
    pub fn elapsed(&self) -> Duration {
        self.current.get().1.elapsed()
    }

    pub fn over(&self) -> Vec<(&'static str, Duration)> {
        self.over.borrow().clone()
    }

    /// The database accepts commits, in this epoch.
    pub fn recovered(&self, epoch: u64) {
        let mut recoveries = self.recoveries.borrow_mut();
        let why = self.why_ended();
        let cause = match &why[..] {
            _ if epoch == 1 => "the database was created",
            "" if recoveries.is_empty() => "another controller was elected",
            "" => "unknown",
            why => why,
        };
        if recoveries.len() == RECOVERIES_MAX {
            recoveries.pop_front();
        }
        let took = self
            .down
            .take()
            .map_or(Duration::ZERO, |since| since.elapsed());
        recoveries.push_back(Recovered {
            epoch,
            at_ms: plinth_runtime::unix_time_ms(),
            took,
            cause: cause.chars().take(CAUSE_MAX).collect(),
        });
    }

    /// The last recoveries of this controller, the oldest first.
    pub fn recoveries(&self) -> Vec<Recovered> {
        self.recoveries.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real::block_on;
    use plinth_runtime::sleep;

    const STEP: Duration = Duration::from_millis(3);

    #[test]
    fn the_last_recoveries_are_remembered_with_their_causes_and_all_of_their_time() {
        block_on(async {
            let phases = Phases::default();
            phases.begin("reading_coordinated_state");
            phases.recovered(7);
            let newest = 7 + RECOVERIES_MAX as u64;
            for epoch in 8..=newest {
                phases.ended("x".repeat(CAUSE_MAX * 2));
                // The first attempt fails.
                for _ in 0..2 {
                    phases.begin("reading_coordinated_state");
                    sleep(STEP).await;
                }
                phases.recovered(epoch);
            }
            let all = phases.recoveries();
            assert_eq!(all.len(), RECOVERIES_MAX);
            assert!(all.iter().all(|of| of.took >= STEP * 2), "{all:?}");
            assert!(all.iter().all(|of| of.cause.len() == CAUSE_MAX));
            assert_eq!((all[0].epoch, all[RECOVERIES_MAX - 1].epoch), (8, newest));
            let (first, later) = (Phases::default(), Phases::default());
            first.recovered(1);
            later.recovered(4);
            assert_eq!(first.recoveries()[0].cause, "the database was created");
            assert_eq!(
                later.recoveries()[0].cause,
                "another controller was elected"
            );
        });
    }
}
