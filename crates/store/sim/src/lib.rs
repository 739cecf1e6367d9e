//! Whole clusters under simulation, with faults and oracles (FDB §4).
//!
//! One run is one seed. The seed decides the shape of a cluster, its knobs, its faults and its workloads. Faults and
//! workloads run for a while (the *safety* phase). Then everything is healed and the cluster must serve again within
//! a bound (the *liveness* phase). At last every oracle checks the result. The same seed gives the same run; some
//! seeds are run twice to check this.
//!
//! - [`scenario`]: the kinds of cluster, faults and workloads that a run draws from.
//! - `cluster`: the simulated machines and the workers on them.
//! - `faults`: the kinds of fault, and how often each strikes.
//! - `attrition`: when and how they strike.
//! - `protection`: decides which machines may be lost for good.
//! - [`workloads`]: the work of clients, each with its oracle.
//! - `applications`: services on top of the store, as far as they are linked.
//! - `idle`: checks that after idle hours every list is as short as at the start.
//! - `loss`: checks that lost data is never taken for data that never existed.
//! - `damage`: checks that damage in several copies at once loses nothing that some copy can read.
//! - `names`: machines that change their addresses.
//! - `ready`: checks that processes say that they are ready exactly while commits go through.
//! - `stale`: checks that status counts only copies that could be read.
//! - `consistency`: checks that all replicas hold the same data.
//! - `store`: what is the store's, of all that is linked.
//! - [`shrink`](mod@shrink): reduces a failing run.
//! - [`hunt`](mod@hunt): runs many seeds, several at a time.
//!
//! This crate names no service: a program has those that it links. Applications on top of the store register
//! themselves in `plinth-workload`, systems that stand on nothing of it in [`plinth_runtime::sim::worlds`].

mod applications;
mod attrition;
mod cluster;
mod consistency;
mod damage;
mod faults;
pub mod hunt;
mod idle;
mod last_moment;
mod lies;
mod loss;
mod missing;
mod names;
mod patience;
mod phases;
mod protection;
mod ready;
pub mod scenario;
pub mod shrink;
mod stale;
mod store;
mod strangers;
mod words;
pub mod workloads;

use plinth_runtime::sim::Simulation;
use plinth_runtime::sim::worlds::Run;
use plinth_runtime::{Duration, Either, fault, gauge, probe, tally};
use plinth_workload::Application;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

pub use hunt::{HuntOptions, HuntReport, hunt};
pub use plinth_runtime::sim::worlds::{Drawn, Failure, FailureKind, Limits};
use scenario::Service;
pub use scenario::{Scenario, scenarios};
pub use shrink::shrink;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub seed: u64,
    /// A name of [`scenarios`].
    pub scenario: String,
    /// Keep every event for [`Outcome::trace_tail`] instead of the last ones only.
    pub verbose: bool,
    /// A name of [`plinth_runtime::fault::all`]; only test builds have the switches.
    pub planted_fault: Option<String>,
    /// Run twice and compare the fingerprints.
    pub check_determinism: bool,
    /// No limit in wall time: for a run under a debugger.
    pub may_take_long: bool,
    /// Limits on what the seed draws.
    pub limits: Limits,
}

