//! The beginning of a tree: its record, its stream, and the nodes that are always there.
//!
//! ```text
//!   record:  stamp: 10 | format: 1                 the tree's base is the stamp's version
//!            0: 10     | format: 1 | import: 8     an import has not ended: no gateway opens the tree
//! ```

use crate::tree::node::{Counts, Data, Lifetime, Node, open_acl};
use crate::tree::rows::Rows;
use crate::tree::totals::Totals;
use crate::wire::{Acl, permission};
use crate::zxid::Zxids;
use bytes::{BufMut, Bytes};
use plinth_client::{Database, Stream, StreamOptions, Transaction};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, MutationKind, Result, Version};
use plinth_runtime::Boxed;
use plinth_runtime::trace_warn;
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

/// The stream of changes of a tree.
fn stream_name(name: &str) -> String {
    format!("keeper/{name}")
}

async fn create_stream(transaction: &Transaction, name: &str) -> Result<()> {
    let options = StreamOptions::append()
        .bytes_max(STREAM_BYTES_MAX)
        .seconds_max(STREAM_SECONDS_MAX);
    transaction.create_stream(stream_name(name), &options).await
}

/// Opens the tree; makes it if it is not there.
pub fn open<'a>(
    database: &'a Database,
    rows: &'a Rows,
    name: &'a str,
) -> Boxed<'a, Result<Opened>> {
    Box::pin(async move {
        loop {
            let found = database.run(async |transaction| {
                let opened = open_existing(&transaction, rows, name).await?;
                if opened.is_none() {
                    create_stream(&transaction, name).await?;
                    make(&transaction, rows)?;
                }
                Ok(opened)
            });
            // The record of a tree that was just made has the version of its commit.
            if let Some(opened) = found.await? {
                return Ok(opened);
            }
        }
    })
}

/// Opens the tree, if it is there.
///
/// # Errors
/// `unsupported_format_version` if an import of it has not ended, or a newer release has written it.
pub fn open_existing<'a>(
    transaction: &'a Transaction,
    rows: &'a Rows,
    name: &'a str,
) -> Boxed<'a, Result<Option<Opened>>> {
    Box::pin(async move {
        let Some(record) = transaction.get(rows.meta(), false).await? else {
            return Ok(None);
        };
        let zxids = match parse(&record)? {
            Record::Whole(zxids) => zxids,
            Record::Importing(_) => {
                trace_warn!("KeeperTreeHalfImported", "tree" => name);
                return Err(Error::unsupported_format_version);
            }
        };
        let stream = transaction.open_stream(stream_name(name)).await?;
        let version = transaction.get_read_version().await?;
        Ok(Some(Opened {
            zxids,
            stream,
            version,
        }))
    })
}

/// What a tree's record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    Whole(Zxids),
    /// The import with this number fills the tree, or has failed to.
    Importing(u64),
}

/// Reads the record of a tree; `None` if there is no such tree. The transaction conflicts with a change of it.
pub fn record<'a>(
    transaction: &'a Transaction,
    rows: &'a Rows,
) -> Boxed<'a, Result<Option<Record>>> {
    Box::pin(async move {
        let record = transaction.get(rows.meta(), false).await?;
        record.map(|record| parse(&record)).transpose()
    })
}

/// Clears a tree that is not whole, and gives it to the import with this number.
pub fn begin_import(transaction: &Transaction, rows: &Rows, import: u64) {
    let all = rows.all();
    transaction.clear_range(all.begin, all.end);
    let mut record = vec![0; Versionstamp::LEN];
    record.put_u8(FORMAT);
    record.put_u64(import);
    transaction.set(rows.meta(), record);
}

/// Makes a tree that was filled one that gateways open; `totals` are those of all its nodes.
pub fn end_import<'a>(
    transaction: &'a Transaction,
    rows: &'a Rows,
    name: &'a str,
    zxids: Zxids,
    totals: Totals,
) -> Boxed<'a, Result<()>> {
    Box::pin(async move {
        // One may be left of a tree whose rows were cleared. Nobody reads its past.
        match transaction.open_stream(stream_name(name)).await {
            Ok(_) => {}
            Err(Error::stream_not_found) => create_stream(transaction, name).await?,
            Err(error) => return Err(error),
        }
        let mut record = Versionstamp::new(0, 0).0.to_vec();
        record[..8].copy_from_slice(&zxids.base.to_be_bytes());
        record.put_u8(FORMAT);
        transaction.set(rows.meta(), record);
        put_totals(rows, totals, |key, row| transaction.set(key, row));
        Ok(())
    })
}

fn parse(record: &[u8]) -> Result<Record> {
    let (stamp, rest) = record
        .split_at_checked(Versionstamp::LEN)
        .ok_or(Error::file_corrupt)?;
    let base = stamp.first_chunk::<8>().ok_or(Error::file_corrupt)?;
    match rest.split_first() {
        Some((&FORMAT, [])) => Ok(Record::Whole(Zxids {
            base: i64::from_be_bytes(*base),
        })),
        Some((&FORMAT, import)) => {
            let import = import.try_into().map_err(|_| Error::file_corrupt)?;
            Ok(Record::Importing(u64::from_be_bytes(import)))
        }
        _ => Err(Error::unsupported_format_version),
    }
}

/// The nodes that every tree has, each with the number of its children.
pub const ALWAYS_THERE: [(&str, i32); 4] = [
    ("/", 1),
    ("/zookeeper", 2),
    ("/zookeeper/config", 0),
    ("/zookeeper/quota", 0),
];

/// A node of [`ALWAYS_THERE`], as a new tree has it.
pub fn first_node(path: &str, present: i32) -> Node {
    Node {
        czxid: 0,
        mzxid: 0,
        pzxid: 0,
        ctime: 0,
        mtime: 0,
        version: 0,
        aversion: 0,
        counts: Counts {
            created: 0,
            present,
        },
        lifetime: Lifetime::Persistent,
        acl: acl_of(path),
        data: Data::Here(Bytes::new()),
    }
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
    first_rows(rows, |key, row| transaction.set(key, row));
    Ok(())
}

/// The rows of a new tree, but for its record.
pub fn first_rows(rows: &Rows, mut set: impl FnMut(Vec<u8>, Vec<u8>)) {
    let mut totals = Totals::default();
    for (path, present) in ALWAYS_THERE {
        let node = first_node(path, present);
        set(rows.node(path), node.to_row().0);
        totals.add_change(path, None, Some(&node));
        if present > 0 {
            set(rows.counts(path), node.counts.to_bytes().to_vec());
        }
    }
    put_totals(rows, totals, set);
}

/// Writes the tree's numbers, counted over all nodes.
fn put_totals(rows: &Rows, mut totals: Totals, mut set: impl FnMut(Vec<u8>, Vec<u8>)) {
    totals.nodes += 1; // ZooKeeper counts the root under two names
    for (of, total) in totals.rows() {
        set(rows.total(of), total.to_le_bytes().to_vec());
    }
}
