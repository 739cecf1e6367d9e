//! The phases of a recovery, and how long each took.

use plinth_runtime::{Duration, Instant, trace};
use std::cell::{Cell, RefCell};

pub struct Phases {
    current: Cell<(&'static str, Instant)>,
    /// Finished phases of the recovery under way, or else of the last one.
    over: RefCell<Vec<(&'static str, Duration)>>,
    /// What the current phase waits for, if that is known; for people.
    waits_for: RefCell<String>,
    /// Why the last epoch that this controller kept has ended; for people.
    why_ended: RefCell<String>,
}

impl Default for Phases {
    fn default() -> Self {
        Phases {
            current: Cell::new(("starting", plinth_runtime::now())),
            over: RefCell::default(),
            waits_for: RefCell::default(),
            why_ended: RefCell::default(),
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
}
