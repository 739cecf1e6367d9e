//! Scenarios: the kinds of cluster, faults and workloads that a run draws from. Data, not code.

use crate::faults::FaultMix;
use plinth_runtime::sim::worlds::{Limits, OwnWorld, own_worlds};
use plinth_runtime::sim::{Draw, SimConfig};
use plinth_workload::{Application, applications};
use std::ops::RangeInclusive;

/// Port of an application's processes. The processes of the database have lower ports.
pub const APPLICATION_PORT: u16 = 5000;

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
    /// Instead of workloads, several copies are damaged at once, and what some of them can read must be read.
    pub damage_copies: bool,
    /// Transactions of nearly the maximum size, instead of the other workloads.
    pub at_limits: bool,
    /// Instead of workloads, a little work and then this many idle hours, after which no list may have grown.
    pub idle_hours: u64,
    /// Instead of workloads, processes are asked whether they are ready, under faults of the check's own.
    pub asks_who_is_ready: bool,
    /// Instead of workloads, storage servers are cut off from the logs or set back, and what status says of copies is
    /// tried out. Log servers, storage servers and the rest are on machines of their own.
    pub replicas_lag: bool,
    /// After the checks, status is taken at its word so many times.
    pub looks: u32,
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

const STANDARD: Scenario = Scenario {
    name: "standard",
    about: "everything: any shape, every fault, random knobs and buggify",
    machines: 1..=7,
    machines_max: 30,
    fault_seconds: 60,
    fault_interval_ms: 4000,
    mix: FaultMix::ALL,
    swarm: true,
    hostile: true,
    resolvers_min: 1,
    can_do_without_one: false,
    lose_data: false,
    damage_copies: false,
    at_limits: false,
    idle_hours: 0,
    asks_who_is_ready: false,
    replicas_lag: false,
    looks: 0,
    siege: false,
    exchange_coordinators: false,
    named: false,
    first_shards: 0,
    services: Services::None,
    think_ms: 50..=800,
};

/// Names of all kinds of fault.
pub fn fault_kinds() -> Vec<String> {
    let mut all = FaultMix::ALL.kinds();
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
        mix: FaultMix::NONE,
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
            ..FaultMix::NONE
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
        mix: FaultMix::NONE,
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
        mix: FaultMix::NONE,
        lose_data: true,
        ..STANDARD
    },
    Scenario {
        name: "damage",
        about: "several copies are damaged at once: what one of them can read is read, and made whole",
        machines: 3..=5,
        machines_max: 5,
        fault_interval_ms: 0,
        mix: FaultMix::NONE,
        hostile: false,
        can_do_without_one: true,
        damage_copies: true,
        ..STANDARD
    },
    Scenario {
        name: "ready",
        about: "processes are ready exactly while commits go through",
        machines: 1..=5,
        machines_max: 5,
        fault_seconds: 180,
        fault_interval_ms: 0,
        mix: FaultMix::NONE,
        swarm: false,
        hostile: false,
        asks_who_is_ready: true,
        ..STANDARD
    },
    Scenario {
        name: "stale",
        about: "storage servers do not advance, or are set back: status counts what could be read",
        machines: 8..=10,
        machines_max: 10,
        fault_seconds: 300,
        fault_interval_ms: 0,
        mix: FaultMix::NONE,
        swarm: false,
        hostile: false,
        can_do_without_one: true,
        replicas_lag: true,
        ..STANDARD
    },
    Scenario {
        name: "words",
        about: "what status says may fail fails at once, in clusters of every shape: the database goes on",
        machines: 2..=7,
        machines_max: 9,
        fault_seconds: 10,
        fault_interval_ms: 2500,
        looks: 6,
        ..STANDARD
    },
    Scenario {
        name: "idle",
        about: "hours without work: every queue and list ends as short as it began",
        machines: 1..=2,
        machines_max: 2,
        fault_interval_ms: 0,
        mix: FaultMix::NONE,
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
