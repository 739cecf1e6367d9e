//! `plinth delos`: replicated services without a database. Processes that host replicas, and what operators do.

mod backup;
mod commands;
mod create;
mod dev;
mod kinds;
pub mod names;
mod places;
mod server;
pub mod service;
mod state;
mod top;

use clap::Subcommand;
use names::{At, parse_at, parse_name, parse_service};
use plinth_terminal::Outcome;
use plinth_terminal::connect;
use plinth_terminal::numbers::within;
use plinth_terminal::tls::TlsArguments;
use serde_json::Value;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Start here: `plinth delos dev locks --kind lock --replicas 3 --data-dir data`, and then \
        `plinth delos call -C data/locks.delos acquire '{\"name\":\"a\",\"owner\":\"me\",\"ttl_ms\":10000}'`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a service on this machine: several replicas, which are processes
    Dev(dev::Arguments),
    /// Run the process of one replica; one with an empty directory waits for `create` or `add-replica`
    Server(Box<server::Arguments>),
    /// Make a service of processes that wait for one, and write its file, NAME.delos
    Create(create::Arguments),
    /// Send a request to a service and print its answer
    Call(Call),
    /// Show a service: its replicas, engines and log
    Status(Plain),
    /// Watch a service: its replicas and how long its engines take, updated every second
    Top(top::Arguments),
    /// Make a process that waits a replica of a service, with a log server of its log
    AddReplica(AddReplica),
    /// Remove a replica for good, and its log server from the log
    RemoveReplica(RemoveReplica),
    /// Switch an engine on when all replicas have it, after their programs were exchanged one by one
    Upgrade(Upgrade),
    /// Switch an engine on, at one position of the log on all replicas
    EnableEngine(Engine),
    /// Switch an engine off, at one position of the log on all replicas
    DisableEngine(Engine),
    /// Go on in a new part of the log, while the service is in use: with another sequencer, or other log servers
    ReconfigureLog(ReconfigureLog),
    /// Compare the rows of all replicas at one position of the log
    Check(Plain),
    /// Keep a backup of a service, in a directory or an object store: its rows, and all that is done from then on
    Backup(backup::Backup),
    /// Make a service out of a backup, as it was at any position
    Restore(backup::RestoreArguments),
    /// Let the log forget what all replicas have on disk
    Trim(Trim),
    /// Reproduce the figures about log-structured protocols, with replicas and log servers in this process
    #[cfg(feature = "bench")]
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
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = within::<u64>(1..=86_400))]
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
