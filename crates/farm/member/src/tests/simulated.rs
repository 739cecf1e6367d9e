//! Members in the simulator: five machines on three hosts, fabrics over streams, a register whose answers are late or
//! get lost. Processes are killed and paused, hosts cut off, and everybody who has left comes back as a new life. An
//! oracle outside sees the register and all lives.

mod disks;
mod durable;
mod oracle;
mod process;
mod restores;

use oracle::World;
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, TaskGroup, fault, random, sleep};
use std::net::SocketAddr;
use std::rc::Rc;

const MACHINES: u16 = 5;
/// The host of each machine.
const HOSTS: [usize; MACHINES as usize] = [0, 0, 1, 1, 2];

const SEEDS: u64 = 100;

fn some_ms(below: u64) -> Duration {
    Duration::from_micros(random::below(1000 * below))
}

struct Fleet {
    world: Rc<World>,
    hosts: Vec<MachineId>,
    processes: Vec<ProcessId>,
}

impl Fleet {
    fn start(sim: &Simulation, world: &Rc<World>) -> Fleet {
        let hosts: Vec<MachineId> = (0..3)
            .map(|_| sim.add_machine(Locality::default()))
            .collect();
        let mut processes = Vec::new();
        for machine in 0..MACHINES {
            let world = world.clone();
            let live = move || Box::pin(process::live(world.clone(), machine)) as _;
            let own: SocketAddr = process::addresses()[usize::from(machine)];
            processes.push(sim.start_process(hosts[HOSTS[usize::from(machine)]], own, live));
        }
        Fleet {
            world: world.clone(),
            hosts,
            processes,
        }
    }

    /// The master, more often than any other.
    fn victim(&self) -> u16 {
        match self.world.master() {
            Some(machine) if random::chance(0.4) => machine,
            _ => random::below(MACHINES.into()) as u16,
        }
    }

    fn kill(&self, machine: u16) -> bool {
        if !self.world.may_kill(machine) {
            return false;
        }
        self.world.end_life(machine);
        let after = match random::below(3) {
            0 => some_ms(3),
            _ => some_ms(150),
        };
        let kind = KillKind::RebootProcess { after };
        control().kill_process(self.processes[usize::from(machine)], kind);
        true
    }

    async fn cut_off(&self, host: usize) {
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            let (one, two) = (self.hosts[host], self.hosts[other]);
            match random::below(3) {
                0 => control().partition(one, two, true),
                1 => control().partition(one, two, false),
                _ => control().partition(two, one, false),
            }
        }
        sleep(some_ms(120)).await;
        control().heal_all();
    }

    async fn disturb_once(&self) {
        let machine = self.victim();
        let process = self.processes[usize::from(machine)];
        match random::below(9) {
            8 => {
                let drift = random::below(999) as i64 - 499;
                control().set_clock_drift(self.hosts[HOSTS[usize::from(machine)]], drift);
            }
            0..3 => drop(self.kill(machine)),
            3 => control().pause_process(process, some_ms(150)),
            4 => control().busy_process(process, some_ms(100)),
            5 => self.cut_off(HOSTS[usize::from(machine)]).await,
            6 => {
                let (one, two) = (random::below(3) as usize, random::below(3) as usize);
                control().cut_connections(self.hosts[one], self.hosts[two]);
            }
            _ => {
                // Two at once, or one after the other.
                self.kill(machine);
                sleep(some_ms(30)).await;
                self.kill(self.victim());
            }
        }
        sleep(some_ms(150)).await;
    }
}

/// What a run has shown.
struct Shown {
    timestamps: u64,
    configurations: u64,
    wholes: u64,
    anews: u64,
    narrow: u64,
    restores: u64,
    commits: u64,
    /// All that had a region died.
    is_lost: bool,
    fingerprint: u64,
}

/// Runs one seed; an error is what the oracle has found.
fn run(seed: u64) -> Result<Shown, String> {
    let config = SimConfig {
        clock_drift_ppm_max: 499,
        network_latency_us: [100..2000, 20..300, 50..800][seed as usize % 3].clone(),
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let world = Rc::new(World::default());
    world.replication.set(3);
    let fleet = Fleet::start(&sim, &world);
    let judged = world.clone();
    let ran = sim.run(async move {
        let group = TaskGroup::new();
        group.spawn("register", oracle::land(fleet.world.clone()));
        sleep(Duration::from_millis(400)).await;
        for _ in 0..30 {
            fleet.disturb_once().await;
            if fleet.world.has_ended() {
                return Ok(());
            }
        }
        control().heal_all();
        fleet.world.calm.set(true);
        let before = fleet.world.timestamps();
        for _ in 0..100 {
            sleep(Duration::from_millis(50)).await;
            if fleet.world.has_ended() {
                return Ok(());
            }
            if fleet.world.is_healed().is_ok() && fleet.world.timestamps() > before + 20 {
                return Ok(());
            }
        }
        fleet.world.is_healed()?;
        Err("no timestamps any more".to_owned())
    });
    if let Some(violation) = judged.violation() {
        return Err(format!("seed {seed}: {violation}"));
    }
    if let Err(sick) = ran.result {
        return Err(format!("seed {seed}: {sick}\n{:?}", judged.held()));
    }
    Ok(judged.shown(sim.fingerprint()))
}

#[test]
fn members_agree_and_nothing_is_lost_while_somebody_has_it() {
    let mut sum = [0; 6];
    for seed in 0..SEEDS {
        let shown = run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        let (lost, narrow) = (u64::from(shown.is_lost), shown.narrow);
        let shown = [
            shown.timestamps,
            shown.configurations,
            shown.wholes,
            narrow,
            lost,
            shown.anews,
        ];
        sum.iter_mut().zip(shown).for_each(|(sum, n)| *sum += n);
    }
    println!(
        "timestamps, configurations, replicas made whole, narrow, clusters lost, configurations anew: {sum:?}"
    );
    assert!(sum[0] > 50_000 && sum[1] > 1000 && sum[2] > 1000 && sum[3] > 10_000);
    assert!(sum[4] < SEEDS / 20);
    assert!(sum[5] > 100, "{} configurations anew", sum[5]);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let fingerprint = |seed| run(seed).map(|shown| shown.fingerprint);
    assert_eq!(fingerprint(7), fingerprint(7));
}

fn is_found(planted: &'static str, said: &[&str]) {
    is_found_by(run, planted, said);
}

fn is_found_by(run: impl Fn(u64) -> Result<Shown, String>, planted: &'static str, said: &[&str]) {
    fault::plant(Some(planted));
    let mut found = (0..200).filter_map(|seed| run(seed).err());
    let found = found.find(|found| said.iter().any(|said| found.contains(said)));
    fault::plant(None);
    println!("{planted}: {}", found.expect("the oracle finds it"));
    fault::found(planted);
}

#[test]
fn a_death_that_is_guessed_is_found() {
    let said = ["comes after", "is lost, and", "is not around"];
    is_found("farm_death_is_guessed", &said);
}

#[test]
fn a_few_that_go_on_alone_are_found() {
    is_found("farm_few_go_on", &["is lost, and"]);
}

#[test]
fn a_replica_that_is_whole_too_early_is_found() {
    is_found("farm_new_replica_is_whole", &["has become whole by itself"]);
}
