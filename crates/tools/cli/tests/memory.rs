//! Memory for large work is returned when the work is over, even if its clients stay connected.

use crate::common::Cluster;
use plinth_client::Database;
use plinth_coordination::ClusterFile;
use plinth_runtime::{Duration, join_all, now, real, sleep};

const CLIENTS: u64 = 16;
/// Transactions of each client, and values in each transaction.
const TRANSACTIONS: u64 = 2;
const VALUES: u64 = 95;
const VALUE_BYTES: usize = 95_000;
/// Memory allowed beyond three times the initial amount, in KiB. With rows on disk it includes the engine's cache of
/// 32 MiB.
const MORE_KIB: u64 = 32 << 10;
const LIMIT: Duration = Duration::from_secs(60);

/// Anonymous resident memory of the process, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let words = line.expect("Linux tells it").trim().trim_end_matches(" kB");
    words.parse().expect("a number")
}

/// Writes nine megabytes per transaction, and reads them back in one range read.
async fn work(database: &Database, client: u64) {
    for turn in 0..TRANSACTIONS {
        let written = database.run(async |t| {
            for i in 0..VALUES {
                let value = vec![(client + turn + i) as u8; VALUE_BYTES];
                t.set(format!("{client:04}/{i:04}"), value);
            }
            Ok(())
        });
        written.await.expect("it commits");
        let read = database.run(async |t| {
            let range = [format!("{client:04}/"), format!("{client:04}0")];
            let [begin, end] = range.map(plinth_core::KeySelector::first_greater_or_equal);
            let options = plinth_client::RangeOptions::default();
            t.get_range_all(begin, end, options, true).await
        });
        assert_eq!(read.await.expect("it reads").len() as u64, VALUES);
    }
}

async fn burst_and_rest(engine: &str) {
    let cluster = Cluster::start(&format!("memory-{engine}"), 1, &["--engine", engine]);
    let file = ClusterFile::load(&cluster.cluster_file())
        .await
        .expect("a cluster file");
    let clients: Vec<Database> = (0..CLIENTS)
        .map(|_| plinth_client::connect(file.clone()))
        .collect();
    let greeted = clients.iter().map(|client| async {
        client
            .run(async |t| t.get_read_version().await)
            .await
            .expect("it serves")
    });
    join_all(greeted).await;
    let pid = cluster.pid(0).expect("a server");
    let before = resident_kib(pid);
    join_all(clients.iter().zip(0..).map(|(client, i)| work(client, i))).await;
    let peak = resident_kib(pid);
    let cleared = clients[0].run(async |t| {
        t.clear_range("", "\u{7f}");
        Ok(())
    });
    cleared.await.expect("it commits");
    let ended = now();
    loop {
        let after = resident_kib(pid);
        eprintln!(
            "{engine}: {before} KiB before, {peak} KiB after, {after} KiB {:?} later",
            ended.elapsed()
        );
        if after < 3 * before + MORE_KIB {
            break;
        }
        assert!(
            ended.elapsed() < LIMIT,
            "it stays at {after} KiB; it was {before} KiB"
        );
        sleep(Duration::from_secs(2)).await;
    }
    drop(clients);
}

#[test]
fn a_server_with_its_rows_on_disk_gives_back_what_transactions_of_nine_megabytes_took() {
    real::block_on(burst_and_rest("ssd"));
}

#[test]
fn a_server_with_its_rows_in_memory_gives_back_what_transactions_of_nine_megabytes_took() {
    real::block_on(burst_and_rest("memory"));
}
