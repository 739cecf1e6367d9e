//! Measures how long what is below takes (§4.1 B): one above each engine tells where time goes.

use crate::entry::Entry;
use crate::log::LogPos;
use crate::stack::{Engine, Lost, Proposed};
use crate::store::RoTx;
use plinth_runtime::metric::latency::Latency;
use plinth_runtime::now;
use std::future::Future;

/// See the module. It has no upper half.
pub struct Observer<E> {
    /// The engine that is observed, for whoever shows the figures.
    pub below: &'static str,
    pub proposals: Latency,
    pub syncs: Latency,
    down: E,
}

impl<E: Engine> Observer<E> {
    pub fn new(below: &'static str, down: E) -> Self {
        Observer {
            below,
            proposals: Latency::default(),
            syncs: Latency::default(),
            down,
        }
    }
}

async fn measured<T>(latency: &Latency, work: impl Future<Output = T>) -> T {
    let since = latency.ask().then(now);
    let done = work.await;
    if let Some(since) = since {
        latency.answered(since);
    }
    done
}

impl<E: Engine> Engine for Observer<E> {
    type Return = E::Return;
    type Refusal = E::Refusal;

    fn propose(&self, entry: Entry) -> impl Future<Output = Proposed<E::Return, E::Refusal>> {
        measured(&self.proposals, self.down.propose(entry))
    }

    fn sync(&self) -> impl Future<Output = Result<RoTx, Lost>> {
        measured(&self.syncs, self.down.sync())
    }

    fn set_trim_prefix(&self, pos: LogPos) {
        self.down.set_trim_prefix(pos);
    }
}
