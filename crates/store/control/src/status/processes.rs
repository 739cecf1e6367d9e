//! The processes, their roles and their machines.

use super::asked::{Facts, LogServer, StorageServer, Vitals};
use super::counters::{Sum, hz, rounded};
use super::{distribution, latency, sick_disk};
use crate::cluster::Cluster;
use crate::exclusion;
use crate::recovery::NamedRole;
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::{Uid, Version};
use plinth_protocol::control::{Count, ProcessStatus, RegisterWorker, SickDisk};
use plinth_protocol::role::Role;
use plinth_protocol::tally::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Over so many seconds rates are averages.
const RATE_SECONDS: f64 = 5.0;

pub fn processes(cluster: &Cluster, facts: &Facts) -> Value {
    let coordinators = cluster.context.coordinators.file().coordinators;
    let (epochs, singletons) = (cluster.roles.borrow(), cluster.singletons.borrow());
    let singletons = singletons.iter().map(|(name, role)| (*name, *role));
    let elsewhere: Vec<NamedRole> = epochs.iter().copied().chain(singletons).collect();
    let mut processes = Map::new();
    for (id, worker) in &facts.workers {
        let address = worker.worker.address;
        let mut roles: Vec<(Role, Option<Uid>)> = Vec::new();
        if cluster.interface.address == address {
            roles.push((Role::Controller, Some(cluster.interface.id)));
        }
        if coordinators.iter().any(|place| worker.is_at(place)) {
            roles.push((Role::Coordinator, None));
        }
        // Log servers of older epochs are only in the worker's own list.
        let here = elsewhere
            .iter()
            .filter(|(name, role)| role.address == address && *name != Role::Log);
        roles.extend(here.map(|(name, role)| (*name, Some(role.id))));
        roles.extend(worker.logs.iter().map(|(id, _)| (Role::Log, Some(*id))));
        roles.extend(
            worker
                .storage
                .iter()
                .map(|(id, _)| (Role::Storage, Some(*id))),
        );
        let known = facts.vitals.get(id);
        let roles = roles
            .into_iter()
            .map(|(kind, id)| role(facts, known, address, kind, id));
        processes.insert(
            id.to_string(),
            process(facts, worker, known, roles.collect()),
        );
    }
    Value::Object(processes)
}

fn process(
    facts: &Facts,
    worker: &RegisterWorker,
    known: Option<&Vitals>,
    roles: Vec<Value>,
) -> Value {
    let excluded = facts
        .replicas
        .as_ref()
        .map_or(&[][..], |replicas| &replicas.excluded);
    let place = &worker.locality;
    let mut out = json!({
        "address": worker.worker.address.to_string(),
        "class_source": if worker.given.is_some() { "set_class" } else { "command_line" },
        "class_type": worker.class().name(),
        "degraded": worker.disk.is_some(),
        "disk_full": facts.is_full(worker),
        "excluded": exclusion::is_excluded(worker, excluded),
        "fault_domain": place.zone,
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
        "sick_disk": worker.disk.as_ref().map(sick_disk),
        "under_maintenance": distribution::is_under_maintenance(facts, &place.zone),
        "version": env!("CARGO_PKG_VERSION"),
    });
    if let Some(status) = known.and_then(|known| known.worker.as_ref()) {
        out["disk"] = json!({"free_bytes": status.disk_free, "total_bytes": status.disk_total});
        out["run_loop_lag_ms"] = json!((status.loop_lag_ms * 1000.0).round() / 1000.0);
    }
    if let Some(status) = known.and_then(|known| known.process.as_ref()) {
        add_usage(&mut out, facts, worker, status);
    }
    out
}

