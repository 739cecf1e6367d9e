//! Real processes on real sockets and disks; import and export of files.

use crate::common::{self, Cluster, Directory, Server, error_line, plinth, text};
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_stopped_cluster_is_resumed_with_what_it_had() {
    let mut cluster = Cluster::start("resume", 1, &[]);
    cluster.cli("set kept yes");
    let port = cluster.first_port.to_string();
    let running = cluster.dev_fails(&[]);
    assert!(
        running.contains("its cluster runs already; connect with"),
        "{running}"
    );
    cluster.stop();
    let other = cluster.dev_fails(&["--processes", "2", "--port", &port]);
    assert!(
        other.contains("holds a cluster of 1 server process from port"),
        "{other}"
    );
    let other = cluster.dev_fails(&["--engine", "memory"]);
    assert!(
        other.contains("holds a database that is single ssd"),
        "{other}"
    );
    cluster.resume_as_it_is();
    assert!(cluster.cli("get kept").contains("`kept' is `yes'"));
}

#[test]
fn files_go_in_and_come_out_and_are_resumed() {
    let cluster = Cluster::start("files", 1, &[]);
    let directory = Directory::new("files-io");
    let name = |file: &str| directory.file(file).to_string_lossy().into_owned();
    let (input, bad, dumped, json) = (
        name("in.tsv"),
        name("bad.tsv"),
        name("out.tsv"),
        name("out.jsonl"),
    );
    let lines: String = (0..20_000)
        .map(|i| format!("key{i:06}\tvalue \\x00 {}\n", i * 7))
        .collect();
    std::fs::write(&input, &lines).expect("writes");
    let ok = |arguments: &[&str]| {
        let output = cluster.plinth(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stderr)
    };

    // A bad line is reported, and the lines before it are loaded. After a correction the load is resumed.
    let broken = lines.replacen("key015000\t", "key015000", 1);
    std::fs::write(&bad, broken).expect("writes");
    let line = error_line(&cluster.plinth(&["load", &bad, "--batch-bytes", "10000"]));
    assert!(
        line.contains("bad.tsv:15001: ") && line.contains("--resume"),
        "{line}"
    );
    std::fs::write(&bad, &lines).expect("writes");
    ok(&["load", &bad, "--resume"]);
    ok(&["load", &input]);

    // Both formats; an existing file is not overwritten; an unfinished file is completed.
    ok(&["dump", &dumped]);
    assert_eq!(std::fs::read_to_string(&dumped).expect("written"), lines);
    assert!(error_line(&cluster.plinth(&["dump", &dumped])).contains("--resume"));
    std::fs::write(&dumped, &lines[..lines.len() / 2 + 3]).expect("writes");
    ok(&["dump", &dumped, "--resume"]);
    assert_eq!(std::fs::read_to_string(&dumped).expect("written"), lines);
    ok(&["dump", &json]);
    cluster.cli("clearrange \"\" \\xff");
    ok(&["load", &json]);
    let output = plinth(
        &cluster.cluster_file(),
        &["dump", "-", "--begin", "key000001", "--end", "key000003"],
    );
    assert_eq!(
        text(&output.stdout),
        lines
            .lines()
            .skip(1)
            .take(2)
            .map(|l| format!("{l}\n"))
            .collect::<String>()
    );

    // The last line of a key wins, whichever batch it is in.
    let twice: String = (0..5000)
        .map(|i| format!("same{}\t{i}\n", i % 10))
        .collect();
    std::fs::write(&input, twice).expect("writes");
    ok(&["load", &input, "--batch-bytes", "100"]);
    assert!(cluster.cli("get same7").contains("`same7' is `4997'"));
}

