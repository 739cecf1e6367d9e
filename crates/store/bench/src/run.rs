//! Clients that repeat a workload's transaction, and the counters they keep.
//!
//! All clients of a thread share one event loop and one database. Measuring begins after the warm-up and ends at the
//! same moment for all clients. A transaction counts if it ends in the measured interval.

use crate::table::{Table, Values};
use crate::target::{Target, Transaction};
use crate::workload::{Done, Workload};
use hdrhistogram::Histogram;
use plinth_core::{Error, Result};
use plinth_measure::latency::{histogram, quantile_ms, quantiles, record, round, small_histogram};
use plinth_measure::server_cpu::{self, Usage};
use plinth_runtime::real::spawn_worker;
use plinth_runtime::{Duration, Either, Instant, TaskGroup, now, sleep, sleep_until};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Rows per transaction of the bulk load.
const BULK_ROWS: u64 = 1000;
/// With a rate, transactions begin at this interval; all that are due by then begin together.
const BEGIN_INTERVAL: Duration = Duration::from_millis(1);
/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workload: Workload,
    /// Number of transactions under way at once; with a rate, the limit of that number.
    pub clients: usize,
    /// Transactions begun per second, whether or not earlier ones have ended. Without a rate, each client begins a
    /// transaction when its last one has ended.
    pub rate: Option<f64>,
    pub threads: usize,
    pub warmup: Duration,
    pub duration: Duration,
    /// Number of rows of the table.
    pub rows: u64,
    /// Server processes whose CPU time and memory are measured.
    pub server_pids: Vec<u32>,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    pub plan: Plan,
    pub duration_s: f64,
    pub counted: Counted,
    pub server: Option<Usage>,
}

/// Results of one second.
#[derive(Clone, Debug)]
pub struct Second {
    pub transactions: u64,
    pub latency: Histogram<u64>,
}

impl Second {
    fn new() -> Self {
        Second {
            transactions: 0,
            latency: small_histogram(),
        }
    }
}

/// Counters of the clients of one thread, or of all.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Start of the measured interval; nothing is counted before it.
    from: Option<Instant>,
    pub transactions: u64,
    pub operations: u64,
    pub conflicts: u64,
    /// Attempts that failed for another reason than a conflict and were retried.
    pub retries: u64,
    /// Transactions that failed with an error that is not retried.
    pub errors: u64,
    pub first_error: Option<Error>,
    /// Transactions that were due by the rate but did not begin, because too many were under way.
    pub turned_away: u64,
    pub latency: Histogram<u64>,
    pub read_version: Histogram<u64>,
    pub reads: Histogram<u64>,
    pub commits: Histogram<u64>,
    /// One entry per second.
    pub timeline: Vec<Second>,
}

impl Counted {
    fn new() -> Self {
        Counted {
            from: None,
            transactions: 0,
            operations: 0,
            conflicts: 0,
            retries: 0,
            errors: 0,
            first_error: None,
            turned_away: 0,
            latency: histogram(),
            read_version: histogram(),
            reads: histogram(),
            commits: histogram(),
            timeline: Vec::new(),
        }
    }

    fn second(&mut self, at: usize) -> &mut Second {
        while self.timeline.len() <= at {
            self.timeline.push(Second::new());
        }
        &mut self.timeline[at]
    }

    /// Counts a transaction that ended now, `latency` after it began.
    fn ended(&mut self, result: Result<Done>, latency: Duration) {
        let now = now();
        let Some(from) = self.from.filter(|from| now >= *from) else {
            return;
        };
        match result {
            Ok(done) => {
                self.transactions += 1;
                self.operations += done.operations;
                record(&mut self.latency, latency);
                let second = self.second((now - from).as_secs() as usize);
                second.transactions += 1;
                record(&mut second.latency, latency);
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert(error);
            }
        }
    }

    fn add(&mut self, other: &Counted) {
        self.transactions += other.transactions;
        self.operations += other.operations;
        self.conflicts += other.conflicts;
        self.retries += other.retries;
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.turned_away += other.turned_away;
        for (at, its) in other.timeline.iter().enumerate() {
            let second = self.second(at);
            second.transactions += its.transactions;
            second.latency.add(&its.latency).expect("the same bounds");
        }
        for (mine, its) in [
            (&mut self.latency, &other.latency),
            (&mut self.read_version, &other.read_version),
            (&mut self.reads, &other.reads),
            (&mut self.commits, &other.commits),
        ] {
            mine.add(its).expect("the same bounds");
        }
    }
}

