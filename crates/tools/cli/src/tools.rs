//! `plinth tools`: what developers and packagers of Plinth use.

use crate::manual;
#[cfg(feature = "sim")]
use plinth_commands::sim;
use plinth_terminal::Outcome;
use plinth_terminal::commands::Commands;

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Run simulated clusters with faults; workloads check each run
    #[cfg(feature = "sim")]
    Sim(Commands<sim::Command>),
    /// Print the script that completes the command line in a shell
    Completions(manual::CompletionsArguments),
    /// Write pages of the manual, one for each command
    Man(manual::ManArguments),
}

plinth_terminal::command!(
    "tools",
    "For those who develop Plinth or package it: the simulator, completions, manual pages",
    Commands<Command> => run
);

fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        #[cfg(feature = "sim")]
        Command::Sim(arguments) => sim::run(arguments),
        Command::Completions(arguments) => manual::completions(crate::program(), &arguments),
        Command::Man(arguments) => manual::man(crate::program(), &arguments),
    }
}
