//! The knobs of engines.

use plinth_runtime::knob;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

knob! {
    /// Segment size of the memory engine's log, and the least growth of that log between two passes of its rolling
    /// snapshot.
    pub MEMORY_ENGINE_SNAPSHOT_BYTES: usize = "memory_engine_snapshot_bytes", 64 * MIB,
        sim 4 * KIB, 64 * KIB, legal 4 * KIB, 1024 * MIB;
}
