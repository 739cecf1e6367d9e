//! What the client itself costs: transactions over a cluster that answers at once and does nothing.
//!
//! `cargo run --release -p plinth-client --example transaction_speed`

use plinth_client::{
    Cluster, ClusterFuture, CommitData, CommitReply, Database, Priority, RangeChunk, RangeOptions,
    RangeRequest, ReadVersionFlags, Transaction,
};
use plinth_core::{Key, KeySelector, Value, Version};
use plinth_runtime::real::block_on;
use std::future::ready;
use std::hint::black_box;
use std::rc::Rc;

/// Has one value for every key, and a hundred rows in every range.
struct Instantly;

const VALUE: Value = Value::from_static(b"0123456789abcdef0123456789abcdef");

impl Cluster for Instantly {
    fn get_read_version(&self, _: Priority, _: ReadVersionFlags) -> ClusterFuture<Version> {
        Box::pin(ready(Ok(1)))
    }
    fn get(&self, _: Key, _: Version) -> ClusterFuture<Option<Value>> {
        Box::pin(ready(Ok(Some(VALUE))))
    }
    fn get_range(&self, request: RangeRequest) -> ClusterFuture<RangeChunk> {
        let row = |i: u32| {
            (
                Key::from([&request.begin[..], &i.to_be_bytes()].concat()),
                VALUE,
            )
        };
        let rows = (0..100.min(request.limit_rows as u32)).map(row).collect();
        Box::pin(ready(Ok(RangeChunk { rows, more: false })))
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
    let database = Database::new(Rc::new(Instantly));
    let started = plinth_runtime::now();
    for _ in 0..count {
        body(database.create_transaction()).await;
    }
    let ns = started.elapsed().as_nanos() as f64 / count as f64;
    println!(
        "{name:<48} {:>9.2} µs a transaction {:>9.0} ns an operation",
        ns / 1000.0,
        ns / operations as f64
    );
}

async fn commit(transaction: Transaction) {
    transaction.commit().await.expect("nothing can go wrong");
}

fn main() {
    block_on(async {
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
    measure("range read of 100 rows", 50_000, 100, async |tr| {
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
    measure(
        "range read of 100 rows over 1000 own writes",
        2_000,
        1100,
        async |tr| {
            (0..1000).for_each(|i| tr.set(key(i), VALUE));
            let (begin, end) = (
                KeySelector::first_greater_or_equal("a"),
                KeySelector::first_greater_or_equal("b"),
            );
            black_box(
                tr.get_range(begin, end, RangeOptions::default(), false)
                    .await
                    .expect("there"),
            );
        },
    )
    .await;
}
