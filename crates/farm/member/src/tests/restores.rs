//! Who has returned, who may restore the cluster, and where regions lie then.

use super::records::{cluster, seat};
use crate::decide::{is_gone, may_go_on, may_restore, misplaced};
use crate::manage::misfit;
use crate::{Cluster, Disk, Left, REGIONS_MAX, Record, Restored, Seat, ZONE_BYTES_MAX};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_core::testing::{Generator, fuzz};
use plinth_farm_time::{Configuration, MemberId};

/// A machine with the disk of the same number. Without slots, it has none.
fn on_disk(machine: u16, life: u64, slots: u16) -> Seat {
    let disk = Disk {
        id: Uid(100 + u128::from(machine)),
        newest: 1000 * life + u64::from(machine),
    };
    Seat {
        disk: (slots > 0).then_some(disk),
        ..seat(machine, life, machine.into(), slots)
    }
}

fn ids(seats: &[Seat]) -> Vec<MemberId> {
    seats.iter().map(|seat| seat.id).collect()
}

fn after(record: &Record, ids: &[MemberId]) -> Configuration {
    Configuration::after(record.configuration.as_ref(), ids[0], ids, None)
}

/// Four machines with data and a shell; six regions with two replicas each.
fn durable() -> Record {
    let mut record = Record::of_new(Cluster {
        is_durable: true,
        ..cluster(8, 6, 2)
    });
    for machine in 0..5 {
        let slots = if machine == 4 { 0 } else { 6 };
        record = record.with_waiting(on_disk(machine, 1, slots));
    }
    let all = after(&record, &ids(&record.waiting));
    record.with_configuration(all).expect("there is room")
}

fn with_returned(record: &Record, machines: &[u16]) -> Record {
    let return_one = |record: Record, machine: &u16| record.with_waiting(on_disk(*machine, 2, 6));
    machines
        .iter()
        .cloned()
        .fold(record.clone(), |r, m| return_one(r, &m))
}

fn machines_of(record: &Record, region: usize) -> Vec<u16> {
    record.regions[region].iter().map(|r| r.machine).collect()
}

#[test]
fn nobody_goes_on_without_a_region_that_is_on_the_disks_of_the_dead() {
    let record = durable();
    let dead = machines_of(&record, 0);
    let is_dead = |id: MemberId| {
        record
            .seat_of(id)
            .is_some_and(|s| dead.contains(&s.machine))
    };
    let left: Vec<MemberId> = ids(&record.machines)
        .into_iter()
        .filter(|id| !is_dead(*id))
        .collect();
    assert!(!may_go_on(&record, &left, is_dead));
    assert!(is_gone(&record, is_dead));
    let one_dead = |id: MemberId| record.seat_of(id).is_some_and(|s| s.machine == dead[0]);
    assert!(!is_gone(&record, one_dead));
    let mut in_memory = record.clone();
    in_memory.cluster.is_durable = false;
    assert!(may_go_on(&in_memory, &left, is_dead) && !is_gone(&in_memory, is_dead));
}

#[test]
fn those_that_return_first_wait_for_regions_that_they_lack_and_for_those_that_may_live() {
    let record = durable();
    let [one, two] = machines_of(&record, 0)[..] else {
        panic!("two replicas");
    };
    let others: Vec<u16> = (0..4).filter(|m| *m != one && *m != two).collect();
    assert!(
        !may_restore(&record, &others, |_| true, true),
        "region 0 is missing"
    );
    let three: Vec<u16> = (0..4).filter(|m| *m != two).collect();
    let nobody = |_: MemberId| false;
    assert!(
        !may_restore(&record, &three, nobody, false),
        "the fourth may live"
    );
    assert!(may_restore(&record, &three, nobody, true));
    let is_dead = |id: MemberId| record.seat_of(id).is_some_and(|s| s.machine == two);
    assert!(may_restore(&record, &three, is_dead, false));
    assert!(
        may_restore(&record, &[0, 1, 2, 3], nobody, false),
        "shells have nothing"
    );

    // One machine has everything, and three others may live.
    let mut alone = record.clone();
    for region in &mut alone.regions {
        region.truncate(1);
        region[0].machine = one;
    }
    assert!(
        !may_restore(&alone, &[one], nobody, true),
        "one against three"
    );
    assert!(may_restore(&alone, &[one], |_| true, false));
}

