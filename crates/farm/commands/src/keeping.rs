//! What a new cluster of the in-memory engine keeps on disks.

use plinth_farm_server::check_backups;
use plinth_terminal::Outcome;
use plinth_terminal::choices::{Among, among, expected};
use std::fmt;

/// Where replicas are that do not lead their region.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Backups {
    /// In memory, ready to lead.
    #[default]
    Memory,
    /// On disk only; a machine that begins to lead a region reads it from its disk.
    Disk,
}

impl fmt::Display for Backups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Backups {
    const ALL: [Backups; 2] = [Backups::Memory, Backups::Disk];

    /// Takes it on the command line.
    pub fn parser() -> Among<Backups> {
        among(Backups::ALL.map(Backups::name), Backups::parse)
    }

    fn parse(name: &str) -> Result<Backups, String> {
        let found = Backups::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| expected(name, Backups::ALL.map(Backups::name)))
    }

    pub fn of(is_on_disk: bool) -> Backups {
        match is_on_disk {
            true => Backups::Disk,
            false => Backups::Memory,
        }
    }

    pub fn is_on_disk(self) -> bool {
        self == Backups::Disk
    }

    /// As it is said on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Backups::Memory => "memory",
            Backups::Disk => "disk",
        }
    }
}

/// Chosen when a cluster is made, and never changed.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Keeping {
    /// Commits of a new cluster are on the disks of all replicas before they are acknowledged, so that it survives the
    /// end of all its processes
    #[arg(long)]
    pub durable: bool,
    /// Where a new cluster has the replicas that do not lead their region: memory, or, if it is durable, disk
    #[arg(long, value_name = "WHERE", default_value_t)]
    #[arg(value_parser = Backups::parser(), hide_possible_values = true)]
    pub backups: Backups,
}

impl Keeping {
    /// Errors: a line for the user.
    pub fn check(self) -> Outcome {
        check_backups(self.durable, self.backups.is_on_disk())
    }

    /// The same for another process.
    pub fn arguments(self) -> Vec<&'static str> {
        let durable = self.durable.then_some("--durable");
        let backups = ["--backups", self.backups.name()];
        durable.into_iter().chain(backups).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        keeping: Keeping,
    }

    #[test]
    fn another_process_understands_what_it_is_told() {
        for durable in [false, true] {
            for backups in [Backups::Memory, Backups::Disk] {
                let keeping = Keeping { durable, backups };
                let told = std::iter::once("plinth").chain(keeping.arguments());
                assert_eq!(Asked::parse_from(told).keeping, keeping);
                assert_eq!(
                    keeping.check().is_ok(),
                    durable || backups == Backups::Memory
                );
                assert_eq!(Backups::of(backups.is_on_disk()), backups);
            }
        }
        assert_eq!(Asked::parse_from(["plinth"]).keeping, Keeping::default());
        let misspelt = Asked::try_parse_from(["plinth", "--backups", "dsk"]).err();
        let line = misspelt.expect("it is no place").to_string();
        assert!(
            line.contains("did you mean `disk'? expected memory or disk"),
            "{line}"
        );
    }
}
