//! FoundationDB's bindings, unmodified, and a C program on this project's `libfdb_c.so`. Each runs a tour of the
//! whole API against a cluster of real processes, one of which is killed during the tour.
//!
//! `make bindings` installs the bindings' dependencies beside the build; `make test` runs it first.

use crate::common::Directory;
use crate::common::client_programs::{
    build_c, build_go, build_java, build_rust, command, installed, run, run_tour, rust_builds,
    source,
};

fn python(environment: &str, api_version: u32) {
    let mut python = command(installed(&format!("{environment}/bin/python")));
    python.arg(source("tour.py"));
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

#[test]
fn the_node_binding_tours_the_api_while_a_server_is_killed() {
    for api_version in [510, 630, 720] {
        let mut node = command("node");
        node.env("NODE_PATH", installed("bindings/node/node_modules"))
            .arg(source("tour.js"));
        run_tour(&format!("node-{api_version}"), node, api_version);
    }
}

#[test]
fn the_go_binding_tours_the_api_while_a_server_is_killed() {
    let directory = Directory::new("tour-go-build");
    let program = build_go(&directory, "go");
    for api_version in [630, 730] {
        run_tour(&format!("go-{api_version}"), command(&program), api_version);
    }
}

#[test]
fn the_java_binding_old_and_new_tours_the_api_while_a_server_is_killed() {
    for (version, api_version) in [("7.3.68", 630), ("7.3.68", 730), ("7.4.1", 740)] {
        let directory = Directory::new("tour-java-build");
        let java = build_java(&directory, version, "Tour");
        run_tour(&format!("java-{api_version}"), java, api_version);
    }
}

#[test]
fn the_rust_crate_tours_the_api_while_a_server_is_killed() {
    let mut cargo = build_rust(command("cargo"));
    cargo
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(source("rust/Cargo.toml"));
    run(&mut cargo);
    for api_version in [630, 730] {
        let tour = command(rust_builds().join("debug/tour"));
        run_tour(&format!("rust-{api_version}"), tour, api_version);
    }
}

#[test]
fn a_c_program_tours_the_api_while_a_server_is_killed() {
    let directory = Directory::new("tour-c-build");
    run_tour("tour-c", command(build_c(&directory)), 730);
}

#[test]
fn valgrind_finds_nothing_wrong_in_the_c_program() {
    let directory = Directory::new("valgrind-build");
    let mut valgrind = command("valgrind");
    valgrind
        .args(["--quiet", "--leak-check=full", "--error-exitcode=3"])
        .arg("--errors-for-leak-kinds=definite,indirect")
        .arg(build_c(&directory));
    run_tour("valgrind", valgrind, 730);
}
