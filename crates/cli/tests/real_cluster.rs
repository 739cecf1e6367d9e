//! Real processes on real sockets and disks, killed with signal 9 while checked transactions run; and files in and out.

mod common;

use common::{Cluster, Directory, error_line, plinth, text};
use plinth_client::{Database, RangeOptions};
use plinth_coordination::ClusterFile;
use plinth_core::{KeySelector, Result};
use plinth_runtime::{Duration, now, random, sleep};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const ACCOUNTS: u64 = 50;
const OPENING: i64 = 100;
const WORKERS: usize = 8;
/// The first new commit after a kill must come within this, whoever was killed.
const RECOVERY_LIMIT: Duration = Duration::from_secs(20);

fn number(value: Option<bytes::Bytes>) -> i64 {
    value.map_or(0, |v| {
        i64::from_le_bytes(v[..].try_into().expect("eight bytes"))
    })
}

fn account(i: u64) -> String {
    format!("account/{i:02}")
}

/// One transfer, and a receipt with it: done once, however often it is tried.
async fn transfer(database: &Database, worker: usize, receipt: i64) -> Result<()> {
    let key = format!("receipt/{worker}");
    let (from, to, amount) = (
        random::below(ACCOUNTS),
        random::below(ACCOUNTS),
        random::below(20) as i64,
    );
    let moved = database.run(async |t| {
        if number(t.get(&*key, false).await?) == receipt {
            return Ok(());
        }
        t.set(&key, receipt.to_le_bytes());
        if from == to {
            return Ok(());
        }
        let a = number(t.get(account(from), false).await?);
        let b = number(t.get(account(to), false).await?);
        t.set(account(from), (a - amount).to_le_bytes());
        t.set(account(to), (b + amount).to_le_bytes());
        Ok(())
    });
    moved.await
}

async fn sum(database: &Database) -> Result<i64> {
    let read = database.run(async |t| {
        let begin = KeySelector::first_greater_or_equal("account/");
        let end = KeySelector::first_greater_or_equal("account0");
        t.get_range_all(begin, end, RangeOptions::default(), false)
            .await
    });
    Ok(read
        .await?
        .into_iter()
        .map(|(_, value)| number(Some(value)))
        .sum())
}

/// Kills server `i` and waits for the first commit of a transaction that began afterwards.
async fn kill_and_commit(cluster: &Cluster, database: &Database, i: usize) -> Duration {
    let pid = loop {
        match cluster.pid(i) {
            Some(pid) => break pid,
            None => sleep(Duration::from_millis(100)).await, // it is being started again
        }
    };
    kill_process(Pid::from_raw(pid as i32).expect("a process"), Signal::KILL).expect("it is ours");
    let start = now();
    let committed = database.run(async |t| {
        t.set("after", start.0.to_le_bytes());
        Ok(())
    });
    let committed = plinth_runtime::timeout(RECOVERY_LIMIT, committed).await;
    committed
        .expect("the cluster recovers in time")
        .expect("commits");
    start.elapsed()
}

#[test]
fn no_acknowledged_commit_is_lost_when_each_server_is_killed_in_turn() {
    let cluster = Cluster::start("kill", 5, &["--replication", "triple"]);
    plinth_runtime::real::block_on(async {
        let file = ClusterFile::load(&cluster.cluster_file())
            .await
            .expect("a cluster file");
        let database = plinth_client::connect(file);
        let opened = database.run(async |t| {
            (0..ACCOUNTS).for_each(|i| t.set(account(i), OPENING.to_le_bytes()));
            Ok(())
        });
        opened.await.expect("the accounts open");
        let stopping = Rc::new(Cell::new(false));
        let receipts = Rc::new(RefCell::new(vec![0i64; WORKERS]));
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (database, stopping, receipts) =
                    (database.clone(), stopping.clone(), receipts.clone());
                plinth_runtime::spawn("worker", async move {
                    while !stopping.get() {
                        let receipt = receipts.borrow()[worker] + 1;
                        transfer(&database, worker, receipt)
                            .await
                            .expect("the retry loop ends with success");
                        receipts.borrow_mut()[worker] = receipt;
                    }
                })
            })
            .collect();
        let mut waits = Vec::new();
        for i in 0..cluster.processes as usize {
            sleep(Duration::from_secs(1)).await;
            waits.push(kill_and_commit(&cluster, &database, i).await);
            assert_eq!(
                sum(&database).await.expect("reads"),
                ACCOUNTS as i64 * OPENING,
                "after server {i} was killed"
            );
            sleep(Duration::from_secs(3)).await; // it is started again meanwhile
        }
        stopping.set(true);
        plinth_runtime::join_all(workers).await;
        eprintln!("from a kill to the first commit: {waits:?}");
        assert_eq!(
            sum(&database).await.expect("reads"),
            ACCOUNTS as i64 * OPENING
        );
        for (worker, receipt) in receipts.take().into_iter().enumerate() {
            let stored = database
                .run(async |t| t.get(format!("receipt/{worker}"), false).await)
                .await;
            assert_eq!(number(stored.expect("reads")), receipt, "worker {worker}");
            assert!(receipt > 10, "worker {worker} did {receipt} transfers");
        }
    });
}

