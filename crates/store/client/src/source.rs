//! The interface through which a transaction reads and commits. It separates the transaction, which is pure
//! bookkeeping, from the cluster that serves it (over the network, or a map in memory).
//!
//! An implementation guarantees: every read at one version sees the same snapshot; a commit is executed at most once
//! per call; a commit that fails with an error for which [`is_commit_unknown`] is false has certainly not happened
//! and never will. It handles internal changes of the cluster (moved shards, dead proxies) by trying again. A request
//! that it gives up fails with an error.

use crate::outage::Outage;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::transaction_tag::TransactionTags;
use plinth_core::{Error, Key, KeySelector, MutationBatch, Result, Value, Version};
use plinth_protocol::storage::GetRangeReply;
use plinth_protocol::token::Token;
use plinth_protocol::transaction::CommitTrace;
use plinth_runtime::sync::Watch;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// A future that owns what it needs. It is the only allocation of a point read at this interface.
pub type ClusterFuture<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

/// The result of one of several point reads, and the number of the read.
pub type PointResult = (usize, Result<Option<Value>>);

/// A future that brings results of point reads.
pub type PointResults = Pin<Box<dyn Future<Output = Vec<PointResult>>>>;

/// Which transactions go first when there is more work than the cluster can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    Batch,
    #[default]
    Default,
    /// Passes every limit: for the cluster's own work.
    SystemImmediate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadVersionFlags {
    pub priority: Priority,
    /// The proof that the epoch still lives (pitfall 1) may be skipped.
    pub causal_read_risky: bool,
    /// The version is given even if the database is locked.
    pub lock_aware: bool,
    pub tags: TransactionTags,
}

/// Rows of `[begin, end)` at `version`, in the order of the scan.
#[derive(Clone, Debug)]
pub struct RangeRequest {
    pub begin: Key,
    pub end: Key,
    pub version: Version,
    /// At least 1; `usize::MAX` for no limit.
    pub limit_rows: usize,
    /// The row that reaches it is the last; `usize::MAX` for no limit.
    pub limit_bytes: usize,
    /// From the end backwards.
    pub reverse: bool,
}

/// A part of a range. It may stop short anywhere (a limit, the end of a shard) and says so with `more`; then it
/// has at least one row, so that the reader can go on behind the last.
#[derive(Clone, Debug, Default)]
pub struct RangeChunk {
    pub rows: Vec<Row>,
    pub more: bool,
    /// The same rows as the server packed them, if they came like that: remembering them then costs only one
    /// reference.
    pub packed: Option<PackedRows>,
}

pub type Row = (Key, Value);

/// Rows as a server packed them.
#[derive(Clone, Debug)]
pub struct PackedRows {
    rows: Bytes,
    row_count: u32,
    /// Bytes at the beginning of each key that the application does not see.
    prefix_bytes: usize,
}

impl PackedRows {
    pub fn new(reply: &GetRangeReply) -> Self {
        PackedRows {
            rows: reply.rows.clone(),
            row_count: reply.row_count,
            prefix_bytes: 0,
        }
    }

    /// The rows without the first `bytes` bytes of each key. Every key must have them.
    pub fn without_prefix(self, bytes: usize) -> Self {
        PackedRows {
            prefix_bytes: self.prefix_bytes + bytes,
            ..self
        }
    }

