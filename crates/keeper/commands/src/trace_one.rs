//! `plinth keeper trace-one`: a write on its way through a gateway, the store and back, with times.

use crate::name::parse_tree;
use bytes::Bytes;
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::left;
use plinth_keeper::trace::{self, Row, Told};
use plinth_keeper::wire::{Acl, Answer, CreateKind, Request, create_flags};
use plinth_runtime::{Duration, Instant, now, random, sleep, spawn, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments};
use std::net::{SocketAddr, ToSocketAddrs};

/// As ZooKeeper's clients have it. The session ends with the command.
const SESSION_MS: i32 = 10_000;
/// An answer or an event that has not come by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_PAUSE: Duration = Duration::from_millis(200);
const DATA: Bytes = Bytes::from_static(b"plinth keeper trace-one");

#[derive(clap::Args, Debug)]
pub struct TraceArguments {
    /// The gateway; without it, the cluster's file says which gateways there are, and the first one is asked
    #[arg(long, alias = "server", value_name = "HOST:PORT", value_parser = parse_server)]
    gateway: Option<SocketAddr>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Name of the tree
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = parse_tree)]
    tree: String,
    /// A node whose data is set to what it is: its version grows by one. Without it, the command makes a node that it
    /// removes
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    path: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_server(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs();
    let found = found
        .map_err(|error| format!("{error}; expected HOST:PORT"))?
        .next();
    found.ok_or_else(|| "no address has this name".into())
}

fn parse_path(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err("expected a path, as in /app/leader".into()),
    }
}

/// What was seen of the write.
struct Seen {
    server: SocketAddr,
    path: String,
    /// Microseconds until the answer.
    total: u64,
    /// `None` if the gateway tells nothing.
    told: Option<Told>,
    /// Another gateway, and microseconds until a client of it was told of the change.
    elsewhere: Option<(SocketAddr, Option<u64>)>,
}

pub fn run(arguments: &TraceArguments) -> Outcome {
    let seen = connect::block_on(async {
        let (server, other) = gateways(arguments).await?;
        let client = connected(server).await?;
        let seen = trace(&client, server, other, arguments.path.as_deref()).await;
        let _ = timeout(PATIENCE, client.close()).await;
        seen
    })
    .map_err(connect::with_hint)?;
    let rows = trace::rows(&seen.told.clone().unwrap_or_default(), seen.total);
    match arguments.json {
        true => println!("{}", to_json(&seen, &rows)),
        false => print(&seen, &rows),
    }
    Ok(())
}

/// The gateway to ask, and another one of the tree.
async fn gateways(arguments: &TraceArguments) -> Outcome<(SocketAddr, Option<SocketAddr>)> {
    if let Some(server) = arguments.gateway {
        return Ok((server, None));
    }
    let tree = &arguments.tree;
    let connection = arguments.cluster.connect().await?;
    connection.limit_transactions();
    let until = now() + Duration::from_secs(arguments.cluster.timeout);
    let serving = loop {
        let serving = left::serving(&connection.database, tree).await;
        let serving = serving.map_err(|error| format!("tree `{tree}': the database: {error}"))?;
        // One that has just been started has no lease yet.
        if !serving.is_empty() || now() > until {
            break serving;
        }
        sleep(LOOK_PAUSE).await;
    };
    let mut serving = serving.iter().filter_map(|address| address.parse().ok());
    let first = serving.next().ok_or_else(|| {
        format!("tree `{tree}' is served by no gateway; start one, or name one with --gateway")
    })?;
    Ok((first, serving.next()))
}

async fn connected(server: SocketAddr) -> Outcome<Client> {
    let connecting = Client::connect(server, SESSION_MS, None);
    connecting
        .await
        .map_err(|failure| format!("{server}: {failure}"))
}

async fn ask(client: &Client, request: Request) -> Result<Answer, Failure> {
    let asked = timeout(PATIENCE, client.submit(request)).await;
    asked
        .unwrap_or(Err(Failure::Lost))
        .map(|(_, answer)| answer)
}

async fn trace(
    client: &Client,
    server: SocketAddr,
    other: Option<SocketAddr>,
    given: Option<&str>,
) -> Outcome<Seen> {
    let path = match given {
        Some(path) => path.into(),
        None => made(client)
            .await
            .map_err(|failure| format!("{server}: {failure}"))?,
    };
    let failed = |failure: Failure| format!("{server}: {path}: {failure}");
    let (data, version) = match ask(client, get(&path)).await.map_err(failed)? {
        Answer::Data(data, stat) => (data, stat.version),
        _ => return Err(format!("{server}: {path}: an answer of another kind")),
    };
    let watcher = match other {
        Some(other) => Some((other, watching(other, &path).await?)),
        None => None,
    };
    // From here on the gateway traces what this client writes.
    let is_telling = ask(client, get(trace::NODE)).await.is_ok();
    let sent = now();
    let set = Request::SetData {
        path: path.as_str().into(),
        data,
        version,
    };
    let telling = watcher.map(|(other, watcher)| {
        spawn("told elsewhere", async move {
            let told = timeout(PATIENCE, watcher.next_event()).await.flatten();
            let at = told.map(|_| micros_since(sent));
            let _ = timeout(PATIENCE, watcher.close()).await;
            (other, at)
        })
    });
    ask(client, set).await.map_err(failed)?;
    let total = micros_since(sent);
    let told = match is_telling {
        true => ask(client, get(trace::NODE)).await.ok(),
        false => None,
    };
    let elsewhere = match telling {
        Some(telling) => Some(telling.await),
        None => None,
    };
    Ok(Seen {
        server,
        path,
        total,
        told: told.and_then(|answer| match answer {
            Answer::Data(Some(data), _) => Told::parse(&data),
            _ => None,
        }),
        elsewhere,
    })
}

