//! Scenarios: what kind of world a run draws from. Data, not code.

use plinth_runtime::sim::SimConfig;
use std::ops::RangeInclusive;

/// Probabilities that one fault is of this kind; they need not add up to one.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultMix {
    pub kill_process: u32,
    pub power_cut: u32,
    pub power_cut_all: u32,
    pub partition: u32,
    pub clog: u32,
    pub cut_connections: u32,
    pub pause_process: u32,
    pub disk_full: u32,
    pub slow_disk: u32,
    pub kill_role: u32,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub machines: RangeInclusive<usize>,
    /// Simulated seconds of faults.
    pub fault_seconds: u64,
    /// Mean simulated milliseconds between two faults; 0: no faults.
    pub fault_interval_ms: u64,
    pub mix: FaultMix,
    /// Random knobs, buggify, bit flips and cuts on the wire.
    pub hostile: bool,
    /// Resolvers are at least this many.
    pub resolvers_min: u32,
}

const ALL: FaultMix = FaultMix {
    kill_process: 6,
    power_cut: 5,
    power_cut_all: 1,
    partition: 4,
    clog: 4,
    cut_connections: 4,
    pause_process: 2,
    disk_full: 1,
    slow_disk: 2,
    kill_role: 4,
};

const NONE: FaultMix = FaultMix {
    kill_process: 0,
    power_cut: 0,
    power_cut_all: 0,
    partition: 0,
    clog: 0,
    cut_connections: 0,
    pause_process: 0,
    disk_full: 0,
    slow_disk: 0,
    kill_role: 0,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "standard",
        about: "everything: any shape, every fault, random knobs and buggify",
        machines: 1..=7,
        fault_seconds: 60,
        fault_interval_ms: 4000,
        mix: ALL,
        hostile: true,
        resolvers_min: 1,
    },
    Scenario {
        name: "quiet",
        about: "no faults at all: the workloads alone",
        machines: 1..=5,
        fault_seconds: 20,
        fault_interval_ms: 0,
        mix: NONE,
        hostile: false,
        resolvers_min: 1,
    },
    Scenario {
        name: "power",
        about: "machines lose power again and again",
        machines: 1..=5,
        fault_seconds: 60,
        fault_interval_ms: 2500,
        mix: FaultMix {
            power_cut: 6,
            power_cut_all: 2,
            kill_process: 2,
            ..NONE
        },
        hostile: true,
        resolvers_min: 1,
    },
    Scenario {
        name: "network",
        about: "partitions, clogs, cut connections",
        machines: 3..=7,
        fault_seconds: 60,
        fault_interval_ms: 2500,
        mix: FaultMix {
            partition: 5,
            clog: 4,
            cut_connections: 4,
            kill_role: 1,
            ..NONE
        },
        hostile: true,
        resolvers_min: 1,
    },
    Scenario {
        name: "recovery",
        about: "one recovery after the other, several resolvers",
        machines: 3..=6,
        fault_seconds: 60,
        fault_interval_ms: 1500,
        mix: FaultMix {
            kill_role: 8,
            kill_process: 3,
            power_cut: 3,
            partition: 2,
            ..NONE
        },
        hostile: true,
        resolvers_min: 2,
    },
];

pub fn find(name: &str) -> Option<Scenario> {
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .cloned()
}

impl Scenario {
    pub fn world(&self) -> SimConfig {
        if self.hostile {
            SimConfig::hostile()
        } else {
            SimConfig::default()
        }
    }
}
