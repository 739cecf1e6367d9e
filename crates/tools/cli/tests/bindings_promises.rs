//! FoundationDB's promises about reads, in Python and Java with the unmodified packages of their registries, on a
//! `double` cluster of several processes. Each promise is checked hundreds of times.

use crate::common::client_programs::{build_java, command, installed, run, source};
use crate::common::{Cluster, Directory, say};
use std::process::Command;

/// Runs the program, which checks the promise, and expects success.
fn keeps(name: &str, mut program: Command, api_version: u32, promise: &str) {
    let cluster = Cluster::start(name, 4, &["--replication", "double"]);
    if promise == "cut" {
        let small = "setknob shard_bytes_min 200000; setknob byte_sample_unit 1000";
        say(&cluster.cluster_file(), small).text();
    }
    program
        .arg(cluster.cluster_file())
        .arg(api_version.to_string())
        .arg(promise);
    assert_eq!(run(&mut program), "done\n");
}

fn python(promise: &str) {
    let mut python = command(installed("python/bin/python"));
    python.arg(source("promises.py"));
    keeps(&format!("promise-python-{promise}"), python, 730, promise);
}

fn java(promise: &str) {
    let directory = Directory::new(&format!("promise-java-build-{promise}"));
    let java = build_java(&directory, "7.3.68", "Promises");
    keeps(&format!("promise-java-{promise}"), java, 730, promise);
}

#[test]
fn in_python_a_commit_waits_for_the_reads_that_were_begun_before_it() {
    python("commits");
}

#[test]
fn in_java_a_commit_waits_for_the_reads_that_were_begun_before_it() {
    java("commits");
}

#[test]
fn in_python_what_is_under_way_ends_with_a_reset_a_retry_a_cancellation_and_the_handle() {
    python("endings");
}

#[test]
fn in_python_the_same_read_again_gives_the_same_answer() {
    python("repeated");
}

#[test]
fn in_java_the_same_read_again_gives_the_same_answer() {
    java("repeated");
}

#[test]
fn in_python_a_shard_reaches_from_its_boundary_to_the_last_key_before_the_next() {
    python("locality");
}

#[test]
fn in_python_shards_come_with_data_and_those_that_stay_empty_go() {
    python("cut");
}

#[test]
fn in_java_a_shard_reaches_from_its_boundary_to_the_last_key_before_the_next() {
    java("locality");
}

#[test]
fn in_java_a_mapped_range_that_meets_own_writes_is_refused() {
    java("mapped");
}
