//! Full disks: a server's data directory is a small file system in memory.
//!
//! Acknowledged data must be readable while the disk is full, and present when there is room again. A client that
//! writes gets an error or waits. The server process continues, and no restart is needed.

use crate::common::small_disk::SmallDisk;
use crate::common::{self, BINARY, Directory, error_line, plinth, text};
use plinth_client::{Database, DatabaseOption};
use plinth_coordination::ClusterFile;
use plinth_core::{Error, Result};
use plinth_runtime::{Duration, now, real, sleep};
use std::path::PathBuf;
use std::process::{Child, Command, Output};

const SMALL_MIB: u32 = 64;
const LARGE_MIB: u32 = 400;
const VALUE_BYTES: usize = 50_000;
const ROWS_A_TRANSACTION: usize = 4;
/// A commit that takes longer than this counts as waiting.
const COMMIT_LIMIT: Duration = Duration::from_secs(3);
/// Limit of the wait for the first commit after there is room again.
const RESUME_LIMIT: Duration = Duration::from_secs(20);

/// Servers of one cluster; the directory of the last one is the small disk.
struct Servers {
    directory: Directory,
    first_port: u16,
    small: SmallDisk,
    class: &'static str,
    children: Vec<Child>,
}

impl Servers {
    fn start(name: &str, count: u16, class: &'static str) -> Self {
        let directory = Directory::new(name);
        let first_port = common::free_ports(count);
        let ports = first_port..first_port + count;
        let addresses: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        std::fs::write(
            directory.file("plinth.cluster"),
            format!("test:{name}@{}\n", addresses.join(",")).replace('-', "_"),
        )
        .expect("writes");
        let small = SmallDisk::mount(&directory.file(&(count - 1).to_string()), SMALL_MIB);
        let mut servers = Servers {
            directory,
            first_port,
            small,
            class,
            children: Vec::new(),
        };
        for i in 0..count {
            let child = servers.spawn(i, i + 1 == count);
            servers.children.push(child);
        }
        servers
    }

    /// Waits until the controller lists all servers.
    fn wait_until_joined(&self) {
        let start = now();
        loop {
            let status = text(&self.plinth(&["status", "--json"]).stdout);
            let joined = status.matches("\"class_type\"").count();
            if joined == self.children.len() {
                return;
            }
            assert!(
                start.elapsed() < RESUME_LIMIT,
                "{joined} servers have joined"
            );
        }
    }

    fn spawn(&self, i: u16, is_small: bool) -> Child {
        let mut command = if is_small {
            let mut command = self.small.command(BINARY);
            command.args(["server", "--class", self.class]);
            command
        } else {
            let mut command = Command::new(BINARY);
            command.arg("server");
            command
        };
        command
            .args(["--listen", &format!("127.0.0.1:{}", self.first_port + i)])
            .arg("--data-dir")
            .arg(self.directory.file(&i.to_string()))
            .arg("-C")
            .arg(self.cluster_file())
            .args(["--zone", &format!("z{i}"), "--cache-mib", "16"])
            .arg("--trace")
            .arg(self.directory.file(&format!("{i}.trace.jsonl")))
            .spawn()
            .expect("the binary was built")
    }

    fn cluster_file(&self) -> PathBuf {
        self.directory.file("plinth.cluster")
    }

