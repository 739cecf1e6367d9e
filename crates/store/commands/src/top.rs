//! `plinth top`: the state and load of a cluster, or of whatever else is [`Watched`], updated every second.

use crate::status::{self, bytes, rate};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use plinth_measure::grouped;
use plinth_runtime::{Duration, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::status::available;
use plinth_terminal::wrap::wrapped;
use serde_json::Value;
use std::io::{IsTerminal, Write, stdout};
use std::pin::Pin;

/// Interval between checks of the keyboard.
const KEYS_INTERVAL: Duration = Duration::from_millis(50);
/// Width in columns if there is no terminal.
const WIDTH: usize = 160;

#[derive(clap::Args, Debug)]
pub struct How {
    /// Seconds between two updates
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print once and exit, as without a terminal
    #[arg(long)]
    once: bool,
}

impl How {
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }

    pub fn is_once(&self) -> bool {
        self.once || !stdout().is_terminal()
    }
}

/// The lines of the screen, and the verdict of a command that looks once.
pub type Seen = (Vec<String>, Outcome);

/// What is looked at again and again.
pub trait Watched {
    fn look(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>>;
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, from 0.1 to 3600".into()),
    }
}

struct Cluster(Connection);

impl Watched for Cluster {
    fn look(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>> {
        Box::pin(async {
            let document = status::fetch(&self.0).await?;
            Ok((frame(&document), available(&document)))
        })
    }
}

pub fn run(cluster: &ClusterArguments, how: &How) -> Outcome {
    connect::block_on(async { watch(how, &mut Cluster(cluster.open().await?)).await })
}

/// Shows what `watched` sees, again and again, or once; then its verdict is the command's.
pub async fn watch(how: &How, watched: &mut dyn Watched) -> Outcome {
    if how.is_once() {
        let (lines, verdict) = watched.look().await?;
        println!("{}", cut(lines, WIDTH).join("\n"));
        return verdict;
    }
    let _screen = Screen::enter()?;
    loop {
        let lines = match watched.look().await {
            Ok((lines, _)) => cut(lines, width()),
            // What is watched may come back, so show the error and continue.
            Err(line) => vec![line],
        };
        draw(&lines);
        if wait_or_quit(how.interval()).await {
            return Ok(());
        }
    }
}

fn cut(lines: Vec<String>, width: usize) -> Vec<String> {
    let cut = |line: String| line.chars().take(width).collect();
    lines.into_iter().map(cut).collect()
}

/// The terminal's alternate screen, until it is dropped.
struct Screen;

impl Screen {
    fn enter() -> Outcome<Screen> {
        let entered = terminal::enable_raw_mode()
            .and_then(|()| execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide));
        match entered {
            Ok(()) => Ok(Screen),
            Err(error) => Err(format!("this terminal cannot show it: {error}; try --once")),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn width() -> usize {
    terminal::size().map_or(WIDTH, |(columns, _)| usize::from(columns))
}

fn draw(lines: &[String]) {
    let rows = terminal::size().map_or(lines.len(), |(_, rows)| usize::from(rows));
    let mut out = stdout().lock();
    let _ = execute!(out, terminal::Clear(terminal::ClearType::All));
    for (row, line) in lines.iter().take(rows).enumerate() {
        let _ = execute!(out, cursor::MoveTo(0, row as u16));
        let _ = write!(out, "{line}");
    }
    let _ = out.flush();
}

/// Waits for `time`. Returns true at once if the user presses q, escape or control-c.
async fn wait_or_quit(time: Duration) -> bool {
    let end = plinth_runtime::now() + time;
    while plinth_runtime::now() < end {
        while event::poll(Duration::ZERO).unwrap_or(false) {
            let Ok(Event::Key(key)) = event::read() else {
                continue;
            };
            let control_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return true;
            }
        }
        sleep(KEYS_INTERVAL).await;
    }
    false
}

/// The lines of the screen: a summary of the cluster, then the processes. 100 columns wide.
fn frame(document: &Value) -> Vec<String> {
    let cluster = &document["cluster"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_string();
    let available = match cluster["database_available"].as_bool() {
        Some(true) => "available",
        _ => "unavailable",
    };
    let (wanted, data) = (&cluster["configuration"], &cluster["data"]);
    let mut lines = vec![
        format!(
            "plinth  database {available}; {}; epoch {}; {} {}",
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
