//! Checks that all replicas of a shard hold the same rows: page by page, each page at one version on all replicas.
//!
//! A page is at most a megabyte. Replicas send a checksum of it, and send rows only where the checksums differ. The
//! data distributor compares all the time, in the background; `consistencycheck` in the shell compares at once.

use crate::movement;
use plinth_client::Database;
use plinth_core::codec::Codec;
use plinth_core::key::{KeyRange, key_after, printable};
use plinth_core::system_keys::{StorageServerRecord, server_list_key};
use plinth_core::{Error, Key, Result, Version};
use plinth_protocol::storage::{GetRange, GetRangeSummary, RangeSummary};
use plinth_protocol::token::Token;
use plinth_rpc::{Interface, Request, Transport};
use plinth_runtime::{Duration, probe};
use std::fmt;

const PAGE_BYTES: u32 = 1 << 20;
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Attempts at a page, since shards move and servers restart.
const ATTEMPTS: u32 = 20;
const RETRY: Duration = Duration::from_millis(500);
/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 40;

/// Two replicas that should be equal and differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    pub version: Version,
    pub servers: [Interface; 2],
    pub key: Key,
    /// The value on each server.
    pub values: [Option<Key>; 2],
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Key>| match value {
            None => "nothing".into(),
            Some(value) => printable(&value[..value.len().min(SHOWN_BYTES)]),
        };
        write!(
            f,
            "replicas differ at {} (version {}): {} has {}, {} has {}",
            printable(&self.key),
            self.version,
            self.servers[0].address,
            show(&self.values[0]),
            self.servers[1].address,
            show(&self.values[1]),
        )
    }
}

/// Result of a comparison.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Compared {
    pub rows: u64,
    /// Bytes of keys and values of one replica.
    pub bytes: u64,
    /// Ranges in which not all replicas answered.
    pub skipped: u64,
    pub differences: Vec<Difference>,
}

/// Progress and result so far of a comparison.
pub struct Comparison {
    transport: Transport,
    database: Database,
    next: Option<Key>,
    pub compared: Compared,
}

impl Comparison {
    /// A comparison of the whole database.
    pub fn new(transport: &Transport, database: &Database) -> Self {
        Comparison {
            transport: transport.clone(),
            database: database.clone(),
            next: Some(Key::new()),
            compared: Compared::default(),
        }
    }

    /// The key that comes next; `None` at the end.
    pub fn next(&self) -> Option<&Key> {
        self.next.as_ref()
    }

    /// Compares the next page, with up to `ATTEMPTS` attempts. If not all replicas answer, skips the page and the
    /// rest of its shard.
    pub async fn step(&mut self) {
        let Some(begin) = self.next.clone() else {
            return;
        };
        for _ in 0..ATTEMPTS {
            match self.page(&begin).await {
                Ok(()) => return,
                Err(_) => plinth_runtime::sleep(RETRY).await, // another attempt reads the map again
            }
        }
        probe!("consistency_skips_shard");
        self.compared.skipped += 1;
        let shard = movement::run(&self.database, async |tr| {
            movement::shard_at(tr, &begin).await
        });
        self.next = shard.await.ok().and_then(|(range, _)| next_shard(&range));
    }

    async fn page(&mut self, begin: &Key) -> Result<()> {
        let (range, servers, version) = movement::run(&self.database, async |tr| {
            let (range, record) = movement::shard_at(tr, begin).await?;
            let mut servers = Vec::new();
            for id in &record.team {
                let row = tr.get(server_list_key(*id), false).await?;
                let record = row.and_then(StorageServerRecord::from_bytes);
                let record = record.ok_or(Error::operation_obsolete)?;
                servers.push(Interface::new(record.address, *id));
            }
            Ok((range, servers, tr.get_read_version().await?))
        })
        .await?;
        let page = Page {
            transport: &self.transport,
            servers: &servers,
            begin: begin.clone(),
            version,
        };
        let summaries = page.summaries(range.end.clone()).await?;
        // Replicas may have other limits, or other rows, and stop at other keys. The comparison ends where the first
        // of them stopped.
        let stops = summaries.iter().filter(|summary| summary.more);
        let end = stops.map(|summary| key_after(&summary.last_key)).min();
        let end = end.unwrap_or(range.end.clone());
        let same = |summaries: &[RangeSummary]| summaries.windows(2).all(|pair| pair[0] == pair[1]);
        let mut agreed = same(&summaries);
        if !agreed {
            agreed = same(&page.summaries(end.clone()).await?);
        }
        if !agreed {
            let difference = page.difference(&end).await?;
            self.compared.differences.push(difference);
        }
        self.compared.rows += u64::from(summaries[0].row_count);
        self.compared.bytes += summaries[0].bytes;
        self.next = if end < range.end {
            Some(end)
        } else {
            next_shard(&range)
        };
        Ok(())
    }
}

