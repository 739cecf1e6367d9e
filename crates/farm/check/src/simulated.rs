//! The worlds of this crate in `plinth tools sim`: a scenario of their own, and a service among those that seeds draw.

use crate::{Workload, Wrong};
use plinth_runtime::sim::Draw;
use plinth_runtime::sim::worlds::{Drawn, Failure, FailureKind, Limits, OwnWorld};

plinth_runtime::own_world! {
    OwnWorld {
        name: "farm",
        about: "the in-memory engine on machines of its own, in calm and in storms",
        workloads: || Workload::ALL.map(Workload::name).to_vec(),
        faults: crate::fault_kinds,
        config: crate::config,
        drawn,
        run: |seed, limits| Box::pin(run(seed, limits.clone())),
    }
}

/// The workload of a run: one of the wanted ones. `None` if none is wanted.
fn draw_workload(seed: u64, limits: &Limits) -> Option<Workload> {
    let mut wanted = Workload::ALL.to_vec();
    wanted.retain(|workload| limits.wants(workload.name()));
    let last = wanted.len().checked_sub(1)?;
    Some(wanted[Draw::new(seed, 6).between(0, last)])
}

fn drawn(seed: u64, limits: &Limits) -> Drawn {
    let Some(workload) = draw_workload(seed, limits) else {
        return Drawn::default();
    };
    let (machines, faults) = crate::drawn(workload, seed, limits);
    Drawn {
        machines,
        processes: 1,
        seconds: limits.seconds.unwrap_or(0),
        faults: faults.into_iter().map(String::from).collect(),
        workloads: vec![workload.name().to_owned()],
        knobs: Vec::new(),
    }
}

async fn run(seed: u64, limits: Limits) -> Result<(), Failure> {
    let Some(workload) = draw_workload(seed, &limits) else {
        return Ok(());
    };
    let Err(wrong) = crate::run_in(workload, seed, &limits).await else {
        return Ok(());
    };
    let kind = match wrong {
        Wrong::Broken(_) => FailureKind::Correctness,
        Wrong::Hangs(_) => FailureKind::Liveness,
    };
    Err(Failure::new(kind, format!("{}: {wrong}", workload.name())))
}
