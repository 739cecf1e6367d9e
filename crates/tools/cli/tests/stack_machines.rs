//! The stack machines that ship with FoundationDB's bindings, unmodified, and the one for the Rust client, run
//! random programs with known results; see `plinth_stack`.
//!
//! `PLINTH_STACK_SEEDS` sets the number of programs of each kind per machine, `PLINTH_STACK_FAULT_SEEDS` the number
//! while servers are killed; `make stack` sets both.

use crate::common::client_programs::{command, installed, run};
use crate::common::{self, Cluster, Directory};
use bytes::Bytes;
use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_coordination::ClusterFile;
use plinth_core::KeySelector;
use plinth_runtime::real::block_on;
use plinth_stack::generate::{KINDS, generate};
use plinth_stack::program::MAIN;
use plinth_stack::{Outcome, Program};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The newest API version that all testers support.
const API_VERSION: &str = "720";
const ROWS_A_TRANSACTION: usize = 500;

fn number(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number")),
        Err(_) => usual,
    }
}

/// A range of seeds; its length is the value of `variable`.
fn seeds(variable: &str, usual: u64) -> std::ops::Range<u64> {
    let first = number("PLINTH_STACK_FIRST_SEED", 1);
    first..first + number(variable, usual)
}

/// A stack machine.
enum Tester {
    Rust,
    Go(PathBuf),
    Node,
}

impl Tester {
    fn name(&self) -> &'static str {
        match self {
            Tester::Rust => "rust",
            Tester::Go(_) => "go",
            Tester::Node => "node",
        }
    }

    async fn run(&self, database: &Database, cluster_file: &Path) -> Result<(), String> {
        let mut tester = match self {
            Tester::Rust => return plinth_stack::machine::run(database.clone(), MAIN).await,
            Tester::Go(program) => command(program),
            Tester::Node => {
                let modules = installed("bindings/node/node_modules");
                let mut node = command("node");
                node.arg(modules.join("foundationdb/dist/scripts/bindingtester.js"));
                node
            }
        };
        let name = std::str::from_utf8(MAIN).expect("text");
        tester.args([name, API_VERSION]).arg(cluster_file);
        let output = tester.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "{}\n{}\n{}",
                output.status,
                common::text(&output.stdout),
                common::text(&output.stderr)
            )),
        }
    }
}

/// Compiles the Go module's stack machine.
fn go_tester(directory: &Directory) -> Tester {
    let program = directory.file("go-tester");
    let mut go = command("go");
    go.args(["build", "-o"])
        .arg(&program)
        .arg("./src/_stacktester")
        .current_dir(installed("bindings/go"));
    run(&mut go);
    Tester::Go(program)
}

async fn open(cluster: &Cluster) -> Database {
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    plinth_client::connect(file.expect("a cluster file"))
}

async fn load(database: &Database, program: &Program) {
    let rows: Vec<(&Bytes, &Bytes)> = program.instructions().iter().collect();
    let cleared = database.run(async |transaction| {
        transaction.clear_range("", "\u{7f}");
        transaction.clear_range([0x7f], [0xff]);
        Ok(())
    });
    cleared.await.expect("clears");
    for rows in rows.chunks(ROWS_A_TRANSACTION) {
        let loaded = database.run(async |transaction| {
            rows.iter()
                .for_each(|(key, value)| transaction.set(key, value));
            Ok(())
        });
        loaded.await.expect("loads");
    }
}

async fn outcome(database: &Database) -> Outcome {
    let read = database.run(async |transaction| {
        transaction.set_option(TransactionOption::Timeout(60_000))?;
        let begin = KeySelector::first_greater_or_equal("");
        let end = KeySelector::first_greater_or_equal(&b"\xff"[..]);
        let options = RangeOptions::default();
        transaction.get_range_all(begin, end, options, false).await
    });
    read.await.expect("reads").into_iter().collect()
}

async fn try_program(
    tester: &Tester,
    cluster: &Cluster,
    database: &Database,
    kind: &str,
    seed: u64,
) {
    let program = generate(kind, seed).expect("a kind of programs");
    load(database, &program).await;
    let ran = tester.run(database, &cluster.cluster_file()).await;
    let checked = match ran {
        Ok(()) => program.check(&outcome(database).await),
        Err(problem) => Err(problem),
    };
    if let Err(problem) = checked {
        panic!(
            "{} on {kind}, seed {seed}: {problem}\n  once more: \
            PLINTH_STACK_FIRST_SEED={seed} PLINTH_STACK_SEEDS=1 PLINTH_STACK_FAULT_SEEDS=1 \
            cargo test --package plinth-cli --test all stack_machines::",
            tester.name()
        );
    }
}

fn try_kinds(tester: Tester, kinds: &[&str]) {
    let name = format!("stack-{}", tester.name());
    let cluster = Cluster::start(&name, 1, &["--engine", "memory"]);
    block_on(async {
        let database = open(&cluster).await;
        for seed in seeds("PLINTH_STACK_SEEDS", 10) {
            for kind in kinds {
                try_program(&tester, &cluster, &database, kind, seed).await;
            }
        }
        if std::env::var("PLINTH_STACK_FIRST_SEED").is_err() {
            try_program(&tester, &cluster, &database, "scripted", 0).await;
        }
    });
}

/// The kinds of program that depend on a seed.
fn random_kinds() -> Vec<&'static str> {
    KINDS
        .into_iter()
        .filter(|kind| *kind != "scripted")
        .collect()
}

#[test]
fn the_rust_client_does_what_the_model_says() {
    try_kinds(Tester::Rust, &random_kinds());
}

#[test]
fn the_go_binding_does_what_the_model_says() {
    let directory = Directory::new("stack-go-build");
    try_kinds(go_tester(&directory), &random_kinds());
}

#[test]
fn the_node_binding_does_what_the_model_says() {
    try_kinds(Tester::Node, &random_kinds());
}

#[test]
fn they_do_so_while_servers_of_a_double_cluster_are_killed() {
    let directory = Directory::new("stack-faults-build");
    // Without the npm package's tester: its LOG_STACK keeps counting when a body is retried, so a failed attempt
    // loses its rows.
    let testers = [Tester::Rust, go_tester(&directory)];
    let more = ["--engine", "memory", "--replication", "double"];
    let cluster = Cluster::start("stack-faults", 4, &more);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| kill_servers(&cluster, &done));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            block_on(async {
                let database = open(&cluster).await;
                for seed in seeds("PLINTH_STACK_FAULT_SEEDS", 6) {
                    for kind in ["retries", "tuple", "concurrency"] {
                        let tester = &testers[seed as usize % testers.len()];
                        try_program(tester, &cluster, &database, kind, seed).await;
                    }
                }
            });
        }));
        done.store(true, Ordering::Release);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Kills one server every three seconds, in turn; `plinth dev` starts it again after two.
fn kill_servers(cluster: &Cluster, done: &AtomicBool) {
    let mut next = 0;
    while !done.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_secs(3));
        if let Some(pid) = cluster.pid((next % cluster.processes) as usize) {
            let pid = Pid::from_raw(pid as i32).expect("a process");
            let _ = kill_process(pid, Signal::KILL); // it may be gone already
        }
        next += 1;
    }
}
