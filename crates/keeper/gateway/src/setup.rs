//! The beginning of a tree: its record, its stream, and the nodes that are always there.
//!
//! ```text
//!   record:  stamp: 10 | format: 1                 the tree's base is the stamp's version
//!            0: 10     | format: 1 | import: 8     an import has not ended: no gateway opens the tree
//! ```

use crate::ahead;
use crate::backing::NoLife;
use crate::gone::Gone;
use crate::tree::node::{Counts, Data, Lifetime, Node, open_acl};
use crate::tree::rows::Rows;
use crate::tree::totals::Totals;
use crate::wire::{Acl, permission};
use crate::zxid::Zxids;
use bytes::{BufMut, Bytes};
use plinth_client::{
    Database, RangeOptions, Stream, StreamOptions, Transaction, TransactionOption,
};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, KeySelector, MutationKind, Result, Version};
use plinth_runtime::Boxed;
use plinth_runtime::trace_warn;
use std::collections::BTreeSet;
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
    /// Nothing stands in the stream.
    pub is_stream_empty: bool,
}

/// The stream of changes of a tree.
fn stream_name(name: &str) -> String {
    format!("keeper/{name}")
}

/// The names of the trees that have a stream of changes.
///
/// # Errors
/// They cannot be read.
pub async fn streams(transaction: &Transaction) -> Result<BTreeSet<String>> {
    let streams = transaction.list_streams().await?;
    let names = streams.iter().filter_map(|info| {
        let name = std::str::from_utf8(&info.name).ok()?;
        name.strip_prefix(&stream_name("")).map(str::to_owned)
    });
    Ok(names.collect())
}

async fn create_stream(transaction: &Transaction, name: &str) -> Result<()> {
    let options = StreamOptions::append()
        .bytes_max(STREAM_BYTES_MAX)
        .seconds_max(STREAM_SECONDS_MAX);
    transaction.create_stream(stream_name(name), &options).await
}

/// True if there is a stream of changes of such a tree.
///
/// # Errors
/// It cannot be read.
pub async fn has_stream(transaction: &Transaction, name: &str) -> Result<bool> {
    match transaction.open_stream(stream_name(name)).await {
        Ok(_) => Ok(true),
        Err(Error::stream_not_found) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if there are rows of such a tree.
///
/// # Errors
/// They cannot be read.
pub async fn has_rows(transaction: &Transaction, rows: &Rows) -> Result<bool> {
    let all = rows.all();
    let begin = KeySelector::first_greater_or_equal(all.begin);
    let end = KeySelector::first_greater_or_equal(all.end);
    let first = RangeOptions {
        limit: 1,
        ..RangeOptions::default()
    };
    let found = transaction.get_range(begin, end, first, true).await?;
    Ok(!found.rows.is_empty())
}

/// True if the tree's record is the one that gateways have opened it by.
///
/// # Errors
/// It cannot be read.
pub async fn is_there(transaction: &Transaction, rows: &Rows, zxids: Zxids) -> Result<bool> {
    let record = transaction.get(rows.meta(), true).await?;
    Ok(record.is_some_and(|record| is_record_of(&record, zxids)))
}

/// Drops the stream of changes.
///
/// # Errors
/// There is none.
pub async fn drop_stream(transaction: &Transaction, name: &str) -> Result<()> {
    transaction.drop_stream(stream_name(name)).await
}

/// What is found where a tree is to be opened.
enum Found {
    Opened(Opened),
    /// There was nothing. Now there is a tree, if the transaction has committed.
    Made,
    Gone(Gone),
}

/// Opens the tree; makes it if there is nothing of it. A gateway that has `had` a tree opens only that one.
///
/// # Errors
/// What there is is no whole tree, or not that one.
pub fn open<'a>(
    database: &'a Database,
    rows: &'a Rows,
    name: &'a str,
    had: Option<Zxids>,
) -> Boxed<'a, std::result::Result<Opened, NoLife>> {
    Box::pin(async move {
        loop {
            let finding = database.run(async |transaction| {
                let found = find(&transaction, rows, name, had).await?;
                if matches!(found, Found::Made) {
                    create_stream(&transaction, name).await?;
                    make(&transaction, rows)?;
                }
                Ok(found)
            });
            match finding.await? {
                Found::Opened(opened) => {
                    let is_new = opened.is_stream_empty;
                    if is_new && ahead::is_ahead(database, rows, opened.zxids).await? {
                        return Err(NoLife::Gone(Gone::Foreign.line(name)));
                    }
                    return Ok(opened);
                }
                // The record of a tree that was just made has the version of its commit.
                Found::Made => {}
                Found::Gone(gone) => return Err(NoLife::Gone(gone.line(name))),
            }
        }
    })
}

async fn find(
    transaction: &Transaction,
    rows: &Rows,
    name: &str,
    had: Option<Zxids>,
) -> Result<Found> {
    let Some(record) = transaction.get(rows.meta(), false).await? else {
        let is_left = has_stream(transaction, name).await? || has_rows(transaction, rows).await?;
        return Ok(match had {
            _ if is_left => Found::Gone(Gone::Record),
            Some(_) => Found::Gone(Gone::All),
            None => Found::Made,
        });
    };
    if had.is_some_and(|had| !is_record_of(&record, had)) {
        return Ok(Found::Gone(Gone::Other));
    }
    let opened = match open_existing(transaction, rows, name).await {
        Err(Error::stream_not_found) => return Ok(Found::Gone(Gone::Stream)),
        opened => opened?,
    };
    let has_root = transaction.get(rows.node("/"), true).await?.is_some();
    Ok(match opened {
        None => Found::Made,
        Some(opened) if opened.zxids.base > opened.version => Found::Gone(Gone::Foreign),
        Some(_) if !has_root => Found::Gone(Gone::Root),
        Some(opened) => Found::Opened(opened),
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
        let is_stream_empty = ahead::is_empty(&stream, transaction).await?;
        Ok(Some(Opened {
            zxids,
            stream,
            version,
            is_stream_empty,
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
        if !has_stream(transaction, name).await? {
            create_stream(transaction, name).await?;
        }
        let mut record = Versionstamp::new(0, 0).0.to_vec();
        record[..8].copy_from_slice(&zxids.base.to_be_bytes());
        record.put_u8(FORMAT);
        transaction.set(rows.meta(), record);
        put_totals(rows, totals, |key, row| transaction.set(key, row));
        Ok(())
    })
}

/// True if this is the record of the tree with these zxids.
fn is_record_of(record: &[u8], zxids: Zxids) -> bool {
    parse(record) == Ok(Record::Whole(zxids))
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
    // Who makes it at the same time conflicts by the record. Gateways take a conflict by another row for a stranger's.
    let mut first = Vec::new();
    first_rows(rows, |key, row| first.push((key, row)));
    for (key, row) in first {
        transaction.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
        transaction.set(key, row);
    }
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
