//! `plinth delos`: replicated services without a database. Processes that host replicas, and what operators do.

mod backup;
mod commands;
mod create;
mod dev;
mod engines;
mod kinds;
pub mod names;
pub mod page;
mod parting;
mod places;
mod server;
pub mod service;
mod state;
mod top;

use clap::Subcommand;
use names::{At, parse_at, parse_name, parse_service};
use plinth_terminal::Outcome;
use plinth_terminal::connect;
use plinth_terminal::numbers::{seconds_within, within};
use plinth_terminal::tls::TlsArguments;
use serde_json::Value;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth delos dev locks --kind lock --data-dir data",
        "A service of three replicas on this machine",
    ),
    (
        r#"plinth delos call -C data/locks.delos holder '{"name":"a"}'"#,
        "Ask it; another program would use its protocol",
    ),
    ("plinth delos status -C data/locks.delos", "Its replicas, engines and log"),
]))]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a service on this machine: several replicas, which are processes
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos dev locks --kind lock --data-dir data",
            "Three replicas; the file of the service is data/locks.delos",
        ),
        (
            "plinth delos dev zoo --kind zelos --replicas 5",
            "Five replicas for ZooKeeper's clients, from port 2181 on",
        ),
    ]))]
    Dev(dev::Arguments),
    /// Run the process of one replica; one with an empty directory waits for `create` or `add-replica`
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos server --listen 10.0.0.1:4700 --data-dir /var/lib/locks",
            "A process that waits to become a replica, or goes on as one",
        ),
        (
            "plinth delos server --listen 10.0.0.1:4700 --data-dir /var/lib/locks --pages 127.0.0.1:8080",
            "With metrics at http://127.0.0.1:8080/metrics",
        ),
    ]))]
    Server(Box<server::Arguments>),
    /// Make a service of processes that wait for one, and write its file, NAME.delos
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos create locks --kind lock --replica a=10.0.0.1:4700",
            "A service of one replica; more can be added",
        ),
        (
            "plinth delos create locks --kind lock --replica a=10.0.0.1:4700 --replica b=10.0.0.2:4700",
            "Two replicas; with a third one, one may fail",
        ),
    ]))]
    Create(create::Arguments),
    /// Send a request to a service and print its answer
    #[command(after_help = plinth_terminal::examples(&[
        (
            r#"plinth delos call -C locks acquire '{"name":"a","owner":"me","ttl_ms":10000}'"#,
            "A request of a service of kind lock",
        ),
        (r#"plinth delos call -C locks holder '{"name":"a"}' --json"#, "The answer as JSON"),
    ]))]
    Call(Call),
    /// Show a service: its replicas, engines and log
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos status -C data/locks.delos", "By the file of the service"),
        (
            "plinth delos status -C locks --json",
            "The file is locks.delos; also how long proposals take through each engine",
        ),
    ]))]
    Status(Plain),
    /// Watch a service: its replicas and how long its engines take, updated every second
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos top -C locks", "A screen that ends with q or Ctrl-C"),
        ("plinth delos top -C locks --once", "The screen once, as text"),
    ]))]
    Top(top::Arguments),
    /// Make a process that waits a replica of a service, with a log server of its log
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos add-replica -C locks d=10.0.0.4:4700",
            "The process at that address becomes the replica d",
        ),
    ]))]
    AddReplica(AddReplica),
    /// Remove a replica for good, and its log server from the log
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos remove-replica -C locks a", "Whether its process lives or not"),
    ]))]
    RemoveReplica(RemoveReplica),
    /// Switch an engine on when all replicas have it, after their programs were exchanged one by one
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos upgrade -C locks lease", "When all replicas run a release that has it"),
    ]))]
    Upgrade(Upgrade),
    /// Switch an engine on, at one position of the log on all replicas
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos enable-engine -C locks lease",
            "One replica then reads without asking the log",
        ),
    ]))]
    EnableEngine(Engine),
    /// Switch an engine off, at one position of the log on all replicas
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos disable-engine -C locks batching",
            "Each request then has an entry of the log for itself",
        ),
    ]))]
    DisableEngine(Engine),
    /// Go on in a new part of the log, while the service is in use: with another sequencer, or other log servers
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos reconfigure-log -C locks --sequencer b",
            "The process of b orders what comes",
        ),
        (
            "plinth delos reconfigure-log -C locks --servers a,b,c",
            "Three replicas keep the new part",
        ),
    ]))]
    ReconfigureLog(ReconfigureLog),
    /// Compare the rows of all replicas at one position of the log
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos check -C locks", "Are all replicas the same?"),
    ]))]
    Check(Plain),
    /// Keep a backup of a service, in a directory or an object store: its rows, and all that is done from then on
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos backup -C locks --to /mnt/shared/locks",
            "A directory that all replicas reach",
        ),
        (
            "plinth delos backup -C locks --to s3://my-bucket/locks",
            "A bucket; the keys are in AWS_ACCESS_KEY_ID and its like",
        ),
        ("plinth delos backup -C locks --off", "No more; what is there stays"),
    ]))]
    Backup(backup::Backup),
    /// Make a service out of a backup, as it was at any position
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth delos restore again --from /mnt/shared/locks --replica a=10.0.0.1:4700",
            "All that is in the backup, in a new service",
        ),
        (
            "plinth delos restore again --from s3://bucket/locks --to-position 8120 --replica a=10.0.0.1:4700",
            "As it was at that position",
        ),
    ]))]
    Restore(backup::RestoreArguments),
    /// Let the log forget what all replicas have on disk
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos trim -C locks", "All that no replica needs"),
        ("plinth delos trim -C locks --before 100000", "Keep the entries from there on"),
    ]))]
    Trim(Trim),
    /// Reproduce the figures about log-structured protocols, with replicas and log servers in this process
    #[cfg(feature = "bench")]
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth delos bench list", "What there is to measure"),
        (
            "plinth delos bench quorum-append --duration 5 --html figures.html",
            "One part, for longer, with a page of plots",
        ),
    ]))]
    Bench(crate::bench::Arguments),
}