#[test]
fn a_seat_with_the_number_and_the_disk_of_a_member_has_returned_and_no_other() {
    let record = durable();
    assert_eq!(record.seat_on(Uid(102)).map(|seat| seat.machine), Some(2));
    assert_eq!(record.seat_on(Uid(104)), None, "a shell has none");
    let returned = |seat: Seat| record.with_waiting(seat).returned().count();
    assert_eq!(returned(on_disk(2, 2, 6)), 1);
    assert_eq!(returned(on_disk(4, 2, 0)), 0);
    assert_eq!(
        returned(on_disk(2, 2, 5)),
        0,
        "it has not the slots for its replicas"
    );
    let mut moved = on_disk(2, 2, 6);
    moved.machine = 6;
    assert_eq!(returned(moved.clone()), 0);
    let mut empty = on_disk(2, 2, 6);
    empty.disk = on_disk(7, 2, 6).disk;
    assert_eq!(returned(empty.clone()), 0);

    let said = |seat: &Seat| misplaced(&record, seat).map(|why| why.to_string());
    let text = "this data directory is machine 2's: start it as machine 2";
    assert_eq!(said(&moved).as_deref(), Some(text));
    let text = "this data directory is of a machine with 6 slots: start it with so many, and not 5";
    assert_eq!(said(&on_disk(2, 2, 5)).as_deref(), Some(text));
    for fitting in [on_disk(2, 2, 6), on_disk(7, 2, 6), on_disk(4, 2, 0), empty] {
        assert_eq!(said(&fitting), None);
    }
    // A directory that waits under one number and then under another waits once.
    let record = record.with_waiting(on_disk(7, 2, 6));
    let mut moved = on_disk(7, 3, 6);
    moved.machine = 6;
    let record = record.with_waiting(moved);
    assert_eq!((record.waiting.len(), record.waiting[0].machine), (1, 6));
    assert!(record.is_sane());
}

#[test]
fn a_machine_whose_directory_does_not_fit_the_cluster_is_told_so() {
    let record = durable();
    let mut bare = on_disk(5, 1, 6);
    bare.disk = None;
    let mut shell = on_disk(5, 1, 6);
    shell.slots = 0;
    let mut damaged = on_disk(5, 1, 6);
    damaged.disk = Some(Disk {
        id: Uid(3),
        newest: 1 << 62,
    });
    let is_refused =
        |record: &Record, seat: &Seat| matches!(misfit(record, seat, 8), Some(Left::Refused(_)));
    let mut far = on_disk(5, 1, 6);
    far.place.zone = "z".repeat(ZONE_BYTES_MAX + 1);
    let large = on_disk(5, 1, REGIONS_MAX + 1);
    for bad in [&bare, &shell, &damaged, &far, &large] {
        assert!(is_refused(&record, bad), "{bad:?}");
        assert!(!record.with_waiting(bad.clone()).is_sane(), "{bad:?}");
    }
    assert!(!is_refused(&record, &on_disk(5, 1, 6)) && !is_refused(&record, &on_disk(5, 1, 0)));
    let mut in_memory = Record::of_new(cluster(8, 6, 2));
    assert!(is_refused(&in_memory, &on_disk(5, 1, 6)) && !is_refused(&in_memory, &bare));
    in_memory.restored = Some(Restored {
        number: 2,
        origin: 5,
    });
    assert!(!in_memory.is_sane());
}

