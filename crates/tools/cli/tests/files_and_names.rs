//! What people meet first, on real processes: addresses, configuration files, exclusions, Ctrl-C in the shell, dumps.

use crate::common::{BINARY, Cluster, Directory, Server, error_line, free_ports, text};
use plinth_coordination::ClusterFile;
use plinth_core::Error;
use plinth_runtime::real::block_on;
use plinth_runtime::sleep;
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_cluster_is_set_up_by_files_and_handled_without_accidents() {
    let cluster = Cluster::stopped("files-and-names", 2, &[]);
    write_as_windows_does(&cluster);
    everywhere_is_no_address(&cluster);
    let first = configured_by_a_file(&cluster);
    let second = Server(cluster.start_server(1));
    let said = cluster.cli("configure new single memory logs=3");
    assert!(said.contains("Database created; "), "{said}");
    assert!(said.contains("2 log servers instead of 3"), "{said}");
    known_by_the_public_address(&cluster);

    a_dump_is_of_one_snapshot_or_says_that_it_is_not(&cluster);
    ctrl_c_ends_the_statement(&cluster);
    a_coordinator_hands_over_before_it_can_be_stopped(&cluster);
    drop(first);
    assert!(cluster.cli("set a b; get a").contains("`a' is `b'"));
    drop(second);
}

fn write_as_windows_does(cluster: &Cluster) {
    let address = cluster.addresses()[0];
    let text = format!("\u{feff}# coordinators\r\ntest:test@{address}\r\n");
    std::fs::write(cluster.cluster_file(), text).expect("can be written");
}

fn server(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("server").args(arguments);
    command.current_dir(&cluster.directory.0);
    command
}

fn everywhere_is_no_address(cluster: &Cluster) {
    let listen = format!("0.0.0.0:{}", cluster.first_port);
    let arguments = ["--listen", &listen, "--data-dir", "none"];
    let refused = server(cluster, &arguments).output();
    let line = error_line(&refused.expect("the binary was built"));
    assert!(
        line.contains(&listen) && line.contains("--public-address"),
        "{line}"
    );
}

/// Starts the first server, which listens at all addresses of the machine.
fn configured_by_a_file(cluster: &Cluster) -> Server {
    let port = cluster.first_port;
    let write = |name: &str, text: String| {
        std::fs::write(cluster.directory.file(name), text).expect("can be written");
    };
    write("wrong.toml", format!("# wrong\ndata_dir = '{port}'\n"));
    let refused = server(cluster, &["--config", "wrong.toml"]).output();
    let line = error_line(&refused.expect("the binary was built"));
    assert!(line.contains("wrong.toml, line 2"), "{line}");
    assert!(line.contains("did you mean `data-dir'?"), "{line}");

    write(
        "server.toml",
        format!(
            "listen = '0.0.0.0:{port}'\npublic-address = '127.0.0.1:{port}'\ndata-dir = '{port}'\n\
            cluster-file = 'plinth.cluster'\nmachine = 'of-the-file'\nzone = 'z0'\ncache-mib = 32\n"
        ),
    );
    let mut started = server(
        cluster,
        &["--machine", "of-the-flag", "--config", "server.toml"],
    );
    Server(started.spawn().expect("the binary was built"))
}

