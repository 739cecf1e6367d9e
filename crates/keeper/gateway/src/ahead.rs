//! Trees whose rows come from another cluster, where versions were higher.
//!
//! A zxid is a version of the tree's database. Where rows were copied to a database with lower versions, and a stream
//! of changes was made beside them, new zxids would be below those that clients have seen. The rows show that: a node
//! then has a zxid that its database has not reached. Nobody has written to such a stream yet, so only trees whose
//! stream is empty are looked at: new ones, those of an import, and those without a change for as long as the stream
//! reaches back.

use crate::tree::node::{Node, pzxid_from_row};
use crate::tree::rows::Rows;
use crate::zxid::Zxids;
use plinth_client::{Database, RangeOptions, Stream, StreamLimit, Transaction};
use plinth_core::Result;
use plinth_core::key::{KeyRange, key_after};
use plinth_core::streams::Position;
use plinth_runtime::Boxed;

/// Rows that are read at one version.
const PAGE_ROWS: i32 = 10_000;

/// True if there is no entry in the stream.
pub async fn is_empty(stream: &Stream, transaction: &Transaction) -> Result<bool> {
    let floor = stream.floor(transaction).await?;
    let first = StreamLimit {
        entries: 1,
        bytes: 1,
    };
    let read = stream.read(transaction, floor.max(Position::START), first);
    Ok(read.await?.entries.is_empty())
}

/// True if a node of the tree has a zxid that the database has not reached.
pub fn is_ahead<'a>(
    database: &'a Database,
    rows: &'a Rows,
    zxids: Zxids,
) -> Boxed<'a, Result<bool>> {
    Box::pin(async move {
        let mut range = rows.all_nodes();
        loop {
            let reading = database.run(async |transaction| {
                let version = transaction.get_read_version().await?;
                let most = RangeOptions::limit(PAGE_ROWS);
                let found = transaction.get_rows(range.clone(), most, true);
                Ok((version, found.await?))
            });
            let (version, found) = reading.await?;
            let reached = zxids.last_of(version);
            let zxid = |key: &[u8], row: &[u8]| newest(key, row, zxids);
            if found.iter().any(|(key, row)| zxid(key, row) > reached) {
                return Ok(true);
            }
            match found.last() {
                Some((last, _)) if found.len() == PAGE_ROWS as usize => {
                    range = KeyRange::new(key_after(last), range.end);
                }
                _ => return Ok(false),
            }
        }
    })
}

/// The highest zxid in a row; of one that cannot be read, none.
fn newest(key: &[u8], row: &[u8], zxids: Zxids) -> i64 {
    let of_node = |node: Node| node.czxid.max(node.mzxid).max(node.pzxid);
    match Rows::is_node(key) {
        true => Node::from_row(row, zxids).map_or(0, of_node),
        false if key.ends_with(b"\0z") => pzxid_from_row(row, zxids).unwrap_or(0),
        false => 0,
    }
}
