//! Floor 8: the in-memory engine with what is built on it, checked in the simulator: structures, keys and values,
//! TPC-C, and a graph on several machines. In one configuration nobody fails; in a storm machines are killed, paused
//! and cut off, and configurations follow each other; in a durable one the power fails too, and the cluster comes back
//! from its disks. A seed chooses everything.
//!
//! ```text
//!   keys, pairs ── transactions on a tree, a table, keys and values ──▶ log ──▶ a map with timestamps
//!   orders ─────── TPC-C, its conditions at snapshots                    └────▶ `plinth-farm-judge`
//!   graph ──────── transactions and queries on a graph ──▶ log ──▶ a graph in maps, with timestamps
//!      └── world: machines, their clocks and memory; replicas are equal in the end
//! ```
//!
//! What is judged:
//! - Every read and every scan, of aborted transactions too, shows the map at the read timestamp, to which committed
//!   transactions were applied in the order of their write timestamps; and the same map just before the own one.
//! - The history of keys is opaque, and heeds real time (`plinth-farm-judge`).
//! - In the end the structures are sound, hold the map, and all replicas are equal.
//! - No read is too old while the policy keeps all old versions (mv-block, mv-abort).
//! - Every answer of a graph, in the same way, is that of plain maps. A query whose stages are evaluated on the
//!   machines that have the vertices answers what it answers in one place.
//! - The conditions of TPC-C hold after the load, at snapshots during the run, and in the end.
//! - After a storm the cluster heals. A transaction whose client has died has happened as a whole or not at all.
//!
//! Not here: transactions under snapshot isolation that write; keys and values, and graphs, in a storm.

mod choose;
mod graph;
mod insist;
mod keys;
mod log;
mod notes;
mod orders;
mod pairs;
mod storm;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// What runs on the machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Transactions on a tree and a hash table.
    Structures,
    /// Transactions on keys and values.
    Pairs,
    /// TPC-C.
    Orders,
    /// Transactions and queries on a graph.
    Graph,
    /// The first while machines fail.
    StructuresInStorm,
    /// TPC-C while machines fail.
    OrdersInStorm,
    /// Both on disks, while the power fails too.
    DurableStructures,
    DurableOrders,
}

impl Workload {
    pub const ALL: [Workload; 8] = [
        Workload::Structures,
        Workload::Pairs,
        Workload::Orders,
        Workload::Graph,
        Workload::StructuresInStorm,
        Workload::OrdersInStorm,
        Workload::DurableStructures,
        Workload::DurableOrders,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Workload::Structures => "structures",
            Workload::Pairs => "pairs",
            Workload::Orders => "orders",
            Workload::Graph => "graph",
            Workload::StructuresInStorm => "structures-storm",
            Workload::OrdersInStorm => "orders-storm",
            Workload::DurableStructures => "structures-durable",
            Workload::DurableOrders => "orders-durable",
        }
    }

    pub fn of_name(name: &str) -> Option<Workload> {
        Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
    }
}

/// What a run has shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// Transactions that wrote and committed; with TPC-C, all that were done.
    pub committed: usize,
    /// Reads that were judged; with TPC-C, snapshots during the run at which all conditions held.
    pub judged: usize,
    /// How many transactions have ended with each error; with a graph, also how many queries were evaluated where the
    /// vertices are.
    pub aborts: BTreeMap<String, u64>,
    /// The same for runs that are the same.
    pub fingerprint: u64,
}

/// What a run has shown to be wrong, with the command that shows it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub workload: Workload,
    pub seed: u64,
    pub what: String,
    /// The planted fault, if there was one.
    pub planted: Option<&'static str>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seed) = (self.workload.name(), self.seed);
        let planted = self.planted.unwrap_or_default();
        write!(
            f,
            "{}; again: cargo run -p plinth-farm-check --example farm_seeds -- {name} {seed} 1 {planted}",
            self.what
        )
    }
}

/// Runs one seed.
pub fn run(workload: Workload, seed: u64) -> Result<Shown, Violation> {
    let shown = match workload {
        Workload::Structures => run_keys(keys::Kind::TreeAndTable, seed),
        Workload::Pairs => run_keys(keys::Kind::Pairs, seed),
        Workload::Orders => run_orders(seed),
        Workload::Graph => run_graph(seed),
        Workload::StructuresInStorm => storm_over_keys(seed, false),
        Workload::OrdersInStorm => storm_over_orders(seed, false),
        Workload::DurableStructures => storm_over_keys(seed, true),
        Workload::DurableOrders => storm_over_orders(seed, true),
    };
    let planted = plinth_runtime::fault::all();
    let mut planted = planted.into_iter().map(|fault| fault.name);
    shown.map_err(|what| Violation {
        workload,
        seed,
        what,
        planted: planted.find(|name| plinth_runtime::fault::is_planted(name)),
    })
}

fn run_keys(kind: keys::Kind, seed: u64) -> Result<Shown, String> {
    let work = Rc::new(keys::Keys::new(kind));
    let (world, fingerprint) = world::run(seed, &work)?;
    let summary = work.judge()?;
    Ok(Shown {
        committed: summary.committed,
        judged: summary.reads,
        aborts: world.aborts.borrow().clone(),
        fingerprint,
    })
}

fn run_orders(seed: u64) -> Result<Shown, String> {
    let work = Rc::new(orders::Orders::default());
    let (world, fingerprint) = world::run(seed, &work)?;
    Ok(Shown {
        committed: work.done.get(),
        judged: work.audits.get(),
        aborts: world.aborts.borrow().clone(),
        fingerprint,
    })
}

fn run_graph(seed: u64) -> Result<Shown, String> {
    let work = Rc::new(graph::Graphs::default());
    let (world, fingerprint) = world::run(seed, &work)?;
    let (judged, committed) = work.judge()?;
    let mut aborts = world.aborts.borrow().clone();
    aborts.insert("shipped".to_owned(), work.shipped.get() as u64);
    Ok(Shown {
        committed,
        judged,
        aborts,
        fingerprint,
    })
}

fn storm_over_keys(seed: u64, is_durable: bool) -> Result<Shown, String> {
    let work = Rc::new(keys::Keys::new(keys::Kind::TreeAndTable));
    let (storm, fingerprint) = storm::run(seed, &work, is_durable)?;
    if storm.is_lost() {
        return Ok(storm.shown(fingerprint));
    }
    let unknown = work
        .log
        .resolve(|id| work.notes.find(id, |at| storm.object(at)));
    let summary = work.judge()?;
    let mut shown = storm.shown(fingerprint);
    (shown.committed, shown.judged) = (summary.committed, summary.reads);
    shown.aborts.insert("unheard".to_owned(), unknown as u64);
    Ok(shown)
}

fn storm_over_orders(seed: u64, is_durable: bool) -> Result<Shown, String> {
    let work = Rc::new(orders::Orders::default());
    let (storm, fingerprint) = storm::run(seed, &work, is_durable)?;
    let mut shown = storm.shown(fingerprint);
    (shown.committed, shown.judged) = (work.done.get(), work.audits.get());
    Ok(shown)
}

#[cfg(test)]
mod tests;
