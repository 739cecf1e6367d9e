//! What a person sees at a terminal while a cluster is down, and goes, and comes back.

use crate::common::replicas::{Replicas, plinth};
use crate::common::screen::{COLUMNS, Screen};
use crate::common::{Cluster, error_line, json_error, text};
use serde_json::Value;
use std::time::{Duration, Instant};

/// For what takes a second or two.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn top_of_a_cluster_that_is_down_says_why_in_whole_and_gives_up_when_its_time_is_over() {
    let cluster = Cluster::stopped("top-down", 3, &[]);
    cluster.write_cluster_file(3);
    let file = cluster.cluster_file().display().to_string();
    let begun = Instant::now();
    let screen = Screen::of(&["top", "-C", &file, "--timeout", "4"]);
    let addresses = cluster.addresses();
    let words = screen.await_text("waiting for an answer: the cluster does not answer;", SOON);
    for address in &addresses {
        assert!(words.contains(&address.to_string()), "{words}");
    }
    assert!(words.contains("cannot be reached"), "{words}");
    for row in screen.rows() {
        assert!(row.chars().count() <= COLUMNS, "{row}");
    }
    let (code, said) = screen.ended(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does not serve within 4 s"), "{said}");
    assert!(begun.elapsed() >= Duration::from_secs(4), "{said}");

    // Who has enough before is told why there was nothing, too.
    let mut screen = Screen::of(&["top", "-C", &file, "--timeout", "60"]);
    screen.await_text("waiting for an answer: the cluster does not answer;", SOON);
    screen.press("q");
    let (code, said) = screen.ended(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("plinth: the cluster does not answer; coordinators tried: "),
        "{said}"
    );
}

#[test]
fn top_keeps_the_last_picture_of_a_cluster_that_goes_and_marks_it_as_old_until_it_comes_back() {
    let mut cluster = Cluster::start("top-goes", 1, &["--engine", "memory"]);
    let file = cluster.cluster_file().display().to_string();
    let mut screen = Screen::of(&["top", "-C", &file, "--timeout", "2"]);
    screen.await_text("plinth database available", SOON);
    cluster.stop();
    let old = screen.await_text("OLD: no answer for", SOON);
    assert!(old.contains("plinth database available"), "{old}");
    // It goes on after its time-out, and counts.
    let later = screen.await_that(SOON, "a count", |words| {
        let count = words.split("no answer for ").nth(1);
        let count = count.and_then(|rest| rest.split(' ').next()?.parse().ok());
        count.is_some_and(|seconds: u64| seconds >= 5)
    });
    assert!(later.contains("coordinators tried: 127.0.0.1:"), "{later}");
    cluster.resume();
    screen.await_that(SOON, "a new picture", |words| {
        words.contains("plinth database available") && !words.contains("OLD")
    });
    screen.press("q");
    assert_eq!(screen.ended(SOON).0, Some(0));
}

fn document(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("one document")
}

