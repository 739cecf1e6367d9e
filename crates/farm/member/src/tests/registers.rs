//! No two members put a record of the same revision into the register, while coordinators come and go.

use super::records::{cluster, seat};
use crate::register::{from_bytes, to_bytes};
use crate::{CoordinatedRegister, LocalRegister, Record, Register};
use bytes::Bytes;
use plinth_coordination::{ClusterFile, Family, coordinator, places};
use plinth_core::Uid;
use plinth_rpc::Transport;
use plinth_runtime::sim::{KillKind, Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, Either, disk, join_all, race, random, sleep};
use std::net::SocketAddr;
use std::path::Path;

fn address(n: u8) -> SocketAddr {
    ([10, 0, 2, n], 4500).into()
}

fn file() -> ClusterFile {
    ClusterFile::new("farm", "a1", places((0..3).map(address)))
}

async fn coordinate(n: u8) {
    let directory = Path::new("/data");
    disk::create_dir_all(directory).await.expect("a directory");
    disk::sync_dir(Path::new("/")).await.expect("its name");
    let transport = Transport::listen(address(n)).await.expect("it listens");
    let cluster = (Family::Farm, &file().key()[..]);
    let started = coordinator::start(&transport, directory, cluster, false).await;
    started.expect("it starts").life.await;
}

/// Three coordinators on machines of their own.
pub fn coordinators(sim: &Simulation) -> Vec<ProcessId> {
    let start = |n| {
        let machine = sim.add_machine(Locality::default());
        sim.start_process(machine, address(n), move || Box::pin(coordinate(n)))
    };
    (0..3).map(start).collect()
}

pub fn register() -> CoordinatedRegister {
    CoordinatedRegister::new(&Transport::client(), &file().into())
}

/// Puts itself into the register so many times. The revisions that it made.
async fn join(register: &impl Register, machine: u16, times: usize) -> Vec<u64> {
    let mut made = Vec::new();
    while made.len() < times {
        let Ok(held) = register.read().await else {
            continue;
        };
        let next = match held {
            Some(held) => held.with_waiting(seat(machine, random::u64(), 1, 1)),
            None => Record::of_new(crate::Cluster {
                id: Uid::from_parts(random::u64(), 0),
                ..cluster(8, 1, 1)
            }),
        };
        let swapped = loop {
            if let Ok(swapped) = register.swap(&next).await {
                break swapped;
            }
        };
        if swapped {
            made.push(next.revision);
        }
        sleep(Duration::from_millis(random::below(20))).await;
    }
    made
}

fn check(made: Vec<Vec<u64>>, last: Option<Record>, seed: u64) {
    let mut made = made.concat();
    made.sort_unstable();
    assert!(made.is_sorted_by(|a, b| a < b), "seed {seed}: {made:?}");
    let last = last.expect("a record");
    assert!(
        made.iter().all(|made| *made <= last.revision),
        "seed {seed}"
    );
    assert_eq!(last.waiting.len(), 3, "seed {seed}");
}

#[test]
fn no_two_swaps_of_one_revision_succeed_while_coordinators_come_and_go() {
    for seed in 0..20 {
        let sim = Simulation::new(seed, SimConfig::default());
        let processes = coordinators(&sim);
        let ran = sim.run(async move {
            let disturb = async {
                loop {
                    let one = processes[random::below(3) as usize];
                    sleep(Duration::from_millis(random::below(500))).await;
                    control().kill_process(one, KillKind::Kill);
                    sleep(Duration::from_millis(random::below(500))).await;
                    control().restart_process(one);
                }
            };
            let joined = join_all((0..3).map(async |n| join(&register(), n, 10).await));
            let Either::Left(made) = race(joined, disturb).await;
            (made, register().read().await.expect("read"))
        });
        check(ran.result.0, ran.result.1, seed);
    }
}

#[test]
fn the_local_register_keeps_the_same_contract() {
    let sim = Simulation::new(1, SimConfig::default());
    let ran = sim.run(async {
        let register = LocalRegister::default();
        let made = join_all((0..3).map(|n| join(&register, n, 10))).await;
        (made, register.read().await.expect("read"))
    });
    check(ran.result.0, ran.result.1, 1);
}

#[test]
fn what_is_not_a_record_is_refused() {
    let record = Record::of_new(cluster(8, 1, 1));
    let bytes = to_bytes(&record);
    assert_eq!(from_bytes(bytes.clone()), Ok(record));
    for bad in [&b""[..], b"farmrec2", b"another", &bytes[8..], &bytes[..20]] {
        assert!(from_bytes(Bytes::copy_from_slice(bad)).is_err());
    }
}
