//! Classes and knobs of real processes change while they run.

use crate::common::{Cluster, Server};
use plinth_client::{Database, Transaction};
use plinth_coordination::ClusterFile;
use plinth_core::Result;
use plinth_runtime::{Duration, Task, now, real, sleep};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// The status of the process at this address: its class, the source of the class, and its roles. `None` as long as a
/// new controller has not heard of it.
fn process(status: &Value, address: &str) -> Option<(String, String, Vec<String>)> {
    let processes = status["processes"].as_object().expect("all");
    let found = processes.values().find(|p| p["address"] == address)?;
    let text = |value: &Value| value.as_str().expect("text").to_string();
    let roles = found["roles"].as_array().expect("a list").iter();
    Some((
        text(&found["class_type"]),
        text(&found["class_source"]),
        roles.map(|role| text(&role["role"])).collect(),
    ))
}

async fn wait_until_so(cluster: &Cluster, what: &str, so: impl Fn(&Value) -> bool) {
    let start = now();
    loop {
        let status = cluster.status().await;
        if so(&status) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "not {what}: {status:#}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Number of watches that the storage servers hold.
async fn watches_held(cluster: &Cluster) -> u64 {
    let status = cluster.status().await;
    let servers = status["storage_servers"].as_array().expect("a list").iter();
    servers
        .filter_map(|server| server["watches"].as_u64())
        .sum()
}

const WATCHED: &str = "watched";

/// Sets some watches; returns whether the servers hold them half a second later.
async fn watch_more(
    cluster: &Cluster,
    database: &Database,
    watches: &mut Vec<Task<Result<()>>>,
) -> bool {
    const MORE: u64 = 4;
    let before = watches_held(cluster).await;
    for _ in 0..MORE {
        let made = database.run(async |tr| Ok(tr.watch(WATCHED))).await;
        let watch = made.expect("it commits");
        watches.push(plinth_runtime::spawn("watch", watch));
    }
    sleep(Duration::from_millis(500)).await;
    watches_held(cluster).await >= before + MORE
}

async fn change_classes(cluster: &Cluster, address: impl Fn(u16) -> String) {
    let stateless = format!("setclass {} stateless", address(2));
    let said = cluster.say(&stateless).await.text();
    assert!(said.contains("is stateless"), "{said}");
    let listed = cluster.say("setclass").await.text();
    let line = format!("{}: stateless (set by setclass)", address(2));
    assert!(listed.contains(&line), "{listed}");
    wait_until_so(cluster, "only stateless", |status| {
        let Some((class, source, roles)) = process(status, &address(2)) else {
            return false;
        };
        let keeps = |role: &String| role == "storage" || role == "log";
        (&class[..], &source[..]) == ("stateless", "set_class")
            && !roles.iter().any(keeps)
            && roles.iter().any(|role| role == "master")
    })
    .await;

    let refused = cluster
        .say(&format!("setclass {} tester", address(1)))
        .await;
    let line = refused.line();
    assert!(
        line.contains("double wants storage servers in 2 zones"),
        "{line}"
    );
    let refused = cluster.say("setclass 127.0.0.1:1 log").await.line();
    assert!(refused.contains("no process of this cluster is at 127.0.0.1:1"));
    let refused = cluster.say(&format!("setclass {} king", address(1))).await;
    assert!(refused.line().contains("setclass: there is no `king'"));

    cluster
        .say(&format!("setclass {} default", address(2)))
        .await
        .text();
    wait_until_so(cluster, "unset", |status| {
        let Some((class, source, roles)) = process(status, &address(2)) else {
            return false;
        };
        (&class[..], &source[..]) == ("unset", "command_line")
            && roles.iter().any(|role| role == "storage")
    })
    .await;
}

async fn change_knobs(cluster: &Cluster, database: &Database) {
    let epoch = cluster.status().await["generation"].clone();
    let mut watches = Vec::new();
    assert!(watch_more(cluster, database, &mut watches).await);
    let said = cluster.say("setknob watches_max 1").await.text();
    assert!(said.contains("watches_max is 1"), "{said}");
    let start = now();
    while watch_more(cluster, database, &mut watches).await {
        assert!(start.elapsed() < LIMIT, "the knob has no effect");
    }
    let listed = cluster.say("getknob watches_max").await.text();
    assert!(listed.contains("watches_max: 1 (the default is 10000)"));
    let status = cluster.status().await;
    assert_eq!(status["knobs"]["watches_max"], "1");
    assert_eq!(status["generation"], epoch, "without a recovery");

    for (wrong, why) in [
        ("setknob watches_max 0", "from 1 to"),
        ("setknob watches_max many", "is not a"),
        ("setknob no_such 1", "there is no knob"),
        ("getknob no_such", "there is no knob"),
    ] {
        let line = cluster.say(wrong).await.line();
        assert!(line.contains(why), "{wrong}: {line}");
    }
    cluster.say("clearknob watches_max").await.text();
    while !watch_more(cluster, database, &mut watches).await {
        assert!(start.elapsed() < LIMIT, "the knob stays");
    }
    // Watches that no server held fire as well.
    let change = async |tr: Transaction| {
        tr.set(WATCHED, "changed");
        Ok(())
    };
    database.run(change).await.expect("it commits");
    for told in plinth_runtime::join_all(watches).await {
        assert_eq!(told, Ok(()));
    }
}

async fn change() {
    let cluster = Cluster::stopped("settings", 3, &[]);
    cluster.write_cluster_file(1);
    let _servers: Vec<Server> = (0..3).map(|i| Server(cluster.start_server(i))).collect();
    cluster
        .say("configure new double memory logs=2")
        .await
        .text();
    // Two processes are enough for a new database, so wait until the third has joined.
    let all_are_there = |status: &Value| {
        let processes = status["processes"].as_object();
        processes.is_some_and(|processes| processes.len() == 3)
    };
    wait_until_so(&cluster, "complete", all_are_there).await;
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    let database = plinth_client::connect(file.expect("a cluster file"));
    let first_port = cluster.first_port;
    change_classes(&cluster, |i| format!("127.0.0.1:{}", first_port + i)).await;
    change_knobs(&cluster, &database).await;
}

#[test]
fn classes_and_knobs_change_while_processes_run() {
    real::block_on(change());
}
