//! Machines in the simulator, with clocks that drift, over a network that delays, in one configuration.

use crate::{Limits, Shown, Wrong};
use plinth_farm_engine::testing::clocks::{hear_time, keep_time, new_clock};
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::testing::machines::{address, fabric_of, faults_of_the_end, settings};
use plinth_farm_engine::{Engine, Policy, View};
use plinth_farm_fabric::{Fabric, Layout, Machine};
use plinth_farm_memory::{Abort, Pointer, Sizes};
use plinth_runtime::sim::{Locality, SimConfig, control};
use plinth_runtime::{Duration, TaskGroup, sleep};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

pub const REGIONS: u16 = 4;
const REPLICAS: u16 = 3;
const POLICIES: [Policy; 4] = [
    Policy::MvTruncate,
    Policy::MvBlock,
    Policy::MvAbort,
    Policy::SingleVersion,
];
/// Simulated time until a run is said to hang.
const LIMIT_MS: u64 = 120_000;

/// What happens on the machines of a world. Everything is called in the process of the machine.
pub trait Work: 'static {
    fn sizes(&self, world: &World) -> Sizes;

    /// Words of a ring: no transaction may be larger.
    fn ring_words(&self) -> u64;

    /// On the first machine, before all others.
    fn prepare(&self, world: &World, engine: &Rc<Engine<Any>>) -> impl Future<Output = ()>;

    /// On each machine.
    fn work(self: Rc<Self>, world: Rc<World>, engine: Rc<Engine<Any>>) -> impl Future<Output = ()>;

    /// On the first machine, after all others.
    fn finish(&self, world: &World, engine: &Rc<Engine<Any>>) -> impl Future<Output = ()>;

    /// Finds out what became of the transactions whose clients were not told, by what they have left in objects, which
    /// `object` reads. Returns how many those are.
    fn resolve(&self, object: impl Fn(Pointer) -> Option<(u64, Vec<u8>)>) -> usize;

    /// Judges what all transactions have seen.
    fn judge(&self) -> Result<Shown, String>;
}

/// Memory of a machine: so many slabs of a region, and so many blocks of old versions, all of so many words.
pub fn sizes(words: u64, slabs: u64, blocks: u64) -> Sizes {
    Sizes {
        slots: REGIONS,
        region_words: slabs * words,
        slab_words: words,
        old_words: blocks * words,
        block_words: words,
    }
}

/// What is outside of all machines.
pub struct World {
    pub seed: u64,
    pub machines: usize,
    pub policy: Policy,
    /// Memory gets full.
    pub is_small: bool,
    /// All machines are of one host, and share its memory.
    pub is_one_host: bool,
    /// The greatest delay of a message.
    pub latency: Duration,
    /// Machines fail, and configurations follow each other.
    pub is_stormy: bool,
    /// Machines have disks, and all of them may fail at once.
    pub is_durable: bool,
    /// Backups are on disk only.
    pub is_on_disk: bool,
    /// The storm is over: clients come to their ends.
    pub is_calm: Cell<bool>,
    /// How many transactions have ended with each error.
    pub aborts: RefCell<BTreeMap<String, u64>>,
    wrong: RefCell<Option<Wrong>>,
    /// Machines that have come so far.
    ready: Cell<usize>,
    is_over: Cell<bool>,
    engines: RefCell<Vec<Rc<Engine<Any>>>>,
}

/// One-way latencies between two machines, in microseconds.
fn latencies(seed: u64) -> Range<u64> {
    [5..50, 20..300, 50..1000][seed as usize % 3].clone()
}

/// The simulated world of a seed, whatever runs in it.
pub fn config(seed: u64) -> SimConfig {
    SimConfig {
        clock_drift_ppm_max: 499,
        network_latency_us: latencies(seed),
        ..SimConfig::default()
    }
}

/// How many machines a run has.
pub fn machines(seed: u64, is_stormy: bool, limits: &Limits) -> usize {
    let drawn = match is_stormy {
        true => 4 + seed as usize % 2,
        false => 3 + seed as usize % 3,
    };
    drawn.min(limits.machines.unwrap_or(drawn).max(1))
}

impl World {
    pub fn new(seed: u64, is_stormy: bool, limits: &Limits) -> World {
        World {
            seed,
            latency: Duration::from_micros(latencies(seed).end),
            is_stormy,
            is_durable: false,
            is_on_disk: false,
            is_calm: Cell::new(false),
            machines: machines(seed, is_stormy, limits),
            policy: POLICIES[seed as usize / 3 % 4],
            is_small: seed / 12 % 2 == 1,
            is_one_host: seed % 5 == 4,
            aborts: RefCell::default(),
            wrong: RefCell::default(),
            ready: Cell::new(0),
            is_over: Cell::new(false),
            engines: RefCell::default(),
        }
    }

    /// A promise is broken. The first thing that is wrong counts.
    pub fn blame(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(Wrong::Broken(what));
    }

