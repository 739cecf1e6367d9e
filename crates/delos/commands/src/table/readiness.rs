//! Whether a gateway of tables, or a server of its own tables, is ready: whether a request could be answered just now.

use plinth_runtime::readiness::{READY_LIMIT, Readiness, Work};
use plinth_runtime::{Duration, now, sleep, timeout};
use plinth_table::backend::{Answers, Problem};
use plinth_table::proto::Description;
use std::cell::RefCell;
use std::convert::Infallible;

const INTERVAL: Duration = Duration::from_secs(2);

/// Keeps `readiness` up to date, for ever. `has_grown` tells whether the log has entries that were not there at its
/// last call: then somebody could append.
pub async fn keep(
    readiness: &RefCell<Readiness>,
    answers: &impl Answers,
    mut has_grown: impl AsyncFnMut() -> bool,
) -> Infallible {
    loop {
        let began = now();
        let looking = async {
            // A refusal is an answer, too.
            let is_answered = !matches!(
                answers.describe(Description::default()).await,
                Err(Problem::Unavailable(_) | Problem::Unknown(_))
            );
            if is_answered {
                let mut readiness = readiness.borrow_mut();
                readiness.probed(Work::ReadVersion, began, now());
                readiness.went_through(Work::Read, now());
            }
            if has_grown().await {
                readiness.borrow_mut().went_through(Work::Commit, now());
            }
        };
        timeout(READY_LIMIT, looking).await;
        sleep(INTERVAL).await;
    }
}
