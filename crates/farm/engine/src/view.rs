//! Where everything is in a configuration.

use crate::recovery::{Author, Members, Replica};
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
    /// Before the first configuration.
    pub fn none(own: Machine) -> View {
        View {
            number: 0,
            machines: Vec::new(),
            master: own,
            regions: Vec::new(),
        }
    }

    /// The first configuration: the replica `n` of a region is on the machine with the number of the region plus `n`,
    /// in the slot that `slot` gives for both.
    pub fn first(
        machines: u16,
        regions: u16,
        replicas: u16,
        slot: impl Fn(u16, u16) -> u16,
    ) -> View {
        let machines: Vec<Machine> = (0..machines).map(Machine).collect();
        let place = |region: u16, n: u16| Place {
            machine: machines[usize::from(region + n) % machines.len()],
            slot: slot(region, n),
        };
        let regions = (0..regions).map(|region| Replicas {
            primary: place(region, 0),
            backups: (1..replicas).map(|n| place(region, n)).collect(),
        });
        View {
            number: 1,
            master: machines[0],
            regions: regions.collect(),
            machines,
        }
    }

    /// The configuration in which all replicas of this view are new.
    pub fn first_configuration(&self) -> Configuration {
        let seat = |place: &Place| Seat {
            place: *place,
            is_whole: true,
        };
        let seats = |replicas: &Replicas| {
            let places = std::iter::once(&replicas.primary).chain(&replicas.backups);
            places.map(seat).collect()
        };
        let author = |machine: &Machine| Author {
            machine: *machine,
            since: self.number,
        };
        Configuration {
            number: self.number,
            authors: self.machines.iter().map(author).collect(),
            master: self.master,
            regions: self.regions.iter().map(seats).collect(),
        }
    }

    #[inline]
    pub fn replicas(&self, region: u16) -> Option<&Replicas> {
        self.regions.get(usize::from(region))
    }

    #[inline]
    pub fn primary(&self, region: u16) -> Option<Place> {
        self.replicas(region).map(|replicas| replicas.primary)
    }
}

/// A replica of a region, as a configuration has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    pub place: Place,
    /// It has all objects of the region. Until then it takes part in commits, and copies the rest.
    pub is_whole: bool,
}

/// A configuration as the membership has decided it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    pub number: u64,
    /// Its machines, in order, each once.
    pub authors: Vec<Author>,
    /// Whose clock is the time. It is one of the machines.
    pub master: Machine,
    /// By the region's number. The first whole replica is the primary.
    pub regions: Vec<Vec<Seat>>,
}

impl Configuration {
    /// As recovery sees it.
    pub fn members(&self) -> Members {
        let replica = |seat: &Seat| Replica {
            machine: seat.place.machine,
            is_whole: seat.is_whole,
        };
        let regions = self.regions.iter();
        Members {
            configuration: self.number,
            authors: self.authors.clone(),
            master: Some(self.master),
            regions: regions
                .map(|all| all.iter().map(replica).collect())
                .collect(),
        }
    }

    /// As transactions see it. `None` if no whole replica of some region is left.
    pub fn view(&self) -> Option<View> {
        let replicas = |seats: &Vec<Seat>| {
            let primary = seats.iter().position(|seat| seat.is_whole)?;
            let others = seats.iter().enumerate().filter(|(at, _)| *at != primary);
            Some(Replicas {
                primary: seats[primary].place,
                backups: others.map(|(_, seat)| seat.place).collect(),
            })
        };
        let regions: Option<Vec<Replicas>> = self.regions.iter().map(replicas).collect();
        Some(View {
            number: self.number,
            machines: self.authors.iter().map(|author| author.machine).collect(),
            master: self.master,
            regions: regions?,
        })
    }

    /// The machine of a region's primary.
    pub fn primary(&self, region: usize) -> Option<Machine> {
        let mut whole = self
            .regions
            .get(region)?
            .iter()
            .filter(|seat| seat.is_whole);
        whole.next().map(|seat| seat.place.machine)
    }

    /// The replica of a region on a machine.
    pub fn seat(&self, region: usize, machine: Machine) -> Option<Seat> {
        let seats = self.regions.get(region)?;
        let mut seats = seats.iter().filter(|seat| seat.place.machine == machine);
        seats.next().copied()
    }
}
