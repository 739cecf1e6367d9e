//! What clients do in the simulator while faults strike: workloads, each with the oracle that checks its result; and
//! applications, which bring processes of their own.
//!
//! A layer on top of the store depends on this crate, not on the simulator. The simulator (`plinth-sim`) runs
//! everything that is registered here. Most workloads also run against real processes.
//!
//! Promises: a workload reaches the outside world through `runtime` only, so that one seed gives one run; its `check`
//! says which promise of the product was broken, and nothing else fails a run.

mod application;
mod space;

pub use application::{APPLICATIONS, Application, Kind, Place, Site, applications};
pub use space::Space;

use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::{Error, Key, Result, Value};
use plinth_runtime::{Duration, Instant, random, trace_warn};
use std::cell::RefCell;
use std::rc::Rc;

/// What the registration of an application needs from this crate's dependencies; not for direct use.
#[doc(hidden)]
pub use linkme;

pub use plinth_runtime::Boxed;
/// Verdict of an oracle; the error names the broken promise.
pub type Verdict = std::result::Result<(), String>;

/// Clients and their oracle. Several tasks run `work` at the same time, each with its number.
pub trait Workload {
    fn name(&self) -> &'static str;
    /// Writes what the clients need before the first of them begins.
    fn setup(&self, _database: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }
    /// Works until the end of the day.
    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()>;
    fn check(&self, database: Database) -> Boxed<'_, Verdict>;
    fn clients(&self) -> u64 {
        2
    }
    /// It does what operators do. Others are clients, where there are keys.
    fn is_operators(&self) -> bool {
        false
    }
    /// Its clients show tokens. Where they must, all other workloads are operators.
    fn shows_tokens(&self) -> bool {
        false
    }
}

/// End of the clients' work, and the pauses between their transactions.
#[derive(Clone, Copy)]
pub struct Day {
    pub end: Instant,
    pub think_ms: (u64, u64),
}

impl Day {
    pub fn is_over(&self) -> bool {
        plinth_runtime::now() >= self.end
    }
    /// Takes steps until it is over, with a pause behind each.
    pub async fn fill(self, mut step: impl AsyncFnMut()) {
        while !self.is_over() {
            step().await;
            self.think().await;
        }
    }
    /// Pauses between two transactions: the simulator should be fast, and does not test load.
    pub async fn think(&self) {
        let (low, high) = self.think_ms;
        plinth_runtime::sleep(Duration::from_millis(random::range(low..high + 1))).await;
    }
}

/// Broken promises that a workload has seen during its work.
#[derive(Clone, Default)]
pub struct Complaints(Rc<RefCell<Vec<String>>>);

impl Complaints {
    pub fn add(&self, text: String) {
        trace_warn!("BrokenPromise", "text" => text);
        self.0.borrow_mut().push(text);
    }
    pub fn verdict(&self) -> Verdict {
        let complaints = self.0.borrow();
        complaints.first().map_or(Ok(()), |text| Err(text.clone()))
    }
}

/// Retries `body` without a limit, as an application would.
pub async fn until_done<T>(
    database: &Database,
    body: impl AsyncFnMut(Transaction) -> Result<T>,
) -> T {
    match database.run(body).await {
        Ok(output) => output,
        Err(error) => panic!("a client met an error that is not its own fault: {error}"),
    }
}

/// Reads every row of a space in one transaction.
pub async fn read_rows(database: &Database, space: Space) -> Vec<(Key, Value)> {
    until_done(database, async |tr| {
        tr.get_rows(space.range(), RangeOptions::default(), false)
            .await
    })
    .await
}

/// The values of several keys, each with whether it is a snapshot read, by reads that begin together.
pub async fn get_together(tr: &Transaction, reads: Vec<(Key, bool)>) -> Vec<Result<Option<Value>>> {
    let results = Rc::new(RefCell::new(vec![None; reads.len()]));
    let kept = results.clone();
    let numbered = reads.into_iter().enumerate();
    let numbered = numbered.map(|(number, (key, snapshot))| (number, key, snapshot));
    let reading = tr.get_together(numbered, move |come| {
        let mut kept = kept.borrow_mut();
        for (number, result) in come.drain(..) {
            let before = kept[number].replace(result);
            assert_eq!(before, None, "a read ended twice");
        }
    });
    let end = reading.await;
    let results = results.take().into_iter();
    let lost = || Err(end.expect_err("every read has ended"));
    results.map(|result| result.unwrap_or_else(lost)).collect()
}

/// The number that a value holds as text; `i64::MIN` if it holds none.
pub fn number(value: &[u8]) -> i64 {
    let parsed = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.unwrap_or(i64::MIN)
}

/// Result of a single attempt, as known to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Committed,
    Unknown,
    /// Certainly not committed.
    Failed,
}

pub fn ending(result: Result<()>) -> Ending {
    match result {
        Ok(()) => Ending::Committed,
        Err(error) if error.is_maybe_committed() => Ending::Unknown,
        Err(Error::request_maybe_delivered | Error::broken_promise) => Ending::Unknown,
        Err(_) => Ending::Failed,
    }
}
