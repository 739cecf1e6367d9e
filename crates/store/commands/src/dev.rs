//! `plinth dev`: a local cluster of several server processes, which are its direct children.
//!
//! ```text
//! DIR/dev.json           what the cluster was made with
//! DIR/plinth.cluster     the cluster file, written by this command
//! DIR/<port>/            data directory of the server at that port
//! DIR/<port>/trace.jsonl its trace events
//! ```
//!
//! Each server is in a zone of its own, so that killing one is like losing a machine. A server that dies is started
//! again after two seconds. When this process ends, for any reason, the servers end too.

mod made;

use crate::server::DEFAULT_CACHE_MIB;
use made::Made;
use plinth_control::management;
use plinth_coordination::{
    ClusterFile, DEV_DESCRIPTION, Family, Tenant, cluster_file, key_file, places, why,
};
use plinth_core::config::FaultDomain;
use plinth_core::{DatabaseConfig, EngineKind};
use plinth_identity::Identity;
use plinth_rpc::{Place, Transport};
use plinth_runtime::disk::{self, DirLock};
use plinth_runtime::net::Chosen;
use plinth_runtime::{Duration, Either};
use plinth_server::{NotCreated, create_database};
use plinth_terminal::children::{self, Supervised, first_end, keep_alive, stop};
use plinth_terminal::choices::{among, expected};
use plinth_terminal::connect::{self, Connection, telling};
use plinth_terminal::numbers::within;
use plinth_terminal::ports::Claims;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::remembered::chosen;
use plinth_terminal::wording::{counted, pasted};
use plinth_terminal::{Outcome, keys};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whoever waits for longer is told why.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit of the wait for a new cluster to serve.
const START_LIMIT: Duration = Duration::from_secs(60);
const PROCESSES_MAX: u16 = 100;
/// Of the first server.
const PORT: u16 = 4500;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth dev --data-dir data", "A cluster of one server; its file is data/plinth.cluster"),
    (
        "plinth dev --data-dir data --processes 3 --replication double",
        "Three servers, with two copies of the data",
    ),
    (
        "plinth dev --data-dir data --pages-port 8080",
        "With metrics at http://127.0.0.1:8080/metrics",
    ),
]))]
struct Arguments {
    /// Directory for all files; if it holds such a cluster already, that cluster is resumed
    #[arg(long, value_name = "DIR", default_value = "plinth-data")]
    data_dir: PathBuf,
    /// Server processes [default: 1, or those of the cluster in the directory]
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=i64::from(PROCESSES_MAX)))]
    processes: Option<u16>,
    /// Copies of the data of a new cluster: single, double, triple [default: single]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    #[arg(value_parser = among(["single", "double", "triple"], parse_replication))]
    replication: Option<u32>,
    /// Engine of the storage servers of a new cluster: ssd, memory [default: ssd]
    #[arg(long, value_name = "ENGINE", hide_possible_values = true)]
    #[arg(value_parser = among(["ssd", "memory"], parse_engine))]
    engine: Option<EngineKind>,
    /// Port of the first server; the others take the ports after it [default: 4500, or that of the cluster in the
    /// directory]
    #[arg(long, value_name = "PORT", value_parser = within::<u16>(1..))]
    port: Option<u16>,
    /// Cache of each server, in MiB
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CACHE_MIB, value_parser = within::<u64>(1..=1 << 20))]
    cache_mib: u64,
    /// Port of the first server's metrics page (/metrics, for Prometheus); the others take the ports after it; 0: none
    /// any more [default: none, or that of the cluster in the directory]
    #[arg(long, alias = "metrics-port", value_name = "PORT", value_parser = within::<u16>(0..))]
    pages_port: Option<u16>,
    /// Port for ZooKeeper's clients: a gateway that keeps its nodes in this cluster; 0: none any more [default: none,
    /// or that of the cluster in the directory]
    #[arg(long = "zookeeper-port", alias = "keeper-port", value_name = "PORT", value_parser = within::<u16>(0..))]
    keeper_port: Option<u16>,
    /// Do not restart a server that has died
    #[arg(long)]
    no_restart: bool,
}

