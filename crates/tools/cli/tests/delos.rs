//! A replicated service on real processes, without a database: three replicas and a log on their disks. A process is
//! killed, the log is exchanged under load, and what was answered stays.

use crate::common::replicas::{Replicas, Service};
use crate::common::{self, error_line, json_error, text};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn acquire(name: &str) -> Value {
    json!({ "name": name, "owner": "me", "ttl_ms": 3_600_000 })
}

/// Acquires locks until it is told to end. Their tokens.
fn load(service: &Service, prefix: &str, is_over: &AtomicBool) -> Vec<u64> {
    let mut tokens = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let name = format!("{prefix}-{}", tokens.len());
        let held = service.call("acquire", &acquire(&name));
        tokens.push(held["token"].as_u64().expect("a token"));
    }
    tokens
}

#[test]
fn a_service_of_three_processes_lives_on_when_one_is_killed_and_its_log_is_exchanged() {
    let mut replicas = Replicas::new("delos", 4);
    let service = replicas.service.clone();
    let created = replicas.create("lock");
    assert!(created.status.success(), "{}", text(&created.stderr));
    assert!(error_line(&replicas.create("lock")).contains("is there already"));
    let first = service.call("acquire", &acquire("first"));
    assert_eq!(first["token"], 1);
    let refused = json!({ "name": "first", "owner": "you", "ttl_ms": 1000 });
    let refused = service.run("call", &["acquire", &refused.to_string()]);
    assert!(error_line(&refused).contains("refused (held): \"me\" has \"first\""));

    // The first one has the log's sequencer.
    replicas.kill(0);
    let second = service.call("acquire", &acquire("second"));
    assert_eq!(second["token"], 2);
    replicas.restart(0);
    replicas.await_all();
    let holder = service.call("holder", &json!({ "name": "first" }));
    assert_eq!(
        (&holder["owner"], &holder["token"]),
        (&json!("me"), &json!(1))
    );

    let is_over = AtomicBool::new(false);
    let service = &service;
    let mut tokens = std::thread::scope(|scope| {
        let clients = ["a", "b"].map(|prefix| scope.spawn(|| load(service, prefix, &is_over)));
        for sequencer in ["r1", "r2", "r0"] {
            service.succeeds("reconfigure-log", &["--sequencer", sequencer]);
        }
        is_over.store(true, Ordering::Relaxed);
        clients
            .map(|client| client.join().expect("no request fails"))
            .concat()
    });
    tokens.sort_unstable();
    let all: Vec<u64> = (3..3 + tokens.len() as u64).collect();
    assert_eq!(tokens, all, "each lock has a token of its own");

    let added = format!("r3={}", replicas.address(3));
    service.succeeds("add-replica", &[&added]);
    service.succeeds("enable-engine", &["lease"]);
    service.call("acquire", &acquire("with a lease"));
    service.succeeds("disable-engine", &["lease"]);
    service.succeeds("upgrade", &["time"]);
    let checked = service.succeeds("check", &["--json"]);
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    assert_eq!(checked["equal"], true);
    assert_eq!(checked["replicas"].as_array().map(Vec::len), Some(4));
    service.succeeds("trim", &[]);
    // Its machine is lost for good. It had a seat among the coordinators.
    replicas.kill(0);
    service.succeeds("remove-replica", &["r0"]);
    assert_eq!(service.status()["coordinators"], json!(["r1", "r2", "r3"]));
    let holder = service.call("holder", &json!({ "name": "first" }));
    assert_eq!(holder["token"], 1);
    service.succeeds("remove-replica", &["r3"]);
    let mut removed = replicas.processes[3].take().expect("it runs");
    let ended = removed.0.wait().expect("it ends");
    assert_eq!(ended.code(), Some(1));
    let status = service.status();
    let last = status["log"]
        .as_array()
        .and_then(|log| log.last())
        .expect("a part");
    assert_eq!(last["log_servers"], json!(["r1", "r2"]));
}

