//! The cluster controller (FDB §2.3.1): knows which workers live, keeps one epoch of the transaction system alive, and
//! tells workers and clients about it.
//!
//! ```text
//!             ┌─────────────── the epoch ends ────────────────┐
//!             ▼                                               │
//! elected ─► recover, until it works ─► publish the epoch ─► keep it
//!             └──────┬────────────────────────────────────────┘
//!                    └─ another recovers, or the coordinators have moved ─► end
//! ```
//!
//! It promises: an epoch is published only when it is in the coordinated state; two processes over copies of one data
//! directory are never registered at once; a log generation is forgotten only when every storage server has all of it
//! on disk.
//!
//! It keeps nothing on disk. A new controller learns of the workers as they register, and of the database by
//! reading the coordinated state. When any role of the epoch ends, the epoch ends, and a recovery starts the next
//! (FDB §2.3.5). A controller that finds another recovering, or that the coordinators have moved, ends itself: [`run`]
//! returns.

use crate::cluster::{Cluster, tell};
use crate::context::Context;
use crate::knobs::RECOVERY_RETRY_MS;
use crate::recovery::{self, Running};
use crate::{
    beat, coordinators, creation, full_disks, growth, singletons, status, streams, time_keeper,
};
use plinth_coordination::{CoordinatedState, Coordinators};
use plinth_core::codec::Codec;
use plinth_core::{DatabaseConfig, Error, Result, Tag, Uid, Version};
use plinth_protocol::control::{
    ChangeCoordinators, ChangeCoordinatorsReply, CreateDatabase, GetClientInfo, GetClusterInfo,
    GetWorkers, Locality, RegisterWorker, RegisterWorkerReply, ReportDurable, ServersChanged,
    Workers,
};
use plinth_protocol::log::LogGeneration;
use plinth_protocol::role::Role;
use plinth_protocol::status::{GetStatus, StatusReply};
use plinth_rpc::{Gone, Interface, Registration, Responder, Transport, Waiters, wait_failure};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Boxed, Duration, Either, TaskGroup, never, probe, trace};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// Requests for other coordinators that may wait.
const CHANGES_MAX: usize = 10;
/// Limit of processes in a cluster. Further processes are not registered.
const WORKERS_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 1000;
/// Pause before coordinators are read again that hold the states of two databases.
const DIVIDED_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a search for drained log generations, after a storage server has reported progress.
const DRAIN_CHECK: Duration = Duration::from_millis(500);

/// What ends an epoch: a role that has gone, a server under another address, another configuration, a broken disk, or
/// better places for log servers.
type Over = Either<(Role, Interface, Gone), Either<Either<(), ()>, Either<(), ()>>>;

/// Says why an epoch has ended.
fn why_over(over: Over) -> String {
    match over {
        Either::Left((name, role, gone)) => {
            let (id, address) = (role.id, role.address);
            trace!("RoleEnded", "role" => name, "address" => address, "id" => id, "reason" => gone);
            format!("{name} {id} at {address}: {gone}")
        }
        Either::Right(Either::Left(Either::Left(()))) => {
            "a server has come back under another address".to_owned()
        }
        Either::Right(Either::Left(Either::Right(()))) => {
            "what is configured has changed".to_owned()
        }
        Either::Right(Either::Right(Either::Left(()))) => {
            "the disk of a log server is full or sick".to_owned()
        }
        Either::Right(Either::Right(Either::Right(()))) => {
            "there are better places for log servers: more of them, or none that is excluded"
                .to_owned()
        }
    }
}

struct Controller {
    context: Rc<Context>,
    cluster: Rc<Cluster>,
    status_waiting: Waiters<GetStatus>,
    status_wanted: Notify,
    /// Notified when a storage server has reported its durable version.
    drained: Notify,
    /// Task that watches each worker, by process.
    watches: RefCell<BTreeMap<Uid, TaskGroup>>,
    /// True if the database is known to exist.
    created: Cell<bool>,
    /// Addresses in this epoch of storage servers, and of log servers of older epochs.
    addresses: RefCell<BTreeMap<Uid, SocketAddr>>,
    /// Notified if one of them comes back under another address, or if a worker has served in a later epoch.
    moved: Notify,
    /// Requests to move the coordinators.
    changes: RefCell<Vec<(ChangeCoordinators, Responder<ChangeCoordinators>)>>,
    coordinators_wanted: Notify,
}

