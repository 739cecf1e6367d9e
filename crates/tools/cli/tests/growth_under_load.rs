//! A cluster that grows from one server to eight under load and then loses two. A separate client measures the
//! latencies meanwhile.
//!
//! `PLINTH_GROWTH_MB` sets the amount of loaded data, `PLINTH_GROWTH_MB_PER_SECOND` its rate. `make growth` loads 5
//! GB and prints the latencies of each part.

use crate::common::{self, Cluster, SMALL_SHARDS, Server, number_from};
use plinth_client::{Database, RangeOptions};
use plinth_coordination::ClusterFile;
use plinth_core::KeySelector;
use plinth_runtime::{Duration, Instant, Task, now, random, real, sleep};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SERVERS: u16 = 8;
const ROW_BYTES: usize = 1000;
const ROWS_PER_TRANSACTION: usize = 100;
const LOADERS: usize = 8;
const TABLES: usize = 64;
/// Limit of a server's deviation from the mean number of bytes, as a share of the mean.
const EVEN: f64 = 0.15;
/// Amount of data, its rate, and the limit of the wait for the cluster to settle afterwards.
const DEFAULT_MB: usize = 20;
const DEFAULT_MB_PER_SECOND: usize = 8;
const SETTLE_LIMIT: Duration = Duration::from_secs(1200);
/// Transactions per second of the measuring client.
const PROBES_PER_SECOND: u64 = 200;
/// Shards are made small if there is less data than this, so that there are shards to move.
const SMALL_MB: usize = 1000;

/// Keys of tables that all grow at their ends at the same time, so that every part of the cluster gets writes.
fn key(row: usize) -> String {
    let table = row / ROWS_PER_TRANSACTION % TABLES;
    format!("table{table:02}/{row:010}")
}

fn value(row: usize) -> Vec<u8> {
    let mut value = vec![b'.'; ROW_BYTES];
    value[..8].copy_from_slice(&(row as u64).to_le_bytes());
    value
}

async fn open(cluster: &Cluster) -> Database {
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    plinth_client::connect(file.expect("a cluster file"))
}

/// Loads rows in the order of their numbers at a steady rate. `done` counts the committed rows; several loaders
/// commit out of order.
struct Load {
    first: usize,
    rows: usize,
    next: Cell<usize>,
    done: Cell<usize>,
    started: Instant,
    rows_per_second: f64,
}

impl Load {
    fn new(rows: std::ops::Range<usize>, rows_per_second: usize) -> Self {
        Load {
            first: rows.start,
            rows: rows.end,
            next: Cell::new(rows.start),
            done: Cell::new(rows.start),
            started: now(),
            rows_per_second: rows_per_second as f64,
        }
    }

    fn start(self: &Rc<Self>, database: &Database) -> Vec<Task<()>> {
        let loader = |_| {
            let (load, database) = (self.clone(), database.clone());
            plinth_runtime::spawn("loader", async move { load.run(&database).await })
        };
        (0..LOADERS).map(loader).collect()
    }

    async fn run(&self, database: &Database) {
        loop {
            let first = self.next.get();
            if first >= self.rows {
                return;
            }
            self.next.set(first + ROWS_PER_TRANSACTION);
            let before = (first - self.first) as f64;
            let due = Duration::from_secs_f64(before / self.rows_per_second);
            sleep(due.saturating_sub(self.started.elapsed())).await;
            let written = database.run(async |t| {
                (first..first + ROWS_PER_TRANSACTION).for_each(|row| t.set(key(row), value(row)));
                Ok(())
            });
            written.await.expect("the cluster serves");
            self.done.set(self.done.get() + ROWS_PER_TRANSACTION);
        }
    }
}

/// The measuring client. Each transaction reads a row and sets one. The rate is steady, whatever the latencies.
struct Probe {
    part: RefCell<String>,
    /// Latencies per part of the test, in the order of the parts.
    latencies: RefCell<Vec<(String, Latencies)>>,
}

#[derive(Default)]
struct Latencies {
    /// Latencies of whole transactions.
    whole: Vec<Duration>,
    /// Latencies of the reads.
    read: Vec<Duration>,
}

/// The latency in milliseconds that this share of the samples does not exceed.
fn at(latencies: &[Duration], share: f64) -> f64 {
    let last = latencies.len().saturating_sub(1);
    let found = latencies.get((last as f64 * share).round() as usize);
    found.map_or(0.0, |found| found.as_secs_f64() * 1e3)
}

impl Probe {
    fn begin(&self, part: &str) {
        self.part.replace(part.to_string());
        self.latencies
            .borrow_mut()
            .push((part.to_string(), Latencies::default()));
        eprintln!("{part} …");
    }

