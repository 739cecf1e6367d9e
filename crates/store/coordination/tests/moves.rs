//! Coordinated state that moves while coordinators are lost, over simulated machines.

use bytes::Bytes;
use plinth_coordination::{
    ClusterFile, CoordinatedState, Coordinators, Family, coordinator, places,
};
use plinth_core::{Error, Uid};
use plinth_protocol::coordination::{CoordinatedValue, Generation, WriteRegister};
use plinth_rpc::Transport;
use plinth_runtime::sim::{KillKind, Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{Duration, now, timeout};
use std::net::SocketAddr;
use std::path::Path;

const LIMIT: Duration = Duration::from_secs(20);

fn at(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 4500))
}

fn set(id: &str, machines: &[u8]) -> ClusterFile {
    ClusterFile::new("a", id, places(machines.iter().map(|machine| at(*machine))))
}

/// Starts one coordinator on each of `machines` machines.
fn start(simulation: &Simulation, machines: u8) -> Vec<ProcessId> {
    let start = |machine: u8| {
        let id = simulation.add_machine(Locality::default());
        simulation.start_process(id, at(machine), move || {
            Box::pin(async move {
                let transport = Transport::listen(at(machine)).await.expect("listens");
                let directory = Path::new("/data");
                plinth_runtime::disk::create_dir_all(directory)
                    .await
                    .expect("makes it");
                let cluster = (Family::Store, "a:b");
                let started = coordinator::start(&transport, directory, cluster, false).await;
                let Ok(serving) = started else {
                    panic!("it does not start")
                };
                panic!("{}", serving.life.await);
            })
        })
    };
    (1..=machines).map(start).collect()
}

fn kill(process: ProcessId) {
    control().kill_process(process, KillKind::Kill);
}

async fn write_to(machine: u8, register: &str, number: u64, value: &CoordinatedValue) {
    let request = WriteRegister {
        register: register.into(),
        generation: Generation {
            number,
            writer: Uid(1),
        },
        value: value.clone(),
    };
    let endpoint =
        plinth_protocol::coordination::coordinator(at(machine)).endpoint::<WriteRegister>();
    let written = Transport::client().call(&endpoint, request).await;
    assert!(written.expect("answers").accepted);
}

async fn read_at(file: &ClusterFile) -> Result<Option<Bytes>, Error> {
    let coordinators = Coordinators::from(file.clone());
    let writer = Uid(plinth_runtime::random::u64().into());
    let mut state = CoordinatedState::new(&Transport::client(), &coordinators, writer);
    timeout(LIMIT, state.read())
        .await
        .expect("a majority answers")
}

#[test]
fn a_state_that_a_minority_of_the_new_coordinators_has_survives_them() {
    for seed in 1..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let processes = start(&simulation, 6);
        simulation.run(async move {
            let (old, new) = (set("b", &[1, 2, 3]), set("b_2", &[4, 5, 6]));
            let mut value = CoordinatedValue {
                successor: new.to_string(),
                moved: false,
                state: Bytes::from("state"),
            };
            // A controller ended in the middle: all old coordinators have the announcement, one of the new ones has
            // the state.
            for machine in 1..=3 {
                write_to(machine, "a:b", 7, &value).await;
            }
            value.successor.clear();
            write_to(4, "a:b_2", 1, &value).await;
            // The process that finishes the move sees that one, and then it is lost.
            kill(processes[5]);
            assert_eq!(read_at(&old).await, Err(Error::coordinators_changed));
            control().restart_process(processes[5]);
            kill(processes[3]);
            let found = read_at(&new).await;
            assert_eq!(found, Ok(Some(Bytes::from("state"))), "seed {seed}");
        });
    }
}

#[test]
fn what_one_reader_has_seen_no_later_one_misses() {
    for seed in 1..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let processes = start(&simulation, 3);
        simulation.run(async move {
            let file = set("b", &[1, 2, 3]);
            let state = |text: &'static str| CoordinatedValue {
                successor: String::new(),
                moved: false,
                state: Bytes::from(text),
            };
            for machine in 1..=3 {
                write_to(machine, "a:b", 1, &state("first")).await;
            }
            write_to(1, "a:b", 2, &state("second")).await;
            kill(processes[2]);
            assert_eq!(read_at(&file).await, Ok(Some(Bytes::from("second"))));
            control().restart_process(processes[2]);
            kill(processes[0]);
            let found = read_at(&file).await;
            assert_eq!(found, Ok(Some(Bytes::from("second"))), "seed {seed}");
        });
    }
}

#[test]
fn a_reader_that_finds_others_ahead_asks_again_at_once() {
    let took = |seed: u64, ahead: u64| {
        let simulation = Simulation::new(seed, SimConfig::default());
        start(&simulation, 3);
        let outcome = simulation.run(async move {
            let value = CoordinatedValue {
                successor: String::new(),
                moved: false,
                state: Bytes::from("state"),
            };
            for machine in 1..=3 {
                write_to(machine, "a:b", ahead, &value).await;
            }
            let begun = now();
            let found = read_at(&set("b", &[1, 2, 3])).await;
            assert_eq!(found, Ok(Some(Bytes::from("state"))));
            begun.elapsed()
        });
        outcome.result
    };
    let all = |ahead: u64| -> Duration { (1..20).map(|seed| took(seed, ahead)).sum() };
    // A pause is 27 ms on average, and one more round of messages takes less.
    let (with_none, with_some) = (all(0), all(7));
    assert!(
        with_some < with_none + 19 * Duration::from_millis(5),
        "{with_none:?} and {with_some:?}"
    );
}

#[test]
fn one_former_coordinator_that_lives_tells_where_the_state_is() {
    for seed in 1..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let processes = start(&simulation, 4);
        simulation.run(async move {
            let (old, new) = (set("b", &[1, 2, 3]), set("b_2", &[2, 3, 4]));
            let of = |file: &ClusterFile| {
                let writer = Uid(plinth_runtime::random::u64().into());
                let coordinators = Coordinators::from(file.clone());
                CoordinatedState::new(&Transport::client(), &coordinators, writer)
            };
            let mut first = of(&old);
            assert_eq!(first.read().await, Ok(None));
            let state = Bytes::from("state");
            first.write(state.clone()).await.expect("alone");
            // It has read, and will write when most former coordinators are gone.
            let mut late = of(&old);
            late.read().await.expect("alone");

            kill(processes[0]);
            let mut mover = of(&old);
            mover.read().await.expect("alone");
            let to = new.coordinators.clone();
            let moved = mover.move_to(to, state.clone(), Vec::new()).await;
            moved.expect("two of three live");
            kill(processes[1]);
            assert_eq!(read_at(&old).await, Err(Error::coordinators_changed));
            let late = timeout(LIMIT, late.write(Bytes::from("late"))).await;
            let refused = Some(Err(Error::coordinated_state_conflict));
            assert_eq!(late, refused, "seed {seed}");
            assert_eq!(read_at(&new).await, Ok(Some(state)));
        });
    }
}