fn parse_replication(name: &str) -> Result<u32, String> {
    // All servers of this machine count as one data hall, so modes with another fault domain are not possible.
    let mode = DatabaseConfig::parse_mode(name).filter(|(_, domain)| *domain == FaultDomain::Zone);
    mode.map(|(copies, _)| copies)
        .ok_or_else(|| expected(name, ["single", "double", "triple"]))
}

fn parse_engine(name: &str) -> Result<EngineKind, String> {
    EngineKind::parse(name).ok_or_else(|| expected(name, ["ssd", "memory"]))
}

/// The servers: those that are asked for, or those that the directory has.
struct Plan {
    processes: u16,
    port: u16,
    port_by: Chosen,
    /// What the cluster was to have that the directory has, or what one has by default.
    replication: u32,
    engine: EngineKind,
    /// Of the gateway for ZooKeeper's clients.
    keeper_port: Option<u16>,
    /// Of the first server's page.
    pages_port: Option<u16>,
}

impl Plan {
    fn address(&self, i: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port + i)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.processes).map(|i| self.address(i)).collect()
    }

    /// What the next command finds in the directory.
    fn made(&self, arguments: &Arguments) -> Made {
        Made {
            processes: self.processes,
            port: self.port,
            replication: arguments.replication.unwrap_or(self.replication),
            engine: arguments.engine.unwrap_or(self.engine),
            zookeeper_port: self.keeper_port,
            pages_port: self.pages_port,
        }
    }
}

plinth_terminal::command!(
    "dev",
    "Run a local cluster of several server processes",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        let path = arguments.data_dir.join(cluster_file::DEFAULT_NAME);
        Tenant::Cluster.check(&arguments.data_dir).await?;
        let is_new = Made::load(&arguments.data_dir).await?.is_none();
        let mut claims = Claims::default();
        if is_new && ports_in(&arguments.data_dir).await?.is_empty() {
            checked_plan(&arguments, &mut claims).await?; // a command that is refused leaves nothing
        }
        check_is_own(&arguments, &path).await?;
        let _lock = lock(&arguments.data_dir).await?;
        let plan = checked_plan(&arguments, &mut claims).await?;
        let cluster = prepare(&arguments, &path, &plan).await?;
        let servers = (0..plan.processes).map(|i| start(&arguments, &plan, &path, i));
        let mut servers: Vec<Supervised> = servers.collect::<Outcome<_>>()?;
        let outcome = serve(&arguments, &plan, &path, &cluster, &mut servers).await;
        stop(servers).await;
        outcome
    })
}

fn cannot_use(directory: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| {
        let directory = directory.display();
        format!(
            "data directory {directory}: {} with --data-dir",
            why(&error)
        )
    }
}

/// Makes the directory, and keeps other clusters out of it while the result lives.
async fn lock(directory: &Path) -> Outcome<DirLock> {
    let cannot = cannot_use(directory);
    disk::create_dir_all(directory).await.map_err(&cannot)?;
    let file = directory.join(cluster_file::DEFAULT_NAME);
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    match disk::lock_dir(directory).await {
        Ok(lock) => Ok(lock),
        Err(error) if is_taken(&error) && file.exists() => Err(format!(
            "data directory {}: its cluster runs already; connect with plinth cli -C {}, \
            or choose another with --data-dir",
            directory.display(),
            pasted(&file)
        )),
        Err(error) => Err(cannot(error)),
    }
}

/// The ports whose servers have data in the directory; none if it is not there.
async fn ports_in(directory: &Path) -> Outcome<BTreeSet<u16>> {
    let names = match disk::list_dir(directory).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    };
    let names = names.map_err(cannot_use(directory))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The plan, whose ports nobody has; they are claimed.
async fn checked_plan(arguments: &Arguments, claims: &mut Claims) -> Outcome<Plan> {
    let plan = plan(arguments).await?;
    claims.take(listeners(arguments, &plan))?;
    Ok(plan)
}

