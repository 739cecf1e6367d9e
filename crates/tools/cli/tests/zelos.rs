//! Zelos on real processes: three replicas that serve ZooKeeper's clients. One is killed, and its clients' sessions go
//! on elsewhere.

use crate::common::gateways::{PATIENCE, ask, connect, page};
use crate::common::{BINARY, Directory, Server, error_line, free_ports, text};
use plinth_keeper::wire::{Acl, Answer, CreateKind, Request, create_flags};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, now, sleep, timeout};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

fn create(path: &str, flags: i32) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some("data".into()),
        acl: Acl::open(),
        flags,
        ttl: -1,
    }
}

fn get(path: &str) -> Request {
    Request::GetData {
        path: path.into(),
        watch: true,
    }
}

struct Service {
    directory: Directory,
    port: u16,
    zookeeper_port: u16,
}

impl Service {
    fn new(name: &str) -> Service {
        let port = free_ports(6);
        Service {
            directory: Directory::new(name),
            port,
            zookeeper_port: port + 3,
        }
    }

    fn address(&self, i: u16) -> SocketAddr {
        ([127, 0, 0, 1], self.zookeeper_port + i).into()
    }

    fn dev(&self) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(["delos", "dev", "tree", "--kind", "zelos"])
            .args(["--port", &self.port.to_string()])
            .args(["--zookeeper-port", &self.zookeeper_port.to_string()])
            .arg("--data-dir")
            .arg(self.directory.file("data"))
            .stdin(Stdio::null());
        command
    }

    /// Starts it, and waits until all its engines are on.
    fn start(&self, mut dev: Command) -> Server {
        let server = Server(dev.spawn().expect("it starts"));
        let begun = now();
        while !std::path::Path::new(&self.file()).exists() {
            assert!(begun.elapsed() < PATIENCE, "it is not ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn file(&self) -> String {
        self.directory.file("data/tree.delos").display().to_string()
    }

    fn delos(&self, command: &str) -> String {
        let mut process = Command::new(BINARY);
        process.args(["delos", command, &self.file(), "--timeout", "20"]);
        let output = process.output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The process of a replica.
    fn pid(&self, i: u16) -> i32 {
        let listens = format!("--listen\0127.0.0.1:{}\0", self.port + i);
        let processes = std::fs::read_dir("/proc").expect("processes");
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_it = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&listens)
        };
        numbers.into_iter().find(is_it).expect("it runs")
    }
}

#[test]
fn sessions_go_on_at_another_replica_when_one_is_killed() {
    let service = Service::new("zelos");
    let _dev = service.start(service.dev());
    block_on(async {
        let first = connect(service.address(0), None).await;
        for (path, flags) in [
            ("/a", create_flags::PERSISTENT),
            ("/a/e", create_flags::EPHEMERAL),
        ] {
            ask(&first, create(path, flags)).await.expect("made");
        }
        let watcher = connect(service.address(1), None).await;
        let read = ask(&watcher, get("/a")).await.expect("it is there");
        assert!(matches!(read, Answer::Data(Some(data), _) if data == "data"));
        let pid = rustix::process::Pid::from_raw(service.pid(0)).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        // While it is away, and while the log goes on at another sequencer.
        let second = connect(service.address(2), Some(first.session())).await;
        assert_eq!(second.session_id(), first.session_id());
        let set = Request::SetData {
            path: "/a".into(),
            data: Some("new".into()),
            version: 0,
        };
        ask(&second, set).await.expect("set");
        let told = timeout(PATIENCE, watcher.next_event()).await;
        assert_eq!(told.flatten().expect("an event").path, "/a");
        let read = ask(&watcher, get("/a")).await.expect("it is there");
        assert!(matches!(read, Answer::Data(Some(data), _) if data == "new"));
        // It comes back, with all that it has missed.
        let third = connect(service.address(0), Some(second.session())).await;
        ask(&third, get("/a/e")).await.expect("its session lives");
        while service.delos("status").contains("waits") {
            sleep(Duration::from_millis(100)).await;
        }
    });
    service.delos("check");
}

#[test]
fn operators_have_zookeepers_pages_and_cannot_switch_on_a_lease() {
    let service = Service::new("zelos-admin");
    let pages = free_ports(3);
    let mut dev = service.dev();
    dev.args(["--zookeeper-admin-port", &pages.to_string()]);
    let _dev = service.start(dev);
    block_on(async {
        let client = connect(service.address(1), None).await;
        let made = ask(&client, create("/a", create_flags::PERSISTENT)).await;
        made.expect("made");
    });
    let stat = page(([127, 0, 0, 1], pages + 1).into(), "/commands/stats");
    assert!(stat.contains("\"node_count\""), "{stat}");
    let metrics = page(([127, 0, 0, 1], pages + 1).into(), "/metrics");
    assert!(metrics.contains("znode_count"), "{metrics}");
    for engine in ["lease", "brain_doctor"] {
        let mut switch = Command::new(BINARY);
        switch.args(["delos", "enable-engine", &service.file(), engine]);
        let said = error_line(&switch.output().expect("it runs"));
        let line = format!("a service of kind zelos cannot do with the engine {engine}: ");
        assert!(said.contains(&line), "{said}");
    }
    let mut switch = Command::new(BINARY);
    switch.args(["delos", "disable-engine", &service.file(), "session_order"]);
    let said = error_line(&switch.output().expect("it runs"));
    let line = "a service of kind zelos cannot do without the engine session_order: ";
    assert!(said.contains(line), "{said}");
    assert!(service.delos("status").contains("session_order"));
}

#[test]
fn a_port_for_clients_that_somebody_has_is_named_at_once() {
    let service = Service::new("zelos-port");
    let _taken = TcpListener::bind(service.address(1)).expect("it is free");
    let output = service.dev().output().expect("it runs");
    let said = error_line(&output);
    let address = service.address(1);
    let line = format!("cannot listen at {address} (--zookeeper-port): ");
    assert!(said.contains(&line), "{said}");
    let mut serve = Command::new(BINARY);
    serve
        .args(["delos", "server", "--listen"])
        .arg(format!("127.0.0.1:{}", service.port))
        .args(["--zookeeper-listen", &address.to_string(), "--data-dir"])
        .arg(service.directory.file("one"));
    let said = error_line(&serve.output().expect("it runs"));
    assert!(said.contains("choose another --zookeeper-listen"), "{said}");
}
