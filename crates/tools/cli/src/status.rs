//! `plinth status`: a summary of the cluster.

use crate::Outcome;
use crate::connect::{self, ClusterArguments, Connection};
use plinth_bench::report::grouped;
use plinth_protocol::status::GetStatus;
use serde_json::Value;
use std::fmt::Write;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Print the whole status document as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        let connection = arguments.cluster.open().await?;
        let document = fetch(&connection).await?;
        if arguments.json {
            println!("{document:#}");
        } else {
            print!(
                "{}",
                summary(&document, &connection.path.display().to_string())
            );
        }
        available(&document)
    })
}

pub fn is_available(document: &Value) -> bool {
    document["cluster"]["database_available"].as_bool() == Some(true)
}

/// Outcome of a command that has printed the status: an error if the database is not available, for scripts.
pub fn available(document: &Value) -> Outcome {
    match is_available(document) {
        true => Ok(()),
        false => Err(format!(
            "the database is unavailable; its recovery is at: {}",
            recovery(&document["cluster"])
        )),
    }
}

/// Fetches the status document from the controller, and adds the view of this client.
pub async fn fetch(connection: &Connection) -> Outcome<Value> {
    let told = connection.ask_controller(GetStatus {}, "tell its status");
    let mut document: Value = serde_json::from_str(&told.await?.json)
        .map_err(|error| format!("the controller's status is not JSON: {error}"))?;
    let (transport, coordinators) = (&connection.transport, &connection.coordinators);
    let client =
        plinth_client::status_of_client(transport, coordinators, Some(&document["cluster"]));
    document["client"] = client.await;
    Ok(document)
}

/// Addresses of the servers that wait for free space on their disks.
pub fn full_disks(document: &Value) -> Vec<&str> {
    let cluster = &document["cluster"];
    let lists = [&cluster["log_servers"], &cluster["storage_servers"]].map(Value::as_array);
    let servers = lists.into_iter().flatten().flatten();
    let mut full: Vec<&str> = servers
        .filter(|server| server["disk_full"].as_bool() == Some(true))
        .filter_map(|server| server["address"].as_str())
        .collect();
    full.sort_unstable();
    full.dedup();
    full
}

/// One line per process with a sick disk: address, directory, problem, duration.
pub fn sick_disks(document: &Value) -> Vec<String> {
    let now = document["cluster"]["cluster_controller_timestamp"].as_u64();
    let processes = document["cluster"]["processes"].as_object();
    let all = processes.into_iter().flat_map(|all| all.values());
    let sick = all.filter_map(|process| {
        let (address, disk) = (process["address"].as_str()?, &process["sick_disk"]);
        let (directory, what) = (disk["directory"].as_str()?, disk["what"].as_str()?);
        let since = now?.saturating_sub(disk["since"].as_u64()?);
        let works = match disk["works_again"].as_bool() {
            Some(true) => "; it works again, and is watched",
            _ => "",
        };
        Some(format!(
            "{address}, {directory}: {what}, for {since} s{works}"
        ))
    });
    sick.collect()
}

/// Phase of the recovery, and the condition that it waits for.
pub fn recovery(cluster: &Value) -> String {
    let state = &cluster["recovery_state"];
    let phase = state["description"].as_str().unwrap_or("unknown");
    match state["waits_for"].as_str() {
        Some(why) if phase == "standing_still" => format!("standing still: {why}"),
        Some(what) => format!("{phase}, waits for {what}"),
        None => phase.to_string(),
    }
}

const INFALLIBLE: &str = "writing to a string";

fn row(out: &mut String, name: &str, value: String) {
    writeln!(out, "  {name:<18} {value}").expect(INFALLIBLE);
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("unknown").to_string()
}

/// A summary of a few lines for people.
pub fn summary(document: &Value, cluster_file: &str) -> String {
    let cluster = &document["cluster"];
    let mut out = String::new();
    writeln!(out, "Using cluster file `{cluster_file}'.\n\nCluster:").expect(INFALLIBLE);
    let available = match is_available(document) {
        true => "available",
        false => "unavailable",
    };
    row(&mut out, "Database", available.into());
    row(&mut out, "Recovery", recovery(cluster));
    row(&mut out, "Epoch", cluster["generation"].to_string());
    for message in cluster["messages"].as_array().into_iter().flatten() {
        row(&mut out, "Message", word(&message["description"]));
    }
    data_rows(&mut out, cluster);
    for sick in sick_disks(document) {
        row(&mut out, "Sick disk", sick);
    }
    let qos = &cluster["qos"];
    if qos.is_object() {
        row(&mut out, "Load", load(qos));
    }
    transaction_system_rows(&mut out, cluster);
    servers(
        &mut out,
        "Processes",
        &processes(cluster),
        &["class", "zone"],
    );
    servers(
        &mut out,
        "Log servers",
        &cluster["log_servers"],
        &["durable_version", "queue_bytes", "memory_bytes"],
    );
    servers(
        &mut out,
        "Storage servers",
        &cluster["storage_servers"],
        &["durable_version", "window_bytes", "disk_bytes", "watches"],
    );
    streams(&mut out, &cluster["streams"]);
    out
}