/// The port that is said, or the last one; 0 is none any more.
fn said_or(said: Option<u16>, last: Option<u16>) -> Option<u16> {
    said.or(last).filter(|port| *port > 0)
}

async fn plan(arguments: &Arguments) -> Outcome<Plan> {
    let there = ports_in(&arguments.data_dir).await?;
    let made = Made::load(&arguments.data_dir).await?;
    let processes = there.len().clamp(1, usize::from(PROCESSES_MAX)) as u16;
    let processes = made.map_or(processes, |made| made.processes);
    let first = made.map(|made| made.port).or(there.first().copied());
    let plan = Plan {
        processes: arguments.processes.unwrap_or(processes),
        port: arguments.port.or(first).unwrap_or(PORT),
        port_by: match first {
            None => Chosen::flag("--port", arguments.port.is_none()),
            Some(_) => Chosen::Kept("--data-dir"),
        },
        replication: made.map_or(1, |made| made.replication),
        engine: made.map_or(EngineKind::Ssd, |made| made.engine),
        keeper_port: said_or(arguments.keeper_port, made.and_then(|of| of.zookeeper_port)),
        pages_port: said_or(arguments.pages_port, made.and_then(|of| of.pages_port)),
    };
    let copies = arguments.replication.unwrap_or(plan.replication);
    if u32::from(plan.processes) < copies {
        let servers = count(plan.processes);
        return Err(match first {
            None => format!(
                "{servers} cannot keep {copies} copies; give --processes {copies} or more, or less --replication"
            ),
            Some(_) => format!(
                "data directory {0} holds a cluster of {servers}, which cannot keep {copies} copies: {1}, and then \
                 say `configure' in plinth cli; or choose another with --data-dir",
                arguments.data_dir.display(),
                more_servers(&arguments.data_dir)
            ),
        });
    }
    if u32::from(plan.port) + u32::from(plan.processes) > 1 << 16 {
        return Err(format!(
            "ports from {} on do not suffice for {}; choose a lower --port",
            plan.port,
            count(plan.processes)
        ));
    }
    Ok(plan)
}

/// Where the processes will listen.
fn listeners(arguments: &Arguments, plan: &Plan) -> Vec<(SocketAddr, Chosen)> {
    let addresses = plan.addresses();
    let own = addresses.iter().map(|at| (*at, plan.port_by));
    let pages_by = chosen("--pages-port", arguments.pages_port);
    let pages = plan.pages_port.into_iter().flat_map(|first| {
        (first..=u16::MAX)
            .take(addresses.len())
            .map(|port| (port, pages_by))
    });
    let keeper_by = chosen("--zookeeper-port", arguments.keeper_port);
    let keeper = plan.keeper_port.map(|port| (port, keeper_by));
    let local = |(port, by)| (SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port), by);
    own.chain(pages.chain(keeper).map(local)).collect()
}

/// Number of coordinators. One survives no loss, three survive the loss of one, five the loss of two.
fn coordinators(processes: usize) -> usize {
    match processes {
        0..3 => 1,
        3..5 => 3,
        _ => 5,
    }
}

/// Numbers of roles of a new database: enough to use several processes, few enough for one machine.
fn shape(processes: u16, replication: u32, engine: EngineKind) -> DatabaseConfig {
    let processes = u32::from(processes);
    let several = processes.div_ceil(3).min(3);
    DatabaseConfig {
        replication,
        domain: FaultDomain::Zone,
        engine,
        commit_proxies: several,
        grv_proxies: several.min(2),
        resolvers: several.min(2),
        logs: replication.max(processes.min(3)),
    }
}

