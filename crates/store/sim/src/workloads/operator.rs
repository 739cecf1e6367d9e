//! An operator at work: excludes and includes processes; changes numbers of roles, the engine, the coordinators,
//! classes and knobs; puts zones under maintenance; locks the database, switches data distribution off and throttles
//! the bank for a moment. All other workloads run meanwhile. A
//! request may be refused, with a reason. The other workloads check that nothing else breaks.

use super::{Boxed, Complaints, Day, Verdict, Workload, bank};
use crate::cluster::Shape;
use crate::missing::machine_at;
use plinth_client::Database;
use plinth_control::distribution::{self, Part};
use plinth_control::exclusion::Target;
use plinth_control::management::{self, ConfigChange};
use plinth_control::ratekeeper::tags::{self, Manual};
use plinth_coordination::{Coordinators, election, places};
use plinth_core::{EngineKind, Uid};
use plinth_protocol::control::{
    ChangeCoordinators, GetWorkers, ProcessClass, RegisterWorker, ServersChanged,
};
use plinth_rpc::Transport;
use plinth_runtime::knobs::Knobs;
use plinth_runtime::random::{below, chance, range, u64};
use plinth_runtime::sim::KillKind;
use plinth_runtime::{Duration, Instant, fault, probe, trace};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;

const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const CHANGE_LIMIT: Duration = Duration::from_secs(20);
/// Number of attempts to change the coordinators. Without a reply the change may be done, half done or not done, so
/// the request is repeated.
const CHANGE_ATTEMPTS: u32 = 3;
/// Pause between two changes, long enough for the cluster to do some of the resulting work.
const PAUSE_MS: std::ops::Range<u64> = 500..8000;
/// Planted faults that show only when coordinators lose their registers.
const LOSSES_TELL: [&str; 2] = ["minority_is_enough", "coordinator_forgets"];

pub struct Operator {
    coordinators: Coordinators,
    shape: Shape,
    transport: Transport,
    excluded: RefCell<BTreeSet<Target>>,
    complaints: Complaints,
}

