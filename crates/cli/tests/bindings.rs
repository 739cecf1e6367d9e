//! FoundationDB's bindings, unmodified, on our `libfdb_c.so`, and a C program: each runs a tour of the whole API against a
//! cluster of real processes, one of which is killed on the way.
//!
//! `make bindings` installs what they need, beside the build; `make test` does so first.

#![allow(clippy::disallowed_types)] // processes outside of the runtime

mod common;

use common::{BINARY, Cluster, Directory, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the build puts `libfdb_c.so` and this binary.
fn build_directory() -> &'static Path {
    Path::new(BINARY).parent().expect("it lies in a directory")
}

fn installed(path: &str) -> PathBuf {
    let path = build_directory().join("..").join(path);
    assert!(
        path.exists(),
        "{} is missing; `make bindings` installs it",
        path.display()
    );
    path
}

/// Runs a tour: it says `ready`, a server is killed, it is told to go on, and says `done`.
fn run_tour(name: &str, mut command: Command, api_version: u32) {
    let library = build_directory().join("libfdb_c.so");
    assert!(
        library.exists(),
        "{} is missing; build the package plinth-capi",
        library.display()
    );
    let cluster = Cluster::start(name, 2, &[]);
    let mut tour = command
        .arg(cluster.cluster_file())
        .arg(api_version.to_string())
        .env("LD_LIBRARY_PATH", build_directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut said = BufReader::new(tour.stdout.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    if line == "ready\n" {
        let pid = cluster.pid(1).expect("it runs") as i32;
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it is ours");
        let mut stdin = tour.stdin.take().expect("it is piped");
        stdin.write_all(b"go on\n").expect("it listens");
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    let output = tour.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((&line[..], &rest[..]), ("ready\n", "done\n"));
}

fn python(environment: &str, api_version: u32) {
    let mut python = Command::new(installed(&format!("{environment}/bin/python")));
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bindings/tour.py"));
    run_tour(&format!("{environment}-{api_version}"), python, api_version);
}

#[test]
fn the_python_binding_tours_the_api_while_a_server_is_killed() {
    for api_version in [510, 620, 730] {
        python("python", api_version);
    }
}

#[test]
fn the_newest_python_binding_tours_the_api_while_a_server_is_killed() {
    for api_version in [740, 800] {
        python("python-newest", api_version);
    }
}

/// Compiles the C program against our headers.
fn compile_c(name: &str) -> (Directory, PathBuf) {
    let directory = Directory::new(name);
    let program = directory.file("tour");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bindings");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(&program)
        .arg(tests.join("tour.c"))
        .arg("-I")
        .arg(tests.join("../../../capi/include"))
        .arg("-L")
        .arg(build_directory())
        .args(["-lfdb_c", "-lpthread"])
        .output()
        .expect("cc is installed");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    (directory, program)
}

#[test]
fn a_c_program_tours_the_api_while_a_server_is_killed() {
    let (_directory, program) = compile_c("tour-c-build");
    run_tour("tour-c", Command::new(program), 730);
}

#[test]
fn valgrind_finds_nothing_wrong_in_the_c_program() {
    let (_directory, program) = compile_c("valgrind-build");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--leak-check=full", "--error-exitcode=3"])
        .arg("--errors-for-leak-kinds=definite,indirect")
        .arg(program);
    run_tour("valgrind", valgrind, 730);
}
