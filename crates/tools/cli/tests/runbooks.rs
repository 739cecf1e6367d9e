//! Each runbook of `docs/operating.md` and `docs/deploying.md` is followed by its own commands, as an operator does at
//! 3 a.m., and a machine is killed in the middle of it: another one than the one that is worked on, and that one, too.

mod configuration;
mod disks;
mod machines_come_and_go;
mod page;
mod who_coordinates;

use crate::common::machines::Machines;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output, Stdio};

/// Who follows each runbook: a module here, or another suite, whose faults need what no machine of these has.
const FOLLOWED: [(&str, &str); 14] = [
    ("Drain a server", "runbooks/machines_come_and_go.rs"),
    ("Restart or upgrade", "runbooks/machines_come_and_go.rs"),
    ("Maintenance", "runbooks/machines_come_and_go.rs"),
    ("Add servers", "runbooks/machines_come_and_go.rs"),
    ("A server is gone", "runbooks/machines_come_and_go.rs"),
    ("After a power failure", "runbooks/machines_come_and_go.rs"),
    ("Move the coordinators", "runbooks/who_coordinates.rs"),
    ("Lost coordinators", "runbooks/who_coordinates.rs"),
    ("Two databases of one cluster", "runbooks/disks.rs"),
    ("A full disk", "runbooks/disks.rs"),
    ("A sick disk", "runbooks/machines_come_and_go.rs"),
    ("A server that lags", "lagging.rs"),
    ("An older copy", "runbooks/disks.rs"),
    ("Damaged files", "runbooks/disks.rs"),
];

/// A statement that waits. Machines fail meanwhile.
struct Waiting {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    heard: String,
}

impl Waiting {
    fn begin(machines: &Machines, statement: &str) -> Waiting {
        let mut command = machines.cli_command(statement);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built");
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        Waiting {
            child,
            said,
            heard: String::new(),
        }
    }

    /// Waits until the statement says this, or has ended. Returns the line.
    fn hear(&mut self, words: &str) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).expect("it can be read") > 0 {
            self.heard += &line;
            if line.contains(words) {
                return line;
            }
            line.clear();
        }
        String::new()
    }

    /// What it has answered in the end; it must have succeeded.
    fn answer(mut self) -> String {
        self.said
            .read_to_string(&mut self.heard)
            .expect("it can be read");
        let Output { status, stdout, .. } = self.child.wait_with_output().expect("it is ours");
        assert!(status.success(), "{}", self.heard);
        String::from_utf8_lossy(&stdout).into_owned()
    }
}

#[test]
fn somebody_follows_each_runbook() {
    let followed: Vec<&str> = FOLLOWED.iter().map(|(heading, _)| *heading).collect();
    assert_eq!(page::headings(), followed);
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for (heading, file) in FOLLOWED {
        let text = std::fs::read_to_string(tests.join(file)).expect("it is there");
        let is_named = !file.starts_with("runbooks") || text.contains(&format!("\"{heading}\""));
        assert!(is_named, "{file} does not read {heading}");
    }
}
