//! Finds processes that have more than the coordinators know. A recovery takes the state that it reads from the
//! coordinators for the newest. If they have lost their files, or were given older ones, it would start from an old
//! state of the database. Other processes have newer facts:
//!
//! - a data directory: the newest epoch that its process has served in,
//! - a log server: its own epoch; none is made for an epoch later than the one after that of the coordinated state,
//! - a storage server: the version that it knows to be committed.

use crate::context::Context;
use crate::creation;
use plinth_core::system_keys::ServerList;
use plinth_core::{Epoch, Uid, Version};
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::database::DatabaseId;
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, TaskGroup, sync};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;

/// A storage server that does not answer within this time is not waited for: the epoch that its process reports is
/// checked too.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);

/// A process that has served the database in a later epoch than `epoch`, described in words.
pub(super) fn by_epoch(
    workers: &BTreeMap<Uid, RegisterWorker>,
    epoch: Epoch,
    (database, certain): (&DatabaseId, bool),
) -> Option<String> {
    let workers = workers
        .values()
        .filter(|w| creation::may_be_ahead(w, database, certain));
    workers.into_iter().find_map(|worker| {
        // Log servers made for the next epoch may be of a recovery that did not finish.
        let logs = worker.logs.iter().map(|(_, log)| log.saturating_sub(1));
        let newest = logs.max().unwrap_or(0).max(worker.epoch);
        let address = worker.worker.address;
        (newest > epoch).then(|| {
            format!("{address} has served in epoch {newest}, and the coordinators know of none after {epoch}")
        })
    })
}

/// Asks the live storage servers for what they know to be committed. Returns what is above `recovered_to`, described
/// in words.
pub(super) fn look(
    context: &Context,
    servers: &ServerList,
    addresses: &BTreeMap<Uid, SocketAddr>,
    recovered_to: Version,
) -> impl Future<Output = Option<String>> + use<> {
    let (sender, mut answers) = sync::queue();
    let tasks = TaskGroup::new();
    let living: Vec<SocketAddr> = context.workers.with(|workers| {
        let addresses = workers.values().map(|worker| worker.worker.address);
        addresses.collect()
    });
    let listed = servers.servers.iter();
    // A server that is not listed does not belong to this database.
    let at = listed.filter_map(|(id, _)| Some((*id, *addresses.get(id)?)));
    for (id, address) in at.filter(|(_, address)| living.contains(address)) {
        let (transport, sender) = (context.transport.clone(), sender.clone());
        tasks.spawn("ask storage", async move {
            let endpoint = Interface::new(address, id).endpoint::<GetStorageStatus>();
            let call = transport.call(&endpoint, GetStorageStatus {});
            if let Some(Ok(status)) = plinth_runtime::timeout(ANSWER_LIMIT, call).await {
                let committed = status.known_committed.max(status.durable);
                let _ = sender.send((address, committed)); // the recovery may have ended
            }
        });
    }
    async move {
        let _tasks = tasks;
        drop(sender);
        while let Some((address, committed)) = answers.recv().await {
            if committed > recovered_to {
                return Some(format!(
                    "the storage server at {address} knows that version {committed} was committed, \
                    and the log that the coordinators know of ends at {recovered_to}"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use plinth_protocol::control::ProcessClass;

    #[test]
    fn a_process_that_has_served_later_than_the_coordinators_know_is_told() {
        let database = DatabaseId {
            id: Uid(3),
            is_former: false,
        };
        let worker = |epoch, log| RegisterWorker {
            epoch,
            database: database.id,
            logs: vec![(Uid(1), log)],
            ..testing::worker(1, ProcessClass::Unset, "z")
        };
        let told = |worker| by_epoch(&BTreeMap::from([(Uid(1), worker)]), 5, (&database, true));
        let said = |epoch, log| told(worker(epoch, log));
        assert_eq!(said(5, 5), None);
        // The log server is of a recovery that ended before it wrote the coordinated state.
        assert_eq!(said(5, 6), None);
        assert!(said(6, 5).expect("ahead").contains("epoch 6"));
        assert!(said(5, 7).expect("ahead").contains("10.0.0.1:1"));
        let of_another = RegisterWorker {
            database: Uid(4),
            ..worker(9, 9)
        };
        assert_eq!(told(of_another), None, "its epochs are others");
        // A directory without an id is ahead of a database that is older than ids until that has one for certain.
        let without = RegisterWorker {
            database: Uid(0),
            ..worker(9, 9)
        };
        let former = DatabaseId {
            is_former: true,
            ..database
        };
        let told = |certain| {
            by_epoch(
                &BTreeMap::from([(Uid(1), without.clone())]),
                5,
                (&former, certain),
            )
        };
        assert!(told(false).is_some() && told(true).is_none());
    }
}
