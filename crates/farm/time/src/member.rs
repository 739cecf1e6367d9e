//! A member that is not the master: it synchronises, holds a lease from the master, and gives the master one.

use crate::configuration::Configuration;
use crate::interval::Interval;
use crate::messages::Body;
use crate::state::{Notice, Settings, State};
use crate::sync::Exchange;
use plinth_runtime::nobody_has_lied;

pub(crate) struct Following {
    pub configuration: Configuration,
    is_committed: bool,
    /// When this member last gave the master a lease.
    granted_at: u64,
    /// End of the lease that the master has given; 0 if it has given none.
    held_until: u64,
    /// The question that waits for an answer, by its reading.
    asking: Option<u64>,
    ask_at: u64,
}

impl Following {
    /// Learning of the configuration gives its master a lease.
    pub fn new(configuration: Configuration, former: Option<&Following>, now: u64) -> Following {
        let same_era = former.filter(|former| former.configuration.era == configuration.era);
        Following {
            configuration,
            is_committed: false,
            granted_at: now,
            held_until: same_era.map_or(0, |former| former.held_until),
            asking: None,
            ask_at: now,
        }
    }

    /// Its time is that of the configuration, and the master's lease runs.
    pub fn is_usable(&self, state: &State, now: u64) -> bool {
        let bounds = &state.settings.bounds;
        state.era == self.configuration.era && bounds.is_ahead(self.held_until, now)
    }

    /// The lease that the master has from here has ended, so that the master has stopped; or the master is dead.
    pub fn suspects_master(&self, state: &State, now: u64) -> bool {
        let is_dead = state.dead.contains(&self.configuration.master);
        is_dead || state.settings.has_ended(self.granted_at, now)
    }

    /// It asks for the time then, or suspects the master.
    pub fn quiet_until(&self, state: &State) -> u64 {
        let suspects = state.settings.ended_at(self.granted_at);
        match self.may_ask(state) {
            true => self.ask_at.min(suspects),
            false => suspects,
        }
    }

    pub fn is_committed(&self) -> bool {
        self.is_committed
    }

    fn answer(&mut self, state: &mut State, body: Body) {
        let (master, number) = (self.configuration.master, self.configuration.number);
        state.send(master, number, body);
    }

    /// A message of the master in this configuration.
    pub fn receive(&mut self, state: &mut State, body: &Body, now: u64) {
        match body {
            Body::NewConfig { asked, .. } => {
                self.granted_at = now;
                let forward = state.sync.ceiling(now);
                let asked = *asked;
                self.answer(state, Body::NewConfigAck { forward, asked });
            }
            Body::ConfigCommit => {
                self.is_committed = true;
                if !self.is_usable(state, now) {
                    self.ask_at = now; // the master may know the time by now
                }
            }
            Body::Advance { time, asked } if self.is_committed => {
                self.advance(state, *time, now);
                self.granted_at = now;
                self.answer(state, Body::AdvanceAck { asked: *asked });
            }
            Body::Time {
                sent,
                interval,
                asked,
            } if self.asking == Some(*sent) => {
                self.asking = None;
                let Settings {
                    sync_ns, resend_ns, ..
                } = state.settings;
                let pause = if interval.is_some() {
                    sync_ns
                } else {
                    resend_ns.min(sync_ns)
                };
                self.ask_at = sent.saturating_add(pause);
                if let Some(master) = interval {
                    self.synchronise(state, *sent, *master, now);
                }
                if !state.is_broken {
                    self.granted_at = now;
                    self.answer(state, Body::Grant { asked: *asked });
                }
            }
            _ => (),
        }
    }

    /// The master's clock continues at `time` or less, when this member has acknowledged: an upper bound that ages
    /// from now on, until the first synchronisation gives a better one. Only the first message counts, because the
    /// master may go by its acknowledgement.
    fn advance(&mut self, state: &mut State, time: u64, now: u64) {
        if state.era != self.configuration.era {
            self.check_era(state);
            state.sync.cap(time, now);
            state.era = self.configuration.era;
            state.known_in = self.configuration.number;
        }
    }

    fn synchronise(&mut self, state: &mut State, sent: u64, master: Interval, now: u64) {
        let Configuration { number, era, .. } = self.configuration;
        if state.synced_era != era {
            self.check_era(state);
            state.sync.clear();
            state.watch.clear();
            (state.era, state.synced_era) = (era, era);
        }
        let exchange = Exchange {
            sent,
            received: now,
            master,
        };
        if !state.sync.learn(&exchange) {
            state.break_down();
            return;
        }
        state.known_in = number;
        self.held_until = self.held_until.max(state.settings.end(sent));
        if let Some(rate) = state.watch.learn(&exchange) {
            let master = self.configuration.master;
            state.tell(Notice::Drifting { master, rate });
        }
    }

    /// Configurations come from masters, each of which has taken the time over from one before it.
    fn check_era(&self, state: &State) {
        let era = self.configuration.era;
        assert!(
            state.era <= era && state.synced_era <= era || !nobody_has_lied(),
            "era {era} follows {}, which was synchronised with {}",
            state.era,
            state.synced_era
        );
    }

    fn may_ask(&self, state: &State) -> bool {
        self.is_committed || state.era == self.configuration.era
    }

    pub fn tick(&mut self, state: &mut State, now: u64) {
        if self.may_ask(state) && now >= self.ask_at {
            self.asking = Some(now);
            // Without an answer for so long, the question or the answer is lost.
            self.ask_at = now.saturating_add(state.settings.lease_ns / 4);
            let is_committed = self.is_committed;
            self.answer(
                state,
                Body::TimeRequest {
                    sent: now,
                    is_committed,
                },
            );
        }
    }
}
