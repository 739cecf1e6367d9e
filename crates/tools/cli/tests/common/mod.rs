//! A cluster of real processes on free loopback ports, started by `plinth dev` in its own directory.

pub mod browser;
pub mod certificates;
pub mod client_programs;
pub mod farm;
pub mod gateways;
pub mod machines;
pub mod object_server;
pub mod replicas;
pub mod screen;
pub mod small_disk;
pub mod strangers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const BINARY: &str = env!("CARGO_BIN_EXE_plinth");

/// A directory that is removed at the end of the test.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0); // suites may have tests of one name
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plinth-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path); // left over from an earlier run
        std::fs::create_dir_all(&path).expect("the temporary directory can be written to");
        Directory(path)
    }
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ports from here on are given to tests, in blocks: a server that was killed finds its port free when it comes back.
/// They lie between those that the clients of ZooKeeper take by themselves and those of `tests/keeper/ports.py`.
const FIRST_PORT: u16 = 22_000;
const PORTS_A_BLOCK: u16 = 50;
const BLOCKS: u16 = 120;

/// A block of ports that no other process of tests has. The lock ends with this process.
fn lock_block() -> (std::fs::File, u16) {
    let from = std::process::id() as u16 % BLOCKS;
    for block in (from..BLOCKS).chain(0..from) {
        let path = std::env::temp_dir().join(format!("plinth-ports-{block}"));
        let Ok(file) = std::fs::File::create(path) else {
            continue; // another user's
        };
        if file.try_lock().is_ok() {
            return (file, FIRST_PORT + block * PORTS_A_BLOCK);
        }
    }
    panic!("other tests have all ports");
}

/// The first of `count` consecutive ports that are free and not given to another test.
pub fn free_ports(count: u16) -> u16 {
    struct Held {
        blocks: Vec<std::fs::File>,
        next: u16,
        end: u16,
    }
    static HELD: Mutex<Held> = Mutex::new(Held {
        blocks: Vec::new(),
        next: 0,
        end: 0,
    });
    assert!(count <= PORTS_A_BLOCK);
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if held.next + count > held.end {
            let (block, first) = lock_block();
            held.blocks.push(block);
            (held.next, held.end) = (first, first + PORTS_A_BLOCK);
        }
        let first = held.next;
        held.next += count;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + count).all(free) {
            return first;
        }
    }
}

/// Result of starting a cluster on files that may be damaged.
pub enum Resumed {
    Ready,
    /// The command ended with exit code 1.
    Failed,
    /// Neither of these within the time limit.
    Neither,
}

pub struct Cluster {
    pub directory: Directory,
    pub first_port: u16,
    pub processes: u16,
    more: Vec<String>,
    /// Cache of each storage server that is started alone.
    pub cache_mib: u32,
    /// Limit of open files for the servers.
    files_max: Option<usize>,
    dev: Option<Child>,
}

impl Cluster {
    pub fn start(name: &str, processes: u16, more: &[&str]) -> Self {
        let mut cluster = Self::stopped(name, processes, more);
        cluster.resume();
        cluster
    }

    /// Starts one server with a limit of open files.
    pub fn start_limited(name: &str, more: &[&str], files_max: usize) -> Self {
        let mut cluster = Self::stopped(name, 1, more);
        cluster.files_max = Some(files_max);
        cluster.resume();
        cluster
    }

    /// A cluster that has not been started yet.
    pub fn stopped(name: &str, processes: u16, more: &[&str]) -> Self {
        let directory = Directory::new(name);
        let first_port = free_ports(processes);
        let more = more.iter().map(|argument| argument.to_string()).collect();
        Cluster {
            directory,
            first_port,
            processes,
            more,
            cache_mib: 32,
            files_max: None,
            dev: None,
        }
    }

    /// Starts the servers and waits until they serve.
    pub fn resume(&mut self) {
        let mut command = self.dev_command();
        command
            .args([
                "--processes",
                &self.processes.to_string(),
                "--port",
                &self.first_port.to_string(),
            ])
            .args(["--cache-mib", "32"])
            .args(&self.more);
        self.resume_by(command);
    }

    /// The same for a directory that has a cluster, with nothing said of it.
    pub fn resume_as_it_is(&mut self) {
        self.resume_by(self.dev_command());
    }

    fn resume_by(&mut self, mut command: Command) {
        let mut dev = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let stdout = dev.stdout.take().expect("it is piped");
        self.dev = Some(dev);
        let ready = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .any(|line| line == "ready");
        assert!(ready, "the cluster did not get ready");
    }

