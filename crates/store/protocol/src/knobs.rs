//! Knobs that several roles use.

use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use plinth_runtime::knob;

const MIB: usize = 1 << 20;

knob! {
    /// Interval at which the ratekeeper polls the servers, and at which GRV proxies ask it for their limits.
    pub RATE_INTERVAL_MS: u64 = "rate_interval_ms", 200, sim 50, 1000, legal 20, 1000;
    /// Versions by which a read may lag behind the newest version: 5 seconds (FDB §2.4). A recovery jumps
    /// [`MAX_VERSIONS_IN_FLIGHT`], so that no transaction reads before it. For the same span, proxies remember which
    /// resolver had which keys.
    pub VERSION_WINDOW: i64 = "version_window", 5_000_000,
        sim 500_000, 5_000_000, legal 500_000, MAX_VERSIONS_IN_FLIGHT;
    /// Above this, a storage server drops old versions early, and pulls no new ones while dropping can make room.
    pub STORAGE_WINDOW_BYTES_MAX: usize = "storage_window_bytes_max", 512 * MIB, sim 50_000, MIB;
}
