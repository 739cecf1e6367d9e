//! The knobs of sequencer, proxies and resolvers.

use plinth_protocol::transaction::BATCH_PLACES_MAX;
use plinth_rpc::FRAME_SAFE_BYTES;
use plinth_runtime::knob;

const MIB: usize = 1 << 20;
/// Number of replies that a resolver remembers, in case a proxy did not get one. No more batches may be in flight.
pub const BATCHES_REMEMBERED: usize = 64;

knob! {
    /// Requests for a read version that may wait at a GRV proxy; more are refused.
    pub GRV_QUEUE_MAX: usize = "grv_queue_max", 100_000, sim 1, 100;
    pub COMMIT_BATCH_COUNT_MAX: usize = "commit_batch_count_max", 4096, sim 1, 4096, legal 1, BATCH_PLACES_MAX;
    pub COMMIT_BATCH_BYTES_MAX: usize = "commit_batch_bytes_max", 4 * MIB,
        sim 1000, 4 * MIB, legal 1000, FRAME_SAFE_BYTES;
    pub COMMIT_BATCHES_IN_FLIGHT_MAX: usize = "commit_batches_in_flight_max", 8, sim 1, 8, legal 1, BATCHES_REMEMBERED;
    /// Bytes of transactions that wait or are in progress at a commit proxy. One transaction is always accepted.
    pub COMMIT_PROXY_BYTES_MAX: usize = "commit_proxy_bytes_max", 256 * MIB, sim 1000, MIB;
    /// A snapshot of the system keyspace is written to its stream after this many bytes of log, so that the log can be
    /// popped.
    pub SYSTEM_SNAPSHOT_INTERVAL_BYTES: usize = "system_snapshot_interval_bytes", 32 * MIB, sim 10_000, MIB;
    /// A commit proxy without commits sends an empty batch this often, so that versions advance.
    pub EMPTY_COMMIT_INTERVAL_MS: u64 = "empty_commit_interval_ms", 500, sim 100, 2000, legal 10, 5000;
    /// Interval at which the sequencer checks whether the load of all resolvers is about the same.
    pub RESOLVER_BALANCE_MS: u64 = "resolver_balance_ms", 1000, sim 20, 1000;
}
