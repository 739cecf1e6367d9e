//! The system keyspace: the database's own configuration and metadata.
//!
//! Changed by ordinary transactions; every commit proxy keeps a copy in version order (pitfall 7).
//!
//! ```text
//! \xff/conf                      DatabaseConfig
//! \xff/nextTag                   u32: tags below it have been given to some storage server
//! \xff/serverList/<uid, 16 B>    StorageServerRecord
//! \xff/keyServers/<begin key>    ShardRecord: the servers of the range from here to the next entry
//! \xff/excluded/<target>         servers there get no data and no roles
//! \xff/processClass/<uid, 16 B>  the class of a process, instead of the one that it declares
//! \xff/knobs/<name>              the value of a knob, as text, for every process that was not given one itself
//! \xff/distribution/…            whether data is distributed, and what is under maintenance; see
//!                               [`crate::distribution`]
//! \xff/access/…                 what clients may do, and whose tokens count; see `plinth_access`
//! \xff/dbLocked                  Uid of the lock, while the database is locked
//! \xff/moveKeysLock              Uid: the data distributor that may move shards
//! \xff/streams/…                 streams; see [`crate::streams`]
//! \xff/tenant/…                  tenants; see `plinth_client::tenant`
//! \xff/globalConfig/…            configuration shared by all clients
//! \xff/metadataVersion           the stamp that layers change with their metadata; anyone may
//! \xff\x02/…                     stored like ordinary data: \xff\x02/timeKeeper/map/ the version at each time,
//!                               \xff\x02/idmp/<read version>/<id> the transactions that happened,
//!                               \xff\x02/streams/ the entries of streams,
//!                               \xff\x02/beat the version of the newest of the commits that come every second
//! ```
//!
//! The proxies keep no copy of the last four.

use crate::codec::Codec;
use crate::config::EngineKind;
use crate::id::{Tag, Uid};
use crate::key::{SYSTEM_BEGIN, prefix_end};
use crate::record;
use crate::version::Version;
use bytes::Bytes;
use std::net::SocketAddr;

pub const CONFIG: &[u8] = b"\xff/conf";
pub const NEXT_TAG: &[u8] = b"\xff/nextTag";
pub const SERVER_LIST: &[u8] = b"\xff/serverList/";
pub const SERVER_LIST_END: &[u8] = b"\xff/serverList0";
pub const EXCLUDED: &[u8] = b"\xff/excluded/";
pub const EXCLUDED_END: &[u8] = b"\xff/excluded0";
pub const PROCESS_CLASSES: &[u8] = b"\xff/processClass/";
pub const KNOBS: &[u8] = b"\xff/knobs/";
/// Who may read and write what: see `plinth_access`.
pub const ACCESS: &[u8] = b"\xff/access/";
pub const ACCESS_END: &[u8] = b"\xff/access0";
pub const DATABASE_LOCK: &[u8] = b"\xff/dbLocked";
pub const MOVE_KEYS_LOCK: &[u8] = b"\xff/moveKeysLock";
pub const KEY_SERVERS: &[u8] = b"\xff/keyServers/";
pub const KEY_SERVERS_END: &[u8] = b"\xff/keyServers0";
pub const TENANTS: &[u8] = b"\xff/tenant/";
/// Name of a tenant → its number.
pub const TENANT_MAP: &[u8] = b"\xff/tenant/map/";
pub const GLOBAL_CONFIG: &[u8] = b"\xff/globalConfig/";
/// Rows with which a client finds out whether a commit happened: see the commit of `plinth_client`.
pub const IDEMPOTENCY: &[u8] = b"\xff\x02/idmp/";
pub const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";
/// The controller writes it every second, with the stamp of the commit: processes see by it that commits go through.
pub const BEAT: &[u8] = b"\xff\x02/beat";
/// Nobody reads this row, and it is never there: a commit needs something that others could conflict over.
pub const PROBED: &[u8] = b"\xff\x02/probed";

/// Parts of the system keyspace that are stored like ordinary data, without a copy in the proxies.
const UNKEPT: [&[u8]; 3] = [b"\xff\x02", TENANTS, GLOBAL_CONFIG];

