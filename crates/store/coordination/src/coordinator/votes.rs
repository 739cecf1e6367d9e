//! The vote of one coordinator: the leader while its heartbeats arrive, else the best candidate. Pure.
//!
//! It promises: at most one controller leads at a time; a leader keeps its place against a better candidate until its
//! lease runs out or it withdraws; at most `CANDIDATES_MAX` candidates are kept, and of more the worst is forgotten,
//! even a leader.

use plinth_core::Uid;
use plinth_protocol::coordination::Candidate;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant};
use std::collections::BTreeMap;

/// Limit of processes that may stand for election at once.
const CANDIDATES_MAX: usize = 10_000;

struct Seen {
    candidate: Candidate,
    at: Instant,
    leading: bool,
}

impl Seen {
    fn is_current(&self, now: Instant, lease: Duration) -> bool {
        now.saturating_since(self.at) < lease
    }
}

/// The state machine.
#[derive(Default)]
pub struct Votes {
    /// By priority and id, the best first.
    candidates: BTreeMap<(u32, Uid), Seen>,
}

/// The answer to a nomination.
#[derive(PartialEq, Debug)]
pub struct Nomination {
    /// The candidate that has the vote.
    pub nominee: Candidate,
    /// The candidate that was nominated, if it leads now: the shell [withdraws](Votes::withdraw) it when it is
    /// certainly gone.
    pub watch: Option<Interface>,
}

impl Votes {
    /// Candidates that are kept.
    pub fn len(&self) -> usize {
        self.candidates.len()
    }

    pub fn is_candidate(&self, id: Uid) -> bool {
        self.candidates.keys().any(|key| key.1 == id)
    }

    /// Forgets the candidates that have not been heard of for `lease`.
    pub fn expire(&mut self, now: Instant, lease: Duration) {
        self.candidates
            .retain(|_, seen| seen.is_current(now, lease));
    }

    pub fn leader(&self, now: Instant, lease: Duration) -> Option<&Candidate> {
        let leads = |seen: &&Seen| seen.leading && seen.is_current(now, lease);
        let leader = self.candidates.values().find(leads);
        leader.map(|seen| &seen.candidate)
    }

    /// Takes in a candidate, or its heartbeat. It is `leading` if a majority has nominated it, as far as it knows.
    pub fn nominate(
        &mut self,
        now: Instant,
        lease: Duration,
        candidate: Candidate,
        leading: bool,
    ) -> Nomination {
        self.expire(now, lease);
        let leader = self.leader(now, lease);
        let may_lead = leader.is_none_or(|leader| leader.controller == candidate.controller);
        let leading = leading && may_lead;
        let watch = leading.then_some(candidate.controller);
        let key = (candidate.priority, candidate.controller.id);
        let seen = Seen {
            candidate,
            at: now,
            leading,
        };
        self.candidates.insert(key, seen);
        if self.candidates.len() > CANDIDATES_MAX {
            self.candidates.pop_last(); // the worst
        }
        self.assert_one_leader();
        let best = self.leader(now, lease);
        let best = best.or_else(|| self.candidates.values().next().map(|seen| &seen.candidate));
        Nomination {
            nominee: best.expect("one was inserted").clone(),
            watch,
        }
    }

    fn assert_one_leader(&self) {
        let leaders = self.candidates.values().filter(|seen| seen.leading);
        let mut leaders = leaders.map(|seen| seen.candidate.controller);
        let first = leaders.next();
        assert!(
            leaders.all(|other| Some(other) == first),
            "a coordinator takes two candidates for the leader"
        );
    }

