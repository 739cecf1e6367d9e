//! The stack machine for the Rust client, after the public specification of the binding tester.

mod directories;
mod operations;

use crate::program::{bytes, error, pack};
use bytes::Bytes;
use directories::Directories;
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::key::prefix_end;
use plinth_core::tuple::{self, Element};
use plinth_core::{KeyRange, KeySelector, Result};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const LOGGED_BYTES_MAX: usize = 40_000;
const ROWS_A_LOG: usize = 100;

/// An entry of the stack.
enum Item {
    Value(Element),
    /// A result that is awaited when it is popped.
    Future(Pin<Box<dyn Future<Output = Result<Element>>>>),
}

/// State that all machines of a process share.
#[derive(Clone)]
struct Shared {
    database: Database,
    transactions: Rc<RefCell<BTreeMap<Bytes, Transaction>>>,
}

struct Machine {
    shared: Shared,
    stack: Vec<(Item, i64)>,
    /// Number of the current instruction.
    at: i64,
    transaction: Bytes,
    last_version: i64,
    directories: Directories,
    threads: Vec<plinth_runtime::Task<std::result::Result<(), String>>>,
}

/// Target of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Transaction,
    Snapshot,
    Database,
}

type Outcome<T> = std::result::Result<T, Failure>;

/// Reason why an instruction ends early.
enum Failure {
    /// An error of the API, which is a result like others.
    Api(plinth_core::Error),
    /// The program is invalid.
    Program(String),
}

impl From<plinth_core::Error> for Failure {
    fn from(error: plinth_core::Error) -> Self {
        Failure::Api(error)
    }
}

fn senseless<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Failure::Program(what.into()))
}

/// Executes the program at `prefix`, and the programs that it starts.
pub async fn run(database: Database, prefix: &[u8]) -> std::result::Result<(), String> {
    let shared = Shared {
        database,
        transactions: Rc::default(),
    };
    run_machine(shared, Bytes::copy_from_slice(prefix)).await
}

fn run_machine(
    shared: Shared,
    prefix: Bytes,
) -> Pin<Box<dyn Future<Output = std::result::Result<(), String>>>> {
    Box::pin(async move {
        let range = tuple::range(&[Element::Bytes(prefix.clone())]).map_err(|e| e.to_string())?;
        let read = shared.database.run(async |transaction| {
            transaction
                .get_rows(range.clone(), RangeOptions::default(), false)
                .await
        });
        let instructions = read.await.map_err(|error| error.to_string())?;
        let mut machine = Machine {
            shared,
            stack: Vec::new(),
            at: 0,
            transaction: prefix,
            last_version: 0,
            directories: Directories::default(),
            threads: Vec::new(),
        };
        for (at, (_, packed)) in instructions.into_iter().enumerate() {
            machine.at = at as i64;
            let instruction = tuple::unpack(&packed).map_err(|error| error.to_string())?;
            let told = format!("instruction {at}, {instruction:?}");
            machine
                .step(instruction)
                .await
                .map_err(|why| format!("{told}: {why}"))?;
        }
        for thread in machine.threads {
            thread.await?;
        }
        Ok(())
    })
}

impl Machine {
    async fn step(&mut self, instruction: Vec<Element>) -> std::result::Result<(), String> {
        let mut instruction = instruction.into_iter();
        let Some(Element::Text(name)) = instruction.next() else {
            return Err("it has no name".into());
        };
        let (name, on) = if let Some(name) = name.strip_suffix("_SNAPSHOT") {
            (name, On::Snapshot)
        } else if let Some(name) = name.strip_suffix("_DATABASE") {
            (name, On::Database)
        } else {
            (&name[..], On::Transaction)
        };
        let done = match name.strip_prefix("DIRECTORY_") {
            Some(name) => self.directory_operation(name, on).await,
            None => self.operation(name, on, instruction.next()).await,
        };
        match done {
            Ok(()) => Ok(()),
            Err(Failure::Api(code)) => {
                self.push(error(code.code()));
                Ok(())
            }
            Err(Failure::Program(why)) => Err(why),
        }
    }

    fn push(&mut self, item: Element) {
        self.stack.push((Item::Value(item), self.at));
    }

