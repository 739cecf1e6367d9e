//! The simulated cluster: its shape, its machines, the workers on them.

use crate::scenario::Scenario;
use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_core::{DatabaseConfig, EngineKind, Error};
use plinth_protocol::control::ProcessClass;
use plinth_rpc::Transport;
use plinth_runtime::Duration;
use plinth_runtime::sim::{Locality, Simulation};
use plinth_server::{WorkerConfig, create_database, run_worker};
use std::net::SocketAddr;

/// Everything that a seed decides about a cluster.
#[derive(Clone, Debug)]
pub struct Shape {
    pub seed: u64,
    pub machines: usize,
    pub processes_a_machine: usize,
    pub coordinators: usize,
    pub config: DatabaseConfig,
}

/// A small generator of its own: the shape is drawn before the simulation's world is entered.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below((high - low + 1) as u64) as usize
    }
}

impl Shape {
    pub fn draw(_: &Simulation, scenario: &Scenario, seed: u64) -> Self {
        let mut draw = Draw(seed ^ 0x5eed);
        let machines = draw.between(*scenario.machines.start(), *scenario.machines.end());
        let replication = draw.between(1, machines.min(3)) as u32;
        let coordinators = [1, 3, 5][draw.between(0, [0, 0, 1, 1, 2][machines.min(5) - 1])];
        let engine = if draw.below(2) == 0 {
            EngineKind::Ssd
        } else {
            EngineKind::Memory
        };
        Shape {
            seed,
            machines,
            processes_a_machine: draw.between(1, 2),
            coordinators,
            config: DatabaseConfig {
                replication,
                engine,
                commit_proxies: draw.between(1, 3) as u32,
                grv_proxies: draw.between(1, 2) as u32,
                resolvers: draw.between(scenario.resolvers_min as usize, 3) as u32,
                logs: draw.between(replication as usize, machines.max(replication as usize)) as u32,
            },
        }
    }

    fn address(machine: usize, process: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, machine as u8 + 1], 4500 + process as u16))
    }

    pub fn cluster_file(&self) -> ClusterFile {
        let coordinators = (0..self.coordinators)
            .map(|machine| Self::address(machine, 0))
            .collect();
        ClusterFile {
            description: "sim".into(),
            id: format!("s{}", self.seed),
            coordinators,
        }
    }
}

pub fn start(simulation: &Simulation, shape: &Shape) {
    for machine in 0..shape.machines {
        let id = simulation.add_machine(Locality::default());
        for process in 0..shape.processes_a_machine {
            let config = WorkerConfig {
                listen: Shape::address(machine, process),
                data_directory: format!("/data{process}").into(),
                cluster: shape.cluster_file(),
                class: ProcessClass::Unset,
                machine: format!("m{machine}"),
                zone: format!("m{machine}"),
                data_center: String::new(),
                cache_bytes: 4 << 20,
            };
            simulation.start_process(id, config.listen, move || {
                let config = config.clone();
                Box::pin(async move {
                    loop {
                        let Err(error) = run_worker(config.clone()).await;
                        plinth_runtime::trace!("WorkerEnded", "error" => error);
                        plinth_runtime::sleep(Duration::from_secs(1)).await;
                    }
                })
            });
        }
    }
}

/// Creates the database and connects to it.
pub async fn open(shape: &Shape) -> Database {
    let transport = Transport::client();
    match create_database(&transport, &shape.cluster_file(), shape.config).await {
        Ok(()) | Err(Error::invalid_option) => {}
        Err(error) => panic!("the database could not be created: {error}"),
    }
    plinth_client::connect(shape.cluster_file())
}