#[test]
fn a_replica_goes_only_if_the_others_can_go_on() {
    let mut replicas = Replicas::new("delos-parting", 3);
    assert!(replicas.create("lock").status.success());
    replicas.await_all();
    replicas.kill(2);
    let service = replicas.service.clone();
    let refused = error_line(&service.run("remove-replica", &["r0"]));
    let says = "without r0, 1 of 2 log servers answer, and it does nothing without 2; start r2";
    assert!(refused.contains(says), "{refused}");
    let refused = error_line(&service.run("reconfigure-log", &["--servers", "r2"]));
    assert!(refused.contains("0 of 1 log servers answer"), "{refused}");
    let removed = service.succeeds("remove-replica", &["r2"]);
    assert!(removed.contains("the only coordinator is r"), "{removed}");
    let alone = service.succeeds("reconfigure-log", &["--servers", "r0"]);
    assert!(alone.contains("the only log server is r0"), "{alone}");
    service.succeeds("remove-replica", &["r1"]);
    let last = error_line(&service.run("remove-replica", &["r0"]));
    assert!(last.contains("r0 is its last replica"), "{last}");
}

#[test]
fn all_machines_are_replaced_one_after_the_other_and_a_new_replica_still_comes() {
    let mut replicas = Replicas::new("delos-replaced", 7);
    let service = replicas.service.clone();
    assert!(replicas.create("lock").status.success());
    service.call("acquire", &acquire("first"));
    let add = |replicas: &Replicas, i: u16| {
        let added = format!("r{i}={}", replicas.address(i));
        // Log servers that are gone are waited for before others are asked for a copy.
        service.succeeds("add-replica", &[&added, "--timeout", "60"]);
    };
    for lost in 0..3 {
        replicas.kill(lost);
        add(&replicas, lost + 3);
        service.succeeds("remove-replica", &[&format!("r{lost}")]);
    }
    add(&replicas, 6);
    let holder = service.call("holder", &json!({ "name": "first" }));
    assert_eq!(holder["owner"], "me");
    let checked = service.succeeds("check", &["--json"]);
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    assert_eq!(checked["equal"], true);
    assert_eq!(checked["replicas"].as_array().map(Vec::len), Some(4));
}

#[test]
fn the_status_of_a_service_without_a_majority_is_shown_and_is_a_failure() {
    let mut replicas = Replicas::new("delos-minority", 3);
    assert!(replicas.create("lock").status.success());
    replicas.await_all();
    replicas.kill(0);
    replicas.service.succeeds("status", &[]);
    replicas.kill(1);
    for (flags, error) in [
        (&[][..], error_line as fn(&Output) -> String),
        (&["--json"], json_error),
    ] {
        let shown = replicas.service.run("status", flags);
        let line = error(&shown);
        assert!(line.contains("1 of 3 coordinators answer"), "{line}");
        // The one that answers may not have heard all names yet: then it tells where they listen.
        let starts = line.split_once("start ").map_or("", |(_, whom)| whom);
        for (number, name) in [(0, "r0"), (1, "r1")] {
            let address = replicas.address(number);
            assert!(starts.contains(name) || starts.contains(&address), "{line}");
        }
        assert!(text(&shown.stdout).contains("does not answer"), "{line}");
    }
}

/// The line with which a process ends, which may have said before that it listens.
fn ends(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let mut lines = said.lines().filter(|line| !line.contains(": listens at "));
    let (line, None) = (lines.next().unwrap_or_default(), lines.next()) else {
        panic!("{said}");
    };
    assert!(line.starts_with("plinth: "), "{said}");
    line.to_owned()
}

#[test]
fn what_is_asked_wrongly_is_answered_with_one_line() {
    let mut replicas = Replicas::new("delos-wrong", 3);
    let missing = replicas.service.run("status", &[]);
    assert!(error_line(&missing).contains("service file"));
    assert!(replicas.create("lock").status.success());
    let wrong = replicas.service.run("enable-engine", &["warp"]);
    assert!(error_line(&wrong).contains("there is no engine \"warp\"; there are view_tracking"));
    let wrong = replicas.service.run("call", &["fly", "{}"]);
    assert!(error_line(&wrong).contains("there is no operation \"fly\"; there are acquire"));
    let wrong = replicas.service.run("remove-replica", &["x"]);
    assert!(error_line(&wrong).contains("has no replica \"x\"; there are r0, r1, r2"));
    assert_eq!(
        replicas
            .service
            .run("call", &["acquire", "{"])
            .status
            .code(),
        Some(2)
    );
    let taken = replicas.command(0, &replicas.data(1));
    assert!(ends(taken).contains("another process has it"));
    replicas.kill(2);
    let moved = replicas.command(1, &replicas.data(2));
    assert!(ends(moved).contains("is known at"));
    let mut other = replicas.command(2, &replicas.data(2));
    other.args(["--service", "queues"]);
    assert!(ends(other).contains("has a replica of \"service\""));
    // The local store of another replica.
    let directory = replicas.directory.0.clone();
    let store = |i: u16| directory.join(format!("r{i}"));
    let mine: Vec<PathBuf> = store_files(&store(2));
    assert!(!mine.is_empty(), "there is a local store");
    let first = store(0);
    let (own, mut wrong) = (store(2), replicas.command(2, &replicas.data(2)));
    replicas.kill(0);
    for file in &mine {
        let name = file.file_name().expect("a name");
        std::fs::copy(first.join(name), file).expect("copied");
    }
    replicas.restart(0);
    wrong.stdin(Stdio::null());
    assert!(ends(wrong).contains("is of another service or replica"));
    std::fs::write(own.join("replica"), "x").expect("written");
    let damaged = replicas.command(2, &replicas.data(2));
    assert!(ends(damaged).contains("is damaged"));
    std::fs::remove_file(own.join("replica")).expect("removed");
    let lost = replicas.command(2, &replicas.data(2));
    assert!(ends(lost).contains("has a local store, and no file `replica'"));
}