    async fn once(&self, database: &Database, rows: usize) {
        let (part, start) = (self.part.borrow().clone(), now());
        let row = random::below(rows as u64) as usize;
        let read = Cell::new(Duration::ZERO);
        let touched = database.run(async |t| {
            let found = t.get(key(row), false).await?;
            read.set(start.elapsed());
            assert_eq!(found.as_deref(), Some(&value(row)[..]), "row {row}");
            t.set(format!("probe/{}", row % 1000), start.0.to_le_bytes());
            Ok(())
        });
        touched.await.expect("the cluster serves");
        let mut latencies = self.latencies.borrow_mut();
        let of = latencies.iter_mut().find(|(name, _)| *name == part);
        let of = &mut of.expect("it has begun").1;
        of.whole.push(start.elapsed());
        of.read.push(read.get());
    }

    fn report(&self) {
        for (part, latencies) in &mut *self.latencies.borrow_mut() {
            latencies.whole.sort_unstable();
            latencies.read.sort_unstable();
            let (whole, read) = (&latencies.whole, &latencies.read);
            eprintln!(
                "{:>7} transactions {part:<34} p50 {:6.2} ms, p99 {:7.2} ms, \
                p99.9 {:7.2} ms, slowest {:8.2} ms; read p99 {:7.2} ms",
                whole.len(),
                at(whole, 0.5),
                at(whole, 0.99),
                at(whole, 0.999),
                at(whole, 1.0),
                at(read, 0.99)
            );
        }
    }
}

fn start_probe(database: &Database, probe: &Rc<Probe>, load: &Rc<Load>) -> Task<()> {
    let (database, probe, load) = (database.clone(), probe.clone(), load.clone());
    plinth_runtime::spawn("probe", async move {
        let tasks = plinth_runtime::TaskGroup::new();
        loop {
            sleep(Duration::from_micros(1_000_000 / PROBES_PER_SECOND)).await;
            // All rows below this number are committed: loaders overtake each other by less than this difference.
            let rows = load
                .done
                .get()
                .saturating_sub(2 * LOADERS * ROWS_PER_TRANSACTION);
            if rows > 0 {
                let (database, probe) = (database.clone(), probe.clone());
                tasks.spawn("probe", async move { probe.once(&database, rows).await });
            }
        }
    })
}

/// Bytes of keys and values on each storage server, by address, and whether all replicas are present.
async fn stored(cluster: &Cluster) -> (Vec<(String, u64)>, bool) {
    let file = cluster.cluster_file();
    let output =
        plinth_runtime::offload(move || common::plinth(&file, &["status", "--json"])).await;
    let document: Value = serde_json::from_str(&common::text(&output.stdout)).unwrap_or_default();
    let full = document["cluster"]["full_replication"] == true;
    let servers = document["cluster"]["storage_servers"].as_array().cloned();
    let bytes = |server: Value| {
        let address = server["address"].as_str().unwrap_or("?").to_string();
        (address, server["stored_bytes"].as_u64().unwrap_or(0))
    };
    (servers.into_iter().flatten().map(bytes).collect(), full)
}

/// Waits until `count` servers hold about the same amount, and all replicas are present.
async fn wait_until_even(cluster: &Cluster, count: usize) {
    let started = now();
    let mut said = now();
    loop {
        let (stored, full) = stored(cluster).await;
        let sum: u64 = stored.iter().map(|(_, bytes)| bytes).sum();
        let mean = sum as f64 / count as f64;
        let off = |bytes: u64| (bytes as f64 / mean - 1.0).abs();
        let worst = stored
            .iter()
            .map(|(_, bytes)| off(*bytes))
            .fold(0.0, f64::max);
        let line: Vec<String> = stored
            .iter()
            .map(|(address, bytes)| format!("{address} {:.1} MB", *bytes as f64 / 1e6))
            .collect();
        let line = format!("off by {:.1}% at most: {}", worst * 100.0, line.join(", "));
        if full && stored.len() == count && worst <= EVEN {
            eprintln!(
                "even after {:.1} s; {line}",
                started.elapsed().as_secs_f64()
            );
            return;
        }
        if said.elapsed() > Duration::from_secs(10) {
            said = now();
            eprintln!("  full replication: {full}; {line}");
        }
        assert!(
            started.elapsed() < SETTLE_LIMIT,
            "it does not settle; {line}"
        );
        sleep(Duration::from_millis(500)).await;
    }
}

