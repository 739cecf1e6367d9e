//! Coordinators that have host names, on real processes: a name that is not resolved yet, and a server that comes back
//! at another address. Each process has a table of hosts of the test's in place of `/etc/hosts`, in a namespace of its
//! own.

use crate::common::client_programs::{command, installed, source};
use crate::common::{BINARY, Directory, Server, free_ports, text};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Puts the table of hosts in place, and becomes the program.
const WITH_HOSTS: &str = r#"mount --bind "$0" /etc/hosts && exec "$@""#;

struct Site {
    directory: Directory,
    port: u16,
}

impl Site {
    fn name(&self, server: usize) -> String {
        format!("plinth-{server}.db.test:{}", self.port)
    }

    fn names(&self) -> String {
        [0, 1, 2].map(|server| self.name(server)).join(",")
    }

    /// The hosts that have names, each at `127.0.77.N`. Written in place: all processes see the same file.
    fn resolve(&self, hosts: &[(usize, u8)]) {
        let line = |(server, at): &(usize, u8)| format!("127.0.77.{at} plinth-{server}.db.test\n");
        let text: String = hosts.iter().map(line).collect();
        let path = self.directory.file("hosts");
        std::fs::write(path, format!("127.0.0.1 localhost\n{text}")).expect("can be written");
    }

