//! A server: from its start to its end.

use crate::denial::{caller, denial, other_state, silent_coordinators};
use crate::join::{Joined, Joining};
use crate::machine::{self, Held, Number};
use crate::pauses::Pauses;
use crate::plan::{self, Asked, Plan, memory_socket, service_address};
use crate::status::{Own, shares};
use crate::survey::{ask, counted, survey};
use crate::{metrics, room, root};
use plinth_coordination::{
    ClusterFile, Coordinators, Family, Tenant, cannot_use, coordinator, key_file,
};
use plinth_core::Uid;
use plinth_farm_fabric::Machine;
use plinth_farm_member::{self as member, CoordinatedRegister, Left, Record, Register};
use plinth_farm_memory::Sizes;
use plinth_farm_node::disk::Identity;
use plinth_farm_structures::btree::Cache;
use plinth_rpc::{Credentials, Transport};
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::Chosen;
use plinth_runtime::{
    Boxed, Duration, Either, Task, TaskGroup, disk, net, race, random, sleep, spawn, timeout,
    trace_warn,
};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

/// Names the cluster that the directory belongs to. Once it is there, the registers must be.
pub const OWNER: &str = "farm";
/// What a machine of a durable cluster keeps, below its data directory.
const DISK: &str = "machine";
/// True for the data directory of a machine of a durable cluster.
pub fn has_disk(data_directory: &Path) -> bool {
    data_directory.join(DISK).exists()
}

/// Between two looks at what a process waits for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const CACHE_BYTES: usize = 16 << 20;
/// Between two looks at whether there is anybody who lets a machine in.
const GONE_LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// How an operator chooses the addresses of a process, and of its memory.
const LISTEN: Chosen = Chosen::By("--listen");
const SOCKET: Chosen = Chosen::Behind("--listen");

/// Takes a line for the user.
pub type Tell = Rc<dyn Fn(&str)>;

/// Runs beside a member, for as long as it is one; what it returns is the end of the process.
pub type Work =
    Box<dyn FnOnce(Rc<Joined>, Sizes) -> Pin<Box<dyn Future<Output = Result<(), String>>>>>;

/// How often it looks whether its disk is full.
const DISK_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a server is told.
pub struct Config {
    /// Its memory is served at the next port.
    pub listen: SocketAddr,
    /// Where others reach it, and its memory at the next port, if that is not where it listens.
    pub public: Option<SocketAddr>,
    pub data_directory: PathBuf,
    /// Shared by all machines of this host.
    pub memory_directory: Option<PathBuf>,
    pub cluster: ClusterFile,
    /// The key file lies beside it. The certificates are in [`Config::cluster`].
    pub cluster_file: PathBuf,
    /// Its machine's number; without it the lowest that nobody has.
    pub machine: Option<u16>,
    /// Machines of one zone may fail together. Empty: those of one host do.
    pub zone: String,
    /// Make the cluster if there is none. One that is there must be as it was asked for.
    pub new: Option<Asked>,
    /// Memory for old versions.
    pub old_mib: u64,
    pub page: Option<Page>,
    pub tell: Tell,
    pub work: Option<Work>,
    /// Whoever tells the process to end gives its memory back with this.
    pub held: Held,
}

/// Makes a cluster, unless there is one. Returns what it has then, and whether it is the new one.
///
/// # Errors
/// A line for the user.
pub fn create<'a>(
    register: &'a CoordinatedRegister,
    plan: &'a Plan,
) -> Boxed<'a, Result<(Record, bool), String>> {
    Box::pin(async move {
        let id = Uid(random::uid());
        let made = member::create(register, plan.cluster(id)?).await;
        let record = match made {
            Ok(record) => record,
            Err(error) => return Err(other_state(register, error).await),
        };
        let is_new = record.cluster.id == id;
        Ok((record, is_new))
    })
}

/// Where the memory is served whose process is at `address`, which `flag` says.
fn memory_at(address: SocketAddr, flag: &str) -> Result<SocketAddr, String> {
    memory_socket(address).ok_or_else(|| {
        format!(
            "ports from 1 to 65534 are possible, and the next one is the memory's; choose another with {flag}"
        )
    })
}

impl Config {
    /// Where others reach the process.
    fn known(&self) -> SocketAddr {
        self.public.unwrap_or(self.listen)
    }

