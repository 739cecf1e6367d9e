//! `plinth farm bench compare`: point reads and updates of rows of the same sizes by the in-memory engine, the store,
//! Redis and etcd, by turns. All are asked by this process, and each has the same clients, with one request at a time.

mod etcd;
mod redis;

use super::flags::{Common, PORT, first, parse_theta};
use super::processes::enter;
use crate::fleet::{Running, Shape};
use crate::keeping::Keeping;
use bytes::Bytes;
use etcd::Etcd;
use plinth_client::Database as StoreDatabase;
use plinth_farm_bench::measure::{Latencies, Watch};
use plinth_farm_bench::values::{key, serial_of, value};
use plinth_farm_bench::ycsb::{Mix, Step};
use plinth_farm_bench::zipf::Zipf;
use plinth_farm_bench::{Report, ycsb};
use plinth_farm_server::{Access, Guest};
use plinth_farm_structures::kv::Database as FarmDatabase;
use plinth_measure::samples::median;
use plinth_measure::server_cpu;
use plinth_runtime::random::Generator;
use plinth_runtime::{join_all, now};
use plinth_terminal::choices::among;
use plinth_terminal::connect::{ClusterArguments, Connection};
use plinth_terminal::numbers::{bytes_within, within};
use plinth_terminal::{Outcome, ports};
use redis::Redis;
use serde_json::json;
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Rows that are loaded side by side.
const LOADERS: u64 = 64;

/// What is run.
#[derive(clap::Args, Debug)]
pub struct Plan {
    /// Rows
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = within::<u64>(1..=100_000_000))]
    rows: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = bytes_within::<u32>(24..=3000))]
    value_bytes: u32,
    /// Clients, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within::<u32>(1..=10_000))]
    clients: u32,
    /// a: half updates, b: 5 in 100, c: reads only
    #[arg(
        long,
        value_name = "MIX,…",
        value_delimiter = ',',
        default_value = "c,a"
    )]
    #[arg(value_parser = among(["a", "b", "c"], Mix::parse), hide_possible_values = true)]
    mix: Vec<Mix>,
    /// Skew of the rows, from 0, which is uniform, to below 1
    #[arg(long, value_name = "THETA", default_value = "0", value_parser = parse_theta)]
    theta: f64,
    /// Intervals of each, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Cluster file of a cluster of the store
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// A server of Redis
    #[arg(long, value_name = "IP:PORT", value_parser = ports::parse_address)]
    redis: Option<SocketAddr>,
    /// A server of etcd, for clients
    #[arg(long, value_name = "IP:PORT", value_parser = ports::parse_address)]
    etcd: Option<SocketAddr>,
    /// Port of the engine's process, which takes two
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = within::<u16>(1..))]
    port: u16,
    #[command(flatten)]
    pub common: Common,
}

impl Plan {
    fn value(&self, row: u64, serial: u64) -> Bytes {
        value(row, serial, self.value_bytes as usize)
    }
}

/// Somebody who reads and writes, one row at a time.
enum Client {
    Farm(FarmDatabase<Access>),
    Store(StoreDatabase),
    Redis(Redis),
    Etcd(Etcd),
}

impl Client {
    async fn get(&mut self, key: &[u8]) -> Outcome<Option<Bytes>> {
        match self {
            Client::Farm(database) => {
                let found = database.run(async |tx| tx.get(key).await).await;
                found.map_err(|error| format!("the in-memory engine: {error}"))
            }
            Client::Store(database) => {
                let found = database.run(async |tx| tx.get(key, false).await).await;
                found.map_err(|error| format!("the store: {error}"))
            }
            Client::Redis(redis) => redis.get(key).await,
            Client::Etcd(etcd) => etcd.get(key).await,
        }
    }

    async fn set(&mut self, key: &[u8], value: Bytes) -> Outcome {
        match self {
            Client::Farm(database) => {
                let set = database.run(async |tx| {
                    tx.set(key, &value);
                    Ok(())
                });
                let set = set.await;
                set.map_err(|error| format!("the in-memory engine: {error}"))
            }
            Client::Store(database) => {
                let set = database.run(async |tx| {
                    tx.set(key, &value);
                    Ok(())
                });
                set.await.map_err(|error| format!("the store: {error}"))
            }
            Client::Redis(redis) => redis.set(key, &value).await,
            Client::Etcd(etcd) => etcd.set(key, value).await,
        }
    }
}

