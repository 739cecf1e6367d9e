//! `plinth server`: one server process with one or more workers, each on a thread of its own.

use crate::status::page;
use plinth_coordination::{ClusterFile, Family};
use plinth_identity::Identity;
use plinth_protocol::control::ProcessClass;
use plinth_rpc::{Place, Transport};
use plinth_runtime::knobs::{knobs, set_knobs};
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::Chosen;
use plinth_runtime::real::spawn_worker;
use plinth_runtime::{Duration, Either, Task, disk, race, sleep};
use plinth_server::{SSD_CACHE_BYTES, WorkerConfig, accept_lost_registers, run_worker};
use plinth_terminal::choices::{among, expected};
use plinth_terminal::connect::{check_for_server, find_for_server, with_remedy};
use plinth_terminal::numbers::within;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::serving::ServingArguments;
use plinth_terminal::tls::{Listen, PublicAddress, TlsArguments};
use plinth_terminal::{Outcome, notify, pages, ports, trace_file};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file by which a server knows its directory again.
const OWNER: &str = "process";
/// Limit of workers per process; each worker after the first takes the next port.
const WORKERS_MAX: u16 = 64;
/// A disk with less room is full: the files of a role do not grow.
const FULL_BYTES: u64 = 1 << 20;
const DISK_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The cache size without `--cache-mib`.
pub const DEFAULT_CACHE_MIB: u64 = (SSD_CACHE_BYTES >> 20) as u64;

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth server --listen 10.0.0.1:4500 --data-dir /var/lib/plinth -C plinth.cluster",
        "A server of the cluster that the file names",
    ),
    (
        "plinth server --listen 10.0.0.1:4510 --data-dir log-1 --class log --zone rack-1",
        "One for the log, in a zone where no other one has the same data",
    ),
]))]
struct Arguments {
    /// Address to listen at; other processes connect to the same address, unless --public-address names another. With
    /// :tls behind it, nobody gets in without a certificate or a key
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Listen,
    #[command(flatten)]
    pub public: PublicAddress,
    /// Directory for the server's files; created if missing. No other server may use it
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Cluster file; a server whose address is in it is a coordinator. Without it $PLINTH_CLUSTER_FILE, else
    /// ./plinth.cluster
    #[arg(short = 'C', long, value_name = "FILE")]
    pub cluster_file: Option<PathBuf>,
    /// Class of the process: unset (any role), storage, log, stateless, tester
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "unset",
        hide_possible_values = true
    )]
    #[arg(value_parser = among(CLASSES, parse_class))]
    pub class: ProcessClass,
    /// Name of the machine; servers with the same machine are expected to fail together
    #[arg(long, value_name = "NAME", default_value = "")]
    pub machine: String,
    /// Name of the zone, for example a rack; no two replicas are in one zone. Default: the machine
    #[arg(long, value_name = "NAME", default_value = "")]
    pub zone: String,
    /// Name of the data hall: a part of a data center that fails independently
    #[arg(long, value_name = "NAME", default_value = "")]
    pub data_hall: String,
    /// Name of the data center
    #[arg(long, value_name = "NAME", default_value = "")]
    pub data_center: String,
    /// Cache of a storage server's engine, in MiB
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CACHE_MIB, value_parser = within::<u64>(1..=1 << 20))]
    pub cache_mib: u64,
    /// Workers, each with its own event loop; worker i listens at PORT + i
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u16>(1..=i64::from(WORKERS_MAX)))]
    pub workers: u16,
    /// Last resort, for one start: if the coordinator of this server has lost its file, let it serve as a new
    /// coordinator that has promised nothing. This may undo commits; read "Lost coordinators" in docs/operating.md
    /// first
    #[arg(long)]
    pub accept_lost_coordination: bool,
    /// Address of a page for browsers (/), and of a metrics page (/metrics) for Prometheus. At an address that is not
    /// loopback they ask for the token that `plinth keys page-token` shows, if the cluster has keys
    #[arg(long, alias = "metrics", value_name = "IP:PORT", value_parser = ports::parse_address)]
    pub pages: Option<SocketAddr>,
    #[command(flatten)]
    pub tls: TlsArguments,
    #[command(flatten)]
    pub serving: ServingArguments,
}

/// What [`parse_class`] takes.
const CLASSES: [&str; 5] = ["unset", "storage", "log", "stateless", "tester"];

fn parse_class(name: &str) -> Result<ProcessClass, String> {
    let all = ["unset", "storage", "log", "stateless", "tester"];
    ProcessClass::parse(name).ok_or_else(|| expected(name, all))
}

plinth_terminal::command!(
    "server",
    "Run one server process",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    let directory = Some(arguments.data_dir.as_path());
    arguments.serving.run(directory, &[], serve(&arguments))
}

impl Arguments {
    fn cluster_file(&self) -> PathBuf {
        find_for_server(self.cluster_file.as_deref())
    }
}

