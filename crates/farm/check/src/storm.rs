//! Machines that fail: processes are killed and paused, hosts cut off, connections broken, clocks drift. Everybody who
//! has left comes back as a new life. Each machine is a node: its membership, and its engine.
//!
//! When the storm is over, the cluster must heal: all machines are members, all replicas are whole and equal, and the
//! work comes to its end.

mod machine;
mod register;

use crate::Shown;
use crate::world::{REGIONS, Work, World};
use plinth_core::id::Uid;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::testing::machines::faults_of_the_end;
use plinth_farm_engine::{Engine, View};
use plinth_farm_fabric::Fabric;
use plinth_farm_member::{Cluster, Record};
use plinth_farm_memory::{Pointer, Region, Seen};
use plinth_farm_node::{Node, configuration_of};
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::sim::{
    KillKind, Locality, MachineId, ProcessId, SimConfig, Simulation, control,
};
use plinth_runtime::{Duration, random, sleep};
use register::Reach;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

type One = Node<Any, Reach>;

const DISTURBANCES: usize = 8;
/// Simulated time until a cluster must have healed.
const HEAL_MS: u64 = 20_000;

pub fn some_ms(below: u64) -> Duration {
    Duration::from_micros(random::below(1000 * below))
}

/// What is outside of all machines.
pub struct Storm {
    pub world: Rc<World>,
    pub register: Reach,
    pub cluster: Cluster,
    /// The host of each machine.
    hosts: Vec<usize>,
    lives: RefCell<BTreeMap<u16, Weak<One>>>,
    is_prepared: Cell<bool>,
    /// Machines whose present life has come to the end of its work.
    done: RefCell<BTreeMap<u16, bool>>,
    is_over: Cell<bool>,
    /// The end: replicas are where this says, in these engines.
    end: RefCell<Option<(View, Vec<Rc<Engine<Any>>>)>>,
}

impl Storm {
    fn new<W: Work>(world: World, work: &W, is_durable: bool) -> Storm {
        let sizes = work.sizes(&world);
        let machines = world.machines as u16;
        let cluster = Cluster {
            lease_ns: 60_000_000,
            sync_ns: 8_000_000,
            resend_ns: 6_000_000,
            first_machines: 3,
            region_bytes: 8 * sizes.region_words,
            slab_bytes: 8 * sizes.slab_words,
            is_durable,
            ..Cluster::new(Uid(9), machines, REGIONS, 2 + (world.seed % 2) as u8)
        };
        let host = |machine: u16| match world.is_one_host {
            true => 0,
            false => usize::from(machine) * 3 / usize::from(machines),
        };
        Storm {
            hosts: (0..machines).map(host).collect(),
            world: Rc::new(world),
            register: Reach::default(),
            cluster,
            lives: RefCell::default(),
            is_prepared: Cell::new(false),
            done: RefCell::default(),
            is_over: Cell::new(false),
            end: RefCell::default(),
        }
    }

    fn node(&self, machine: u16) -> Option<Rc<One>> {
        self.lives.borrow().get(&machine)?.upgrade()
    }

    fn begin_life(&self, machine: u16, node: &Rc<One>) {
        let life = Rc::downgrade(node);
        self.lives.borrow_mut().insert(machine, life);
        self.done.borrow_mut().insert(machine, false);
    }

    fn end_life(&self, machine: u16) {
        self.lives.borrow_mut().remove(&machine);
        self.done.borrow_mut().remove(&machine);
    }

    /// Whether the cluster survives that: somebody who knows the time, and a whole replica of every region, live on.
    fn may_kill(&self, machine: u16) -> bool {
        if self.cluster.is_durable {
            return true;
        }
        let Some(record) = self.register.held() else {
            return false;
        };
        let lives = |seat: &&plinth_farm_member::Seat| {
            let node = self.node(seat.machine);
            seat.machine != machine && node.is_some_and(|node| node.member().id() == seat.id)
        };
        let living: Vec<u16> = record
            .machines
            .iter()
            .filter(lives)
            .map(|s| s.machine)
            .collect();
        let knows = |machine: &u16| {
            let node = self.node(*machine);
            node.is_some_and(|node| {
                node.member()
                    .clock()
                    .update(|server, _| server.knows_time())
            })
        };
        let has = |machine: u16| living.contains(&machine);
        living.iter().any(knows)
            && record
                .regions
                .iter()
                .all(|region| region.iter().any(|r| r.is_whole && has(r.machine)))
    }

    fn master(&self) -> Option<u16> {
        let record = self.register.held()?;
        record.master().map(|seat| seat.machine)
    }

    /// Each whole replica of some region was on a machine that died, or that the others did not hear for as long as a
    /// lease while another was whole. Nothing is promised then.
    pub fn is_lost(&self) -> bool {
        let record = self.register.held();
        let is_lost = record.is_some_and(|record| record.lost().next().is_some());
        if is_lost && self.cluster.is_durable {
            self.world
                .blame("a region of a durable cluster is lost".to_owned());
        }
        is_lost
    }