#[test]
fn a_replica_of_delos_is_known_by_its_public_address() {
    let directory = Directory::new("public-replica");
    let port = free_ports(1);
    let (everywhere, public) = (format!("0.0.0.0:{port}"), format!("127.0.0.1:{port}"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .arg("delos")
            .args(arguments)
            .current_dir(&directory.0);
        command
    };
    let serve = ["server", "--data-dir", "r0", "--listen", &everywhere];
    let line = error_line(&run(&serve).output().expect("the binary was built"));
    assert!(line.contains("--public-address"), "{line}");
    let mut serving = run(&serve);
    serving.args(["--public-address", &public]);
    let _replica = Server(serving.spawn().expect("the binary was built"));
    let create = [
        "create",
        "locks",
        "--kind",
        "lock",
        "--replica",
        &format!("a={public}"),
    ];
    let started = Instant::now();
    loop {
        let made = run(&create).output().expect("the binary was built");
        if made.status.success() {
            break;
        }
        assert!(started.elapsed() < LIMIT, "{}", text(&made.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
    let acquire = [
        "call",
        "locks.delos",
        "acquire",
        r#"{"name":"a","owner":"me","ttl_ms":10000}"#,
    ];
    let called = run(&acquire).output().expect("the binary was built");
    assert!(called.status.success(), "{}", text(&called.stderr));
    let status = run(&["status", "locks.delos"]).output();
    let status = text(&status.expect("the binary was built").stdout);
    assert!(status.contains(&public), "{status}");
}

fn processes(cluster: &Cluster) -> Vec<Value> {
    let document = cluster.cli("status json");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let processes = document["cluster"]["processes"].as_object().expect("all");
    processes.values().cloned().collect()
}

fn known_by_the_public_address(cluster: &Cluster) {
    let address = cluster.addresses()[0].to_string();
    let processes = processes(cluster);
    let first = processes
        .iter()
        .find(|process| process["address"] == *address);
    let first = first.unwrap_or_else(|| panic!("{address} is not in {processes:#?}"));
    assert_eq!(first["locality"]["machineid"], "of-the-flag");
    assert_eq!(first["locality"]["zoneid"], "z0");
}

/// A reader that is slower than five seconds: no snapshot is read for longer.
fn a_dump_is_of_one_snapshot_or_says_that_it_is_not(cluster: &Cluster) {
    let input = cluster.directory.file("in.tsv");
    let pair = |i: usize| format!("key{i:04}\t{}\n", "v".repeat(50_000));
    let lines: String = (0..100).map(pair).collect();
    std::fs::write(&input, &lines).expect("can be written");
    let input = input.to_str().expect("a path");
    assert!(cluster.plinth(&["load", input]).status.success());

    let dumps = [&["dump"][..], &["dump", "--force"]].map(|arguments| {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .arg("-C")
            .arg(cluster.cluster_file());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut dump = command.spawn().expect("the binary was built");
        let mut first = [0];
        let stdout = dump.stdout.as_mut().expect("it is piped");
        stdout.read_exact(&mut first).expect("it has begun");
        assert_eq!(first, *b"k");
        dump
    });
    what_was_read_is_too_old(cluster);
    let [strict, forced] = dumps.map(|dump| {
        let mut output = dump.wait_with_output().expect("it ends");
        output.stdout.insert(0, b'k');
        output
    });
    let line = error_line(&strict);
    assert!(line.contains("this is only a part"), "{line}");
    assert!(line.contains("--force"), "{line}");
    let part = text(&strict.stdout);
    assert!(!part.is_empty() && part.len() < lines.len() && lines.starts_with(&part));
    let said = text(&forced.stderr);
    assert!(forced.status.success(), "{said}");
    assert!(said.contains("2 snapshots, one after another"), "{said}");
    assert_eq!(text(&forced.stdout), lines);
    cluster.cli("clearrange \"\" \\xff");
}

/// Ends when nothing can be read as it was before the call. A server forgets what is older than five seconds when it
/// writes to its engine, and only if it has heard of something later.
fn what_was_read_is_too_old(cluster: &Cluster) {
    block_on(async {
        let file = ClusterFile::load(&cluster.cluster_file()).await;
        let database = plinth_client::connect(file.expect("a cluster file"));
        let old = database.create_transaction();
        old.get_read_version().await.expect("it serves");
        let started = Instant::now();
        for number in 0.. {
            let writing = database.run(async |transaction| {
                transaction.clear("key0050a");
                Ok(())
            });
            writing.await.expect("it serves");
            match old.get(format!("key0050a{number}"), true).await {
                Err(Error::transaction_too_old) => return,
                Ok(None) => assert!(started.elapsed() < LIMIT, "it can be read for ever"),
                other => panic!("{other:?}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
}

/// Types into a shell at a terminal, as a person does.
const TYPE: &str = r#"
import os, pty, sys, threading, time
program, file, home = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(HOME=home, TERM="xterm")
    os.execv(program, [program, "cli", "-C", file])
shown, read_to = b"", 0
def show():
    global shown
    while True:
        try:
            got = os.read(terminal, 65536)
        except OSError:
            return
        if b"\x1b[6n" in got:
            os.write(terminal, b"\x1b[1;1R")  # where the cursor is
        shown += got
threading.Thread(target=show, daemon=True).start()
def wait_for(words):
    global read_to
    end = time.time() + 20
    while words not in shown[read_to:]:
        if time.time() > end:
            sys.exit("no %r in %r" % (words, shown[read_to:]))
        time.sleep(0.05)
    read_to = shown.index(words, read_to) + len(words)
def say(words):
    time.sleep(0.5)
    os.write(terminal, words + b"\r")
def interrupt():
    time.sleep(1)
    os.write(terminal, b"\x03")
wait_for(b"leaves.")
say(b"begin")
wait_for(b"started")
say(b"set typed by-hand")
say(b"sleep 600")
interrupt()
wait_for(b"ERROR: interrupted; what")
say(b"rollback")
wait_for(b"rolled back")
say(b"watch nothing")
interrupt()
wait_for(b"the value has not changed")
say(b"set typed by-hand")
wait_for(b"Committed")
say(b"exit")
for _ in range(400):
    if os.waitpid(pid, os.WNOHANG)[0]:
        sys.exit(0)
    time.sleep(0.05)
sys.exit("the shell did not end")
"#;

fn ctrl_c_ends_the_statement(cluster: &Cluster) {
    let home = cluster.directory.file("home");
    std::fs::create_dir(&home).expect("can be made");
    let history = home.join(".plinth_history");
    std::fs::write(&history, "get a\n").expect("can be written");
    let mode = |path: &Path| {
        let found = std::fs::metadata(path).expect("it is there");
        found.permissions().mode() & 0o777
    };
    let everybody = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&history, everybody).expect("it is ours");
    let mut typed = Command::new("python3");
    typed.args(["-c", TYPE, BINARY]);
    typed.arg(cluster.cluster_file()).arg(&home);
    let typed = typed.output().expect("there is python3");
    assert!(typed.status.success(), "{}", text(&typed.stderr));
    assert!(cluster.cli("get typed").contains("`typed' is `by-hand'"));
    assert_eq!(mode(&history), 0o600);
    let mut words = String::new();
    let file = std::fs::File::open(&history);
    file.expect("it is there")
        .read_to_string(&mut words)
        .expect("text");
    assert!(words.contains("sleep 600"), "{words}");
}

fn a_coordinator_hands_over_before_it_can_be_stopped(cluster: &Cluster) {
    for nobody in ["127.0.0.1:9", "127.0.0.9", "locality_zoneid:nowhere"] {
        let line = cluster.cli_fails(&format!("exclude {nobody}"));
        assert!(line.contains(nobody), "{line}");
    }
    let [first, second] = cluster.addresses()[..] else {
        panic!("there are two servers");
    };
    let warned = cluster.cli(&format!("exclude no_wait {first}"));
    assert!(warned.contains("WARNING: a coordinator is"), "{warned}");
    assert!(!warned.contains("can be stopped"), "{warned}");
    let said = cluster.cli(&format!("exclude {first}"));
    assert!(said.contains("can be stopped"), "{said}");
    assert!(
        said.contains(&format!("Coordinators changed: test:test_2@{second}")),
        "{said}"
    );
    let started = Instant::now();
    while !cluster.cli("coordinators").contains(&second.to_string()) {
        assert!(started.elapsed() < LIMIT, "{}", cluster.cli("coordinators"));
    }
}
