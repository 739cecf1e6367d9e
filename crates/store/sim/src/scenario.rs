//! Scenarios: the kinds of cluster, faults and workloads that a run draws from. Data, not code.

use plinth_runtime::sim::worlds::{Limits, OwnWorld, own_worlds};
use plinth_runtime::sim::{Draw, SimConfig};
use plinth_workload::{Application, applications};
use std::ops::RangeInclusive;

/// Port of an application's processes. The processes of the database have lower ports.
pub const APPLICATION_PORT: u16 = 5000;

/// Weights of the kinds of fault: how often each strikes, relative to the others.
#[derive(Clone, Copy, Debug)]
pub struct FaultMix {
    pub kill_process: u32,
    pub power_cut: u32,
    pub power_cut_all: u32,
    pub partition: u32,
    pub clog: u32,
    pub cut_connections: u32,
    pub pause_process: u32,
    /// A long turn of its event loop: the process lives, but sends nothing.
    pub busy_process: u32,
    pub disk_full: u32,
    pub slow_disk: u32,
    pub kill_role: u32,
    pub clock_drift: u32,
    /// A wall clock jumps by days. At the start, too, each is set wrong by a random time, or right.
    pub wall_clock: u32,
    /// A machine stops for a while with all its processes; its clocks have jumped when it continues.
    pub suspend: u32,
    /// All machines of a rack lose power at once.
    pub power_cut_rack: u32,
    /// Machines are cut off one after the other, and reconnected in another order (FDB §4).
    pub swizzle: u32,
    /// A machine is lost for good with its disk; only where that loses no data.
    pub lose_machine: u32,
    /// Bits flip in files of a machine's storage and log servers; only where the whole machine could be lost.
    pub bit_rot: u32,
    /// For a while some reads, writes and syncs of a disk fail.
    pub disk_errors: u32,
    /// For a while nothing can be written to a disk.
    pub read_only_disk: u32,
    /// For a while the syncs of a disk, or all its operations, do not return.
    pub hung_disk: u32,
    /// One of the three disk faults above for good, without healing at the end; only where the whole machine could
    /// be lost.
    pub sick_disk: u32,
    /// For a while the syncs of a disk make nothing durable; then its machine loses power. Like the next two, only
    /// where the whole machine could be lost.
    pub lying_sync: u32,
    /// A write is lost but reported as done; then its machine loses power.
    pub lost_write: u32,
    /// A write lands at another place but is reported as done; then its machine loses power.
    pub misdirected_write: u32,
}

/// What a scenario draws a [`Service`] from.
#[derive(Clone, Copy, Debug)]
pub enum Services {
    None,
    /// All that are linked. A run's command names the one it has drawn.
    Any,
    Only(&'static OwnWorld),
}

/// What a run has besides the store.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// It runs on the machines of the store, and its workloads beside some of the store's.
    Application(&'static Application),
    /// It stands alone, on machines of its own.
    Own(&'static OwnWorld),
}

impl Service {
    pub fn name(&self) -> &'static str {
        match self {
            Service::Application(of) => of.name,
            Service::Own(world) => world.name,
        }
    }

    pub fn workloads(&self) -> Vec<&'static str> {
        match self {
            Service::Application(of) => of.workloads.iter().map(|kind| kind.name).collect(),
            Service::Own(world) => (world.workloads)(),
        }
    }
}

/// All services that are linked into this program, in the order in which seeds draw them.
pub fn services() -> Vec<Service> {
    let on_store = applications().into_iter().map(Service::Application);
    on_store
        .chain(own_worlds().into_iter().map(Service::Own))
        .collect()
}

/// A kind of run. A scenario is entirely defined by its entry in the table below.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub machines: RangeInclusive<usize>,
    /// In one of ten runs the number of machines is drawn up to this limit.
    pub machines_max: usize,
    /// Simulated seconds with faults.
    pub fault_seconds: u64,
    /// Mean simulated milliseconds between two faults; 0: no faults.
    pub fault_interval_ms: u64,
    pub mix: FaultMix,
    /// Each run leaves out some kinds of fault, so that the effects of the others show alone.
    pub swarm: bool,
    /// Random knobs, buggify, bit flips and connection cuts on the wire, and strangers.
    pub hostile: bool,
    /// Minimum number of resolvers.
    pub resolvers_min: u32,
    /// The cluster has replicas, and enough fault domains for all of them when one machine is gone.
    pub can_do_without_one: bool,
    /// Instead of workloads, all replicas of a shard are lost, and no read may return wrong data.
    pub lose_data: bool,
    /// Transactions of nearly the maximum size, instead of the other workloads.
    pub at_limits: bool,
    /// Instead of workloads, a little work and then this many idle hours, after which no list may have grown.
    pub idle_hours: u64,
    /// Strangers also send harmful requests. No process may end because of them; the data may be lost.
    pub siege: bool,
    /// Coordinators change all the time, and some lose their registers meanwhile.
    pub exchange_coordinators: bool,
    /// Coordinators have names, and machines change their addresses.
    pub named: bool,
    /// Number of shards at the start; 0: a few, or as many as the knobs say.
    pub first_shards: usize,
    /// What runs beside the store, or instead of it.
    pub services: Services,
    /// Milliseconds that a client pauses between two transactions.
    pub think_ms: RangeInclusive<u64>,
}

