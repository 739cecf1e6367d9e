//! What others say for the status document. All are asked at once, so that silent processes cost only one timeout.

use super::ANSWER_LIMIT;
use super::probe::{self, Probe};
use super::replicas::{self, Replicas};
use super::workers::Workers;
use crate::cluster::Cluster;
use crate::movement;
use crate::singletons::read_servers;
use crate::streams::{self, StreamState};
use plinth_core::{Result, Tag, Uid, Version};
use plinth_protocol::control::{
    ClusterInfo, DistributorStatus, GetDistributorStatus, GetProcessStatus, GetWorkerStatus,
    ProcessStatus, RegisterWorker, WorkerStatus,
};
use plinth_protocol::log::{GetLogStatus, LogStatus};
use plinth_protocol::rate::{GetRateStatus, RateStatus};
use plinth_protocol::role::Role;
use plinth_protocol::storage::{GetStorageStatus, StorageStatus};
use plinth_rpc::{Interface, Place, Request};
use plinth_runtime::Boxed;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A coordinator writes its file anew, which takes a block of the file system or two.
const LEAST_ROOM: u64 = 16 << 10;

pub struct LogServer {
    pub role: Interface,
    /// `None` if it does not answer.
    pub status: Option<LogStatus>,
}

pub struct StorageServer {
    pub id: Uid,
    pub tag: Tag,
    /// `None` if no process has it.
    pub address: Option<SocketAddr>,
    /// Where it was, if no process has it.
    pub last_address: Option<SocketAddr>,
    /// `None` if it does not answer.
    pub status: Option<StorageStatus>,
}

/// What a process says.
#[derive(Default)]
pub struct Vitals {
    pub worker: Option<WorkerStatus>,
    pub process: Option<ProcessStatus>,
}

/// All that the document is made of.
pub struct Facts {
    pub info: ClusterInfo,
    pub workers: Workers,
    pub logs: Vec<LogServer>,
    pub storage: Vec<StorageServer>,
    pub replicas: Option<Replicas>,
    pub rates: Option<RateStatus>,
    pub scan: Option<DistributorStatus>,
    pub vitals: BTreeMap<Uid, Vitals>,
    pub streams: Option<Vec<StreamState>>,
    pub probe: Probe,
}

impl Facts {
    /// The process that has an address.
    pub fn worker_at(&self, address: SocketAddr) -> Option<&RegisterWorker> {
        let mut workers = self.workers.values();
        workers.find(|worker| worker.worker.address == address)
    }

    /// The zone of the process that has an address.
    pub fn zone_at(&self, address: SocketAddr) -> Option<&str> {
        self.worker_at(address)
            .map(|worker| &worker.locality.zone[..])
    }

    pub fn worker_of(&self, place: &Place) -> Option<&RegisterWorker> {
        let mut workers = self.workers.values();
        workers.find(|worker| worker.is_at(place))
    }

    /// What a process has said.
    pub fn vitals_at(&self, address: SocketAddr) -> Option<&Vitals> {
        let (id, _) = self
            .workers
            .iter()
            .find(|(_, w)| w.worker.address == address)?;
        self.vitals.get(id)
    }

    /// Whether the disk of a process has no room: one of its servers says so, or there is less than any file takes.
    pub fn is_full(&self, worker: &RegisterWorker) -> bool {
        let address = worker.worker.address;
        let logs = self.logs.iter().filter(|log| log.role.address == address);
        let mut logs = logs.filter_map(|log| log.status.as_ref());
        let storage = self.storage.iter();
        let mut storage = storage
            .filter(|server| server.address == Some(address))
            .filter_map(|server| server.status.as_ref());
        let disk = self
            .vitals_at(address)
            .and_then(|said| said.worker.as_ref());
        logs.any(|status| status.disk_full)
            || storage.any(|status| status.disk_full)
            || disk.is_some_and(|disk| disk.disk_total > 0 && disk.disk_free < LEAST_ROOM)
    }

    /// The newest version that a server has; no read can ask for a newer one than the log servers have. When a
    /// recovery has just replaced those that were asked, only storage servers tell.
    pub fn newest_version(&self) -> Version {
        let logs = self.logs.iter().filter_map(|log| log.status.as_ref());
        let logs = logs.map(|status| status.version);
        let storage = self.storage.iter().filter_map(|s| s.status.as_ref());
        let storage = storage.map(|status| status.version);
        logs.chain(storage).max().unwrap_or(0)
    }

    /// What all processes have said of themselves.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessStatus> {
        self.vitals
            .values()
            .filter_map(|vitals| vitals.process.as_ref())
    }
}

