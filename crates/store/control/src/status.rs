//! The status document: one JSON object that lists the roles and their state.
//!
//! Its `cluster` has FoundationDB's shape where both have a field, so that tools for FoundationDB can read it. Fields
//! that only Plinth has (`controller`, `log_servers`, `storage_servers`, …) stand beside those. A test holds it
//! against the fields that FoundationDB documents (`cli/tests/status_document.rs`).

mod asked;
mod configuration;
mod counters;
mod damage;
mod data;
mod distribution;
mod lagging;
mod latency;
mod probe;
mod processes;
mod qos;
mod replicas;
mod unreadable;
mod workers;
mod workload;

use crate::cluster::Cluster;
use crate::phase::Phases;
use crate::replica::could_serve;
use crate::streams::StreamState;
use asked::{Facts, LogServer, StorageServer};
pub use damage::line as damage_line;
use data::Tolerance;
use plinth_core::DatabaseConfig;
use plinth_core::key::printable;
use plinth_protocol::control::{DistributorStatus, RegisterWorker, SickDisk};
use plinth_rpc::{Interface, PROTOCOL_VERSION};
use plinth_runtime::Duration;
use replicas::Replicas;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use workers::Workers;

const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// What everybody says, and which copies count by that.
async fn ask(cluster: &Cluster) -> Facts {
    let mut facts = asked::ask_everybody(cluster).await;
    // A recovery has ended meanwhile: the answers are those of a database that was not available, and it is now, or of
    // log servers that are no more.
    let now = cluster.info.get();
    if now.accepting && (!facts.info.accepting || facts.info.epoch != now.epoch) {
        plinth_runtime::probe!("status_is_asked_for_again");
        facts = asked::ask_everybody(cluster).await;
    }
    lagging::count_copies(&mut facts);
    facts
}

pub(crate) async fn document(cluster: &Cluster) -> String {
    let facts = ask(cluster).await;
    let coordinators = cluster.context.coordinators.file();
    let config = cluster.context.config.get();
    let (info, replicas) = (&facts.info, facts.replicas.as_ref());
    let current = cluster.context.phase.current();
    let available = info.accepting && current == "accepting_commits";
    let addresses = |roles: &[Interface]| -> Vec<String> {
        roles.iter().map(|role| role.address.to_string()).collect()
    };
    let mut document = json!({
        "bounce_impact": bounce_impact(available),
        "clients": cluster.clients(),
        "cluster_controller_timestamp": plinth_runtime::unix_time_ms() / 1000,
        "commit_proxies": addresses(&info.client.commit_proxies),
        "connection_string": coordinators.to_string(),
        "controller": info.controller.address.to_string(),
        "data": data::data(&facts),
        "database_available": available,
        "database_lock_state": lock_state(replicas),
        "degraded_processes": facts.workers.values().filter(|w| w.disk.is_some()).count(),
        "full_replication": replicas.is_some_and(Replicas::is_full),
        "generation": info.epoch,
        "grv_proxies": addresses(&info.client.grv_proxies),
        "incompatible_connections": [],
        "knobs": info.knobs.iter().cloned().collect::<BTreeMap<_, _>>(),
        "latency_probe": facts.probe.json(),
        "layers": {"_valid": true},
        "log_generations": info.log_system.generations.len(),
        "log_servers": facts.logs.iter().map(log_server).collect::<Vec<_>>(),
        "logs": configuration::logs(&facts),
        "machines": processes::machines(&facts),
        "messages": messages(cluster, &facts, available),
        "page_cache": workload::page_cache(&facts),
        "processes": processes::processes(cluster, &facts),
        "protocol_version": format!("{PROTOCOL_VERSION:x}"),
        "qos": qos::qos(&facts),
        "recoveries": recoveries(&cluster.context.phase),
        "recovery_state": recovery_state(cluster, &facts, config.as_ref()),
        "storage_servers": facts
            .storage
            .iter()
            .map(|server| storage_server(server, &facts))
            .collect::<Vec<_>>(),
        "workload": workload::workload(&facts),
    });
    distribution::add(&mut document, &facts);
    // These are `null` while nothing is known of them.
    document["consistency"] = json!(facts.scan.as_ref().map(consistency));
    document["streams"] = json!(
        facts
            .streams
            .as_ref()
            .map(|all| all.iter().map(stream).collect::<Vec<_>>())
    );
    document["configuration"] = json!(config.as_ref().map(|config| {
        configuration::configuration(&facts, config, coordinators.coordinators.len())
    }));
    if let Some(config) = config {
        let tolerance = Tolerance::of(&facts, &config, &coordinators.coordinators);
        document["fault_tolerance"] = tolerance.json();
    }
    json!({"cluster": document}).to_string()
}

fn lock_state(replicas: Option<&Replicas>) -> Value {
    match replicas.and_then(|replicas| replicas.lock) {
        Some(id) => json!({"locked": true, "lock_uid": id.to_string()}),
        None => json!({"locked": false}),
    }
}

/// Whether all processes may be restarted at once.
fn bounce_impact(available: bool) -> Value {
    match available {
        true => json!({"can_clean_bounce": true, "reason": ""}),
        false => json!({"can_clean_bounce": false, "reason": "the cluster is not recovered yet"}),
    }
}