/// What the process uses of its machine.
fn add_usage(out: &mut Value, facts: &Facts, worker: &RegisterWorker, status: &ProcessStatus) {
    let of = |name: &str| Sum::of(&status.counts, name);
    let megabits = |name: &str| hz(of(name).hz * 8.0 / 1e6);
    let operations = |count: &str, sectors: &str| {
        json!({
            "hz": rounded(of(count).hz),
            "counter": of(count).total,
            "sectors": (of(sectors).hz * RATE_SECONDS).round(),
        })
    };
    let turns = status.latencies.iter();
    let turns = turns.filter(|latency| latency.request == LOOP_TURN);
    out["loop_turn_statistics"] = latency::statistics(turns);
    out["command_line"] = json!(status.command_line);
    out["uptime_seconds"] = json!(rounded(status.uptime_s));
    out["cpu"] = json!({"usage_cores": rounded(of(CPU_US).hz / 1e6)});
    let neighbours = facts
        .workers
        .iter()
        .filter(|(_, w)| w.locality.machine == worker.locality.machine);
    let neighbours: Vec<&ProcessStatus> = neighbours
        .filter_map(|(id, _)| facts.vitals.get(id)?.process.as_ref())
        .collect();
    let used: u64 = neighbours.iter().map(|status| status.resident_bytes).sum();
    let available = (status.machine_memory_available_bytes + used) / neighbours.len().max(1) as u64;
    out["memory"] = json!({
        "available_bytes": available,
        "limit_bytes": status.memory_limit_bytes,
        "rss_bytes": status.resident_bytes,
        "used_bytes": status.virtual_bytes,
    });
    out["disk"]["busy"] = json!(rounded(of(DISK_BUSY_US).hz / 1e6));
    out["disk"]["reads"] = operations(DISK_READS, DISK_SECTORS_READ);
    out["disk"]["writes"] = operations(DISK_WRITES, DISK_SECTORS_WRITTEN);
    let open = of(CONNECTIONS_ESTABLISHED)
        .total
        .saturating_sub(of(CONNECTIONS_CLOSED).total);
    out["network"] = json!({
        "current_connections": open,
        "connections_established": hz(of(CONNECTIONS_ESTABLISHED).hz),
        "connections_closed": hz(of(CONNECTIONS_CLOSED).hz),
        "connection_errors": hz(of(CONNECTION_ERRORS).hz),
        "megabits_sent": megabits(SENT_BYTES),
        "megabits_received": megabits(RECEIVED_BYTES),
        "tls_policy_failures": hz(of(REFUSED_CONNECTIONS).hz),
    });
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

// ---- roles ----

fn role(
    facts: &Facts,
    known: Option<&Vitals>,
    address: SocketAddr,
    kind: Role,
    id: Option<Uid>,
) -> Value {
    let mut out = json!({"role": kind.name(), "id": id.map(|id| id.to_string())});
    let counts = known.and_then(|known| {
        let roles = &known.process.as_ref()?.roles;
        Some(&roles.iter().find(|role| Some(role.role) == id)?.counts)
    });
    for count in counts.into_iter().flatten() {
        out[&count.name] = Sum::of([count], &count.name).json();
    }
    let latencies = |requests: &'static [&'static str]| {
        let process = known.and_then(|known| known.process.as_ref()).into_iter();
        let all = process.flat_map(|process| &process.latencies);
        latency::statistics(all.filter(|latency| requests.contains(&&latency.request[..])))
    };
    match kind {
        Role::Storage => {
            let mut servers = facts.storage.iter();
            if let Some(server) = servers.find(|server| Some(server.id) == id) {
                add_storage(&mut out, facts, known, server);
            }
            out["read_latency_statistics"] = latencies(&["Get", "GetValues", "GetKey", "GetRange"]);
        }
        Role::Log => {
            let mut logs = facts.logs.iter();
            let is_it = |log: &&LogServer| Some(log.role.id) == id && log.role.address == address;
            if let Some(log) = logs.find(is_it) {
                add_log(&mut out, known, log);
            }
        }
        Role::CommitProxy => out["commit_latency_statistics"] = latencies(&["Commit"]),
        Role::GrvProxy => {
            out["grv_latency_statistics"] = json!({"default": latencies(&["GetReadVersion"])});
        }
        _ => {}
    }
    out
}

/// How far a version is behind a newer one.
pub fn lag(newest: Version, version: Version) -> Value {
    let versions = (newest - version).max(0);
    let seconds = versions as f64 / VERSIONS_PER_SECOND as f64;
    json!({"versions": versions, "seconds": rounded(seconds)})
}

