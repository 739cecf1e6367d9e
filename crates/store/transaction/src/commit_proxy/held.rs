//! A commit proxy that leaves transactions waiting: only while a fault is planted.

use plinth_runtime::{Instant, fault, now, planted};

const SECONDS: u64 = 30;

/// For half a minute in each minute, so that processes have to see that nothing commits, and that it does again.
pub fn is_held() -> bool {
    let is_planted = planted!(
        "commits_hang_while_versions_rise",
        "a commit proxy sends empty batches, and at times none of the transactions that wait"
    ) || fault::is_planted("ready_without_a_commit");
    if !is_planted {
        return false;
    }
    let seconds = now().saturating_since(Instant::default()).as_secs();
    (seconds / SECONDS) % 2 == 1
}
