//! What clients, the sequencer and the log servers of a loglet say to each other.
//!
//! Positions are those of [`crate::log`]: the first is 1. A *tail* is the position behind the last entry.

use crate::entry::ENTRY_BYTES_MAX;
use crate::log::LogPos;
use bytes::Bytes;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
use plinth_core::{Uid, record};
use plinth_rpc::{Interface, requests};
use std::net::SocketAddr;

/// Entries of one message. A list of empty entries must not take much more memory than its message.
pub const ENTRIES_MAX: usize = 1 << 16;
/// A message takes no more entries when it has so many bytes.
pub const BATCH_BYTES: usize = 4 << 20;
/// No log becomes so long. Sums of positions below it do not overflow.
pub const POS_MAX: LogPos = 1 << 60;
pub const SERVERS_MAX: usize = 15;

/// Entries at positions that follow each other.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Entries(pub Vec<Bytes>);

impl Codec for Entries {
    fn put(&self, out: &mut Output) {
        (self.0.len() as u32).put(out);
        for entry in &self.0 {
            entry.put(out);
        }
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        let count = u32::take(input)? as usize;
        // Every entry takes at least one byte.
        if count > ENTRIES_MAX.min(input.len()) {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = <Bytes as Codec>::take(input)?;
            if entry.len() > ENTRY_BYTES_MAX {
                return None;
            }
            entries.push(entry);
        }
        Some(Entries(entries))
    }

    fn draw(source: &mut dyn Source) -> Self {
        Entries(Vec::draw(source))
    }
}

/// A position that comes from elsewhere: at least 1, and below [`POS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pos(pub LogPos);

impl Codec for Pos {
    fn put(&self, out: &mut Output) {
        self.0.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Self> {
        let pos = u64::take(input)?;
        (1..POS_MAX).contains(&pos).then_some(Pos(pos))
    }

    fn draw(source: &mut dyn Source) -> Self {
        Pos(1 + source.below(1 << 20))
    }
}

record! {
    /// An attempt to agree on the last position (Paxos made simple, §2.2). The highest counts.
    #[derive(Copy, Eq, PartialOrd, Ord, Default)]
    pub struct Ballot {
        pub number: u64,
        /// Drawn at random for each attempt.
        pub proposer: Uid,
    }

    /// Where a loglet is. The same for all who use it.
    #[derive(Eq, PartialOrd, Ord)]
    pub struct Config {
        pub loglet: Uid,
        /// The process that hosts the sequencer.
        pub sequencer: SocketAddr,
        /// The log servers, each with the id that it drew with its data directory: one that has lost its disk has
        /// another id, and is not a member any more.
        pub servers: Vec<Interface>,
    }

    /// What a log server has on disk of a loglet.
    pub struct Held {
        /// Its tail: it has all entries below it that were not trimmed.
        pub next: Pos,
        /// All below this are known to be committed. Not kept on disk.
        pub committed: Pos,
        /// Entries below this are gone.
        pub trimmed_before: Pos,
        pub is_sealed: bool,
        /// The tail of the loglet, once it is agreed on.
        pub end: Option<Pos>,
    }

    /// Asks a log server for its vote. It votes once, for the first sequencer that asks.
    pub struct Vote {
        pub loglet: Uid,
        /// Drawn at random when a sequencer starts.
        pub sequencer: Uid,
    }

    pub struct Voted {
        pub sequencer: Uid,
        pub held: Held,
    }

    /// Entries from the sequencer, which has a majority of the votes. Answered when they are on disk. A log server
    /// that is sealed, or lacks entries before `first`, takes none.
    pub struct Store {
        pub loglet: Uid,
        pub sequencer: Uid,
        pub first: Pos,
        /// All below this are committed.
        pub committed: Pos,
        pub entries: Entries,
    }

    /// Copies of entries that another log server has. A sealed log server takes them, too.
    pub struct Fill {
        pub loglet: Uid,
        pub first: Pos,
        pub entries: Entries,
    }

    pub struct AskTail {
        pub loglet: Uid,
    }

    /// Reads entries from `from` on that are below `limit`, or that the log server knows to be committed: as many as
    /// have about `bytes_max` bytes, and at least one if there is one.
    pub struct ReadEntries {
        pub loglet: Uid,
        pub from: Pos,
        pub limit: Pos,
        pub bytes_max: u32,
    }

    pub struct EntriesRead {
        pub held: Held,
        /// The first is at `from`.
        pub entries: Entries,
    }

    /// Seals the log server, and asks it to take no part in ballots below this one.
    pub struct Promise {
        pub loglet: Uid,
        pub ballot: Ballot,
    }

