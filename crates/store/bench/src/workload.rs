//! The transactions of the workloads. The names are those of FoundationDB's performance page.

use crate::table::{Table, Values};
use crate::target::Transaction;
use plinth_core::key::key_after;
use plinth_core::{Key, Result, Value};
use plinth_runtime::{Duration, now, random};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// Point operations in a transaction of the random workloads.
const RANDOM_OPERATIONS: u32 = 10;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    /// Point reads and sets of random rows, this many of each.
    Points { reads: u32, writes: u32 },
    /// Ten point operations; each is a read with this probability, otherwise a set.
    Random { read_share: f64 },
    /// `first` with probability `share`, otherwise `second`; both are (reads, writes).
    Either {
        share: f64,
        first: (u32, u32),
        second: (u32, u32),
    },
    /// One range read of `keys` neighbouring rows.
    Range { keys: u64 },
    /// Sets of `keys` neighbouring rows.
    Adjacent { keys: u64 },
    /// Sets of `keys` neighbouring rows, then reads of one row or key each, spread over these rows.
    OwnWrites { keys: u64 },
    /// Sets of the next rows that no client has taken yet.
    BulkLoad,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Number of clients if the user names none. 1 for workloads that measure the latency of an idle cluster.
    pub default_clients: usize,
    shape: Shape,
}

const BUSY: usize = 100;
/// Rounds of reads among the transaction's own writes, with three reads each.
const OWN_ROUNDS: u64 = 10;
/// The reads cover at least this many rows.
const OWN_SPAN_MIN: u64 = 1000;

/// A workload that keeps the cluster busy.
const fn busy(name: &'static str, about: &'static str, shape: Shape) -> Workload {
    Workload {
        name,
        about,
        default_clients: BUSY,
        shape,
    }
}

/// A workload that measures the latency of an idle cluster.
const fn idle(name: &'static str, about: &'static str, shape: Shape) -> Workload {
    Workload {
        name,
        about,
        default_clients: 1,
        shape,
    }
}

#[rustfmt::skip]
const WORKLOADS: &[Workload] = &[
    busy("random-90-10", "10 point operations a transaction, 90% reads", Shape::Random { read_share: 0.9 }),
    busy("random-50-50", "10 point operations a transaction, half of them reads", Shape::Random { read_share: 0.5 }),
    busy("point-reads", "10 point reads a transaction", Shape::Points { reads: 10, writes: 0 }),
    busy("point-writes", "5 point reads and 5 sets a transaction", Shape::Points { reads: 5, writes: 5 }),
    busy("blind-writes-10", "10 sets a transaction", Shape::Points { reads: 0, writes: 10 }),
    busy("blind-writes-100", "100 sets a transaction", Shape::Points { reads: 0, writes: 100 }),
    busy("blind-writes-500", "500 sets a transaction", Shape::Points { reads: 0, writes: 500 }),
    busy("range-reads-63", "a range read of 63 keys a transaction", Shape::Range { keys: 63 }),
    busy("range-reads-1000", "a range read of 1000 keys a transaction", Shape::Range { keys: 1000 }),
    busy("adjacent-writes", "sets of 140 neighbouring keys a transaction", Shape::Adjacent { keys: 140 }),
    idle("own-writes-0", "30 reads for one row each (ranges both ways, selectors) a transaction; one client",
        Shape::OwnWrites { keys: 0 }),
    idle("own-writes-10000", "sets 10,000 neighbours, then 30 reads for one row each among them; one client",
        Shape::OwnWrites { keys: 10_000 }),
    idle("own-writes-50000", "sets 50,000 neighbours, then 30 reads for one row each among them; one client",
        Shape::OwnWrites { keys: 50_000 }),
    Workload { name: "bulk-load", about: "sets every row of the table once, a thousand neighbours a transaction",
        default_clients: 16, shape: Shape::BulkLoad },
    idle("read-latency", "one point read a transaction; one client", Shape::Points { reads: 1, writes: 0 }),
    idle("commit-latency", "5 point reads and 5 sets a transaction; one client",
        Shape::Points { reads: 5, writes: 5 }),
    idle("mixed-latency", "20% of 5 reads and 5 sets, 80% of 10 reads; one client",
        Shape::Either { share: 0.2, first: (5, 5), second: (10, 0) }),
];

