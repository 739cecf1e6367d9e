//! What operators hear of quotas that are used up.

use crate::paths;
use crate::tree::quota::Exceeded;
use crate::wire::Text;
use plinth_runtime::{Duration, Instant, now, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A quota is told of again after this time, as ZooKeeper's server does.
const QUIET_FOR: Duration = Duration::from_secs(60);
/// Quotas and names whose last times and counts are kept. More of them share the last place.
const KEPT_MAX: usize = 1000;

#[derive(Default)]
pub struct Alarm {
    told: RefCell<BTreeMap<Text, Instant>>,
    /// How often something was refused, by the first name of its path.
    refused: RefCell<BTreeMap<Text, u64>>,
}

impl Alarm {
    /// Counts what is refused at `path`, and traces it if the quota was quiet for a while.
    pub fn sound(&self, exceeded: &Exceeded, path: &str) {
        if exceeded.is_hard {
            let mut refused = self.refused.borrow_mut();
            let name = paths::first_name(path);
            if refused.len() < KEPT_MAX || refused.contains_key(name) {
                *refused.entry(name.into()).or_default() += 1;
            }
        }
        let mut told = self.told.borrow_mut();
        let is_quiet = |at: &Instant| at.elapsed() >= QUIET_FOR;
        if told.get(&exceeded.quota).is_some_and(|at| !is_quiet(at)) {
            return;
        }
        if told.len() >= KEPT_MAX {
            told.retain(|_, at| !is_quiet(at));
        }
        told.insert(exceeded.quota.clone(), now());
        trace_warn!(
            "KeeperQuotaExceeded",
            "quota" => exceeded.quota,
            "path" => path,
            "what" => exceeded.what,
            "would_be" => exceeded.would_be,
            "limit" => exceeded.limit,
            "is_hard" => exceeded.is_hard
        );
    }

    /// How often something was refused, by the first name of its path.
    pub fn refused(&self) -> Vec<(Text, u64)> {
        let refused = self.refused.borrow();
        refused
            .iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}
