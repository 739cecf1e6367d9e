//! What members say to each other during a recovery. Bytes are hostile: what is decoded is within bounds.

use crate::wire::{Number, Write};
use bytes::Bytes;
use plinth_core::codec::{As, Codec, Source, Within};
use plinth_core::output::Output;
use plinth_core::{record, variants};
use plinth_farm_fabric::Machine;
use plinth_farm_memory::TIMESTAMP_MAX;

record! {
    /// A life of a machine as a coordinator. The next life of the machine numbers its transactions from 1 again.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct Author {
        pub machine: Machine,
        /// The configuration in which this life became a member.
        pub since: u64,
    }

    /// A transaction that wrote something.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct Id {
        pub author: Author,
        pub number: Number,
    }
}

type Time = Within<0, TIMESTAMP_MAX>;

variants! {
    /// What a replica of a region knows of a transaction that wrote there.
    #[derive(Copy, Eq)]
    pub enum State {
        /// A primary has the locks. The timestamp is not known here.
        Locked = 0,
        /// A backup has CommitBackup.
        Logged { written_at: u64 as Time } = 1,
        /// A primary has CommitPrimary, and its objects have the new versions.
        Committed { written_at: u64 as Time } = 2,
        /// It is applied here, and its timestamp forgotten.
        Truncated = 3,
        /// A recovery has committed it, and it is applied here.
        Decided { written_at: u64 as Time } = 4,
    }
}

impl State {
    pub fn written_at(self) -> Option<u64> {
        match self {
            State::Locked | State::Truncated => None,
            State::Logged { written_at }
            | State::Committed { written_at }
            | State::Decided { written_at } => Some(written_at),
        }
    }

    /// Such a state is only there if the transaction is committed.
    pub fn is_proof(self) -> bool {
        !matches!(self, State::Locked | State::Logged { .. })
    }

    /// A recovery still has something to do here for the transaction.
    pub fn is_open(self) -> bool {
        !matches!(self, State::Truncated | State::Decided { .. })
    }
}

record! {
    /// One transaction in one region.
    #[derive(Eq)]
    pub struct Record {
        pub id: Id,
        /// All regions that it writes to.
        pub regions: Vec<u16>,
        pub state: State,
        /// Its writes in the region; none if the state is not open.
        pub writes: Vec<Write>,
    }

    /// All transactions of the author below the number are truncated everywhere, or have had no effect.
    #[derive(Copy, Eq)]
    pub struct Below {
        pub author: Author,
        pub number: Number,
    }
}

/// What the whole replicas of a region know of a transaction together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vote {
    pub id: Id,
    pub regions: Vec<u16>,
    /// Each whole replica knows of it.
    pub is_everywhere: bool,
    /// One of them knows that it is committed.
    pub is_proof: bool,
    /// One of them has something to do for it.
    pub is_open: bool,
    pub written_at: Option<u64>,
}

variants! {
    /// What becomes of a transaction.
    #[derive(Copy, Eq)]
    pub enum Fate {
        WithoutEffect = 0,
        Committed { written_at: u64 as Time } = 1,
    }
}

record! {
    #[derive(Copy, Eq)]
    pub struct Decision {
        pub id: Id,
        pub fate: Fate,
    }

    /// A committed transaction, as replicas of a region shall have it.
    #[derive(Eq)]
    pub struct Redone {
        pub id: Id,
        pub regions: Vec<u16>,
        pub written_at: u64 as Time,
        /// In the region. None if all whole replicas have them already.
        pub writes: Vec<Write>,
    }
}

variants! {
    #[derive(Eq)]
    pub enum Message {
        /// To the master: the sender has taken in everything of former configurations, and asks what became of these
        /// transactions of its own.
        Here { asked: Vec<Number> } = 0,
        /// Whole replica to primary.
        Known {
            region: u16,
            records: Vec<Record>,
            below: Vec<Below>,
        } = 1,
        /// Primary to master.
        Votes {
            region: u16,
            votes: Vec<Vote>,
            below: Vec<Below>,
        } = 2,
        /// Master to each member: transactions that wrote in regions of which it is the primary, and those it asked
        /// for.
        Decided { decisions: Vec<Decision> } = 3,
        /// Primary to replica: these are committed, and everything else before this configuration had no effect.
        Redo { region: u16, committed: Vec<Redone> } = 4,
        /// Replica to primary.
        Done { region: u16 } = 5,
        /// Primary to all members.
        Open { region: u16 } = 6,
    }
}

record! {
    /// A message in its configuration.
    #[derive(Eq)]
    pub struct Letter {
        pub configuration: u64,
        pub message: Message,
    }
}

impl Codec for Vote {
    const LEAST: usize = Id::LEAST + 3;

    fn put(&self, out: &mut Output) {
        self.id.put(out);
        self.regions.put(out);
        let flags = [self.is_everywhere, self.is_proof, self.is_open];
        let flags = flags.iter().zip(0..).map(|(is, at)| u8::from(*is) << at);
        flags.sum::<u8>().put(out);
        self.written_at.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Vote> {
        let (id, regions) = (Id::take(input)?, Codec::take(input)?);
        let flags = u8::take(input).filter(|flags| *flags < 8)?;
        let written_at = match bool::take(input)? {
            true => Some(Time::take(input)?),
            false => None,
        };
        Some(Vote {
            id,
            regions,
            is_everywhere: flags & 1 != 0,
            is_proof: flags & 2 != 0,
            is_open: flags & 4 != 0,
            written_at,
        })
    }

    fn draw(source: &mut dyn Source) -> Vote {
        Vote {
            id: Codec::draw(source),
            regions: Codec::draw(source),
            is_everywhere: bool::draw(source),
            is_proof: bool::draw(source),
            is_open: bool::draw(source),
            written_at: (source.below(2) == 0).then(|| Time::draw(source)),
        }
    }
}