/// Creates the directory and its cluster file, or checks that existing ones fit the arguments.
async fn prepare(arguments: &Arguments, path: &Path, plan: &Plan) -> Outcome<ClusterFile> {
    let addresses = plan.addresses();
    let (directory, cannot) = (
        arguments.data_dir.display(),
        cannot_use(&arguments.data_dir),
    );
    let there = ports_in(&arguments.data_dir).await?;
    let wanted: BTreeSet<u16> = addresses.iter().map(SocketAddr::port).collect();
    if disk::exists(path).await.map_err(&cannot)? {
        let cluster = ClusterFile::load(path)
            .await
            .map_err(|error| error.to_string())?;
        let is_own = Family::Store.check(path, &cluster);
        is_own.map_err(|error| {
            format!("data directory {directory}: {error}; or choose another with --data-dir")
        })?;
        check_servers(arguments, &there, &wanted).await?;
        if arguments.keeper_port.or(arguments.pages_port).is_some() {
            let made = Made::load(&arguments.data_dir).await?;
            let made = Made {
                zookeeper_port: plan.keeper_port,
                pages_port: plan.pages_port,
                ..made.unwrap_or_else(|| plan.made(arguments))
            };
            made.save(&arguments.data_dir).await?;
        }
        close(arguments, path, &there)?;
        return Ok(cluster);
    }
    if has_data(&arguments.data_dir, &there).await? {
        return Err(format!(
            "data directory {directory} holds the data of servers but no {}; put it back, \
            or choose another with --data-dir",
            cluster_file::DEFAULT_NAME
        ));
    }
    make_directories(arguments, plan).await?;
    let cluster = ClusterFile::new(
        DEV_DESCRIPTION,
        &format!("{:016x}", plinth_runtime::random::u64()),
        places(addresses[..coordinators(addresses.len())].iter().copied()),
    );
    cluster.save(path).await.map_err(&cannot)?;
    close(arguments, path, &there)?;
    Ok(cluster)
}

/// Refuses a directory that holds nothing but the cluster file of another cluster: keys made beside that file would
/// shut out whoever uses it. Makes nothing itself.
async fn check_is_own(arguments: &Arguments, path: &Path) -> Outcome {
    let directory = &arguments.data_dir;
    let Ok(cluster) = ClusterFile::load(path).await else {
        return Ok(()); // whoever needs it says what is wrong with it
    };
    if !ports_in(directory).await?.is_empty() || Made::load(directory).await?.is_some() {
        return Ok(());
    }
    let own = places(plan(arguments).await?.addresses());
    if cluster.coordinators.iter().all(|place| own.contains(place)) {
        return Ok(());
    }
    let named = cluster.coordinators.iter().map(Place::to_string);
    Err(format!(
        "data directory {}: its {} is that of another cluster, whose coordinators are {}; choose another directory \
         with --data-dir",
        directory.display(),
        cluster_file::DEFAULT_NAME,
        named.collect::<Vec<_>>().join(", ")
    ))
}

/// Refuses servers that are not those of the directory, which has servers at the ports `there`.
async fn check_servers(
    arguments: &Arguments,
    there: &BTreeSet<u16>,
    wanted: &BTreeSet<u16>,
) -> Outcome {
    let (directory, made) = (&arguments.data_dir, Made::load(&arguments.data_dir).await?);
    let made = made.map(|made| (made.port..).take(made.processes.into()).collect());
    let had = made.as_ref().unwrap_or(there);
    if let Some(missing) = had.difference(there).next() {
        return Err(format!(
            "data directory {0}: the directory {0}/{missing} of a server is missing: put it back, or choose another \
             with --data-dir",
            directory.display()
        ));
    }
    match had.first() {
        Some(first) if had != wanted => Err(format!(
            "data directory {} holds a cluster of {} from port {first} on; it is resumed without {}, or choose \
             another with --data-dir{}",
            directory.display(),
            count(had.len() as u16),
            match arguments.port {
                Some(_) => "--processes and --port",
                None => "--processes",
            },
            match wanted.len() > had.len() {
                true => format!("; {}", more_servers(directory)),
                false => String::new(),
            }
        )),
        _ => Ok(()),
    }
}

/// How a cluster gets more servers than it was made with.
fn more_servers(directory: &Path) -> String {
    let file = directory.join(cluster_file::DEFAULT_NAME);
    format!(
        "let more join it, each by `plinth server -C {}'",
        pasted(&file)
    )
}

