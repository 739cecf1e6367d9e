//! The processes of a replicated service.

use super::{BINARY, Directory, Server, free_ports, text};
use plinth_runtime::Duration;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

pub fn plinth(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.arg("delos").args(arguments);
    command.output().expect("it runs")
}

/// What operators and clients do with a service, of which they know the file.
#[derive(Clone)]
pub struct Service(pub PathBuf);

impl Service {
    pub fn run(&self, command: &str, more: &[&str]) -> Output {
        let file = self.0.display().to_string();
        let limit: &[&str] = match more.contains(&"--timeout") {
            true => &[],
            false => &["--timeout", "20"],
        };
        plinth(&[&[command, file.as_str()], limit, more].concat())
    }

    pub fn succeeds(&self, command: &str, more: &[&str]) -> String {
        let output = self.run(command, more);
        assert!(
            output.status.success(),
            "{command}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    pub fn call(&self, operation: &str, request: &Value) -> Value {
        let said = self.succeeds("call", &[operation, &request.to_string()]);
        serde_json::from_str(&said).expect("JSON")
    }

    pub fn status(&self) -> Value {
        let said = self.succeeds("status", &["--json"]);
        serde_json::from_str(&said).expect("JSON")
    }
}

pub struct Replicas {
    pub directory: Directory,
    pub service: Service,
    first_port: u16,
    pub processes: Vec<Option<Server>>,
}

impl Replicas {
    /// So many processes, without a service.
    pub fn new(name: &str, count: u16) -> Self {
        let directory = Directory::new(name);
        let mut all = Replicas {
            service: Service(directory.file("service.delos")),
            directory,
            first_port: free_ports(count),
            processes: Vec::new(),
        };
        for i in 0..count {
            let process = all.start(i);
            all.processes.push(Some(process));
        }
        all
    }

    pub fn address(&self, i: u16) -> String {
        format!("127.0.0.1:{}", self.first_port + i)
    }

    pub fn data(&self, i: u16) -> String {
        self.directory.file(&format!("r{i}")).display().to_string()
    }

    pub fn command(&self, i: u16, directory: &str) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(["delos", "server", "--listen", &self.address(i)])
            .args(["--data-dir", directory]);
        command
    }

    fn start(&self, i: u16) -> Server {
        let mut command = self.command(i, &self.data(i));
        Server(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    /// Kills a process, as `kill -9` does.
    pub fn kill(&mut self, i: u16) {
        self.processes[usize::from(i)] = None;
    }

    pub fn restart(&mut self, i: u16) {
        self.processes[usize::from(i)] = Some(self.start(i));
    }

    /// Makes a service of the first three.
    pub fn create(&self, kind: &str) -> Output {
        let file = self.service.0.display().to_string();
        let mut arguments = vec!["create", "service", "--kind", kind, "--file", &file];
        let replicas = [0, 1, 2].map(|i| format!("r{i}={}", self.address(i)));
        for replica in &replicas {
            arguments.extend(["--replica", replica]);
        }
        plinth(&arguments)
    }

    /// Returns when all serve.
    pub fn await_all(&self) {
        let begun = Instant::now();
        loop {
            let status = self.service.status();
            let replicas = status["replicas"].as_array().expect("a list");
            if replicas.iter().all(|replica| replica["serves"] == true) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
