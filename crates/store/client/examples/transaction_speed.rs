//! Cost of the client itself: transactions over a cluster that answers at once and does nothing.
//!
//! `cargo run --release -p plinth-client --example transaction_speed`
//!
//! Times are processor times, so that a busy machine changes little.

#![allow(clippy::disallowed_methods)] // a program of its own, outside the event loop

use plinth_client::{
    Cluster, ClusterFuture, CommitData, CommitReply, Database, PackedRows, RangeChunk,
    RangeOptions, RangeRequest, ReadVersionFlags, Transaction,
};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_core::{Key, KeySelector, Value, Version};
use plinth_protocol::storage::GetRangeReply;
use plinth_runtime::real::block_on;
use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::Pin;
use std::rc::Rc;

/// A cluster with one value for every key, and a thousand rows in every range.
struct Instantly {
    rows: GetRangeReply,
}

const ROWS: u32 = 1000;

impl Instantly {
    fn new() -> Self {
        let mut rows = Output::copying();
        for i in 0..ROWS {
            Key::from([&b"key/"[..], &[0; 8], &i.to_be_bytes()].concat()).put(&mut rows);
            VALUE.put(&mut rows);
        }
        let rows = GetRangeReply {
            rows: rows.into_bytes(),
            row_count: ROWS,
            more: false,
        };
        Instantly { rows }
    }
}

const VALUE: Value = Value::from_static(b"0123456789abcdef0123456789abcdef");

impl Cluster for Instantly {
    fn get_read_version(&self, _: ReadVersionFlags) -> ClusterFuture<Version> {
        Box::pin(ready(Ok(1)))
    }
    fn get(&self, _: Key, _: Version) -> ClusterFuture<Option<Value>> {
        Box::pin(ready(Ok(Some(VALUE))))
    }
    fn get_range(&self, request: RangeRequest) -> ClusterFuture<RangeChunk> {
        if request.limit_rows >= ROWS as usize {
            // As a server would answer.
            return Box::pin(ready(Ok(RangeChunk {
                rows: self.rows.decode_rows().expect("well formed"),
                more: false,
                packed: Some(PackedRows::new(&self.rows)),
            })));
        }
        let row = |i: u32| {
            (
                Key::from([&request.begin[..], &i.to_be_bytes()].concat()),
                VALUE,
            )
        };
        let rows = (0..request.limit_rows as u32).map(row).collect();
        Box::pin(ready(Ok(RangeChunk {
            rows,
            more: true,
            packed: None,
        })))
    }
    fn get_key(&self, selector: KeySelector, _: Key, _: Version) -> ClusterFuture<Key> {
        Box::pin(ready(Ok(selector.key)))
    }
    fn commit(&self, data: CommitData) -> ClusterFuture<CommitReply> {
        black_box(data);
        Box::pin(ready(Ok(CommitReply {
            version: 2,
            order: 0,
        })))
    }
    fn watch(&self, _: Key, _: Option<Value>, _: Version) -> ClusterFuture<()> {
        Box::pin(std::future::pending())
    }
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key/000000000000";
    // Spread, so that keys do not come in order.
    key[8..].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

async fn measure(name: &str, count: u64, operations: u64, mut body: impl AsyncFnMut(Transaction)) {
    let database = Database::new(Rc::new(Instantly::new()));
    let started = cpu_ns();
    for _ in 0..count {
        body(database.create_transaction()).await;
    }
    let ns = (cpu_ns() - started) / count as f64;
    println!(
        "{name:<48} {:>9.2} µs a transaction {:>9.0} ns an operation",
        ns / 1000.0,
        ns / operations as f64
    );
}

/// Processor time of this process in nanoseconds; 0 where the system does not report it.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let used = stat.split(' ').next().and_then(|word| word.parse().ok());
    used.unwrap_or_default()
}

async fn commit(transaction: Transaction) {
    transaction.commit().await.expect("nothing can go wrong");
}

