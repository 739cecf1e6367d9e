//! The commands of the keeper: a gateway that serves ZooKeeper's clients from a cluster, and trees that come and go.
//! What operators choose for ZooKeeper's clients, and the AdminServer, are for other servers of them, too.

pub mod admin;
#[cfg(feature = "bench")]
mod bench;
pub mod guests;
mod migrate;
mod name;
mod page;
mod served;
mod server;
mod trace_one;
mod tree;
pub mod zookeeper;

use plinth_terminal::Outcome;
use plinth_terminal::commands::Commands;

#[derive(clap::Subcommand, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth keeper server -C plinth.cluster", "Serve ZooKeeper's clients at 127.0.0.1:2181"),
    (
        "plinth keeper import --from 10.0.0.9:2181 -C plinth.cluster",
        "Copy the nodes of a ZooKeeper",
    ),
    ("plinth keeper status -C plinth.cluster", "What there is of the tree"),
]))]
enum Command {
    /// Run a gateway, which serves ZooKeeper's clients from a cluster
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keeper server -C plinth.cluster --listen 10.0.0.1:2181",
            "At an address that other machines reach",
        ),
        (
            "plinth keeper server -C plinth.cluster --tree billing --listen 127.0.0.1:2182",
            "Another tree of the same cluster",
        ),
    ]))]
    Server(Box<server::Arguments>),
    /// Show what there is of a tree, and what to do if it is not whole
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keeper status -C plinth.cluster", "The tree that is there by default"),
        (
            "plinth keeper status -C plinth.cluster --tree billing --json",
            "Another one, for programs",
        ),
    ]))]
    Status(tree::StatusArguments),
    /// List the trees of a cluster
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keeper list -C plinth.cluster", "The name of each, and whether it is whole"),
    ]))]
    List(tree::ListArguments),
    /// Show where the time of a write goes, through gateway, proxy, log and back
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keeper trace-one -C plinth.cluster", "A node that it makes, at the first gateway found"),
        (
            "plinth keeper trace-one --gateway 10.0.0.1:2181 --path /app/leader --json",
            "A node of yours at a gateway, for programs",
        ),
    ]))]
    TraceOne(trace_one::TraceArguments),
    /// Copy ZooKeeper's nodes, with everything about them, into a new tree
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keeper import --from 10.0.0.9:2181 -C plinth.cluster --tree try",
            "A rehearsal, while ZooKeeper serves",
        ),
        (
            "plinth keeper import --from 10.0.0.9:2181 -C plinth.cluster --follow",
            "Go on with what changes, until its clients are moved",
        ),
        (
            "plinth keeper import --from-files /var/lib/zookeeper -C plinth.cluster",
            "From the files of a server that has ended",
        ),
    ]))]
    Import(migrate::ImportArguments),
    /// Copy a tree to ZooKeeper: into the data directory of a new server, or to a live one
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keeper export --to-files /var/lib/zookeeper-new -C plinth.cluster",
            "A server of ZooKeeper starts from them",
        ),
        (
            "plinth keeper export --to 10.0.0.9:2181 --path /app -C plinth.cluster",
            "A node and all below it, to one that serves",
        ),
    ]))]
    Export(migrate::ExportArguments),
    /// Drop what is left of a tree, or all of it, so that the next gateway begins with an empty one
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keeper drop -C plinth.cluster --tree try",
            "What is left of a tree that is not whole",
        ),
        ("plinth keeper drop -C plinth.cluster --tree try --whole", "A tree with all its nodes"),
    ]))]
    Drop(tree::DropArguments),
    /// Compare servers that speak ZooKeeper's protocol, in alternating runs
    #[cfg(feature = "bench")]
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keeper bench run --server plinth=127.0.0.1:2181 --server zk=127.0.0.1:2182 --clients 100",
            "Two servers by turns",
        ),
        ("plinth keeper bench report results.jsonl", "A page with plots"),
    ]))]
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
        Command::List(arguments) => tree::list(&arguments),
        Command::TraceOne(arguments) => trace_one::run(&arguments),
        Command::Import(arguments) => migrate::import(arguments),
        Command::Export(arguments) => migrate::export(arguments),
        Command::Drop(arguments) => tree::drop(&arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => bench::run(arguments),
    }
}
