//! The simulated cluster: its shape, its machines, and the workers on them.

use crate::last_moment::LastMoments;
use crate::missing::Lost;
use crate::scenario::Scenario;
use plinth_client::Database;
use plinth_coordination::{ClusterFile, Coordinators, election, key_file};
use plinth_core::config::FaultDomain;
use plinth_core::{DatabaseConfig, EngineKind};
use plinth_identity::Identity;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_protocol::control::{ClusterInfo, CreateDatabase, GetClusterInfo, ProcessClass};
use plinth_rpc::{Credentials, Place, Transport};
use plinth_runtime::metric::page::Page;
use plinth_runtime::sim::{Draw, Locality, MachineId, Simulation};
use plinth_runtime::{Duration, disk};
use plinth_server::{NotCreated, WorkerConfig, create_database_as, run_worker};
use plinth_workload::{Application, Workload};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Everything about a cluster that the seed decides.
#[derive(Clone, Debug)]
pub struct Shape {
    pub seed: u64,
    pub machines: usize,
    /// Number of racks: machines that lose power together. Replicas never share a rack.
    pub racks: usize,
    pub halls: usize,
    pub processes_a_machine: usize,
    pub coordinators: usize,
    pub config: DatabaseConfig,
    /// All processes and clients have keys. Strangers do not.
    pub is_keyed: bool,
    /// Clients may do nothing without a token.
    pub has_tokens: bool,
    /// Log servers, storage servers and the rest are on machines of their own.
    pub is_apart: bool,
    /// Coordinators have names.
    pub is_named: bool,
    pub sets: CoordinatorSets,
    pub lost: Lost,
    pub last_moments: LastMoments,
    pub application: Option<&'static Application>,
    /// What the processes say of themselves, if they are asked.
    pub pages: Option<Pages>,
}

/// The page of each process, by its address.
#[derive(Clone, Debug, Default)]
pub struct Pages(Rc<RefCell<BTreeMap<SocketAddr, Page>>>);

impl Pages {
    pub fn of(&self, address: SocketAddr) -> Page {
        self.0.borrow_mut().entry(address).or_default().clone()
    }

    pub fn all(&self) -> Vec<Page> {
        self.0.borrow().values().cloned().collect()
    }
}

/// Every set of coordinators that existed or was requested. A process may know any of them.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorSets(Rc<RefCell<Vec<Vec<SocketAddr>>>>);

impl CoordinatorSets {
    pub fn add(&self, set: Vec<SocketAddr>) {
        self.0.borrow_mut().push(set);
    }

    /// True if every set still has a majority without the addresses for which `gone` is true.
    pub fn can_do_without(&self, gone: impl Fn(&SocketAddr) -> bool) -> bool {
        self.0.borrow().iter().all(|set| {
            let left = set.iter().filter(|address| !gone(address)).count();
            2 * left > set.len()
        })
    }
}

/// Index of a machine. The simulator numbers machines from 1; the tester's machine is 0.
pub fn index_of(machine: MachineId) -> usize {
    (machine.0 as usize).saturating_sub(1)
}

/// The machine with this index.
fn id_of(index: usize) -> MachineId {
    MachineId(index as u32 + 1)
}

/// The name of a machine, in clusters that have names.
pub fn host(machine: MachineId) -> String {
    format!("m{}.sim", machine.0)
}

/// Cache of each storage engine in bytes; small, so that reads reach the disk.
const CACHE_BYTES: usize = 1 << 20;
/// Machines without log and storage servers, if these are on machines of their own.
const STATELESS: usize = 3;
/// A worker that ended with an error is restarted after this time, as by a supervisor.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Between attempts to write the key file.
const KEYS_PAUSE: Duration = Duration::from_millis(100);

