//! Load that is checked by independent programs: histories of single-key registers, and of nodes of the keeper, for
//! Porcupine, and of transactions that append to lists for `adya`, which looks for anomalies as Elle does.

use plinth_client::{Database, TransactionOption};
use plinth_core::{Error, Result};
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, Text, create_flags};
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::{Duration, Instant, now, sleep, timeout};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Few keys, so that clients conflict. Each round has its own keys.
const KEYS: u64 = 5;
const LISTS: u64 = 6;
/// Time-out of an attempt; after it the result is unknown.
const ATTEMPT_LIMIT_MS: i64 = 5000;
const ATTEMPT_LIMIT: Duration = Duration::from_millis(ATTEMPT_LIMIT_MS as u64);
const SESSION_TIMEOUT_MS: i32 = 10_000;

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
            self.note_register(client, &key, write, done, (call, back));
            sleep(Duration::from_millis(range(1..100))).await;
        }
    }

    fn note_register(
        &self,
        client: usize,
        key: &str,
        write: Option<String>,
        done: Ended<String>,
        (call, back): (u64, u64),
    ) {
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
    }

    /// Reads and writes nodes at gateways of the keeper until `end`. A read after a `sync` is linearizable, as writes
    /// are.
    pub async fn use_nodes(&self, gateways: &[SocketAddr], client: usize, end: Instant) {
        while now() < end {
            let gateway = gateways[below(gateways.len() as u64) as usize];
            let connecting = Client::connect(gateway, SESSION_TIMEOUT_MS, None);
            if let Some(Ok(connection)) = timeout(ATTEMPT_LIMIT, connecting).await {
                // Now and then it goes to the other gateway.
                while now() < end && !chance(0.02) && self.use_node(&connection, client).await {
                    sleep(Duration::from_millis(range(1..100))).await;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// False if the connection is of no more use.
    async fn use_node(&self, connection: &Client, client: usize) -> bool {
        let path: Text = format!("/chaos-{}-{}", self.round, below(KEYS)).into();
        let write = chance(0.5).then(|| self.value().to_string());
        let call = self.time();
        let asked = one_node(connection, &path, write.as_deref());
        let done = timeout(ATTEMPT_LIMIT, asked).await;
        let done = done.unwrap_or(Ended::Unknown);
        let is_usable = !matches!(done, Ended::Unknown);
        let times = (call, self.time());
        self.note_register(client, &format!("node {path}"), write, done, times);
        is_usable
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

/// Reads or writes a node, which is created by its first writer. A node that is not there reads as empty.
async fn one_node(connection: &Client, path: &Text, write: Option<&str>) -> Ended<String> {
    let path = path.clone();
    let Some(value) = write else {
        let sync = connection.submit(Request::Sync {
            path: Some(path.clone()),
        });
        let read = connection.submit(Request::GetData { path, watch: false });
        return match (sync.await, read.await) {
            (Ok(_), Ok((_, Answer::Data(data, _)))) => {
                Ended::Done(String::from_utf8_lossy(&data.unwrap_or_default()).into_owned())
            }
            (Ok(_), Err(Failure::Refused(Code::NO_NODE))) => Ended::Done(String::new()),
            _ => Ended::Unknown,
        };
    };
    let data = Some(value.to_string().into());
    let set = Request::SetData {
        path: path.clone(),
        data: data.clone(),
        version: -1,
    };
    let mut answered = connection.submit(set).await;
    if let Err(Failure::Refused(Code::NO_NODE)) = answered {
        let (kind, acl) = (CreateKind::Plain, Acl::open());
        let (flags, ttl) = (create_flags::PERSISTENT, -1);
        answered = connection
            .submit(Request::Create {
                kind,
                path,
                data,
                acl,
                flags,
                ttl,
            })
            .await;
    }
    match answered {
        Ok(_) => Ended::Done(String::new()),
        Err(Failure::Refused(Code::NODE_EXISTS | Code::CONNECTION_LOSS)) => Ended::Failed,
        Err(_) => Ended::Unknown,
    }
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
