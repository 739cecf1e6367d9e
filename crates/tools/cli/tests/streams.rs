//! `plinth stream`, as a user types it, on real processes.

use crate::common::{Cluster, error_line, text};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

fn said(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn start(cluster: &Cluster, arguments: &[&str]) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args(arguments)
        .arg("-C")
        .arg(cluster.cluster_file())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// What follows the position in each line.
fn contents(lines: &str) -> Vec<&str> {
    lines
        .lines()
        .map(|line| line.split_once("  ").expect("a position, and more").1)
        .collect()
}

#[test]
fn a_user_makes_streams_follows_them_and_drops_them() {
    let cluster = Cluster::start("stream-command", 1, &[]);
    let stream = |arguments: &[&str]| cluster.plinth(&[&["stream"], arguments].concat());
    said(stream(&[
        "create", "orders", "--range", "orders/", "orders0",
    ]));
    said(stream(&["create", "log", "--append", "--keep-all"]));
    cluster.cli("writemode on; set orders/1 apples; set other x; clearrange a z");
    let all = said(stream(&["tail", "orders"]));
    assert_eq!(
        contents(&all),
        ["set orders/1 apples", "clear orders/ orders0"]
    );

    // What has come is there again from any position, and for a consumer once.
    let second = all.lines().nth(1).expect("two lines");
    let from = &second[..24];
    assert_eq!(
        said(stream(&["tail", "orders", "--from", from])).trim_end(),
        second
    );
    let of_consumer = || said(stream(&["tail", "orders", "--consumer", "printer"]));
    assert_eq!(of_consumer(), all);
    assert_eq!(of_consumer(), "");

    // Lines from standard input, followed as they come.
    let mut following = start(&cluster, &["stream", "tail", "log", "-f", "--limit", "3"]);
    let mut appending = start(&cluster, &["stream", "append", "log"]);
    let mut stdin = appending.stdin.take().expect("it is piped");
    stdin.write_all(b"one\ntwo\n").expect("it listens");
    drop(stdin);
    let appended = appending.wait_with_output().expect("it ends");
    assert_eq!(said(appended), "2 appended\n");
    let mut lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().ends_with("  one") && next().ends_with("  two"));
    said(stream(&["append", "log", "three"]));
    assert!(next().ends_with("  three"));
    assert!(following.wait().expect("it ends").success());

    let listed = said(stream(&["list"]));
    assert!(
        listed.contains("log  append") && listed.contains("keeps all"),
        "{listed}"
    );
    assert!(listed.contains("consumer printer"), "{listed}");
    let json = said(stream(&["list", "--json"]));
    let all: serde_json::Value = serde_json::from_str(&json).expect("one document");
    assert_eq!(all["streams"][1]["consumers"][0]["name"], "printer");
    let status: serde_json::Value =
        serde_json::from_str(&said(cluster.plinth(&["status", "--json"]))).expect("JSON");
    assert_eq!(status["cluster"]["streams"][1]["name"], "orders");

    said(stream(&["forget", "orders", "printer"]));
    said(stream(&["drop", "orders"]));
    assert!(error_line(&stream(&["tail", "orders"])).contains("there is no such stream"));
}

#[test]
fn wrong_streams_end_in_one_line_that_says_what_to_do() {
    let cluster = Cluster::start("stream-mistakes", 1, &[]);
    let fails = |arguments: &[&str]| {
        let output = cluster.plinth(&[&["stream"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        error_line(&output)
    };
    assert!(fails(&["drop", "none"]).contains("plinth stream list"));
    assert!(fails(&["create", ""]).contains("1 to 255 bytes"));
    assert!(fails(&["create", "a", "--range", "z", "a"]).contains("BEGIN comes before END"));
    assert!(fails(&["create", "a", "--range", "\\x", "z"]).contains("broken escape"));
    said(cluster.plinth(&["stream", "create", "a"]));
    assert!(fails(&["create", "a"]).contains("choose another name"));
    assert!(fails(&["append", "a", "entry"]).contains("--append"));
    assert!(fails(&["tail", "a", "--from", "yesterday"]).contains("24 hexadecimal digits"));
    assert!(fails(&["forget", "a", "nobody"]).contains("no consumer"));
    // A stream that is a part of something.
    assert!(fails(&["drop", "keeper/none"]).contains("plinth stream list"));
    said(cluster.plinth(&["stream", "create", "keeper/mine", "--append"]));
    let line = fails(&["drop", "keeper/mine"]);
    assert!(
        line.contains("keeper's tree `mine'") && line.contains("--force"),
        "{line}"
    );
    said(cluster.plinth(&["stream", "drop", "keeper/mine", "--force"]));
    assert!(fails(&["drop", "keeper/mine"]).contains("plinth stream list"));
}
