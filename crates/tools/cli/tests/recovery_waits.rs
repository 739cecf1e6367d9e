//! A recovery that cannot continue reports the condition that it waits for, in the status and in the errors of
//! clients.

use crate::common::{self, Cluster, Server};
use plinth_runtime::{Duration, now, real, sleep};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the status contains `wanted`; then checks that a client's error line does.
async fn is_said(cluster: &Cluster, wanted: &[&str]) {
    // Long lines of the status are wrapped.
    let unwrapped = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let names_all = |text: &str| wanted.iter().all(|part| unwrapped(text).contains(part));
    let start = now();
    loop {
        let status = common::text(&cluster.plinth(&["status"]).stdout);
        if names_all(&status) {
            break;
        }
        assert!(start.elapsed() < LIMIT, "not {wanted:?}: {status}");
        sleep(Duration::from_millis(200)).await;
    }
    let line = common::error_line(&cluster.plinth(&["cli", "--timeout", "2", "--exec", "get a"]));
    assert!(names_all(&line), "{line}");
}

async fn wait_and_go_on() {
    let cluster = Cluster::stopped("recovery-waits", 3, &[]);
    cluster.write_cluster_file(1);
    let address = |i: u16| format!("127.0.0.1:{}", cluster.first_port + i);
    let _first = Server(cluster.start_server(0));
    let creating = async {
        // One process is not enough for two replicas.
        is_said(
            &cluster,
            &[
                "recruiting_storage, waits for",
                "in 2 different zones",
                "1 processes 1 may, in 1",
            ],
        )
        .await;
    };
    plinth_runtime::race(cluster.say("configure new double memory logs=2"), creating).await;
    let mut servers: Vec<Server> = (1..3).map(|i| Server(cluster.start_server(i))).collect();
    cluster.say("configure new double memory logs=2").await;
    cluster.say("set a b").await.text();
    let said = cluster
        .say(format!("setclass {} stateless", address(0)))
        .await;
    assert!(said.text().contains("is stateless"));
    let start = now();
    loop {
        let status = cluster.status().await;
        let logs = status["log_servers"].as_array().map_or(0, Vec::len);
        let moved = status["data"]["state"]["name"] == "healthy";
        if logs == 2 && moved && !status["log_servers"].to_string().contains(&address(0)) {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{status:#}");
        sleep(Duration::from_millis(200)).await;
    }

    servers.clear();
    is_said(
        &cluster,
        &[
            "sealing_old_logs, waits for",
            "do not answer",
            &address(1),
            &address(2),
        ],
    )
    .await;
    servers.push(Server(cluster.start_server(1)));
    is_said(
        &cluster,
        &[
            "recruiting_transaction_system, waits for",
            "hold logs in 2 different zones",
            "of 2 processes 1 may, in 1",
        ],
    )
    .await;
    servers.push(Server(cluster.start_server(2)));
    assert!(cluster.say("get a").await.text().contains('b'));
}

#[test]
fn a_recovery_that_cannot_go_on_says_what_it_waits_for() {
    real::block_on(wait_and_go_on());
}
