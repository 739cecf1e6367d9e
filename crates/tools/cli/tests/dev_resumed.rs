//! `dev` of each system: it is resumed in its directory without a word about ports, it says what it stops, and it
//! leaves nothing behind, whoever ends it.

use crate::common::{BINARY, Directory, free_ports, page_of};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended at the end of the test, even if the test fails.
struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Runs until it is ready; what it has printed.
fn ready(words: &str, directory: &Path) -> (Dev, String) {
    let mut command = Command::new(BINARY);
    command
        .args(words.split(' '))
        .arg("--data-dir")
        .arg(directory);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut dev = Dev(command.spawn().expect("it starts"));
    let mut said = String::new();
    for line in BufReader::new(dev.0.stdout.as_mut().expect("it is piped")).lines() {
        let line = line.expect("text");
        if line == "ready" {
            return (dev, said);
        }
        said.push_str(&line);
        said.push('\n');
    }
    let mut error = String::new();
    let _ = dev
        .0
        .stderr
        .take()
        .map(|mut err| err.read_to_string(&mut error));
    panic!("{words}: {said}{error}");
}

/// Ctrl-C; what it says then.
fn interrupted(mut dev: Dev) -> String {
    kill_process(Pid::from_child(&dev.0), Signal::INT).expect("it lives");
    let mut said = String::new();
    let error = dev.0.stderr.as_mut().expect("it is piped");
    error.read_to_string(&mut said).expect("text");
    assert!(dev.0.wait().expect("it ends").success(), "{said}");
    said
}

fn has_a_page(port: u16) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let found = std::panic::catch_unwind(|| page_of(port, "/metrics").0);
        if found.is_ok_and(|code| code == 200) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    false
}

#[test]
fn dev_of_each_system_goes_on_at_the_ports_it_had_and_says_what_it_stops() {
    for (name, first, again, ports, stops) in [
        ("store", "dev", "dev", 1, "stopping 1 server process"),
        (
            "delos",
            "delos dev locks --kind lock --replicas 1",
            "delos dev locks",
            1,
            "stopping 1 replica",
        ),
        (
            "farm",
            "farm dev --durable --machines 1",
            "farm dev --durable",
            2,
            "stopping 1 machine",
        ),
    ] {
        let directory = Directory::new(&format!("dev-resumed-{name}"));
        let data = directory.file("data");
        let (port, pages) = (free_ports(ports), free_ports(1));
        let words = format!("{first} --port {port} --pages-port {pages}");
        let (dev, said) = ready(&words, &data);
        assert!(said.contains(&format!("port {port}")), "{said}");
        assert!(has_a_page(pages), "{name}");
        let said = interrupted(dev);
        assert!(said.contains(&format!("plinth: {stops}")), "{name}: {said}");

        let (dev, said) = ready(again, &data);
        assert!(said.contains(&format!("port {port}")), "{said}");
        assert!(has_a_page(pages), "{name}");
        interrupted(dev);

        let (dev, _) = ready(&format!("{again} --pages-port 0"), &data);
        interrupted(dev);
        let (dev, _) = ready(again, &data);
        let others = std::net::TcpStream::connect(("127.0.0.1", pages));
        assert!(
            others.is_err(),
            "{name} has a page although it was told to have none"
        );
        interrupted(dev);
    }
}

/// What there is in shared memory of the cluster whose file this is.
fn memories_of(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("it is there");
    let line = text
        .lines()
        .rfind(|line| line.contains('@'))
        .expect("a cluster");
    let id = line.split([':', '@']).nth(1).expect("an id").to_owned();
    let names = std::fs::read_dir("/dev/shm").expect("it is there");
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains(&id)).collect()
}

#[test]
fn a_cluster_in_memory_whose_reader_has_gone_leaves_no_memory_and_no_process() {
    let directory = Directory::new("dev-unread");
    let data = directory.file("data");
    let port = free_ports(2);
    let mut dev = Command::new(BINARY);
    dev.args([
        "farm",
        "dev",
        "--machines",
        "1",
        "--port",
        &port.to_string(),
    ]);
    dev.arg("--data-dir").arg(&data);
    dev.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut dev = Dev(dev.spawn().expect("it starts"));
    drop(dev.0.stdout.take());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = dev.0.try_wait().expect("it is ours") {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(141), "as one that a closed pipe ends");
    assert_eq!(
        memories_of(&data.join("plinth.cluster")),
        Vec::<String>::new()
    );
    let names = std::fs::read_dir(&data).expect("it is there");
    let names: Vec<String> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("farm-"))
        .collect();
    assert_eq!(names, Vec::<String>::new());
    let heard = std::net::TcpStream::connect(("127.0.0.1", port));
    assert!(heard.is_err(), "a machine lives");
}
