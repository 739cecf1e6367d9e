//! The roles that a worker hosts. Makes roles on request, keeps them in one table, and ends and removes them when
//! they are over.

mod damage;
mod older;
mod reach;
mod ready;
mod revival;

use crate::access;
use crate::data_directory::{DataDirectory, FORMER, StorageMeta};
use crate::disk_watch::DiskWatch;
use crate::snapshots::ClientSnapshots;
use crate::vitals::Vitals;
use plinth_access::Known;
use plinth_control::{distributor, ratekeeper};
use plinth_coordination::Coordinators;
use plinth_core::{Epoch, Error, Result, Tag, Uid};
use plinth_log::damaged::DamagedLog;
use plinth_log::serve::Reopened;
use plinth_protocol::control::{
    ClusterInfo, DamagedStorage, GetProcessStatus, GetWorkerStatus, KillRole, OlderCopy,
    RecruitDistributor, SickDisk, WORKER, WorkerStatus,
};
use plinth_protocol::database::WITHOUT_ID;
use plinth_protocol::log::{LogSystem, RecruitLog};
use plinth_protocol::rate::RecruitRatekeeper;
use plinth_protocol::role::Role;
use plinth_protocol::storage::RecruitStorage;
use plinth_protocol::transaction::{
    RecruitCommitProxy, RecruitGrvProxy, RecruitResolver, RecruitSequencer,
};
use plinth_rpc::{Interface, Registration, Request, Responder, Transport};
use plinth_runtime::machine::Usage;
use plinth_runtime::readiness::Readiness;
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{Duration, Either, Task, never, now, planted, probe, trace, trace_warn};
use plinth_storage::server::StorageRole;
use plinth_storage::windowed::WindowedStore;
use revival::Stored;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::rc::{Rc, Weak};

/// A process that is asked to end goes on for this long, so that the answer gets out.
const ANSWER_ON_ITS_WAY: Duration = Duration::from_millis(100);

/// Kind of a role, and how long it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Ends with its epoch.
    Transaction(Epoch),
    /// Ends when no generation of the log system names it.
    Log(Epoch),
    /// Ends when the database does not list it.
    Storage(Tag),
}

struct Hosted {
    kind: Kind,
    role: Role,
    _life: Task<()>,
}

/// Limit of role requests that are remembered; the latest are kept.
const ASKED_MAX: usize = 10_000;

pub struct Hosting {
    transport: Transport,
    /// Interface for role requests. A process that starts again does not receive the requests for its predecessor.
    worker: Interface,
    /// Roles that were requested. No role is made twice, because a request may arrive again, however late.
    asked: RefCell<VecDeque<Uid>>,
    directory: Rc<DataDirectory>,
    /// Key of the cluster. Requests for another one are refused.
    cluster: String,
    coordinators: Coordinators,
    /// Bytes of cache that a storage server's engine may use.
    cache_bytes: usize,
    info: Watch<Option<ClusterInfo>>,
    disk: Rc<DiskWatch>,
    log_system: Watch<LogSystem>,
    fatal: Watch<Option<String>>,
    roles: RefCell<BTreeMap<Uid, Hosted>>,
    /// Roles that were here when the process started, in a directory that did not tell its database, until a
    /// description names one of them. They may be of another database.
    unclaimed: RefCell<BTreeSet<Uid>>,
    /// Log servers whose files are damaged, and of which it is not known yet whether the cluster can do without them.
    damaged_logs: RefCell<BTreeMap<Uid, Task<()>>>,
    /// Log servers that serve what can be read of damaged files.
    logs_with_holes: RefCell<BTreeSet<Uid>>,
    /// Storage servers whose files are damaged, and that the cluster may still need.
    damaged_storage: RefCell<BTreeMap<Uid, DamagedStorage>>,
    /// Storage servers whose files are of the past, until the cluster no longer lists them.
    older_copies: RefCell<BTreeMap<Uid, OlderCopy>>,
    change: Notify,
    newest_epoch: Cell<Epoch>,
    registrations: RefCell<Vec<Registration>>,
    /// For storage servers that take over a range.
    snapshots: Rc<ClientSnapshots>,
    vitals: Rc<Vitals>,
    /// For storage servers: who may read what.
    access: Rc<Known>,
    readiness: RefCell<Readiness>,
}

