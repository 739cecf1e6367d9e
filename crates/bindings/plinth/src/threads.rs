//! The threads on which the client runs, each with an event loop of its own: how they begin, get work, and end.
//!
//! [`Home`] is a database as its handles see it: the same one on every thread, under one number. Work is posted to a
//! thread and finds the database or transaction there by its number.

use crate::open_error::OpenError;
use crate::open_error::Result;
use crate::slot::{self, Answer, Promise, pair};
use plinth_client::{Database as LocalDatabase, Transaction as Local};
use plinth_core::hash::HashMap;
use plinth_runtime::real::{self, Arrivals, Remote};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Either, Instant, Task, race};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a thread serves.
pub(crate) struct Served {
    pub database: LocalDatabase,
    /// Ends what lives beside the database.
    pub close: Pin<Box<dyn Future<Output = ()>>>,
}

type Opening = Pin<Box<dyn Future<Output = Result<Served, OpenError>>>>;
/// Opens what a thread serves, on that thread.
pub(crate) type Open = Box<dyn FnOnce() -> Opening + Send>;

/// The posting end of a thread.
#[derive(Clone)]
pub(crate) struct Thread {
    remote: Remote,
    /// Transactions that are over. The thread hears of them with the next batch: waking it for one would cost more
    /// than a read.
    over: Arc<Mutex<Vec<u64>>>,
}

/// So many are told at once.
const OVER_MAX: usize = 64;

impl Thread {
    pub fn post(&self, work: impl FnOnce() + Send + 'static) {
        self.remote.post(work);
    }

    /// Forgets a transaction with the next batch, or with those that come soon.
    pub fn forget_soon(&self, transaction: u64) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        over.push(transaction);
        if over.len() >= OVER_MAX {
            drop(over);
            self.remote.post(forget_those_that_are_over);
        }
    }
}

/// Forgets the transactions of this thread that are over.
pub(crate) fn forget_those_that_are_over() {
    let over = OVER.with_borrow(|over| {
        let mut over = over.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *over)
    });
    over.into_iter().for_each(forget_transaction);
}

struct Threads {
    homes: Vec<Thread>,
    next: AtomicUsize,
    /// One for each thread that has not ended yet.
    ends: Mutex<Vec<Answer<()>>>,
}

impl Threads {
    fn stop(&self) {
        for home in &self.homes {
            home.post(|| STOP_HERE.with(Notify::notify_one));
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Default)]
struct State {
    databases: HashMap<u64, LocalDatabase>,
    transactions: HashMap<u64, Local>,
    /// Work whose answer is awaited, and that ends when it is not.
    working: HashMap<u64, Task<()>>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
    static OVER: RefCell<Arc<Mutex<Vec<u64>>>> = RefCell::default();
    /// Ends this thread's loop.
    static STOP_HERE: Notify = Notify::new();
}

fn with<T>(change: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(change)
}

/// The thread's database of that number, while it is open.
pub(crate) fn database(number: u64) -> Option<LocalDatabase> {
    with(|state| state.databases.get(&number).cloned())
}

/// The transaction of that number; makes it if it is new: asked for at `new_at`.
pub(crate) fn transaction(number: u64, of: u64, new_at: Option<Instant>) -> Option<Local> {
    let Some(at) = new_at else {
        return with(|state| state.transactions.get(&number).cloned());
    };
    let made = database(of)?.create_transaction_at(at);
    with(|state| drop(state.transactions.insert(number, made.clone())));
    Some(made)
}

pub(crate) fn forget_transaction(number: u64) {
    // Its destructor may come back here.
    drop(with(|state| state.transactions.remove(&number)));
}

/// Fills the promise with the result of `work`.
pub(crate) fn fill<T: 'static>(
    promise: Promise<T>,
    work: impl Future<Output = Result<T>> + 'static,
) {
    let filling = async move { promise.fill_in_turn(work.await) };
    plinth_runtime::spawn("answer", filling).detach();
}

/// The same for work that [`stop`] can end, by its number.
pub(crate) fn fill_until_stopped<T: 'static>(
    number: u64,
    promise: Promise<T>,
    work: impl Future<Output = Result<T>> + 'static,
) {
    let filling = plinth_runtime::spawn("answer", async move {
        let result = work.await;
        if let Some(own) = with(|state| state.working.remove(&number)) {
            own.detach();
        }
        promise.fill_in_turn(result);
    });
    with(|state| drop(state.working.insert(number, filling)));
}

/// Ends the work of that number, if it is under way on this thread.
pub(crate) fn stop(number: u64) {
    // Its destructor may come back here.
    drop(with(|state| state.working.remove(&number)));
}

/// Runs work whose result nobody waits for.
pub(crate) fn run_to_end(work: impl Future<Output = Result<()>> + 'static) {
    plinth_runtime::spawn("work", async move { work.await.ok() }).detach();
}

