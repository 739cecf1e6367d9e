//! Records come back from bytes, and no byte makes an insane one believed.

use crate::{Cluster, Place, Record, Seat};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_core::testing::{Generator, fuzz};
use plinth_farm_time::Configuration;

pub fn cluster(machines: u16, regions: u16, replication: u8) -> Cluster {
    Cluster {
        first_machines: 1,
        ..Cluster::new(Uid(7), machines, regions, replication)
    }
}

pub fn seat(machine: u16, life: u64, host: u128, slots: u16) -> Seat {
    let place = Place {
        host,
        socket: None,
        zone: String::new(),
    };
    Seat {
        machine,
        id: Uid::from_parts(u64::from(machine) + 1, life),
        place,
        slots,
        disk: None,
    }
}

/// A history of a cluster.
fn history(seed: u64) -> Vec<Record> {
    let mut random = Generator::new(seed);
    let mut record = Record::of_new(cluster(8, 6, 2));
    let mut records = vec![record.clone()];
    for life in 1..30 {
        let machine = random.below(8) as u16;
        record = match random.below(3) {
            0 => record.with_waiting(seat(machine, life, u128::from(machine % 3), 6)),
            1 if record.configuration.is_some() => {
                record.with_whole(&[0, 1, 2, 3].map(|region| (machine, region)))
            }
            _ => {
                let members = record.machines.iter().map(|s| s.id);
                let waiting = record.waiting.iter().map(|s| s.id);
                let mut ids: Vec<Uid> = members.chain(waiting).collect();
                ids.retain(|_| random.below(5) > 0);
                let Some(master) = ids.first().copied() else {
                    continue;
                };
                let former = record.configuration.as_ref();
                let machine_of = |id: &Uid| id.0 >> 64;
                ids.sort_by_key(|id| (machine_of(id), std::cmp::Reverse(id.0)));
                ids.dedup_by_key(|id| machine_of(id));
                if !ids.contains(&master) {
                    continue;
                }
                let configuration = Configuration::after(former, master, &ids, None);
                match record.with_configuration(configuration) {
                    Ok(next) => next,
                    Err(_) => continue,
                }
            }
        };
        assert!(record.is_sane(), "{record:?}");
        records.push(record.clone());
    }
    records
}

#[test]
fn a_record_comes_back_and_no_damaged_one_does_harm() {
    let records: Vec<Record> = (0..10).flat_map(history).collect();
    assert!(records.iter().any(|record| record.number() > 5));
    for record in &records {
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes(bytes.clone()).as_ref(), Some(record));
        assert_eq!(Record::from_bytes(bytes.slice(..bytes.len() - 1)), None);
    }
    let corpus = records.iter().map(|record| record.to_bytes().to_vec());
    fuzz("farm record", 1, corpus, |input| {
        let record = Record::from_bytes(Bytes::copy_from_slice(input));
        let record = record.filter(Record::is_sane);
        if let Some(record) = &record {
            // What is believed can be gone on with.
            let waits = record.with_waiting(seat(0, 99, 1, 3));
            assert!(waits.seat_of(waits.waiting[0].id).is_none());
            for region in 0..record.cluster.regions {
                if let Some(first) = record.primary(region) {
                    assert!(record.seat(first.machine).is_some());
                }
            }
            if let Some(present) = &record.configuration {
                let ids: Vec<Uid> = present.members.iter().map(|m| m.id).collect();
                let after = Configuration::after(Some(present), present.master, &ids, None);
                let next = record.with_configuration(after).expect("it is placed");
                assert_eq!(next.lost().count(), record.lost().count());
            }
        }
        record.is_some()
    });
}

#[test]
fn a_record_that_contradicts_itself_is_not_believed() {
    let records = history(3);
    let good = records
        .iter()
        .rev()
        .find(|r| r.machines.len() > 2)
        .expect("one");
    let check = |change: &dyn Fn(&mut Record)| {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!bad.is_sane(), "{bad:?}");
    };
    check(&|bad| bad.revision = 0);
    check(&|bad| bad.configuration = None);
    check(&|bad| drop(bad.machines.pop()));
    check(&|bad| drop(bad.regions.pop()));
    check(&|bad| bad.machines.swap(0, 1));
    check(&|bad| bad.machines[0].slots = 0);
    check(&|bad| bad.machines[0].machine = bad.cluster.machines);
    check(&|bad| bad.waiting = vec![bad.machines[0].clone()]);
    check(&|bad| bad.machines[0].place.zone = "z".repeat(65));
    check(&|bad| bad.cluster.replication = 0);
    check(&|bad| bad.cluster.lease_ns = u64::MAX);
    check(&|bad| {
        let replica = *bad.regions.iter().flatten().next().expect("one");
        for region in &mut bad.regions {
            region.truncate(1);
            region.iter_mut().for_each(|r| *r = replica);
        }
    });
}
