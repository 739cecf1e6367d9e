//! `plinth top`: the state and load of a cluster, updated every second.

use crate::status::{self, bytes, rate};
use plinth_measure::grouped;
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::status::{availability, available};
use plinth_terminal::watching::table::{Cell, Column, Table};
use plinth_terminal::watching::{How, Seen, Shown, Watched, watch};
use serde_json::Value;
use std::pin::Pin;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth top -C data/plinth.cluster", "A screen that ends with q or Ctrl-C"),
    ("plinth top --once", "The screen once, as text"),
]))]
struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    how: How,
}

struct Cluster {
    connection: Connection,
    is_once: bool,
}

impl Watched for Cluster {
    fn look(&self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>> {
        Box::pin(async {
            let fetched = status::fetch(&self.connection);
            let document = match self.is_once {
                true => self.connection.telling(fetched).await?,
                false => fetched.await?, // the screen tells
            };
            let (shown, verdict) = (frame(&document), available(&document));
            Ok((shown, document, verdict))
        })
    }

    fn why(&self) -> Pin<Box<dyn Future<Output = Option<String>> + '_>> {
        Box::pin(async { self.connection.why_it_waits().await.line() })
    }
}

plinth_terminal::command!(
    "top",
    "Watch a cluster: the load of each process, updated every second",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        let connection = arguments.cluster.open().await?;
        let is_once = arguments.how.is_once();
        let cluster = Cluster {
            connection,
            is_once,
        };
        watch(&arguments.how, &cluster).await
    })
}

