//! The configuration manager, which is the clock master: it commits its configuration, fast-forwards the time, and
//! answers what time it is (FaRMv2 §4.3, Figure 6).
//!
//! ```text
//!   Gathering ── all acks ──▶ Waiting ── a lease ──▶ Advancing ── all advance-acks ──▶ Settled
//!       └───────────── the era stays: the clock was never disabled ─────────────────────▲
//! ```

use crate::configuration::{Configuration, MemberId};
use crate::messages::Body;
use crate::state::State;
use plinth_runtime::{nobody_has_lied, planted, probe, trace};
use std::collections::{BTreeMap, BTreeSet};

enum Phase {
    /// Members acknowledge the configuration, each with the highest time that it may have seen.
    Gathering {
        acks: BTreeMap<MemberId, u64>,
    },
    /// Those that were removed give out timestamps until their leases end.
    Waiting {
        since: u64,
        forward: u64,
    },
    /// Members acknowledge where the time continues. Who asks for the time meanwhile is answered afterwards: a late
    /// answer is a slow one, and to ask again would take longer.
    Advancing {
        time: u64,
        acks: BTreeSet<MemberId>,
        asking: BTreeMap<MemberId, u64>,
    },
    Settled,
}

/// What the proposal of a configuration has found out.
pub(crate) struct Start {
    /// The reading before the configuration was taken. Nobody knew of it then.
    pub proposed_at: u64,
    /// Nobody but the old master was removed, and its lease had ended.
    pub skips_wait: bool,
    /// The lower bound when it was proposed.
    pub stopped: Option<u64>,
}

pub(crate) struct Leading {
    pub configuration: Configuration,
    phase: Phase,
    start: Start,
    /// Until when each member will not take this master's place. A member that is not in it cannot do so.
    held: BTreeMap<MemberId, u64>,
    /// Of members that are not in it: until when they have been heard of, for as long as a lease lasts.
    heard: BTreeMap<MemberId, u64>,
    /// When each member was last given a lease.
    given: BTreeMap<MemberId, u64>,
    /// Members that know that this configuration is committed, and have been told the time since.
    informed: BTreeSet<MemberId>,
    resend_at: u64,
    /// The reading when this server learnt that the configuration was taken.
    taken_at: u64,
}

impl Leading {
    /// `former` is the same master in the configuration before, if the era stays.
    pub fn new(
        configuration: Configuration,
        former: Option<Leading>,
        start: Start,
        (state, now): (&State, u64),
    ) -> Leading {
        // In a new era, members keep still for a lease from when they learn of the configuration.
        let end = state.settings.end(start.proposed_at);
        let newly_held = || configuration.others().map(|m| (m.id, end)).collect();
        let (mut held, mut given) = match former {
            Some(former) => (former.held, former.given),
            None => (newly_held(), BTreeMap::new()),
        };
        let stays = |id| {
            let member = configuration.member(id);
            member.is_some_and(|m| m.since < configuration.number)
        };
        if configuration.era != configuration.number {
            held.retain(|id, _| stays(*id));
            given.retain(|id, _| stays(*id));
        }
        Leading {
            phase: Phase::Gathering {
                acks: BTreeMap::new(),
            },
            resend_at: 0,
            taken_at: now,
            heard: BTreeMap::new(),
            informed: BTreeSet::new(),
            configuration,
            start,
            held,
            given,
        }
    }

    /// The time has been taken over, and no member may have taken this master's place.
    pub fn is_usable(&self, state: &State, now: u64) -> bool {
        let is_ahead = |until: &u64| state.settings.bounds.is_ahead(*until, now);
        let holds = |id| match state.may_be_restored {
            true => is_ahead(&self.heard_until(id, state)),
            false => self.held.get(&id).is_none_or(is_ahead),
        };
        state.era == self.configuration.era && self.configuration.others().all(|m| holds(m.id))
    }

    /// The member holds no lease of this master, or is dead.
    pub fn has_stopped(&self, id: MemberId, state: &State, now: u64) -> bool {
        let has_ended = |given: &u64| state.settings.has_ended(*given, now);
        state.dead.contains(&id) || self.given.get(&id).is_none_or(has_ended)
    }

    /// A lease after the member was last heard of. It was alive when this configuration was proposed.
    fn heard_until(&self, id: MemberId, state: &State) -> u64 {
        let heard = self.held.get(&id).or_else(|| self.heard.get(&id));
        let default = || state.settings.end(self.start.proposed_at);
        heard.copied().unwrap_or_else(default)
    }

    /// The same, but who has had nothing to answer to before this configuration has a lease from when it was taken:
    /// the register may have been slow.
    fn awaited_until(&self, id: MemberId, state: &State) -> u64 {
        let Configuration { number, era, .. } = self.configuration;
        let is_asked_anew = era == number
            || self
                .configuration
                .member(id)
                .is_some_and(|m| m.since == number);
        let begin = match is_asked_anew {
            true => state.settings.end(self.taken_at),
            false => 0,
        };
        self.heard_until(id, state).max(begin)
    }