    pub(crate) fn map_bytes(self, map: impl FnOnce(Bytes) -> Bytes) -> Self {
        PackedRows {
            rows: map(self.rows),
            ..self
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.rows.len()
    }

    /// `None` if the bytes are malformed.
    pub(crate) fn decode(&self) -> Option<Vec<Row>> {
        let reply = GetRangeReply {
            rows: self.rows.clone(),
            row_count: self.row_count,
            more: false,
        };
        let mut rows = reply.decode_rows()?;
        if self.prefix_bytes > 0 {
            for (key, _) in &mut rows {
                *key = key.slice(self.prefix_bytes..);
            }
        }
        Some(rows)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitFlags {
    /// The transaction may write the system keyspace.
    pub system_keys: bool,
    /// It commits even if the database is locked.
    pub lock_aware: bool,
    pub priority: Priority,
}

/// A transaction as it is sent.
#[derive(Clone, Debug)]
pub struct CommitData {
    /// The version of the reads. Blind writes have one too: they were admitted with it.
    pub read_version: Version,
    /// `plinth_core::conflict_ranges`, packed, sorted, disjoint.
    pub reads: Bytes,
    pub writes: Bytes,
    pub mutations: MutationBatch,
    pub flags: CommitFlags,
    /// How many places of its batch the transaction takes: [`crate::Transaction::take_places`].
    pub places: u16,
    /// Receives the ranges over which a commit failed, as far as the cluster can tell; `None` if they are not wanted.
    pub conflicts: Option<Rc<RefCell<Vec<KeyRange>>>>,
    /// Receives when the cluster did what with it, soon after the commit; `None` if nobody wants to know.
    pub trace: Option<CommitTracing>,
}

/// Where the trace of a commit comes, if the cluster can tell.
#[derive(Clone)]
pub struct CommitTracing(Rc<Watch<Option<CommitTrace>>>);

impl CommitTracing {
    pub(crate) fn new() -> Self {
        CommitTracing(Rc::new(Watch::new(None)))
    }

    pub(crate) fn tell(&self, trace: CommitTrace) {
        self.0.set(Some(trace));
    }

    /// Waits until it is there.
    pub async fn told(&self) -> CommitTrace {
        self.0.wait_until(Option::is_some).await;
        self.0.get().unwrap_or_default()
    }
}

impl fmt::Debug for CommitTracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitTracing")
    }
}

/// A question about a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A JSON document: `client`, and where the cluster answers, `cluster`.
    Status,
    /// `description:id@ip:port,…`.
    ConnectionString,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitReply {
    pub version: Version,
    /// Order inside the batch: the last two bytes of the versionstamp.
    pub order: u16,
}

/// The cluster that serves a transaction. Each call is issued when its future is first polled, or at once.
pub trait Cluster {
    fn get_read_version(&self, flags: ReadVersionFlags) -> ClusterFuture<Version>;
    fn get(&self, key: Key, version: Version) -> ClusterFuture<Option<Value>>;
    /// Numbered point reads that begin together. Each future brings some of the results; together they bring one for
    /// each read.
    fn get_together(&self, reads: Vec<(usize, Key)>, version: Version) -> Vec<PointResults> {
        let alone = |(number, key)| -> PointResults {
            let value = self.get(key, version);
            Box::pin(async move { vec![(number, value.await)] })
        };
        reads.into_iter().map(alone).collect()
    }
    fn get_range(&self, request: RangeRequest) -> ClusterFuture<RangeChunk>;
    /// The key that `selector` denotes among the keys below `keys_end`; the empty key where it runs off the
    /// beginning, `keys_end` where it runs off the end. `selector.key` is at most `keys_end`.
    fn get_key(&self, selector: KeySelector, keys_end: Key, version: Version)
    -> ClusterFuture<Key>;
    fn commit(&self, data: CommitData) -> ClusterFuture<CommitReply>;
    /// Ends when the value of `key` differs from `value` at some version at or after `version`.
    fn watch(&self, key: Key, value: Option<Value>, version: Version) -> ClusterFuture<()>;
    /// The cluster for requests that show this token; `None` if it knows no tokens.
    fn with_token(&self, _token: &Token) -> Option<Rc<dyn Cluster>> {
        None
    }
    /// Ends when requests have waited for the cluster for more than a second. A cluster that cannot be away has none.
    fn outage(&self) -> Pin<Box<dyn Future<Output = Outage>>> {
        Box::pin(std::future::pending())
    }
    /// `None` if the cluster has no answer.
    fn describe(&self, _subject: Subject) -> ClusterFuture<Option<Value>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// True if, after this error of [`Cluster::commit`], the transaction may have committed, or may still do so later.
/// True for every error that does not exclude it: an unfounded doubt costs one more message.
pub fn is_commit_unknown(error: Error) -> bool {
    let is_callers_mistake =
        (2000..3000).contains(&error.code()) || error == Error::permission_denied;
    !error.is_retryable_not_committed() && !is_callers_mistake
}
