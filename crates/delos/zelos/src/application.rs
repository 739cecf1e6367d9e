//! The tree as the application of a stack: executes the entries of the log, and hands what they have changed to the
//! gateway of this replica.
//!
//! An entry is executed on the rows as those before it have left them, so the order of the log decides everything.
//! Nodes that were read or changed last stay in memory, as the rows have them; the rows alone count.

use crate::done::Done;
use crate::door::Door;
use crate::entry::{self, Head, Malformed};
use crate::front::Front;
use crate::view::{Changed, Seen, State};
use bytes::Bytes;
use plinth_core::{Error, Result};
use plinth_delos::log::LogPos;
use plinth_delos::stack::{Application, Failure};
use plinth_delos::store::RwTx;
use plinth_keeper::CACHE_BYTES_MAX;
use plinth_keeper::cache::Cache;
use plinth_keeper::quotas;
use plinth_keeper::setup::first_rows;
use plinth_keeper::tree::change::Change;
use plinth_keeper::tree::execute::{Operation, execute};
use plinth_keeper::tree::plan::Plan;
use plinth_keeper::tree::quota::{self, Quotas};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::tree::written::write_rows;
use plinth_keeper::zxid::PLACE_BITS;
use plinth_runtime::{random, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// Of the tree: a service has one.
const TREE: &str = "zelos";
/// Version of the format of rows, in the tree's record.
const FORMAT: u8 = 1;

/// Why an entry is refused. Its gateway begins another life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its gateway's lease was ended.
    Gone,
    /// It is no batch of operations, or there is no place for so many at its position.
    Malformed,
}

/// See the module.
pub struct Zelos {
    pub rows: Rows,
    /// Of hashes of paths in plans.
    seed: u64,
    /// Nodes as the rows have them.
    nodes: RefCell<Cache>,
    /// All quotas, as the rows have them; `None` until they are read.
    quotas: RefCell<Option<Rc<Quotas>>>,
    /// The rows of a new tree are there.
    is_made: Cell<bool>,
    /// The position whose entries are executed, and the next place of its operations.
    place: Cell<(LogPos, usize)>,
    /// What was executed, and is not yet handed on.
    done: RefCell<VecDeque<Done>>,
    is_telling: Cell<bool>,
    front: RefCell<Weak<Front>>,
    door: Option<Rc<Door>>,
}

impl Zelos {
    /// Where clients come in, if they do.
    pub fn new(door: Option<Rc<Door>>) -> Zelos {
        let seed = random::u64();
        Zelos {
            rows: Rows::new(TREE),
            seed,
            nodes: RefCell::new(Cache::new(seed, CACHE_BYTES_MAX.get())),
            quotas: RefCell::default(),
            is_made: Cell::new(false),
            place: Cell::new((0, 0)),
            done: RefCell::default(),
            is_telling: Cell::new(false),
            front: RefCell::default(),
            door,
        }
    }

    pub fn door(&self) -> Option<Rc<Door>> {
        self.door.clone()
    }

    /// From now on this gateway is told of all changes.
    pub fn tell(&self, front: &Rc<Front>) {
        self.front.replace(Rc::downgrade(front));
    }

    /// False while a position is only half handed on: what the store has is newer than what the gateway has.
    pub fn is_told(&self) -> bool {
        self.done.borrow().is_empty() && !self.is_telling.get()
    }

    /// The rows of a new tree, if there is none.
    fn make(&self, tx: &mut RwTx) -> Result<()> {
        if self.is_made.get() {
            return Ok(());
        }
        match tx.get(&self.rows.meta())? {
            Some(record) if record[..] == [FORMAT] => {}
            Some(_) => return Err(Error::unsupported_format_version),
            None => {
                tx.set(&self.rows.meta(), vec![FORMAT]);
                first_rows(&self.rows, |key, row| tx.set(&key, row));
            }
        }
        self.is_made.set(true);
        Ok(())
    }

    fn known_quotas(&self, tx: &RwTx) -> Result<Rc<Quotas>> {
        if let Some(known) = &*self.quotas.borrow() {
            return Ok(known.clone());
        }
        let range = self.rows.all_quotas();
        let found = tx.range(&range.begin, &range.end, usize::MAX)?;
        let quotas = quotas::parse(&self.rows, &found, |path| {
            trace_warn!("ZelosQuotaDamaged", "path" => path);
            Err(Error::file_corrupt)
        });
        let quotas = Rc::new(quotas?);
        self.quotas.replace(Some(quotas.clone()));
        Ok(quotas)
    }

