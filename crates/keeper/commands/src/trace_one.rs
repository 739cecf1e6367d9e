//! `plinth keeper trace-one`: a write on its way through a gateway, the store and back, with times.

use crate::name::parse_tree;
use bytes::Bytes;
use plinth_keeper::client::{Client, Failure, why_lost};
use plinth_keeper::left;
use plinth_keeper::trace::{self, Row, Told};
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, create_flags};
use plinth_runtime::{Duration, Instant, now, random, sleep, spawn, timeout};
use plinth_terminal::connect::{self, ClusterArguments};
use plinth_terminal::{Outcome, ports};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// As ZooKeeper's clients have it. The session ends with the command.
const SESSION_MS: i32 = 10_000;
const LOOK_PAUSE: Duration = Duration::from_millis(200);
const DATA: Bytes = Bytes::from_static(b"plinth keeper trace-one");

#[derive(clap::Args, Debug)]
pub struct TraceArguments {
    /// The gateway; without it, the cluster's file says which gateways there are, and the first one is asked
    #[arg(long, alias = "server", value_name = "HOST:PORT", value_parser = ports::parse_address)]
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
    /// An answer or an event that had not come by then was not waited for.
    limit: Duration,
}

impl Seen {
    /// Each step that somebody has measured.
    fn rows(&self) -> Vec<Row> {
        let told = self.told.as_ref();
        told.map_or_else(Vec::new, |told| trace::rows(told, self.total))
    }

    /// Microseconds that it waited for the disk; `None` if the gateway does not tell of its store.
    fn disk(&self) -> Option<u64> {
        let told = self.told.as_ref().filter(|told| told.commits());
        told.map(|_| disk(&self.rows()))
    }
}

