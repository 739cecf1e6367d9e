//! `plinth bench`: measuring the store, and each family that is in the program.

use plinth_commands::bench;
#[cfg(feature = "delos")]
use plinth_delos_commands::bench as delos;
#[cfg(feature = "keeper")]
use plinth_keeper_commands::bench as keeper;
use plinth_terminal::Outcome;
use serde_json::Value;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Run a workload against a cluster and print the results
    Run(bench::Run),
    /// Compare servers that speak ZooKeeper's protocol, in alternating runs
    #[cfg(feature = "keeper")]
    Keeper(keeper::Arguments),
    /// Reproduce the figures about log-structured protocols, with replicas and log servers in this process
    #[cfg(feature = "delos")]
    Delos(delos::Arguments),
    /// Make an HTML page with plots from the output of `bench run --json` or of `bench keeper --json`. Files or
    /// directories with the same workloads are shown side by side
    Report(bench::Report),
    /// Measure the speed of this machine, in a few seconds and without a cluster
    Calibrate(bench::Calibrate),
    /// Print the output of `bench run --json` as Markdown tables, scaled to the machine where FoundationDB was
    /// measured
    Table(bench::Table),
}

pub fn run(arguments: Arguments) -> Outcome {
    match arguments.command {
        Command::Run(run) => bench::run(run),
        #[cfg(feature = "keeper")]
        Command::Keeper(arguments) => keeper::run(arguments),
        #[cfg(feature = "delos")]
        Command::Delos(arguments) => delos::run(&arguments),
        Command::Report(report) => bench::report(&report, page_of_others),
        Command::Calibrate(arguments) => bench::calibrate(&arguments),
        Command::Table(table) => bench::table(&table),
    }
}

/// The page of runs that are not of the store; `None` if they are.
#[cfg(feature = "keeper")]
fn page_of_others(runs: &[Value]) -> Option<Outcome<String>> {
    keeper::page(runs).map(Ok)
}

#[cfg(not(feature = "keeper"))]
fn page_of_others(runs: &[Value]) -> Option<Outcome<String>> {
    let mut runs = runs.iter();
    let is_keeper = runs.any(|run| run["kinds"].is_object());
    is_keeper.then(|| Err(crate::absent::said(&["bench", "keeper"])))
}
