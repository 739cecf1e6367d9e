//! Finds out whether a replica is ready: whether a request to it could be answered just now (pitfall 44).
//!
//! ```text
//! every 2 s ── where does the log end? ── apply all up to there ─► are entries new? then somebody could append
//! ```
//!
//! It appends nothing itself: each replica reports at least once a second how far it is ([`view_tracking`]), so the
//! log of an idle service grows, too.
//!
//! [`view_tracking`]: crate::engines::view_tracking

use super::hosting::Replica;
use plinth_runtime::readiness::{READY_LIMIT, Readiness, Work};
use plinth_runtime::{Duration, now, sleep_until, timeout};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Between two looks while something has not gone through for longer than [`LATE`].
const LOOK_SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_millis(1500);

/// Keeps `readiness` up to date. `serving` gives the replica, once it serves.
pub async fn keep<E>(
    readiness: &RefCell<Readiness>,
    serving: impl Fn() -> Result<Rc<dyn Replica>, E>,
) -> Infallible {
    let mut applied = None;
    loop {
        let soon = now() + LOOK_SOON;
        if let Ok(replica) = serving() {
            timeout(READY_LIMIT, look(&*replica, readiness, &mut applied)).await;
        }
        let is_late = readiness.borrow().age(now()) > LATE;
        let pause = if is_late {
            Duration::ZERO
        } else {
            LOOK_INTERVAL - LOOK_SOON
        };
        sleep_until((soon + pause).max(now() + LOOK_SOON)).await;
    }
}

async fn look(replica: &dyn Replica, readiness: &RefCell<Readiness>, before: &mut Option<u64>) {
    let began = now();
    if replica.catch_up().await.is_err() {
        return;
    }
    let applied = replica.store().applied();
    let mut readiness = readiness.borrow_mut();
    readiness.probed(Work::ReadVersion, began, now());
    readiness.went_through(Work::Read, now());
    if before
        .replace(applied)
        .is_some_and(|before| before < applied)
    {
        readiness.went_through(Work::Commit, now());
    }
}
