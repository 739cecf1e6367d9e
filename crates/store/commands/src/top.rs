//! `plinth top`: the state and load of a cluster, updated every second.

use crate::status::{self, bytes, rate};
use plinth_measure::grouped;
use plinth_runtime::{Duration, Either, race, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::status::{availability, available};
use plinth_terminal::watching::{How, Seen, Watched, watch};
use plinth_terminal::wrap::wrapped;
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

/// The first screen that takes longer says why.
const PATIENCE: Duration = Duration::from_secs(1);

struct Cluster {
    connection: Connection,
    is_once: bool,
}

impl Watched for Cluster {
    fn look(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>> {
        Box::pin(async {
            let fetched = status::fetch(&self.connection);
            let document = match self.is_once {
                true => self.connection.telling(fetched).await?,
                false => self.unless_it_waits(fetched).await?,
            };
            let (lines, verdict) = (frame(&document), available(&document));
            Ok((lines, document, verdict))
        })
    }
}

impl Cluster {
    /// What is fetched, or why it takes long: a screen shows it, and is left with q meanwhile.
    async fn unless_it_waits(
        &self,
        fetched: impl Future<Output = Outcome<Value>>,
    ) -> Outcome<Value> {
        let why = async {
            sleep(PATIENCE).await;
            match self.connection.why_it_waits().await.line() {
                Some(line) => format!("waiting for an answer: {line}; q ends"),
                None => std::future::pending().await,
            }
        };
        match race(fetched, why).await {
            Either::Left(document) => document,
            Either::Right(line) => Err(line),
        }
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
        let mut cluster = Cluster {
            connection,
            is_once,
        };
        watch(&arguments.how, &mut cluster).await
    })
}

/// The lines of the screen: a summary of the cluster, then the processes. 100 columns wide.
fn frame(document: &Value) -> Vec<String> {
    let cluster = &document["cluster"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_string();
    let (wanted, data) = (&cluster["configuration"], &cluster["data"]);
    let mut lines = vec![
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
        String::new(),
        row(TITLES.map(String::from), "ROLES"),
    ];
    let newest = newest_version(cluster);
    let processes = cluster["processes"].as_object();
    let mut processes: Vec<&Value> = processes.into_iter().flat_map(|all| all.values()).collect();
    processes.sort_by_key(|process| process["address"].to_string());
    for process in processes {
        lines.extend(process_lines(cluster, process, newest));
    }
    lines
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

const TITLES: [&str; 9] = [
    "PROCESS", "CPU", "MEMORY", "READS/S", "STORED", "BEHIND", "QUEUE", "FREE", "LAG MS",
];
/// Room for the names of roles. The others follow in further lines.
const ROLES_WIDTH: usize = 18;

fn row(
    [
        process,
        cpu,
        memory,
        reads,
        stored,
        behind,
        queue,
        free,
        lag,
    ]: [String; 9],
    roles: &str,
) -> String {
    let line = format!(
        "{process:<21}{cpu:>5}{memory:>8}{reads:>9}{stored:>8}{behind:>8}{queue:>7}{free:>7}{lag:>7}  {roles}"
    );
    line.trim_end().to_string()
}

fn process_lines(cluster: &Value, process: &Value, newest: u64) -> Vec<String> {
    let address = process["address"].as_str().unwrap_or("unknown");
    let at = |list: &Value, field: &str| -> Option<u64> {
        let servers = list.as_array()?.iter();
        let here = servers.filter(|server| server["address"].as_str() == Some(address));
        here.filter_map(|server| server[field].as_u64())
            .reduce(|a, b| a + b)
    };
    let (storage, logs) = (&cluster["storage_servers"], &cluster["log_servers"]);
    let size = |n: Option<u64>| n.map_or("-".into(), |n| short_bytes(n as f64));
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
    let shown = |n: Option<f64>, text: fn(f64) -> String| n.map_or("-".into(), text);
    let columns = [
        address.to_string(),
        shown(process["cpu"]["usage_cores"].as_f64(), |cores| {
            format!("{:.0}%", cores * 100.0)
        }),
        size(process["memory"]["rss_bytes"].as_u64()),
        shown(reads, grouped),
        size(at(storage, "stored_bytes")),
        shown(behind, |s| format!("{s:.1} s")),
        size(at(logs, "queue_bytes")),
        size(process["disk"]["free_bytes"].as_u64()),
        shown(process["run_loop_lag_ms"].as_f64(), |ms| format!("{ms:.1}")),
    ];
    let mut roles = wrapped(names, ROLES_WIDTH).into_iter();
    let mut lines = vec![row(columns, &roles.next().unwrap_or_default())];
    lines.extend(roles.map(|more| row(std::array::from_fn(|_| String::new()), &more)));
    lines
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
    use plinth_terminal::watching::cut;
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
        let lines = frame(&document);
        assert!(lines[0].contains("available; accepting_commits; epoch 7; double ssd"));
        assert!(
            lines[1].contains("4 shards, 0 moving; 12 MB"),
            "{}",
            lines[1]
        );
        assert!(lines[6].starts_with("10.0.0.1:4500 "), "{}", lines[6]);
        for part in ["125%", "2.3G"] {
            assert!(lines[6].contains(part), "{part} in {}", lines[6]);
        }
        let last = &lines[7];
        for part in ["42B", "1.5 s", "1.2K", "5.0G", "0.2", "log storage"] {
            assert!(last.contains(part), "{part} in {last}");
        }
        assert!(
            lines.iter().all(|line| line.chars().count() <= 100),
            "{lines:#?}"
        );
        assert!(
            cut(frame(&document), 40)
                .iter()
                .all(|line| line.chars().count() <= 40)
        );
        assert!(frame(&json!({})).len() >= 5);
    }

    #[test]
    fn a_process_with_every_role_takes_several_lines() {
        let names = "cluster_controller commit_proxy coordinator data_distributor grv_proxy log master \
            ratekeeper resolver storage";
        let roles: Vec<Value> = names
            .split_whitespace()
            .map(|role| json!({"role": role}))
            .collect();
        let process = json!({"address": "100.100.100.100:65535", "roles": roles});
        let lines = process_lines(&json!({}), &process, 0);
        let shown = lines.join(" ");
        for role in ["controller", "sequencer", "proxy", "distributor", "storage"] {
            assert!(shown.contains(role), "{role} in {shown}");
        }
        assert!(!shown.contains("master"), "{shown}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 100),
            "{lines:#?}"
        );
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
