//! Servers in the simulator: machines with clocks as far apart as they may be, sockets over a network that delays,
//! loses and repeats, masters that are killed, paused, cut off and brought back. An oracle outside, which sees all
//! machines at once, judges every timestamp.

mod oracle;
mod post;
mod process;

use oracle::World;
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, fault, random, sleep};
use std::net::SocketAddr;
use std::rc::Rc;

const MACHINES: usize = 5;
/// How far clocks are from true time, and the bound that they just keep to each other, one fast and one slow. The
/// second kind of clock makes everything visible that the bound has to cover.
const CLOCKS: [(i64, u32); 2] = [(super::model::RATE_MAX_PPM, 1000), (47_000, 100_000)];

fn some_ms(below: u64) -> Duration {
    Duration::from_micros(random::below(1000 * below))
}

struct Fleet {
    world: Rc<World>,
    addresses: Vec<SocketAddr>,
    machines: Vec<MachineId>,
    processes: Vec<ProcessId>,
}

impl Fleet {
    fn start(sim: &Simulation, rate_max_ppm: i64, drift_ppm: u32) -> Fleet {
        let world = Rc::new(World::default());
        world.rate_max_ppm.set(rate_max_ppm);
        world.drift_ppm.set(drift_ppm);
        let mut fleet = Fleet {
            world,
            addresses: Vec::new(),
            machines: Vec::new(),
            processes: Vec::new(),
        };
        for which in 0..MACHINES {
            let machine = sim.add_machine(Locality::default());
            let address: SocketAddr = format!("10.0.0.{}:4500", which + 1)
                .parse()
                .expect("an address");
            let world = fleet.world.clone();
            let serve = move || Box::pin(process::serve(world.clone(), address)) as _;
            fleet.machines.push(machine);
            fleet.addresses.push(address);
            fleet
                .processes
                .push(sim.start_process(machine, address, serve));
        }
        fleet
    }

    /// The machine of the master that the register names, more often than any other.
    fn victim(&self) -> usize {
        let master = self.world.master();
        let place = master.and_then(|at| self.addresses.iter().position(|a| *a == at));
        match place {
            Some(place) if random::chance(0.5) => place,
            _ => random::below(MACHINES as u64) as usize,
        }
    }

    /// Kills a process that comes back as another member, unless nobody else knows the time.
    fn kill(&self, at: usize) {
        if self.world.restores.get() || self.world.is_known_beside(self.addresses[at]) {
            self.world.end_life(self.addresses[at]);
            let after = some_ms(150);
            control().kill_process(self.processes[at], KillKind::RebootProcess { after });
        }
    }

    fn cut_off(&self, at: usize, way: u64) {
        for other in (0..MACHINES).filter(|other| *other != at) {
            let (one, two) = match way {
                0 => (self.machines[other], self.machines[at]),
                _ => (self.machines[at], self.machines[other]),
            };
            // One way, the other, or both.
            control().partition(one, two, way == 2);
        }
    }

    fn heal(&self) {
        for one in &self.machines {
            for two in &self.machines {
                control().heal(*one, *two);
            }
        }
    }

    fn drift(&self) {
        let most = self.world.rate_max_ppm.get();
        for machine in &self.machines {
            let any = random::below(2 * most as u64 + 1) as i64 - most;
            let drift = [-most, most, any][random::below(3) as usize];
            control().set_clock_drift(*machine, drift);
        }
    }

    /// Kills the next master, soon after the register has taken its configuration.
    async fn kill_the_next(&self) {
        let before = self.world.masters();
        for _ in 0..100 {
            sleep(Duration::from_millis(1)).await;
            if self.world.masters() > before {
                break;
            }
        }
        sleep(some_ms(60)).await;
        let master = self.world.master();
        if let Some(at) = self.addresses.iter().position(|a| Some(*a) == master) {
            self.kill(at);
        }
    }

    /// All at once, or nearly so. The disks are left.
    async fn power_cut(&self) {
        let spared = random::below(2 * MACHINES as u64) as usize;
        for at in (0..MACHINES).filter(|at| *at != spared) {
            self.kill(at);
            if random::chance(0.2) {
                sleep(some_ms(5)).await;
            }
        }
    }