const ALL: FaultMix = FaultMix {
    kill_process: 6,
    power_cut: 5,
    power_cut_all: 2,
    partition: 4,
    clog: 4,
    cut_connections: 4,
    pause_process: 2,
    busy_process: 2,
    disk_full: 2,
    slow_disk: 2,
    kill_role: 5,
    clock_drift: 1,
    wall_clock: 1,
    suspend: 1,
    power_cut_rack: 2,
    swizzle: 2,
    lose_machine: 2,
    bit_rot: 2,
    disk_errors: 2,
    read_only_disk: 1,
    hung_disk: 2,
    sick_disk: 2,
    lying_sync: 1,
    lost_write: 1,
    misdirected_write: 1,
};

const NONE: FaultMix = FaultMix {
    kill_process: 0,
    power_cut: 0,
    power_cut_all: 0,
    partition: 0,
    clog: 0,
    cut_connections: 0,
    pause_process: 0,
    busy_process: 0,
    disk_full: 0,
    slow_disk: 0,
    kill_role: 0,
    clock_drift: 0,
    wall_clock: 0,
    suspend: 0,
    power_cut_rack: 0,
    swizzle: 0,
    lose_machine: 0,
    bit_rot: 0,
    disk_errors: 0,
    read_only_disk: 0,
    hung_disk: 0,
    sick_disk: 0,
    lying_sync: 0,
    lost_write: 0,
    misdirected_write: 0,
};

const STANDARD: Scenario = Scenario {
    name: "standard",
    about: "everything: any shape, every fault, random knobs and buggify",
    machines: 1..=7,
    machines_max: 30,
    fault_seconds: 60,
    fault_interval_ms: 4000,
    mix: ALL,
    swarm: true,
    hostile: true,
    resolvers_min: 1,
    can_do_without_one: false,
    lose_data: false,
    at_limits: false,
    idle_hours: 0,
    siege: false,
    exchange_coordinators: false,
    named: false,
    first_shards: 0,
    services: Services::None,
    think_ms: 50..=800,
};

/// Names of all kinds of fault.
pub fn fault_kinds() -> Vec<String> {
    let mut all = ALL.kinds();
    for kind in own_worlds().into_iter().flat_map(|world| (world.faults)()) {
        if !all.iter().any(|known| known == kind) {
            all.push(kind.to_owned());
        }
    }
    all
}