/// Runs the controller until another takes over. `interface` is the one that was elected. Its failure beacon belongs
/// to the candidate, because coordinators watch it from the moment of the election. True if it has given up its place
/// because it is cut off from log servers that others reach.
pub fn run(
    transport: Transport,
    coordinators: Coordinators,
    interface: Interface,
) -> Boxed<'static, bool> {
    Box::pin(async move {
        let controller = Rc::new(Controller::new(&transport, &coordinators, interface));
        let _serving = (controller.clone().serve(), controller.gauges());
        let tasks = TaskGroup::new();
        let documents = controller.clone().make_status_documents();
        tasks.spawn("status", documents);
        tasks.spawn("old polls", controller.cluster.clone().answer_old_polls());
        tasks.spawn(
            "time keeper",
            time_keeper::keep(controller.cluster.database.clone()),
        );
        tasks.spawn("beat", beat::beat(controller.cluster.database.clone()));
        let database = controller.cluster.database.clone();
        let sizes = controller.cluster.stream_sizes.clone();
        tasks.spawn("streams", streams::trim(database, sizes));
        let mut coordinated = CoordinatedState::new(&transport, &coordinators, interface.id);
        loop {
            match recovery::recover(&controller.context, &mut coordinated).await {
                Ok(running) => {
                    controller.begin(&running);
                    match controller.keep(&mut coordinated, running).await {
                        Error::coordinated_state_conflict | Error::coordinators_changed => break,
                        _ => trace!("EpochEnded", "reason" => controller.context.phase.why_ended()),
                    }
                }
                Err(Error::coordinated_state_conflict | Error::coordinators_changed) => break,
                Err(error) => {
                    trace!("RecoveryFailed", "error" => error);
                    plinth_runtime::sleep(Duration::from_millis(RECOVERY_RETRY_MS.get())).await;
                }
            }
        }
        probe!("controller_ends_after_conflict");
        trace!("ControllerEnded", "id" => interface.id);
        controller.context.is_cut_off.get()
    })
}

impl Controller {
    fn new(transport: &Transport, coordinators: &Coordinators, interface: Interface) -> Self {
        let context = Rc::new(Context::new(transport, coordinators));
        Controller {
            cluster: Rc::new(Cluster::new(context.clone(), interface)),
            context,
            status_waiting: Waiters::new("controller_status"),
            status_wanted: Notify::new(),
            drained: Notify::new(),
            watches: RefCell::default(),
            created: Cell::new(false),
            addresses: RefCell::default(),
            moved: Notify::new(),
            changes: RefCell::default(),
            coordinators_wanted: Notify::new(),
        }
    }

    fn serve(self: Rc<Self>) -> Vec<Registration> {
        let id = self.cluster.interface.id;
        let transport = self.context.transport.clone();
        let [a, b, c, d, e, f, g, h, i] = std::array::from_fn(|_| self.clone());
        vec![
            transport.serve::<RegisterWorker>(id, move |request, responder| {
                let namesake = a.namesake(&request);
                let other_database = a.database_instead(&request);
                let taken_by = match other_database {
                    Some(_) => None,
                    None => namesake.or_else(|| a.register(request)),
                };
                responder.ok(RegisterWorkerReply {
                    taken_by,
                    name_is_taken: namesake.is_some(),
                    other_database,
                });
            }),
            transport.serve::<GetClusterInfo>(id, move |request, responder| {
                b.cluster.poll(request, responder);
            }),
            transport.serve::<GetClientInfo>(id, move |request, responder| {
                c.cluster.poll_as_client(request, responder);
            }),
            transport.serve::<CreateDatabase>(id, move |request, responder| {
                responder.record(format_args!("{:?}", request.config));
                d.create(request, responder)
            }),
            transport.serve::<ReportDurable>(id, move |request, responder| {
                e.report_durable(&request);
                responder.ok(());
            }),
            transport.serve::<GetStatus>(id, move |_, responder| {
                f.status_waiting.add((), responder);
                f.status_wanted.notify_one();
            }),
            transport.serve::<ServersChanged>(id, move |_, responder| {
                g.cluster.servers_changed.notify_one();
                responder.ok(());
            }),
            transport.serve::<GetWorkers>(id, move |_, responder| {
                let workers = h.context.workers.with(|w| w.values().cloned().collect());
                responder.ok(Workers { workers });
            }),
            transport.serve::<ChangeCoordinators>(id, move |request, responder| {
                if i.changes.borrow().len() >= CHANGES_MAX {
                    return responder.fail(Error::server_request_queue_full);
                }
                let text: Vec<String> =
                    request.coordinators.iter().map(|a| a.to_string()).collect();
                responder.record(text.join(","));
                i.changes.borrow_mut().push((request, responder));
                i.coordinators_wanted.notify_one();
            }),
        ]
    }

