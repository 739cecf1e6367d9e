//! Data files that were cut short, emptied, or have a flipped bit. The server either reports one line that names the
//! file, or serves the data as written. Nothing else may happen.
//!
//! Each case starts from the same files of a stopped cluster, damages one, and resumes the cluster. The data is
//! partly in the engine and partly in the log only. The damaged places are drawn from a seed that is printed;
//! `PLINTH_DAMAGE_SEED` sets it.

use crate::common::{self, Cluster, Directory, Resumed, copy_directory};
use plinth_client::{Database, DatabaseOption, RangeOptions};
use plinth_coordination::ClusterFile;
use plinth_core::{KeySelector, Result};
use plinth_runtime::{Duration, now, real, sleep};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ROWS: usize = 800;
/// Limit of the wait until a resumed cluster is ready or its command has ended.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Limit of a read of a cluster that is ready, whether it succeeds or fails.
const READ_LIMIT: Duration = Duration::from_secs(3);
const FLIPS_PER_FILE: usize = 2;

/// A small random generator of its own, so that a seed always gives the same cases.
struct Places(u64);

impl Places {
    fn new() -> Self {
        let given = std::env::var("PLINTH_DAMAGE_SEED").ok();
        let seed = match given {
            Some(text) => text.parse().expect("PLINTH_DAMAGE_SEED is a number"),
            None => plinth_runtime::unix_time_ms(),
        };
        eprintln!("damage seed: PLINTH_DAMAGE_SEED={seed}");
        Places(seed | 1)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Half,
    Empty,
    /// The last byte is removed.
    Short,
    Flip {
        offset: u64,
        bit: u8,
    },
}

impl Damage {
    fn inflict(self, path: &Path) {
        let mut bytes = std::fs::read(path).expect("reads");
        match self {
            Damage::Half => bytes.truncate(bytes.len() / 2),
            Damage::Empty => bytes.clear(),
            Damage::Short => drop(bytes.pop()),
            Damage::Flip { offset, bit } => bytes[offset as usize] ^= 1 << bit,
        }
        std::fs::write(path, bytes).expect("writes");
    }
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn row(i: usize, round: usize) -> (Vec<u8>, Vec<u8>) {
    let length = 300 + i * 37 % 3000;
    let value = (0..length).map(|at| (i * 31 + round * 7 + at * at) as u8);
    (format!("row/{i:05}").into_bytes(), value.collect())
}

/// Writes the rows; returns a version that includes them.
async fn write(database: &Database, rows: &[(Vec<u8>, Vec<u8>)]) -> i64 {
    for batch in rows.chunks(100) {
        let written = database.run(async |t| {
            batch.iter().for_each(|(key, value)| t.set(key, value));
            Ok(())
        });
        written.await.expect("writes");
    }
    let version = database.run(async |t| t.get_read_version().await);
    version.await.expect("a read version")
}

async fn read_all(database: &Database) -> Result<Rows> {
    let read = database.run(async |t| {
        let begin = KeySelector::first_greater_or_equal("");
        let end = KeySelector::first_greater_or_equal("\u{7f}");
        t.get_range_all(begin, end, RangeOptions::default(), false)
            .await
    });
    let rows = read.await?.into_iter();
    Ok(rows
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect())
}

async fn connect(cluster_file: &Path) -> Database {
    let file = ClusterFile::load(cluster_file).await;
    let database = plinth_client::connect(file.expect("a cluster file"));
    let limit = DatabaseOption::TransactionTimeout(READ_LIMIT.as_millis() as i64);
    database.set_option(limit).expect("a valid time-out");
    database
}

/// The newest version that every storage server has in its engine.
fn durable_version(cluster: &Cluster) -> i64 {
    let status = common::text(&cluster.plinth(&["status", "--json"]).stdout);
    let document: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let storage = document["cluster"]["storage_servers"]
        .as_array()
        .expect("a list");
    let version = |server: &serde_json::Value| server["durable_version"].as_i64().unwrap_or(0);
    storage.iter().map(version).min().expect("a storage server")
}

/// A commit of a key that the comparison ignores.
async fn pass_time(database: &Database) {
    let passed = database.run(async |t| {
        t.set("\u{7f}time", now().0.to_le_bytes());
        Ok(())
    });
    passed.await.expect("commits");
}

async fn wait_until_durable(cluster: &Cluster, database: &Database, version: i64) {
    let start = now();
    while durable_version(cluster) < version {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "nothing becomes durable"
        );
        sleep(Duration::from_millis(100)).await;
        pass_time(database).await;
    }
}

/// Writes two rounds of rows. The first reaches the engines; most of the second is in the log only.
fn fill(cluster: &Cluster) -> Rows {
    real::block_on(async {
        let database = connect(&cluster.cluster_file()).await;
        let first: Vec<_> = (0..ROWS).map(|i| row(i, 1)).collect();
        let second: Vec<_> = (0..ROWS).step_by(5).map(|i| row(i, 2)).collect();
        let version = write(&database, &first).await;
        wait_until_durable(cluster, &database, version).await;
        write(&database, &second).await;
        // A flipped bit in the last block of a log looks like a torn write. So write blocks after the rows that the
        // test needs.
        for _ in 0..3 {
            pass_time(&database).await;
        }
        let rows: Rows = first.into_iter().chain(second).collect();
        assert_eq!(read_all(&database).await.expect("reads"), rows);
        rows
    })
}

/// The data files of a server, without the trace and the lock.
fn data_files(server: &Path) -> Vec<(PathBuf, u64)> {
    let names = std::fs::read_dir(server).expect("a directory");
    let paths = names.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| !path.ends_with("plinth.lock") && !path.ends_with("trace.jsonl"))
        .collect();
    paths.sort();
    let size = |path: &PathBuf| path.metadata().expect("it is there").len();
    paths
        .into_iter()
        .map(|path| (path.clone(), size(&path)))
        .collect()
}