    /// What should have come does not come.
    pub fn hangs(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(Wrong::Hangs(what));
    }

    pub fn is_blamed(&self) -> bool {
        self.wrong.borrow().is_some()
    }

    /// A transaction has ended with this error, in which it may end while nobody fails.
    pub fn aborted(&self, abort: Abort) {
        let keeps_all = matches!(self.policy, Policy::MvBlock | Policy::MvAbort);
        match abort {
            // A new primary has no old versions.
            Abort::TooOld | Abort::Failed | Abort::Unknown | Abort::Left if self.is_stormy => {
                self.count(&format!("{abort:?}"));
            }
            Abort::TooOld if keeps_all => self.blame(format!("with {:?}: {abort}", self.policy)),
            Abort::Conflict | Abort::Full | Abort::TooOld => self.count(&format!("{abort:?}")),
            abort => self.blame(format!("while nobody fails: {abort}")),
        }
    }

    /// Whether the client of a machine that has carried out so many transactions goes on.
    pub fn goes_on(&self, done: usize, most: usize) -> bool {
        let has_more = match self.is_stormy {
            true => !self.is_calm.get(),
            false => done < most,
        };
        has_more && !self.is_blamed()
    }

    /// Whether this machine's transactions may end so because it has failed: its clients end.
    pub fn is_excused(&self, abort: Abort) -> bool {
        self.is_stormy && matches!(abort, Abort::Left | Abort::Unknown)
    }

    pub fn verdict(&self) -> Result<(), Wrong> {
        self.wrong.borrow().clone().map_or(Ok(()), Err)
    }

    /// Counts what has happened, for the report of a run.
    pub fn count(&self, what: &str) {
        *self.aborts.borrow_mut().entry(what.to_owned()).or_default() += 1;
    }

    pub fn view(&self) -> View {
        let machines = self.machines as u16;
        View::first(machines, REGIONS, REPLICAS.min(machines), |region, _| {
            region
        })
    }

    /// Waits until all machines have come so far.
    async fn barrier(&self, step: usize) {
        self.ready.set(self.ready.get() + 1);
        while self.ready.get() < step * self.machines {
            sleep(Duration::from_micros(200)).await;
        }
    }

    async fn check_end(&self) {
        let engines = self.engines.borrow().clone();
        for fault in faults_of_the_end(&engines, &self.view()).await {
            self.blame(fault);
        }
    }
}

/// The engine of a machine that has found all others.
async fn start<W: Work>(
    world: &Rc<World>,
    work: &W,
    which: u16,
    group: &TaskGroup,
) -> Rc<Engine<Any>> {
    let (own, sizes) = (Machine(which), work.sizes(world));
    let layout = Layout {
        machines: world.machines,
        ring_words: work.ring_words(),
        region_words: sizes.region_words(),
    };
    let fabric = fabric_of(own, &layout, world.is_one_host, group).await;
    let view = world.view();
    let configured = fabric.configure(1, &view.machines).await;
    configured.expect("the first");
    world.barrier(1).await;
    for other in &view.machines {
        fabric.open(*other).await.expect("it serves");
    }
    let clock = new_clock(own);
    let settings = settings(world.latency);
    let policy = world.policy;
    let engine = Engine::start(fabric.clone(), clock.clone(), view, sizes, policy, settings);
    let engine = Rc::new(engine.expect("memory that fits"));
    hear_time(&engine, &clock);
    world.engines.borrow_mut().push(engine.clone());
    world.barrier(2).await;
    group.spawn("time", keep_time(world.view(), clock, fabric));
    engine
}

async fn live<W: Work>(world: Rc<World>, work: Rc<W>, which: u16) {
    let group = TaskGroup::new();
    let engine = start(&world, &*work, which, &group).await;
    if which == 0 {
        work.prepare(&world, &engine).await;
    }
    world.barrier(3).await;
    if !world.is_blamed() {
        work.clone().work(world.clone(), engine.clone()).await;
    }
    world.barrier(4).await;
    if which == 0 {
        if !world.is_blamed() {
            work.finish(&world, &engine).await;
        }
        world.is_over.set(true);
    }
    std::future::pending::<()>().await;
}

/// Runs the work on the machines of a world. The tester of a simulation calls it.
pub async fn run<W: Work>(world: &Rc<World>, work: &Rc<W>) -> Result<(), Wrong> {
    let mut host = None;
    for which in 0..world.machines as u16 {
        let one = host.filter(|_| world.is_one_host);
        let id = one.unwrap_or_else(|| control().add_machine(Locality::default()));
        host = Some(id);
        let (world, work) = (world.clone(), work.clone());
        let live = move || Box::pin(live(world.clone(), work.clone(), which)) as _;
        control().start_process(id, address(which), live);
    }
    for _ in 0..LIMIT_MS {
        if world.is_over.get() || world.is_blamed() {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    match world.is_over.get() {
        true => world.check_end().await,
        false => world.hangs("it does not end".to_owned()),
    }
    world.verdict()
}
