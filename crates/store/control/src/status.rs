//! The status document: one JSON object that lists the roles and their state.
//!
//! Its `cluster` has FoundationDB's shape where both have a field, so that tools for FoundationDB can read it. Fields
//! that only Plinth has (`controller`, `log_servers`, `storage_servers`, …) stand beside those.

use crate::cluster::Cluster;
use crate::phase::Phases;
use crate::recovery::NamedRole;
use crate::streams::{self, StreamState};
use crate::{exclusion, movement};
use plinth_core::codec::Codec;
use plinth_core::config::{DatabaseConfig, EngineKind};
use plinth_core::key::printable;
use plinth_core::system_keys::{CONFIG, DATABASE_LOCK};
use plinth_core::{Error, Uid};
use plinth_protocol::control::{
    ClusterInfo, DistributorStatus, GetDistributorStatus, GetWorkerStatus, RegisterWorker,
    SickDisk, WorkerStatus,
};
use plinth_protocol::log::GetLogStatus;
use plinth_protocol::rate::{GetRateStatus, RateStatus};
use plinth_protocol::role::Role;
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::Interface;
use plinth_runtime::Duration;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

const ANSWER_LIMIT: Duration = Duration::from_secs(1);

type Workers = BTreeMap<Uid, RegisterWorker>;

pub(crate) async fn document(cluster: &Cluster) -> String {
    let info = cluster.info.get();
    let workers = cluster.context.workers.get();
    let (mut logs, mut storage) = (Vec::new(), Vec::new());
    let (mut replicas, mut rates, mut scan, mut streams) = (None, None, None, None);
    let mut vitals = BTreeMap::new();
    for part in ask_everybody(cluster, &workers, &info).await {
        match part {
            Part::Logs(list) => logs = list,
            Part::Storage(list) => storage = list,
            Part::Rates(status) => rates = status,
            Part::Scan(status) => scan = status,
            Part::Vitals(known) => vitals = known,
            Part::Streams(states) => streams = states,
            Part::Replicas(count) => replicas = count.filter(|_| info.accepting),
        }
    }
    let full_replication = replicas.as_ref().is_some_and(Replicas::is_full);
    let addresses = |roles: &[Interface]| -> Vec<String> {
        roles.iter().map(|role| role.address.to_string()).collect()
    };
    let document = json!({"cluster": {
        "cluster_controller_timestamp": plinth_runtime::unix_time_ms() / 1000,
        "commit_proxies": addresses(&info.client.commit_proxies),
        "consistency": scan.map(|scan| consistency(&scan)),
        "connection_string": cluster.context.coordinators.file().to_string(),
        "configuration": cluster.context.config.get().map(|config| {
            configuration(&config, replicas.as_ref())
        }),
        "controller": info.controller.address.to_string(),
        "data": data(replicas.as_ref(), &storage),
        "database_available": info.accepting && cluster.context.phase.current() == "accepting_commits",
        "database_lock_state": {"locked": replicas.as_ref().is_some_and(|r| r.locked)},
        "full_replication": full_replication,
        "generation": info.epoch,
        "grv_proxies": addresses(&info.client.grv_proxies),
        "knobs": info.knobs.iter().cloned().collect::<BTreeMap<_, _>>(),
        "layers": {"_valid": true},
        "log_generations": info.log_system.generations.len(),
        "log_servers": &logs,
        "messages": messages(cluster, &workers),
        "processes": processes(cluster, &workers, replicas.as_ref(), &vitals),
        "qos": rates.map(|rates| qos(&rates, &storage, &logs)),
        "recovery_state": recovery_state(&cluster.context.phase, info.accepting),
        "storage_servers": &storage,
        "streams": streams.map(|states| states.iter().map(stream).collect::<Vec<_>>()),
    }});
    document.to_string()
}

/// A part of the document that other processes answer.
enum Part {
    Logs(Vec<Value>),
    Storage(Vec<Value>),
    Replicas(Option<Replicas>),
    Rates(Option<RateStatus>),
    Scan(Option<DistributorStatus>),
    Vitals(BTreeMap<Uid, WorkerStatus>),
    Streams(Option<Vec<StreamState>>),
}

