//! What is shown on small terminals: tables of status commands, and what `help` says in the shells.

use crate::common::farm::Machines;
use crate::common::replicas::Replicas;
use crate::common::{self, BINARY, Cluster, Directory, free_ports, text};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const COLUMNS: usize = 40;
const ROWS: usize = 12;

/// What a terminal of that size shows of a command, without colours, if these keys are typed. Long texts go to a
/// pager, which writes them to the file `paged` of the directory.
fn shown(command: &Command, directory: &Path, keys: &str) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let call = format!("stty cols {COLUMNS} rows {ROWS}; {}", words.join(" "));
    let envs = command.get_envs();
    let mut terminal = Command::new("script")
        .args(["--quiet", "--command", &call, "/dev/null"])
        .envs(envs.filter_map(|(name, value)| Some((name, value?))))
        .env("HOME", directory)
        .env("NO_COLOR", "1")
        .env("PAGER", "cat >> \"$HOME\"/paged")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut input = terminal.stdin.take().expect("it is ours");
    input.write_all(keys.as_bytes()).expect("it is read");
    let said = terminal.wait_with_output().expect("it ends");
    drop(input);
    text(&said.stdout).replace('\r', "")
}

/// Lines that are wider than the terminal, and could be broken.
fn wide(text: &str) -> Vec<&str> {
    let is_wide = |line: &&str| line.chars().count() > COLUMNS && line.trim().contains(' ');
    text.lines().filter(is_wide).collect()
}

/// The words of a text, however its lines were broken.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asks a shell for help, and gives what the pager has got, and what the shell has shown itself.
fn paged(command: &Command, directory: &Path, subjects: &[&str]) -> (String, String) {
    let keys: String = subjects.iter().map(|of| format!("help {of}\n")).collect();
    let said = shown(command, directory, &format!("{keys}exit\n"));
    let paged = std::fs::read_to_string(directory.join("paged"));
    let paged = paged.unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(wide(&paged), Vec::<&str>::new(), "{paged}");
    (paged, said)
}

#[test]
fn the_state_of_a_cluster_and_the_help_of_its_shell_fit_a_small_terminal() {
    let cluster = Cluster::start("narrow", 1, &["--engine", "memory"]);
    let file = cluster.cluster_file();
    let directory = &cluster.directory.0;
    let status = shown(&common::command(&file, &["status"]), directory, "");
    assert!(status.contains("Fault tolerance   "), "{status}");
    let (_, table) = status.split_once("Cluster:").expect(&status);
    let (table, _) = table.split_once("Processes").unwrap_or((table, ""));
    assert_eq!(wide(table), Vec::<&str>::new(), "{status}");
    let missing = common::command(&file, &["keeper", "status", "--tree", "none"]);
    let missing = shown(&missing, directory, "");
    assert!(words(&missing).contains("leases in its rows"), "{missing}");
    assert_eq!(wide(&missing), Vec::<&str>::new(), "{missing}");
    let shell = common::command(&file, &["cli"]);
    let (help, _) = paged(&shell, directory, &["", "options", "escaping", "exit"]);
    for part in ["`help STATEMENT'", "`option on NAME'", "hello\\x20world"] {
        assert!(words(&help).contains(part), "{part}: {help}");
    }
    assert!(!help.contains("quit does so, too"), "it fits: {help}");
}

#[test]
fn the_state_of_a_service_and_the_help_of_tables_fit_a_small_terminal() {
    let replicas = Replicas::new("narrow-delos", 3);
    assert!(replicas.create("lock").status.success());
    replicas.await_all();
    let mut status = Command::new(BINARY);
    status
        .args(["delos", "status", "-C"])
        .arg(&replicas.service.0);
    let status = shown(&status, &replicas.directory.0, "");
    assert!(status.contains("service service"), "{status}");
    assert_eq!(wide(&status), Vec::<&str>::new(), "{status}");

    let directory = Directory::new("narrow-table");
    let address = format!("127.0.0.1:{}", free_ports(1));
    let server = Command::new(BINARY)
        .args(["table", "server", "--listen", &address, "--data-dir"])
        .arg(directory.file("tables"))
        .spawn();
    let _server = common::Server(server.expect("the binary was built"));
    let mut tries = (0..300).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        TcpStream::connect(&address).is_ok()
    });
    assert!(tries.any(|listens| listens), "it listens");
    let mut shell = Command::new(BINARY);
    shell.args(["table", "cli", "-C", &address]);
    let (help, said) = paged(&shell, &directory.0, &["", "filters", "select"]);
    let help = help + &said;
    for part in [
        "`help STATEMENT'",
        "false if the row has null",
        "select name, born",
    ] {
        assert!(words(&help).contains(part), "{part}: {help}");
    }
}

#[test]
fn the_help_of_the_shell_in_memory_fits_a_small_terminal() {
    let mut machines = Machines::new("narrow-farm", 3);
    (0..3).for_each(|i| machines.start(i));
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create().status.success());
    machines.whole();
    let (help, _) = paged(
        &machines.shell(&[]),
        &machines.directory.0,
        &["", "escaping"],
    );
    assert!(words(&help).contains("hello\\x20world"), "{help}");
}
