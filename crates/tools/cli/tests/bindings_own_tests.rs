//! The tests that ship in the packages of FoundationDB's bindings, unmodified, and the application of its tutorial,
//! on this project's `libfdb_c.so`.

use crate::common::client_programs::{
    build_go, build_java, build_rust, command, installed, run, source,
};
use crate::common::{Cluster, Directory};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A cluster of one server, which programs find in the way of FoundationDB's clients.
struct Place {
    cluster: Cluster,
}

impl Place {
    fn new(name: &str) -> Self {
        Place {
            cluster: Cluster::start(name, 1, &["--engine", "memory"]),
        }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = command(program);
        command.env("FDB_CLUSTER_FILE", self.cluster.cluster_file());
        command
    }
}

#[test]
fn the_go_module_passes_its_own_tests() {
    let place = Place::new("own-go");
    let mut go = place.command("go");
    go.args(["test", "-count=1", "./src/..."])
        .current_dir(installed("bindings/go"));
    let said = run(&mut go);
    let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(passed, 3, "{said}");
}

#[test]
fn the_npm_package_passes_its_own_tests() {
    let place = Place::new("own-node");
    let modules = installed("bindings/node/node_modules");
    let mut mocha = place.command(modules.join(".bin/mocha"));
    let tests = ["kv", "range", "directory", "state"];
    let tests = tests.map(|name| modules.join(format!("foundationdb/dist/test/{name}.js")));
    mocha.arg("--exit").args(tests);
    let said = run(&mut mocha);
    assert!(said.contains("52 passing"), "{said}");
}

/// Features of the crate that fit the installed headers.
const RUST_FEATURES: &str = "embedded-fdb-include,fdb-7_3";

impl Place {
    /// A cargo command on the crate's own sources.
    fn cargo(&self, action: &str) -> Command {
        let mut cargo = build_rust(self.command("cargo"));
        cargo
            .args([action, "--quiet", "--locked", "--features", RUST_FEATURES])
            .current_dir(installed("bindings/rust"));
        cargo
    }
}

