//! Locations of keys, and sizes of ranges.
//!
//! Sizes are computed by reading the range in snapshots of their own. They are exact, and as slow as a read of the
//! range. Servers that sample sizes will answer this at once.

use crate::bytes_argument::IntoKey;
use crate::database::Database;
use crate::options::TransactionOption;
use crate::range::RangeOptions;
use crate::read_future::ReadFuture;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::system_keys::{self, ShardRecord, StorageServerRecord};
use plinth_core::{Error, Key, KeyRange, KeySelector, Result};
use plinth_runtime::Boxed;
use std::future::Future;
use std::net::SocketAddr;

/// Limit of rows in one snapshot.
const ROWS_A_STEP: i32 = 10_000;

impl Transaction {
    /// The storage servers that hold the key. Read at a version of its own.
    pub fn get_addresses_for_key(&self, key: impl IntoKey) -> ReadFuture<Vec<SocketAddr>> {
        self.locate(addresses(self.database().clone(), key.into_key()))
    }

    /// Bytes of the keys and values in `[begin, end)`. Read at versions of its own.
    pub fn get_estimated_range_size_bytes(&self, begin: Bytes, end: Bytes) -> ReadFuture<i64> {
        self.locate(range_bytes(self.database().clone(), begin, end))
    }

    /// Keys that cut `[begin, end)` into pieces of about `chunk_bytes`, both ends included. Read at versions of its
    /// own.
    pub fn get_range_split_points(
        &self,
        begin: Bytes,
        end: Bytes,
        chunk_bytes: i64,
    ) -> ReadFuture<Vec<Key>> {
        self.locate(split_points(
            self.database().clone(),
            begin,
            end,
            chunk_bytes,
        ))
    }

    /// Runs a query outside the transaction's snapshot. The query still ends with the transaction's timeout or
    /// cancellation, and its commit waits for the query.
    fn locate<T: 'static>(&self, read: impl Future<Output = Result<T>> + 'static) -> ReadFuture<T> {
        let usable = self.inner.state.borrow().check_usable();
        match usable {
            Ok(()) => self.inner.start_apart(read),
            Err(error) => self.inner.refuse(Err(error)),
        }
    }
}

impl Database {
    /// Keys of `[begin, end)` at which a shard begins.
    pub fn get_boundary_keys<'a>(
        &'a self,
        begin: &'a [u8],
        end: &'a [u8],
    ) -> Boxed<'a, Result<Vec<Key>>> {
        Box::pin(async move {
            let entry = system_keys::key_servers_key;
            let rows = self.run(async |transaction| {
                transaction.set_option(TransactionOption::ReadSystemKeys)?;
                let entries = KeyRange::new(entry(begin), entry(end));
                transaction
                    .get_rows(entries, RangeOptions::default(), true)
                    .await
            });
            let boundary = |(key, _): (Key, Bytes)| key.slice(system_keys::KEY_SERVERS.len()..);
            Ok(rows.await?.into_iter().map(boundary).collect())
        })
    }
}

async fn addresses(mut database: Database, mut key: Key) -> Result<Vec<SocketAddr>> {
    while let Some((parent, name)) = database.tenant_of().cloned() {
        let prefix = parent.tenant_id(name).await?.to_be_bytes();
        key = Bytes::from([&prefix[..], &key].concat());
        database = parent;
    }
    let place = [system_keys::KEY_SERVERS, &key].concat();
    let servers = database.run(async |transaction| {
        transaction.set_option(TransactionOption::ReadSystemKeys)?;
        let shard = transaction.get_range_all(
            KeySelector::first_greater_or_equal(system_keys::KEY_SERVERS),
            KeySelector::first_greater_than(place.clone()),
            RangeOptions::limit(1).reversed(),
            true,
        );
        let (_, shard) = shard
            .await?
            .pop()
            .ok_or(Error::locality_information_unavailable)?;
        let shard =
            ShardRecord::from_bytes(shard).ok_or(Error::locality_information_unavailable)?;
        let mut servers = Vec::new();
        for id in shard.team {
            let row = transaction
                .get(system_keys::server_list_key(id), true)
                .await?;
            servers.extend(row.and_then(StorageServerRecord::from_bytes));
        }
        Ok(servers)
    });
    Ok(servers
        .await?
        .into_iter()
        .map(|server| server.address)
        .collect())
}

/// Calls `visit` with the key and the size of every row of `[begin, end)`.
async fn walk(
    database: Database,
    begin: Bytes,
    end: Bytes,
    mut visit: impl FnMut(&Bytes, i64),
) -> Result<()> {
    if begin > end {
        return Err(Error::inverted_range);
    }
    let mut next = KeySelector::first_greater_or_equal(begin);
    loop {
        let rows = database.run(async |transaction| {
            transaction.set_option(TransactionOption::ReadSystemKeys)?;
            let end = KeySelector::first_greater_or_equal(end.clone());
            let options = RangeOptions::limit(ROWS_A_STEP);
            transaction
                .get_range_all(next.clone(), end, options, true)
                .await
        });
        let rows = rows.await?;
        for (key, value) in &rows {
            visit(key, (key.len() + value.len()) as i64);
        }
        match rows.last() {
            Some((last, _)) if rows.len() == ROWS_A_STEP as usize => {
                next = KeySelector::first_greater_than(last.clone());
            }
            _ => return Ok(()),
        }
    }
}

/// Bytes of the keys and values in `[begin, end)`.
async fn range_bytes(database: Database, begin: Bytes, end: Bytes) -> Result<i64> {
    let mut bytes = 0;
    walk(database, begin, end, |_, row| bytes += row).await?;
    Ok(bytes)
}

/// Keys that cut `[begin, end)` into pieces of about `chunk_bytes`, both ends included.
async fn split_points(
    database: Database,
    begin: Bytes,
    end: Bytes,
    chunk_bytes: i64,
) -> Result<Vec<Bytes>> {
    let (mut points, mut bytes) = (vec![begin.clone()], 0);
    let cut = |key: &Bytes, row: i64| {
        if bytes >= chunk_bytes && points.last() != Some(key) {
            points.push(key.clone());
            bytes = 0;
        }
        bytes += row;
    };
    walk(database, begin, end.clone(), cut).await?;
    if points.last() != Some(&end) {
        points.push(end);
    }
    Ok(points)
}
