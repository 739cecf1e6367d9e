//! Machines that fail: processes are killed and paused, hosts cut off, connections broken, clocks drift. Everybody who
//! has left comes back as a new life. Each machine is a node: its membership, and its engine.
//!
//! When the storm is over, the cluster must heal: all machines are members, all replicas are whole and equal, and the
//! work comes to its end.

mod faults;
mod machine;
mod register;

pub use faults::{all_kinds, kinds};

use crate::world::{REGIONS, Work, World};
use crate::{Limits, Wrong};
use faults::Fleet;
use plinth_core::id::Uid;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::testing::machines::faults_of_the_end;
use plinth_farm_engine::{Engine, View};
use plinth_farm_fabric::Fabric;
use plinth_farm_member::{Cluster, Record};
use plinth_farm_memory::{Pointer, Region, Seen};
use plinth_farm_node::{Node, configuration_of};
use plinth_runtime::sim::{Locality, MachineId, control};
use plinth_runtime::{Duration, random, sleep};
use register::Reach;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

type One = Node<Any, Reach>;

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
    /// How often the clock of a host has jumped: processes that ran then have to leave.
    jumps: RefCell<BTreeMap<usize, u32>>,
    lives: RefCell<BTreeMap<u16, Weak<One>>>,
    is_prepared: Cell<bool>,
    /// Machines whose present life has come to the end of its work.
    done: RefCell<BTreeMap<u16, bool>>,
    is_over: Cell<bool>,
    /// Some disk has not answered for a while.
    hung: Cell<bool>,
    /// The end: replicas are where this says, in these engines.
    end: RefCell<Option<(View, Vec<Rc<Engine<Any>>>)>>,
}

impl Storm {
    pub fn new<W: Work>(world: Rc<World>, work: &W) -> Storm {
        let sizes = work.sizes(&world);
        let machines = world.machines as u16;
        let replication = machines.min(2 + (world.seed % 2) as u16) as u8;
        let cluster = Cluster {
            lease_ns: 60_000_000,
            sync_ns: 8_000_000,
            resend_ns: 6_000_000,
            first_machines: machines.min(3),
            region_bytes: 8 * sizes.region_words,
            slab_bytes: 8 * sizes.slab_words,
            is_durable: world.is_durable,
            has_backups_on_disk: world.is_on_disk,
            ..Cluster::new(Uid(9), machines, REGIONS, replication)
        };
        let host = |machine: u16| match world.is_one_host {
            true => 0,
            false => usize::from(machine) * 3 / usize::from(machines),
        };
        Storm {
            hosts: (0..machines).map(host).collect(),
            world,
            register: Reach::default(),
            cluster,
            jumps: RefCell::default(),
            lives: RefCell::default(),
            is_prepared: Cell::new(false),
            done: RefCell::default(),
            is_over: Cell::new(false),
            hung: Cell::new(false),
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

    /// What a process knows of the cluster when it begins: what the register has, or what it knew in a former life.
    fn some_record(&self, newest: Record) -> Record {
        let old = self.register.any().filter(|_| random::chance(0.3));
        match old {
            Some(old) if old.revision < newest.revision => {
                self.world.count("begun with an old record");
                old
            }
            _ => newest,
        }
    }

    /// How often the clock of a machine's host has jumped.
    fn jumps(&self, machine: u16) -> u32 {
        let host = &self.hosts[usize::from(machine)];
        self.jumps.borrow().get(host).copied().unwrap_or(0)
    }

    fn on_host(&self, host: usize) -> Vec<u16> {
        let machines = 0..self.world.machines as u16;
        machines
            .filter(|machine| self.hosts[usize::from(*machine)] == host)
            .collect()
    }

    /// Whether the cluster survives that: somebody who knows the time, and a whole replica of every region, live on.
    fn may_kill(&self, machines: &[u16]) -> bool {
        if self.cluster.is_durable {
            return true;
        }
        let Some(record) = self.register.held() else {
            return false;
        };
        let lives = |seat: &&plinth_farm_member::Seat| {
            let node = self.node(seat.machine);
            let is_killed = machines.contains(&seat.machine);
            !is_killed && node.is_some_and(|node| node.member().id() == seat.id)
        };
        let living: Vec<u16> = record
            .machines
            .iter()
            .filter(lives)
            .map(|s| s.machine)
            .collect();
        let knows = |machine: &u16| {
            let node = self.node(*machine);
            // Not of this process, whose clock is another one.
            node.is_some_and(|node| node.member().clock().look(|server| server.knows_time()))
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
        self.world.hangs(format!("{what}: {why}"));
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

    fn count_end(&self) {
        let number = self.register.held().map_or(0, |record| record.number());
        let is_lost = u64::from(self.is_lost());
        let mut aborts = self.world.aborts.borrow_mut();
        aborts.insert("configurations".to_owned(), number);
        aborts.insert("lost".to_owned(), is_lost);
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

/// Runs the work on machines that fail, as the seed chooses. The tester of a simulation calls it.
pub async fn run<W: Work>(storm: &Rc<Storm>, limits: &Limits, work: &Rc<W>) -> Result<(), Wrong> {
    let count = storm.hosts.iter().max().map_or(1, |most| most + 1);
    let hosts: Vec<MachineId> = (0..count)
        .map(|_| control().add_machine(Locality::default()))
        .collect();
    let mut processes = Vec::new();
    for machine in 0..storm.world.machines as u16 {
        let (storm_of, work) = (storm.clone(), work.clone());
        let live = move || Box::pin(machine::live(storm_of.clone(), work.clone(), machine)) as _;
        let host = hosts[storm.hosts[usize::from(machine)]];
        let address = plinth_farm_engine::testing::machines::address(machine);
        processes.push(control().start_process(host, address, live));
    }
    let fleet = Fleet {
        storm: storm.clone(),
        hosts,
        processes,
    };
    fleet.blow(limits).await;
    storm.count_end();
    storm.world.verdict()
}
