//! Transactions with one tag are throttled, with a real process.

use crate::common::Cluster;
use plinth_client::{Database, TransactionOption};
use plinth_coordination::ClusterFile;
use plinth_core::transaction_tag::TransactionTag;
use plinth_runtime::{Duration, real, sleep};
use std::cell::Cell;
use std::rc::Rc;

const RATE: u64 = 20;
const MEASURED: Duration = Duration::from_secs(3);

async fn work(database: Database, tag: &'static str, count: Rc<Cell<u64>>) {
    let tag = TransactionTag::new(tag.as_bytes()).expect("short");
    loop {
        let done = database.run(async |t| {
            t.set_option(TransactionOption::Tag(tag))?;
            t.get("key", false).await
        });
        done.await.expect("the cluster serves");
        count.set(count.get() + 1);
        // A pause, so that this client does not take the only core from the server.
        sleep(Duration::from_millis(1)).await;
    }
}

/// Number of transactions of each kind in `MEASURED`.
async fn measure(counts: &[Rc<Cell<u64>>; 2]) -> [u64; 2] {
    let before = counts.clone().map(|count| count.get());
    sleep(MEASURED).await;
    [0, 1].map(|i| counts[i].get() - before[i])
}

async fn throttle() {
    let cluster = Cluster::start("throttle", 1, &[]);
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    let database = plinth_client::connect(file.expect("a cluster file"));
    let counts = [Rc::new(Cell::new(0)), Rc::new(Cell::new(0))];
    let tasks = plinth_runtime::TaskGroup::new();
    for (tag, count) in ["slow", "free"].into_iter().zip(&counts) {
        for _ in 0..4 {
            tasks.spawn("client", work(database.clone(), tag, count.clone()));
        }
    }
    let [before, _] = measure(&counts).await;
    assert!(
        before > RATE * 10,
        "{before} in {MEASURED:?} without a limit"
    );

    let said = cluster
        .say("throttle on tag slow 20 60 default \"a test\"")
        .await;
    assert!(said.text().contains("`slow' is throttled"));
    sleep(Duration::from_secs(2)).await; // the throttle is read once a second
    let [slow, free] = measure(&counts).await;
    let fair = RATE * MEASURED.as_secs();
    assert!(
        (fair / 2..=fair * 3 / 2).contains(&slow),
        "{slow} of {fair}"
    );
    assert!(free > slow * 5, "{free} others beside {slow}");
    let listed = cluster.say("throttle list").await.text();
    assert!(
        listed.contains("`slow': 20 transactions/s of default priority"),
        "{listed}"
    );
    assert!(
        listed.contains("a test") && listed.contains("Automatic throttling is on"),
        "{listed}"
    );
    let status = cluster.say("status").await.text();
    assert!(status.contains("tags throttled: 1 by hand"), "{status}");

    let wrong = cluster.say("throttle on tag seventeen-letters").await;
    assert!(wrong.line().contains("at most 16 bytes"));
    let nobody = cluster.say("throttle off tag other").await;
    assert!(nobody.line().contains("no such tag"));
    let said = cluster.say("throttle off").await;
    assert!(said.text().contains("Throttles ended: 1"));
    sleep(Duration::from_secs(2)).await;
    let [after, _] = measure(&counts).await;
    assert!(
        after > fair * 3,
        "{after} after the throttle was taken away"
    );
}

#[test]
fn a_throttled_tag_gets_its_rate_and_others_go_on() {
    real::block_on(throttle());
}
