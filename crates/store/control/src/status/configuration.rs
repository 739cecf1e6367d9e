//! How the database is configured, and the log that it has.

use super::asked::Facts;
use plinth_core::config::{DatabaseConfig, EngineKind, FaultDomain};
use plinth_protocol::log::LogGeneration;
use serde_json::{Value, json};

pub fn configuration(facts: &Facts, config: &DatabaseConfig, coordinators: usize) -> Value {
    let excluded = facts
        .replicas
        .as_ref()
        .map_or(&[][..], |replicas| &replicas.excluded);
    let excluded = excluded.iter().map(|target| {
        let text = target.to_string();
        match text.starts_with("locality_") {
            true => json!({"locality": text}),
            false => json!({"address": text}),
        }
    });
    let domain = match config.domain {
        FaultDomain::Zone => "zoneid",
        FaultDomain::DataHall => "data_hall",
    };
    let policy = match config.replication {
        1 => "1".to_string(),
        copies => format!("({domain}^{copies}x1)"),
    };
    json!({
        "redundancy_mode": config.mode(),
        "storage_engine": match config.engine {
            EngineKind::Ssd => "ssd",
            EngineKind::Memory => "memory",
        },
        "storage_replicas": config.replication,
        "storage_replication_policy": &policy,
        "log_replicas": config.replication,
        "log_replication_policy": &policy,
        "log_anti_quorum": 0,
        "usable_regions": 1,
        "logs": config.logs,
        "commit_proxies": config.commit_proxies,
        "grv_proxies": config.grv_proxies,
        "proxies": config.commit_proxies + config.grv_proxies,
        "resolvers": config.resolvers,
        "coordinators_count": coordinators,
        "excluded_servers": excluded.collect::<Vec<_>>(),
        "tenant_mode": "optional_experimental",
    })
}

/// All generations of the log that are still needed, the current one first.
pub fn logs(facts: &Facts) -> Value {
    let generations = &facts.info.log_system.generations;
    let next_starts = generations.iter().skip(1).map(|next| Some(next.start));
    let all = generations.iter().zip(next_starts.chain([None]));
    let all: Vec<Value> = all
        .map(|(generation, next)| log(facts, generation, next))
        .collect();
    all.into_iter().rev().collect()
}

fn log(facts: &Facts, generation: &LogGeneration, next_start: Option<i64>) -> Value {
    let is_there: Vec<bool> = generation
        .logs
        .iter()
        .map(|log| {
            let worker = facts.worker_at(log.address);
            worker.is_some_and(|worker| worker.logs.iter().any(|(id, _)| *id == log.id))
        })
        .collect();
    let interfaces = generation.logs.iter().zip(&is_there).map(|(log, healthy)| {
        json!({"id": log.id.to_string(), "healthy": healthy, "address": log.address.to_string()})
    });
    let mut out = json!({
        "epoch": generation.epoch,
        "current": next_start.is_none(),
        "begin_version": generation.start,
        "log_interfaces": interfaces.collect::<Vec<_>>(),
        "log_replication_factor": generation.copies(),
        "log_write_anti_quorum": 0,
        "log_fault_tolerance": generation.copies().saturating_sub(1),
        "possibly_losing_data": !generation.covers_every_set(&is_there),
    });
    if let Some(next_start) = next_start {
        out["end_version"] = json!(next_start);
    }
    out
}
