//! The binary `plinth`: servers, a shell, import and export of files, a demo, benchmarks, the simulator.
//!
//! Each command is a module with its flags and its code. A command ends with success, or with one line that names
//! the problem, its place, and a remedy. `main` prints that line and exits with 1. Wrong usage exits with 2.

mod allocator;
mod bench;
mod children;
mod configuration;
mod connect;
mod copy;
mod delos;
mod demo;
mod dev;
mod dump;
mod farm;
mod guests;
mod keeper;
mod keys;
mod knobs;
mod load;
mod manual;
mod notify;
mod pages;
mod progress;
mod rows;
mod server;
mod shell;
mod sim;
mod status;
mod stream;
mod table;
mod tls;
mod token;
mod top;
mod trace_file;
mod version;
mod wrap;
mod zookeeper;

// The simulator has the services that are linked. Somebody else's failure is run again with this binary, so it has all.
use plinth_counter as _;
use plinth_delos as _;
use plinth_farm_check as _;
use plinth_keeper as _;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Result of a command; the error is one line for the user.
type Outcome<T = ()> = Result<T, String>;

#[derive(Parser)]
#[command(
    name = "plinth",
    version,
    long_version = version::long(),
    about = "An ordered, transactional key-value store that spreads over many machines",
    max_term_width = 100,
    after_help = "Start here: `plinth demo`, \
        or `plinth dev --data-dir data` and then `plinth cli -C data/plinth.cluster`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a file into an embedded cluster, run checked transactions through three crashes, and print measurements
    Demo(demo::Arguments),
    /// Run a local cluster of several server processes
    Dev(dev::Arguments),
    /// Run one server process
    Server(server::Arguments),
    /// Use a cluster: an interactive shell, or statements from the command line
    Cli(shell::Arguments),
    /// Load pairs from a file into a cluster
    Load(load::Arguments),
    /// Write the pairs of a cluster to a file
    Dump(dump::Arguments),
    /// Copy a database into another: from and to Plinth, FoundationDB, or any cluster that a libfdb_c can open
    Copy(copy::Arguments),
    /// Show the state of a cluster
    Status(status::Arguments),
    /// Watch a cluster: the load of each process, updated every second
    Top(top::Arguments),
    /// Make, list, follow and drop streams: records of changes, or of what was appended
    Stream(stream::Arguments),
    /// Serve ZooKeeper's clients from a cluster; import and export its nodes
    Keeper(Box<keeper::Arguments>),
    /// Use tables on a replicated log: an interactive shell, or statements from the command line
    Table(table::Arguments),
    /// Replicated services without a database: run them, use them, operate them
    Delos(delos::Arguments),
    /// The in-memory engine: run it, use it, measure it
    Farm(farm::Arguments),
    /// Make and change the key file of a cluster, which says who may do what
    Keys(keys::Arguments),
    /// Make keys that sign tokens, and sign tokens: grants of a part of a database to clients
    Token(token::Arguments),
    /// Measure how fast a cluster is
    Bench(bench::Arguments),
    /// Run simulated clusters with faults; workloads check each run
    Sim(sim::Arguments),
    /// Print the script that completes the command line in a shell
    Completions(manual::CompletionsArguments),
    /// Write pages of the manual, one for each command
    Man(manual::ManArguments),
}

/// Exits without a panic message when the reader of standard output has closed the pipe, for example `head`.
fn end_quietly_when_nobody_reads() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(141); // the exit code of SIGPIPE in a shell
        }
        tell(info);
    }));
}

fn main() -> ExitCode {
    allocator::keep_free_memory_for_a_while();
    end_quietly_when_nobody_reads();
    let arguments: Vec<_> = std::env::args_os().collect();
    if knobs::are_asked_for(&arguments) {
        knobs::list();
        return ExitCode::SUCCESS;
    }
    let arguments = configuration::with_file(Arguments::command(), arguments);
    let outcome = arguments.and_then(|arguments| run(Arguments::parse_from(arguments).command));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            // The line is empty if the command has already printed its error.
            if !line.is_empty() {
                eprintln!("plinth: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Dev(arguments) => dev::run(arguments),
        Command::Server(arguments) => server::run(arguments),
        Command::Cli(arguments) => shell::run(arguments),
        Command::Load(arguments) => load::run(arguments),
        Command::Dump(arguments) => dump::run(arguments),
        Command::Copy(arguments) => copy::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Stream(arguments) => stream::run(arguments),
        Command::Keeper(arguments) => keeper::run(*arguments),
        Command::Table(arguments) => table::run(arguments),
        Command::Delos(arguments) => delos::run(arguments),
        Command::Farm(arguments) => farm::run(arguments),
        Command::Keys(arguments) => keys::run(arguments),
        Command::Token(arguments) => token::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Completions(arguments) => manual::completions(Arguments::command(), &arguments),
        Command::Man(arguments) => manual::man(Arguments::command(), &arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_a_help_text() {
        Arguments::command().debug_assert();
        let mut left = vec![Arguments::command()];
        while let Some(command) = left.pop() {
            for argument in command.get_arguments() {
                let explained = argument.get_help().is_some() || argument.is_hide_set();
                assert!(explained, "{} {}", command.get_name(), argument.get_id());
            }
            left.extend(command.get_subcommands().cloned());
        }
    }
}
