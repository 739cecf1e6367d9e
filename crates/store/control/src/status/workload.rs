//! What clients do with the database, over all processes.

use super::asked::Facts;
use super::counters::{Sum, of_all_roles, rounded};
use plinth_protocol::tally::*;
use serde_json::{Value, json};

/// FoundationDB counts what is read at storage servers and what is written at commit proxies. Roles of a past epoch
/// are gone, and their counts with them.
pub fn workload(facts: &Facts) -> Value {
    let proxies = &facts.info.client.commit_proxies;
    let all = |name: &str| of_all_roles(facts.processes(), name);
    let at_proxies = |name: &str| {
        let roles = facts.processes().flat_map(|process| &process.roles);
        let proxies = roles.filter(|role| proxies.iter().any(|proxy| proxy.id == role.role));
        Sum::of(proxies.flat_map(|role| &role.counts), name)
    };
    let [immediate, default, batch] = [STARTED_IMMEDIATE, STARTED_DEFAULT, STARTED_BATCH].map(all);
    json!({
        "operations": {
            "reads": all(FINISHED_QUERIES).json(),
            "read_requests": all(TOTAL_QUERIES).json(),
            "writes": at_proxies(MUTATIONS).json(),
            "location_requests": all(LOCATION_REQUESTS).json(),
            "memory_errors": all(MEMORY_ERRORS).json(),
        },
        "bytes": {
            "read": all(BYTES_QUERIED).json(),
            "written": at_proxies(MUTATION_BYTES).json(),
        },
        "keys": {"read": all(KEYS_QUERIED).json()},
        "transactions": {
            "started": immediate.and(default).and(batch).json(),
            "started_immediate_priority": immediate.json(),
            "started_default_priority": default.json(),
            "started_batch_priority": batch.json(),
            "committed": all(COMMITTED).json(),
            "conflicted": all(CONFLICTED).json(),
            "rejected_for_queued_too_long": all(REJECTED).json(),
        },
    })
}

/// Shares of the reads that were answered from memory; 1 without reads.
pub fn page_cache(facts: &Facts) -> Value {
    let all = |name: &str| of_all_roles(facts.processes(), name).hz;
    let share = |slow: f64, of: f64| {
        if of > 0.0 {
            (1.0 - slow / of).clamp(0.0, 1.0)
        } else {
            1.0
        }
    };
    json!({
        "storage_hit_rate": rounded(share(all(COLD_QUERIES), all(TOTAL_QUERIES))),
        "log_hit_rate": rounded(share(all(COLD_PEEKS), all(PEEKS))),
    })
}

/// Transactions of batch priority that begin in a second.
pub fn batch_started(facts: &Facts) -> f64 {
    rounded(of_all_roles(facts.processes(), STARTED_BATCH).hz)
}