fn micros_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A node that goes with the session.
async fn made(client: &Client) -> Result<String, Failure> {
    let path = format!("/plinth-trace-one-{:016x}", random::u64());
    let create = Request::Create {
        kind: CreateKind::Plain,
        path: path.as_str().into(),
        data: Some(DATA),
        acl: Acl::open(),
        flags: create_flags::EPHEMERAL,
        ttl: -1,
    };
    ask(client, create).await.map(|_| path)
}

fn get(path: &str) -> Request {
    Request::GetData {
        path: path.into(),
        watch: false,
    }
}

/// A client that is told of the next change of the node.
async fn watching(server: SocketAddr, path: &str) -> Outcome<Client> {
    let client = connected(server).await?;
    let sync = Request::Sync {
        path: Some(path.into()),
    };
    let watch = Request::GetData {
        path: path.into(),
        watch: true,
    };
    for request in [sync, watch] {
        let asked = ask(&client, request).await;
        asked.map_err(|failure| format!("{server}: {path}: {failure}"))?;
    }
    Ok(client)
}

fn disk(rows: &[Row]) -> u64 {
    rows.iter()
        .filter(|row| row.is_disk)
        .map(|row| row.took)
        .sum()
}

fn to_json(seen: &Seen, rows: &[Row]) -> serde_json::Value {
    let row = |row: &Row| {
        serde_json::json!({
            "step": row.step, "where": row.place, "at_us": row.at, "took_us": row.took, "waits_for_disk": row.is_disk,
        })
    };
    let steps: Vec<_> = rows.iter().map(row).collect();
    let elsewhere = seen
        .elsewhere
        .map(|(server, at)| serde_json::json!({ "server": server.to_string(), "event_at_us": at }));
    serde_json::json!({
        "server": seen.server.to_string(), "path": seen.path, "total_us": seen.total, "disk_us": disk(rows),
        "is_told": seen.told.is_some(), "told": seen.told.as_ref().map(Told::to_json), "steps": steps,
        "elsewhere": elsewhere,
    })
}

fn print(seen: &Seen, rows: &[Row]) {
    println!("setData {} at {}", seen.path, seen.server);
    println!(
        "{:>9}  {:>8}  {:<18}  step",
        "begins us", "takes us", "where"
    );
    for row in rows {
        let mark = if row.is_disk { "   <- the disk" } else { "" };
        println!(
            "{:>9}  {:>8}  {:<18}  {}{mark}",
            row.at, row.took, row.place, row.step
        );
    }
    println!("{}", summary(seen, rows));
    match seen.elsewhere {
        Some((server, Some(at))) => {
            println!("a client of {server} that watches the node was told after {at} us");
        }
        Some((server, None)) => {
            println!("a client of {server} that watches the node was not told within {PATIENCE:?}");
        }
        None => {}
    }
    if seen.told.is_none() {
        println!(
            "{} tells nothing more: it has --no-clickhouse, its tree has a node /keeper of its own, or it is \
             another server",
            seen.server
        );
    }
}

fn summary(seen: &Seen, rows: &[Row]) -> String {
    let (disk, total) = (disk(rows), seen.total.max(1));
    match &seen.told {
        None => format!("answered after {} us", seen.total),
        Some(_) => format!(
            "answered after {} us, of which it waited for the disk {disk} us ({} %)",
            seen.total,
            100 * disk / total
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_for_the_disk_is_summed_up_and_a_server_that_tells_nothing_is_no_error() {
        let row = |took, is_disk| Row {
            step: "a step",
            place: "somewhere",
            at: 0,
            took,
            is_disk,
        };
        let rows = [
            row(100, false),
            row(250, true),
            row(50, true),
            row(600, false),
        ];
        let mut seen = Seen {
            server: ([127, 0, 0, 1], 2181).into(),
            path: "/a".into(),
            total: 1000,
            told: Some(Told::default()),
            elsewhere: None,
        };
        let line = summary(&seen, &rows);
        assert_eq!(
            line,
            "answered after 1000 us, of which it waited for the disk 300 us (30 %)"
        );
        assert_eq!(to_json(&seen, &rows)["disk_us"], 300);
        seen.told = None;
        assert_eq!(summary(&seen, &rows), "answered after 1000 us");
        assert_eq!(to_json(&seen, &rows)["is_told"], false);
    }

    #[test]
    fn a_path_and_a_server_are_what_they_are_called() {
        assert!(parse_path("app").is_err_and(|error| error.contains("expected a path")));
        assert!(parse_server("nowhere").is_err_and(|error| error.contains("HOST:PORT")));
        assert_eq!(
            parse_server("127.0.0.1:2181"),
            Ok(([127, 0, 0, 1], 2181).into())
        );
    }
}