    fn push_text(&mut self, text: &str) {
        self.push(bytes(text));
    }

    /// Pops the top of the stack, with the number of the instruction that pushed it. The error of a failed future is
    /// its value.
    async fn pop_with_place(&mut self) -> Outcome<(Element, i64)> {
        let Some((item, at)) = self.stack.pop() else {
            return senseless("the stack is empty");
        };
        let value = match item {
            Item::Value(value) => value,
            Item::Future(future) => future.await.unwrap_or_else(|failed| error(failed.code())),
        };
        Ok((value, at))
    }

    async fn pop(&mut self) -> Outcome<Element> {
        Ok(self.pop_with_place().await?.0)
    }

    async fn pop_bytes(&mut self) -> Outcome<Bytes> {
        match self.pop().await? {
            Element::Bytes(bytes) => Ok(bytes),
            other => senseless(format!("{other:?} where bytes should be")),
        }
    }

    async fn pop_int(&mut self) -> Outcome<i64> {
        let item = self.pop().await?;
        match item.as_i64() {
            Some(number) => Ok(number),
            None => senseless(format!("{item:?} where a number should be")),
        }
    }

    async fn pop_bool(&mut self) -> Outcome<bool> {
        Ok(self.pop_int().await? != 0)
    }

    async fn pop_many(&mut self) -> Outcome<Vec<Element>> {
        let count = self.pop_int().await?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.pop().await?);
        }
        Ok(items)
    }

    async fn pop_selector(&mut self) -> Outcome<KeySelector> {
        let key = self.pop_bytes().await?;
        let or_equal = self.pop_bool().await?;
        let offset = self.pop_int().await? as i32;
        Ok(KeySelector::new(key, or_equal, offset))
    }

    async fn pop_prefix_range(&mut self) -> Outcome<KeyRange> {
        let prefix = self.pop_bytes().await?;
        match prefix_end(&prefix) {
            Some(end) => Ok(KeyRange::new(prefix, end)),
            None => senseless("a prefix without an end"),
        }
    }

    fn current(&mut self) -> Transaction {
        let mut transactions = self.shared.transactions.borrow_mut();
        let database = &self.shared.database;
        let entry = transactions.entry(self.transaction.clone());
        entry
            .or_insert_with(|| database.create_transaction())
            .clone()
    }

    /// Executes `body` on the target; on the database with retries.
    async fn with<T>(
        &mut self,
        on: On,
        body: impl AsyncFn(&Transaction) -> Result<T>,
    ) -> Outcome<T> {
        Ok(match on {
            On::Database => {
                let database = self.shared.database.clone();
                database
                    .run(async |transaction| body(&transaction).await)
                    .await?
            }
            _ => body(&self.current()).await?,
        })
    }

    /// As [`Machine::with`], for operations that only write.
    async fn mutate(&mut self, on: On, body: impl Fn(&Transaction)) -> Outcome<()> {
        let done = async |transaction: &Transaction| {
            body(transaction);
            Ok(())
        };
        self.with(on, done).await?;
        if on == On::Database {
            self.push_text("RESULT_NOT_PRESENT");
        }
        Ok(())
    }

    async fn log_stack(&mut self) -> Outcome<()> {
        let prefix = self.pop_bytes().await?;
        let mut rows = Vec::new();
        while !self.stack.is_empty() {
            let index = self.stack.len() as i64 - 1;
            let (item, at) = self.pop_with_place().await?;
            let place = pack(&[Element::Int(index), Element::Int(at)]);
            let value = pack(&[item]);
            let value = value.slice(..value.len().min(LOGGED_BYTES_MAX));
            rows.push(([&prefix[..], &place].concat(), value));
        }
        for rows in rows.chunks(ROWS_A_LOG) {
            let write = async |transaction: &Transaction| {
                rows.iter()
                    .for_each(|(key, value)| transaction.set(key, value));
                Ok(())
            };
            self.with(On::Database, write).await?;
        }
        Ok(())
    }

    fn start_thread(&mut self, prefix: Bytes) {
        let machine = run_machine(self.shared.clone(), prefix);
        self.threads
            .push(plinth_runtime::spawn("stack machine", machine));
    }
}