    /// All machines are members, all replicas whole, and transactions run everywhere.
    fn is_healed(&self) -> Result<Record, String> {
        let record = self.register.held().ok_or("there is no record")?;
        let members = record.machines.len();
        if members != self.world.machines {
            return Err(format!("{members} of {} are members", self.world.machines));
        }
        let count = |region: &Vec<plinth_farm_member::Replica>| {
            region.iter().filter(|replica| replica.is_whole).count()
        };
        let wanted = usize::from(self.cluster.replication);
        if let Some(few) = record
            .regions
            .iter()
            .position(|region| count(region) != wanted)
        {
            return Err(format!("region {few} has {:?}", record.regions[few]));
        }
        for machine in 0..self.world.machines as u16 {
            let node = self.node(machine);
            let open = node.and_then(|node| node.engine().is_open());
            if open != Some(record.number()) {
                let number = record.number();
                return Err(format!(
                    "machine {machine} is open in {open:?}, not in {number}"
                ));
            }
        }
        Ok(record)
    }

    /// Waits for the condition. False, and the world is blamed, if that takes too long.
    async fn wait(&self, what: &str, is_so: impl Fn() -> Result<(), String>) -> bool {
        let mut why = String::new();
        for _ in 0..HEAL_MS / 5 {
            if self.world.is_blamed() || self.is_lost() {
                return false;
            }
            match is_so() {
                Ok(()) => return true,
                Err(not) => why = not,
            }
            sleep(Duration::from_millis(5)).await;
        }
        self.world.blame(format!("{what}: {why}"));
        false
    }

    /// The timestamp and the payload of an object in the end.
    pub fn object(&self, at: Pointer) -> Option<(u64, Vec<u8>)> {
        let end = self.end.borrow();
        let (view, engines) = end.as_ref()?;
        let place = view.primary(at.region())?;
        let mut engines = engines.iter();
        let engine = engines.find(|e| e.fabric().local().machine() == place.machine)?;
        let host = engine.fabric().local().host().clone();
        let region = Region::open(host.region(place.slot).ok()?).ok()?;
        match region.cell(at).ok()?.read() {
            Seen::Version {
                header, payload, ..
            } if header.is_allocated() => Some((header.timestamp(), payload.to_vec())),
            _ => None,
        }
    }

    pub fn shown(&self, fingerprint: u64) -> Shown {
        let mut aborts = self.world.aborts.borrow().clone();
        let number = self.register.held().map_or(0, |record| record.number());
        aborts.insert("configurations".to_owned(), number);
        aborts.insert("lost".to_owned(), u64::from(self.is_lost()));
        Shown {
            aborts,
            fingerprint,
            ..Shown::default()
        }
    }

    async fn check_end(&self) {
        let record = match self.is_healed() {
            Ok(record) => record,
            Err(why) => {
                return self
                    .world
                    .blame(format!("it was healed, and is not: {why}"));
            }
        };
        let view = configuration_of(&record).and_then(|configuration| configuration.view());
        let view = view.expect("all regions are there");
        let nodes = (0..self.world.machines as u16).filter_map(|machine| self.node(machine));
        let engines: Vec<Rc<Engine<Any>>> = nodes.map(|node| node.engine().clone()).collect();
        for fault in faults_of_the_end(&engines, &view).await {
            self.world.blame(fault);
        }
        self.end.replace(Some((view, engines)));
    }
}

struct Fleet {
    storm: Rc<Storm>,
    hosts: Vec<MachineId>,
    processes: Vec<ProcessId>,
}

impl Fleet {
    fn host(&self, machine: u16) -> usize {
        self.storm.hosts[usize::from(machine)]
    }

    /// The master, more often than any other.
    fn victim(&self) -> u16 {
        match self.storm.master() {
            Some(machine) if random::chance(0.3) => machine,
            _ => random::below(self.processes.len() as u64) as u16,
        }
    }

