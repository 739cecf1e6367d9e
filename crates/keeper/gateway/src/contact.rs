//! Whether a gateway is in touch with what it stands on, which time counts, and which answers may go out.
//!
//! A *beat* changes the gateway's row, which the others time ([`crate::leases`]). Beats are sent one after the other,
//! and several may be under way: one that takes long does not hold up the next. Each proves contact from the moment
//! before it was sent: until then nobody can have begun to time the row as it is now. When its answer came proves
//! nothing. In which order beats land does not matter: each makes the row another one.
//!
//! The rule, which is asserted for each answer ([`Contact::covers`]): **an answer goes out only if a beat has landed
//! that was sent at most [`HOLD_MS`] before the request was heard, or later.** Whoever ends sessions of this gateway
//! waits for the time-out and that time after he has seen its row change, which is after the beat was sent. So no
//! session ends before the time-out after the last request that was answered. What is once covered remains so.
//!
//! - Time in which no beat lands for [`HOLD_MS`], or none is sent that lands, does **not count** against anybody:
//!   neither against its own clients nor against gateways whose rows it times. They could not do what they wanted to.
//! - Whoever takes up a session elsewhere needs some trips to the store. A session is over only if a beat has landed
//!   that was sent [`Contact::margin`] after the time-out: so many of the slowest beats of late.
//! - When no beat has landed for longer, it is **isolated**, and clients are disconnected, so that they go elsewhere.
//!   What counts for that is the time in which it could run. A busy processor proves nothing about the database.

use crate::{BEAT_MS, HOLD_MS, ISOLATION_MS};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Instant, now, second_clock};
use std::cell::Cell;

/// So many answers of the store, each as late as a beat's, another gateway may wait for until it has a session.
const TRIPS: u32 = 4;

/// How much older than a request the beat may be that covers the answer.
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

    /// How much later it is, by the clock that shows more; zero if it is not.
    pub fn since(&self, earlier: &Moment) -> Duration {
        let second = self.second.zip(earlier.second);
        let second = second.map_or(Duration::ZERO, |(later, earlier)| later - earlier);
        (self.at - earlier.at).max(second)
    }

    fn elapsed(&self) -> Duration {
        Moment::now().since(self)
    }
}

/// See the module.
pub struct Contact {
    /// Right before that beat was sent which was sent last of those that have landed.
    proved: Cell<Moment>,
    /// When a beat last landed.
    landed: Cell<Moment>,
    /// How long beats take of late: at least so long as the last one.
    slowness: Cell<Duration>,
    beats: Watch<u64>,
    uncounted: Cell<Duration>,
    /// Until then it is known what does not count.
    judged: Cell<Instant>,
    /// How long the gateway has tried since one landed.
    tried: Cell<Duration>,
    ticked: Cell<Instant>,
    /// No session of this gateway has a shorter time-out. So for that long after a beat that has landed, others have
    /// ended none.
    shortest: Duration,
}

impl Contact {
    pub fn new(shortest: Duration) -> Self {
        Contact {
            proved: Cell::new(Moment::now()),
            landed: Cell::new(Moment::now()),
            slowness: Cell::default(),
            beats: Watch::new(0),
            uncounted: Cell::default(),
            judged: Cell::new(now()),
            tried: Cell::default(),
            ticked: Cell::new(now()),
            shortest,
        }
    }

    /// A beat has landed that was sent right after `sent`.
    pub fn landed(&self, sent: Moment) {
        let at = Moment::now();
        assert!(sent.at <= at.at, "a beat lands before it is sent");
        let before = self.landed.replace(at);
        self.judge(before.at, at.at);
        let proved = self.proved.get();
        if sent.at > proved.at {
            self.judge(proved.at, sent.at);
            self.proved.set(sent);
        }
        let slowness = self.slowness.get() / 2;
        self.slowness.set(slowness.max(at.since(&sent)));
        self.tried.set(Duration::ZERO);
        self.beats.update(|beats| *beats += 1);
    }

    /// Between these two nothing was proved, or nothing landed. No time is given back twice.
    fn judge(&self, from: Instant, to: Instant) {
        if to - from > hold() {
            let more = to - from.max(self.judged.get());
            self.uncounted.set(self.uncounted.get() + more);
            self.judged.set(to.max(self.judged.get()));
        }
    }

    /// Ends when the first beat has landed: others know that the gateway is there.
    pub async fn begins(&self) {
        self.beats.wait_until(|beats| *beats > 0).await;
    }

