//! Limits: many clients at once commit transactions of nearly the maximum size. They share batches and syncs, logs
//! hold more data than fits into a frame, and storage servers lag. At the end all rows of a client must be of one
//! round, and that round must not be older than the acknowledged one.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, until_done};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::{Key, KeyRange, Value};
use plinth_runtime::random::{below, range};
use plinth_runtime::{Duration, sleep};
use std::cell::RefCell;

const CLIENTS: u64 = 10;
const ROWS: u64 = 100;
/// With keys, conflict ranges and the overhead of each, a transaction has just below 10,000,000 bytes.
const VALUE_BYTES: u64 = 98_000;
/// Number of rounds. The transactions of a round exceed a frame together; more rounds would exceed the memory of a
/// simulation.
const ROUNDS: u64 = 3;
/// Seconds between two rounds. The transactions of a round begin at about the same time.
const ROUND_S: u64 = 8;

pub struct Limits {
    space: Space,
    /// Newest acknowledged round of each client.
    acknowledged: RefCell<[u64; CLIENTS as usize]>,
    complaints: Complaints,
}

impl Limits {
    pub fn new(space: Space) -> Self {
        Limits {
            space,
            acknowledged: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    fn key(&self, client: u64, row: u64) -> Key {
        self.space.key(client * ROWS + row, CLIENTS * ROWS)
    }

    async fn rows_of(&self, database: &Database, client: u64) -> Vec<(Key, Value)> {
        let end = match client + 1 {
            CLIENTS => self.space.end(),
            next => self.key(next, 0),
        };
        let rows = KeyRange::new(self.key(client, 0), end);
        until_done(database, async |tr: Transaction| {
            tr.get_rows(rows.clone(), RangeOptions::default(), true)
                .await
        })
        .await
    }
}

fn value(client: u64, round: u64, length: u64) -> Value {
    let mut value = vec![(client + 7 * round) as u8; length as usize];
    value[..8].copy_from_slice(&round.to_le_bytes());
    value.into()
}

/// The round of a value; `None` if the value is not whole.
fn round_of(client: u64, found: &Value) -> Option<u64> {
    let round = u64::from_le_bytes(found.get(..8)?.try_into().ok()?);
    (value(client, round, found.len() as u64) == *found).then_some(round)
}

impl Workload for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn clients(&self) -> u64 {
        CLIENTS
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            for round in 1..=ROUNDS {
                sleep(Duration::from_secs(ROUND_S) + Duration::from_millis(below(50))).await;
                if day.is_over() {
                    return;
                }
                let length = range(VALUE_BYTES - 5000..VALUE_BYTES);
                until_done(&database, async |tr: Transaction| {
                    for row in 0..ROWS {
                        tr.set(self.key(client, row), value(client, round, length));
                    }
                    Ok(())
                })
                .await;
                self.acknowledged.borrow_mut()[client as usize] = round;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            for client in 0..CLIENTS {
                let rows = self.rows_of(&database, client).await;
                let rounds = rows.iter().map(|(_, value)| round_of(client, value));
                let rounds: Vec<Option<u64>> = rounds.collect();
                let floor = self.acknowledged.borrow()[client as usize];
                let is_one = rounds.windows(2).all(|pair| pair[0] == pair[1]);
                let count = rows.len() as u64;
                let newest = rounds.first().copied().unwrap_or(Some(0));
                let whole = count == ROWS || (count == 0 && floor == 0);
                if !is_one || !whole || newest.is_none_or(|round| round < floor) {
                    self.complaints.add(format!(
                        "client {client}, acknowledged {floor}, has {count} rows of {rounds:?}"
                    ));
                }
            }
            self.complaints.verdict()
        })
    }
}