/// Completes the error line of a worker that cannot continue: the file that was warned about, and a remedy.
fn with_place(line: String) -> String {
    match trace_file::warning_behind(&line) {
        Some(warning) => beside(&line, &warning),
        None => line,
    }
}

/// A line, and the warning about a file that is behind it, which it may say itself.
fn beside(line: &str, warning: &str) -> String {
    if line.contains(warning) {
        return line.to_owned();
    }
    let what = warning.split_once(": ").map(|(_file, what)| what);
    let place = match what.is_some_and(|what| line.contains(what)) {
        true => String::new(),
        false => format!(": {warning}"),
    };
    format!(
        "{line}{place}; restore the whole directory from a backup, or, where other servers have its data, start with \
         an empty --data-dir"
    )
}

async fn serve(arguments: &Arguments) -> Outcome {
    let at = |line: String| format!("server {}: {line}", arguments.listen.address);
    let file = arguments.cluster_file();
    check_for_server(&file, arguments.cluster_file.as_deref()).map_err(at)?;
    let loading = Family::Store.load(&file, arguments.tls.settings());
    let mut cluster = loading.await.map_err(|error| at(with_remedy(error)))?;
    arguments
        .listen
        .close(&mut cluster.certificates)
        .map_err(at)?;
    arguments
        .listen
        .tell_if_open(cluster.certificates.is_some(), cluster.keys.is_some());
    let public = arguments.public.beside(arguments.listen).map_err(at)?;
    let port = arguments.listen.address.port();
    check_ports(port, "--listen", arguments.workers).map_err(at)?;
    if let Some(public) = &public {
        check_ports(public.port(), "--public-address", arguments.workers).map_err(at)?;
    }
    let workers = (0..arguments.workers).map(|worker| worker_at(arguments, worker));
    let workers = workers.map(|address| (address, Chosen::By("--listen")));
    ports::check_pages_beside(workers, arguments.pages).map_err(at)?;
    check_new(arguments).map_err(at)?;
    let accepted = accept_lost_coordination(arguments, &cluster);
    accepted.await.map_err(at)?;
    let pages: Vec<Page> = (0..arguments.workers).map(|_| Page::default()).collect();
    pages
        .iter()
        .for_each(|page| page.name_cluster(&cluster.key()));
    let page = |worker: u16| {
        let wanted = arguments.pages.is_some();
        wanted.then(|| pages[usize::from(worker)].clone())
    };
    serve_pages(arguments, &pages, &file).map_err(at)?;
    for worker in 1..arguments.workers {
        let config = worker_config(
            arguments,
            public.as_ref(),
            cluster.clone(),
            worker,
            page(worker),
        );
        let line = at(format!("worker {worker}"));
        // A worker that cannot continue ends the whole process; its roles are recruited elsewhere.
        let knobs = (*knobs()).clone();
        spawn_worker("worker", move || async move {
            set_knobs(knobs);
            let Err(error) = run_worker(config).await;
            plinth_terminal::say!("plinth: {}", with_place(format!("{line}: {error}")));
            trace_file::flush();
            std::process::exit(1);
        });
    }
    let _telling = tell_of_full_disks(arguments);
    let config = worker_config(arguments, public.as_ref(), cluster.clone(), 0, page(0));
    let worker = race(run_worker(config), until_not_own(&cluster));
    match unless_interrupted(worker).await.map_err(at)? {
        Some(Either::Left(Err(error))) => Err(with_place(at(error))),
        Some(Either::Right(line)) => Err(at(format!("cluster file {}: {line}", file.display()))),
        None => Ok(()),
    }
}

/// Returns when the coordinators tell that they are of another system, with the line that says so. A server would wait
/// for ever there, and run for controller. Once they tell that they are not, nobody can make them so.
async fn until_not_own(cluster: &ClusterFile) -> String {
    let transport = Transport::client_with(cluster.credentials(Identity::Server));
    for pause in [1, 2, 4, 8, 16, 32, 64] {
        if let Some(found) = Family::Store.other_behind(&transport, cluster).await {
            return Family::Store.not_own(found);
        }
        sleep(Duration::from_secs(pause)).await;
    }
    std::future::pending().await
}

/// Tells when the disk of a worker has no room, at the start or later: the worker waits then, and says nothing.
async fn tell_of_full_disk(address: SocketAddr, directory: PathBuf) {
    let mut was_full = false;
    loop {
        // First of all, a worker that cannot begin there says so itself.
        sleep(DISK_LOOK_INTERVAL).await;
        // Whoever cannot read it says so elsewhere.
        let is_full = match disk::space(&directory).await {
            Ok(space) => space.free < FULL_BYTES,
            Err(_) => was_full,
        };
        if std::mem::replace(&mut was_full, is_full) != is_full {
            plinth_terminal::say!("plinth: server {address}: {}", room(&directory, is_full));
        }
    }
}

