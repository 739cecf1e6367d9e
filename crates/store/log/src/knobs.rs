//! The knobs of log servers.

use plinth_runtime::knob;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

knob! {
    /// Above this, a log server keeps its oldest unpopped mutations on disk only.
    pub LOG_MEMORY_BYTES_MAX: usize = "log_memory_bytes_max", 64 * MIB, sim 100_000, 64 * MIB;
    pub LOG_SEGMENT_BYTES: usize = "log_segment_bytes", 64 * MIB, sim 64 * KIB, MIB, legal 64 * KIB, 1024 * MIB;
}
