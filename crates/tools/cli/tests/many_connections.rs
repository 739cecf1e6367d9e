//! Thousands of strangers, silent or with half a greeting. The cluster continues to serve, its memory does not grow,
//! and connections beyond the limit are closed.

use crate::common::strangers::{allow_open_files, is_closed, open_files, wait_until};
use crate::common::{Cluster, error_line, text};
use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_rpc::hello_of_nobody;
use plinth_runtime::{Duration, Instant, now, real, sleep, timeout};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

const CONNECTIONS: usize = 10_000;
/// Limit of a server's memory per idle connection, without kernel memory.
const CONNECTION_BYTES_MAX: u64 = 32 << 10;
/// Limit of a transaction, however many strangers there are.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit of the time until a stranger without a greeting is disconnected.
const GREETING_LIMIT: Duration = Duration::from_secs(20);

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect_timeout(&address, PATIENCE).expect("whoever has no room for us says so")
}

fn resident_bytes(pid: u32) -> u64 {
    let usage = plinth_measure::server_cpu::usage(&[pid]);
    usage.expect("the server lives").memory_bytes
}

async fn client(cluster: &Cluster) -> Database {
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    plinth_client::connect(file.expect("a cluster file"))
}

/// Increments the counter within `PATIENCE`; returns its new value.
async fn transact(database: &Database) -> u64 {
    let counted = database.run(async |t| {
        let value = t.get("counter", false).await?;
        let n = value.map_or(0, |v| {
            u64::from_le_bytes(v[..].try_into().expect("eight bytes"))
        });
        t.set("counter", (n + 1).to_le_bytes());
        Ok(n + 1)
    });
    let counted = timeout(PATIENCE, counted).await;
    counted.expect("a transaction in time").expect("commits")
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_harm_nobody() {
    allow_open_files(CONNECTIONS as u64 + 2000);
    let cluster = Cluster::start("idle", 1, &["--engine", "memory"]);
    let pid = cluster.pid(0).expect("it serves");
    real::block_on(async {
        let old = client(&cluster).await;
        assert_eq!(transact(&old).await, 1);
        let (files, memory) = (open_files(pid), resident_bytes(pid));

        let hello = hello_of_nobody();
        let mut greeted = Vec::new();
        let mut silent = Vec::new();
        for i in 0..CONNECTIONS {
            let mut stream = connect(cluster.addresses()[0]);
            // Half are idle clients. The others send nothing, half a greeting, or the announcement of a long frame.
            match i % 4 {
                0 | 1 => stream.write_all(&hello).expect("sends"),
                2 => {}
                _ if i % 8 == 3 => stream.write_all(&hello[..hello.len() / 2]).expect("sends"),
                _ => stream
                    .write_all(&(60u32 << 20).to_le_bytes())
                    .expect("sends"),
            }
            let kind = if i % 4 < 2 { &mut greeted } else { &mut silent };
            kind.push(stream);
            if i % 100 == 0 {
                transact(&old).await;
            }
        }
        let grown = resident_bytes(pid).saturating_sub(memory);
        eprintln!(
            "{CONNECTIONS} connections cost {} bytes each",
            grown / CONNECTIONS as u64
        );
        assert!(
            grown < CONNECTIONS as u64 * CONNECTION_BYTES_MAX,
            "{grown} bytes"
        );

        let new = client(&cluster).await;
        assert_eq!(transact(&new).await, 102);
        assert!(cluster.cli("set new client; get new").contains("`client'"));

        let all_gone = || silent.iter_mut().all(is_closed);
        let waited = wait_until("silent strangers are sent away", GREETING_LIMIT, all_gone).await;
        eprintln!("strangers who did not greet were sent away {waited:?} after the last had come");
        assert!(
            !greeted.iter_mut().any(is_closed),
            "an idle client was sent away"
        );
        drop((greeted, silent));

        let few = || open_files(pid) < files + 20;
        wait_until(
            "the connections are forgotten",
            Duration::from_secs(10),
            few,
        )
        .await;
        assert_eq!(transact(&old).await, 103);
        assert_eq!(transact(&new).await, 104);
        assert_eq!(
            cluster.pid(0),
            Some(pid),
            "the server has been started anew"
        );
    });
}

#[test]
fn twenty_thousand_nobodies_at_a_closed_cluster_keep_nobody_out_who_has_a_key() {
    const NOBODIES: usize = 20_000;
    const HELD: usize = 5000;
    /// How many a server keeps, and room for its own connections.
    const KEPT: usize = 1000 + 20;
    /// A fraction of what all of them would take at a time. On a busy host those that make room need a moment to go.
    const MEMORY_MAX: u64 = NOBODIES as u64 * (4 << 10);
    allow_open_files(HELD as u64 + 2000);
    let cluster = Cluster::start("nobodies", 1, &["--engine", "memory"]);
    let pid = cluster.pid(0).expect("it serves");
    let closed = cluster.plinth(&["keys", "close"]);
    assert!(closed.status.success(), "{}", text(&closed.stderr));
    real::block_on(async {
        sleep(Duration::from_millis(2500)).await; // servers look at their key files once a second
        let old = client(&cluster).await;
        let mut commits = transact(&old).await;
        let (files, memory) = (open_files(pid), resident_bytes(pid));
        let hello = hello_of_nobody();
        let mut held = VecDeque::new();
        for i in 0..NOBODIES {
            let mut stream = connect(cluster.addresses()[0]);
            let said = [
                &hello[..],
                &hello[..hello.len() / 2],
                b"GET / HTTP/1.1\r\n\r\n",
                b"",
            ][i % 4];
            let _ = stream.write_all(said); // the connection may be closed already
            held.push_back(stream);
            if held.len() > HELD {
                held.pop_front();
            }
            if i % 500 == 0 {
                commits += 1;
                assert_eq!(transact(&old).await, commits);
            }
            if i % 5000 == 4999 {
                commits += 1;
                assert_eq!(transact(&client(&cluster).await).await, commits);
            }
        }
        let few = || open_files(pid) < files + KEPT;
        wait_until("the oldest make room", PATIENCE, few).await;
        let grown = resident_bytes(pid).saturating_sub(memory);
        assert!(grown < MEMORY_MAX, "{grown} bytes");
        assert_eq!(transact(&old).await, commits + 1);
        assert_eq!(
            cluster.pid(0),
            Some(pid),
            "the server has been started anew"
        );
    });
}

/// Number of events of a type in the server's trace.
fn events(cluster: &Cluster, name: &str) -> usize {
    let trace = cluster
        .directory
        .file(&format!("{}/trace.jsonl", cluster.first_port));
    let trace = std::fs::read(trace).expect("a trace");
    let wanted = format!("\"type\":\"{name}\"");
    text(&trace)
        .lines()
        .filter(|line| line.contains(&wanted))
        .count()
}

#[test]
fn connections_beyond_the_limit_are_refused_and_the_others_are_served() {
    const LIMIT: usize = 256;
    allow_open_files(4000);
    let cluster = Cluster::start_limited("limit", &["--engine", "memory"], LIMIT);
    let pid = cluster.pid(0).expect("it serves");
    real::block_on(async {
        let old = client(&cluster).await;
        assert_eq!(transact(&old).await, 1);
        let hello = hello_of_nobody();
        let mut strangers = Vec::new();
        for _ in 0..4 * LIMIT {
            let mut stream = connect(cluster.addresses()[0]);
            let _ = stream.write_all(&hello); // the connection may be closed already
            strangers.push(stream);
        }
        let mut expected = 1;
        let start: Instant = now();
        // Long enough and large enough that the log and the engine need new files.
        while start.elapsed() < Duration::from_secs(7) {
            let written = old.run(async |t| {
                t.set(format!("large/{expected}"), vec![7; 90_000]);
                Ok(())
            });
            timeout(PATIENCE, written)
                .await
                .expect("in time")
                .expect("commits");
            expected += 1;
            assert_eq!(transact(&old).await, expected);
        }
        let refused = strangers
            .iter_mut()
            .map(is_closed)
            .filter(|gone| *gone)
            .count();
        eprintln!(
            "{refused} of {} were refused; {expected} transactions meanwhile",
            strangers.len()
        );
        assert!(refused >= 3 * LIMIT, "{refused} were refused");
        assert!(
            open_files(pid) < LIMIT,
            "no file is left for the server itself"
        );
        // A new client finds no room and gets an error.
        error_line(&cluster.plinth(&["cli", "--timeout", "1", "--exec", "get counter"]));
        let said = events(&cluster, "ConnectionsAtLimit") + events(&cluster, "AcceptFailed");
        assert!((1..=3).contains(&said), "the trace says so {said} times");

        drop(strangers);
        let few = || open_files(pid) < LIMIT / 2;
        wait_until(
            "the connections are forgotten",
            Duration::from_secs(10),
            few,
        )
        .await;
        assert!(cluster.cli("get large/1").contains("large/1"));
        assert_eq!(transact(&old).await, expected + 1);
        assert_eq!(
            cluster.pid(0),
            Some(pid),
            "the server has been started anew"
        );
    });
}
