//! The knobs of connections and of the detection of failures.

use plinth_runtime::knob;

knob! {
    /// Ping interval of a connection with outstanding requests, unless the process at its other end is watched.
    pub RPC_PING_INTERVAL_MS: u64 = "rpc_ping_interval_ms", 500, sim 200, 2000, legal 50, 10_000;
    /// A ping that is not answered in this time closes the connection.
    pub RPC_PING_TIMEOUT_MS: u64 = "rpc_ping_timeout_ms", 1500, sim 1000, 6000, legal 200, 30_000;
    pub CONNECT_TIMEOUT_MS: u64 = "connect_timeout_ms", 2000, legal 50, 30_000;
    /// A watched role that is not heard for this long counts as dead. Its process is pinged five times in this time.
    pub FAILURE_DETECTION_MS: u64 = "failure_detection_ms", 500, sim 300, 1500, legal 100, 10_000;
    /// Longest wait for a process that is silent but whose pulse, which does not run on its loop, says that the loop
    /// is busy.
    pub BUSY_PEER_MS: u64 = "busy_peer_ms", 5000, sim 500, 8000, legal 100, 60_000;
}
