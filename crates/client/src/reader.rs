//! Reads that merge the database's rows with the transaction's own writes: range scans in both directions and
//! key selectors.
//!
//! A scan walks its range in regions. A cleared region costs nothing; any other is asked of the database up to the
//! next clear, and what comes back, perhaps less than was asked, is merged with the own writes in it:
//!
//! ```text
//! range          [----------------------------------------)
//! own clears                 [=======)
//! own points        .   .       .        .      .
//! regions        [ database )[ clear )[ database, till it  )[ database ...
//!                                       stops short
//! ```

use crate::source::{Cluster, RangeRequest};
use crate::write_map::WriteMap;
use plinth_core::key::key_after;
use plinth_core::{Error, Key, KeySelector, Result, Value, Version};
use std::rc::Rc;

/// One snapshot of the database under one state of the transaction's writes.
pub(crate) struct Reader {
    pub cluster: Rc<dyn Cluster>,
    pub version: Version,
    /// `None` where own writes are not to be seen.
    pub writes: Option<Rc<WriteMap>>,
    /// There are no keys at or above it.
    pub keys_end: Key,
}

/// What a scan may still return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub rows: usize,
    pub bytes: usize,
}

/// What FoundationDB counts for a row beyond its key and value.
const ROW_OVERHEAD_BYTES: usize = 8;

impl Budget {
    pub fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
    pub fn spend(&mut self, key: &Key, value: &Value) {
        self.rows -= 1;
        if self.bytes != usize::MAX {
            self.bytes = self
                .bytes
                .saturating_sub(key.len() + value.len() + ROW_OVERHEAD_BYTES);
        }
    }
}

/// A selector without `or_equal`: the `offset`-th key at or after `key` (from 1), or before it (0, -1, …).
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    pub key: Key,
    pub offset: i32,
}

impl Anchor {
    /// Keys above `keys_end` stand for it, as no key lies between.
    pub fn new(selector: KeySelector, keys_end: &Key) -> Self {
        let key = if selector.or_equal {
            key_after(&selector.key)
        } else {
            selector.key
        };
        Anchor {
            key: key.min(keys_end.clone()),
            offset: selector.offset,
        }
    }

    /// What decides which key it is: a change in `[begin, end)` may make it another.
    pub fn conflict(&self, resolved: &Key, keys_end: &Key) -> (Key, Key) {
        if self.offset <= 0 {
            (resolved.clone(), self.key.clone())
        } else if resolved == keys_end {
            (self.key.clone(), keys_end.clone())
        } else {
            (self.key.clone(), key_after(resolved))
        }
    }
}

/// The next region of a scan: `[begin, end)`.
struct Region {
    begin: Key,
    end: Key,
    /// Own writes say everything about it.
    known: bool,
}

impl Reader {
    pub async fn resolve(&self, anchor: &Anchor) -> Result<Key> {
        if self.writes.is_none() {
            let selector = KeySelector::new(anchor.key.clone(), false, anchor.offset);
            let found = self
                .cluster
                .get_key(selector, self.keys_end.clone(), self.version)
                .await?;
            return Ok(found.min(self.keys_end.clone()));
        }
        let forward = anchor.offset > 0;
        let steps = if forward {
            i64::from(anchor.offset)
        } else {
            1 - i64::from(anchor.offset)
        };
        let budget = Budget {
            rows: steps as usize,
            bytes: usize::MAX,
        };
        let mut last = None;
        let keep = |key: Key, _: Value| last = Some(key);
        let (begin, end) = if forward {
            (anchor.key.clone(), self.keys_end.clone())
        } else {
            (Key::new(), anchor.key.clone())
        };
        let more = self.scan(begin, end, !forward, budget, keep).await?;
        Ok(match last {
            Some(key) if more => key,
            _ if forward => self.keys_end.clone(),
            _ => Key::new(),
        })
    }

    /// Gives `sink` the rows of `[begin, end)` in the order of the scan. True if the budget ended it: there may be
    /// more rows. False if the end of the range did: there are no more.
    pub async fn scan(
        &self,
        mut begin: Key,
        mut end: Key,
        reverse: bool,
        mut budget: Budget,
        mut sink: impl FnMut(Key, Value),
    ) -> Result<bool> {
        while begin < end {
            let region = self.next_region(&begin, &end, reverse);
            let (covered, rows) = if region.known {
                (region, Vec::new())
            } else {
                self.fetch(region, reverse, budget).await?
            };
            self.emit(&covered, rows, reverse, &mut budget, &mut sink)?;
            if budget.is_spent() {
                return Ok(true);
            }
            if reverse {
                end = covered.begin;
            } else {
                begin = covered.end;
            }
        }
        Ok(false)
    }

