//! What clients do while things break, each with an oracle that knows what must come out of it.

mod atomic;
mod bank;
mod bulk;
mod conflict;
mod cycle;
mod history;
mod idempotent;
mod limits;
mod moves;
mod operator;
mod ryw;
mod scattered;
mod shards;
mod space;
mod versionstamp;
mod watch;

use crate::cluster::Shape;
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::{Error, Key, KeySelector, Result, Value};
use plinth_runtime::{Duration, Instant, random, trace_warn};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

pub use operator::exchange_coordinators;
pub use space::Space;

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// What an oracle says: which promise was broken.
pub type Verdict = std::result::Result<(), String>;

/// Clients and their oracle. `work` is run by several tasks at once, each with its number.
pub trait Workload {
    fn name(&self) -> &'static str;
    fn setup(&self, database: Database) -> Boxed<'_, ()>;
    /// Works until the day is over.
    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()>;
    fn check(&self, database: Database) -> Boxed<'_, Verdict>;
    fn clients(&self) -> u64 {
        2
    }
}

/// How long clients work, and how hard.
#[derive(Clone, Copy)]
pub struct Day {
    pub end: Instant,
    pub think_ms: (u64, u64),
}

impl Day {
    fn is_over(&self) -> bool {
        plinth_runtime::now() >= self.end
    }
    /// A pause between transactions: the simulator is to be fast, and load is not what it tests.
    async fn think(&self) {
        let (low, high) = self.think_ms;
        plinth_runtime::sleep(Duration::from_millis(random::range(low..high + 1))).await;
    }
}

/// Broken promises that a workload saw while it worked.
#[derive(Clone, Default)]
struct Complaints(Rc<RefCell<Vec<String>>>);

impl Complaints {
    fn add(&self, text: String) {
        trace_warn!("BrokenPromise", "text" => text);
        self.0.borrow_mut().push(text);
    }
    fn verdict(&self) -> Verdict {
        let complaints = self.0.borrow();
        complaints.first().map_or(Ok(()), |text| Err(text.clone()))
    }
}

/// Retries `body` for ever, as an application would.
pub async fn until_done<T>(
    database: &Database,
    body: impl AsyncFnMut(Transaction) -> Result<T>,
) -> T {
    match database.run(body).await {
        Ok(output) => output,
        Err(error) => panic!("a client met an error that is not its own fault: {error}"),
    }
}

/// Every row of a space in one transaction.
async fn read_rows(database: &Database, space: Space) -> Vec<(Key, Value)> {
    until_done(database, async |tr| {
        let begin = KeySelector::first_greater_or_equal(space.begin());
        let end = KeySelector::first_greater_or_equal(space.end());
        tr.get_range_all(begin, end, RangeOptions::default(), false)
            .await
    })
    .await
}

fn number(value: &[u8]) -> i64 {
    let parsed = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.unwrap_or(i64::MIN)
}

const KINDS: [fn(Space, &Shape) -> Rc<dyn Workload>; 13] = [
    |space, _| Rc::new(cycle::Cycle::new(space)),
    |space, _| Rc::new(bank::Bank::new(space)),
    |space, _| Rc::new(history::Histories::new(space)),
    |space, _| Rc::new(atomic::Atomic::new(space)),
    |space, _| Rc::new(versionstamp::Versionstamps::new(space)),
    |space, _| Rc::new(watch::Watches::new(space)),
    |space, _| Rc::new(ryw::ReadYourWrites::new(space)),
    |space, _| Rc::new(conflict::ConflictRanges::new(space)),
    |space, _| Rc::new(bulk::Bulk::new(space)),
    |space, _| Rc::new(shards::Shards::new(space)),
    |_, _| Rc::new(moves::Moves::new()),
    |_, shape| Rc::new(operator::Operator::new(shape)),
    |space, _| Rc::new(idempotent::Idempotent::new(space)),
];

/// Their names, in the order of the list above.
pub const NAMES: [&str; 13] = [
    "cycle",
    "bank",
    "serializability",
    "atomic",
    "versionstamp",
    "watch",
    "read_your_writes",
    "conflict_ranges",
    "bulk",
    "shards",
    "moves",
    "operator",
    "idempotent",
];

/// Some workloads, each with its part of the key space, and a part that is left.
pub fn draw(shape: &Shape, only: Option<&[String]>) -> (Vec<Rc<dyn Workload>>, Space) {
    let mut kinds: Vec<usize> = (0..KINDS.len()).collect();
    random::shuffle(&mut kinds);
    kinds.truncate(random::range(3..6) as usize);
    let parts = kinds.len() as u64 + 1;
    let mut order: Vec<u64> = (0..parts).collect();
    random::shuffle(&mut order);
    let spare = order.pop().expect("one more than workloads");
    let spaces = order.into_iter().map(|i| Space::whole().part(i, parts));
    let chosen = kinds
        .into_iter()
        .zip(spaces)
        .map(|(kind, space)| KINDS[kind](space, shape));
    let mut chosen: Vec<Rc<dyn Workload>> = chosen.collect();
    if let Some(only) = only {
        chosen.retain(|workload| only.iter().any(|name| name == workload.name()));
    }
    (chosen, Space::whole().part(spare, parts))
}

/// Transactions as large as they may be, and nothing else: a simulation holds few of them.
pub fn at_limits() -> (Vec<Rc<dyn Workload>>, Space) {
    let part = |i| Space::whole().part(i, 2);
    (vec![Rc::new(limits::Limits::new(part(0)))], part(1))
}

/// Single rows far from each other, and nothing else.
pub fn over_many_shards() -> (Vec<Rc<dyn Workload>>, Space) {
    let rows = Space::whole().part(0, 8).joined(Space::whole().part(6, 8));
    let scattered: Rc<dyn Workload> = Rc::new(scattered::Scattered::new(rows));
    (vec![scattered], Space::whole().part(7, 8))
}

/// What can be run against real processes, too: lower half of the key space.
pub fn for_real_clusters() -> Vec<Rc<dyn Workload>> {
    let part = |i| Space::whole().part(0, 2).part(i, 7);
    vec![
        Rc::new(cycle::Cycle::new(part(0))),
        Rc::new(bank::Bank::new(part(1))),
        Rc::new(history::Histories::new(part(2))),
        Rc::new(atomic::Atomic::new(part(3))),
        Rc::new(versionstamp::Versionstamps::new(part(4))),
        Rc::new(ryw::ReadYourWrites::new(part(5))),
        Rc::new(idempotent::Idempotent::new(part(6))),
    ]
}

/// How a single attempt ended, as far as the client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Committed,
    Unknown,
    /// Certainly not committed.
    Failed,
}

fn ending(result: Result<()>) -> Ending {
    match result {
        Ok(()) => Ending::Committed,
        Err(error) if error.is_maybe_committed() => Ending::Unknown,
        Err(Error::request_maybe_delivered | Error::broken_promise) => Ending::Unknown,
        Err(_) => Ending::Failed,
    }
}