impl Hosting {
    /// Brings back the roles in the data directory, and accepts role requests.
    pub async fn start(
        transport: &Transport,
        coordinators: &Coordinators,
        directory: Rc<DataDirectory>,
        cache_bytes: usize,
        disk: Rc<DiskWatch>,
        info: Watch<Option<ClusterInfo>>,
        fatal: Watch<Option<String>>,
    ) -> std::result::Result<Rc<Self>, String> {
        let database = plinth_client::connect_over(transport.clone(), coordinators.clone());
        let address = transport.address().expect("a worker has an address");
        let life = Uid(plinth_runtime::random::uid());
        let hosting = Rc::new(Hosting {
            transport: transport.clone(),
            worker: Interface::new(address, life),
            asked: RefCell::default(),
            directory,
            cluster: coordinators.key(),
            coordinators: coordinators.clone(),
            cache_bytes,
            info,
            disk,
            log_system: Watch::new(LogSystem {
                generations: vec![],
            }),
            fatal,
            roles: RefCell::default(),
            unclaimed: RefCell::default(),
            damaged_logs: RefCell::default(),
            logs_with_holes: RefCell::default(),
            damaged_storage: RefCell::default(),
            older_copies: RefCell::default(),
            change: Notify::new(),
            newest_epoch: Cell::new(0),
            registrations: RefCell::default(),
            snapshots: Rc::new(ClientSnapshots(database)),
            vitals: Rc::default(),
            access: Rc::default(),
            readiness: RefCell::new(Readiness::new(now())),
        });
        hosting.bring_back().await?;
        hosting.serve();
        Ok(hosting)
    }

    /// Keeps what the storage servers know of the rights of clients.
    pub fn follow_access(&self) -> Task<()> {
        let database = self.snapshots.0.clone();
        let following = access::follow(self.transport.clone(), database, self.access.clone());
        plinth_runtime::spawn("access", async move { match following.await {} })
    }

    async fn bring_back(self: &Rc<Self>) -> std::result::Result<(), String> {
        let unreadable =
            |e: std::io::Error| format!("cannot list {}: {e}", self.directory.path.display());
        let (logs, storage) = self.directory.contents().await.map_err(unreadable)?;
        if self.directory.database() == WITHOUT_ID {
            self.unclaimed
                .borrow_mut()
                .extend(logs.iter().chain(&storage));
        }
        for id in logs {
            if let Err(error) = self.bring_back_log(id).await {
                let handled = self.not_back(id, Stored::Log(None), error);
                let place = self.directory.log_prefix(id);
                handled.map_err(|e| format!("log server {}: {e}", place.display()))?;
            }
        }
        for id in storage {
            if let Err(error) = self.bring_back_storage(id).await {
                let handled = self.not_back(id, Stored::Storage(None), error);
                let place = self.directory.storage_prefix(id);
                handled.map_err(|e| format!("storage server {}: {e}", place.display()))?;
            }
        }
        Ok(())
    }

    /// Handles a server that could not be brought back from its files. Returns the error if that is neither damage nor
    /// a failure of the disk.
    fn not_back(self: &Rc<Self>, id: Uid, stored: Stored, error: Error) -> Result<()> {
        match stored {
            _ if is_the_disks(error) => self.come_back_later(id, stored, error),
            _ if !error.is_damage() => return Err(error),
            Stored::Log(_) => self.give_up_log_later(id, error),
            Stored::Storage(_) => self.storage_cannot_start(id, error),
        }
        Ok(())
    }

    async fn bring_back_log(self: &Rc<Self>, id: Uid) -> Result<()> {
        let (prefix, info) = (self.directory.log_prefix(id), self.info.clone());
        match plinth_log::serve::reopen(&self.transport, &prefix, id, info).await? {
            Some(Reopened {
                epoch,
                life,
                damage,
            }) => {
                trace!("LogReopened", "id" => id, "epoch" => epoch);
                match damage {
                    Some(lost) => self.host_damaged_log(id, epoch, lost, life),
                    None => self.host_log(id, epoch, life),
                }
            }
            // Made but never used, because its recruitment was never confirmed.
            None => self.remove_files(id).await,
        }
        Ok(())
    }

