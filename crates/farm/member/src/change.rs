//! Changes of a record. Each makes the next revision.

use crate::placement::{self, NoRoom};
use crate::record::{Record, Seat};
use plinth_farm_time::Configuration;

fn put_seat(seats: &mut Vec<Seat>, seat: Seat) {
    match seats.binary_search_by_key(&seat.machine, |s| s.machine) {
        Ok(at) => seats[at] = seat,
        Err(at) => seats.insert(at, seat),
    }
}

impl Record {
    fn next(&self) -> Record {
        let mut next = self.clone();
        next.revision += 1;
        next
    }

    /// The machine waits. What its former life has asked for is forgotten.
    pub fn with_waiting(&self, seat: Seat) -> Record {
        let mut next = self.next();
        put_seat(&mut next.waiting, seat);
        next
    }

    /// These replicas, each by its machine and region, are whole.
    pub fn with_whole(&self, replicas: &[(u16, u16)]) -> Record {
        let mut next = self.next();
        for (machine, region) in replicas {
            let held = next.regions.get_mut(usize::from(*region));
            for replica in held.into_iter().flatten() {
                replica.is_whole |= replica.machine == *machine;
            }
        }
        next
    }

    /// The configuration after this one. Its members are members already, or wait.
    pub fn with_configuration(&self, configuration: Configuration) -> Result<Record, NoRoom> {
        let mut next = self.next();
        let is_in = |seat: &Seat| configuration.contains(seat.id);
        next.machines.retain(is_in);
        for seat in self.waiting.iter().filter(|seat| is_in(seat)) {
            put_seat(&mut next.machines, seat.clone());
        }
        next.waiting.retain(|seat| !is_in(seat));
        next.regions = match self.regions.is_empty() {
            true => placement::first(&self.cluster, &next.machines)?,
            false => placement::next(&self.cluster, &self.regions, &self.machines, &next.machines),
        };
        next.configuration = Some(configuration);
        Ok(next)
    }
}
