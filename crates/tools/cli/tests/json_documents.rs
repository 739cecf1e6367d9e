//! What programs read: each command with `--json` prints one document on standard output when it ends well, and an
//! object with `error` on standard error when it fails. docs/commands.md has the rule, and all commands.

use crate::common::farm::Machines;
use crate::common::replicas::Replicas;
use crate::common::{BINARY, Cluster, Directory, free_ports, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PAGE: &str = include_str!("../../../../docs/commands.md");

/// What a command prints when it ends well.
enum Prints {
    /// One document; it is run with these words, in this order. `@` is the directory of the test.
    One(&'static str),
    /// One document, which another test reads, or which takes too long to be measured here.
    OneElsewhere,
    /// An object a line: of each statement, each entry, or each measurement, for a file of results.
    Lines,
}
use Prints::{Lines, One, OneElsewhere};

/// Of the store and the keeper, on a cluster of one server.
const OF_STORE: [(&str, Prints); 23] = [
    ("cli", One("--exec 'set a b'")),
    ("status", One("")),
    ("top", One("")),
    ("dump", One("@/pairs.tsv")),
    ("load", One("@/pairs.tsv")),
    ("stream create", One("mail --append")),
    ("stream append", One("mail first")),
    ("stream list", One("")),
    ("stream tail", One("mail --consumer nobody --limit 1")),
    ("stream forget", One("mail nobody")),
    ("stream drop", One("mail")),
    ("keys", One("list -C @/plinth.cluster")),
    ("token new", One("--name web --out @/web.sign")),
    ("token public", One("--key @/web.sign")),
    ("token sign", One("--key @/web.sign --read app/ --for 1h")),
    ("token show", One("@/web.sign")),
    ("keeper list", One("")),
    ("keeper status", OneElsewhere),
    ("keeper drop", OneElsewhere),
    ("keeper import", OneElsewhere),
    ("keeper export", OneElsewhere),
    ("keeper trace-one", OneElsewhere),
    ("copy", OneElsewhere),
];

/// Of a service of three replicas, beside which a process waits.
const OF_DELOS: [(&str, Prints); 14] = [
    ("delos create", OneElsewhere), // it is what the others work with
    ("delos call", One("holder {\"name\":\"a\"}")),
    ("delos status", One("")),
    ("delos top", One("")),
    ("delos enable-engine", One("lease")),
    ("delos disable-engine", One("lease")),
    ("delos upgrade", One("lease")),
    ("delos reconfigure-log", One("--sequencer r1")),
    ("delos check", One("")),
    ("delos backup", One("--to @/backup")),
    ("delos trim", One("")),
    ("delos add-replica", One("r3=?")),
    ("delos remove-replica", One("r3")),
    ("delos restore", OneElsewhere),
];

const OTHERS: [(&str, Prints); 18] = [
    ("farm create", OneElsewhere),
    ("farm status", One("")),
    ("farm cli", One("--exec 'set a b'")),
    ("table cli", Lines),
    ("bench run", One("--workload list")),
    ("bench calibrate", OneElsewhere),
    ("demo", OneElsewhere),
    ("keeper bench run", One("--workload list")),
    ("delos bench", Lines),
    ("farm bench tpcc", OneElsewhere),
    ("farm bench reads", OneElsewhere),
    ("farm bench processes", OneElsewhere),
    ("farm bench ycsb", OneElsewhere),
    ("farm bench failures", OneElsewhere),
    ("farm bench promotions", OneElsewhere),
    ("farm bench compare", OneElsewhere),
    ("farm bench lengths", OneElsewhere),
    ("farm bench scans", OneElsewhere),
];

/// The commands of the page that have `--json`.
fn listed() -> BTreeSet<&'static str> {
    let commands = PAGE.split("\n### plinth ").skip(1);
    let commands = commands.filter(|part| part.contains("`--json`"));
    commands.filter_map(|part| part.lines().next()).collect()
}

#[test]
fn every_command_with_json_is_known_to_these_tests() {
    let known = OF_STORE.iter().chain(&OF_DELOS).chain(&OTHERS);
    let known: BTreeSet<&str> = known.map(|(command, _)| *command).collect();
    assert_eq!(listed(), known);
    assert!(
        PAGE.contains("`--json` prints one document"),
        "the rule is on the page"
    );
}

/// The words of a line; those in quotes are one.
fn words(line: &str, directory: &Path) -> Vec<String> {
    let directory = directory.display().to_string();
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.map(|word| word.replace('@', &directory)).collect()
}

fn run(file: &Path, command: &str, more: &[String]) -> Output {
    let mut program = Command::new(BINARY);
    program
        .args(command.split(' '))
        .args(more)
        .arg("--json")
        .env("PLINTH_CLUSTER_FILE", file)
        .stdin(Stdio::null());
    program.output().expect("it runs")
}

/// It ended well, with one document, and nothing that a program has to understand.
fn has_one_document(command: &str, output: &Output) {
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command}: {error}{out}");
    let read: Result<Value, _> = serde_json::from_str(&out);
    // The answer of a service is what the service says.
    let is_one = |read: Value| read.is_object() || command == "delos call";
    assert!(read.is_ok_and(is_one), "{command}: {out}");
    assert!(!error.contains("\"error\""), "{command}: {error}");
}

