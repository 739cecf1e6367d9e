//! Mistakes of users and of strangers on the network: each gives one clear error line, nothing is lost, and the
//! cluster continues.

use crate::common::small_disk::SmallDisk;
use crate::common::{self, BINARY, Cluster, Directory, error_line, plinth, text};
use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_coordination::ClusterFile;
use plinth_core::{Error, KeySelector, Result};
use plinth_runtime::{Duration, real, sleep, timeout};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[test]
fn mistakes_get_one_clear_line_and_the_cluster_goes_on() {
    let cluster = Cluster::start("bad-input", 1, &["--engine", "memory"]);
    assert!(cluster.cli("set a b; get a").contains("`a' is `b'"));

    statements_that_are_wrong(&cluster);
    a_second_server_in_its_directory(&cluster);
    a_port_that_is_taken(&cluster);
    records_that_cannot_be_kept(&cluster);
    a_stranger_at_the_port(&cluster);
    a_database_that_is_there_already(&cluster);
    an_exclusion_of_nobody(&cluster);

    assert!(cluster.cli("get a").contains("`a' is `b'"));
}

fn statements_that_are_wrong(cluster: &Cluster) {
    let long_key = format!("set {} v", "k".repeat(10_001));
    let long_value = format!("set k {}", "v".repeat(100_001));
    for (statement, word) in [
        ("clearrange b a", "2005"),
        ("getrange b a", "2005"),
        ("set \\xff/mine v", "2004"),
        ("get \\xff/conf", "2004"),
        ("frobnicate", "frobnicate"),
        ("get \"a", "quote"),
        ("writemode off; set a c", "writemode"),
        ("commit", "begin"),
        ("configure new fourfold ssd", "fourfold"),
        ("configure new single ssd tables=3", "tables"),
        ("writemode perhaps", "writemode"),
        ("status xml", "usage: status"),
        ("getrange a b many", "limit"),
        ("set \\xf v", "escape"),
        (&long_key, "2102"),
        (&long_value, "2103"),
    ] {
        let line = cluster.cli_fails(statement);
        assert!(
            line.contains(word),
            "{}: {line}",
            &statement[..statement.len().min(40)]
        );
    }
}

fn a_second_server_in_its_directory(cluster: &Cluster) {
    let directory = cluster.directory.file(&cluster.first_port.to_string());
    let output = Command::new(BINARY)
        .args([
            "server",
            "--listen",
            &format!("127.0.0.1:{}", common::free_ports(1)),
        ])
        .arg("--data-dir")
        .arg(directory)
        .arg("-C")
        .arg(cluster.cluster_file())
        .output()
        .expect("the binary was built");
    assert!(error_line(&output).contains("lock"));
}

fn server(data: &Path, cluster_file: &Path, listen: &str) -> Output {
    let mut command = Command::new(BINARY);
    command
        .args(["server", "--listen", listen])
        .arg("--data-dir");
    let output = command.arg(data).arg("-C").arg(cluster_file).output();
    output.expect("the binary was built")
}

fn free_address() -> String {
    format!("127.0.0.1:{}", common::free_ports(1))
}

fn a_port_that_is_taken(cluster: &Cluster) {
    let directory = Directory::new("taken-port");
    let output = Command::new(BINARY)
        .args(["server", "--listen", &cluster.addresses()[0].to_string()])
        .arg("--data-dir")
        .arg(&directory.0)
        .arg("-C")
        .arg(cluster.cluster_file())
        .output()
        .expect("the binary was built");
    assert!(error_line(&output).contains("cannot listen"));
}

/// Sends noise of several kinds, and opens connections that send nothing.
fn records_that_cannot_be_kept(cluster: &Cluster) {
    let directory = Directory::new("records");
    for name in ["trace", "audit"] {
        let flag = format!("--{name}");
        let mut command = Command::new(BINARY);
        command.args(["server", "--listen", &free_address()]);
        command.args([&flag, "/dev/null/records", "-C"]);
        command.arg(cluster.cluster_file()).arg("--data-dir");
        let output = command.arg(directory.file("data")).output();
        let line = error_line(&output.expect("the binary was built"));
        let what = "a part of its path is a file, and no directory";
        let said = format!("{name} file /dev/null/records: {what}");
        assert!(
            line.contains(&said) && line.contains(&format!("choose another with {flag}")),
            "{line}"
        );
    }
}