impl Shape {
    pub fn draw(scenario: &Scenario, seed: u64, application: Option<&'static Application>) -> Self {
        let mut draw = Draw::new(seed, 3);
        let mut machines = draw.between(*scenario.machines.start(), *scenario.machines.end());
        if machines < scenario.machines_max && draw.below(10) == 0 {
            machines = draw.between(machines, scenario.machines_max);
        }
        // About half of the clusters have one rack per machine.
        let racks = draw.between(machines.div_ceil(3), (machines * 2).min(machines + 4));
        let mut racks = racks.min(machines);
        if scenario.can_do_without_one {
            racks = machines;
        }
        let halls = draw.between(1, racks.min(5));
        let by_halls = halls >= 3 && draw.below(2) == 0 && !scenario.can_do_without_one;
        let replication = if by_halls {
            3
        } else if scenario.can_do_without_one {
            draw.between(2, 3.min(racks - 1))
        } else {
            draw.between(1, racks.min(3))
        };
        let coordinators_min = if scenario.can_do_without_one || scenario.named {
            3
        } else {
            1
        };
        let coordinators = draw.between(coordinators_min, machines.min(9));
        let processes_max = [4, 4, 4, 3, 2, 2, 2, 2, 2, 2].get(machines - 1);
        let engine = [EngineKind::Ssd, EngineKind::Memory][draw.between(0, 1)];
        // Applications come without keys.
        let is_keyed = application.is_none() && !seed.is_multiple_of(3);
        let shape = Shape {
            seed,
            is_keyed,
            has_tokens: is_keyed && seed % 4 == 1,
            machines,
            racks,
            halls,
            processes_a_machine: draw.between(1, *processes_max.unwrap_or(&1)),
            coordinators,
            config: DatabaseConfig {
                replication: replication as u32,
                domain: if by_halls {
                    FaultDomain::DataHall
                } else {
                    FaultDomain::Zone
                },
                engine,
                commit_proxies: draw.between(1, 3) as u32,
                grv_proxies: draw.between(1, 2) as u32,
                resolvers: draw.between(scenario.resolvers_min as usize, 3) as u32,
                logs: draw.between(replication, if by_halls { halls } else { racks.min(8) }) as u32,
            },
            is_apart: scenario.replicas_lag,
            is_named: scenario.named,
            sets: CoordinatorSets::default(),
            lost: Lost::default(),
            last_moments: LastMoments::default(),
            application,
            pages: scenario.asks_who_is_ready.then(Pages::default),
        };
        match shape.is_apart {
            true => shape.apart(),
            false => shape,
        }
    }

    /// So that a storage server can be cut off from all log servers, and from nobody else: three machines for
    /// coordinators and what needs no disk, one for each log server, and at least one more than there are copies for
    /// storage servers. Roles without a disk are so few that none is on a machine that is cut off.
    fn apart(mut self) -> Self {
        let copies_max = if self.machines >= 10 { 3 } else { 2 };
        let copies = self.config.replication.min(copies_max);
        self.config = DatabaseConfig {
            replication: copies,
            logs: copies,
            commit_proxies: 1,
            grv_proxies: 1,
            resolvers: 1,
            ..self.config
        };
        self.coordinators = STATELESS;
        self.processes_a_machine = 1;
        self
    }

    pub fn is_for_logs(&self, machine: usize) -> bool {
        self.class(machine) == ProcessClass::Log
    }

    pub fn is_for_storage(&self, machine: usize) -> bool {
        self.class(machine) == ProcessClass::Storage
    }

    fn class(&self, machine: usize) -> ProcessClass {
        match machine {
            _ if !self.is_apart => ProcessClass::Unset,
            machine if machine < STATELESS => ProcessClass::Stateless,
            machine if machine < STATELESS + self.config.logs as usize => ProcessClass::Log,
            _ => ProcessClass::Storage,
        }
    }

    pub fn rack(&self, machine: usize) -> usize {
        machine % self.racks
    }

    /// The fault domain of a machine; replicas never share one.
    pub fn domain(&self, machine: usize) -> usize {
        match self.config.domain {
            FaultDomain::Zone => self.rack(machine),
            FaultDomain::DataHall => self.rack(machine) % self.halls,
        }
    }

