//! Storage servers that are far behind the log.

use super::asked::{Facts, StorageServer};
use super::damage;
use super::workers::Workers;
use crate::knobs::STORAGE_REPLACE_LAG_MS;
use crate::replica::{Lag, Replica, could_serve, seconds_behind};
use plinth_core::Uid;
use plinth_core::version::VERSIONS_PER_SECOND;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How far a server that answers is behind.
pub fn seconds(server: &StorageServer, facts: &Facts) -> Option<f64> {
    let version = server.status.as_ref()?.version;
    let (system, newest) = (&facts.info.log_system, facts.newest_version());
    Some(seconds_behind(system, newest, version))
}

/// What the answers tell of a server. One that does not answer could serve nothing now.
pub fn replica(server: &StorageServer, facts: &Facts) -> Replica {
    let behind_s = seconds(server, facts);
    Replica {
        answers: behind_s.is_some(),
        lag: behind_s.map_or(Lag::KeepsUp, Lag::of),
        is_damaged: damage::of(&facts.workers, server.id).is_some(),
    }
}

/// Counts the copies that could be read now.
pub fn count_copies(facts: &mut Facts) {
    let Some(mut replicas) = facts.replicas.take() else {
        return;
    };
    let asked = facts.storage.iter();
    let asked = asked.map(|server| (server.id, could_serve(replica(server, facts))));
    let asked: BTreeMap<Uid, bool> = asked.collect();
    // One that is so new that it was not asked has just taken its data over.
    let hosted = replicas.hosted.clone();
    replicas.count(|id| match asked.get(id) {
        Some(counts) => *counts,
        None => hosted.contains(id),
    });
    facts.replicas = Some(replicas);
}

/// Storage servers that are named one by one.
const NAMED_MAX: usize = 4;

/// A message about servers to which no log server gives what comes next, if there are any.
pub fn without_logs(facts: &Facts) -> Option<Value> {
    let waiting = facts.storage.iter().filter_map(|server| {
        let (what, address) = (&server.status.as_ref()?.waits_for, server.address?);
        (!what.is_empty()).then(|| format!("{address} waits for {what}"))
    });
    let waiting: Vec<String> = waiting.collect();
    let named = waiting.iter().take(NAMED_MAX).cloned();
    let more = waiting.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("and {more} more do"));
    let named: Vec<String> = named.chain(more).collect();
    (!named.is_empty()).then(|| {
        json!({
            "name": "storage_without_logs",
            "description": format!(
                "storage servers get nothing from the log: {}; bring those log servers back, their files too if they \
                 are damaged; see docs/operating.md, A server that lags",
                named.join("; ")
            ),
        })
    })
}

/// A message about servers that do not run because their files are of the past, if there are any.
pub fn older_copies(workers: &Workers) -> Option<Value> {
    let copies = workers.values().flat_map(|worker| {
        let address = worker.worker.address;
        worker.older.iter().map(move |copy| (address, copy))
    });
    let copies: Vec<String> = copies
        .map(|(address, copy)| {
            let behind =
                copy.log_begins.saturating_sub(copy.version) as f64 / VERSIONS_PER_SECOND as f64;
            format!("{address} ({behind:.0} s of versions)")
        })
        .collect();
    (!copies.is_empty()).then(|| {
        json!({
            "name": "older_copy",
            "description": format!(
                "files of storage servers are an older copy that ends before the log begins: {}; they are not read, \
                 and others give their data to new servers; where there is no other copy, put the newest files back; \
                 see docs/operating.md, An older copy",
                copies.join(", ")
            ),
        })
    })
}

/// A message about servers whose processes are there, and whose copies do not count, if there are any.
pub fn message(facts: &Facts) -> Option<Value> {
    if !facts.info.accepting {
        return None; // nobody can be behind while nothing is committed
    }
    let behind = facts.storage.iter().filter_map(|server| {
        let address = server.address?;
        let how = match seconds(server, facts) {
            Some(seconds) => format!("{seconds:.0} s"),
            None => "silent".into(),
        };
        let of = replica(server, facts);
        let keeps_up = of.answers && of.lag == Lag::KeepsUp;
        (!keeps_up).then(|| format!("{address} ({how})"))
    });
    let behind: Vec<String> = behind.collect();
    (!behind.is_empty()).then(|| {
        json!({
            "name": "lagging_storage",
            "description": format!(
                "storage servers are far behind the log or silent: {}; their copies do not count, so stop no others; \
                 see to their network and disks; from {} s on others get what they hold, if another copy of it keeps \
                 up; see docs/operating.md, A server that lags",
                behind.join(", "),
                STORAGE_REPLACE_LAG_MS.get() / 1000,
            ),
        })
    })
}
