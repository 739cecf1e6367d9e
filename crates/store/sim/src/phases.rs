//! The phases of a run: create, work under faults, heal, demand service, check.

use crate::cluster::{self, Databases, Shape};
use crate::faults::FaultMix;
use crate::patience::patience;
use crate::scenario::Scenario;
use crate::workloads::{self, Day, Space, Workload};
use crate::{
    Drawn, Failure, FailureKind, attrition, consistency, damage, idle, loss, names, ready, stale,
    strangers, words,
};
use plinth_client::Database;
use plinth_control::knobs::FIRST_SHARDS;
use plinth_runtime::knobs::{Knobs, knobs, set_knobs};
use plinth_runtime::random::chance;
use plinth_runtime::sim::{Draw, control};
use plinth_runtime::{Duration, Task, probe, trace};
use plinth_transaction::knobs::{COMMIT_BATCH_COUNT_MAX, COMMIT_BATCHES_IN_FLIGHT_MAX};
use std::cell::RefCell;
use std::rc::Rc;

/// Limit for creating and filling the database; long, so that a slow start does not count as hanging.
const CREATE_LIMIT: Duration = Duration::from_secs(120);
/// The cluster must serve within this time after the healing (recoverability).
const SERVE_LIMIT: Duration = Duration::from_secs(60);
/// Clients must finish their current work within this time after the healing.
const FINISH_LIMIT: Duration = Duration::from_secs(150);
/// The checks of one workload must be done within this time.
const CHECK_LIMIT: Duration = Duration::from_secs(300);

/// Pause after the healing, until the cluster can do without a machine.
const BEFORE_ONE_IS_SICK: Duration = Duration::from_secs(8);

/// In this share of the runs of a swarm scenario, a shard loses all its replicas after the checks.
const LOSS_AT_THE_END: f64 = 0.03;

/// In this share of the runs of a swarm scenario, status is taken at its word after the checks.
const LOOK_AT_THE_END: f64 = 0.25;

/// Limit of first shards in ordinary runs; more make a run slow.
const FEW_SHARDS_MAX: usize = 64;
/// Transactions that a commit proxy carries at once, at least: a batch's transactions times the batches in flight.
const COMMITS_AT_ONCE_MIN: usize = 4;
/// Maximum pause between two strangers, in milliseconds.
const STRANGERS_PAUSE_MS: u64 = 20_000;

type Verdict = Result<(), Failure>;

fn liveness(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Liveness, message)
}

/// Draws the number of first shards. Three of four clusters begin with several shards: a run has too little data for
/// shards to be split by size.
fn draw_first_shards(scenario: &Scenario, seed: u64) {
    let mut draw = Draw::new(seed, 4);
    let first_shards = match scenario.first_shards {
        // The knob may ask for many more shards than this; a scenario of its own does that.
        0 if draw.below(4) == 0 => FIRST_SHARDS.get().min(FEW_SHARDS_MAX),
        0 => draw.between(2, 24),
        many => many,
    };
    let mut own = (*knobs()).clone();
    FIRST_SHARDS.put(&mut own, first_shards);
    set_knobs(own);
}

/// One transaction at a time is no load that a database of many clients bears: what its services alone write at rest
/// (beats, leases, probes) would wait for seconds. Either knob may be drawn to its end, and not both.
fn leave_room_for_commits() {
    let mut own = (*knobs()).clone();
    let at_once = COMMIT_BATCH_COUNT_MAX.of(&own) * COMMIT_BATCHES_IN_FLIGHT_MAX.of(&own);
    if at_once < COMMITS_AT_ONCE_MIN {
        COMMIT_BATCHES_IN_FLIGHT_MAX.put(&mut own, COMMITS_AT_ONCE_MIN);
        set_knobs(own);
    }
}

/// Each knob that has another value than its default. Which there are depends on the program, so they are no part of
/// the trace.
fn drawn_knobs() -> Vec<String> {
    let (drawn, usual) = (knobs().list(), Knobs::default().list());
    let pairs = drawn.into_iter().zip(usual);
    let others = pairs.filter(|(drawn, usual)| drawn.1 != usual.1);
    others
        .map(|((name, value), _)| format!("{name}={value}"))
        .collect()
}

