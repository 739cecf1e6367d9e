//! A cluster whose servers are on machines of their own: a machine is an address, a zone, a data directory and a copy
//! of the cluster file. The machines of a page are 10.0.0.1, 10.0.0.2 and so on; here they are 127.0.0.1 and so on.

use super::small_disk::SmallDisk;
use super::{BINARY, Directory, Server, command, error_line, free_ports, plinth, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything that a cluster does by itself.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

pub struct Machines {
    pub directory: Directory,
    port: u16,
    /// The server of machine `i` is at `i - 1`.
    servers: Vec<Option<Server>>,
    /// The only machine whose disk is small, if there is one.
    small: Option<(usize, SmallDisk)>,
}

impl Machines {
    /// Machines that run; the first `coordinators` of them are coordinators. There is no database yet.
    pub fn new(name: &str, count: usize, coordinators: usize) -> Machines {
        let directory = Directory::new(name);
        let servers = (0..count).map(|_| None).collect();
        let mut machines = Machines {
            directory,
            port: free_ports(1),
            servers,
            small: None,
        };
        let all: Vec<String> = (1..=coordinators).map(|i| machines.address(i)).collect();
        let line = format!("orders:a1@{}\n", all.join(","));
        std::fs::write(machines.cluster_file(), line).expect("can be written");
        (1..=count).for_each(|i| machines.start(i));
        machines
    }

    /// The same with a database that has the row `row`, and is whole.
    pub fn with_database(name: &str, count: usize, statement: &str) -> Machines {
        let machines = Machines::new(name, count, 3);
        let made = machines.cli(&format!("{statement}; set row 0"));
        assert!(made.contains("Database created"), "{made}");
        machines.wait_until_whole(count);
        machines
    }

    pub fn address(&self, i: usize) -> String {
        format!("127.0.0.{i}:{}", self.port)
    }

    /// What a page says, with the addresses of these machines.
    pub fn here(&self, page: &str) -> String {
        let addresses = page.replace("10.0.0.", "127.0.0.");
        addresses.replace(":4500", &format!(":{}", self.port))
    }

    /// The operator's cluster file.
    pub fn cluster_file(&self) -> PathBuf {
        self.directory.file("plinth.cluster")
    }

    /// The cluster file of a machine.
    pub fn own_file(&self, i: usize) -> PathBuf {
        self.directory.file(&format!("{i}.cluster"))
    }

    pub fn data(&self, i: usize) -> PathBuf {
        self.directory.file(&format!("data-{i}"))
    }

    /// Gives machine `i`, which has never run, a small disk of its own.
    pub fn give_small_disk(&mut self, i: usize, mib: u32) {
        self.small = Some((i, SmallDisk::mount(&self.data(i), mib)));
    }

    pub fn small_disk(&self) -> &SmallDisk {
        &self.small.as_ref().expect("a machine has one").1
    }

    pub fn start(&mut self, i: usize) {
        self.start_with(i, &[]);
    }

    pub fn start_with(&mut self, i: usize, more: &[&str]) {
        if self.servers.len() < i {
            self.servers.resize_with(i, || None);
        }
        assert!(self.servers[i - 1].is_none(), "machine {i} runs");
        if !self.own_file(i).exists() {
            std::fs::copy(self.cluster_file(), self.own_file(i)).expect("can be copied");
            // A new cluster may have none yet.
            let _ = std::fs::copy(
                self.cluster_file().with_extension("keys"),
                self.own_file(i).with_extension("keys"),
            );
        }
        let mut command = match &self.small {
            Some((at, small)) if *at == i => small.command(BINARY),
            _ => Command::new(BINARY),
        };
        command
            .args(["server", "--listen", &self.address(i)])
            .arg("--data-dir")
            .arg(self.data(i))
            .arg("-C")
            .arg(self.own_file(i))
            .args(["--machine", &format!("host{i}")])
            .args(["--zone", &format!("rack{i}"), "--cache-mib", "32"])
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let server = command.spawn().expect("the binary was built");
        self.servers[i - 1] = Some(Server(server));
    }

    /// Ends machine `i` by signal 9.
    pub fn kill(&mut self, i: usize) {
        let server = self.servers[i - 1].take();
        drop(server.expect("the machine runs"));
    }

    /// Ends machine `i` by SIGTERM, as a supervisor does.
    pub fn stop(&mut self, i: usize) {
        let mut server = self.servers[i - 1].take().expect("the machine runs");
        kill_process(Pid::from_child(&server.0), Signal::TERM).expect("it is ours");
        let status = server.0.wait().expect("it is ours");
        assert!(status.success(), "{status}");
    }

    /// Waits until the server of machine `i` has ended by itself; returns its exit code.
    pub fn end_of(&mut self, i: usize) -> Option<i32> {
        let mut server = self.servers[i - 1].take().expect("the machine runs");
        let begun = Instant::now();
        loop {
            if let Some(status) = server.0.try_wait().expect("it is ours") {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "machine {i} does not end");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// A statement that goes on while machines fail.
    pub fn cli_command(&self, statements: &str) -> Command {
        let arguments = ["cli", "--timeout", "60", "--exec", statements];
        command(&self.cluster_file(), &arguments)
    }

    pub fn cli(&self, statements: &str) -> String {
        let output = self.cli_command(statements).output();
        let output = output.expect("the binary was built");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{statements}: {said}");
        text(&output.stdout)
    }

    /// The line of a statement that must be refused.
    pub fn cli_fails(&self, statements: &str) -> String {
        let arguments = ["cli", "--timeout", "12", "--exec", statements];
        error_line(&plinth(&self.cluster_file(), &arguments))
    }

    /// Asserts that the row has this value, and gives it the next one.
    pub fn goes_on(&self, value: &mut u32) {
        let next = *value + 1;
        let said = self.cli(&format!("get row; set row {next}"));
        assert!(said.contains(&format!("is `{value}'")), "{value}: {said}");
        *value = next;
    }

    pub fn status_output(&self, arguments: &[&str]) -> Output {
        plinth(&self.cluster_file(), &[&["status"], arguments].concat())
    }

    /// The part `cluster` of the status document; null while nobody answers.
    pub fn status(&self) -> Value {
        let output = self.status_output(&["--json"]);
        let mut document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        document["cluster"].take()
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {status:#}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Waits until status lists these processes, all replicas, and says that one machine may fail: then, and not
    /// before, the next one may be stopped.
    pub fn wait_until_whole(&self, processes: usize) {
        self.wait_until("it is not whole", |status| {
            let listed = status["processes"].as_object();
            listed.is_some_and(|listed| listed.len() == processes)
                && status["full_replication"] == true
                && may_fail(status) >= 1
        });
    }
}

/// How many zones may fail, and the database is still available, as status says.
pub fn may_fail(status: &Value) -> i64 {
    let told = &status["fault_tolerance"]["max_zone_failures_without_losing_availability"];
    told.as_i64().unwrap_or(-1)
}
