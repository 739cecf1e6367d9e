//! A configuration as its recovery sees it.

use super::messages::Author;
use plinth_farm_fabric::Machine;

/// A replica of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    pub machine: Machine,
    /// It has all objects, and all that was ever said to it of transactions that are not truncated.
    pub is_whole: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    pub configuration: u64,
    /// Each machine once.
    pub authors: Vec<Author>,
    /// A machine of `authors`.
    pub master: Option<Machine>,
    /// By the region's number. The first whole replica is the primary. All are on machines of `authors`.
    pub regions: Vec<Vec<Replica>>,
}

impl Members {
    pub fn replicas(&self, region: u16) -> &[Replica] {
        self.regions.get(usize::from(region)).map_or(&[], |all| all)
    }

    /// `None` if the region is lost.
    pub fn primary(&self, region: u16) -> Option<Machine> {
        let mut whole = self.whole(region);
        whole.next()
    }

    pub fn whole(&self, region: u16) -> impl Iterator<Item = Machine> {
        let whole = self.replicas(region).iter().filter(|r| r.is_whole);
        whole.map(|replica| replica.machine)
    }

    pub fn replica(&self, region: u16, machine: Machine) -> Option<Replica> {
        let mut replicas = self.replicas(region).iter();
        replicas.find(|r| r.machine == machine).copied()
    }

    pub fn author(&self, machine: Machine) -> Option<Author> {
        let mut authors = self.authors.iter();
        authors.find(|a| a.machine == machine).copied()
    }

    pub fn machines(&self) -> impl Iterator<Item = Machine> {
        self.authors.iter().map(|author| author.machine)
    }

    pub fn numbers(&self) -> impl Iterator<Item = u16> {
        (0u16..).take(self.regions.len())
    }

    /// Regions of which no whole replica is left.
    pub fn lost(&self) -> Vec<u16> {
        let is_lost = |region: &u16| self.primary(*region).is_none();
        self.numbers().filter(is_lost).collect()
    }
}
