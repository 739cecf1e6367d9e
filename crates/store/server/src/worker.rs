//! The worker (FDB §2.3): one event loop with one address, which hosts the roles that the controller asks for.
//!
//! ```text
//! lock the directory ─► listen ─► coordinator ─► log and storage servers from their files ─┬─► run for controller
//!                                                                                          ├─► register
//!                                 host and end roles ◄─ follow the controller's ClusterInfo ◄┘
//! ```
//!
//! It promises: it makes no role twice, however often a request arrives; it follows no controller that has only an
//! epoch before one that was served from its directory; it serves and removes nothing of a database that is not the
//! controller's; it ends only with a line that says why.
//!
//! It locks the data directory, listens, gets ready to be a coordinator, brings back the log and storage servers
//! whose files are here, runs for controller, and registers with the current controller. Roles of an epoch that has
//! been succeeded end as soon as the worker hears of the next.

use crate::data_directory::DataDirectory;
use crate::disk_watch::DiskWatch;
use crate::hosting::Hosting;
use crate::metrics;
use crate::own_name;
use crate::progress;
use plinth_control::controller;
use plinth_control::placement::{self, RoleKind};
use plinth_coordination::{ClusterFile, Coordinators, Family, coordinator, election, key_file};
use plinth_core::Uid;
use plinth_protocol::control::{
    AdoptKeys, ClusterInfo, GetClusterInfo, Locality, ProcessClass, RegisterWorker,
    RegisterWorkerReply, WORKER,
};
use plinth_protocol::coordination::Candidate;
use plinth_rpc::{Credentials, FailureBeacon, Interface, Place, Registration, Transport};
use plinth_runtime::knobs::set_overrides;
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::Chosen;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, Duration, Either, Instant, Task, probe, trace, trace_warn};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A controller that has not answered by then is asked again.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// A process ends if it is refused for this long because another process has its data directory. A former process
/// whose end was only noticed late is forgotten by then.
const TAKEN_LIMIT: Duration = Duration::from_secs(10);
/// A process that is refused is warned about this often.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// A registration is repeated this often even if nothing has changed.
const REGISTER_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub listen: SocketAddr,
    /// Where others reach it, if not at `listen`. A name is also the one by which a cluster file names it as a
    /// coordinator.
    pub public: Option<Place>,
    pub data_directory: PathBuf,
    pub cluster: ClusterFile,
    /// The file that `cluster` was read from. It is updated when the coordinators move.
    pub cluster_file: Option<PathBuf>,
    /// The process has the keys beside its cluster file, and follows changes of them. Otherwise it trusts everybody.
    pub is_keyed: bool,
    pub class: ProcessClass,
    /// Empty: the process itself.
    pub machine: String,
    /// Replicas never share a zone. Empty: the machine.
    pub zone: String,
    pub data_hall: String,
    pub data_center: String,
    /// Where the worker puts its metrics, if they are wanted.
    pub metrics: Option<Page>,
    /// Bytes of cache that a storage server's engine may use.
    pub cache_bytes: usize,
    /// Is told in lines for people that the worker listens, that it has joined the cluster, and why it has not.
    pub tell: Option<fn(&str)>,
    /// Tells the same person what must be known, also if somebody else tells the rest.
    pub warn: Option<fn(&str)>,
}

impl WorkerConfig {
    /// A worker that is a machine and a zone of its own, and trusts everybody. It has a small cache and no file of its
    /// cluster.
    pub fn new(
        listen: SocketAddr,
        data_directory: impl Into<PathBuf>,
        cluster: ClusterFile,
    ) -> Self {
        WorkerConfig {
            listen,
            public: None,
            data_directory: data_directory.into(),
            cluster,
            cluster_file: None,
            is_keyed: false,
            class: ProcessClass::Unset,
            machine: String::new(),
            zone: String::new(),
            data_hall: String::new(),
            data_center: String::new(),
            metrics: None,
            cache_bytes: 1 << 20,
            tell: None,
            warn: None,
        }
    }
}

