//! Floor 8: whole clusters under simulation, with faults and oracles (FDB §4).
//!
//! One run is one seed: it draws the shape of a cluster, its knobs, its faults and its workloads, lets them at each
//! other for a while (the *safety* phase), then heals everything and demands that the cluster serves again within a
//! bound (the *liveness* phase), and at last asks every oracle. The same seed gives the same run, which is checked by
//! running some seeds twice.
//!
//! - [`scenario`]: what kind of world a run draws from.
//! - `cluster`: the simulated machines and the workers on them.
//! - `attrition`: what breaks, when.
//! - `workloads`: what clients do, each with its oracle.
//! - `consistency`: all replicas hold the same data.
//! - [`hunt`]: many seeds, several at a time.

mod attrition;
mod cluster;
mod consistency;
pub mod hunt;
pub mod scenario;
mod workloads;

use plinth_runtime::sim::Simulation;
use plinth_runtime::{Duration, fault, probe};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use hunt::{HuntOptions, HuntReport, hunt};
pub use scenario::{SCENARIOS, Scenario};

/// What one run is made of.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub seed: u64,
    /// A name of [`SCENARIOS`].
    pub scenario: String,
    /// A name of [`plinth_runtime::fault::FAULTS`]; only test builds have the switches.
    pub planted_fault: Option<String>,
    /// Print notable events while it runs.
    pub verbose: bool,
}

/// How a run can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// An assertion of the database failed.
    Crash,
    /// The healed cluster did not serve in time.
    Liveness,
    /// An oracle found a broken promise.
    Correctness,
    /// The same seed gave two different runs.
    Nondeterminism,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub scenario: String,
    pub failure: Option<Failure>,
    pub fingerprint: u64,
    pub sim_seconds: f64,
    pub wall_seconds: f64,
    /// Rare paths that were taken, and how often.
    pub probes: BTreeMap<&'static str, u64>,
    /// The last events before a failure.
    pub trace_tail: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = if self.failure.is_none() {
            "pass"
        } else {
            "fail"
        };
        write!(
            f,
            "seed={} scenario={} result={result} fingerprint={:016x} sim_seconds={:.1} wall_seconds={:.2}",
            self.seed, self.scenario, self.fingerprint, self.sim_seconds, self.wall_seconds
        )
    }
}

impl Outcome {
    /// The one command that gives the same run again.
    pub fn command(&self) -> String {
        format!(
            "plinth sim run --seed {} --scenario {}",
            self.seed, self.scenario
        )
    }
}

/// The longest a run may take in simulated time before it counts as hanging.
const RUN_LIMIT: Duration = Duration::from_secs(1800);

/// Runs one seed on this thread.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // wall time is what the runner reports, not what the run sees
pub fn run(options: &RunOptions) -> Outcome {
    let scenario = scenario::find(&options.scenario).expect("the caller has checked the name");
    let started = std::time::Instant::now();
    probe::reset();
    plant(options.planted_fault.as_deref());
    let simulation = Simulation::new(options.seed, scenario.world());
    if options.verbose {
        simulation.configure(|config| config.trace_lines_max = 1 << 20);
    }
    let finished = catch_unwind(AssertUnwindSafe(|| {
        let shape = cluster::Shape::draw(&simulation, &scenario, options.seed);
        cluster::start(&simulation, &shape);
        simulation.run_until(workloads::drive(shape, scenario), RUN_LIMIT)
    }));
    plant(None);
    let failure = match finished {
        Ok(Some(Ok(()))) => None,
        Ok(Some(Err(failure))) => Some(failure),
        Ok(None) => Some(Failure {
            kind: FailureKind::Liveness,
            message: format!(
                "the run was not over after {} simulated seconds",
                RUN_LIMIT.as_secs()
            ),
        }),
        Err(panic) => Some(Failure {
            kind: FailureKind::Crash,
            message: panic_message(&panic),
        }),
    };
    Outcome {
        seed: options.seed,
        scenario: options.scenario.clone(),
        failure,
        fingerprint: simulation.fingerprint(),
        sim_seconds: simulation.elapsed().as_secs_f64(),
        wall_seconds: started.elapsed().as_secs_f64(),
        probes: probe::hits(),
        trace_tail: simulation.trace_tail(),
    }
}

/// Runs a seed twice; a difference is a failure of its own kind.
pub fn run_twice(options: &RunOptions) -> Outcome {
    let first = run(options);
    let mut second = run(options);
    if first.fingerprint != second.fingerprint {
        second.failure = Some(Failure {
            kind: FailureKind::Nondeterminism,
            message: format!(
                "two runs, fingerprints {:016x} and {:016x}",
                first.fingerprint, second.fingerprint
            ),
        });
    }
    second
}

#[cfg(feature = "planted-faults")]
fn plant(name: Option<&str>) {
    fault::plant(name.and_then(|name| fault::FAULTS.iter().map(|(n, _)| *n).find(|n| *n == name)));
}

#[cfg(not(feature = "planted-faults"))]
fn plant(name: Option<&str>) {
    assert!(
        name.is_none(),
        "this build has no planted faults, of which there are {}",
        fault::FAULTS.len()
    );
}

fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "a panic".into())
}
