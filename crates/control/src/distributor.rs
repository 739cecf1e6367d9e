//! The data distributor (FDB §2.3.1): keeps every shard on a fit team, and the bytes even over the servers.
//!
//! It looks at the world, [plans](plan) a few steps, takes them, and looks again. All that must outlive it is in the system
//! keyspace: a new one finds the moves that its predecessor began, and brings them to an end. Two cannot work at once:
//! whoever comes later takes the lock, and every transaction of the other then fails.

mod observe;
pub mod plan;
mod scan;
mod sizes;
mod steps;
pub mod teams;

use crate::movement;
use observe::{Known, Observed};
use plinth_client::{Database, Transaction};
use plinth_core::system_keys::MOVE_KEYS_LOCK;
use plinth_core::{Error, Key, Result, Uid};
use plinth_protocol::control::RecruitDistributor;
use plinth_rpc::{FailureBeacon, Interface, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, TaskGroup, trace};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

/// At least so long between two looks, whatever has come to its end.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Distributor {
    transport: Transport,
    database: Database,
    id: Uid,
    controller: Interface,
    cluster: String,
    /// Since when a server has not been seen.
    missing: RefCell<BTreeMap<Uid, Instant>>,
    /// Since when the disk of a server's process has not worked.
    on_broken_disks: RefCell<BTreeMap<Uid, Instant>>,
    /// Where the servers are, as of the last look.
    known: RefCell<Known>,
    sizes: RefCell<sizes::Sizes>,
    built: RefCell<teams::Built>,
    /// Ranges that are being worked on, by their begin.
    busy: RefCell<BTreeSet<Key>>,
    /// Shards that could not be split, and when that was seen.
    unsplittable: RefCell<BTreeMap<Key, Instant>>,
    recruiting: Cell<bool>,
    scan: scan::Scan,
    /// Of the shard that has the fewest, on servers that answer.
    least_copies: Cell<usize>,
    /// Workers that could not make a storage server, and when: others are asked first.
    refused: RefCell<BTreeMap<SocketAddr, Instant>>,
    done: Notify,
    /// Weak: the tasks know the distributor, and end with its life.
    tasks: Weak<TaskGroup>,
}

/// Registers the distributor and returns the future that is its life. It ends when another has taken its place.
pub fn start(
    transport: &Transport,
    request: RecruitDistributor,
    database: Database,
) -> impl Future<Output = ()> + use<> {
    let beacon = FailureBeacon::new(transport, request.id);
    let tasks = Rc::new(TaskGroup::new());
    let distributor = Rc::new(Distributor {
        transport: transport.clone(),
        database,
        id: request.id,
        controller: request.controller,
        cluster: request.cluster,
        missing: RefCell::default(),
        on_broken_disks: RefCell::default(),
        known: RefCell::default(),
        sizes: RefCell::default(),
        built: RefCell::default(),
        busy: RefCell::default(),
        unsplittable: RefCell::default(),
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
            let interval = Duration::from_millis(knobs().distribution_interval_ms);
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

    /// A transaction that commits only while this is the distributor; [`Error::operation_obsolete`] if it no longer is, or
    /// if what `body` found is not what it expected.
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
        let Observed { world, recruit } = observed;
        for shard in &world.shards {
            if !shard.destination.is_empty() {
                // Begun by a predecessor, or by hand.
                let (team, to) = (shard.team.clone(), shard.destination.clone());
                self.continue_move(shard.range.clone(), team, to);
            }
        }
        let limits = plan::Limits {
            moves: knobs().moves_max,
            moves_a_server: knobs().moves_per_server_max,
            shard_bytes_min: knobs().shard_bytes_min as u64,
            shard_bytes_max: knobs().shard_bytes_max as u64,
            shard_writes_max: knobs().shard_write_bytes_per_second_max as u64,
            shards_a_team: knobs().shards_per_team,
        };
        // Of 100,000 shards that takes long enough for others on the loop to notice.
        let mut built = self.built.take();
        let planned = plinth_runtime::offload(move || {
            let steps = plan::next(&world, limits, &mut built);
            let (least_copies, remove) = (plan::least_copies(&world), plan::to_remove(&world));
            (steps, least_copies, remove, built)
        });
        let (steps, least_copies, remove, built) = planned.await;
        self.built.replace(built);
        self.least_copies.set(least_copies);
        for step in steps {
            self.take_step(step);
        }
        if let Some(recruitment) = recruit {
            self.recruit(recruitment);
        }
        for id in remove {
            self.remove(id);
        }
    }
}