/// Runs a worker without end. Returns only if it cannot go on, with the reason in one line.
pub fn run_worker(config: WorkerConfig) -> Boxed<'static, Result<Infallible, String>> {
    Box::pin(async move {
        // The directory first: only its owner needs the port.
        let directory = DataDirectory::open(&config.data_directory, &config.cluster.key()).await?;
        let credentials = credentials(&config, &directory.path).await?;
        let public =
            own_name::public_address(config.public.as_ref(), config.listen, config.tell).await;
        let listening = Transport::listen_as(config.listen, public, credentials.clone()).await;
        let transport = listening.map_err(|error| cannot_listen(config.listen, &error))?;
        if let Some(name) = config.public.clone().filter(Place::is_named) {
            transport.set_name(name);
        }
        let file = config.cluster_file.clone().filter(|_| config.is_keyed);
        let _keys =
            file.map(|file| keep_keys(&transport, file, directory.path.clone(), credentials));
        run_worker_on(transport, directory, config).await
    })
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> String {
    let line = Chosen::By("--listen").refused(address, error);
    match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{line}, and with --public-address where others reach it")
        }
        _ => line,
    }
}

/// Follows changes of the key file, and takes keys from an operator if there is none.
fn keep_keys(
    transport: &Transport,
    file: PathBuf,
    directory: PathBuf,
    credentials: Credentials,
) -> (Registration, Task<()>, Task<()>) {
    let (adopting, mut asked) = transport.serve_queue::<AdoptKeys>(WORKER);
    let (of_file, in_directory, to) = (file.clone(), directory.clone(), credentials.clone());
    let adopt = plinth_runtime::spawn("adopt keys", async move {
        while let Some((AdoptKeys { keys }, responder)) = asked.recv().await {
            responder.send(key_file::adopt(&of_file, &in_directory, &to, &keys).await);
        }
    });
    let follow = plinth_runtime::spawn("keys", async move {
        match key_file::follow(&file, &directory, &credentials).await {}
    });
    (adopting, adopt, follow)
}

async fn credentials(config: &WorkerConfig, directory: &Path) -> Result<Credentials, String> {
    let Some(file) = config.cluster_file.as_ref().filter(|_| config.is_keyed) else {
        return Ok(config.cluster.protected(Credentials::none()));
    };
    let credentials = key_file::of_server(file, directory).await?;
    Ok(config.cluster.protected(credentials))
}

/// Runs a worker over a transport and a directory that are open already.
pub fn run_worker_on(
    transport: Transport,
    directory: DataDirectory,
    config: WorkerConfig,
) -> Boxed<'static, Result<Infallible, String>> {
    Box::pin(host(transport, directory, config))
}

