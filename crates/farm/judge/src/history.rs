//! What was recorded of transactions.

/// Number of a transaction; unique in a history. Its writes carry it, so that a reader can name whose version it saw.
pub type Id = u64;
/// An object, by whatever number is unique (the bits of its pointer).
pub type Object = u64;
/// Global time, in the unit of the engine.
pub type Timestamp = u64;
/// When something happened, in an order that all recorders agree on. Equal moments have no order.
pub type Moment = u64;

/// The end of a transaction whose end nobody saw.
pub const NEVER: Moment = Moment::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Isolation {
    Serializable,
    Snapshot,
}

/// How a transaction was asked to run (§4.2, 4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Options {
    pub isolation: Isolation,
    /// It sees all that ended before it began.
    pub strict: bool,
    /// It was declared to write nothing.
    pub read_only: bool,
    /// Its read timestamp was given to it, and may lie in the past. Then `strict` means nothing.
    pub stale: bool,
}

impl Options {
    /// What a transaction is if nothing is asked for.
    pub const DEFAULT: Options = Options {
        isolation: Isolation::Serializable,
        strict: true,
        read_only: false,
        stale: false,
    };

    pub fn snapshot_isolation(self) -> Options {
        Options {
            isolation: Isolation::Snapshot,
            ..self
        }
    }

    pub fn not_strict(self) -> Options {
        Options {
            strict: false,
            ..self
        }
    }

    pub fn read_only(self) -> Options {
        Options {
            read_only: true,
            ..self
        }
    }

    /// A read-only transaction at a timestamp that was given to it.
    pub fn stale(self) -> Options {
        Options {
            read_only: true,
            stale: true,
            ..self
        }
    }
}

/// What a read returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Seen {
    /// The object as it was before the history.
    Initial,
    /// The object was not allocated.
    Absent,
    /// The value that this transaction wrote.
    Of(Id),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Read {
    pub object: Object,
    pub seen: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Change {
    /// A new value of an allocated object.
    Set,
    /// The object is allocated with a value. It was not allocated before.
    Allocate,
    /// The object is freed. It was allocated before.
    Free,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Write {
    pub object: Object,
    pub change: Change,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Outcome {
    /// It wrote, and was reported as committed, with this write timestamp.
    Committed(Timestamp),
    /// It wrote nothing, and was reported as committed.
    ReadOnly,
    /// It has had no effect, and never will.
    Aborted,
    /// Nobody was told. If it took effect, it did so at the write timestamp, if that is known.
    Unknown(Option<Timestamp>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    pub id: Id,
    pub machine: u32,
    /// The call of begin.
    pub begin: Moment,
    /// The return of commit or abort; `NEVER` if it did not return.
    pub end: Moment,
    pub options: Options,
    /// `None` if it did not come so far.
    pub read_timestamp: Option<Timestamp>,
    /// In their order, without those of objects that it had written itself.
    pub reads: Vec<Read>,
    /// At most one an object: what commit would do, or has done.
    pub writes: Vec<Write>,
    pub outcome: Outcome,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// In any order.
    pub transactions: Vec<Transaction>,
}

impl History {
    /// Adds what another recorder has recorded, which agrees on moments.
    pub fn add(&mut self, other: History) {
        self.transactions.extend(other.transactions);
    }
}
