//! What the answers of some log servers say of all of them.

use crate::log::LogPos;
use crate::quorum::messages::{Held, Pos, Promised};

/// The position below which `count` of the servers have everything; 1 if fewer have answered.
pub fn held_by(count: usize, tails: impl Iterator<Item = LogPos>) -> LogPos {
    let mut tails: Vec<LogPos> = tails.collect();
    tails.sort_unstable_by(|a, b| b.cmp(a));
    tails.get(count - 1).copied().unwrap_or(1)
}

/// What the answers to a question for the tail mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The loglet is not sealed, and this is its tail.
    Tail(LogPos),
    /// Somebody has begun to seal it.
    Sealed,
    /// It is sealed, and this is its tail for good.
    End(LogPos),
}

/// A search for the tail. It may take several rounds of questions, all of which begin after the search does.
///
/// An entry may be committed if the servers that have it and those that have not answered could be a majority. The
/// tail must be above each such entry (it may have been acknowledged, or seen by another search), and all entries
/// below the tail must be committed for certain.
pub struct Search {
    servers: usize,
    majority: usize,
    /// The answers of this round, by server.
    held: Vec<Option<Held>>,
    /// The tail is at least this; known when a majority has answered.
    at_least: Option<LogPos>,
    /// All below this are committed.
    certain: LogPos,
}

impl Search {
    pub fn new(servers: usize) -> Search {
        Search {
            servers,
            majority: servers / 2 + 1,
            held: vec![None; servers],
            at_least: None,
            certain: 1,
        }
    }

    pub fn begin_round(&mut self) {
        self.held.fill(None);
    }

    /// The answers of this round.
    pub fn held(&self) -> &[Option<Held>] {
        &self.held
    }

    pub fn heard(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// The tail is not found before a majority has all below this.
    pub fn at_least(&self) -> Option<LogPos> {
        self.at_least
    }

    pub fn hear(&mut self, server: usize, held: Held) -> Option<Found> {
        if let Some(Pos(end)) = held.end {
            return Some(Found::End(end));
        }
        // What a sealed server has does not count: it may be a copy that was made after the seal.
        if held.is_sealed {
            return Some(Found::Sealed);
        }
        self.certain = self.certain.max(held.committed.0);
        self.held[server] = Some(held);
        let heard = self.heard();
        if heard < self.majority {
            return None;
        }
        let tails = || self.held.iter().flatten().map(|held| held.next.0);
        let certain = held_by(self.majority, tails());
        let possible = held_by(self.majority - (self.servers - heard), tails());
        self.certain = self.certain.max(certain);
        let at_least = self
            .at_least
            .map_or(possible, |before| before.min(possible));
        self.at_least = Some(at_least);
        (self.certain >= at_least).then_some(Found::Tail(self.certain))
    }
}

/// The end that a ballot proposes, after a majority has promised: one that may have been agreed on already, else the
/// greatest tail of the majority, which is above all entries that are committed or ever will be.
pub fn proposal(promises: &[(usize, Promised)]) -> LogPos {
    let accepted = promises
        .iter()
        .filter_map(|(_, promised)| promised.accepted);
    let tails = promises.iter().map(|(_, promised)| promised.held.next.0);
    match accepted.max_by_key(|(ballot, _)| *ballot) {
        Some((_, Pos(end))) => end,
        None => tails.max().unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::messages::Ballot;
    use plinth_core::Uid;

    fn held(next: LogPos) -> Held {
        Held {
            next: Pos(next),
            ..Held::nothing()
        }
    }

    /// Hears the servers in this order, and stops when the tail is found.
    fn search(tails: &[LogPos], order: &[usize]) -> Option<(LogPos, usize)> {
        let mut search = Search::new(tails.len());
        for (heard, &server) in (1..).zip(order) {
            match search.hear(server, held(tails[server])) {
                Some(Found::Tail(tail)) => return Some((tail, heard)),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        None
    }

    #[test]
    fn a_tail_is_above_all_that_may_be_committed_and_all_below_it_is() {
        for tails in
            (1..=4).flat_map(|a| (1..=4).flat_map(move |b| (1..=4).map(move |c| [a, b, c])))
        {
            let committed = held_by(2, tails.iter().copied());
            for order in [
                [0, 1, 2],
                [1, 2, 0],
                [2, 0, 1],
                [0, 2, 1],
                [1, 0, 2],
                [2, 1, 0],
            ] {
                let (tail, heard) = search(&tails, &order).expect("all have answered");
                assert_eq!(tail, committed, "{tails:?} {order:?}");
                let equal = tails[order[0]] == tails[order[1]];
                assert_eq!(heard, if equal { 2 } else { 3 });
            }
        }
    }

    #[test]
    fn a_majority_with_different_tails_is_asked_again_until_it_agrees() {
        let mut search = Search::new(3);
        assert_eq!(search.hear(0, held(9)), None);
        assert_eq!(search.hear(1, held(7)), None);
        assert_eq!(search.at_least(), Some(9));
        search.begin_round();
        assert_eq!(search.hear(1, held(9)), None);
        assert_eq!(search.hear(0, held(12)), Some(Found::Tail(9)));
    }

    #[test]
    fn what_a_server_knows_to_be_committed_counts() {
        let mut search = Search::new(3);
        assert_eq!(search.hear(0, held(9)), None);
        let behind = Held {
            committed: Pos(9),
            ..held(7)
        };
        assert_eq!(search.hear(1, behind), Some(Found::Tail(9)));
    }

    #[test]
    fn a_sealed_server_is_noticed_and_its_tail_does_not_count() {
        let sealed = Held {
            is_sealed: true,
            ..held(9)
        };
        assert_eq!(Search::new(3).hear(0, sealed.clone()), Some(Found::Sealed));
        let end = Some(Pos(5));
        let ended = Held { end, ..sealed };
        assert_eq!(Search::new(3).hear(0, ended), Some(Found::End(5)));
    }

    #[test]
    fn a_proposal_is_what_the_highest_ballot_has_accepted_or_the_greatest_tail() {
        let promised = |next, accepted: Option<(u64, LogPos)>| Promised {
            held: held(next),
            ballot: Ballot::default(),
            accepted: accepted.map(|(number, end)| {
                let proposer = Uid(1);
                (Ballot { number, proposer }, Pos(end))
            }),
        };
        let some = [(0, promised(4, None)), (2, promised(6, None))];
        assert_eq!(proposal(&some), 6);
        let some = [
            (0, promised(6, Some((2, 5)))),
            (1, promised(9, None)),
            (2, promised(8, Some((1, 8)))),
        ];
        assert_eq!(proposal(&some), 5);
    }
}
