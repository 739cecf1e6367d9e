//! What a program that runs simulations, and the worlds that it can run, tell each other: what is left out of a run,
//! what it drew, how it failed.
//!
//! A system that stands on nothing of the store brings a whole world: [`OwnWorld`]. It registers it at link time, so
//! that neither the simulator of the store nor the system knows the other.

use super::SimConfig;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// Parts of a run that are left out; `None` leaves the choice to the seed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The only service, where a seed would draw one of those that are linked.
    pub service: Option<String>,
    pub machines: Option<usize>,
    /// Processes on each machine.
    pub processes: Option<usize>,
    /// Simulated seconds of faults.
    pub seconds: Option<u64>,
    /// The only kinds of fault that strike.
    pub faults: Option<Vec<String>>,
    /// The only workloads.
    pub workloads: Option<Vec<String>>,
}

impl Limits {
    /// True if a workload of this name may take part.
    pub fn wants(&self, workload: &str) -> bool {
        let only = self.workloads.as_ref();
        only.is_none_or(|only| only.iter().any(|name| name == workload))
    }
}

impl fmt::Display for Limits {
    /// Formats the limits as options of `plinth tools sim run`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(service) = &self.service {
            write!(f, " --service {service}")?;
        }
        let numbers = [
            ("machines", self.machines.map(|n| n as u64)),
            ("processes", self.processes.map(|n| n as u64)),
            ("duration", self.seconds),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                write!(f, " --{name} {number}")?;
            }
        }
        for (name, list) in [("faults", &self.faults), ("workloads", &self.workloads)] {
            if let Some(list) = list {
                write!(f, " --{name} '{}'", list.join(","))?;
            }
        }
        Ok(())
    }
}

/// The values that a run drew.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Drawn {
    pub machines: usize,
    pub processes: usize,
    pub seconds: u64,
    pub faults: Vec<String>,
    pub workloads: Vec<String>,
    /// Those that have another value than their default, as `name=value`.
    pub knobs: Vec<String>,
}

/// How a run can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// An assertion of the program failed.
    Crash,
    /// What was healed did not serve in time.
    Liveness,
    /// An oracle found a broken promise.
    Correctness,
    /// The same seed gave two different runs.
    Nondeterminism,
}

impl FailureKind {
    /// The exit code of `plinth tools sim run`; each kind has its own, for scripts.
    pub fn exit_code(self) -> u8 {
        match self {
            FailureKind::Correctness => 1,
            FailureKind::Crash => 3,
            FailureKind::Liveness => 4,
            FailureKind::Nondeterminism => 5,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureKind::Crash => "crash",
            FailureKind::Liveness => "liveness",
            FailureKind::Correctness => "correctness",
            FailureKind::Nondeterminism => "nondeterminism",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Failure { kind, message }
    }
}

/// The run of a seed, for the tester of a simulation.
pub type Run = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// A world that stands alone in a simulation, with faults and oracles of its own. Everything in it follows from the
/// seed and the limits, whatever else is linked.
pub struct OwnWorld {
    /// Also the name of the scenario that has this world only.
    pub name: &'static str,
    /// What its scenario says in lists.
    pub about: &'static str,
    /// Names of its workloads.
    pub workloads: fn() -> Vec<&'static str>,
    /// Names of the kinds of fault that strike it.
    pub faults: fn() -> Vec<&'static str>,
    /// The simulated world of a seed.
    pub config: fn(u64) -> SimConfig,
    /// What the run of a seed draws.
    pub drawn: fn(u64, &Limits) -> Drawn,
    /// Runs a seed.
    pub run: fn(u64, &Limits) -> Run,
}

impl fmt::Debug for OwnWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static OWN_WORLDS: [OwnWorld];

/// Registers a world: `plinth_runtime::own_world! { OwnWorld { name: "farm", .. } }`.
#[macro_export]
macro_rules! own_world {
    ($world:expr) => {
        #[$crate::macro_support::linkme::distributed_slice($crate::sim::worlds::OWN_WORLDS)]
        #[linkme(crate = $crate::macro_support::linkme)]
        static OWN_WORLD: $crate::sim::worlds::OwnWorld = $world;
    };
}

/// Every world linked into this program, by name: the linker's order is not stable.
pub fn own_worlds() -> Vec<&'static OwnWorld> {
    let mut all: Vec<&OwnWorld> = OWN_WORLDS.iter().collect();
    all.sort_unstable_by_key(|world| world.name);
    all
}
