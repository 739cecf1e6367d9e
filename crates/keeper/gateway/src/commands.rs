//! The commands of ZooKeeper's AdminServer, as JSON.

use crate::admin::{self, VERSION};
use crate::life::{Gateway, Life};
use crate::wire::Text;
use crate::{dump, monitor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Each command with its other names.
const COMMANDS: &[(&str, &[&str])] = &[
    ("configuration", &["conf", "config"]),
    ("connection_stat_reset", &["crst"]),
    ("connections", &["cons"]),
    ("dirs", &[]),
    ("dump", &[]),
    ("environment", &["env", "envi"]),
    ("is_read_only", &["isro"]),
    ("leader", &["lead"]),
    ("monitor", &["mntr"]),
    ("ruok", &[]),
    ("server_stats", &["srvr"]),
    ("stat_reset", &["srst"]),
    ("stats", &["stat"]),
    ("watch_summary", &["wchs"]),
    ("watches", &["wchc"]),
    ("watches_by_path", &["wchp"]),
];

/// The commands' names, without their other names.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name)
}

/// Runs a command, by any of its names. The answer has `command` and `error`, and what the command says.
pub async fn run(gateway: &Gateway, asked: &str) -> Value {
    let is_asked = |(name, others): &&(&str, &[&str])| *name == asked || others.contains(&asked);
    let Some((name, _)) = COMMANDS.iter().find(is_asked) else {
        return json!({ "command": asked, "error": format!("Unknown command: {asked}") });
    };
    let mut answer = Map::new();
    answer.insert("command".into(), (*name).into());
    let said = match (*name, gateway.life.get()) {
        ("ruok", _) => Ok(json!({})),
        ("environment", _) => Ok(json!({
            "zookeeper.version": VERSION,
            "host.name": gateway.address.ip().to_string(),
        })),
        (_, None) => Err(not_serving(gateway)),
        ("dump", Some(life)) => Ok(dump(&life).await),
        (name, Some(life)) => say(gateway, &life, name).map_err(String::from),
    };
    match said {
        Ok(said) => {
            answer.insert("error".into(), Value::Null);
            if let Value::Object(said) = said {
                answer.extend(said);
            }
        }
        Err(error) => {
            answer.insert("error".into(), error.into());
        }
    }
    Value::Object(answer)
}

/// ZooKeeper's words, and why, if that is known.
fn not_serving(gateway: &Gateway) -> String {
    let words = "This ZooKeeper instance is not currently serving requests";
    gateway.stopped.with(|why| match why {
        Some(why) => format!("{words}: {why}"),
        None => words.into(),
    })
}

fn say(gateway: &Gateway, life: &Life, name: &str) -> Result<Value, &'static str> {
    let said = match name {
        "configuration" => configuration(gateway),
        "connections" => json!({
            "connections": connections(life, false),
            "secure_connections": connections(life, true),
        }),
        "connection_stat_reset" => {
            admin::reset_connections(life);
            json!({})
        }
        "dirs" => json!({ "datadir_size": 0, "logdir_size": 0 }),
        "is_read_only" => json!({ "read_only": life.is_isolated() }),
        "leader" => return Err("server is not initialized"), // as a ZooKeeper that stands alone says it
        "monitor" => monitored(gateway, life),
        "server_stats" => server_stats(gateway, life),
        "stat_reset" => {
            admin::reset_statistics(gateway);
            json!({})
        }
        "stats" => {
            let mut said = server_stats(gateway, life);
            said["connections"] = connections(life, false);
            said["secure_connections"] = connections(life, true);
            said
        }
        "watch_summary" => {
            let (watches, paths, clients) = life.clients.watches.borrow().counts();
            json!({
                "num_connections": clients,
                "num_paths": paths,
                "num_total_watches": watches,
            })
        }
        "watches" => {
            let mut paths: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (session, path) in admin::watches(life) {
                let of_session = paths.entry(session.to_string()).or_default();
                of_session.push(path.to_string());
            }
            json!({ "session_id_to_watched_paths": paths })
        }
        "watches_by_path" => {
            let mut sessions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
            for (session, path) in admin::watches(life) {
                sessions.entry(path.to_string()).or_default().push(session);
            }
            json!({ "path_to_session_ids": sessions })
        }
        _ => return Err("not a command of this gateway"),
    };
    Ok(said)
}