    /// Right before that beat was sent which was sent last of those that have landed.
    pub fn proved(&self) -> Instant {
        self.proved.get().at
    }

    /// The answer to a request that was heard then may go out.
    pub fn covers(&self, heard: &Moment) -> bool {
        heard.since(&self.proved.get()) <= hold()
    }

    /// Ends when the answer may go out.
    pub async fn covered(&self, heard: &Moment) {
        self.beats.wait_until(|_| self.covers(heard)).await;
    }

    /// A beat has landed lately, however long ago it was sent.
    pub fn is_in_touch(&self) -> bool {
        self.landed.get().elapsed() <= hold()
    }

    /// Others may have ended sessions of this gateway before the beat that lands now.
    pub fn may_have_lost(&self) -> bool {
        self.proved.get().elapsed() > self.shortest
    }

    /// How long others may need to take up a session.
    pub fn margin(&self) -> Duration {
        TRIPS * self.slowness.get()
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
    fn answers_are_covered_by_when_a_beat_was_sent_and_time_without_one_does_not_count() {
        simulated(async {
            let contact = Contact::new(ms(4000));
            sleep(ms(800)).await;
            let (heard, sent) = (Moment::now(), Moment::now());
            assert!(contact.covers(&heard));
            sleep(ms(80)).await;
            contact.landed(sent);
            assert_eq!(contact.uncounted(), Duration::ZERO);
            sleep(ms(840)).await;
            assert!(
                contact.is_in_touch() && !contact.covers(&Moment::now()),
                "it counts from when the beat was sent"
            );
            assert!(contact.covers(&heard), "what is covered remains so");
            sleep(ms(2000)).await;
            contact.landed(Moment::now());
            assert!(contact.covers(&Moment::now()));
            assert!(contact.uncounted() > ms(2800) && contact.uncounted() < ms(2900));
        });
    }

    /// Beats that take two seconds, one every quarter of a second.
    #[test]
    fn beats_that_take_long_prove_contact_if_they_come_often() {
        simulated(async {
            let contact = Contact::new(ms(4000));
            let (mut under_way, mut heard) = (std::collections::VecDeque::new(), Vec::new());
            for beat in 0..40 {
                under_way.push_back(Moment::now());
                if under_way.len() > 8 {
                    contact.landed(under_way.pop_front().expect("it was sent"));
                }
                heard.push(Moment::now());
                if beat == 8 {
                    let all = contact.uncounted();
                    assert!(
                        all > ms(1950) && all < ms(2050),
                        "the first was late: {all:?}"
                    );
                }
                if beat > 8 {
                    let late: Vec<_> = heard.iter().filter(|h| !contact.covers(h)).collect();
                    assert!(late.len() <= 5, "{} are not answered", late.len());
                    assert!(contact.is_in_touch() && contact.uncounted() < ms(2050));
                }
                sleep(ms(250)).await;
            }
            assert!(contact.margin() > ms(7900));
            contact.landed(Moment::now());
            contact.landed(Moment::now());
            assert!(contact.margin() < ms(2100), "quick ones make up for it");
        });
    }

    #[test]
    fn beats_may_land_in_any_order_and_no_time_is_given_back_twice() {
        simulated(async {
            let contact = Contact::new(ms(4000));
            let first = Moment::now();
            sleep(ms(250)).await;
            let second = Moment::now();
            sleep(ms(2750)).await;
            contact.landed(second);
            contact.landed(first);
            assert!(contact.proved() == second.at);
            let all = contact.uncounted();
            assert!(all > ms(2950) && all < ms(3050), "it hung: {all:?}");
            sleep(ms(1)).await;
            contact.landed(Moment::now());
            let more = contact.uncounted() - all;
            assert!(more < ms(5), "none was sent meanwhile: {more:?}");
        });
    }

    #[test]
    fn who_could_not_run_is_not_isolated() {
        simulated(async {
            let contact = Contact::new(ms(4000));
            control().busy_process(current_process(), ms(60_000));
            try_for(&contact, ms(61_000)).await;
            assert!(!contact.covers(&Moment::now()) && !contact.is_isolated());
            try_for(&contact, ms(ISOLATION_MS.get())).await;
            assert!(contact.is_isolated_for(ms(4000)));
            assert!(!contact.is_isolated_for(ms(40_000)), "not before a third");
            try_for(&contact, ms(11_000)).await;
            assert!(contact.is_isolated_for(ms(40_000)));
        });
    }
}
