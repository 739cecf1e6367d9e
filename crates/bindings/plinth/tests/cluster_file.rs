//! Handles over a network, by a cluster file: a server in this process, behind a socket.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // it has files and sockets of its own

use plinth::{DatabaseOption, Error, KeyRange, OpenOptions};
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::DatabaseConfig;
use plinth_rpc::Transport;
use plinth_runtime::real;
use plinth_server::{NotCreated, WorkerConfig, create_database, run_worker};
use std::path::{Path, PathBuf};

/// Starts a server and makes its database. Returns the path of the cluster file. The server ends with the process.
fn start(directory: &Path) -> PathBuf {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).expect("a directory");
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = socket.local_addr().expect("an address");
    drop(socket); // the server takes the port
    let text = format!("test:test@{listen}");
    let file = directory.join("plinth.cluster");
    std::fs::write(&file, &text).expect("written");
    let cluster = ClusterFile::parse(&text).expect("valid");
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
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_several_threads_is_one_database() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster-file");
    let file = tokio::task::block_in_place(|| start(&directory));
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
                Ok::<_, Error>(())
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
                Ok::<_, Error>((tr.get("sum").await?, rows.len()))
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
