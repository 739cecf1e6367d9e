//! Test support: a simple store of objects with versions, in one thread. It is the model of the engine behind
//! [`Objects`], for tests of structures and of what is built on them.
//!
//! It is as unfriendly as an engine may be: freed places are used again at once, by whatever wants the same size; a
//! transaction can be made to abort at any call; a transaction that goes on after an error is a bug.

use crate::kv::Engine;
use bytes::Bytes;
use plinth_core::testing::Generator;
use plinth_farm_memory::{Abort, Class, Objects, Pointer};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct State {
    version: u64,
    /// Payloads by version; none: not allocated from that version on.
    objects: BTreeMap<Pointer, Vec<(u64, Option<Bytes>)>>,
    /// Places that may be allocated.
    free: BTreeMap<Class, Vec<Pointer>>,
    next_word: u64,
    random: Generator,
}

/// The objects, and their versions.
pub struct Store {
    state: RefCell<State>,
    /// A call in so many aborts; 0: none.
    pub abort_one_in: Cell<usize>,
    /// Places where a read finds neither an object nor that there is none, as after a slab has changed its size.
    pub lost: RefCell<BTreeSet<Pointer>>,
    /// Others may run in the middle of any call.
    pub yields: Cell<bool>,
}

/// Calls of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    pub reads: usize,
    pub writes: usize,
    pub allocations: usize,
    pub frees: usize,
}

/// A transaction.
pub struct Tx {
    store: Rc<Store>,
    /// The version that it reads.
    pub snapshot: u64,
    reads: RefCell<BTreeMap<Pointer, u64>>,
    writes: RefCell<BTreeMap<Pointer, Option<Bytes>>>,
    allocated: RefCell<BTreeSet<Pointer>>,
    is_over: Cell<bool>,
    /// Calls up to now.
    pub calls: Cell<Calls>,
}

impl Store {
    /// A store without objects; `seed` decides everything that happens at random.
    pub fn new(seed: u64) -> Rc<Store> {
        Rc::new(Store {
            state: RefCell::new(State {
                version: 1,
                objects: BTreeMap::new(),
                free: BTreeMap::new(),
                next_word: 1,
                random: Generator::new(seed),
            }),
            abort_one_in: Cell::new(0),
            lost: RefCell::default(),
            yields: Cell::new(false),
        })
    }

    /// A transaction at the newest version.
    pub fn begin(self: &Rc<Self>) -> Tx {
        Tx {
            store: Rc::clone(self),
            snapshot: self.state.borrow().version,
            reads: RefCell::default(),
            writes: RefCell::default(),
            allocated: RefCell::default(),
            is_over: Cell::new(false),
            calls: Cell::default(),
        }
    }

    fn below(&self, n: usize) -> usize {
        self.state.borrow_mut().random.below(n)
    }

    /// Objects that are allocated now.
    pub fn allocated(&self) -> BTreeSet<Pointer> {
        let state = self.state.borrow();
        let is_there = |v: &Vec<(u64, Option<Bytes>)>| matches!(v.last(), Some((_, Some(_))));
        let there = state.objects.iter().filter(|(_, v)| is_there(v));
        there.map(|(at, _)| *at).collect()
    }

    /// Runs a transaction until it has committed.
    pub async fn run<T>(
        self: &Rc<Self>,
        mut body: impl AsyncFnMut(&Tx) -> crate::Result<T>,
    ) -> crate::Result<T> {
        loop {
            let tx = self.begin();
            let error = match body(&tx).await {
                Ok(output) => match tx.commit().await {
                    Ok(_) => return Ok(output),
                    Err(abort) => abort.into(),
                },
                Err(error) => error,
            };
            if !error.is_retryable() {
                return Err(error);
            }
        }
    }

    async fn breathe(&self) {
        while self.yields.get() && self.below(2) == 0 {
            plinth_runtime::yield_now().await;
        }
    }
}

fn padded(at: Pointer, payload: &[u8]) -> Bytes {
    let mut bytes = payload.to_vec();
    bytes.resize(at.class().payload_bytes(), 0);
    Bytes::from(bytes)
}

impl Tx {
    async fn call(&self, count: impl Fn(&mut Calls)) -> Result<(), Abort> {
        assert!(!self.is_over.get(), "a transaction goes on after its end");
        let mut calls = self.calls.get();
        count(&mut calls);
        self.calls.set(calls);
        self.store.breathe().await;
        let one_in = self.store.abort_one_in.get();
        if one_in > 0 && self.store.below(one_in) == 0 {
            self.is_over.set(true);
            let aborts = [Abort::Conflict, Abort::TooOld, Abort::Failed];
            return Err(aborts[self.store.below(3)]);
        }
        Ok(())
    }

    /// What the snapshot has there, with the version.
    fn of_snapshot(&self, at: Pointer) -> Option<(u64, Bytes)> {
        let state = self.store.state.borrow();
        let versions = state.objects.get(&at)?;
        let (version, payload) = versions
            .iter()
            .rev()
            .find(|(version, _)| *version <= self.snapshot)?;
        Some((*version, payload.clone()?))
    }