#[test]
fn a_service_without_its_majority_is_said_not_to_serve_wherever_one_looks() {
    let mut replicas = Replicas::new("top-majority", 3);
    assert!(replicas.create("lock").status.success());
    replicas.await_all();
    let service = replicas.service.clone();
    let file = service.0.display().to_string();
    let mut screen = Screen::of(&["delos", "top", "-C", &file, "--timeout", "3"]);
    let words = screen.await_text("service service, kind lock", SOON);
    assert!(
        words.contains("serves") && !words.contains("cannot serve"),
        "{words}"
    );
    replicas.kill(1);
    replicas.kill(2);
    let words = screen.await_text("cannot serve", SOON);
    assert!(
        words.contains("answer, and it does nothing without 2; start r1, r2"),
        "{words}"
    );

    let status = service.run("status", &["--json"]);
    assert!(json_error(&status).ends_with("start r1, r2"));
    let seen = document(&status.stdout);
    assert_eq!(seen["replicas"][0]["serves"], false, "{seen}");
    let advice = seen["advice"][0].as_str().expect("a line");
    assert!(
        advice.ends_with("it does nothing without 2; start r1, r2"),
        "{advice}"
    );
    let status = service.run("status", &[]);
    assert!(error_line(&status).ends_with("start r1, r2\n"));
    let shown = text(&status.stdout);
    assert!(shown.contains(", cannot serve: 1 of 3 "), "{shown}");
    let top = plinth(&["top", "-C", &file, "--json"]);
    assert_eq!(document(&top.stdout)["advice"][0], advice);
    assert!(json_error(&top).ends_with("start r1, r2"));

    replicas.kill(0);
    let words = screen.await_text("OLD: no answer for", SOON);
    assert!(words.contains("kind lock"), "{words}");
    let begun = Instant::now();
    let other = Screen::of(&["delos", "top", "-C", &file, "--timeout", "3"]);
    let words = other.await_text(
        "waiting for an answer: service service does not answer yet",
        SOON,
    );
    assert!(words.contains(&replicas.address(2)), "{words}");
    let (code, said) = other.ended(SOON);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("does not answer after 3 s; its processes are at"),
        "{said}"
    );
    assert!(begun.elapsed() >= Duration::from_secs(3));
    for i in 0..3 {
        replicas.restart(i);
    }
    screen.await_that(SOON, "a new picture", |words| {
        words.contains("serves") && !words.contains("OLD") && !words.contains("cannot")
    });
    screen.press("q");
    assert_eq!(screen.ended(SOON).0, Some(0));
}

#[test]
fn a_shell_fails_as_it_does_although_one_of_its_statements_was_interrupted_before() {
    let cluster = Cluster::start("interrupted-before", 1, &["--engine", "memory"]);
    let file = cluster.cluster_file().display().to_string();
    for interrupts in [false, true] {
        let mut shell = Screen::of(&["cli", "-C", &file]);
        let says = |shell: &Screen, part: &str| {
            let begun = Instant::now();
            while !shell.written().contains(part) {
                assert!(begun.elapsed() < SOON, "{part} in {}", shell.written());
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        says(&shell, "`exit' leaves.");
        std::thread::sleep(Duration::from_secs(4)); // until it reads
        if interrupts {
            shell.press("watch hello\r");
            // It may still be read, and then nothing is interrupted.
            let begun = Instant::now();
            while !shell
                .written()
                .contains("interrupted; the value has not changed")
            {
                assert!(begun.elapsed() < SOON, "{}", shell.written());
                std::thread::sleep(Duration::from_secs(3));
                shell.press("\x03");
            }
        }
        std::thread::sleep(Duration::from_secs(4)); // it asks the terminal where it is, which says nothing
        shell.press("begin; set z 1; exit\r");
        let (code, said) = shell.ended(SOON);
        assert_eq!(code, Some(1), "{interrupts}: {said}");
    }
}

#[test]
fn the_status_for_programs_is_a_document_although_no_coordinator_answers() {
    let cluster = Cluster::stopped("status-known", 3, &[]);
    cluster.write_cluster_file(3);
    let addresses = cluster.addresses();
    for command in [
        &["status", "--json", "--timeout", "2"][..],
        &["cli", "--exec", "status json", "--timeout", "2"],
        &["cli", "--json", "--exec", "status json", "--timeout", "2"],
    ] {
        let said = cluster.plinth(command);
        assert_eq!(said.status.code(), Some(1), "{command:?}");
        let known = document(&said.stdout);
        let listed = &known["client"]["coordinators"];
        assert_eq!(listed["quorum_reachable"], false, "{command:?}: {known}");
        assert_eq!(
            listed["coordinators"][2]["address"],
            addresses[2].to_string()
        );
        assert_eq!(listed["coordinators"][2]["reachable"], false);
        assert_eq!(known["cluster"]["database_available"], false);
        let line = known["error"].as_str().expect("the reason");
        assert!(line.contains("does not serve within 2 s"), "{line}");
        let advice = known["advice"][0].as_str().expect("a line");
        let wanted = format!("start the servers at {}, ", addresses[0]);
        assert!(advice.starts_with(&wanted), "{advice}");
        assert!(
            advice.ends_with("of 3 coordinators 2 must answer"),
            "{advice}"
        );
    }
}