/// Number of operations of a transaction, and the duration of its parts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Done {
    /// Keys read or written.
    pub operations: u64,
    pub read_version: Option<Duration>,
    pub reads: Option<Duration>,
}

impl Workload {
    pub fn all() -> &'static [Workload] {
        WORKLOADS
    }

    pub fn parse(name: &str) -> Option<Workload> {
        WORKLOADS.iter().find(|w| w.name == name).copied()
    }

    /// What the workloads of a report are grouped by. What is of no kind here, of another release, is the last.
    pub const KINDS: [&'static str; 7] = [
        "Points: reads, and reads with writes",
        "Ranges",
        "Writes",
        "One client: latency",
        "One client: reads among its own writes",
        "Loading the table",
        "Others",
    ];

    /// The kind of the workload with this name: operations of one kind take about as long.
    pub fn kind_of(name: &str) -> &'static str {
        let at = match Workload::parse(name)
            .map(|workload| (workload.shape, workload.default_clients))
        {
            None => 6,
            Some((Shape::BulkLoad, _)) => 5,
            Some((Shape::OwnWrites { .. }, _)) => 4,
            Some((_, 1)) => 3,
            Some((Shape::Adjacent { .. } | Shape::Points { reads: 0, .. }, _)) => 2,
            Some((Shape::Range { .. }, _)) => 1,
            Some((Shape::Points { .. } | Shape::Random { .. } | Shape::Either { .. }, _)) => 0,
        };
        Workload::KINDS[at]
    }

    /// True if the workload loads the table. It ends when the table is loaded, not after the measured time.
    pub fn is_bulk_load(&self) -> bool {
        self.shape == Shape::BulkLoad
    }

    /// Performs one transaction up to, but without, its commit. `bulk` holds its rows if it is part of the bulk
    /// load.
    pub async fn perform(
        &self,
        transaction: &impl Transaction,
        table: &Table,
        values: &Values,
        bulk: std::ops::Range<u64>,
    ) -> Result<Done> {
        match self.shape {
            Shape::Points { reads, writes } => {
                points(transaction, table, values, reads, writes).await
            }
            Shape::Random { read_share } => {
                let reads = (0..RANDOM_OPERATIONS)
                    .filter(|_| random::chance(read_share))
                    .count() as u32;
                points(transaction, table, values, reads, RANDOM_OPERATIONS - reads).await
            }
            Shape::Either {
                share,
                first,
                second,
            } => {
                let (reads, writes) = if random::chance(share) { first } else { second };
                points(transaction, table, values, reads, writes).await
            }
            Shape::Range { keys } => range(transaction, table, keys).await,
            Shape::Adjacent { keys } => {
                let start = table.random_start(keys);
                let end = (start + keys).min(table.rows());
                Ok(set_rows(transaction, table, values, start..end))
            }
            Shape::OwnWrites { keys } => own_writes(transaction, table, values, keys).await,
            Shape::BulkLoad => Ok(set_rows(transaction, table, values, bulk)),
        }
    }
}

async fn points(
    transaction: &impl Transaction,
    table: &Table,
    values: &Values,
    reads: u32,
    writes: u32,
) -> Result<Done> {
    let mut done = Done {
        operations: u64::from(reads + writes),
        ..Done::default()
    };
    if reads > 0 {
        let start = now();
        transaction.get_read_version().await?;
        let version_known = now();
        let asked = (0..reads)
            .map(|_| Some(transaction.get(&table.random_key())))
            .collect();
        all_values(asked).await?;
        done.read_version = Some(version_known - start);
        done.reads = Some(version_known.elapsed());
    }
    for _ in 0..writes {
        transaction.set(&table.key(table.random_row()), values.random());
    }
    Ok(done)
}

