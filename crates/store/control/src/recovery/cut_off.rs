//! Whether this controller is cut off from log servers that others reach. It waits for them in vain then, while
//! another process could go on with the recovery:
//!
//! ```text
//! log servers are silent ─► this process does not reach them ─► workers that may be controller are asked
//!  ─► one of them reaches as many as the recovery needs, twice in a row ─► this controller gives up
//! ```

use super::addresses::address_now;
use crate::context::Context;
use crate::placement::{self, RoleKind};
use plinth_protocol::control::{GetReach, PLACES_MAX, RegisterWorker};
use plinth_protocol::log::LogGeneration;
use plinth_rpc::{Interface, Transport, answers};
use plinth_runtime::{Duration, Task, join_all, sleep, timeout};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// A process that does not answer within this time is not reached.
const OWN_LIMIT: Duration = Duration::from_millis(500);
/// An answer of a worker takes longer than its own limit.
const ANSWER_LIMIT: Duration = Duration::from_millis(1200);
/// Between two looks. The second one must find the same.
const AGAIN: Duration = Duration::from_millis(300);
/// Workers that are asked: a few suffice, and one that reaches the log servers is enough.
const ASKED_MAX: usize = 16;

/// Looks as long as it is held.
#[derive(Default)]
pub(super) struct CutOff {
    found: Rc<Cell<bool>>,
    looking: Option<Task<()>>,
}

impl CutOff {
    /// Looks in the background, unless it does so already. True if a look before has found that others reach what is
    /// silent here. `answered` has a flag for each log server.
    pub fn look(
        &mut self,
        context: &Context,
        generation: &LogGeneration,
        answered: Vec<bool>,
    ) -> bool {
        if self.looking.as_ref().is_none_or(Task::is_finished) {
            let look = Look::new(context, generation, answered);
            let found = self.found.clone();
            self.looking = Some(plinth_runtime::spawn("look for a cut", async move {
                let first = look.others_could().await;
                sleep(AGAIN).await;
                found.set(first && look.others_could().await);
            }));
        }
        self.found.get()
    }
}

struct Look {
    transport: Transport,
    generation: LogGeneration,
    answered: Vec<bool>,
    /// Places in the generation, and addresses, of those that have not answered.
    silent: Vec<(usize, SocketAddr)>,
    /// Workers of other processes that may be controller.
    others: Vec<Interface>,
}

impl Look {
    fn new(context: &Context, generation: &LogGeneration, answered: Vec<bool>) -> Self {
        let silent = answered
            .iter()
            .enumerate()
            .filter(|(_, answered)| !**answered);
        let address = |place: usize| address_now(&context.workers, &generation.logs[place]);
        let silent = silent
            .map(|(place, _)| (place, address(place)))
            .take(PLACES_MAX);
        let own = context.transport.address();
        let fit = |worker: &&RegisterWorker| {
            placement::fitness(worker.class(), RoleKind::Stateless).is_some()
                && Some(worker.worker.address) != own
        };
        Look {
            transport: context.transport.clone(),
            silent: silent.collect(),
            generation: generation.clone(),
            answered,
            others: context.workers.with(|workers| {
                let fit = workers.values().filter(fit).map(|worker| worker.worker);
                fit.take(ASKED_MAX).collect()
            }),
        }
    }

    /// True if another process reaches as many log servers as a recovery needs, and this one does not.
    async fn others_could(&self) -> bool {
        let reached = self.silent.iter();
        let reached = reached.map(|(_, address)| answers(&self.transport, *address, OWN_LIMIT));
        let reached = join_all(reached).await;
        // What answers here, and not the seal, would not answer it elsewhere.
        let mut own = self.answered.clone();
        let mut unreached = Vec::new();
        for ((place, address), reached) in self.silent.iter().zip(reached) {
            own[*place] |= reached;
            if !reached {
                unreached.push((*place, *address));
            }
        }
        if self.generation.covers_every_set(&own) {
            return false;
        }
        let places: Vec<SocketAddr> = unreached.iter().map(|(_, address)| *address).collect();
        let asked = self
            .others
            .iter()
            .map(|worker| self.ask(*worker, places.clone()));
        join_all(asked).await.into_iter().flatten().any(|answered| {
            let mut there = own.clone();
            for ((place, _), answered) in unreached.iter().zip(answered) {
                there[*place] |= answered;
            }
            self.generation.covers_every_set(&there)
        })
    }

    async fn ask(&self, worker: Interface, places: Vec<SocketAddr>) -> Option<Vec<bool>> {
        let call = self
            .transport
            .call(&worker.endpoint::<GetReach>(), GetReach { places });
        Some(timeout(ANSWER_LIMIT, call).await?.ok()?.answered)
    }
}