/// Size and limit of every stream, and how far its consumers lag.
fn streams(out: &mut String, streams: &Value) {
    let all = streams.as_array().filter(|all| !all.is_empty());
    let Some(all) = all else { return };
    writeln!(out, "\nStreams ({}):", all.len()).expect(INFALLIBLE);
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

/// The configuration, the state of the data, and whether the replicas are the same.
fn data_rows(out: &mut String, cluster: &Value) {
    let wanted = &cluster["configuration"];
    if wanted.is_object() {
        let engine = word(&wanted["storage_engine"]);
        let mode = word(&wanted["redundancy_mode"]);
        row(out, "Configuration", format!("{mode} {engine}"));
    }
    let data = &cluster["data"];
    if data["state"].is_object() {
        let mut state = word(&data["state"]["name"]);
        if let Some(left) = data["state"]["min_replicas_remaining"].as_u64() {
            let moving = data["moving_data"]["shards"].as_u64().unwrap_or(0);
            let shards = data["partitions_count"].as_u64().unwrap_or(0);
            let bytes = data["total_kv_size_bytes"].as_u64().unwrap_or(0);
            state += &format!(
                "; {left} replicas or more of each of {shards} shards, {moving} moving; {} bytes",
                grouped(bytes as f64)
            );
        }
        row(out, "Data", state);
    }
    let found = cluster["consistency"]["differences_found"].as_u64();
    if let Some(found) = found.filter(|found| *found > 0) {
        let first = word(&cluster["consistency"]["differences"][0]);
        let differ = format!("differ in {found} pages: {first}");
        row(out, "Replicas", differ);
    }
}

/// The controller, the proxies, and the number of log generations.
fn transaction_system_rows(out: &mut String, cluster: &Value) {
    let addresses = |value: &Value| match value.as_array() {
        Some(list) if !list.is_empty() => list
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        _ => "none".into(),
    };
    row(out, "Controller", word(&cluster["controller"]));
    row(out, "Commit proxies", addresses(&cluster["commit_proxies"]));
    row(out, "GRV proxies", addresses(&cluster["grv_proxies"]));
    let generations = cluster["log_generations"].to_string();
    row(out, "Log generations", generations);
}

/// Address, class and zone of every process, as a list of servers.
fn processes(cluster: &Value) -> Value {
    let processes = cluster["processes"].as_object();
    let shown = processes
        .into_iter()
        .flat_map(|all| all.values())
        .map(|process| {
            let zone = &process["locality"]["zoneid"];
            serde_json::json!({
                "address": process["address"], "class": process["class_type"], "zone": zone,
            })
        });
    Value::Array(shown.collect())
}

/// Load of the database, and the reason if it is limited.
pub fn load(qos: &Value) -> String {
    let released = &qos["released_transactions_per_second"];
    let begun = format!(
        "{} transactions/s begun",
        grouped(released.as_f64().unwrap_or(0.0))
    );
    let reason = &qos["performance_limited_by"];
    let limit = &qos["transactions_per_second_limit"];
    let limited = match reason["name"].as_str() {
        Some("workload") => String::new(),
        _ => format!(
            ", limited to {}: {}",
            grouped(limit.as_f64().unwrap_or(0.0)),
            reason["description"].as_str().unwrap_or("unknown")
        ),
    };
    begun + &limited + &throttled(&qos["throttled_tags"])
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

fn servers(out: &mut String, title: &str, list: &Value, fields: &[&str]) {
    let Some(list) = list.as_array().filter(|list| !list.is_empty()) else {
        return;
    };
    writeln!(out, "\n{title} ({}):", list.len()).expect(INFALLIBLE);
    for server in list {
        let address = server["address"]
            .as_str()
            .or(server["id"].as_str())
            .unwrap_or("?");
        write!(out, "  {address:<22}").expect(INFALLIBLE);
        if server["unreachable"].as_bool() == Some(true) {
            out.push_str(" unreachable");
        } else {
            for field in fields {
                let name = field.replace('_', " ");
                match &server[*field] {
                    Value::String(text) => write!(out, " {name} {text};"),
                    Value::Number(n) => {
                        write!(out, " {name} {};", grouped(n.as_f64().unwrap_or(0.0)))
                    }
                    _ => continue,
                }
                .expect(INFALLIBLE);
            }
            out.truncate(out.trim_end_matches(';').len());
            if server["disk_full"].as_bool() == Some(true) {
                out.push_str("; disk full");
            }
        }
        out.push('\n');
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
            "storage_servers": [{"id": "abc", "unreachable": true}],
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
            "class unset; zone z0\n",
            "abc",
            "unreachable",
            "none",
            "queue bytes 5; disk full\n",
            "limited to 1 300: commits wait\n",
            "changes; 12 345 bytes; printer is 1.2 s behind\n",
            "127.0.0.1:4500, /d: a sync does not come back, for 60 s\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
