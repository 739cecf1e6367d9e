//! `plinth tools`: what developers and packagers of Plinth use.

use crate::{manual, marks};
#[cfg(feature = "sim")]
use plinth_commands::sim;
use plinth_terminal::Outcome;
use plinth_terminal::commands::Commands;

#[derive(clap::Subcommand, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth tools completions bash > /etc/bash_completion.d/plinth",
        "Words of the command line, by Tab",
    ),
    ("plinth tools man /usr/local/share/man/man1", "Then `man plinth-server`"),
]))]
enum Command {
    /// Run simulated clusters with faults; workloads check each run
    #[cfg(feature = "sim")]
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth tools sim run --seed 1", "One run; its trace, and the verdict in the last line"),
        ("plinth tools sim hunt --seeds 1..1000", "Many of them, until one fails"),
    ]))]
    Sim(Commands<sim::Command>),
    /// Print the script that completes the command line in a shell
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth tools completions bash > /etc/bash_completion.d/plinth",
            "For all users of this machine",
        ),
        (
            "plinth tools completions zsh > ~/.zfunc/_plinth",
            "For yourself, if ~/.zfunc is in fpath",
        ),
        ("plinth tools completions fish > ~/.config/fish/completions/plinth.fish", "For yourself"),
    ]))]
    Completions(manual::CompletionsArguments),
    /// Write pages of the manual, one for each command
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth tools man /usr/local/share/man/man1", "Then `man plinth-server`"),
    ]))]
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
        Command::Completions(arguments) => manual::print_completions(shown(), &arguments),
        Command::Man(arguments) => manual::man(shown(), &arguments),
    }
}

/// The program, whose texts have the marks that are shown.
fn shown() -> clap::Command {
    marks::of_command(crate::program())
}
