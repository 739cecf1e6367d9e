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
use plinth_core::key::{KeyRange, printable};
use plinth_core::{Error, Result};
use plinth_runtime::{never, probe};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Reads all quotas into the replica, which has not moved yet. One that is damaged limits nothing. It is made anew
/// when the first gateway begins, from its node of limits.
pub async fn load(replica: &Replica) -> Result<()> {
    let page = replica.page(replica.rows.all_quotas(), Most::ALL).await?;
    let quotas = parse(&replica.rows, &page.rows, |path| {
        let key = replica.rows.quota(path);
        never!("KeeperQuotaDamaged", "path" => path, "key" => printable(&key));
        Ok(())
    })?;
    *replica.quotas.borrow_mut() = Rc::new(quotas);
    Ok(())
}

/// The quotas in all of their rows, without those that are damaged: `damaged` is told of each.
///
/// # Errors
/// Those of `damaged`.
pub fn parse(
    rows: &Rows,
    found: &[(Bytes, Bytes)],
    mut damaged: impl FnMut(&str) -> Result<()>,
) -> Result<Quotas> {
    let (mut quotas, mut bad) = (Quotas::new(), BTreeSet::new());
    // A quota's own row comes before those of what is used of it.
    for (key, row) in found {
        let Some((path, of)) = rows.quota_path(key) else {
            damaged("")?;
            continue;
        };
        if take_row(&mut quotas, path, of, row).is_none() && bad.insert(path) {
            damaged(path)?;
        }
    }
    quotas.retain(|path, _| !bad.contains(path.as_str()));
    Ok(quotas)
}

fn is_at_or_below(node: &str, path: &str) -> bool {
    let below = node.strip_prefix(path);
    path == "/" || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Takes a row of the quota of `path`; `None` if it is damaged.
fn take_row(quotas: &mut Quotas, path: &str, of: Option<u8>, row: &[u8]) -> Option<()> {
    let Some(of) = of else {
        let quota = Quota::from_row(row)?;
        if let Counted::Through(through) = &quota.counted
            && !is_at_or_below(through, path)
        {
            return None; // no piece is counted next: its range would end before it begins
        }
        let watched = Watched {
            quota,
            used: Used::default(),
        };
        quotas.insert(path.into(), watched);
        return Some(());
    };
    let number = i64::from_le_bytes(row.try_into().ok()?);
    let watched = quotas.get_mut(path)?;
    match of {
        b'n' => watched.used.nodes = number,
        b'b' => watched.used.bytes = number,
        _ => return None,
    }
    Some(())
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
        // Nobody knows how long its data is.
        let damaged = Ok(Used { nodes: 1, bytes: 0 });
        counting.take(&replica.rows, replica.zxids, (range, page), damaged)?;
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

    /// Counts what was read: a node whose row is damaged as `damaged`.
    ///
    /// # Errors
    /// That of `damaged`, or a depth that no node has.
    pub fn take(
        &mut self,
        rows: &Rows,
        zxids: Zxids,
        (range, page): (KeyRange, Page),
        damaged: Result<Used>,
    ) -> Result<()> {
        let (depth, is_begun) = match &self.piece.to {
            Counted::Nothing => (paths::depth(self.path), true),
            Counted::Depth(last) => (usize::from(*last) + 1, false),
            Counted::Through(last) => (paths::depth(last), true),
            Counted::All => return Ok(()),
        };
        let mut last = None;
        for (key, row) in page.rows.iter().filter(|(key, _)| Rows::is_node(key)) {
            let used = match Node::from_row(row, zxids) {
                Some(node) => Used::of(Some(&node)),
                None => damaged?,
            };
            self.piece.used = self.piece.used.plus(used);
            let path = rows.node_path(key);
            last = path.filter(|path| paths::is_valid(path)).or(last);
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