fn a_stranger_at_the_port(cluster: &Cluster) {
    let connect = || TcpStream::connect(cluster.addresses()[0]).expect("somebody listens");
    let noise: Vec<u8> = (0..100_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 4096],
        &[0; 4096],
        &noise,
    ] {
        let mut stream = connect();
        let _ = stream.write_all(bytes); // the server may close the connection meanwhile
    }
    let idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    assert!(cluster.cli("get a").contains("`a' is `b'"));
    drop(idle);
}

fn a_database_that_is_there_already(cluster: &Cluster) {
    assert!(
        cluster
            .cli_fails("configure new single ssd")
            .contains("already")
    );
}

fn an_exclusion_of_nobody(cluster: &Cluster) {
    let line = cluster.cli_fails("exclude 127.0.0.1:9");
    assert!(
        line.contains("no process of this cluster is 127.0.0.1:9"),
        "{line}"
    );
    assert!(cluster.cli("exclude").contains("Nobody is excluded"));
    let forced = cluster.cli("exclude force no_wait 127.0.0.1:9; exclude; include all");
    assert!(forced.contains("  127.0.0.1:9"), "{forced}");
}

#[test]
fn a_cluster_that_is_not_there_is_named_with_those_who_were_asked() {
    let directory = Directory::new("nobody");
    let file = directory.file("plinth.cluster");
    let port = common::free_ports(1);
    std::fs::write(&file, format!("test:test@127.0.0.1:{port}\n")).expect("writes");
    for command in [
        &["cli", "--timeout", "1", "--exec", "get a"][..],
        &["status", "--timeout", "1"],
        &["load", "-", "--timeout", "1"],
    ] {
        let line = error_line(&plinth(&file, command));
        assert!(
            line.contains(&format!("127.0.0.1:{port} (cannot be reached)")),
            "{line}"
        );
    }
    std::fs::write(&file, "no cluster file").expect("writes");
    assert!(error_line(&plinth(&file, &["status"])).contains("'@'"));
    let missing = directory.file("missing");
    assert!(error_line(&plinth(&missing, &["status"])).contains("there is none"));
}