/// The scenarios of the store; the first is the default.
const SCENARIOS: &[Scenario] = &[
    STANDARD,
    Scenario {
        name: "fast",
        about: "standard, but a short one",
        machines: 1..=4,
        machines_max: 4,
        fault_seconds: 15,
        fault_interval_ms: 2500,
        ..STANDARD
    },
    Scenario {
        name: "quiet",
        about: "no faults at all: the workloads alone, and at speed",
        machines: 1..=5,
        machines_max: 5,
        fault_seconds: 20,
        fault_interval_ms: 0,
        mix: NONE,
        hostile: false,
        think_ms: 1..=50,
        ..STANDARD
    },
    Scenario {
        name: "power",
        about: "machines lose power again and again, at times all at once",
        machines: 1..=5,
        machines_max: 5,
        fault_interval_ms: 2500,
        mix: FaultMix {
            power_cut: 6,
            power_cut_all: 3,
            power_cut_rack: 2,
            kill_process: 2,
            disk_full: 1,
            ..NONE
        },
        swarm: false,
        ..STANDARD
    },
    Scenario {
        name: "network",
        about: "partitions, clogs, cut connections",
        machines: 3..=7,
        fault_interval_ms: 2500,
        mix: FaultMix {
            partition: 5,
            clog: 4,
            cut_connections: 4,
            swizzle: 2,
            kill_role: 1,
            pause_process: 1,
            busy_process: 1,
            ..NONE
        },
        swarm: false,
        ..STANDARD
    },
    Scenario {
        name: "attrition",
        about: "processes and machines die all the time",
        machines: 2..=7,
        fault_interval_ms: 1500,
        mix: FaultMix {
            kill_process: 6,
            power_cut: 3,
            kill_role: 2,
            power_cut_rack: 1,
            lose_machine: 2,
            bit_rot: 2,
            ..NONE
        },
        swarm: false,
        ..STANDARD
    },
    Scenario {
        name: "disks",
        about: "disks fail, hang, fill up, rot, and one of them stays sick",
        machines: 3..=7,
        fault_interval_ms: 2500,
        mix: FaultMix {
            disk_errors: 3,
            read_only_disk: 2,
            hung_disk: 3,
            sick_disk: 3,
            disk_full: 1,
            slow_disk: 1,
            bit_rot: 1,
            kill_process: 1,
            power_cut: 2,
            lying_sync: 2,
            lost_write: 1,
            misdirected_write: 1,
            ..NONE
        },
        swarm: false,
        ..STANDARD
    },
    Scenario {
        name: "lies",
        about: "disks lose what they said was durable, lose writes, or write them elsewhere",
        machines: 3..=6,
        machines_max: 6,
        fault_seconds: 45,
        fault_interval_ms: 2000,
        mix: FaultMix {
            lying_sync: 4,
            lost_write: 3,
            misdirected_write: 3,
            kill_process: 1,
            ..NONE
        },
        swarm: false,
        can_do_without_one: true,
        think_ms: 1..=100,
        ..STANDARD
    },
    Scenario {
        name: "recovery",
        about: "one recovery after the other, under load, several resolvers",
        machines: 3..=6,
        machines_max: 6,
        fault_interval_ms: 1500,
        mix: FaultMix {
            kill_role: 8,
            kill_process: 3,
            power_cut: 2,
            partition: 3,
            power_cut_all: 1,
            ..NONE
        },
        swarm: false,
        resolvers_min: 2,
        think_ms: 1..=60,
        ..STANDARD
    },
    Scenario {
        name: "coordinators",
        about: "coordinators are exchanged all the time, and lose their registers meanwhile",
        machines: 3..=6,
        machines_max: 6,
        fault_seconds: 40,
        fault_interval_ms: 3000,
        mix: FaultMix {
            kill_process: 4,
            power_cut: 2,
            partition: 1,
            ..NONE
        },
        swarm: false,
        exchange_coordinators: true,
        ..STANDARD
    },
    Scenario {
        name: "names",
        about: "coordinators have names, which lag behind machines that come back at other addresses",
        machines: 4..=6,
        machines_max: 6,
        fault_seconds: 60,
        fault_interval_ms: 6000,
        mix: FaultMix {
            kill_process: 3,
            power_cut: 1,
            cut_connections: 1,
            ..NONE
        },
        swarm: false,
        named: true,
        ..STANDARD
    },
    Scenario {
        name: "limits",
        about: "transactions as large as they may be, many at once, while processes die",
        machines: 1..=3,
        machines_max: 3,
        fault_seconds: 35,
        fault_interval_ms: 6000,
        mix: FaultMix {
            kill_role: 2,
            kill_process: 3,
            pause_process: 2,
            busy_process: 2,
            power_cut_all: 1,
            ..NONE
        },
        swarm: false,
        hostile: false,
        at_limits: true,
        ..STANDARD
    },
    Scenario {
        name: "applications",
        about: "a service on top of the store, under the same faults; or one that stands alone",
        machines: 2..=5,
        machines_max: 5,
        services: Services::Any,
        ..STANDARD
    },
    Scenario {
        name: "wide",
        about: "300 storage servers with 100,000 shards, while processes die",
        machines: 300..=310,
        machines_max: 310,
        fault_seconds: 20,
        fault_interval_ms: 4000,
        mix: FaultMix {
            kill_process: 4,
            power_cut: 2,
            power_cut_rack: 1,
            kill_role: 3,
            partition: 1,
            ..NONE
        },
        swarm: false,
        hostile: false,
        first_shards: 100_000,
        ..STANDARD
    },
    Scenario {
        name: "siege",
        about: "strangers send every request there is, harmful ones too: nobody may end of it",
        machines: 1..=4,
        machines_max: 4,
        fault_seconds: 40,
        fault_interval_ms: 0,
        mix: NONE,
        swarm: false,
        siege: true,
        ..STANDARD
    },
    Scenario {
        name: "loss",
        about: "every replica of a shard goes for good: it must be missed, not forgotten",
        machines: 2..=7,
        machines_max: 7,
        fault_interval_ms: 0,
        mix: NONE,
        lose_data: true,
        ..STANDARD
    },
    Scenario {
        name: "idle",
        about: "hours without work: every queue and list ends as short as it began",
        machines: 1..=2,
        machines_max: 2,
        fault_interval_ms: 0,
        mix: NONE,
        swarm: false,
        hostile: false,
        idle_hours: 1,
        ..STANDARD
    },
];