    async fn bring_back_storage(self: &Rc<Self>, id: Uid) -> Result<()> {
        let meta = self.directory.read_storage_meta(id).await?;
        match self.start_storage(id, meta, false).await {
            // Its `.meta` file came when they were there.
            Err(Error::file_not_found) => {
                probe!("storage_files_are_gone");
                let file = self.directory.storage_prefix(id);
                trace_warn!("EngineFileDamaged", "file" => file.display(), "what" => "its files are gone");
                Err(Error::file_corrupt)
            }
            started => started,
        }
    }

    fn host_log(self: &Rc<Self>, id: Uid, epoch: Epoch, life: plinth_log::serve::Life) {
        // Weak: the hosting owns its roles.
        let hosting = Rc::downgrade(self);
        self.host(id, Kind::Log(epoch), Role::Log, async move {
            let error = life.await;
            if let Some(hosting) = hosting.upgrade() {
                hosting.come_back_later(id, Stored::Log(Some(epoch)), error);
            }
        });
    }

    /// Handles a log server whose files are damaged. The other roles of the process serve meanwhile. Its files stay
    /// where they are until no generation names it: the others of its sets may be damaged as well, and are asked
    /// until then. If a recovery says that no epoch can begin without it, or an older generation has no others, it
    /// was the last one to hold some of the log: then the process ends and reports that.
    fn give_up_log_later(self: &Rc<Self>, id: Uid, error: Error) {
        probe!("damaged_log");
        let place = self.directory.log_prefix(id);
        // The disk queue has reported the exact place.
        trace!("LogDamaged", "place" => place.display(), "error" => error);
        let (hosting, info) = (Rc::downgrade(self), self.info.clone());
        let answering = DamagedLog::answer_for(&self.transport, id);
        let giving_up = plinth_runtime::spawn("damaged log", async move {
            let is_over = async {
                info.wait_until(|info| has_begun_without(info, id)).await;
                let had_others = info.with(|info| others_hold_log(info, id));
                if had_others {
                    info.wait_until(|info| is_named_nowhere(info, id)).await;
                }
                had_others
            };
            let had_others = match plinth_runtime::race(is_over, answering.needed()).await {
                Either::Left(had_others) => had_others,
                Either::Right(()) => false,
            };
            drop(answering);
            let Some(hosting) = hosting.upgrade() else {
                return;
            };
            hosting.log_is_damaged(id, &place, error, had_others).await;
            let ended = hosting.damaged_logs.borrow_mut().remove(&id);
            hosting.change.notify_all();
            drop(ended);
        });
        let previous = self.damaged_logs.borrow_mut().insert(id, giving_up);
        drop(previous);
        self.change.notify_all();
    }

    /// Serves the requests to make a role, to end one, and to tell how the process is.
    fn serve(self: &Rc<Self>) {
        self.take_transaction_roles();
        self.take_singletons();
        self.take_slowly::<RecruitLog, _>(|r| r.id, |h, r| async move { h.recruit_log(r).await });
        self.take_slowly::<RecruitStorage, _>(
            |r| r.id,
            |h, r| async move { h.recruit_storage(r).await },
        );
        let hosting = Rc::downgrade(self);
        let kill = move |request: KillRole, responder: Responder<KillRole>| {
            if let Some(hosting) = hosting.upgrade() {
                responder.record(request.id);
                let work = hosting.kill(request.id);
                plinth_runtime::spawn("kill", async move { responder.send(work.await) }).detach();
            }
        };
        let (vitals, of_process) = (self.vitals.clone(), self.vitals.clone());
        let status = move |_, responder: Responder<GetWorkerStatus>| responder.ok(vitals.status());
        let process =
            move |_, responder: Responder<GetProcessStatus>| responder.ok(of_process.process());
        let mut registrations = self.registrations.borrow_mut();
        registrations.push(self.transport.serve::<KillRole>(WORKER, kill));
        registrations.push(self.transport.serve(self.worker.id, status));
        registrations.push(self.transport.serve(self.worker.id, process));
        registrations.push(reach::serve(&self.transport, self.worker.id));
    }

