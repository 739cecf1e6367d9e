//! Disks of two of three servers are not mounted at a boot, somebody creates a database over the empty directories,
//! and then a server comes back with the disk of the former database.

use crate::common::{Cluster, Server, copy_directory};
use plinth_runtime::{Duration, now, real, sleep};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

const LIMIT: Duration = Duration::from_secs(60);

/// Files of log servers and of storage servers in a directory.
fn data(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let names = entries.map(|entry| {
        let name = entry.expect("it can be listed").file_name();
        name.to_string_lossy().into_owned()
    });
    let of_roles = |name: &String| name.starts_with("log-") || name.starts_with("storage-");
    names.filter(of_roles).collect()
}

async fn end_of(mut server: Child) -> ExitStatus {
    let start = now();
    loop {
        if let Some(status) = server.try_wait().expect("it is ours") {
            return status;
        }
        assert!(start.elapsed() < LIMIT, "it goes on");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Creates a database, which is refused at first, since a coordinator does not answer.
async fn create_without(cluster: &Cluster, missing: &str) {
    let unwrapped = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = now();
    loop {
        let status = unwrapped(crate::common::text(&cluster.plinth(&["status"]).stdout));
        if status.contains(&format!("not created; {missing} cannot be reached")) {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{status}");
        sleep(Duration::from_millis(200)).await;
    }
    let refused = cluster.cli_fails("configure new double ssd");
    assert!(
        refused.contains(&format!("{missing} cannot be reached")),
        "{refused}"
    );
    assert!(refused.contains("configure new … force"), "{refused}");
    cluster.cli("configure new double ssd force; set a new");
}

async fn a_disk_comes_back(name: &str, epochs: u32) {
    let cluster = Cluster::stopped(name, 3, &[]);
    cluster.write_cluster_file(3);
    let start = |i: u16| Server(cluster.start_server(i));
    let directory = |i: u16| -> PathBuf {
        let name = (cluster.first_port + i).to_string();
        cluster.directory.file(&name)
    };
    let first = format!("127.0.0.1:{}", cluster.first_port);
    let servers: Vec<Server> = (0..3).map(start).collect();
    cluster.cli("configure new triple ssd; set a former; set b former");
    for number in 0..epochs {
        cluster.cli(&format!(
            "configure resolvers={}; waitopen; set c former",
            2 + number % 2
        ));
    }
    // The epoch is written down beside the work.
    sleep(Duration::from_secs(1)).await;
    drop(servers);
    let kept = data(&directory(0));
    assert!(kept.len() >= 2, "{kept:?}");
    for i in [1, 2] {
        let aside = cluster.directory.file(&format!("unmounted-{i}"));
        std::fs::rename(directory(i), aside).expect("it is ours");
    }

    let others: Vec<Server> = [1, 2].map(start).into();
    create_without(&cluster, &first).await;

    // The server of the former database keeps its files, ends, and says why.
    for _ in 0..2 {
        let ended = end_of(cluster.start_server(0)).await;
        assert!(!ended.success(), "{ended}");
        let said = cluster.server_said(0);
        for words in [
            "belongs to database",
            "this cluster file leads to database",
            "Two databases of one cluster in docs/operating.md",
            &directory(0).display().to_string(),
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("has joined"), "{said}");
        let left = data(&directory(0));
        assert!(left.is_superset(&kept), "{left:?} of {kept:?}");
    }
    assert!(cluster.cli("get a; get b").contains("new"));
    // A recovery asks the coordinators again, also the one that holds the former database.
    cluster.cli("configure resolvers=2; waitopen; set a newest");
    drop(others);

    // All the former disks again: the former database.
    for i in [1, 2] {
        let aside = cluster.directory.file(&format!("new-{i}"));
        std::fs::rename(directory(i), aside).expect("it is ours");
        let unmounted = cluster.directory.file(&format!("unmounted-{i}"));
        copy_directory(&unmounted, &directory(i));
    }
    let _servers: Vec<Server> = (0..3).map(start).collect();
    let read = cluster.cli("waitopen; get a; get b");
    assert_eq!(read.matches("former").count(), 2, "{read}");
}

#[test]
fn a_server_of_a_former_database_neither_empties_itself_nor_joins_the_new_one() {
    real::block_on(a_disk_comes_back("former-database", 0));
}

#[test]
fn a_former_database_of_a_later_epoch_does_not_take_the_place_of_the_new_one() {
    real::block_on(a_disk_comes_back("later-former-database", 4));
}
