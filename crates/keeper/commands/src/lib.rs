//! The commands of the keeper: a gateway that serves ZooKeeper's clients from a cluster, and trees that come and go.
//! What operators choose for ZooKeeper's clients, and the AdminServer, are for other servers of them, too.

pub mod admin;
#[cfg(feature = "bench")]
mod bench;
pub mod guests;
mod migrate;
mod name;
mod server;
mod tree;
pub mod zookeeper;

use plinth_terminal::Outcome;
use plinth_terminal::commands::Commands;

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Run a gateway, which serves ZooKeeper's clients from a cluster
    Server(Box<server::Arguments>),
    /// Show what there is of a tree, and what to do if it is not whole
    Status(tree::StatusArguments),
    /// Copy ZooKeeper's nodes, with everything about them, into a new tree
    Import(migrate::ImportArguments),
    /// Copy a tree to ZooKeeper: into the data directory of a new server, or to a live one
    Export(migrate::ExportArguments),
    /// Drop what is left of a tree, or all of it, so that the next gateway begins with an empty one
    Drop(tree::DropArguments),
    /// Compare servers that speak ZooKeeper's protocol, in alternating runs
    #[cfg(feature = "bench")]
    Bench(Commands<bench::Command>),
}

plinth_terminal::command!(
    "keeper",
    "ZooKeeper's clients on a cluster: serve them, import and export nodes, measure",
    Commands<Command> => run
);

fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::Server(arguments) => server::run(&arguments),
        Command::Status(arguments) => tree::status(&arguments),
        Command::Import(arguments) => migrate::import(arguments),
        Command::Export(arguments) => migrate::export(arguments),
        Command::Drop(arguments) => tree::drop(&arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => bench::run(arguments),
    }
}
