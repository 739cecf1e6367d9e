//! Load that is checked by independent programs: histories of single-key registers for Porcupine, and of
//! transactions that append to lists for `adya`, which looks for anomalies as Elle does.

use plinth_client::{Database, TransactionOption};
use plinth_core::{Error, Result};
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::{Duration, Instant, now, sleep};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Few keys, so that clients conflict. Each round has its own keys.
const KEYS: u64 = 5;
const LISTS: u64 = 6;
/// Time-out of an attempt; after it the result is unknown.
const ATTEMPT_LIMIT_MS: i64 = 5000;

/// Result of an attempt.
enum Ended<T> {
    Done(T),
    Failed,
    Unknown,
}

fn ended<T>(result: Result<T>) -> Ended<T> {
    match result {
        Ok(value) => Ended::Done(value),
        Err(error) if error.is_retryable_not_committed() => Ended::Failed,
        Err(Error::database_locked) => Ended::Failed,
        Err(_) => Ended::Unknown,
    }
}

pub struct Histories {
    origin: Instant,
    round: usize,
    /// Input lines for Porcupine.
    registers: RefCell<Vec<Value>>,
    /// Input lines for adya.
    lists: RefCell<Vec<Value>>,
    /// Source of unique values.
    next_value: Cell<u64>,
    /// Number of the next process. A process whose operation has an unknown result does no more; another takes its
    /// place.
    next_process: Cell<u64>,
}

impl Histories {
    pub fn new(round: usize) -> Self {
        Histories {
            origin: now(),
            round,
            registers: RefCell::default(),
            lists: RefCell::default(),
            next_value: Cell::new(1),
            next_process: Cell::new(0),
        }
    }

    fn time(&self) -> u64 {
        now().saturating_since(self.origin).as_nanos() as u64
    }

    fn value(&self) -> u64 {
        self.next_value.replace(self.next_value.get() + 1)
    }

    fn process(&self) -> u64 {
        self.next_process.replace(self.next_process.get() + 1)
    }

    /// Reads and writes single keys until `end`.
    pub async fn use_registers(&self, database: Database, client: usize, end: Instant) {
        while now() < end {
            let key = format!("\u{a0}register/{}/{}", self.round, below(KEYS));
            let write = chance(0.5).then(|| self.value().to_string());
            let call = self.time();
            let done = ended(one_register(&database, &key, write.as_deref()).await);
            let back = self.time();
            let line = |kind: &str, value: &str, back: Option<u64>| {
                json!({
                    "client": client, "key": key, "kind": kind, "value": value, "call": call, "return": back,
                })
            };
            let line = match (write, done) {
                (Some(value), Ended::Done(_)) => Some(line("w", &value, Some(back))),
                (Some(value), Ended::Unknown) => Some(line("w", &value, None)),
                (None, Ended::Done(value)) => Some(line("r", &value, Some(back))),
                (_, Ended::Failed) | (None, Ended::Unknown) => None,
            };
            self.registers.borrow_mut().extend(line);
            sleep(Duration::from_millis(range(1..100))).await;
        }
    }

    /// Runs transactions that read lists and append to them, until `end`.
    pub async fn append_to_lists(&self, database: Database, end: Instant) {
        let mut process = self.process();
        while now() < end {
            let steps: Vec<(u64, Option<u64>)> = (0..range(1..5))
                .map(|_| (below(LISTS), chance(0.5).then(|| self.value())))
                .collect();
            let step = |(list, append): &(u64, Option<u64>), read: Option<&Vec<u64>>| match append {
                Some(value) => json!(["append", list, value]),
                None => json!(["r", list, read]),
            };
            let asked: Vec<Value> = steps.iter().map(|s| step(s, None)).collect();
            let record = |kind: &str, process: u64, value: Vec<Value>| {
                let line =
                    json!({"type": kind, "process": process, "time": self.time(), "value": value});
                self.lists.borrow_mut().push(line);
            };
            record("invoke", process, asked.clone());
            match ended(self.one_append(&database, &steps).await) {
                Ended::Done(reads) => {
                    let told = steps
                        .iter()
                        .zip(&reads)
                        .map(|(s, read)| step(s, Some(read)));
                    record("ok", process, told.collect());
                }
                Ended::Failed => record("fail", process, asked),
                Ended::Unknown => {
                    record("info", process, asked);
                    process = self.process();
                }
            }
            sleep(Duration::from_millis(range(1..100))).await;
        }
    }

    async fn one_append(
        &self,
        database: &Database,
        steps: &[(u64, Option<u64>)],
    ) -> Result<Vec<Vec<u64>>> {
        let tr = database.create_transaction();
        tr.set_option(TransactionOption::Timeout(ATTEMPT_LIMIT_MS))?;
        let mut reads = Vec::new();
        for (list, append) in steps {
            let key = format!("\u{a0}list/{}/{list}", self.round);
            let bytes = tr.get(&*key, false).await?.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some(value) = append {
                tr.set(&*key, format!("{text}{value},"));
            }
            let numbers = text.split(',').filter_map(|n| n.parse().ok());
            reads.push(numbers.collect());
        }
        tr.commit().await?;
        Ok(reads)
    }

    /// Runs both checkers; writes the histories to `directory`.
    pub fn check(&self, directory: &Path, porcupine: &Path) {
        let registers = lines(&self.registers.borrow());
        std::fs::write(
            directory.join(format!("registers-{}.jsonl", self.round)),
            &registers,
        )
        .expect("can be written");
        let mut checker = Command::new(porcupine)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("porcupine was built");
        let mut input = checker.stdin.take().expect("it is piped");
        input.write_all(registers.as_bytes()).expect("it reads all");
        drop(input);
        let output = checker.wait_with_output().expect("it ends");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        let complaint = said(&output.stderr);
        assert!(output.status.success(), "round {}: {complaint}", self.round);
        eprintln!("  registers: {}", said(&output.stdout));

        let lists = lines(&self.lists.borrow());
        std::fs::write(
            directory.join(format!("lists-{}.jsonl", self.round)),
            &lists,
        )
        .expect("can be written");
        let history = adya::History::from_json(&lists).expect("a history");
        let options = adya::Opts {
            models: vec!["strict-serializable".into()],
            ..adya::Opts::default()
        };
        let report = adya::check(&history, adya::Workload::ListAppend, &options);
        let anomalies = &report.anomaly_types;
        assert!(
            report.valid == adya::Valid::True,
            "round {}: {:?}: {anomalies:?}",
            self.round,
            report.valid
        );
        let count = self.lists.borrow().len() / 2;
        eprintln!("  lists: {count} transactions without an anomaly");
    }
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Reads or writes a register. Returns the value that was read; empty after a write.
async fn one_register(database: &Database, key: &str, write: Option<&str>) -> Result<String> {
    let tr = database.create_transaction();
    tr.set_option(TransactionOption::Timeout(ATTEMPT_LIMIT_MS))?;
    let Some(value) = write else {
        let read = tr.get(key, false).await?.unwrap_or_default();
        return Ok(String::from_utf8_lossy(&read).into_owned());
    };
    tr.set(key, value);
    tr.commit().await?;
    Ok(String::new())
}
