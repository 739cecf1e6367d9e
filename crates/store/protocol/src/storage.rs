//! Storage servers: reads at a version, watches, and their recruitment.

use crate::token::Token;
use bytes::Bytes;
use plinth_core::{EngineKind, KeyRange, KeySelector, Tag, Uid, Version, record};
use plinth_rpc::requests;

record! {
    pub struct Get {
        pub key: Bytes,
        pub version: Version,
        pub token: Token,
    }

    pub struct GetReply {
        pub value: Option<Bytes>,
    }

    /// Several [`Get`]s, at most [`GetValues::KEYS_MAX`], that a client has begun together.
    pub struct GetValues {
        pub keys: Vec<Bytes>,
        pub version: Version,
        pub token: Token,
    }

    /// Values of the first keys, in the order of the request. The client asks for the others again.
    pub struct GetValuesReply {
        pub values: Vec<Option<Bytes>>,
    }

    /// Rows of `[begin, end)`; the range must lie inside the server's shards.
    pub struct GetRange {
        pub begin: Bytes,
        pub end: Bytes,
        pub version: Version,
        pub limit_rows: u32,
        pub limit_bytes: u32,
        pub reverse: bool,
        pub token: Token,
    }

    pub struct GetRangeReply {
        /// `row_count` rows, each key and value with a varint length, one after the other: see
        /// [`GetRangeReply::decode_rows`].
        pub rows: Bytes,
        pub row_count: u32,
        /// A limit was reached before the end of the range.
        pub more: bool,
    }

    /// Asks for a checksum of the rows that [`GetRange`] would return, to compare replicas.
    pub struct GetRangeSummary {
        pub begin: Bytes,
        pub end: Bytes,
        pub version: Version,
        pub limit_bytes: u32,
    }

    pub struct RangeSummary {
        pub row_count: u32,
        /// Total size of keys and values.
        pub bytes: u64,
        /// CRC32C of the rows as encoded in a [`GetRangeReply`].
        pub checksum: u32,
        /// Empty if there are no rows.
        pub last_key: Bytes,
        /// A limit was reached before the end of the range.
        pub more: bool,
    }

    /// Resolves a selector among the keys of `[begin, end)`, which lies inside one shard.
    pub struct GetKey {
        pub selector: KeySelector,
        pub begin: Bytes,
        pub end: Bytes,
        pub version: Version,
        pub token: Token,
    }

    /// The key, or the number of keys still to move in the neighbouring shard.
    pub struct GetKeyReply {
        pub key: Option<Bytes>,
        /// Keys still to move if `key` is `None`: forwards from `end` if positive, else backwards from `begin`.
        pub offset: i32,
    }

    /// Answered when the value of `key` differs from `value` at some version after `version`.
    pub struct Watch {
        pub key: Bytes,
        pub value: Option<Bytes>,
        pub version: Version,
        pub token: Token,
    }

    pub struct WatchReply {
        pub version: Version,
    }

    /// Asks a destination of a shard move whether it has the shard.
    pub struct GetShardState {
        pub range: KeyRange,
        /// A server that has not reached this version answers that it is not ready.
        pub version: Version,
    }

    pub struct ShardState {
        /// The server holds the range on disk and can serve it at every version that may still be read.
        pub ready: bool,
    }

    /// Asks how large ranges are and how fast they are written. The answers are estimates from samples.
    pub struct GetRangeMetrics {
        pub ranges: Vec<KeyRange>,
    }

    pub struct RangeMetrics {
        /// One for each range, in the order of the request.
        pub metrics: Vec<RangeMetric>,
    }

    pub struct RangeMetric {
        pub bytes: u64,
        pub write_bytes_a_second: u64,
    }

    /// Asks for keys that split a range into parts of about `bytes`, or of about `write_bytes_a_second`, whichever is
    /// not 0.
    pub struct GetSplitPoints {
        pub range: KeyRange,
        pub bytes: u64,
        pub write_bytes_a_second: u64,
    }

    pub struct SplitPoints {
        pub keys: Vec<Bytes>,
    }

    pub struct GetStorageStatus {}

    pub struct StorageStatus {
        pub tag: Tag,
        pub engine: EngineKind,
        pub version: Version,
        pub durable: Version,
        /// The newest version that it knows to be on every log server. Its files remember it, some moments late.
        pub known_committed: Version,
        pub window_bytes: u64,
        /// Bytes of keys and values of mutations taken into the window since the server started.
        pub input_bytes: u64,
        pub disk_bytes: u64,
        /// Approximate bytes of keys and values held.
        pub stored_bytes: u64,
        pub watches: u64,
        /// Reads that wait for a version or for the disk.
        pub reads_waiting: u64,
        /// The server waits for free space on its disk; data not yet written stays in memory and in the log.
        pub disk_full: bool,
        /// Its files are damaged: others get what it can still give.
        pub damaged: bool,
        /// The versions that no log server has given it for some seconds, and why; empty if there are none.
        pub waits_for: String,
    }

    /// Asks a worker to create a new, empty storage server.
    pub struct RecruitStorage {
        pub id: Uid,
        pub tag: Tag,
        pub engine: EngineKind,
        /// Its stream has nothing before this version.
        pub after: Version,
        /// The cluster it belongs to.
        pub cluster: String,
    }
}

requests! {
    Get = 50 for Readers => GetReply;
    GetRange = 51 for Readers => GetRangeReply;
    GetKey = 52 for Readers => GetKeyReply;
    Watch = 53 for Readers => WatchReply;
    GetStorageStatus = 54 for Servers => StorageStatus;
    RecruitStorage = 55 for Servers => ();
    GetShardState = 56 for Servers => ShardState;
    GetRangeMetrics = 57 for Servers => RangeMetrics;
    GetSplitPoints = 58 for Servers => SplitPoints;
    GetRangeSummary = 59 for Operators => RangeSummary;
    GetValues = 88 for Readers => GetValuesReply;
}

impl GetValues {
    /// A server looks at no more of them.
    pub const KEYS_MAX: usize = 64;
}

impl GetRangeReply {
    /// The rows as slices of the reply; `None` if the bytes are malformed.
    pub fn decode_rows(&self) -> Option<Vec<(Bytes, Bytes)>> {
        use plinth_core::codec::Codec;
        let mut input = self.rows.clone();
        let mut rows = Vec::with_capacity((self.row_count as usize).min(input.len()));
        for _ in 0..self.row_count {
            let key = <Bytes as Codec>::take(&mut input)?;
            rows.push((key, <Bytes as Codec>::take(&mut input)?));
        }
        input.is_empty().then_some(rows)
    }
}
