//! A cluster of real processes that grows and shrinks while it is used.

use crate::common::{self, Cluster, SMALL_SHARDS, Server};
use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_core::Result;
use plinth_runtime::{Duration, now, real, sleep};
use serde_json::Value;

const ROWS: usize = 6000;
const ROW_BYTES: usize = 4000;
const LIMIT: Duration = Duration::from_secs(120);

fn key(i: usize) -> String {
    format!("row{i:06}")
}

fn value(i: usize) -> Vec<u8> {
    (0..ROW_BYTES).map(|at| (i * 31 + at * 7) as u8).collect()
}

async fn open(cluster: &Cluster) -> Database {
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    plinth_client::connect(file.expect("a cluster file"))
}

async fn load(database: &Database) {
    for first in (0..ROWS).step_by(100) {
        let written = database.run(async |t| {
            (first..first + 100).for_each(|i| t.set(key(i), value(i)));
            Ok(())
        });
        written.await.expect("the cluster serves");
    }
}

async fn check(database: &Database) {
    for first in (0..ROWS).step_by(100) {
        let read = database.run(async |t| {
            let gets = (first..first + 100).map(|i| t.get(key(i), false));
            let values = plinth_runtime::join_all(gets).await;
            values.into_iter().collect::<Result<Vec<_>>>()
        });
        let values = read.await.expect("the cluster serves");
        for (i, found) in (first..).zip(values) {
            assert_eq!(found.as_deref(), Some(&value(i)[..]), "row {i}");
        }
    }
}

/// Estimated bytes of keys and values on each storage server, and whether all replicas are present.
fn stored(cluster: &Cluster) -> (Vec<u64>, bool) {
    let text = common::text(&cluster.plinth(&["status", "--json"]).stdout);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let full = document["cluster"]["full_replication"] == true;
    let servers = document["cluster"]["storage_servers"].as_array();
    let bytes = |server: &Value| server["stored_bytes"].as_u64().unwrap_or(0);
    let bytes = servers.map_or(vec![], |servers| servers.iter().map(bytes).collect());
    (bytes, full)
}

/// Waits until `count` servers hold about the same amount, and all replicas are present.
async fn wait_until_even(cluster: &Cluster, count: usize, copies: usize) {
    let started = now();
    loop {
        let (stored, full) = stored(cluster);
        let mean = (ROWS * ROW_BYTES * copies / count) as f64;
        let even = |bytes: &u64| (*bytes as f64 / mean - 1.0).abs() < 0.3;
        if full && stored.len() == count && stored.iter().all(even) {
            eprintln!(
                "{count} servers are even after {:?}: {stored:?}",
                started.elapsed()
            );
            return;
        }
        assert!(
            started.elapsed() < LIMIT,
            "{count} servers, {copies} copies: {stored:?}"
        );
        sleep(Duration::from_millis(500)).await;
    }
}

fn join(cluster: &Cluster, i: u16) -> Server {
    Server(cluster.start_server_with(i, &SMALL_SHARDS))
}

async fn grow_and_shrink() {
    let cluster = Cluster::stopped("growth", 5, &[]);
    cluster.write_cluster_file(1);
    let mut servers = vec![join(&cluster, 0)];
    cluster.cli("configure new single memory logs=1");
    let database = open(&cluster).await;
    load(&database).await;
    for i in 1..4 {
        servers.push(join(&cluster, i));
        wait_until_even(&cluster, usize::from(i) + 1, 1).await;
    }
    check(&database).await;

    let said = cluster.cli("configure double");
    assert!(said.contains("Configuration changed"), "{said}");
    wait_until_even(&cluster, 4, 2).await;

    // One server leaves after it was excluded, one without notice.
    let said = cluster.cli(&format!("exclude 127.0.0.1:{}", cluster.first_port + 3));
    assert!(said.contains("nothing is left"), "{said}");
    drop(servers.remove(3));
    wait_until_even(&cluster, 3, 2).await;
    check(&database).await;
    drop(servers.remove(2));
    wait_until_even(&cluster, 2, 2).await;
    check(&database).await;

    let refused = cluster.cli_fails("configure triple");
    assert!(refused.contains("3 zones"), "{refused}");
    let said = cluster.cli("configure ssd");
    assert!(said.contains("Configuration changed"), "{said}");
    wait_until_engine_is(&cluster, "ssd").await;
    check(&database).await;
}

/// Waits until every server has been replaced by one with the other engine.
async fn wait_until_engine_is(cluster: &Cluster, engine: &str) {
    let started = now();
    loop {
        let text = common::text(&cluster.plinth(&["status", "--json"]).stdout);
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let servers = document["cluster"]["storage_servers"].as_array();
        let servers = servers.expect("a list");
        if servers.len() == 2 && servers.iter().all(|server| server["engine"] == engine) {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{servers:?}");
        sleep(Duration::from_millis(500)).await;
    }
}

#[test]
fn a_cluster_grows_from_one_server_and_shrinks_again_and_changes_its_engine() {
    real::block_on(grow_and_shrink());
}
