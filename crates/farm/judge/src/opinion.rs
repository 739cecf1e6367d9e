//! A second opinion, by a program that others have written.
//!
//! It knows registers and the transactions that committed. A freed object is a register with one more value. It takes
//! one model for the whole history: the weakest that a transaction has asked for.

use crate::history::{Moment, NEVER, Outcome};
use crate::order::{BEGINNING, Ordered};
use crate::prepare::{Prepared, ReadOf, Saw};
use crate::violation::{Kind, Violation};
use adya::history::{History, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{Opts, Valid, Workload};
use std::time::Duration;

/// For the search of circles in one part of the graph.
const SEARCH_LIMIT: Duration = Duration::from_secs(30);
/// So much of what it says is shown.
const SHOWN_MAX: usize = 2000;

pub(crate) fn judge(prepared: &Prepared<'_>) -> Result<(), Box<Violation>> {
    let ordered = Ordered::new(prepared)?;
    let asked: Vec<u32> = prepared
        .numbers()
        .filter(|&number| counts(prepared, number))
        .collect();
    if asked.is_empty() {
        return Ok(());
    }
    let options = Opts {
        models: vec![model(prepared, &asked).into()],
        timeout: SEARCH_LIMIT,
        wfr_keys: true,
        ..Opts::default()
    };
    let report = adya::check(
        &translated(&ordered, &asked)?,
        Workload::RwRegister,
        &options,
    );
    let is_silent = report.anomaly_types == ["empty-transaction-graph"];
    if report.valid == Valid::True || is_silent {
        return Ok(());
    }
    let mut why = format!(
        "the second judge finds: {}",
        report.anomaly_types.join(", ")
    );
    let mut involved = Vec::new();
    if let Some(anomaly) = report.anomalies.values().flatten().next() {
        let shown: String = anomaly.explanation.chars().take(SHOWN_MAX).collect();
        why += &format!("\n{shown}");
        let takes_part = |&number: &u32| anomaly.ops.contains(&prepared.transaction(number).id);
        involved.extend(prepared.numbers().filter(takes_part));
    }
    Err(prepared.violation(Kind::SecondOpinion, &involved, None, why))
}

/// True for what committed, or took effect.
fn counts(prepared: &Prepared<'_>, number: u32) -> bool {
    let is_read_only = prepared.transaction(number).outcome == Outcome::ReadOnly;
    is_read_only || prepared.wrote_at[number as usize].is_some()
}

fn model(prepared: &Prepared<'_>, asked: &[u32]) -> &'static str {
    let split = asked.iter().any(|&number| prepared.is_split(number));
    let strict = asked.iter().all(|&number| prepared.is_strict(number));
    match (split, strict) {
        (false, true) => "strict-serializable",
        (false, false) => "serializable",
        (true, true) => "strong-snapshot-isolation",
        (true, false) => "snapshot-isolation",
    }
}

/// Each transaction is a process of its own: the order of processes says nothing.
fn translated(ordered: &Ordered<'_, '_>, asked: &[u32]) -> Result<History, Box<Violation>> {
    let prepared = ordered.prepared;
    let mut interner = Interner::default();
    let mut intern = |number: u32| interner.intern(Scalar::Int(i64::from(number)));
    let mut timed: Vec<(Moment, OpType, Op)> = Vec::with_capacity(asked.len() * 2);
    for &number in asked {
        let mut value = Vec::new();
        for &read in prepared.reads.of(number) {
            let seen = match saw(ordered, number, read)? {
                Some(writer) => ReadValue::Scalar(intern(writer)),
                None => ReadValue::Nil,
            };
            let key = intern(read.object);
            value.push(Mop::Read { key, value: seen });
        }
        for write in prepared.writes.of(number) {
            let (key, value_of) = (intern(write.object), intern(number));
            value.push(Mop::Write {
                key,
                value: value_of,
            });
        }
        let begin = prepared.transaction(number).begin;
        let end = prepared.ended(number).unwrap_or(NEVER);
        for (at, kind) in [(begin, OpType::Invoke), (end, OpType::Ok)] {
            let op = Op {
                index: prepared.transaction(number).id,
                kind,
                process: Some(i64::from(number)),
                value: value.clone(),
                time: None,
            };
            timed.push((at, kind, op));
        }
    }
    // What ended at the moment at which another began did not end before it.
    timed.sort_by_key(|(at, kind, _)| (*at, *kind == OpType::Ok));
    let ops = timed.into_iter().map(|(_, _, op)| op).collect();
    Ok(History::from_ops(ops, interner))
}

/// Whose version a read returned, freed ones too; `None` for the beginning.
fn saw(
    ordered: &Ordered<'_, '_>,
    number: u32,
    read: ReadOf,
) -> Result<Option<u32>, Box<Violation>> {
    let place = ordered.place(number, read)?.unwrap_or(BEGINNING);
    Ok(match (ordered.version(read.object, place), read.saw) {
        (_, Saw::By(writer)) => Some(writer),
        (version, _) => version.map(|version| version.writer),
    })
}