    fn configure(&self, configuration: &str) {
        self.wait_until_joined();
        let output = self.plinth(&["cli", "--exec", &format!("configure new {configuration}")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    fn plinth(&self, arguments: &[&str]) -> Output {
        plinth(&self.cluster_file(), arguments)
    }

    fn assert_alive(&mut self) {
        for (i, child) in self.children.iter_mut().enumerate() {
            let ended = child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "server {i} ended: {ended:?}");
        }
    }

    /// Kills the server on the small disk and starts it again.
    fn kill_and_restart_last(&mut self) {
        let last = self.children.len() - 1;
        self.children[last].kill().expect("it is ours");
        self.children[last].wait().expect("it is ours");
        self.children[last] = self.spawn(last as u16, true);
    }

    async fn database(&self) -> Database {
        let file = ClusterFile::load(&self.cluster_file()).await;
        let database = plinth_client::connect(file.expect("a cluster file"));
        let limit = DatabaseOption::TransactionTimeout(COMMIT_LIMIT.as_millis() as i64);
        database.set_option(limit).expect("a valid time-out");
        database
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Keys spread over the whole key space, so that every shard has some.
fn key(i: usize) -> Vec<u8> {
    let mut key = vec![(i * 101 % 250 + 1) as u8];
    key.extend_from_slice(format!("row/{i:06}").as_bytes());
    key
}

fn value(i: usize) -> Vec<u8> {
    (0..VALUE_BYTES)
        .map(|at| (i * 31 + at * at) as u8)
        .collect()
}

async fn write(database: &Database, rows: std::ops::Range<usize>) -> Result<()> {
    let rows = &rows;
    database
        .run(async |t| {
            rows.clone().for_each(|i| t.set(key(i), value(i)));
            Ok(())
        })
        .await
}

/// Writes rows from `from` on until a commit fails or `rows_max` is reached. Returns the number of acknowledged rows
/// and the error.
async fn write_until_it_fails(
    database: &Database,
    from: usize,
    rows_max: usize,
) -> (usize, Option<Error>) {
    let mut acknowledged = from;
    while acknowledged < rows_max {
        if let Err(error) = write(database, acknowledged..acknowledged + ROWS_A_TRANSACTION).await {
            return (acknowledged, Some(error));
        }
        acknowledged += ROWS_A_TRANSACTION;
    }
    (acknowledged, None)
}

/// Asserts that every acknowledged row is present.
async fn check_rows(database: &Database, acknowledged: usize) {
    let rows: Vec<usize> = (0..acknowledged).collect();
    for some in rows.chunks(50) {
        let read = database.run(async |t| {
            let gets = some.iter().map(|i| t.get(key(*i), false));
            plinth_runtime::join_all(gets)
                .await
                .into_iter()
                .collect::<Result<Vec<_>>>()
        });
        let values = read.await.expect("acknowledged rows can be read");
        for (i, found) in some.iter().zip(values) {
            let is_right = found.is_some_and(|found| found[..] == value(*i));
            assert!(is_right, "row {i} of {acknowledged}");
        }
    }
}

async fn wait_for_a_commit(database: &Database, row: usize) -> Duration {
    let start = now();
    while let Err(error) = write(database, row..row + 1).await {
        assert!(
            start.elapsed() < RESUME_LIMIT,
            "no commit in {RESUME_LIMIT:?}: {error}"
        );
        sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

async fn the_only_server_runs_out_of_room(name: &str, engine: &str) {
    let mut servers = Servers::start(name, 1, "unset");
    servers.configure(&format!("single {engine}"));
    let database = servers.database().await;
    let (rows, error) = write_until_it_fails(&database, 0, 100_000).await;
    let error = error.expect("the disk is full at last");
    eprintln!(
        "{rows} rows, {} bytes free, then: {error}",
        servers.small.free_bytes()
    );
    assert_eq!(error, Error::transaction_timed_out, "who writes, waits");
    servers.assert_alive();

    check_rows(&database, rows).await;
    who_asks_is_told(&servers);

    // A server that is started on the full disk waits as well.
    servers.kill_and_restart_last();
    sleep(Duration::from_secs(4)).await;
    servers.assert_alive();

    servers.small.remount(&format!("size={LARGE_MIB}m"));
    let waited = wait_for_a_commit(&database, rows).await;
    eprintln!("{waited:?} from room to the first commit");
    check_rows(&database, rows + 1).await;
    let (rows, error) = write_until_it_fails(&database, rows + 1, rows + 201).await;
    assert_eq!(error, None);
    servers.assert_alive();
    servers.kill_and_restart_last();
    wait_for_a_commit(&database, rows).await;
    check_rows(&database, rows + 1).await;
}

fn who_asks_is_told(servers: &Servers) {
    let status = servers.plinth(&["status"]);
    let line = error_line(&status);
    assert!(line.contains("the disk is full at 127.0.0.1:"), "{line}");
    let status = text(&status.stdout);
    assert!(
        status.contains("available, and with a full disk at 127.0.0.1:"),
        "{status}"
    );
    assert!(status.contains("disk full"), "{status}");
    let input = servers.directory.file("in.tsv");
    std::fs::write(&input, "a\tb\n").expect("writes");
    let input = input.to_string_lossy();
    for command in [
        &["cli", "--timeout", "2", "--exec", "set a b"][..],
        &["load", &input, "--timeout", "2"],
    ] {
        let line = error_line(&servers.plinth(command));
        assert!(line.contains("disk is full"), "{line}");
    }
}

#[test]
fn a_full_disk_of_an_ssd_server_loses_nothing_and_is_waited_out() {
    real::block_on(the_only_server_runs_out_of_room("full-ssd", "ssd"));
}

#[test]
fn a_full_disk_of_a_memory_server_loses_nothing_and_is_waited_out() {
    real::block_on(the_only_server_runs_out_of_room("full-memory", "memory"));
}

/// One line with the path and a remedy, and nothing else.
fn assert_line(output: &Output, directory: &std::path::Path, words: &str) {
    let line = error_line(output);
    let directory = directory.display().to_string();
    assert!(line.contains(&directory) && line.contains(words), "{line}");
    assert!(line.contains("choose another with --data-dir"), "{line}");
}

#[test]
fn a_server_that_starts_on_a_full_disk_says_so_in_one_line() {
    let directory = Directory::new("full-start");
    let (disk, port) = (directory.file("disk"), common::free_ports(2));
    let small = SmallDisk::mount(&disk, 16);
    let file = directory.file("plinth.cluster");
    std::fs::write(&file, format!("test:full@127.0.0.1:{port}\n")).expect("writes");
    let server_at = |port: u16, data: &std::path::Path| {
        let mut command = small.command(BINARY);
        command.args(["server", "--listen", &format!("127.0.0.1:{port}"), "-C"]);
        command.arg(&file).arg("--data-dir").arg(data);
        command
    };
    let server = |data: &std::path::Path| server_at(port, data);
    let fill = || {
        let script = "cat /dev/zero > \"$0/fill\"; true";
        let filled = small.command("sh").args(["-c", script]).arg(&disk).status();
        assert!(filled.expect("it runs").success());
    };
    let started = |data: &std::path::Path| {
        let said = directory.file("said");
        let stderr = std::fs::File::create(&said).expect("can be made");
        let child = server(data).stderr(stderr).spawn();
        (common::Server(child.expect("it was built")), said)
    };
    let wait_for = |said: &std::path::Path, words: &str| {
        let mut text = String::new();
        for _ in 0..400 {
            text = std::fs::read_to_string(said).expect("it can be read");
            if text.contains(words) {
                return text;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{words}: {text}");
    };

    // One that has been here before waits for room, and says so.
    let used = disk.join("used");
    let (first, said) = started(&used);
    wait_for(&said, "listens");
    drop(first);
    fill();
    let (again, said) = started(&used);
    let text = wait_for(&said, "is full");
    let line = text
        .lines()
        .find(|line| line.contains("is full"))
        .expect("it is there");
    for words in [&used.display().to_string()[..], "make room there", "waits"] {
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(text.matches("is full").count(), 1, "{text}");
    // One that is new here ends, whatever keeps it from writing.
    let new = disk.join("new");
    assert_line(
        &server_at(port + 1, &new).output().expect("it was built"),
        &new,
        "make room there",
    );
    drop(again); // it has files open there
    small.remount("ro");
    assert_line(
        &server(&new).output().expect("it was built"),
        &new,
        "read-only",
    );
}

/// Starts three servers, the last one with the small disk, and writes more than fits on it.
async fn fill_one_of_three(
    name: &str,
    class: &'static str,
) -> (Servers, Database, usize, Option<Error>) {
    let servers = Servers::start(name, 3, class);
    servers.configure("double ssd logs=2");
    let database = servers.database().await;
    let rows_max = 3 * ((SMALL_MIB as usize) << 20) / VALUE_BYTES;
    let (rows, error) = write_until_it_fails(&database, 0, rows_max).await;
    let free = servers.small.free_bytes();
    eprintln!("{rows} rows, {free} bytes free on the small disk: {error:?}");
    (servers, database, rows, error)
}

/// The log keeps the data that the full server cannot store, and the other replica answers reads.
async fn a_storage_server_is_full() {
    let (mut servers, database, rows, error) = fill_one_of_three("full-storage", "storage").await;
    assert_eq!(error, None, "the others do not wait");
    check_rows(&database, rows).await;
    let told = || text(&servers.plinth(&["status"]).stdout).contains("disk full");
    let start = now();
    wait_for_a_commit(&database, rows).await;
    while !told() {
        assert!(start.elapsed() < RESUME_LIMIT, "status says nothing");
        wait_for_a_commit(&database, rows).await;
    }
    servers.assert_alive();
    servers.small.remount(&format!("size={LARGE_MIB}m"));
    let start = now();
    while text(&servers.plinth(&["status"]).stdout).contains("disk full") {
        assert!(start.elapsed() < RESUME_LIMIT, "it does not go on");
        sleep(Duration::from_millis(200)).await;
    }
    wait_for_a_commit(&database, rows + 1).await;
    check_rows(&database, rows + 2).await;
    servers.assert_alive();
}

/// Every commit needs every log server, so commits wait until another server has replaced the full one.
async fn a_log_server_is_full() {
    let (mut servers, database, rows, error) = fill_one_of_three("full-log", "log").await;
    assert_eq!(error, None, "another takes its place");
    check_rows(&database, rows).await;
    servers.assert_alive();

    servers.small.remount(&format!("size={LARGE_MIB}m"));
    wait_for_a_commit(&database, rows).await;
    servers.kill_and_restart_last();
    check_rows(&database, rows + 1).await;
    wait_for_a_commit(&database, rows + 1).await;
    servers.assert_alive();
}

#[test]
fn a_full_disk_of_one_storage_server_of_three_is_nothing_to_the_others() {
    real::block_on(a_storage_server_is_full());
}

#[test]
fn a_full_disk_of_one_log_server_of_three_is_left_to_the_others() {
    real::block_on(a_log_server_is_full());
}
