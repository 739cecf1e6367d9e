//! Log servers that were asked for and could not be had. An epoch begins with as many as there are places for. When
//! there are places for more, another epoch takes them.

use crate::configured::Configured;
use crate::context::Context;
use crate::recovery;
use plinth_protocol::log::LogGeneration;
use plinth_runtime::{Duration, Instant, probe, trace};

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A process that has only just come may go again, and each recovery has a cost.
const PATIENCE: Duration = Duration::from_secs(15);

/// Returns when the epoch has fewer log servers than are configured, and for a while another one could have had more.
pub async fn watch(context: &Context, generation: &LogGeneration, configured: &Configured) {
    let has = generation.logs.len();
    let wanted = configured.config.logs as usize;
    if has >= wanted {
        return std::future::pending().await;
    }
    let mut since: Option<Instant> = None;
    loop {
        plinth_runtime::sleep(LOOK_INTERVAL).await;
        let places = recovery::good_log_places(context, configured);
        if places.min(wanted) <= has {
            since = None;
            continue;
        }
        if since.get_or_insert_with(plinth_runtime::now).elapsed() >= PATIENCE {
            probe!("controller_takes_more_logs");
            trace!("TakingMoreLogs", "has" => has, "places" => places, "wanted" => wanted);
            return;
        }
    }
}
