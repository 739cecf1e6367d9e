//! `plinth copy` between two clusters, with and without the C API.

use crate::common::client_programs::build_directory;
use crate::common::{BINARY, Cluster, Directory, text};
use std::path::Path;
use std::process::{Command, Output};

fn copy(directory: &Directory, from: &Cluster, to: &Cluster, more: &[&str]) -> Output {
    Command::new(BINARY)
        .args(["copy", "--piece-bytes", "100000", "--json", "--from"])
        .arg(from.cluster_file())
        .arg("--to")
        .arg(to.cluster_file())
        .args(more)
        .current_dir(&directory.0)
        .output()
        .expect("it was built")
}

fn result(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(&text(&output.stdout)).expect("JSON")
}

/// Writes rows of all sizes, some with unusual bytes.
fn fill(cluster: &Cluster, directory: &Directory) {
    let mut rows = String::new();
    for i in 0..20_000 {
        rows += &format!("key-{i:06}\\x00\t{}\n", "v".repeat(i % 97));
    }
    rows += &format!("large\t{}\n", "x".repeat(90_000));
    let file = directory.file("rows.tsv");
    std::fs::write(&file, rows).expect("writes");
    let loaded = cluster.plinth(&["load", file.to_str().expect("text")]);
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
}

#[test]
fn a_database_is_copied_through_the_c_api_and_back_and_checked() {
    let directory = Directory::new("copy");
    let (source, target) = (
        Cluster::start("copy-from", 1, &["--engine", "memory"]),
        Cluster::start("copy-to", 1, &["--engine", "memory"]),
    );
    fill(&source, &directory);
    let library = build_directory().join("libfdb_c.so");
    let library = library.to_str().expect("text");
    assert!(Path::new(library).exists(), "build the package plinth-capi");

    let copied = result(&copy(
        &directory,
        &source,
        &target,
        &["--from-library", library],
    ));
    assert_eq!(
        (&copied["rows"], &copied["rows_copied"]),
        (&20_001.into(), &20_001.into())
    );
    assert!(copied["pieces"].as_u64().expect("a number") > 5);
    assert!(!directory.file("plinth-copy.progress").exists());
    let same = result(&copy(&directory, &source, &target, &["--verify-only"]));
    assert_eq!(same["checksum"], copied["checksum"]);

    // Differences are found, and a copy without --overwrite is refused.
    target.cli("set key-000005\\x00 other; clear key-000006\\x00; set more rows");
    let compared = copy(&directory, &source, &target, &["--verify-only"]);
    assert_eq!(compared.status.code(), Some(1));
    assert!(
        text(&compared.stderr).contains("pieces differ"),
        "{}",
        text(&compared.stderr)
    );
    let refused = copy(&directory, &source, &target, &[]);
    assert!(
        text(&refused.stderr).contains("--overwrite"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(
        target.cli("get key-000005\\x00"),
        "`key-000005\\x00' is `other'\n"
    );

    // Copy back, from the changed database into the original one.
    let back = [
        "--to-library",
        library,
        "--overwrite",
        "--begin",
        "key",
        "--end",
        "n",
    ];
    let back = result(&copy(&directory, &target, &source, &back));
    assert_eq!(back["rows"], 20_001);
    assert_eq!(
        source.cli("get more; get key-000006\\x00"),
        "`more' is `rows'\n`key-000006\\x00': not found\n"
    );
}

#[test]
fn a_copy_that_stopped_goes_on_and_one_of_another_database_does_not() {
    let directory = Directory::new("copy-resume");
    let (source, target) = (
        Cluster::start("copy-resume-from", 1, &["--engine", "memory"]),
        Cluster::start("copy-resume-to", 1, &["--engine", "memory"]),
    );
    fill(&source, &directory);
    result(&copy(&directory, &source, &target, &[]));
    let connection = |cluster: &Cluster| {
        let text = std::fs::read_to_string(cluster.cluster_file()).expect("a cluster file");
        text.trim().to_owned()
    };
    let whole = format!(
        "{} -> {}  \\xff\n",
        connection(&source),
        connection(&target)
    );
    let pieces = " key-010000\nkey-010000 \\xff\n\n0\n";
    let progress = directory.file("plinth-copy.progress");
    std::fs::write(&progress, format!("{whole}{pieces}")).expect("writes");
    let stopped = copy(&directory, &source, &target, &["--overwrite"]);
    assert!(
        text(&stopped.stderr).contains("--resume"),
        "{}",
        text(&stopped.stderr)
    );
    let resumed = result(&copy(&directory, &source, &target, &["--resume"]));
    assert_eq!(
        (&resumed["rows_copied"], &resumed["rows"]),
        (&10_001.into(), &20_001.into())
    );

    std::fs::write(&progress, format!("other{whole}{pieces}")).expect("writes");
    let other = copy(&directory, &source, &target, &["--resume"]);
    assert!(
        text(&other.stderr).contains("another copy"),
        "{}",
        text(&other.stderr)
    );
}

#[test]
fn what_cannot_be_copied_is_said_in_one_line() {
    let directory = Directory::new("copy-refused");
    let cluster = Cluster::start("copy-refused", 1, &["--engine", "memory"]);
    let stopped = Cluster::stopped("copy-stopped", 1, &[]);
    std::fs::write(stopped.cluster_file(), "d:i@127.0.0.1:1\n").expect("writes");
    for (from, to, more, said) in [
        (&cluster, &cluster, &[][..], "the same cluster"),
        (
            &cluster,
            &stopped,
            &["--timeout", "1"],
            "does not serve within 1 s; coordinators tried: 127.0.0.1:1 (cannot be reached)",
        ),
        (
            &cluster,
            &stopped,
            &["--from-library", "/no/such.so"],
            "cannot be used",
        ),
        (
            &cluster,
            &stopped,
            &["--end", "\\xff\\x02"],
            "belong to the system",
        ),
    ] {
        let output = copy(&directory, from, to, more);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains(said) && error.lines().count() == 1,
            "{error}"
        );
    }
}
