//! Ranges of a tree, forwards and backwards.

use super::node::{LeafPage, Seek};
use super::tree::{BROKEN_ENTRY, BTree};
use crate::error::{Result, damaged};
use crate::value::{self, Entry};
use bytes::Bytes;
use plinth_farm_memory::Objects;
use plinth_runtime::nobody_has_lied;
use std::ops::Range;

/// Rows of a range in the order of the scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    pub rows: Vec<(Bytes, Bytes)>,
    /// The limit has ended the scan: there may be more rows behind the last.
    pub more: bool,
}

/// The entries of the leaf from `begin`, below `end`.
fn places(leaf: &LeafPage, begin: &[u8], end: Option<&[u8]>) -> Option<Range<usize>> {
    let at = |key: &[u8]| Some(leaf.search(key)?.unwrap_or_else(|i| i));
    let high = match end {
        Some(end) => at(end)?,
        None => leaf.len(),
    };
    Some(at(begin)?.min(high)..high)
}

/// A row is in the range that is left. What is in memory may be anything.
fn check_in(key: &Bytes, low: &Bytes, high: Option<&Bytes>) {
    let is_in = low <= key && high.is_none_or(|high| key < high);
    assert!(
        is_in || !nobody_has_lied(),
        "key {key:?} is in the range from {low:?} to {high:?}"
    );
}

impl BTree {
    /// Up to `limit` rows from key `begin`, below `end`, or without an end. If `reverse`, from the end backwards: a
    /// limit takes the last rows.
    pub async fn range<O: Objects>(
        &self,
        tx: &O,
        begin: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        reverse: bool,
    ) -> Result<Rows> {
        let mut found = Rows::default();
        let (mut low, mut high) = (
            Bytes::copy_from_slice(begin),
            end.map(Bytes::copy_from_slice),
        );
        while high.as_ref().is_none_or(|high| low < *high) {
            if found.rows.len() >= limit {
                found.more = true;
                break;
            }
            let seek = match &high {
                _ if !reverse => Seek::At(&low),
                Some(high) => Seek::Before(high),
                None => Seek::Last,
            };
            let (at, leaf) = self.leaf(tx, seek).await?;
            let (Some(places), Some(fences)) =
                (places(&leaf, &low, high.as_deref()), leaf.fences())
            else {
                return Err(damaged(at, BROKEN_ENTRY));
            };
            let left = limit - found.rows.len();
            found.more = places.len() > left;
            let chosen = if reverse {
                places.end - places.len().min(left)..places.end
            } else {
                places.start..places.start + places.len().min(left)
            };
            let before = found.rows.len();
            for i in chosen {
                let Entry { key, stored } = leaf.entry(i).ok_or(damaged(at, BROKEN_ENTRY))?;
                check_in(&key, &low, high.as_ref());
                let value = value::load(tx, self.mark, stored).await?;
                found.rows.push((key, value));
            }
            if reverse {
                found.rows[before..].reverse();
            }
            if found.more {
                break;
            }
            // The scan goes on beyond the leaf's own fence.
            match (reverse, fences.upper) {
                (false, Some(upper)) => {
                    assert!(low < upper, "a scan from {low:?} goes on at {upper:?}");
                    low = upper;
                }
                (true, _) if !fences.lower.is_empty() => {
                    let below = fences.lower;
                    let is_less = high.as_ref().is_none_or(|high| below < *high);
                    assert!(is_less, "a scan back from {high:?} goes on at {below:?}");
                    high = Some(below);
                }
                _ => break,
            }
        }
        Ok(found)
    }
}