/// What the screen shows: a summary of the cluster, then the processes.
fn frame(document: &Value) -> Shown {
    let cluster = &document["cluster"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_string();
    let (wanted, data) = (&cluster["configuration"], &cluster["data"]);
    let head = vec![
        format!(
            "plinth  database {}; {}; epoch {}; {} {}",
            availability(document),
            text(&cluster["recovery_state"]["description"]),
            cluster["generation"],
            text(&wanted["redundancy_mode"]),
            text(&wanted["storage_engine"]),
        ),
        format!(
            "data    {}; {} shards, {} moving; {}",
            text(&data["state"]["name"]),
            data["partitions_count"].as_u64().unwrap_or(0),
            data["moving_data"]["shards"].as_u64().unwrap_or(0),
            bytes(&data["total_kv_size_bytes"]),
        ),
        work(&cluster["workload"]),
        format!("limit   {}", status::limit(&cluster["qos"])),
    ];
    let newest = newest_version(cluster);
    let processes = cluster["processes"].as_object();
    let processes = processes.into_iter().flat_map(|all| all.values());
    let table = Table {
        columns: COLUMNS.to_vec(),
        rows: processes
            .map(|process| cells(cluster, process, newest))
            .collect(),
    };
    Shown {
        head,
        table: Some(table),
        ..Shown::default()
    }
}

/// What clients do with the database.
fn work(workload: &Value) -> String {
    let (operations, transactions) = (&workload["operations"], &workload["transactions"]);
    format!(
        "work    {} reads, {} writes; {} begun, {} committed, {} in conflict",
        rate(&operations["reads"]),
        rate(&operations["writes"]),
        rate(&transactions["started"]),
        rate(&transactions["committed"]),
        rate(&transactions["conflicted"]),
    )
}

const fn column(title: &'static str, width: usize, weight: u8) -> Column {
    Column {
        title,
        width,
        weight,
    }
}

/// Roles say most about a process, so a narrow screen has them, and not what is looked at least.
const COLUMNS: [Column; 10] = [
    column("PROCESS", 21, 9),
    column("CPU", 4, 8),
    column("MEMORY", 6, 5),
    column("READS/S", 7, 6),
    column("STORED", 6, 4),
    column("BEHIND", 6, 7),
    column("QUEUE", 5, 2),
    column("FREE", 5, 3),
    column("LAG MS", 6, 1),
    column("ROLES", 0, 9),
];

fn cells(cluster: &Value, process: &Value, newest: u64) -> Vec<Cell> {
    let address = process["address"].as_str().unwrap_or("unknown");
    let at = |list: &Value, field: &str| -> Option<f64> {
        let servers = list.as_array()?.iter();
        let here = servers.filter(|server| server["address"].as_str() == Some(address));
        let amounts = here.filter_map(|server| server[field].as_u64());
        amounts.reduce(|a, b| a + b).map(|sum| sum as f64)
    };
    let (storage, logs) = (&cluster["storage_servers"], &cluster["log_servers"]);
    let servers = storage.as_array().into_iter().flatten();
    let here = servers.filter(|server| server["address"].as_str() == Some(address));
    let oldest = here.filter_map(|server| server["version"].as_u64()).min();
    let behind = oldest.map(|version| newest.saturating_sub(version) as f64 / 1e6);
    let roles = || process["roles"].as_array().into_iter().flatten();
    let reads = roles().filter_map(|role| role["finished_queries"]["hz"].as_f64());
    let reads = reads.reduce(|a, b| a + b);
    let mut names: Vec<&str> = roles()
        .filter_map(|role| role["role"].as_str())
        .map(short)
        .collect();
    names.sort_unstable();
    names.dedup();
    let size = |bytes: Option<f64>| Cell::amount(bytes, short_bytes);
    let cores = process["cpu"]["usage_cores"].as_f64();
    let lag = process["run_loop_lag_ms"].as_f64();
    vec![
        Cell::text(address),
        Cell::amount(cores, |cores| format!("{:.0}%", cores * 100.0)),
        size(process["memory"]["rss_bytes"].as_f64()),
        Cell::amount(reads, grouped),
        size(at(storage, "stored_bytes")),
        Cell::amount(behind, |s| format!("{s:.1} s")),
        size(at(logs, "queue_bytes")),
        size(process["disk"]["free_bytes"].as_f64()),
        Cell::amount(lag, |ms| format!("{ms:.1}")),
        Cell::text(names.join(" ")),
    ]
}

/// A size in at most five columns.
fn short_bytes(mut n: f64) -> String {
    for unit in ["B", "K", "M", "G"] {
        match n {
            _ if n < 9.95 && unit != "B" => return format!("{n:.1}{unit}"),
            _ if n < 999.5 => return format!("{n:.0}{unit}"),
            _ => n /= 1000.0,
        }
    }
    format!("{n:.1}T")
}

/// The name of a role on the screen. The status document has FoundationDB's names.
fn short(role: &str) -> &str {
    match role {
        "cluster_controller" => "controller",
        "data_distributor" => "distributor",
        "master" => "sequencer",
        "commit_proxy" => "proxy",
        "grv_proxy" => "grv",
        other => other,
    }
}

fn newest_version(cluster: &Value) -> u64 {
    let lists = [&cluster["log_servers"], &cluster["storage_servers"]];
    let servers = lists.into_iter().filter_map(Value::as_array).flatten();
    servers
        .filter_map(|server| server["version"].as_u64())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::watching::table::Order;
    use serde_json::json;

    #[test]
    fn a_screen_has_a_line_for_every_process_and_fits_the_terminal() {
        let document = json!({"cluster": {
            "database_available": true, "generation": 7,
            "recovery_state": {"description": "accepting_commits"},
            "configuration": {"redundancy_mode": "double", "storage_engine": "ssd"},
            "data": {"state": {"name": "healthy"}, "partitions_count": 4, "total_kv_size_bytes": 12_300_000},
            "processes": {
                "b": {"address": "10.0.0.2:4500", "roles": [{"role": "storage"}, {"role": "log"}, {"role": "storage"}],
                      "disk": {"free_bytes": 5_000_000_000u64}, "run_loop_lag_ms": 0.25},
                "a": {"address": "10.0.0.1:4500", "roles": [], "cpu": {"usage_cores": 1.25},
                      "memory": {"rss_bytes": 2_340_000_000u64}},
            },
            "log_servers": [{"address": "10.0.0.2:4500", "version": 9_000_000, "queue_bytes": 1234}],
            "storage_servers": [{"address": "10.0.0.2:4500", "version": 7_500_000,
                                 "stored_bytes": 42, "window_bytes": 1_000_000}],
        }});
        let Shown { head, table, .. } = frame(&document);
        assert!(head[0].contains("available; accepting_commits; epoch 7; double ssd"));
        assert!(head[1].contains("4 shards, 0 moving; 12 MB"), "{}", head[1]);
        let table = table.expect("processes");
        let lines = table.lines(100, Order::default()).1;
        assert!(lines[0].starts_with("10.0.0.1:4500 "), "{}", lines[0]);
        for part in ["125%", "2.3G"] {
            assert!(lines[0].contains(part), "{part} in {}", lines[0]);
        }
        let last = &lines[1];
        for part in ["42B", "1.5 s", "1.2K", "5.0G", "0.2", "log storage"] {
            assert!(last.contains(part), "{part} in {last}");
        }
        let (titles, narrow) = table.lines(80, Order::default());
        assert!(
            titles.contains("ROLES") && !titles.contains("LAG MS"),
            "{titles}"
        );
        assert!(narrow[1].ends_with("log storage"), "{}", narrow[1]);
        assert!(frame(&json!({})).head.len() >= 4);
    }

    #[test]
    fn a_process_with_every_role_takes_one_line() {
        let names = "cluster_controller commit_proxy coordinator data_distributor grv_proxy log master \
            ratekeeper resolver storage";
        let roles: Vec<Value> = names
            .split_whitespace()
            .map(|role| json!({"role": role}))
            .collect();
        let process = json!({"address": "100.100.100.100:65535", "roles": roles});
        let all = frame(&json!({"cluster": {"processes": {"a": process}}}));
        let table = all.table.expect("processes");
        let wide = &table.lines(200, Order::default()).1[0];
        for role in ["controller", "sequencer", "proxy", "distributor", "storage"] {
            assert!(wide.contains(role), "{role} in {wide}");
        }
        assert!(!wide.contains("master"), "{wide}");
        let narrow = &table.lines(80, Order::default()).1[0];
        assert!(narrow.contains("controller +9"), "{narrow}");
    }

    #[test]
    fn a_size_takes_five_columns() {
        let sizes = [0.0, 999.0, 999.6, 9_960.0, 1.234e6, 99.95e6, 9.99e11, 5e12];
        let shown = sizes.map(short_bytes);
        assert_eq!(
            shown,
            ["0B", "999B", "1.0K", "10K", "1.2M", "100M", "999G", "5.0T"]
        );
    }
}