    /// Asks a log server to accept that the loglet ends at `end`.
    pub struct Accept {
        pub loglet: Uid,
        pub ballot: Ballot,
        pub end: Pos,
    }

    /// Answers both.
    pub struct Promised {
        pub held: Held,
        /// The highest ballot that it takes part in.
        pub ballot: Ballot,
        /// The last that it has accepted.
        pub accepted: Option<(Ballot, Pos)>,
    }

    /// The end was agreed on.
    pub struct Finish {
        pub loglet: Uid,
        pub end: Pos,
    }

    /// Nobody needs the entries before `before`, all of which are committed. A log server without them needs them no
    /// longer.
    pub struct Trim {
        pub loglet: Uid,
        pub before: Pos,
    }

    /// Adds entries at the end of the loglet. The first request for a loglet starts its sequencer.
    pub struct Append {
        pub config: Config,
        pub entries: Entries,
    }

    pub struct Appended {
        /// Position of the first entry.
        pub first: Pos,
        /// So many of the entries are in the log. The others are not, because it was sealed.
        pub taken: u32,
    }
}

requests! {
    Vote = 90 for Servers => Voted;
    Store = 91 for Servers => Held;
    Fill = 92 for Servers => Held;
    AskTail = 93 for Operators => Held;
    ReadEntries = 94 for Servers => EntriesRead;
    Promise = 95 for Servers => Promised;
    Accept = 96 for Servers => Promised;
    Finish = 97 for Servers => Held;
    Trim = 98 for Servers => Held;
    Append = 99 for Servers => Appended;
}

impl Held {
    /// Of a loglet that the log server has not heard of.
    pub fn nothing() -> Held {
        Held {
            next: Pos(1),
            committed: Pos(1),
            trimmed_before: Pos(1),
            is_sealed: false,
            end: None,
        }
    }
}

/// So many of the `entries` as fit into one message, and at least one.
pub fn batch_len<'a>(entries: impl Iterator<Item = &'a Bytes>) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Bytes| {
        let has_room = bytes < BATCH_BYTES;
        bytes += entry.len();
        has_room
    };
    entries.take(ENTRIES_MAX).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::testing::fuzz;

    fn store() -> Store {
        Store {
            loglet: Uid(7),
            sequencer: Uid(8),
            first: Pos(9),
            committed: Pos(4),
            entries: Entries(vec![Bytes::from_static(b"one"), Bytes::new()]),
        }
    }

    fn append() -> Append {
        let address: SocketAddr = ([10, 0, 0, 1], 4500).into();
        Append {
            config: Config {
                loglet: Uid(7),
                sequencer: address,
                servers: vec![Interface::new(address, Uid(3))],
            },
            entries: store().entries,
        }
    }

    fn survives<T: Codec + PartialEq + std::fmt::Debug>(name: &str, good: T) {
        fuzz(name, 1, [good.to_bytes().to_vec()], |input| {
            let Some(value) = T::from_bytes(Bytes::copy_from_slice(input)) else {
                return false;
            };
            assert_eq!(T::from_bytes(value.to_bytes()), Some(value));
            true
        });
    }

    #[test]
    fn a_damaged_message_is_refused_or_means_what_it_says() {
        survives("quorum store", store());
        survives("quorum append", append());
        let held = Held {
            end: Some(Pos(5)),
            ..Held::nothing()
        };
        let ballot = Ballot {
            number: 2,
            proposer: Uid(1),
        };
        let accepted = Some((ballot, Pos(5)));
        survives(
            "quorum promise",
            Promised {
                held,
                ballot,
                accepted,
            },
        );
    }

    #[test]
    fn a_position_out_of_range_and_too_many_entries_are_refused() {
        for pos in [0, POS_MAX, u64::MAX] {
            assert_eq!(Pos::from_bytes(pos.to_bytes()), None);
        }
        let many = vec![Bytes::new(); ENTRIES_MAX + 1];
        assert_eq!(Entries::from_bytes(Entries(many).to_bytes()), None);
        let long = vec![Bytes::from(vec![0; ENTRY_BYTES_MAX + 1])];
        assert_eq!(Entries::from_bytes(Entries(long).to_bytes()), None);
    }

    #[test]
    fn a_batch_has_at_least_one_entry_and_about_as_many_bytes_as_it_may() {
        let entry = Bytes::from(vec![0; BATCH_BYTES / 2]);
        let entries = vec![entry; 5];
        assert_eq!(batch_len(entries.iter()), 2);
        let long = vec![Bytes::from(vec![0; ENTRY_BYTES_MAX]); 2];
        assert_eq!(batch_len(long.iter()), 1);
        assert_eq!(batch_len([].iter()), 0);
    }
}