    fn is_there(&self, at: Pointer) -> bool {
        match self.writes.borrow().get(&at) {
            Some(own) => own.is_some(),
            None => self.of_snapshot(at).is_some(),
        }
    }

    /// The version of the commit; that of the snapshot if nothing was written.
    pub async fn commit(&self) -> Result<u64, Abort> {
        self.call(|_| {}).await?;
        self.is_over.set(true);
        let mut state = self.store.state.borrow_mut();
        let writes = self.writes.take();
        if writes.is_empty() {
            return Ok(self.snapshot);
        }
        let newest = |at: &Pointer| {
            let versions = state.objects.get(at);
            versions.map_or(0, |v| v.last().expect("a version").0)
        };
        let is_old = |(at, version): (&Pointer, &u64)| newest(at) != *version;
        if self.reads.borrow().iter().any(is_old) {
            return Err(Abort::Conflict);
        }
        let allocated = self.allocated.take();
        let mut others = writes.keys().filter(|at| !allocated.contains(at));
        if others.any(|at| newest(at) > self.snapshot) {
            self.allocated.replace(allocated);
            return Err(Abort::Conflict);
        }
        state.version += 1;
        let version = state.version;
        for (at, payload) in writes {
            if payload.is_none() {
                state.free.entry(at.class()).or_default().push(at);
            }
            if payload.is_some() || !allocated.contains(&at) {
                let versions = state.objects.entry(at).or_default();
                versions.push((version, payload));
            }
        }
        Ok(version)
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let mut state = self.store.state.borrow_mut();
        for at in self.allocated.take() {
            state.free.entry(at.class()).or_default().push(at);
        }
    }
}

impl Engine for Rc<Store> {
    type Transaction = Tx;

    async fn begin(&self) -> Result<Tx, Abort> {
        Ok(Store::begin(self))
    }

    async fn commit(&self, tx: Tx) -> Result<(), Abort> {
        tx.commit().await.map(|_| ())
    }
}

impl Objects for Tx {
    async fn read(&self, at: Pointer) -> Result<Bytes, Abort> {
        self.call(|calls| calls.reads += 1).await?;
        if let Some(own) = self.writes.borrow().get(&at) {
            return own.clone().ok_or(Abort::NotAllocated);
        }
        if self.store.lost.borrow().contains(&at) {
            self.is_over.set(true);
            return Err(Abort::TooOld);
        }
        let (version, payload) = self.of_snapshot(at).ok_or(Abort::NotAllocated)?;
        self.reads.borrow_mut().insert(at, version);
        Ok(payload)
    }

    async fn write(&self, at: Pointer, payload: Bytes) -> Result<(), Abort> {
        self.call(|calls| calls.writes += 1).await?;
        if payload.len() > at.class().payload_bytes() {
            self.is_over.set(true);
            return Err(Abort::TooLarge);
        }
        if !self.is_there(at) {
            return Err(Abort::NotAllocated);
        }
        self.writes
            .borrow_mut()
            .insert(at, Some(padded(at, &payload)));
        Ok(())
    }

    async fn allocate(&self, bytes: usize, _near: Pointer) -> Result<Pointer, Abort> {
        self.call(|calls| calls.allocations += 1).await?;
        let class = Class::of(bytes).ok_or(Abort::TooLarge)?;
        let mut state = self.store.state.borrow_mut();
        let State {
            free,
            random,
            objects,
            ..
        } = &mut *state;
        // Not one that this transaction still sees as the object that it was.
        let was_free = |at: &Pointer| {
            let last = objects.get(at).and_then(|versions| versions.last());
            last.is_none_or(|(version, _)| *version <= self.snapshot)
        };
        let free = free.entry(class).or_default();
        let again = random.below(free.len());
        let at = if random.below(4) > 0 && free.get(again).is_some_and(was_free) {
            free.swap_remove(again)
        } else {
            state.next_word += 1;
            Pointer::new(1, class, state.next_word)
        };
        self.allocated.borrow_mut().insert(at);
        self.writes.borrow_mut().insert(at, Some(padded(at, &[])));
        Ok(at)
    }

    async fn free(&self, at: Pointer) -> Result<(), Abort> {
        self.call(|calls| calls.frees += 1).await?;
        if !self.is_there(at) {
            return Err(Abort::NotAllocated);
        }
        self.writes.borrow_mut().insert(at, None);
        Ok(())
    }
}

/// Runs a future that waits for nothing but its turn.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// Runs several, taking turns at random.
pub fn interleave<'a>(seed: u64, mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>) {
    let mut random = Generator::new(seed);
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        let i = random.below(tasks.len());
        if tasks[i].as_mut().poll(&mut context).is_ready() {
            drop(tasks.swap_remove(i));
        }
    }
}