async fn host(
    transport: Transport,
    directory: DataDirectory,
    config: WorkerConfig,
) -> Result<Infallible, String> {
    let directory = Rc::new(directory);
    let address = transport.address().expect("a worker has an address");
    trace!("WorkerStarted", "address" => address, "id" => directory.process);

    let fatal: Watch<Option<String>> = Watch::new(None);
    let (disk, _watching) = watch_disk(&directory);
    let (_coordinator, lost) = start_coordinator(&config, &transport, &directory, &fatal).await?;
    let info: Watch<Option<ClusterInfo>> = Watch::new(None);
    // One view for the whole process: the answer with the new addresses may be the last one of the former
    // coordinators.
    let coordinators = Coordinators::from(config.cluster.clone());
    let hosting = Hosting::start(
        &transport,
        &coordinators,
        directory.clone(),
        config.cache_bytes,
        disk,
        info.clone(),
        fatal.clone(),
    )
    .await?;
    let _beacon = FailureBeacon::new(&transport, hosting.worker().id);

    let _access = config.is_keyed.then(|| hosting.follow_access());
    let me = Me {
        locality: locality(&config, directory.process),
        directory: directory.clone(),
        lost,
    };
    let leader: Watch<Option<Candidate>> = Watch::new(None);
    let elected = leader.clone();
    let joined: Watch<Option<Interface>> = Watch::new(None);
    let _progress = tell_progress(&config, &transport, &coordinators, &leader, &joined);
    let _warning = tell_damage(&config, &hosting);
    let class = Watch::new(config.class);
    let _election = run_for_controller(&class, &coordinators, &transport, address, &leader);
    let registering = keep_registered(
        &transport, &config, &me, leader, joined, &hosting, &info, &fatal,
    );
    let _obeying = plinth_runtime::spawn(
        "configured",
        obey(info.clone(), class, config.class, directory.process),
    );
    let _telling = plinth_runtime::spawn("denials", tell_denials(transport.clone()));
    let _noting = plinth_runtime::spawn("epoch", note_epochs(info.clone(), directory.clone()));
    let _file = config.cluster_file.clone().map(|path| {
        let written = config.cluster.clone();
        plinth_runtime::spawn("cluster file", async move {
            coordinators.keep_file(&path, written).await
        })
    });
    let controller = || elected.get().map(|leader| leader.controller);
    let telling = tell_numbers(&transport, &hosting, config.metrics.as_ref(), controller);
    let measuring = plinth_runtime::race(hosting.measure(), telling);
    let work = plinth_runtime::race(registering, measuring);
    match plinth_runtime::race(fatal.wait_until(Option::is_some), work).await {
        Either::Left(()) => Err(fatal.get().expect("waited for")),
        Either::Right(Either::Left(never)) => match never {},
        Either::Right(Either::Right(Either::Left(never) | Either::Right(never))) => match never {},
    }
}

/// Keeps the page up to date, if there is one, and what it says of whether the process is ready.
async fn tell_numbers(
    transport: &Transport,
    hosting: &Hosting,
    page: Option<&Page>,
    controller: impl Fn() -> Option<Interface>,
) -> Infallible {
    let Some(page) = page else {
        return std::future::pending().await; // nobody asks
    };
    let collecting = metrics::collect(transport.clone(), hosting, page, controller);
    match plinth_runtime::race(collecting, hosting.probe()).await {
        Either::Left(never) | Either::Right(never) => never,
    }
}

fn watch_disk(directory: &DataDirectory) -> (Rc<DiskWatch>, Task<()>) {
    let disk = Rc::new(DiskWatch::new(&directory.path));
    let watching = disk.clone();
    let task = plinth_runtime::spawn(
        "watch the disk",
        async move { match watching.watch().await {} },
    );
    (disk, task)
}

fn tell_progress(
    config: &WorkerConfig,
    transport: &Transport,
    coordinators: &Coordinators,
    leader: &Watch<Option<Candidate>>,
    joined: &Watch<Option<Interface>>,
) -> Option<Task<()>> {
    let of = (transport.clone(), coordinators.clone(), leader.clone());
    let telling = progress::tell(config.tell?, of.0, of.1, of.2, joined.clone());
    Some(plinth_runtime::spawn("progress", async move {
        match telling.await {}
    }))
}

fn tell_damage(config: &WorkerConfig, hosting: &Rc<Hosting>) -> Option<Task<()>> {
    let (tell, hosting) = (config.warn?, hosting.clone());
    Some(plinth_runtime::spawn("damage", async move {
        match hosting.tell_damage(tell).await {}
    }))
}

