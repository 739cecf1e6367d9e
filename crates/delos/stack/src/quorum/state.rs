//! What a log server knows of one loglet, and what it may answer. Nothing here touches a disk: the shell writes the
//! new state, and puts it in the place of the old one when it is durable.
//!
//! On disk a loglet is a sequence of blocks of two kinds. The last state counts; it follows from itself and the
//! entries behind it.
//! ```text
//!   entries   kind u8 = 0 | position of the first u64      then the entries, each an entry of the block
//!   state     kind u8 = 1 | the fields of Kept
//! ```

use crate::blocks::head_and_entries;
use crate::log::LogPos;
use crate::quorum::messages::{Ballot, Held, Pos, Promised};
use bytes::{Buf, Bytes};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_core::{Error, Uid, record};
use plinth_log::disk_queue::{Block, FinishedBlock};
use std::iter;

const KIND_ENTRIES: u8 = 0;
const KIND_STATE: u8 = 1;

record! {
    /// The durable state.
    #[derive(Eq)]
    pub struct Kept {
        /// The sequencer that has this server's vote.
        pub vote: Uid,
        pub is_sealed: bool,
        /// The highest ballot that it takes part in, and the last position that it has accepted.
        pub promised: Ballot,
        pub accepted: Option<(Ballot, Pos)>,
        /// The last position, when it was agreed on.
        pub end: Option<Pos>,
        pub trimmed_before: Pos,
        /// It has all entries below this that were not trimmed.
        pub next: Pos,
    }
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            vote: Uid::NONE,
            is_sealed: false,
            promised: Ballot::default(),
            accepted: None,
            end: None,
            trimmed_before: Pos(1),
            next: Pos(1),
        }
    }
}

/// Each function gives the state that must be durable before the request is answered; `None` if it stays as it is.
impl Kept {
    pub fn vote(&self, sequencer: Uid) -> Option<Kept> {
        let is_free = self.vote == Uid::NONE && !self.is_sealed && self.next == Pos(1);
        is_free.then(|| Kept {
            vote: sequencer,
            ..self.clone()
        })
    }

    /// Of `count` entries from `first` on, the number of those that it has already. `None` if it takes none of them:
    /// it has them all, or lacks entries before them.
    pub fn new_entries(&self, first: LogPos, count: usize) -> Option<usize> {
        let has = self.next.0.checked_sub(first)? as usize;
        (has < count).then_some(has)
    }

    pub fn promise(&self, ballot: Ballot) -> Option<Kept> {
        let is_new = ballot > self.promised || !self.is_sealed;
        (is_new && self.end.is_none()).then(|| Kept {
            is_sealed: true,
            promised: ballot.max(self.promised),
            ..self.clone()
        })
    }

    pub fn accept(&self, ballot: Ballot, end: Pos) -> Option<Kept> {
        let may = ballot >= self.promised && self.next >= end && self.end.is_none();
        let accepted = Some((ballot, end));
        (may && self.accepted != accepted).then(|| Kept {
            is_sealed: true,
            promised: ballot,
            accepted,
            ..self.clone()
        })
    }

    /// # Errors
    /// Another end was agreed on: one of the two was not.
    pub fn finish(&self, end: Pos) -> Result<Option<Kept>, Error> {
        match self.end {
            Some(known) if known == end => Ok(None),
            Some(_) => Err(Error::operation_obsolete),
            None => Ok(Some(Kept {
                is_sealed: true,
                end: Some(end),
                ..self.clone()
            })),
        }
    }

    pub fn trim(&self, before: Pos) -> Option<Kept> {
        (before > self.trimmed_before).then(|| Kept {
            trimmed_before: before,
            next: self.next.max(before),
            ..self.clone()
        })
    }

    /// `committed`: all below it are known to be committed.
    pub fn held(&self, committed: Pos) -> Held {
        let known = committed.max(self.trimmed_before);
        Held {
            next: self.next,
            committed: self.end.map_or(known, |end| known.max(end)),
            trimmed_before: self.trimmed_before,
            is_sealed: self.is_sealed,
            end: self.end,
        }
    }