    async fn disturb_once(&self) {
        if self.world.restores.get() && random::chance(0.1) {
            self.power_cut().await;
        }
        let at = self.victim();
        match random::below(9) {
            0 | 1 => self.kill(at),
            2 => control().pause_process(self.processes[at], some_ms(80)),
            3 => control().busy_process(self.processes[at], some_ms(80)),
            4 => self.drift(),
            5 => {
                let loss = [0.0, 0.02, 0.2][random::below(3) as usize];
                self.world.loss.set(loss);
            }
            6 => {
                let other = random::below(MACHINES as u64) as usize;
                control().cut_connections(self.machines[at], self.machines[other]);
            }
            7 => {
                self.kill(at);
                self.kill_the_next().await;
            }
            _ => {
                self.cut_off(at, random::below(3));
                sleep(some_ms(100)).await;
                self.heal();
            }
        }
        sleep(some_ms(60)).await;
    }
}

/// What a run has shown.
struct Shown {
    timestamps: u64,
    masters: u64,
    restores: usize,
    fingerprint: u64,
}

/// Runs one seed; an error is what the oracle has found.
fn run(seed: u64, may_break: bool) -> Result<Shown, String> {
    run_as(seed, may_break, false)
}

fn run_as(seed: u64, may_break: bool, restores: bool) -> Result<Shown, String> {
    let (rate_max_ppm, drift_ppm) = CLOCKS[seed as usize % 2];
    let config = SimConfig {
        clock_drift_ppm_max: rate_max_ppm as u64,
        // The slower the network, the wider the intervals.
        network_latency_us: [100..2000, 20..300, 50..8000][seed as usize % 3].clone(),
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let fleet = Fleet::start(&sim, rate_max_ppm, drift_ppm);
    let world = fleet.world.clone();
    world.may_break.set(may_break);
    world.restores.set(restores);
    let is_alive = sim.run(async move {
        sleep(Duration::from_millis(100)).await;
        for _ in 0..40 {
            fleet.disturb_once().await;
            if fleet.world.violation().is_some() {
                return false;
            }
        }
        fleet.world.loss.set(0.0);
        let before = fleet.world.timestamps();
        let limit = if restores { 2000 } else { 500 };
        sleep(Duration::from_millis(limit)).await;
        fleet.world.timestamps() > before
    });
    if let Some(violation) = world.violation() {
        return Err(format!("seed {seed}: {violation}"));
    }
    if !is_alive.result {
        return Err(format!(
            "seed {seed}: no timestamps any more, {:?} {:?}",
            world.read(),
            world.everybody()
        ));
    }
    Ok(Shown {
        timestamps: world.timestamps(),
        masters: world.masters(),
        restores: world.restores(),
        fingerprint: sim.fingerprint(),
    })
}

#[test]
fn timestamps_are_monotonic_over_all_machines_and_masters() {
    let (mut timestamps, mut masters) = (0, 0);
    for seed in 0..200 {
        let shown = run(seed, false).unwrap_or_else(|violation| panic!("{violation}"));
        timestamps += shown.timestamps;
        masters += shown.masters;
    }
    println!("{timestamps} timestamps, {masters} masters");
    assert!(timestamps > 200_000 && masters > 1000);
}

#[test]
fn timestamps_after_a_restore_are_above_all_before_also_beside_former_members_that_live() {
    let (mut timestamps, mut restores) = (0, 0);
    for seed in 0..200 {
        let shown = run_as(seed, false, true).unwrap_or_else(|violation| panic!("{violation}"));
        timestamps += shown.timestamps;
        restores += shown.restores;
    }
    println!("{timestamps} timestamps, {restores} restores");
    assert!(timestamps > 100_000 && restores > 1000);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let fingerprint = |seed| run(seed, false).map(|shown| shown.fingerprint);
    assert_eq!(fingerprint(7), fingerprint(7));
}

fn is_found(planted: &'static str) {
    is_found_as(planted, false);
}

fn is_found_as(planted: &'static str, restores: bool) {
    fault::plant(Some(planted));
    let mut found = (0..200).filter_map(|seed| run_as(seed, true, restores).err());
    let found = found.find(|found| found.contains("comes after"));
    fault::plant(None);
    println!("{planted}: {}", found.expect("the oracle finds it"));
    fault::found(planted);
}

#[test]
fn a_timestamp_that_is_used_in_the_future_is_found() {
    is_found("farm_no_uncertainty_wait");
}

#[test]
fn a_restore_that_waits_for_no_lease_is_found() {
    is_found_as("farm_restore_waits_for_no_lease", true);
}

#[test]
fn a_clock_master_that_does_not_fast_forward_is_found() {
    is_found("farm_master_does_not_fast_forward");
}

#[test]
fn a_lease_that_comes_back_with_the_death_of_its_giver_is_found() {
    is_found("farm_lease_of_the_dead_revives");
}
