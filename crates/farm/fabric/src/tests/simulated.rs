//! Machines in the simulator: each with a process, and beside it a network card that serves its memory whether or not
//! the process lives. Processes and cards are killed and paused, machines lose their power, networks are cut,
//! configurations change. An oracle outside sees all memories.

mod machine;
mod oracle;

use crate::{Layout, Machine};
use oracle::World;
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, fault, random, sleep};
use std::net::SocketAddr;
use std::rc::Rc;

const MACHINES: usize = 4;

fn layout() -> Layout {
    Layout {
        machines: MACHINES,
        ring_words: 200,
        region_words: vec![64],
    }
}

fn some_ms(below: u64) -> Duration {
    Duration::from_micros(random::below(1000 * below))
}

struct Fleet {
    world: Rc<World>,
    machines: Vec<MachineId>,
    processes: Vec<ProcessId>,
    cards: Vec<ProcessId>,
}

impl Fleet {
    fn start(sim: &Simulation, world: &Rc<World>) -> Fleet {
        let mut fleet = Fleet {
            world: world.clone(),
            machines: Vec::new(),
            processes: Vec::new(),
            cards: Vec::new(),
        };
        for which in 0..MACHINES as u16 {
            let id = sim.add_machine(Locality::default());
            let own: SocketAddr = format!("10.0.0.{}:4600", which + 1).parse().expect("one");
            let (world, addresses) = (world.clone(), machine::addresses());
            let card = world.clone();
            let serve = move || Box::pin(machine::serve_memory(card.clone(), which)) as _;
            let live = move || Box::pin(machine::live(world.clone(), Machine(which))) as _;
            fleet.machines.push(id);
            let card = sim.start_process(id, addresses[usize::from(which)], serve);
            fleet.cards.push(card);
            fleet.processes.push(sim.start_process(id, own, live));
        }
        fleet
    }

    fn any(&self) -> usize {
        random::below(MACHINES as u64) as usize
    }

    async fn lose_power(&self, at: usize) {
        self.world.lose_memory(at as u16);
        control().power_cut(self.machines[at]);
        // It can only come back to another configuration: of its memory nothing is left.
        self.world.remove(Machine(at as u16));
        sleep(some_ms(20)).await;
        control().boot(self.machines[at]);
        self.world.add(Machine(at as u16));
    }

    async fn cut_off(&self, at: usize) {
        for other in (0..MACHINES).filter(|other| *other != at) {
            let (one, two) = (self.machines[at], self.machines[other]);
            match random::below(3) {
                0 => control().partition(one, two, true),
                1 => control().partition(one, two, false),
                _ => control().partition(two, one, false),
            }
        }
        if random::chance(0.5) {
            self.world.remove(Machine(at as u16));
        }
        sleep(some_ms(60)).await;
        control().heal_all();
        self.world.add(Machine(at as u16));
    }

    async fn disturb_once(&self) {
        let (at, other) = (self.any(), self.any());
        let after = some_ms(20);
        let kill = KillKind::RebootProcess { after };
        match random::below(9) {
            0 | 1 => control().kill_process(self.processes[at], kill),
            2 => control().kill_process(self.cards[at], kill),
            3 => control().pause_process(self.processes[at], some_ms(40)),
            4 => control().pause_process(self.cards[at], some_ms(40)),
            5 => self.lose_power(at).await,
            6 => self.cut_off(at).await,
            7 => drop(control().cut_connections(self.machines[at], self.machines[other])),
            _ => self.world.reconfigure(),
        }
        if random::chance(0.2) {
            self.world.reconfigure();
        }
        sleep(some_ms(30)).await;
    }
}

/// What a run has shown.
struct Shown {
    writes: u64,
    messages: u64,
    refused: u64,
    again: u64,
    fingerprint: u64,
}

/// Runs one seed; an error is what the oracle has found.
fn run(seed: u64) -> Result<Shown, String> {
    let config = SimConfig {
        bit_flip_probability: [0.0, 0.001][seed as usize % 2],
        network_latency_us: [100..2000, 5..50, 20..300][seed as usize % 3].clone(),
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let world = Rc::new(World::new());
    let fleet = Fleet::start(&sim, &world);
    let judged = world.clone();
    sim.run(async move {
        sleep(Duration::from_millis(20)).await;
        for _ in 0..30 {
            fleet.disturb_once().await;
            fleet.world.check_all();
            if fleet.world.violation().is_some() {
                return;
            }
        }
        control().heal_all();
        control().configure(|config| config.bit_flip_probability = 0.0);
        fleet.world.reconfigure();
        sleep(Duration::from_millis(400)).await;
        fleet.world.begin_end();
        sleep(Duration::from_millis(400)).await;
        fleet.world.stop();
        sleep(Duration::from_millis(100)).await;
        fleet.world.check_all();
        fleet.world.check_end();
    });
    match judged.violation() {
        Some(violation) => Err(format!("seed {seed}: {violation}")),
        None => Ok(judged.shown(sim.fingerprint())),
    }
}

#[test]
fn what_was_acknowledged_is_there_and_nothing_of_a_closed_configuration_comes() {
    let mut sum = [0; 4];
    for seed in 0..200 {
        let shown = run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        let shown = [shown.writes, shown.messages, shown.refused, shown.again];
        sum.iter_mut().zip(shown).for_each(|(sum, n)| *sum += n);
    }
    println!("writes, messages, refused as closed, received again: {sum:?}");
    assert!(sum[0] > 50_000 && sum[1] > 50_000 && sum[2] > 1000 && sum[3] > 100);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let fingerprint = |seed| run(seed).map(|shown| shown.fingerprint);
    assert_eq!(fingerprint(7), fingerprint(7));
}

fn is_found(planted: &'static str, said: &str) {
    fault::plant(Some(planted));
    let mut found = (0..200).filter_map(|seed| run(seed).err());
    let found = found.find(|found| found.contains(said));
    fault::plant(None);
    println!("{planted}: {}", found.expect("the oracle finds it"));
    fault::found(planted);
}

#[test]
fn an_acknowledgement_before_the_write_is_found() {
    is_found("farm_ack_before_write", "acknowledged");
}

#[test]
fn an_operation_of_a_closed_configuration_is_found() {
    is_found("farm_fence_is_open", "closed");
}

#[test]
fn a_connection_that_overtakes_is_found() {
    is_found("farm_old_connection_counts", "");
}
