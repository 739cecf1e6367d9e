//! Storage servers: reads at a version, watches, and their recruitment.

use bytes::Bytes;
use plinth_core::{EngineKind, KeyRange, KeySelector, Tag, Uid, Version, record};
use plinth_rpc::requests;

record! {
    pub struct Get {
        pub key: Bytes,
        pub version: Version,
    }

    pub struct GetReply {
        pub value: Option<Bytes>,
    }

    /// Rows of `[begin, end)`; the range must lie inside the server's shards.
    pub struct GetRange {
        pub begin: Bytes,
        pub end: Bytes,
        pub version: Version,
        pub limit_rows: u32,
        pub limit_bytes: u32,
        pub reverse: bool,
    }

    pub struct GetRangeReply {
        /// `row_count` rows, each key and value with varint lengths, one after the other: see [`Rows`].
        pub rows: Bytes,
        pub row_count: u32,
        /// A limit was reached before the end of the range.
        pub more: bool,
    }

    /// Asks for a checksum of what [`GetRange`] would give, to compare replicas.
    pub struct GetRangeSummary {
        pub begin: Bytes,
        pub end: Bytes,
        pub version: Version,
        pub limit_bytes: u32,
    }

    pub struct RangeSummary {
        pub row_count: u32,
        /// Keys and values.
        pub bytes: u64,
        /// CRC32C of the rows as a [`GetRangeReply`] has them.
        pub checksum: u32,
        /// Empty if there are none.
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
    }

    /// The key, or the selector that goes on in the neighbouring shard.
    pub struct GetKeyReply {
        pub key: Option<Bytes>,
        /// Keys still to move: forwards from `end` if positive, backwards from `begin` if not.
        pub offset: i32,
    }

    /// Answered when the value of `key` differs from `value` at some version after `version`.
    pub struct Watch {
        pub key: Bytes,
        pub value: Option<Bytes>,
        pub version: Version,
    }

    pub struct WatchReply {
        pub version: Version,
    }

    /// Asks a destination of a move how far it is.
    pub struct GetShardState {
        pub range: KeyRange,
        /// A server that has not come so far yet does not know.
        pub version: Version,
    }

    pub struct ShardState {
        /// The range is held, on disk, and can be read at every version that anybody may still read at.
        pub ready: bool,
    }

    /// How large ranges are, and how fast they are written: estimates, from samples.
    pub struct GetRangeMetrics {
        pub ranges: Vec<KeyRange>,
    }

    pub struct RangeMetrics {
        /// One a range, in the order asked for.
        pub metrics: Vec<RangeMetric>,
    }

    pub struct RangeMetric {
        pub bytes: u64,
        pub write_bytes_a_second: u64,
    }

    /// Keys that cut a range into parts of about `bytes`, or of about `write_bytes_a_second`, whichever is not 0.
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
        pub window_bytes: u64,
        /// Keys and values of mutations taken into the window since the server began.
        pub input_bytes: u64,
        pub disk_bytes: u64,
        /// Keys and values held, about.
        pub stored_bytes: u64,
        pub watches: u64,
        /// It waits for room on its disk; what it should have there stays in memory and in the log.
        pub disk_full: bool,
    }

    /// Asks a worker to make a new, empty storage server.
    pub struct RecruitStorage {
        pub id: Uid,
        pub tag: Tag,
        pub engine: EngineKind,
        /// Nothing of its stream is older than this version.
        pub after: Version,
        /// The cluster it belongs to.
        pub cluster: String,
    }
}

requests! {
    Get = 50 => GetReply;
    GetRange = 51 => GetRangeReply;
    GetKey = 52 => GetKeyReply;
    Watch = 53 => WatchReply;
    GetStorageStatus = 54 => StorageStatus;
    RecruitStorage = 55 => ();
    GetShardState = 56 => ShardState;
    GetRangeMetrics = 57 => RangeMetrics;
    GetSplitPoints = 58 => SplitPoints;
    GetRangeSummary = 59 => RangeSummary;
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
