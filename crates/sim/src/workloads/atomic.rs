//! Atomic operations: every transaction adds to a counter, takes the maximum of another, and notes what it added under a
//! key of its own. The counter is the sum of the notes, the maximum their maximum, whatever was retried.

use super::{Boxed, Day, Verdict, Workload, number, until_done};
use plinth_client::{Database, RangeOptions};
use plinth_core::{KeySelector, MutationKind};
use plinth_runtime::random;
use std::cell::Cell;

pub struct Atomic {
    next: Cell<u64>,
}

impl Atomic {
    pub fn new() -> Self {
        Atomic { next: Cell::new(0) }
    }
}

fn little_endian(value: Option<bytes::Bytes>) -> u64 {
    value.map_or(0, |v| {
        u64::from_le_bytes(v[..].try_into().unwrap_or_default())
    })
}

impl Workload for Atomic {
    fn name(&self) -> &'static str {
        "atomic"
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            while !day.is_over() {
                let id = self.next.replace(self.next.get() + 1);
                let amount = random::range(1..1000);
                let note = format!("atomic/note/{id:06}").into_bytes();
                until_done(&database, async |tr| {
                    // An attempt whose result was unknown may have happened: the note tells.
                    if tr.get(note.clone(), false).await?.is_some() {
                        return Ok(());
                    }
                    tr.atomic_op(MutationKind::Add, b"atomic/sum", amount.to_le_bytes());
                    tr.atomic_op(MutationKind::Max, b"atomic/max", amount.to_le_bytes());
                    tr.set(&note, amount.to_string());
                    Ok(())
                })
                .await;
                day.think().await;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let (notes, sum, max) = until_done(&database, async |tr| {
                let begin = KeySelector::first_greater_or_equal(&b"atomic/note/"[..]);
                let end = KeySelector::first_greater_or_equal(&b"atomic/note0"[..]);
                let notes = tr
                    .get_range_all(begin, end, RangeOptions::default(), false)
                    .await?;
                let sum = tr.get(&b"atomic/sum"[..], false).await?;
                let max = tr.get(&b"atomic/max"[..], false).await?;
                Ok((notes, little_endian(sum), little_endian(max)))
            })
            .await;
            let noted: Vec<u64> = notes
                .iter()
                .map(|(_, value)| number(value) as u64)
                .collect();
            let (expected_sum, expected_max) = (
                noted.iter().sum::<u64>(),
                noted.iter().copied().max().unwrap_or(0),
            );
            if noted.len() as u64 != self.next.get() {
                return Err(format!(
                    "{} of {} transactions left their note",
                    noted.len(),
                    self.next.get()
                ));
            }
            if (sum, max) != (expected_sum, expected_max) {
                return Err(format!(
                    "sum {sum}, maximum {max}; the notes say {expected_sum}, {expected_max}"
                ));
            }
            Ok(())
        })
    }
}