fn tell_of_full_disks(arguments: &Arguments) -> Vec<Task<()>> {
    let directories =
        (0..arguments.workers).map(|worker| worker_directory(&arguments.data_dir, worker));
    let watch = |directory| {
        let telling = tell_of_full_disk(arguments.listen.address, directory);
        plinth_runtime::spawn("room on the disk", telling)
    };
    directories.map(watch).collect()
}

fn room(directory: &Path, is_full: bool) -> String {
    let directory = directory.display();
    match is_full {
        true => format!(
            "the disk of {directory} is full: the server waits, and nothing is lost; make room there, and it goes on"
        ),
        false => format!("the disk of {directory} has room again"),
    }
}

fn worker_at(arguments: &Arguments, worker: u16) -> SocketAddr {
    let first = arguments.listen.address;
    SocketAddr::new(first.ip(), first.port() + worker)
}

/// Refuses ports that somebody has before the directory, or the file of a lost coordinator, is another one.
fn check_new(arguments: &Arguments) -> Outcome {
    for worker in 0..arguments.workers {
        let directory = worker_directory(&arguments.data_dir, worker);
        let wanted = [(worker_at(arguments, worker), Chosen::By("--listen"))];
        match arguments.accept_lost_coordination {
            true => ports::check_free(wanted)?,
            false => ports::check_new(&directory, OWNER, wanted)?,
        }
    }
    Ok(())
}

fn check_ports(first: u16, flag: &str, workers: u16) -> Outcome {
    match first == 0 || u32::from(first) + u32::from(workers) > 1 << 16 {
        true => Err(format!(
            "ports from 1 to 65535 are possible; choose another with {flag}"
        )),
        false => Ok(()),
    }
}

async fn accept_lost_coordination(arguments: &Arguments, cluster: &ClusterFile) -> Outcome {
    if !arguments.accept_lost_coordination {
        return Ok(());
    }
    for worker in 0..arguments.workers {
        let directory = worker_directory(&arguments.data_dir, worker);
        if accept_lost_registers(&directory, &cluster.key()).await? {
            plinth_terminal::say!(
                "plinth: the coordinator in {} begins as one that has promised nothing",
                directory.display()
            );
        }
    }
    Ok(())
}

fn worker_config(
    arguments: &Arguments,
    public: Option<&Place>,
    cluster: ClusterFile,
    worker: u16,
    metrics: Option<Page>,
) -> WorkerConfig {
    let at = |first: Place| first.with_port(first.port() + worker);
    let listen = arguments.listen.address;
    let mut machine = arguments.machine.clone();
    if machine.is_empty() && arguments.workers > 1 {
        // Workers of one process fail together.
        machine = public.cloned().unwrap_or(listen.into()).to_string();
    }
    WorkerConfig {
        listen: SocketAddr::new(listen.ip(), listen.port() + worker),
        public: public.cloned().map(at),
        // Who starts several, as plinth dev does, tells of them itself.
        tell: arguments.serving.tells_of_itself().then_some(tell),
        warn: Some(tell),
        data_directory: worker_directory(&arguments.data_dir, worker),
        cluster,
        cluster_file: Some(arguments.cluster_file()),
        is_keyed: true,
        class: arguments.class,
        machine,
        zone: arguments.zone.clone(),
        data_hall: arguments.data_hall.clone(),
        data_center: arguments.data_center.clone(),
        metrics,
        cache_bytes: (arguments.cache_mib as usize) << 20,
    }
}

/// Says to who has started this server how it is.
fn tell(line: &str) {
    plinth_terminal::say!("plinth: {line}");
    notify::ready(line);
}

fn worker_directory(directory: &Path, worker: u16) -> PathBuf {
    match worker {
        0 => directory.to_path_buf(),
        i => directory.join(format!("worker-{i}")),
    }
}

/// Serves the pages, if they are asked for.
fn serve_pages(arguments: &Arguments, pages: &[Page], file: &Path) -> Outcome {
    let Some(address) = arguments.pages else {
        return Ok(());
    };
    let keys = pages::Keys {
        cluster_file: file,
        are_needed: arguments.listen.is_tls(),
    };
    pages::serve_all(address, pages, page::show, keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_once_what_is_wrong_with_a_file() {
        let remedy = "; restore the whole directory";
        let said = beside(
            "d/coordination is gone: promises are lost",
            "d/log: is damaged",
        );
        assert!(
            said.contains(&format!("lost: d/log: is damaged{remedy}")),
            "{said}"
        );
        let warning = "d/coordination: d/coordination is gone: promises are lost";
        let said = beside("d/coordination is gone: promises are lost", warning);
        assert!(said.contains(&format!("lost{remedy}")), "{said}");
        assert_eq!(
            beside("d/log: is damaged", "d/log: is damaged"),
            "d/log: is damaged"
        );
    }
}