    fn gauges(self: &Rc<Self>) -> [Gauge; 5] {
        [
            Gauge::of("controller_creating", self, |c| {
                c.context.creation.waiting()
            }),
            Gauge::of("controller_changes", self, |c| c.changes.borrow().len()),
            Gauge::of("controller_durable", self, |c| {
                c.cluster.durable.borrow().len()
            }),
            Gauge::of("controller_watches", self, |c| c.watches.borrow().len()),
            Gauge::of("controller_workers", self, |c| {
                c.context.workers.with(BTreeMap::len)
            }),
        ]
    }

    /// Registers a worker and watches it. A second worker of the same process is another server over a copy of its
    /// data directory, or over the same directory at another address before the first is known to be gone. It is
    /// refused and gets the address of the first.
    fn register(self: &Rc<Self>, mut worker: RegisterWorker) -> Option<SocketAddr> {
        let process = worker.locality.process;
        self.forget_former(process, worker.worker.address);
        worker.given = self.context.classes.borrow().get(&process).copied();
        let known = self
            .context
            .workers
            .with(|workers| workers.get(&process).cloned());
        if known.as_ref() == Some(&worker) {
            return None;
        }
        let elsewhere = known.as_ref().map(|known| known.worker.address);
        if let Some(other) = elsewhere.filter(|at| *at != worker.worker.address) {
            probe!("process_lives_elsewhere");
            trace!("ProcessTaken", "id" => process, "by" => other, "refused" => worker.worker.address);
            return Some(other);
        }
        let count = self.context.workers.with(BTreeMap::len);
        if (known.is_none() && count >= WORKERS_MAX) || !is_plausible(&worker) {
            probe!("controller_refuses_worker");
            return None;
        }
        trace!("WorkerRegistered", "address" => worker.worker.address, "class" => worker.class().name());
        let interface = worker.worker;
        self.look_for_moved_servers(&worker);
        if self.cluster.info.with(|info| {
            info.accepting
                && worker.epoch > info.epoch
                && creation::may_be_ahead(&worker, &info.database, true)
        }) {
            // The recovery that follows reports the problem.
            trace!("WorkerIsAhead", "address" => worker.worker.address, "epoch" => worker.epoch);
            self.moved.notify_one();
        }
        self.context
            .workers
            .update(|workers| drop(workers.insert(process, worker)));
        if known.is_some_and(|k| k.worker == interface)
            && self.watches.borrow().contains_key(&process)
        {
            return None;
        }
        let tasks = TaskGroup::new();
        // Weak, because the controller owns its watches.
        let (controller, transport) = (Rc::downgrade(self), self.context.transport.clone());
        tasks.spawn("watch worker", async move {
            wait_failure(&transport, interface).await;
            let Some(controller) = controller.upgrade() else {
                return;
            };
            trace!("WorkerGone", "address" => interface.address);
            controller
                .context
                .workers
                .update(|workers| drop(workers.remove(&process)));
            // Ends this very task, so it comes last.
            let gone = controller.watches.borrow_mut().remove(&process);
            drop(gone);
        });
        self.watches.borrow_mut().insert(process, tasks);
        None
    }

