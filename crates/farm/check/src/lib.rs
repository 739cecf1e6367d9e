//! The in-memory engine with what is built on it, checked in the simulator: structures, keys and values,
//! TPC-C, and a graph on several machines. In one configuration nobody fails; in a storm machines are killed, paused
//! and cut off, and configurations follow each other; in a durable one the power fails too, and the cluster comes back
//! from its disks. A seed chooses everything. `plinth tools sim` runs it where this crate is linked (`simulated.rs`).
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
//! - Who frees an object twice is told.
//! - After a storm the cluster heals. A process whose clock has jumped has left, with no wrong read before. A
//!   transaction whose client has died has happened as a whole or not at all.
//!
//! Not here: transactions under snapshot isolation that write.

mod choose;
mod clients;
mod graph;
mod insist;
mod keys;
mod log;
mod notes;
mod orders;
mod pairs;
mod simulated;
mod storm;
mod twice;
mod world;

use graph::Graphs;
use keys::{Keys, Kind};
use orders::Orders;
use plinth_core::words;
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::sim::worlds::Limits;
use plinth_runtime::sim::{SimConfig, Simulation, control};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use storm::Storm;
use world::{Work, World};

words! {
    /// What runs on the machines, by its name in `plinth tools sim`.
    pub enum Workload {
        /// Transactions on a tree and a hash table.
        Structures = "farm_structures",
        /// Transactions on keys and values.
        Pairs = "farm_pairs",
        /// TPC-C.
        Orders = "farm_orders",
        /// Transactions and queries on a graph.
        Graph = "farm_graph",
        /// The first while machines fail.
        StructuresInStorm = "farm_structures_storm",
        /// Keys and values while machines fail.
        PairsInStorm = "farm_pairs_storm",
        /// TPC-C while machines fail.
        OrdersInStorm = "farm_orders_storm",
        /// A graph while machines fail.
        GraphInStorm = "farm_graph_storm",
        /// A tree and a table on disks, while the power fails too.
        DurableStructures = "farm_structures_durable",
        /// TPC-C, in the same way.
        DurableOrders = "farm_orders_durable",
        /// The structures in a durable cluster whose backups are on disk only, with primaries that load slowly.
        StructuresOnDisk = "farm_structures_on_disk",
        /// TPC-C, in the same way.
        OrdersOnDisk = "farm_orders_on_disk",
    }
}

impl Workload {
    fn is_stormy(self) -> bool {
        use Workload::{GraphInStorm, OrdersInStorm, PairsInStorm, StructuresInStorm};
        let is_in_memory = matches!(
            self,
            StructuresInStorm | PairsInStorm | OrdersInStorm | GraphInStorm
        );
        is_in_memory || self.is_durable()
    }

    fn is_durable(self) -> bool {
        use Workload::{DurableOrders, DurableStructures};
        matches!(self, DurableStructures | DurableOrders) || self.is_on_disk()
    }

    fn is_on_disk(self) -> bool {
        use Workload::{OrdersOnDisk, StructuresOnDisk};
        matches!(self, StructuresOnDisk | OrdersOnDisk)
    }
}

/// What the run of a seed draws: how many machines, and the kinds of fault that strike.
fn drawn(workload: Workload, seed: u64, limits: &Limits) -> (usize, Vec<&'static str>) {
    let is_stormy = workload.is_stormy();
    let faults = match is_stormy {
        true => storm::kinds(seed, workload.is_durable(), limits),
        false => Vec::new(),
    };
    (world::machines(seed, is_stormy, limits), faults)
}

/// Names of all kinds of fault.
fn fault_kinds() -> Vec<&'static str> {
    storm::all_kinds().collect()
}

/// How a run is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// A promise is broken.
    Broken(String),
    /// What should have come does not come.
    Hangs(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Wrong::Broken(what) | Wrong::Hangs(what)) = self;
        f.write_str(what)
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
    pub what: Wrong,
    /// The planted fault, if there was one.
    pub planted: Option<&'static str>,
    /// The last events of the run.
    pub trace_tail: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seed) = (self.workload.name(), self.seed);
        write!(f, "{}; again: ", self.what)?;
        write!(
            f,
            "plinth tools sim run --seed {seed} --scenario farm --workloads {name}"
        )?;
        match self.planted {
            Some(planted) => write!(f, " --planted-fault {planted}"),
            None => Ok(()),
        }
    }
}