    /// Where its memory lies, and those of the other machines of this host.
    fn memories(&self) -> PathBuf {
        let directory = self.memory_directory.clone();
        directory.unwrap_or_else(|| machine::memory_directory(&self.cluster))
    }

    /// Where its memory is served.
    fn socket(&self) -> Result<SocketAddr, String> {
        if self.known().ip().is_unspecified() {
            return Err(
                "others must be able to reach it: give an address of this host with --public-address"
                    .into(),
            );
        }
        memory_at(self.listen, "--listen")
    }

    /// Where others reach that, if it is not there.
    fn public_socket(&self) -> Result<Option<SocketAddr>, String> {
        let public = self
            .public
            .map(|public| memory_at(public, "--public-address"));
        public.transpose()
    }
}

/// Makes the directory, and says whether it was used before, by a process of this cluster.
async fn prepare(directory: &Path, key: &str) -> Result<(disk::DirLock, bool), String> {
    let at = directory.display();
    let unusable = cannot_use(directory);
    disk::create_dir_all(directory).await.map_err(unusable)?;
    let lock = disk::lock_dir(directory).await;
    let lock = lock.map_err(unusable)?;
    let owner = directory.join(OWNER);
    if !disk::exists(&owner).await.map_err(unusable)? {
        Tenant::Farm.check_of_server(directory).await?;
        return Ok((lock, false));
    }
    let found = disk::read_file(&owner).await.map_err(unusable)?;
    match found == key.as_bytes() {
        true => Ok((lock, true)),
        false => Err(format!(
            "data directory {at} belongs to cluster {}, not to {key}; use another directory, or another file with -C",
            String::from_utf8_lossy(&found)
        )),
    }
}

async fn own_directory(directory: &Path, key: &str) -> Result<(), String> {
    let unusable =
        |error: std::io::Error| format!("data directory {}: {error}", directory.display());
    coordinator::begin(directory, key).await.map_err(unusable)?;
    let bytes = key.as_bytes().to_vec().into();
    let written = disk::write_file_durably(&directory.join(OWNER), bytes).await;
    written.map(drop).map_err(unusable)
}

/// An address for the user, and the one by which others know it.
fn at(listen: SocketAddr, public: Option<SocketAddr>) -> String {
    public.map_or_else(
        || listen.to_string(),
        |public| format!("{listen}, known as {public}"),
    )
}

/// Follows changes of the key file.
fn follow_keys(config: &Config, credentials: &Credentials) -> Task<()> {
    let (file, directory) = (config.cluster_file.clone(), config.data_directory.clone());
    let credentials = credentials.clone();
    spawn("farm keys", async move {
        match key_file::follow(&file, &directory, &credentials).await {}
    })
}

/// Serves until it has to stop. The line says why.
///
/// # Errors
/// A line for the user. `Ok` only if its work has ended.
pub fn serve(config: Config) -> Boxed<'static, Result<(), String>> {
    Box::pin(async move {
        let (socket, public_socket) = (config.socket()?, config.public_socket()?);
        if let Some(asked) = &config.new {
            asked.plan().check()?;
        }
        let key = config.cluster.key();
        let (_lock, was_used) = prepare(&config.data_directory, &key).await?;
        let known = config.known();
        let (file, directory) = (&config.cluster_file, &config.data_directory);
        let keys = key_file::keyring(file).await?;
        let has_keys = keys.is_some();
        if !has_keys {
            key_file::check_still_keyed(directory, file, false).await?;
        }
        let credentials = Credentials::new(keys, plinth_identity::Identity::Server);
        let credentials = config.cluster.protected(credentials);
        let transport =
            Transport::listen_as(config.listen, config.public, credentials.clone()).await;
        let transport = transport.map_err(|error| LISTEN.refused(config.listen, &error))?;
        let listener = net::listen(socket).await;
        let listener = listener.map_err(|error| SOCKET.refused(socket, &error))?;
        if has_keys {
            // Not before it listens: one that cannot leaves nothing.
            key_file::check_still_keyed(directory, file, true).await?;
        }
        let _keys = follow_keys(&config, &credentials);
        if !was_used {
            own_directory(&config.data_directory, &key).await?;
        }
        let own = Own::new(key.clone());
        let _status = own.serve(&transport);
        let _room = room::serve(&transport, config.memories(), config.old_mib);
        let is_named = config.cluster.addresses().contains(&known);
        let (directory, tell) = (config.data_directory.clone(), config.tell.clone());
        let coordinating = async {
            if !is_named {
                return std::future::pending().await;
            }
            let cluster = (Family::Farm, &key[..]);
            let started = coordinator::start(&transport, &directory, cluster, true).await?;
            if let Some(line) = started.lost.get() {
                tell(&line);
            }
            let error = started.life.await;
            Err::<Infallible, String>(format!("the coordinator ends: {error}"))
        };
        (config.tell)(&format!(
            "it listens at {}, and its memory will be served at {}",
            at(config.listen, config.public),
            at(socket, public_socket)
        ));
        let page = config.page.clone();
        let living = live(config, (&transport, &credentials), listener, own.clone());
        let paging = metrics::keep_page(&own, known, page.as_ref());
        let outcome = match race(race(living, coordinating), paging).await {
            Either::Left(Either::Left(outcome)) => outcome,
            Either::Left(Either::Right(Err(line))) => Err(line),
            Either::Left(Either::Right(Ok(never))) | Either::Right(never) => match never {},
        };
        own.end();
        outcome
    })
}

