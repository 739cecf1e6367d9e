//! A run from its first event to its last: create, break and work, heal, demand service, check.

use crate::cluster::{self, Shape};
use crate::scenario::{Draw, FaultMix, Scenario};
use crate::workloads::{self, Day, Space, Workload};
use crate::{Drawn, Failure, FailureKind, attrition, consistency, idle, loss, strangers};
use plinth_client::Database;
use plinth_runtime::knobs::{Knobs, knobs, set_knobs};
use plinth_runtime::random::chance;
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, Task, probe, trace};
use std::cell::RefCell;
use std::rc::Rc;

/// What is slow to begin with must not be taken for what hangs.
const CREATE_LIMIT: Duration = Duration::from_secs(120);
/// After the healing the cluster must serve within this time (recoverability).
const SERVE_LIMIT: Duration = Duration::from_secs(60);
/// Clients that are in the middle of something must be done in this time after the healing.
const FINISH_LIMIT: Duration = Duration::from_secs(150);
/// The checks of one workload must be done within this time.
const CHECK_LIMIT: Duration = Duration::from_secs(300);

/// What was broken must be whole again before the cluster can do without a machine.
const BEFORE_ONE_IS_SICK: Duration = Duration::from_secs(8);

/// When all is well, so many runs of the full swarm lose more than there are copies of.
const LOSS_AT_THE_END: f64 = 0.03;

/// More make a run slow.
const FEW_SHARDS_MAX: usize = 64;
/// Between two strangers.
const STRANGERS_PAUSE_MS: u64 = 20_000;

type Verdict = Result<(), Failure>;

fn liveness(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Liveness, message)
}

/// Three of four clusters begin with many shards: a run has too little data for them to be cut as it comes.
fn draw_first_shards(scenario: &Scenario, seed: u64) {
    let mut draw = Draw::new(seed, 4);
    let first_shards = match scenario.first_shards {
        // What an operator may ask for takes a scenario of its own.
        0 if draw.below(4) == 0 => knobs().first_shards.min(FEW_SHARDS_MAX),
        0 => draw.between(2, 24),
        many => many,
    };
    let mut own = (*knobs()).clone();
    own.first_shards = first_shards;
    set_knobs(own);
}

pub async fn run(
    shape: Shape,
    scenario: Scenario,
    mix: FaultMix,
    only: Option<Vec<String>>,
    drawn: &RefCell<Drawn>,
) -> Verdict {
    draw_first_shards(&scenario, shape.seed);
    trace!("Shape", "shape" => format!("{shape:?}"));
    trace!("FaultMix", "mix" => format!("{mix:?}"));
    if scenario.lose_data {
        let opened = plinth_runtime::timeout(CREATE_LIMIT, cluster::open(&shape)).await;
        let database = opened.ok_or_else(|| liveness("the database could not be created"))?;
        return loss::run(&shape, &database).await;
    }
    if scenario.idle_hours > 0 {
        let opened = plinth_runtime::timeout(CREATE_LIMIT, cluster::open(&shape)).await;
        let database = opened.ok_or_else(|| liveness("the database could not be created"))?;
        return idle::run(&shape, &database, scenario.idle_hours).await;
    }
    if scenario.siege {
        let opened = plinth_runtime::timeout(CREATE_LIMIT, cluster::open(&shape)).await;
        let database = opened.ok_or_else(|| liveness("the database could not be created"))?;
        strangers::besiege(&shape, &database, scenario.fault_seconds).await;
        return Ok(());
    }
    let (database, chosen, spare) = plinth_runtime::timeout(
        CREATE_LIMIT,
        set_up(&shape, &scenario, only.as_deref(), drawn),
    )
    .await
    .ok_or_else(|| liveness("the database could not be created and filled"))?;
    let clients = safety_phase(&shape, &scenario, mix, &database, &chosen).await;
    liveness_phase(&database, spare).await?;
    finish(clients).await?;
    for workload in &chosen {
        trace!("Check", "workload" => workload.name());
        plinth_runtime::timeout(CHECK_LIMIT, workload.check(database.clone()))
            .await
            .ok_or_else(|| liveness(format!("{}: its check hangs", workload.name())))?
            .map_err(|broken| broken_promise(workload.name(), &broken))?;
    }
    if probe::hits().contains_key("recovery_would_forget") {
        let forgotten = "a majority of the coordinators had its registers, and forgot an epoch";
        return Err(broken_promise("coordinators", forgotten));
    }
    trace!("Check", "workload" => "consistency");
    consistency::check(&database, &shape).await?;
    if scenario.swarm && chance(LOSS_AT_THE_END) {
        return loss::run(&shape, &database).await;
    }
    Ok(())
}

