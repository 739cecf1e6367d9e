//! Whether processes are ready: `/health/ready` is what a load balancer, a rolling update and an alert go by.

use crate::common::farm::Machines;
use crate::common::gateways::start_gateway;
use crate::common::{BINARY, Cluster, Directory, Server, free_ports, page_for, page_of, text};
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
    let key = std::fs::read_to_string(cluster.cluster_file()).expect("it is there");
    let key = key
        .lines()
        .rfind(|line| line.contains('@'))
        .expect("a line");
    let key = key.split('@').next().expect("a key").to_owned();
    let samples = numbers.lines().filter(|line| !line.starts_with('#'));
    let label = format!("{{cluster=\"{key}\",process=");
    samples.for_each(|line| assert!(line.contains(&label), "{label} in {line}"));
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

/// The numbers of the cluster are on the page of the process that has the controller, and on no other.
#[test]
fn one_page_says_what_status_says() {
    let pages = free_ports(3);
    let more = [
        "--replication",
        "double",
        "--pages-port",
        &pages.to_string(),
    ];
    let cluster = Cluster::start("ready-whole", 3, &more);
    let begun = Instant::now();
    let found = loop {
        let all: Vec<String> = (pages..pages + 3)
            .map(|port| page_of(port, "/metrics").1)
            .collect();
        let lines = all.iter().flat_map(|page| page.lines());
        let own = [
            "plinth_available{",
            "plinth_fault_tolerance{",
            "plinth_replicas_",
        ];
        let found: Vec<String> = lines
            .filter(|line| own.iter().any(|begin| line.starts_with(begin)))
            .map(|line| {
                let (name, rest) = line.split_once('{').expect("labels");
                let value = rest.rsplit(' ').next().expect("a value");
                let of = rest
                    .split("of=\"")
                    .nth(1)
                    .map_or("", |of| of.split('"').next().expect("it ends"));
                format!("{name} {of} {value}")
            })
            .collect();
        if found.contains(&"plinth_fault_tolerance availability 1".into()) {
            break found;
        }
        assert!(begun.elapsed() < READY_WITHIN, "{found:?}");
        std::thread::sleep(LOOK);
    };
    let wanted = [
        "plinth_available  1",
        "plinth_fault_tolerance data 1",
        "plinth_fault_tolerance availability 1",
        "plinth_replicas_lost  0",
        "plinth_replicas_wanted  2",
    ];
    assert_eq!(found, wanted);

    // People look at any of them; who comes by a name of a foreign site sees nothing.
    for port in pages..pages + 3 {
        let begun = Instant::now();
        loop {
            let (code, page) = page_of(port, "/");
            assert_eq!(code, 200, "{page}");
            if page.contains("The database is available. One zone may fail.") {
                let addresses = cluster.addresses();
                let mut all = addresses.iter().map(|at| page.contains(&at.to_string()));
                assert!(all.all(|is_there| is_there), "{page}");
                break;
            }
            assert!(begun.elapsed() < READY_WITHIN, "{page}");
            std::thread::sleep(LOOK);
        }
        assert_eq!(page_for("evil.example", port, "/").0, 421);
        assert_eq!(page_of(port, "/page.css").0, 200);
    }
    drop(cluster);
}

#[test]
fn a_gateway_of_tables_is_ready_as_long_as_its_service_answers_and_appends() {
    let directory = Directory::new("ready-tables");
    let (port, gateway, pages) = (free_ports(3), free_ports(1), free_ports(2));
    let mut dev = Command::new(BINARY);
    dev.args(["delos", "dev", "tabs", "--kind", "table", "--replicas", "3"])
        .args(["--port", &port.to_string(), "--data-dir"])
        .arg(directory.file("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let _dev = Server(dev.spawn().expect("it starts"));
    let begun = Instant::now();
    while !directory.file("data/tabs.delos").exists() {
        assert!(begun.elapsed() < READY_WITHIN);
        std::thread::sleep(LOOK);
    }
    let serves = |listen: u16, pages: u16, more: [&std::ffi::OsStr; 2]| {
        let mut server = Command::new(BINARY);
        server
            .args([
                "table",
                "server",
                "--listen",
                &format!("127.0.0.1:{listen}"),
            ])
            .args(["--pages", &format!("127.0.0.1:{pages}")])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Server(server.spawn().expect("it starts"))
    };
    let file = directory.file("data/tabs.delos");
    let _gateway = serves(gateway, pages, ["-C".as_ref(), file.as_os_str()]);
    begins(pages);
    assert_eq!(becomes(pages, 200, READY_WITHIN), "ready\n");
    let at = |i: u16| SocketAddr::from(([127, 0, 0, 1], port + i));
    let found = [0, 1].map(|i| plinth_measure::server_cpu::processes_listening_at(&[at(i)]));
    let stopped = found.map(|pids| Pid::from_raw(pids[0].cast_signed()).expect("a process"));
    let signal = |signal| {
        let send = |pid: &Pid| kill_process(*pid, signal).expect("it is ours");
        stopped.iter().for_each(send);
    };
    signal(Signal::STOP);
    let why = becomes(pages, 503, UNREADY_WITHIN + Duration::from_secs(3));
    assert!(why.starts_with("not ready: no "), "{why}");
    signal(Signal::CONT);
    assert_eq!(becomes(pages, 200, READY_WITHIN), "ready\n");

    let alone = directory.file("alone");
    let _alone = serves(
        free_ports(1),
        pages + 1,
        ["--data-dir".as_ref(), alone.as_os_str()],
    );
    begins(pages + 1);
    assert_eq!(becomes(pages + 1, 200, READY_WITHIN), "ready\n");
}

#[test]
fn a_machine_of_the_in_memory_engine_is_ready_once_it_is_a_member() {
    let mut machines = Machines::new("farm-ready", 1);
    let pages = free_ports(1);
    let page = format!("127.0.0.1:{pages}");
    let command = machines.command(0, &["--pages", &page]);
    machines.start_as(0, command);
    begins(pages);
    let why = becomes(pages, 503, READY_WITHIN);
    assert!(why.starts_with("not ready: "), "{why}");
    let plan = "--machines 1 --replication 1 --regions 1 --region-mib 8";
    let plan: Vec<&str> = plan.split(' ').collect();
    let made = machines.run("create", &plan);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert_eq!(becomes(pages, 200, READY_WITHIN), "ready\n");
    let (_, numbers) = page_of(pages, "/metrics");
    assert!(
        numbers.contains("plinth_ready{cluster=\"test:"),
        "{numbers}"
    );
}
