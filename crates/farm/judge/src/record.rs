//! Records transactions while they run, in memory.

use crate::history::{
    Change, History, Id, Moment, NEVER, Object, Options, Outcome, Read, Seen, Timestamp,
    Transaction, Write,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Records the transactions of one thread, on whatever simulated machines. A clone is the same recorder.
#[derive(Clone)]
pub struct Recorder(Rc<Inner>);

struct Inner {
    next_id: Cell<Id>,
    clock: Box<dyn Fn() -> Moment>,
    transactions: RefCell<Vec<Transaction>>,
}

impl Recorder {
    /// Its moments are the numbers of the events that it records. That is the finest order there is, in one thread.
    pub fn counting() -> Recorder {
        let events = Cell::new(0);
        let count = move || {
            events.set(events.get() + 1);
            events.get()
        };
        Recorder::new(0, count)
    }

    /// `namespace` tells apart the transactions of recorders whose histories are judged together. `clock` gives the
    /// moment at which it is called; all those recorders must agree on it (a monotonic clock of one host, in
    /// nanoseconds).
    pub fn new(namespace: u32, clock: impl Fn() -> Moment + 'static) -> Recorder {
        Recorder(Rc::new(Inner {
            next_id: Cell::new((Id::from(namespace) << 32) + 1),
            clock: Box::new(clock),
            transactions: RefCell::default(),
        }))
    }

    /// Call it before the engine is asked to begin.
    pub fn begin(&self, machine: u32, options: Options) -> Recording {
        let inner = &self.0;
        let id = inner.next_id.replace(inner.next_id.get() + 1);
        let mut transactions = inner.transactions.borrow_mut();
        transactions.push(Transaction {
            id,
            machine,
            begin: (inner.clock)(),
            end: NEVER,
            options,
            read_timestamp: None,
            reads: Vec::new(),
            writes: Vec::new(),
            outcome: Outcome::Unknown(None),
        });
        Recording {
            recorder: self.clone(),
            index: transactions.len() - 1,
            id,
        }
    }

    /// What has been recorded until now. Transactions without an end are of unknown outcome.
    pub fn history(&self) -> History {
        History {
            transactions: self.0.transactions.borrow().clone(),
        }
    }

    /// Number of transactions that have begun.
    pub fn len(&self) -> usize {
        self.0.transactions.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A transaction that is being recorded. If it is dropped before its end, its outcome stays unknown.
pub struct Recording {
    recorder: Recorder,
    index: usize,
    id: Id,
}

impl Recording {
    /// What its writes carry in their values.
    pub fn id(&self) -> Id {
        self.id
    }

    fn change<T>(&self, f: impl FnOnce(&mut Transaction) -> T) -> T {
        f(&mut self.recorder.0.transactions.borrow_mut()[self.index])
    }

    /// It has its read timestamp.
    pub fn started(&self, read_timestamp: Timestamp) {
        self.change(|t| t.read_timestamp = Some(read_timestamp));
    }

    /// A read has returned. Reads of what it has written itself are left out.
    pub fn read(&self, object: Object, seen: Seen) {
        self.change(|t| {
            if !t.writes.iter().any(|write| write.object == object) {
                t.reads.push(Read { object, seen });
            }
        });
    }

    /// It will have this effect if it commits. Several changes of an object become one.
    pub fn write(&self, object: Object, change: Change) {
        self.change(|t| {
            let Some(at) = t.writes.iter().position(|write| write.object == object) else {
                t.writes.push(Write { object, change });
                return;
            };
            match (t.writes[at].change, change) {
                (Change::Allocate, Change::Free) => {
                    t.writes.remove(at);
                }
                (Change::Allocate, _) => {}
                (Change::Free, Change::Allocate) => t.writes[at].change = Change::Set,
                (_, change) => t.writes[at].change = change,
            }
        });
    }

    /// What is known of it now: to be written to a file before commit is called, in case the process dies.
    pub fn so_far(&self) -> Transaction {
        self.change(|t| t.clone())
    }

    /// Call it after the engine has answered. `Committed` without a write is `ReadOnly`.
    pub fn end(self, outcome: Outcome) -> Id {
        let end = (self.recorder.0.clock)();
        self.change(|t| {
            t.end = end;
            t.outcome = match outcome {
                Outcome::Committed(_) if t.writes.is_empty() => Outcome::ReadOnly,
                outcome => outcome,
            };
        });
        self.id
    }
}
