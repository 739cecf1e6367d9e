//! Bulk: groups of rows with long values; each transaction writes a whole group. This makes logs spill, fills
//! windows, and keeps engines writing. At the end every group must be whole and no older than the newest
//! acknowledged round.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, number, read_rows, until_done};
use plinth_client::{Database, Transaction};
use plinth_core::{Key, Value};
use plinth_runtime::random::{below, chance, range};
use std::cell::RefCell;
use std::collections::BTreeMap;

const GROUPS: u64 = 6;
const ROWS: u64 = 8;
const VALUE_BYTES_MAX: u64 = 6_000;
/// Length of an occasional value near the maximum size.
const LONG_VALUE_BYTES: u64 = 90_000;

pub struct Bulk {
    space: Space,
    /// Newest acknowledged round of each group. Only one client writes a group.
    acknowledged: RefCell<BTreeMap<u64, i64>>,
    complaints: Complaints,
}

/// A value whose text begins with its round and length, which determine the rest.
fn value(group: u64, row: u64, round: i64, length: u64) -> Value {
    let head = format!("{round} {length} ");
    let mut state = group * 31 + row * 7 + round as u64;
    let tail = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    head.bytes().chain(tail).collect()
}

/// The round of a value; `None` if the value is not whole.
fn round_of(group: u64, row: u64, found: &Value) -> Option<i64> {
    let mut words = found.splitn(3, |byte| *byte == b' ').map(number);
    let (round, length) = (words.next()?, words.next()?);
    let length = u64::try_from(length)
        .ok()
        .filter(|length| *length <= LONG_VALUE_BYTES)?;
    (value(group, row, round, length) == *found).then_some(round)
}

impl Bulk {
    pub fn new(space: Space) -> Self {
        Bulk {
            space,
            acknowledged: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    fn key(&self, group: u64, row: u64) -> Key {
        self.space.key(group * ROWS + row, GROUPS * ROWS)
    }

    async fn write(&self, database: &Database, group: u64, round: i64) {
        let length = if chance(0.05) {
            LONG_VALUE_BYTES
        } else {
            range(1..VALUE_BYTES_MAX)
        };
        let clears = chance(0.2);
        until_done(database, async |tr: Transaction| {
            if clears {
                // Up to the first row of the next group, or the end of the space.
                let end = if group + 1 < GROUPS {
                    self.key(group + 1, 0)
                } else {
                    self.space.end()
                };
                tr.clear_range(self.key(group, 0), end);
            }
            for row in 0..ROWS {
                tr.set(self.key(group, row), value(group, row, round, length));
            }
            Ok(())
        })
        .await;
        self.acknowledged.borrow_mut().insert(group, round);
    }

    /// Complains unless the group is whole and its round is at least `floor`.
    fn inspect(&self, group: u64, floor: i64, rows: &[(Key, Value)]) {
        let rounds: Vec<Option<i64>> = (0..ROWS)
            .map(|row| {
                let key = self.key(group, row);
                let found = rows.iter().find(|(k, _)| *k == key);
                found.map_or(Some(0), |(_, value)| round_of(group, row, value))
            })
            .collect();
        let whole = rounds.windows(2).all(|pair| pair[0] == pair[1]);
        if !whole || rounds[0].is_none_or(|round| round < floor) {
            self.complaints.add(format!(
                "group {group}, acknowledged {floor}, has rounds {rounds:?}"
            ));
        }
    }

    fn floor(&self, group: u64) -> i64 {
        self.acknowledged.borrow().get(&group).copied().unwrap_or(0)
    }
}

impl Workload for Bulk {
    super::kind!("bulk", |space, _| Bulk::new(space));

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            let mut round = 0;
            while !day.is_over() {
                round += 1;
                let group = below(GROUPS / self.clients()) * self.clients() + client;
                self.write(&database, group, round).await;
                if chance(0.1) {
                    let floor = self.floor(group);
                    let rows = read_rows(&database, self.space).await;
                    self.inspect(group, floor, &rows);
                }
                day.think().await;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let rows = read_rows(&database, self.space).await;
            (0..GROUPS).for_each(|group| self.inspect(group, self.floor(group), &rows));
            self.complaints.verdict()
        })
    }
}
