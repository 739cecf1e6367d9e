//! Trees of the keeper that are moved by a command that is killed in the middle, and moved again.

use crate::common::gateways::{ask, connect, start_gateway};
use crate::common::{BINARY, Cluster, free_ports, text};
use bytes::Bytes;
use plinth_keeper::wire::{Acl, CreateKind, Request, create_flags};
use plinth_runtime::real;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PARENTS: usize = 20;
const CHILDREN: usize = 1000;
const NODES: u64 = (PARENTS * (CHILDREN + 1)) as u64;
const LIMIT: Duration = Duration::from_secs(60);
/// How often a command is killed at most until it was so in the middle.
const TRIES: u32 = 20;

fn create(path: String) -> Request {
    let data = format!("{path} {:>300}", path.len());
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(Bytes::from(data)),
        acl: Acl::open(),
        flags: create_flags::PERSISTENT,
        ttl: -1,
    }
}

/// A tree with nodes of 300 bytes.
async fn fill(cluster: &Cluster) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let _gateway = start_gateway(cluster, address, &[]);
    let client = connect(address, None).await;
    for parent in 0..PARENTS {
        let children = (0..CHILDREN).map(|child| create(format!("/p{parent}/c{child}")));
        let all: Vec<_> = [create(format!("/p{parent}"))]
            .into_iter()
            .chain(children)
            .collect();
        for some in all.chunks(500) {
            let operations = some.to_vec();
            ask(&client, Request::Multi { operations })
                .await
                .expect("made");
        }
    }
    client.close().await.expect("closed");
}

fn command(cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["keeper"]).args(words).arg("--json").arg("-C");
    command.arg(cluster.cluster_file()).stdin(Stdio::null());
    command
}

/// What the command says when it is done.
fn said(cluster: &Cluster, words: &[&str]) -> serde_json::Value {
    let output = command(cluster, words).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Kills the command as soon as `is_time`. True if it had not ended by then.
fn is_killed(mut command: Command, is_time: impl Fn() -> bool) -> bool {
    let mut child: Child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    while !is_time() && child.try_wait().expect("asked").is_none() {
        assert!(began.elapsed() < LIMIT, "it goes on for ever");
        std::thread::sleep(Duration::from_micros(200));
    }
    let _ = child.kill(); // it may have ended
    child.wait().expect("asked").signal() == Some(9)
}

fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// What the only snapshot in a data directory of ZooKeeper has. Nothing else is there. Its name is the last
/// transaction of the store, not of the tree.
fn snapshot(directory: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(directory.join("version-2")).expect("listed");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("listed").path()).collect();
    let [path] = &paths[..] else {
        panic!("{paths:?}");
    };
    let name = path.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with("snapshot."), "{name}");
    std::fs::read(path).expect("read")
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// Exports a tree at one go.
fn export(cluster: &Cluster, tree: &str) -> (PathBuf, serde_json::Value) {
    let directory = cluster.directory.file(&format!("whole-{tree}"));
    let words = ["export", "--tree", tree, "--to-files", name(&directory)];
    let told = said(cluster, &words);
    (directory, told)
}

#[test]
fn an_export_that_is_killed_goes_on_and_writes_what_one_at_one_go_does() {
    let cluster = Cluster::start("keeper-export-killed", 1, &["--engine", "memory"]);
    real::block_on(fill(&cluster));
    let (whole, told) = export(&cluster, "default");
    assert_eq!(told["nodes_from_before"], 0);
    assert!(told["nodes"].as_u64() >= Some(NODES), "{told}");
    let directory = cluster.directory.file("killed");
    let kept = directory.join("version-2/unfinished-export");
    let words = ["export", "--to-files", name(&directory)];
    // Twice in the middle.
    for _ in 0..2 {
        let before = len(&kept);
        let has_read = || len(&kept) > before + 100_000;
        assert!(
            is_killed(command(&cluster, &words), has_read),
            "it was quicker"
        );
        assert!(len(&kept) > before, "it goes on where it was");
    }
    let again = said(&cluster, &words);
    assert_eq!(again["nodes"], told["nodes"]);
    let before = again["nodes_from_before"].as_u64();
    assert!(before >= Some(200) && before < Some(NODES), "{again}");
    assert!(snapshot(&directory) == snapshot(&whole), "the same bytes");
}