/// State that the clients of one thread share.
struct Clients<T> {
    plan: Plan,
    database: T,
    table: Table,
    values: Values,
    counted: RefCell<Counted>,
    /// Rows of this thread's part of the bulk load that are not loaded yet.
    bulk: RefCell<std::ops::Range<u64>>,
}

impl<T: Target> Clients<T> {
    fn new(plan: &Plan, database: T, bulk: std::ops::Range<u64>) -> Rc<Self> {
        Rc::new(Clients {
            plan: plan.clone(),
            database,
            table: Table::new(plan.rows),
            values: Values::default(),
            counted: RefCell::new(Counted::new()),
            bulk: RefCell::new(bulk),
        })
    }

    fn take_bulk(&self) -> std::ops::Range<u64> {
        let mut left = self.bulk.borrow_mut();
        let end = (left.start + BULK_ROWS).min(left.end);
        let taken = left.start..end;
        left.start = end;
        taken
    }

    /// Repeats the transaction until it is dropped; a bulk load ends when every row is taken.
    async fn work(self: Rc<Self>) {
        loop {
            let bulk = if self.plan.workload.is_bulk_load() {
                let bulk = self.take_bulk();
                if bulk.is_empty() {
                    return;
                }
                bulk
            } else {
                0..0
            };
            let start = now();
            let result = self.until_committed(bulk).await;
            let latency = start.elapsed();
            // Without this, a database that always answers at once (one in memory) would keep the event loop for
            // this client.
            plinth_runtime::yield_now().await;
            self.counted.borrow_mut().ended(result, latency);
        }
    }

    /// Begins `rate` transactions per second until it is dropped, with at most `most` under way.
    async fn begin_at(self: Rc<Self>, rate: f64, most: usize) {
        let (group, under_way) = (TaskGroup::new(), Rc::new(Cell::new(0)));
        let (start, mut begun) = (now(), 0u64);
        loop {
            sleep(BEGIN_INTERVAL).await;
            let due = (start.elapsed().as_secs_f64() * rate) as u64;
            for _ in begun..due {
                if under_way.get() >= most {
                    let mut counted = self.counted.borrow_mut();
                    counted.turned_away += u64::from(counted.from.is_some());
                    continue;
                }
                under_way.set(under_way.get() + 1);
                let (clients, under_way) = (self.clone(), under_way.clone());
                group.spawn("transaction", async move {
                    let start = now();
                    let result = clients.until_committed(0..0).await;
                    clients.counted.borrow_mut().ended(result, start.elapsed());
                    under_way.set(under_way.get() - 1);
                });
            }
            begun = due;
        }
    }

    async fn until_committed(&self, bulk: std::ops::Range<u64>) -> Result<Done> {
        let transaction = self.database.create_transaction()?;
        loop {
            match self.attempt(&transaction, bulk.clone()).await {
                Ok(done) => return Ok(done),
                Err(error) => {
                    if self.counted.borrow().from.is_some() {
                        let mut counted = self.counted.borrow_mut();
                        if error == Error::not_committed {
                            counted.conflicts += 1;
                        } else {
                            counted.retries += 1;
                        }
                    }
                    transaction.on_error(error).await?;
                }
            }
        }
    }

    async fn attempt(
        &self,
        transaction: &T::Transaction,
        bulk: std::ops::Range<u64>,
    ) -> Result<Done> {
        let done = self
            .plan
            .workload
            .perform(transaction, &self.table, &self.values, bulk)
            .await?;
        let start = now();
        transaction.commit().await?;
        let mut counted = self.counted.borrow_mut();
        if counted.from.is_some() {
            if let Some(latency) = done.read_version {
                record(&mut counted.read_version, latency);
            }
            if let Some(latency) = done.reads {
                record(&mut counted.reads, latency);
            }
            // A transaction that wrote nothing commits without a message, so its commit latency is not recorded.
            if transaction.committed_version() >= 0 {
                record(&mut counted.commits, start.elapsed());
            }
        }
        Ok(done)
    }
}

