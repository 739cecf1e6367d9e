//! Each deployment that a page shows goes on after the loss of any one of its machines. A machine is an address of its
//! own here.

use crate::common::{BINARY, Directory, Server, free_ports, plinth, text};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MACHINES: u8 = 3;
const PATIENCE: Duration = Duration::from_secs(90);
/// Pages and files that make a database on three machines, and what they say before the statement that does.
const PAGES: [(&str, &str); 3] = [
    ("docs/deploying.md", "plinth cli --exec '"),
    ("docs/operating.md", "plinth.cluster --exec '"),
    (
        "packaging/kubernetes/plinth.yaml",
        "plinth status || plinth cli --exec '",
    ),
];

/// The statement by which a page makes the database.
fn statement(page: &str, before: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let text = std::fs::read_to_string(path.join(page)).expect("the page is there");
    let begin = format!("{before}configure new ");
    let mut found = text.lines().filter_map(|line| line.split_once(&begin));
    let (_, rest) = found
        .next()
        .unwrap_or_else(|| panic!("{page} makes no database"));
    let words = rest.split('\'').next().expect("it ends");
    format!("configure new {words}")
}

struct Machines {
    directory: Directory,
    port: u16,
    servers: Vec<Option<Server>>,
}

impl Machines {
    fn new() -> Machines {
        let directory = Directory::new("deployment");
        let port = free_ports(1);
        let all: Vec<String> = (0..MACHINES).map(|i| address(i, port)).collect();
        let file = format!("orders:a1@{}\n", all.join(","));
        std::fs::write(directory.file("plinth.cluster"), file).expect("can be written");
        let servers = (0..MACHINES).map(|_| None).collect();
        let mut machines = Machines {
            directory,
            port,
            servers,
        };
        (0..MACHINES).for_each(|i| machines.start(i));
        machines
    }

    fn start(&mut self, i: u8) {
        let mut command = Command::new(BINARY);
        command
            .args(["server", "--listen", &address(i, self.port)])
            .arg("--data-dir")
            .arg(self.directory.file(&format!("data-{i}")))
            .arg("-C")
            .arg(self.directory.file("plinth.cluster"))
            .args(["--cache-mib", "32"])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let server = command.spawn().expect("the binary was built");
        self.servers[usize::from(i)] = Some(Server(server));
    }

    fn cli(&self, statements: &str) -> String {
        let arguments = ["cli", "--timeout", "60", "--exec", statements];
        let output = plinth(&self.directory.file("plinth.cluster"), &arguments);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{statements}: {said}");
        text(&output.stdout)
    }

    /// Waits until status says so of each server and each shard: then, and not before, the next machine may be lost.
    fn wait_until_whole(&self) {
        let begun = Instant::now();
        loop {
            let output = plinth(
                &self.directory.file("plinth.cluster"),
                &["status", "--json"],
            );
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let cluster = &status["cluster"];
            let processes = cluster["processes"]
                .as_object()
                .map_or(0, |found| found.len());
            let may_fail =
                &cluster["fault_tolerance"]["max_zone_failures_without_losing_availability"];
            if processes == usize::from(MACHINES)
                && cluster["full_replication"] == true
                && may_fail.as_i64() >= Some(1)
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{status:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn address(i: u8, port: u16) -> String {
    format!("127.0.0.{}:{port}", i + 1)
}

#[test]
fn every_deployment_of_a_page_goes_on_without_any_one_of_its_machines() {
    for (page, before) in PAGES {
        let make = statement(page, before);
        let mut machines = Machines::new();
        let made = machines.cli(&make);
        assert!(made.contains("Database created"), "{page}: {made}");
        assert!(!made.contains("stands still"), "{page}: {made}");
        machines.cli("set row 0");
        for lost in 0..MACHINES {
            machines.wait_until_whole();
            machines.servers[usize::from(lost)] = None; // by signal 9
            let value = machines.cli(&format!("get row; set row {}", lost + 1));
            assert!(value.contains(&format!("is `{lost}'")), "{page}: {value}");
            machines.start(lost);
        }
        let value = machines.cli("get row");
        assert!(
            value.contains(&format!("is `{MACHINES}'")),
            "{page}: {value}"
        );
    }
}
