//! Who is dead for sure, and who is not.

use super::records::{cluster, seat};
use crate::decide::{may_go_on, rank};
use crate::{Life, LocalRegister, Member, Options, Place, Record, Seat, create};
use plinth_core::id::Uid;
use plinth_farm_fabric::{Layout, Local, Machine, Shared};
use plinth_farm_time::{Configuration, MemberId, Shared as SharedTime};
use plinth_runtime::real::block_on;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{disk, now};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;

fn seat_of(life: &Life, machine: u16, id: MemberId) -> Seat {
    let place = Place {
        host: life.host(),
        socket: None,
        zone: String::new(),
    };
    Seat {
        machine,
        id,
        place,
        slots: 1,
        disk: None,
    }
}

/// The same with locks of the operating system, and with those of the simulator.
async fn check_lives(directory: &Path) {
    let observer = Life::begin(directory, 0, Uid(1)).await.expect("a life");
    let life = Life::begin(directory, 1, Uid(2)).await.expect("a life");
    assert_eq!(observer.host(), life.host());
    let seat = seat_of(&life, 1, Uid(2));
    assert!(!observer.is_over(&seat).await, "it lives");
    let again = Life::begin(directory, 1, Uid(3)).await.map(|_| ());
    assert_eq!(again.map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
    assert!(!observer.is_over(&seat).await, "it lives all the same");

    let now = now().0;
    let shared = SharedTime {
        era: 4,
        time: 1 << 50,
        local: now,
        error_ns: 0,
    };
    assert_eq!(observer.published(&seat).await, None);
    life.publish(&shared);
    if let Some(found) = observer.published(&seat).await {
        assert_eq!((found.era, found.time, found.local), (4, 1 << 50, now));
    }

    drop(life);
    assert!(observer.is_over(&seat).await, "it has ended");
    let _next = Life::begin(directory, 1, Uid(3)).await.expect("a life");
    assert!(observer.is_over(&seat).await, "another has followed");
    let next = seat_of(&observer, 1, Uid(3));
    assert!(!observer.is_over(&next).await);
    assert_eq!(observer.published(&next).await, None, "of the life before");

    let mut elsewhere = seat.clone();
    elsewhere.place.host ^= 1;
    assert!(!observer.is_over(&elsewhere).await, "nobody here can know");
    let unknown = seat_of(&observer, 9, Uid(9));
    assert!(!observer.is_over(&unknown).await, "it has no memory here");
}

#[test]
fn a_life_is_over_when_nobody_owns_it_and_not_before() {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let ran = sim.run_on(machine, async { check_lives(Path::new("/farm")).await });
    ran.expect("it ends");
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    #[allow(clippy::disallowed_methods)] // a test removes what it has made
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn scratch(name: &str) -> Scratch {
    let name = format!("plinth-lives-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    disk::create_dir_all(&path).await.expect("a directory");
    Scratch(path)
}

#[test]
fn the_operating_system_says_the_same() {
    block_on(async {
        let scratch = scratch("locks").await;
        check_lives(&scratch.0).await;
    });
}

#[test]
fn a_machine_that_does_not_fit_the_cluster_is_told_so() {
    block_on(async {
        let scratch = scratch("misfit").await;
        let register = LocalRegister::default();
        let record = create(&register, cluster(4, 1, 1))
            .await
            .expect("a cluster");
        for (number, machines, said) in [(5, 8, "none of the cluster"), (1, 8, "rings for 8")] {
            let layout = Layout {
                machines,
                ring_words: 100,
                region_words: vec![8],
            };
            let local = Local::start(&scratch.0, Machine(number), &layout).await;
            let fabric = Rc::new(Shared::new(local.expect("a memory")));
            let options = Options {
                slots: 1,
                disk: None,
                socket: None,
                zone: String::new(),
                meet: Box::new(|_| ()),
                closing: None,
                may_renumber: false,
            };
            let member = Member::start(fabric, register.clone(), record.clone(), options).await;
            let error = member.map(|_| ()).expect_err("it does not fit").to_string();
            assert!(error.contains(said), "{error}");
        }
    });
}

/// Five members, on which three regions have two whole replicas each.
fn five() -> (Record, Vec<MemberId>) {
    let mut record = Record::of_new(cluster(5, 3, 2));
    for machine in 0..5 {
        record = record.with_waiting(seat(machine, 1, machine.into(), 4));
    }
    let ids: Vec<MemberId> = record.waiting.iter().map(|s| s.id).collect();
    let first = Configuration::after(None, ids[0], &ids, None);
    (
        record.with_configuration(first).expect("there is room"),
        ids,
    )
}

#[test]
fn the_cluster_goes_on_with_half_of_the_living_and_all_of_the_data() {
    let (record, ids) = five();
    let nobody = |_: MemberId| false;
    assert!(may_go_on(&record, &ids[1..], nobody));
    assert!(!may_go_on(&record, &ids[3..], nobody), "two of five");
    let dead = [ids[0]];
    let is_dead = |id: MemberId| dead.contains(&id);
    assert!(may_go_on(&record, &[ids[2], ids[3], ids[4]], is_dead));
    let of_region = |region: usize| {
        let replicas = record.regions[region].iter();
        let machines: Vec<u16> = replicas.map(|r| r.machine).collect();
        move |id: &&MemberId| !machines.contains(&((id.0 >> 64) as u16 - 1))
    };
    let without: Vec<MemberId> = ids.iter().filter(of_region(0)).copied().collect();
    assert!(!may_go_on(&record, &without, nobody), "they may come back");
    let is_gone = |id: MemberId| !without.contains(&id);
    assert!(
        may_go_on(&record, &without, is_gone),
        "they do not come back"
    );
}

#[test]
fn each_member_has_a_turn_of_its_own_and_the_dead_have_none() {
    let (record, ids) = five();
    let ranks = |is_dead: &dyn Fn(MemberId) -> bool| -> Vec<u32> {
        ids[1..]
            .iter()
            .map(|id| rank(&record, *id, is_dead))
            .collect()
    };
    assert_eq!(ranks(&|_| false), [0, 1, 2, 3]);
    assert_eq!(ranks(&|id| id == ids[1])[1..], [0, 1, 2]);
}