fn next_shard(range: &KeyRange) -> Option<Key> {
    (range.end[..] < *plinth_core::key::ALL_KEYS_END).then(|| range.end.clone())
}

struct Page<'a> {
    transport: &'a Transport,
    servers: &'a [Interface],
    begin: Key,
    version: Version,
}

impl Page<'_> {
    async fn ask<R: Request + Clone>(&self, server: &Interface, request: R) -> Result<R::Reply> {
        let call = self.transport.call(&server.endpoint::<R>(), request);
        let answer = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
        answer.unwrap_or(Err(Error::timed_out))
    }

    async fn summaries(&self, end: Key) -> Result<Vec<RangeSummary>> {
        let request = GetRangeSummary {
            begin: self.begin.clone(),
            end,
            version: self.version,
            limit_bytes: PAGE_BYTES,
        };
        let asked = self.servers.iter();
        let asked = asked.map(|server| self.ask(server, request.clone()));
        let answers = plinth_runtime::join_all(asked.collect::<Vec<_>>()).await;
        answers.into_iter().collect()
    }

    async fn rows(&self, server: &Interface, end: &Key) -> Result<Vec<(Key, Key)>> {
        let mut rows: Vec<(Key, Key)> = Vec::new();
        let mut begin = self.begin.clone();
        loop {
            let request = GetRange {
                begin: begin.clone(),
                end: end.clone(),
                version: self.version,
                limit_rows: u32::MAX,
                limit_bytes: PAGE_BYTES,
                reverse: false,
                token: Token::NONE,
            };
            let reply = self.ask(server, request).await?;
            rows.extend(reply.decode_rows().ok_or(Error::io_error)?);
            match rows.last() {
                Some((key, _)) if reply.more => begin = key_after(key),
                _ => return Ok(rows),
            }
        }
    }

    /// The first row in which two of the replicas differ.
    async fn difference(&self, end: &Key) -> Result<Difference> {
        let first = self.rows(&self.servers[0], end).await?;
        for server in &self.servers[1..] {
            let other = self.rows(server, end).await?;
            if let Some((key, values)) = first_difference(&first, &other) {
                return Ok(Difference {
                    version: self.version,
                    servers: [self.servers[0], *server],
                    key,
                    values,
                });
            }
        }
        // The checksums differ and the rows do not: a checksum or a server is faulty.
        Err(Error::internal_error)
    }
}

fn first_difference(a: &[(Key, Key)], b: &[(Key, Key)]) -> Option<(Key, [Option<Key>; 2])> {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (left, right) = (a.get(same), b.get(same));
    let keys = [left, right].into_iter().flatten().map(|(key, _)| key);
    let key = keys.min()?.clone();
    let value = |row: Option<&(Key, Key)>| row.filter(|(k, _)| *k == key).map(|(_, v)| v.clone());
    let values = [value(left), value(right)];
    Some((key, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(list: &[(&'static str, &'static str)]) -> Vec<(Key, Key)> {
        let row = |(key, value): &(&'static str, &'static str)| {
            (
                Key::from_static(key.as_bytes()),
                Key::from_static(value.as_bytes()),
            )
        };
        list.iter().map(row).collect()
    }

    #[test]
    fn the_first_row_that_is_missing_or_another_is_named() {
        let all = rows(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(first_difference(&all, &all), None);
        let value = |text: &'static str| Some(Key::from_static(text.as_bytes()));
        let missing = rows(&[("a", "1"), ("c", "3")]);
        let found = first_difference(&all, &missing).expect("they differ");
        assert_eq!(found, (Key::from_static(b"b"), [value("2"), None]));
        let found = first_difference(&missing, &all).expect("they differ");
        assert_eq!(found, (Key::from_static(b"b"), [None, value("2")]));
        let other = rows(&[("a", "1"), ("b", "9"), ("c", "3")]);
        let found = first_difference(&all, &other).expect("they differ");
        assert_eq!(found, (Key::from_static(b"b"), [value("2"), value("9")]));
        let short = rows(&[("a", "1")]);
        let found = first_difference(&short, &all).expect("they differ");
        assert_eq!(found, (Key::from_static(b"b"), [None, value("2")]));
    }
}
