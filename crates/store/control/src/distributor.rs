//! The data distributor (FDB §2.3.1): keeps every shard on a fit team, and balances the bytes over the servers.
//!
//! ```text
//! take the lock ─► observe ─────────► plan ─────────────────► steps, each in a task of its own
//!                  workers, map,      heal, drain, split,     moves, splits, merges
//!                  servers, sizes     merge, balance          │
//!                    ▲                                        ▼
//!                    └─────────────── distribution_interval_ms, or a step has ended
//! ```
//!
//! It promises: no read fails because a shard moves; a shard changes its team only when every new member has all of it
//! on disk; no transaction of a distributor commits after another has taken the lock.
//!
//! It observes the cluster, [plans](plan) a few steps, takes them, and observes again. All state that must outlive it
//! is in the system keyspace: a new distributor finds the moves that its predecessor began, and finishes them. Two
//! distributors cannot work at once: the later one takes the lock, and then every transaction of the other fails.

mod lags;
mod moves;
mod observe;
pub mod plan;
mod scan;
mod sizes;
mod steps;
pub mod teams;

use crate::knobs::{
    DISTRIBUTION_INTERVAL_MS, MOVES_MAX, MOVES_PER_SERVER_MAX, SHARD_BYTES_MAX, SHARD_BYTES_MIN,
    SHARD_WRITE_BYTES_PER_SECOND_MAX, SHARDS_PER_TEAM,
};
use crate::movement;
use observe::{Known, Observed};
use plinth_client::{Database, Transaction};
use plinth_core::system_keys::MOVE_KEYS_LOCK;
use plinth_core::{Error, Key, Result, Uid};
use plinth_protocol::control::{ClusterInfo, RecruitDistributor};
use plinth_rpc::{FailureBeacon, Interface, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{Duration, Instant, TaskGroup, probe, trace};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

/// Minimum time between two looks, even if a step has ended.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Distributor {
    transport: Transport,
    database: Database,
    info: Watch<Option<ClusterInfo>>,
    id: Uid,
    controller: Interface,
    cluster: String,
    /// Servers that do not answer, and since when.
    missing: RefCell<BTreeMap<Uid, Instant>>,
    /// Servers on a broken disk, and since when.
    on_broken_disks: RefCell<BTreeMap<Uid, Instant>>,
    /// The servers as of the last look.
    known: RefCell<Known>,
    lags: RefCell<lags::Lags>,
    sizes: RefCell<sizes::Sizes>,
    built: RefCell<teams::Built>,
    /// Ranges with a step under way, by their begin.
    busy: RefCell<BTreeSet<Key>>,
    /// Shards that could not be split, and when that was found.
    unsplittable: RefCell<BTreeMap<Key, Instant>>,
    moves: RefCell<moves::Moves>,
    recruiting: Cell<bool>,
    scan: scan::Scan,
    /// Copies of the shard that has the fewest, on servers that answer.
    least_copies: Cell<usize>,
    /// Workers that failed to make a storage server, and when. Other workers are asked first.
    refused: RefCell<BTreeMap<SocketAddr, Instant>>,
    done: Notify,
    /// Weak: the tasks hold the distributor, and end with it.
    tasks: Weak<TaskGroup>,
}

/// Registers the distributor and returns the future that runs it. The future ends when another distributor has taken
/// over.
pub fn start(
    transport: &Transport,
    request: RecruitDistributor,
    info: Watch<Option<ClusterInfo>>,
    database: Database,
) -> impl Future<Output = ()> + use<> {
    let beacon = FailureBeacon::new(transport, request.id);
    let tasks = Rc::new(TaskGroup::new());
    let distributor = Rc::new(Distributor {
        transport: transport.clone(),
        database,
        info,
        id: request.id,
        controller: request.controller,
        cluster: request.cluster,
        missing: RefCell::default(),
        on_broken_disks: RefCell::default(),
        known: RefCell::default(),
        lags: RefCell::default(),
        sizes: RefCell::default(),
        built: RefCell::default(),
        busy: RefCell::default(),
        unsplittable: RefCell::default(),
        moves: RefCell::default(),
        recruiting: Cell::new(false),
        scan: scan::Scan::default(),
        least_copies: Cell::new(0),
        refused: RefCell::default(),
        done: Notify::new(),
        tasks: Rc::downgrade(&tasks),
    });
    let lists = Gauge::of("distributor_lists", &distributor, |d| {
        let lists = [d.missing.borrow().len(), d.refused.borrow().len()];
        lists.iter().sum::<usize>() + d.unsplittable.borrow().len() + d.busy.borrow().len()
    });
    let serving = (distributor.serve_status(), lists);
    async move {
        let _ended_with_this = (beacon, tasks, serving);
        let error = distributor.live().await;
        trace!("DistributorEnded", "id" => distributor.id, "reason" => error);
    }
}