/// Those that this program can run: what has services is left out where none is linked, and each linked world has one.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = SCENARIOS.to_vec();
    all.retain(|scenario| !scenario.draws_service() || !applications().is_empty());
    all.extend(own_worlds().into_iter().map(|world| Scenario {
        name: world.name,
        about: world.about,
        services: Services::Only(world),
        ..STANDARD
    }));
    all
}

pub fn find(name: &str) -> Option<Scenario> {
    scenarios().into_iter().find(|one| one.name == name)
}

impl Scenario {
    pub fn world(&self, seed: u64) -> SimConfig {
        if !self.hostile {
            return SimConfig::default();
        }
        let mut draw = Draw::new(seed, 1);
        let rate = |n: u64| [0.0, 0.0, 1e-5, 3e-4][n as usize];
        SimConfig {
            bit_flip_probability: rate(draw.below(4)),
            unchecked_port: Some(APPLICATION_PORT),
            connection_cut_probability: rate(draw.below(4)),
            ..SimConfig::hostile()
        }
    }

    /// True if a seed, or [`Limits::service`], decides which service a run has.
    pub fn draws_service(&self) -> bool {
        matches!(self.services, Services::Any)
    }

    /// The service of the run, if the scenario has any: the one of the limits, or one that the seed draws among those
    /// that are linked. If only some workloads are wanted, one that has such. Nothing else in a run depends on what
    /// is linked, so the same seed and service give the same run in every program.
    pub fn draw_service(&self, seed: u64, limits: &Limits) -> Option<Service> {
        match self.services {
            Services::None => return None,
            Services::Only(world) => return Some(Service::Own(world)),
            Services::Any => {}
        }
        let mut all = services();
        if let Some(name) = &limits.service {
            let named = all.into_iter().find(|one| one.name() == name);
            return Some(named.expect("the caller has checked the name"));
        }
        let is_wanted = |one: &Service| one.workloads().into_iter().any(|name| limits.wants(name));
        match all.iter().any(is_wanted) {
            true => all.retain(is_wanted),
            // Only workloads of the store are wanted.
            false => all.retain(|one| matches!(one, Service::Application(_))),
        }
        Some(all[Draw::new(seed, 5).between(0, all.len() - 1)])
    }

    /// The scenario's faults; with `swarm` about half of the kinds.
    pub fn draw_mix(&self, seed: u64) -> FaultMix {
        let mut mix = self.mix;
        if self.swarm {
            let mut draw = Draw::new(seed, 2);
            for (_, weight) in mix.weights_mut() {
                *weight *= draw.below(2) as u32;
            }
            mix.kill_process = mix.kill_process.max(1);
        }
        mix
    }
}

impl FaultMix {
    fn weights_mut(&mut self) -> [(&'static str, &mut u32); 25] {
        [
            ("kill_process", &mut self.kill_process),
            ("power_cut", &mut self.power_cut),
            ("power_cut_all", &mut self.power_cut_all),
            ("partition", &mut self.partition),
            ("clog", &mut self.clog),
            ("cut_connections", &mut self.cut_connections),
            ("pause_process", &mut self.pause_process),
            ("busy_process", &mut self.busy_process),
            ("disk_full", &mut self.disk_full),
            ("slow_disk", &mut self.slow_disk),
            ("kill_role", &mut self.kill_role),
            ("clock_drift", &mut self.clock_drift),
            ("wall_clock", &mut self.wall_clock),
            ("suspend", &mut self.suspend),
            ("power_cut_rack", &mut self.power_cut_rack),
            ("swizzle", &mut self.swizzle),
            ("lose_machine", &mut self.lose_machine),
            ("bit_rot", &mut self.bit_rot),
            ("disk_errors", &mut self.disk_errors),
            ("read_only_disk", &mut self.read_only_disk),
            ("hung_disk", &mut self.hung_disk),
            ("sick_disk", &mut self.sick_disk),
            ("lying_sync", &mut self.lying_sync),
            ("lost_write", &mut self.lost_write),
            ("misdirected_write", &mut self.misdirected_write),
        ]
    }

    /// Names of the kinds with a positive weight.
    pub fn kinds(mut self) -> Vec<String> {
        let weights = self.weights_mut().into_iter();
        let strike = weights.filter(|(_, weight)| **weight > 0);
        strike.map(|(name, _)| name.to_owned()).collect()
    }

    pub fn keep_only(&mut self, kinds: &[String]) {
        for (name, weight) in self.weights_mut() {
            if !kinds.iter().any(|kind| kind == name) {
                *weight = 0;
            }
        }
    }

    pub fn leave_out(&mut self, kind: &str) {
        for (name, weight) in self.weights_mut() {
            if name == kind {
                *weight = 0;
            }
        }
    }

    pub fn is_empty(self) -> bool {
        self.kinds().is_empty()
    }
}
