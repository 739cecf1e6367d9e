//! A leader keeps leading while coordinators are slow, over simulated machines.

use plinth_coordination::{ClusterFile, Coordinators, Family, coordinator, election, places};
use plinth_core::Uid;
use plinth_protocol::coordination::Candidate;
use plinth_rpc::{FailureBeacon, Interface, Transport};
use plinth_runtime::sim::{Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Either, now, sleep};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

const LEADER: Uid = Uid(9);
const COORDINATORS: u8 = 3;

fn at(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 4500))
}

fn start_coordinator(simulation: &Simulation, machine: u8) -> ProcessId {
    let id = simulation.add_machine(Locality::default());
    simulation.start_process(id, at(machine), move || {
        Box::pin(async move {
            let transport = Transport::listen(at(machine)).await.expect("listens");
            let directory = Path::new("/data");
            let made = plinth_runtime::disk::create_dir_all(directory).await;
            made.expect("makes it");
            let cluster = (Family::Store, "a:b");
            let started = coordinator::start(&transport, directory, cluster, false).await;
            let Ok(serving) = started else {
                panic!("it does not start")
            };
            panic!("{}", serving.life.await);
        })
    })
}

/// Starts the only candidate. Its history has true when it is elected, false when it no longer leads.
fn start_candidate(simulation: &Simulation) -> (ProcessId, Rc<RefCell<Vec<bool>>>) {
    let history: Rc<RefCell<Vec<bool>>> = Rc::default();
    let id = simulation.add_machine(Locality::default());
    let told = history.clone();
    let process = simulation.start_process(id, at(COORDINATORS + 1), move || {
        let told = told.clone();
        Box::pin(async move {
            let own = at(COORDINATORS + 1);
            let transport = Transport::listen(own).await.expect("listens");
            let _beacon = FailureBeacon::new(&transport, LEADER);
            let file = ClusterFile::new("a", "b", places((1..=COORDINATORS).map(at)));
            let candidate = Candidate {
                controller: Interface::new(own, LEADER),
                priority: 0,
            };
            let leader = Watch::new(None);
            let coordinators = Coordinators::from(file);
            let contending = election::contend(transport, coordinators, candidate, leader.clone());
            let watching = async {
                loop {
                    leader.wait_until(Option::is_some).await;
                    told.borrow_mut().push(true);
                    leader.wait_until(Option::is_none).await;
                    told.borrow_mut().push(false);
                }
            };
            let _: Either<(), ()> = plinth_runtime::race(contending, watching).await;
        })
    });
    (process, history)
}

/// Keeps a process busy with turns of up to `turn_ms` milliseconds, one after the other.
async fn keep_busy(process: ProcessId, turn_ms: u64, pause_ms: u64) {
    let end = now() + Duration::from_secs(30);
    while now() < end {
        let turn = Duration::from_millis(plinth_runtime::random::range(turn_ms / 2..turn_ms));
        control().busy_process(process, turn);
        sleep(turn + Duration::from_millis(pause_ms)).await;
    }
}

/// Checks that the leader leads from start to end, although some processes are kept busy once all are up.
fn goes_on_leading(keep_busy: impl AsyncFn(Vec<ProcessId>, ProcessId) + Copy + 'static) {
    for seed in 1..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let coordinators: Vec<ProcessId> = (1..=COORDINATORS)
            .map(|machine| start_coordinator(&simulation, machine))
            .collect();
        let (candidate, history) = start_candidate(&simulation);
        let work = async move {
            sleep(Duration::from_secs(5)).await;
            keep_busy(coordinators, candidate).await;
            sleep(Duration::from_secs(5)).await;
        };
        let limit = Duration::from_secs(100);
        simulation.run_until(work, limit).expect("it ends");
        assert_eq!(*history.borrow(), [true], "seed {seed}");
    }
}

#[test]
fn a_leader_is_not_deposed_while_coordinators_take_long_to_answer() {
    goes_on_leading(async |coordinators, _| {
        let busy = coordinators
            .into_iter()
            .map(|process| keep_busy(process, 900, 1));
        plinth_runtime::join_all(busy).await;
    });
}

#[test]
fn a_leader_that_is_busy_for_longer_than_its_lease_asks_again_before_it_gives_up() {
    goes_on_leading(async |_, candidate| keep_busy(candidate, 3500, 3000).await);
}