    fn take_transaction_roles(self: &Rc<Self>) {
        use plinth_transaction::{commit_proxy, grv_proxy, resolver, sequencer};
        self.take(
            Role::Sequencer,
            |r: &RecruitSequencer| (r.id, r.epoch),
            |h, r| match sequencer::is_possible(&r) {
                true => Ok(sequencer::start(&h.transport, r)),
                false => Err(Error::client_invalid_operation),
            },
        );
        self.take(
            Role::GrvProxy,
            |r: &RecruitGrvProxy| (r.id, r.epoch),
            |h, r| Ok(grv_proxy::start(&h.transport, r, h.info.clone())),
        );
        self.take(
            Role::Resolver,
            |r: &RecruitResolver| (r.id, r.epoch),
            |h, r| Ok(resolver::start(&h.transport, r)),
        );
        self.take(
            Role::CommitProxy,
            |r: &RecruitCommitProxy| (r.id, r.epoch),
            |h, r| {
                if r.log_system.current().is_none() || r.resolvers.is_empty() {
                    return Err(Error::client_invalid_operation);
                }
                Ok(commit_proxy::start(&h.transport, r, h.cluster.clone()))
            },
        );
    }

    fn take_singletons(self: &Rc<Self>) {
        self.take(
            Role::Distributor,
            |r: &RecruitDistributor| (r.id, r.epoch),
            |h, r| {
                h.check_cluster(&r.cluster)?;
                let (info, database) = (h.info.clone(), h.snapshots.0.clone());
                Ok(distributor::start(&h.transport, r, info, database))
            },
        );
        self.take(
            Role::Ratekeeper,
            |r: &RecruitRatekeeper| (r.id, r.epoch),
            |h, r| {
                h.check_cluster(&r.cluster)?;
                let (info, database) = (h.info.clone(), h.snapshots.0.clone());
                Ok(ratekeeper::start(&h.transport, r, info, database))
            },
        );
    }

    fn check_cluster(&self, asked_for: &str) -> Result<()> {
        match asked_for == self.cluster {
            true => Ok(()),
            false => Err(Error::connection_string_invalid),
        }
    }

    /// Interface for role requests in this life of the process.
    pub fn worker(&self) -> Interface {
        self.worker
    }

    /// True if this is the first request for the role. Otherwise the first request has been answered, or will be.
    fn is_new(&self, id: Uid) -> bool {
        let mut asked = self.asked.borrow_mut();
        if asked.contains(&id)
            && !planted!(
                "role_made_twice",
                "a worker makes a role again when it is asked once more for one that it has made"
            )
        {
            probe!("worker_is_asked_twice_for_a_role");
            return false;
        }
        if asked.len() >= ASKED_MAX {
            asked.pop_front();
        }
        asked.push_back(id);
        true
    }

