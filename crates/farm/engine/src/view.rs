//! Where everything is in a configuration.

use plinth_farm_fabric::Machine;

/// A replica of a region: a machine, and the slot of its memory. A slot is a region of the fabric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub machine: Machine,
    pub slot: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replicas {
    pub primary: Place,
    pub backups: Vec<Place>,
}

impl Replicas {
    /// The slot of the region's backup on this machine.
    pub fn backup_on(&self, machine: Machine) -> Option<u16> {
        let backup = self.backups.iter().find(|place| place.machine == machine);
        backup.map(|place| place.slot)
    }
}

/// A configuration as the engine sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub number: u64,
    /// In order, each once.
    pub machines: Vec<Machine>,
    /// Whose clock is the time. It also collects the oldest active transactions (§4.5).
    pub master: Machine,
    /// By the region's number.
    pub regions: Vec<Replicas>,
}

impl View {
    #[inline]
    pub fn replicas(&self, region: u16) -> Option<&Replicas> {
        self.regions.get(usize::from(region))
    }

    #[inline]
    pub fn primary(&self, region: u16) -> Option<Place> {
        self.replicas(region).map(|replicas| replicas.primary)
    }
}
