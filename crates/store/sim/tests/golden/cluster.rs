//! The cluster of every golden trace: fixed machines with one process each, no faults, no buggify, the knobs as they
//! are.
//!
//! ```text
//! m1 m2 m3        coordinators; no role runs there
//! m4              the controller
//! m5 m6 m7 m8     sequencer, commit proxy, GRV proxy, resolver
//! m9 m10          log servers
//! m11 m12         storage servers
//! ```
//!
//! Every record of the log and every shard has two copies. A story may start further processes. Roles go to processes
//! by class, and every class has exactly as many processes as the database wants. Only the order of the four stateless
//! processes is drawn; [`telling`](super::telling) names them by their first roles.

use plinth_client::Database;
use plinth_control::exclusion::Target;
use plinth_control::management;
use plinth_coordination::{ClusterFile, Coordinators, election, places};
use plinth_core::{DatabaseConfig, EngineKind};
use plinth_protocol::control::{
    ChangeCoordinators, ClusterInfo, GetClusterInfo, GetWorkers, ProcessClass, RegisterWorker,
};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{KillKind, Locality, SimConfig, Simulation, control};
use plinth_runtime::{Duration, sleep, trace};
use plinth_server::{WorkerConfig, create_database, run_worker};
use std::net::SocketAddr;

/// Limit of a story in simulated time.
const LIMIT: Duration = Duration::from_secs(300);
/// More events than any story has.
const TRACE_LINES: usize = 100_000;
const LOOK: Duration = Duration::from_millis(100);
const CACHE_BYTES: usize = 1 << 20;

pub fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 4500))
}

fn cluster_file() -> ClusterFile {
    ClusterFile::new("golden", "g", places([1, 2, 3].map(address)))
}

/// Starts a process on the next machine, which must be number `machine`: the simulator's numbers of processes are the
/// numbers of the machines.
pub fn start(machine: u8, class: ProcessClass) {
    let id = control().add_machine(Locality::default());
    assert_eq!(id.0, u32::from(machine), "machines start in order");
    let config = WorkerConfig {
        cluster_file: Some("/data/plinth.cluster".into()),
        class,
        machine: format!("m{machine}"),
        zone: format!("m{machine}"),
        cache_bytes: CACHE_BYTES,
        ..WorkerConfig::new(address(machine), "/data", cluster_file())
    };
    control().start_process(id, address(machine), move || {
        let config = config.clone();
        Box::pin(async move {
            let Err(reason) = run_worker(config).await;
            panic!("the worker of m{machine} ended: {reason}");
        })
    });
}

/// The operator and the client of a story.
pub struct Cluster {
    transport: Transport,
    coordinators: Coordinators,
    pub database: Database,
}

impl Cluster {
    /// Starts the cluster and creates the database.
    async fn open() -> Cluster {
        let coordinators = Coordinators::from(cluster_file());
        let cluster = Cluster {
            transport: Transport::client(),
            database: plinth_client::connect(coordinators.clone()),
            coordinators,
        };
        (1..=3).for_each(|machine| start(machine, ProcessClass::Tester));
        // The only candidate for controller as long as it is alone.
        start(4, ProcessClass::Unset);
        cluster.controller().await;
        (5..=8).for_each(|machine| start(machine, ProcessClass::Stateless));
        (9..=10).for_each(|machine| start(machine, ProcessClass::Log));
        (11..=12).for_each(|machine| start(machine, ProcessClass::Storage));
        cluster.wait_for_workers(12).await;
        let config = DatabaseConfig {
            replication: 2,
            logs: 2,
            engine: EngineKind::Ssd,
            ..DatabaseConfig::default()
        };
        let created = create_database(&cluster.transport, &cluster.coordinators, config).await;
        created.expect("the cluster is new");
        cluster
    }

    async fn controller(&self) -> Interface {
        loop {
            let leader = election::current_leader(&self.transport, &self.coordinators).await;
            if let Some(leader) = leader {
                return leader.controller;
            }
            sleep(LOOK).await;
        }
    }

    pub async fn workers(&self) -> Vec<RegisterWorker> {
        let endpoint = self.controller().await.endpoint::<GetWorkers>();
        let answer = self.transport.call(&endpoint, GetWorkers {}).await;
        answer.map(|answer| answer.workers).unwrap_or_default()
    }

    pub async fn wait_for_workers(&self, count: usize) {
        while self.workers().await.len() < count {
            sleep(LOOK).await;
        }
    }

    /// Waits until the cluster's description, as the controller sends it to workers, is as wanted.
    pub async fn wait_until(&self, is_so: impl Fn(&ClusterInfo) -> bool) {
        loop {
            let endpoint = self.controller().await.endpoint::<GetClusterInfo>();
            let call = self.transport.call(&endpoint, GetClusterInfo { known: 0 });
            if call.await.is_ok_and(|info| is_so(&info)) {
                return;
            }
            sleep(LOOK).await;
        }
    }

    pub async fn change_coordinators(&self, machines: [u8; 3]) {
        let endpoint = self.controller().await.endpoint::<ChangeCoordinators>();
        let coordinators: Vec<SocketAddr> = machines.map(address).into();
        trace!("OperatorMovesCoordinators", "to" => format!("{coordinators:?}"));
        let call = self.transport.call(
            &endpoint,
            ChangeCoordinators {
                coordinators: places(coordinators),
            },
        );
        let reply = call.await.expect("nothing fails");
        assert_eq!(reply.refusal, "", "the coordinators may move");
    }

    /// Asks for a cluster in which nothing is on the machine.
    pub async fn exclude(&self, machine: u8) {
        let workers = self.workers().await;
        let target = Target::Process(address(machine));
        let done = management::exclude(&self.database, &workers, &[target], false).await;
        assert_eq!(done, Ok(()), "the machine may be excluded");
        trace!("OperatorExcludes", "address" => address(machine));
    }

    /// Kills the process for good.
    pub fn kill(&self, machine: u8) {
        let processes = control().processes();
        let here = processes.iter().find(|p| p.address == address(machine));
        let process = here.expect("it was started").id;
        trace!("OperatorKills", "address" => address(machine));
        control().kill_process(process, KillKind::Kill);
    }

    pub async fn write(&self, value: &'static str) {
        let transaction = self.database.create_transaction();
        loop {
            transaction.set("key", value);
            match transaction.commit().await {
                Ok(()) => break,
                Err(error) => transaction
                    .on_error(error)
                    .await
                    .expect("it may be retried"),
            }
        }
        let version = transaction.get_committed_version();
        trace!("ClientWrote", "value" => value, "version" => version);
    }

    pub async fn read(&self) {
        let read = self.database.run(async |tr| tr.get("key", false).await);
        let value = read.await.expect("nothing fails").expect("it was written");
        let value = String::from_utf8_lossy(&value).into_owned();
        trace!("ClientRead", "value" => value);
    }
}

/// Runs the story in a cluster that has served for a while. Returns the trace; the story is what follows the event
/// `StoryBegins`.
pub fn trace_of<S: Future<Output = ()>>(
    seed: u64,
    story: impl FnOnce(Cluster) -> S + 'static,
) -> Vec<String> {
    let config = SimConfig {
        trace_lines_max: TRACE_LINES,
        ..SimConfig::default()
    };
    let simulation = Simulation::new(seed, config);
    let run = async move {
        let cluster = Cluster::open().await;
        cluster.write("old").await;
        sleep(Duration::from_secs(5)).await;
        trace!("StoryBegins");
        story(cluster).await;
    };
    let ended = simulation.run_until(run, LIMIT);
    ended.expect("the story ends");
    simulation.trace_tail()
}
