//! A storage server stops answering while much is written over several epochs. The log must keep the data that this
//! server lacks, on disk and not in memory, through several old generations. It must drop that data when the server
//! has it or is gone.
//!
//! `PLINTH_LAG_MB` sets the amount of data written while the server does not answer.

use crate::common::{Cluster, Server, number_from};
use plinth_client::{Database, RangeOptions};
use plinth_coordination::ClusterFile;
use plinth_core::KeySelector;
use plinth_runtime::{Duration, now, real, sleep};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SERVERS: u16 = 4;
const DEFAULT_MB: usize = 60;
const ROW_BYTES: usize = 1000;
const ROWS_PER_TRANSACTION: usize = 200;
const WRITERS: usize = 4;
/// Limit of a log server's memory, beyond the last few commits.
const LOG_MEMORY: u64 = 4_000_000;
const EPOCHS: usize = 4;
const LIMIT: Duration = Duration::from_secs(120);

fn key(row: usize) -> String {
    format!("row/{:02x}/{row:08}", row / ROWS_PER_TRANSACTION % 251)
}

fn value(row: usize) -> Vec<u8> {
    let mut value = vec![b'.'; ROW_BYTES];
    value[..8].copy_from_slice(&(row as u64).to_le_bytes());
    value
}

async fn write(database: &Database, rows: std::ops::Range<usize>) {
    let writers = (0..WRITERS).map(|writer| {
        let starts = rows.clone().step_by(ROWS_PER_TRANSACTION);
        let starts: Vec<usize> = starts.skip(writer).step_by(WRITERS).collect();
        async move {
            for first in starts {
                let written = database.run(async |t| {
                    (first..first + ROWS_PER_TRANSACTION)
                        .for_each(|row| t.set(key(row), value(row)));
                    Ok(())
                });
                written.await.expect("the cluster serves");
            }
        }
    });
    plinth_runtime::join_all(writers.collect::<Vec<_>>()).await;
}

/// Asserts that every row is present with its value.
async fn check(database: &Database, rows: usize) {
    let mut found = 0;
    for table in 0..251 {
        let begin = format!("row/{table:02x}/");
        let end = format!("row/{table:02x}0");
        let read = database.run(async |t| {
            let begin = KeySelector::first_greater_or_equal(begin.clone());
            let end = KeySelector::first_greater_or_equal(end.clone());
            t.get_range_all(begin, end, RangeOptions::default(), false)
                .await
        });
        for (read_key, read_value) in read.await.expect("reads") {
            let row = u64::from_le_bytes(read_value[..8].try_into().expect("eight bytes")) as usize;
            assert_eq!(read_key, key(row).as_bytes());
            assert_eq!(read_value, value(row));
            found += 1;
        }
    }
    assert_eq!(found, rows);
}

/// Total size of the files of all log servers, in megabytes.
fn log_megabytes(cluster: &Cluster) -> u64 {
    let servers = (0..SERVERS).map(|i| (cluster.first_port + i).to_string());
    let files = servers.flat_map(|name| {
        let listed = std::fs::read_dir(cluster.directory.file(&name)).expect("a directory");
        listed.map(|entry| entry.expect("an entry"))
    });
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log-"));
    // A file may be removed meanwhile.
    let bytes: u64 = logs
        .filter_map(|file| file.metadata().ok())
        .map(|m| m.len())
        .sum();
    bytes / 1_000_000
}

fn count(status: &Value) -> u64 {
    status["log_generations"].as_u64().expect("a number")
}

/// Writes the rows in parts, with a new epoch after each. Asserts that the log servers hold little in memory
/// meanwhile.
async fn write_over_epochs(cluster: &Cluster, database: &Database, rows: std::ops::Range<usize>) {
    let part = rows.len() / EPOCHS / ROWS_PER_TRANSACTION * ROWS_PER_TRANSACTION;
    for epoch in 0..EPOCHS {
        let begin = rows.start + epoch * part;
        let end = if epoch + 1 == EPOCHS {
            rows.end
        } else {
            begin + part
        };
        write(database, begin..end).await;
        let logs = cluster.status().await["log_servers"].clone();
        for log in logs.as_array().expect("a list") {
            let memory = log["memory_bytes"].as_u64().expect("it answers");
            assert!(memory < 2 * LOG_MEMORY, "{memory} bytes in memory: {log}");
        }
        cluster
            .say(format!("configure resolvers={}", 1 + (epoch + 1) % 2))
            .await
            .text();
    }
}

async fn wait_until_forgotten(cluster: &Cluster, most_megabytes: u64) {
    let start = now();
    loop {
        let generations = count(&cluster.status().await);
        let megabytes = log_megabytes(cluster);
        if generations == 1 && megabytes <= most_megabytes {
            let seconds = start.elapsed().as_secs_f64();
            eprintln!("  forgotten after {seconds:.1} s; {megabytes} MB of log are left");
            return;
        }
        assert!(
            start.elapsed() < LIMIT,
            "{generations} generations, {megabytes} MB"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

async fn lag() {
    let megabytes = number_from("PLINTH_LAG_MB", DEFAULT_MB);
    let rows = megabytes * 1_000_000 / ROW_BYTES / ROWS_PER_TRANSACTION * ROWS_PER_TRANSACTION;
    let cluster = Cluster::stopped("lagging", SERVERS, &[]);
    cluster.write_cluster_file(1);
    let mut servers: Vec<Server> = (0..SERVERS)
        .map(|i| Server(cluster.start_server(i)))
        .collect();
    cluster.say("configure new double ssd logs=2").await.text();
    for knob in [
        "storage_failure_ms 600000".to_string(),
        "storage_window_bytes_max 16000000".to_string(),
        format!("log_memory_bytes_max {LOG_MEMORY}"),
    ] {
        cluster.say(format!("setknob {knob}")).await.text();
    }
    let file = ClusterFile::load(&cluster.cluster_file()).await;
    let database = plinth_client::connect(file.expect("a cluster file"));
    write(&database, 0..ROWS_PER_TRANSACTION * 10).await;

    let victim = servers.pop().expect("the last");
    let signal = |signal| {
        let pid = Pid::from_child(&victim.0);
        kill_process(pid, signal).expect("it is ours");
    };
    eprintln!("a storage server is stopped");
    signal(Signal::STOP);
    write_over_epochs(&cluster, &database, ROWS_PER_TRANSACTION * 10..rows).await;
    let (generations, kept) = (count(&cluster.status().await), log_megabytes(&cluster));
    eprintln!("  {generations} generations, {kept} MB of log for {megabytes} MB of rows");
    assert!(generations as usize > EPOCHS, "{generations} generations");
    eprintln!("and goes on");
    signal(Signal::CONT);
    wait_until_forgotten(&cluster, kept / 2).await;
    check(&database, rows).await;

    eprintln!("it is stopped again");
    signal(Signal::STOP);
    write_over_epochs(&cluster, &database, rows..2 * rows).await;
    let kept = log_megabytes(&cluster);
    eprintln!("  {kept} MB of log");
    eprintln!("and is no more");
    drop(victim);
    cluster.say("setknob storage_failure_ms 2000").await.text();
    wait_until_forgotten(&cluster, kept / 2).await;
    check(&database, 2 * rows).await;
    let compared = cluster.say("consistencycheck").await.text();
    assert!(compared.contains("All replicas are the same"), "{compared}");
}

#[test]
fn the_log_keeps_what_a_server_lacks_on_disk_until_it_has_it_or_is_gone() {
    real::block_on(lag());
}
