//! A cluster of simulated servers, each on a machine of its own.

use plinth_client::Database;
use plinth_coordination::{ClusterFile, Coordinators, election};
use plinth_core::{DatabaseConfig, EngineKind};
use plinth_protocol::control::{ChangeCoordinators, CreateDatabase, ProcessClass};
use plinth_protocol::status::GetStatus;
use plinth_rpc::{Place, Transport};
use plinth_runtime::Duration;
use plinth_runtime::sim::{KillKind, Locality, MachineId, ProcessId, Simulation, control};
use plinth_server::{
    NotCreated, WorkerConfig, accept_lost_registers, create_database_as, run_worker,
};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

/// An event that has not happened after this time is taken never to happen.
const LONG: Duration = Duration::from_secs(30);

pub fn address(server: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, server], 4500))
}

/// The host's name of a server that has one.
pub fn host(server: u8) -> String {
    format!("host-{server}")
}

pub fn name(server: u8) -> Place {
    Place::Named(host(server).into(), 4500)
}

/// Servers on machines of their own. A server that ends is started again, unless it is to stay ended.
#[derive(Clone)]
pub struct Cluster {
    pub file: ClusterFile,
    /// Servers have names.
    has_names: bool,
    machines: Rc<RefCell<Vec<(MachineId, ProcessId)>>>,
    /// Classes of the first servers.
    classes: Rc<[ProcessClass]>,
    /// The last lines of servers that ended.
    pub lines: Rc<RefCell<Vec<String>>>,
    pub accepts_loss: Rc<Cell<bool>>,
    /// True: a server that ends stays ended.
    pub stays_ended: Rc<Cell<bool>>,
}

impl Cluster {
    pub fn start(simulation: &Simulation, coordinators: u8, servers: u8) -> Self {
        let addresses: Vec<String> = (1..=coordinators).map(|i| address(i).to_string()).collect();
        Self::start_with(simulation, &addresses.join(","), false, servers)
    }

    /// Servers of these classes.
    pub fn start_classes(
        simulation: &Simulation,
        coordinators: u8,
        classes: &[ProcessClass],
    ) -> Self {
        let addresses: Vec<String> = (1..=coordinators).map(|i| address(i).to_string()).collect();
        let cluster = Self::of(&addresses.join(","), false, classes);
        cluster.add(simulation, classes.len() as u8);
        cluster
    }

    /// Servers that have names, with these coordinators.
    pub fn start_named(simulation: &Simulation, coordinators: &str, servers: u8) -> Self {
        (1..=servers).for_each(|i| simulation.name(&host(i), Some(address(i).ip())));
        Self::start_with(simulation, coordinators, true, servers)
    }

    fn start_with(
        simulation: &Simulation,
        coordinators: &str,
        has_names: bool,
        servers: u8,
    ) -> Self {
        let cluster = Self::of(coordinators, has_names, &[]);
        cluster.add(simulation, servers);
        cluster
    }

    fn of(coordinators: &str, has_names: bool, classes: &[ProcessClass]) -> Self {
        Cluster {
            file: ClusterFile::parse(&format!("a:b@{coordinators}")).expect("valid"),
            has_names,
            machines: Rc::default(),
            lines: Rc::default(),
            accepts_loss: Rc::default(),
            stays_ended: Rc::default(),
            classes: classes.into(),
        }
    }

    fn add(&self, simulation: &Simulation, servers: u8) {
        for server in 1..=servers {
            let machine = simulation.add_machine(Locality::default());
            self.serve(simulation, machine, server);
        }
    }

    pub fn serve(&self, control: &plinth_runtime::sim::Control, machine: MachineId, server: u8) {
        let name = self.has_names.then(|| name(server));
        self.serve_as(control, machine, address(server), name);
    }

