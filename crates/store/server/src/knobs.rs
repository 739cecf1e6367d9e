//! The knobs of a worker.

use plinth_runtime::knob;

knob! {
    /// A disk on which an operation takes longer counts as sick, and no new data is placed on it.
    pub DISK_STALL_MS: u64 = "disk_stall_ms", 5000, sim 2000, 10_000, legal 500, 600_000;
    /// A disk that works again gets no log servers for this long. The time doubles with each further failure.
    pub DISK_TRUST_MS: u64 = "disk_trust_ms", 30_000, sim 1000, 60_000, legal 1000, 3_600_000;
}
