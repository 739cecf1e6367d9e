//! What clients do while things break, each with an oracle that knows what must come out of it.

mod atomic;
mod bank;
mod conflict;
mod cycle;
mod history;
mod ryw;
mod versionstamp;
mod watch;

use crate::cluster::{self, Shape};
use crate::scenario::Scenario;
use crate::{Failure, FailureKind, attrition, consistency};
use plinth_client::{Database, Transaction};
use plinth_core::{Error, Result};
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, Instant, Task, random, trace};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// After the healing the cluster must serve within this time.
const SERVE_LIMIT: Duration = Duration::from_secs(90);
/// The checks of one workload must be done within this time.
const CHECK_LIMIT: Duration = Duration::from_secs(300);

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// What an oracle says: what promise was broken.
type Verdict = std::result::Result<(), String>;

/// Clients and their oracle. `work` may be run by several tasks at once.
trait Workload {
    fn name(&self) -> &'static str;
    fn setup(&self, database: Database) -> Boxed<'_, ()>;
    /// Works until `end`.
    fn work(&self, database: Database, client: u64, end: Instant) -> Boxed<'_, ()>;
    fn check(&self, database: Database) -> Boxed<'_, Verdict>;
    fn clients(&self) -> u64 {
        2
    }
}

/// Broken promises that a workload saw while it worked.
#[derive(Clone, Default)]
struct Complaints(Rc<RefCell<Vec<String>>>);

impl Complaints {
    fn add(&self, text: String) {
        trace!("BrokenPromise", "text" => text);
        self.0.borrow_mut().push(text);
    }
    fn verdict(&self) -> Verdict {
        self.0
            .borrow()
            .first()
            .map_or(Ok(()), |text| Err(text.clone()))
    }
}

/// A pause between transactions: the simulator is to be fast, and load is not what it tests.
async fn think() {
    plinth_runtime::sleep(Duration::from_millis(random::range(50..800))).await;
}

/// Retries `body` for ever, as an application would.
async fn until_done<T>(database: &Database, body: impl AsyncFnMut(Transaction) -> Result<T>) -> T {
    database
        .run(body)
        .await
        .expect("the retry loop ends with success only, unless the program is wrong")
}

fn number(value: &[u8]) -> i64 {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(i64::MIN)
}

fn all() -> Vec<Rc<dyn Workload>> {
    vec![
        Rc::new(cycle::Cycle::new()),
        Rc::new(bank::Bank::new()),
        Rc::new(history::History::new()),
        Rc::new(atomic::Atomic::new()),
        Rc::new(versionstamp::Versionstamps::new()),
        Rc::new(watch::Watches::new()),
        Rc::new(ryw::ReadYourWrites::new()),
        Rc::new(conflict::ConflictRanges::new()),
    ]
}

/// The whole run: create, break and work, heal, demand service, check.
pub async fn drive(shape: Shape, scenario: Scenario) -> std::result::Result<(), Failure> {
    trace!("Shape", "shape" => format!("{shape:?}"));
    let database = cluster::open(&shape).await;
    let mut chosen = all();
    random::shuffle(&mut chosen);
    chosen.truncate(random::range(3..7) as usize);
    for workload in &chosen {
        workload.setup(database.clone()).await;
    }
    safety_phase(&shape, scenario, &database, &chosen).await;
    liveness_phase(&database).await?;
    for workload in &chosen {
        let verdict = plinth_runtime::timeout(CHECK_LIMIT, workload.check(database.clone())).await;
        let hangs = || {
            failure(
                FailureKind::Liveness,
                format!("{}: its check hangs", workload.name()),
            )
        };
        verdict.ok_or_else(hangs)?.map_err(|broken| {
            failure(
                FailureKind::Correctness,
                format!("{}: {broken}", workload.name()),
            )
        })?;
    }
    consistency::check(&database, &shape)
        .await
        .map_err(|broken| failure(FailureKind::Correctness, broken))
}

fn failure(kind: FailureKind, message: String) -> Failure {
    Failure { kind, message }
}

async fn safety_phase(
    shape: &Shape,
    scenario: Scenario,
    database: &Database,
    chosen: &[Rc<dyn Workload>],
) {
    let end = plinth_runtime::now() + Duration::from_secs(scenario.fault_seconds);
    let mut tasks = Vec::new();
    for workload in chosen {
        for client in 0..workload.clients() {
            let (workload, database) = (workload.clone(), database.clone());
            trace!("Workload", "name" => workload.name(), "client" => client);
            let work = async move { workload.work(database, client, end).await };
            tasks.push(plinth_runtime::spawn("client", work));
        }
    }
    attrition::run(shape.clone(), scenario).await;
    plinth_runtime::sleep_until(end).await;
    // Clients that are in the middle of something go on until the cluster serves them.
    heal();
    while !tasks.iter().all(Task::is_finished) {
        plinth_runtime::sleep(Duration::from_millis(500)).await;
        if plinth_runtime::now().saturating_since(end) > SERVE_LIMIT {
            return; // the liveness phase will say what is wrong
        }
    }
}

fn heal() {
    trace!("Healing");
    control().heal_all();
    control().set_buggify(false);
}

async fn liveness_phase(database: &Database) -> std::result::Result<(), Failure> {
    let serving = until_done(database, async |tr| {
        tr.set(b"alive", b"yes");
        Ok(())
    });
    match plinth_runtime::timeout(SERVE_LIMIT, serving).await {
        Some(()) => Ok(()),
        None => {
            let message = format!(
                "healed, but no commit within {} simulated seconds",
                SERVE_LIMIT.as_secs()
            );
            Err(failure(FailureKind::Liveness, message))
        }
    }
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
