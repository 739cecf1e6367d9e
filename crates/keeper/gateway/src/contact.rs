//! Whether a gateway is in touch with what it stands on, which time counts, and who hears nothing meanwhile.
//!
//! A *beat* changes the gateway's row, which the others time ([`crate::leases`]). The gateway itself counts from the
//! moment before it sent the last beat that has landed, so from an earlier one than any other.
//!
//! - When no beat has landed for [`HOLD_MS`], it **holds** back all answers. Whoever ends its sessions waits for that
//!   time and the time-out, so no session ends before the time-out after the last request that was answered.
//! - The time without a beat does **not count** against anybody: neither against its own clients nor against gateways
//!   whose rows it times. They could not do what they wanted to do.
//! - When it has tried for longer, it is **isolated**, and clients are disconnected, so that they go elsewhere. What
//!   counts for that is the time in which it could run. A busy processor proves nothing about the database.

use crate::{BEAT_MS, HOLD_MS, ISOLATION_MS};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Instant, now, second_clock};
use std::cell::Cell;

/// How long a gateway that has no word of the database goes on answering.
pub fn hold() -> Duration {
    Duration::from_millis(HOLD_MS.get())
}

/// How often it is looked whether something is over.
pub fn tick() -> Duration {
    Duration::from_millis(BEAT_MS.get() / 10)
}

/// A moment, by a clock that stands still while the machine is suspended, and one that does not.
#[derive(Clone, Copy)]
pub struct Moment {
    pub at: Instant,
    second: Option<Instant>,
}

impl Moment {
    pub fn now() -> Moment {
        Moment {
            at: now(),
            second: second_clock(),
        }
    }

    /// By the clock that shows more.
    fn elapsed(&self) -> Duration {
        let second = self.second.zip(second_clock());
        let second = second.map_or(Duration::ZERO, |(before, now)| now - before);
        self.at.elapsed().max(second)
    }
}

/// See the module.
pub struct Contact {
    /// Right before the last beat that has landed was sent.
    proved: Cell<Moment>,
    beats: Watch<u64>,
    has_held: Cell<bool>,
    uncounted: Cell<Duration>,
    /// How long the gateway has tried since then.
    tried: Cell<Duration>,
    ticked: Cell<Instant>,
}

impl Default for Contact {
    fn default() -> Self {
        Contact {
            proved: Cell::new(Moment::now()),
            beats: Watch::new(0),
            has_held: Cell::default(),
            uncounted: Cell::default(),
            tried: Cell::default(),
            ticked: Cell::new(now()),
        }
    }
}

impl Contact {
    /// A beat has landed that was sent right after `sent`.
    pub fn landed(&self, sent: Moment) {
        let before = self.proved.get();
        if sent.at > before.at {
            let without = sent.at - before.at;
            if without > hold() {
                self.uncounted.set(self.uncounted.get() + without);
            }
            self.proved.set(sent);
        }
        self.tried.set(Duration::ZERO);
        self.beats.update(|beats| *beats += 1);
    }

    /// Ends when the first beat has landed: others know that the gateway is there.
    pub async fn begins(&self) {
        self.beats.wait_until(|beats| *beats > 0).await;
    }

    /// Right before the last beat that has landed was sent.
    pub fn proved(&self) -> Instant {
        self.proved.get().at
    }

    /// No answer may go out.
    pub fn holds(&self) -> bool {
        let holds = self.proved.get().elapsed() > hold();
        if holds {
            self.has_held.set(true);
        }
        holds
    }

    /// True once after it was in the way of answers.
    pub fn take_held(&self) -> bool {
        self.has_held.take()
    }

    /// Time that counts against nobody, in all.
    pub fn uncounted(&self) -> Duration {
        self.uncounted.get()
    }

    /// Called every [`tick`]. One that comes late shows that the gateway could not run.
    pub fn tick(&self) {
        let passed = now() - self.ticked.replace(now());
        self.tried.set(self.tried.get() + passed.min(2 * tick()));
    }

    /// The gateway has tried for long to reach the database.
    pub fn is_isolated(&self) -> bool {
        self.tried.get() >= Duration::from_millis(ISOLATION_MS.get())
    }

    /// So long that a client with this time-out had better go elsewhere.
    pub fn is_isolated_for(&self, timeout: Duration) -> bool {
        self.is_isolated() && self.tried.get() >= timeout / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation, control, current_process};
    use plinth_runtime::sleep;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn simulated<F: Future<Output = ()> + 'static>(work: F) {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        simulation.run_on(machine, work).expect("nothing kills it");
    }

    async fn try_for(contact: &Contact, time: Duration) {
        let began = now();
        while began.elapsed() < time {
            sleep(tick()).await;
            contact.tick();
        }
    }

    #[test]
    fn without_a_beat_answers_are_held_and_the_time_does_not_count() {
        simulated(async {
            let contact = Contact::default();
            sleep(ms(800)).await;
            assert!(!contact.holds());
            let sent = Moment::now();
            sleep(ms(800)).await;
            contact.landed(sent);
            assert_eq!(contact.uncounted(), Duration::ZERO);
            sleep(ms(200)).await;
            assert!(contact.holds(), "it counts from when the beat was sent");
            sleep(ms(2000)).await;
            let sent = Moment::now();
            contact.landed(sent);
            assert!(!contact.holds());
            assert!(contact.uncounted() > ms(2900) && contact.uncounted() < ms(3100));
        });
    }

    #[test]
    fn who_could_not_run_is_not_isolated() {
        simulated(async {
            let contact = Contact::default();
            control().busy_process(current_process(), ms(60_000));
            try_for(&contact, ms(61_000)).await;
            assert!(contact.holds() && !contact.is_isolated());
            try_for(&contact, ms(ISOLATION_MS.get())).await;
            assert!(contact.is_isolated_for(ms(4000)));
            assert!(!contact.is_isolated_for(ms(40_000)), "not before a third");
            try_for(&contact, ms(11_000)).await;
            assert!(contact.is_isolated_for(ms(40_000)));
        });
    }
}
