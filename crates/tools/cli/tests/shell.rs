//! The shell on a real cluster: FoundationDB's names of statements, and its form of answers.

use crate::common::{self, Cluster, free_ports, page_of, text};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn the_shell_answers_in_the_form_that_scripts_read() {
    let cluster = Cluster::start("shell", 1, &["--engine", "memory"]);
    for (statements, answer) in [
        ("status minimal", "The database is available.\n"),
        ("createtenant t", "The tenant `t' has been created\n"),
        ("listtenants", "  1. t\n"),
        (
            "gettenant t",
            "  id: 1\n  prefix: \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\n",
        ),
        (
            "usetenant t; begin; set a b; get a; rollback; get a",
            "Using tenant `t'\nTransaction started\n`a' is `b'\nTransaction rolled back\n`a': not found\n",
        ),
        (
            "renametenant t u; tenant rename u v; gettenant v",
            concat!(
                "The tenant `t' has been renamed to `u'\nThe tenant `u' has been renamed to `v'\n",
                "  id: 1\n  prefix: \\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\n",
            ),
        ),
        (
            "tenant delete v; tenant list",
            "The tenant `v' has been deleted\nThe cluster has no tenants\n",
        ),
        ("option", "No options are on\n"),
        (
            "option on timeout 5000; option on read_system_keys; option off timeout; option",
            concat!(
                "Option changed; transactions from now on have it so\n",
                "Option changed; transactions from now on have it so\n",
                "Option changed; transactions from now on have it so\n",
                "  read_system_keys\n",
            ),
        ),
        ("waitconnected; waitopen; sleep 0.01", ""),
    ] {
        assert_eq!(cluster.cli(statements), answer, "{statements}");
    }
    let address = cluster.addresses()[0].to_string();
    assert_eq!(cluster.cli("getlocation a"), format!("  {address}\n"));
    assert!(
        cluster
            .cli("coordinators")
            .contains(&format!("Cluster coordinators (1): {address}"))
    );
    let keys = cluster.cli("option on read_system_keys; getrangekeys \\xff/ \\xff/z");
    assert!(keys.contains("\\xff/conf"), "{keys}");
}

