//! A command that has not done its work ends with an exit code other than 0, and reports in one line the part that
//! was not done.

use crate::common::small_disk::SmallDisk;
use crate::common::{BINARY, Cluster, Directory, Server, error_line, json_error, plinth, text};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn is_done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs the shell with a script at its standard input.
fn piped(cluster_file: &Path, script: &str) -> Output {
    let mut shell = Command::new(BINARY)
        .args(["cli", "-C"])
        .arg(cluster_file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut input = shell.stdin.take().expect("it is piped");
    input.write_all(script.as_bytes()).expect("it is read");
    drop(input);
    shell.wait_with_output().expect("it ends")
}

#[test]
fn writes_of_a_transaction_that_is_never_committed_are_a_failure_that_names_them() {
    let cluster = Cluster::start("uncommitted", 1, &["--engine", "memory"]);
    let file = cluster.cluster_file();
    for (statements, words) in [
        ("begin; set a 1", "`set a' came to nothing"),
        (
            "begin; set a 1; clear b; clearrange c d",
            "`set a' and 2 more",
        ),
        ("begin; set a 1; commit; begin; clear a; exit", "`clear a'"),
        ("begin; clearrange a b; frobnicate-not", ""),
        ("begin; set k v; set \\xff/mine v", "`set k' and 1 more"),
    ] {
        for output in [
            plinth(&file, &["cli", "--exec", statements]),
            piped(&file, &statements.replace("; ", "\n")),
        ] {
            let line = error_line(&output);
            assert!(line.contains(words), "{statements}: {line}");
        }
    }
    for done in [
        "begin; get a",
        "begin; set a 2; rollback",
        "begin; set a 2; reset; get a",
        "begin; set a 3; commit",
        "begin; exit",
    ] {
        is_done(&plinth(&file, &["cli", "--exec", done]));
        is_done(&piped(&file, &done.replace("; ", "\n")));
    }
    assert_eq!(cluster.cli("get a"), "`a' is `3'\n");
    // `exit` in the middle of a script ends it.
    is_done(&piped(&file, "set a 4\nexit\nset a 5\n"));
    assert_eq!(cluster.cli("get a"), "`a' is `4'\n");
}

#[test]
fn the_status_of_a_database_that_does_not_serve_is_shown_and_is_a_failure() {
    let cluster = Cluster::stopped("unavailable", 1, &[]);
    cluster.write_cluster_file(1);
    let _server = Server(cluster.start_server(0));
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["cli", "--exec", "status"],
        &["cli", "--exec", "status minimal"],
        &["cli", "--exec", "status json"],
        &["top", "--once"],
    ] {
        let output = cluster.plinth(command);
        let line = match command.contains(&"--json") {
            true => json_error(&output),
            false => error_line(&output),
        };
        assert!(line.contains("unavailable"), "{command:?}: {line}");
        let shown = text(&output.stdout);
        assert!(shown.contains("available"), "{command:?}: {shown}");
        if command.last().is_some_and(|last| last.ends_with("json")) {
            let document: serde_json::Value = serde_json::from_str(&shown).expect("whole JSON");
            assert_eq!(document["cluster"]["database_available"], false);
        }
    }
    is_done(&cluster.plinth(&[
        "cli",
        "--exec",
        "configure new single memory; waitopen; status",
    ]));
    is_done(&cluster.plinth(&["status", "--json"]));
}

/// A file that is loaded in part, because its line 301 is bad.
struct HalfLoaded {
    directory: Directory,
    file: PathBuf,
    lines: String,
    progress: Vec<u8>,
}

impl HalfLoaded {
    /// Tests run side by side, so each has a directory of its own name.
    fn new(cluster: &Cluster, name: &str) -> Self {
        let directory = Directory::new(name);
        let file = directory.file("in.tsv");
        let lines: String = (0..500).map(|i| format!("row{i:04}\t{i:04}\n")).collect();
        cluster.cli("clearrange \"\" \\xff");
        std::fs::write(&file, lines.replacen("row0300\t", "row0300 ", 1)).expect("writes");
        let half = HalfLoaded {
            directory,
            file,
            lines,
            progress: Vec::new(),
        };
        let line = error_line(&half.load(cluster, &[]));
        assert!(line.contains("in.tsv:301: "), "{line}");
        let progress = std::fs::read(half.sidecar()).expect("it is kept");
        HalfLoaded { progress, ..half }
    }

    fn sidecar(&self) -> PathBuf {
        self.directory.file("in.tsv.plinth-progress")
    }

    fn lines_loaded(&self) -> usize {
        let progress = text(&self.progress);
        let lines = progress
            .lines()
            .find_map(|line| line.strip_prefix("lines "));
        lines.expect("it says so").parse().expect("a number")
    }

    fn load(&self, cluster: &Cluster, more: &[&str]) -> Output {
        let file = self.file.to_string_lossy();
        let arguments = [&["load", &file, "--batch-bytes", "1000"], more].concat();
        cluster.plinth(&arguments)
    }
}

