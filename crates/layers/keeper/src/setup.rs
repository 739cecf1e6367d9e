//! The beginning of a tree: its record, its stream, and the nodes that are always there.

use crate::tree::node::{Counts, Data, Lifetime, Node, open_acl};
use crate::tree::rows::Rows;
use crate::tree::totals::Totals;
use crate::wire::{Acl, permission};
use crate::zxid::Zxids;
use bytes::{BufMut, Bytes};
use plinth_client::{Database, Stream, StreamOptions, Transaction};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, MutationKind, Result, Version};
use std::rc::Rc;

/// Version of the format of rows and entries.
const FORMAT: u8 = 1;
/// How much of its past the stream keeps: a gateway that was away for longer begins a new life.
const STREAM_BYTES_MAX: u64 = 256 << 20;
const STREAM_SECONDS_MAX: u64 = 600;

/// A tree that is there.
pub struct Opened {
    pub zxids: Zxids,
    pub stream: Stream,
    /// A version at which it was there.
    pub version: Version,
}

/// Opens the tree; makes it if it is not there.
pub async fn open(database: &Database, rows: &Rows, name: &str) -> Result<Opened> {
    let stream = format!("keeper/{name}");
    loop {
        let found = database.run(async |transaction| {
            let Some(record) = transaction.get(rows.meta(), false).await? else {
                let options = StreamOptions::append()
                    .bytes_max(STREAM_BYTES_MAX)
                    .seconds_max(STREAM_SECONDS_MAX);
                transaction.create_stream(&stream, &options).await?;
                make(&transaction, rows)?;
                return Ok(None);
            };
            let stream = transaction.open_stream(&stream).await?;
            let version = transaction.get_read_version().await?;
            let zxids = parse(&record)?;
            Ok(Some(Opened {
                zxids,
                stream,
                version,
            }))
        });
        // The record of a tree that was just made has the version of its commit.
        if let Some(opened) = found.await? {
            return Ok(opened);
        }
    }
}

fn parse(record: &[u8]) -> Result<Zxids> {
    let (stamp, format) = record
        .split_at_checked(Versionstamp::LEN)
        .ok_or(Error::file_corrupt)?;
    if format != [FORMAT] {
        return Err(Error::unsupported_format_version);
    }
    let base = stamp.first_chunk::<8>().ok_or(Error::file_corrupt)?;
    Ok(Zxids {
        base: i64::from_be_bytes(*base),
    })
}

/// Only the super user changes the configuration, as in ZooKeeper.
fn acl_of(path: &str) -> Rc<[Acl]> {
    match path {
        "/zookeeper/config" => Acl::open()
            .into_iter()
            .map(|acl| Acl {
                perms: permission::READ,
                ..acl
            })
            .collect(),
        _ => open_acl(),
    }
}

fn make(transaction: &Transaction, rows: &Rows) -> Result<()> {
    let mut record = vec![0; Versionstamp::LEN];
    record.put_u8(FORMAT);
    record.put_u32_le(0); // the stamp's place
    transaction.atomic_op(MutationKind::SetVersionstampedValue, rows.meta(), record);
    let mut totals = Totals::default();
    for (path, present) in [
        ("/", 1),
        ("/zookeeper", 2),
        ("/zookeeper/config", 0),
        ("/zookeeper/quota", 0),
    ] {
        let node = Node {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: 0,
            counts: Counts::default(),
            lifetime: Lifetime::Persistent,
            acl: acl_of(path),
            data: Data::Here(Bytes::new()),
        };
        transaction.set(rows.node(path), node.to_row().0);
        totals.add_change(path, None, Some(&node));
        if present > 0 {
            let counts = Counts {
                created: 0,
                present,
            };
            transaction.set(rows.counts(path), counts.to_bytes());
        }
    }
    totals.nodes += 1; // ZooKeeper counts the root under two names
    for (of, total) in totals.rows() {
        transaction.set(rows.total(of), total.to_le_bytes());
    }
    Ok(())
}
