//! What limits the database, and how far its servers are behind.

use super::asked::{Facts, StorageServer};
use super::data::answering;
use super::processes::lag;
use plinth_core::{Uid, Version};
use plinth_protocol::rate::RateStatus;
use plinth_protocol::storage::StorageStatus;
use serde_json::{Value, json};

/// FoundationDB's numbers of the reasons, in its order.
const REASONS: [&str; 12] = [
    "workload",
    "storage_server_write_queue_size",
    "storage_server_write_bandwidth_mvcc",
    "storage_server_readable_behind",
    "log_server_mvcc_write_bandwidth",
    "log_server_write_queue",
    "storage_server_min_free_space",
    "storage_server_min_free_space_ratio",
    "log_server_min_free_space",
    "log_server_min_free_space_ratio",
    "storage_server_durability_lag",
    "storage_server_list_fetch_failed",
];

/// A limit that does not exist is `null`.
pub fn qos(facts: &Facts) -> Value {
    let Some(rates) = &facts.rates else {
        return Value::Null;
    };
    let finite = |rate: f64| rate.is_finite().then_some(rate.round());
    let newest = facts.newest_version();
    let queue = |status: &StorageStatus| status.window_bytes as Version;
    let data_lag = |status: &StorageStatus| newest - status.version;
    let durability_lag = |status: &StorageStatus| status.version - status.durable;
    let logs = facts.logs.iter().filter_map(|log| log.status.as_ref());
    let limit = limited_by(rates);
    let versions = |versions: Version| lag(versions, 0);
    json!({
        "transactions_per_second_limit": finite(rates.default),
        "batch_transactions_per_second_limit": finite(rates.batch),
        "released_transactions_per_second": (rates.admitted * 10.0).round() / 10.0,
        "batch_released_transactions_per_second": super::workload::batch_started(facts),
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
        "performance_limited_by": &limit,
        "batch_performance_limited_by": &limit,
        "worst_queue_bytes_log_server": logs.map(|status| status.queue_bytes).max().unwrap_or(0),
        "worst_queue_bytes_storage_server": worst(facts, queue),
        "limiting_queue_bytes_storage_server": limiting(facts, queue),
        "worst_data_lag_storage_server": versions(worst(facts, data_lag)),
        "limiting_data_lag_storage_server": versions(limiting(facts, data_lag)),
        "worst_durability_lag_storage_server": versions(worst(facts, durability_lag)),
        "limiting_durability_lag_storage_server": versions(limiting(facts, durability_lag)),
    })
}

fn limited_by(rates: &RateStatus) -> Value {
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
    json!({
        "name": rates.reason,
        "description": description,
        "reason_id": REASONS.iter().position(|reason| *reason == rates.reason),
        "reason_server_id": (rates.server != Uid(0)).then(|| rates.server.to_string()),
    })
}

fn worst(facts: &Facts, of: impl Fn(&StorageStatus) -> Version) -> Version {
    let numbers = answering(facts).filter_map(|server| server.status.as_ref());
    numbers.map(of).max().unwrap_or(0).max(0)
}

/// The worst outside the zone that has the worst of all: what a single zone lags does not limit the database. With a
/// single zone, its own.
fn limiting(facts: &Facts, of: impl Fn(&StorageStatus) -> Version) -> Version {
    let zone = |server: &StorageServer| facts.zone_at(server.address?);
    let number = |server: &StorageServer| server.status.as_ref().map_or(0, &of);
    let Some(worst) = answering(facts).max_by_key(|server| number(server)) else {
        return 0;
    };
    let others = answering(facts).filter(|server| zone(server) != zone(worst));
    others.map(number).max().unwrap_or(number(worst)).max(0)
}