    fn kill(&self, machine: u16) {
        if !self.storm.may_kill(machine) {
            return;
        }
        self.storm.world.count("kills");
        self.storm.end_life(machine);
        let after = match random::below(3) {
            0 => some_ms(3),
            _ => some_ms(150),
        };
        let kind = KillKind::RebootProcess { after };
        control().kill_process(self.processes[usize::from(machine)], kind);
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

    /// The power of a host fails: what was not on disk is gone.
    fn power_cut(&self, host: usize) {
        self.storm.world.count("power cuts");
        let machines = 0..self.processes.len() as u16;
        let there = machines.filter(|machine| self.host(*machine) == host);
        there.for_each(|machine| self.storm.end_life(machine));
        control().power_cut(self.hosts[host]);
    }

    fn boot(&self, host: usize) {
        control().boot(self.hosts[host]);
        let machines = 0..self.processes.len() as u16;
        let there = machines.filter(|machine| self.host(*machine) == host);
        there.for_each(|machine| control().restart_process(self.processes[usize::from(machine)]));
    }

    async fn cut_power(&self) {
        let hosts = self.hosts.len();
        let one = random::below(hosts as u64) as usize;
        let all: Vec<usize> = match random::chance(0.5) {
            true => (0..hosts).collect(),
            false => vec![one, (one + 1) % hosts],
        };
        for host in &all {
            self.power_cut(*host);
            if random::chance(0.3) {
                sleep(some_ms(100)).await;
            }
        }
        for host in all {
            sleep(some_ms(100)).await;
            self.boot(host);
        }
    }

    async fn disturb_once(&self) {
        let machine = self.victim();
        let process = self.processes[usize::from(machine)];
        if self.storm.cluster.is_durable && random::chance(0.4) {
            self.cut_power().await;
            return sleep(some_ms(600)).await;
        }
        match random::below(10) {
            0..4 => self.kill(machine),
            4 => control().pause_process(process, some_ms(150)),
            5 => control().busy_process(process, some_ms(100)),
            6 => self.cut_off(self.host(machine)).await,
            7 => {
                let hosts = self.hosts.len() as u64;
                let (one, two) = (random::below(hosts), random::below(hosts));
                control().cut_connections(self.hosts[one as usize], self.hosts[two as usize]);
            }
            8 => {
                let drift = random::below(999) as i64 - 499;
                control().set_clock_drift(self.hosts[self.host(machine)], drift);
            }
            _ => {
                // Two at once, or one in the recovery from the other.
                self.kill(machine);
                sleep(some_ms(30)).await;
                self.kill(self.victim());
            }
        }
        sleep(some_ms(200)).await;
    }

    async fn blow(self) {
        let storm = &self.storm;
        let healed = || storm.is_healed().map(|_| ());
        let prepared = || match storm.is_prepared.get() {
            true => Ok(()),
            false => Err(healed().err().unwrap_or("it is healed".to_owned())),
        };
        if !storm.wait("it is not prepared", prepared).await {
            return;
        }
        for _ in 0..DISTURBANCES {
            self.disturb_once().await;
            if storm.is_lost() {
                return;
            }
        }
        control().heal_all();
        if !storm.wait("it does not heal", healed).await {
            return;
        }
        storm.world.is_calm.set(true);
        let is_over = || match storm.is_over.get() {
            true => Ok(()),
            false => Err(format!("{:?} are done", storm.done.borrow())),
        };
        if storm.wait("the work does not end", is_over).await
            && storm.wait("it does not stay healed", healed).await
        {
            storm.check_end().await;
        }
    }
}

/// Journals that are cut often, and backups that are written often.
fn small_disks(seed: u64) -> Knobs {
    let mut knobs = Knobs::default();
    let bytes = [16 << 10, 32 << 10, 128 << 10][seed as usize / 2 % 3];
    let names = [
        "farm_journal_bytes",
        "farm_journal_segment_bytes",
        "farm_backup_buffer_bytes",
        "farm_backup_line_bytes_max",
    ];
    for name in names {
        let set = knobs.set(name, &bytes.to_string());
        set.expect("the knob is there, and takes that");
    }
    knobs
}

/// Runs the work on machines that fail, as the seed chooses. Returns the storm, and a number that is the same for runs
/// that are the same. Error: what was found wrong.
///
/// `is_durable`: all machines may die at once, also by the loss of power, and come back with their disks.
pub fn run<W: Work>(seed: u64, work: &Rc<W>, is_durable: bool) -> Result<(Rc<Storm>, u64), String> {
    let latency = [5..50, 20..300, 50..1000][seed as usize % 3].clone();
    let config = SimConfig {
        clock_drift_ppm_max: 499,
        network_latency_us: latency.clone(),
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let mut world = World::new(seed, Duration::from_micros(latency.end));
    (world.is_stormy, world.is_small) = (true, false);
    world.machines = 4 + seed as usize % 2;
    let storm = Rc::new(Storm::new(world, &**work, is_durable));
    let count = storm.hosts.iter().max().map_or(1, |most| most + 1);
    let hosts: Vec<MachineId> = (0..count)
        .map(|_| sim.add_machine(Locality::default()))
        .collect();
    let mut processes = Vec::new();
    for machine in 0..storm.world.machines as u16 {
        let (storm_of, work) = (storm.clone(), work.clone());
        let live = move || Box::pin(machine::live(storm_of.clone(), work.clone(), machine)) as _;
        let host = hosts[storm.hosts[usize::from(machine)]];
        let address = plinth_farm_engine::testing::machines::address(machine);
        processes.push(sim.start_process(host, address, live));
    }
    let fleet = Fleet {
        storm: storm.clone(),
        hosts,
        processes,
    };
    sim.run(async move {
        set_knobs(small_disks(seed));
        fleet.blow().await;
    });
    match storm.world.verdict() {
        Some(blame) => Err(blame),
        None => Ok((storm, sim.fingerprint())),
    }
}
