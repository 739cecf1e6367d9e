//! Which machine has which region. Pure: the same members and regions give the same placement everywhere.
//!
//! - A replica stays where it is while its machine stays; a whole one never becomes less.
//! - The first whole replica is the primary. When a primary leaves, the whole replica on the machine with the fewest
//!   primaries comes first.
//! - A region that lacks replicas gets new ones, not whole, on the machines with the fewest replicas that have a free
//!   slot, in a zone that has none of it if there is one. They copy the region from the primary.
//! - A region without a whole replica is lost, and gets nothing.
//!
//! Load does not move to machines that join: they get replicas that are missing, and primaries when others leave.

use crate::record::{Cluster, Replica, Seat, is_lost, primary};
use plinth_runtime::planted;
use std::collections::{BTreeMap, BTreeSet};

pub type Regions = Vec<Vec<Replica>>;

/// The regions cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom {
    pub slots: usize,
    pub regions: u16,
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NoRoom { slots, regions } = self;
        write!(
            f,
            "the machines have {slots} slots for {regions} regions: start more machines, or give them more slots"
        )
    }
}

impl std::error::Error for NoRoom {}

/// What machines have so far.
struct Load<'a> {
    seats: &'a [Seat],
    used: BTreeMap<u16, BTreeSet<u16>>,
    primaries: BTreeMap<u16, usize>,
}

impl<'a> Load<'a> {
    fn of(seats: &'a [Seat], regions: &[Vec<Replica>]) -> Load<'a> {
        let mut load = Load {
            seats,
            used: seats.iter().map(|s| (s.machine, BTreeSet::new())).collect(),
            primaries: seats.iter().map(|s| (s.machine, 0)).collect(),
        };
        for replica in regions.iter().flatten() {
            load.take(replica.machine, replica.slot);
        }
        for first in regions.iter().filter_map(|region| primary(region)) {
            load.lead(first.machine);
        }
        load
    }

    fn take(&mut self, machine: u16, slot: u16) {
        if let Some(used) = self.used.get_mut(&machine) {
            used.insert(slot);
        }
    }

    fn lead(&mut self, machine: u16) {
        *self.primaries.entry(machine).or_default() += 1;
    }

    fn replicas(&self, machine: u16) -> usize {
        self.used[&machine].len()
    }

    fn free_slot(&self, seat: &Seat) -> Option<u16> {
        let used = &self.used[&seat.machine];
        (0..seat.slots).find(|slot| !used.contains(slot))
    }

    /// Adds a replica to the region if a machine has room: the best one by `rank`, of those in a zone of its own if
    /// there is one.
    fn add<K: Ord>(
        &mut self,
        region: &mut Vec<Replica>,
        is_whole: bool,
        rank: impl Fn(&Load, u16) -> K,
    ) -> bool {
        let has = |seat: &Seat| region.iter().any(|r| r.machine == seat.machine);
        let seat_of = |machine| self.seats.iter().find(|seat| seat.machine == machine);
        let shares_zone = |seat: &Seat| {
            let mut others = region.iter().filter_map(|r| seat_of(r.machine));
            others.any(|other| other.place.is_same_zone(&seat.place))
        };
        let open = self.seats.iter().filter(|seat| !has(seat));
        let open = open.filter_map(|seat| Some((seat, self.free_slot(seat)?)));
        let key = |seat: &Seat| {
            let rank = rank(self, seat.machine);
            (shares_zone(seat), rank, seat.machine)
        };
        let Some((seat, slot)) = open.min_by_key(|(seat, _)| key(seat)) else {
            return false;
        };
        let machine = seat.machine;
        region.push(Replica {
            machine,
            slot,
            is_whole,
        });
        let used = self.used.entry(machine).or_default();
        assert!(
            used.insert(slot),
            "slot {slot} of machine {machine} is given to two regions"
        );
        true
    }
}

/// Where the regions of a new cluster lie. They are empty, so every replica is whole. A region may have fewer replicas
/// than it should, and never none.
pub fn first(cluster: &Cluster, seats: &[Seat]) -> Result<Regions, NoRoom> {
    let mut regions: Regions = vec![Vec::new(); usize::from(cluster.regions)];
    let mut load = Load::of(seats, &regions);
    for copy in 0..cluster.replication {
        for region in &mut regions {
            let is_first = copy == 0;
            let rank = |load: &Load, machine| match is_first {
                true => (load.primaries[&machine], 0),
                false => (load.replicas(machine), load.primaries[&machine]),
            };
            let found = load.add(region, true, rank);
            if found && is_first {
                load.lead(region[0].machine);
            }
            if !found && is_first {
                return Err(NoRoom {
                    slots: seats.iter().map(|seat| usize::from(seat.slots)).sum(),
                    regions: cluster.regions,
                });
            }
        }
    }
    Ok(regions)
}

/// The regions when the members change from `former` to `seats`. A machine whose process has another life has nothing.
pub fn next(
    cluster: &Cluster,
    regions: &[Vec<Replica>],
    former: &[Seat],
    seats: &[Seat],
) -> Regions {
    let stays = |machine: u16| {
        let id = |seats: &[Seat]| seats.iter().find(|s| s.machine == machine).map(|s| s.id);
        id(seats).is_some_and(|now| id(former) == Some(now))
    };
    let staying: BTreeSet<u16> = seats
        .iter()
        .map(|s| s.machine)
        .filter(|m| stays(*m))
        .collect();
    let is_left = |replica: &&Replica| staying.contains(&replica.machine);
    let left = |region: &Vec<Replica>| region.iter().filter(is_left).copied().collect();
    let mut next: Regions = regions.iter().map(left).collect();

    // Primaries that stay are counted before the others are chosen.
    let keeps = |before: &[Replica]| primary(before).is_some_and(|p| is_left(&&p));
    let kept = regions
        .iter()
        .zip(&next)
        .filter(|(before, _)| keeps(before));
    let kept: Regions = kept.map(|(_, now)| now.clone()).collect();
    let mut load = Load::of(seats, &kept);
    for replica in next.iter().flatten() {
        load.take(replica.machine, replica.slot);
    }
    for (before, region) in regions.iter().zip(&mut next) {
        if !keeps(before) && !is_lost(region) {
            choose_primary(region, &mut load);
        }
    }
    let is_whole = planted!(
        "farm_new_replica_is_whole",
        "a new replica is whole before it has copied anything"
    );
    for region in next.iter_mut().filter(|region| !is_lost(region)) {
        while region.len() < usize::from(cluster.replication) {
            if !load.add(region, is_whole, |load, machine| load.replicas(machine)) {
                break;
            }
        }
    }
    next
}

fn choose_primary(region: &mut [Replica], load: &mut Load) {
    let whole = region.iter().enumerate().filter(|(_, r)| r.is_whole);
    let best = whole.min_by_key(|(at, r)| (load.primaries[&r.machine], *at));
    if let Some((at, replica)) = best {
        load.lead(replica.machine);
        region[..=at].rotate_right(1);
    }
}
