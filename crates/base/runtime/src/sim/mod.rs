//! The simulated backend: a data center in one thread. Everything random in it is drawn from one seed (FDB §4).
//!
//! ```text
//!   Simulation ─ World ─┬─ executor   tasks, timers, virtual time, the fingerprint of the run
//!                       ├─ machine    machines (clock, disk, power) and the processes on them
//!                       ├─ network    connections, partitions, clogs, cuts, flipped bits
//!                       ├─ disk       names, files, what is durable and what a power cut does to the rest
//!                       ├─ sickness   disks that fail, hang or let nothing be written
//!                       └─ faults     the handle by which tests and workloads break all of the above
//!   worlds   what is run in it by whom: limits, what was drawn, failures, and systems that register worlds
//! ```
//!
//! Time stands still while any task is ready, and jumps to the next event when none is. One generator decides which
//! ready task runs first, how long a message travels, and what survives a power cut. A run ends with a fingerprint of
//! all executed events; the same seed and program give the same one.
//!
//! A process is a closure that is run again at each restart. Its tasks, connections and file handles end with it. Its
//! destructors can neither send nor write: `kill -9` runs no destructors. The code that drives a simulation runs as
//! process 0, on machine 0, which has a perfect clock and never fails.

pub(crate) mod bell;
pub(crate) mod disk;
mod draw;
mod executor;
mod faults;
mod files;
mod ids;
mod image;
mod machine;
mod memory;
mod names;
pub(crate) mod network;
mod pulse;
mod sickness;
pub mod worlds;

pub use draw::Draw;
pub use faults::{Control, KillKind, MachineInfo, ProcessInfo, control};
pub use files::FilesCopy;
pub use ids::{MachineId, ProcessId};
pub use machine::Locality;
pub use sickness::{Hang, Lie, Sickness};

pub(crate) use executor::TimerHandle;

use crate::knobs::{self, EXPENSIVE_CHECKS, KnobSet, Knobs};
use crate::random::{self, Generator};
use crate::{Duration, buggify};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// In runs that draw knobs from within their bounds, the share of knobs so drawn. It is small, to show the effect of
/// each.
const KNOBS_AT_BOUNDS: f64 = 0.05;

/// Parameters of the simulated world. The default has jitter and clock drift, but no faults.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// One-way latency between two machines; most messages are near the low end.
    pub network_latency_us: Range<u64>,
    /// Latency between processes of one machine.
    pub loopback_latency_us: Range<u64>,
    /// Probability that a message takes up to `network_tail_us_max` longer.
    pub network_tail_probability: f64,
    pub network_tail_us_max: u64,
    pub network_bytes_per_us: u64,
    /// Bytes that one direction of a connection holds before its writer must wait.
    pub connection_bytes_max: usize,
    /// A connect without an answer fails after this time.
    pub connect_timeout_ms: u64,
    /// Probability that a piece of a write is cut short. Pieces travel separately.
    pub chunk_split_probability: f64,
    /// Probability that a read returns fewer bytes than have arrived.
    pub short_read_probability: f64,
    /// Probability for each piece that one bit of it is flipped.
    pub bit_flip_probability: f64,
    /// Connections to this port carry somebody else's protocol, which trusts the checksums of the network: no bit of
    /// theirs is flipped.
    pub unchecked_port: Option<u16>,
    /// Probability for each piece that the connection breaks, somewhere in the bytes under way.
    pub connection_cut_probability: f64,
    pub disk_read_us: Range<u64>,
    pub disk_write_us: Range<u64>,
    pub disk_sync_us: Range<u64>,
    pub disk_tail_probability: f64,
    pub disk_tail_us_max: u64,
    /// Greatest deviation of the rate of a machine's clock, in either direction.
    pub clock_drift_ppm_max: u64,
    pub buggify_enabled: bool,
    /// Replaces knobs by extremes, each with `knob_randomise_probability`.
    pub knob_randomise: bool,
    pub knob_randomise_probability: f64,
    /// Probability that some knobs are drawn from all values that operators may set.
    pub knob_bounds_probability: f64,
    /// Probability that a random ready task runs first, not the one that waited longest. `None`: the seed decides.
    pub schedule_randomness: Option<f64>,
    /// Trace events kept for [`Control::trace_tail`].
    pub trace_lines_max: usize,
    /// More polls than this at one point of virtual time count as an endless loop.
    pub polls_per_instant_max: u64,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            network_latency_us: 100..2000,
            loopback_latency_us: 10..60,
            network_tail_probability: 0.001,
            network_tail_us_max: 100_000,
            network_bytes_per_us: 1000,
            connection_bytes_max: 4 << 20,
            connect_timeout_ms: 5000,
            chunk_split_probability: 0.05,
            short_read_probability: 0.02,
            bit_flip_probability: 0.0,
            unchecked_port: None,
            connection_cut_probability: 0.0,
            disk_read_us: 20..150,
            disk_write_us: 10..100,
            disk_sync_us: 100..1500,
            disk_tail_probability: 0.001,
            disk_tail_us_max: 50_000,
            clock_drift_ppm_max: 10_000,
            buggify_enabled: false,
            knob_randomise: false,
            knob_randomise_probability: 0.25,
            knob_bounds_probability: 0.125,
            schedule_randomness: None,
            trace_lines_max: 1000,
            polls_per_instant_max: 10_000_000,
        }
    }
}

