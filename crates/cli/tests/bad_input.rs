//! What users and strangers get wrong: one clear line each, nothing lost, and the cluster goes on.

mod common;

use common::{BINARY, Cluster, Directory, error_line, plinth, text};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

#[test]
fn mistakes_get_one_clear_line_and_the_cluster_goes_on() {
    let cluster = Cluster::start("bad-input", 1, &["--engine", "memory"]);
    assert!(cluster.cli("set a b; get a").contains("`a' is `b'"));

    statements_that_are_wrong(&cluster);
    a_second_server_in_its_directory(&cluster);
    a_port_that_is_taken(&cluster);
    a_stranger_at_the_port(&cluster);
    a_database_that_is_there_already(&cluster);

    assert!(cluster.cli("get a").contains("`a' is `b'"));
}

fn statements_that_are_wrong(cluster: &Cluster) {
    let long_key = format!("set {} v", "k".repeat(10_001));
    let long_value = format!("set k {}", "v".repeat(100_001));
    for (statement, word) in [
        ("clearrange b a", "2005"),
        ("getrange b a", "2005"),
        ("set \\xff/mine v", "2004"),
        ("get \\xff/conf", "2004"),
        ("frobnicate", "frobnicate"),
        ("get \"a", "quote"),
        ("writemode off; set a c", "writemode"),
        ("commit", "begin"),
        (&long_key, "2102"),
        (&long_value, "2103"),
    ] {
        let line = cluster.cli_fails(statement);
        assert!(
            line.contains(word),
            "{}: {line}",
            &statement[..statement.len().min(40)]
        );
    }
}

fn a_second_server_in_its_directory(cluster: &Cluster) {
    let directory = cluster.directory.file(&cluster.first_port.to_string());
    let output = Command::new(BINARY)
        .args([
            "server",
            "--listen",
            &format!("127.0.0.1:{}", common::free_ports(1)),
        ])
        .arg("--data-dir")
        .arg(directory)
        .arg("-C")
        .arg(cluster.cluster_file())
        .output()
        .expect("the binary was built");
    assert!(error_line(&output).contains("lock"));
}

fn a_port_that_is_taken(cluster: &Cluster) {
    let directory = Directory::new("taken-port");
    let output = Command::new(BINARY)
        .args(["server", "--listen", &cluster.addresses()[0].to_string()])
        .arg("--data-dir")
        .arg(&directory.0)
        .arg("-C")
        .arg(cluster.cluster_file())
        .output()
        .expect("the binary was built");
    assert!(error_line(&output).contains("cannot listen"));
}

/// Noise of several kinds, and connections that say nothing at all.
fn a_stranger_at_the_port(cluster: &Cluster) {
    let connect = || TcpStream::connect(cluster.addresses()[0]).expect("somebody listens");
    let noise: Vec<u8> = (0..100_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 4096],
        &[0; 4096],
        &noise,
    ] {
        let mut stream = connect();
        let _ = stream.write_all(bytes); // it may be hung up on in the middle
    }
    let idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    assert!(cluster.cli("get a").contains("`a' is `b'"));
    drop(idle);
}

fn a_database_that_is_there_already(cluster: &Cluster) {
    assert!(
        cluster
            .cli_fails("configure new single ssd")
            .contains("already")
    );
}

#[test]
fn a_cluster_that_is_not_there_is_named_with_those_who_were_asked() {
    let directory = Directory::new("nobody");
    let file = directory.file("plinth.cluster");
    let port = common::free_ports(1);
    std::fs::write(&file, format!("test:test@127.0.0.1:{port}\n")).expect("writes");
    for command in [
        &["cli", "--timeout", "1", "--exec", "get a"][..],
        &["status", "--timeout", "1"],
        &["load", "-", "--timeout", "1"],
    ] {
        let line = error_line(&plinth(&file, command));
        assert!(
            line.contains(&format!("127.0.0.1:{port} (cannot be reached)")),
            "{line}"
        );
    }
    std::fs::write(&file, "no cluster file").expect("writes");
    assert!(error_line(&plinth(&file, &["status"])).contains("'@'"));
    let missing = directory.file("missing");
    assert!(error_line(&plinth(&missing, &["status"])).contains("there is none"));
}

#[test]
fn wrong_usage_exits_with_two() {
    for arguments in [
        &["dev", "--replication", "many"][..],
        &["server"],
        &["nothing"],
        &["bench", "run"],
    ] {
        let output = Command::new(BINARY)
            .args(arguments)
            .output()
            .expect("the binary was built");
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    let output = Command::new(BINARY)
        .args(["dev", "--processes", "2", "--replication", "triple"])
        .output();
    assert!(error_line(&output.expect("the binary was built")).contains("--processes 3"));
}
