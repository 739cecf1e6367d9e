//! Measures how long what is below takes (§4.1 B): one above each engine tells where time goes.

use crate::entry::Entry;
use crate::stack::{Engine, Layer, Lost, ProposedTo};
use crate::store::RoTx;
use plinth_runtime::metric::latency::Latency;
use plinth_runtime::now;
use std::ops::Deref;

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

/// What else the engine has than calls that are passed down is used through its observer.
impl<E> Deref for Observer<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.down
    }
}

impl<E: Engine> Layer for Observer<E> {
    type Down = E;

    fn down(&self) -> &E {
        &self.down
    }

    fn propose(&self, entry: Entry) -> impl Future<Output = ProposedTo<E>> {
        measured(&self.proposals, self.down.propose(entry))
    }

    fn sync(&self) -> impl Future<Output = Result<RoTx, Lost>> {
        measured(&self.syncs, self.down.sync())
    }
}