    /// Members that have not been heard of for a lease, and hold none; and those that are dead.
    pub fn suspects(&self, state: &State, now: u64) -> Vec<MemberId> {
        let is_silent = |id: &MemberId| {
            let until = self.awaited_until(*id, state);
            let has_passed = state.settings.bounds.has_passed(until, now);
            state.dead.contains(id) || (has_passed && self.has_stopped(*id, state, now))
        };
        let others = self.configuration.others().map(|m| m.id);
        others.filter(is_silent).collect()
    }

    /// It repeats itself then, or goes on, or suspects somebody.
    pub fn quiet_until(&self, state: &State) -> u64 {
        let mut others = self.configuration.others();
        let goes_on = match &self.phase {
            Phase::Waiting { since, .. } => state.settings.ended_at(*since).min(self.resend_at),
            Phase::Settled if others.all(|m| self.informed.contains(&m.id)) => u64::MAX,
            _ => self.resend_at,
        };
        let suspected_at = |id| {
            let heard = state
                .settings
                .bounds
                .passed_at(self.awaited_until(id, state));
            let given = self.given.get(&id);
            given.map_or(heard, |given| state.settings.ended_at(*given).max(heard))
        };
        let living = self.configuration.others().map(|m| m.id);
        let living = living.filter(|id| !state.dead.contains(id));
        living
            .map(suspected_at)
            .min()
            .unwrap_or(u64::MAX)
            .min(goes_on)
    }

    /// The member is dead. If the lease that this master has from it still runs, it has not taken this master's place
    /// before it died, and never will. If the lease has ended, it may have done so, and been followed by others, whose
    /// leases to this master still run: then only a configuration without it, which the register takes, shows that it
    /// has not.
    pub fn died(&mut self, id: MemberId, state: &State, now: u64) {
        let revives = planted!(
            "farm_lease_of_the_dead_revives",
            "a dead member holds nothing back, although it may have become the master before it died"
        );
        // Its next life takes this master's place without asking anybody.
        if state.may_be_restored {
            return;
        }
        if let Some(until) = self.held.get_mut(&id)
            && (revives || state.settings.bounds.is_ahead(*until, now))
        {
            *until = u64::MAX;
        }
    }

    /// All members have acknowledged the configuration, and those that were removed have stopped.
    pub fn is_committed(&self) -> bool {
        matches!(self.phase, Phase::Advancing { .. } | Phase::Settled)
    }

    /// The configuration was proposed without the need to wait for somebody who was removed.
    pub fn skips_wait(&self) -> bool {
        self.start.skips_wait
    }

    fn hold(&mut self, from: MemberId, asked: u64, state: &State, now: u64) {
        // A reading from the future was never sent.
        if asked <= now {
            let until = self.held.entry(from).or_default();
            *until = state.settings.end(asked).max(*until);
        }
    }

    /// A message of a member in this configuration.
    pub fn receive(&mut self, state: &mut State, from: MemberId, body: &Body, now: u64) {
        match body {
            Body::NewConfigAck { forward, asked } => {
                if let Phase::Gathering { acks } = &mut self.phase {
                    let ack = acks.entry(from).or_default();
                    // Whoever joins has stopped long ago. What it believes may be far ahead, and is not needed.
                    let member = self.configuration.member(from);
                    if member.is_some_and(|m| m.since < self.configuration.number) {
                        *ack = forward.unwrap_or(0).max(*ack);
                    }
                }
                // A member that joins holds nothing back until it knows the time.
                if self.held.contains_key(&from) {
                    self.hold(from, *asked, state, now);
                } else {
                    let until = self.heard.entry(from).or_default();
                    *until = state.settings.end((*asked).min(now)).max(*until);
                }
            }
            Body::AdvanceAck { asked } => {
                if let Phase::Advancing { acks, .. } = &mut self.phase {
                    acks.insert(from);
                }
                self.hold(from, *asked, state, now);
            }
            Body::TimeRequest { sent, is_committed } => {
                if let (Phase::Advancing { asking, .. }, true) = (&mut self.phase, *is_committed) {
                    asking.insert(from, *sent);
                } else {
                    self.answer(state, from, (*sent, *is_committed), now);
                }
            }
            Body::Grant { asked } => self.hold(from, *asked, state, now),
            _ => (),
        }
        self.tick(state, now);
    }

    fn answer(&mut self, state: &mut State, from: MemberId, asked: (u64, bool), now: u64) {
        let (sent, is_committed) = asked;
        if self.tell_time(state, from, sent, now) && is_committed {
            self.informed.insert(from);
        }
    }

