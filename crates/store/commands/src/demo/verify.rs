//! Checks of the reopened database. It must hold every line of the file, in some row, as often as in the file;
//! exactly one index entry per row; the sum of the accounts; every receipt of an acknowledged transaction.

use super::work::{self, Worked};
use bytes::Bytes;
use plinth_client::{Database, RangeOptions, StreamingMode};
use plinth_core::{Error, Key, KeySelector, Result, Value};
use plinth_runtime::now;
use plinth_terminal::Outcome;

/// Results of the verification.
pub struct Verified {
    pub rows: u64,
    pub took_s: f64,
    pub failures: Vec<String>,
}

impl Verified {
    pub fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.took_s
    }
}

pub async fn first_read(database: &Database) -> Outcome {
    let read = database.run(async |t| t.get(work::row_key(0), false).await);
    match read.await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("the first row is gone after reopening".into()),
        Err(error) => Err(format!("cannot read after reopening: {error}")),
    }
}

pub async fn run(database: &Database, records: &[Bytes], worked: &Worked) -> Outcome<Verified> {
    let cannot = |error: Error| format!("cannot read everything: {error}");
    let start = now();
    let rows = scan(database, work::ROW).await.map_err(cannot)?;
    let index = scan(database, work::INDEX).await.map_err(cannot)?;
    let sum = database
        .run(async |t| work::audit_sum(&t).await)
        .await
        .map_err(cannot)?;
    let receipts = scan(database, work::RECEIPT).await.map_err(cannot)?;
    let mut failures = Vec::new();
    check_rows(records, &rows, &mut failures);
    check_index(
        &rows,
        index.iter().map(|(key, _)| key.clone()).collect(),
        &mut failures,
    );
    if sum != work::SUM {
        failures.push(format!("the accounts hold {sum} instead of {}", work::SUM));
    }
    check_receipts(&worked.receipts, &receipts, &mut failures);
    Ok(Verified {
        rows: (rows.len() + index.len()) as u64,
        took_s: start.elapsed().as_secs_f64(),
        failures,
    })
}

/// Reads every pair whose key begins with `prefix`. Nothing writes now, so reading at several versions is correct.
async fn scan(database: &Database, prefix: &'static [u8]) -> Result<Vec<(Key, Value)>> {
    let (mut begin, end) = work::all_of(prefix).selectors();
    let mut pairs = Vec::new();
    let transaction = database.create_transaction();
    loop {
        let options = RangeOptions::mode(StreamingMode::WantAll);
        match transaction
            .get_range(begin.clone(), end.clone(), options, true)
            .await
        {
            Ok(chunk) => {
                pairs.extend(chunk.rows);
                match pairs.last() {
                    Some((last, _)) if chunk.more => {
                        begin = KeySelector::first_greater_than(last.clone())
                    }
                    _ => return Ok(pairs),
                }
            }
            Err(error) => transaction.on_error(error).await?,
        }
    }
}

fn check_rows(records: &[Bytes], rows: &[(Key, Value)], failures: &mut Vec<String>) {
    if rows.len() != records.len() {
        failures.push(format!("{} rows instead of {}", rows.len(), records.len()));
    }
    let mut wanted: Vec<&[u8]> = records.iter().map(|line| &line[..]).collect();
    let mut found: Vec<&[u8]> = rows.iter().map(|(_, line)| &line[..]).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    if wanted != found {
        let different = wanted
            .iter()
            .zip(&found)
            .position(|(a, b)| a != b)
            .unwrap_or(0);
        failures.push(format!(
            "the lines are not those of the file; they differ at the {different}th in order"
        ));
    }
}

/// The index must equal one built from the rows now.
fn check_index(rows: &[(Key, Value)], index: Vec<Key>, failures: &mut Vec<String>) {
    let number = |key: &Key| {
        let bytes = key
            .get(work::ROW.len()..)
            .and_then(|rest| rest.try_into().ok());
        bytes.map_or(u32::MAX, u32::from_be_bytes)
    };
    let mut wanted: Vec<Key> = rows
        .iter()
        .map(|(key, line)| work::index_key(line, number(key)))
        .collect();
    wanted.sort_unstable();
    if wanted != index {
        failures.push(format!(
            "the index has {} entries, and is not what the {} rows ask for",
            index.len(),
            rows.len()
        ));
    }
}

fn check_receipts(told: &[u64], stored: &[(Key, Value)], failures: &mut Vec<String>) {
    let stored: Vec<u64> = stored
        .iter()
        .map(|(_, value)| work::number(value) as u64)
        .collect();
    let told: Vec<u64> = told.iter().copied().filter(|count| *count > 0).collect();
    if stored != told {
        failures.push(format!(
            "receipts {stored:?} are stored, {told:?} were given out"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lines: &[&'static str]) -> Vec<(Key, Value)> {
        let row = |(i, line): (usize, &&'static str)| {
            (work::row_key(i as u32), Value::from_static(line.as_bytes()))
        };
        lines.iter().enumerate().map(row).collect()
    }

    #[test]
    fn rows_may_be_exchanged_but_none_lost_doubled_or_changed() {
        let records: Vec<Bytes> = ["a", "b", "b"].map(Bytes::from).to_vec();
        let failures = |lines: &[&'static str]| {
            let mut failures = Vec::new();
            check_rows(&records, &rows(lines), &mut failures);
            failures.len()
        };
        assert_eq!(failures(&["b", "a", "b"]), 0);
        assert_eq!(failures(&["b", "a", "a"]), 1);
        assert_eq!(failures(&["b", "a"]), 2);
    }

    #[test]
    fn the_index_has_an_entry_a_row_and_no_other() {
        let rows = rows(&["b", "a"]);
        let failures = |index: Vec<Key>| {
            let mut failures = Vec::new();
            check_index(&rows, index, &mut failures);
            failures.len()
        };
        let (a, b) = (work::index_key(b"a", 1), work::index_key(b"b", 0));
        assert_eq!(failures(vec![a.clone(), b.clone()]), 0);
        assert_eq!(failures(vec![a.clone()]), 1);
        assert_eq!(failures(vec![work::index_key(b"a", 0), a, b]), 1);
    }

    #[test]
    fn a_receipt_that_was_given_out_is_stored() {
        let failures = |told: &[u64], stored: u64| {
            let mut failures = Vec::new();
            let stored = [(Key::new(), Value::copy_from_slice(&stored.to_le_bytes()))];
            check_receipts(told, &stored, &mut failures);
            failures.len()
        };
        assert_eq!(failures(&[5, 0], 5), 0);
        assert_eq!(failures(&[5, 0], 4), 1);
    }
}