fn dumped(cluster: &Cluster) -> String {
    is_done(&cluster.plinth(&["dump", "-"]))
}

#[test]
fn a_load_is_not_resumed_in_a_file_that_was_changed_where_it_is_loaded() {
    let cluster = Cluster::start("load-resumed", 1, &["--engine", "memory"]);
    let half = HalfLoaded::new(&cluster, "half-loaded");
    let before = dumped(&cluster);
    let lines = &half.lines;
    let refused = |content: &str, more: &[&str], word: &str| {
        std::fs::write(&half.file, content).expect("writes");
        let line = error_line(&half.load(&cluster, &[more, &["--resume"]].concat()));
        assert!(line.contains(word) && line.contains("--resume"), "{line}");
        assert_eq!(dumped(&cluster), before, "{word}: something was written");
        let progress = std::fs::read(half.sidecar()).expect("it is kept");
        assert_eq!(progress, half.progress, "{word}");
    };
    // A longer line: the old position is now in the middle of a line.
    let longer = lines.replacen("row0007\t0007", "row0007\tsomething else", 1);
    refused(&longer, &[], "not those");
    // A changed line of the same length.
    refused(
        &lines.replacen("row0007\t0007", "row0007\t7000", 1),
        &[],
        "not those",
    );
    let inserted = format!("new\trow\n{lines}");
    refused(&inserted, &[], "not those");
    refused(&lines[..500], &[], "shorter");
    refused("", &[], "shorter");
    refused(&lines.replace("row", "raw"), &[], "not those");
    refused(lines, &["--prefix", "p/"], "prefix");
    refused(lines, &["--format", "jsonl"], "format");
    std::fs::write(half.sidecar(), "3600 300\n").expect("writes");
    std::fs::write(&half.file, lines).expect("writes");
    let line = error_line(&half.load(&cluster, &["--resume"]));
    assert!(line.contains("not a progress file"), "{line}");
    // Changes after the old position are allowed, and the rest is loaded once.
    std::fs::write(half.sidecar(), &half.progress).expect("writes");
    std::fs::write(&half.file, lines).expect("writes");
    let said = half.load(&cluster, &["--resume"]);
    is_done(&said);
    let left = format!("loaded {} pairs", 500 - half.lines_loaded());
    assert!(text(&said.stderr).contains(&left), "{}", text(&said.stderr));
    assert_eq!(dumped(&cluster), *lines);
    assert!(!half.sidecar().exists());
    // A load from the start accepts a changed file.
    let half = HalfLoaded::new(&cluster, "half-loaded");
    std::fs::write(&half.file, &longer).expect("writes");
    is_done(&half.load(&cluster, &[]));
    assert_eq!(dumped(&cluster), longer);
    // One of which nothing is loaded has nothing to go on with.
    std::fs::write(&half.file, "no pair\n").expect("writes");
    let line = error_line(&half.load(&cluster, &[]));
    assert!(line.ends_with("(nothing is loaded)\n"), "{line}");
    assert!(!half.sidecar().exists());
}

#[test]
fn a_load_is_not_resumed_into_another_cluster() {
    let first = Cluster::start("load-first", 1, &["--engine", "memory"]);
    let second = Cluster::start("load-second", 1, &["--engine", "memory"]);
    let half = HalfLoaded::new(&first, "half-loaded-elsewhere");
    std::fs::write(&half.file, &half.lines).expect("writes");
    let line = error_line(&half.load(&second, &["--resume"]));
    assert!(line.contains("cluster"), "{line}");
    assert_eq!(dumped(&second), "");
}

#[test]
fn a_dump_is_not_resumed_in_a_file_that_is_of_something_else() {
    let cluster = Cluster::start("dump-resumed", 1, &["--engine", "memory"]);
    cluster.cli("set a 1; set b 2; set m 3; set z 4");
    let directory = Directory::new("dump-resumed-files");
    let file = directory.file("out.tsv");
    let name = file.to_string_lossy();
    for (content, more, word) in [
        ("no line end, and no dump", &[][..], "whole line"),
        ("a\t1\n", &["--begin", "b"], "before --begin"),
        ("z\t4\n", &["--end", "m"], "--end"),
        ("one line of prose\n", &[], "no pair"),
        ("m\t3\nz\t4\n", &[], "begins with m, and the range with a"),
        ("b\t2\n", &["--begin", "a", "--end", "n"], "begins with b"),
    ] {
        std::fs::write(&file, content).expect("writes");
        let arguments = [&["dump", &name, "--resume"], more].concat();
        let line = error_line(&cluster.plinth(&arguments));
        assert!(line.contains(word), "{word}: {line}");
        let left = std::fs::read_to_string(&file).expect("reads");
        assert_eq!(left, content, "{word}");
    }
    std::fs::write(&file, "a\t1\nb\t").expect("writes");
    is_done(&cluster.plinth(&["dump", &name, "--resume", "--end", "n"]));
    let whole = std::fs::read_to_string(&file).expect("reads");
    assert_eq!(whole, "a\t1\nb\t2\nm\t3\n");
}

