//! What lives on a loop: databases, transactions, and the work that fills futures. Everything here runs on that loop's thread;
//! handles name what they mean by number.

use crate::future::{Payload, Promise};
use bytes::Bytes;
use plinth_client::{Database, DatabaseOption, Transaction};
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::Result;
use plinth_core::hash::HashMap;
use plinth_runtime::Task;
use std::cell::RefCell;
use std::path::Path;

#[derive(Default)]
struct State {
    databases: HashMap<u64, Database>,
    /// Each writes the cluster file of a database anew when its coordinators move.
    cluster_files: HashMap<u64, Task<()>>,
    transactions: HashMap<u64, Transaction>,
    /// One for each future whose work is under way: dropped, it ends that.
    working: HashMap<u64, Task<()>>,
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
        let transaction = database.create_transaction();
        with(|state| drop(state.transactions.insert(id, transaction)));
    }
}

pub fn destroy_transaction(id: u64) {
    drop(with(|state| state.transactions.remove(&id)));
}

/// Shows the transaction, if it is there: it is unless its database was gone when it was made.
pub fn on_transaction(id: u64, act: impl FnOnce(&Transaction)) {
    if let Some(transaction) = with(|state| state.transactions.get(&id).cloned()) {
        act(&transaction);
    }
}

pub fn cancel(future: u64) {
    drop(with(|state| state.working.remove(&future)));
}

/// Lets `work` fill the future, unless it is cancelled first: then the promise is dropped, which fills it too.
pub fn fill<T: 'static>(
    promise: Promise,
    work: impl std::future::Future<Output = Result<T>> + 'static,
    payload: impl FnOnce(T) -> Payload + 'static,
) {
    let id = promise.0.id;
    let task = plinth_runtime::spawn("future", async move {
        let result = work.await.map(payload);
        if let Some(own) = with(|state| state.working.remove(&id)) {
            own.detach();
        }
        promise.0.set(result);
    });
    with(|state| state.working.insert(id, task));
}