    pub fn promised(&self, committed: Pos) -> Promised {
        Promised {
            held: self.held(committed),
            ballot: self.promised,
            accepted: self.accepted,
        }
    }

    /// True if a server that has said this may say `later`: it forgets nothing that others rely on.
    pub fn may_become(&self, later: &Kept) -> bool {
        let follows = later.next == self.next
            || (later.next > self.next && later.next == later.trimmed_before);
        follows
            && later.trimmed_before >= self.trimmed_before
            && later.promised >= self.promised
            && (later.is_sealed || !self.is_sealed)
            && (self.end.is_none() || later.end == self.end)
    }

    /// Takes in what a block says.
    ///
    /// # Errors
    /// It does not follow from the blocks before it.
    pub fn recover(&mut self, block: &Record, is_first: bool) -> Result<(), Error> {
        match block {
            Record::Entries(first, entries) => {
                if entries.is_empty() || (!is_first && *first != self.next.0) {
                    return Err(Error::file_corrupt);
                }
                self.next = Pos(first + entries.len() as u64);
            }
            Record::State(state) => {
                if !(is_first || self.may_become(state)) {
                    return Err(Error::file_corrupt);
                }
                *self = state.clone();
            }
        }
        Ok(())
    }
}

/// What a block says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Entries(LogPos, Vec<Bytes>),
    State(Kept),
}

impl Record {
    /// The entries of its block.
    fn parts(&self) -> Vec<Bytes> {
        let mut head = Output::copying();
        match self {
            Record::Entries(first, entries) => {
                KIND_ENTRIES.put(&mut head);
                first.put(&mut head);
                let head = head.into_bytes();
                iter::once(head).chain(entries.iter().cloned()).collect()
            }
            Record::State(kept) => {
                KIND_STATE.put(&mut head);
                kept.put(&mut head);
                vec![head.into_bytes()]
            }
        }
    }

    pub fn to_block(&self) -> FinishedBlock {
        let mut block = Block::default();
        for part in self.parts() {
            block.push(|out| out.put_shared(&part));
        }
        block.finish()
    }
}