#[test]
fn wrong_usage_exits_with_two() {
    for arguments in [
        &["dev", "--replication", "many"][..],
        &["server"],
        &["nothing"],
        &["bench", "run"],
        &["keeper", "server", "--min-session-timeout-ms", "499"],
        &["keeper", "server", "--commands", "srvr,nope"],
        &["keeper", "bench", "run", "--server", "127.0.0.1:2181"],
        &["keeper", "bench", "run", "--server", "a=nowhere"],
        &[
            "keeper",
            "bench",
            "run",
            "--server",
            "a=127.0.0.1:1",
            "--duration",
            "0",
        ],
    ] {
        let output = Command::new(BINARY)
            .args(arguments)
            .output()
            .expect("the binary was built");
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    let output = Command::new(BINARY)
        .args(["dev", "--processes", "2", "--replication", "triple"])
        .output();
    assert!(error_line(&output.expect("the binary was built")).contains("--processes 3"));
    let output = Command::new(BINARY)
        .args(["keeper", "server", "--min-session-timeout-ms", "9000"])
        .args(["--max-session-timeout-ms", "8000"])
        .output();
    assert!(error_line(&output.expect("the binary was built")).contains("9000 ms"));
}

#[test]
fn a_bench_of_servers_that_cannot_be_measured_says_why() {
    let run = |more: &[&str]| {
        let output = Command::new(BINARY)
            .args(["keeper", "bench", "run"])
            .args(more)
            .output();
        output.expect("the binary was built")
    };
    let usage = |more: &[&str]| {
        let output = run(more);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let line = |more: &[&str]| error_line(&run(more));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("is bound").port();
    drop(listener);
    let server = format!("there=127.0.0.1:{port}");
    let with = |more: &[&str]| line(&[&["--server", &server], more].concat());
    assert!(usage(&[]).contains("--server NAME=HOST:PORT"));
    assert!(with(&[]).contains(&format!(
        "server there at 127.0.0.1:{port} takes no session"
    )));
    assert!(usage(&["--server", &server, "--workload", "ycsb-e"]).contains("there is no `ycsb-e'"));
    assert!(with(&["--workload", "failures"]).contains("--disturb"));
    assert!(with(&["--server", &server]).contains("two with the name there"));
    assert!(with(&["--pids", "other=1"]).contains("there is no --server other"));
}

/// Mistakes that only a program can make, against real servers.
#[test]
fn transactions_that_are_wrong_get_the_error_that_says_how() {
    let cluster = Cluster::start("wrong-transactions", 1, &["--engine", "memory"]);
    real::block_on(async {
        let file = ClusterFile::load(&cluster.cluster_file()).await;
        let database = plinth_client::connect(file.expect("a cluster file"));
        let kept = database.run(async |t| {
            t.set("kept", "yes");
            t.get_read_version().await
        });
        let version = kept.await.expect("commits");
        sizes_that_are_wrong(&database).await;
        ranges_that_are_wrong(&database).await;
        versions_that_are_wrong(&database, version).await;
        let kept = database.run(async |t| t.get("kept", false).await).await;
        assert_eq!(kept.expect("reads").as_deref(), Some(&b"yes"[..]));
    });
    let unknown = TransactionOption::from_code(9999, None);
    assert_eq!(unknown.err(), Some(Error::invalid_option));
    let without_value = TransactionOption::from_code(500, Some(b"soon"));
    assert_eq!(without_value.err(), Some(Error::invalid_option_value));
}

async fn sizes_that_are_wrong(database: &Database) {
    let refused = async |write: &dyn Fn(&plinth_client::Transaction)| {
        let t = database.create_transaction();
        write(&t);
        t.commit().await.expect_err("it is too large")
    };
    let (key, value) = (vec![b'k'; 10_001], vec![b'v'; 100_001]);
    assert_eq!(refused(&|t| t.set(&key, "v")).await, Error::key_too_large);
    assert_eq!(
        refused(&|t| t.set("k", &value)).await,
        Error::value_too_large
    );
    let much = |t: &plinth_client::Transaction| {
        (0..101u32).for_each(|i| t.set(format!("much/{i}"), vec![0; 100_000]));
    };
    assert_eq!(refused(&much).await, Error::transaction_too_large);
    // A key that is too long cannot exist, so clearing it is allowed.
    let t = database.create_transaction();
    t.clear(&key);
    t.commit().await.expect("nothing to do");
    // A key and a value of exactly the maximum size are accepted.
    let largest = database.run(async |t| {
        t.set(&key[..10_000], &value[..100_000]);
        Ok(())
    });
    largest.await.expect("it is as large as it may be");
    let left = database.run(async |t| t.get("much/0", false).await).await;
    assert_eq!(left.expect("reads"), None, "a part of what was refused");
}

async fn ranges_that_are_wrong(database: &Database) {
    let t = database.create_transaction();
    let [begin, end] = ["b", "a"].map(KeySelector::first_greater_or_equal);
    // Selectors name places to read between, and there is nothing between these two.
    let read = t.get_range_all(begin, end, RangeOptions::default(), false);
    assert_eq!(read.await.map(|rows| rows.len()), Ok(0));
    let t = database.create_transaction();
    t.clear_range("b", "a");
    assert_eq!(t.commit().await.err(), Some(Error::inverted_range));
    let t = database.create_transaction();
    t.add_read_conflict_range("b", "a");
    assert_eq!(t.commit().await.err(), Some(Error::inverted_range));
    let t = database.create_transaction();
    let system = t.get("\u{7f}\u{7f}", false).await;
    assert_eq!(system, Ok(None), "an ordinary key");
    let t = database.create_transaction();
    let system = t.get(&b"\xff/conf"[..], false).await;
    assert_eq!(system.err(), Some(Error::key_outside_legal_range));
}

/// The errors of a read and of a commit at a read version that the client chose itself.
async fn at_version(database: &Database, version: i64) -> (Error, Error) {
    let limit = Duration::from_secs(10);
    let t = database.create_transaction();
    t.set_read_version(version);
    let read: Option<Result<_>> = timeout(limit, t.get("kept", false)).await;
    let t = database.create_transaction();
    t.set_read_version(version);
    t.add_read_conflict_key("kept");
    t.set("made", "up");
    let committed = timeout(limit, t.commit()).await;
    let (read, committed) = (read.expect("it ends"), committed.expect("it ends"));
    match (read, committed) {
        (Err(read), Err(committed)) => (read, committed),
        (read, committed) => panic!("at version {version}: read {read:?}, committed {committed:?}"),
    }
}

async fn versions_that_are_wrong(database: &Database, version: i64) {
    // A new database still has its first versions, so wait until they are too old.
    let forgotten = async {
        loop {
            let t = database.create_transaction();
            t.set_read_version(1);
            if t.get("kept", false).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let forgotten = timeout(Duration::from_secs(20), forgotten).await;
    forgotten.expect("old versions are forgotten");
    let too_old = at_version(database, 1).await;
    assert_eq!(
        too_old,
        (Error::transaction_too_old, Error::transaction_too_old)
    );
    for future in [version + 3_000_000_000, i64::MAX - 1] {
        let (read, committed) = at_version(database, future).await;
        assert_eq!(read, Error::future_version, "{future}");
        assert!(
            [
                Error::future_version,
                Error::transaction_too_old,
                Error::version_invalid
            ]
            .contains(&committed),
            "{future}: {committed:?}"
        );
    }
    for invalid in [0, -5] {
        let invalid = at_version(database, invalid).await;
        assert_eq!(invalid, (Error::version_invalid, Error::version_invalid));
    }
    let made = database.run(async |t| t.get("made", false).await).await;
    assert_eq!(
        made.expect("reads"),
        None,
        "a commit at a version that was made up"
    );
}

#[test]
fn a_cluster_file_that_is_wrong_is_named_with_what_is_wrong() {
    let directory = Directory::new("cluster-files");
    let file = directory.file("plinth.cluster");
    let data = directory.file("data");
    for (content, word) in [
        (&b""[..], "empty"),
        (b"# only a comment\n", "empty"),
        (b"\x00\xff\xfe garbage \x80", "not text"),
        (&[b'x'; 100_000], "too large"),
        (b"test:test@local host:4500\n", "local host:4500"),
        (b"test:test@db-0..db:4500\n", "db-0..db:4500"),
        (b"test:test@db-0.db:4500,127.0.0.1:4500\n", "in one form"),
        (b"test:test@127.0.0.1:70000\n", "127.0.0.1:70000"),
        (b"a:b@127.0.0.1:1\na:b@127.0.0.1:2\n", "more than one"),
    ] {
        std::fs::write(&file, content).expect("writes");
        for output in [
            plinth(&file, &["status"]),
            plinth(&file, &["cli", "--exec", "get a"]),
            server(&data, &file, &free_address()),
        ] {
            let line = error_line(&output);
            let named = line.contains(&*file.to_string_lossy()) && line.contains(word);
            assert!(named, "{word}: {line}");
        }
    }
    // A directory cannot be read as a file, not even by the superuser.
    let line = error_line(&plinth(&directory.0, &["status"]));
    assert!(line.contains("directory"), "{line}");
    let line = error_line(&server(&data, &directory.0, &free_address()));
    assert!(line.contains("directory"), "{line}");
    assert!(
        !data.exists(),
        "a server without a cluster file made its directory"
    );
}

#[test]
fn a_port_where_somebody_else_listens_is_named_with_what_it_did() {
    let directory = Directory::new("wrong-port");
    let file = directory.file("plinth.cluster");
    // One address that never answers, and one that sends another protocol.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent
        .local_addr()
        .map(|a| (a, silent))
        .expect("an address");
    let (talker, listener) = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        (listener.local_addr().expect("an address"), listener)
    };
    let talking = std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (address, word) in [(silent.0, "no answer"), (talker, "fails")] {
        std::fs::write(&file, format!("test:test@{address}\n")).expect("writes");
        let line = error_line(&plinth(
            &file,
            &["cli", "--timeout", "1", "--exec", "get a"],
        ));
        assert!(line.contains(&format!("{address} ({word}")), "{line}");
    }
    drop(talking); // the thread ends with the test

    // A server that is not a coordinator, and one of another cluster.
    let cluster = Cluster::start("wrong-port-cluster", 2, &["--engine", "memory"]);
    let text = std::fs::read_to_string(cluster.cluster_file()).expect("reads");
    let [first, second] = [0, 1].map(|i| cluster.addresses()[i].to_string());
    for (other, word) in [
        (text.replace(&first, &second), "not a coordinator"),
        (text.replace("dev:", "another:"), "another cluster"),
    ] {
        std::fs::write(&file, other).expect("writes");
        let line = error_line(&plinth(&file, &["status", "--timeout", "1"]));
        assert!(line.contains(word), "{line}");
    }
    assert!(cluster.cli("set a b; get a").contains("`a' is `b'"));
}

/// Asserts that a command failed with one line in which these words are.
fn named(output: &Output, words: &[&str]) {
    let line = error_line(output);
    assert!(
        words.iter().all(|word| line.contains(word)),
        "{words:?}: {line}"
    );
}

#[test]
fn a_place_that_cannot_be_a_data_directory_is_named() {
    let directory = Directory::new("data-directories");
    let file = directory.file("plinth.cluster");
    let listen = free_address();
    std::fs::write(&file, format!("test:test@{listen}\n")).expect("writes");
    // A file in place of the directory, or of a directory above it.
    named(
        &server(&file, &file, &listen),
        &["data directory", "plinth.cluster"],
    );
    named(
        &server(&file.join("below"), &file, &listen),
        &["data directory", "below"],
    );

    // A read-only file system: not even the superuser can write to it.
    let disk = SmallDisk::mount(&directory.file("read-only"), 4);
    disk.remount("ro");
    let output = disk
        .command(BINARY)
        .args(["server", "--listen", &listen, "--data-dir"])
        .arg(directory.file("read-only"))
        .arg("-C")
        .arg(&file)
        .output();
    named(
        &output.expect("it starts"),
        &["data directory", "its file system is read-only"],
    );
}

#[test]
fn a_data_directory_of_another_cluster_or_version_is_named_and_stays_as_it_is() {
    let directory = Directory::new("data-owners");
    let file = directory.file("plinth.cluster");
    let listen = free_address();
    std::fs::write(&file, format!("test:test@{listen}\n")).expect("writes");
    // The directory of another cluster: nothing in it changes.
    let mut cluster = Cluster::start("data-owner", 1, &["--engine", "memory"]);
    cluster.cli("set a b");
    cluster.stop();
    let data = cluster.directory.file(&cluster.first_port.to_string());
    let names = || {
        let names = std::fs::read_dir(&data).expect("a directory");
        let mut names: Vec<_> = names
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    };
    let before = names();
    named(
        &server(&data, &file, &listen),
        &["belongs to cluster dev:", "test:test"],
    );
    assert_eq!(names(), before);

    // A directory of an older version, whose checksum did not cover the format number.
    let owner = data.join("process");
    let written = std::fs::read(&owner).expect("a file");
    let body = &written[8..];
    let older = [
        &1u32.to_le_bytes()[..],
        &crc32c::crc32c(body).to_le_bytes(),
        body,
    ]
    .concat();
    std::fs::write(&owner, older).expect("writes");
    named(&server(&data, &file, &listen), &["has format", "dump"]);
    assert_eq!(names(), before);
    std::fs::write(&owner, &written).expect("writes");
    cluster.resume();
    assert!(cluster.cli("get a").contains("`a' is `b'"));
}

#[test]
fn dev_on_a_port_in_use_says_which_and_leaves_nothing_running() {
    let cluster = Cluster::start("dev-port", 1, &["--engine", "memory"]);
    let directory = Directory::new("dev-port-other");
    let output = Command::new(BINARY)
        .args([
            "dev",
            "--port",
            &cluster.first_port.to_string(),
            "--data-dir",
        ])
        .arg(&directory.0)
        .output()
        .expect("the binary was built");
    let said = error_line(&output);
    let line = format!(
        "cannot listen at 127.0.0.1:{} (--port): ",
        cluster.first_port
    );
    assert!(said.contains(&line), "{said}");
    assert!(cluster.cli("set a b; get a").contains("`a' is `b'"));
}

/// The command, whose output has no room, says so in one line.
fn has_no_room(arguments: &[&str]) {
    let full = || {
        let full = std::fs::File::options().write(true).open("/dev/full");
        full.expect("it is there")
    };
    let mut command = Command::new(BINARY);
    command.args(arguments).stdout(full());
    let output = command.stderr(Stdio::piped()).spawn();
    let output = output.and_then(std::process::Child::wait_with_output);
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let line = "plinth: standard output: no space is left on its disk; remove files there, or choose a place on \
                another disk\n";
    assert_eq!(text(&output.stderr), line, "{arguments:?}");
    // Nor has what it says of it.
    let mut command = Command::new(BINARY);
    command.args(arguments).stdout(full()).stderr(full());
    let status = command.status().expect("it runs");
    assert_eq!(status.code(), Some(1), "{arguments:?}");
}

#[test]
fn output_that_has_no_room_is_an_error_in_one_line() {
    let cluster = Cluster::start("full-output", 1, &["--engine", "memory"]);
    has_no_room(&["tools", "sim", "list"]);
    has_no_room(&["--help"]);
    let file = cluster.cluster_file().display().to_string();
    for form in [
        &["status"][..],
        &["cli", "--exec", "get a"],
        &["cli", "--json", "--exec", "get a"],
    ] {
        has_no_room(&[form, &["-C", &file]].concat());
    }
}

#[test]
fn a_command_whose_reader_has_gone_ends_without_a_word() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(BINARY)
        .args(["tools", "sim", "list"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("it runs");
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
}