fn store_files(directory: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_store = |path: &PathBuf| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("store"))
    };
    paths
        .filter(|path| is_store(path) && path.is_file())
        .collect()
}

#[test]
fn a_service_with_keys_lets_each_in_as_far_as_its_key_leads() {
    let directory = common::Directory::new("delos-keys");
    let file = directory.file("lock.delos");
    let keys = |arguments: &[&str]| {
        let mut command = Command::new(common::BINARY);
        let made = command.arg("keys").args(arguments).arg("-C").arg(&file);
        let made = made.output().expect("it runs");
        assert!(made.status.success(), "{}", text(&made.stderr));
    };
    keys(&["new"]);
    let first = common::free_ports(3);
    let mut processes = Vec::new();
    let mut replicas = Vec::new();
    for i in 0..3 {
        let data = directory.file(&format!("r{i}"));
        std::fs::create_dir_all(&data).expect("a directory");
        std::fs::copy(directory.file("lock.keys"), data.join("service.keys")).expect("a copy");
        let listen = format!("127.0.0.1:{}", first + i);
        let mut command = Command::new(common::BINARY);
        command.args(["delos", "server", "--listen", &listen, "--data-dir"]);
        let process = command.arg(&data).stderr(Stdio::null()).spawn();
        processes.push(common::Server(process.expect("it runs")));
        replicas.extend(["--replica".to_owned(), format!("r{i}={listen}")]);
    }
    let file_text = file.to_str().expect("text");
    let create = |file: &str| {
        let mut arguments = vec!["create", "locks", "--kind", "lock", "--file", file];
        arguments.extend(replicas.iter().map(String::as_str));
        arguments.extend(["--timeout", "20"]);
        common::replicas::plinth(&arguments)
    };
    // Nobody makes a service of these processes without their key.
    let other = directory.file("other.delos");
    assert!(!create(other.to_str().expect("text")).status.success());
    let created = create(file_text);
    assert!(created.status.success(), "{}", text(&created.stderr));

    let elsewhere = |name: &str| {
        let place = directory.file(name);
        std::fs::create_dir_all(&place).expect("a directory");
        std::fs::copy(&file, place.join("lock.delos")).expect("a copy");
        Service(place.join("lock.delos"))
    };
    let own = Service(file.clone());
    assert_eq!(own.call("acquire", &acquire("first"))["token"], 1);
    let client = elsewhere("client");
    let out = client.0.with_file_name("lock.keys");
    keys(&[
        "derive",
        "--for",
        "client",
        "--out",
        out.to_str().expect("text"),
    ]);
    assert_eq!(client.call("acquire", &acquire("second"))["token"], 2);
    let run = |of: &Service, arguments: &[&str]| {
        let of = of.0.to_str().expect("text");
        let all = [&arguments[..1], &[of, "--timeout", "5"], &arguments[1..]].concat();
        error_line(&common::replicas::plinth(&all))
    };
    let line = run(&client, &["reconfigure-log", "--sequencer", "r1"]);
    assert!(line.contains("key"), "{line}");
    let stranger = elsewhere("stranger");
    let request = acquire("third").to_string();
    let line = run(&stranger, &["call", "acquire", &request]);
    assert!(line.contains("needs a key"), "{line}");
    assert_eq!(own.call("acquire", &acquire("fourth"))["token"], 3);
    drop(processes);
}

