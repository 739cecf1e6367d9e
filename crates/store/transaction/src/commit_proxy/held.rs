//! A commit proxy that leaves transactions waiting: only while a fault is planted.

use plinth_core::Version;
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_runtime::{fault, planted};

const SECONDS: Version = 30;

/// For half a minute in each minute, so that processes have to see that nothing commits, and that it does again. The
/// minute is that of versions: all proxies stop at once, whatever their clocks say.
pub fn is_held(last: Version) -> bool {
    let is_planted = planted!(
        "commits_hang_while_versions_rise",
        "a commit proxy sends empty batches, and at times none of the transactions that wait"
    ) || fault::is_planted("ready_without_a_commit");
    is_planted && (last / (SECONDS * VERSIONS_PER_SECOND)) % 2 == 1
}
