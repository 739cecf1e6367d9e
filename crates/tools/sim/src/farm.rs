//! The in-memory engine: its machines stand on nothing of the store, so they are a simulated world of their own, with
//! the faults and oracles of `plinth-farm-check`.

use crate::draw::Draw;
use crate::{Drawn, Failure, FailureKind, Limits};
use plinth_farm_check::{self as check, Workload, Wrong};
use plinth_runtime::sim::SimConfig;

/// Names of its workloads.
pub fn names() -> impl Iterator<Item = &'static str> {
    Workload::ALL.into_iter().map(Workload::name)
}

/// Names of the kinds of fault that strike it.
pub fn fault_kinds() -> impl Iterator<Item = String> {
    check::fault_kinds().into_iter().map(String::from)
}

fn limits(limits: &Limits) -> check::Limits {
    check::Limits {
        machines: limits.machines,
        seconds: limits.seconds,
        faults: limits.faults.clone(),
    }
}

/// The workload of a run that has the in-memory engine: one of the wanted ones. `None` if none is wanted.
pub fn draw_workload(seed: u64, only: Option<&[String]>) -> Option<Workload> {
    let is_wanted = |workload: &Workload| {
        only.is_none_or(|only| only.iter().any(|name| name == workload.name()))
    };
    let wanted: Vec<Workload> = Workload::ALL.into_iter().filter(is_wanted).collect();
    let last = wanted.len().checked_sub(1)?;
    Some(wanted[Draw::new(seed, 6).between(0, last)])
}

/// The world of a seed.
pub fn config(seed: u64) -> SimConfig {
    check::config(seed)
}

/// What the run of a seed draws.
pub fn drawn(workload: Option<Workload>, seed: u64, of: &Limits) -> Drawn {
    let Some(workload) = workload else {
        return Drawn::default();
    };
    let drawn = check::drawn(workload, seed, &limits(of));
    Drawn {
        machines: drawn.machines,
        processes: 1,
        seconds: of.seconds.unwrap_or(0),
        faults: drawn.faults.into_iter().map(String::from).collect(),
        workloads: vec![workload.name().to_owned()],
    }
}

/// Runs a seed as the tester of its world.
pub async fn run(workload: Option<Workload>, seed: u64, of: Limits) -> Result<(), Failure> {
    let Some(workload) = workload else {
        return Ok(());
    };
    match check::run_in(workload, seed, &limits(&of)).await {
        Ok(_) => Ok(()),
        Err(wrong) => {
            let kind = match wrong {
                Wrong::Broken(_) => FailureKind::Correctness,
                Wrong::Hangs(_) => FailureKind::Liveness,
            };
            Err(Failure::new(kind, format!("{}: {wrong}", workload.name())))
        }
    }
}
