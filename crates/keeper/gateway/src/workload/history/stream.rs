//! What the stream of changes says of the nodes of the history: where operations without an answer have their places,
//! and what nobody has asked for.

use super::model::{BASE, Changed, Did, Now};
use crate::setup;
use crate::tree::change::{Change, parse_entry};
use crate::tree::rows::Rows;
use crate::wire::Text;
use plinth_client::{Database, Position, StreamContent, StreamLimit};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Result};
use std::cell::RefCell;

/// All that an operation has changed: maybe nothing of the history.
#[derive(Default, Debug)]
pub struct Entry {
    pub zxid: i64,
    /// Nodes of the history.
    pub changed: Vec<Changed>,
    pub ended: Option<i64>,
}

/// What was read so far, in the order of the zxids.
pub struct Followed {
    at: Position,
    pub entries: Vec<Entry>,
    /// Entries were cut before they were read: where versions jump by minutes, the stream keeps nothing for long.
    pub is_cut: bool,
}

impl Default for Followed {
    fn default() -> Self {
        Followed {
            at: Position::START,
            entries: Vec::new(),
            is_cut: false,
        }
    }
}

/// Reads on, to the end.
pub async fn follow(database: &Database, tree: &str, so_far: &RefCell<Followed>) -> Result<()> {
    let rows = Rows::new(tree);
    loop {
        let at = so_far.borrow().at;
        let page = database.run(async |transaction| {
            let opened = setup::open_existing(&transaction, &rows, tree).await?;
            let opened = opened.ok_or(Error::stream_not_found)?;
            let limit = StreamLimit::default();
            let batch = opened.stream.read(&transaction, at, limit).await?;
            Ok((batch, opened.zxids))
        });
        let (batch, zxids) = match page.await {
            Err(Error::stream_too_old) => {
                so_far.borrow_mut().is_cut = true;
                return Ok(());
            }
            page => page?,
        };
        let followed = &mut *so_far.borrow_mut();
        for entry in batch.entries {
            let StreamContent::Appended(content) = &entry.content else {
                return Err(Error::file_corrupt);
            };
            let stamp = Versionstamp::new(entry.position.version, entry.position.order);
            let parsed = parse_entry(content, stamp, zxids).ok_or(Error::file_corrupt)?;
            for (piece, change) in parsed.1 {
                let zxid = zxids.of(stamp.version(), stamp.order(), piece);
                note(&mut followed.entries, zxid, change);
            }
        }
        followed.at = batch.next;
        if !batch.more {
            return Ok(());
        }
    }
}

fn note(entries: &mut Vec<Entry>, zxid: i64, change: Change) {
    if entries.last().is_none_or(|last| last.zxid != zxid) {
        entries.push(Entry {
            zxid,
            ..Entry::default()
        });
    }
    let Some(entry) = entries.last_mut() else {
        return;
    };
    let (path, did, node) = match change {
        Change::Created(path, node) => (path, Did::Created, Some(node)),
        Change::DataSet(path, node) => (path, Did::DataSet, Some(node)),
        Change::AclSet(path, node) => (path, Did::AclSet, Some(node)),
        Change::Deleted(path) => (path, Did::Deleted, None),
        Change::SessionClosed { session } => {
            entry.ended = Some(session);
            return;
        }
        _ => return,
    };
    if is_in(&path) {
        let now = node.map(|node| Now {
            version: node.version,
            aversion: node.aversion,
            lifetime: node.lifetime,
            acl: node.acl.to_vec(),
            data_bytes: node.data.len(),
        });
        entry.changed.push(Changed { path, did, now });
    }
}

fn is_in(path: &Text) -> bool {
    path.strip_prefix(BASE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
