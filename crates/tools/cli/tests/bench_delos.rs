//! `plinth delos bench` measures what it says it does, in a short run. Goals of speed are not asked for here.

use crate::common::{BINARY, Directory, error_line, text};
use serde_json::Value;
use std::process::{Command, Output};

fn bench(directory: &Directory, more: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command
        .args([
            "delos",
            "bench",
            "--duration",
            "0.5",
            "--rounds",
            "1",
            "--json",
            "--directory",
        ])
        .arg(&directory.0)
        .args(more);
    command.output().expect("it runs")
}

#[test]
fn logs_and_leases_are_measured_and_no_append_fails_while_the_log_is_reconfigured() {
    let directory = Directory::new("bench-delos");
    let page = directory.file("page.html").display().to_string();
    let parts = ["quorum-append", "reconfigure", "figure-10"];
    let more = [&parts[..], &["--round-trip-ms", "20", "--html", &page]].concat();
    let output = bench(&directory, &more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let figures: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let names: Vec<&str> = figures
        .iter()
        .filter_map(|figure| figure["figure"].as_str())
        .collect();
    assert_eq!(names, parts);
    let [append, reconfigure, lease] = &figures[..] else {
        panic!("{said}");
    };
    assert!(append["data"]["entries_per_second"][0].as_f64() > Some(0.0));
    assert_eq!(reconfigure["data"]["reconfigurations"], 3);
    assert_eq!(reconfigure["data"]["failed"], 0, "{reconfigure}");
    assert_eq!(reconfigure["goals"][0]["is_met"], true);
    let without = lease["data"]["without_ms"]["p50"].as_f64().expect("a time");
    let with = lease["data"]["with_ms"]["p50"].as_f64().expect("a time");
    assert!(without >= 20.0 && with < without / 2.0, "{lease}");
    let page = std::fs::read_to_string(&page).expect("a page");
    assert!(page.contains("reconfigure"));
    let left = std::fs::read_dir(&directory.0).expect("a directory");
    assert_eq!(left.count(), 1, "only the page is left");
}

#[test]
fn bad_input_gets_one_line() {
    let directory = Directory::new("bench-delos-wrong");
    let wrong = bench(&directory, &["figure-8"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("there are figure-7"),
        "{}",
        text(&wrong.stderr)
    );
    let nowhere = ["reconfigure", "--directory", "/proc/nowhere"];
    let nowhere = Command::new(BINARY)
        .args(["delos", "bench"])
        .args(nowhere)
        .output();
    let line = error_line(&nowhere.expect("it runs"));
    assert!(
        line.contains("name a directory that can be written to"),
        "{line}"
    );
}