/// A history of a durable cluster: some return, and restore it.
fn history(seed: u64) -> Vec<Record> {
    let mut random = Generator::new(seed);
    let mut record = durable();
    let mut records = vec![record.clone()];
    for life in 3..20 {
        for machine in 0..5 {
            if random.below(4) > 0 {
                record =
                    record.with_waiting(on_disk(machine, life, if machine == 4 { 0 } else { 6 }));
            }
        }
        let there: Vec<Seat> = record.returned().cloned().collect();
        let machines: Vec<u16> = there.iter().map(|seat| seat.machine).collect();
        let next = if may_restore(&record, &machines, |_| true, false) {
            let number = record.number() + 1;
            let restored = Restored {
                number,
                origin: life,
            };
            let next = record.with_restored(after(&record, &ids(&there)), restored);
            let next = next.expect("it has room");
            check_restored(&record, &next, &machines);
            next
        } else {
            let whole = random.below(4) as u16;
            record.with_whole(&[0, 1, 2, 3, 4, 5].map(|region| (whole, region)))
        };
        assert!(next.is_sane(), "{next:?}");
        records.push(next.clone());
        record = next;
    }
    records
}

fn check_restored(before: &Record, next: &Record, machines: &[u16]) {
    assert_eq!(next.lost().count(), 0);
    assert_eq!(next.revision, before.revision + 1);
    assert!(
        next.machines
            .iter()
            .map(|seat| seat.machine)
            .eq(machines.iter().copied())
    );
    for (old, new) in before.regions.iter().zip(&next.regions) {
        let stay = old
            .iter()
            .filter(|replica| machines.contains(&replica.machine));
        assert!(
            stay.clone().all(|replica| new.contains(replica)),
            "{old:?} {new:?}"
        );
        let added = new.iter().filter(|replica| !old.contains(replica));
        assert!(added.clone().all(|replica| !replica.is_whole));
        assert!(new.len() == 2 || machines.len() < 2);
    }
}

#[test]
fn a_restored_record_has_the_replicas_of_the_returned_and_comes_back_from_bytes() {
    let records: Vec<Record> = (0..10).flat_map(history).collect();
    let restored = records.iter().filter(|record| record.restored.is_some());
    assert!(restored.count() > 50);
    for record in &records {
        assert_eq!(Record::from_bytes(record.to_bytes()).as_ref(), Some(record));
    }
    let corpus = records.iter().map(|record| record.to_bytes().to_vec());
    fuzz("farm durable record", 1, corpus, |input| {
        let record = Record::from_bytes(Bytes::copy_from_slice(input));
        let record = record.filter(Record::is_sane);
        if let Some(record) = &record
            && record.configuration.is_some()
        {
            let there: Vec<Seat> = record.returned().cloned().collect();
            let restored = Restored {
                number: record.number() + 1,
                origin: 1,
            };
            if !there.is_empty() {
                let next = record.with_restored(after(record, &ids(&there)), restored);
                assert!(next.expect("it is placed").seat(there[0].machine).is_some());
            }
        }
        record.is_some()
    });
}

#[test]
fn a_returned_disk_stays_out_of_a_restore_that_it_came_too_late_for() {
    let record = with_returned(&durable(), &[0, 1, 2, 3]);
    let [one, two] = machines_of(&record, 0)[..] else {
        panic!("two replicas");
    };
    let there: Vec<Seat> = record
        .returned()
        .filter(|seat| seat.machine != two)
        .cloned()
        .collect();
    let restored = Restored {
        number: 2,
        origin: 9,
    };
    let next = record.with_restored(after(&record, &ids(&there)), restored);
    let next = next.expect("there is room");
    assert!(next.is_sane() && next.is_waiting(on_disk(two, 2, 6).id));
    assert_eq!(next.primary(0).map(|replica| replica.machine), Some(one));
    assert_eq!(
        next.seat_on(Uid(100 + u128::from(two))),
        None,
        "it joins as a new one"
    );
    assert!(next.seat(4).is_none(), "so does the shell");
}
