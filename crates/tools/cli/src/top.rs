//! `plinth top`: the state and load of a cluster, or of a replicated service, updated every second.

use crate::Outcome;
use crate::connect::{self, ClusterArguments};
use crate::{delos, status};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use plinth_bench::report::grouped;
use plinth_runtime::{Duration, sleep};
use serde_json::Value;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;

/// Interval between checks of the keyboard.
const KEYS_INTERVAL: Duration = Duration::from_millis(50);
/// Width in columns if there is no terminal.
const WIDTH: usize = 160;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Watch a service of `plinth delos`, by its file, and not a cluster
    #[arg(long, value_name = "SERVICE", value_parser = delos::parse_service)]
    delos: Option<PathBuf>,
    /// Seconds between two updates
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print once and exit, as without a terminal
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, from 0.1 to 3600".into()),
    }
}

pub fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        if let Some(service) = &arguments.delos {
            let mut watched = delos::Watched::open(service, &arguments.cluster.tls).await?;
            if is_once(&arguments) {
                // Rates are of the time between two looks.
                watched.frame().await?;
                sleep(Duration::from_secs_f64(arguments.interval)).await;
            }
            return watch(&arguments, async || Ok((watched.frame().await?, Ok(())))).await;
        }
        let connection = arguments.cluster.open().await?;
        watch(&arguments, async || {
            let document = status::fetch(&connection).await?;
            Ok((frame(&document), status::available(&document)))
        })
        .await
    })
}

fn is_once(arguments: &Arguments) -> bool {
    arguments.once || !stdout().is_terminal()
}

/// Shows what `look` sees, again and again, or once; then its verdict is the command's.
async fn watch(
    arguments: &Arguments,
    mut look: impl AsyncFnMut() -> Outcome<(Vec<String>, Outcome)>,
) -> Outcome {
    if is_once(arguments) {
        let (lines, verdict) = look().await?;
        println!("{}", cut(lines, WIDTH).join("\n"));
        return verdict;
    }
    let _screen = Screen::enter()?;
    loop {
        let lines = match look().await {
            Ok((lines, _)) => cut(lines, width()),
            // What is watched may come back, so show the error and continue.
            Err(line) => vec![line],
        };
        draw(&lines);
        if wait_or_quit(Duration::from_secs_f64(arguments.interval)).await {
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

/// The lines of the screen: a summary of the cluster, then one line per process.
fn frame(document: &Value) -> Vec<String> {
    let cluster = &document["cluster"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_string();
    let available = match cluster["database_available"].as_bool() {
        Some(true) => "available",
        _ => "unavailable",
    };
    let wanted = &cluster["configuration"];
    let data = &cluster["data"];
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
        format!("load    {}", status::load(&cluster["qos"])),
        String::new(),
        row([
            "PROCESS",
            "STORED",
            "WINDOW",
            "BEHIND",
            "LOG QUEUE",
            "DISK FREE",
            "LAG MS",
            "ROLES",
        ]
        .map(String::from)),
    ];
    let newest = newest_version(cluster);
    let processes = cluster["processes"].as_object().into_iter().flatten();
    let mut rows: Vec<(String, String)> = processes
        .map(|(_, process)| {
            let address = text(&process["address"]);
            (
                address.clone(),
                process_row(cluster, process, &address, newest),
            )
        })
        .collect();
    rows.sort_unstable();
    lines.extend(rows.into_iter().map(|(_, line)| line));
    lines
}

fn row([process, stored, window, behind, queue, free, lag, roles]: [String; 8]) -> String {
    format!(
        "{process:<22}{stored:>10}{window:>10}{behind:>9}{queue:>11}{free:>11}{lag:>8}  {roles}"
    )
}

fn process_row(cluster: &Value, process: &Value, address: &str, newest: u64) -> String {
    let at = |list: &Value, field: &str| -> Option<u64> {
        let servers = list.as_array()?.iter();
        let here = servers.filter(|server| server["address"].as_str() == Some(address));
        here.filter_map(|server| server[field].as_u64())
            .reduce(|a, b| a + b)
    };
    let (storage, logs) = (&cluster["storage_servers"], &cluster["log_servers"]);
    let size = |n: Option<u64>| n.map_or("-".into(), |n| bytes(&n.into()));
    let servers = storage.as_array().into_iter().flatten();
    let here = servers.filter(|server| server["address"].as_str() == Some(address));
    let oldest = here.filter_map(|server| server["version"].as_u64()).min();
    let behind = oldest.map(|version| newest.saturating_sub(version) as f64 / 1e6);
    let mut names: Vec<String> = process["roles"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|role| role["role"].as_str().map(String::from))
        .collect();
    names.sort_unstable();
    names.dedup();
    let lag = process["run_loop_lag_ms"].as_f64();
    row([
        address.to_string(),
        size(at(storage, "stored_bytes")),
        size(at(storage, "window_bytes")),
        behind.map_or("-".into(), |s| format!("{s:.1} s")),
        size(at(logs, "queue_bytes")),
        size(process["disk"]["free_bytes"].as_u64()),
        lag.map_or("-".into(), |ms| format!("{ms:.1}")),
        names.join(" "),
    ])
}

fn newest_version(cluster: &Value) -> u64 {
    let lists = [&cluster["log_servers"], &cluster["storage_servers"]];
    let servers = lists.into_iter().filter_map(Value::as_array).flatten();
    servers
        .filter_map(|server| server["version"].as_u64())
        .max()
        .unwrap_or(0)
}

/// A size with about four digits and a unit.
fn bytes(value: &Value) -> String {
    let mut n = value.as_f64().unwrap_or(0.0);
    for unit in ["B", "KB", "MB", "GB"] {
        if n < 10_000.0 {
            return format!("{} {unit}", grouped(n));
        }
        n /= 1000.0;
    }
    format!("{} TB", grouped(n))
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
                "a": {"address": "10.0.0.1:4500", "roles": []},
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
        assert!(lines[5].starts_with("10.0.0.1:4500 "));
        let last = &lines[6];
        for part in [
            "42 B",
            "1 000 KB",
            "1.5 s",
            "1 234 B",
            "5 000 MB",
            "0.2",
            "log storage",
        ] {
            assert!(last.contains(part), "{part} in {last}");
        }
        assert!(
            cut(frame(&document), 40)
                .iter()
                .all(|line| line.chars().count() <= 40)
        );
        assert!(frame(&json!({})).len() >= 5);
    }
}
