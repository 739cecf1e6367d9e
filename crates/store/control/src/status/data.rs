//! The data: its replicas, its sizes, and what it costs to lose processes.

use super::asked::{Facts, StorageServer};
use super::{damage, lagging, unreadable};
use crate::placement;
use crate::replica::could_serve;
use plinth_core::config::DatabaseConfig;
use plinth_protocol::control::RegisterWorker;
use plinth_rpc::{Interface, Place};
use plinth_runtime::planted;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub fn data(facts: &Facts) -> Value {
    let Some(replicas) = &facts.replicas else {
        let description = match damage::all(&facts.workers).next() {
            None => "the database is not there yet",
            Some(_) => "what lies where cannot be read: files of storage servers are damaged",
        };
        return json!({"state": {
            "healthy": false, "name": "initializing", "description": description,
        }});
    };
    let (name, description) = replicas.state();
    let state = json!({
        "healthy": replicas.is_full(),
        "name": name,
        "description": description,
        "min_replicas_remaining": replicas.least,
    });
    let of_storage = |number: fn(&plinth_protocol::storage::StorageStatus) -> u64| {
        let known = facts
            .storage
            .iter()
            .filter_map(|server| server.status.as_ref());
        known.map(number).sum::<u64>()
    };
    // Bytes of one copy.
    let stored = of_storage(|status| status.stored_bytes) / replicas.wanted.max(1) as u64;
    let moved = facts
        .scan
        .as_ref()
        .map(|scan| (scan.moving_bytes, scan.moved_bytes));
    let (moving_bytes, moved_bytes) = moved.unwrap_or_default();
    let unhealthy = facts
        .storage
        .iter()
        .filter(|server| !could_serve(lagging::replica(server, facts)));
    let logs = facts.logs.iter().map(|log| log.role.address);
    let storage = facts.storage.iter().filter_map(|server| server.address);
    let (least_of_storage, ratio) = least_space(facts, storage);
    json!({
        "state": &state,
        "moving_data": {
            "shards": replicas.moving,
            "in_flight_bytes": moving_bytes,
            "in_queue_bytes": 0,
            "total_written_bytes": moved_bytes,
        },
        "partitions_count": replicas.shards,
        "average_partition_size_bytes": stored / replicas.shards.max(1) as u64,
        "total_kv_size_bytes": stored,
        "total_disk_used_bytes": of_storage(|status| status.disk_bytes)
            + facts.logs.iter().filter_map(|log| log.status.as_ref()).map(|s| s.queue_bytes).sum::<u64>(),
        "unreadable": unreadable::json(&replicas.unreadable),
        "least_operating_space_bytes_log_server": least_space(facts, logs).0,
        "least_operating_space_bytes_storage_server": least_of_storage,
        "least_operating_space_ratio_storage_server": ratio,
        "team_trackers": [{
            "primary": true,
            "in_flight_bytes": moving_bytes,
            "unhealthy_servers": unhealthy.count(),
            "state": &state,
        }],
    })
}

/// Bytes that are free on the fullest of the disks of these processes, and their share of the disk.
fn least_space(facts: &Facts, of: impl Iterator<Item = SocketAddr>) -> (u64, f64) {
    let spaces = of.filter_map(|address| {
        let worker = facts.vitals_at(address)?.worker.as_ref()?;
        let share = worker.disk_free as f64 / worker.disk_total.max(1) as f64;
        Some((worker.disk_free, share))
    });
    let least = spaces.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
    least.map_or((0, 0.0), |(bytes, share)| {
        (bytes, super::counters::rounded(share))
    })
}

// ---- fault tolerance ----

/// How many zones, or data halls where copies are in different ones, may fail at once, whichever they are, without
/// loss of data; and without a lasting loss of service.
pub struct Tolerance {
    pub data: usize,
    pub availability: usize,
}

impl Tolerance {
    pub fn of(facts: &Facts, config: &DatabaseConfig, coordinators: &[Place]) -> Tolerance {
        let copies = facts.replicas.as_ref().map_or(0, |replicas| replicas.least);
        // A generation that is still there is still needed.
        let generations = facts.info.log_system.generations.iter();
        let logs = generations.map(|generation| generation.least_left(|log| has_log(facts, log)));
        let least = logs.chain([copies]).min().unwrap_or(0);
        let data =
            least
                .saturating_sub(1)
                .min(of_coordinators(facts, config, coordinators, |_| true));
        // A full disk loses nothing, and neither a coordinator nor a log server goes on there.
        let has_room = |worker: &RegisterWorker| !facts.is_full(worker);
        let coordinators = of_coordinators(facts, config, coordinators, has_room);
        let well = || {
            facts
                .workers
                .values()
                .filter(|worker| worker.disk.is_none())
        };
        let places = well().filter(|worker| has_room(worker)).collect();
        let spare = placement::log_places(places, config);
        let spare = spare.saturating_sub(config.replication as usize);
        let elsewhere = placement::stateless_places(well().collect(), config).saturating_sub(1);
        Tolerance {
            data,
            availability: data.min(coordinators).min(spare).min(elsewhere),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "max_zone_failures_without_losing_data": self.data,
            "max_zone_failures_without_losing_availability": self.availability,
        })
    }
}

/// Whether a log server is there, intact and on a disk that works.
fn has_log(facts: &Facts, log: &Interface) -> bool {
    let mut well = facts
        .workers
        .values()
        .filter(|worker| worker.disk.is_none());
    // The epoch of a damaged one is 0.
    well.any(|worker| {
        worker
            .logs
            .iter()
            .any(|(id, epoch)| *id == log.id && *epoch > 0)
    })
}

/// How many zones, or data halls, may fail until a majority of the coordinators is gone, those first that have most
/// of them. Only those at workers that `counts_too` are counted.
fn of_coordinators(
    facts: &Facts,
    config: &DatabaseConfig,
    coordinators: &[Place],
    counts_too: impl Fn(&RegisterWorker) -> bool,
) -> usize {
    let mut domains: BTreeMap<&str, usize> = BTreeMap::new();
    let workers = coordinators
        .iter()
        .filter_map(|place| facts.worker_of(place));
    let serves = |worker: &&RegisterWorker| {
        (worker.disk.is_none() && !worker.lost_registers)
            || planted!(
                "silent_coordinators_count",
                "status counts coordinators that have no registers, or a disk that is sick"
            )
    };
    for worker in workers.filter(serves).filter(|worker| counts_too(worker)) {
        let domain = worker.locality.domain(config.domain);
        *domains.entry(domain).or_default() += 1;
    }
    let mut counts: Vec<usize> = domains.into_values().collect();
    failures(&mut counts, coordinators.len() / 2 + 1)
}

fn failures(counts: &mut [usize], majority: usize) -> usize {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut left: usize = counts.iter().sum();
    let lost = counts.iter().take_while(|count| {
        left -= **count;
        left >= majority
    });
    lost.count()
}

/// Storage servers that answer.
pub fn answering(facts: &Facts) -> impl Iterator<Item = &StorageServer> {
    facts
        .storage
        .iter()
        .filter(|server| server.status.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_zones_may_fail_as_leave_a_majority_of_the_coordinators() {
        assert_eq!(failures(&mut [1, 1, 1], 2), 1);
        assert_eq!(failures(&mut [1, 1, 1, 1, 1], 3), 2);
        assert_eq!(failures(&mut [2, 1, 1, 1], 3), 1);
        assert_eq!(failures(&mut [3], 2), 0);
        assert_eq!(failures(&mut [1, 1], 2), 0, "one of three does not answer");
    }
}