#[test]
fn a_stopped_cluster_is_resumed_with_what_it_had() {
    let mut cluster = Cluster::start("resume", 1, &[]);
    cluster.cli("set kept yes");
    let port = cluster.first_port.to_string();
    cluster.stop();
    let other = cluster.dev_fails(&["--processes", "2", "--port", &port]);
    assert!(other.contains("--processes 1"), "{other}");
    cluster.resume();
    assert!(cluster.cli("get kept").contains("`kept' is `yes'"));
}

#[test]
fn files_go_in_and_come_out_and_are_resumed() {
    let cluster = Cluster::start("files", 1, &[]);
    let directory = Directory::new("files-io");
    let name = |file: &str| directory.file(file).to_string_lossy().into_owned();
    let (input, bad, dumped, json) = (
        name("in.tsv"),
        name("bad.tsv"),
        name("out.tsv"),
        name("out.jsonl"),
    );
    let lines: String = (0..20_000)
        .map(|i| format!("key{i:06}\tvalue \\x00 {}\n", i * 7))
        .collect();
    std::fs::write(&input, &lines).expect("writes");
    let ok = |arguments: &[&str]| {
        let output = cluster.plinth(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stderr)
    };

    // A bad line is named; what is before it is loaded; mended, the load goes on.
    let broken = lines.replacen("key015000\t", "key015000", 1);
    std::fs::write(&bad, broken).expect("writes");
    let line = error_line(&cluster.plinth(&["load", &bad, "--batch-bytes", "10000"]));
    assert!(
        line.contains("bad.tsv:15001: ") && line.contains("--resume"),
        "{line}"
    );
    std::fs::write(&bad, &lines).expect("writes");
    ok(&["load", &bad, "--resume"]);
    ok(&["load", &input]);

    // Both forms; a file that is there is not overwritten; a torn one is completed.
    ok(&["dump", &dumped]);
    assert_eq!(std::fs::read_to_string(&dumped).expect("written"), lines);
    assert!(error_line(&cluster.plinth(&["dump", &dumped])).contains("--resume"));
    std::fs::write(&dumped, &lines[..lines.len() / 2 + 3]).expect("writes");
    ok(&["dump", &dumped, "--resume"]);
    assert_eq!(std::fs::read_to_string(&dumped).expect("written"), lines);
    ok(&["dump", &json]);
    cluster.cli("clearrange \"\" \\xff");
    ok(&["load", &json]);
    let output = plinth(
        &cluster.cluster_file(),
        &["dump", "-", "--begin", "key000001", "--end", "key000003"],
    );
    assert_eq!(
        text(&output.stdout),
        lines
            .lines()
            .skip(1)
            .take(2)
            .map(|l| format!("{l}\n"))
            .collect::<String>()
    );

    // The last line of a key wins, whatever batch it is in.
    let twice: String = (0..5000)
        .map(|i| format!("same{}\t{i}\n", i % 10))
        .collect();
    std::fs::write(&input, twice).expect("writes");
    ok(&["load", &input, "--batch-bytes", "100"]);
    assert!(cluster.cli("get same7").contains("`same7' is `4997'"));
    assert!(ok(&["bench", "run", "--workload", "bulk-load", "--rows", "2000"]).is_empty());
    ok(&[
        "bench",
        "run",
        "--workload",
        "random-50-50",
        "--rows",
        "2000",
        "--duration",
        "0.5",
        "--warmup",
        "0.1",
    ]);
}