    /// Takes requests for a role of an epoch, which has nothing on disk. `make` begins its life.
    fn take<R: Request<Reply = ()>, F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        role: Role,
        named: impl Fn(&R) -> (Uid, Epoch) + 'static,
        make: impl Fn(&Rc<Self>, R) -> Result<F> + 'static,
    ) {
        let hosting = Rc::downgrade(self);
        let take = move |request: R, responder: Responder<R>| {
            let Some(hosting) = hosting.upgrade() else {
                return;
            };
            let (id, epoch) = named(&request);
            responder.send(if hosting.is_new(id) {
                let made = make(&hosting, request);
                made.and_then(|life| hosting.stateless(id, epoch, role, life))
            } else {
                Err(Error::operation_obsolete)
            });
        };
        let registration = self.transport.serve::<R>(self.worker.id, take);
        self.registrations.borrow_mut().push(registration);
    }

    fn take_slowly<R: Request<Reply = ()>, F: Future<Output = Result<()>> + 'static>(
        self: &Rc<Self>,
        id: impl Fn(&R) -> Uid + 'static,
        make: impl Fn(Rc<Self>, R) -> F + 'static,
    ) {
        let hosting: Weak<Self> = Rc::downgrade(self);
        let take = move |request: R, responder: Responder<R>| {
            let Some(hosting) = hosting.upgrade() else {
                return;
            };
            if !hosting.is_new(id(&request)) {
                return responder.fail(Error::operation_obsolete);
            }
            let work = make(hosting, request);
            plinth_runtime::spawn("recruit", async move { responder.send(work.await) }).detach();
        };
        let registration = self.transport.serve::<R>(self.worker.id, take);
        self.registrations.borrow_mut().push(registration);
    }

    fn stateless(
        self: &Rc<Self>,
        id: Uid,
        epoch: Epoch,
        role: Role,
        life: impl Future<Output = ()> + 'static,
    ) -> Result<()> {
        if epoch < self.newest_epoch.get() {
            return Err(Error::operation_obsolete);
        }
        self.host(id, Kind::Transaction(epoch), role, life);
        Ok(())
    }

    /// Ends a role as a crash would: a log server comes back from its disk, as it would after a restart. Or the
    /// process, in order, if the id is that of its worker.
    async fn kill(self: Rc<Self>, id: Uid) -> Result<()> {
        if id == WORKER {
            self.end_soon();
            return Ok(());
        }
        let killed = self
            .roles
            .borrow_mut()
            .remove(&id)
            .ok_or(Error::client_invalid_operation)?;
        let kind = killed.kind;
        drop(killed);
        let (stored, back) = match kind {
            Kind::Transaction(_) => return Ok(()),
            Kind::Log(epoch) => (Stored::Log(Some(epoch)), self.bring_back_log(id).await),
            Kind::Storage(tag) => (
                Stored::Storage(Some(tag)),
                self.bring_back_storage(id).await,
            ),
        };
        if let Err(error) = back {
            let _ = self.not_back(id, stored, error); // the caller gets the error in any case
        }
        back
    }

    /// Ends the process when the request for it has been answered.
    fn end_soon(&self) {
        trace!("ProcessAskedToEnd", "address" => self.worker.address);
        let fatal = self.fatal.clone();
        let end = async move {
            plinth_runtime::sleep(ANSWER_ON_ITS_WAY).await;
            fatal.set(Some(
                "an operator has asked it to end (`kill' in plinth cli); who started it starts it again".into(),
            ));
        };
        plinth_runtime::spawn("end", end).detach();
    }

    async fn recruit_log(self: Rc<Self>, request: RecruitLog) -> Result<()> {
        if request.epoch < self.newest_epoch.get() {
            return Err(Error::operation_obsolete);
        }
        let (id, epoch) = (request.id, request.epoch);
        let prefix = self.directory.log_prefix(id);
        self.directory.gets_data();
        match plinth_log::creation::create(&self.transport, &prefix, request, self.info.clone())
            .await
        {
            Ok(life) => {
                self.host_log(id, epoch, life);
                // The copy may have taken so long that another attempt has made the epoch.
                if let Some(info) = self.info.get() {
                    self.obey(&info).await;
                }
                Ok(())
            }
            Err(error) => {
                // Nothing will ask for it again: the next attempt uses another id.
                self.remove_files_later(id);
                Err(error)
            }
        }
    }

    async fn recruit_storage(self: Rc<Self>, request: RecruitStorage) -> Result<()> {
        self.check_cluster(&request.cluster)?;
        let meta = StorageMeta {
            tag: request.tag,
            engine: request.engine,
            after: request.after,
        };
        // The engine first: files with no meta file are litter, a meta file with no engine would be a loss.
        self.directory.gets_data();
        self.start_storage(request.id, meta.clone(), true).await?;
        let written = self.directory.write_storage_meta(request.id, &meta).await;
        written.map_err(|error| {
            trace!("StorageMetaFailed", "id" => request.id, "error" => error);
            Error::io_error
        })
    }

    async fn start_storage(
        self: &Rc<Self>,
        id: Uid,
        meta: StorageMeta,
        create: bool,
    ) -> Result<()> {
        let prefix = self.directory.storage_prefix(id);
        let engine = plinth_engine::open(meta.engine, &prefix, create, self.cache_bytes).await?;
        let (damaged, older) = (Watch::new(None), Watch::new(None));
        let role = StorageRole {
            id,
            tag: meta.tag,
            info: self.info.clone(),
            log_system: self.log_system.clone(),
            snapshots: self.snapshots.clone(),
            access: self.access.clone(),
            cluster: self.cluster.clone(),
            damaged: damaged.clone(),
            older: older.clone(),
        };
        let store = Rc::new(WindowedStore::open(engine, meta.after)?);
        let life = plinth_storage::server::start(&self.transport, role, store).await?;
        // Weak: the hosting owns its roles.
        let hosting = Rc::downgrade(self);
        let running = Self::run_storage(hosting, id, meta.tag, damaged, older, life);
        self.host(id, Kind::Storage(meta.tag), Role::Storage, running);
        Ok(())
    }

    fn host(
        self: &Rc<Self>,
        id: Uid,
        kind: Kind,
        role: Role,
        life: impl Future<Output = ()> + 'static,
    ) {
        trace!("RoleBegins", "id" => id, "role" => role, "kind" => format!("{kind:?}"));
        let hosting = Rc::downgrade(self);
        let life = plinth_runtime::spawn(role.name(), async move {
            life.await;
            if let Some(hosting) = hosting.upgrade() {
                trace!("RoleFinished", "id" => id, "kind" => format!("{kind:?}"));
                let ended = hosting.roles.borrow_mut().remove(&id);
                drop(ended);
                hosting.change.notify_all();
            }
        });
        let previous = self.roles.borrow_mut().insert(
            id,
            Hosted {
                kind,
                role,
                _life: life,
            },
        );
        // Both would have served, and written to the same files.
        never!(previous.is_some(), "RoleMadeTwice", "id" => id, "role" => role);
        drop(previous);
        self.change.notify_all();
    }

    /// Log servers and storage servers hosted here.
    pub fn inventory(&self) -> (Vec<(Uid, Epoch)>, Vec<(Uid, Tag)>) {
        let (mut logs, mut storage) = (Vec::new(), Vec::new());
        for (id, role) in self.roles.borrow().iter() {
            match role.kind {
                Kind::Log(epoch) => logs.push((*id, epoch)),
                Kind::Storage(tag) => storage.push((*id, tag)),
                Kind::Transaction(_) => {}
            }
        }
        let (damaged, roles) = (self.damaged_logs.borrow(), self.roles.borrow());
        let both = damaged.keys().find(|id| roles.contains_key(id));
        assert_eq!(
            both, None,
            "a log server serves from files that are damaged"
        );
        // The epoch of a damaged one is not known.
        logs.extend(damaged.keys().map(|id| (*id, 0)));
        (logs, storage)
    }

    /// The id and the kind of every role.
    pub fn roles(&self) -> Vec<(Uid, Role)> {
        let roles = self.roles.borrow();
        roles.iter().map(|(id, role)| (*id, role.role)).collect()
    }

    pub fn vitals(&self) -> WorkerStatus {
        self.vitals.status()
    }

    pub fn usage(&self) -> Usage {
        self.vitals.usage()
    }

    /// Whether this process is one of the present coordinators.
    pub fn is_coordinator(&self) -> bool {
        let coordinators = self.coordinators.file().coordinators;
        coordinators.iter().any(|place| self.transport.is_at(place))
    }

    pub fn epoch(&self) -> Epoch {
        self.newest_epoch.get()
    }

    /// Measures the process and its machine.
    pub async fn measure(&self) -> Infallible {
        let roles = || self.roles().into_iter().map(|(id, _)| id).collect();
        let (directory, transport) = (&self.directory, &self.transport);
        self.vitals.measure(directory, transport, roles).await
    }

    /// The problem of the disk, if it has one.
    pub fn sick_disk(&self) -> Option<SickDisk> {
        self.disk.sick()
    }

    /// Returns at the next change of the inventory, or of the disk's health.
    pub async fn changed(&self) {
        plinth_runtime::race(self.change.notified(), self.disk.changed()).await;
    }

    /// Ends the roles that are over according to the controller's description of the cluster.
    pub async fn obey(self: &Rc<Self>, info: &ClusterInfo) {
        if !info.accepting {
            return;
        }
        let before = self.newest_epoch.get();
        if never!(info.epoch < before, "NewsOfAFormerEpoch", "epoch" => info.epoch, "before" => before)
        {
            return; // roles and files of the present one would go
        }
        self.newest_epoch.set(info.epoch);
        if self.unclaimed.borrow().iter().any(|id| info.names(*id)) {
            self.unclaimed.borrow_mut().clear(); // a directory is of one database
        }
        let over: Vec<(Uid, Kind)> = {
            let roles = self.roles.borrow();
            roles
                .iter()
                .filter(|(id, role)| is_over(info, **id, role.kind))
                .map(|(id, r)| (*id, r.kind))
                .collect()
        };
        for (id, kind) in &over {
            trace!("RoleOver", "id" => id, "kind" => format!("{kind:?}"), "epoch" => info.epoch);
            let ended = self.roles.borrow_mut().remove(id);
            drop(ended);
            if !matches!(kind, Kind::Transaction(_)) {
                self.remove_files_later(*id);
            }
        }
        if !over.is_empty() {
            self.change.notify_all();
        }
        if self.log_system.with(|known| *known != info.log_system) {
            self.log_system.set(info.log_system.clone());
        }
    }

    /// In a task of its own: a disk that hangs must not keep the worker from its news.
    fn remove_files_later(self: &Rc<Self>, id: Uid) {
        let hosting = self.clone();
        plinth_runtime::spawn(
            "remove files",
            async move { hosting.remove_files(id).await },
        )
        .detach();
    }

    /// Removes the files of a role that is over; sets them aside if they may be of another database.
    async fn remove_files(&self, id: Uid) {
        if self.unclaimed.borrow().contains(&id) {
            probe!("role_of_an_unknown_database_set_aside");
            let set = self.directory.set_role_aside(id, FORMER).await;
            let place = self.directory.path.display();
            trace_warn!("UnclaimedSetAside", "directory" => place, "id" => id, "prefix" => FORMER,
                "done" => set.is_ok());
            return;
        }
        if self.is_damaged(id) || self.logs_with_holes.borrow_mut().remove(&id) {
            return self.set_damaged_aside(id).await;
        }
        probe!("worker_removes_role_files");
        if let Err(error) = self.directory.remove_role(id).await {
            trace!("RemovalFailed", "id" => id, "error" => error); // litter: the next start tries again
        }
    }
}