    /// Forgets a candidate that steps down, or is certainly gone.
    pub fn withdraw(&mut self, id: Uid) {
        self.candidates.retain(|key, _| key.1 != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const LEASE: Duration = Duration::from_secs(2);

    fn candidate(priority: u32, id: u128) -> Candidate {
        let address = SocketAddr::from(([10, 0, 0, 1], 4500));
        let controller = Interface::new(address, Uid(id));
        Candidate {
            controller,
            priority,
        }
    }

    fn at(milliseconds: u64) -> Instant {
        Instant(0) + Duration::from_millis(milliseconds)
    }

    /// The candidate with the vote after this nomination.
    fn nominee(votes: &mut Votes, ms: u64, (priority, id): (u32, u128), leading: bool) -> u128 {
        let nominated = votes.nominate(at(ms), LEASE, candidate(priority, id), leading);
        nominated.nominee.controller.id.0
    }

    fn leader(votes: &Votes, ms: u64) -> Option<u128> {
        let leader = votes.leader(at(ms), LEASE);
        leader.map(|leader| leader.controller.id.0)
    }

    #[test]
    fn the_best_candidate_has_the_vote_while_nobody_leads() {
        let mut votes = Votes::default();
        assert_eq!(nominee(&mut votes, 0, (5, 1), false), 1);
        assert_eq!(nominee(&mut votes, 0, (3, 2), false), 2);
        assert_eq!(nominee(&mut votes, 0, (4, 3), false), 2);
        assert_eq!(leader(&votes, 0), None);
    }

    #[test]
    fn a_leader_keeps_its_place_against_a_better_candidate() {
        let mut votes = Votes::default();
        assert_eq!(nominee(&mut votes, 0, (5, 1), true), 1);
        assert_eq!(nominee(&mut votes, 10, (0, 2), false), 1);
        assert_eq!(nominee(&mut votes, 20, (0, 2), true), 1);
        assert_eq!(leader(&votes, 20), Some(1));
    }

    #[test]
    fn a_leader_that_is_heard_of_keeps_its_lease() {
        let mut votes = Votes::default();
        for ms in [0, 1999, 3998] {
            assert_eq!(nominee(&mut votes, ms, (5, 1), true), 1);
        }
        assert_eq!(leader(&votes, 5997), Some(1));
    }

    #[test]
    fn a_lease_runs_out_and_another_may_lead() {
        let mut votes = Votes::default();
        nominee(&mut votes, 0, (0, 1), true);
        assert_eq!(leader(&votes, 1999), Some(1));
        assert_eq!(leader(&votes, 2000), None);
        assert_eq!(nominee(&mut votes, 2000, (5, 2), true), 2);
        assert_eq!(leader(&votes, 2000), Some(2));
        assert!(!votes.is_candidate(Uid(1)));
    }

    #[test]
    fn a_shorter_lease_holds_at_once() {
        let mut votes = Votes::default();
        nominee(&mut votes, 0, (0, 1), true);
        let shorter = Duration::from_millis(100);
        assert!(votes.leader(at(100), shorter).is_none());
        votes.expire(at(100), shorter);
        assert_eq!(votes.len(), 0);
    }

    #[test]
    fn a_leader_that_withdraws_leaves_its_place_at_once() {
        let mut votes = Votes::default();
        nominee(&mut votes, 0, (0, 1), true);
        votes.withdraw(Uid(1));
        assert_eq!(leader(&votes, 0), None);
        assert_eq!(nominee(&mut votes, 0, (5, 2), true), 2);
    }

    #[test]
    fn a_candidate_with_two_priorities_is_one_and_withdraws_as_one() {
        let mut votes = Votes::default();
        nominee(&mut votes, 0, (5, 1), true);
        assert_eq!(nominee(&mut votes, 0, (3, 1), true), 1);
        votes.withdraw(Uid(1));
        assert!(!votes.is_candidate(Uid(1)));
    }

    #[test]
    fn only_a_candidate_that_leads_is_watched() {
        let mut votes = Votes::default();
        let mut watched = |priority, id, leading| {
            let nominated = votes.nominate(at(0), LEASE, candidate(priority, id), leading);
            nominated.watch.map(|leader| leader.id.0)
        };
        assert_eq!(watched(5, 1, false), None);
        assert_eq!(watched(5, 1, true), Some(1));
        assert_eq!(watched(0, 2, true), None);
        assert_eq!(watched(5, 1, true), Some(1));
    }

    #[test]
    fn one_leads_at_most_whoever_says_that_it_does() {
        let mut votes = Votes::default();
        for ms in 0..5000 {
            let id = u128::from(ms * 7 % 13);
            nominee(&mut votes, ms, (id as u32 % 3, id), ms % 2 == 0);
            let current = votes.candidates.values().filter(|seen| seen.leading);
            let leaders: Vec<Uid> = current.map(|s| s.candidate.controller.id).collect();
            assert!(leaders.len() <= 1, "{leaders:?} lead after {ms} ms");
        }
    }

    #[test]
    fn the_worst_of_too_many_candidates_is_forgotten() {
        let mut votes = Votes::default();
        for id in 0..CANDIDATES_MAX as u128 {
            let seen = Seen {
                candidate: candidate(1, id),
                at: at(0),
                leading: false,
            };
            votes.candidates.insert((1, Uid(id)), seen);
        }
        assert_eq!(nominee(&mut votes, 0, (9, u128::MAX), false), 0);
        assert!(!votes.is_candidate(Uid(u128::MAX)));
        assert_eq!(nominee(&mut votes, 0, (0, u128::MAX), false), u128::MAX);
        assert_eq!(votes.len(), CANDIDATES_MAX);
        assert!(!votes.is_candidate(Uid(CANDIDATES_MAX as u128 - 1)));
    }
}
