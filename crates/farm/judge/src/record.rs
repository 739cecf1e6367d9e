//! Records transactions while they run.

use crate::history::{
    Change, History, Id, Moment, NEVER, Object, Options, Outcome, Read, Seen, Timestamp,
    Transaction, Write,
};
use crate::text::HEADER;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Records the transactions of one thread, on whatever simulated machines. A clone is the same recorder.
#[derive(Clone)]
pub struct Recorder(Rc<Inner>);

struct Inner {
    next_id: Cell<Id>,
    clock: Box<dyn Fn() -> Moment>,
    /// Of a recorder that keeps what it records: all. Otherwise those that run, with gaps.
    transactions: RefCell<Vec<Option<Transaction>>>,
    gaps: RefCell<Vec<usize>>,
    /// Takes lines, with their ends. Then transactions are not kept.
    sink: Option<Box<dyn Fn(&str)>>,
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
        Recorder::with(namespace, Box::new(clock), None)
    }

    /// A recorder that hands out the lines of a file instead of keeping transactions, for a process that may be
    /// killed: see [`Recording::commits`]. A line must be out of the process when `sink` returns.
    pub fn writing(
        namespace: u32,
        clock: impl Fn() -> Moment + 'static,
        sink: impl Fn(&str) + 'static,
    ) -> Recorder {
        sink(&format!("{HEADER}\n"));
        Recorder::with(namespace, Box::new(clock), Some(Box::new(sink)))
    }

    fn with(
        namespace: u32,
        clock: Box<dyn Fn() -> Moment>,
        sink: Option<Box<dyn Fn(&str)>>,
    ) -> Recorder {
        Recorder(Rc::new(Inner {
            next_id: Cell::new((Id::from(namespace) << 32) + 1),
            clock,
            transactions: RefCell::default(),
            gaps: RefCell::default(),
            sink,
        }))
    }

    /// Call it before the engine is asked to begin.
    pub fn begin(&self, machine: u32, options: Options) -> Recording {
        let inner = &self.0;
        let id = inner.next_id.replace(inner.next_id.get() + 1);
        let transaction = Transaction {
            id,
            machine,
            begin: (inner.clock)(),
            end: NEVER,
            options,
            read_timestamp: None,
            reads: Vec::new(),
            writes: Vec::new(),
            outcome: Outcome::Unknown(None),
        };
        let mut transactions = inner.transactions.borrow_mut();
        let gap = inner.gaps.borrow_mut().pop();
        let index = gap.unwrap_or_else(|| {
            transactions.push(None);
            transactions.len() - 1
        });
        transactions[index] = Some(transaction);
        Recording {
            recorder: self.clone(),
            index,
            id,
        }
    }

    /// Number of transactions that have begun.
    pub fn len(&self) -> usize {
        (self.0.next_id.get() as u32 - 1) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has been recorded until now. Transactions without an end are of unknown outcome; a recorder that writes
    /// has kept no others.
    pub fn history(&self) -> History {
        let transactions = self.0.transactions.borrow();
        History {
            transactions: transactions.iter().flatten().cloned().collect(),
        }
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

    fn change(&self, f: impl FnOnce(&mut Transaction)) {
        let mut transactions = self.recorder.0.transactions.borrow_mut();
        f(transactions[self.index]
            .as_mut()
            .expect("it is kept until its end"));
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

    /// Call it before the engine is asked to commit, if the recorder writes: if the process dies, others may have seen
    /// what this transaction wrote.
    pub fn commits(&self) {
        self.emit();
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

    fn emit(&self) {
        if let Some(sink) = &self.recorder.0.sink
            && let Some(transaction) = &self.recorder.0.transactions.borrow()[self.index]
        {
            sink(&format!("{transaction}\n"));
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let inner = &self.recorder.0;
        if inner.sink.is_some() {
            self.emit();
            inner.transactions.borrow_mut()[self.index] = None;
            inner.gaps.borrow_mut().push(self.index);
        }
    }
}
