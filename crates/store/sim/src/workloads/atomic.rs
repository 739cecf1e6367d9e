//! Atomic operations: every transaction adds to a counter, updates the maximum in another, and writes the added
//! amount under a key of its own. Whatever was retried, the counter must be the sum of these notes and the maximum
//! their maximum.

use super::{Boxed, Day, Space, Verdict, Workload, number, read_rows, until_done};
use plinth_client::Database;
use plinth_core::{Key, MutationKind};
use plinth_runtime::random;
use std::cell::Cell;

const NOTES_MAX: u64 = 1_000_000;

pub struct Atomic {
    counters: Space,
    notes: Space,
    next: Cell<u64>,
}

impl Atomic {
    pub fn new(space: Space) -> Self {
        Atomic {
            counters: space.part(0, 2),
            notes: space.part(1, 2),
            next: Cell::new(0),
        }
    }

    /// Key of a note; the keys of consecutive notes lie far from each other.
    fn note(&self, id: u64) -> Key {
        self.notes.key(id * 7919 % NOTES_MAX, NOTES_MAX)
    }

    async fn add(&self, database: &Database) {
        let note = self.note(self.next.replace(self.next.get() + 1));
        let amount = random::range(1..1000);
        until_done(database, async |tr| {
            // An earlier attempt with an unknown result may have committed: then the note exists.
            if tr.get(&note, false).await?.is_some() {
                return Ok(());
            }
            let operand = amount.to_le_bytes();
            tr.atomic_op(MutationKind::Add, self.counters.named("sum"), operand);
            tr.atomic_op(MutationKind::Max, self.counters.named("max"), operand);
            tr.set(&note, amount.to_string());
            Ok(())
        })
        .await;
    }

    async fn counter(&self, database: &Database, name: &str) -> u64 {
        let key = self.counters.named(name);
        let value = until_done(database, async |tr| tr.get(&key, false).await).await;
        value.map_or(0, |v| {
            u64::from_le_bytes(v[..].try_into().unwrap_or_default())
        })
    }
}

impl Workload for Atomic {
    super::kind!("atomic", |space, _| Atomic::new(space));

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || self.add(&database).await))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let notes = read_rows(&database, self.notes).await;
            let noted: Vec<u64> = notes.iter().map(|(_, note)| number(note) as u64).collect();
            let (done, begun) = (noted.len() as u64, self.next.get());
            if done != begun {
                return Err(format!("{done} of {begun} transactions left their note"));
            }
            let (sum, max) = (noted.iter().sum::<u64>(), noted.iter().copied().max());
            for (name, noted) in [("sum", sum), ("max", max.unwrap_or(0))] {
                let counted = self.counter(&database, name).await;
                if counted != noted {
                    return Err(format!("the {name} is {counted}, and {noted} by the notes"));
                }
            }
            Ok(())
        })
    }
}
