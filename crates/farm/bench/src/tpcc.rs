//! TPC-C (§5.1 to 5.3): the full mix from clients that never think, on each side by turns.

use crate::cluster::{Cluster, Machines, Place};
use crate::kv::failed;
use crate::measure::{Aborts, Latencies, Spent, Watch, ratio};
use crate::mode::Mode;
use crate::report::Report;
use plinth_farm_engine::{Engine, Policy};
use plinth_farm_fabric::Shared;
use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::catalog::Catalog;
use plinth_farm_structures::{Error, Result as StructureResult};
use plinth_farm_tpcc::input::{Input, Terminal};
use plinth_farm_tpcc::{Ending, Scale, Tpcc, carry_out, check, check_loaded, load};
use plinth_runtime::{Boxed, Duration, Instant, join_all, now, sleep, yield_now};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Of inner nodes, a machine.
const CACHE_BYTES: usize = 64 << 20;
/// The time of the first order, in milliseconds since 1970.
const ORIGIN_MS: u64 = 1_700_000_000_000;
const NEW_ORDER: &str = "new order";
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub machines: Machines,
    pub place: Place,
    pub scale: Scale,
    /// Transactions side by side. Client `c` is a terminal of warehouse `c % warehouses`, on the machine that has it.
    pub clients: u32,
    /// Of a round.
    pub duration: Duration,
    /// Before the rounds, on each side.
    pub warmup: Duration,
    pub rounds: u32,
    pub modes: Vec<Mode>,
    pub seed: u64,
}

impl Plan {
    /// MiB of a region that has room for what is loaded, and for the orders of the run, at up to `speed` of them a
    /// second and machine.
    pub fn region_mib(&self, speed: u64) -> u64 {
        let machines = u64::from(self.machines.machines.max(1));
        let warehouses = u64::from(self.scale.warehouses).div_ceil(machines);
        let seconds = (self.warmup + self.duration * self.rounds)
            .as_secs_f64()
            .ceil() as u64;
        // An order is about one KiB and a half, a payment 100 bytes; leaves are half full.
        64 + 200 * warehouses + 4 * speed * seconds / 1024
    }

    fn settings(&self) -> Value {
        json!({
            "warehouses": self.scale.warehouses,
            "items": self.scale.items,
            "customers": self.scale.customers,
            "clients": self.clients,
            "seconds": self.duration.as_secs_f64(),
            "rounds": self.rounds,
            "machines": self.machines.machines,
            "replicas": self.machines.replicas,
            "region_mib": self.machines.region_mib,
            "old_mib": self.machines.old_mib,
            "seed": self.seed,
        })
    }
}

/// What clients have done.
#[derive(Default)]
pub(crate) struct Done {
    kinds: BTreeMap<&'static str, Latencies>,
    pub aborts: Aborts,
    spent: Spent,
}

impl Done {
    fn merge(&mut self, other: Done) {
        for (kind, latencies) in other.kinds {
            self.kinds.entry(kind).or_default().merge(&latencies);
        }
        self.aborts.merge(other.aborts);
        self.spent.add(other.spent);
    }

    pub fn count(&self, kind: &str) -> u64 {
        self.kinds.get(kind).map_or(0, Latencies::count)
    }

    fn transactions(&self) -> u64 {
        self.kinds.values().map(Latencies::count).sum()
    }

    pub fn new_orders_a_core(&self) -> f64 {
        self.spent.a_core(self.count(NEW_ORDER))
    }
}

/// A loaded database, in one mode.
pub(crate) struct Side {
    pub cluster: Cluster,
    /// As each machine sees it.
    pub databases: Vec<Tpcc>,
    rounds: u32,
}

struct Client<'a> {
    engine: &'a Engine<Shared>,
    db: &'a Tpcc,
    mode: Mode,
    terminal: Terminal,
    until: Instant,
    begun: Instant,
}