    /// Starts the servers, which may fail. Their output is kept for [`Cluster::said`].
    pub fn try_resume(&mut self, limit: Duration) -> Resumed {
        let said = self.said_file();
        let file = || {
            std::fs::File::options()
                .create(true)
                .append(true)
                .open(&said)
        };
        let _ = std::fs::remove_file(&said); // of an earlier start
        let mut dev = self
            .dev_command()
            .args([
                "--processes",
                &self.processes.to_string(),
                "--port",
                &self.first_port.to_string(),
            ])
            .args(["--cache-mib", "32"])
            .args(&self.more)
            .stdout(file().expect("can be made"))
            .stderr(file().expect("can be made"))
            .spawn()
            .expect("the binary was built");
        let start = Instant::now();
        let outcome = loop {
            if let Some(status) = dev.try_wait().expect("it is ours") {
                assert_eq!(status.code(), Some(1), "{}", self.said());
                return Resumed::Failed;
            }
            if self.said().lines().any(|line| line == "ready") {
                break Resumed::Ready;
            }
            if start.elapsed() > limit {
                break Resumed::Neither;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        self.dev = Some(dev);
        outcome
    }

    /// Starts server `i` alone, as `plinth dev` does. [`Cluster::server_said`] reads its output.
    pub fn start_server(&self, i: u16) -> Child {
        self.start_server_at(i, self.first_port + i)
    }

    /// Writes a cluster file for servers that are started one by one; the first `coordinators` of them are
    /// coordinators.
    pub fn write_cluster_file(&self, coordinators: usize) {
        let addresses = self.addresses();
        let list: Vec<String> = addresses[..coordinators]
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        let text = format!("test:test@{}\n", list.join(","));
        std::fs::write(self.cluster_file(), text).expect("can be written");
    }

    /// Starts server `i` alone with some knobs set.
    pub fn start_server_with(&self, i: u16, knobs: &[&str]) -> Child {
        let knobs = knobs.iter().flat_map(|knob| ["--knob", knob]);
        let mut server = self.server_command(i, self.first_port + i);
        let trace = self.directory.file(&format!("trace-{i}.jsonl"));
        server.arg("--trace").arg(trace);
        server.args(knobs).spawn().expect("the binary was built")
    }

    /// Starts server `i`, and its pages at this port.
    pub fn start_server_and_pages(&self, i: u16, pages: u16) -> Child {
        let mut server = self.server_command(i, self.first_port + i);
        server.args(["--pages", &format!("127.0.0.1:{pages}")]);
        server.spawn().expect("the binary was built")
    }

    /// Starts server `i` on its data directory at another port.
    pub fn start_server_at(&self, i: u16, port: u16) -> Child {
        let mut server = self.server_command(i, port);
        server.spawn().expect("the binary was built")
    }

    fn server_command(&self, i: u16, port: u16) -> Command {
        let said = self.directory.file(&format!("said-{i}"));
        let data = self.directory.file(&(self.first_port + i).to_string());
        let mut command = Command::new(BINARY);
        command
            .args(["server", "--listen", &format!("127.0.0.1:{port}")])
            .arg("--data-dir")
            .arg(data)
            .arg("-C")
            .arg(self.cluster_file())
            .args(["--machine", &format!("m{i}"), "--zone", &format!("z{i}")])
            .args(["--cache-mib", &self.cache_mib.to_string()])
            .stderr(std::fs::File::create(said).expect("can be made"));
        command
    }

    pub fn server_said(&self, i: u16) -> String {
        text(&std::fs::read(self.directory.file(&format!("said-{i}"))).unwrap_or_default())
    }

    fn said_file(&self) -> PathBuf {
        self.directory.file("said")
    }

    /// The output so far of the cluster started by [`Cluster::try_resume`].
    pub fn said(&self) -> String {
        text(&std::fs::read(self.said_file()).unwrap_or_default())
    }

    fn dev_command(&self) -> Command {
        let mut command = match self.files_max {
            None => Command::new(BINARY),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args([
                    "-c",
                    &format!("ulimit -n {files}; exec \"$0\" \"$@\""),
                    BINARY,
                ]);
                shell
            }
        };
        command.arg("dev").arg("--data-dir").arg(&self.directory.0);
        command
    }

    /// Runs `plinth dev` in the same directory, which must fail; returns its error line.
    pub fn dev_fails(&self, arguments: &[&str]) -> String {
        error_line(
            &self
                .dev_command()
                .args(arguments)
                .output()
                .expect("the binary was built"),
        )
    }

    /// Stops `plinth dev` with SIGTERM; the servers end with it.
    pub fn stop(&mut self) {
        let Some(mut dev) = self.dev.take() else {
            return;
        };
        let pid = rustix::process::Pid::from_child(&dev);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = dev.wait();
    }

    pub fn cluster_file(&self) -> PathBuf {
        self.directory.file("plinth.cluster")
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |i| SocketAddr::from(([127, 0, 0, 1], self.first_port + i));
        (0..self.processes).map(address).collect()
    }

    /// The process that listens at the address of server `i`.
    pub fn pid(&self, i: usize) -> Option<u32> {
        plinth_measure::server_cpu::processes_listening_at(&self.addresses()[i..=i])
            .first()
            .copied()
    }

    /// Runs a client command against the cluster.
    pub fn plinth(&self, arguments: &[&str]) -> Output {
        plinth(&self.cluster_file(), arguments)
    }

    /// Runs statements that must succeed; returns their output.
    pub fn cli(&self, statements: &str) -> String {
        let output = self.plinth(&["cli", "--exec", statements]);
        assert!(
            output.status.success(),
            "{statements}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs statements while other tasks of this test continue.
    pub async fn say(&self, statements: impl Into<String>) -> Said {
        let (file, statements) = (self.cluster_file(), statements.into());
        plinth_runtime::offload(move || say(&file, &statements)).await
    }

    /// The part `cluster` of the status document, whether or not the database serves.
    pub async fn status(&self) -> serde_json::Value {
        let said = self.say("status json").await;
        let parsed = serde_json::from_slice(&said.0.stdout);
        let mut document: serde_json::Value =
            parsed.unwrap_or_else(|error| panic!("no JSON, {error}: {}", text(&said.0.stderr)));
        document["cluster"].take()
    }

    /// Runs statements that must fail; returns the error line.
    pub fn cli_fails(&self, statements: &str) -> String {
        let output = self.plinth(&["cli", "--exec", statements]);
        error_line(&output)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes `to` hold exactly what `from` holds.
/// The status and the body of a page at a port of this machine.
pub fn page_of(port: u16, path: &str) -> (u16, String) {
    page_for(&format!("127.0.0.1:{port}"), port, path)
}

/// The same for who asks by another name.
pub fn page_for(host: &str, port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).expect("a limit");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.expect("a status"), body.to_string())
}

pub fn copy_directory(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to); // it may not exist
    std::fs::create_dir_all(to).expect("can be made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copies");
        }
    }
}