impl RunOptions {
    pub fn new(seed: u64, scenario: &str) -> Self {
        RunOptions {
            seed,
            scenario: scenario.to_owned(),
            verbose: false,
            planted_fault: None,
            check_determinism: false,
            may_take_long: false,
            limits: Limits::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub scenario: String,
    pub planted_fault: Option<String>,
    /// With the service of the run, also if the seed has drawn it: in another program it would draw among others.
    pub limits: Limits,
    pub drawn: Drawn,
    pub result: Result<(), Failure>,
    pub fingerprint: u64,
    pub sim_seconds: f64,
    pub wall_seconds: f64,
    /// Rare paths that were taken, and how often.
    pub probes: BTreeMap<&'static str, u64>,
    /// The last events, one JSON object a line.
    pub trace_tail: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = if self.result.is_ok() { "pass" } else { "fail" };
        write!(
            f,
            "seed={} scenario={} result={result} fingerprint={:016x} sim_seconds={:.1} wall_seconds={:.2}",
            self.seed, self.scenario, self.fingerprint, self.sim_seconds, self.wall_seconds
        )
    }
}

impl Outcome {
    /// A command that reproduces the run.
    pub fn command(&self) -> String {
        let planted = match &self.planted_fault {
            Some(name) => format!(" --planted-fault {name}"),
            None => String::new(),
        };
        format!(
            "plinth tools sim run --seed {} --scenario {}{planted}{}",
            self.seed, self.scenario, self.limits
        )
    }
}

/// Limit of a run in simulated time; a longer run counts as hanging.
const RUN_LIMIT: Duration = Duration::from_secs(1800);
/// Limit of a run in wall time. Only a busy loop takes this long. The second limit is for scenarios with hundreds of
/// servers.
const RUN_WALL_LIMIT: Duration = Duration::from_secs(120);
const WIDE_WALL_LIMIT: Duration = Duration::from_secs(900);
/// Trace lines kept with `verbose`; enough for a whole run.
const VERBOSE_TRACE_LINES: usize = 1 << 20;

/// Runs one seed on this thread, twice if `check_determinism` is set. The caller has checked the names in `options`.
pub fn run(options: RunOptions) -> Outcome {
    let first = run_once(&options);
    if !options.check_determinism || first.result.is_err() {
        return first;
    }
    let mut second = run_once(&options);
    second.wall_seconds += first.wall_seconds;
    if first.fingerprint != second.fingerprint {
        let message = format!(
            "two runs, fingerprints {:016x} and {:016x}",
            first.fingerprint, second.fingerprint
        );
        second.result = Err(Failure::new(FailureKind::Nondeterminism, message));
    }
    second
}

/// Ends when the run has taken too long in wall time. Has no effect on a run that stays within the limit.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // the runner's own limit, in wall time
async fn out_of_wall_time(limit: Option<Duration>) -> Failure {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    let started = std::time::Instant::now();
    while started.elapsed() < limit {
        plinth_runtime::sleep(Duration::from_secs(1)).await;
    }
    let limit = limit.as_secs();
    Failure::new(
        FailureKind::Liveness,
        format!("not over after {limit} seconds of wall time"),
    )
}

fn wall_limit(options: &RunOptions, scenario: &Scenario) -> Option<Duration> {
    match scenario.first_shards {
        _ if options.may_take_long => None,
        0 => Some(RUN_WALL_LIMIT),
        _ => Some(WIDE_WALL_LIMIT),
    }
}

/// The failure of a run that is not over after its limit of simulated time.
fn hangs(limit: Duration) -> Failure {
    let limit = limit.as_secs();
    let message = format!("the run was not over after {limit} simulated seconds");
    Failure::new(FailureKind::Liveness, message)
}

type WhatWasDrawn = Rc<RefCell<Drawn>>;

/// Starts the machines of a cluster of the store, and returns what happens to them.
fn start_cluster(
    simulation: &Simulation,
    scenario: Scenario,
    application: Option<&'static Application>,
    options: &RunOptions,
    drawn: &WhatWasDrawn,
) -> Run {
    let (seed, limits) = (options.seed, &options.limits);
    let mut shape = cluster::Shape::draw(&scenario, seed, application);
    shape.shrink(limits.machines, limits.processes);
    let machines = cluster::start(simulation, &shape);
    applications::start(simulation, &shape, &machines);
    let mut mix = scenario.draw_mix(seed);
    if shape.has_tokens {
        // Whoever judges tokens needs to know the time that servers have.
        mix.leave_out("wall_clock");
    }
    if let Some(kinds) = &limits.faults {
        mix.keep_only(kinds);
    }
    drawn.replace(Drawn {
        machines: shape.machines,
        processes: shape.processes_a_machine,
        seconds: scenario.fault_seconds,
        faults: mix.kinds(),
        ..Drawn::default()
    });
    let (only, drawn) = (limits.workloads.clone(), drawn.clone());
    Box::pin(async move { phases::run(shape, scenario, mix, only, &drawn).await })
}

/// The limits of a run, with the service that the seed has drawn among those that are linked. So the command that is
/// printed gives the same run in every program that has the service.
fn limits_with(scenario: &Scenario, service: Option<Service>, limits: &Limits) -> Limits {
    let drawn = service.filter(|_| scenario.draws_service());
    Limits {
        service: drawn.map(|service| service.name().to_owned()),
        ..limits.clone()
    }
}

// The runner reports wall time; the run does not see it.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn run_once(options: &RunOptions) -> Outcome {
    let mut scenario = scenario::find(&options.scenario).expect("the caller has checked the name");
    let limits = &options.limits;
    let seconds = limits.seconds.unwrap_or(u64::MAX);
    scenario.fault_seconds = scenario.fault_seconds.min(seconds);
    let started = std::time::Instant::now();
    probe::reset();
    gauge::reset();
    tally::reset();
    plant(options.planted_fault.as_deref());
    let drawn = WhatWasDrawn::default();
    let service = scenario.draw_service(options.seed, limits);
    let limits = limits_with(&scenario, service, limits);
    let config = match service {
        Some(Service::Own(world)) => (world.config)(options.seed),
        _ => scenario.world(options.seed),
    };
    let simulation = Simulation::new(options.seed, config);
    if options.verbose {
        simulation.configure(|config| config.trace_lines_max = VERBOSE_TRACE_LINES);
    }
    let limit = RUN_LIMIT + Duration::from_secs(scenario.idle_hours * 3600);
    let wall_limit = wall_limit(options, &scenario);
    let finished = catch_unwind(AssertUnwindSafe(|| {
        let run = match service {
            Some(Service::Own(world)) => {
                drawn.replace((world.drawn)(options.seed, &options.limits));
                (world.run)(options.seed, &options.limits)
            }
            Some(Service::Application(application)) => {
                start_cluster(&simulation, scenario, Some(application), options, &drawn)
            }
            None => start_cluster(&simulation, scenario, None, options, &drawn),
        };
        let run = async move {
            match plinth_runtime::race(run, out_of_wall_time(wall_limit)).await {
                Either::Left(verdict) => verdict,
                Either::Right(failure) => Err(failure),
            }
        };
        simulation.run_until(run, limit)
    }));
    plant(None);
    let result = match &finished {
        Ok(ended) => ended.clone().unwrap_or_else(|| Err(hangs(limit))),
        Err(panic) => Err(Failure::new(FailureKind::Crash, panic_message(panic))),
    };
    let outcome = Outcome {
        seed: options.seed,
        scenario: options.scenario.clone(),
        planted_fault: options.planted_fault.clone(),
        limits,
        drawn: drawn.borrow().clone(),
        result,
        fingerprint: simulation.fingerprint(),
        sim_seconds: simulation.elapsed().as_secs_f64(),
        wall_seconds: started.elapsed().as_secs_f64(),
        probes: probe::hits(),
        trace_tail: simulation.trace_tail(),
    };
    if finished.is_err() {
        // Does not run destructors: after a broken invariant they may panic as well.
        std::mem::forget(simulation);
    }
    outcome
}

/// True if this build has the switches of [`plinth_runtime::fault`].
pub const HAS_PLANTED_FAULTS: bool = cfg!(feature = "planted-faults");

#[cfg(feature = "planted-faults")]
fn plant(name: Option<&str>) {
    let known = |wanted: &str| fault::all().into_iter().find(|fault| fault.name == wanted);
    fault::plant(name.map(|name| known(name).expect("the caller has checked the name").name));
}

#[cfg(not(feature = "planted-faults"))]
fn plant(name: Option<&str>) {
    assert!(
        name.is_none(),
        "this build has none of the {} planted faults: it wants the feature planted-faults",
        fault::all().len()
    );
}

fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    // A failure is reported in one line.
    text.map_or("a panic without words".into(), |text| {
        text.replace('\n', " ")
    })
}