    fn next_region(&self, begin: &Key, end: &Key, reverse: bool) -> Region {
        let whole = Region {
            begin: begin.clone(),
            end: end.clone(),
            known: false,
        };
        let Some(writes) = &self.writes else {
            return whole;
        };
        if reverse {
            match writes.cleared().last_before(end) {
                Some((at, at_end)) if at_end >= end => Region {
                    begin: at.clone().max(begin.clone()),
                    known: true,
                    ..whole
                },
                Some((_, at_end)) if at_end > begin => Region {
                    begin: at_end.clone(),
                    ..whole
                },
                _ => whole,
            }
        } else {
            // A scan of a key that was set needs nobody.
            if writes.is_known_point(begin) {
                return Region {
                    end: key_after(begin).min(end.clone()),
                    known: true,
                    ..whole
                };
            }
            match writes.cleared().first_beyond(begin) {
                Some((at, at_end)) if at <= begin => Region {
                    end: at_end.clone().min(end.clone()),
                    known: true,
                    ..whole
                },
                Some((at, _)) if at < end => Region {
                    end: at.clone(),
                    ..whole
                },
                _ => whole,
            }
        }
    }

    /// The database's rows of the part of `region` that they cover; ascending.
    async fn fetch(
        &self,
        region: Region,
        reverse: bool,
        budget: Budget,
    ) -> Result<(Region, Vec<(Key, Value)>)> {
        let request = RangeRequest {
            begin: region.begin.clone(),
            end: region.end.clone(),
            version: self.version,
            limit_rows: budget.rows,
            limit_bytes: budget.bytes,
            reverse,
        };
        let mut chunk = self.cluster.get_range(request).await?;
        let Region {
            mut begin,
            mut end,
            known,
        } = region;
        if chunk.more {
            // A chunk that neither gives a row of the range nor ends it would have us ask for ever.
            let last = chunk
                .rows
                .last()
                .map(|(key, _)| key.clone())
                .ok_or(Error::internal_error)?;
            if last < begin || last >= end {
                return Err(Error::internal_error);
            }
            if reverse {
                begin = last;
            } else {
                end = key_after(&last);
            }
        }
        if reverse {
            chunk.rows.reverse();
        }
        Ok((Region { begin, end, known }, chunk.rows))
    }

    /// Merges `rows`, the database's in `region`, with the own writes in it and hands the result on, until the
    /// budget is spent.
    fn emit(
        &self,
        region: &Region,
        rows: Vec<(Key, Value)>,
        reverse: bool,
        budget: &mut Budget,
        sink: &mut impl FnMut(Key, Value),
    ) -> Result<()> {
        let (rows, unreadable) = match &self.writes {
            Some(writes) => {
                let merged = if writes.has_points_in(&region.begin, &region.end) {
                    writes.merge(&region.begin, &region.end, rows)
                } else {
                    rows
                };
                (merged, unreadable_from(writes, region, reverse))
            }
            None => (rows, None),
        };
        let mut pass = |(key, value): (Key, Value)| {
            let is_readable = unreadable
                .as_ref()
                .is_none_or(|from| if reverse { key >= *from } else { key < *from });
            if budget.is_spent() || !is_readable {
                return false;
            }
            budget.spend(&key, &value);
            sink(key, value);
            true
        };
        if reverse {
            rows.into_iter().rev().all(&mut pass);
        } else {
            rows.into_iter().all(&mut pass);
        }
        if unreadable.is_some() && !budget.is_spent() {
            return Err(Error::accessed_unreadable);
        }
        Ok(())
    }
}

/// Where a scan of `region` comes upon keys that cannot be read, if it does.
fn unreadable_from(writes: &WriteMap, region: &Region, reverse: bool) -> Option<Key> {
    if reverse {
        let (_, end) = writes.unreadable().last_before(&region.end)?;
        (*end > region.begin).then(|| end.clone().min(region.end.clone()))
    } else {
        let (begin, _) = writes.unreadable().first_beyond(&region.begin)?;
        (*begin < region.end).then(|| begin.clone().max(region.begin.clone()))
    }
}
