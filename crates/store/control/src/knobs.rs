//! The knobs of the cluster controller, the distributor and the ratekeeper.

use plinth_runtime::knob;

const MIB: usize = 1 << 20;

knob! {
    /// The ratekeeper's targets. Seconds by which a storage server may lag behind committed versions: reads wait that
    /// long.
    pub RATE_STORAGE_LAG_S: f64 = "rate_storage_lag_s", 0.5;
    /// Seconds, beyond the window that readers need, by which a storage server's durable version may lag.
    pub RATE_DURABILITY_LAG_S: f64 = "rate_durability_lag_s", 30.0;
    /// Seconds that a commit may take beyond the time that its disks take.
    pub RATE_COMMIT_LATENCY_S: f64 = "rate_commit_latency_s", 0.25;
    /// Bytes of a large disk that stay free; of a small disk, a twentieth stays free.
    pub RATE_FREE_BYTES: f64 = "rate_free_bytes", 4e9;
    /// Number of shards of a new database, beside that of the system keyspace. More are split off as data arrives.
    pub FIRST_SHARDS: usize = "first_shards", 1, sim 1, 64, legal 1, 200_000;
    /// Small shards that are not empty are merged only while there are more shards than this for every team.
    pub SHARDS_PER_TEAM: usize = "shards_per_team", 4, sim 1, 16;
    pub RECOVERY_RETRY_MS: u64 = "recovery_retry_ms", 200, legal 10, 10_000;
    /// Interval at which the data distributor examines the cluster.
    pub DISTRIBUTION_INTERVAL_MS: u64 = "distribution_interval_ms", 1000, sim 100, 3000, legal 50, 60_000;
    /// Rate at which replicas are compared in the background, in bytes of one replica a second; and the pause between
    /// rounds.
    pub SCAN_BYTES_PER_SECOND: usize = "scan_bytes_per_second", 4 * MIB, sim 10_000, 4 * MIB;
    pub SCAN_PAUSE_MS: u64 = "scan_pause_ms", 60_000, sim 1000, 20_000;
    /// A storage server that is absent for this long counts as lost, and other servers get its shards.
    pub STORAGE_FAILURE_MS: u64 = "storage_failure_ms", 10_000, sim 2000, 15_000, legal 2000, 1_000_000;
    /// A storage server that is further behind the log is suspect: what it holds does not count as a copy, and it gets
    /// no new data while others can.
    pub STORAGE_SUSPECT_LAG_MS: u64 = "storage_suspect_lag_ms", 30_000, sim 10_000, 40_000, legal 5000, 1_000_000;
    /// One that is further behind than this, and does not come nearer, is replaced if another copy of each of its
    /// shards keeps up.
    pub STORAGE_REPLACE_LAG_MS: u64 = "storage_replace_lag_ms", 60_000, sim 20_000, 80_000, legal 5000, 10_000_000;
    /// Shards that move at the same time: in total, and to one server.
    pub MOVES_MAX: usize = "moves_max", 16, sim 1, 16;
    pub MOVES_PER_SERVER_MAX: usize = "moves_per_server_max", 2, sim 1, 4;
    /// A shard is split above about three times this size; the limit grows with the size of the database.
    pub SHARD_BYTES_MIN: usize = "shard_bytes_min", 10 * MIB, sim 500, 10 * MIB;
    pub SHARD_BYTES_MAX: usize = "shard_bytes_max", 500 * MIB;
    pub SHARD_WRITE_BYTES_PER_SECOND_MAX: usize = "shard_write_bytes_per_second_max", 8 * MIB, sim 3000, 8 * MIB;
    /// Interval at which entries of streams that nobody needs are removed.
    pub STREAM_TRIM_MS: u64 = "stream_trim_ms", 1000, sim 100, 5000, legal 50, 60_000;
}