    /// A server with this public place. It listens everywhere if it has one.
    pub fn serve_as(
        &self,
        control: &plinth_runtime::sim::Control,
        machine: MachineId,
        address: SocketAddr,
        public: Option<Place>,
    ) {
        let cluster = self.clone();
        let everywhere = SocketAddr::from(([0; 4], 4500));
        let listen = match public {
            Some(_) => everywhere,
            None => address,
        };
        let class = self.classes.get(self.machines.borrow().len());
        let config = WorkerConfig {
            public,
            class: class.copied().unwrap_or(ProcessClass::Unset),
            ..WorkerConfig::new(listen, "/data", self.file.clone())
        };
        let process = control.start_process(machine, address, move || {
            let (cluster, config) = (cluster.clone(), config.clone());
            Box::pin(async move {
                loop {
                    if cluster.accepts_loss.get() {
                        let accepted = accept_lost_registers(Path::new("/data"), "a:b").await;
                        accepted.expect("can be written");
                    }
                    let Err(line) = run_worker(config.clone()).await;
                    cluster.lines.borrow_mut().push(line);
                    if cluster.stays_ended.get() {
                        return;
                    }
                    plinth_runtime::sleep(Duration::from_secs(1)).await;
                }
            })
        });
        self.machines.borrow_mut().push((machine, process));
    }

    pub fn kill(&self, server: usize) {
        control().kill_process(self.machines.borrow()[server - 1].1, KillKind::Kill);
    }

    /// It does nothing for a while, and nobody is told.
    pub fn pause(&self, server: usize, duration: Duration) {
        control().pause_process(self.machines.borrow()[server - 1].1, duration);
    }

    pub fn machine(&self, server: usize) -> MachineId {
        self.machines.borrow()[server - 1].0
    }

    pub fn restart(&self, server: usize) {
        control().restart_process(self.machines.borrow()[server - 1].1);
    }

    pub fn coordinators(&self) -> Coordinators {
        self.file.clone().into()
    }

    pub async fn create(&self, mode: &str) -> Option<Result<(), NotCreated>> {
        self.create_as(mode, false).await
    }

    /// With `force`: although coordinators do not answer. The mode may end with ` memory`, for that engine.
    pub async fn create_as(&self, mode: &str, force: bool) -> Option<Result<(), NotCreated>> {
        let (mode, engine) = match mode.strip_suffix(" memory") {
            Some(mode) => (mode, EngineKind::Memory),
            None => (mode, DatabaseConfig::default().engine),
        };
        let (replication, domain) = DatabaseConfig::parse_mode(mode).expect("a mode");
        let config = DatabaseConfig {
            engine,
            replication,
            domain,
            logs: replication,
            ..DatabaseConfig::default()
        };
        let transport = Transport::client();
        let coordinators = self.coordinators();
        let request = CreateDatabase { config, force };
        let creating = create_database_as(&transport, &coordinators, request);
        plinth_runtime::timeout(LONG, creating).await
    }

    pub async fn create_now(&self, mode: &str) -> Database {
        assert_eq!(self.create(mode).await, Some(Ok(())));
        plinth_client::connect(self.coordinators())
    }

    /// The status document, as soon as it contains `words`; the last one if none does within ten seconds.
    pub async fn status_with(&self, words: &str) -> String {
        let transport = Transport::client();
        let coordinators = self.coordinators();
        let mut said = String::new();
        for _ in 0..100 {
            plinth_runtime::sleep(Duration::from_millis(100)).await;
            let Some(leader) = election::current_leader(&transport, &coordinators).await else {
                continue;
            };
            let endpoint = leader.controller.endpoint::<GetStatus>();
            if let Ok(reply) = transport.call(&endpoint, GetStatus {}).await {
                said = reply.json;
            }
            if said.contains(words) {
                break;
            }
        }
        said
    }
}

/// Asks for a move of the coordinators; the reason of a refusal, or an empty text.
pub async fn move_to(coordinators: &Coordinators, wanted: Vec<Place>) -> String {
    let transport = Transport::client();
    let leader = election::current_leader(&transport, coordinators).await;
    let controller = leader.expect("there is one").controller;
    let request = ChangeCoordinators {
        coordinators: wanted,
    };
    let endpoint = controller.endpoint::<ChangeCoordinators>();
    let changed = transport.call(&endpoint, request).await;
    changed.expect("answers").refusal
}

pub async fn commits(database: &Database, value: &'static str) -> bool {
    let written = database.run(async |tr| {
        tr.set("key", value);
        Ok(())
    });
    plinth_runtime::timeout(LONG, written).await == Some(Ok(()))
}

pub async fn reads(database: &Database) -> Option<String> {
    let read = database.run(async |tr| tr.get("key", false).await);
    let value = plinth_runtime::timeout(LONG, read).await?.expect("reads")?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

pub async fn some_seconds(seconds: u64) {
    plinth_runtime::sleep(Duration::from_secs(seconds)).await;
}
