//! Shards: transactions on the system keyspace split shards without moving them, while rows are written on both
//! sides of the new boundary. Every proxy must learn of a split before it tags later mutations (pitfall 7).
//!
//! A boundary may disappear again, because the data distributor merges small shards. So each split also excludes a
//! process that does not exist, and every acknowledged exclusion must be present at the end. The replica check
//! verifies that every proxy has the same map.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, until_done};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_control::exclusion::{self, Target};
use plinth_core::system_keys::{KEY_SERVERS, key_servers_key};
use plinth_core::{Key, KeySelector, Result};
use plinth_runtime::random::{below, chance};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const ROWS: u64 = 200;
/// Limit of splits; a run needs no more.
const SPLITS_MAX: u32 = 12;

pub struct Shards {
    space: Space,
    splits: Cell<u32>,
    excluded: RefCell<BTreeSet<Key>>,
    written: RefCell<BTreeSet<Key>>,
    complaints: Complaints,
}

impl Shards {
    pub fn new(space: Space) -> Self {
        Shards {
            space,
            splits: Cell::new(0),
            excluded: RefCell::default(),
            written: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    async fn split(&self, database: &Database) {
        let boundary = self.space.key(below(ROWS), ROWS);
        let row = self.space.key(below(ROWS), ROWS);
        // From an address range that is reserved for examples.
        let nobody = SocketAddr::from(([192, 0, 2, 1], 1 + below(60_000) as u16));
        let mark: Key = exclusion::key(&Target::Process(nobody)).into();
        until_done(database, async |tr: Transaction| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.set(&mark, "");
            let entry = key_servers_key(&boundary);
            let holder = holder_of(&tr, &entry).await?;
            if let Some(record) = holder {
                tr.set(&entry, record);
            } else {
                self.complaints.add(format!("no shard holds {boundary:?}"));
            }
            // Write a row in the same transaction that may change its shard.
            tr.set(&row, "row");
            Ok(())
        })
        .await;
        self.excluded.borrow_mut().insert(mark);
        self.written.borrow_mut().insert(row);
    }

    async fn write(&self, database: &Database) {
        let row = self.space.key(below(ROWS), ROWS);
        until_done(database, async |tr: Transaction| {
            tr.set(&row, "row");
            Ok(())
        })
        .await;
        self.written.borrow_mut().insert(row);
    }

    async fn marks(&self, database: &Database) -> BTreeSet<Key> {
        until_done(database, async |tr: Transaction| {
            tr.set_option(TransactionOption::ReadSystemKeys)?;
            let marks = exclusion::read(&tr).await?;
            Ok(marks
                .iter()
                .map(|mark| exclusion::key(mark).into())
                .collect())
        })
        .await
    }
}

/// The record of the shard that contains the key of `entry`.
async fn holder_of(tr: &Transaction, entry: &Key) -> Result<Option<Key>> {
    let begin = KeySelector::first_greater_or_equal(KEY_SERVERS);
    let end = KeySelector::first_greater_than(entry.clone());
    let options = RangeOptions::limit(1).reversed();
    let rows = tr.get_range_all(begin, end, options, false).await?;
    Ok(rows.into_iter().next().map(|(_, record)| record))
}

impl Workload for Shards {
    super::kind!("shards", |space, _| Shards::new(space));
    fn is_operators(&self) -> bool {
        true
    }

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || {
            if self.splits.get() < SPLITS_MAX && chance(0.2) {
                self.splits.set(self.splits.get() + 1);
                self.split(&database).await;
            } else {
                self.write(&database).await;
            }
        }))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let marks = self.marks(&database).await;
            if let Some(lost) = self.excluded.borrow().difference(&marks).next() {
                return Err(format!("the exclusion {lost:?} is lost"));
            }
            let rows = super::read_rows(&database, self.space).await;
            let found: BTreeSet<Key> = rows.into_iter().map(|(key, _)| key).collect();
            if let Some(lost) = self.written.borrow().difference(&found).next() {
                return Err(format!("the row {lost:?} is lost"));
            }
            self.complaints.verdict()
        })
    }
}