/// Runs one thread's share. Returns its counters, its duration in seconds and, if `samples`, the CPU time and memory
/// of the servers.
async fn share<T: Target>(
    plan: Plan,
    database: T,
    clients: usize,
    bulk: std::ops::Range<u64>,
    samples: bool,
) -> (Counted, f64, Option<Usage>) {
    let shared = Clients::new(&plan, database, bulk);
    let loading = plan.workload.is_bulk_load();
    let group = TaskGroup::new();
    let before = |shared: &Rc<Clients<T>>| {
        shared.counted.borrow_mut().from = Some(now());
        samples
            .then(|| server_cpu::usage(&plan.server_pids))
            .flatten()
    };
    let (start, used_before);
    if loading {
        start = now();
        used_before = before(&shared);
        let working = (0..clients).map(|_| plinth_runtime::spawn("client", shared.clone().work()));
        plinth_runtime::join_all(working.collect::<Vec<_>>()).await;
    } else {
        match plan.rate {
            Some(rate) => {
                let rate = rate * clients as f64 / plan.clients as f64;
                group.spawn("load", shared.clone().begin_at(rate, clients));
            }
            None => {
                for _ in 0..clients {
                    group.spawn("client", shared.clone().work());
                }
            }
        }
        sleep(plan.warmup).await;
        start = now();
        used_before = before(&shared);
        sleep_until(start + plan.duration).await;
    }
    let took_s = start.elapsed().as_secs_f64();
    let used = samples
        .then(|| server_cpu::usage(&plan.server_pids))
        .flatten()
        .zip(used_before)
        .map(|(after, before)| after.since(&before));
    group.cancel_all();
    let counted = std::mem::replace(&mut *shared.counted.borrow_mut(), Counted::new());
    (counted, took_s, used)
}

/// Runs the plan. `open` opens a database for each thread. The error is one line.
pub async fn run<T: Target>(
    plan: Plan,
    open: impl Fn() -> T + Clone + Send + 'static,
) -> std::result::Result<Measured, String> {
    let threads = plan.threads.clamp(1, plan.clients.max(1));
    if !plan.workload.is_bulk_load() {
        check_table(&open(), &plan).await?;
    }
    let bulk = |i: usize| {
        let at = |i: usize| (u128::from(plan.rows) * i as u128 / threads as u128) as u64;
        at(i)..at(i + 1)
    };
    let clients = |i: usize| (plan.clients * (i + 1) / threads) - (plan.clients * i / threads);
    let others: Vec<_> = (1..threads)
        .map(|i| {
            let (plan, open, clients, bulk) = (plan.clone(), open.clone(), clients(i), bulk(i));
            spawn_worker("load", move || async move {
                share(plan, open(), clients, bulk, false).await.0
            })
        })
        .collect();
    let (mut counted, duration_s, server) =
        share(plan.clone(), open(), clients(0), bulk(0), true).await;
    for other in others {
        // A worker that panics ends the whole process.
        counted.add(&other.join().map_err(|_| "a load thread ended early")?);
    }
    Ok(Measured {
        plan,
        duration_s,
        counted,
        server,
    })
}

/// Fails if the table is not in the database: a workload over an empty database would measure nothing useful.
async fn check_table(database: &impl Target, plan: &Plan) -> std::result::Result<(), String> {
    let table = Table::new(plan.rows);
    let looked_up = async {
        let transaction = database.create_transaction()?;
        for row in [0, plan.rows / 2, plan.rows - 1] {
            loop {
                match transaction.get(&table.key(row)).await {
                    Ok(Some(_)) => break,
                    Ok(None) => return Ok(false),
                    Err(error) => transaction.on_error(error).await?,
                }
            }
        }
        Result::Ok(true)
    };
    match plinth_runtime::race(looked_up, sleep(Duration::from_secs(30))).await {
        Either::Left(Ok(true)) => Ok(()),
        Either::Left(Ok(false)) => Err(format!(
            "the table of {} rows is not in the database; \
            load it with `plinth bench run --workload bulk-load --keep --rows {}'",
            plan.rows, plan.rows
        )),
        Either::Left(Err(error)) => Err(format!("cannot read the table: {error}")),
        Either::Right(()) => Err("the database does not answer within 30 s".into()),
    }
}

impl Measured {
    pub fn operations_per_second(&self) -> f64 {
        self.counted.operations as f64 / self.duration_s
    }

    pub fn transactions_per_second(&self) -> f64 {
        self.counted.transactions as f64 / self.duration_s
    }

    /// `None` if the servers' CPU time is not known.
    pub fn operations_per_server_cpu_s(&self) -> Option<f64> {
        let used = self.server.as_ref().filter(|used| used.cpu_s > 0.0)?;
        Some(self.counted.operations as f64 / used.cpu_s)
    }

