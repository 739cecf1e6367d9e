//! Changes of a record. Each makes the next revision.

use crate::placement::{self, NoRoom};
use crate::record::{Record, Seat};
use plinth_farm_time::{Configuration, Restored};

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

    /// The machine waits. What its former life has asked for is forgotten, also if it had the same disk under another
    /// number.
    pub fn with_waiting(&self, seat: Seat) -> Record {
        let mut next = self.next();
        next.waiting.retain(|other| !other.has_disk_of(&seat));
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

    /// The configuration after this one, of machines that have [returned](Record::returned): it is restored from their
    /// disks.
    pub fn with_restored(
        &self,
        configuration: Configuration,
        restored: Restored,
    ) -> Result<Record, NoRoom> {
        // A life that has returned has what the one before had.
        let mut of_returned = self.clone();
        for seat in &mut of_returned.machines {
            let mut returned = self.returned();
            if let Some(returned) = returned.find(|returned| returned.machine == seat.machine) {
                seat.id = returned.id;
            }
        }
        let mut next = of_returned.with_configuration(configuration)?;
        next.restored = Some(restored);
        Ok(next)
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
