//! What a durable machine writes to its journal. Bytes of a disk are hostile: what is decoded is within bounds.

use crate::recovery::{Below, Id, Number, Redone, Write};
use plinth_core::codec::Within;
use plinth_core::{record, variants};
use plinth_farm_memory::TIMESTAMP_MAX;

record! {
    /// A transaction whose CommitBackup has come: its writes in all regions that have a replica here.
    #[derive(Eq)]
    pub struct Commit {
        pub id: Id,
        pub written_at: u64 as Within<1, TIMESTAMP_MAX>,
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

variants! {
    #[derive(Eq)]
    pub enum Entry {
        Commit(commit: Commit) = 0,
        Settled(settled: Settled) = 1,
        Freed(freed: Freed) = 2,
        /// The region has no objects here from here on: its replica is new, or is gone.
        Anew { region: u16 } = 3,
        /// What was cut off the journal before: of each coordinator, all below is committed and in the backup, or had
        /// no effect.
        Below(below: Vec<Below>) = 4,
        /// The machine uses no timestamp that is greater, until it says so again.
        Time(mark: u64 as Within<0, TIMESTAMP_MAX>) = 5,
    }
}

/// The number below which the list has everything of an author as settled; 0 if it does not know the author.
pub fn below_of(list: &[Below], id: Id) -> Number {
    let of = list.iter().find(|below| below.author == id.author);
    of.map_or(0, |below| below.number)
}
