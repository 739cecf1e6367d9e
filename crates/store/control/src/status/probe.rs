//! How long sample transactions take at present.

use super::ANSWER_LIMIT;
use super::counters::rounded;
use crate::movement;
use plinth_client::{Database, TransactionOption};
use plinth_core::Result;
use plinth_core::system_keys::{CONFIG, PROBED};
use plinth_runtime::{Instant, now};
use serde_json::{Map, Value, json};

/// What is measured, as FoundationDB names it.
const MEASURED: [&str; 5] = [
    "immediate_priority_transaction_start",
    "transaction_start",
    "batch_priority_transaction_start",
    "read",
    "commit",
];

/// Seconds that each took; `None` if it took too long.
#[derive(Default)]
pub struct Probe([Option<f64>; MEASURED.len()]);

/// One after the other, in a second altogether. What hangs leaves no time for what follows.
pub async fn measure(database: &Database) -> Probe {
    let end = now() + ANSWER_LIMIT;
    let transaction = database.create_transaction();
    if movement::prepare(&transaction).is_err() {
        return Probe::default();
    }
    let immediate_start_s = timed(end, transaction.get_read_version()).await;
    let start_s = timed(end, start(database, None)).await;
    let batch_start_s = timed(end, start(database, Some(TransactionOption::PriorityBatch))).await;
    let read_s = timed(end, transaction.get(CONFIG, false)).await;
    transaction.add_write_conflict_key(PROBED);
    let commit_s = timed(end, transaction.commit()).await;
    Probe([immediate_start_s, start_s, batch_start_s, read_s, commit_s])
}

async fn start(database: &Database, priority: Option<TransactionOption>) -> Result<()> {
    let transaction = database.create_transaction();
    transaction.set_option(TransactionOption::LockAware)?;
    if let Some(priority) = priority {
        transaction.set_option(priority)?;
    }
    transaction.get_read_version().await.map(drop)
}

async fn timed<T>(end: Instant, work: impl Future<Output = Result<T>>) -> Option<f64> {
    let begun = now();
    let left = end.saturating_since(begun);
    let done = plinth_runtime::timeout(left, work).await?;
    done.ok().map(|_| begun.elapsed().as_secs_f64())
}

impl Probe {
    pub fn json(&self) -> Value {
        let known = MEASURED.iter().zip(self.0).filter_map(|(what, seconds)| {
            seconds.map(|seconds| (format!("{what}_seconds"), json!(rounded(seconds))))
        });
        Value::Object(known.collect::<Map<_, _>>())
    }

    /// FoundationDB's messages about what took too long.
    pub fn messages(&self) -> Vec<Value> {
        let measured = MEASURED.iter().zip(self.0);
        let late = measured.filter(|(_, seconds)| seconds.is_none());
        let message = |(what, _): (&&str, Option<f64>)| {
            let description = format!(
                "a sample {} took longer than a second",
                what.replace('_', " ")
            );
            json!({"name": format!("{what}_probe_timeout"), "description": description})
        };
        late.map(message).collect()
    }
}