    /// Limits the number of machines, and of processes on each.
    pub fn shrink(&mut self, machines: Option<usize>, processes: Option<usize>) {
        if self.is_apart {
            return; // each has its part
        }
        self.machines = self.machines.min(machines.unwrap_or(usize::MAX)).max(1);
        self.racks = self.racks.min(self.machines);
        self.halls = self.halls.min(self.racks);
        self.coordinators = self.coordinators.min(self.machines);
        let processes = processes.unwrap_or(usize::MAX).max(1);
        self.processes_a_machine = self.processes_a_machine.min(processes);
        let config = &mut self.config;
        if self.halls < 3 {
            config.domain = FaultDomain::Zone;
        }
        config.replication = config.replication.min(self.racks as u32);
        config.logs = config.logs.clamp(config.replication, self.racks as u32);
    }

    pub(crate) fn address(machine: usize, process: usize) -> SocketAddr {
        let [high, low] = (machine as u16 + 1).to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 4500 + process as u16))
    }

    /// What others know a process by.
    fn place(&self, machine: usize, process: usize) -> Place {
        let address = Self::address(machine, process);
        match self.is_named {
            true => Place::Named(host(id_of(machine)).into(), address.port()),
            false => address.into(),
        }
    }

    /// The machines that have coordinators.
    pub fn coordinating_machines(&self) -> Vec<MachineId> {
        (0..self.coordinators).map(id_of).collect()
    }

    /// Data directory of the process at this address, on its machine.
    pub fn data_directory(&self, address: SocketAddr) -> PathBuf {
        format!("/data{}", address.port() - 4500).into()
    }

    pub fn cluster_file(&self) -> ClusterFile {
        let place = |machine| self.place(machine, 0);
        let coordinators = (0..self.coordinators).map(place).collect();
        ClusterFile::new("sim", &format!("s{}", self.seed), coordinators)
    }

    fn keys(&self) -> KeyFile {
        let mut root = [0; 32];
        root[..8].copy_from_slice(&self.seed.to_le_bytes());
        KeyFile::new_root(root)
    }

    /// What somebody of the cluster shows.
    pub fn credentials(&self, identity: Identity) -> Credentials {
        let keys = self.is_keyed.then(|| Keyring::new(&self.keys()));
        Credentials::new(keys, identity)
    }

    /// Connections of a tester, who may ask for anything.
    pub fn transport(&self) -> Transport {
        Transport::client_with(self.credentials(Identity::Server))
    }

    /// The database, as an operator who does not know of later coordinators.
    pub fn connect(&self) -> Database {
        plinth_client::connect_with(self.credentials(Identity::Operator), self.coordinators())
    }

    /// What somebody shows who has no more than the key of this identity.
    pub fn holder(&self, identity: Identity) -> Credentials {
        let lower = || self.keys().for_identity(identity);
        let keys = self
            .is_keyed
            .then(|| lower().expect("servers have all lower keys"));
        Credentials::new(keys.as_ref().map(Keyring::new), identity)
    }

    /// The first coordinators, as known to a process that has not heard of later ones.
    pub fn coordinators(&self) -> Coordinators {
        self.cluster_file().into()
    }

    fn worker(&self, machine: usize, process: usize) -> WorkerConfig {
        let address = Self::address(machine, process);
        let everywhere = SocketAddr::from(([0; 4], address.port()));
        let listen = if self.is_named { everywhere } else { address };
        WorkerConfig {
            public: self.is_named.then(|| self.place(machine, process)),
            cluster_file: Some(format!("/data{process}/plinth.cluster").into()),
            is_keyed: self.is_keyed,
            machine: format!("m{machine}"),
            zone: format!("r{}", self.rack(machine)),
            data_hall: format!("h{}", self.rack(machine) % self.halls),
            cache_bytes: CACHE_BYTES,
            class: self.class(machine),
            metrics: self.pages.as_ref().map(|pages| pages.of(address)),
            ..WorkerConfig::new(listen, self.data_directory(address), self.cluster_file())
        }
    }
}