record! {
    /// A storage server: its address, its tag in the log, and its engine.
    pub struct StorageServerRecord {
        pub address: SocketAddr,
        pub tag: Tag,
        pub engine: EngineKind,
    }

    /// The team of a shard, and the servers that it moves to; `destination` is empty unless the shard is moving.
    pub struct ShardRecord {
        pub team: Vec<Uid>,
        pub destination: Vec<Uid>,
    }
}

/// Rows of [`IDEMPOTENCY`] are kept for this many versions after the transaction's read version: a day, unless a
/// recovery lets versions jump.
pub const IDEMPOTENCY_KEPT: Version = 24 * 3600 * 1_000_000;

/// Begin of the rows of transactions with this read version. An older format had the hour since 1970 in its place;
/// those rows sort before all versions.
pub fn idempotency_rows_from(read_version: Version) -> Bytes {
    let version = u64::try_from(read_version).unwrap_or(0);
    [IDEMPOTENCY, &version.to_be_bytes()].concat().into()
}

pub fn server_list_key(id: Uid) -> Bytes {
    [SERVER_LIST, &id.to_bytes()].concat().into()
}

pub fn parse_server_list_key(key: &[u8]) -> Option<Uid> {
    Uid::from_bytes(key.strip_prefix(SERVER_LIST)?)
}

/// The storage servers of a database, and the first tag that was never given to one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerList {
    pub servers: Vec<(Uid, StorageServerRecord)>,
    pub next_tag: u32,
}

impl ServerList {
    /// Builds the list from rows of the system keyspace and ignores other rows. `None` if a row is malformed.
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = &'a (Bytes, Bytes)>) -> Option<Self> {
        let mut list = ServerList::default();
        for (key, value) in rows {
            if key == NEXT_TAG {
                list.next_tag = u32::from_bytes(value.clone())?;
            } else if let Some(id) = parse_server_list_key(key) {
                let record = StorageServerRecord::from_bytes(value.clone())?;
                list.servers.push((id, record));
            }
        }
        Some(list)
    }

    pub fn tags(&self) -> Vec<(Uid, Tag)> {
        let tag = |(id, record): &(Uid, StorageServerRecord)| (*id, record.tag);
        self.servers.iter().map(tag).collect()
    }
}

pub fn key_servers_key(begin: &[u8]) -> Bytes {
    [KEY_SERVERS, begin].concat().into()
}

pub fn parse_key_servers_key(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(KEY_SERVERS)
}

/// True for keys of which the proxies keep a copy. A transaction that writes one goes to every resolver.
pub fn is_metadata_key(key: &[u8]) -> bool {
    key >= SYSTEM_BEGIN
        && key != METADATA_VERSION
        && !UNKEPT.iter().any(|prefix| key.starts_with(prefix))
}

/// True if a clear of `[begin, end)` may remove such a key.
pub fn is_metadata_range(begin: &[u8], end: &[u8]) -> bool {
    let within = |prefix: &&[u8]| {
        begin.starts_with(prefix) && prefix_end(prefix).is_some_and(|last| *end <= last[..])
    };
    end > SYSTEM_BEGIN && !UNKEPT.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_keep_what_they_route_by_and_nothing_that_applications_fill() {
        for key in [CONFIG, b"\xff/keyServers/a", b"\xff"] {
            assert!(is_metadata_key(key));
        }
        for key in [
            &b"a"[..],
            METADATA_VERSION,
            b"\xff/tenant/map/t",
            b"\xff\x02/x",
        ] {
            assert!(!is_metadata_key(key));
        }
        assert!(is_metadata_range(b"", b"\xff\xff") && is_metadata_range(b"\xff/a", b"\xff/z"));
        assert!(!is_metadata_range(b"a", b"\xff") && !is_metadata_range(b"\xff\x02", b"\xff\x03"));
        assert!(!is_metadata_range(
            b"\xff/tenant/map/a",
            b"\xff/tenant/map/b"
        ));
    }
}