async fn start_coordinator(
    config: &WorkerConfig,
    transport: &Transport,
    directory: &Rc<DataDirectory>,
    fatal: &Watch<Option<String>>,
) -> Result<(Task<()>, Watch<Option<String>>), String> {
    let (key, named) = (config.cluster.key(), &config.cluster.coordinators);
    let must = directory.must_have_registers(named.iter().any(|place| transport.is_at(place)));
    let must = must.await;
    let cluster = (Family::Store, &key[..]);
    let coordinator = coordinator::start(transport, &directory.path, cluster, must).await?;
    if let Some(line) = coordinator.lost.get()
        && named.len() == 1
        && transport.is_at(&named[0])
    {
        // It is the only coordinator: no other process could serve, or name the coordinators anew.
        return Err(line);
    }
    let (life, lost) = (coordinator.life, coordinator.lost);
    let (fatal, path) = (fatal.clone(), directory.path.clone());
    let task = plinth_runtime::spawn("coordinator", async move {
        let error = life.await;
        fatal.set(Some(format!(
            "the coordinator in {} cannot go on: {error}",
            path.display()
        )));
    });
    Ok((task, lost))
}

/// The worker's description of itself.
struct Me {
    locality: Locality,
    directory: Rc<DataDirectory>,
    /// Why it is no coordinator, if its registers are lost.
    lost: Watch<Option<String>>,
}

fn locality(config: &WorkerConfig, process: Uid) -> Locality {
    let machine = if config.machine.is_empty() {
        process.to_string()
    } else {
        config.machine.clone()
    };
    let zone = if config.zone.is_empty() {
        machine.clone()
    } else {
        config.zone.clone()
    };
    Locality {
        process,
        machine,
        zone,
        data_hall: config.data_hall.clone(),
        data_center: config.data_center.clone(),
    }
}

/// Warns, again and again, while others of the cluster refuse this process.
async fn tell_denials(transport: Transport) -> Infallible {
    let mut seen = 0;
    loop {
        transport.denials().wait_until(|now| *now != seen).await;
        trace_warn!("ServerNotLetIn", "refusals" => transport.denials().get());
        plinth_runtime::sleep(TOLD_AGAIN_AFTER).await;
        seen = transport.denials().get();
    }
}

/// Writes the served epochs to the disk. It is a task of its own, because nothing else needs to wait for the disk.
async fn note_epochs(info: Watch<Option<ClusterInfo>>, directory: Rc<DataDirectory>) {
    loop {
        let later = |info: &Option<ClusterInfo>| {
            info.as_ref()
                .is_some_and(|info| info.accepting && directory.lacks(info.epoch))
        };
        info.wait_until(later).await;
        let epoch = info.with(|info| info.as_ref().map_or(0, |info| info.epoch));
        directory.serves_in(epoch).await;
    }
}

/// Applies the configuration of processes: their knobs and their classes.
async fn obey(
    info: Watch<Option<ClusterInfo>>,
    class: Watch<ProcessClass>,
    declared: ProcessClass,
    process: Uid,
) {
    let mut known = None;
    loop {
        // A controller that has not recovered yet does not know the configuration.
        let news = |info: &Option<ClusterInfo>| {
            info.as_ref()
                .is_some_and(|i| i.accepting && Some(i.id) != known)
        };
        info.wait_until(news).await;
        let Some(now) = info.get() else { continue };
        known = Some(now.id);
        if set_overrides(&now.knobs) {
            probe!("knobs_changed");
            trace!("KnobsChanged", "cluster" => format!("{:?}", now.knobs));
        }
        let given = now.classes.iter().find(|(id, _)| *id == process);
        let wanted = given.map_or(declared, |(_, class)| *class);
        if class.get() != wanted {
            probe!("class_changed");
            trace!("ClassChanged", "to" => wanted.name());
            class.set(wanted);
        }
    }
}

/// A process that was cut off from the log servers as a controller stands back for this long,
const CUT_OFF: Duration = Duration::from_secs(300);
/// behind every other candidate.
const LAST: u32 = 100;