    /// The database of this cluster, if the worker has data of another one: then it is not let in.
    fn database_instead(&self, worker: &RegisterWorker) -> Option<Uid> {
        let database = self.context.database.get()?;
        let is_other = creation::holds_another(worker, &database);
        is_other.then(|| {
            probe!("worker_of_another_database_refused");
            let (address, holds) = (worker.worker.address, worker.database);
            trace!("WorkerOfAnotherDatabase", "address" => address, "holds" => holds, "not" => database.id);
            database.id
        })
    }

    /// Where another process lives that has the same name. The first that tells a name keeps it.
    fn namesake(&self, worker: &RegisterWorker) -> Option<SocketAddr> {
        self.forget_former(worker.locality.process, worker.worker.address);
        let name = worker.name.as_ref()?;
        let is_other = |other: &&RegisterWorker| {
            other.locality.process != worker.locality.process && other.name.as_ref() == Some(name)
        };
        let other = self.context.workers.with(|workers| {
            let other = workers.values().find(is_other);
            other.map(|other| other.worker.address)
        })?;
        probe!("name_is_taken");
        trace!("NameTaken", "name" => name, "by" => other, "refused" => worker.worker.address);
        Some(other)
    }

    /// Removes another process that was at this address. It is gone, even if its watch has not noticed that yet.
    fn forget_former(&self, process: Uid, address: SocketAddr) {
        let is_former =
            |id: &Uid, worker: &RegisterWorker| *id != process && worker.worker.address == address;
        let former = self.context.workers.with(|workers| {
            let mut at = workers.iter().filter(|(id, worker)| is_former(id, worker));
            at.next().map(|(id, _)| *id)
        });
        if let Some(former) = former {
            self.context
                .workers
                .update(|workers| drop(workers.remove(&former)));
            let watch = self.watches.borrow_mut().remove(&former);
            drop(watch);
        }
    }

    /// Ends the epoch if a server has come back under another address. All processes look for a server at the address
    /// in the coordinated state and the system keyspace; a recovery writes the new address there.
    fn look_for_moved_servers(&self, worker: &RegisterWorker) {
        let addresses = self.addresses.borrow();
        let logs = worker.logs.iter().map(|(id, _)| id);
        for id in logs.chain(worker.storage.iter().map(|(id, _)| id)) {
            let now = worker.worker.address;
            if let Some(known) = addresses.get(id).filter(|known| **known != now) {
                trace!("ServerMoved", "id" => id, "from" => known, "to" => now);
                self.moved.notify_one();
            }
        }
    }

    fn create(self: &Rc<Self>, request: CreateDatabase, responder: Responder<CreateDatabase>) {
        let valid = DatabaseConfig::parse_mode(request.config.mode()).is_some()
            && [
                request.config.logs,
                request.config.resolvers,
                request.config.commit_proxies,
                request.config.grv_proxies,
            ]
            .iter()
            .all(|count| (1..=100).contains(count));
        if !valid {
            return responder.fail(Error::invalid_option_value);
        }
        if self.created.get() {
            return responder.fail(Error::invalid_option);
        }
        // The recovery decides whether a database may be created: it finds out whether there is one already.
        self.context.creation.want(request, responder);
    }

    /// Ignores reports of servers that do not belong to the database.
    fn report_durable(&self, report: &ReportDurable) {
        let mut durable = self.cluster.durable.borrow_mut();
        let is_listed = || {
            let is_it = |(id, _): &(Uid, Tag)| *id == report.server;
            self.cluster
                .info
                .with(|info| info.servers.iter().any(is_it))
        };
        if durable.contains_key(&report.server) || is_listed() {
            durable.insert(report.server, report.version.version());
            self.drained.notify_one();
        }
    }

    /// Makes status documents. A request that arrives while a document is being made gets the next one.
    async fn make_status_documents(self: Rc<Self>) {
        loop {
            self.status_wanted.notified().await;
            let asked: Vec<_> = self.status_waiting.take().collect();
            let json = status::document(&self.cluster).await;
            for ((), responder) in asked {
                responder.ok(StatusReply { json: json.clone() });
            }
        }
    }