    /// Takes places for so many operations, if there are.
    fn take_places(&self, pos: LogPos, count: usize) -> Option<u16> {
        let (of, next) = self.place.get();
        assert!(
            of <= pos,
            "operations of position {pos} get places behind those of {of}"
        );
        let first = if of == pos { next } else { 0 };
        if first + count > 1 << PLACE_BITS {
            return None;
        }
        self.place.set((pos, first + count));
        u16::try_from(first).ok()
    }

    fn execute_all(
        &self,
        tx: &mut RwTx,
        head: Head,
        mut operations: Vec<Operation>,
        (pos, place): (LogPos, u16),
    ) -> Result<Done> {
        let quotas = self.known_quotas(tx)?;
        let state = State {
            rows: &self.rows,
            nodes: &self.nodes,
            quotas,
        };
        let seen = Seen::new(tx, state, head.gateway, head.enforces_quotas);
        let mut done = Done {
            head,
            pos,
            place,
            executed: Vec::with_capacity(operations.len()),
            changes: Vec::new(),
            exceeded: Vec::new(),
        };
        let mut plan = Plan::new(&seen, head.now_ms, self.seed);
        for (piece, operation) in (0..).zip(&mut operations) {
            seen.look_up(operation)?;
            plan.begin(piece);
            done.executed
                .push(execute(&mut plan, operation, head.gateway));
        }
        seen.check()?;
        if !plan.is_all_read() {
            return Err(Error::internal_error);
        }
        plan.end();
        plan.settle(|piece| done.zxid(piece));
        write_rows(&mut Changed(&seen), &self.rows, head.gateway, &plan)?;
        done.changes = plan.changes;
        done.exceeded = seen.exceeded();
        Ok(done)
    }

    /// What is in memory follows the rows.
    fn follow(&self, done: &Done) {
        let mut nodes = self.nodes.borrow_mut();
        let mut quotas = self.quotas.borrow_mut();
        for (piece, change) in &done.changes {
            match change {
                Change::Quota(path, change) => {
                    let known = quotas.as_mut().expect("it was read");
                    quota::apply(Rc::make_mut(known), path, change);
                }
                change => nodes.apply(change, done.zxid(*piece)),
            }
        }
    }
}

impl Application for Zelos {
    type Return = ();
    type Refusal = Refused;

    fn execute(
        &self,
        tx: &mut RwTx,
        payload: &Bytes,
        pos: LogPos,
    ) -> std::result::Result<(), Failure<Refused>> {
        let (head, operations) = match entry::decode(payload.clone()) {
            Ok(batch) => batch,
            // Who cannot execute what others do must not go on.
            Err(Malformed::Version) => {
                return Err(Failure::Stop(Error::incompatible_software_version));
            }
            Err(Malformed::Bytes) => return Err(Failure::Refused(Refused::Malformed)),
        };
        // Its first batch makes the row of its lease.
        let lease = self.rows.gateway(head.gateway);
        if head.number != 1 && tx.get(&lease)?.is_none() {
            return Err(Failure::Refused(Refused::Gone));
        }
        let Some(place) = self.take_places(pos, operations.len()) else {
            return Err(Failure::Refused(Refused::Malformed));
        };
        self.make(tx)?;
        let done = self.execute_all(tx, head, operations, (pos, place))?;
        self.follow(&done);
        self.done.borrow_mut().push_back(done);
        Ok(())
    }

    fn executed(&self, _: &Bytes, pos: LogPos) {
        let Some(done) = self.done.borrow_mut().pop_front() else {
            return;
        };
        assert_eq!(done.pos, pos, "changes are handed on out of order");
        let front = self.front.borrow().upgrade();
        if let Some(front) = front {
            let is_telling = self.is_telling.replace(true);
            assert!(
                !is_telling,
                "the gateway is told of position {pos} while it is told of another"
            );
            front.take(done);
            self.is_telling.set(false);
        }
    }
}
