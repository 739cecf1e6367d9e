//! Notices when requests do not reach the cluster.
//!
//! ```text
//! look ── a request has found nobody, or waits and none was answered ──► ask ── no answer ──► an outage
//!   ▲                                                                     │
//!   └──────────────────────────────── answered ◄──────────────────────────┘
//! ```
//!
//! Requests wait for a cluster that is away, and do nothing for the watcher but leave a mark where they fail and count
//! where they succeed. A mark alone says little: whoever left it may have given up since, or may wait because the
//! cluster limits its transactions. So the watcher asks for itself, with a priority that passes every limit.

use super::Inner;
use super::versions::VersionBatcher;
use crate::outage::Outage;
use crate::source::Priority;
use plinth_coordination::{Look, look_at};
use plinth_core::transaction_tag::TransactionTags;
use plinth_rpc::Place;
use plinth_runtime::{Duration, Either};
use std::rc::Rc;

const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A cluster that has not answered the watcher in this time is away.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends with the next outage.
pub(super) async fn next(inner: Rc<Inner>) -> Outage {
    let mut before = None;
    loop {
        plinth_runtime::sleep(LOOK_INTERVAL).await;
        let now = inner.versions.borrow().answered_so_far();
        let is_stuck = now.is_some() && now == before;
        before = now;
        if !inner.was_missed.take() && !is_stuck {
            continue;
        }
        let asked = inner.clone();
        let mut own = Box::pin(async move {
            let tags = TransactionTags::default();
            let answer = VersionBatcher::ask(&asked, Priority::SystemImmediate, tags);
            let _ = answer.await; // a cluster that refuses is there
            // What it has missed itself is over.
            asked.was_missed.set(false);
        });
        if plinth_runtime::timeout(PATIENCE, &mut own).await.is_some() {
            continue;
        }
        if let Either::Right(coordinators) = plinth_runtime::race(&mut own, looks(&inner)).await {
            return Outage {
                coordinators,
                over: own,
            };
        }
    }
}

/// What each coordinator is like.
async fn looks(inner: &Inner) -> Vec<(Place, Look)> {
    let file = inner.coordinators.file();
    let looks = file.coordinators.iter();
    let looks = looks.map(|place| look_at(&inner.transport, &file, place));
    let looks = plinth_runtime::join_all(looks).await;
    file.coordinators.iter().cloned().zip(looks).collect()
}

#[cfg(test)]
mod tests;
