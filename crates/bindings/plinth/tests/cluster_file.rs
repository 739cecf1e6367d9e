//! Handles over a network, by a cluster file: a server in this process, behind a socket.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // it has files and sockets of its own

use plinth::{DatabaseOption, Error, KeyRange, OpenOptions};
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::DatabaseConfig;
use plinth_rpc::Transport;
use plinth_runtime::real;
use plinth_server::{NotCreated, WorkerConfig, create_database, run_worker};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// An empty directory with a cluster file, whose coordinator is not there yet, and where that will be.
fn prepare(name: &str) -> (PathBuf, PathBuf, SocketAddr) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory");
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = socket.local_addr().expect("an address");
    drop(socket); // the server takes the port
    let file = directory.join("plinth.cluster");
    std::fs::write(&file, format!("test:test@{listen}")).expect("written");
    (directory, file, listen)
}

/// Starts a server there and makes its database. The server ends with the process.
fn start(directory: &Path, listen: SocketAddr) {
    let cluster = ClusterFile::parse(&format!("test:test@{listen}")).expect("valid");
    let config = WorkerConfig::new(listen, directory.join("data"), cluster.clone());
    drop(real::spawn_worker("server", || run_worker(config)));
    let made = real::block_on(async move {
        let coordinators = Coordinators::from(cluster);
        create_database(
            &Transport::client(),
            &coordinators,
            DatabaseConfig::default(),
        )
        .await
    });
    assert!(matches!(made, Ok(()) | Err(NotCreated::Exists)), "{made:?}");
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The lines about this file, from the first call in this process on.
fn lines_about(file: &Path) -> Vec<String> {
    static IS_SET: Once = Once::new();
    IS_SET.call_once(|| {
        plinth::set_log(|line| LOG.lock().expect("no panic").push(line.to_owned()));
    });
    let name = file.to_str().expect("a text");
    let lines = LOG.lock().expect("no panic");
    let about = lines.iter().filter(|line| line.contains(name));
    about.cloned().collect()
}

/// The same lines, once there are `count`.
async fn wait_for_lines(file: &Path, count: usize) -> Vec<String> {
    let waiting = async {
        loop {
            let lines = lines_about(file);
            if lines.len() >= count {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waiting = tokio::time::timeout(Duration::from_secs(60), waiting);
    waiting.await.expect("they come")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_several_threads_is_one_database() {
    let (directory, file, listen) = prepare("cluster-file");
    tokio::task::block_in_place(|| start(&directory, listen));
    let open = OpenOptions::new().cluster_file(&file).threads(3);
    let db = open.open().await.expect("it opens");
    db.create_tenant("t").await.expect("there is none");
    let tenant = db.open_tenant("t");
    let tasks = (0..60).map(|task: i64| {
        let at = [&db, &tenant][task as usize % 2].clone();
        tokio::spawn(async move {
            at.run(async |tr| {
                tr.add("sum", task);
                tr.set(plinth::tuple::pack((task,)), "");
                Ok(())
            })
            .await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it ends").expect("it commits");
    }
    for (at, sum) in [(&db, 29 * 30), (&tenant, 30 * 30)] {
        // On each of the threads.
        for _ in 0..3 {
            let read = at.run(async |tr| {
                let numbers = KeyRange::new(plinth::tuple::pack((0,)), "sum");
                let rows = tr.range(numbers).all().await?;
                Ok((tr.get("sum").await?, rows.len()))
            });
            let sum = i64::to_le_bytes(sum);
            let found = read.await.expect("reads");
            let found = (found.0.as_deref(), found.1);
            assert_eq!(found, (Some(&sum[..]), 30));
        }
    }
    // An option holds on each thread.
    db.set_option(DatabaseOption::TransactionSizeLimit(100))
        .await
        .expect("set");
    for _ in 0..3 {
        let tr = db.create_transaction();
        tr.set("a", [0; 200]);
        assert_eq!(tr.commit().await, Err(Error::transaction_too_large));
    }
    db.close().await;
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_bounded_by_a_time_out() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nobody.cluster");
    std::fs::write(&file, "test:test@127.0.0.1:1").expect("written");
    let db = plinth::Database::open(&file)
        .await
        .expect("nothing is asked yet");
    db.set_option(DatabaseOption::TransactionTimeout(50))
        .await
        .expect("set");
    let read = db.run(async |tr| tr.get("a").await).await;
    assert_eq!(read, Err(Error::transaction_timed_out));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_a_cluster_are_told_of_once_and_so_is_its_return() {
    let (directory, file, listen) = prepare("away");
    assert!(lines_about(&file).is_empty());
    let open = OpenOptions::new().cluster_file(&file).threads(3);
    let db = open.open().await.expect("nothing is asked yet");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(lines_about(&file).is_empty(), "nobody waits");
    // On each of the threads.
    let reads = (0..6).map(|_| {
        let db = db.clone();
        tokio::spawn(async move { db.run(async |tr| tr.get("a").await).await })
    });
    let reads: Vec<_> = reads.collect();
    let asked = std::time::Instant::now();
    let lines = wait_for_lines(&file, 1).await;
    assert!(asked.elapsed() > Duration::from_secs(1));
    let coordinator = format!("{listen} (cannot be reached)");
    assert!(lines[0].ends_with(&coordinator), "{lines:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    tokio::task::block_in_place(|| start(&directory, listen));
    for read in reads {
        assert_eq!(read.await.expect("it ends"), Ok(None));
    }
    let lines = wait_for_lines(&file, 2).await;
    assert!(lines[1].ends_with("requests reach the cluster again"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(lines_about(&file), lines);
    db.close().await;
}

#[tokio::test]
async fn an_error_of_opening_has_a_code_and_keeps_its_line_in_the_log() {
    async fn open(file: &Path) -> plinth::Result<()> {
        let db = plinth::Database::open(file).await?;
        db.run(async |tr| {
            tr.set("a", "b");
            Ok(())
        })
        .await
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-opened");
    std::fs::create_dir_all(&directory).expect("a directory");
    for (name, content, keys, error) in [
        ("missing", None, None, Error::no_cluster_file_found),
        (
            "words",
            Some("words"),
            None,
            Error::connection_string_invalid,
        ),
        (
            "keys",
            Some("a:b@127.0.0.1:1"),
            Some("words"),
            Error::file_not_readable,
        ),
        ("tls", Some("a:b@127.0.0.1:1:tls"), None, Error::tls_error),
    ] {
        let file = directory.join(name).with_extension("cluster");
        for (path, content) in [(&file, content), (&file.with_extension("keys"), keys)] {
            if let Some(content) = content {
                std::fs::write(path, content).expect("written");
            }
        }
        let stem = file.with_extension("");
        let before = lines_about(&stem).len();
        let line = plinth::Database::open(&file).await.err().expect(name);
        assert_eq!((line.error(), lines_about(&stem).len()), (error, before));
        assert_eq!(open(&file).await, Err(error), "{line}");
        assert_eq!(lines_about(&stem)[before..], [line.to_string()]);
    }
}