/// Waits for all of them. Polls every unanswered read whenever one is answered, because answers arrive many at a
/// time.
async fn all_values<F: Future<Output = Result<Option<Value>>> + Unpin>(
    mut asked: Vec<Option<F>>,
) -> Result<()> {
    std::future::poll_fn(move |context| {
        let mut left = false;
        for slot in &mut asked {
            let Some(read) = slot else { continue };
            match Pin::new(read).poll(context) {
                Poll::Ready(Ok(_)) => *slot = None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => left = true,
            }
        }
        if left {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    })
    .await
}

async fn range(transaction: &impl Transaction, table: &Table, keys: u64) -> Result<Done> {
    let start = now();
    transaction.get_read_version().await?;
    let version_known = now();
    let first = table.random_start(keys);
    let begin = Key::copy_from_slice(&table.key(first));
    let end = table.end_key(first + keys);
    let operations = transaction.get_range(begin, end, keys).await?;
    Ok(Done {
        operations,
        read_version: Some(version_known - start),
        reads: Some(version_known.elapsed()),
    })
}

/// Sets `keys` neighbouring rows, then reads one row at a time: forwards, backwards, by selector. The time of the
/// first read, which also takes in the writes, is not counted.
async fn own_writes(
    transaction: &impl Transaction,
    table: &Table,
    values: &Values,
    keys: u64,
) -> Result<Done> {
    let start = now();
    transaction.get_read_version().await?;
    let read_version = Some(start.elapsed());
    let span = keys.clamp(OWN_SPAN_MIN, table.rows());
    let first = table.random_start(span);
    let written = set_rows(transaction, table, values, first..first + keys.min(span));
    let end = table.end_key(first + span);
    let begin = Key::copy_from_slice(&table.key(first));
    transaction
        .get_one(begin.clone(), end.clone(), false)
        .await?;
    let start = now();
    for _ in 0..OWN_ROUNDS {
        // Just after a key, so that the database may have a row before the next written one.
        let place = || key_after(&table.key(first + random::below(span)));
        transaction.get_one(place(), end.clone(), false).await?;
        transaction.get_one(begin.clone(), place(), true).await?;
        transaction.get_key(place()).await?;
    }
    Ok(Done {
        operations: written.operations + 3 * OWN_ROUNDS,
        read_version,
        reads: Some(start.elapsed()),
    })
}

fn set_rows(
    transaction: &impl Transaction,
    table: &Table,
    values: &Values,
    rows: std::ops::Range<u64>,
) -> Done {
    let operations = rows.end - rows.start;
    for row in rows {
        transaction.set(&table.key(row), values.random());
    }
    Done {
        operations,
        ..Done::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::Database;
    use plinth_client::testing::MemoryCluster;
    use std::rc::Rc;

    #[test]
    fn every_workload_runs_and_counts_the_keys_it_touched() {
        plinth_runtime::real::block_on(async {
            let database = Database::new(Rc::new(MemoryCluster::new()));
            let (table, values) = (Table::new(2000), Values::default());
            for workload in [Workload::parse("bulk-load").expect("known")]
                .iter()
                .chain(Workload::all())
            {
                let transaction = database.create_transaction();
                let done = workload
                    .perform(&transaction, &table, &values, 0..2000)
                    .await
                    .expect("works");
                transaction.commit().await.expect("commits");
                let want = match workload.shape {
                    Shape::Range { keys } | Shape::Adjacent { keys } => keys,
                    Shape::Points { reads, writes } => u64::from(reads + writes),
                    Shape::Random { .. } | Shape::Either { .. } => 10,
                    Shape::OwnWrites { keys } => keys.min(2000) + 30,
                    Shape::BulkLoad => 2000,
                };
                assert_eq!(done.operations, want, "{}", workload.name);
            }
        });
    }
}