/// Whether servers at these ports have left something.
async fn has_data(directory: &Path, ports: &BTreeSet<u16>) -> Outcome<bool> {
    for port in ports {
        let names = disk::list_dir(&directory.join(port.to_string())).await;
        if !names.map_err(cannot_use(directory))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the directories of the servers, and before them a note of what they are for.
async fn make_directories(arguments: &Arguments, plan: &Plan) -> Outcome {
    plan.made(arguments).save(&arguments.data_dir).await?;
    for address in plan.addresses() {
        let own = arguments.data_dir.join(address.port().to_string());
        let made = disk::create_dir_all(&own).await;
        made.map_err(cannot_use(&arguments.data_dir))?;
    }
    Ok(())
}

/// Makes keys, unless servers say that there have been some: then they say what to do.
fn close(arguments: &Arguments, path: &Path, servers: &BTreeSet<u16>) -> Outcome {
    let has_mark = |port: &u16| {
        let directory = arguments.data_dir.join(port.to_string());
        directory.join(key_file::MARK).exists()
    };
    if servers.iter().any(has_mark) {
        return Ok(());
    }
    keys::make_for_new_cluster(path)
}

/// Creates the database if there is none, then keeps the servers running until the user interrupts it.
async fn serve(
    arguments: &Arguments,
    plan: &Plan,
    path: &Path,
    cluster: &ClusterFile,
    servers: &mut Vec<Supervised>,
) -> Outcome {
    let work = async {
        let starting = make_ready(arguments, plan, cluster);
        let ended = first_end(servers);
        match plinth_runtime::race(starting, ended).await {
            Either::Left(outcome) => outcome?,
            Either::Right(line) => return Err(line),
        }
        let start = |i| start(arguments, plan, path, i);
        if plan.keeper_port.is_some() {
            servers.push(start(plan.processes)?);
        }
        announce(arguments, plan, path);
        keep_alive(servers, !arguments.no_restart, start).await
    };
    unless_interrupted(work).await?.unwrap_or_else(|| {
        plinth_terminal::say!("plinth: stopping {}", count(plan.processes));
        Ok(())
    })
}

async fn make_ready(arguments: &Arguments, plan: &Plan, cluster: &ClusterFile) -> Outcome {
    let copies = arguments.replication.unwrap_or(plan.replication);
    let engine = arguments.engine.unwrap_or(plan.engine);
    let config = shape(plan.processes, copies, engine);
    let path = arguments.data_dir.join(cluster_file::DEFAULT_NAME);
    let file = ClusterFile::load(&path).await;
    let credentials = file
        .map_err(|error| error.to_string())?
        .credentials(Identity::Operator);
    let connection = Connection::over(path, cluster.clone(), credentials.clone(), START_LIMIT);
    let serving = async {
        let transport = Transport::client_with(credentials);
        match create_database(&transport, &cluster.clone().into(), config).await {
            Ok(()) | Err(NotCreated::Exists) => {}
            Err(NotCreated::Because(line)) => {
                return Err(format!("cannot create the database: {line}"));
            }
        }
        let database = plinth_client::connect_over(transport, cluster.clone());
        let configured = management::configured(&database).await;
        let configured =
            configured.map_err(|error| format!("the database does not answer: {error}"))?;
        fits(arguments, &configured.config)
    };
    let why = async {
        // Most start sooner, and wait for each other.
        plinth_runtime::sleep(PATIENCE).await;
        connection.why_it_waits().await.line()
    };
    let limit = START_LIMIT.as_secs();
    let serving = telling(plinth_runtime::timeout(START_LIMIT, serving), limit, why).await;
    match serving {
        Some(outcome) => outcome,
        None => Err(format!(
            "{}; the servers' trace is in {}/<port>/trace.jsonl",
            connection.explain_silence().await,
            arguments.data_dir.display()
        )),
    }
}

/// Options are not ignored: what they say of a new cluster must be so of one that is there.
fn fits(arguments: &Arguments, config: &DatabaseConfig) -> Outcome {
    let differs = arguments
        .replication
        .is_some_and(|copies| copies != config.replication)
        || arguments
            .engine
            .is_some_and(|engine| engine != config.engine);
    if !differs {
        return Ok(());
    }
    let (mode, engine) = (config.mode(), config.engine.name());
    Err(format!(
        "data directory {} holds a database that is {mode} {engine}; resume it without --replication and \
        --engine, and change it by `configure' in plinth cli",
        arguments.data_dir.display()
    ))
}

fn count(processes: u16) -> String {
    counted(processes, "server process", "server processes")
}

fn announce(arguments: &Arguments, plan: &Plan, path: &Path) {
    let last = plan.port + plan.processes - 1;
    let ports = if last == plan.port {
        format!("port {last}")
    } else {
        format!("ports {} to {last}", plan.port)
    };
    println!(
        "{}, {ports}; data in {}",
        count(plan.processes),
        arguments.data_dir.display()
    );
    println!("connect with: plinth cli -C {}", pasted(path));
    if let Some(port) = plan.keeper_port {
        println!("ZooKeeper's clients: 127.0.0.1:{port}");
    }
    println!("ready");
}

/// Starts a server of the database; the one behind them is the gateway for ZooKeeper's clients.
fn start(arguments: &Arguments, plan: &Plan, cluster: &Path, i: u16) -> Outcome<Supervised> {
    let mut command = children::itself();
    let (what, listen) = match plan.keeper_port.filter(|_| i == plan.processes) {
        None => {
            command.arg("server");
            add_server(&mut command, arguments, plan, i);
            ("server", plan.address(i))
        }
        Some(port) => {
            command.args(["keeper", "server"]);
            let trace = arguments.data_dir.join("keeper.jsonl");
            command.arg("--trace").arg(trace);
            // Only this machine reaches it: all connections come from one address.
            command.args(["--max-connections-per-address", "0", "--commands", "*"]);
            (
                "keeper",
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            )
        }
    };
    command
        .args(["--listen", &listen.to_string()])
        .arg("--cluster-file")
        .arg(cluster);
    Supervised::start(format!("the {what} at {listen}"), &mut command)
}

fn add_server(command: &mut Command, arguments: &Arguments, plan: &Plan, i: u16) {
    let listen = plan.address(i);
    let directory = arguments.data_dir.join(listen.port().to_string());
    if let Some(port) = plan.pages_port {
        let page = SocketAddr::new(listen.ip(), port + i);
        command.args(["--pages", &page.to_string()]);
    }
    command
        .arg("--data-dir")
        .arg(&directory)
        .args(["--machine", &format!("m{i}")])
        .args(["--zone", &format!("z{i}")])
        .args(["--cache-mib", &arguments.cache_mib.to_string()])
        .arg("--trace")
        .arg(directory.join("trace.jsonl"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Whole {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn asked(directory: &Path, words: &str) -> Arguments {
        let words = words.split_whitespace();
        let given = ["x".as_ref(), "--data-dir".as_ref(), directory.as_os_str()];
        let all = given.into_iter().chain(words.map(str::as_ref));
        <Whole as clap::Parser>::parse_from(all).arguments
    }

    #[test]
    fn a_cluster_whose_making_was_cut_short_is_made_as_it_was_asked_for() {
        let name = format!("plinth-dev-cut-short-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let path = directory.join(cluster_file::DEFAULT_NAME);
        let again = asked(&directory, "");
        connect::block_on(async {
            let first = asked(
                &directory,
                "--processes 3 --port 4900 --replication double --engine memory",
            );
            disk::create_dir_all(&directory)
                .await
                .map_err(cannot_use(&directory))?;
            make_directories(&first, &plan(&first).await?).await?;
            // Before there is a cluster file, and when there is one.
            for _ in 0..2 {
                let plan = plan(&again).await?;
                assert_eq!((plan.processes, plan.port), (3, 4900));
                assert_eq!((plan.replication, plan.engine), (2, EngineKind::Memory));
                let cluster = prepare(&again, &path, &plan).await?;
                assert_eq!(cluster.coordinators.len(), 3);
            }
            let more = asked(&directory, "--processes 4");
            let line = prepare(&more, &path, &plan(&more).await?).await;
            let line = line.expect_err("it has three");
            assert!(
                line.contains("it is resumed without --processes, or"),
                "{line}"
            );
            let copies = asked(&directory, "--processes 1 --replication double");
            let line = plan(&copies).await.err().expect("one keeps no two");
            assert!(line.contains("choose another with --data-dir"), "{line}");
            std::fs::remove_dir(directory.join("4901")).expect("it is empty");
            let line = prepare(&again, &path, &plan(&again).await?).await;
            let line = line.expect_err("one is missing");
            assert!(line.contains("4901 of a server is missing"), "{line}");
            Ok(())
        })
        .expect("the directory can be used");
        std::fs::remove_dir_all(&directory).expect("it is there");
    }

    #[test]
    fn the_ports_of_zookeeper_s_clients_and_of_pages_are_remembered_until_others_or_none_are_said()
    {
        let name = format!("plinth-dev-remembers-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let path = directory.join(cluster_file::DEFAULT_NAME);
        connect::block_on(async {
            let prepared = async |words: &str| {
                let arguments = asked(&directory, words);
                disk::create_dir_all(&directory)
                    .await
                    .map_err(cannot_use(&directory))?;
                let plan = plan(&arguments).await?;
                prepare(&arguments, &path, &plan).await?;
                Ok::<_, String>((plan.keeper_port, plan.pages_port))
            };
            for (words, ports) in [
                ("", (None, None)),
                ("--zookeeper-port 2181", (Some(2181), None)),
                ("", (Some(2181), None)),
                ("--pages-port 8080", (Some(2181), Some(8080))),
                ("--zookeeper-port 2182", (Some(2182), Some(8080))),
                ("", (Some(2182), Some(8080))),
                ("--zookeeper-port 0", (None, Some(8080))),
                ("", (None, Some(8080))),
                ("--pages-port 0", (None, None)),
                ("", (None, None)),
            ] {
                assert_eq!(prepared(words).await?, ports, "{words}");
            }
            Ok(())
        })
        .expect("the directory can be used");
        std::fs::remove_dir_all(&directory).expect("it is there");
    }

    #[test]
    fn the_cluster_file_of_another_cluster_is_refused_and_nothing_is_made() {
        let name = format!("plinth-dev-foreign-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let path = directory.join(cluster_file::DEFAULT_NAME);
        std::fs::create_dir(&directory).expect("it can be made");
        std::fs::write(
            &path,
            "db:id@127.0.0.1:4600,127.0.0.1:4601,127.0.0.1:4602\n",
        )
        .expect("valid");
        connect::block_on(async {
            let line = check_is_own(&asked(&directory, "--processes 3"), &path).await;
            let line = line.expect_err("others have it");
            assert!(
                line.contains("are 127.0.0.1:4600, 127.0.0.1:4601"),
                "{line}"
            );
            // These are the ports of its coordinators.
            let own = asked(&directory, "--processes 3 --port 4600");
            check_is_own(&own, &path).await?;
            // Its coordinators have moved.
            std::fs::create_dir(directory.join("4500")).expect("it can be made");
            check_is_own(&asked(&directory, ""), &path).await
        })
        .expect("the directory can be used");
        let names = std::fs::read_dir(&directory).expect("it is there");
        assert_eq!(names.count(), 2);
        std::fs::remove_dir_all(&directory).expect("it is there");
    }

    #[test]
    fn a_database_never_asks_for_more_log_servers_than_there_are_processes() {
        for processes in 1..20 {
            for replication in 1..=3.min(processes) {
                let config = shape(processes, u32::from(replication), EngineKind::Ssd);
                assert!(config.logs <= u32::from(processes) && config.logs >= config.replication);
                assert!(config.commit_proxies >= 1 && config.resolvers >= 1);
            }
        }
        assert_eq!([1, 2, 3, 4, 5, 9].map(coordinators), [1, 1, 3, 3, 5, 5]);
    }
}