/// Asks for all parts at once, so that silent processes cost only one timeout.
async fn ask_everybody(cluster: &Cluster, workers: &Workers, info: &ClusterInfo) -> Vec<Part> {
    type Asked<'a> = Pin<Box<dyn Future<Output = Part> + 'a>>;
    let parts: [Asked<'_>; 7] = [
        Box::pin(async { Part::Logs(logs(cluster, info).await) }),
        Box::pin(async { Part::Storage(storage(cluster, workers, info).await) }),
        Box::pin(async {
            let counted = plinth_runtime::timeout(ANSWER_LIMIT, count_replicas(cluster));
            Part::Replicas(counted.await.and_then(Result::ok))
        }),
        Box::pin(async { Part::Rates(rates(cluster, info).await) }),
        Box::pin(async { Part::Scan(scan(cluster).await) }),
        Box::pin(async { Part::Vitals(vitals(cluster, workers).await) }),
        Box::pin(async {
            let states = streams::states(&cluster.database, &cluster.stream_sizes);
            let states = plinth_runtime::timeout(ANSWER_LIMIT, states).await;
            Part::Streams(states.and_then(Result::ok))
        }),
    ];
    plinth_runtime::join_all(parts).await
}

fn stream(state: &StreamState) -> Value {
    let record = &state.info.record;
    let consumers = state.consumers.iter();
    let consumers =
        consumers.map(|(name, lag_s)| json!({"name": printable(name), "lag_seconds": lag_s}));
    json!({
        "name": printable(&state.info.name),
        "kind": record.kind.name(),
        "bytes": state.bytes,
        "bytes_max": record.bytes_max,
        "seconds_max": record.seconds_max,
        "oldest_version": state.floor.version,
        "consumers": consumers.collect::<Vec<_>>(),
    })
}

fn sick_disk(disk: &SickDisk) -> Value {
    json!({
        "directory": disk.directory, "what": disk.what, "works_again": disk.works,
        "since": disk.since_ms / 1000,
    })
}

/// A sick disk, in the shape that FoundationDB's tools show.
fn disk_message(disk: &SickDisk) -> Value {
    let now = if disk.works { "; it works again" } else { "" };
    json!({
        "name": "io_error",
        "description": format!("the disk of {} is sick: {}{now}", disk.directory, disk.what),
        "time": disk.since_ms as f64 / 1000.0,
        "type": "DiskSick",
    })
}

/// Messages about the cluster for the operator.
fn messages(cluster: &Cluster, workers: &Workers) -> Vec<Value> {
    let mut messages = lost_coordinators(cluster, workers);
    let sick = workers.values().filter(|worker| worker.disk.is_some());
    let addresses: Vec<String> = sick.map(|w| w.worker.address.to_string()).collect();
    if !addresses.is_empty() {
        messages.push(json!({
            "name": "sick_disks",
            "description": format!("disks that fail or hang: at {}", addresses.join(", ")),
        }));
    }
    messages
}

/// A message about coordinators that have lost their registers, if there are any.
fn lost_coordinators(cluster: &Cluster, workers: &Workers) -> Vec<Value> {
    let coordinators = cluster.context.coordinators.file().coordinators;
    let lost = workers
        .values()
        .filter(|worker| worker.lost_registers && coordinators.contains(&worker.worker.address));
    let message = |worker: &RegisterWorker| {
        let address = worker.worker.address;
        let description = format!(
            "{address} has lost what it promised as a coordinator, and is none: \
            name the coordinators anew, as `coordinators IP:PORT…' does"
        );
        json!({"name": "coordinator_lost", "description": description})
    };
    lost.map(message).collect()
}

/// Progress of the recovery, or the phases of the last one.
fn recovery_state(phases: &Phases, accepting: bool) -> Value {
    let ms = |took: Duration| (took.as_secs_f64() * 10_000.0).round() / 10.0;
    let over = phases.over();
    let listed = over
        .iter()
        .map(|(name, took)| json!({"name": name, "milliseconds": ms(*took)}));
    let current = phases.current();
    let since = accepting.then(|| phases.elapsed().as_secs());
    let waits_for = Some(phases.waits_for()).filter(|what| !what.is_empty());
    json!({
        "name": recovery_name(current),
        "description": current,
        "waits_for": waits_for,
        "last_epoch_ended": Some(phases.why_ended()).filter(|why| !why.is_empty()),
        "phases": listed.collect::<Vec<_>>(),
        "milliseconds": ms(over.iter().map(|(_, took)| *took).sum()),
        "seconds_since_last_recovered": since,
    })
}