/// `plinth delos dev` with a service of locks on one replica, in the directory.
fn dev(directory: &common::Directory, port: &str) -> (common::Server, Service) {
    let what = ["--kind", "lock", "--replicas", "1", "--port", port];
    dev_with(directory, &what)
}

fn dev_with(directory: &common::Directory, more: &[&str]) -> (common::Server, Service) {
    let mut command = Command::new(common::BINARY);
    command.args(["delos", "dev", "locks"]).args(more);
    command.arg("--data-dir").arg(&directory.0);
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let process = common::Server(process.expect("it runs"));
    let own = Service(directory.file("locks.delos"));
    let begun = std::time::Instant::now();
    while !own.0.exists() {
        assert!(begun.elapsed().as_secs() < 60, "it makes the service");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    (process, own)
}

#[test]
fn a_service_of_one_machine_is_used_without_a_key_and_changed_with_one() {
    let directory = common::Directory::new("delos-dev-keys");
    let (process, own) = dev(&directory, &common::free_ports(1).to_string());
    assert_eq!(own.call("acquire", &acquire("first"))["token"], 1);
    let mode = |name: &str| {
        let found = std::fs::metadata(directory.file(name)).expect("made");
        std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777
    };
    assert_eq!(mode("locks.keys"), 0o600);
    assert_eq!(mode("locks-1/service.keys"), 0o600);

    let place = directory.file("elsewhere");
    std::fs::create_dir_all(&place).expect("a directory");
    std::fs::copy(&own.0, place.join("locks.delos")).expect("a copy");
    let stranger = Service(place.join("locks.delos"));
    assert_eq!(stranger.call("acquire", &acquire("second"))["token"], 2);
    let refused = stranger.run("disable-engine", &["batching"]);
    assert!(error_line(&refused).contains("needs a key"));
    own.succeeds("disable-engine", &["batching"]);

    // All replicas follow the one file.
    let mut close = Command::new(common::BINARY);
    let closed = close.args(["keys", "close", "-C"]).arg(&own.0).output();
    assert!(closed.expect("it runs").status.success());
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let request = acquire("third").to_string();
    let refused = stranger.run("call", &["acquire", &request]);
    assert!(error_line(&refused).contains("needs a key"));
    assert_eq!(own.call("acquire", &acquire("third"))["token"], 3);
    drop(process);
}

#[test]
fn a_service_goes_on_by_its_name_with_its_own_kind_and_tables_refuse_one_of_locks() {
    let directory = common::Directory::new("delos-dev-kind");
    let first = common::free_ports(2);
    let port = first.to_string();
    let (process, own) = dev(&directory, &port);
    assert_eq!(own.call("acquire", &acquire("first"))["token"], 1);
    let refused = |command: &mut Command| error_line(&command.output().expect("it runs"));
    let mut gateway = Command::new(common::BINARY);
    gateway.args(["table", "server", "--listen"]);
    gateway.arg(format!("127.0.0.1:{}", first + 1));
    let line = refused(gateway.arg("-C").arg(&own.0));
    assert!(line.contains("locks is of kind lock"), "{line}");
    assert!(line.contains("of kind table"), "{line}");
    let mut create = Command::new(common::BINARY);
    create.args([
        "delos",
        "create",
        "more",
        "--kind",
        "lock",
        "--timeout",
        "1",
    ]);
    let nobody = format!("127.0.0.1:{}", first + 1);
    let line = refused(create.args(["--replica", &format!("a={nobody}")]));
    assert!(
        line.contains(&format!("no process answers at {nobody} ")),
        "{line}"
    );
    drop(process);
    let mut other = Command::new(common::BINARY);
    other.args([
        "delos",
        "dev",
        "locks",
        "--kind",
        "queue",
        "--replicas",
        "1",
    ]);
    let line = refused(
        other
            .args(["--port", &port, "--data-dir"])
            .arg(&directory.0),
    );
    assert!(
        line.contains("of kind lock: resume it with --kind lock"),
        "{line}"
    );
    // Its directory says the rest.
    let (process, own) = dev_with(&directory, &[]);
    let held = own.call("acquire", &acquire("second"));
    assert_eq!(held["token"], 2, "{held}");
    drop(process);
}