    fn begin(&self, running: &Running) {
        self.cluster.publish(|info| {
            let (before, epoch) = (info.epoch, running.state.epoch);
            never!(epoch <= before, "EpochBeganBefore", "epoch" => epoch, "before" => before);
            info.epoch = running.state.epoch;
            info.accepting = true;
            info.database = running.state.database;
            info.log_system = running.state.log_system.clone();
            info.servers = running.servers.tags();
            info.next_tag = running.servers.next_tag;
            tell(info, &running.configured);
            info.client = running.client.clone();
        });
        self.addresses.replace(running.addresses.clone());
        self.created.set(true);
        self.context.phase.recovered(running.state.epoch);
        // A database of a later epoch existed before, so it was not created by these requests.
        let created = running.state.epoch == 1;
        if created {
            return self.context.creation.answer("");
        }
        for responder in self.context.creation.take_asking() {
            responder.fail(Error::invalid_option);
        }
    }

    /// Keeps the epoch until one of its roles ends; removes drained log generations meanwhile. Returns why it ended.
    async fn keep(
        self: &Rc<Self>,
        coordinated: &mut CoordinatedState,
        mut running: Running,
    ) -> Error {
        let roles = running.roles.clone();
        let watched = roles.iter().map(|(name, role)| async {
            let gone = wait_failure(&self.context.transport, *role).await;
            (*name, *role, gone)
        });
        let failure = first_of(watched.collect());
        let config = running.state.config;
        self.context.config.set(Some(config));
        let generation = running.state.log_system.current().cloned();
        let configured = running.configured.clone();
        let other_logs = async {
            let Some(generation) = &generation else {
                return std::future::pending().await;
            };
            let full = full_disks::watch(&self.context, generation, &configured);
            let more = growth::watch(&self.context, generation, &configured);
            plinth_runtime::race(full, more).await
        };
        // One for each epoch: a late notification must not end the next epoch.
        let reconfigure = Rc::new(Notify::new());
        let changed = plinth_runtime::race(self.moved.notified(), reconfigure.notified());
        let wanted = plinth_runtime::race(changed, other_logs);
        let tasks = TaskGroup::new();
        self.cluster.roles.replace(running.roles.clone());
        tasks.spawn(
            "server list",
            singletons::follow_servers(
                self.cluster.clone(),
                running.configured.clone(),
                reconfigure.clone(),
            ),
        );
        let distributor = singletons::keep_distributor(self.cluster.clone(), running.state.epoch);
        tasks.spawn("keep distributor", distributor);
        let ratekeeper = singletons::keep_ratekeeper(self.cluster.clone(), running.state.epoch);
        tasks.spawn("keep ratekeeper", ratekeeper);
        let mut over = std::pin::pin!(plinth_runtime::race(failure, wanted));
        loop {
            let work = async {
                let drained = self.drained_generations(&running);
                let wanted = self.coordinators_wanted.notified();
                let which = plinth_runtime::race(drained, wanted).await;
                match which {
                    Either::Left(count) => {
                        self.forget_generations(coordinated, &mut running, count)
                            .await
                    }
                    Either::Right(()) => self.change_coordinators(coordinated, &running).await,
                }
            };
            match plinth_runtime::race(over.as_mut(), work).await {
                Either::Left(why) => {
                    self.context.phase.ended(why_over(why));
                    return Error::cluster_recovery_failed;
                }
                Either::Right(Ok(())) => {}
                // A coordinator of another database is there, and too many of this one are away: the epoch can wait.
                Either::Right(Err(Error::invalid_cluster_id)) => {
                    plinth_runtime::sleep(DIVIDED_PAUSE).await;
                }
                Either::Right(Err(error)) => return error,
            }
        }
    }

    /// Waits until the oldest log generations are drained, and returns how many are.
    async fn drained_generations(&self, running: &Running) -> usize {
        loop {
            if running.state.log_system.generations.len() < 2 {
                std::future::pending::<()>().await;
            }
            self.drained.notified().await;
            plinth_runtime::sleep(DRAIN_CHECK).await;
            let generations = &running.state.log_system.generations;
            let servers = self.cluster.info.with(|info| info.servers.clone());
            let drained =
                drained_generations(generations, &servers, &self.cluster.durable.borrow());
            if drained > 0 {
                return drained;
            }
        }
    }