/// The simulated world of a seed. Only [`run_in`] it.
fn config(seed: u64) -> SimConfig {
    world::config(seed)
}

/// Runs one seed.
pub fn run(workload: Workload, seed: u64) -> Result<Shown, Violation> {
    let sim = Simulation::new(seed, config(seed));
    let run = async move { run_in(workload, seed, &Limits::default()).await };
    let planted = plinth_runtime::fault::all();
    let mut planted = planted.into_iter().map(|fault| fault.name);
    sim.run(run).result.map_err(|what| Violation {
        workload,
        seed,
        what,
        planted: planted.find(|name| plinth_runtime::fault::is_planted(name)),
        trace_tail: sim.trace_tail(),
    })
}

/// Runs a seed as the tester of a simulation that has its [`config`], and nothing else in it.
async fn run_in(workload: Workload, seed: u64, limits: &Limits) -> Result<Shown, Wrong> {
    let mut world = World::new(seed, workload.is_stormy(), limits);
    world.is_durable = workload.is_durable();
    world.is_on_disk = workload.is_on_disk();
    if world.is_durable {
        set_knobs(small_disks(seed));
    }
    let shown = match workload {
        Workload::Structures
        | Workload::StructuresInStorm
        | Workload::DurableStructures
        | Workload::StructuresOnDisk => {
            run_work(Keys::new(Kind::TreeAndTable), world, limits).await
        }
        Workload::Pairs | Workload::PairsInStorm => {
            run_work(Keys::new(Kind::Pairs), world, limits).await
        }
        Workload::Orders
        | Workload::OrdersInStorm
        | Workload::DurableOrders
        | Workload::OrdersOnDisk => run_work(Orders::default(), world, limits).await,
        Workload::Graph | Workload::GraphInStorm => {
            run_work(Graphs::default(), world, limits).await
        }
    };
    shown.map(|shown| Shown {
        fingerprint: control().fingerprint(),
        ..shown
    })
}

/// Journals that are cut often, backups that are written often, marks of time that are reached, and disks that are
/// given up soon.
fn small_disks(seed: u64) -> Knobs {
    let mut knobs = Knobs::default();
    let seconds = [
        ("farm_time_ahead_seconds", ["0.1", "1", "3600"]),
        ("farm_disk_hang_seconds", ["0.3", "1", "5"]),
    ];
    for (at, (name, choice)) in seconds.into_iter().enumerate() {
        let set = knobs.set(name, choice[(seed as usize / [3, 7][at]) % 3]);
        set.expect("the knob is there, and takes that");
    }
    let bytes = [16 << 10, 32 << 10, 128 << 10][seed as usize / 2 % 3];
    let names = [
        "farm_journal_bytes",
        "farm_journal_segment_bytes",
        "farm_backup_buffer_bytes",
        "farm_backup_line_bytes_max",
    ];
    for name in names {
        let set = knobs.set(name, &bytes.to_string());
        set.expect("the knob is there, and takes that");
    }
    // If backups are on disk, new primaries load slowly enough to be disturbed.
    let slow = [
        ("farm_load_objects", [1, 8, 1024]),
        ("farm_load_pause_us", [2000, 200, 0]),
    ];
    for (name, values) in slow {
        let set = knobs.set(name, &values[seed as usize / 5 % 3].to_string());
        set.expect("the knob is there, and takes that");
    }
    knobs
}

async fn run_work(work: impl Work, world: World, limits: &Limits) -> Result<Shown, Wrong> {
    let (world, work) = (Rc::new(world), Rc::new(work));
    if world.is_stormy {
        let storm = Rc::new(Storm::new(world.clone(), &*work));
        storm::run(&storm, limits, &work).await?;
        if storm.is_lost() {
            return Ok(Shown {
                aborts: world.aborts.take(),
                ..Shown::default()
            });
        }
        let unheard = work.resolve(|at| storm.object(at)) as u64;
        let mut aborts = world.aborts.borrow_mut();
        aborts.insert("unheard".to_owned(), unheard);
    } else {
        world::run(&world, &work).await?;
    }
    let mut shown = work.judge().map_err(Wrong::Broken)?;
    shown.aborts.extend(world.aborts.take());
    Ok(shown)
}
