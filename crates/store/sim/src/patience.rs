//! How long a run may take, by its knobs.

use plinth_control::knobs::RECOVERY_RETRY_MS;
use plinth_coordination::knobs::COORDINATOR_LEASE_MS;
use plinth_rpc::knobs::{
    BUSY_PEER_MS, CONNECT_TIMEOUT_MS, FAILURE_DETECTION_MS, RPC_PING_TIMEOUT_MS,
};
use plinth_runtime::Duration;
use plinth_runtime::knobs::{Knobs, knobs};
use plinth_server::knobs::DISK_STALL_MS;

/// By how much longer than usual this run's knobs let the cluster take to notice and replace failed processes.
pub fn patience() -> Duration {
    let patience = |knobs: &Knobs| {
        let (silent, unanswered) = (
            FAILURE_DETECTION_MS.of(knobs),
            RPC_PING_TIMEOUT_MS.of(knobs),
        );
        silent.max(unanswered) * 3
            + BUSY_PEER_MS.of(knobs)
            + COORDINATOR_LEASE_MS.of(knobs) * 2
            + RECOVERY_RETRY_MS.of(knobs)
            + CONNECT_TIMEOUT_MS.of(knobs)
            // A disk that hangs counts as sick by then.
            + DISK_STALL_MS.of(knobs)
    };
    let more = patience(&knobs()).saturating_sub(patience(&Knobs::default()));
    Duration::from_millis(more)
}