#[test]
fn a_run_is_measured_with_what_the_machine_is_worth_and_told_as_of_another() {
    let cluster = Cluster::start("benched", 1, &["--engine", "memory"]);
    let run = |more: &[&str]| {
        let common = [
            "bench", "run", "--rows", "2000", "--json", "--warmup", "0.1",
        ];
        cluster.plinth(&[&common[..], &["--duration", "2"], more].concat())
    };
    let name = |file: &str| cluster.directory.file(file).to_string_lossy().into_owned();
    let known = name("calibration");
    std::fs::write(
        &known,
        plinth_measure::calibrate::REFERENCE.to_json().to_string(),
    )
    .expect("writes");
    let with = ["--calibration", &known[..]];
    let bad = name("plinth.cluster");
    let refused = run(&["--workload", "bulk-load", "--calibration", &bad]);
    assert_eq!(refused.status.code(), Some(1));
    // Who asks for JSON gets errors as JSON.
    let said: serde_json::Value = serde_json::from_slice(&refused.stderr).expect("JSON");
    let line = said["error"].as_str().expect("a text");
    assert!(line.contains("bench calibrate --json"), "{line}");
    let mut files = Vec::new();
    // Reads use much CPU time, however slow the disk is, and however busy the machine: of less than a tick nothing
    // can be said.
    for workload in [&["bulk-load", "--keep"][..], &["point-reads"]] {
        let output = run(&[&with[..], &["--workload"], workload].concat());
        let workload = workload[0];
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = name(&format!("{workload}.json"));
        std::fs::write(&file, &output.stdout).expect("writes");
        files.push(file);
    }
    let tables = cluster.plinth(&["bench", "scale", &files[0], &files[1]]);
    let tables = text(&tables.stdout);
    assert!(tables.contains("| `bulk-load` | "), "{tables}");
    assert!(tables.contains("| 1/1.00 | "), "{tables}");
    // A table that was kept stays; one of its own is cleared; and beside other data nothing is measured unless told.
    assert!(cluster.cli("getrange bench/ bench0 1").contains("bench/"));
    cluster.cli("writemode on; clearrange bench/ bench0; set mine 1");
    let measured = ["--workload", "point-reads"];
    let refused = run(&[&with[..], &measured].concat());
    assert!(text(&refused.stderr).contains("(the first key is mine)"));
    let output = run(&[&with[..], &measured, &["--force"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left = cluster.cli("getrange a z 5");
    assert!(left.contains("mine") && !left.contains("bench/"), "{left}");
}

#[test]
fn a_run_that_is_ended_says_what_stays_and_another_one_is_refused_while_it_lasts() {
    let cluster = Cluster::start("bench-ended", 1, &["--engine", "memory"]);
    let known = cluster.directory.file("calibration").display().to_string();
    let calibration = plinth_measure::calibrate::REFERENCE.to_json().to_string();
    std::fs::write(&known, calibration).expect("writes");
    let run = |seconds: &str| {
        let all = [
            "bench",
            "run",
            "--rows",
            "2000",
            "--warmup",
            "0",
            "--workload",
            "point-reads",
            "--duration",
            seconds,
            "--calibration",
            &known,
        ];
        common::command(&cluster.cluster_file(), &all)
    };
    for signal in [Signal::TERM, Signal::INT] {
        let said = cluster.directory.file("said");
        let mut command = run("60");
        command
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&said).expect("a file"));
        let mut first = Server(command.spawn().expect("the binary was built"));
        let told = || std::fs::read_to_string(&said).expect("it is there");
        while !told().contains("measuring for") {
            assert!(
                first.0.try_wait().expect("it is ours").is_none(),
                "{}",
                told()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let second = error_line(&run("0.2").output().expect("the binary was built"));
        assert!(
            second.contains("another `plinth bench run' has its table"),
            "{second}"
        );
        kill_process(Pid::from_child(&first.0), signal).expect("it is ours");
        let status = first.0.wait().expect("it is ours");
        assert!(
            status.code().is_some_and(|code| code != 0),
            "{status}: {}",
            told()
        );
        let (_, clears) = told()
            .split_once("its table stays in the database; ")
            .map_or_else(
                || panic!("{signal:?}: {}", told()),
                |(before, after)| (before.to_owned(), after.to_owned()),
            );
        let statements = clears.split('\'').nth(1).expect("it is quoted");
        assert!(cluster.cli("getrange bench/ bench0 1").contains("bench/"));
        cluster.cli(statements);
        assert!(!cluster.cli("getrange bench/ bench0 1").contains("bench/"));
    }
    let after = run("0.2").output().expect("the binary was built");
    assert!(after.status.success(), "{}", text(&after.stderr));
}

#[test]
fn a_storage_server_is_found_again_under_another_address() {
    let mut cluster = Cluster::start("moved", 2, &[]);
    let keys: Vec<String> = (0..26)
        .map(|i| format!("{}key", (b'a' + i) as char))
        .collect();
    let sets: Vec<String> = keys.iter().map(|key| format!("set {key} kept")).collect();
    cluster.cli(&sets.join("; "));
    cluster.stop();
    // The first process is the coordinator and keeps its address; the second comes back at another.
    let mut stays = cluster.start_server(0);
    let mut moves = cluster.start_server_at(1, common::free_ports(1));
    let gets: Vec<String> = keys.iter().map(|key| format!("get {key}")).collect();
    let found = cluster.cli(&gets.join("; "));
    assert_eq!(found.matches("is `kept'").count(), keys.len(), "{found}");
    cluster.cli("set akey new; set zkey new");
    for server in [&mut stays, &mut moves] {
        server.kill().expect("it is ours");
        server.wait().expect("it ends");
    }
}

#[test]
fn a_command_gets_its_answer_from_the_next_controller_if_one_ends_meanwhile() {
    let cluster = Cluster::start("controllers", 3, &["--replication", "double"]);
    let document = text(&cluster.plinth(&["status", "--json"]).stdout);
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let leads =
        |process: &&serde_json::Value| process["roles"].to_string().contains("cluster_controller");
    let processes = document["cluster"]["processes"].as_object();
    let leader = processes.expect("processes").values().find(leads);
    let address = leader.expect("a controller leads")["address"].clone();
    let addresses = cluster.addresses().into_iter();
    let i = addresses.map(|a| a.to_string()).position(|a| address == a);
    let pid = cluster.pid(i.expect("a server")).expect("it runs");
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it is ours");
    };

    // A stopped process keeps the connection and does not answer.
    signal(rustix::process::Signal::STOP);
    let asking = common::command(&cluster.cluster_file(), &["cli", "--exec", "setclass"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary was built");
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(rustix::process::Signal::KILL);
    let answer = asking.wait_with_output().expect("it ends");
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    // The new controller lists those that have found it so far.
    let listed = text(&answer.stdout);
    let is_listed = |other: &SocketAddr| listed.contains(&other.to_string());
    assert!(cluster.addresses().iter().any(is_listed), "{listed}");
}

#[test]
fn a_storage_server_that_is_gone_is_shown_with_its_last_address() {
    let more = ["--replication", "double", "--no-restart"];
    let cluster = Cluster::start("gone-storage", 3, &more);
    cluster.cli("set a b");
    let (gone, pid) = (cluster.addresses()[2].to_string(), cluster.pid(2));
    let pid = rustix::process::Pid::from_raw(pid.expect("it runs") as i32).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
    // Until its data is elsewhere, and it is forgotten.
    let shown = |status: &str| {
        let servers = status.split("Storage servers").nth(1).unwrap_or_default();
        let mut lines = servers.lines();
        let is_there = lines.any(|line| line.contains(&gone) && line.contains("unreachable"));
        is_there && status.contains("Processes (2)")
    };
    let mut status = String::new();
    for _ in 0..100 {
        status = common::text(&cluster.plinth(&["status"]).stdout);
        if shown(&status) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{status}");
}