/// The database, as those who work there connect to it. Without keys it is one connection.
#[derive(Clone)]
pub struct Databases {
    pub of_operators: Database,
    of_clients: Database,
    has_tokens: bool,
}

impl Databases {
    pub async fn open(shape: &Shape) -> Databases {
        let of_operators = open(shape).await;
        let of_clients = match shape.is_keyed {
            true => {
                let credentials = shape.holder(Identity::Client);
                plinth_client::connect_with(credentials, shape.coordinators())
            }
            false => of_operators.clone(),
        };
        Databases {
            of_operators,
            of_clients,
            has_tokens: shape.has_tokens,
        }
    }

    pub fn of(&self, workload: &dyn Workload) -> Database {
        let is_operators = match self.has_tokens {
            true => !workload.shows_tokens(),
            false => workload.is_operators(),
        };
        match is_operators {
            true => self.of_operators.clone(),
            false => self.of_clients.clone(),
        }
    }
}

/// Starts the machines with their workers. Returns the machines.
pub fn start(simulation: &Simulation, shape: &Shape) -> Vec<MachineId> {
    shape.sets.add(shape.cluster_file().addresses());
    let mut machines = Vec::new();
    for machine in 0..shape.machines {
        let id = simulation.add_machine(Locality::default());
        machines.push(id);
        if shape.is_named {
            simulation.name(&host(id), Some(Shape::address(machine, 0).ip()));
        }
        for process in 0..shape.processes_a_machine {
            let config = shape.worker(machine, process);
            let keys = shape.is_keyed.then(|| shape.keys());
            simulation.start_process(id, Shape::address(machine, process), move || {
                let (mut config, keys) = (config.clone(), keys.clone());
                Box::pin(async move {
                    loop {
                        if let Some(keys) = &keys {
                            write_keys(&config, keys).await;
                        }
                        follow_cluster_file(&mut config).await;
                        let Err(error) = run_worker(config.clone()).await;
                        plinth_runtime::trace_warn!("WorkerEnded", "error" => error);
                        plinth_runtime::sleep(RESTART_PAUSE).await;
                    }
                })
            });
        }
    }
    machines
}

/// Writes the key file if it is not there. The disk may fail for a while.
async fn write_keys(config: &WorkerConfig, keys: &KeyFile) {
    let path = key_file::beside(config.cluster_file.as_ref().expect("it has one"));
    while key_file::load(&path).await.ok().flatten().is_none() {
        let text = keys.print().as_bytes().to_vec();
        let _ = disk::create_dir_all(path.parent().expect("it is in a directory")).await;
        let _ = disk::write_file_durably(&path, text.into()).await; // it is tried again
        plinth_runtime::sleep(KEYS_PAUSE).await;
    }
}

/// Updates the configuration with the coordinators that the worker knew last.
async fn follow_cluster_file(config: &mut WorkerConfig) {
    let path = config.cluster_file.as_ref().expect("it has one");
    if let Ok(file) = ClusterFile::read(path).await {
        config.cluster = file;
    }
}

/// The cluster information that the controller sends to workers; `None` without an answer.
pub async fn info(shape: &Shape, transport: &Transport) -> Option<ClusterInfo> {
    let asked = GetClusterInfo { known: 0 };
    election::ask_controller(transport, &shape.coordinators(), asked).await
}

/// Creates the database and connects to it.
pub async fn open(shape: &Shape) -> Database {
    let transport = shape.transport();
    let mut force = false;
    loop {
        let config = shape.config;
        let request = CreateDatabase { config, force };
        match create_database_as(&transport, &shape.coordinators(), request).await {
            // The database exists already if the reply to an earlier attempt was lost.
            Ok(()) | Err(NotCreated::Exists) => return shape.connect(),
            // A coordinator is ill already: it has no data, since there never was any.
            Err(NotCreated::Because(_)) if !force => force = true,
            Err(NotCreated::Because(line)) => panic!("the database could not be created: {line}"),
        }
    }
}