/// Runs for controller, and runs the controller while elected. Starts anew when the class of the process changes.
fn run_for_controller(
    class: &Watch<ProcessClass>,
    coordinators: &Coordinators,
    transport: &Transport,
    address: SocketAddr,
    leader: &Watch<Option<Candidate>>,
) -> Task<()> {
    let (class, coordinators) = (class.clone(), coordinators.clone());
    let (transport, leader) = (transport.clone(), leader.clone());
    plinth_runtime::spawn("candidate", async move {
        let mut cut_off: Option<Instant> = None;
        loop {
            let now = class.get();
            let is_cut_off = cut_off.is_some_and(|since| since.elapsed() < CUT_OFF);
            let work = async {
                match placement::fitness(now, RoleKind::Stateless) {
                    None => {
                        let (transport, coordinators) = (transport.clone(), coordinators.clone());
                        election::observe(transport, coordinators, leader.clone()).await;
                        false
                    }
                    Some(fitness) => {
                        let priority = fitness + if is_cut_off { LAST } else { 0 };
                        contend(&coordinators, &transport, address, priority, &leader).await
                    }
                }
            };
            let changed = class.wait_until(|class| *class != now);
            if let Either::Right(true) = plinth_runtime::race(changed, work).await {
                cut_off = Some(plinth_runtime::now());
            }
            // Runs again as a new candidate, after a pause in which another candidate can win.
            leader.set(None);
            let pause_ms = plinth_runtime::random::range(100..500);
            plinth_runtime::sleep(Duration::from_millis(pause_ms)).await;
        }
    })
}

/// One candidacy. It ends when its controller finds its successor's mark in the coordinated state, or gives up its
/// place because others reach log servers that it does not: then this is true.
async fn contend(
    coordinators: &Coordinators,
    transport: &Transport,
    address: SocketAddr,
    priority: u32,
    leader: &Watch<Option<Candidate>>,
) -> bool {
    let id = Uid(plinth_runtime::random::uid());
    let candidate = Candidate {
        controller: Interface::new(address, id),
        priority,
    };
    let _beacon = FailureBeacon::new(transport, id);
    let contending = election::contend(
        transport.clone(),
        coordinators.clone(),
        candidate.clone(),
        leader.clone(),
    );
    let ruling = async {
        let ours = |l: &Option<Candidate>| {
            l.as_ref()
                .is_some_and(|l| l.controller == candidate.controller)
        };
        loop {
            leader.wait_until(ours).await;
            let (transport, coordinators) = (transport.clone(), coordinators.clone());
            let rule = controller::run(transport, coordinators, candidate.controller);
            match plinth_runtime::race(leader.wait_until(|l| !ours(l)), rule).await {
                Either::Left(()) => continue, // deposed: the rule ends with its future
                Either::Right(is_cut_off) => return is_cut_off,
            }
        }
    };
    match plinth_runtime::race(contending, ruling).await {
        Either::Left(()) => false,
        Either::Right(is_cut_off) => is_cut_off,
    }
}

/// What this process tells a controller about itself.
fn registration(
    transport: &Transport,
    config: &WorkerConfig,
    me: &Me,
    hosting: &Hosting,
) -> RegisterWorker {
    let (logs, storage) = hosting.inventory();
    RegisterWorker {
        worker: hosting.worker(),
        name: transport.name(),
        declared: config.class,
        given: None,
        locality: me.locality.clone(),
        logs,
        storage,
        damaged: hosting.damaged_storage(),
        older: hosting.older_copies(),
        unreachable: transport.unreachable(),
        disk: hosting.sick_disk(),
        epoch: me.directory.epoch(),
        database: me.directory.database(),
        holds_data: me.directory.holds_data(),
        lost_registers: me.lost.with(Option::is_some),
    }
}

