//! Whether processes are ready: `/health/ready` is what a load balancer, a rolling update and an alert go by.

use crate::common::gateways::start_gateway;
use crate::common::{BINARY, Cluster, Directory, Server, free_ports, page_of, text};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// From the moment when nothing commits any more, and a little of this machine.
const UNREADY_WITHIN: Duration = Duration::from_secs(7);
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

fn ready(port: u16) -> (u16, String) {
    page_of(port, "/health/ready")
}

fn becomes(port: u16, code: u16, within: Duration) -> String {
    let begun = Instant::now();
    loop {
        let (now, body) = ready(port);
        if now == code {
            return body;
        }
        assert!(begun.elapsed() < within, "{now} after {within:?}: {body}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn nobody_is_ready_while_nothing_commits_and_a_locked_database_is() {
    let (pages, gateway_ports) = (free_ports(3), free_ports(2));
    let more = [
        "--replication",
        "double",
        "--pages-port",
        &pages.to_string(),
    ];
    let cluster = Cluster::start("ready", 3, &more);
    for port in pages..pages + 3 {
        assert_eq!(becomes(port, 200, READY_WITHIN), "ready\n");
    }
    let (_, numbers) = page_of(pages, "/metrics");
    for kind in ["read_version", "read", "commit"] {
        let wanted = format!("kind=\"{kind}\",le=\"+Inf\"");
        assert!(numbers.contains(&wanted), "{wanted} in {numbers}");
    }

    let said = cluster.cli("lock");
    let is_id = |word: &&str| word.len() == 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let id = said
        .split(|c: char| !c.is_ascii_alphanumeric())
        .find(is_id)
        .expect("an id")
        .to_owned();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(ready(pages), (200, "ready: locked\n".into()));
    cluster.cli(&format!("unlock {id}"));

    let [door, gateway] = [0, 1].map(|i| gateway_ports + i);
    let at = SocketAddr::from(([127, 0, 0, 1], door));
    let _gateway = start_gateway(&cluster, at, &["--pages", &format!("127.0.0.1:{gateway}")]);
    begins(gateway);
    assert_eq!(becomes(gateway, 200, READY_WITHIN), "ready\n");

    // One of three cannot serve. It lives, and has heard nothing.
    let stopped: Vec<Pid> = [1, 2].map(|i| pid(&cluster, i)).into();
    let signal = |signal| {
        let send = |pid: &Pid| kill_process(*pid, signal).expect("it is ours");
        stopped.iter().for_each(send);
    };
    signal(Signal::STOP);
    let why = becomes(pages, 503, UNREADY_WITHIN);
    assert!(why.starts_with("not ready: no "), "{why}");
    let why = becomes(gateway, 503, UNREADY_WITHIN);
    assert!(why.starts_with("not ready: no "), "{why}");
    assert_eq!(page_of(gateway, "/ready").0, 503);
    let (_, numbers) = page_of(pages, "/metrics");
    let unready = numbers
        .lines()
        .any(|line| line.starts_with("plinth_ready{") && line.ends_with(" 0"));
    assert!(unready || numbers_follow(pages), "{numbers}");
    signal(Signal::CONT);
    for port in (pages..pages + 3).chain([gateway]) {
        assert_eq!(becomes(port, 200, READY_WITHIN), "ready\n");
    }
}

/// Waits until somebody serves pages at the port.
fn begins(port: u16) {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < READY_WITHIN, "no pages");
        std::thread::sleep(LOOK);
    }
}

/// They are a second behind.
fn numbers_follow(port: u16) -> bool {
    std::thread::sleep(Duration::from_millis(1500));
    let (_, numbers) = page_of(port, "/metrics");
    let mut lines = numbers.lines();
    lines.any(|line| line.starts_with("plinth_ready{") && line.ends_with(" 0"))
}

fn pid(cluster: &Cluster, i: usize) -> Pid {
    let pid = cluster.pid(i).expect("it runs");
    Pid::from_raw(pid.cast_signed()).expect("a process")
}

#[test]
fn a_server_without_a_database_says_that_none_was_created() {
    let cluster = Cluster::stopped("ready-not-created", 1, &[]);
    cluster.write_cluster_file(1);
    let pages = free_ports(1);
    let _server = Server(cluster.start_server_and_pages(0, pages));
    begins(pages);
    let begun = Instant::now();
    let (code, why) = loop {
        let said = ready(pages);
        if said.1.contains("not created") || begun.elapsed() > READY_WITHIN {
            break said;
        }
        std::thread::sleep(LOOK);
    };
    let wanted = "not ready: not created: there is no database, as far as this process knows\n";
    assert_eq!((code, &*why), (503, wanted));
    cluster.cli("configure new single ssd");
    assert_eq!(becomes(pages, 200, READY_WITHIN), "ready\n");
    let output = cluster.plinth(&["status"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn no_replica_of_a_service_is_ready_while_its_log_takes_nothing() {
    let directory = Directory::new("ready-delos");
    let (port, pages) = (free_ports(3), free_ports(3));
    let mut dev = Command::new(BINARY);
    dev.args(["delos", "dev", "locks", "--kind", "lock", "--replicas", "3"])
        .args(["--port", &port.to_string()])
        .args(["--pages-port", &pages.to_string()])
        .arg("--data-dir")
        .arg(directory.file("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let _dev = Server(dev.spawn().expect("it starts"));
    for port in pages..pages + 3 {
        begins(port);
        assert_eq!(becomes(port, 200, READY_WITHIN), "ready\n");
    }
    let at = |i: u16| SocketAddr::from(([127, 0, 0, 1], port + i));
    let found = [1, 2].map(|i| plinth_measure::server_cpu::processes_listening_at(&[at(i)]));
    let stopped = found.map(|pids| Pid::from_raw(pids[0].cast_signed()).expect("a process"));
    let signal = |signal| {
        let send = |pid: &Pid| kill_process(*pid, signal).expect("it is ours");
        stopped.iter().for_each(send);
    };
    signal(Signal::STOP);
    let why = becomes(pages, 503, UNREADY_WITHIN + Duration::from_secs(1));
    assert!(why.starts_with("not ready: no "), "{why}");
    signal(Signal::CONT);
    for port in pages..pages + 3 {
        assert_eq!(becomes(port, 200, READY_WITHIN), "ready\n");
    }
}
