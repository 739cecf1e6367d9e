//! Scattered: transfers of amounts between rows, each row in a shard of its own, far from the others. Ranges between
//! the rows are cleared over hundreds of shards. Reads are of single rows only: with 100,000 shards, a range read
//! over many of them takes too long. At the end the sum must be unchanged, and no acknowledged transfer may be
//! missing.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, number, until_done};
use plinth_client::{Database, Transaction};
use plinth_core::key::key_after;
use plinth_core::{Key, Result};
use plinth_runtime::random::{below, chance, range};
use std::cell::Cell;

const ROWS: u64 = 240;
const CLIENTS: u64 = 8;
const TO_BEGIN_WITH: i64 = 1000;

pub struct Scattered {
    space: Space,
    /// Acknowledged transfers.
    acknowledged: Cell<i64>,
    /// Attempts begun; an attempt with an unknown result may have committed.
    begun: Cell<i64>,
    complaints: Complaints,
}

impl Scattered {
    pub fn new(space: Space) -> Self {
        Scattered {
            space,
            acknowledged: Cell::new(0),
            begun: Cell::new(0),
            complaints: Complaints::default(),
        }
    }

    fn key(&self, row: u64) -> Key {
        self.space.key(row, ROWS)
    }

    /// Key of the number of transfers that a client has made.
    fn count_key(&self, client: u64) -> Key {
        [&self.key(client * ROWS / CLIENTS)[..], b"/count"]
            .concat()
            .into()
    }

    async fn amount(&self, tr: &Transaction, key: Key) -> Result<i64> {
        let found = tr.get(key, false).await?;
        Ok(found.map_or(0, |value| number(&value)))
    }

    async fn transfer(&self, database: &Database, client: u64) {
        let (from, to) = (below(ROWS), below(ROWS));
        let (amount, clears) = (range(1..100) as i64, chance(0.1));
        // A retry after an unknown result may apply the transfer again. So the count is at most the number of
        // attempts.
        until_done(database, async |tr: Transaction| {
            self.begun.set(self.begun.get() + 1);
            let count = self.amount(&tr, self.count_key(client)).await?;
            tr.set(self.count_key(client), (count + 1).to_string());
            for (row, change) in [(from, -amount), (to, amount)] {
                let before = self.amount(&tr, self.key(row)).await?;
                tr.set(self.key(row), (before + change).to_string());
            }
            if clears && from + 1 < ROWS {
                let after_count = [&self.key(from)[..], b"/d"].concat();
                tr.clear_range(key_after(&after_count), self.key(from + 1));
            }
            Ok(())
        })
        .await;
        self.acknowledged.set(self.acknowledged.get() + 1);
    }
}

impl Workload for Scattered {
    fn name(&self) -> &'static str {
        "scattered"
    }

    fn clients(&self) -> u64 {
        CLIENTS
    }

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            until_done(&database, async |tr: Transaction| {
                (0..ROWS).for_each(|row| tr.set(self.key(row), TO_BEGIN_WITH.to_string()));
                Ok(())
            })
            .await;
        })
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || self.transfer(&database, client).await))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let (sum, made) = until_done(&database, async |tr: Transaction| {
                let rows = (0..ROWS).map(|row| self.amount(&tr, self.key(row)));
                let rows = plinth_runtime::join_all(rows.collect::<Vec<_>>()).await;
                let counts = (0..CLIENTS).map(|client| self.amount(&tr, self.count_key(client)));
                let counts = plinth_runtime::join_all(counts.collect::<Vec<_>>()).await;
                let sum: i64 = rows.into_iter().sum::<Result<i64>>()?;
                Ok((sum, counts.into_iter().sum::<Result<i64>>()?))
            })
            .await;
            let (acknowledged, begun) = (self.acknowledged.get(), self.begun.get());
            if sum != TO_BEGIN_WITH * ROWS as i64 {
                self.complaints.add(format!("the sum is {sum}"));
            }
            if !(acknowledged..=begun).contains(&made) {
                self.complaints.add(format!(
                    "{made} transfers were made, {acknowledged} acknowledged, {begun} begun"
                ));
            }
            self.complaints.verdict()
        })
    }
}
