//! Real processes are killed with signal 9 one after the other while checked transactions run: transfers that must
//! keep the sum, a cycle that must stay one, and receipts for all acknowledged transactions.
//!
//! `PLINTH_KILL_ROUNDS` sets how often each process is killed, `PLINTH_STOP_ROUNDS` how often it is stopped,
//! `PLINTH_KILL_MB` the amount of data meanwhile, and `PLINTH_KILL_MODE` its replication. `make kills` kills each 20
//! times and prints the waits by role. At the end all processes are asked to end at once, as for an upgrade.

use crate::common::{self, Cluster, number_from};
use plinth_client::{Database, RangeOptions};
use plinth_coordination::ClusterFile;
use plinth_core::{KeySelector, Result};
use plinth_runtime::{Duration, Task, now, random, sleep};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const NODES: u64 = 40;
/// Limit of the median wait from a kill to the next commit.
const MEDIAN_LIMIT: Duration = Duration::from_secs(3);
const ACCOUNTS: u64 = 50;
const FILLED_TABLES: usize = 4;
const OPENING: i64 = 100;
const WORKERS: usize = 8;
/// Limit of each wait from a kill to the next commit, whichever process was killed.
const RECOVERY_LIMIT: Duration = Duration::from_secs(20);

fn number(value: Option<bytes::Bytes>) -> i64 {
    value.map_or(0, |v| {
        i64::from_le_bytes(v[..].try_into().expect("eight bytes"))
    })
}

fn account(i: u64) -> String {
    format!("account/{i:02}")
}

/// One transfer with its receipt. The receipt makes sure that it is applied once, however often it is tried.
async fn transfer(database: &Database, worker: usize, receipt: i64) -> Result<()> {
    let key = format!("receipt/{worker}");
    let (from, to, amount) = (
        random::below(ACCOUNTS),
        random::below(ACCOUNTS),
        random::below(20) as i64,
    );
    let moved = database.run(async |t| {
        if number(t.get(&*key, false).await?) == receipt {
            return Ok(());
        }
        t.set(&key, receipt.to_le_bytes());
        if from == to {
            return Ok(());
        }
        let a = number(t.get(account(from), false).await?);
        let b = number(t.get(account(to), false).await?);
        t.set(account(from), (a - amount).to_le_bytes());
        t.set(account(to), (b + amount).to_le_bytes());
        Ok(())
    });
    moved.await
}

async fn sum(database: &Database) -> Result<i64> {
    let read = database.run(async |t| {
        let begin = KeySelector::first_greater_or_equal("account/");
        let end = KeySelector::first_greater_or_equal("account0");
        t.get_range_all(begin, end, RangeOptions::default(), false)
            .await
    });
    Ok(read
        .await?
        .into_iter()
        .map(|(_, value)| number(Some(value)))
        .sum())
}

fn node(i: u64) -> String {
    format!("node/{i:02}")
}

/// Reorders three neighbours of the cycle (as the simulator's workload does).
async fn turn(database: &Database) -> Result<()> {
    let first = random::below(NODES);
    let turned = database.run(async |t| {
        let second = number(t.get(node(first), false).await?);
        let third = number(t.get(node(second as u64), false).await?);
        let fourth = number(t.get(node(third as u64), false).await?);
        t.set(node(first), third.to_le_bytes());
        t.set(node(third as u64), second.to_le_bytes());
        t.set(node(second as u64), fourth.to_le_bytes());
        Ok(())
    });
    turned.await
}

/// Number of steps from node 0 back to it; more than the number of nodes if no path leads back.
async fn cycle_length(database: &Database) -> Result<u64> {
    let walked = database.run(async |t| {
        let (mut at, mut steps) = (0, 0);
        loop {
            at = number(t.get(node(at), false).await?) as u64;
            steps += 1;
            if at == 0 || steps > NODES {
                return Ok(steps);
            }
        }
    });
    walked.await
}

async fn check(database: &Database, when: &str) {
    let held = sum(database).await.expect("reads");
    assert_eq!(held, ACCOUNTS as i64 * OPENING, "the sum {when}");
    let length = cycle_length(database).await.expect("reads");
    assert_eq!(length, NODES, "the cycle {when}");
}

async fn signal(cluster: &Cluster, i: usize, signal: Signal) -> u32 {
    let pid = loop {
        match cluster.pid(i) {
            Some(pid) => break pid,
            None => sleep(Duration::from_millis(100)).await, // it is being started again
        }
    };
    kill_process(Pid::from_raw(pid as i32).expect("a process"), signal).expect("it is ours");
    pid
}