impl Side {
    pub fn load(plan: &Plan, mode: Mode) -> Boxed<'_, Result<Side, String>> {
        Box::pin(async move {
            let cluster = Cluster::start(&plan.place, &plan.machines, mode).await?;
            let loaded = Side::fill(&cluster, plan).await;
            Ok(Side {
                databases: loaded.map_err(|error| failed("loading", error))?,
                cluster,
                rounds: 0,
            })
        })
    }

    async fn fill(cluster: &Cluster, plan: &Plan) -> StructureResult<Vec<Tpcc>> {
        let near = cluster.anchors().await?;
        let first = cluster.machine(0);
        let cache = Cache::new(CACHE_BYTES);
        let catalog = load::run(&first, async |tx| {
            Catalog::create(tx, Pointer::NULL, &cache).await
        });
        let catalog = catalog.await?;
        let copies = u32::from(plan.machines.machines);
        let loads = load::Plan {
            scale: plan.scale,
            copies,
            near: &near,
            seed: plan.seed,
            now: ORIGIN_MS,
        };
        load::load(&first, &catalog, &cache, &loads).await?;
        let mut databases = Vec::new();
        for number in 0..copies {
            let (machine, cache) = (cluster.machine(number as usize), Cache::new(CACHE_BYTES));
            let opened = load::run(&machine, async |tx| {
                let catalog = Catalog::open(tx, catalog.root(), &cache).await?;
                Tpcc::open(tx, &catalog, number, &cache).await
            });
            databases.push(opened.await?);
        }
        Ok(databases)
    }

    /// Runs the mix for a while.
    pub async fn round(&mut self, plan: &Plan, duration: Duration) -> Result<Done, String> {
        self.rounds += 1;
        let (watch, begun) = (Watch::start(), now());
        let warehouses = plan.scale.warehouses;
        let client = |number: u32| {
            let warehouse = number % warehouses + 1;
            // The loader has put the warehouse there.
            let machine = warehouse as usize % self.cluster.engines.len();
            let district = number / warehouses % u32::from(plan.scale.districts) + 1;
            let seed = plan.seed ^ (u64::from(number + 1) << 20) ^ (u64::from(self.rounds) << 52);
            Client {
                engine: &self.cluster.engines[machine],
                db: &self.databases[machine],
                mode: self.cluster.mode,
                terminal: Terminal::new(plan.scale, warehouse, district as u8, seed),
                until: begun + duration,
                begun,
            }
        };
        let clients = (0..plan.clients).map(|number| client(number).run());
        let mut done = Done::default();
        for outcome in join_all(clients).await {
            done.merge(outcome?);
        }
        done.spent = watch.stop();
        Ok(done)
    }

    /// Consistency conditions 1 to 10 and 12 and the structures; with `is_new` the eleventh too. A line for each thing
    /// that is wrong.
    pub async fn verify(&self, is_new: bool) -> Vec<String> {
        self.try_verify(is_new)
            .await
            .unwrap_or_else(|error| vec![format!("the check cannot be carried out: {error}")])
    }

    async fn try_verify(&self, is_new: bool) -> StructureResult<Vec<String>> {
        let (db, tx) = (&self.databases[0], self.cluster.reader().await?);
        let mut broken = check(db, &tx).await?;
        if is_new {
            broken.extend(check_loaded(db, &tx).await?);
            return Ok(broken);
        }
        for warehouse in db.warehouses() {
            for (name, tree) in warehouse.trees() {
                if let Err(error) = tree.check(&tx).await {
                    broken.push(format!("{name} of warehouse {}: {error}", warehouse.id));
                }
            }
            warehouse.customers.check(&tx).await?;
            warehouse.stock.check(&tx).await?;
        }
        Ok(broken)
    }
}

impl Client<'_> {
    async fn run(mut self) -> Result<Done, String> {
        let mut done = Done::default();
        while now() < self.until {
            let input = self.terminal.next_input();
            let begun = now();
            if self.carry_out(&input, &mut done.aborts).await? {
                let latencies = done.kinds.entry(input.name()).or_default();
                latencies.add(begun.elapsed());
            }
            yield_now().await;
        }
        Ok(done)
    }

    /// Tries until it is done. False if the time is over before.
    async fn carry_out(&self, input: &Input, aborts: &mut Aborts) -> Result<bool, String> {
        loop {
            let abort = match self.attempt(input).await {
                Ok(()) => return Ok(true),
                Err(Error::Abort(abort)) if abort.is_retryable() => abort,
                Err(error) => return Err(failed(input.name(), error)),
            };
            aborts.add(format!("{abort:?}"));
            if now() >= self.until {
                return Ok(false);
            }
            match abort {
                Abort::Full => sleep(FULL_PAUSE).await,
                _ => yield_now().await,
            }
        }
    }

    async fn attempt(&self, input: &Input) -> StructureResult<()> {
        let options = match input {
            Input::OrderStatus(_) | Input::StockLevel(_) => self.mode.reading(),
            _ => self.mode.writing(),
        };
        let tx = self.engine.begin(options).await?;
        let time_ms = ORIGIN_MS + self.begun.elapsed().as_millis() as u64;
        if carry_out(self.db, &tx, input, time_ms).await? == Ending::Commit {
            tx.commit().await?;
        }
        Ok(())
    }
}