pub fn run(arguments: &TraceArguments) -> Outcome {
    let seen = connect::block_on(async {
        let (server, other) = gateways(arguments).await?;
        let limit = Duration::from_secs(arguments.cluster.timeout);
        let client = connected(server, limit).await?;
        let seen = trace(&client, server, other, arguments.path.as_deref()).await;
        let _ = timeout(limit, client.0.close()).await;
        seen
    })?;
    match arguments.json {
        true => println!("{}", to_json(&seen)),
        false => print(&seen),
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

/// A client, and how long it waits for an answer.
struct Asker(Client, Duration);

async fn connected(server: SocketAddr, limit: Duration) -> Outcome<Asker> {
    let connecting = async {
        match timeout(limit, Client::connect(server, SESSION_MS, None)).await {
            Some(Ok(client)) => Ok(Asker(client, limit)),
            Some(Err(Failure::Lost)) => Err(format!("{server}: {}", why_lost(server).await)),
            Some(Err(failure)) => Err(format!("{server}: {failure}")),
            None => Err(format!("{server}: no answer within {limit:?}")),
        }
    };
    let why = async { Some(format!("{server}: no session has begun there yet")) };
    connect::telling(connecting, limit.as_secs(), why).await
}

async fn ask(Asker(client, limit): &Asker, request: Request) -> Result<Answer, Failure> {
    let asked = timeout(*limit, client.submit(request)).await;
    asked
        .unwrap_or(Err(Failure::Lost))
        .map(|(_, answer)| answer)
}

async fn trace(
    client: &Asker,
    server: SocketAddr,
    other: Option<SocketAddr>,
    given: Option<&str>,
) -> Outcome<Seen> {
    let limit = client.1;
    let path = match given {
        Some(path) => path.into(),
        None => made(client)
            .await
            .map_err(|failure| format!("{server}: {failure}"))?,
    };
    let failed = |failure: Failure| format!("{server}: {path}: {failure}");
    let watcher = match other {
        Some(other) => Some((other, watching(other, &path, limit).await?)),
        None => None,
    };
    let watched = watcher.as_ref().map(|(_, (_, version))| *version);
    // From here on the gateway traces what this client writes.
    let is_telling = ask(client, get(trace::NODE)).await.is_ok();
    let sent = Rc::new(Cell::new(now()));
    let set_at = sent.clone();
    let telling = watcher.map(|(other, (Asker(watcher, _), _))| {
        spawn("told elsewhere", async move {
            let told = timeout(limit, watcher.next_event()).await.flatten();
            let at = told.map(|_| micros_since(set_at.get()));
            let _ = timeout(limit, watcher.close()).await;
            (other, at)
        })
    });
    let version = set(client, &path, &sent).await.map_err(failed)?;
    let total = micros_since(sent.get());
    let told = match is_telling {
        true => ask(client, get(trace::NODE)).await.ok(),
        false => None,
    };
    let elsewhere = match telling {
        // The first change after the one that was watched is this one.
        Some(telling) if watched == Some(version) => Some(telling.await),
        _ => None,
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
        limit,
    })
}

/// Sets the data of a node to what it is, and notes when. If others change it meanwhile, it tries again. Returns the
/// version that it had before.
async fn set(client: &Asker, path: &str, sent: &Cell<Instant>) -> Result<i32, Failure> {
    let until = now() + client.1;
    loop {
        let (data, version) = data_of(ask(client, get(path)).await?)?;
        sent.set(now());
        let set = Request::SetData {
            path: path.into(),
            data,
            version,
        };
        match ask(client, set).await {
            Err(Failure::Refused(Code::BAD_VERSION)) if now() < until => (),
            asked => return asked.map(|_| version),
        }
    }
}

fn data_of(answer: Answer) -> Result<(Option<Bytes>, i32), Failure> {
    match answer {
        Answer::Data(data, stat) => Ok((data, stat.version)),
        _ => Err(Failure::Broken("an answer of another kind")),
    }
}

fn micros_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A node that goes with the session.
async fn made(client: &Asker) -> Result<String, Failure> {
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

/// A client that is told of the next change of the node, and the node's version before it.
async fn watching(server: SocketAddr, path: &str, limit: Duration) -> Outcome<(Asker, i32)> {
    let client = connected(server, limit).await?;
    let sync = Request::Sync {
        path: Some(path.into()),
    };
    let watch = Request::GetData {
        path: path.into(),
        watch: true,
    };
    let asked = async {
        ask(&client, sync).await?;
        data_of(ask(&client, watch).await?)
    };
    let asked = asked.await;
    let (_, version) = asked.map_err(|failure| format!("{server}: {path}: {failure}"))?;
    Ok((client, version))
}

fn disk(rows: &[Row]) -> u64 {
    rows.iter()
        .filter(|row| row.is_disk)
        .map(|row| row.took)
        .sum()
}

fn to_json(seen: &Seen) -> serde_json::Value {
    let row = |row: &Row| {
        serde_json::json!({
            "step": row.step, "where": row.place, "at_us": row.at, "took_us": row.took, "waits_for_disk": row.is_disk,
        })
    };
    let steps: Vec<_> = seen.rows().iter().map(row).collect();
    let elsewhere = seen
        .elsewhere
        .map(|(server, at)| serde_json::json!({ "server": server.to_string(), "event_at_us": at }));
    serde_json::json!({
        "server": seen.server.to_string(), "path": seen.path, "total_us": seen.total, "disk_us": seen.disk(),
        "is_told": seen.told.is_some(), "told": seen.told.as_ref().map(Told::to_json), "steps": steps,
        "elsewhere": elsewhere,
    })
}

fn print(seen: &Seen) {
    println!("setData {} at {}", seen.path, seen.server);
    let rows = seen.rows();
    if !rows.is_empty() {
        println!(
            "{:>9}  {:>8}  {:<18}  step",
            "begins us", "takes us", "where"
        );
    }
    for row in rows {
        let mark = if row.is_disk { "   <- the disk" } else { "" };
        println!(
            "{:>9}  {:>8}  {:<18}  {}{mark}",
            row.at, row.took, row.place, row.step
        );
    }
    println!("{}", summary(seen));
    match seen.elsewhere {
        Some((server, Some(at))) => {
            println!("a client of {server} that watches the node was told after {at} us");
        }
        Some((server, None)) => {
            let limit = seen.limit;
            println!("a client of {server} that watches the node was not told within {limit:?}");
        }
        None => {}
    }
    match &seen.told {
        None => println!(
            "{} tells nothing more: it has --no-clickhouse, its tree has a node /keeper of its own, or it is \
             another server",
            seen.server
        ),
        Some(told) if !told.commits() => println!(
            "{} tells nothing of its log, nor how long that waited for disks: it is a Zelos",
            seen.server
        ),
        Some(_) => {}
    }
}

fn summary(seen: &Seen) -> String {
    let total = seen.total;
    match seen.disk() {
        None => format!("answered after {total} us"),
        Some(disk) => format!(
            "answered after {total} us, of which it waited for the disk {disk} us ({} %)",
            100 * disk / total.max(1)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_keeper::trace::Mark;

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
        assert_eq!(disk(&rows), 300);
        let mut seen = Seen {
            server: ([127, 0, 0, 1], 2181).into(),
            path: "/a".into(),
            total: 1000,
            told: Some(Told {
                marks: vec![
                    (Mark::Sent, 600),
                    (Mark::Committed, 900),
                    (Mark::Answered, 1000),
                ],
                ..Told::default()
            }),
            elsewhere: None,
            limit: Duration::from_secs(1),
        };
        let line = summary(&seen);
        assert_eq!(
            line,
            "answered after 1000 us, of which it waited for the disk 300 us (30 %)"
        );
        assert_eq!(to_json(&seen)["disk_us"], 300);
        seen.told = Some(Told {
            marks: vec![(Mark::Queued, 10), (Mark::Answered, 900)],
            ..Told::default()
        });
        assert_eq!(summary(&seen), "answered after 1000 us", "a Zelos");
        let json = to_json(&seen);
        assert_eq!(json["is_told"], true);
        assert!(json["disk_us"].is_null(), "{json}");
        seen.told = None;
        assert_eq!(summary(&seen), "answered after 1000 us");
        let json = to_json(&seen);
        assert_eq!(json["is_told"], false);
        assert_eq!(json["steps"], serde_json::json!([]), "nobody measured any");
    }

    #[test]
    fn a_path_begins_with_a_slash() {
        assert!(parse_path("app").is_err_and(|error| error.contains("expected a path")));
    }
}
