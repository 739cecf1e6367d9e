//! Changes of a record. Each makes the next revision.

use crate::placement::{self, NoRoom};
use crate::record::{Record, Seat, primary};
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
        assert!(
            self.number() < configuration.number,
            "configuration {} follows {}",
            configuration.number,
            self.number()
        );
        self.check_primaries(&next);
        next.configuration = Some(configuration);
        Ok(next)
    }

    /// A primary whose life goes on stays: it has locks, and room that is reserved.
    fn check_primaries(&self, next: &Record) {
        for (region, replicas) in self.regions.iter().enumerate() {
            let former = primary(replicas);
            let life = former.and_then(|former| self.seat(former.machine));
            let stays = life.is_some_and(|life| next.seat_of(life.id).is_some());
            let now = next.regions.get(region).and_then(|all| primary(all));
            assert!(
                !stays || now == former,
                "region {region} goes from {former:?}, which lives, to {now:?}"
            );
        }
    }
}
