//! Large but legal work must not block others. Transactions of 9 MB run at the same time, of few large rows and of
//! many small ones; then a large range is cleared. This must end no epoch, leave no commit in doubt, and block no
//! event loop.
//!
//! `PLINTH_LARGE_TRANSACTIONS` sets the number of concurrent transactions, `PLINTH_LARGE_ROWS` the number of cleared
//! rows. `make large` uses twenty and three million, with optimised code; `make test` uses twenty and fewer rows.
//! Three unoptimised servers and a client on two cores have turns so long that servers fall silent. They are busy
//! then, and must not be taken for dead.

use crate::common::{Cluster, number_from};
use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_core::{Error, Result};
use plinth_runtime::{join_all, real};

const SERVERS: u16 = 3;
const DEFAULT_ROWS: usize = 150_000;
const ROWS_PER_TRANSACTION: usize = 5000;
const DEFAULT_TRANSACTIONS: usize = 20;
const LARGE_BYTES: usize = 9_000_000;
/// Limit of processor time for one turn of a task. Processor time does not depend on other users of the machine.
/// Unoptimised code gets five times as much.
const TURN_MILLISECONDS_MAX: u64 = if cfg!(debug_assertions) { 250 } else { 50 };

async fn load(database: &Database, rows: usize) {
    for first in (0..rows).step_by(ROWS_PER_TRANSACTION) {
        let written = database.run(async |t| {
            for row in first..rows.min(first + ROWS_PER_TRANSACTION) {
                t.set(format!("row/{row:08}"), [b'.'; 20]);
            }
            Ok(())
        });
        written.await.expect("the cluster serves");
    }
}

/// Optimised code must commit all transactions within the five seconds of a read version. Other code may retry, but
/// only for that reason: no commit may be left in doubt.
async fn commit_large(database: &Database, number: usize) {
    loop {
        match try_to_commit_large(database, number).await {
            Err(Error::transaction_too_old) if cfg!(debug_assertions) => {
                eprintln!("  transaction {number} took more than five seconds");
            }
            tried => return tried.unwrap_or_else(|e| panic!("transaction {number}: {e}")),
        }
    }
}

async fn try_to_commit_large(database: &Database, number: usize) -> Result<()> {
    let value_bytes = if number.is_multiple_of(2) {
        100_000
    } else {
        60
    };
    let row_bytes = value_bytes + if number.is_multiple_of(2) { 100 } else { 90 };
    let transaction = database.create_transaction();
    for row in 0..LARGE_BYTES / row_bytes {
        transaction.set(
            format!("large/{number:02}/{row:06}"),
            vec![b'x'; value_bytes],
        );
    }
    transaction.commit().await
}

async fn epoch(cluster: &Cluster) -> u64 {
    let status = cluster.status().await;
    let logs = status["log_servers"].as_array().expect("a list");
    let epochs = logs.iter().filter_map(|log| log["epoch"].as_u64());
    epochs.max().expect("one answers")
}

/// Trace lines of the servers that report a task with too long a turn.
fn slow_tasks(cluster: &Cluster) -> Vec<String> {
    let mut slow = Vec::new();
    for i in 0..SERVERS {
        let name = format!("{}/trace.jsonl", cluster.first_port + i);
        let text = std::fs::read_to_string(cluster.directory.file(&name)).expect("a trace");
        for line in text.lines().filter(|line| line.contains("\"SlowTask\"")) {
            let event: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
            let ran = event["ran_milliseconds"].to_string();
            let ran: u64 = ran.trim_matches('"').parse().expect("a number");
            eprintln!("  {line}");
            if ran > TURN_MILLISECONDS_MAX {
                slow.push(line.to_string());
            }
        }
    }
    slow
}

async fn large_work(engine: &str) {
    let rows = number_from("PLINTH_LARGE_ROWS", DEFAULT_ROWS);
    let more = ["--replication", "triple", "--engine", engine];
    let cluster = Cluster::start(&format!("large-{engine}"), SERVERS, &more);
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    let database = plinth_client::connect(file.expect("a cluster file"));
    load(&database, rows).await;
    let before = epoch(&cluster).await;
    eprintln!("large transactions");
    let transactions = 0..number_from("PLINTH_LARGE_TRANSACTIONS", DEFAULT_TRANSACTIONS);
    join_all(transactions.map(|number| commit_large(&database, number))).await;
    eprintln!("a large clear");
    let clearing = database.create_transaction();
    clearing.clear_range("row/", "row0");
    clearing.commit().await.expect("the cluster serves");
    // Later reads wait for the work that the clear causes on the storage servers.
    let after = database.run(async |t| t.get("row/00000000", false).await);
    assert_eq!(after.await.expect("reads"), None);
    // Time for the clear to become durable.
    plinth_runtime::sleep(plinth_runtime::Duration::from_secs(8)).await;
    assert_eq!(epoch(&cluster).await, before, "an epoch has ended");
    let slow = slow_tasks(&cluster);
    assert!(slow.is_empty(), "{slow:#?}");
}

/// One engine after the other: two clusters at once would compete for the processors.
#[test]
fn large_transactions_and_clears_hold_up_no_loop_and_end_no_epoch() {
    real::block_on(large_work("ssd"));
    real::block_on(large_work("memory"));
}