fn add_storage(out: &mut Value, facts: &Facts, known: Option<&Vitals>, server: &StorageServer) {
    let Some(status) = &server.status else {
        return;
    };
    out["stored_bytes"] = json!(status.stored_bytes);
    out["kvstore_used_bytes"] = json!(status.disk_bytes);
    if let Some(worker) = known.and_then(|known| known.worker.as_ref()) {
        out["kvstore_free_bytes"] = json!(worker.disk_free);
        out["kvstore_available_bytes"] = json!(worker.disk_free);
        out["kvstore_total_bytes"] = json!(worker.disk_total);
    }
    out["data_version"] = json!(status.version);
    out["durable_version"] = json!(status.durable);
    out["data_lag"] = lag(facts.newest_version(), status.version);
    out["durability_lag"] = lag(status.version, status.durable);
    out["query_queue_max"] = json!(status.reads_waiting);
}

fn add_log(out: &mut Value, known: Option<&Vitals>, log: &LogServer) {
    let Some(status) = &log.status else {
        return;
    };
    out["data_version"] = json!(status.version);
    out["durable_version"] = json!(status.durable);
    out["queue_disk_used_bytes"] = json!(status.queue_bytes);
    if let Some(worker) = known.and_then(|known| known.worker.as_ref()) {
        out["queue_disk_free_bytes"] = json!(worker.disk_free);
        out["queue_disk_available_bytes"] = json!(worker.disk_free);
        out["queue_disk_total_bytes"] = json!(worker.disk_total);
    }
}

// ---- machines ----

pub fn machines(facts: &Facts) -> Value {
    let mut machines: BTreeMap<&str, Vec<(&Uid, &RegisterWorker)>> = BTreeMap::new();
    for (id, worker) in &facts.workers {
        machines
            .entry(&worker.locality.machine)
            .or_default()
            .push((id, worker));
    }
    let machines = machines
        .into_iter()
        .map(|(name, workers)| (name.to_string(), machine(facts, &workers)));
    Value::Object(machines.collect())
}

fn machine(facts: &Facts, workers: &[(&Uid, &RegisterWorker)]) -> Value {
    let (_, first) = workers[0];
    let place = &first.locality;
    let excluded = facts
        .replicas
        .as_ref()
        .map_or(&[][..], |replicas| &replicas.excluded);
    let mut out = json!({
        "address": first.worker.address.ip().to_string(),
        "contributing_workers": workers.len(),
        "datacenter_id": place.data_center,
        "excluded": workers.iter().all(|(_, worker)| exclusion::is_excluded(worker, excluded)),
        "locality": {
            "machineid": place.machine,
            "zoneid": place.zone,
            "data_hall": place.data_hall,
            "dcid": place.data_center,
        },
        "machine_id": place.machine,
    });
    // Each process of the machine says the same of it.
    let mut said = workers
        .iter()
        .filter_map(|(id, _)| facts.vitals.get(id)?.process.as_ref());
    if let Some(status) = said.next() {
        add_machine_usage(&mut out, status, &status.counts);
    }
    out
}

fn add_machine_usage(out: &mut Value, status: &ProcessStatus, counts: &[Count]) {
    let of = |name: &str| Sum::of(counts, name).hz;
    let (total, free) = (
        status.machine_memory_bytes,
        status.machine_memory_available_bytes,
    );
    out["memory"] = json!({
        "total_bytes": total,
        "free_bytes": free,
        "committed_bytes": total.saturating_sub(free),
    });
    let (busy, all) = (of(MACHINE_BUSY_US), of(MACHINE_US));
    let utilization = if all > 0.0 { busy / all } else { 0.0 };
    out["cpu"] = json!({"logical_core_utilization": rounded(utilization)});
    out["network"] = json!({
        "megabits_sent": hz(of(MACHINE_SENT_BYTES) * 8.0 / 1e6),
        "megabits_received": hz(of(MACHINE_RECEIVED_BYTES) * 8.0 / 1e6),
        "tcp_segments_retransmitted": hz(of(RETRANSMITTED_SEGMENTS)),
    });
}
