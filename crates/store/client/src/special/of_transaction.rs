//! What a transaction knows of itself: its conflict ranges, and why its last write to a special key was refused.

use super::{MODULES, Module, Rows, single};
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::Value;
use plinth_core::key::KeyRange;

const CONFLICTING: &[u8] = b"\xff\xff/transaction/conflicting_keys/";
const READ_CONFLICTS: &[u8] = b"\xff\xff/transaction/read_conflict_range/";
const WRITE_CONFLICTS: &[u8] = b"\xff\xff/transaction/write_conflict_range/";
const ERROR_MESSAGE: &[u8] = b"\xff\xff/error_message";

#[linkme::distributed_slice(MODULES)]
static CONFLICTS: Module = Module {
    begin: b"\xff\xff/transaction/",
    end: b"\xff\xff/transaction0",
    rows: |transaction, _| {
        let rows = conflicts(transaction);
        Box::pin(async { Ok(rows) })
    },
    writable: &[],
};

#[linkme::distributed_slice(MODULES)]
static LAST_ERROR: Module = Module {
    begin: ERROR_MESSAGE,
    end: b"\xff\xff/error_message\0",
    rows: |transaction, _| {
        let message = transaction.inner.state.borrow().special_error.clone();
        let rows = single(ERROR_MESSAGE, message.map(Value::from));
        Box::pin(async { Ok(rows) })
    },
    writable: &[],
};

fn conflicts(transaction: &Transaction) -> Rows {
    let mut state = transaction.inner.state.borrow_mut();
    let version = state.stamp_version_min();
    let mut conflicting = state.attempt.conflicting().borrow().clone();
    conflicting.sort();
    let mut rows = borders(CONFLICTING, conflicting.into_iter());
    rows.extend(borders(READ_CONFLICTS, state.attempt.sorted_reads().iter()));
    let written = state.log.write_conflicts(version);
    rows.extend(borders(WRITE_CONFLICTS, written.iter()));
    rows
}

/// Ranges in order, as their borders; those that touch or overlap are one.
fn borders(prefix: &[u8], ranges: impl Iterator<Item = KeyRange>) -> Rows {
    let mut merged: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.begin => {
                last.end = range.end.max(last.end.clone());
            }
            _ => merged.push(range),
        }
    }
    let row = |key: &[u8], value: &'static [u8]| {
        let key = Bytes::from([prefix, key].concat());
        (key, Value::from_static(value))
    };
    merged
        .iter()
        .flat_map(|range| [row(&range.begin, b"1"), row(&range.end, b"0")])
        .collect()
}