    /// The object that `--json` prints.
    pub fn to_json(&self) -> Value {
        let phase = |h: &Histogram<u64>| {
            if h.is_empty() {
                Value::Null
            } else {
                quantiles(h)
            }
        };
        json!({
            "workload": self.plan.workload.name,
            "clients": self.plan.clients,
            "rate": self.plan.rate,
            "turned_away": self.counted.turned_away,
            "threads": self.plan.threads,
            "rows": self.plan.rows,
            "duration_s": round(self.duration_s, 3),
            "transactions": self.counted.transactions,
            "operations": self.counted.operations,
            "operations_per_second": round(self.operations_per_second(), 1),
            "transactions_per_second": round(self.transactions_per_second(), 1),
            "latency_ms": quantiles(&self.counted.latency),
            "read_version_ms": phase(&self.counted.read_version),
            "reads_ms": phase(&self.counted.reads),
            "commit_ms": phase(&self.counted.commits),
            "conflicts": self.counted.conflicts,
            "retries": self.counted.retries,
            "errors": self.counted.errors,
            "timeline": self.counted.timeline.iter().map(|second| json!({
                "transactions": second.transactions,
                "latency_p50_ms": round(quantile_ms(&second.latency, 0.50), 3),
                "latency_p99_ms": round(quantile_ms(&second.latency, 0.99), 3),
            })).collect::<Vec<_>>(),
            "first_error": self.counted.first_error.map(|error| error.to_string()),
            "server_processes": self.plan.server_pids.len(),
            "server_cpu_s": self.server.as_ref().map(|used| round(used.cpu_s, 2)),
            "server_memory_bytes": self.server.as_ref().map(|used| used.memory_bytes),
            "operations_per_server_cpu_s": self.operations_per_server_cpu_s().map(|n| round(n, 1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::testing::MemoryCluster;

    fn plan(name: &str, threads: usize) -> Plan {
        Plan {
            workload: Workload::parse(name).expect("known"),
            clients: 4,
            rate: None,
            threads,
            warmup: Duration::from_millis(10),
            duration: Duration::from_millis(100),
            rows: 5000,
            server_pids: vec![std::process::id()],
        }
    }

    #[test]
    fn a_bulk_load_writes_every_row_and_the_object_has_the_fields_that_are_promised() {
        plinth_runtime::real::block_on(async {
            let measured = run(plan("bulk-load", 2), || MemoryCluster::new().database())
                .await
                .expect("runs");
            assert_eq!(
                (measured.counted.operations, measured.counted.transactions),
                (5000, 6)
            );
            let object = measured.to_json();
            for field in [
                "workload",
                "clients",
                "duration_s",
                "operations_per_second",
                "transactions_per_second",
                "conflicts",
                "errors",
                "server_cpu_s",
            ] {
                assert!(!object[field].is_null(), "{field} in {object}");
            }
            for quantile in ["p50", "p90", "p99", "p99_9"] {
                assert!(
                    object["latency_ms"][quantile]
                        .as_f64()
                        .is_some_and(|ms| ms > 0.0)
                );
            }
        });
    }

    #[test]
    fn a_workload_without_its_table_says_how_to_load_it() {
        plinth_runtime::real::block_on(async {
            let error = run(plan("point-reads", 1), || MemoryCluster::new().database())
                .await
                .expect_err("nothing is loaded");
            assert!(error.contains("bulk-load --keep --rows 5000"), "{error}");
        });
    }

    #[test]
    fn a_rate_is_kept_and_what_is_too_much_is_turned_away() {
        plinth_runtime::real::block_on(async {
            let open = || {
                let table = Table::new(5000);
                let rows = (0..5000).map(|row| (table.key(row).to_vec(), vec![1u8; 8]));
                MemoryCluster::with_rows(rows).database()
            };
            let plan = Plan {
                rate: Some(500.0),
                duration: Duration::from_millis(1200),
                ..plan("random-50-50", 2)
            };
            let measured = run(plan, open).await.expect("runs");
            let offered = measured.counted.transactions + measured.counted.turned_away;
            assert!((300..=900).contains(&offered), "{offered}");
            assert!(measured.counted.timeline.len() >= 2);
            let counted: u64 = measured
                .counted
                .timeline
                .iter()
                .map(|s| s.transactions)
                .sum();
            assert_eq!(counted, measured.counted.transactions);
        });
    }

    #[test]
    fn clients_work_for_as_long_as_they_were_told() {
        plinth_runtime::real::block_on(async {
            let open = || {
                let table = Table::new(5000);
                let rows = (0..5000).map(|row| (table.key(row).to_vec(), vec![1u8; 8]));
                MemoryCluster::with_rows(rows).database()
            };
            let measured = run(plan("random-50-50", 1), open).await.expect("runs");
            assert!(measured.counted.transactions > 0);
            assert_eq!(
                measured.counted.operations,
                measured.counted.transactions * 10
            );
            assert!(measured.duration_s >= 0.1 && measured.duration_s < 2.0);
        });
    }
}
