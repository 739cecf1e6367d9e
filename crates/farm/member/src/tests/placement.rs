//! Machines come and go, replicas become whole, and nothing that somebody has is lost.

use super::records::{cluster, seat};
use crate::placement::{first, next};
use crate::{Cluster, Regions, Seat, is_lost, primary};
use plinth_core::testing::Generator;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const HOSTS: usize = 4;

/// So many machines on a few hosts, with room for everything.
fn seats(count: u16, slots: u16) -> Vec<Seat> {
    let seat = |machine| seat(machine, 1, u128::from(machine) % HOSTS as u128, slots);
    (0..count).map(seat).collect()
}

fn primaries(regions: &Regions) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for first in regions.iter().filter_map(|region| primary(region)) {
        *counts.entry(first.machine).or_default() += 1;
    }
    counts
}

fn check_slots(cluster: &Cluster, regions: &Regions, seats: &[Seat]) {
    let mut slots = BTreeSet::new();
    for region in regions {
        let machines: BTreeSet<u16> = region.iter().map(|r| r.machine).collect();
        assert_eq!(machines.len(), region.len(), "two replicas on one machine");
        assert!(region.len() <= usize::from(cluster.replication));
        for replica in region {
            let seat = seats.iter().find(|seat| seat.machine == replica.machine);
            assert!(seat.is_some_and(|seat| replica.slot < seat.slots));
            let is_alone = slots.insert((replica.machine, replica.slot));
            assert!(is_alone, "a slot is shared");
        }
    }
}

fn has_free_slot(regions: &Regions, seat: &Seat) -> bool {
    let used = regions
        .iter()
        .flatten()
        .filter(|r| r.machine == seat.machine);
    used.count() < usize::from(seat.slots)
}

/// A region has fewer replicas than it should only where no machine without one has room.
fn check_full(cluster: &Cluster, regions: &Regions, seats: &[Seat]) {
    for region in regions.iter().filter(|region| !is_lost(region)) {
        if region.len() == usize::from(cluster.replication) {
            continue;
        }
        let lacks = |seat: &&Seat| region.iter().all(|r| r.machine != seat.machine);
        let mut others = seats.iter().filter(lacks);
        assert!(!others.any(|seat| has_free_slot(regions, seat)));
    }
}

/// Some leave, some come back as another life, and some join.
fn change(random: &mut Generator, seats: &[Seat], machines: u16, life: u64) -> Vec<Seat> {
    let mut now: BTreeMap<u16, Seat> = seats.iter().map(|s| (s.machine, s.clone())).collect();
    for machine in 0..machines {
        let host = random.below(HOSTS) as u128;
        let slots = random.below(12) as u16;
        match random.below(8) {
            0 => drop(now.remove(&machine)),
            1 => drop(now.insert(machine, seat(machine, life, host, slots))),
            _ => (),
        }
    }
    now.into_values().collect()
}

proptest! {
    #[test]
    fn what_is_whole_stays_while_its_machine_does(
        seed in any::<u64>(), machines in 1u16..8, regions in 1u16..20, replication in 1u8..4,
    ) {
        let mut random = Generator::new(seed);
        let cluster = cluster(machines, regions, replication);
        let mut seats = seats(machines, 20);
        let mut regions = first(&cluster, &seats).expect("there is room");
        check_slots(&cluster, &regions, &seats);
        check_full(&cluster, &regions, &seats);
        prop_assert!(regions.iter().flatten().all(|replica| replica.is_whole));
        for life in 2..20 {
            let now = change(&mut random, &seats, machines, life);
            let then = next(&cluster, &regions, &seats, &now);
            prop_assert_eq!(&then, &next(&cluster, &regions, &seats, &now));
            check_slots(&cluster, &then, &now);
            check_full(&cluster, &then, &now);
            let stays = |machine| {
                let id = |seats: &[Seat]| seats.iter().find(|s| s.machine == machine).map(|s| s.id);
                id(&seats).is_some() && id(&seats) == id(&now)
            };
            for (before, after) in regions.iter().zip(&then) {
                for replica in before {
                    let is_left = after.contains(replica);
                    // The next life of a machine may get the same slot, and has nothing in it.
                    let is_possible = stays(replica.machine) || !replica.is_whole;
                    prop_assert!(is_left == stays(replica.machine) || (is_left && is_possible));
                }
                let new = after.iter().filter(|r| !before.contains(r));
                prop_assert!(new.into_iter().all(|r| !r.is_whole));
                if let Some(first) = primary(before).filter(|first| stays(first.machine)) {
                    prop_assert_eq!(primary(after), Some(first));
                }
                let left = before.iter().any(|r| r.is_whole && stays(r.machine));
                prop_assert_eq!(left, !is_lost(after));
                prop_assert!(left || after.iter().all(|r| before.contains(r)));
            }
            (seats, regions) = (now, then);
            for replica in regions.iter_mut().filter(|r| !is_lost(r)).flatten() {
                replica.is_whole |= random.below(3) > 0;
            }
        }
    }

    #[test]
    fn the_first_placement_is_balanced_and_over_hosts(
        machines in 4u16..12, regions in 1u16..40, replication in 1u8..4,
    ) {
        let cluster = cluster(machines, regions, replication);
        let seats = seats(machines, 60);
        let placed = first(&cluster, &seats).expect("there is room");
        let counts = primaries(&placed);
        let most = counts.values().max().copied().unwrap_or(0);
        prop_assert_eq!(most, usize::from(regions.div_ceil(machines)));
        for region in &placed {
            let hosts: BTreeSet<u16> = region.iter().map(|r| r.machine % HOSTS as u16).collect();
            prop_assert_eq!(hosts.len(), usize::from(replication));
        }
    }
}

#[test]
fn the_regions_of_a_dead_primary_are_shared_by_those_that_have_them() {
    let cluster = cluster(5, 40, 3);
    let seats = seats(5, 40);
    let placed = first(&cluster, &seats).expect("there is room");
    let now = next(&cluster, &placed, &seats, &seats[1..]);
    let counts = primaries(&now);
    assert!(
        counts.values().all(|count| (8..=12).contains(count)),
        "{counts:?}"
    );
    assert!(now.iter().all(|region| region.len() == 3));
}

#[test]
fn a_region_may_lack_replicas_at_first_but_not_its_primary() {
    let cluster = cluster(3, 10, 3);
    let placed = first(&cluster, &seats(2, 10)).expect("there is room");
    assert!(placed.iter().all(|region| region.len() == 2));
    let error = first(&cluster, &seats(3, 3)).expect_err("nine slots");
    assert_eq!((error.slots, error.regions), (9, 10));
}