fn log_server(log: &LogServer) -> Value {
    let address = log.role.address.to_string();
    let Some(status) = &log.status else {
        return json!({"address": address, "unreachable": true});
    };
    json!({
        "address": address, "epoch": status.epoch, "version": status.version,
        "durable_version": status.durable, "queue_bytes": status.queue_bytes,
        "memory_bytes": status.memory_bytes, "disk_full": status.disk_full,
    })
}

fn storage_server(server: &StorageServer, facts: &Facts) -> Value {
    let mut said = what_storage_says(server, facts);
    if let Some(damaged) = damage::of(&facts.workers, server.id) {
        said["damaged"] = damage::json(damaged);
    }
    said
}

fn what_storage_says(server: &StorageServer, facts: &Facts) -> Value {
    let address = server.address.or(server.last_address);
    let (id, address) = (server.id.to_string(), address.map(|a| a.to_string()));
    let Some(status) = &server.status else {
        return json!({"id": id, "address": address, "tag": server.tag.0, "unreachable": true});
    };
    json!({
        "address": address, "id": id, "tag": status.tag.0,
        "version": status.version, "durable_version": status.durable,
        "window_bytes": status.window_bytes, "disk_bytes": status.disk_bytes,
        "stored_bytes": status.stored_bytes, "engine": status.engine.name(),
        "watches": status.watches, "disk_full": status.disk_full,
        "lag_seconds": lagging::seconds(server, facts).map(counters::rounded),
        "counts": could_serve(lagging::replica(server, facts)),
        "waits_for": Some(&status.waits_for).filter(|what| !what.is_empty()),
    })
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

/// Messages about the cluster for the operator.
fn messages(cluster: &Cluster, facts: &Facts, available: bool) -> Vec<Value> {
    let workers = &facts.workers;
    let mut messages = lost_coordinators(cluster, workers);
    if available {
        messages.extend(facts.probe.messages());
    }
    messages.extend(distribution::messages(facts));
    let sick = workers.values().filter(|worker| worker.disk.is_some());
    let addresses: Vec<String> = sick.map(|w| w.worker.address.to_string()).collect();
    if !addresses.is_empty() {
        messages.push(json!({
            "name": "sick_disks",
            "description": format!("disks that fail or hang: at {}", addresses.join(", ")),
        }));
    }
    messages.extend(damage::message(workers));
    messages.extend(lagging::message(facts));
    messages.extend(lagging::without_logs(facts));
    messages.extend(lagging::older_copies(workers));
    messages
}

/// A message about coordinators that have lost their registers, if there are any.
fn lost_coordinators(cluster: &Cluster, workers: &Workers) -> Vec<Value> {
    let coordinators = cluster.context.coordinators.file().coordinators;
    let lost = workers.values().filter(|worker| {
        worker.lost_registers && coordinators.iter().any(|place| worker.is_at(place))
    });
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
fn recovery_state(cluster: &Cluster, facts: &Facts, config: Option<&DatabaseConfig>) -> Value {
    let (phases, accepting): (&Phases, _) = (&cluster.context.phase, facts.info.accepting);
    let over = phases.over();
    let listed = over
        .iter()
        .map(|(name, took)| json!({"name": name, "milliseconds": milliseconds(*took)}));
    let current = phases.current();
    let since = accepting.then(|| phases.elapsed().as_secs());
    let waits_for = Some(phases.waits_for()).filter(|what| !what.is_empty());
    let required = |number: fn(&DatabaseConfig) -> u32| config.map(number);
    json!({
        "active_generations": facts.info.log_system.generations.len(),
        "required_commit_proxies": required(|config| config.commit_proxies),
        "required_grv_proxies": required(|config| config.grv_proxies),
        "required_logs": required(|config| config.logs),
        "required_resolvers": required(|config| config.resolvers),
        "name": recovery_name(current),
        "description": current,
        "waits_for": waits_for,
        "last_epoch_ended": Some(phases.why_ended()).filter(|why| !why.is_empty()),
        "phases": listed.collect::<Vec<_>>(),
        "milliseconds": milliseconds(over.iter().map(|(_, took)| *took).sum()),
        "seconds_since_last_recovered": since,
    })
}

/// The last recoveries of this controller, the newest first.
fn recoveries(phases: &Phases) -> Vec<Value> {
    let all = phases.recoveries().into_iter().rev();
    all.map(|of| {
        json!({
            "epoch": of.epoch, "at": of.at_ms / 1000, "cause": of.cause,
            "milliseconds": milliseconds(of.took),
        })
    })
    .collect()
}

fn milliseconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}

/// FoundationDB's name of the phase, for tools that know those names.
fn recovery_name(phase: &str) -> &str {
    match phase {
        "starting" | "reading_coordinated_state" => "reading_coordinated_state",
        "sealing_old_logs" => "locking_coordinated_state",
        "reading_system_keyspace" => "reading_transaction_system_state",
        "waiting_for_configure_new" | "waiting_for_coordinators" => "configuration_never_created",
        "recruiting_storage" | "recruiting_transaction_system" => "recruiting_transaction_servers",
        "writing_coordinated_state" => "writing_coordinated_state",
        "accepting_commits" => "fully_recovered",
        other => other,
    }
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