/// A file system with a copy of the cluster file that not even the superuser can write to.
fn read_only_copy(cluster: &Cluster) -> (SmallDisk, PathBuf) {
    let directory = cluster.directory.file("read-only");
    let disk = SmallDisk::mount(&directory, 4);
    let copy = directory.join("plinth.cluster");
    let copied = disk
        .command("cp")
        .arg(cluster.cluster_file())
        .arg(&copy)
        .output()
        .expect("it runs");
    is_done(&copied);
    disk.remount("ro");
    (disk, copy)
}

#[test]
fn a_cluster_file_that_may_only_be_read_serves_every_command_and_server() {
    let cluster = Cluster::stopped("read-only-file", 2, &[]);
    cluster.write_cluster_file(1);
    let (disk, copy) = read_only_copy(&cluster);
    let serve = |i: u16| {
        let mut server = disk.command(BINARY);
        server
            .args(["server", "--listen"])
            .arg(cluster.addresses()[usize::from(i)].to_string())
            .arg("--data-dir")
            .arg(
                cluster
                    .directory
                    .file(&(cluster.first_port + i).to_string()),
            )
            .args(["-C".as_ref(), copy.as_os_str()])
            .args(["--cache-mib", "32"])
            .stderr(
                std::fs::File::create(cluster.directory.file(&format!("said-{i}")))
                    .expect("can be made"),
            );
        Server(server.spawn().expect("the binary was built"))
    };
    let _servers = [serve(0), serve(1)];
    let with_copy = |arguments: &[&str]| {
        let mut command = disk.command(BINARY);
        command
            .args(arguments)
            .args(["-C".as_ref(), copy.as_os_str()]);
        command.stdin(Stdio::null()).output().expect("it runs")
    };
    let run = |statements: &str| with_copy(&["cli", "--exec", statements]);
    is_done(&run("configure new single memory; waitopen; set a b"));
    is_done(&with_copy(&["status"]));
    is_done(&with_copy(&["dump", "-"]));
    is_done(&with_copy(&["load", "-"]));

    // The coordinators move. A command that cannot update the file prints one warning and continues.
    let second = cluster.addresses()[1].to_string();
    let moved = run(&format!(
        "coordinators {second}; get a; coordinators; get a"
    ));
    let said = is_done(&moved);
    assert!(said.contains(&format!("test:test_2@{second}")), "{said}");
    assert_eq!(said.matches("`a' is `b'").count(), 2, "{said}");
    let warned = text(&moved.stderr);
    assert_eq!(
        warned.matches("could not be updated").count(),
        1,
        "{warned}"
    );
    assert!(warned.contains(&*copy.to_string_lossy()), "{warned}");
    // The old file still leads to the cluster, because the former coordinator redirects clients.
    let later = run("get a");
    assert_eq!(is_done(&later), "`a' is `b'\n");
    assert_eq!(text(&later.stderr).lines().count(), 1);
    for i in 0..2 {
        let said = cluster.server_said(i);
        assert_eq!(said.matches("could not be updated").count(), 1, "{said}");
    }
    is_done(
        &disk
            .command("test")
            .arg("-f")
            .arg(&copy)
            .output()
            .expect("it runs"),
    );
}

#[test]
fn nobody_waits_for_a_locked_database_and_a_lock_tells_its_id() {
    let cluster = Cluster::start("locked-and-not-waited-for", 1, &["--engine", "memory"]);
    let locked = cluster.plinth(&["cli", "--json", "--exec", "lock"]);
    let locked: serde_json::Value = serde_json::from_slice(&locked.stdout).expect("JSON");
    let id = locked["id"].as_str().expect("an id");
    // They would wait for an hour: each says at once with what it is locked.
    for command in [
        &["cli", "--timeout", "3600", "--exec", "get a"][..],
        &["cli", "--timeout", "3600", "--exec", "deletetenant a"],
        &["dump", "--timeout", "3600"],
    ] {
        let said = error_line(&cluster.plinth(command));
        assert!(said.contains("is locked"), "{said}");
        assert!(said.contains(&format!("`unlock {id}'")), "{said}");
    }
    let passes = "option on lock_aware; set a b";
    assert!(cluster.plinth(&["cli", "--exec", passes]).status.success());

    let done = |statement: &str| {
        text(
            &cluster
                .plinth(&["cli", "--tsv", "--exec", statement])
                .stdout,
        )
    };
    assert_eq!(cluster.cli(&format!("unlock {id}")), "Database unlocked\n");
    let again = cluster.cli(&format!("unlock {id}"));
    assert!(again.contains("not locked"), "{again}");
    let id = done("lock");
    assert_eq!(cluster.cli(&format!("unlock {id}")), "Database unlocked\n");
    let line = cluster.cli_fails("include 127.0.0.1:9");
    assert!(
        line.contains("127.0.0.1:9 was not excluded; nothing has changed"),
        "{line}"
    );
}
