//! The application that is measured: a table, whose rows have a value of 100 bytes.

use bytes::Bytes;
use plinth_core::EngineKind;
use plinth_delos::engines::guard::Guard;
use plinth_delos::entry::Entry;
use plinth_delos::log::SharedLog;
use plinth_delos::replica::serves::ServiceLog;
use plinth_delos::stack::{Answer, Engine};
use plinth_delos::stacks::Standard;
use plinth_delos::store::LocalStore;
use plinth_table::application::Tables;
use plinth_table::language::{Statement, parse};
use plinth_table::request::{Operation, Request, Transaction};
use plinth_table::value::Value;
use std::path::Path;
use std::rc::Rc;

pub type Stack = Standard<ServiceLog, Tables>;

const TABLE: &str = "rows";
const VALUE_BYTES: usize = 100;
/// Rows that are written, again and again.
pub const ROWS: u64 = 10_000;
const CACHE_BYTES: usize = 64 << 20;

/// Makes the table.
pub fn creation() -> Bytes {
    let text = format!("create table {TABLE} (id int, value text, primary key (id))");
    match parse(&text).map(|mut all| all.pop()) {
        Ok(Some(Statement::Alter(asked))) => {
            let understood = Request::understand(*asked);
            understood.expect("it is a sound request").payload()
        }
        _ => unreachable!("it is one statement, which makes a table"),
    }
}

/// Writes a row.
pub fn write(id: u64) -> Bytes {
    let value = format!("{id:0>VALUE_BYTES$}");
    let row = vec![
        ("id".to_owned(), Value::Int((id % ROWS) as i64)),
        ("value".to_owned(), Value::Text(value)),
    ];
    let table = TABLE.to_owned();
    let operations = vec![Operation::Upsert { table, row }];
    let conditions = Vec::new();
    Request::Transaction(Transaction {
        conditions,
        operations,
    })
    .payload()
}

/// A local store in a file of this directory.
///
/// # Errors
/// One line.
pub async fn store(directory: &Path, name: &str) -> Result<Rc<LocalStore>, String> {
    let path = directory.join(name);
    let engine = plinth_engine::open(EngineKind::Ssd, &path, true, CACHE_BYTES).await;
    let opened = engine.and_then(LocalStore::open);
    opened.map_err(|error| format!("{}: {error}", path.display()))
}

/// Proposes, and sees that it is done.
///
/// # Errors
/// One line.
pub async fn propose<L: SharedLog + 'static>(
    stack: &Standard<L, Tables>,
    payload: Bytes,
) -> Result<(), String> {
    match stack.propose(Entry::new(payload)).await {
        Ok(Answer::Done(_)) => Ok(()),
        Ok(Answer::Refused(refused)) => Err(format!("a write was refused: {refused}")),
        Ok(Answer::Own(_) | Answer::Filtered) => Err("a write was kept back".into()),
        Err(lost) => Err(format!("a write was lost: {lost}")),
    }
}

/// # Errors
/// One line.
pub async fn switch<L: SharedLog + 'static>(
    stack: &Standard<L, Tables>,
    engine: Guard,
    on: bool,
) -> Result<(), String> {
    let failed = |why: String| format!("engine {} cannot be switched: {why}", engine.name);
    match stack.switch(engine, on).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(why)) => Err(failed(why)),
        Err(lost) => Err(failed(lost.to_string())),
    }
}
