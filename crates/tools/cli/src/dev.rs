//! `plinth dev`, and `plinth dev --farm` if the in-memory engine is in the program.

#[cfg(feature = "farm")]
use farm::keeping::{Backups, Keeping};
use plinth_commands::dev;
#[cfg(feature = "farm")]
use plinth_farm_commands as farm;
use plinth_terminal::Outcome;

#[derive(clap::Args, Debug)]
#[group(skip)] // the store's flags are a group of that name
pub struct Arguments {
    #[command(flatten)]
    store: dev::Arguments,
    #[cfg(feature = "farm")]
    #[command(flatten)]
    farm: Farm,
}

#[cfg(feature = "farm")]
#[derive(clap::Args, Debug)]
struct Farm {
    /// Run a fresh cluster of the in-memory engine instead, of so many machines; each takes two ports
    #[arg(
        long = "farm",
        id = "farm",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=farm::dev::MACHINES_MAX),
        conflicts_with_all = ["processes", "replication", "engine", "cache_mib", "keeper_port"]
    )]
    machines: Option<u16>,
    /// Let these machines keep their data on disk, and go on with what a former run has left in the directory
    #[arg(long, requires = "farm")]
    durable: bool,
    /// Where these machines have the replicas that do not lead their region; on disk only with --durable
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        default_value_t,
        requires = "farm"
    )]
    backups: Backups,
}

pub fn run(arguments: Arguments) -> Outcome {
    #[cfg(feature = "farm")]
    if let Some(machines) = arguments.farm.machines {
        let (store, asked) = (&arguments.store, &arguments.farm);
        let (directory, port) = (&store.data_dir, store.port.unwrap_or(dev::PORT));
        let (page, no_restart) = (store.metrics_port, store.no_restart);
        let keeping = Keeping {
            durable: asked.durable,
            backups: asked.backups,
        };
        return farm::dev::run(directory, machines, port, page, no_restart, keeping);
    }
    dev::run(arguments.store)
}
