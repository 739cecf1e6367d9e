//! `plinth farm bench` measures what it says it does, in short runs, and refuses what makes no sense. Goals of speed
//! are not asked for here.

use crate::common::{self, BINARY, error_line, text};
use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["farm", "bench"]).args(arguments);
    command.output().expect("it runs")
}

fn measured(arguments: &[&str]) -> Value {
    let output = bench(&[arguments, &["--duration", "0.2", "--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!(report["workload"], arguments[0]);
    assert_eq!(report["broken"], serde_json::json!([]));
    report
}

#[test]
fn reads_rows_and_scans_are_measured() {
    let reads = measured(&["reads", "--objects", "1000"]);
    assert_eq!(reads["figures"].as_array().map(Vec::len), Some(6));
    let ycsb = ["ycsb", "--rows", "1000", "--mix", "a,e", "--theta", "0,0.9"];
    let ycsb = measured(&ycsb);
    assert_eq!(ycsb["figures"].as_array().map(Vec::len), Some(4));
    let scans = ["scans", "--rows", "500", "--rounds", "1", "--old-mib", "32"];
    let scans = measured(&[&scans[..], &["--policy", "block,single"]].concat());
    assert_eq!(scans["figures"][0]["mode"], "block");
    assert_eq!(scans["figures"][0]["scan_aborts"], serde_json::json!({}));
    assert_eq!(scans["figures"][1]["mode"], "single");
}

#[test]
fn scans_of_several_lengths_and_reads_of_another_process_are_measured() {
    let lengths = ["lengths", "--rows", "500", "--lengths", "1,100"];
    let lengths = measured(&[&lengths[..], &["--policy", "block", "--old-mib", "32"]].concat());
    assert_eq!(lengths["figures"].as_array().map(Vec::len), Some(2));
    let port = common::free_ports(2).to_string();
    let processes = ["processes", "--objects", "1000", "--port", &port];
    let processes = measured(&processes);
    let figures = processes["figures"].as_array().expect("figures");
    let reads = figures.iter().filter(|figure| figure["reads"].is_string());
    assert_eq!(reads.count(), 3, "{processes}");
    let number = |field: &str| figures.iter().filter_map(|f| f[field].as_f64()).next();
    assert!(number("p50_us") > Some(0.0), "{processes}");
    assert!(number("idle_share_of_a_core").is_some(), "{processes}");
}

#[test]
fn scans_of_another_process_see_the_same_sum_beside_updates() {
    let scans = [
        "scans",
        "--apart",
        "--rows",
        "300",
        "--rounds",
        "2",
        "--old-mib",
        "32",
    ];
    let scans = measured(&[&scans[..], &["--policy", "block,abort"]].concat());
    let figures = scans["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 2);
    for figure in figures {
        assert!(figure["scans"].as_u64() > Some(0), "{figure}");
        assert_eq!(figure["scan_aborts"], serde_json::json!({}), "{figure}");
        assert!(
            figure["updates_a_second_beside_scans"].as_f64() > Some(0.0),
            "{figure}"
        );
    }
}

#[test]
fn a_leader_that_is_killed_is_replaced_with_backups_in_memory_and_on_disk() {
    let port = common::free_ports(6).to_string();
    let rounds = ["promotions", "--objects", "2000", "--rounds", "1"];
    let output = bench(&[&rounds[..], &["--port", &port, "--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!(report["broken"], serde_json::json!([]));
    let figures = report["figures"].as_array().expect("figures");
    for backups in ["memory", "disk"] {
        let of = figures.iter().filter(|figure| figure["backups"] == backups);
        let of: Vec<&Value> = of.collect();
        assert!(
            of.len() == 2 && of[0]["backup_shared_bytes"].is_u64(),
            "{report}"
        );
        assert!(of[1]["first_read_ms"][0].as_f64() > Some(0.0), "{report}");
    }
}

#[test]
fn bad_input_gets_one_line() {
    let wrong: [(&[&str], &str); 6] = [
        (
            &["tpcc", "--policy", "both"],
            "there are block, abort, truncate and single",
        ),
        (&["ycsb", "--mix", "d"], "there are a, b, c and e"),
        (&["ycsb", "--theta", "1"], "from 0 to below 1"),
        (&["reads", "--duration", "0"], "expected seconds"),
        (&["tpcc", "--opacity", "maybe"], "expected on or off"),
        (
            &["failures", "--kill", "all"],
            "there are other, master and both",
        ),
    ];
    for (arguments, said) in wrong {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let line = text(&output.stderr);
        assert!(line.contains(said), "{arguments:?}: {line}");
    }
    let line = error_line(&bench(&["tpcc", "--replicas", "2"]));
    assert!(line.contains("at most as many replicas"), "{line}");
    let line = error_line(&bench(&["lengths", "--lengths", "3"]));
    assert!(line.contains("rows come in pairs"), "{line}");
    let line = error_line(&bench(&["lengths", "--apart"]));
    assert!(line.contains("all run in one process"), "{line}");
    let line = error_line(&bench(&["compare", "--mix", "e"]));
    assert!(line.contains("not of single rows"), "{line}");
    let line = error_line(&bench(&["reads", "--directory", "/proc/nowhere"]));
    assert!(line.contains("no memory can be made there"), "{line}");
}