/// Asserts that every row is present with its value.
async fn check(database: &Database, rows: usize) {
    let next = Rc::new(Cell::new(0));
    let readers = (0..LOADERS).map(|_| {
        let next = next.clone();
        async move {
            while next.get() < rows {
                let first = next.get();
                next.set(first + ROWS_PER_TRANSACTION);
                let found = database.run(async |t| {
                    let begin = KeySelector::first_greater_or_equal(key(first));
                    let last = key(first + ROWS_PER_TRANSACTION - 1);
                    let end = KeySelector::first_greater_than(last);
                    let options = RangeOptions::default();
                    t.get_range_all(begin, end, options, false).await
                });
                let found = found.await.expect("the cluster serves");
                assert_eq!(found.len(), ROWS_PER_TRANSACTION, "from row {first} on");
                for (row, (k, v)) in (first..).zip(found) {
                    assert_eq!((&k[..], &v[..]), (key(row).as_bytes(), &value(row)[..]));
                }
            }
        }
    });
    plinth_runtime::join_all(readers.collect::<Vec<_>>()).await;
}

/// Starts the other servers one after the other while the load goes on. From the second on everything has two
/// replicas.
async fn add_servers(
    cluster: &Cluster,
    knobs: &[&str],
    servers: &mut Vec<Server>,
    probe: &Probe,
    load: &Load,
) {
    for i in 1..SERVERS {
        while load.done.get() * usize::from(SERVERS + 1) < load.rows * usize::from(i) {
            sleep(Duration::from_millis(50)).await;
        }
        probe.begin(&format!("{} servers, loaded", i + 1));
        servers.push(Server(cluster.start_server_with(i, knobs)));
        if i == 1 {
            while stored(cluster).await.0.len() < 2 {
                sleep(Duration::from_millis(100)).await;
            }
            cluster.say("configure double").await.text();
        }
    }
}

/// Drains one server and then takes it away; takes another away without draining it.
async fn lose_two(cluster: &Cluster, servers: &mut Vec<Server>, probe: &Probe) {
    probe.begin("one is excluded, with a recovery");
    let target = cluster.first_port + SERVERS - 1;
    cluster
        .say(format!("exclude no_wait 127.0.0.1:{target}"))
        .await
        .text();
    sleep(Duration::from_secs(3)).await;
    probe.begin("the excluded is drained");
    let said = cluster
        .say(format!("exclude 127.0.0.1:{target}"))
        .await
        .text();
    assert!(said.contains("nothing is left"), "{said}");
    servers.pop();
    wait_until_even(cluster, usize::from(SERVERS) - 1).await;
    probe.begin("one is killed, with a recovery");
    servers.pop();
    sleep(Duration::from_secs(3)).await;
    probe.begin("what it had is healed");
    wait_until_even(cluster, usize::from(SERVERS) - 2).await;
}

async fn grow_under_load() {
    let megabytes = number_from("PLINTH_GROWTH_MB", DEFAULT_MB);
    let pace = number_from("PLINTH_GROWTH_MB_PER_SECOND", DEFAULT_MB_PER_SECOND);
    let knobs: &[&str] = match megabytes < SMALL_MB {
        true => &SMALL_SHARDS,
        false => &[],
    };
    let mut cluster = Cluster::stopped("growth-under-load", SERVERS, &[]);
    if megabytes >= SMALL_MB {
        cluster.cache_mib = 256;
    }
    cluster.write_cluster_file(1);
    let mut servers = vec![Server(cluster.start_server_with(0, knobs))];
    cluster.say("configure new single ssd logs=1").await.text();
    let database = open(&cluster).await;

    let rows_per_second = pace * 1_000_000 / ROW_BYTES;
    let load = Rc::new(Load::new(
        0..megabytes * 1_000_000 / ROW_BYTES,
        rows_per_second,
    ));
    let probe = Rc::new(Probe {
        part: RefCell::default(),
        latencies: RefCell::default(),
    });
    probe.begin("one server, loaded");
    let loading = load.start(&database);
    let probing = start_probe(&database, &probe, &load);
    add_servers(&cluster, knobs, &mut servers, &probe, &load).await;
    plinth_runtime::join_all(loading).await;
    let seconds = load.started.elapsed().as_secs_f64();
    eprintln!("{megabytes} MB loaded in {seconds:.1} s");
    probe.begin("8 servers, becoming even");
    wait_until_even(&cluster, usize::from(SERVERS)).await;
    probe.begin("8 servers, even");
    check(&database, load.rows).await;
    probe.begin("8 servers, at rest");
    sleep(Duration::from_secs(10)).await;
    // Latencies of eight servers under load without moves, as the baseline for the cost of moves.
    probe.begin("8 servers at rest, loaded again");
    let seconds = if megabytes < SMALL_MB { 1 } else { 30 };
    let end = load.rows + seconds * rows_per_second;
    let again = Rc::new(Load::new(load.rows..end, rows_per_second));
    plinth_runtime::join_all(again.start(&database)).await;

    lose_two(&cluster, &mut servers, &probe).await;
    probe.begin("6 servers, even");
    check(&database, again.rows).await;
    drop(probing);
    probe.report();
}

#[test]
fn a_cluster_grows_to_eight_servers_while_it_is_loaded_and_heals_when_two_are_gone() {
    real::block_on(grow_under_load());
}
