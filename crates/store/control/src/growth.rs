//! Log servers that had to be where nobody wants them. An epoch begins with as many as there are places for, and uses
//! excluded processes if there are no others. When there are better places, another epoch takes them.

use crate::configured::Configured;
use crate::context::Context;
use crate::{exclusion, recovery};
use plinth_protocol::log::LogGeneration;
use plinth_runtime::{Duration, Instant, probe, trace};

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A process that has only just come may go again, and each recovery has a cost.
const PATIENCE: Duration = Duration::from_secs(15);
/// An operator waits until the excluded processes are not needed.
const PATIENCE_WITH_EXCLUDED: Duration = Duration::from_secs(3);

/// What another epoch would do better.
#[derive(Clone, Copy, PartialEq)]
enum Better {
    MoreLogs,
    NoneExcluded,
}

impl Better {
    fn patience(self) -> Duration {
        match self {
            Better::MoreLogs => PATIENCE,
            Better::NoneExcluded => PATIENCE_WITH_EXCLUDED,
        }
    }
}

/// Returns when the epoch has fewer log servers than are configured, or excluded ones, and for a while another epoch
/// could have done better.
pub async fn watch(context: &Context, generation: &LogGeneration, configured: &Configured) {
    let mut since: Option<(Better, Instant)> = None;
    loop {
        plinth_runtime::sleep(LOOK_INTERVAL).await;
        let Some(better) = better(context, generation, configured) else {
            since = None;
            continue;
        };
        let began = match since {
            Some((before, began)) if before == better => began,
            _ => plinth_runtime::now(),
        };
        since = Some((better, began));
        if began.elapsed() < better.patience() {
            continue;
        }
        let (has, wanted) = (generation.logs.len(), configured.config.logs);
        match better {
            Better::MoreLogs => {
                probe!("controller_takes_more_logs");
                trace!("TakingMoreLogs", "has" => has, "wanted" => wanted);
            }
            Better::NoneExcluded => {
                probe!("controller_leaves_excluded_logs");
                trace!("LeavingExcludedLogs", "has" => has, "wanted" => wanted);
            }
        }
        return;
    }
}

fn better(
    context: &Context,
    generation: &LogGeneration,
    configured: &Configured,
) -> Option<Better> {
    let has = generation.logs.len();
    let wanted = configured.config.logs as usize;
    let has_excluded = has_excluded(context, generation, configured);
    if has >= wanted && !has_excluded {
        return None;
    }
    let places = recovery::good_log_places(context, configured).min(wanted);
    match has_excluded {
        true => (places >= has.min(wanted)).then_some(Better::NoneExcluded),
        false => (places > has).then_some(Better::MoreLogs),
    }
}

/// True if a log server of the epoch is on a process that an operator has excluded.
fn has_excluded(context: &Context, generation: &LogGeneration, configured: &Configured) -> bool {
    let targets = &configured.excluded;
    !targets.is_empty()
        && context.workers.with(|workers| {
            generation.logs.iter().any(|log| {
                let mut there = workers.values().filter(|w| w.worker.address == log.address);
                there.any(|worker| exclusion::is_excluded(worker, targets))
            })
        })
}
