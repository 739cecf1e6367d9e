//! Programs that use `libfdb_c.so`: the path of the library, the files installed by `make bindings`, and how to run
//! a program.

use super::{BINARY, Cluster, Directory, plinth, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A tour takes seconds. One that takes this long is stuck.
const TOUR_LIMIT: Duration = Duration::from_secs(300);

/// The directory with `libfdb_c.so` and the binary.
pub fn build_directory() -> &'static Path {
    Path::new(BINARY).parent().expect("it lies in a directory")
}

/// Path of a file that `make bindings` has installed beside the builds.
pub fn installed(path: &str) -> PathBuf {
    let path = build_directory().join("..").join(path);
    assert!(
        path.exists(),
        "{} is missing; `make bindings` installs it",
        path.display()
    );
    path
}

/// Path of a source file of a client program.
pub fn source(path: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bindings");
    programs.join(path)
}

fn headers() -> PathBuf {
    source("../../../../bindings/capi/include")
}

/// A command that builds or runs with this project's library and headers.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let library = build_directory().join("libfdb_c.so");
    assert!(
        library.exists(),
        "{} is missing; build the package plinth-capi",
        library.display()
    );
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", build_directory())
        .env("CGO_CFLAGS", format!("-I{}", headers().display()))
        .env("CGO_LDFLAGS", format!("-L{}", build_directory().display()))
        .env("RUSTFLAGS", format!("-L {}", build_directory().display()));
    command
}

/// Runs the command to its end; returns its standard output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is installed");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// Runs a tour: it prints `ready`, a server is killed, it receives `go on`, and it prints `done`.
pub fn run_tour(name: &str, mut tour: Command, api_version: u32) {
    let cluster = Cluster::start(name, 2, &[]);
    for stream in [
        &["stream", "create", "tour", "--range", "stream/", "stream0"][..],
        &["stream", "create", "log", "--append"],
    ] {
        let created = cluster.plinth(stream);
        assert!(created.status.success(), "{}", text(&created.stderr));
    }
    let mut tour = tour
        .arg(cluster.cluster_file())
        .arg(api_version.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let limit = Limit::begin(&tour, &cluster);
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
    limit.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((&line[..], &rest[..]), ("ready\n", "done\n"));
}

/// Kills a tour that is stuck, and prints what the database says of itself then.
struct Limit {
    ended: Sender<()>,
    watch: JoinHandle<()>,
}

impl Limit {
    fn begin(tour: &Child, cluster: &Cluster) -> Limit {
        let (ended, wait) = channel();
        let (pid, cluster_file) = (tour.id() as i32, cluster.cluster_file());
        let watch = std::thread::spawn(move || {
            if wait.recv_timeout(TOUR_LIMIT) == Err(RecvTimeoutError::Timeout) {
                let status = plinth(&cluster_file, &["status"]);
                let (stdout, stderr) = (text(&status.stdout), text(&status.stderr));
                eprintln!("the tour is stuck, and is killed\n{stdout}{stderr}");
                let _ = kill_process(Pid::from_raw(pid).expect("a process"), Signal::ABORT);
            }
        });
        Limit { ended, watch }
    }

    fn end(self) {
        drop(self.ended);
        self.watch.join().expect("it only waits");
    }
}

/// Compiles the Go program in the source directory `from`.
pub fn build_go(directory: &Directory, from: &str) -> PathBuf {
    let program = directory.file("program");
    let mut go = command("go");
    run(go
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source(from)));
    program
}

/// Where all programs in Rust are built, so that the crate is built only once.
pub fn rust_builds() -> PathBuf {
    installed("bindings").join("rust-build")
}

/// Makes this command of cargo build there, and nothing that only a debugger needs.
pub fn build_rust(mut cargo: Command) -> Command {
    cargo.env("CARGO_TARGET_DIR", rust_builds());
    for setting in ["DEV_DEBUG", "TEST_DEBUG", "DEV_BUILD_OVERRIDE_DEBUG"] {
        cargo.env(format!("CARGO_PROFILE_{setting}"), "0");
    }
    cargo.env("CARGO_INCREMENTAL", "0");
    cargo
}

/// Compiles a Java program; returns the command that runs it.
pub fn build_java(directory: &Directory, version: &str, class: &str) -> Command {
    let jar = installed(&format!("bindings/java/fdb-java-{version}.jar"));
    let mut javac = command("javac");
    javac
        .arg("-d")
        .arg(&directory.0)
        .arg("-cp")
        .arg(&jar)
        .arg(source(&format!("{class}.java")));
    run(&mut javac);
    let mut java = command("java");
    let path = format!("{}:{}", jar.display(), directory.0.display());
    java.args(["-cp", &path, class]);
    java
}

/// Compiles the C program with this project's headers.
pub fn build_c(directory: &Directory) -> PathBuf {
    let program = directory.file("tour");
    let mut cc = command("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(&program)
        .arg(source("tour.c"))
        .arg("-I")
        .arg(headers())
        .arg("-L")
        .arg(build_directory())
        .args(["-lfdb_c", "-lpthread"]);
    run(&mut cc);
    program
}