fn cases(size: u64, places: &mut Places) -> Vec<Damage> {
    let mut cases = vec![Damage::Half, Damage::Empty, Damage::Short];
    // Half of the flips are near the front, where the metadata for the rest is.
    for i in 0..FLIPS_PER_FILE {
        let range = if i % 2 == 0 { size.min(4096) } else { size };
        cases.push(Damage::Flip {
            offset: places.below(range),
            bit: places.below(8) as u8,
        });
    }
    cases
}

/// Resumes the damaged cluster. Returns the result of the case; the error describes wrong behaviour.
fn resume_damaged(
    cluster: &mut Cluster,
    rows: &Rows,
    damaged: &Path,
) -> std::result::Result<&'static str, String> {
    let name = damaged.file_name().expect("a file").to_string_lossy();
    let said = match cluster.try_resume(START_LIMIT) {
        Resumed::Ready => {
            let read = real::block_on(async {
                let database = connect(&cluster.cluster_file()).await;
                read_all(&database).await
            });
            match read {
                Ok(read) if read == *rows => return Ok("served, all right"),
                Ok(read) => return Err(format!("wrong data: {}", difference(rows, &read))),
                Err(_) => cluster.said(),
            }
        }
        Resumed::Failed => cluster.said(),
        Resumed::Neither => {
            let said = cluster.said();
            return Err(format!(
                "neither ready nor ended in {START_LIMIT:?}; it said: {said}"
            ));
        }
    };
    let named = said.lines().find(|line| line.contains(&*name));
    let Some(line) = named else {
        return Err(format!("no line names {name}: {said}"));
    };
    if said.contains("panicked") {
        return Err(format!("a panic: {said}"));
    }
    eprintln!("    {line}");
    Ok("refused, with a line")
}

fn difference(expected: &Rows, read: &Rows) -> String {
    let missing = expected
        .keys()
        .filter(|key| !read.contains_key(*key))
        .count();
    let added = read
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .count();
    let changed = read
        .iter()
        .filter(|(key, value)| expected.get(*key).is_some_and(|e| e != *value))
        .count();
    format!("{missing} rows missing, {added} added, {changed} changed")
}