pub async fn run(
    shape: Shape,
    scenario: Scenario,
    mix: FaultMix,
    only: Option<Vec<String>>,
    drawn: &RefCell<Drawn>,
) -> Verdict {
    draw_first_shards(&scenario, shape.seed);
    leave_room_for_commits();
    trace!("Shape", "shape" => format!("{shape:?}"));
    trace!("FaultMix", "mix" => format!("{mix:?}"));
    drawn.borrow_mut().knobs = drawn_knobs();
    if let Some(verdict) = instead_of_workloads(&shape, &scenario).await {
        return verdict;
    }
    let (databases, chosen, spare) = plinth_runtime::timeout(
        CREATE_LIMIT,
        set_up(&shape, &scenario, only.as_deref(), drawn),
    )
    .await
    .ok_or_else(|| liveness("the database could not be created and filled"))?;
    let database = databases.of_operators.clone();
    let clients = safety_phase(&shape, &scenario, mix, &databases, &chosen).await;
    liveness_phase(&database, &spare).await?;
    finish(clients).await?;
    for workload in &chosen {
        trace!("Check", "workload" => workload.name());
        plinth_runtime::timeout(CHECK_LIMIT, workload.check(databases.of(&**workload)))
            .await
            .ok_or_else(|| liveness(format!("{}: its check hangs", workload.name())))?
            .map_err(|broken| broken_promise(workload.name(), &broken))?;
    }
    plinth_runtime::timeout(CHECK_LIMIT, shape.last_moments.check(&database))
        .await
        .ok_or_else(|| liveness("last moments: the check hangs"))?
        .map_err(|broken| broken_promise("last moments", &broken))?;
    if probe::hits().contains_key("recovery_would_forget") {
        let forgotten = "a majority of the coordinators had its registers, and forgot an epoch";
        return Err(broken_promise("coordinators", forgotten));
    }
    trace!("Check", "workload" => "consistency");
    consistency::check(&database, &shape).await?;
    let looks = match scenario.looks {
        0 if scenario.swarm && chance(LOOK_AT_THE_END) => 1,
        looks => looks,
    };
    words::run(&shape, &database, spare, looks).await?;
    if scenario.swarm && chance(LOSS_AT_THE_END) {
        return loss::run(&shape, &database).await;
    }
    Ok(())
}

/// Scenarios that have checks of their own.
async fn instead_of_workloads(shape: &Shape, scenario: &Scenario) -> Option<Verdict> {
    let seconds = scenario.fault_seconds;
    let has_own = scenario.lose_data
        || scenario.damage_copies
        || scenario.idle_hours > 0
        || scenario.asks_who_is_ready
        || scenario.replicas_lag
        || scenario.siege;
    if !has_own {
        return None;
    }
    let opened = plinth_runtime::timeout(CREATE_LIMIT, cluster::open(shape)).await;
    let Some(database) = opened else {
        return Some(Err(liveness("the database could not be created")));
    };
    Some(match scenario {
        Scenario {
            lose_data: true, ..
        } => loss::run(shape, &database).await,
        Scenario {
            damage_copies: true,
            ..
        } => damage::run(shape, &database).await,
        Scenario {
            asks_who_is_ready: true,
            ..
        } => ready::run(shape, &database, seconds).await,
        Scenario {
            replicas_lag: true, ..
        } => stale::run(shape, &database, seconds).await,
        Scenario {
            idle_hours: hours @ 1..,
            ..
        } => idle::run(shape, &database, *hours).await,
        _ => {
            strangers::besiege(shape, &database, seconds).await;
            Ok(())
        }
    })
}

fn broken_promise(name: &str, broken: &str) -> Failure {
    Failure::new(FailureKind::Correctness, format!("{name}: {broken}"))
}

async fn set_up(
    shape: &Shape,
    scenario: &Scenario,
    only: Option<&[String]>,
    drawn: &RefCell<Drawn>,
) -> (Databases, Vec<Rc<dyn Workload>>, Space) {
    let databases = Databases::open(shape).await;
    let (chosen, spare) = if scenario.at_limits {
        workloads::at_limits()
    } else if scenario.first_shards > 0 {
        workloads::over_many_shards()
    } else if let Some(application) = shape.application {
        workloads::of_application(application, shape, only)
    } else {
        workloads::draw(Space::whole(), shape, only)
    };
    drawn.borrow_mut().workloads = chosen.iter().map(|w| w.name().to_owned()).collect();
    for workload in &chosen {
        trace!("Workload", "name" => workload.name());
        workload.setup(databases.of(&**workload)).await;
    }
    (databases, chosen, spare)
}

type Clients = Vec<(&'static str, Task<()>)>;

/// Runs clients and faults until the time is up, then heals. Returns the clients, which may still be at work.
async fn safety_phase(
    shape: &Shape,
    scenario: &Scenario,
    mix: FaultMix,
    databases: &Databases,
    chosen: &[Rc<dyn Workload>],
) -> Clients {
    let day = Day {
        end: plinth_runtime::now() + Duration::from_secs(scenario.fault_seconds),
        think_ms: (*scenario.think_ms.start(), *scenario.think_ms.end()),
    };
    let mut clients = Clients::new();
    for workload in chosen {
        for client in 0..workload.clients() {
            let (worker, database) = (workload.clone(), databases.of(&**workload));
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
    let moving = scenario
        .named
        .then(|| plinth_runtime::spawn("names", names::run(shape.clone(), day.end)));
    attrition::run(shape.clone(), scenario.clone(), mix).await;
    plinth_runtime::sleep_until(day.end).await;
    drop(moving);
    if scenario.named {
        names::heal();
    }
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

async fn liveness_phase(database: &Database, spare: &Space) -> Verdict {
    let serving = workloads::until_done(database, async |tr| {
        tr.set(spare.named("alive"), b"yes");
        Ok(())
    });
    let limit = SERVE_LIMIT + patience();
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