impl SimConfig {
    /// With `buggify!` and extreme knobs.
    pub fn hostile() -> SimConfig {
        SimConfig {
            buggify_enabled: true,
            knob_randomise: true,
            ..SimConfig::default()
        }
    }
}

/// The result of a whole run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome<T> {
    pub result: T,
    /// Covers every event executed since the simulation began.
    pub fingerprint: u64,
    pub sim_seconds: f64,
    pub events: u64,
}

/// The whole simulated world. Roles use it through the crate's public functions, tests through [`Simulation`] and
/// [`Control`].
pub(crate) struct World {
    seed: u64,
    config: RefCell<SimConfig>,
    executor: executor::Executor,
    machines: RefCell<Vec<machine::Machine>>,
    processes: RefCell<Vec<machine::Process>>,
    /// The process that is running.
    current: Cell<ProcessId>,
    /// Number of processes whose tasks do not run. If it is zero, no lookup is needed.
    held: Cell<usize>,
    /// Some disk has lied, or an attacker may have interfered.
    has_lied: Cell<bool>,
    network: RefCell<network::Network>,
    names: RefCell<names::Names>,
    trace: RefCell<VecDeque<String>>,
    /// Generator, knobs and buggify seed: the world's while the thread is outside it, the thread's own while it is
    /// inside.
    swapped: RefCell<Option<ThreadState>>,
}

struct ThreadState {
    generator: Generator,
    knobs: KnobSet,
    buggify: Option<u64>,
}