/// What the rounds of a side have given.
#[derive(Default)]
struct Rounds {
    total: Done,
    a_core: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, done: Done) {
        self.a_core.push(done.new_orders_a_core());
        self.total.merge(done);
    }

    fn figure(&self, mode: Mode, first: &Rounds) -> Value {
        let done = &self.total;
        let kinds: BTreeMap<_, _> = done.kinds.iter().map(|(k, l)| (*k, l.to_json())).collect();
        let tries = done.transactions() + done.aborts.count();
        json!({
            "mode": mode.name(),
            "new_orders_a_second": done.spent.a_second(done.count(NEW_ORDER)),
            "new_orders_a_second_and_core": done.new_orders_a_core(),
            "new_orders_a_second_and_core_by_round": self.a_core,
            "transactions": done.transactions(),
            "aborts": done.aborts.to_json(),
            "aborted_share": done.aborts.count() as f64 / tries.max(1) as f64,
            "wall_s": done.spent.wall_s,
            "cpu_s": done.spent.cpu_s,
            "ratio_to_first": ratio(&self.a_core, &first.a_core),
            "latency": kinds,
        })
    }
}

fn line(figure: &Value) -> String {
    let number = |field: &str| figure[field].as_f64().unwrap_or_default();
    let mut text = format!(
        "{:<12} {:>9.0} new orders/s  {:>9.0} a core  {:>6.3} of the first  {:.4} % aborted",
        figure["mode"].as_str().unwrap_or_default(),
        number("new_orders_a_second"),
        number("new_orders_a_second_and_core"),
        number("ratio_to_first"),
        100.0 * number("aborted_share"),
    );
    for (kind, latency) in figure["latency"].as_object().into_iter().flatten() {
        let us = |field: &str| latency[field].as_f64().unwrap_or_default();
        text += &format!(
            "\n    {kind:<14} {:>9}  p50 {:>8.0} us  p99 {:>8.0} us",
            latency["count"],
            us("p50_us"),
            us("p99_us"),
        );
    }
    text
}

/// Memory for objects was full: the figures are those of a machine that refuses.
fn full(mode: Mode, done: &Done) -> Option<String> {
    let keeps = matches!(mode.policy(), Policy::MvTruncate | Policy::SingleVersion);
    let is_full = done.aborts.to_json()["Full"].as_u64() > Some(0);
    (keeps && is_full).then(|| "the memory was full; give more with --region-mib".into())
}

/// Loads a database for each mode, runs the mix on them by turns, and checks them before and after. `tell` hears what
/// is done. Errors are a line for the user.
pub fn run<'a>(plan: &'a Plan, tell: &'a dyn Fn(&str)) -> Boxed<'a, Result<Report, String>> {
    Box::pin(async move {
        plan.machines.check_at(&plan.place).await?;
        let mut report = Report::new("tpcc", plan.settings());
        let mut sides = Vec::new();
        for mode in &plan.modes {
            tell(&format!(
                "loading {} warehouses: {}",
                plan.scale.warehouses,
                mode.name()
            ));
            let mut side = Side::load(plan, *mode).await?;
            report.add_broken(mode.name(), side.verify(true).await);
            if plan.warmup > Duration::ZERO {
                side.round(plan, plan.warmup).await?;
            }
            sides.push((side, Rounds::default()));
        }
        for round in 1..=plan.rounds {
            tell(&format!("round {round} of {}", plan.rounds));
            for (side, rounds) in &mut sides {
                rounds.add(side.round(plan, plan.duration).await?);
            }
        }
        tell("checking conditions 1 to 12");
        for (side, rounds) in &sides {
            let mode = side.cluster.mode;
            report.add_broken(mode.name(), side.verify(false).await);
            report.add_broken(mode.name(), full(mode, &rounds.total).into_iter().collect());
            let figure = rounds.figure(mode, &sides[0].1);
            let line = line(&figure);
            report.add(figure, line);
        }
        Ok(report)
    })
}
