//! The one binary, `plinth`: servers, a shell, files in and out, a demonstration, measurements, the simulator.
//!
//! Each command is a module: its flags, and what it does with them. A command ends with success or with one line
//! that says what is wrong, where, and what to do; `main` prints it and exits with 1. Wrong usage exits with 2.

mod bench;
mod connect;
mod copy;
mod demo;
mod dev;
mod dump;
mod load;
mod metrics;
mod progress;
mod rows;
mod server;
mod shell;
mod sim;
mod status;
mod top;
mod trace_file;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Roles allocate many small objects of all ages, which is what this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// The allocator's own, which its crate names only for those who want all of it.
    fn mi_option_set(option: std::ffi::c_int, value: std::ffi::c_long);
}

/// After how many milliseconds the allocator gives free memory back. A second is its own choice: less than the five for which a
/// storage server keeps versions, so that what they took was given back and asked for again, page by page, all the time.
const PURGE_DELAY_OPTION: std::ffi::c_int = 15;
const PURGE_DELAY_MS: std::ffi::c_long = 10_000;

fn keep_free_memory_for_a_while() {
    // SAFETY: nothing else sets options, and there is one thread yet.
    unsafe { mi_option_set(PURGE_DELAY_OPTION, PURGE_DELAY_MS) }
}

/// What a command ends with; the error is one line for the user.
type Outcome<T = ()> = Result<T, String>;

#[derive(Parser)]
#[command(
    name = "plinth",
    version,
    about = "An ordered, transactional key-value store that spreads over many machines",
    max_term_width = 100,
    after_help = "Start here: `plinth demo`, or `plinth dev --data-dir data` and then `plinth cli -C data/plinth.cluster`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a real file into an embedded cluster, run checked transactions through a crash, and print what it measured
    Demo(demo::Arguments),
    /// Run a local cluster of several server processes
    Dev(dev::Arguments),
    /// Run one server process
    Server(server::Arguments),
    /// Talk to a cluster: an interactive shell, or statements from the command line
    Cli(shell::Arguments),
    /// Load the pairs of a file into a cluster
    Load(load::Arguments),
    /// Write the pairs of a cluster to a file
    Dump(dump::Arguments),
    /// Copy a database into another: from and to Plinth, FoundationDB, or whatever a libfdb_c reaches
    Copy(copy::Arguments),
    /// Show the state of a cluster
    Status(status::Arguments),
    /// Watch a cluster: what each process does, a screen a second
    Top(top::Arguments),
    /// Measure how fast a cluster is
    Bench(bench::Arguments),
    /// Run simulated clusters with faults, each checked by its workloads
    Sim(sim::Arguments),
}

/// Who reads only the beginning of what a command prints has seen enough: that is no failure to be told of.
fn end_quietly_when_nobody_reads() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(141); // as the signal would have it
        }
        tell(info);
    }));
}

fn main() -> ExitCode {
    keep_free_memory_for_a_while();
    end_quietly_when_nobody_reads();
    let outcome = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Dev(arguments) => dev::run(arguments),
        Command::Server(arguments) => server::run(arguments),
        Command::Cli(arguments) => shell::run(arguments),
        Command::Load(arguments) => load::run(arguments),
        Command::Dump(arguments) => dump::run(arguments),
        Command::Copy(arguments) => copy::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            // A failure that has printed its own account has no line.
            if !line.is_empty() {
                eprintln!("plinth: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