/// True if the disk failed an operation. The data on it may be intact.
fn is_the_disks(error: Error) -> bool {
    matches!(
        error,
        Error::io_error | Error::io_timeout | Error::disk_full
    )
}

/// True if there is a living epoch without this log server.
fn has_begun_without(info: &Option<ClusterInfo>, id: Uid) -> bool {
    info.as_ref().is_some_and(|info| {
        let current = info.log_system.current();
        info.accepting && current.is_some_and(|g| g.logs.iter().all(|log| log.id != id))
    })
}

/// True if there is a living epoch, and no generation that is still needed names the log server.
fn is_named_nowhere(info: &Option<ClusterInfo>, id: Uid) -> bool {
    info.as_ref().is_some_and(|info| {
        let mut generations = info.log_system.generations.iter();
        info.accepting && generations.all(|g| g.logs.iter().all(|log| log.id != id))
    })
}

/// True if every older generation that names the log server, and is still needed, keeps each record on others too.
fn others_hold_log(info: &Option<ClusterInfo>, id: Uid) -> bool {
    info.as_ref().is_some_and(|info| {
        let generations = info.log_system.generations.iter();
        let mut naming = generations.filter(|g| g.logs.iter().any(|log| log.id == id));
        naming.all(|g| g.replication > 1)
    })
}

fn is_over(info: &ClusterInfo, id: Uid, kind: Kind) -> bool {
    match kind {
        Kind::Transaction(epoch) => epoch < info.epoch,
        Kind::Log(epoch) => {
            let named = info
                .log_system
                .generations
                .iter()
                .any(|g| g.logs.iter().any(|log| log.id == id));
            epoch <= info.epoch && !named
        }
        Kind::Storage(tag) => {
            let listed = info.servers.iter().any(|(server, _)| *server == id);
            // A server that is being recruited is not in the list yet.
            tag.0 < info.next_tag && !listed
        }
    }
}
