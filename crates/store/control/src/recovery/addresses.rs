//! Where the log servers and the storage servers are now.

use plinth_core::Uid;
use plinth_core::codec::Codec;
use plinth_core::system_keys::{self, StorageServerRecord};
use plinth_protocol::control::RegisterWorker;
use plinth_rpc::Interface;
use plinth_runtime::sync::Watch;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Addresses of the live log and storage servers.
pub(super) fn hosts(workers: &BTreeMap<Uid, RegisterWorker>) -> BTreeMap<Uid, SocketAddr> {
    let mut hosts = BTreeMap::new();
    for worker in workers.values() {
        let logs = worker.logs.iter().map(|(id, _)| *id);
        let storage = worker.storage.iter().map(|(id, _)| *id);
        hosts.extend(logs.chain(storage).map(|id| (id, worker.worker.address)));
    }
    hosts
}

/// Where the log server is to be found: at the address of the worker that has it on its disk.
pub(super) fn address_now(
    workers: &Watch<BTreeMap<Uid, RegisterWorker>>,
    log: &Interface,
) -> SocketAddr {
    let hosts = workers.with(hosts);
    *hosts.get(&log.id).unwrap_or(&log.address)
}

/// Corrects the addresses of storage servers that have come back under another address than the one in the system
/// keyspace. Returns the addresses of all.
pub(super) fn update_addresses(
    rows: &mut [(bytes::Bytes, bytes::Bytes)],
    workers: &BTreeMap<Uid, RegisterWorker>,
) -> BTreeMap<Uid, SocketAddr> {
    let hosts = hosts(workers);
    let mut addresses = BTreeMap::new();
    for (key, value) in rows {
        let Some(id) = system_keys::parse_server_list_key(key) else {
            continue;
        };
        let Some(mut record) = StorageServerRecord::from_bytes(value.clone()) else {
            continue;
        };
        if let Some(now) = hosts.get(&id) {
            record.address = *now;
            *value = record.to_bytes();
        }
        addresses.insert(id, record.address);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use plinth_core::Tag;
    use plinth_protocol::control::ProcessClass;

    #[test]
    fn a_storage_server_is_looked_for_where_its_worker_is() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let row = |id, port, tag| {
            let record = StorageServerRecord {
                address: at(port),
                tag: Tag(tag),
                engine: plinth_core::EngineKind::Ssd,
            };
            (system_keys::server_list_key(Uid(id)), record.to_bytes())
        };
        let other = (bytes::Bytes::from("a"), bytes::Bytes::from("b"));
        let mut rows = vec![other.clone(), row(1, 1000, 0), row(2, 2000, 1)];
        let worker = RegisterWorker {
            storage: vec![(Uid(2), Tag(1))],
            ..testing::worker(3000, ProcessClass::Unset, "z")
        };
        let addresses = update_addresses(&mut rows, &BTreeMap::from([(Uid(9), worker)]));
        assert_eq!(rows, [other, row(1, 1000, 0), row(2, 3000, 1)]);
        assert_eq!(
            addresses,
            BTreeMap::from([(Uid(1), at(1000)), (Uid(2), at(3000))])
        );
    }
}
