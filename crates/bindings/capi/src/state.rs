//! State of a loop: databases and transactions, and the order in which the futures of a transaction are set.
//! Everything here runs on that loop's thread; handles refer to objects by number.

use crate::future::Promise;
use crate::payload::Payload;
use bytes::Bytes;
use plinth_client::{Database, DatabaseOption, Transaction};
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::Result;
use plinth_core::hash::HashMap;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Instant, Task};
use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;

#[derive(Default)]
struct State {
    databases: HashMap<u64, Database>,
    /// Tasks that rewrite the cluster file of a database when its coordinators move.
    cluster_files: HashMap<u64, Task<()>>,
    transactions: HashMap<u64, Entry>,
}

struct Entry {
    transaction: Transaction,
    given: Rc<Given>,
}

/// The futures that a transaction has given since its last ending, that ending included. The work that fills one of
/// them holds this.
///
/// FoundationDB guarantees that the futures of reads are ready before that of the commit that waited for them. So the
/// future of a commit or a retry, which end a transaction's work, is set after all that were given before it, except
/// watches:
///
/// ```text
///   get(a)  get(b)  commit            get(c)  on_error
///   └──── before ─────┘ └──────── before ──────┘
/// ```
#[derive(Default)]
struct Given {
    /// Notified once, when the last of them is set.
    all_set: Notify,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.all_set.notify_one();
    }
}

/// When a future is set, relative to the others of its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    BeforeTheEnd,
    Ending,
    /// It outlives the transaction.
    Apart,
}

/// A future's place in that order.
struct Place {
    /// Notified when it may be set.
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

/// Drops all databases and transactions when the loop ends.
pub fn clear() {
    // Destructors may access the state again.
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

/// Makes the transaction that was asked for at `at`.
pub fn create_transaction(database: u64, id: u64, at: Instant) {
    let database = with(|state| state.databases.get(&database).cloned());
    if let Some(database) = database {
        let entry = Entry {
            transaction: database.create_transaction_at(at),
            given: Rc::default(),
        };
        with(|state| drop(state.transactions.insert(id, entry)));
    }
}

pub fn destroy_transaction(id: u64) {
    drop(with(|state| state.transactions.remove(&id)));
}

/// Passes the transaction to `act` if it exists: it does unless its database was gone when it was made.
pub fn on_transaction(id: u64, act: impl FnOnce(&Transaction)) {
    let found = with(|state| {
        let entry = state.transactions.get(&id)?;
        Some(entry.transaction.clone())
    });
    if let Some(transaction) = found {
        act(&transaction);
    }
}

/// Fills the future with the result of `start` for the transaction when its turn has come. Without such a transaction
/// the promise is dropped, which fills it too.
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
    let Some((transaction, Place { after, before })) = found else {
        return;
    };
    let asked = start(&transaction);
    let in_turn = async move {
        let result = asked.await.map(payload);
        if let Some(after) = after {
            after.notified().await;
        }
        result
    };
    promise.fill(in_turn, before);
}