/// `None` if the block is damaged.
pub fn parse(block: &Bytes) -> Option<Record> {
    let (mut head, entries) = head_and_entries(block)?;
    match head.try_get_u8().ok()? {
        KIND_ENTRIES => Some(Record::Entries(Pos::from_bytes(head)?.0, entries)),
        KIND_STATE if entries.is_empty() => Kept::from_bytes(head).map(Record::State),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(number: u64) -> Ballot {
        Ballot {
            number,
            proposer: Uid(number.into()),
        }
    }

    #[test]
    fn a_vote_is_given_once_and_only_while_there_is_no_entry_and_no_seal() {
        let fresh = Kept::default();
        let voted = fresh.vote(Uid(5)).expect("the first");
        assert_eq!(voted.vote, Uid(5));
        assert_eq!(voted.vote(Uid(6)), None);
        assert_eq!(voted.vote(Uid(5)), None);
        let sealed = fresh.promise(ballot(1)).expect("sealed");
        assert_eq!(sealed.vote(Uid(5)), None);
        let next = Pos(2);
        let used = Kept { next, ..fresh };
        assert_eq!(used.vote(Uid(5)), None, "some sequencer has a majority");
    }

    #[test]
    fn entries_are_taken_at_the_tail_and_the_known_ones_are_skipped() {
        let kept = Kept {
            next: Pos(10),
            ..Kept::default()
        };
        assert_eq!(kept.new_entries(10, 3), Some(0));
        assert_eq!(kept.new_entries(8, 3), Some(2));
        assert_eq!(kept.new_entries(7, 3), None, "it has all three");
        assert_eq!(kept.new_entries(11, 3), None, "it lacks one");
        assert_eq!(kept.new_entries(10, 0), None);
    }

    #[test]
    fn a_promise_seals_and_keeps_lower_ballots_out() {
        let kept = Kept::default().promise(ballot(2)).expect("new");
        assert!(kept.is_sealed);
        assert_eq!(kept.promise(ballot(1)), None);
        assert_eq!(kept.accept(ballot(1), Pos(1)), None);
        let accepted = kept.accept(ballot(2), Pos(1)).expect("the promised one");
        assert_eq!(accepted.accepted, Some((ballot(2), Pos(1))));
        assert_eq!(accepted.accept(ballot(2), Pos(1)), None, "as before");
        let higher = accepted.promise(ballot(3)).expect("a higher one");
        assert_eq!(higher.accepted, accepted.accepted);
    }

    #[test]
    fn an_end_is_accepted_only_with_all_entries_before_it() {
        let kept = Kept::default().promise(ballot(2)).expect("new");
        assert_eq!(kept.accept(ballot(2), Pos(5)), None);
        let next = Pos(5);
        let full = Kept { next, ..kept };
        assert!(full.accept(ballot(2), Pos(5)).is_some());
    }

    #[test]
    fn an_end_does_not_move_once_it_is_known() {
        let kept = Kept::default().finish(Pos(3)).expect("the first");
        let kept = kept.expect("new");
        assert_eq!(kept.finish(Pos(3)), Ok(None));
        assert_eq!(kept.finish(Pos(4)), Err(Error::operation_obsolete));
        assert_eq!(kept.promise(ballot(9)), None);
        assert_eq!(kept.accept(ballot(9), Pos(1)), None);
    }

    #[test]
    fn a_trim_lets_a_server_that_is_behind_go_on_after_it() {
        let next = Pos(10);
        let kept = Kept {
            next,
            ..Kept::default()
        };
        let trimmed = kept.trim(Pos(4)).expect("new");
        assert_eq!((trimmed.trimmed_before, trimmed.next), (Pos(4), Pos(10)));
        assert_eq!(trimmed.trim(Pos(4)), None);
        let jumped = trimmed.trim(Pos(20)).expect("new");
        assert_eq!((jumped.trimmed_before, jumped.next), (Pos(20), Pos(20)));
    }

    fn bytes_of(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in record.parts() {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&part);
        }
        bytes
    }

    #[test]
    fn a_damaged_block_is_refused_or_means_what_it_says() {
        let kept = Kept::default().promise(ballot(2)).expect("new");
        let some = vec![Bytes::from_static(b"one"), Bytes::new()];
        let records = [Record::State(kept), Record::Entries(3, some)];
        let corpus: Vec<_> = records.iter().map(bytes_of).collect();
        plinth_core::testing::fuzz("quorum blocks", 1, corpus, |input| {
            let Some(record) = parse(&Bytes::copy_from_slice(input)) else {
                return false;
            };
            assert_eq!(bytes_of(&record), input);
            true
        });
    }

    #[test]
    fn blocks_bring_the_state_back_and_a_missing_one_is_damage() {
        let entry = Bytes::from_static(b"x");
        let first = Kept::default().vote(Uid(5)).expect("new");
        let sealed = Kept {
            next: Pos(3),
            ..first.clone()
        };
        let sealed = sealed.promise(ballot(1)).expect("new");
        let records = [
            Record::State(first),
            Record::Entries(1, vec![entry.clone(), entry]),
            Record::State(sealed.clone()),
        ];
        let mut kept = Kept::default();
        for (i, record) in records.iter().enumerate() {
            kept.recover(record, i == 0).expect("it follows");
        }
        assert_eq!(kept, sealed);
        let mut gap = Kept::default();
        gap.recover(&records[0], true).expect("the first");
        assert_eq!(gap.recover(&records[2], false), Err(Error::file_corrupt));
        assert_eq!(kept.recover(&records[0], false), Err(Error::file_corrupt));
    }
}
