//! Machines of the in-memory engine: real processes of this host.

use super::{BINARY, Directory, Server, free_ports, text};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// The end of the last line of a process whose lease has run out.
const LEFT: &str = "start it again, and it joins as a new member";
/// What a shell says that the cluster goes on without.
const SHELL_LEFT: &str = "it has left the cluster: ";

pub struct Machines {
    pub directory: Directory,
    first_port: u16,
    /// Each machine is a host of its own: it shares no memory with others.
    pub are_hosts: bool,
    /// They listen at all addresses of this host, and say which one is theirs.
    pub are_everywhere: bool,
    /// What follows the address behind `--listen`.
    pub ending: &'static str,
    /// Variables of all processes.
    pub variables: Vec<(&'static str, OsString)>,
    processes: Mutex<Vec<Option<Process>>>,
}

/// Of a machine, with what starts it again.
struct Process {
    server: Server,
    command: Command,
}

impl Machines {
    /// A cluster file that names the first of so many processes, none of which runs.
    pub fn new(name: &str, count: u16) -> Machines {
        Machines::with_coordinators(name, count, 1)
    }

    /// The same with the first `coordinators` of them.
    pub fn with_coordinators(name: &str, count: u16, coordinators: u16) -> Machines {
        let (directory, first_port) = (Directory::new(name), free_ports(2 * count));
        let machines = Machines {
            directory,
            first_port,
            are_hosts: false,
            are_everywhere: false,
            ending: "",
            variables: Vec::new(),
            processes: Mutex::new((0..count).map(|_| None).collect()),
        };
        let named: Vec<String> = (0..coordinators).map(|i| machines.address(i)).collect();
        let text = format!("test:{first_port}@{}\n", named.join(","));
        std::fs::write(machines.file(), text).expect("written");
        machines
    }

    pub fn file(&self) -> String {
        self.directory.file("plinth.cluster").display().to_string()
    }

    pub fn address(&self, i: u16) -> String {
        format!("127.0.0.1:{}", self.first_port + 2 * i)
    }

    /// Where a machine's memory is.
    pub fn memory(&self, i: u16) -> PathBuf {
        match self.are_hosts {
            true => self.directory.file(&format!("memory-of-host-{i}")),
            false => self.directory.file("memory"),
        }
    }

    pub fn command(&self, i: u16, more: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        let public = format!("{}{}", self.address(i), self.ending);
        let mut listen = public.clone();
        if self.are_everywhere {
            listen = listen.replace("127.0.0.1", "0.0.0.0");
        }
        command
            .envs(self.variables.iter().cloned())
            .args(["farm", "server", "--listen", &listen])
            .arg("--data-dir")
            .arg(self.directory.file(&format!("d{i}")))
            .arg("--memory-dir")
            .arg(self.memory(i))
            .args(["-C", &self.file()])
            .args(more)
            .stdin(Stdio::null());
        if self.are_everywhere {
            command.args(["--public-address", &public]);
        }
        if !more.contains(&"--old-mib") {
            command.args(["--old-mib", "8"]);
        }
        if !more.contains(&"--trace") {
            command.arg("--trace").arg(self.trace(i));
        }
        command
    }

    fn all(&self) -> MutexGuard<'_, Vec<Option<Process>>> {
        self.processes.lock().expect("no test failed with it")
    }

    fn trace(&self, i: u16) -> PathBuf {
        self.directory.file(&format!("trace-{i}.jsonl"))
    }

    pub fn start(&mut self, i: u16) {
        let command = self.command(i, &[]);
        self.start_as(i, command);
    }

    /// Starts a process by another command than usual.
    pub fn start_as(&mut self, i: u16, mut command: Command) {
        let said = std::fs::File::create(self.directory.file(&format!("said-{i}")));
        command.stderr(said.expect("can be made"));
        let server = Server(command.spawn().expect("it starts"));
        self.all()[usize::from(i)] = Some(Process { server, command });
    }

    /// Starts processes again that ended because the cluster goes on without them, as their supervisor would: a
    /// machine that is busy for half a second with other tests loses its lease.
    pub fn supervise(&self) {
        for (i, process) in (0u16..).zip(self.all().iter_mut()) {
            let Some(process) = process else { continue };
            let ended = process.server.0.try_wait().expect("it is a child");
            if ended.is_some() && self.said(i).trim_end().ends_with(LEFT) {
                process.server = Server(process.command.spawn().expect("it starts"));
            }
        }
    }

    pub fn said(&self, i: u16) -> String {
        text(&std::fs::read(self.directory.file(&format!("said-{i}"))).unwrap_or_default())
    }

