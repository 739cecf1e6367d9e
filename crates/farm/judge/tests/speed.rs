//! Long histories are judged in seconds.
#![allow(clippy::disallowed_types)] // it measures real time

use crate::written::generate::{SMALL, Shape, generate};
use crate::written::*;
use plinth_farm_judge::*;
use std::time::Duration;

use std::time::Instant;

#[test]
fn a_hundred_thousand_transactions_are_judged_in_seconds() {
    let shape = Shape {
        transactions: 100_000,
        objects: 20_000,
        operations: 19,
        at_a_time: 16,
        options: 10,
        frees: 5,
        unknown: 1,
        reads_all: true,
        ..SMALL
    };
    let history = generate(1, shape);
    let operations: usize = history
        .transactions
        .iter()
        .map(|t| t.reads.len() + t.writes.len())
        .sum();
    let timed = |what: &str, judge: &dyn Fn()| {
        let start = Instant::now();
        judge();
        eprintln!("{operations} operations, {what}: {:?}", start.elapsed());
        start.elapsed()
    };
    let by_timestamps = timed("by timestamps", &|| {
        assert!(judge_by_timestamps(&history).is_ok())
    });
    let by_order = timed("by order", &|| assert!(judge_by_order(&history).is_ok()));
    assert!(by_timestamps + by_order < Duration::from_secs(20));
    // One more sees the first version that was replaced: everything between is on a circle.
    let mut stale = history;
    let has_value = |t: &&Transaction| t.reads.iter().any(|read| read.seen == Seen::Initial);
    let early = stale
        .transactions
        .iter()
        .find(has_value)
        .expect("somebody read the beginning");
    let first = early
        .reads
        .iter()
        .find(|read| read.seen == Seen::Initial)
        .expect("it did");
    let (read, id) = (*first, stale.transactions.len() as Id + 10);
    let begin = stale.transactions.last().expect("there are many").end + 1;
    let late = tx(id, begin, begin + 1)
        .reads_at(begin * 10)
        .sees(read.object, read.seen);
    stale.transactions.push(late.aborts());
    // As if other processes had recorded the first ones.
    stale.transactions.rotate_left(50_000);
    let found = timed("a violation found", &|| {
        let violation = judge_by_order(&stale).expect_err("it is wrong");
        assert_eq!(
            (violation.kind, violation.transactions.len()),
            (Kind::Cycle, 2),
            "{violation}"
        );
    });
    assert!(found < Duration::from_secs(20));
}