/// Registers with each controller in turn, and follows its description of the cluster. Does not follow a controller
/// that knows another process over the same data directory. `joined` is the one that has let it in.
async fn keep_registered(
    transport: &Transport,
    config: &WorkerConfig,
    me: &Me,
    leader: Watch<Option<Candidate>>,
    joined: Watch<Option<Interface>>,
    hosting: &Rc<Hosting>,
    info: &Watch<Option<ClusterInfo>>,
    fatal: &Watch<Option<String>>,
) -> Infallible {
    let mut taken_since: Option<Instant> = None;
    loop {
        leader.wait_until(Option::is_some).await;
        let Some(controller) = leader.get().map(|l| l.controller) else {
            continue;
        };
        let registering = async {
            loop {
                let request = registration(transport, config, me, hosting);
                let told = request.disk.clone();
                let call = transport.call(&controller.endpoint::<RegisterWorker>(), request);
                match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
                    Some(Ok(RegisterWorkerReply {
                        other_database: Some(other),
                        ..
                    })) => {
                        let kept = me.directory.database();
                        fatal.set(Some(me.directory.of_another(kept, other)));
                    }
                    Some(Ok(RegisterWorkerReply { taken_by: None, .. })) => {
                        taken_since = None;
                        joined.set(Some(controller));
                        if told != hosting.sick_disk() {
                            continue; // it has changed meanwhile
                        }
                        let news = plinth_runtime::race(
                            hosting.changed(),
                            transport.reachability_changed(),
                        );
                        plinth_runtime::timeout(REGISTER_INTERVAL, news).await;
                        continue;
                    }
                    Some(Ok(RegisterWorkerReply {
                        taken_by: Some(other),
                        name_is_taken,
                        ..
                    })) => {
                        let since = *taken_since.get_or_insert_with(plinth_runtime::now);
                        if since.elapsed() > TAKEN_LIMIT {
                            let name = transport.name().filter(|_| name_is_taken);
                            fatal.set(Some(taken(&me.directory, name, other)));
                        }
                    }
                    Some(Err(_)) | None => {}
                }
                plinth_runtime::sleep(Duration::from_millis(100)).await;
            }
        };
        let learning = async {
            joined.wait_until(Option::is_some).await;
            follow_info(transport, controller, hosting, info, &me.directory, fatal).await
        };
        let same = |l: &Option<Candidate>| l.as_ref().is_some_and(|l| l.controller == controller);
        let work = plinth_runtime::race::<_, _>(registering, learning);
        let _: Either<(), Either<Infallible, Infallible>> =
            plinth_runtime::race(leader.wait_until(|l| !same(l)), work).await;
        joined.set(None);
    }
}

/// The line about another server that has this name, or else serves as the same process.
fn taken(directory: &DataDirectory, name: Option<Place>, other: SocketAddr) -> String {
    if let Some(name) = name {
        return format!(
            "the server at {other} has the name {name}, too; give each server its own \
            --public-address"
        );
    }
    probe!("copied_data_directory_refused");
    format!(
        "data directory {} is a copy: the server at {other} serves as the same process {}; \
        stop that one to serve from here, or give this server an empty directory",
        directory.path.display(),
        directory.process
    )
}

async fn follow_info(
    transport: &Transport,
    controller: Interface,
    hosting: &Rc<Hosting>,
    info: &Watch<Option<ClusterInfo>>,
    directory: &DataDirectory,
    fatal: &Watch<Option<String>>,
) -> Infallible {
    let mut known = 0;
    loop {
        let call = transport.call(
            &controller.endpoint::<GetClusterInfo>(),
            GetClusterInfo { known },
        );
        match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
            Some(Ok(news)) if news.id == known => {} // a long poll that ended without a change
            Some(Ok(news)) => {
                known = news.id;
                if news.accepting
                    && let Err(line) = directory.claim(&news.database, news.epoch)
                {
                    // The process ends, and nothing of its directory changes.
                    probe!("directory_of_another_database");
                    fatal.set(Some(line));
                    continue;
                }
                let newest = info.with(|i| i.as_ref().map_or(0, |i| i.epoch));
                // A deposed controller may still answer: only descriptions of the current or a later epoch count. A
                // controller that has only an epoch before those served from here must not be followed either: its
                // coordinators have forgotten them.
                if news.epoch >= newest && (!news.accepting || news.epoch >= directory.epoch()) {
                    info.set(Some(news.clone()));
                    hosting.obey(&news).await;
                }
            }
            Some(Err(_)) => plinth_runtime::sleep(Duration::from_millis(100)).await,
            None => {}
        }
    }
}
