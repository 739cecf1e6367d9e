//! The status of a cluster for people, 80 columns wide.

use plinth_measure::grouped;
use plinth_terminal::status::{database, full_disks, is_available, may_fail, recovery, sick_disks};
use plinth_terminal::wording::counted;
use serde_json::Value;
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";
const COLUMNS: usize = 80;
/// Where the values begin.
const INDENT: usize = 20;

/// A row of a section. Long values go on in further lines, under the first.
fn row(out: &mut String, name: &str, value: impl AsRef<str>) {
    let mut line = format!("  {name:<width$}", width = INDENT - 3);
    for word in value.as_ref().split(' ') {
        let is_first = line.len() < INDENT;
        if !is_first && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            writeln!(out, "{line}").expect(INFALLIBLE);
            line = " ".repeat(INDENT - 1);
        }
        line = format!("{line} {word}");
    }
    writeln!(out, "{line}").expect(INFALLIBLE);
}

fn section(out: &mut String, name: &str) {
    writeln!(out, "\n{name}:").expect(INFALLIBLE);
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A size with about four digits and a unit.
pub fn bytes(value: &Value) -> String {
    let mut n = value.as_f64().unwrap_or(0.0);
    for unit in ["B", "KB", "MB", "GB"] {
        if n < 10_000.0 {
            return format!("{} {unit}", grouped(n));
        }
        n /= 1000.0;
    }
    format!("{} TB", grouped(n))
}

/// A counter's rate.
pub fn rate(counter: &Value) -> String {
    format!("{}/s", grouped(counter["hz"].as_f64().unwrap_or(0.0)))
}

/// A summary for people.
pub fn summary(document: &Value, cluster_file: &str) -> String {
    let rest = sections(document);
    format!("Using cluster file `{cluster_file}'.\n\n{rest}")
}

/// The same for those who have not asked by a cluster file.
pub fn sections(document: &Value) -> String {
    let cluster = &document["cluster"];
    let mut out = String::from("Cluster:\n");
    row(&mut out, "Database", database(document));
    if !is_available(document) {
        row(&mut out, "Recovery", recovery(cluster));
    }
    row(&mut out, "Epoch", cluster["generation"].to_string());
    cluster_rows(&mut out, document);
    let of_coordinators = list(&document["client"]["messages"])
        .filter(|message| message["name"] == "coordinators_of_two_databases");
    for message in list(&cluster["messages"]).chain(of_coordinators) {
        row(&mut out, "Message", word(&message["description"]));
    }
    for sick in sick_disks(document) {
        row(&mut out, "Sick disk", sick);
    }
    for full in full_disks(document) {
        row(&mut out, "Full disk", full);
    }
    facts(&mut out, "Data", &data_facts(cluster));
    facts(&mut out, "Workload", &workload_facts(cluster));
    process_rows(&mut out, cluster);
    server_rows(&mut out, cluster);
    streams(&mut out, &cluster["streams"]);
    out
}

/// What is configured and what is there.
fn cluster_rows(out: &mut String, document: &Value) {
    let cluster = &document["cluster"];
    let wanted = &cluster["configuration"];
    if wanted.is_object() {
        let (mode, engine) = (
            word(&wanted["redundancy_mode"]),
            word(&wanted["storage_engine"]),
        );
        row(out, "Configuration", format!("{mode} {engine}"));
        row(out, "Roles", roles(cluster));
    }
    row(out, "Controller", word(&cluster["controller"]));
    row(out, "Coordinators", coordinators(document));
    if cluster["fault_tolerance"].is_object() {
        let [data, service] =
            may_fail(cluster).map(|zones| counted(zones.unwrap_or(0), "zone", "zones"));
        let text = format!("{data} may fail without loss of data, {service} of availability");
        row(out, "Fault tolerance", text);
    }
    let excluded: Vec<&str> = list(&wanted["excluded_servers"])
        .filter_map(|target| target["address"].as_str().or(target["locality"].as_str()))
        .collect();
    if !excluded.is_empty() {
        row(out, "Excluded", excluded.join(", "));
    }
    if let Some(zone) = cluster["maintenance_zone"].as_str() {
        let left = cluster["maintenance_seconds_remaining"].as_f64();
        let left = grouped(left.unwrap_or(0.0));
        let text = format!("zone {zone}, for {left} s: its servers are waited for");
        row(out, "Maintenance", text);
    }
    if cluster["clients"].is_object() {
        row(out, "Clients", cluster["clients"]["count"].to_string());
    }
    if number(&cluster["log_generations"]) > 1 {
        row(
            out,
            "Log generations",
            cluster["log_generations"].to_string(),
        );
    }
}

/// Numbers of roles: what is there, and what is configured where that differs.
fn roles(cluster: &Value) -> String {
    let (there, wanted) = (number_of_roles(cluster), &cluster["configuration"]);
    let named = [
        ("logs", "log", ["log server", "log servers"]),
        (
            "commit_proxies",
            "commit_proxy",
            ["commit proxy", "commit proxies"],
        ),
        ("grv_proxies", "grv_proxy", ["GRV proxy", "GRV proxies"]),
        ("resolvers", "resolver", ["resolver", "resolvers"]),
    ];
    let texts = named.map(|(field, role, [one, many])| {
        let (there, wanted) = (there(role), number(&wanted[field]));
        let there_are = counted(there, one, many);
        match there == wanted {
            true => there_are,
            false => format!("{there_are} ({wanted} configured)"),
        }
    });
    texts.join(", ")
}

/// How many roles of a kind there are.
fn number_of_roles(cluster: &Value) -> impl Fn(&str) -> u64 {
    |kind| match kind {
        "log" => list(&cluster["log_servers"]).count() as u64,
        kind => {
            let processes = cluster["processes"].as_object();
            let processes = processes.into_iter().flat_map(|all| all.values());
            let roles = processes.flat_map(|process| list(&process["roles"]));
            roles.filter(|role| role["role"] == kind).count() as u64
        }
    }
}

/// How many there are, and whether this client reaches them, if one has asked.
fn coordinators(document: &Value) -> String {
    let of_client = &document["client"]["coordinators"]["coordinators"];
    if !of_client.is_array() {
        let named = word(&document["cluster"]["connection_string"]);
        let places = named.split_once('@').map_or(named, |(_, places)| places);
        return places.split(',').count().to_string();
    }
    let all: Vec<&Value> = list(of_client).collect();
    let silent = all.iter().filter(|one| one["reachable"] == false);
    let silent: Vec<&str> = silent.map(|one| word(&one["address"])).collect();
    match silent.is_empty() {
        true => format!("{}, all reachable", all.len()),
        false => format!("{}, unreachable: {}", all.len(), silent.join(", ")),
    }
}

/// The state of the data, and whether the replicas are the same.
pub fn data_facts(cluster: &Value) -> Vec<(&'static str, String)> {
    let data = &cluster["data"];
    if !data["state"].is_object() {
        return Vec::new();
    }
    let mut state = word(&data["state"]["name"]).to_string();
    if let Some(left) = data["state"]["min_replicas_remaining"].as_u64() {
        let shards = counted(number(&data["partitions_count"]), "shard", "shards");
        let of_each = match data["partitions_count"].as_u64() {
            Some(1) => "its shard".into(),
            _ => format!("each of {shards}"),
        };
        let replicas = counted(left, "replica", "replicas");
        state += &format!("; {replicas} or more of {of_each}");
    }
    let mut facts = vec![("Replication", state)];
    let moving = &data["moving_data"];
    if moving.is_object() {
        let shards = counted(number(&moving["shards"]), "shard", "shards");
        let free = |of: &str| bytes(&data[format!("least_operating_space_bytes_{of}_server")]);
        facts.extend([
            (
                "Moving",
                format!("{shards}, {}", bytes(&moving["in_flight_bytes"])),
            ),
            ("Keys and values", bytes(&data["total_kv_size_bytes"])),
            ("Disk used", bytes(&data["total_disk_used_bytes"])),
            (
                "Least disk free",
                format!("{} for storage, {} for logs", free("storage"), free("log")),
            ),
        ]);
    }
    let found = number(&cluster["consistency"]["differences_found"]);
    if found > 0 {
        let first = word(&cluster["consistency"]["differences"][0]);
        facts.push(("Replicas", format!("differ in {found} pages: {first}")));
    }
    facts
}

/// What is asked of the database, and how fast it answers.
pub fn workload_facts(cluster: &Value) -> Vec<(&'static str, String)> {
    let (workload, qos) = (&cluster["workload"], &cluster["qos"]);
    let mut facts = Vec::new();
    if workload.is_object() {
        let (operations, transactions) = (&workload["operations"], &workload["transactions"]);
        let moved = |what: &str| bytes(&workload["bytes"][what]["hz"]);
        let of =
            |what: &str, bytes: &str| format!("{}, {}/s", rate(&operations[what]), moved(bytes));
        let [begun, done, conflicted] =
            ["started", "committed", "conflicted"].map(|what| rate(&transactions[what]));
        facts.extend([
            ("Reads", of("reads", "read")),
            ("Writes", of("writes", "written")),
            (
                "Transactions",
                format!("{begun} begun, {done} committed, {conflicted} in conflict"),
            ),
        ]);
    }
    if qos.is_object() {
        facts.push(("Limit", limit(qos)));
    }
    let probe = &cluster["latency_probe"];
    let ms = |field: &str| {
        let seconds = probe[format!("{field}_seconds")].as_f64();
        seconds.map_or("none".into(), |s| format!("{:.1} ms", s * 1000.0))
    };
    if probe.is_object() && !facts.is_empty() {
        let (begin, read, commit) = (ms("transaction_start"), ms("read"), ms("commit"));
        let text = format!("{begin} to begin, {read} to read, {commit} to commit");
        facts.push(("Latency", text));
    }
    facts
}

fn facts(out: &mut String, title: &str, facts: &[(&'static str, String)]) {
    if facts.is_empty() {
        return;
    }
    section(out, title);
    facts.iter().for_each(|(name, value)| row(out, name, value));
}

/// Whether the database lets in all that comes, and the reason if it does not.
pub fn limit(qos: &Value) -> String {
    let reason = &qos["performance_limited_by"];
    let limit = &qos["transactions_per_second_limit"];
    let limited = match reason["name"].as_str() {
        Some("workload") => "none".to_string(),
        _ => format!(
            "{} transactions/s: {}",
            grouped(limit.as_f64().unwrap_or(0.0)),
            word(&reason["description"])
        ),
    };
    limited + &throttled(&qos["throttled_tags"])
}

fn throttled(tags: &Value) -> String {
    let mut words = Vec::new();
    if let Some(count) = tags["manual"]["count"].as_u64().filter(|count| *count > 0) {
        words.push(format!("{count} by hand"));
    }
    for tag in tags["auto"]["tags"].as_array().into_iter().flatten() {
        let name = tag["tag"].as_str().unwrap_or("?");
        words.push(format!(
            "{name} to {}/s",
            grouped(tag["rate"].as_f64().unwrap_or(0.0))
        ));
    }
    match words.is_empty() {
        true => String::new(),
        false => format!("; tags throttled: {}", words.join(", ")),
    }
}

/// A line for each process, by address.
fn process_rows(out: &mut String, cluster: &Value) {
    let processes = cluster["processes"].as_object();
    let mut all: Vec<&Value> = processes.into_iter().flat_map(|all| all.values()).collect();
    all.sort_by_key(|process| process["address"].to_string());
    if all.is_empty() {
        return;
    }
    section(out, &format!("Processes ({})", all.len()));
    let title = ["address", "cpu", "memory", "disk free", "zone", "class"];
    writeln!(out, "{}", process_row(title.map(String::from))).expect(INFALLIBLE);
    for process in all {
        let cores = process["cpu"]["usage_cores"].as_f64();
        let excluded = match process["excluded"].as_bool() {
            Some(true) => ", excluded",
            _ => "",
        };
        let columns = [
            word(&process["address"]).to_string(),
            cores.map_or("-".into(), |cores| format!("{:.0}%", cores * 100.0)),
            bytes(&process["memory"]["rss_bytes"]),
            bytes(&process["disk"]["free_bytes"]),
            word(&process["locality"]["zoneid"])
                .chars()
                .take(12)
                .collect(),
            format!("{}{excluded}", word(&process["class_type"])),
        ];
        writeln!(out, "{}", process_row(columns)).expect(INFALLIBLE);
    }
}

fn process_row([address, cpu, memory, free, zone, class]: [String; 6]) -> String {
    format!("  {address:<22}{cpu:>5}{memory:>10}{free:>11}  {zone:<13}{class}")
}

/// The newest version of all, so that lags can be told.
fn newest(cluster: &Value) -> u64 {
    let servers = list(&cluster["log_servers"]).chain(list(&cluster["storage_servers"]));
    servers
        .map(|server| number(&server["version"]))
        .max()
        .unwrap_or(0)
}

/// What the rows of servers tell: how far they are behind, and what they have.
const SERVER_TITLES: [&str; 4] = ["address", "behind", "on disk", "in memory"];

fn server_rows(out: &mut String, cluster: &Value) {
    for (title, of) in [
        ("Log servers", "log_servers"),
        ("Storage servers", "storage_servers"),
    ] {
        let mut all = servers(cluster, of);
        all.sort_by(|a, b| a.cells[0].cmp(&b.cells[0]));
        if all.is_empty() {
            continue;
        }
        section(out, &format!("{title} ({})", all.len()));
        let line =
            |[address, a, b, c]: &[String; 4]| format!("  {address:<22}{a:>10}{b:>12}{c:>12}");
        let titles = SERVER_TITLES.map(String::from);
        writeln!(out, "{}", line(&titles)).expect(INFALLIBLE);
        for server in all {
            let (address, state) = (&server.cells[0], server.state);
            match state {
                "unreachable" => writeln!(out, "  {address:<22} {state}"),
                "" => writeln!(out, "{}", line(&server.cells)),
                state => writeln!(out, "{}  {state}", line(&server.cells)),
            }
            .expect(INFALLIBLE);
        }
    }
}

/// A log server or a storage server.
pub struct Server {
    /// Address, how far it is behind, bytes on its disk, bytes in its memory.
    pub cells: [String; 4],
    /// What is wrong with it. Empty: nothing.
    pub state: &'static str,
    /// Infinite if it is not known.
    pub behind_s: f64,
}

/// The servers of a kind: `log_servers` or `storage_servers`.
pub fn servers(cluster: &Value, of: &str) -> Vec<Server> {
    let (newest, is_log) = (newest(cluster), of == "log_servers");
    let (version, memory, disk) = match is_log {
        true => ("durable_version", "memory_bytes", "queue_bytes"),
        false => ("version", "window_bytes", "disk_bytes"),
    };
    let row = |server: &Value| {
        let named = server["address"].as_str().or(server["id"].as_str());
        let address = named.unwrap_or("?").to_string();
        let versions = newest.saturating_sub(number(&server[version]));
        // A storage server's own number is without the jumps of recoveries.
        let said = server["lag_seconds"].as_f64().filter(|_| !is_log);
        let behind_s = said.unwrap_or(versions as f64 / 1e6);
        let state = match server {
            _ if server["unreachable"] == true => "unreachable",
            _ if server["disk_full"] == true => "disk full",
            _ if server["counts"] == false => "does not count",
            _ => "",
        };
        let is_silent = state == "unreachable";
        let known = |text: String| if is_silent { "-".into() } else { text };
        Server {
            cells: [
                address,
                known(format!("{behind_s:.1} s")),
                known(bytes(&server[disk])),
                known(bytes(&server[memory])),
            ],
            state,
            behind_s: if is_silent { f64::INFINITY } else { behind_s },
        }
    };
    list(&cluster[of]).map(row).collect()
}

/// Size and limit of every stream, and how far its consumers lag.
fn streams(out: &mut String, streams: &Value) {
    let all = streams.as_array().filter(|all| !all.is_empty());
    let Some(all) = all else { return };
    section(out, &format!("Streams ({})", all.len()));
    for stream in all {
        let bytes = grouped(stream["bytes"].as_f64().unwrap_or(0.0));
        let mut state = format!("{}; {bytes} bytes", word(&stream["kind"]));
        for consumer in stream["consumers"].as_array().into_iter().flatten() {
            let lag_s = consumer["lag_seconds"].as_f64().unwrap_or(0.0);
            let name = word(&consumer["name"]);
            state += &format!("; {name} is {lag_s:.1} s behind");
        }
        writeln!(out, "  {:<22} {state}", word(&stream["name"])).expect(INFALLIBLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_what_is_there_and_what_is_not() {
        let document = serde_json::json!({"cluster": {
            "generation": 3, "database_available": false, "controller": "127.0.0.1:4500",
            "recovery_state": {
                "name": "recruiting_transaction_servers", "description": "recruiting", "waits_for": "two more",
            },
            "configuration": {"redundancy_mode": "double", "storage_engine": "memory"},
            "cluster_controller_timestamp": 1000,
            "processes": {"a": {
                "address": "127.0.0.1:4500", "class_type": "unset", "locality": {"zoneid": "z0"},
                "sick_disk": {
                    "directory": "/d", "what": "a sync does not come back", "since": 940, "works_again": false,
                },
            }},
            "qos": {
                "released_transactions_per_second": 1200.5, "transactions_per_second_limit": 1300,
                "performance_limited_by": {"name": "commit_latency", "description": "commits wait"},
            },
            "storage_servers": [
                {"id": "abc", "unreachable": true},
                {"address": "127.0.0.1:4502", "version": 9, "lag_seconds": 44.51, "counts": false},
            ],
            "log_servers": [{"address": "127.0.0.1:4501", "queue_bytes": 5, "disk_full": true}],
            "streams": [{
                "name": "orders", "kind": "changes", "bytes": 12345,
                "consumers": [{"name": "printer", "lag_seconds": 1.25}],
            }],
        }});
        assert_eq!(full_disks(&document), ["127.0.0.1:4501"]);
        let text = summary(&document, "plinth.cluster");
        for part in [
            "unavailable",
            "recruiting, waits for two more\n",
            "double memory",
            "z0           unset\n",
            "abc",
            "unreachable",
            "1 log server (0 configured)",
            "5 B",
            "disk full\n",
            "44.5 s",
            "does not count\n",
            "1 300 transactions/s: commits wait\n",
            "changes; 12 345 bytes; printer is 1.2 s behind\n",
            "127.0.0.1:4500, /d: a sync does not come back, for 60 s\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
    }

    #[test]
    fn a_long_value_goes_on_under_its_beginning() {
        let mut out = String::new();
        row(&mut out, "Name", "word ".repeat(30).trim());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{out}");
        assert!(
            lines[1].starts_with(&format!("{}word", " ".repeat(INDENT))),
            "{out}"
        );
    }
}