/// FoundationDB's name of the phase, for tools that know those names.
fn recovery_name(phase: &str) -> &str {
    match phase {
        "starting" | "reading_coordinated_state" => "reading_coordinated_state",
        "sealing_old_logs" => "locking_coordinated_state",
        "reading_system_keyspace" => "reading_transaction_system_state",
        "waiting_for_configure_new" => "configuration_never_created",
        "recruiting_storage" | "recruiting_transaction_system" => "recruiting_transaction_servers",
        "writing_coordinated_state" => "writing_coordinated_state",
        "accepting_commits" => "fully_recovered",
        other => other,
    }
}

/// Facts about the data, from the system keyspace.
struct Replicas {
    wanted: usize,
    shards: usize,
    /// Shards on their way to another team.
    moving: usize,
    /// Copies of the shard that has the fewest.
    least: usize,
    locked: bool,
    excluded: Vec<exclusion::Target>,
}

impl Replicas {
    fn is_full(&self) -> bool {
        self.least >= self.wanted
    }
}

async fn count_replicas(cluster: &Cluster) -> plinth_core::Result<Replicas> {
    let (config, shards, lock, excluded) = movement::run(&cluster.database, async |tr| {
        let config = tr.get(CONFIG, false).await?.ok_or(Error::file_corrupt)?;
        let config = DatabaseConfig::from_bytes(config).ok_or(Error::file_corrupt)?;
        let lock = tr.get(DATABASE_LOCK, false).await?;
        Ok((
            config,
            movement::read_shards(tr).await?,
            lock,
            exclusion::read(tr).await?,
        ))
    })
    .await?;
    let hosted: BTreeSet<Uid> = cluster.context.workers.with(|workers| {
        let storage = workers.values().flat_map(|worker| &worker.storage);
        storage.map(|(id, _)| *id).collect()
    });
    let left = shards
        .iter()
        .map(|(_, record)| record.team.iter().filter(|id| hosted.contains(id)).count());
    Ok(Replicas {
        wanted: config.replication as usize,
        shards: shards.len(),
        moving: shards
            .iter()
            .filter(|(_, record)| !record.destination.is_empty())
            .count(),
        least: left.min().unwrap_or(0),
        locked: lock.is_some(),
        excluded,
    })
}

fn data(replicas: Option<&Replicas>, storage: &[Value]) -> Value {
    let Some(replicas) = replicas else {
        return json!({"state": {"healthy": false, "name": "initializing"}});
    };
    let name = match replicas {
        Replicas { least: 0, .. } => "missing_data",
        replicas if !replicas.is_full() => "healing",
        Replicas { moving: 0, .. } => "healthy",
        _ => "healthy_repartitioning",
    };
    let stored: u64 = storage
        .iter()
        .filter_map(|server| server["stored_bytes"].as_u64())
        .sum();
    json!({
        "state": {
            "healthy": replicas.is_full(),
            "name": name,
            "min_replicas_remaining": replicas.least,
        },
        "moving_data": {"shards": replicas.moving},
        "partitions_count": replicas.shards,
        // Bytes of one copy.
        "total_kv_size_bytes": stored / replicas.wanted.max(1) as u64,
    })
}

fn configuration(config: &DatabaseConfig, replicas: Option<&Replicas>) -> Value {
    let excluded = replicas.map_or(&[][..], |replicas| &replicas.excluded);
    let excluded: Vec<Value> = excluded
        .iter()
        .map(|target| json!({"address": target.to_string()}))
        .collect();
    json!({
        "redundancy_mode": config.mode(),
        "storage_engine": match config.engine {
            EngineKind::Ssd => "ssd",
            EngineKind::Memory => "memory",
        },
        "logs": config.logs,
        "commit_proxies": config.commit_proxies,
        "grv_proxies": config.grv_proxies,
        "resolvers": config.resolvers,
        "excluded_servers": excluded,
    })
}