    /// Moves the coordinated state if a request asks for that and its coordinators pass the checks. Then this
    /// controller ends, because the new coordinators elect another; the epoch continues to serve until the next
    /// recovery.
    async fn change_coordinators(
        &self,
        coordinated: &mut CoordinatedState,
        running: &Running,
    ) -> Result<()> {
        let Some((request, responder)) = self.changes.borrow_mut().pop() else {
            return Ok(());
        };
        let (transport, now) = (&self.context.transport, self.context.coordinators.file());
        let sick = |workers: &BTreeMap<Uid, RegisterWorker>| {
            coordinators::on_sick_disks(&request.coordinators, workers.values())
        };
        let checked = match self.context.workers.with(sick) {
            Some(sick) => Err(sick),
            None => {
                let database = &running.state.database;
                coordinators::check(transport, &now, &request.coordinators, database).await
            }
        };
        let lost = match checked {
            Ok(lost) => lost,
            Err(refusal) => {
                responder.ok(ChangeCoordinatorsReply { refusal });
                self.coordinators_wanted.notify_one(); // others may wait
                return Ok(());
            }
        };
        let state = running.state.to_bytes();
        coordinated.read_own(&state).await?;
        let moved = coordinated.move_to(request.coordinators, state, lost);
        moved.await?;
        probe!("coordinators_changed");
        responder.ok(ChangeCoordinatorsReply {
            refusal: String::new(),
        });
        Err(Error::coordinators_changed)
    }

    async fn forget_generations(
        &self,
        coordinated: &mut CoordinatedState,
        running: &mut Running,
        count: usize,
    ) -> Result<()> {
        let mut state = running.state.clone();
        let all = state.log_system.generations.len();
        assert!(count < all, "{count} of {all} log generations are to go");
        state.log_system.generations.drain(..count);
        // A write needs a read of its own. The read must find the state that this epoch wrote last.
        coordinated.read_own(&running.state.to_bytes()).await?;
        coordinated.write(state.to_bytes()).await?;
        probe!("log_generation_removed");
        trace!("GenerationsRemoved", "count" => count);
        running.state = state;
        self.cluster
            .publish(|info| info.log_system = running.state.log_system.clone());
        Ok(())
    }
}

/// False if the worker has more roles or longer names than any real worker. It is not registered then.
fn is_plausible(worker: &RegisterWorker) -> bool {
    let Locality {
        process: _,
        machine,
        zone,
        data_hall,
        data_center,
    } = &worker.locality;
    let names = [machine, zone, data_hall, data_center];
    let lists = [
        worker.logs.len(),
        worker.storage.len(),
        worker.unreachable.len(),
    ];
    names.iter().all(|name| name.len() <= NAME_BYTES_MAX)
        && lists.iter().all(|length| *length <= WORKERS_MAX)
}

/// Number of the oldest generations that are no longer needed: every storage server has everything in them on disk.
fn drained_generations(
    generations: &[LogGeneration],
    servers: &[(Uid, Tag)],
    durable: &BTreeMap<Uid, Version>,
) -> usize {
    let on_disk = |(server, _): &(Uid, Tag)| durable.get(server).copied().unwrap_or(0);
    let everywhere = servers.iter().map(on_disk).min().unwrap_or(0);
    generations
        .windows(2)
        .take_while(|pair| pair[1].start - 1 <= everywhere)
        .count()
}

async fn first_of<F: Future>(futures: Vec<F>) -> F::Output {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(move |context| {
        for future in &mut futures {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(context) {
                return std::task::Poll::Ready(output);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_drained_when_every_server_has_all_of_it_on_disk() {
        let generation = |epoch, start| LogGeneration {
            epoch,
            logs: vec![],
            replication: 1,
            tags_a_set: 1,
            start,
            recovered_to: start,
        };
        let generations = [generation(1, 1), generation(2, 100), generation(3, 200)];
        let servers = [(Uid(1), Tag(0)), (Uid(2), Tag(1))];
        let drained = |durable| drained_generations(&generations, &servers, &durable);
        let durable = |a, b| BTreeMap::from([(Uid(1), a), (Uid(2), b)]);
        assert_eq!(drained(durable(99, 98)), 0);
        assert_eq!(drained(durable(99, 150)), 1);
        assert_eq!(drained(durable(500, 500)), 2);
        assert_eq!(drained(BTreeMap::from([(Uid(1), 500)])), 0);
    }
}
