//! What the judge sees of a durable cluster.

use super::disks::SHELL;
use super::oracle::World;
use crate::{Disk, Record, Replica, View, is_lost};
use plinth_core::id::Uid;
use plinth_runtime::random;

impl World {
    /// The data directory that a new life of the machine finds.
    pub fn disk(&self, machine: u16) -> Option<Disk> {
        let newest = self.disks.newest.borrow().get(&machine).copied();
        let disk = Disk {
            id: Uid(1000 + u128::from(machine)),
            newest: newest.unwrap_or(0),
        };
        (self.disks.is_durable.get() && machine != SHELL).then_some(disk)
    }

    /// Commits in some region, if all its replicas acknowledge that in this configuration.
    pub fn commit(&self, view: &View) {
        let region = random::below(view.record.regions.len() as u64) as u16;
        let replicas = &view.record.regions[usize::from(region)];
        let is_there = |replica: &Replica| {
            let life = view.record.seat(replica.machine).map(|seat| seat.id);
            life.is_some_and(|life| self.has_closed_for(replica.machine, life, view.number()))
        };
        if replicas.iter().all(is_there) && !is_lost(replicas) {
            self.disks.commit(replicas, region);
        }
    }

    /// A machine's replica in this record is whole as it was in the record before it: restored from its disk.
    pub fn is_from_disk(&self, before: &Record, next: &Record, replica: &Replica) -> bool {
        let (Some(former), Some(seat)) = (before.seat(replica.machine), next.seat(replica.machine))
        else {
            return false;
        };
        next.restored != before.restored && former.has_disk_of(seat) && before.is_waiting(seat.id)
    }

    pub fn judge_disks(&self, before: &Record, next: &Record) {
        for (region, replicas) in (0..).zip(&next.regions) {
            if is_lost(replicas) {
                self.blame(format!("region {region} is given up"));
            }
            let mut whole = replicas.iter().filter(|replica| replica.is_whole);
            if let Some(bad) = whole.find(|replica| self.disks.lacks(replica.machine, region)) {
                self.blame(format!("region {region}: {bad:?} lacks commits"));
            }
        }
        if next.restored == before.restored {
            let stays = |id| next.seat_of(id).is_some();
            let is_new = next.number() > before.number() && before.number() > 0;
            if is_new && !before.machines.iter().any(|seat| stays(seat.id)) {
                self.blame(format!("nobody stays in {}", next.number()));
            }
            return;
        }
        self.disks.restores.set(self.disks.restores.get() + 1);
        let (old, new) = (
            before.restored,
            next.restored.expect("it is not taken away"),
        );
        let is_later = old.is_none_or(|old| old.origin <= new.origin && old.number < new.number);
        if !is_later || new.number != next.number() || new.number != before.number() + 1 {
            self.blame(format!("{new:?} follows {old:?}"));
        }
        let mut seats = next.machines.iter();
        if let Some(bad) = seats.find(|seat| before.returns_as(seat).is_none()) {
            self.blame(format!("{bad:?} is restored and has not returned"));
        }
    }
}