/// The output and the error line of a shell that reads these lines.
fn reads(cluster: &Cluster, arguments: &[&str], lines: &str) -> (String, String) {
    let mut shell = common::command(&cluster.cluster_file(), arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut input = shell.stdin.take().expect("piped");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = shell.wait_with_output().expect("it ends");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_word_in_single_quotes_is_no_key() {
    let cluster = Cluster::start("single-quotes", 1, &["--engine", "memory"]);
    for statement in ["set 'x' 1", "get 'x'", "set a 'b c'"] {
        let line = cluster.cli_fails(statement);
        assert!(line.contains("text stands in double quotes"), "{line}");
    }
    let said = cluster.cli("set \"'x'\" it's; get \\x27x\\x27");
    assert!(said.contains("`'x'' is `it's'"), "{said}");
    assert!(
        cluster
            .cli("help escaping")
            .contains("single quotes are no quotes")
    );
}

/// `script` is a terminal that answers no questions, as those of programs are; lines are typed without waiting.
#[test]
fn lines_that_are_typed_ahead_of_a_terminal_are_all_carried_out() {
    let cluster = Cluster::start("typed-ahead", 1, &["--engine", "memory"]);
    let file = cluster.cluster_file().display().to_string();
    let shell = format!("'{}' cli -C '{file}'", common::BINARY);
    let mut script = std::process::Command::new("script")
        .args(["--quiet", "--command", &shell, "/dev/null"])
        .env("HOME", &cluster.directory.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let sets = |at: std::ops::Range<u8>| at.map(|i| format!("set k{i} v{i}\n")).collect::<String>();
    let mut keys = script.stdin.take().expect("it is ours");
    let lines = format!("begin\n{}commit\nsleep 2\n{}", sets(0..5), sets(5..9));
    keys.write_all(lines.as_bytes()).expect("it is read");
    std::thread::sleep(Duration::from_millis(3500)); // some come while a statement runs
    let lines = format!("{}get k0\nexit\n", sets(9..12));
    keys.write_all(lines.as_bytes()).expect("it is read");
    let said = script.wait_with_output().expect("it ends");
    let said = text(&said.stdout);
    assert!(said.contains("`k0' is `v0'"), "{said}");
    let rows = cluster.cli("getrange k l 100");
    assert_eq!(rows.matches("' is `v").count(), 12, "{rows}\n{said}");
    drop(keys);
}

#[test]
fn an_error_names_its_line_or_statement_and_is_json_if_answers_are() {
    let cluster = Cluster::start("shell-errors", 1, &["--engine", "memory"]);
    let lines = "# what follows is nonsense\nget a\n  # as said\nbogus\nget a\n";
    let (out, error) = reads(&cluster, &["cli"], lines);
    assert_eq!(out, "`a': not found\n");
    assert!(
        error.starts_with("plinth: line 4: there is no statement `bogus'"),
        "{error}"
    );
    let line = cluster.cli_fails("get a; commit; get b");
    assert!(line.starts_with("plinth: statement 2: "), "{line}");
    let (out, error) = reads(&cluster, &["cli", "--json"], "get a\nbogus\n");
    let last = out.lines().last().expect("an object");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert!(
        last["error"]
            .as_str()
            .expect("a text")
            .starts_with("line 2: "),
        "{last}"
    );
    assert_eq!(error, "");
}

#[test]
fn a_database_that_is_locked_or_not_created_is_told_apart_from_a_silent_one() {
    let cluster = Cluster::stopped("not-created", 1, &[]);
    cluster.write_cluster_file(1);
    let _server = common::Server(cluster.start_server(0));
    let asked = cluster.plinth(&["cli", "--timeout", "8", "--exec", "get a"]);
    let line = common::error_line(&asked);
    assert!(
        line.contains("has no database yet") && line.contains("configure new"),
        "{line}"
    );
    cluster.cli("configure new single memory; lock");
    let file = cluster.directory.file("pairs.tsv");
    std::fs::write(&file, "a\tb\n").expect("can be written");
    let load = ["load", &file.display().to_string(), "--timeout", "3"];
    let line = common::error_line(&cluster.plinth(&load));
    assert!(line.contains("locked"), "{line}");
    let said = cluster.server_said(0);
    for part in [
        "listens; its cluster is test:test@",
        "has joined the cluster; its controller is at",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn rows_come_out_alone_for_other_programs_and_go_in_again() {
    let cluster = Cluster::start("shell-tsv", 1, &["--engine", "memory"]);
    cluster.cli("set a\\tb \"1 2\"; set a\\\\ \\xff; createtenant \"t 1\"");
    let tsv = |statements: &str| {
        let output = cluster.plinth(&["cli", "--tsv", "--exec", statements]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let rows = "a\\x09b\t1 2\na\\\\\t\\xff\n";
    assert_eq!(tsv("getrange a").0, rows);
    assert_eq!(
        tsv("begin; get a; set b c; rollback"),
        (
            String::new(),
            "Transaction started\nTransaction rolled back\n".into()
        )
    );
    assert_eq!(tsv("listtenants").0, "t 1\t1\n");
    let (status, _) = tsv("status");
    assert!(
        status.contains("cluster.database_available\ttrue\n"),
        "{status}"
    );
    assert!(
        status.lines().all(|line| line.split('\t').count() == 2),
        "{status}"
    );
    assert!(tsv("getknob moves_max").0.starts_with("moves_max\t"));
    cluster.cli("clearrange a b");
    let (_, error) = reads(&cluster, &["load", "-"], rows);
    assert!(!error.contains("plinth:"), "{error}");
    assert_eq!(tsv("getrange a").0, rows);
}

#[test]
fn a_process_that_is_killed_by_its_address_is_started_again_by_who_started_it() {
    let cluster = Cluster::start("shell-kill", 2, &["--replication", "double"]);
    cluster.cli("set a b");
    let address = cluster.addresses()[1].to_string();
    let listed = cluster.cli("kill list");
    assert!(
        listed.contains(&format!("process        {address}")),
        "{listed}"
    );
    let nobody = cluster.cli_fails(&format!("kill {address} 127.0.0.9:1"));
    assert!(
        nobody.contains("no process") && nobody.contains("nothing has been ended"),
        "{nobody}"
    );
    let before: Vec<_> = [0, 1].map(|i| cluster.pid(i).expect("it runs")).into();
    let said = cluster.cli(&format!("kill {address}"));
    assert!(
        said.starts_with(&format!("The process at {address} ends")),
        "{said}"
    );
    let is_new = |i: usize| cluster.pid(i).is_some_and(|pid| pid != before[i]);
    while !is_new(1) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_new(0), "nobody else has ended");
    assert_eq!(cluster.cli("waitopen; get a"), "`a' is `b'\n");
    cluster.cli("kill all");
    while !(is_new(0) && is_new(1)) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cluster.cli("waitopen; get a"), "`a' is `b'\n");
}

#[test]
fn the_database_is_configured_by_a_file_like_the_one_that_its_status_has() {
    let cluster = Cluster::start("shell-file", 1, &["--engine", "memory"]);
    let status: serde_json::Value =
        serde_json::from_str(&cluster.cli("status json")).expect("JSON");
    let mut wanted = status["cluster"]["configuration"].clone();
    let file = cluster.directory.file("Configuration.json");
    let configure = format!("fileconfigure {}", file.display());
    let write = |wanted: &serde_json::Value| {
        std::fs::write(&file, wanted.to_string()).expect("can be written");
    };
    write(&wanted);
    let refused = cluster.cli_fails(&format!("set a b; {configure}"));
    assert!(refused.contains("leave it out"), "{refused}");
    assert_eq!(cluster.cli("get a"), "`a': not found\n", "nothing has run");
    let members = wanted.as_object_mut().expect("an object");
    members.retain(|name, _| name != "excluded_servers" && name != "coordinators_count");
    write(&wanted);
    assert_eq!(cluster.cli(&configure), "Configuration changed\n");
    write(&serde_json::json!({"resolvers": 2}));
    assert_eq!(cluster.cli(&configure), "Configuration changed\n");
    let status: serde_json::Value =
        serde_json::from_str(&cluster.cli("waitopen; status json")).expect("JSON");
    assert_eq!(status["cluster"]["configuration"]["resolvers"], 2);
    let none = cluster.cli_fails("fileconfigure new /nowhere/else");
    assert!(none.contains("/nowhere/else"), "{none}");
}

/// The body of an HTTP page; `None` if the status is not 200.
fn page(port: u16, path: &str) -> Option<String> {
    let (code, body) = page_of(port, path);
    (code == 200).then_some(body)
}

#[test]
fn operators_see_the_cluster_as_numbers_on_a_screen_and_compared() {
    let port = free_ports(2);
    let metrics = port.to_string();
    let more = ["--replication", "double", "--pages-port", &metrics];
    let cluster = Cluster::start("operators", 2, &more);
    cluster.cli("set a b; set c d");
    let compared = cluster.cli("consistencycheck");
    assert!(
        compared.starts_with("All replicas are the same: "),
        "{compared}"
    );
    let screen = text(&cluster.plinth(&["top", "--once"]).stdout);
    for part in ["database available", "double ssd", "PROCESS", "sequencer"] {
        assert!(screen.contains(part), "{part} in {screen}");
    }
    cluster.cli("sleep 2"); // the metrics are updated once a second
    let pages: Vec<String> = [port, port + 1]
        .into_iter()
        .map(|port| page(port, "/metrics").expect("the page"))
        .collect();
    let both = pages.concat();
    for family in [
        "plinth_storage_stored_bytes",
        "plinth_log_sync_seconds",
        "plinth_commits_answered_total",
        "plinth_rate_pressure",
        "plinth_request_seconds_bucket",
        "plinth_disk_free_bytes",
        "plinth_ready",
        "plinth_process_cpu_seconds_total",
        "plinth_transactions_committed_total",
    ] {
        assert!(
            both.contains(&format!("\n{family}{{")),
            "{family} in {both}"
        );
    }
    assert_eq!(page(port, "/else"), None);
    assert_eq!(page(port, "/health/live").as_deref(), Some("live\n"));
    let is_ready = || page(port, "/health/ready").as_deref() == Some("ready\n");
    for _ in 0..100 {
        if is_ready() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_ready());
    let version = text(&cluster.plinth(&["--version"]).stdout);
    for part in ["commit ", "protocol 706c6e74", "formats: data directory 3"] {
        assert!(version.contains(part), "{part} in {version}");
    }
}
