//! Read-your-writes: random operations inside a transaction, each read compared with a model that is a plain map.

use super::{Boxed, Complaints, Ending, Verdict, Workload, ending, think, until_done};
use bytes::Bytes;
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::{KeySelector, MutationKind, Result, atomic};
use plinth_runtime::{Instant, random};
use std::cell::RefCell;
use std::collections::BTreeMap;

const BEGIN: &[u8] = b"ryw/";
const END: &[u8] = b"ryw0";
const KEYS: u64 = 10;

type Model = BTreeMap<Bytes, Bytes>;

pub struct ReadYourWrites {
    /// What is committed, as far as known; `None` after a commit whose result is not.
    committed: RefCell<Option<Model>>,
    complaints: Complaints,
}

fn key() -> Bytes {
    format!("ryw/{:02}", random::below(KEYS))
        .into_bytes()
        .into()
}

fn ordered() -> (Bytes, Bytes) {
    let (a, b) = (key(), key());
    (a.clone().min(b.clone()), a.max(b))
}

async fn everything(tr: &Transaction) -> Result<Model> {
    let (begin, end) = (
        KeySelector::first_greater_or_equal(BEGIN),
        KeySelector::first_greater_or_equal(END),
    );
    Ok(tr
        .get_range_all(begin, end, RangeOptions::default(), false)
        .await?
        .into_iter()
        .collect())
}

fn write(tr: &Transaction, model: &mut Model) {
    match random::below(4) {
        0 => {
            let (begin, end) = ordered();
            tr.clear_range(&begin, &end);
            model.retain(|key, _| *key < begin || *key >= end);
        }
        1 => {
            let kinds = [
                MutationKind::Add,
                MutationKind::Max,
                MutationKind::ByteMin,
                MutationKind::Xor,
            ];
            let kind = kinds[random::below(4) as usize];
            let (key, operand) = (key(), random::u64().to_le_bytes());
            tr.atomic_op(kind, &key, operand);
            match atomic::apply(kind, model.get(&key).map(|v| &v[..]), &operand) {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        _ => {
            let (key, value) = (key(), Bytes::copy_from_slice(&random::u64().to_le_bytes()));
            tr.set(&key, &value);
            model.insert(key, value);
        }
    }
}

/// A read of a random kind; what is wrong with it, if anything.
async fn read(tr: &Transaction, model: &Model) -> Result<Option<String>> {
    let snapshot = random::chance(0.3);
    match random::below(3) {
        0 => {
            let key = key();
            let value = tr.get(key.clone(), snapshot).await?;
            let expected = model.get(&key).cloned();
            Ok((value != expected).then(|| format!("{key:?} is {value:?}, not {expected:?}")))
        }
        1 => {
            let ((begin, end), reverse, limit) =
                (ordered(), random::chance(0.5), random::range(1..6) as usize);
            let options = RangeOptions {
                limit: limit as i32,
                reverse,
                ..Default::default()
            };
            let from = KeySelector::first_greater_or_equal(begin.clone());
            let to = KeySelector::first_greater_or_equal(end.clone());
            let rows = tr.get_range_all(from, to, options, snapshot).await?;
            let inside = model.range(begin..end).map(|(k, v)| (k.clone(), v.clone()));
            let expected: Vec<_> = if reverse {
                inside.rev().take(limit).collect()
            } else {
                inside.take(limit).collect()
            };
            Ok((rows != expected).then(|| format!("a range is {rows:?}, not {expected:?}")))
        }
        _ => {
            let (key, or_equal) = (key(), random::chance(0.5));
            let keys: Vec<&Bytes> = model.keys().collect();
            // Where the selector starts among the model's keys, counted from one before the first.
            let base = keys
                .iter()
                .filter(|k| if or_equal { ***k <= key } else { ***k < key })
                .count() as i64;
            let target = random::below(keys.len().max(1) as u64) as i64 + 1;
            if keys.is_empty() {
                return Ok(None);
            }
            let selector = KeySelector::new(key, or_equal, (target - base) as i32);
            let found = tr.get_key(selector.clone(), snapshot).await?;
            let expected = keys[target as usize - 1];
            Ok(
                (found != *expected)
                    .then(|| format!("{selector:?} is {found:?}, not {expected:?}")),
            )
        }
    }
}

impl ReadYourWrites {
    pub fn new() -> Self {
        ReadYourWrites {
            committed: RefCell::new(None),
            complaints: Complaints::default(),
        }
    }

    async fn attempt(&self, database: &Database) -> Result<()> {
        let tr = database.create_transaction();
        let known = self.committed.borrow().clone();
        let found = everything(&tr).await?;
        if known.as_ref().is_some_and(|known| *known != found) {
            self.complaints
                .add(format!("the rows are {found:?}, not {known:?}"));
        }
        let mut model = found;
        for _ in 0..random::range(2..15) {
            if random::chance(0.5) {
                write(&tr, &mut model);
            } else if let Some(wrong) = read(&tr, &model).await? {
                self.complaints.add(wrong);
            }
        }
        // Only this client writes here, so the outcome is known, or it is not.
        *self.committed.borrow_mut() = match ending(tr.commit().await) {
            Ending::Committed => Some(model),
            Ending::Unknown => None,
            Ending::Failed => known,
        };
        Ok(())
    }
}

impl Workload for ReadYourWrites {
    fn name(&self) -> &'static str {
        "read your writes"
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn work(&self, database: Database, _: u64, end: Instant) -> Boxed<'_, ()> {
        Box::pin(async move {
            while plinth_runtime::now() < end {
                // A read that fails ends the attempt before anything was written.
                let _ = self.attempt(&database).await;
                think().await;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let found = until_done(&database, async |tr| everything(&tr).await).await;
            if self
                .committed
                .borrow()
                .as_ref()
                .is_some_and(|known| *known != found)
            {
                return Err(format!(
                    "the rows are {found:?} in the end, not {:?}",
                    self.committed.borrow()
                ));
            }
            self.complaints.verdict()
        })
    }

    fn clients(&self) -> u64 {
        1
    }
}
