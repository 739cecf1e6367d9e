//! Whether a gateway counts on being alone ([`Mode::Alone`]).
//!
//! Who counts on it is in the way of all that others commit. As long as one commits all the time, a gateway whose
//! commits take longer than the time for which others are expected is refused each time. It knocks: by a commit that
//! relies on nothing, and so is never refused. Who hears knocks one soon after the other keeps somebody from
//! committing, and expects others for twice as long each time. So after some knocks there is time for the slowest
//! commit.

use super::Pipeline;
use crate::ALONE_AFTER_MS;
use crate::commit::Mode;
use crate::tree::rows::Lock;
use plinth_runtime::{Duration, Instant, Task, now, probe, spawn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// After so many commits that take long a gateway may count on being alone.
const LATE_COMMITS: u32 = 5;
/// The time for which others are expected is doubled so often at most.
const DOUBLED_MAX: u32 = 6;
/// Who is knocked at so soon after he came to count on being alone has not left others enough time. It is longer than
/// two of the slowest commits. Somebody who writes now and then does not keep a busy gateway from its short cut.
const SOON: Duration = Duration::from_secs(20);

/// What a gateway knows of others that commit.
#[derive(Default)]
pub(super) struct Company {
    /// When somebody else's change was last seen, or was in the way.
    seen: Cell<Option<Instant>>,
    /// Changes of others that were seen.
    changes: Cell<u64>,
    /// How long the last commit took.
    pub took: Rc<Cell<Duration>>,
    /// When somebody was last heard who had knocked.
    knocked: Cell<Option<Instant>>,
    /// How often the time for which others are expected is doubled.
    doubled: Cell<u32>,
    /// How many batches in a row others were ahead of.
    refused: Cell<u32>,
    knock: RefCell<Option<Knock>>,
}

/// A commit by which others hear that this gateway is there.
struct Knock {
    began: Instant,
    /// It is over.
    landed: Rc<Cell<Option<Instant>>>,
    _commit: Task<()>,
}

impl Company {
    /// How long others' changes are expected after one was seen. They get time for some commits.
    fn alone_after(&self) -> Duration {
        let some = Duration::from_millis(ALONE_AFTER_MS.get()).max(LATE_COMMITS * self.took.get());
        some * (1 << self.doubled.get())
    }

    pub fn mode(&self) -> Mode {
        let after = self.alone_after();
        match self.seen.get() {
            Some(seen) if seen.elapsed() < after => Mode::Shared,
            _ => Mode::Alone,
        }
    }

    /// A change of somebody else was read.
    pub fn saw_a_change(&self) {
        self.changes.set(self.changes.get() + 1);
        self.met();
    }

    /// Somebody was in the way.
    pub fn met(&self) {
        self.seen.set(Some(now()));
    }

    /// Changes of others that were seen.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Somebody has knocked while this gateway counted on being alone.
    pub fn heard_a_knock(&self) {
        probe!("keeper_is_knocked");
        let before = self.knocked.replace(Some(now()));
        let doubled = match before {
            Some(before) if before.elapsed() < self.alone_after() + SOON => self.doubled.get() + 1,
            _ => 1,
        };
        self.doubled.set(doubled.min(DOUBLED_MAX));
    }

    /// A batch was committed.
    pub fn got_through(&self) {
        self.refused.set(0);
    }
}

impl Pipeline {
    /// Others were ahead of a batch that began then. If that happens again and again, one of them may count on being
    /// alone, and never see that this gateway is there.
    pub(super) fn was_refused(&self, began: Instant) {
        let company = &self.company;
        let refused = company.refused.get() + 1;
        company.refused.set(refused);
        let mut knock = company.knock.borrow_mut();
        // The one before was in vain if a batch that began behind it is refused.
        let is_new = knock.as_ref().is_none_or(|knock| {
            let is_old = knock.began.elapsed() > Duration::from_millis(ALONE_AFTER_MS.get());
            is_old && knock.landed.get().is_some_and(|landed| landed <= began)
        });
        if refused < 2 || !is_new {
            return;
        }
        probe!("keeper_knocks");
        let transaction = self.database.create_transaction();
        let lock = self.replica.rows.lock(Lock::Everything, self.gateway);
        transaction.add_write_conflict_key(lock);
        let landed = Rc::new(Cell::new(None));
        *knock = Some(Knock {
            began: now(),
            landed: landed.clone(),
            _commit: spawn("keeper_knock", async move {
                let _ = transaction.commit().await; // who is refused again knocks again
                landed.set(Some(now()));
            }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};
    use plinth_runtime::sleep;

    #[test]
    fn who_hears_one_knock_after_the_other_expects_others_for_longer_each_time() {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let hearing = async {
            let company = Company::default();
            assert_eq!(company.mode(), Mode::Alone);
            let (mut before, step) = (Duration::ZERO, Duration::from_millis(50));
            for _ in 0..20 {
                company.met();
                company.heard_a_knock();
                let began = now();
                while company.mode() == Mode::Shared {
                    sleep(step).await;
                }
                let shared = began.elapsed();
                assert!(shared + 2 * step >= before && shared < Duration::from_secs(100));
                before = shared;
            }
            assert!(before > Duration::from_secs(60), "{before:?}");
            sleep(2 * SOON).await;
            company.met();
            company.heard_a_knock();
            let first = 2 * Duration::from_millis(ALONE_AFTER_MS.get());
            assert_eq!(company.alone_after(), first, "they had time enough");
        };
        simulation
            .run_on(machine, hearing)
            .expect("nothing kills it");
    }
}