/// Waits for the record; makes it if that was asked for.
async fn find_record(
    config: &Config,
    transport: &Transport,
    register: &CoordinatedRegister,
    own: &Own,
) -> Result<Record, String> {
    let mut said = String::new();
    let mut wait_for = |what: String| {
        own.wait_for(&what);
        if std::mem::replace(&mut said, what.clone()) != what {
            (config.tell)(&format!("it waits for {what}"));
        }
    };
    loop {
        let asked = async {
            let Some(asked) = &config.new else {
                return match register.read().await {
                    Ok(record) => Ok(record),
                    Err(error) => Err(other_state(register, error).await),
                };
            };
            if let Ok(None) = register.read().await {
                let memories = config.memories();
                room::check_own(config.known(), &asked.plan(), config.old_mib, &memories).await?;
            }
            let (record, _) = create(register, &asked.plan()).await?;
            asked.check_made(&record.cluster)?;
            Ok(Some(record))
        };
        match timeout(LOOK_INTERVAL, asked).await {
            Some(Ok(Some(record))) => return Ok(record),
            Some(Ok(None)) => {
                if let Some(line) = register.not_own().await {
                    return Err(line);
                }
                wait_for("a cluster to be made (`plinth farm create')".into());
                sleep(LOOK_INTERVAL / 10).await;
            }
            Some(Err(line)) => return Err(line),
            None => {
                let file = &config.cluster;
                if let Some(denied) = denial(transport, file) {
                    wait_for(format!("a majority of the coordinators: {denied}"));
                    continue;
                }
                let silent = silent_coordinators(transport, file).await?;
                wait_for(format!("a majority of the coordinators: {silent}"));
            }
        }
    }
}

/// How the life of a machine in a process has ended.
enum End {
    /// The process ends, too.
    Over(Result<(), String>),
    /// The cluster is restored from its disks: the next life begins, with what this one has there. The line says so.
    Restore(String),
    /// Another host has its number: the next life takes another one.
    Renumber,
}

/// How it reaches others, and what it proves to them.
type Ways<'a> = (&'a Transport, &'a Credentials);

/// Lives until the process has to end.
async fn live(
    mut config: Config,
    ways: Ways<'_>,
    listener: net::Listener,
    own: Rc<Own>,
) -> Result<(), String> {
    let mut listener = Some(listener);
    loop {
        let socket = config.socket()?;
        let listening = match listener.take() {
            Some(listener) => listener,
            None => net::listen(socket)
                .await
                .map_err(|error| SOCKET.refused(socket, &error))?,
        };
        match live_once(&mut config, ways, listening, &own).await? {
            End::Over(outcome) => return outcome,
            End::Restore(_) => own.wait_for("the cluster to be restored from its disks"),
            End::Renumber => (),
        }
    }
}

/// The number that this process's disk has in the cluster, or that it was told.
async fn number_of(config: &Config, record: &Record) -> Result<Number, String> {
    let wanted = config.machine.map_or(Number::Lowest, Number::This);
    if !record.cluster.is_durable {
        return Ok(wanted);
    }
    let identity = Identity::read(&config.data_directory.join(DISK)).await;
    let identity = identity.map_err(|error| format!("data directory: {error}"))?;
    // The record says whose the disk is. What the disk itself says may be of a number that it never got.
    let seat = identity.and_then(|identity| record.seat_on(identity.disk));
    match (seat.map(|seat| seat.machine), config.machine) {
        (Some(machine), Some(number)) if machine != number => Err(format!(
            "--number {number}: data directory {} is machine {machine}'s; leave the option out, or name another \
             directory",
            config.data_directory.display(),
        )),
        (Some(machine), _) => Ok(Number::This(machine)),
        (None, _) => Ok(wanted),
    }
}