/// Kills server `i` and waits for the first commit of a transaction that began afterwards.
async fn kill_and_commit(cluster: &Cluster, database: &Database, i: usize) -> Duration {
    signal(cluster, i, Signal::KILL).await;
    next_commit(database).await
}

async fn next_commit(database: &Database) -> Duration {
    let start = now();
    let committed = database.run(async |t| {
        t.set("after", start.0.to_le_bytes());
        Ok(())
    });
    let committed = plinth_runtime::timeout(RECOVERY_LIMIT, committed).await;
    committed
        .expect("the cluster recovers in time")
        .expect("commits");
    start.elapsed()
}

/// Names of the roles on server `i`, from the status, without duplicates.
async fn roles_of(cluster: &Cluster, i: usize) -> Vec<String> {
    let address = format!("127.0.0.1:{}", cluster.first_port + i as u16);
    let file = cluster.cluster_file();
    let output = plinth_runtime::offload(move || common::plinth(&file, &["status", "--json"]));
    let document: serde_json::Value =
        serde_json::from_str(&common::text(&output.await.stdout)).unwrap_or_default();
    let processes = document["cluster"]["processes"].as_object().cloned();
    let mut names: Vec<String> = processes
        .into_iter()
        .flat_map(|all| all.into_iter().map(|(_, process)| process))
        .filter(|process| process["address"].as_str() == Some(&address))
        .flat_map(|process| process["roles"].as_array().cloned().unwrap_or_default())
        .filter_map(|role| role["role"].as_str().map(String::from))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The kills so far: roles of the killed process, and the wait until the next commit.
#[derive(Default)]
struct Waits(Vec<(Vec<String>, Duration)>);

impl Waits {
    fn print(&self, name: &str, of: impl Fn(&[String]) -> bool) -> Option<Duration> {
        let mut waits: Vec<Duration> = self
            .0
            .iter()
            .filter(|(roles, _)| of(roles))
            .map(|(_, wait)| *wait)
            .collect();
        waits.sort_unstable();
        let at = |share: f64| {
            Some(waits[((waits.len().checked_sub(1)?) as f64 * share).round() as usize])
        };
        let s = |share| at(share).map_or(0.0, |wait| wait.as_secs_f64());
        eprintln!(
            "{:>6} {name:<20} median {:.3} s, p90 {:.3} s, p99 {:.3} s, slowest {:.3} s",
            waits.len(),
            s(0.5),
            s(0.9),
            s(0.99),
            s(1.0)
        );
        at(0.5)
    }

    /// Prints a line per role; returns the median of all waits.
    fn report(&self) -> Duration {
        let all = self.0.iter().flat_map(|(roles, _)| roles.clone());
        let roles: std::collections::BTreeSet<String> = all.collect();
        for role in roles {
            self.print(&role, |killed| killed.contains(&role));
        }
        self.print("kills in all", |_| true)
            .expect("somebody was killed")
    }
}

/// Writes rows of a kilobyte to a few tables that grow at the same time.
async fn fill(database: &Database, megabytes: usize) {
    let value = vec![b'x'; 1000];
    let tables = (0..FILLED_TABLES).map(|table| {
        let value = &value;
        async move {
            for first in (0..megabytes * 1000 / FILLED_TABLES).step_by(250) {
                let written = database.run(async |t| {
                    let rows = first..first + 250;
                    rows.for_each(|row| t.set(format!("fill/{table}/{row:010}"), value));
                    Ok(())
                });
                written.await.expect("it is filled");
            }
        }
    });
    plinth_runtime::join_all(tables.collect::<Vec<_>>()).await;
}

/// Asks all processes to end at once; `plinth dev` starts them again, as in an upgrade.
async fn restart_all(cluster: &Cluster, database: &Database) -> Duration {
    let start = now();
    let mut old = Vec::new();
    for i in 0..cluster.processes as usize {
        old.push(signal(cluster, i, Signal::TERM).await);
    }
    for (i, old) in old.into_iter().enumerate() {
        while cluster.pid(i) == Some(old) {
            sleep(Duration::from_millis(10)).await;
        }
    }
    next_commit(database).await;
    start.elapsed()
}

/// Workers that transfer money and reorder the cycle until they are stopped.
struct Work {
    stopping: Rc<Cell<bool>>,
    /// Number of acknowledged transfers of each worker.
    receipts: Rc<RefCell<Vec<i64>>>,
    workers: Vec<Task<()>>,
}

impl Work {
    async fn start(database: &Database) -> Self {
        let opened = database.run(async |t| {
            (0..ACCOUNTS).for_each(|i| t.set(account(i), OPENING.to_le_bytes()));
            (0..NODES).for_each(|i| t.set(node(i), ((i + 1) % NODES).to_le_bytes()));
            Ok(())
        });
        opened.await.expect("the accounts open");
        fill(database, number_from("PLINTH_KILL_MB", 0)).await;
        let stopping = Rc::new(Cell::new(false));
        let receipts = Rc::new(RefCell::new(vec![0i64; WORKERS]));
        let workers = (0..WORKERS)
            .map(|worker| {
                let (database, stopping, receipts) =
                    (database.clone(), stopping.clone(), receipts.clone());
                plinth_runtime::spawn("worker", async move {
                    while !stopping.get() {
                        let receipt = receipts.borrow()[worker] + 1;
                        transfer(&database, worker, receipt)
                            .await
                            .expect("the retry loop ends with success");
                        receipts.borrow_mut()[worker] = receipt;
                        turn(&database)
                            .await
                            .expect("the retry loop ends with success");
                    }
                })
            })
            .collect();
        Work {
            stopping,
            receipts,
            workers,
        }
    }

    /// Stops the workers. Asserts that every acknowledged transfer is stored.
    async fn stop(self, database: &Database) {
        self.stopping.set(true);
        plinth_runtime::join_all(self.workers).await;
        check(database, "at the end").await;
        for (worker, receipt) in self.receipts.take().into_iter().enumerate() {
            let stored = database
                .run(async |t| t.get(format!("receipt/{worker}"), false).await)
                .await;
            assert_eq!(number(stored.expect("reads")), receipt, "worker {worker}");
            assert!(receipt > 10, "worker {worker} did {receipt} transfers");
        }
    }
}

/// Kills each server in turn, `rounds` times.
async fn kill_each(cluster: &Cluster, database: &Database, rounds: usize) -> Waits {
    let mut waits = Waits::default();
    for round in 0..rounds {
        for i in 0..cluster.processes as usize {
            sleep(Duration::from_secs(1)).await;
            let roles = roles_of(cluster, i).await;
            let wait = kill_and_commit(cluster, database, i).await;
            eprintln!("round {round}: server {i} killed, next commit after {wait:?}");
            waits.0.push((roles, wait));
            check(database, &format!("after server {i} was killed")).await;
            sleep(Duration::from_secs(3)).await; // it is started again meanwhile
        }
    }
    waits
}

/// Stops each server in turn, `rounds` times, and lets it continue after the next commit. A stopped server is silent,
/// and its connections stay open.
async fn stop_each(cluster: &Cluster, database: &Database, rounds: usize) -> Waits {
    let mut stops = Waits::default();
    for round in 0..rounds {
        for i in 0..cluster.processes as usize {
            let roles = roles_of(cluster, i).await;
            signal(cluster, i, Signal::STOP).await;
            let wait = next_commit(database).await;
            signal(cluster, i, Signal::CONT).await;
            eprintln!("round {round}: server {i} stopped, next commit after {wait:?}");
            stops.0.push((roles, wait));
            check(database, &format!("after server {i} was stopped")).await;
            sleep(Duration::from_secs(3)).await;
        }
    }
    stops
}

#[test]
fn no_acknowledged_commit_is_lost_when_each_server_is_killed_in_turn() {
    let mode = std::env::var("PLINTH_KILL_MODE").unwrap_or("triple".into());
    let cluster = Cluster::start("kill", 5, &["--replication", &mode]);
    plinth_runtime::real::block_on(async {
        let file = ClusterFile::load(&cluster.cluster_file())
            .await
            .expect("a cluster file");
        let database = plinth_client::connect(file);
        let work = Work::start(&database).await;
        let rounds = number_from("PLINTH_KILL_ROUNDS", 1);
        let waits = kill_each(&cluster, &database, rounds).await;
        let stop_rounds = number_from("PLINTH_STOP_ROUNDS", rounds);
        let stops = stop_each(&cluster, &database, stop_rounds).await;
        for _ in 0..rounds.div_ceil(4) {
            let wait = restart_all(&cluster, &database).await;
            eprintln!("all servers restarted, next commit after {wait:?}");
            check(&database, "after all were restarted").await;
            sleep(Duration::from_secs(3)).await;
        }
        work.stop(&database).await;
        eprintln!("stopped, so that nobody hangs up on them:");
        stops.report();
        eprintln!("killed:");
        assert!(waits.report() <= MEDIAN_LIMIT, "recovery is too slow");
    });
}
