//! Conflict ranges: a transaction whose reads another transaction has changed must never commit.
//!
//! A reader reads something of random shape. Then a writer writes a few random keys and commits. Then the reader
//! commits. If the same reads at the writer's version give another result, the reader must have failed. If they give
//! the same result and the reader failed with a conflict, that is a false abort. False aborts are allowed and
//! counted: conflict ranges are wider than the rows that were read, and a resolver also remembers writes of
//! transactions that another resolver has refused.

use super::{Boxed, Complaints, Day, Ending, Space, Verdict, Workload, ending};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_core::key::key_after;
use plinth_core::{Error, Key, KeyRange, KeySelector, Result, Value};
use plinth_runtime::random::{below, chance};
use plinth_runtime::{probe, trace};
use std::cell::Cell;

const KEYS: u64 = 40;

pub struct ConflictRanges {
    space: Space,
    conflicts: Cell<u64>,
    false_aborts: Cell<u64>,
    admitted: Cell<u64>,
    complaints: Complaints,
}

/// A read of the reader.
#[derive(Clone, Debug)]
enum Look {
    Value(Key),
    Key(KeySelector),
    Range(KeySelector, KeySelector, RangeOptions),
}

#[derive(PartialEq, Debug)]
enum Seen {
    Value(Option<Value>),
    Key(Key),
    Rows(Vec<(Key, Value)>),
}

/// Rows at both ends that no selector passes and that never change.
const FENCE: u64 = 8;

fn key(space: Space) -> Key {
    space.key(FENCE + below(KEYS), KEYS + 2 * FENCE)
}

fn selector(space: Space) -> KeySelector {
    KeySelector::new(key(space), chance(0.5), below(7) as i32 - 3)
}

impl Look {
    fn random(space: Space) -> Self {
        match below(3) {
            0 => Look::Value(key(space)),
            1 => Look::Key(selector(space)),
            _ => {
                let options = RangeOptions::limit(below(10) as i32).reversed_if(chance(0.5));
                Look::Range(selector(space), selector(space), options)
            }
        }
    }

    async fn run(&self, tr: &Transaction) -> Result<Seen> {
        Ok(match self.clone() {
            Look::Value(key) => Seen::Value(tr.get(key, false).await?),
            Look::Key(selector) => Seen::Key(tr.get_key(selector, false).await?),
            Look::Range(begin, end, options) => {
                Seen::Rows(tr.get_range_all(begin, end, options, false).await?)
            }
        })
    }
}

fn fill(tr: &Transaction, space: Space) {
    let of = KEYS + 2 * FENCE;
    for n in (0..FENCE).chain(FENCE + KEYS..of) {
        tr.set(space.key(n, of), "fence");
    }
    for _ in 0..KEYS / 2 {
        tr.set(key(space), "row");
    }
}

impl ConflictRanges {
    pub fn new(space: Space) -> Self {
        ConflictRanges {
            space,
            conflicts: Cell::new(0),
            false_aborts: Cell::new(0),
            admitted: Cell::new(0),
            complaints: Complaints::default(),
        }
    }

    /// The space in which one client's reader and writer work.
    fn ground(&self, client: u64) -> Space {
        self.space.part(client, self.clients() + 1)
    }

    async fn duel(&self, database: &Database, client: u64) -> Result<()> {
        let space = self.ground(client);
        let reader = database.create_transaction();
        if chance(0.5) {
            reader.set_option(TransactionOption::ReportConflictingKeys)?;
        }
        let looks: Vec<Look> = (0..below(3) + 1).map(|_| Look::random(space)).collect();
        let mut seen = Vec::new();
        for look in &looks {
            seen.push(look.run(&reader).await?);
        }
        let writer = database.create_transaction();
        for _ in 0..below(3) + 1 {
            match below(3) {
                0 => writer.clear(key(space)),
                _ => writer.set(key(space), format!("{}", below(1 << 40))),
            }
        }
        if ending(writer.commit().await) != Ending::Committed {
            return Ok(()); // without a committed writer there is nothing to check
        }
        let done = self.ground(self.clients());
        reader.set(done.key(client, self.clients()), "");
        let result = reader.commit().await;
        if result == Err(Error::not_committed) {
            self.check_report(&reader, space).await?;
        }
        let committed = ending(result);
        let again = database.create_transaction();
        again.set_read_version(writer.get_committed_version());
        for (look, seen) in looks.iter().zip(&seen) {
            let now = look.run(&again).await?;
            if now != *seen {
                self.changed(committed, look, seen, &now);
                return Ok(());
            }
        }
        let counter = match committed {
            Ending::Failed => &self.false_aborts,
            _ => &self.admitted,
        };
        counter.set(counter.get() + 1);
        Ok(())
    }

    /// Checks that the reported conflict ranges, if there are any, lie in the space that the reader reads.
    async fn check_report(&self, reader: &Transaction, space: Space) -> Result<()> {
        const PREFIX: &[u8] = b"\xff\xff/transaction/conflicting_keys/";
        let all = KeyRange::new(PREFIX, &b"\xff\xff/transaction/conflicting_keys0"[..]);
        let report = reader.get_rows(all, RangeOptions::default(), false);
        let borders = report.await?;
        let of = KEYS + 2 * FENCE;
        let ground = space.key(0, of)..=key_after(&space.key(of - 1, of));
        let inside = |border: &Key| ground.contains(&border.slice(PREFIX.len()..));
        if !borders.is_empty() {
            probe!("workload_conflict_report");
        }
        if !borders.iter().all(|(border, _)| inside(border)) {
            self.complaints
                .add(format!("a conflict report beside {ground:?}: {borders:?}"));
        }
        Ok(())
    }

    fn changed(&self, ending: Ending, look: &Look, seen: &Seen, now: &Seen) {
        self.conflicts.set(self.conflicts.get() + 1);
        if ending == Ending::Committed {
            self.complaints.add(format!(
                "{look:?} saw {seen:?}, would have seen {now:?}, and its transaction committed"
            ));
        }
    }
}

impl Workload for ConflictRanges {
    super::kind!("conflict_ranges", |space, _| ConflictRanges::new(space));

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            for client in 0..self.clients() {
                super::until_done(&database, async |tr| {
                    fill(&tr, self.ground(client));
                    Ok(())
                })
                .await;
            }
        })
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(
            day.fill(async move || match self.duel(&database, client).await {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {}
                Err(Error::all_alternatives_failed | Error::timed_out) => {}
                Err(error) => self.complaints.add(format!("client {client}: {error}")),
            }),
        )
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            if self.false_aborts.get() > 0 {
                probe!("workload_false_conflict");
            }
            trace!("ConflictRanges", "conflicts" => self.conflicts.get(), "admitted" => self.admitted.get(),
                "false_aborts" => self.false_aborts.get());
            self.complaints.verdict()
        })
    }
}
