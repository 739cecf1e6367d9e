//! `plinth farm`: the in-memory engine.

#[cfg(feature = "bench")]
mod bench;
mod create;
mod demo;
mod dev;
mod drive;
mod fleet;
mod former;
mod heard;
mod keeping;
mod server;
mod shell;
mod status;
mod work;

pub use shell::statements;

// It registers the engine as a world of the simulator.
#[cfg(feature = "sim")]
use plinth_farm_check as _;

use clap::Subcommand;
use plinth_coordination::{ClusterFile, Family};
use plinth_terminal::connect::{check_for_server, refuse_directory, with_remedy};
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::{Outcome, connect};
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth farm dev --data-dir data", "Three machines, which are processes here"),
    (
        "plinth farm cli -C data/plinth.cluster --exec 'set hello world; get hello'",
        "Use it from another terminal",
    ),
    ("plinth farm demo", "See it lose a machine and no data"),
]))]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a fresh cluster on this machine, whose machines are processes
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth farm dev --data-dir data",
            "Three machines; the cluster file is data/plinth.cluster",
        ),
        (
            "plinth farm dev --data-dir data --machines 5 --durable",
            "Five, which keep their data on disk, too",
        ),
    ]))]
    Dev(dev::Arguments),
    /// Run one machine of a cluster: a process with memory, and a coordinator if the cluster file names it
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth farm server -C farm.cluster --listen 10.0.0.1:4800 --data-dir /var/lib/farm",
            "A machine that waits for a cluster, or joins it",
        ),
        (
            "plinth farm server -C farm.cluster --listen 10.0.0.1:4800 --data-dir farm --new --durable",
            "Makes the cluster if there is none",
        ),
    ]))]
    Server(Box<server::Arguments>),
    /// Make a cluster of processes that wait for one
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm create -C farm.cluster", "Of three machines"),
        (
            "plinth farm create -C farm.cluster --machines 5 --regions 10 --region-mib 1024",
            "Of five, with more memory",
        ),
    ]))]
    Create(create::Arguments),
    /// Show the state of a cluster, and what it lacks
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm status -C data/plinth.cluster", "Machines, regions, and what is missing"),
        ("plinth farm status -C data/plinth.cluster --json", "The same for programs"),
    ]))]
    Status(status::Arguments),
    /// Use keys and values of a cluster: an interactive shell, or statements from the command line
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm cli -C data/plinth.cluster", "A shell; `help` lists its statements"),
        (
            "plinth farm cli -C data/plinth.cluster --exec 'set hello world; get hello'",
            "Two statements",
        ),
    ]))]
    Cli(shell::Arguments),
    /// Run TPC-C on three processes, kill one, and check that nothing is lost
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm demo", "Three processes on this machine, which keep nothing"),
        (
            "plinth farm demo --durable --backups disk --duration 20",
            "With data on disk, and for longer",
        ),
    ]))]
    Demo(demo::Arguments),
    /// Measure the engine in one process, each machine a task of its one thread; every run checks its data
    #[cfg(feature = "bench")]
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench tpcc", "Orders, payments and deliveries"),
        (
            "plinth farm bench ycsb --mix a,c --theta 0.99",
            "Updates and reads, mostly of a few rows",
        ),
    ]))]
    Bench(bench::Arguments),
}

/// The cluster file of a command.
#[derive(clap::Args, Clone, Debug)]
pub struct ClusterArgument {
    /// Cluster file; without it $PLINTH_CLUSTER_FILE, else ./plinth.cluster, else, except for a server,
    /// /etc/plinth/plinth.cluster
    #[arg(short = 'C', long, value_name = "FILE")]
    cluster_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArguments,
}

impl ClusterArgument {
    /// For a server.
    fn of_server(&self) -> Outcome<PathBuf> {
        let given = self.cluster_file.as_deref();
        let path = connect::find_for_server(given);
        check_for_server(&path, given)?;
        Ok(path)
    }

    async fn find(&self) -> PathBuf {
        connect::find(self.cluster_file.as_deref()).await
    }

    async fn load(&self, path: &Path) -> Outcome<ClusterFile> {
        refuse_directory(path)?;
        let file = Family::Farm.load(path, self.tls.settings()).await;
        let file = file.and_then(|file| file.addresses_for("plinth farm", path).map(|_| file));
        file.map_err(with_remedy)
    }

    /// As [`load`](Self::load), for a tool: its options for TLS are of use only with such a file.
    async fn load_for_tool(&self) -> Outcome<ClusterFile> {
        let path = self.find().await;
        if path.try_exists().is_ok_and(|is_there| !is_there) {
            return Err(format!(
                "cluster file {}: there is none; name one with -C, or start a cluster with `plinth farm dev \
                 --data-dir DIR'",
                path.display()
            ));
        }
        let file = self.load(&path).await?;
        self.tls.tell_if_unused(file.is_tls, path.display());
        Ok(file)
    }
}

plinth_terminal::command!(
    "farm",
    "The in-memory engine: run it, use it, measure it",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    match arguments.command {
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Create(arguments) => connect::block_on(create::run(&arguments)),
        Command::Status(arguments) => connect::block_on(status::run(&arguments)),
        Command::Cli(arguments) => shell::run(arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => bench::run(&arguments),
    }
}