/// Refuses a number that was asked for and that another process has, of any host. One that does not answer may be
/// gone, and is waited for.
async fn check_number(
    config: &Config,
    transport: &Transport,
    record: &Record,
) -> Result<(), String> {
    let Some(number) = config.machine else {
        return Ok(());
    };
    let seats = record.machines.iter().chain(&record.waiting);
    for seat in seats.filter(|seat| seat.machine == number) {
        let Some(at) = seat.place.socket.and_then(service_address) else {
            continue;
        };
        let status = ask(transport, &config.cluster, at).await;
        if status.is_some_and(|status| status.life == Some(seat.id)) {
            return Err(format!(
                "--number {number}: the process at {at} is that machine; choose another number, or none"
            ));
        }
    }
    Ok(())
}

async fn live_once(
    config: &mut Config,
    ways: Ways<'_>,
    listener: net::Listener,
    own: &Rc<Own>,
) -> Result<End, String> {
    let (joined, sizes) = join(config, ways, listener, own).await?;
    own.wait_for("the cluster to let it in");
    own.begin(&joined);
    let tasks = TaskGroup::new();
    let (tell, told, owner) = (config.tell.clone(), joined.clone(), own.clone());
    tasks.spawn(
        "farm tell",
        async move { follow(&told, &owner, &tell).await },
    );
    tasks.spawn("farm root", keep_root(joined.clone(), sizes));
    let pauses = Rc::new(Pauses::new());
    let noting = pauses.clone();
    tasks.spawn("farm pauses", async move { match noting.note().await {} });
    let (file, told, tell) = (config.cluster.clone(), joined.clone(), config.tell.clone());
    tasks.spawn("farm gone", async move {
        tell_if_gone(&told, &file, &tell).await
    });
    let does_work = config.work.is_some();
    let work = config.work.take();
    let working = async {
        match work {
            Some(work) => {
                joined.view().wait_until(Option::is_some).await;
                work(joined.clone(), sizes).await
            }
            None => std::future::pending().await,
        }
    };
    let leaving = async {
        let left = joined.node.left().wait_until(Option::is_some);
        race(left, joined.node.disk_failed().wait_until(Option::is_some)).await;
    };
    match race(leaving, working).await {
        Either::Left(()) => {
            let end = end_of(&joined, &pauses, does_work);
            match &end {
                End::Over(_) => (),
                End::Restore(line) => {
                    (config.tell)(line);
                    own.end();
                }
                End::Renumber => {
                    // Nobody was let in with it: what is left is found by the next process of this host.
                    let _ = joined.local().remove().await;
                    own.end();
                }
            }
            Ok(end)
        }
        Either::Right(outcome) => Ok(End::Over(outcome)),
    }
}

/// Begins a life of the machine, with its memory and its disk.
async fn join(
    config: &Config,
    (transport, credentials): Ways<'_>,
    listener: net::Listener,
    own: &Own,
) -> Result<(Rc<Joined>, Sizes), String> {
    let coordinators = Coordinators::from(config.cluster.clone());
    let register = CoordinatedRegister::new(transport, &coordinators);
    let record = find_record(config, transport, &register, own).await?;
    let directory = config.memories();
    let sizes = plan::sizes(&record.cluster, config.old_mib);
    sizes
        .check()
        .map_err(|error| format!("--old-mib {}: {error}", config.old_mib))?;
    let layout = plan::layout(&record.cluster, &sizes, true);
    let wanted = number_of(config, &record).await?;
    check_number(config, transport, &record).await?;
    let sparse = plan::sparse(&record.cluster, &sizes, true);
    let local = machine::start(&directory, &record, wanted, &layout, sparse).await?;
    config.held.set(&local);
    let mib = layout.words().map_or(0, |words| (words as u64 * 8) >> 20);
    (config.tell)(&format!(
        "it is machine {}, with {}{mib} MiB of memory in {}",
        local.machine().0,
        if sparse > 0 { "up to " } else { "" },
        directory.display()
    ));
    if record.cluster.is_durable {
        own.wait_for("what is on its disk");
    }
    let joined = Joined::start(Joining {
        local,
        listener,
        public: config.public_socket()?,
        register,
        credentials: credentials.clone(),
        record,
        zone: config.zone.clone(),
        sizes,
        has_data: true,
        disk: config.data_directory.join(DISK),
        may_renumber: matches!(wanted, Number::Lowest),
    });
    Ok((Rc::new(joined.await?), sizes))
}