fn each_damage_of_one_server(name: &str, engine: &str) {
    let mut cluster = Cluster::start(name, 1, &["--engine", engine]);
    let rows = fill(&cluster);
    cluster.stop();
    let pristine = Directory::new(&format!("{name}-pristine"));
    copy_directory(&cluster.directory.0, &pristine.0);
    let server = cluster.directory.file(&cluster.first_port.to_string());
    let mut places = Places::new();
    let mut problems = Vec::new();
    for (file, size) in data_files(&server) {
        for damage in cases(size, &mut places) {
            copy_directory(&pristine.0, &cluster.directory.0);
            damage.inflict(&file);
            let place = format!("{damage:?} of {size} bytes in {}", file.display());
            eprintln!("  {place}");
            match resume_damaged(&mut cluster, &rows, &file) {
                Ok(outcome) => eprintln!("    {outcome}"),
                Err(problem) => {
                    eprintln!("    PROBLEM: {problem}");
                    problems.push(format!("{place}: {problem}"));
                }
            }
            cluster.stop();
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_damaged_file_of_an_ssd_server_is_named_or_the_data_is_right() {
    each_damage_of_one_server("damage-ssd", "ssd");
}

#[test]
fn a_damaged_file_of_a_memory_server_is_named_or_the_data_is_right() {
    each_damage_of_one_server("damage-memory", "memory");
}

/// Servers that are killed at the end of the case.
struct Children(Vec<std::process::Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The data files of server `i` for which `is_wanted` is true.
fn files_of(cluster: &Cluster, i: u16, is_wanted: impl Fn(&str) -> bool) -> Vec<(PathBuf, u64)> {
    let server = cluster
        .directory
        .file(&(cluster.first_port + i).to_string());
    let mut files = data_files(&server);
    files.retain(|(path, _)| is_wanted(&path.file_name().expect("a file").to_string_lossy()));
    files
}

const SERVES_TOO: &str = "it serves, too";

/// Starts all servers after `files` of server `damaged` were damaged. The others must serve all rows. Returns the
/// outcome of the damaged server.
async fn the_rest_serves(
    cluster: &Cluster,
    rows: &Rows,
    damaged: u16,
    files: &[PathBuf],
) -> &'static str {
    let servers = (0..cluster.processes).map(|i| cluster.start_server(i));
    let mut servers = Children(servers.collect());
    let start = now();
    let read = loop {
        let database = connect(&cluster.cluster_file()).await;
        match read_all(&database).await {
            Ok(read) => break read,
            Err(error) => assert!(
                start.elapsed() < START_LIMIT,
                "the rest does not serve: {error}"
            ),
        }
    };
    assert!(read == *rows, "wrong data: {}", difference(rows, &read));
    let database = connect(&cluster.cluster_file()).await;
    let written = database.run(async |t| {
        t.set("\u{7f}after", "damage"); // a key that the comparison ignores
        Ok(())
    });
    written.await.expect("the rest takes writes");
    let mut outcome = SERVES_TOO;
    for (i, server) in (0..).zip(&mut servers.0) {
        let Some(status) = server.try_wait().expect("it is ours") else {
            continue;
        };
        let said = cluster.server_said(i);
        assert_eq!(i, damaged, "server {i} has ended: {said}");
        assert_eq!(status.code(), Some(1), "{said}");
        let mut names = files
            .iter()
            .map(|path| path.file_name().expect("a file").to_string_lossy());
        assert!(names.any(|name| said.contains(&*name)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        eprintln!("    {}", said.trim_end());
        outcome = "it is refused, with a line";
    }
    outcome
}

#[test]
fn a_damaged_server_of_a_triple_cluster_harms_neither_the_others_nor_the_data() {
    let mut cluster = Cluster::start("damage-triple", 4, &["--replication", "triple"]);
    let rows = fill(&cluster);
    cluster.stop();
    let pristine = Directory::new("damage-triple-pristine");
    copy_directory(&cluster.directory.0, &pristine.0);
    let engine = |name: &str| name.ends_with(".redb");
    let log = |name: &str| name.starts_with("log-");
    let meta = |name: &str| name.starts_with("storage-") && name.ends_with(".meta");
    let damaged = (0..4).find(|i| {
        !files_of(&cluster, *i, engine).is_empty() && !files_of(&cluster, *i, log).is_empty()
    });
    let damaged = damaged.expect("a server with both roles");
    let mut places = Places::new();
    let engines = files_of(&cluster, damaged, engine);
    let logs = files_of(&cluster, damaged, log);
    let metas = files_of(&cluster, damaged, meta);
    assert!(!metas.is_empty());
    let both: Vec<_> = engines.iter().chain(&logs).cloned().collect();
    let mut flips = |files: &[(PathBuf, u64)]| -> Vec<(PathBuf, Damage)> {
        let flip = |(path, size): &(PathBuf, u64)| {
            let (offset, bit) = (places.below(*size), places.below(8) as u8);
            (path.clone(), Damage::Flip { offset, bit })
        };
        files.iter().map(flip).collect()
    };
    let all = |files: &[(PathBuf, u64)], damage| -> Vec<(PathBuf, Damage)> {
        files
            .iter()
            .map(|(path, _)| (path.clone(), damage))
            .collect()
    };
    let cases = [
        flips(&engines),
        flips(&logs),
        flips(&both),
        flips(&metas),
        all(&metas, Damage::Half),
        all(&engines, Damage::Short),
        all(&engines, Damage::Empty),
        all(&logs, Damage::Empty),
        all(&both, Damage::Half),
    ];
    for case in cases {
        copy_directory(&pristine.0, &cluster.directory.0);
        case.iter().for_each(|(path, damage)| damage.inflict(path));
        eprintln!("  server {damaged}: {case:?}");
        let files: Vec<PathBuf> = case.into_iter().map(|(path, _)| path).collect();
        let outcome = real::block_on(the_rest_serves(&cluster, &rows, damaged, &files));
        eprintln!("    {outcome}");
        assert_eq!(outcome, SERVES_TOO, "others have what the damaged one has");
    }
}

/// Rows that the log has dropped are only in the engine. An older copy of the engine's files lacks them, and the
/// cluster must not report them as absent.
fn an_older_copy_of_an_engine(name: &str, engine: &str, copied_alive: bool) {
    let mut cluster = Cluster::start(name, 1, &["--engine", engine]);
    let older = Directory::new(&format!("{name}-older"));
    let is_engine = |name: &str| name.starts_with("storage-") && !name.ends_with(".meta");
    let mut rows = Rows::new();
    for round in 0..2 {
        rows.extend(write_much(&cluster, round));
        if round == 0 && copied_alive {
            copy_directory(&cluster.directory.0, &older.0);
            continue;
        }
        cluster.stop();
        if round == 0 {
            copy_directory(&cluster.directory.0, &older.0);
            cluster.resume();
        }
    }
    let engine_files = files_of(&cluster, 0, is_engine);
    let server = older.file(&cluster.first_port.to_string());
    for (file, _) in &engine_files {
        std::fs::remove_file(file).expect("removes");
    }
    for (old, _) in data_files(&server) {
        let name = old.file_name().expect("a file").to_string_lossy();
        if is_engine(&name) {
            std::fs::copy(&old, engine_files[0].0.with_file_name(&*name)).expect("copies");
        }
    }
    let storage = files_of(&cluster, 0, is_engine)[0].0.with_extension("");
    let storage = storage.with_extension(""); // removes the number of a segment, if there is one
    let outcome = resume_damaged(&mut cluster, &rows, &storage);
    eprintln!("{name}: {outcome:?}");
    if copied_alive {
        outcome.expect("caught up with the log, or refused"); // as far back as this generation of the log goes
    } else {
        assert_eq!(outcome, Ok("refused, with a line"));
    }
}

/// Writes more than the log keeps for a storage server before it writes a snapshot of the system keyspace.
fn write_much(cluster: &Cluster, round: usize) -> Rows {
    real::block_on(async {
        let database = connect(&cluster.cluster_file()).await;
        let large = |i| (row(i, round).0, vec![round as u8; 60_000]);
        let mut rows = Rows::new();
        for part in 0..2 {
            let new: Vec<_> = (part * ROWS..(part + 1) * ROWS).map(large).collect();
            let version = write(&database, &new).await;
            wait_until_durable(cluster, &database, version).await;
            rows.extend(new);
        }
        rows
    })
}

#[test]
fn an_older_copy_of_a_memory_engine_catches_up_with_the_log_or_is_refused() {
    // The files of a memory engine only grow, so a copy is whole at any time, and the log's generation stays the
    // same.
    an_older_copy_of_an_engine("older-memory", "memory", true);
}

#[test]
fn an_older_copy_of_an_ssd_engine_is_refused_when_the_log_has_dropped_what_it_lacks() {
    an_older_copy_of_an_engine("older-ssd", "ssd", false);
}
