//! The knobs of storage servers.

use plinth_rpc::FRAME_SAFE_BYTES;
use plinth_runtime::knob;

const MIB: usize = 1 << 20;

knob! {
    pub STORAGE_COMMIT_INTERVAL_MS: u64 = "storage_commit_interval_ms", 500, sim 50, 1000, legal 10, 10_000;
    /// Rest of a storage server after a commit of its engine, as a multiple of that commit's duration, if that is
    /// longer than the commit interval. Later commits are larger, and a page with several new rows is written once.
    pub STORAGE_COMMIT_REST: f64 = "storage_commit_rest", 4.0, sim 0.0, 5.0;
    /// Approximate size of one commit of a storage engine.
    pub STORAGE_COMMIT_BYTES_MAX: usize = "storage_commit_bytes_max", 16 * MIB,
        sim 100, 16 * MIB, legal 100, 512 * MIB;
    /// Reads that may wait for a version at a storage server; more are refused.
    pub STORAGE_READS_WAITING_MAX: usize = "storage_reads_waiting_max", 200_000, sim 1, 100;
    pub PEEK_BYTES_MAX: usize = "peek_bytes_max", MIB, sim 100, MIB, legal 100, 8 * MIB;
    /// Most bytes of one range reply.
    pub RANGE_BYTES_MAX: usize = "range_bytes_max", MIB, sim 200, MIB, legal 200, FRAME_SAFE_BYTES;
    /// How long a read waits for a version that the server has not reached yet.
    pub FUTURE_VERSION_WAIT_MS: u64 = "future_version_wait_ms", 1000, sim 200, 2000, legal 10, 10_000;
    /// Pages of fetched shards that may wait for the engine at a storage server.
    pub FETCH_PARTS_MAX: usize = "fetch_parts_max", 16, sim 1, 16;
    /// Approximate bytes of fetched rows in one commit of the engine. Other users of the disk wait for the whole
    /// commit.
    pub FETCH_COMMIT_BYTES_MAX: usize = "fetch_commit_bytes_max", 2 * MIB, sim 100, 2 * MIB, legal 100, 128 * MIB;
    /// Rest of a storage server after a commit with fetched rows, as a multiple of that commit's duration.
    pub FETCH_REST: f64 = "fetch_rest", 2.0, sim 0.0, 3.0;
    pub FETCH_PAGE_BYTES: usize = "fetch_page_bytes", MIB, sim 100, MIB, legal 100, FRAME_SAFE_BYTES;
    /// A row is in the sample of sizes with a probability of its size divided by this.
    pub BYTE_SAMPLE_UNIT: u32 = "byte_sample_unit", 16_384, sim 50, 16_384;
    pub WATCHES_MAX: usize = "watches_max", 10_000, sim 1, 20;
}