impl Operator {
    pub fn new(shape: &Shape) -> Self {
        Operator {
            coordinators: shape.coordinators(),
            shape: shape.clone(),
            transport: shape.transport(),
            excluded: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    async fn workers(&self) -> Option<Vec<RegisterWorker>> {
        let asked = election::ask_controller(&self.transport, &self.coordinators, GetWorkers {});
        Some(asked.await?.workers)
    }

    /// Makes the controller look at the configuration now, instead of at its next regular check.
    async fn tell_controller(&self) {
        if let Some(leader) = election::current_leader(&self.transport, &self.coordinators).await {
            let endpoint = leader.controller.endpoint::<ServersChanged>();
            let call = self.transport.call(&endpoint, ServersChanged {});
            plinth_runtime::timeout(ANSWER_LIMIT, call).await;
        }
    }

    async fn change(&self, database: &Database) {
        let Some(Some(workers)) = plinth_runtime::timeout(ANSWER_LIMIT, self.workers()).await
        else {
            return;
        };
        if workers.is_empty() {
            return;
        }
        let outcome = match below(12) {
            0 | 1 => {
                let worker = &workers[below(workers.len() as u64) as usize];
                let target = if chance(0.5) {
                    Target::Process(worker.worker.address)
                } else {
                    Target::Locality("zoneid".into(), worker.locality.zone.clone())
                };
                self.excluded.borrow_mut().insert(target.clone());
                management::exclude(database, &workers, &[target], false).await
            }
            2 => self.include_all(database).await,
            3 | 4 => {
                let change = random_change();
                management::configure(database, &workers, change)
                    .await
                    .map(drop)
            }
            5 | 6 => self.change_coordinators(&workers).await,
            7 => throttle_or_not(database).await,
            8 => self.set_class(database, &workers).await,
            9 => set_knob(database, &self.shape).await,
            10 => distribute_otherwise(database, &workers).await,
            _ => self.lock_for_a_moment(database).await,
        };
        match outcome {
            Ok(()) => probe!("workload_operator_changes"),
            Err(refusal) => {
                probe!("workload_operator_is_refused");
                trace!("Refused", "reason" => refusal);
            }
        }
        if chance(0.7) {
            self.tell_controller().await;
        }
    }

    /// Includes only the processes that this operator has excluded, because other workloads exclude as well.
    async fn include_all(&self, database: &Database) -> Result<(), String> {
        let targets: Vec<Target> = self.excluded.borrow().iter().cloned().collect();
        if targets.is_empty() {
            return Ok(());
        }
        management::include(database, &targets).await
    }

    /// Requests a random set of workers as coordinators. The controller may refuse it.
    async fn change_coordinators(&self, workers: &[RegisterWorker]) -> Result<(), String> {
        let mut addresses: Vec<SocketAddr> = workers.iter().map(|w| w.worker.address).collect();
        let count = [1, 2, 3, 3, 5][below(5) as usize].min(addresses.len());
        for i in 0..count {
            let other = range(i as u64..addresses.len() as u64) as usize;
            addresses.swap(i, other);
        }
        addresses.truncate(count);
        let lost = &self.shape.lost;
        if addresses.iter().any(|a| lost.has(machine_at(a))) {
            return Err("one of them is on a machine that the cluster is to do without".into());
        }
        if !lost.can_coordinate(&addresses) {
            return Err("too many of them have lost their registers".into());
        }
        // Recorded before the request, because from then on the set may be in use.
        self.shape.sets.add(addresses.clone());
        let _losing = plinth_runtime::spawn(
            "careless",
            lose_registers(self.shape.clone(), addresses.clone()),
        );
        let mut outcome = Err(String::new());
        for _ in 0..CHANGE_ATTEMPTS {
            match plinth_runtime::timeout(CHANGE_LIMIT, self.ask_for(addresses.clone())).await {
                Some(Ok(refusal)) if refusal.is_empty() => return Ok(()),
                Some(Ok(refusal)) => return Err(refusal),
                Some(Err(error)) => outcome = Err(error),
                None => outcome = Err("no answer".into()),
            }
            plinth_runtime::sleep(Duration::from_millis(range(PAUSE_MS))).await;
        }
        outcome
    }

    /// Sends the request. Returns the reason of a refusal, or an empty text.
    async fn ask_for(&self, coordinators: Vec<SocketAddr>) -> Result<String, String> {
        let leader = election::current_leader(&self.transport, &self.coordinators).await;
        let leader = leader.ok_or("there is no controller")?;
        let endpoint = leader.controller.endpoint::<ChangeCoordinators>();
        let call = self.transport.call(
            &endpoint,
            ChangeCoordinators {
                coordinators: places(coordinators),
            },
        );
        let reply = call.await.map_err(|error| error.to_string())?;
        Ok(reply.refusal)
    }

    /// Sets a random class, except a harmful one, or the class given at the start of the process.
    async fn set_class(
        &self,
        database: &Database,
        workers: &[RegisterWorker],
    ) -> Result<(), String> {
        let address = workers[below(workers.len() as u64) as usize].worker.address;
        let classes = [
            None,
            Some(ProcessClass::Unset),
            Some(ProcessClass::Storage),
            Some(ProcessClass::Log),
            Some(ProcessClass::Stateless),
        ];
        let class = classes[below(classes.len() as u64) as usize];
        let lost = &self.shape.lost;
        if class == Some(ProcessClass::Stateless) && !lost.may_be_stateless(&self.shape, address) {
            return Err("what breaks for good would leave too few disks".into());
        }
        let set = management::set_class(database, workers, address, class).await;
        // Nothing is recorded after a failure, because the change may have happened all the same.
        if set.is_ok() && class != Some(ProcessClass::Stateless) {
            lost.holds_data_again(address);
        }
        set
    }

    async fn lock_for_a_moment(&self, database: &Database) -> Result<(), String> {
        let id = Uid::from_parts(u64(), u64());
        management::lock(database, id).await?;
        // The database is locked now, so a client without the lock's id must not get a read version until it is
        // unlocked.
        let blind = database.create_transaction();
        let begun = blind.get_read_version().await;
        if begun.is_ok() {
            self.complaints
                .add("a read version was given while the database was locked".into());
        }
        plinth_runtime::sleep(Duration::from_millis(range(1..2000))).await;
        management::unlock(database, id).await.map(drop)
    }
}

/// Requests other coordinators again and again.
pub async fn exchange_coordinators(shape: Shape, end: Instant) {
    let operator = Operator::new(&shape);
    while plinth_runtime::now() < end {
        let listed = plinth_runtime::timeout(ANSWER_LIMIT, operator.workers()).await;
        if let Some(workers) = listed.flatten()
            && let Err(refusal) = operator.change_coordinators(&workers).await
        {
            trace!("Refused", "reason" => refusal);
        }
        plinth_runtime::sleep(Duration::from_millis(range(100..3000))).await;
    }
}

/// While coordinators change, some of the new ones lose the registers that they have just written, as far as every
/// set so far can do without them. Others pause, so that the majorities differ: a coordinator that has forgotten does
/// harm only in a majority without those that remember.
async fn lose_registers(shape: Shape, new: Vec<SocketAddr>) {
    let planted = LOSSES_TELL.iter().any(|name| fault::is_planted(name));
    if new.len() < 3 || !(planted || chance(0.3)) {
        return std::future::pending().await;
    }
    let control = plinth_runtime::sim::control();
    loop {
        plinth_runtime::sleep(Duration::from_millis(range(1..300))).await;
        let processes = control.processes();
        let any = || {
            let address = new[below(new.len() as u64) as usize];
            processes.iter().find(|p| p.address == address)
        };
        if let Some(other) = any() {
            let pause = Duration::from_millis(range(10..4000));
            control.pause_process(other.id, pause);
        }
        let Some(process) = any() else {
            continue;
        };
        let address = process.address;
        if !shape.lost.may_forget(&shape, address) {
            continue;
        }
        let directory = shape.data_directory(address);
        control.kill_process(process.id, KillKind::Kill);
        if control.lose_file(process.machine, &directory.join("coordination")) {
            probe!("fault_loses_registers");
            trace!("FaultLoseRegisters", "address" => address);
        }
        control.restart_process(process.id);
    }
}

/// Throttles the bank for a moment, or ends all throttling.
async fn throttle_or_not(database: &Database) -> Result<(), String> {
    let explain = |error: plinth_core::Error| error.to_string();
    if chance(0.3) {
        tags::clear(database, None).await.map_err(explain)?;
        return tags::set_auto(database, chance(0.7)).await.map_err(explain);
    }
    let throttle = Manual {
        tag: bank::tag(),
        priority: below(3) as u8,
        rate: below(50) as f64 / 2.0,
        seconds: range(1..10) as f64,
        reason: String::new(),
    };
    let set = tags::set(database, throttle).await;
    set.map(drop).map_err(explain)
}

/// Puts a zone under maintenance, ends that, or lets no data move for a moment.
async fn distribute_otherwise(
    database: &Database,
    workers: &[RegisterWorker],
) -> Result<(), String> {
    match below(4) {
        0 | 1 => {
            let zone = &workers[below(workers.len() as u64) as usize].locality.zone;
            let seconds = range(1..30) as f64;
            distribution::maintain(database, workers, zone, seconds).await
        }
        2 => distribution::end_maintenance(database).await,
        _ => {
            let part = [None, Some(Part::Healing), Some(Part::Balance)][below(3) as usize];
            match part {
                Some(part) => distribution::switch_part(database, part, false).await?,
                None => distribution::switch(database, false).await?,
            }
            plinth_runtime::sleep(Duration::from_millis(range(1..5000))).await;
            distribute_as_usual(database).await
        }
    }
}

async fn distribute_as_usual(database: &Database) -> Result<(), String> {
    distribution::switch(database, true).await?;
    distribution::switch_part(database, Part::Healing, true).await?;
    distribution::switch_part(database, Part::Balance, true).await
}

/// Sets a random knob to another legal value, or to its default.
async fn set_knob(database: &Database, shape: &Shape) -> Result<(), String> {
    let mut drawn = Knobs::default();
    drawn.randomise(u64(), 0.5);
    let mut all = drawn.list();
    all.retain(|(name, _)| Knobs::module_of(name).is_some_and(|of| shape.draws_from(of)));
    let (name, value) = all.swap_remove(below(all.len() as u64) as usize);
    let value = chance(0.7).then_some(&value[..]);
    management::set_knob(database, name, value).await
}

fn random_change() -> ConfigChange {
    let count = |most: u64| chance(0.5).then(|| 1 + below(most) as u32);
    ConfigChange {
        mode: None,
        engine: chance(0.3).then(|| [EngineKind::Ssd, EngineKind::Memory][below(2) as usize]),
        commit_proxies: count(3),
        grv_proxies: count(2),
        resolvers: count(3),
        logs: count(5),
        clients: None,
    }
}

impl Workload for Operator {
    super::kind!("operator", |_, shape| Operator::new(shape));
    fn is_operators(&self) -> bool {
        true
    }

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            while !day.is_over() {
                self.change(&database).await;
                plinth_runtime::sleep(Duration::from_millis(range(PAUSE_MS))).await;
            }
            if let Err(refusal) = distribute_as_usual(&database).await {
                self.complaints
                    .add(format!("data distribution stays off: {refusal}"));
            }
            if let Err(refusal) = self.include_all(&database).await {
                self.complaints
                    .add(format!("nobody could be included: {refusal}"));
            }
        })
    }

    fn clients(&self) -> u64 {
        1
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move { self.complaints.verdict() })
    }
}
