//! The status document has the fields that FoundationDB documents, or the page on migrating says why not.

use crate::common::{Cluster, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Every field of FoundationDB's documentation, release 7.3: `*` is any key, `[]` any element of a list. A comma
/// within a name stands for a point.
const FIELDS: &str = include_str!("status/fields.txt");
const PAGE: &str = include_str!("../../../../docs/migrating-from-foundationdb.md");
/// The fields that are not there stand in the table behind this line.
const TABLE: &str = "### Fields of the status document that are not there";

/// Told only while something is wrong, while there is a limit, or while a log of an older epoch is still needed.
const AT_TIMES: [&str; 13] = [
    "cluster.layers._error",
    "cluster.logs[].end_version",
    "cluster.qos.batch_performance_limited_by.reason_server_id",
    "cluster.qos.performance_limited_by.reason_server_id",
    "cluster.qos.batch_transactions_per_second_limit",
    "cluster.qos.transactions_per_second_limit",
    "cluster.messages[].name",
    "cluster.messages[].description",
    "cluster.processes.*.messages[].name",
    "cluster.processes.*.messages[].description",
    "cluster.processes.*.messages[].time",
    "cluster.processes.*.messages[].type",
    "client.messages[]",
];

/// Whether a value that is not null lies at a path.
fn has(document: &Value, path: &str) -> bool {
    let Some((first, rest)) = path.split_once('.').map_or(Some((path, "")), Some) else {
        return false;
    };
    let go_on = |value: &Value| match rest {
        "" => !value.is_null(),
        rest => has(value, rest),
    };
    if first == "*" {
        return document
            .as_object()
            .is_some_and(|all| all.values().any(go_on));
    }
    let name = first.replace(',', ".");
    match name.strip_suffix("[]") {
        Some(list) => document[list]
            .as_array()
            .is_some_and(|all| all.iter().any(go_on)),
        None => go_on(&document[&name]),
    }
}

/// `a.b` stands for itself and all below it, `*.c` for all that end so.
fn covers(pattern: &str, field: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => field.ends_with(end),
        None => field
            .strip_prefix(pattern)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])),
    }
}

/// The patterns in the first column of the table.
fn absent() -> Vec<&'static str> {
    let table = PAGE.split(TABLE).nth(1).expect("the page has the table");
    let table = table.split("\n#").next().expect("a part");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let first_columns = rows.filter_map(|row| row.split(" | ").next());
    let quoted = first_columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    quoted.collect()
}

fn document(cluster: &Cluster) -> Value {
    let said = cluster.plinth(&["status", "--json"]);
    serde_json::from_str(&text(&said.stdout)).expect("JSON")
}

#[test]
fn every_field_that_foundationdb_documents_is_there_or_named_on_the_page_on_migrating() {
    let cluster = Cluster::start("status-document", 3, &["--replication", "double"]);
    cluster.cli("set a b; getrange a z");
    // Rates are averages over seconds.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let first = document(&cluster);
    let processes = first["cluster"]["processes"]
        .as_object()
        .expect("processes");
    let process = processes.values().next().expect("a process");
    let zone = process["locality"]["zoneid"].as_str().expect("a zone");
    cluster.cli(&format!("maintenance on {zone} 1000"));
    cluster.cli("exclude force locality_zoneid:nowhere 127.0.0.9; lock");
    let second = document(&cluster);
    let fields: Vec<&str> = FIELDS.lines().collect();
    let there: BTreeSet<&str> = fields
        .iter()
        .copied()
        .filter(|f| has(&first, f) || has(&second, f))
        .collect();
    let absent = absent();
    let mut wrong = Vec::new();
    for field in fields.iter().copied() {
        let at_times = AT_TIMES
            .iter()
            .any(|known| covers(known, field) || known == &field)
            || field.starts_with("client.messages[]");
        let is_named = absent.iter().any(|pattern| covers(pattern, field));
        match (there.contains(field), is_named) {
            (true, true) => wrong.push(format!("{field} is there, and named as absent")),
            (false, false) if !at_times => {
                wrong.push(format!("{field} is neither there nor named"))
            }
            _ => {}
        }
    }
    for pattern in &absent {
        if !fields.iter().any(|field| covers(pattern, field)) {
            wrong.push(format!("{pattern} on the page is no field of FoundationDB"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{first:#}", wrong.join("\n"));
    println!("{} of {} fields are there", there.len(), fields.len());

    // Numbers that a reader would compare with others.
    let cluster_part = &first["cluster"];
    assert_eq!(
        cluster_part["fault_tolerance"]["max_zone_failures_without_losing_data"],
        1
    );
    assert_eq!(second["cluster"]["database_lock_state"]["locked"], true);
    assert!(cluster_part["workload"]["transactions"]["committed"]["counter"].as_u64() > Some(0));
    assert!(cluster_part["workload"]["operations"]["reads"]["counter"].as_u64() > Some(0));
    let machine = cluster_part["machines"]
        .as_object()
        .expect("machines")
        .values()
        .next();
    let memory = &machine.expect("a machine")["memory"];
    assert!(
        memory["total_bytes"].as_u64() > memory["free_bytes"].as_u64(),
        "{memory}"
    );
    assert!(
        cluster_part["clients"]["count"].as_u64() > Some(0),
        "{}",
        cluster_part["clients"]
    );
}