    /// Waits until a process has ended with an error, and returns what it has said last.
    pub fn end_of(&mut self, i: u16) -> String {
        let begun = Instant::now();
        loop {
            let mut processes = self.all();
            let process = processes[usize::from(i)].as_mut();
            let status = process.expect("it was started").server.0.try_wait();
            drop(processes);
            if let Some(status) = status.expect("it is a child") {
                assert_eq!(status.code(), Some(1), "{}", self.said(i));
                return self.said(i).lines().last().unwrap_or_default().to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "{}", self.said(i));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a process, as `kill -9` does.
    pub fn kill(&mut self, i: u16) {
        self.all()[usize::from(i)] = None;
    }

    /// Tells a process to end, as a supervisor does, and waits until it has, with the exit code of a success.
    pub fn end(&mut self, i: u16) {
        let process = &mut self.all()[usize::from(i)];
        let mut process = process.take().expect("it was started").server;
        let pid = rustix::process::Pid::from_child(&process.0);
        let told = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        told.expect("it is ours");
        let status = process.0.wait().expect("it is a child");
        assert!(status.success(), "{status}: {}", self.said(i));
    }

    /// The memories of machines of this host, by their files.
    pub fn memories(&self) -> usize {
        let names = std::fs::read_dir(self.memory(0)).expect("it is there");
        let names = names.map(|entry| entry.expect("readable").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with("machine-") && name.ends_with(".memory"))
            .count()
    }

    /// Kills a process while others look at the machines. It is still to be taken away with [`Machines::kill`].
    pub fn send_kill(&self, i: u16) {
        let processes = self.all();
        let process = processes[usize::from(i)].as_ref();
        let pid = rustix::process::Pid::from_child(&process.expect("it was started").server.0);
        let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        killed.expect("it is ours");
    }

    pub fn run(&self, command: &str, more: &[&str]) -> Output {
        let mut asked = Command::new(BINARY);
        asked.args(["farm", command, "-C", &self.file()]).args(more);
        asked.envs(self.variables.iter().cloned());
        asked.stdin(Stdio::null()).output().expect("it runs")
    }

    pub fn create(&self) -> Output {
        let plan = ["--machines", "3", "--regions", "3", "--region-mib", "8"];
        self.run("create", &plan)
    }

    /// The same cluster, with its data on disks.
    pub fn create_durable(&self) -> Output {
        let plan = ["--machines", "3", "--regions", "3", "--region-mib", "8"];
        self.run("create", &[&plan[..], &["--durable"]].concat())
    }

    /// A shell of this cluster.
    pub fn shell(&self, more: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .envs(self.variables.iter().cloned())
            .args(["farm", "cli", "-C", &self.file()])
            .arg("--memory-dir")
            .arg(self.directory.file("memory"))
            .args(["--timeout", "30"])
            .args(more);
        command
    }

    /// A shell that is asked one statement after another.
    pub fn open_shell(&self) -> Shell {
        let said = self.shells_said();
        let said = std::fs::File::options()
            .create(true)
            .append(true)
            .open(said);
        let mut command = self.shell(&[]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(said.expect("can be made"));
        let mut process = command.spawn().expect("it starts");
        let (asked, answers) = (process.stdin.take(), process.stdout.take());
        Shell {
            process: Server(process),
            asked,
            answers: BufReader::new(answers.expect("it was asked for")),
        }
    }

    /// The file with the errors of these shells.
    pub fn shells_said(&self) -> PathBuf {
        self.directory.file("said-by-shells")
    }

    /// After a shell has ended, at `place`: it did because it lost its lease. A shell is a member, too, and one that
    /// waits half a second for other tests is removed. Starts again the processes that ended so.
    pub fn expect_lost_lease(&self, place: &str) {
        let said = std::fs::read(self.shells_said()).unwrap_or_default();
        let said = text(&said);
        let last = said.lines().last().unwrap_or("nothing");
        assert!(
            last.contains(SHELL_LEFT),
            "the shell has ended at {place} and has said: {last}\n{}",
            self.last_words()
        );
        self.supervise();
    }

    pub fn cli(&self, statements: &str) -> String {
        let mut asked = self.shell(&["--exec", statements]);
        let output = asked.stdin(Stdio::null()).output().expect("it runs");
        assert!(
            output.status.success(),
            "{statements}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    pub fn status(&self) -> Value {
        let output = self.run("status", &["--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn until(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            self.supervise();
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{status:#}\n{}",
                self.last_words()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What each process has said, and its last trace events.
    fn last_words(&self) -> String {
        let processes = self.all();
        let words = (0u16..).zip(processes.iter()).map(|(i, process)| {
            let trace = std::fs::read(self.trace(i)).unwrap_or_default();
            let trace = text(&trace);
            let from = trace.lines().count().saturating_sub(12);
            let last: Vec<&str> = trace.lines().skip(from).collect();
            let runs = process.is_some();
            format!(
                "machine {i}, runs: {runs}\n{}{}\n",
                self.said(i),
                last.join("\n")
            )
        });
        words.collect()
    }

    /// Waits until three machines serve and nothing is missing.
    pub fn whole(&self) -> Value {
        self.until(|status| {
            let machines = status["machines"].as_array().map_or(0, Vec::len);
            status["serves"] == true && status["missing"] == serde_json::json!([]) && machines == 3
        })
    }
}

/// See [`Machines::open_shell`].
pub struct Shell {
    process: Server,
    asked: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Shell {
    /// The line that answers a statement; `None` if the shell has ended, after an error.
    pub fn ask(&mut self, statement: &str) -> Option<String> {
        writeln!(self.asked.as_mut()?, "{statement}").ok()?;
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer).ok()?;
        (read > 0).then(|| answer.trim_end().to_owned())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.asked = None; // so it leaves the cluster
        let _ = self.process.0.wait();
    }
}
