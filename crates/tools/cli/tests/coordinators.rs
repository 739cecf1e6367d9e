//! The coordinators of a running cluster of real processes are replaced by others.

use crate::common::{self, Cluster, Server};
use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_runtime::{Duration, now, real, sleep};
use std::cell::Cell;
use std::rc::Rc;

/// Limit of a commit's duration while the coordinators change.
const GAP_LIMIT: Duration = Duration::from_secs(5);

async fn commits_for_ever(database: Database, count: Rc<Cell<i64>>, longest: Rc<Cell<Duration>>) {
    loop {
        let (next, start) = (count.get() + 1, now());
        let written = database.run(async |t| {
            t.set("count", next.to_le_bytes());
            Ok(())
        });
        written.await.expect("the cluster serves");
        count.set(next);
        longest.set(longest.get().max(start.elapsed()));
        sleep(Duration::from_millis(2)).await;
    }
}

/// Asserts that a server that is not there, and the coordinator that is one already, change nothing.
async fn refuse_who_cannot_be_one(cluster: &Cluster, coordinator: &str) {
    let refused = cluster.say("coordinators 127.0.0.1:9").await;
    assert!(
        refused
            .line()
            .contains("127.0.0.1:9 cannot be a coordinator")
    );
    assert!(refused.line().contains("nothing has changed"));
    let same = cluster.say(format!("coordinators {coordinator}")).await;
    assert!(same.line().contains("already"), "{}", same.line());
}

/// Statements that name processes, for a controller that is new: it does not know all of them yet.
async fn name_all(cluster: &Cluster, addresses: [String; 4]) {
    let listed = cluster.say("kill list").await.text();
    let roles = ["commit_proxy".to_owned(), "log".to_owned()];
    for part in addresses.iter().chain(&roles) {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let classes = addresses
        .each_ref()
        .map(|address| format!("setclass {address} default; "));
    let [.., last] = addresses;
    let statements = format!("{}exclude no_wait {last}; include {last}", classes.concat());
    let done = cluster.say(statements).await.text();
    assert!(done.contains("Included"), "{done}");
}

async fn exchange() {
    let cluster = Cluster::stopped("coordinators", 4, &[]);
    cluster.write_cluster_file(1);
    let mut servers: Vec<Server> = (0..4).map(|i| Server(cluster.start_server(i))).collect();
    cluster.cli("configure new double memory logs=2");
    let old_file = std::fs::read(cluster.cluster_file()).expect("it is there");
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    let database = plinth_client::connect(file.expect("a cluster file"));
    let (count, longest) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(Duration::ZERO)));
    let writing = plinth_runtime::spawn(
        "writer",
        commits_for_ever(database.clone(), count.clone(), longest.clone()),
    );
    sleep(Duration::from_millis(300)).await;

    let address = |i: u16| format!("127.0.0.1:{}", cluster.first_port + i);
    refuse_who_cannot_be_one(&cluster, &address(0)).await;
    let others: Vec<String> = (1..4).map(address).collect();
    let others = others.join(" ");
    let said = cluster.say(format!("coordinators {others}")).await.text();
    assert!(
        said.contains("Coordinators changed: test:test_2@"),
        "{said}"
    );
    name_all(&cluster, [0, 1, 2, 3].map(address)).await;
    let shown = cluster.say("coordinators").await.text();
    assert!(shown.contains("Cluster coordinators (3)"), "{shown}");
    let before = count.get();
    sleep(Duration::from_millis(300)).await;
    assert!(count.get() > before, "commits go on");

    // A client that knows only the old coordinator is redirected, and so is a server that starts with the old file.
    std::fs::write(cluster.cluster_file(), &old_file).expect("can be written");
    // Even a short command updates its cluster file.
    let own = cluster.directory.file("own.cluster");
    std::fs::write(&own, &old_file).expect("can be written");
    common::say(&own, "get count").text();
    let written = std::fs::read_to_string(&own).expect("it is there");
    assert!(written.contains("test:test_2@"), "{written}");
    drop(servers.remove(1));
    servers.push(Server(cluster.start_server(1)));
    let kept = cluster.say("get count; coordinators").await.text();
    assert!(kept.contains("Cluster coordinators (3)"), "{kept}");
    // The old coordinator is no longer needed.
    drop(servers.remove(0));
    let before = count.get();
    while count.get() < before + 10 {
        sleep(Duration::from_millis(20)).await;
    }
    let said = cluster.say("coordinators auto").await.text();
    assert!(said.contains("stay"), "{said}");
    eprintln!("the longest commit took {:?}", longest.get());
    assert!(longest.get() < GAP_LIMIT, "{:?}", longest.get());

    drop(writing);
    let stored = database.run(async |t| t.get("count", false).await).await;
    let stored = stored.expect("reads").expect("it was written");
    let stored = i64::from_le_bytes(stored[..].try_into().expect("eight bytes"));
    assert!(
        stored >= count.get(),
        "{stored} is less than {}",
        count.get()
    );
}

#[test]
fn coordinators_are_exchanged_while_commits_go_on() {
    real::block_on(exchange());
}

/// A new controller knows some processes only. Nobody waits between these statements.
#[test]
fn the_best_coordinators_of_a_new_controller_are_not_fewer() {
    let cluster = Cluster::start("best-coordinators", 3, &["--replication", "double"]);
    let auto = |expected: usize| {
        let said = cluster.cli("coordinators auto");
        let count = said.matches("127.0.0.1:").count();
        assert!(
            said.contains("Coordinators changed") && count == expected,
            "{said}"
        );
    };
    for one in cluster.addresses() {
        cluster.cli(&format!("coordinators {one}"));
        auto(3);
    }
    let one = cluster.addresses()[0];
    cluster.cli(&format!("coordinators {one}"));
    let said = cluster.cli("configure triple");
    assert!(said.contains("Configuration changed"), "{said}");
    auto(3);
    cluster.cli("configure single");
    let refused = common::error_line(&cluster.plinth(&["cli", "--exec", "coordinators auto"]));
    for words in [
        "there are 3 coordinators",
        "would be 1",
        "`coordinators 127.0.0.1:",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    let kept = cluster.cli("coordinators");
    assert!(kept.contains("Cluster coordinators (3)"), "{kept}");
}