    fn program(&self, program: &Path) -> Command {
        let mut command = command("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            WITH_HOSTS,
        ]);
        command.arg(self.directory.file("hosts")).arg(program);
        command.current_dir(&self.directory.0);
        command
    }

    fn plinth(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(Path::new(BINARY));
        command.args(arguments);
        command
    }

    fn python(&self) -> Command {
        let mut command = self.program(&installed("python/bin/python"));
        command.arg(source("named_hosts.py"));
        command
    }

    fn serve(&self, server: usize, at: u8) -> Server {
        let listen = format!("127.0.77.{at}:{}", self.port);
        let (data, name) = (format!("data-{server}"), self.name(server));
        let zone = format!("z{server}");
        let said = std::fs::File::create(self.directory.file(&format!("said-{server}")));
        let mut command = self.plinth(&["server", "--listen", &listen, "--public-address", &name]);
        command.args(["--data-dir", &data, "-C", "plinth.cluster", "--zone", &zone]);
        command
            .args(["--cache-mib", "32"])
            .stderr(said.expect("can be made"));
        Server(command.spawn().expect("unshare, of util-linux, can be run"))
    }

    fn said(&self, server: usize) -> String {
        text(&std::fs::read(self.directory.file(&format!("said-{server}"))).unwrap_or_default())
    }

    fn wait_until_said(&self, server: usize, words: &str) {
        let started = Instant::now();
        while !self.said(server).contains(words) {
            assert!(
                started.elapsed() < LIMIT,
                "no {words:?}: {}",
                self.said(server)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn run(&self, statements: &str) -> Output {
        let arguments = ["cli", "--timeout", "40", "--exec", statements];
        self.plinth(&arguments)
            .output()
            .expect("unshare can be run")
    }

    fn cli(&self, statements: &str) -> String {
        let output = self.run(statements);
        assert!(
            output.status.success(),
            "{statements}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn cli_fails(&self, statements: &str) -> String {
        let output = self.run(statements);
        assert!(
            !output.status.success(),
            "{statements}: {}",
            text(&output.stdout)
        );
        text(&output.stderr)
    }
}

/// A shell that runs all the time, or a program that does the same by a binding.
struct Shell {
    shell: Child,
    to: ChildStdin,
    from: Receiver<String>,
}

impl Shell {
    fn start(mut command: Command) -> Shell {
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let (to, out) = (
            shell.stdin.take().expect("a pipe"),
            shell.stdout.take().expect("a pipe"),
        );
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Shell { shell, to, from }
    }

    /// Writes the value and reads it again.
    fn writes(&mut self, value: &str) {
        writeln!(self.to, "set key {value}\nget key").expect("the shell reads");
        let started = Instant::now();
        let wanted = format!("`key' is `{value}'");
        while let Ok(line) = self
            .from
            .recv_timeout(LIMIT.saturating_sub(started.elapsed()))
        {
            if line.contains(&wanted) {
                return;
            }
        }
        panic!("the shell did not write {value}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// What has the wrong form changes nothing.
fn refuses_coordinators(site: &Site) {
    let line = site.cli_fails("coordinators plinth-0..db:1");
    assert!(
        line.contains("plinth-0..db:1' is neither ip:port nor host:port"),
        "{line}"
    );
    let mixed = format!(
        "coordinators force {} 127.0.77.1:{}",
        site.name(2),
        site.port
    );
    let line = site.cli_fails(&mixed);
    assert!(line.contains("write all of them in one form"), "{line}");
}

#[test]
fn coordinators_have_host_names_that_follow_a_server_to_another_address() {
    let site = Site {
        directory: Directory::new("named-hosts"),
        port: free_ports(1),
    };
    let file = format!("test:test@{}\n", site.names());
    std::fs::write(site.directory.file("plinth.cluster"), file).expect("can be written");
    site.resolve(&[(0, 1), (1, 2)]);
    let first = site.serve(0, 1);
    let second = site.serve(1, 2);
    let third = site.serve(2, 3);
    // The third name does not exist yet.
    site.wait_until_said(2, &format!("the name {} is not resolved yet", site.name(2)));
    site.wait_until_said(0, "has joined the cluster");
    site.resolve(&[(0, 1), (1, 2), (2, 3)]);
    site.wait_until_said(2, "has joined the cluster");
    let said = site.cli("configure new double memory");
    assert!(said.contains("Database created"), "{said}");
    all_are_reachable_by_their_names(&site);
    refuses_coordinators(&site);
    let mut shell = Shell::start(site.plinth(&["cli", "--timeout", "40"]));
    let mut binding = Shell::start(site.python());
    shell.writes("one");
    binding.writes("one-too");

    // The third comes back where nobody was. Its name is behind for a while, and leads to the second.
    drop(third);
    site.resolve(&[(0, 1), (1, 2), (2, 2)]);
    let third = site.serve(2, 9);
    site.wait_until_said(2, "stands for 127.0.77.2, and not for 127.0.77.9");
    shell.writes("two");
    site.resolve(&[(0, 1), (1, 2), (2, 9)]);
    site.wait_until_said(2, "has joined the cluster");
    all_are_reachable_by_their_names(&site);
    // The running shell and the running first server need the third.
    drop(second);
    shell.writes("three");
    let second = site.serve(1, 2);
    shell.writes("four");
    binding.writes("four-too");

    // Others are named, by their names.
    let line = site.cli_fails(&format!("coordinators {}", site.name(2)));
    assert!(line.contains("`coordinators force …' does it"), "{line}");
    let said = site.cli(&format!("coordinators force {}", site.name(2)));
    assert!(
        said.contains(&format!("test:test_2@{}", site.name(2))),
        "{said}"
    );
    // The controller of the new coordinators gets to know all servers before it chooses among them.
    wait_for_status(&site, |document| {
        let processes = document["cluster"]["processes"].as_object();
        processes.is_some_and(|all| all.len() == 3)
    });
    let address = format!("127.0.77.9:{}", site.port);
    let said = site.cli(&format!("exclude no_wait {address}"));
    let warning = format!("a coordinator is {}, and stays one", site.name(2));
    assert!(said.contains(&warning), "{said}");
    let said = site.cli("coordinators auto");
    assert!(
        said.contains("Coordinators changed: test:test_3@plinth-"),
        "{said}"
    );
    assert!(!site.cli("coordinators").contains(&site.name(2)));
    shell.writes("five");
    binding.writes("five-too");
    drop((first, second, third));
}

fn wait_for_status(site: &Site, is_so: impl Fn(&Value) -> bool) {
    let started = Instant::now();
    loop {
        // It fails while the database is not available, and shows why.
        let said = text(&site.run("status json").stdout);
        if serde_json::from_str(&said).is_ok_and(|document| is_so(&document)) {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{said}");
    }
}

fn all_are_reachable_by_their_names(site: &Site) {
    wait_for_status(site, |document| {
        let listed = &document["client"]["coordinators"]["coordinators"];
        let listed = listed.as_array().expect("a list").iter();
        let reached = listed.filter(|one| one["reachable"] == true);
        let reached: Vec<&str> = reached.filter_map(|one| one["address"].as_str()).collect();
        reached.join(",") == site.names()
    });
}