/// The service of a command.
#[derive(clap::Args, Clone, Debug)]
pub struct Which {
    /// File of the service; a name without `.delos` means NAME.delos in the current directory
    #[arg(short = 'C', long = "cluster-file", value_name = "SERVICE", value_parser = parse_service)]
    service: PathBuf,
    #[command(flatten)]
    tls: TlsArguments,
}

/// What all commands for operators and clients have.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds to wait for the service before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
}

#[derive(clap::Args, Debug)]
struct Plain {
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Call {
    #[command(flatten)]
    common: Common,
    /// Operation of the service; a wrong one is answered with all that there are
    #[arg(value_name = "OPERATION")]
    operation: String,
    /// What the operation needs
    #[arg(value_name = "JSON", default_value = "{}", value_parser = parse_json)]
    request: Value,
}

#[derive(clap::Args, Debug)]
struct AddReplica {
    #[command(flatten)]
    common: Common,
    /// Name of the replica, and where its process listens; `:tls` may follow if the service speaks TLS
    #[arg(value_name = "NAME=IP:PORT", value_parser = parse_at)]
    replica: At,
}

#[derive(clap::Args, Debug)]
struct RemoveReplica {
    #[command(flatten)]
    common: Common,
    /// Name of the replica
    #[arg(value_name = "NAME", value_parser = parse_name)]
    replica: String,
}

#[derive(clap::Args, Debug)]
struct Upgrade {
    #[command(flatten)]
    common: Common,
    /// Engine that the new release has
    #[arg(value_name = "ENGINE")]
    engine: String,
}

#[derive(clap::Args, Debug)]
struct Engine {
    #[command(flatten)]
    common: Common,
    /// Name of the engine; `status` lists them
    #[arg(value_name = "ENGINE")]
    engine: String,
}

#[derive(clap::Args, Debug)]
struct ReconfigureLog {
    #[command(flatten)]
    common: Common,
    /// Replica whose process is the sequencer; without it the present one, if it lives
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    sequencer: Option<String>,
    /// Replicas whose log servers keep the new part, with commas; without it all replicas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_name)]
    servers: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct Trim {
    #[command(flatten)]
    common: Common,
    /// Keep the entries from this position on; without it only those that some replica does not have on disk
    #[arg(long, value_name = "POSITION", value_parser = within::<u64>(1..))]
    before: Option<u64>,
}

fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

plinth_terminal::command!(
    "delos",
    "Replicated services without a database: run them, use them, operate them",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    match arguments.command {
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Create(arguments) => connect::block_on(create::run(&arguments)),
        Command::Call(arguments) => connect::block_on(commands::call(&arguments)),
        Command::Status(arguments) => connect::block_on(state::status(&arguments.common)),
        Command::Top(arguments) => top::run(&arguments),
        Command::AddReplica(arguments) => connect::block_on(commands::add_replica(&arguments)),
        Command::RemoveReplica(arguments) => {
            connect::block_on(commands::remove_replica(&arguments))
        }
        Command::Upgrade(arguments) => connect::block_on(commands::upgrade(&arguments)),
        Command::EnableEngine(arguments) => connect::block_on(commands::switch(&arguments, true)),
        Command::DisableEngine(arguments) => connect::block_on(commands::switch(&arguments, false)),
        Command::ReconfigureLog(arguments) => {
            connect::block_on(commands::reconfigure_log(&arguments))
        }
        Command::Check(arguments) => connect::block_on(commands::check(&arguments.common)),
        Command::Backup(arguments) => connect::block_on(backup::backup(&arguments)),
        Command::Restore(arguments) => connect::block_on(backup::restore(&arguments)),
        Command::Trim(arguments) => connect::block_on(commands::trim(&arguments)),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => crate::bench::run(&arguments),
    }
}
