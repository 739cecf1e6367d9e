//! `plinth farm`: the in-memory engine.

mod bench;

use crate::Outcome;
use clap::Subcommand;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure the engine in one process, each machine a task of its one thread; every run checks its data
    Bench(bench::Arguments),
}

pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Bench(arguments) => bench::run(arguments),
    }
}