/// Runs a thread's loop. The output is dropped when the loop and all that lived on it are gone.
async fn serve(
    arrivals: Arrivals,
    open: Open,
    opened: Promise<Result<(), OpenError>>,
    end: Promise<()>,
) -> Promise<()> {
    let served = match open().await {
        Ok(served) => served,
        Err(error) => {
            opened.fill_in_turn(Ok(Err(error)));
            slot::wake_all();
            return end;
        }
    };
    with(|state| drop(state.databases.insert(ROOT, served.database)));
    let waking = plinth_runtime::spawn("wake", slot::wake_in_turns());
    opened.fill_in_turn(Ok(Ok(())));
    match race(STOP_HERE.with(Notify::notified), arrivals.run()).await {
        Either::Left(()) => {}
        Either::Right(never) => match never {},
    }
    drop(arrivals);
    drop(with(std::mem::take));
    served.close.await;
    drop(waking);
    slot::wake_all();
    end
}

/// The number of the database that a thread opens; tenants have others.
const ROOT: u64 = 0;

/// A database, or a tenant of one, on every thread. It is closed when the last handle is gone.
pub(crate) struct Home {
    pub number: u64,
    threads: Arc<Threads>,
    /// A tenant's database lives as long as the tenant.
    _parent: Option<Arc<Home>>,
}

impl Home {
    /// Starts a thread for each of these, and waits until all have opened what they serve.
    pub async fn start(opens: Vec<Open>) -> Result<Arc<Home>, OpenError> {
        let (mut homes, mut ends, mut opened) = (Vec::new(), Vec::new(), Vec::new());
        for open in opens {
            let (remote, arrivals) = real::remote();
            let over = Arc::<Mutex<Vec<u64>>>::default();
            let (tells, told) = pair();
            let (end, ended) = pair();
            homes.push(Thread {
                remote,
                over: over.clone(),
            });
            opened.push(told);
            ends.push(ended);
            drop(real::spawn_worker("plinth client", move || {
                OVER.set(over);
                serve(arrivals, open, tells, end)
            }));
        }
        let threads = Arc::new(Threads {
            homes,
            next: AtomicUsize::new(0),
            ends: Mutex::new(ends),
        });
        for told in opened {
            let ended = |error| OpenError::new(error, "the client's thread has ended");
            told.await.map_err(ended)??;
        }
        Ok(Arc::new(Home {
            number: ROOT,
            threads,
            _parent: None,
        }))
    }

    /// A database beside this one, which `open` makes of it on each thread.
    pub fn beside(
        self: &Arc<Self>,
        open: impl FnOnce(&LocalDatabase) -> LocalDatabase + Clone + Send + 'static,
    ) -> Arc<Home> {
        static NEXT: AtomicU64 = AtomicU64::new(ROOT + 1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let parent = self.number;
        self.on_each(move || {
            if let Some(parent) = database(parent) {
                with(|state| drop(state.databases.insert(number, open(&parent))));
            }
        });
        Arc::new(Home {
            number,
            threads: self.threads.clone(),
            _parent: Some(self.clone()),
        })
    }

    /// Does `act` on each thread.
    pub fn on_each(&self, act: impl FnOnce() + Clone + Send + 'static) {
        for home in &self.threads.homes {
            home.post(act.clone());
        }
    }

    /// The thread for the next transaction.
    pub fn next(&self) -> &Thread {
        let homes = &self.threads.homes;
        match &homes[..] {
            [only] => only,
            _ => &homes[self.threads.next.fetch_add(1, Ordering::Relaxed) % homes.len()],
        }
    }

    /// Asks the database on one of the threads.
    pub fn ask<T: Send + 'static, F: Future<Output = Result<T>> + 'static>(
        &self,
        start: impl FnOnce(LocalDatabase) -> F + Send + 'static,
    ) -> Answer<T> {
        let (promise, answer) = pair();
        let number = self.number;
        self.next().post(move || {
            if let Some(database) = database(number) {
                fill(promise, start(database));
            }
        });
        answer
    }

    /// Does `act` with the database on each of the threads, and waits for all.
    pub async fn ask_each(
        &self,
        act: impl FnOnce(LocalDatabase) -> Result<()> + Clone + Send + 'static,
    ) -> Result<()> {
        let number = self.number;
        let mut answers = Vec::new();
        for home in &self.threads.homes {
            let ((promise, answer), act) = (pair(), act.clone());
            answers.push(answer);
            home.post(move || {
                if let Some(database) = database(number) {
                    promise.fill_in_turn(act(database));
                }
            });
        }
        for answer in answers {
            answer.await?;
        }
        Ok(())
    }

    /// Ends the threads, whoever holds handles, and waits for their end.
    pub async fn close(&self) {
        self.threads.stop();
        let ends = std::mem::take(
            &mut *self
                .threads
                .ends
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for ended in ends {
            let _ = ended.await; // its end is an error: nobody filled it
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let number = self.number;
        if number != ROOT {
            // Its destructor may come back here.
            self.on_each(move || drop(with(|state| state.databases.remove(&number))));
        }
    }
}