fn configuration(gateway: &Gateway) -> Value {
    let options = &gateway.options;
    let (shortest, longest) = options.session_timeouts_ms();
    json!({
        "client_port": admin::port(gateway.plain),
        "data_dir": "",
        "data_log_dir": "",
        "tick_time": options.tick_ms,
        "max_client_cnxns": options.max_connections_per_address,
        "min_session_timeout": shortest,
        "max_session_timeout": longest,
        "server_id": 0,
        "client_port_listen_backlog": -1,
    })
}

/// Those of the secure port, or of the plain one.
fn connections(life: &Life, secure: bool) -> Value {
    let connections = life.clients.connections.borrow();
    let all = connections.values();
    let asked = all.filter(|connection| connection.origin.is_secure == secure);
    let rows = asked.map(|connection| {
        json!({
            "remote_socket_address": connection.peer.to_string(),
            "outstanding_requests": connection.pending.get(),
            "packets_received": connection.received.get(),
            "packets_sent": connection.sent.get(),
            "session_id": connection.session,
            "session_timeout": connection.timeout_ms,
            "established_ms_ago": connection.since.elapsed().as_millis() as u64,
        })
    });
    rows.collect()
}

/// Sessions of this gateway, and their ephemeral nodes.
async fn dump(life: &Life) -> Value {
    let found = dump::ephemerals(life).await.unwrap_or_default();
    let ephemerals: BTreeMap<String, Vec<String>> = found
        .into_iter()
        .map(|(session, paths)| {
            (
                session.to_string(),
                paths.iter().map(Text::to_string).collect(),
            )
        })
        .collect();
    let sessions = life.clients.sessions.borrow();
    let mut by_timeout: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (session, owned) in sessions.iter() {
        let timeout = owned.timeout.as_millis().to_string();
        by_timeout.entry(timeout).or_default().push(session);
    }
    json!({ "timeout_to_session_ids": by_timeout, "session_id_to_ephemeral_paths": ephemerals })
}

fn monitored(gateway: &Gateway, life: &Life) -> Value {
    let mut said = json!({ "version": VERSION, "server_state": admin::mode(life) });
    for (family, value) in monitor::numbers(gateway, life) {
        said[family.name] = number(value);
    }
    for (family, name, value) in monitor::quotas(gateway, life) {
        said[format!("{name}_{}", family.name)] = number(value);
    }
    for (name, is_write) in [("readlatency", false), ("updatelatency", true)] {
        for (name, value) in monitor::latencies(gateway, name, is_write) {
            said[name] = number(value);
        }
    }
    said
}

fn number(value: f64) -> Value {
    match value.fract() == 0.0 {
        true => json!(value as i64),
        false => json!(value),
    }
}

fn server_stats(gateway: &Gateway, life: &Life) -> Value {
    let counters = &gateway.counters;
    let latency = *counters.latency.borrow();
    json!({
        "version": VERSION,
        "read_only": life.is_isolated(),
        "server_stats": {
            "packets_sent": counters.sent.get(),
            "packets_received": counters.received.get(),
            "last_processed_zxid": life.replica.zxid(),
            "outstanding_requests": life.pipeline.queued(),
            "server_state": admin::mode(life),
            "avg_latency": latency.average_ms(),
            "max_latency": latency.max_ms,
            "min_latency": latency.min_ms,
            "num_alive_client_connections": life.clients.connections.borrow().len(),
            "uptime": gateway.started.elapsed().as_millis() as u64,
        },
        "node_count": life.totals.get().nodes,
    })
}