thread_local! {
    static IS_ENTERED: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

#[inline]
pub(crate) fn is_entered() -> bool {
    IS_ENTERED.get()
}

/// True inside a simulation in which no disk has lied and no attacker interferes.
pub(crate) fn nobody_has_lied() -> bool {
    current().is_some_and(|world| !world.has_lied.get())
}

/// The world that this thread is in, if any.
#[inline]
pub(crate) fn current() -> Option<Rc<World>> {
    if !is_entered() {
        return None;
    }
    CURRENT.with(|c| c.borrow().clone())
}

/// The running process; 0 outside a simulation.
pub fn current_process() -> ProcessId {
    current().map_or(ProcessId::TESTER, |world| world.current.get())
}

/// Makes `process` the running process until the guard is dropped. Outside a simulation it does nothing.
pub(crate) fn enter_process(process: ProcessId) -> AsProcess {
    let world = current();
    let previous = world
        .as_ref()
        .map_or(process, |w| w.current.replace(process));
    AsProcess { world, previous }
}

pub(crate) struct AsProcess {
    world: Option<Rc<World>>,
    previous: ProcessId,
}

impl Drop for AsProcess {
    fn drop(&mut self) {
        if let Some(world) = &self.world {
            world.current.set(self.previous);
        }
    }
}

/// A guard: this thread is inside the world while it lives.
struct Entered(Option<Rc<World>>);

impl World {
    fn new(seed: u64, config: SimConfig) -> Rc<World> {
        let mut generator = Generator::new(seed);
        let schedule = config
            .schedule_randomness
            .unwrap_or([0.05, 0.3, 1.0][generator.below(3) as usize]);
        let buggify = config.buggify_enabled.then(|| generator.u64());
        let state = ThreadState {
            generator,
            knobs: KnobSet::default(),
            buggify,
        };
        let world = Rc::new(World {
            seed,
            executor: executor::Executor::new(schedule, config.polls_per_instant_max),
            machines: RefCell::default(),
            processes: RefCell::default(),
            current: Cell::new(ProcessId::TESTER),
            held: Cell::new(0),
            has_lied: Cell::new(false),
            network: RefCell::default(),
            names: RefCell::default(),
            trace: RefCell::default(),
            swapped: RefCell::new(Some(state)),
            config: RefCell::new(config),
        });
        let _entered = world.enter();
        world.add_tester();
        let config = world.config.borrow();
        let mut knobs = Knobs::default();
        if config.knob_randomise {
            knobs.randomise(seed, config.knob_randomise_probability);
            if random::chance(config.knob_bounds_probability) {
                knobs.randomise_within_bounds(seed, KNOBS_AT_BOUNDS);
            }
        }
        // Whatever was drawn: a check that is off in some runs finds less, and nothing more.
        EXPENSIVE_CHECKS.put(&mut knobs, 1);
        knobs::set_knobs(knobs);
        drop(config);
        world
    }

    /// Enters the world, if this thread is not in it already.
    fn enter(self: &Rc<Self>) -> Entered {
        if let Some(entered) = current() {
            assert!(
                Rc::ptr_eq(&entered, self),
                "a simulation cannot be entered from within another"
            );
            return Entered(None);
        }
        self.swap_thread_state();
        CURRENT.set(Some(self.clone()));
        IS_ENTERED.set(true);
        Entered(Some(self.clone()))
    }

    fn swap_thread_state(&self) {
        let new = self.swapped.take().expect("present except during the swap");
        *self.swapped.borrow_mut() = Some(ThreadState {
            generator: random::replace(new.generator),
            knobs: knobs::replace(new.knobs),
            buggify: buggify::replace(new.buggify),
        });
    }

    pub fn keep_trace(&self, line: String) {
        self.executor.record_bytes(line.as_bytes());
        let mut trace = self.trace.borrow_mut();
        while trace.len() >= self.config.borrow().trace_lines_max.max(1) {
            trace.pop_front();
        }
        trace.push_back(line);
    }

    pub fn write_trace_head(&self, line: &mut String) {
        use std::fmt::Write;
        let micros = self.executor.now() / 1000;
        let process = self.current.get().0;
        let _ = write!(
            line,
            "\"time\":{}.{:06},\"process\":{process}",
            micros / 1_000_000,
            micros % 1_000_000
        );
    }

    /// Runs the closure of an `offload` in place, before or after a delay, because a pool promises neither.
    pub async fn offload<T>(self: &Rc<Self>, work: impl FnOnce() -> T) -> T {
        let delay_ns = random::range(2_000..60_000);
        if random::chance(0.5) {
            let output = work();
            self.sleep_ns(delay_ns).await;
            return output;
        }
        self.sleep_ns(delay_ns).await;
        work()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(world) = self.0.take() {
            IS_ENTERED.set(false);
            CURRENT.set(None);
            world.current.set(ProcessId::TESTER);
            world.swap_thread_state();
        }
    }
}

/// A simulated world, with the means to run it. It has all methods of [`Control`], too.
pub struct Simulation {
    world: Rc<World>,
    control: Control,
}

impl Deref for Simulation {
    type Target = Control;
    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Simulation {
    pub fn new(seed: u64, config: SimConfig) -> Simulation {
        let world = World::new(seed, config);
        let control = Control::new(&world);
        Simulation { world, control }
    }

    pub fn seed(&self) -> u64 {
        self.world.seed
    }

    /// Runs `main` as the tester, with every started process around it, until it returns. Panics on a deadlock.
    ///
    /// `main` should be an `async` block. Expressions outside it, such as the deadline of a bare `sleep(d)`, would be
    /// evaluated outside the simulation, on the real clock.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Outcome<T> {
        let Some(result) = self.run_as(ProcessId::TESTER, u64::MAX, main) else {
            panic!(
                "deadlock: no task is ready and no timer is set, seed {}",
                self.world.seed
            );
        };
        Outcome {
            result,
            fingerprint: self.fingerprint(),
            sim_seconds: self.elapsed().as_secs_f64(),
            events: self.events(),
        }
    }

    /// Like [`run`](Self::run), for at most `limit` of virtual time; `None` if that was not enough.
    pub fn run_until<T: 'static>(
        &self,
        main: impl Future<Output = T> + 'static,
        limit: Duration,
    ) -> Option<T> {
        let deadline = self
            .world
            .executor
            .now()
            .saturating_add(limit.as_nanos() as u64);
        self.run_as(ProcessId::TESTER, deadline, main)
    }

    /// Runs `main` as a new process on `machine`, with that machine's clock and disk, for at most an hour of virtual
    /// time. The process is killed afterwards. `None` if it was killed before, or did not finish.
    pub fn run_on<T: 'static>(
        &self,
        machine: MachineId,
        main: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        const LIMIT_NS: u64 = 3_600_000_000_000;
        let process = {
            let _entered = self.world.enter();
            self.world.add_process(machine, None)
        };
        let output = self.run_as(process, self.world.executor.now() + LIMIT_NS, main);
        self.kill_process(process, KillKind::Kill);
        output
    }

    fn run_as<T: 'static>(
        &self,
        process: ProcessId,
        deadline_ns: u64,
        main: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let world = &self.world;
        let _entered = world.enter();
        let task = {
            let _as_process = enter_process(process);
            world.start("main", main)
        };
        let run = AssertUnwindSafe(|| {
            while !task.is_finished() {
                if !world.step(deadline_ns) {
                    break;
                }
            }
        });
        if let Err(panic) = catch_unwind(run) {
            eprintln!(
                "simulation failed: seed {}, {}",
                world.seed,
                world.describe_running()
            );
            // Destructors of a broken world may panic again. A leak is better than an abort.
            std::mem::forget(task);
            resume_unwind(panic);
        }
        task.take_output()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(self.world.clone());
            return;
        }
        let _entered = self.world.enter();
        self.world.shut_down();
    }
}

#[cfg(test)]
mod tests;