enum Kind {
    Farm(Box<Guest>, Running),
    Store(Connection),
    Redis(SocketAddr),
    Etcd(SocketAddr),
}

struct Side {
    name: &'static str,
    kind: Kind,
    /// Its servers.
    pids: Vec<u32>,
    last_serial: Cell<u64>,
}

impl Side {
    async fn client(&self) -> Outcome<Client> {
        Ok(match &self.kind {
            Kind::Farm(guest, _) => Client::Farm(guest.database().await?),
            Kind::Store(connection) => Client::Store(connection.database.clone()),
            Kind::Redis(at) => Client::Redis(Redis::connect(*at).await?),
            Kind::Etcd(at) => Client::Etcd(Etcd::connect(*at).await?),
        })
    }

    async fn load(&self, plan: &Plan) -> Outcome {
        let loaders = (0..LOADERS).map(async |first| {
            let mut client = self.client().await?;
            for row in (first..plan.rows).step_by(LOADERS as usize) {
                client.set(&key(row), plan.value(row, 0)).await?;
            }
            Ok(())
        });
        join_all(loaders).await.into_iter().collect()
    }

    async fn run_client(&self, plan: &Plan, mix: Mix, number: u64) -> Outcome<Latencies> {
        let mut client = self.client().await?;
        let mut random = Generator::new(plan.common.seed ^ (number << 32));
        let zipf = Zipf::new(plan.rows, plan.theta);
        let (until, mut latencies) = (now() + plan.common.duration, Latencies::default());
        while now() < until {
            let (row, begun) = (zipf.row(&mut random), now());
            match mix.step(&mut random) {
                Step::Read => {
                    let found = client.get(&key(row)).await?;
                    let is_whole = found.is_some_and(|found| serial_of(&found, row).is_some());
                    if !is_whole {
                        return Err(format!("{}: row {row} is not as it was written", self.name));
                    }
                }
                _ => {
                    let serial = self.last_serial.get() + 1;
                    self.last_serial.set(serial);
                    client.set(&key(row), plan.value(row, serial)).await?;
                }
            }
            latencies.add(begun.elapsed());
        }
        Ok(latencies)
    }

    async fn round(&self, plan: &Plan, mix: Mix) -> Outcome<Round> {
        let servers = || server_cpu::usage(&self.pids).ok_or(format!("{} has ended", self.name));
        let (before, watch) = (servers()?, Watch::start());
        let clients = (0..u64::from(plan.clients)).map(|n| self.run_client(plan, mix, n));
        let mut latencies = Latencies::default();
        for outcome in join_all(clients).await {
            latencies.merge(&outcome?);
        }
        let (spent, used) = (watch.stop(), servers()?.since(&before));
        let count = latencies.count();
        Ok(Round {
            a_second: spent.a_second(count),
            a_cpu_second: count as f64 / (spent.cpu_s + used.cpu_s).max(1e-9),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
        })
    }
}

struct Round {
    a_second: f64,
    /// Of the servers and of the clients together.
    a_cpu_second: f64,
    p50_us: f64,
    p99_us: f64,
}

async fn farm(plan: &Plan) -> Outcome<Side> {
    let shape = Shape {
        machines: 1,
        replication: 1,
        regions: 1,
        region_mib: ycsb::Plan::region_mib(plan.rows, plan.value_bytes as usize) + 64,
        old_mib: 64,
        keeping: Keeping::default(),
    };
    let mut running = Running::prepare("compare", shape, first(plan.port), false).await?;
    running.start().await?;
    let guest = enter(&running).await?;
    let pids = running
        .children
        .iter()
        .filter_map(|one| one.child.as_ref())
        .map(std::process::Child::id);
    Ok(Side {
        name: "farm",
        pids: pids.collect(),
        kind: Kind::Farm(Box::new(guest), running),
        last_serial: Cell::new(0),
    })
}

