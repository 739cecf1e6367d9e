//! What a durable machine writes to its journal. Bytes of a disk are hostile: what is decoded is within bounds.

use crate::recovery::{Below, Id, Number, Redone, Write};
use bytes::Bytes;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
use plinth_core::record;
use plinth_farm_memory::TIMESTAMP_MAX;

record! {
    /// A transaction whose CommitBackup has come: its writes in all regions that have a replica here.
    #[derive(Eq)]
    pub struct Commit {
        pub id: Id,
        pub written_at: u64,
        /// All regions that it writes to, here or elsewhere.
        pub regions: Vec<u16>,
        pub writes: Vec<Write>,
    }

    /// All transactions of ended configurations in a region are decided.
    #[derive(Eq)]
    pub struct Settled {
        pub region: u16,
        pub committed: Vec<Redone>,
        /// Those without effect that the journal may have.
        pub void: Vec<Id>,
    }

    /// A slab has no objects any more, and its former versions have timestamps up to `at`.
    #[derive(Copy, Eq)]
    pub struct Freed {
        pub region: u16,
        pub slab: u32,
        pub at: u64,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    Commit(Commit),
    Settled(Settled),
    Freed(Freed),
    /// The region has no objects here from here on: its replica is new, or is gone.
    Anew {
        region: u16,
    },
    /// What was cut off the journal before: of each coordinator, all below is committed and in the backup, or had no
    /// effect.
    Below(Vec<Below>),
    /// The machine uses no timestamp that is greater, until it says so again.
    Time(u64),
}

impl Codec for Entry {
    fn put(&self, out: &mut Output) {
        match self {
            Entry::Commit(commit) => {
                0u8.put(out);
                commit.put(out);
            }
            Entry::Settled(settled) => {
                1u8.put(out);
                settled.put(out);
            }
            Entry::Freed(freed) => {
                2u8.put(out);
                freed.put(out);
            }
            Entry::Anew { region } => (3u8, *region).put(out),
            Entry::Below(below) => {
                4u8.put(out);
                below.put(out);
            }
            Entry::Time(mark) => (5u8, *mark).put(out),
        }
    }

    fn take(input: &mut Bytes) -> Option<Entry> {
        Some(match u8::take(input)? {
            0 => {
                let commit = Commit::take(input)?;
                let is_time = (1..=TIMESTAMP_MAX).contains(&commit.written_at);
                Entry::Commit(is_time.then_some(commit)?)
            }
            1 => Entry::Settled(Codec::take(input)?),
            2 => Entry::Freed(Codec::take(input)?),
            3 => Entry::Anew {
                region: u16::take(input)?,
            },
            4 => Entry::Below(Codec::take(input)?),
            5 => {
                let mark = u64::take(input)?;
                Entry::Time((mark <= TIMESTAMP_MAX).then_some(mark)?)
            }
            _ => return None,
        })
    }

    fn draw(source: &mut dyn Source) -> Entry {
        match source.below(6) {
            0 => Entry::Commit(Commit {
                written_at: 1 + u64::draw(source) % TIMESTAMP_MAX,
                ..Commit::draw(source)
            }),
            1 => Entry::Settled(Codec::draw(source)),
            2 => Entry::Freed(Codec::draw(source)),
            3 => Entry::Anew {
                region: Codec::draw(source),
            },
            4 => Entry::Below(Codec::draw(source)),
            _ => Entry::Time(u64::draw(source) % TIMESTAMP_MAX),
        }
    }
}

/// The number below which the list has everything of an author as settled; 0 if it does not know the author.
pub fn below_of(list: &[Below], id: Id) -> Number {
    let of = list.iter().find(|below| below.author == id.author);
    of.map_or(0, |below| below.number)
}
