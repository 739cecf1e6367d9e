//! What operators have said about the distribution of data.

use super::asked::Facts;
use plinth_core::distribution::{Distribution, Maintenance};
use plinth_runtime::unix_time_ms;
use serde_json::{Value, json};

fn said(facts: &Facts) -> Option<&Distribution> {
    Some(&facts.replicas.as_ref()?.distribution)
}

/// The maintenance that has not ended.
fn maintained(facts: &Facts) -> Option<&Maintenance> {
    said(facts)?.maintained(unix_time_ms())
}

pub fn is_under_maintenance(facts: &Facts, zone: &str) -> bool {
    maintained(facts).is_some_and(|maintenance| maintenance.zone == zone)
}

/// Adds the fields to the document.
pub fn add(document: &mut Value, facts: &Facts) {
    let Some(said) = said(facts) else { return };
    document["data_distribution_disabled"] = json!(said.is_off());
    document["data_distribution_disabled_for_rebalance"] = json!(said.no_balance);
    document["data_distribution_disabled_for_ss_failures"] = json!(said.no_healing);
    if let Some(maintenance) = maintained(facts) {
        let seconds = maintenance.left_ms(unix_time_ms()) as f64 / 1000.0;
        document["maintenance_zone"] = json!(maintenance.zone);
        document["maintenance_seconds_remaining"] = json!(seconds);
    }
}

/// What an operator may have forgotten.
pub fn messages(facts: &Facts) -> Vec<Value> {
    let Some(said) = said(facts) else {
        return Vec::new();
    };
    let off = "data distribution is OFF: lost copies are not made again, excluded processes are not emptied, and no \
        shard is split; `datadistribution on' in plinth cli switches it on";
    let failures = "data distribution is disabled for failures of storage servers: lost copies are not made again; \
        `datadistribution enable ssfailure' in plinth cli enables it";
    let balance = "data distribution is disabled for rebalance: full servers stay full; `datadistribution enable \
        rebalance' in plinth cli enables it";
    [
        (said.is_off(), "data_distribution_off", off),
        (
            said.no_healing,
            "data_distribution_disabled_for_ss_failures",
            failures,
        ),
        (
            said.no_balance,
            "data_distribution_disabled_for_rebalance",
            balance,
        ),
    ]
    .into_iter()
    .filter(|(is_so, ..)| *is_so)
    .map(|(_, name, description)| json!({"name": name, "description": description}))
    .collect()
}
