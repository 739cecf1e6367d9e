//! The beat of a member's tasks.

use plinth_runtime::{Duration, Instant, now, sleep_until};

/// Waits for the next multiple of `step` on this machine's clock. Tasks that wait so are woken together: an idle
/// process wakes up once for all of them.
pub(crate) async fn beat(step: Duration) {
    let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
    let beats = now().0 / step + 1;
    sleep_until(Instant(beats.saturating_mul(step))).await;
}