pub async fn ask_everybody(cluster: &Cluster) -> Facts {
    let mut facts = Facts {
        info: cluster.info.get(),
        workers: cluster.context.workers.get(),
        logs: Vec::new(),
        storage: Vec::new(),
        replicas: None,
        rates: None,
        scan: None,
        vitals: BTreeMap::new(),
        streams: None,
        probe: Probe::default(),
    };
    let (info, workers) = (&facts.info, &facts.workers);
    let parts: [Boxed<'_, ()>; 8] = [
        Box::pin(async { facts.logs = logs(cluster, info).await }),
        Box::pin(async { facts.storage = storage(cluster, workers, info).await }),
        Box::pin(async {
            let counted = plinth_runtime::timeout(ANSWER_LIMIT, replicas::count_replicas(cluster));
            let counted = counted.await.and_then(Result::ok);
            facts.replicas = counted.filter(|_| info.accepting);
        }),
        Box::pin(async { facts.rates = rates(cluster, info).await }),
        Box::pin(async { facts.scan = scan(cluster).await }),
        Box::pin(async { facts.vitals = vitals(cluster, workers).await }),
        Box::pin(async {
            let states = streams::states(&cluster.database, &cluster.stream_sizes);
            let states = plinth_runtime::timeout(ANSWER_LIMIT, states).await;
            facts.streams = states.and_then(Result::ok);
        }),
        Box::pin(async {
            if info.accepting {
                facts.probe = probe::measure(&cluster.database).await;
            }
        }),
    ];
    plinth_runtime::join_all(parts).await;
    facts
}

/// `None` if there is no answer in time.
async fn ask<R: Request>(cluster: &Cluster, role: &Interface, request: R) -> Option<R::Reply> {
    let call = cluster
        .context
        .transport
        .call(&role.endpoint::<R>(), request);
    plinth_runtime::timeout(ANSWER_LIMIT, call).await?.ok()
}

async fn vitals(cluster: &Cluster, workers: &Workers) -> BTreeMap<Uid, Vitals> {
    let processes = workers.iter().map(|(id, worker)| async move {
        let process = ask(cluster, &worker.worker, GetProcessStatus {}).await;
        // A process that is silent would keep this waiting twice.
        let worker = match process {
            Some(_) => ask(cluster, &worker.worker, GetWorkerStatus {}).await,
            None => None,
        };
        (*id, Vitals { worker, process })
    });
    let answers = plinth_runtime::join_all(processes).await;
    answers.into_iter().collect()
}

async fn rates(cluster: &Cluster, info: &ClusterInfo) -> Option<RateStatus> {
    ask(cluster, &info.ratekeeper?, GetRateStatus {}).await
}

async fn scan(cluster: &Cluster) -> Option<DistributorStatus> {
    let distributor = cluster.singletons.borrow().get(&Role::Distributor).copied();
    ask(cluster, &distributor?, GetDistributorStatus {}).await
}

async fn logs(cluster: &Cluster, info: &ClusterInfo) -> Vec<LogServer> {
    let current = info.log_system.current().map(|g| g.logs.clone());
    let asked = current
        .unwrap_or_default()
        .into_iter()
        .map(|role| async move {
            let status = ask(cluster, &role, GetLogStatus {}).await;
            LogServer { role, status }
        });
    plinth_runtime::join_all(asked).await
}

async fn storage(cluster: &Cluster, workers: &Workers, info: &ClusterInfo) -> Vec<StorageServer> {
    let place = |id: Uid| {
        let mut hosts = workers.values();
        let host = hosts.find(|worker| worker.storage.iter().any(|(stored, _)| *stored == id));
        host.map(|worker| worker.worker.address)
    };
    let asked = info.servers.iter().map(|(id, tag)| async move {
        let address = place(*id);
        let status = match address.map(|address| Interface::new(address, *id)) {
            Some(role) => ask(cluster, &role, GetStorageStatus {}).await,
            None => None,
        };
        StorageServer {
            id: *id,
            tag: *tag,
            address,
            last_address: None,
            status,
        }
    });
    let mut servers = plinth_runtime::join_all(asked).await;
    if info.accepting && servers.iter().any(|server| server.address.is_none()) {
        let known = movement::run(&cluster.database, async |tr| read_servers(tr).await);
        let known = plinth_runtime::timeout(ANSWER_LIMIT, known).await;
        let known = known.and_then(Result::ok).map(|list| list.servers);
        for server in servers.iter_mut().filter(|server| server.address.is_none()) {
            let mut records = known.iter().flatten();
            let record = records.find(|(id, _)| *id == server.id);
            server.last_address = record.map(|(_, record)| record.address);
        }
    }
    servers
}