fn main() {
    block_on(async {
        measure("10 point reads", 200_000, 10, async |tr| {
            for i in 0..10 {
                black_box(tr.get(&key(i), false).await.expect("there"));
            }
        })
        .await;
        measure("100 point reads", 20_000, 100, async |tr| {
            for i in 0..100 {
                black_box(tr.get(&key(i), false).await.expect("there"));
            }
        })
        .await;
        measure("100 point reads, snapshot", 20_000, 100, async |tr| {
            for i in 0..100 {
                black_box(tr.get(&key(i), true).await.expect("there"));
            }
        })
        .await;
        measure("10 blind writes, commit", 100_000, 10, async |tr| {
            (0..10).for_each(|i| tr.set(key(i), VALUE));
            commit(tr).await;
        })
        .await;
        measure("1000 blind writes, commit", 2_000, 1000, async |tr| {
            (0..1000).for_each(|i| tr.set(key(i), VALUE));
            commit(tr).await;
        })
        .await;
        measure("5 reads, 1 write, commit", 100_000, 6, async |tr| {
            for i in 0..5 {
                black_box(tr.get(&key(i), false).await.expect("there"));
            }
            tr.set(key(7), VALUE);
            commit(tr).await;
        })
        .await;
        own_writes().await;
    });
}

/// Reads that meet the transaction's own writes.
async fn own_writes() {
    measure(
        "1000 times set, then get of the key, commit",
        2_000,
        2000,
        async |tr| {
            for i in 0..1000 {
                tr.set(key(i), VALUE);
                black_box(tr.get(&key(i), false).await.expect("own"));
            }
            commit(tr).await;
        },
    )
    .await;
    measure("range read of 1000 rows", 5_000, 1000, async |tr| {
        let (begin, end) = (
            KeySelector::first_greater_or_equal("a"),
            KeySelector::first_greater_or_equal("b"),
        );
        black_box(
            tr.get_range(begin, end, RangeOptions::default(), false)
                .await
                .expect("there"),
        );
    })
    .await;
    for writes in [0, 10_000, 50_000] {
        after_writes(writes).await;
    }
}

/// Reads that need one row, in a transaction with this many writes in their range.
async fn after_writes(writes: u64) {
    let database = Database::new(Rc::new(Instantly::new()));
    let end = || KeySelector::first_greater_or_equal("key0");
    let begin = || KeySelector::first_greater_or_equal("key/");
    // Each read begins or ends at another place, so that no read is answered from an earlier one.
    let place = |i: u64| [&key(i)[..], b"x"].concat();
    let after = |i: u64| KeySelector::first_greater_or_equal(place(i));
    let limit = RangeOptions::limit(1);
    let time = async |name: &str, read: &dyn Fn(&Transaction, u64) -> Boxed| {
        let transaction = database.create_transaction();
        (0..writes).for_each(|i| transaction.set(key(i), VALUE));
        read(&transaction, 0).await;
        let started = cpu_ns();
        const READS: u64 = 2000;
        for i in 1..=READS {
            read(&transaction, i).await;
        }
        let ns = (cpu_ns() - started) / READS as f64;
        println!("{name:<30} after {writes:>6} writes {ns:>12.0} ns");
    };
    time("limit 1", &|tr: &Transaction, i| {
        boxed(tr.get_range(after(i), end(), limit, false))
    })
    .await;
    time("limit 1, reverse", &|tr: &Transaction, i| {
        boxed(tr.get_range(begin(), after(i), limit.reversed(), false))
    })
    .await;
    time("limit 1, snapshot", &|tr: &Transaction, i| {
        boxed(tr.get_range(after(i), end(), limit, true))
    })
    .await;
    time("set, limit 1, one under way", &|tr: &Transaction, i| {
        // A read sees the writes before it and none after: it keeps the state that it began with.
        let under_way = tr.get_range(after(i), end(), limit, false);
        tr.set(place(i), VALUE);
        let read = tr.get_range(after(i), end(), limit, false);
        boxed(async move {
            let row = read.await;
            drop(under_way);
            row
        })
    })
    .await;
    time("get_key", &|tr: &Transaction, i| {
        boxed(tr.get_key(after(i), false))
    })
    .await;
}

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

fn boxed<T>(read: impl Future<Output = plinth_core::Result<T>> + 'static) -> Boxed {
    Box::pin(async move { drop(black_box(read.await.expect("readable"))) })
}
