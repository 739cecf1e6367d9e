//! How often a machine does what it does again and again.

use std::cell::Cell;

/// So many rounds without work, and the next ones are further apart.
const ROUNDS_AT_WORK: u32 = 5;

/// Whether this machine has anything to do beside rounds. One that has not shall cost little.
#[derive(Default)]
pub struct Pace {
    quiet_rounds: Cell<u32>,
}

impl Pace {
    /// There is work.
    pub fn quicken(&self) {
        self.quiet_rounds.set(0);
    }

    pub fn pass_round(&self) {
        let rounds = self.quiet_rounds.get();
        self.quiet_rounds.set(rounds.saturating_add(1));
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet_rounds.get() > ROUNDS_AT_WORK
    }
}