impl Distributor {
    async fn live(self: &Rc<Self>) -> Error {
        if let Err(error) = self.take_lock().await {
            return error;
        }
        let scanner = Rc::downgrade(self);
        self.spawn("compare replicas", async move {
            if let Some(distributor) = scanner.upgrade() {
                match distributor.scan().await {}
            }
        });
        loop {
            let interval = Duration::from_millis(DISTRIBUTION_INTERVAL_MS.get());
            plinth_runtime::timeout(interval, self.done.notified()).await;
            plinth_runtime::sleep(PAUSE).await;
            match self.observe().await {
                Ok(observed) => self.act(observed).await,
                Err(Error::operation_obsolete) => return Error::operation_obsolete,
                Err(error) => trace!("DistributorBlind", "error" => error),
            }
        }
    }

    async fn take_lock(&self) -> Result<()> {
        movement::run(&self.database, async |tr| {
            tr.set(MOVE_KEYS_LOCK, self.id.to_bytes());
            Ok(())
        })
        .await
    }

    /// Runs a transaction that commits only while this is the distributor. [`Error::operation_obsolete`] if it no
    /// longer is, or if `body` did not find the expected state.
    async fn run<T>(&self, mut body: impl AsyncFnMut(&Transaction) -> Result<T>) -> Result<T> {
        movement::run(&self.database, async |tr| {
            self.check_lock(tr).await?;
            body(tr).await
        })
        .await
    }

    async fn check_lock(&self, tr: &Transaction) -> Result<()> {
        let holder = tr.get(MOVE_KEYS_LOCK, false).await?;
        let ours = holder.is_some_and(|holder| Uid::from_bytes(&holder) == Some(self.id));
        ours.then_some(()).ok_or(Error::operation_obsolete)
    }

    fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + 'static) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.spawn(name, work);
        }
    }

    async fn act(self: &Rc<Self>, observed: Observed) {
        let Observed {
            world,
            recruit,
            is_off,
            zones,
            over,
        } = observed;
        self.note_zones(zones);
        if let Some(maintenance) = over {
            self.end_maintenance(maintenance);
        }
        self.moves.borrow_mut().see(&world, &self.busy.borrow());
        for shard in &world.shards {
            if !shard.destination.is_empty() {
                // Begun by a predecessor, or by an operator. It ends even if operators have switched all else off:
                // servers have their orders.
                let (team, to) = (shard.team.clone(), shard.destination.clone());
                self.continue_move(shard.range.clone(), team, to);
            }
        }
        if is_off {
            probe!("distributor_is_off");
            self.least_copies.set(plan::least_copies(&world));
            return;
        }
        let limits = plan::Limits {
            moves: MOVES_MAX.get(),
            moves_a_server: MOVES_PER_SERVER_MAX.get(),
            shard_bytes_min: SHARD_BYTES_MIN.get() as u64,
            shard_bytes_max: SHARD_BYTES_MAX.get() as u64,
            shard_writes_max: SHARD_WRITE_BYTES_PER_SECOND_MAX.get() as u64,
            shards_a_team: SHARDS_PER_TEAM.get(),
        };
        // With 100,000 shards, planning takes long enough to delay other tasks on the loop.
        let mut built = self.built.take();
        let planned = plinth_runtime::offload(move || {
            let steps = plan::next(&world, limits, &mut built);
            let steps = steps
                .into_iter()
                .map(|step| (moves::bytes_of(&step, &world), step));
            let steps: Vec<(u64, plan::Step)> = steps.collect();
            let (least_copies, remove) = (plan::least_copies(&world), plan::to_remove(&world));
            (steps, least_copies, remove, built)
        });
        let (steps, least_copies, remove, built) = planned.await;
        self.built.replace(built);
        self.least_copies.set(least_copies);
        for (bytes, step) in steps {
            self.take_step(step, bytes);
        }
        if let Some(recruitment) = recruit {
            self.recruit(recruitment);
        }
        for id in remove {
            self.remove(id);
        }
    }
}