/// How the life of a machine has ended that has left.
fn end_of(joined: &Joined, pauses: &Pauses, does_work: bool) -> End {
    let number = joined.local().machine().0;
    if let Some(why) = joined.node.disk_failed().get() {
        return End::Over(Err(format!("machine {number}: {why}")));
    }
    let why = joined.node.left().get();
    if why == Some(Left::Taken) && joined.may_renumber {
        return End::Renumber;
    }
    let view = joined.view().get().filter(|_| why == Some(Left::Removed));
    let lease = view.map(|view| Duration::from_nanos(view.record.cluster.lease_ns));
    let cause = lease.and_then(|lease| pauses.cause(lease));
    let why_left = why.iter().map(Left::to_string);
    let line: Vec<String> = cause.into_iter().chain(why_left).collect();
    let line = format!("machine {number} has left: {}", line.join("; "));
    match why == Some(Left::Restore) && !does_work {
        true => End::Restore(line),
        false => End::Over(Err(line)),
    }
}

/// Tells what becomes of the process as a member.
async fn follow(joined: &Joined, own: &Own, tell: &Tell) {
    let (mut told, mut was_full) = ((0, 0), false);
    let number = joined.local().machine().0;
    if joined.view().with(Option::is_none) {
        tell("it waits for the cluster to let it in");
    }
    loop {
        let shown = race(joined.view().changed(), joined.node.lost().changed());
        let lost = joined.node.lost().get().len();
        if let Some(view) = joined.view().get() {
            own.wait_for(match lost {
                0 => "",
                _ => "nothing any more: regions are lost",
            });
            if told != (view.number(), lost) {
                told = (view.number(), lost);
                let (master, has) = (view.record.master(), shares(&view.record, number));
                tell(&format!(
                    "it is a member: machine {number} in configuration {} of {}, whose master is machine {}; it is \
                     the primary of {}, a backup of {}, and copies {}",
                    view.number(),
                    counted(view.record.machines.len() as u64, "machine", "machines"),
                    master.map_or_else(|| "?".into(), |seat| seat.machine.to_string()),
                    counted(has.primaries, "region", "regions"),
                    has.backups,
                    has.lacking
                ));
            }
            if lost > 0 {
                tell(&format!(
                    "{} lost: no whole replica is left, and the cluster's data is gone",
                    counted(lost as u64, "region is", "regions are")
                ));
            }
        }
        let is_full = joined.access.engine().is_disk_full();
        if std::mem::replace(&mut was_full, is_full) != is_full {
            tell(match is_full {
                true => "its disk is full: commits wait until there is room",
                false => "its disk has room again",
            });
        }
        race(shown, sleep(DISK_LOOK_INTERVAL)).await;
    }
}

/// Tells once if nobody is left who could let this machine in.
async fn tell_if_gone(joined: &Joined, file: &ClusterFile, tell: &Tell) {
    loop {
        sleep(GONE_LOOK_INTERVAL).await;
        if joined.view().with(Option::is_some) {
            return;
        }
        if survey(&caller(file), file, LOOK_INTERVAL)
            .await
            .has_lost_all()
        {
            tell(
                "nobody can let it in: no machine answers that the cluster had, which kept its data in memory. \
                 If their processes have ended, the data is gone: make another cluster, with a cluster file of its \
                 own and empty data directories",
            );
            return;
        }
    }
}

/// Makes the catalogue when this machine is the primary of region 0.
async fn keep_root(joined: Rc<Joined>, sizes: Sizes) {
    let cache = Cache::new(CACHE_BYTES);
    let own = joined.local().machine();
    let leads = |view: &Option<member::View>| {
        let first = view.as_ref().and_then(|view| view.record.primary(0));
        first.is_some_and(|first| Machine(first.machine) == own)
    };
    joined.view().wait_until(leads).await;
    if let Err(error) = root::make(&joined.access, &sizes, &cache).await {
        trace_warn!("FarmNoCatalogue", "error" => error);
    }
}