    /// False if this master cannot tell the time now.
    fn tell_time(&mut self, state: &mut State, from: MemberId, sent: u64, now: u64) -> bool {
        let mut interval = None;
        if self.is_usable(state, now) {
            let Ok(time) = state.sync.time(now) else {
                state.break_down();
                return false;
            };
            interval = Some(time);
            self.given.insert(from, now);
            let end = state.settings.end(now);
            self.held.entry(from).or_insert(end);
        }
        let asked = now;
        let body = Body::Time {
            sent,
            interval,
            asked,
        };
        state.send(from, self.configuration.number, body);
        interval.is_some()
    }

    /// Goes from phase to phase as far as it can.
    fn proceed(&mut self, state: &mut State, now: u64) {
        let members = self.configuration.members.len() - 1;
        match &self.phase {
            Phase::Gathering { acks } if acks.len() == members => {
                self.check_heard(|id| acks.contains_key(id));
                if state.era == self.configuration.era {
                    self.phase = Phase::Settled;
                    self.resend_at = 0;
                } else {
                    trace!("FarmConfigurationAcknowledged", "number" => self.configuration.number);
                    let forward = acks.values().copied().max().unwrap_or(0);
                    self.phase = Phase::Waiting {
                        since: now,
                        forward,
                    };
                }
                self.proceed(state, now);
            }
            Phase::Waiting { since, forward } => {
                if !self.start.skips_wait && !state.settings.has_ended(*since, now) {
                    return;
                }
                if self.start.skips_wait {
                    probe!("farm time taken over without a wait");
                }
                let time = self.fast_forward(state, *forward, now);
                trace!("FarmTimeAdvanced", "number" => self.configuration.number);
                self.phase = Phase::Advancing {
                    time,
                    acks: BTreeSet::new(),
                    asking: BTreeMap::new(),
                };
                self.resend_at = 0;
                self.proceed(state, now);
            }
            Phase::Advancing { time, acks, asking } if acks.len() == members => {
                self.check_heard(|id| acks.contains(id));
                assert!(
                    state.era < self.configuration.era,
                    "time of era {} is followed by that of {}",
                    state.era,
                    self.configuration.era
                );
                // This reading and that of any thread may be apart. The time begins at or above the forward mark, and
                // at or below what members were told.
                let begin = time.saturating_sub(state.settings.bounds.reading_ns);
                state.sync.lead(begin, now);
                state.era = self.configuration.era;
                state.known_in = self.configuration.number;
                trace!("FarmTimeGoesOn", "era" => state.era);
                let asking = asking.clone();
                self.phase = Phase::Settled;
                self.resend_at = 0;
                for (from, sent) in asking {
                    self.answer(state, from, (sent, true), now);
                }
            }
            _ => (),
        }
    }

    /// As many have acknowledged as there are others: so it is they.
    fn check_heard(&self, has: impl Fn(&MemberId) -> bool) {
        let lacking = self.configuration.others().find(|m| !has(&m.id));
        assert!(
            lacking.is_none() || !nobody_has_lied(),
            "configuration {} goes on without {lacking:?}",
            self.configuration.number
        );
    }

    /// Where the time continues: above all that was given out.
    fn fast_forward(&self, state: &State, forward: u64, now: u64) -> u64 {
        let stands_still = planted!(
            "farm_master_does_not_fast_forward",
            "a new clock master continues where its clock was disabled"
        );
        if let (true, Some(stopped)) = (stands_still, self.start.stopped) {
            return stopped;
        }
        let own = state.sync.ceiling(now).unwrap_or(0);
        let restored = state.restored.map_or(0, |restored| restored.origin);
        let highest = own.max(forward).max(state.settings.origin).max(restored);
        let time = highest.saturating_add(2 * state.settings.bounds.reading_ns);
        // Else the time here would be below what this machine has given out itself.
        assert!(
            state.sync.floor() < time,
            "time goes on at {time}, and was {} here already",
            state.sync.floor()
        );
        time
    }

    pub fn tick(&mut self, state: &mut State, now: u64) {
        self.proceed(state, now);
        if now < self.resend_at {
            return;
        }
        self.resend_at = now.saturating_add(state.settings.resend_ns);
        let others: Vec<MemberId> = self.configuration.others().map(|m| m.id).collect();
        let number = self.configuration.number;
        // Those that have acknowledged are asked again, too, until they ask for the time themselves: each answer keeps
        // them from taking this master's place. Within an era they ask all the time, and hear of the commit so.
        for id in others {
            match &self.phase {
                Phase::Gathering { .. } | Phase::Waiting { .. } => {
                    let configuration = self.configuration.clone();
                    let asked = now;
                    let body = Body::NewConfig {
                        configuration,
                        asked,
                    };
                    state.send(id, number, body);
                }
                Phase::Advancing { time, .. } => {
                    let time = *time;
                    state.send(id, number, Body::ConfigCommit);
                    state.send(id, number, Body::Advance { time, asked: now });
                }
                Phase::Settled if !self.informed.contains(&id) => {
                    state.send(id, number, Body::ConfigCommit);
                }
                _ => (),
            }
        }
    }
}