/// State of the processes and their machines.
async fn vitals(cluster: &Cluster, workers: &Workers) -> BTreeMap<Uid, WorkerStatus> {
    let transport = &cluster.context.transport;
    let asked = workers.iter().map(|(process, worker)| async move {
        let endpoint = worker.worker.endpoint::<GetWorkerStatus>();
        let call = transport.call(&endpoint, GetWorkerStatus {});
        let answer = plinth_runtime::timeout(ANSWER_LIMIT, call).await?;
        Some((*process, answer.ok()?))
    });
    let answers = plinth_runtime::join_all(asked).await;
    answers.into_iter().flatten().collect()
}

fn processes(
    cluster: &Cluster,
    workers: &Workers,
    replicas: Option<&Replicas>,
    vitals: &BTreeMap<Uid, WorkerStatus>,
) -> Value {
    let coordinators = cluster.context.coordinators.file().coordinators;
    let excluded = replicas.map_or(&[][..], |replicas| &replicas.excluded);
    let (epochs, singletons) = (cluster.roles.borrow(), cluster.singletons.borrow());
    let singletons = singletons.iter().map(|(name, role)| (*name, *role));
    let roles_elsewhere: Vec<NamedRole> = epochs.iter().copied().chain(singletons).collect();
    let mut processes = Map::new();
    for (id, worker) in workers {
        let address = worker.worker.address;
        let mut roles = Vec::new();
        let mut add = |role: Role, id: Option<Uid>| {
            roles.push(json!({"role": role.name(), "id": id.map(|id| id.to_string())}));
        };
        if cluster.interface.address == address {
            add(Role::Controller, Some(cluster.interface.id));
        }
        if coordinators.contains(&address) {
            add(Role::Coordinator, None);
        }
        for (name, role) in &roles_elsewhere {
            // Log servers of older epochs are only in the worker's own list.
            if role.address == address && *name != Role::Log {
                add(*name, Some(role.id));
            }
        }
        worker
            .logs
            .iter()
            .for_each(|(id, _)| add(Role::Log, Some(*id)));
        let stored = worker.storage.iter();
        stored.for_each(|(id, _)| add(Role::Storage, Some(*id)));
        let place = &worker.locality;
        processes.insert(
            id.to_string(),
            json!({
                "address": address.to_string(),
                "class_source": if worker.given.is_some() { "set_class" } else { "command_line" },
                "class_type": worker.class().name(),
                "disk": vitals.get(id).map(|v| json!({
                    "free_bytes": v.disk_free, "total_bytes": v.disk_total,
                })),
                "sick_disk": worker.disk.as_ref().map(sick_disk),
                "run_loop_lag_ms": vitals.get(id).map(|v| (v.loop_lag_ms * 1000.0).round() / 1000.0),
                "excluded": exclusion::is_excluded(worker, excluded),
                "locality": {
                    "machineid": place.machine,
                    "processid": place.process.to_string(),
                    "zoneid": place.zone,
                    "data_hall": place.data_hall,
                    "dcid": place.data_center,
                },
                "machine_id": place.machine,
                "messages": worker.disk.as_ref().map(disk_message).into_iter().collect::<Vec<_>>(),
                "roles": roles,
                "version": env!("CARGO_PKG_VERSION"),
            }),
        );
    }
    Value::Object(processes)
}

async fn rates(cluster: &Cluster, info: &ClusterInfo) -> Option<RateStatus> {
    let endpoint = info.ratekeeper?.endpoint::<GetRateStatus>();
    let call = cluster.context.transport.call(&endpoint, GetRateStatus {});
    plinth_runtime::timeout(ANSWER_LIMIT, call).await?.ok()
}

async fn scan(cluster: &Cluster) -> Option<DistributorStatus> {
    let distributor = cluster
        .singletons
        .borrow()
        .get(&Role::Distributor)
        .copied()?;
    let endpoint = distributor.endpoint::<GetDistributorStatus>();
    let transport = &cluster.context.transport;
    let call = transport.call(&endpoint, GetDistributorStatus {});
    plinth_runtime::timeout(ANSWER_LIMIT, call).await?.ok()
}