async fn sides(plan: &Plan) -> Outcome<Vec<Side>> {
    let mut sides = vec![farm(plan).await?];
    let side = |name, kind, pids| Side {
        name,
        kind,
        pids,
        last_serial: Cell::new(0),
    };
    if let Some(file) = &plan.store {
        let cluster = ClusterArguments::of(file.clone(), 10);
        let connection = cluster.connect().await?;
        let at = connection.coordinators.file().addresses();
        let pids = server_cpu::processes_listening_at(&at);
        sides.push(side("store", Kind::Store(connection), pids));
    }
    for (name, at) in [("redis", plan.redis), ("etcd", plan.etcd)] {
        if let Some(at) = at {
            let kind = if name == "redis" {
                Kind::Redis(at)
            } else {
                Kind::Etcd(at)
            };
            sides.push(side(name, kind, server_cpu::processes_listening_at(&[at])));
        }
    }
    Ok(sides)
}

fn note(report: &mut Report, mix: Mix, side: &Side, rounds: &[Round], first: &[Round]) {
    let of = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect()).unwrap_or(0.0);
    let ratios = rounds.iter().zip(first);
    let ratio = |what: fn(&Round) -> f64| {
        let ratios = ratios.clone();
        median(
            ratios
                .map(|(own, first)| what(first) / what(own).max(1e-9))
                .collect(),
        )
        .unwrap_or(0.0)
    };
    let figure = json!({
        "mix": mix.name(),
        "side": side.name,
        "a_second": of(|round| round.a_second),
        "a_cpu_second": of(|round| round.a_cpu_second),
        "p50_us": of(|round| round.p50_us),
        "p99_us": of(|round| round.p99_us),
        "farm_is_faster_by": ratio(|round| round.a_second),
        "farm_is_faster_by_a_cpu_second": ratio(|round| round.a_cpu_second),
    });
    let number = |field: &str| figure[field].as_f64().unwrap_or_default();
    let line = format!(
        "mix {} {:<6} {:>9.0} /s  {:>9.0} a CPU second of both  p50 {:>7.1} us  p99 {:>8.1} us  farm is {:.1} times \
         as fast, {:.1} times a CPU second",
        mix.name(),
        side.name,
        number("a_second"),
        number("a_cpu_second"),
        number("p50_us"),
        number("p99_us"),
        number("farm_is_faster_by"),
        number("farm_is_faster_by_a_cpu_second"),
    );
    report.add(figure, line);
}

/// Errors are a line for the user.
pub async fn run(plan: &Plan, tell: &dyn Fn(&str)) -> Outcome<Report> {
    let settings = json!({
        "rows": plan.rows,
        "value_bytes": plan.value_bytes,
        "clients": plan.clients,
        "theta": plan.theta,
        "seconds": plan.common.duration.as_secs_f64(),
        "rounds": plan.rounds,
        "seed": plan.common.seed,
    });
    if let Some(mix) = plan.mix.iter().find(|mix| !mix.is_of_points()) {
        return Err(format!(
            "mix {} is not of single rows: there are a, b and c",
            mix.name()
        ));
    }
    let mut report = Report::new("compare", settings);
    let sides = sides(plan).await?;
    for side in &sides {
        tell(&format!("loading {} rows: {}", plan.rows, side.name));
        side.load(plan).await?;
    }
    for mix in &plan.mix {
        let mut all: Vec<Vec<Round>> = sides.iter().map(|_| Vec::new()).collect();
        for round in 1..=plan.rounds {
            tell(&format!(
                "mix {}, round {round} of {}",
                mix.name(),
                plan.rounds
            ));
            for (side, rounds) in sides.iter().zip(&mut all) {
                rounds.push(side.round(plan, *mix).await?);
            }
        }
        for (side, rounds) in sides.iter().zip(&all) {
            note(&mut report, *mix, side, rounds, &all[0]);
        }
    }
    for side in sides {
        if let Kind::Farm(guest, _running) = side.kind {
            guest.leave().await;
        }
    }
    Ok(report)
}
