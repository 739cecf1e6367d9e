//! Histories that are written by hand.
pub mod assign;
pub mod generate;
pub mod search;

use plinth_farm_judge::*;

pub const X: Object = 0x10;
pub const Y: Object = 0x20;
pub const Z: Object = 0x30;

/// Transaction `id`, which runs from one moment to the other on a machine of its own.
pub fn tx(id: Id, begin: Moment, end: Moment) -> Transaction {
    Transaction {
        id,
        machine: id as u32,
        begin,
        end,
        options: Options::DEFAULT,
        read_timestamp: None,
        reads: Vec::new(),
        writes: Vec::new(),
        outcome: Outcome::Unknown(None),
    }
}

pub trait Written: Sized {
    fn change(self, change: impl FnOnce(&mut Transaction)) -> Self;

    fn with(self, options: Options) -> Self {
        self.change(|t| t.options = options)
    }
    fn on(self, machine: u32) -> Self {
        self.change(|t| t.machine = machine)
    }
    fn reads_at(self, timestamp: Timestamp) -> Self {
        self.change(|t| t.read_timestamp = Some(timestamp))
    }
    fn sees(self, object: Object, seen: Seen) -> Self {
        self.change(|t| t.reads.push(Read { object, seen }))
    }
    fn initial(self, object: Object) -> Self {
        self.sees(object, Seen::Initial)
    }
    fn absent(self, object: Object) -> Self {
        self.sees(object, Seen::Absent)
    }
    fn of(self, object: Object, writer: Id) -> Self {
        self.sees(object, Seen::Of(writer))
    }
    fn writes(self, object: Object, change: Change) -> Self {
        self.change(|t| t.writes.push(Write { object, change }))
    }
    fn sets(self, object: Object) -> Self {
        self.writes(object, Change::Set)
    }
    fn allocates(self, object: Object) -> Self {
        self.writes(object, Change::Allocate)
    }
    fn frees(self, object: Object) -> Self {
        self.writes(object, Change::Free)
    }
    fn commits_at(self, timestamp: Timestamp) -> Self {
        self.change(|t| t.outcome = Outcome::Committed(timestamp))
    }
    fn commits(self) -> Self {
        self.change(|t| t.outcome = Outcome::ReadOnly)
    }
    fn aborts(self) -> Self {
        self.change(|t| t.outcome = Outcome::Aborted)
    }
    fn at_if_any(self, timestamp: Timestamp) -> Self {
        self.change(|t| t.outcome = Outcome::Unknown(Some(timestamp)))
    }
}

impl Written for Transaction {
    fn change(mut self, change: impl FnOnce(&mut Transaction)) -> Self {
        change(&mut self);
        self
    }
}

pub fn history<const N: usize>(transactions: [Transaction; N]) -> History {
    History {
        transactions: transactions.to_vec(),
    }
}

pub fn kind<T>(verdict: Result<T, Box<Violation>>) -> Option<Kind> {
    verdict.err().map(|violation| violation.kind)
}
