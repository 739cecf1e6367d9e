//! What a gateway reads about quotas: those that there are, and nodes that are to be counted.

use crate::QUOTA_PIECE_ROWS;
use crate::paths;
use crate::replica::Replica;
use crate::store::{Most, Page};
use crate::tree::node::Node;
use crate::tree::quota::{Counted, Piece, Quota, Quotas, Used, Watched, limited};
use crate::tree::rows::Rows;
use crate::wire::Text;
use crate::zxid::Zxids;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Result};
use plinth_runtime::probe;
use std::rc::Rc;

/// Reads all quotas into the replica, which has not moved yet.
pub async fn load(replica: &Replica) -> Result<()> {
    let page = replica.page(replica.rows.all_quotas(), Most::ALL).await?;
    let quotas = parse(&replica.rows, &page.rows)?;
    *replica.quotas.borrow_mut() = Rc::new(quotas);
    Ok(())
}

/// The quotas in all of their rows.
///
/// # Errors
/// The rows are damaged.
pub fn parse(rows: &Rows, found: &[(Bytes, Bytes)]) -> Result<Quotas> {
    let mut quotas = Quotas::new();
    // A quota's own row comes before those of what is used of it.
    for (key, row) in found {
        let (path, of) = rows.quota_path(key).ok_or(Error::file_corrupt)?;
        let Some(of) = of else {
            let watched = Watched {
                quota: Quota::from_row(row).ok_or(Error::file_corrupt)?,
                used: Used::default(),
            };
            quotas.insert(path.into(), watched);
            continue;
        };
        let watched = quotas.get_mut(path).ok_or(Error::file_corrupt)?;
        let number = row.first_chunk::<8>().ok_or(Error::file_corrupt)?;
        let number = i64::from_le_bytes(*number);
        match of {
            b'n' => watched.used.nodes = number,
            b'b' => watched.used.bytes = number,
            _ => return Err(Error::file_corrupt),
        }
    }
    Ok(quotas)
}

/// The quotas that have nodes not yet counted. Among them are those of which only the node of limits is known, if
/// `is_thorough`: trees that were imported have such.
pub async fn uncounted(replica: &Replica, is_thorough: bool) -> Result<Vec<Text>> {
    let quotas = replica.quotas.borrow().clone();
    let uncounted = quotas
        .iter()
        .filter(|(_, watched)| watched.quota.counted != Counted::All);
    let mut all: Vec<Text> = uncounted.map(|(path, _)| path.clone()).collect();
    let first = paths::depth("/zookeeper/quota") + 1;
    for depth in first.. {
        if !is_thorough {
            break;
        }
        let range = replica.rows.below("/zookeeper/quota", depth);
        let found = replica.page(range, Most::ALL).await?.rows;
        let paths = found
            .iter()
            .filter_map(|(key, _)| replica.rows.node_path(key));
        let limited = paths.filter_map(limited);
        all.extend(
            limited
                .filter(|path| !quotas.contains_key(*path))
                .map(Text::from),
        );
        if found.is_empty() {
            break;
        }
    }
    Ok(all)
}

/// The nodes of a quota after those that are counted.
pub async fn next_piece(replica: &Replica, path: &str) -> Result<Piece> {
    let mut counting = Counting::begin(&replica.quotas.borrow(), path, QUOTA_PIECE_ROWS.get());
    while let Some((range, most)) = counting.next(&replica.rows) {
        let page = replica.page(range.clone(), most).await?;
        counting.take(&replica.rows, replica.zxids, range, page)?;
    }
    Ok(counting.piece)
}

/// Nodes that are being counted, page by page.
pub struct Counting<'a> {
    path: &'a str,
    pub piece: Piece,
    rows_left: usize,
}

impl<'a> Counting<'a> {
    /// The next nodes of the quota of `path`: as many as have `rows_max` rows.
    pub fn begin(quotas: &Quotas, path: &'a str, rows_max: usize) -> Counting<'a> {
        let known = quotas.get(path);
        let from = known.map_or(Counted::Nothing, |known| known.quota.counted.clone());
        Counting {
            path,
            piece: Piece {
                to: from.clone(),
                from,
                used: Used::default(),
                ranges: Vec::new(),
            },
            rows_left: rows_max,
        }
    }

    /// What is to be read next; `None` at the end.
    pub fn next(&self, rows: &Rows) -> Option<(KeyRange, Most)> {
        if self.rows_left == 0 {
            probe!("keeper_quota_is_counted_in_pieces");
            return None;
        }
        let range = match &self.piece.to {
            Counted::Nothing => rows.around_node(self.path),
            Counted::Depth(last) => rows.below(self.path, usize::from(*last) + 1),
            Counted::Through(last) => {
                let begin = rows.around_node(last).end;
                KeyRange::new(begin, rows.below(self.path, paths::depth(last)).end)
            }
            Counted::All => return None,
        };
        let most = Most {
            rows: self.rows_left,
            ..Most::ALL
        };
        Some((range, most))
    }

    /// Counts what was read.
    ///
    /// # Errors
    /// The rows are damaged.
    pub fn take(&mut self, rows: &Rows, zxids: Zxids, range: KeyRange, page: Page) -> Result<()> {
        let (depth, is_begun) = match &self.piece.to {
            Counted::Nothing => (paths::depth(self.path), true),
            Counted::Depth(last) => (usize::from(*last) + 1, false),
            Counted::Through(last) => (paths::depth(last), true),
            Counted::All => return Ok(()),
        };
        let mut last = None;
        for (key, row) in page.rows.iter().filter(|(key, _)| Rows::is_node(key)) {
            let node = Node::from_row(row, zxids).ok_or(Error::file_corrupt)?;
            self.piece.used = self.piece.used.plus(Used::of(Some(&node)));
            last = rows.node_path(key);
        }
        let depth = u16::try_from(depth).map_err(|_| Error::file_corrupt)?;
        let (to, looked_at) = match last {
            Some(last) if page.more => {
                let end = rows.around_node(last).end;
                let through = Counted::Through(last.into());
                (through, KeyRange::new(range.begin, end))
            }
            None if !is_begun => (Counted::All, range),
            _ => (Counted::Depth(depth), range),
        };
        self.piece.to = to;
        self.piece.ranges.push(looked_at);
        self.rows_left = self.rows_left.saturating_sub(page.rows.len().max(1));
        Ok(())
    }
}
