//! Who knows what was committed, beside the log servers themselves. A version is known committed when it is on every
//! log server's disk. A log server that lacks it was set back, and its end says nothing about the log:
//!
//! - the coordinators name an epoch when its recovery transaction is committed,
//! - storage servers learn it from log servers with what they read, and keep it in their files.

use super::ahead;
use crate::context::Context;
use crate::creation;
use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use plinth_core::{Epoch, Uid, Version};
use plinth_protocol::control::{DatabaseState, RegisterWorker};
use plinth_protocol::database::DatabaseId;
use plinth_protocol::log::LogGeneration;
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, TaskGroup, join_all, sleep, timeout};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// A storage server that does not answer within this time is asked again.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);
/// Between two questions to the same storage server. Others may come back meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A version that is known committed, and who says so, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Witnessed {
    pub version: Version,
    pub who: String,
}

pub(super) struct Witnesses {
    newest: Rc<RefCell<Witnessed>>,
    /// Each storage server that was there has answered, or had the time to.
    were_asked: Rc<Cell<bool>>,
    _asking: TaskGroup,
}

impl Witnesses {
    /// Asks the storage servers of the database, until it is dropped.
    pub fn ask(context: &Context, state: &DatabaseState, generation: &LogGeneration) -> Self {
        let newest = Rc::new(RefCell::new(of_coordinators(generation)));
        let were_asked = Rc::new(Cell::new(false));
        let asking = TaskGroup::new();
        let (transport, workers) = (context.transport.clone(), context.workers.clone());
        let of = (state.epoch, state.database, state.is_confirmed);
        let (found, asked) = (newest.clone(), were_asked.clone());
        asking.spawn("ask witnesses", async move {
            loop {
                for witnessed in ask_all(&transport, &workers, &of).await {
                    if witnessed.version > found.borrow().version {
                        *found.borrow_mut() = witnessed;
                    }
                }
                asked.set(true);
                sleep(ASK_AGAIN).await;
            }
        });
        Witnesses {
            newest,
            were_asked,
            _asking: asking,
        }
    }

    pub fn newest(&self) -> Witnessed {
        self.newest.borrow().clone()
    }

    pub fn were_asked(&self) -> bool {
        self.were_asked.get()
    }
}

/// The coordinators name a generation when its recovery transaction, or the first one of the database, is on every log
/// server's disk.
fn of_coordinators(generation: &LogGeneration) -> Witnessed {
    Witnessed {
        version: generation
            .recovered_to
            .saturating_add(MAX_VERSIONS_IN_FLIGHT),
        who: format!(
            "the coordinators, who know that epoch {} has begun",
            generation.epoch
        ),
    }
}

async fn ask_all(
    transport: &Transport,
    workers: &Watch<BTreeMap<Uid, RegisterWorker>>,
    (epoch, database, is_confirmed): &(Epoch, DatabaseId, bool),
) -> Vec<Witnessed> {
    let servers: Vec<(Uid, SocketAddr)> = workers.with(|workers| {
        if ahead::by_epoch(workers, *epoch, (database, *is_confirmed)).is_some() {
            return Vec::new(); // what is too old is not the log, and the recovery will say so
        }
        let of_database = workers
            .values()
            .filter(|worker| creation::may_be_ahead(worker, database, *is_confirmed));
        let storage = of_database.flat_map(|worker| {
            let ids = worker.storage.iter().map(|(id, _)| *id);
            ids.map(|id| (id, worker.worker.address))
        });
        storage.collect()
    });
    let asked = servers.into_iter().map(|(id, address)| async move {
        let endpoint = Interface::new(address, id).endpoint::<GetStorageStatus>();
        let answer = timeout(ANSWER_LIMIT, transport.call(&endpoint, GetStorageStatus {})).await;
        let status = answer?.ok()?;
        Some(Witnessed {
            version: status.known_committed.max(status.durable),
            who: format!("the storage server at {address}"),
        })
    });
    join_all(asked).await.into_iter().flatten().collect()
}