/// Runs `body` with a slow server: it runs for a tenth of a millisecond at a time and then pauses for two
/// milliseconds.
fn with_a_slow_server<T>(cluster: &Cluster, body: impl FnOnce() -> T) -> T {
    let pid = cluster.pid(0).expect("it runs") as i32;
    let send = |signal| {
        let pid = Pid::from_raw(pid).expect("a process");
        kill_process(pid, signal).expect("it is ours");
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                send(Signal::STOP);
                std::thread::sleep(Duration::from_millis(2));
                send(Signal::CONT);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        done.store(true, Ordering::Release);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn the_rust_crate_passes_its_own_tests() {
    let place = Place::new("own-rust");
    let mut tests = place.cargo("test");
    tests.arg("--lib");
    let files = std::fs::read_dir(installed("bindings/rust/tests")).expect("a directory");
    let names = files.filter_map(|file| {
        let name = file.expect("an entry").file_name();
        name.to_str()?.strip_suffix(".rs").map(str::to_owned)
    });
    for name in names.filter(|name| name != "metrics") {
        tests.args(["--test", &name]);
    }
    let said = run(tests.args(["--", "--test-threads=1"]));
    assert_eq!(said.matches("test result: ok").count(), 20, "{said}");
    // This test asserts that a commit takes at least a millisecond. Plinth's commits are faster on a machine that is
    // not overloaded.
    let slowly = || run(place.cargo("test").args(["--test", "metrics"]));
    run(place.cargo("test").args(["--no-run", "--test", "metrics"]));
    let said = with_a_slow_server(&place.cluster, slowly);
    assert_eq!(said.matches("test result: ok").count(), 1, "{said}");
    // One example stores a picture that is not in the package; any bytes will do.
    let assets = installed("bindings/rust").join("assets");
    std::fs::create_dir_all(&assets).expect("it can be written to");
    let picture = include_bytes!("../../../../docs/performance.md");
    std::fs::write(assets.join("logo-400x400.png"), picture).expect("it can be written to");
    run(place.cargo("build").arg("--examples"));
    // The first example needs a database of its own.
    for example in [
        "key_selectors",
        "atomic-op-counter",
        "blob",
        "blob-with-manifest",
        "class-scheduling",
        "conflict_reporting",
        "hello-world",
        "instrumented",
        "micro-queue",
        "multi_version",
        "simple-index",
        "versionstamp",
    ] {
        run(place.cargo("run").args(["--example", example]));
    }
}

#[test]
fn the_class_scheduling_tutorial_runs_in_python_go_and_java() {
    let place = Place::new("tutorials");
    let mut python = place.command(installed("python/bin/python"));
    python.arg(source("class_scheduling.py"));
    let (go_build, java_build) = (
        Directory::new("tutorial-go"),
        Directory::new("tutorial-java"),
    );
    let mut java = build_java(&java_build, "7.3.68", "ClassScheduling");
    java.env("FDB_CLUSTER_FILE", place.cluster.cluster_file());
    let mut programs = [
        place.command(build_go(&go_build, "go_class_scheduling")),
        java,
        python,
    ];
    for program in &mut programs {
        assert_eq!(run(program), "done\n");
    }
}

#[test]
fn a_client_of_a_dead_or_a_wrong_cluster_fails_in_time_and_says_what_it_tried() {
    let place = Place::new("dead-cluster");
    let directory = Directory::new("dead-cluster-files");
    let living = place.cluster.addresses()[0].to_string();
    // An address where nothing listens, and a coordinator of another cluster.
    for (name, address) in [("dead", "127.0.0.1:1"), ("wrong", &living)] {
        let file = directory.file(name);
        std::fs::write(&file, format!("other:cluster@{address}\n")).expect("writes");
        let mut python = place.command(installed("python/bin/python"));
        python
            .arg(source("dead_cluster.py"))
            .arg(&file)
            .arg(address);
        assert_eq!(run(&mut python), "done\n", "{name}");
    }
}

#[test]
fn directories_made_in_python_open_in_rust_and_back() {
    use plinth_client::tuple::Element;
    use plinth_client::{DirectoryLayer, PARTITION};
    let place = Place::new("directories");
    let python = |what: &str| {
        let mut python = place.command(installed("python/bin/python"));
        assert_eq!(
            run(python.arg(source("directories.py")).arg(what)),
            "done\n"
        );
    };
    let path = |text: &str| -> Vec<String> { text.split('/').map(String::from).collect() };
    let keys = [
        vec![Element::Int(1), Element::Text("x".into())],
        vec![Element::Int(2)],
    ];
    python("make");
    plinth_runtime::real::block_on(async {
        let file = plinth_coordination::ClusterFile::load(&place.cluster.cluster_file()).await;
        let database = plinth_client::connect(file.expect("a cluster file"));
        let layer = DirectoryLayer::default();
        let done = database.run(async |tr| {
            let plain = layer.open(&tr, &path("python/plain"), b"rows").await?;
            let inside = layer
                .open(&tr, &path("python/partition/inside"), b"")
                .await?;
            for (directory, key, row) in [
                (&plain, &keys[0], "from python"),
                (&inside, &keys[1], "from python, inside"),
            ] {
                let found = tr.get(directory.subspace()?.pack(key)?, false).await?;
                assert_eq!(found.as_deref(), Some(row.as_bytes()));
            }
            let plain = layer
                .create(&tr, &path("rust/plain"), b"rows", None)
                .await?;
            tr.set(plain.subspace()?.pack(&keys[0])?, "from rust");
            let partition = layer
                .create(&tr, &path("rust/partition"), PARTITION, None)
                .await?;
            let inside = partition.create(&tr, &path("inside"), b"", None).await?;
            tr.set(inside.subspace()?.pack(&keys[1])?, "from rust, inside");
            Ok(())
        });
        done.await.expect("commits");
    });
    python("look");
}