fn broken_promise(name: &str, broken: &str) -> Failure {
    Failure::new(FailureKind::Correctness, format!("{name}: {broken}"))
}

async fn set_up(
    shape: &Shape,
    scenario: &Scenario,
    only: Option<&[String]>,
    drawn: &RefCell<Drawn>,
) -> (Database, Vec<Rc<dyn Workload>>, Space) {
    let database = cluster::open(shape).await;
    let (chosen, spare) = if scenario.at_limits {
        workloads::at_limits()
    } else if scenario.first_shards > 0 {
        workloads::over_many_shards()
    } else {
        workloads::draw(shape, only)
    };
    drawn.borrow_mut().workloads = chosen.iter().map(|w| w.name().to_owned()).collect();
    for workload in &chosen {
        trace!("Workload", "name" => workload.name());
        workload.setup(database.clone()).await;
    }
    (database, chosen, spare)
}

type Clients = Vec<(&'static str, Task<()>)>;

/// Works and breaks until the time is up, then heals. Gives back the clients, who may be in the middle of something.
async fn safety_phase(
    shape: &Shape,
    scenario: &Scenario,
    mix: FaultMix,
    database: &Database,
    chosen: &[Rc<dyn Workload>],
) -> Clients {
    let day = Day {
        end: plinth_runtime::now() + Duration::from_secs(scenario.fault_seconds),
        think_ms: (*scenario.think_ms.start(), *scenario.think_ms.end()),
    };
    let mut clients = Clients::new();
    for workload in chosen {
        for client in 0..workload.clients() {
            let (worker, database) = (workload.clone(), database.clone());
            let work = async move { worker.work(database, client, day).await };
            clients.push((workload.name(), plinth_runtime::spawn("client", work)));
        }
    }
    let _strangers = scenario.hostile.then(|| {
        plinth_runtime::spawn(
            "strangers",
            strangers::run(shape.clone(), STRANGERS_PAUSE_MS, false),
        )
    });
    let _exchange = scenario.exchange_coordinators.then(|| {
        let exchanging = workloads::exchange_coordinators(shape.clone(), day.end);
        plinth_runtime::spawn("exchange", exchanging)
    });
    attrition::run(shape.clone(), scenario.clone(), mix).await;
    plinth_runtime::sleep_until(day.end).await;
    heal();
    if chance(0.5) {
        plinth_runtime::sleep(BEFORE_ONE_IS_SICK).await;
        attrition::one_disk_stays_sick(shape, &mix).await;
    }
    clients
}

fn heal() {
    trace!("Healing");
    let control = control();
    control.heal_all();
    for machine in control.machines() {
        control.boot(machine.id);
    }
    for process in control.processes() {
        control.restart_process(process.id);
    }
}

/// Who may be slow to see that somebody is gone may be slow to replace it.
fn serve_limit() -> Duration {
    let (knobs, usual) = (knobs(), Knobs::default());
    let patience = |knobs: &Knobs| {
        let seen = knobs.failure_detection_ms.max(knobs.rpc_ping_timeout_ms) * 3;
        seen + knobs.busy_peer_ms
            + knobs.coordinator_lease_ms * 2
            + knobs.recovery_retry_ms
            + knobs.connect_timeout_ms
            // A disk that hangs is taken for sick by then.
            + knobs.disk_stall_ms
    };
    let more = patience(&knobs).saturating_sub(patience(&usual));
    SERVE_LIMIT + Duration::from_millis(more)
}

async fn liveness_phase(database: &Database, spare: Space) -> Verdict {
    let serving = workloads::until_done(database, async |tr| {
        tr.set(spare.named("alive"), b"yes");
        Ok(())
    });
    let limit = serve_limit();
    let served = plinth_runtime::timeout(limit, serving).await;
    served.ok_or_else(|| {
        let limit = limit.as_secs();
        liveness(format!(
            "healed, but no commit within {limit} simulated seconds"
        ))
    })?;
    trace!("Serving");
    Ok(())
}

async fn finish(clients: Clients) -> Verdict {
    let deadline = plinth_runtime::now() + FINISH_LIMIT;
    for (name, client) in clients {
        let left = deadline.saturating_since(plinth_runtime::now());
        let finished = plinth_runtime::timeout(left, client).await;
        finished.ok_or_else(|| liveness(format!("{name}: a client never comes to its end")))?;
    }
    Ok(())
}