pub fn plinth(cluster_file: &Path, arguments: &[&str]) -> Output {
    let mut command = command(cluster_file, arguments);
    command.output().expect("the binary was built")
}

/// A client command against a cluster.
pub fn command(cluster_file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env("PLINTH_CLUSTER_FILE", cluster_file)
        .stdin(Stdio::null());
    command
}

/// A server that is killed at the end of the test, even if the test fails.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// The number in an environment variable, or `otherwise` if it is not set.
pub fn number_from(variable: &str, otherwise: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number"))
    })
}

/// Knobs for small shards, so that a test with little data has shards to move.
pub const SMALL_SHARDS: [&str; 5] = [
    "shard_bytes_min=200000",
    "storage_failure_ms=3000",
    "moves_max=64",
    "moves_per_server_max=32",
    "byte_sample_unit=1000",
];

/// The output of a shell, and its exit status.
pub struct Said(Output);

pub fn say(cluster_file: &Path, statements: &str) -> Said {
    Said(plinth(cluster_file, &["cli", "--exec", statements]))
}

impl Said {
    /// The output; the shell must have succeeded.
    pub fn text(&self) -> String {
        assert!(self.0.status.success(), "{}", text(&self.0.stderr));
        text(&self.0.stdout)
    }

    /// The error line; the shell must have failed with this one line.
    pub fn line(&self) -> String {
        error_line(&self.0)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As [`error_line`], of a command that prints JSON.
pub fn json_error(output: &Output) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let object: serde_json::Value = serde_json::from_str(&stderr).expect("one object");
    object["error"].as_str().expect("a text").to_owned()
}

/// What statements say while they wait, on a line of its own before the outcome.
const WAITING: &str = "plinth: waiting for up to ";
/// What those are told first who use words of a former release.
const FORMER: &str = " now; the former words work for one release more\n";

/// Asserts that the command failed with exit code 1 and one line, and returns that line.
pub fn error_line(output: &Output) -> String {
    let stderr = text(&output.stderr);
    let lines = stderr.split_inclusive('\n');
    let is_aside = |line: &&str| line.starts_with(WAITING) || line.ends_with(FORMER);
    let stderr: String = lines.filter(|line| !is_aside(line)).collect();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("plinth: "), "{stderr}");
    stderr
}
