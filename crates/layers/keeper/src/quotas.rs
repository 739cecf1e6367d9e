//! What a gateway reads about quotas: those that there are, and nodes that are to be counted.

use crate::QUOTA_PIECE_ROWS;
use crate::paths;
use crate::replica::{Replica, all_rows};
use crate::tree::node::Node;
use crate::tree::quota::{Counted, Piece, Quota, Quotas, Used, Watched, limited};
use crate::tree::rows::Rows;
use crate::wire::Text;
use plinth_client::{RangeOptions, StreamingMode};
use plinth_core::key::KeyRange;
use plinth_core::{Error, KeySelector, Result};
use plinth_runtime::probe;
use std::rc::Rc;

/// Reads all quotas into the replica, which has not moved yet.
pub async fn load(replica: &Replica) -> Result<()> {
    let (_, transaction) = replica.reader();
    let (found, _) = all_rows(&transaction, replica.rows.all_quotas(), usize::MAX).await?;
    let mut quotas = Quotas::new();
    // A quota's own row comes before those of what is used of it.
    for (key, row) in &found {
        let (path, of) = replica.rows.quota_path(key).ok_or(Error::file_corrupt)?;
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
    *replica.quotas.borrow_mut() = Rc::new(quotas);
    Ok(())
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
        let (_, transaction) = replica.reader();
        let range = replica.rows.below("/zookeeper/quota", depth);
        let (found, _) = all_rows(&transaction, range, usize::MAX).await?;
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
    let known = replica
        .quotas
        .borrow()
        .get(path)
        .map(|watched| watched.quota.counted.clone());
    let from = known.unwrap_or(Counted::Nothing);
    let mut piece = Piece {
        to: from.clone(),
        from,
        used: Used::default(),
        ranges: Vec::new(),
    };
    let mut left = QUOTA_PIECE_ROWS.get() as i32;
    while left > 0 && piece.to != Counted::All {
        left -= count_on(replica, path, &mut piece, left).await?;
    }
    if piece.to != Counted::All {
        probe!("keeper_quota_is_counted_in_pieces");
    }
    Ok(piece)
}

/// Adds nodes of one depth to the piece, and returns how many rows were read.
async fn count_on(replica: &Replica, path: &str, piece: &mut Piece, limit: i32) -> Result<i32> {
    let rows = &replica.rows;
    let (range, depth, is_begun) = match &piece.to {
        Counted::Nothing => (rows.around_node(path), paths::depth(path), true),
        Counted::Depth(last) => {
            let depth = usize::from(*last) + 1;
            (rows.below(path, depth), depth, false)
        }
        Counted::Through(last) => {
            let depth = paths::depth(last);
            let begin = rows.around_node(last).end;
            let rest = KeyRange::new(begin, rows.below(path, depth).end);
            (rest, depth, true)
        }
        Counted::All => return Ok(0),
    };
    let (_, transaction) = replica.reader();
    let options = RangeOptions {
        limit,
        mode: StreamingMode::WantAll,
        ..RangeOptions::default()
    };
    let begin = KeySelector::first_greater_or_equal(range.begin.clone());
    let end = KeySelector::first_greater_or_equal(range.end.clone());
    let chunk = transaction.get_range(begin, end, options, true).await?;
    let mut last = None;
    for (key, row) in chunk.rows.iter().filter(|(key, _)| Rows::is_node(key)) {
        let node = Node::from_row(row, replica.zxids).ok_or(Error::file_corrupt)?;
        piece.used = piece.used.plus(Used::of(Some(&node)));
        last = rows.node_path(key);
    }
    let depth = u16::try_from(depth).map_err(|_| Error::file_corrupt)?;
    let (to, looked_at) = match last {
        Some(last) if chunk.more => {
            let end = rows.around_node(last).end;
            (
                Counted::Through(last.into()),
                KeyRange::new(range.begin, end),
            )
        }
        None if !is_begun => (Counted::All, range),
        _ => (Counted::Depth(depth), range),
    };
    piece.to = to;
    piece.ranges.push(looked_at);
    Ok(chunk.rows.len().max(1) as i32)
}
