//! The binary `plinth`: servers, a shell, import and export of files, a demo, benchmarks, the simulator.
//!
//! This is a list of commands. They are in crates of their own, a crate for each family, and a feature of this one
//! says whether a family is in the program. Only `dev`, `top` and `bench` are here, where families meet.
//!
//! A command ends with success, or with one line that names the problem, its place, and a remedy. `main` prints that
//! line and exits with 1. Wrong usage exits with 2.

mod absent;
#[cfg(feature = "bench")]
mod bench;
mod dev;
mod manual;
#[cfg(all(test, feature = "keeper"))]
mod samples;
mod top;
mod version;

// The simulator has the services that are linked: this one, and those that the families bring. Whoever finds a failure
// prints a command for the program that has them all.
#[cfg(feature = "sim")]
use plinth_counter as _;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
#[cfg(feature = "sim")]
use plinth_commands::sim;
use plinth_commands::{copy, demo, dump, keys, load, server, shell, status, stream, token};
#[cfg(feature = "delos")]
use plinth_delos_commands::delos;
#[cfg(feature = "tables")]
use plinth_delos_commands::table;
#[cfg(feature = "farm")]
use plinth_farm_commands as farm;
#[cfg(feature = "keeper")]
use plinth_keeper_commands as keeper;
use plinth_terminal::{Outcome, allocator, configuration, knobs};
use std::ffi::OsString;
use std::process::ExitCode;

/// Exit code of a command line that is none.
const WRONG_USAGE: u8 = 2;

#[derive(Parser)]
#[command(
    name = "plinth",
    version,
    long_version = version::long(),
    about = "An ordered, transactional key-value store that runs on many machines",
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
    #[cfg(feature = "keeper")]
    Keeper(Box<keeper::Arguments>),
    /// Use tables on a replicated log: an interactive shell, or statements from the command line
    #[cfg(feature = "tables")]
    Table(table::Arguments),
    /// Replicated services without a database: run them, use them, operate them
    #[cfg(feature = "delos")]
    Delos(delos::Arguments),
    /// The in-memory engine: run it, use it, measure it
    #[cfg(feature = "farm")]
    Farm(farm::Arguments),
    /// Make and change the key file of a cluster, which says who may do what
    Keys(keys::Arguments),
    /// Make keys that sign tokens, and sign tokens: grants of a part of a database to clients
    Token(token::Arguments),
    /// Measure how fast a cluster is
    #[cfg(feature = "bench")]
    Bench(bench::Arguments),
    /// Run simulated clusters with faults; workloads check each run
    #[cfg(feature = "sim")]
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

/// The command line, as this build has it.
fn program() -> clap::Command {
    let program = Arguments::command();
    match cfg!(feature = "keeper") {
        true => program,
        // A process of this program would be started that it cannot be.
        false => program.mut_subcommand("dev", |dev| {
            dev.mut_arg("keeper_port", |port| port.hide(true))
        }),
    }
}

/// Ends the process with a message if the usage is wrong.
fn parsed(arguments: Vec<OsString>) -> Arguments {
    let matches = program().get_matches_from(arguments);
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn main() -> ExitCode {
    allocator::keep_free_memory_for_a_while();
    end_quietly_when_nobody_reads();
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(line) = absent::line(&arguments) {
        eprintln!("plinth: {line}");
        return ExitCode::from(WRONG_USAGE);
    }
    if knobs::are_asked_for(&arguments) {
        knobs::list();
        return ExitCode::SUCCESS;
    }
    let arguments = configuration::with_file(program(), arguments);
    let outcome = arguments.and_then(|arguments| run(parsed(arguments).command));
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
        #[cfg(feature = "keeper")]
        Command::Keeper(arguments) => keeper::run(*arguments),
        #[cfg(feature = "tables")]
        Command::Table(arguments) => table::run(arguments),
        #[cfg(feature = "delos")]
        Command::Delos(arguments) => delos::run(arguments),
        #[cfg(feature = "farm")]
        Command::Farm(arguments) => farm::run(arguments),
        Command::Keys(arguments) => keys::run(arguments),
        Command::Token(arguments) => token::run(arguments),
        #[cfg(feature = "bench")]
        Command::Bench(arguments) => bench::run(arguments),
        #[cfg(feature = "sim")]
        Command::Sim(arguments) => sim::run(arguments),
        Command::Completions(arguments) => manual::completions(program(), &arguments),
        Command::Man(arguments) => manual::man(program(), &arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_a_help_text() {
        program().debug_assert();
        let mut left = vec![program()];
        while let Some(command) = left.pop() {
            for argument in command.get_arguments() {
                let explained = argument.get_help().is_some() || argument.is_hide_set();
                assert!(explained, "{} {}", command.get_name(), argument.get_id());
            }
            left.extend(command.get_subcommands().cloned());
        }
    }
}