fn all_print_one_document(file: &Path, directory: &Path, commands: &[(&str, Prints)]) {
    for (command, prints) in commands {
        if let One(line) = prints {
            has_one_document(command, &run(file, command, &words(line, directory)));
        }
    }
}

#[test]
fn commands_of_the_store_print_one_document() {
    let cluster = Cluster::start("json-store", 1, &["--engine", "memory"]);
    all_print_one_document(&cluster.cluster_file(), &cluster.directory.0, &OF_STORE);
    for (lists, more) in [
        ("bench run", "--workload list"),
        ("keeper bench run", "--workload list"),
        ("delos bench", "list"),
    ] {
        let more = words(more, Path::new(""));
        has_one_document(lists, &run(&cluster.cluster_file(), lists, &more));
    }
}

#[test]
fn commands_of_a_replicated_service_print_one_document() {
    let replicas = Replicas::new("json-delos", 4);
    assert!(replicas.create("lock").status.success());
    replicas.await_all();
    let (file, directory) = (&replicas.service.0, &replicas.directory.0);
    for (command, prints) in &OF_DELOS {
        let One(line) = prints else { continue };
        let line = line.replace('?', &replicas.address(3));
        let mut more = words(&line, directory);
        more.extend(["-C".to_owned(), file.display().to_string()]);
        more.extend(["--timeout", "30"].map(str::to_owned));
        has_one_document(command, &run(file, command, &more));
    }
}

#[test]
fn commands_of_the_in_memory_engine_print_one_document() {
    let mut machines = Machines::new("json-farm", 3);
    (0..3).for_each(|i| machines.start(i));
    let created = machines.create();
    assert!(created.status.success(), "{}", text(&created.stderr));
    machines.whole();
    for (command, more) in [("status", &[][..]), ("cli", &["--exec", "set a b"])] {
        let more = [more, &["--json"]].concat();
        has_one_document(command, &machines.run(command, &more));
    }
}

/// It failed, which programs read in one place: on standard error, and of a shell where answers are. What is known all
/// the same is one document on standard output.
fn fails_as_a_program_reads(command: &str, more: &[String]) {
    let output = run(Path::new("/nowhere/plinth.cluster"), command, more);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(1),
        "{command} {more:?}: {error}{out}"
    );
    let is_shell = command == "cli" || command.ends_with(" cli");
    let (told, other) = match is_shell {
        true => (&out, &error),
        false => (&error, &out),
    };
    let said: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{command}: {told}"));
    assert!(said["error"].is_string(), "{command}: {said}");
    assert_eq!(other, "", "{command}");
}

#[test]
fn what_has_failed_is_an_object_on_standard_error_whatever_the_command_is() {
    let directory = Directory::new("json-fails");
    let nobody = format!("127.0.0.1:{}", free_ports(1));
    let fails = |command: &str| match command {
        "cli" | "farm cli" => "--exec 'get a'".to_owned(),
        "table cli" => format!("-C {nobody} --timeout 1 --exec 'select * from t'"),
        "dump" | "load" => "@/none/pairs.tsv".into(),
        "stream create" | "stream append" | "stream tail" | "stream drop" => "mail".into(),
        "stream forget" => "mail nobody".into(),
        "keys" => "list -C @/none.cluster".into(),
        "token new" => "--name web --out @/none/web.sign".into(),
        "token public" => "--key @/none.sign".into(),
        "token sign" => "--key @/none.sign --read app/ --for 1h".into(),
        "token show" => "@/none.sign".into(),
        "keeper import" => "--from-files @/none".into(),
        "keeper export" => "--to-files @/new".into(),
        "copy" => "--from @/none.cluster --to @/none.cluster".into(),
        "delos create" => {
            format!("again --kind lock --replica a={nobody} --timeout 1 --file @/again.delos")
        }
        "delos restore" => {
            format!("again --from @/none --replica a={nobody} --timeout 1 --file @/again.delos")
        }
        "delos call" => "holder -C @/none.delos".into(),
        "delos enable-engine" | "delos disable-engine" | "delos upgrade" => {
            "lease -C @/none.delos".into()
        }
        "delos add-replica" => format!("r3={nobody} -C @/none.delos"),
        "delos remove-replica" => "r3 -C @/none.delos".into(),
        "delos reconfigure-log" => "--sequencer r1 -C @/none.delos".into(),
        "delos backup" => "--to @/backup -C @/none.delos".into(),
        "delos status" | "delos top" | "delos check" | "delos trim" => "-C @/none.delos".into(),
        "bench run" => "--workload point-reads --calibration @/none".into(),
        "bench calibrate" => "--directory @/none".into(),
        "delos bench" => "quorum-append --html @/none/page.html".into(),
        "demo" => "--input @/none".into(),
        "keeper bench run" => "--server a=127.0.0.1:1 --calibration @/none".into(),
        _ => String::new(),
    };
    let farm_bench = |command: &str| command.starts_with("farm bench");
    for command in listed().into_iter().filter(|command| !farm_bench(command)) {
        fails_as_a_program_reads(command, &words(&fails(command), &directory.0));
    }
}
