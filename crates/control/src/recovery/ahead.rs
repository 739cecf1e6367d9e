//! Who has more than the coordinators know of. A recovery takes what it reads from them for the newest; if they have lost their
//! files, or were given older ones, it would begin where the database was long ago. Others remember:
//!
//! - a data directory, the newest epoch that it has served in,
//! - a log server, its own epoch: none is made for a later one than that after the coordinated state's,
//! - a storage server, the version that it has on disk, which was known to be committed.

use super::Context;
use plinth_core::system_keys::ServerList;
use plinth_core::{Epoch, Uid, Version};
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, TaskGroup, sync};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;

/// A storage server that has not answered by then is not waited for: its process says what it knows, too.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);

/// A process that has served in a later epoch than `epoch`, in words.
pub(super) fn by_epoch(workers: &BTreeMap<Uid, RegisterWorker>, epoch: Epoch) -> Option<String> {
    workers.values().find_map(|worker| {
        // Those made for the next may be of a recovery that did not get through.
        let logs = worker.logs.iter().map(|(_, log)| log.saturating_sub(1));
        let newest = logs.max().unwrap_or(0).max(worker.epoch);
        let address = worker.worker.address;
        (newest > epoch).then(|| {
            format!("{address} has served in epoch {newest}, and the coordinators know of none after {epoch}")
        })
    })
}

/// Asks the storage servers that live what they have on disk. Gives one that has more than `recovered_to`, in words.
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
    // One that is not listed is none of this database's.
    let at = listed.filter_map(|(id, _)| Some((*id, *addresses.get(id)?)));
    for (id, address) in at.filter(|(_, address)| living.contains(address)) {
        let (transport, sender) = (context.transport.clone(), sender.clone());
        tasks.spawn("ask storage", async move {
            let endpoint = Interface::new(address, id).endpoint::<GetStorageStatus>();
            let call = transport.call(&endpoint, GetStorageStatus {});
            if let Some(Ok(status)) = plinth_runtime::timeout(ANSWER_LIMIT, call).await {
                let _ = sender.send((address, status.durable)); // the recovery may have ended
            }
        });
    }
    async move {
        let _tasks = tasks;
        drop(sender);
        while let Some((address, durable)) = answers.recv().await {
            if durable > recovered_to {
                return Some(format!(
                    "the storage server at {address} has version {durable} on disk, and the log that the coordinators know of ends at {recovered_to}"
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
        let worker = |epoch, log| RegisterWorker {
            epoch,
            logs: vec![(Uid(1), log)],
            ..testing::worker(1, ProcessClass::Unset, "z")
        };
        let said = |epoch, log| by_epoch(&BTreeMap::from([(Uid(1), worker(epoch, log))]), 5);
        assert_eq!(said(5, 5), None);
        // Of a recovery that ended before it wrote the coordinated state.
        assert_eq!(said(5, 6), None);
        assert!(said(6, 5).expect("ahead").contains("epoch 6"));
        assert!(said(5, 7).expect("ahead").contains("10.0.0.1:1"));
    }
}