#[test]
fn an_export_to_a_server_that_is_killed_goes_on_and_makes_every_node() {
    let cluster = Cluster::start("keeper-export-live-killed", 1, &["--engine", "memory"]);
    real::block_on(fill(&cluster));
    let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let _gateway = start_gateway(&cluster, address, &["--tree", "other"]);
    real::block_on(async { drop(connect(address, None).await) });
    let to = address.to_string();
    let words = ["export", "--to", &to];
    let began = Instant::now();
    let mut pause = Duration::from_millis(300);
    let mut tries = 0..TRIES;
    let has_begun = loop {
        assert!(tries.next().is_some(), "it is never killed in the middle");
        let started = Instant::now();
        let is_in_the_middle = is_killed(command(&cluster, &words), || started.elapsed() > pause);
        assert!(is_in_the_middle, "it was quicker than {pause:?}");
        let (directory, told) = export(&cluster, "other");
        std::fs::remove_dir_all(directory).expect("removed");
        let nodes = told["nodes"].as_u64().expect("a number");
        if nodes > 100 {
            break nodes;
        }
        pause += Duration::from_millis(50);
    };
    assert!(has_begun < NODES, "{has_begun} after {:?}", began.elapsed());
    let again = said(&cluster, &words);
    assert!(again["nodes_from_before"].as_u64() > Some(100), "{again}");
    let (_, of_this) = export(&cluster, "default");
    let (_, of_other) = export(&cluster, "other");
    for what in ["nodes", "bytes"] {
        assert_eq!(of_other[what], of_this[what], "{what}");
    }
}

/// What the command for it says of a tree.
fn state(cluster: &Cluster, tree: &str) -> String {
    let told = cluster.plinth(&["keeper", "status", "--tree", tree]);
    text(&told.stdout)
}

#[test]
fn an_import_that_is_killed_leaves_nothing_to_serve_and_is_done_again() {
    let cluster = Cluster::start("keeper-import-killed", 1, &["--engine", "memory"]);
    real::block_on(fill(&cluster));
    let (files, _) = export(&cluster, "default");
    let import = |tree| ["import", "--tree", tree, "--from-files", name(&files)];
    let began = Instant::now();
    let told = said(&cluster, &import("whole"));
    let took = began.elapsed();
    let mut pause = took / 2;
    let mut tries = 0..TRIES;
    loop {
        assert!(tries.next().is_some(), "it is never killed in the middle");
        let started = Instant::now();
        let import = command(&cluster, &import("killed"));
        if !is_killed(import, || started.elapsed() > pause) {
            // It was quicker. What it has imported must go before the next.
            let dropped = cluster.plinth(&["keeper", "drop", "--tree", "killed", "--whole"]);
            assert!(dropped.status.success(), "{}", text(&dropped.stderr));
            pause = pause * 3 / 4;
            continue;
        }
        let directory = cluster.directory.file("refused");
        let words = ["export", "--tree", "killed", "--to-files", name(&directory)];
        let refused = command(&cluster, &words).output().expect("it runs");
        assert!(
            !refused.status.success(),
            "killed after {pause:?}, and served"
        );
        if state(&cluster, "killed").contains("its import has not ended") {
            break;
        }
        pause = pause * 9 / 8;
    }
    let again = said(&cluster, &import("killed"));
    for what in ["nodes", "bytes", "last_zxid"] {
        assert_eq!(again[what], told[what], "{what}");
    }
    let (killed, _) = export(&cluster, "killed");
    let (whole, _) = export(&cluster, "whole");
    assert!(snapshot(&killed) == snapshot(&whole), "the same bytes");
}