/// Progress of the comparison of replicas.
fn consistency(scan: &DistributorStatus) -> Value {
    json!({
        "compared_bytes": scan.bytes,
        "rounds": scan.rounds,
        "last_round_ended": (scan.rounds > 0).then_some(scan.round_ended_s),
        "differences_found": scan.found,
        "differences": scan.differences,
    })
}

/// What limits the database, if anything does. A limit that does not exist is `null`.
fn qos(rates: &RateStatus, storage: &[Value], logs: &[Value]) -> Value {
    let finite = |rate: f64| rate.is_finite().then_some(rate.round());
    let worst = |servers: &[Value], field: &str| {
        let found = servers.iter().filter_map(|server| server[field].as_u64());
        found.max().unwrap_or(0)
    };
    let description = match &rates.reason[..] {
        "workload" => "nothing is as full or as late as it should ever be",
        "storage_server_write_queue_size" => "a storage server holds as much in memory as it may",
        "storage_server_readable_behind" => {
            "reads wait for a storage server that is behind the log"
        }
        "storage_server_durability_lag" => "a storage server's disk is behind",
        "commit_latency" => "commits wait for longer than their disks take",
        "min_free_space" => "a disk is nearly full",
        _ => "",
    };
    let limiting = (rates.server != Uid(0)).then(|| rates.server.to_string());
    json!({
        "transactions_per_second_limit": finite(rates.default),
        "batch_transactions_per_second_limit": finite(rates.batch),
        "released_transactions_per_second": (rates.admitted * 10.0).round() / 10.0,
        "pressure": (rates.pressure * 1000.0).round() / 1000.0,
        "throttled_tags": {
            "auto": {
                "count": rates.auto_tags.len(),
                "tags": rates.auto_tags.iter().map(|tag| json!({
                    "tag": format!("{:?}", tag.tag), "rate": tag.rate.round(),
                })).collect::<Vec<_>>(),
            },
            "manual": {"count": rates.manual_tags},
        },
        "performance_limited_by": {
            "name": rates.reason,
            "description": description,
            "reason_server_id": limiting,
        },
        "worst_queue_bytes_storage_server": worst(storage, "window_bytes"),
        "worst_queue_bytes_log_server": worst(logs, "queue_bytes"),
    })
}

async fn logs(cluster: &Cluster, info: &ClusterInfo) -> Vec<Value> {
    let current = info.log_system.current().map(|g| g.logs.clone());
    let current = current.unwrap_or_default();
    let transport = &cluster.context.transport;
    let asked = current.iter().map(|log| async move {
        let call = transport.call(&log.endpoint::<GetLogStatus>(), GetLogStatus {});
        let address = log.address.to_string();
        match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
            Some(Ok(status)) => json!({
                "address": address, "epoch": status.epoch, "version": status.version,
                "durable_version": status.durable, "queue_bytes": status.queue_bytes,
                "memory_bytes": status.memory_bytes, "disk_full": status.disk_full,
            }),
            _ => json!({"address": address, "unreachable": true}),
        }
    });
    plinth_runtime::join_all(asked).await
}

async fn storage(cluster: &Cluster, workers: &Workers, info: &ClusterInfo) -> Vec<Value> {
    let transport = &cluster.context.transport;
    let place = |id: Uid| {
        let mut hosts = workers.values();
        hosts.find(|worker| worker.storage.iter().any(|(stored, _)| *stored == id))
    };
    let asked = info.servers.iter().map(|(id, tag)| async move {
        let Some(worker) = place(*id) else {
            return json!({"id": id.to_string(), "tag": tag.0, "unreachable": true});
        };
        let interface = Interface::new(worker.worker.address, *id);
        let endpoint = interface.endpoint::<GetStorageStatus>();
        let call = transport.call(&endpoint, GetStorageStatus {});
        let address = interface.address.to_string();
        match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
            Some(Ok(status)) => json!({
                "address": address, "id": id.to_string(), "tag": status.tag.0,
                "version": status.version, "durable_version": status.durable,
                "window_bytes": status.window_bytes, "disk_bytes": status.disk_bytes,
                "stored_bytes": status.stored_bytes, "engine": status.engine.name(),
                "watches": status.watches, "disk_full": status.disk_full,
            }),
            _ => json!({"address": address, "unreachable": true}),
        }
    });
    plinth_runtime::join_all(asked).await
}
