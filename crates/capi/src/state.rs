//! What lives on a loop: databases, transactions, and the work that fills futures. Everything here runs on that loop's thread;
//! handles name what they mean by number.

use crate::future::{Payload, Promise};
use bytes::Bytes;
use plinth_client::{Database, DatabaseOption, Transaction};
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::Result;
use plinth_core::hash::HashMap;
use plinth_runtime::Task;
use plinth_runtime::sync::Notify;
use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;

#[derive(Default)]
struct State {
    databases: HashMap<u64, Database>,
    /// Each writes the cluster file of a database anew when its coordinators move.
    cluster_files: HashMap<u64, Task<()>>,
    transactions: HashMap<u64, Entry>,
    /// One for each future whose work is under way: dropped, it ends that.
    working: HashMap<u64, Task<()>>,
}

struct Entry {
    transaction: Transaction,
    given: Rc<Given>,
}

/// The futures that a transaction has given since its last ending, that ending included: whoever fills one holds this.
///
/// FoundationDB promises that the futures of reads are ready before that of the commit that waited for them. So the future of
/// what ends a transaction's work, a commit or a retry, is set after all that were given before it, watches apart:
///
/// ```text
///   get(a)  get(b)  commit            get(c)  on_error
///   └──── before ─────┘ └──────── before ──────┘
/// ```
#[derive(Default)]
struct Given {
    /// Rings, once, when the last of them is set.
    all_set: Notify,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.all_set.notify_one();
    }
}

/// When a future is set, seen from the others of its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    BeforeTheEnd,
    Ending,
    /// It outlives the transaction.
    Apart,
}

/// A future's place in that order.
struct Place {
    /// Rings when it may be set.
    after: Option<Notify>,
    /// Held until it is set.
    before: Option<Rc<Given>>,
}

impl Entry {
    fn place(&mut self, order: Order) -> Place {
        let former = match order {
            Order::Ending => Some(std::mem::take(&mut self.given)),
            Order::BeforeTheEnd | Order::Apart => None,
        };
        Place {
            after: former.map(|given| given.all_set.clone()),
            before: (order != Order::Apart).then(|| self.given.clone()),
        }
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<T>(change: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| change(&mut state.borrow_mut()))
}

/// Forgets everything: the loop ends.
pub fn clear() {
    // Destructors may want the state again.
    drop(with(std::mem::take));
}

pub fn open_database(id: u64, file: ClusterFile, path: Option<&Path>) {
    let coordinators = Coordinators::from(file.clone());
    let database = plinth_client::connect(coordinators.clone());
    if let Some(path) = path {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        database.set_cluster_file_path(&path.to_string_lossy());
        let keeping = plinth_runtime::spawn("cluster file", async move {
            match coordinators.keep_file(&path, file).await {}
        });
        with(|state| drop(state.cluster_files.insert(id, keeping)));
    }
    with(|state| drop(state.databases.insert(id, database)));
}

pub fn set_database_option(id: u64, option: DatabaseOption) {
    if let Some(database) = with(|state| state.databases.get(&id).cloned()) {
        let _ = database.set_option(option); // it was checked when it came
    }
}

pub fn open_tenant(database: u64, id: u64, name: &Bytes) {
    if let Some(database) = with(|state| state.databases.get(&database).cloned()) {
        with(|state| drop(state.databases.insert(id, database.open_tenant(name))));
    }
}

pub fn close_database(id: u64) {
    drop(with(|state| {
        (state.databases.remove(&id), state.cluster_files.remove(&id))
    }));
}

pub fn create_transaction(database: u64, id: u64) {
    let database = with(|state| state.databases.get(&database).cloned());
    if let Some(database) = database {
        let entry = Entry {
            transaction: database.create_transaction(),
            given: Rc::default(),
        };
        with(|state| drop(state.transactions.insert(id, entry)));
    }
}

pub fn destroy_transaction(id: u64) {
    drop(with(|state| state.transactions.remove(&id)));
}

/// Shows the transaction, if it is there: it is unless its database was gone when it was made.
pub fn on_transaction(id: u64, act: impl FnOnce(&Transaction)) {
    let found = with(|state| {
        let entry = state.transactions.get(&id)?;
        Some(entry.transaction.clone())
    });
    if let Some(transaction) = found {
        act(&transaction);
    }
}

/// Lets the transaction fill the future with what `start` gives, unless it is cancelled first: then the promise is dropped,
/// which fills it too.
pub fn ask<T: 'static, F: Future<Output = Result<T>> + 'static>(
    transaction: u64,
    promise: Promise,
    order: Order,
    start: impl FnOnce(&Transaction) -> F,
    payload: impl FnOnce(T) -> Payload + 'static,
) {
    let found = with(|state| {
        let entry = state.transactions.get_mut(&transaction)?;
        Some((entry.transaction.clone(), entry.place(order)))
    });
    if let Some((transaction, place)) = found {
        fill(promise, place, start(&transaction), payload);
    }
}

pub fn cancel(future: u64) {
    drop(with(|state| state.working.remove(&future)));
}

fn fill<T: 'static>(
    promise: Promise,
    place: Place,
    work: impl Future<Output = Result<T>> + 'static,
    payload: impl FnOnce(T) -> Payload + 'static,
) {
    let id = promise.0.id;
    let task = plinth_runtime::spawn("future", async move {
        let result = work.await.map(payload);
        if let Some(after) = &place.after {
            after.notified().await;
        }
        if let Some(own) = with(|state| state.working.remove(&id)) {
            own.detach();
        }
        promise.0.set(result);
        drop(place.before);
    });
    with(|state| state.working.insert(id, task));
}
