//! The leaderboard service, built as its readers build it, under many requests at once: ranks and scores are exact.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a program of its own, with sockets of its own

use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: usize = 64;
const POSTS_A_CLIENT: u64 = 25;
const PLAYERS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize, PartialEq, Eq, Debug)]
struct Standing {
    player: String,
    score: u64,
    rank: u64,
}

/// A running service, which ends with this.
struct Service {
    process: Child,
    address: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The example's program. Cargo builds the examples of a crate before it runs the crate's tests.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let built = own.parent().and_then(Path::parent).expect("target/debug");
    built.join("examples/leaderboard")
}

fn start(data: &Path) -> Service {
    let mut process = Command::new(program())
        .args(["127.0.0.1:0".as_ref(), data.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example is built: cargo test -p plinth builds it");
    let output = process.stdout.take().expect("piped");
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    read.expect("the service tells its address");
    let address = line.trim().rsplit('/').next().unwrap_or_default();
    assert!(address.contains(':'), "the service says where: {line}");
    Service {
        address: address.to_owned(),
        process,
    }
}

/// Sends a request on a connection of its own; returns status and body.
fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: leaderboard\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answers in time");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (status.expect("a status"), body.to_owned())
}

fn post(address: &str, player: &str, score: u64) -> Standing {
    let body = format!(r#"{{"player": "{player}", "score": {score}}}"#);
    let (status, body) = ask(address, "POST", "/scores", &body);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("a standing")
}

/// What the board must show: the best first, then by name downwards, as the ranking has them.
fn expected(best: &BTreeMap<String, u64>) -> Vec<Standing> {
    let mut order: Vec<_> = best
        .iter()
        .map(|(player, score)| (*score, player))
        .collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    let rank_of = |score| 1 + order.iter().filter(|(other, _)| *other > score).count() as u64;
    let standing = |&(score, player): &(u64, &String)| Standing {
        player: player.clone(),
        score,
        rank: rank_of(score),
    };
    order.iter().map(standing).collect()
}

#[test]
fn ranks_and_scores_are_exact_after_many_requests_at_once() {
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leaderboard");
    let _ = std::fs::remove_dir_all(&data);
    let service = start(&data);
    let address = Arc::new(service.address.clone());
    let waiting = std::thread::spawn({
        let address = address.clone();
        move || ask(&address, "GET", "/leader/next", "")
    });
    let clients = (0..CLIENTS as u64).map(|client| {
        let address = address.clone();
        std::thread::spawn(move || {
            let mut best = BTreeMap::<String, u64>::new();
            let mut random = client + 1;
            for _ in 0..POSTS_A_CLIENT {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                // Few scores in a wide range: ties, and several intervals of which the service counts players.
                let score = (random >> 33) % 300 * 7;
                let player = format!("player {}", (random >> 48) % PLAYERS).replace(' ', "-");
                let standing = post(&address, &player, score);
                assert!(standing.score >= score && standing.player == player);
                let own = best.entry(player).or_default();
                assert!(standing.score >= *own, "a best score does not go back");
                *own = (*own).max(standing.score);
            }
            best
        })
    });
    let mut best = BTreeMap::<String, u64>::new();
    for client in clients.collect::<Vec<_>>() {
        for (player, score) in client.join().expect("a client ends well") {
            let own = best.entry(player).or_default();
            *own = (*own).max(score);
        }
    }
    let expected = expected(&best);
    assert!(expected.len() > 150, "{} players", expected.len());
    let (_, top) = ask(&address, "GET", "/top?count=1000", "");
    let top: Vec<Standing> = serde_json::from_str(&top).expect("standings");
    assert_eq!(top, expected);
    for standing in &expected {
        let path = format!("/players/{}", standing.player);
        let (_, body) = ask(&address, "GET", &path, "");
        let found: Standing = serde_json::from_str(&body).expect("a standing");
        assert_eq!(found, *standing);
    }
    let (status, first) = waiting.join().expect("it ends");
    assert!(status == 200 && best.contains_key(&first), "{first}");
    follows_the_leader(&address, &expected[0]);
    refuses_what_is_wrong(&address);
    drop(service);
    std::fs::remove_dir_all(data).expect("it is there");
}

fn follows_the_leader(address: &str, leader: &Standing) {
    let path = format!("/leader/next?after={}", leader.player);
    let (_, now) = ask(address, "GET", "/leader/next?after=nobody", "");
    assert_eq!(now, leader.player);
    let address = address.to_owned();
    let waiting = std::thread::spawn({
        let address = address.clone();
        move || ask(&address, "GET", &path, "")
    });
    let own = post(&address, "the-new-one", 1_000_000);
    assert_eq!(own.rank, 1);
    let (_, next) = waiting.join().expect("it ends");
    assert_eq!(next, "the-new-one");
}

fn refuses_what_is_wrong(address: &str) {
    let (status, _) = ask(address, "GET", "/players/nobody", "");
    assert_eq!(status, 404);
    let high = r#"{"player": "a", "score": 1000001}"#;
    let (status, line) = ask(address, "POST", "/scores", high);
    assert_eq!(status, 400, "{line}");
}
