//! What is outside of all machines: the objects, the history, and what is found wrong.

use crate::testing::fabrics::Any;
use crate::testing::machines::faults_of_the_end;
use crate::{Engine, Policy, View};
use plinth_farm_judge::Recorder;
use plinth_farm_memory::{Abort, Pointer};
use plinth_runtime::{Duration, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub const REGIONS: u16 = 4;
/// Of a machine.
pub const CLIENTS: u64 = 3;
/// Each client begins so many transactions.
const TRANSACTIONS: u64 = 24;
const REPLICAS: u16 = 3;

/// An object that clients know, and how many are about to free it.
#[derive(Clone)]
pub struct Object {
    pub at: Pointer,
    freeing: Rc<Cell<u32>>,
}

pub struct World {
    pub machines: usize,
    pub policy: Policy,
    /// Memory gets full.
    pub is_small: bool,
    /// All machines are of one host, and share its memory.
    pub is_one_host: bool,
    /// The greatest delay of a message.
    pub latency: Duration,
    pub recorder: Recorder,
    pub blame: RefCell<Option<String>>,
    /// Machines that have come so far.
    pub ready: Cell<usize>,
    /// Objects have one size, and pointers outlive them. Otherwise a slab may go to objects of another size, and then
    /// nobody may use a pointer that is not from its own snapshot.
    pub is_of_one_size: bool,
    /// Objects that somebody has made.
    objects: RefCell<Vec<Object>>,
    /// Snapshots of transactions that are, or were, active.
    pub snapshots: RefCell<Vec<u64>>,
    /// How many transactions have ended with each error.
    pub aborts: RefCell<BTreeMap<String, u64>>,
    pub left: Cell<u64>,
    pub running: Cell<usize>,
    pub engines: RefCell<Vec<Rc<Engine<Any>>>>,
}

impl World {
    pub fn new(machines: usize, policy: Policy, latency: Duration, seed: u64) -> World {
        World {
            machines,
            policy,
            latency,
            recorder: Recorder::counting(),
            blame: RefCell::default(),
            ready: Cell::new(0),
            is_of_one_size: seed.is_multiple_of(2),
            is_small: seed / 12 % 2 == 1,
            is_one_host: seed % 5 == 4,
            objects: RefCell::default(),
            snapshots: RefCell::default(),
            aborts: RefCell::default(),
            left: Cell::new(TRANSACTIONS * CLIENTS * machines as u64),
            running: Cell::new(0),
            engines: RefCell::default(),
        }
    }

    pub fn blame(&self, what: String) {
        self.blame.borrow_mut().get_or_insert(what);
    }

    pub fn aborted(&self, abort: Abort) {
        *self
            .aborts
            .borrow_mut()
            .entry(format!("{abort:?}"))
            .or_default() += 1;
    }

    pub fn view(&self) -> View {
        View::first(self.machines as u16, REGIONS, REPLICAS, |region, _| region)
    }

    /// Waits until all machines have come so far.
    pub async fn barrier(&self, step: usize) {
        self.ready.set(self.ready.get() + 1);
        while self.ready.get() < step * self.machines {
            sleep(Duration::from_micros(200)).await;
        }
    }

    /// One of the latest objects, more often a late one.
    pub fn some_object(&self) -> Option<Object> {
        let objects = self.objects.borrow();
        let last = objects.len().checked_sub(1)? as u64;
        let back = random::below(10).min(last);
        let object = &objects[(last - back) as usize];
        let is_there = self.is_of_one_size || object.freeing.get() == 0;
        is_there.then(|| object.clone())
    }

    pub fn made(&self, at: Pointer) {
        let freeing = Rc::new(Cell::new(0));
        self.objects.borrow_mut().push(Object { at, freeing });
    }

    /// Nobody begins to use the object, until it is known not to be freed.
    pub fn begin_free(&self, object: &Object) {
        object.freeing.set(object.freeing.get() + 1);
    }

    pub fn not_freed(&self, object: &Object) {
        object.freeing.set(object.freeing.get() - 1);
    }

    pub fn begin_one(&self) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            self.running.set(self.running.get() + 1);
        }
        left > 0
    }

    pub fn end_one(&self) {
        self.running.set(self.running.get() - 1);
    }

    pub fn has_ended(&self) -> bool {
        let is_done = self.left.get() == 0 && self.running.get() == 0;
        is_done || self.blame.borrow().is_some()
    }

    pub async fn check_end(&self) {
        let engines = self.engines.borrow().clone();
        for fault in faults_of_the_end(&engines, &self.view()).await {
            self.blame(fault);
        }
    }
}
