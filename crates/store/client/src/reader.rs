//! Reads that merge the database's rows with the transaction's own writes: range scans in both directions and
//! key selectors.
//!
//! A scan walks its range in regions. A cleared region needs no request, and neither does one that was read before.
//! Any other region is requested from the database up to the next of those. The answer, which may be shorter than the
//! region, is merged with the own writes in it, no further than the scan goes:
//!
//! ```text
//! range          [-----------------------------------------------)
//! own clears                 [=======)
//! own points        .   .       .        .      .            .
//! read before                                          [=========)
//! regions        [ database )[ clear )[ database, till )[ cache  )
//!                                       it stops short
//! ```

use crate::attempt::Attempt;
use crate::read_cache::{KnownRows, single_before};
use crate::source::{Cluster, RangeChunk, RangeRequest, Row};
use crate::write_map::WriteMap;
use plinth_core::key::key_after;
use plinth_core::{Error, Key, KeyRange, KeySelector, Result, Value, Version};
use std::rc::Rc;

/// One snapshot of the database under one state of the transaction's writes.
pub(crate) struct Reader {
    pub cluster: Rc<dyn Cluster>,
    pub version: Version,
    /// `None` if own writes are not visible.
    pub writes: Option<Rc<WriteMap>>,
    /// Reads as if no versionstamped operation had been issued.
    pub bypass_unreadable: bool,
    /// Where results are remembered; `None` if every read asks a server.
    pub attempt: Option<Rc<Attempt>>,
    /// No key is at or above it.
    pub keys_end: Key,
}

/// Limits on what a scan may still return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub rows: usize,
    pub bytes: usize,
}

/// Size of a row beyond its key and value, as FoundationDB counts it.
const ROW_OVERHEAD_BYTES: usize = 8;

impl Budget {
    pub fn rows(rows: usize) -> Self {
        let bytes = usize::MAX;
        Budget { rows, bytes }
    }
    pub fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }
    pub fn spend(&mut self, key: &Key, value: &Value) {
        assert!(self.rows > 0, "a scan returns no more rows than its limit");
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
    /// Keys above `keys_end` are replaced by it, since no key lies between.
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

    /// The range `[begin, end)` that determines the result: a change in it may change the result.
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

/// Position of a scan, and what it may still return.
struct Scan {
    /// The rest of the range.
    begin: Key,
    end: Key,
    reverse: bool,
    budget: Budget,
    /// Rows requested beyond the budget, because own writes hide some of the rows that arrive.
    extra_rows: usize,
}

/// How far a scan came without a request.
enum Walked {
    /// To its end. With `more` the budget ended it, and there may be more rows. Otherwise there are none.
    Ended { more: bool },
    /// To an unknown region.
    Unknown(KeyRange),
}

const EXTRA_ROWS_MIN: usize = 8;
const EXTRA_ROWS_MAX: usize = 1000;
/// Bytes requested beyond the budget for each extra row.
const EXTRA_ROW_BYTES: usize = 128;

impl Scan {
    fn pass(&mut self, region: KeyRange) {
        assert!(
            region.begin < region.end,
            "a scan goes on with every region"
        );
        assert!(
            self.begin <= region.begin && region.end <= self.end,
            "a region lies in the rest of the range",
        );
        if self.reverse {
            self.end = region.begin;
        } else {
            self.begin = region.end;
        }
    }

    fn grow_extra_rows(&mut self) {
        self.extra_rows = (2 * self.extra_rows).clamp(EXTRA_ROWS_MIN, EXTRA_ROWS_MAX);
    }
}

impl Reader {
    pub async fn resolve(&self, anchor: &Anchor) -> Result<Key> {
        let forward = anchor.offset > 0;
        let steps = if forward {
            i64::from(anchor.offset)
        } else {
            1 - i64::from(anchor.offset)
        };
        // A server skips rows that are not needed. One step skips none, and its row may be needed.
        if self.writes.is_none() && (self.attempt.is_none() || steps > 1) {
            return self.resolve_far(anchor, steps).await;
        }
        let mut last = None;
        let keep = |key: Key, _: Value| last = Some(key);
        let more = self.run(&mut self.steps(anchor, steps), keep).await?;
        Ok(self.end_of_steps(last, more, forward))
    }

    /// Resolves the anchor from known results, otherwise by a server.
    async fn resolve_far(&self, anchor: &Anchor, steps: i64) -> Result<Key> {
        if let Some(attempt) = &self.attempt {
            let known = attempt
                .known()
                .selected(&anchor.key, anchor.offset, &self.keys_end);
            if let Some(key) = known {
                return Ok(key);
            }
            let mut last = None;
            let mut keep = |key: Key, _: Value| last = Some(key);
            let walked = self.walk(&mut self.steps(anchor, steps), &mut keep)?;
            if let Walked::Ended { more } = walked {
                return Ok(self.end_of_steps(last, more, anchor.offset > 0));
            }
        }
        let selector = KeySelector::new(anchor.key.clone(), false, anchor.offset);
        let found = self
            .cluster
            .get_key(selector, self.keys_end.clone(), self.version)
            .await?
            .min(self.keys_end.clone());
        if let Some(attempt) = &self.attempt {
            attempt.remember(|known| {
                let (key, end) = (anchor.key.clone(), self.keys_end.clone());
                known.add_selected(key, anchor.offset, end, found.clone());
            });
        }
        Ok(found)
    }

    /// The scan whose last row is the key that `anchor` denotes.
    fn steps(&self, anchor: &Anchor, steps: i64) -> Scan {
        let reverse = anchor.offset <= 0;
        let (begin, end) = if reverse {
            (Key::new(), anchor.key.clone())
        } else {
            (anchor.key.clone(), self.keys_end.clone())
        };
        let budget = Budget::rows(steps as usize);
        Scan {
            begin,
            end,
            reverse,
            budget,
            extra_rows: 0,
        }
    }

    fn end_of_steps(&self, last: Option<Key>, more: bool, forward: bool) -> Key {
        match last {
            Some(key) if more => key,
            _ if forward => self.keys_end.clone(),
            _ => Key::new(),
        }
    }

    /// Passes the rows of `range` to `sink` in the order of the scan. True if the budget ended the scan: there
    /// may be more rows. False if the end of the range did: there are no more.
    pub async fn scan(
        &self,
        range: KeyRange,
        reverse: bool,
        budget: Budget,
        sink: impl FnMut(Key, Value),
    ) -> Result<bool> {
        let mut scan = Scan {
            begin: range.begin,
            end: range.end,
            reverse,
            budget,
            extra_rows: 0,
        };
        self.run(&mut scan, sink).await
    }

    async fn run(&self, scan: &mut Scan, mut sink: impl FnMut(Key, Value)) -> Result<bool> {
        loop {
            let region = match self.walk(scan, &mut sink)? {
                Walked::Ended { more } => return Ok(more),
                Walked::Unknown(region) => region,
            };
            let (region, chunk) = self.fetch(region, scan).await?;
            let (came, wanted) = (chunk.rows.len(), scan.budget.rows);
            self.emit(&region, chunk.rows.into_iter(), scan, &mut sink)?;
            if chunk.more && wanted - scan.budget.rows < came {
                scan.grow_extra_rows();
            }
            scan.pass(region);
        }
    }

    /// Goes as far as own writes and earlier reads determine the rows.
    fn walk(&self, scan: &mut Scan, sink: &mut impl FnMut(Key, Value)) -> Result<Walked> {
        loop {
            if scan.budget.is_spent() {
                return Ok(Walked::Ended { more: true });
            }
            if scan.begin >= scan.end {
                return Ok(Walked::Ended { more: false });
            }
            let (region, known) = if scan.reverse {
                self.region_before(&scan.begin, &scan.end)
            } else {
                self.region_from(&scan.begin, &scan.end)
            };
            let Some(known) = known else {
                return Ok(Walked::Unknown(region));
            };
            if scan.reverse {
                self.emit(&region, known.iter().rev().cloned(), scan, sink)?;
            } else {
                self.emit(&region, known.iter().cloned(), scan, sink)?;
            }
            scan.pass(region);
        }
    }

    /// The next region of a scan that has come to `begin`. With the database's rows, without own writes, if they are
    /// known.
    fn region_from(&self, begin: &Key, end: &Key) -> (KeyRange, Option<KnownRows>) {
        let until = |end: Key| KeyRange::new(begin.clone(), end);
        let mut end = end.clone();
        if let Some(writes) = &self.writes {
            // A scan of a key that was set needs no request.
            if writes.is_known_point(begin) {
                return (until(key_after(begin)), Some(KnownRows::none()));
            }
            match writes.cleared().first_beyond(begin) {
                Some((at, at_end)) if at <= begin => {
                    return (until(at_end.clone().min(end)), Some(KnownRows::none()));
                }
                Some((at, _)) if *at < end => end = at.clone(),
                _ => {}
            }
        }
        let Some(attempt) = &self.attempt else {
            return (until(end), None);
        };
        let mut known = attempt.known();
        match known.known_from(begin, &end) {
            Some((known_end, rows)) => (until(known_end), Some(rows)),
            None => (until(known.unknown_until(begin, &end)), None),
        }
    }

    /// The next region of a scan in reverse that has come to `end`.
    fn region_before(&self, begin: &Key, end: &Key) -> (KeyRange, Option<KnownRows>) {
        let from = |begin: Key| KeyRange::new(begin, end.clone());
        let mut begin = begin.clone();
        if let Some(writes) = &self.writes {
            if let Some(key) = single_before(end)
                && writes.is_known_point(&key)
            {
                return (from(key), Some(KnownRows::none()));
            }
            match writes.cleared().last_before(end) {
                Some((at, at_end)) if at_end >= end => {
                    return (from(at.clone().max(begin)), Some(KnownRows::none()));
                }
                Some((_, at_end)) if *at_end > begin => begin = at_end.clone(),
                _ => {}
            }
        }
        let Some(attempt) = &self.attempt else {
            return (from(begin), None);
        };
        let mut known = attempt.known();
        match known.known_before(&begin, end) {
            Some((known_begin, rows)) => (from(known_begin), Some(rows)),
            None => (from(known.unknown_after(&begin, end)), None),
        }
    }

    /// The database's rows in `region` in the order of the scan, and the part of the region that they cover.
    async fn fetch(&self, region: KeyRange, scan: &Scan) -> Result<(KeyRange, RangeChunk)> {
        let reverse = scan.reverse;
        let extra_bytes = EXTRA_ROW_BYTES * scan.extra_rows;
        let request = RangeRequest {
            begin: region.begin.clone(),
            end: region.end.clone(),
            version: self.version,
            limit_rows: scan.budget.rows.saturating_add(scan.extra_rows),
            limit_bytes: scan.budget.bytes.saturating_add(extra_bytes),
            reverse,
        };
        let mut chunk = self.cluster.get_range(request).await?;
        let KeyRange { mut begin, mut end } = region;
        if chunk.more {
            // A chunk that neither has a row of the range nor ends the range would lead to endless requests.
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
        if let Some(attempt) = &self.attempt {
            let packed = chunk.packed.take();
            attempt.remember(|known| {
                known.add_range(begin.clone(), end.clone(), &chunk.rows, packed, reverse);
            });
        }
        Ok((KeyRange { begin, end }, chunk))
    }

    /// Merges `rows`, the database's in `region` in the order of the scan, with the own writes in it, and passes the
    /// result on until the budget is spent.
    fn emit(
        &self,
        region: &KeyRange,
        rows: impl Iterator<Item = Row>,
        scan: &mut Scan,
        sink: &mut impl FnMut(Key, Value),
    ) -> Result<()> {
        let budget = &mut scan.budget;
        let mut give = |key: Key, value: Value| {
            budget.spend(&key, &value);
            sink(key, value);
            !budget.is_spent()
        };
        let Some(writes) = &self.writes else {
            for (key, value) in rows {
                if !give(key, value) {
                    break;
                }
            }
            return Ok(());
        };
        let (mut begin, mut end) = (&region.begin, &region.end);
        let unreadable = self.unreadable_from(writes, region, scan.reverse);
        if let Some(from) = &unreadable {
            if scan.reverse {
                begin = from;
            } else {
                end = from;
            }
        }
        let is_readable = |(key, _): &Row| begin <= key && key < end;
        let rows = rows.take_while(is_readable);
        writes.merge((begin, end), scan.reverse, rows, give);
        if unreadable.is_some() && !budget.is_spent() {
            return Err(Error::accessed_unreadable);
        }
        Ok(())
    }

    /// The first unreadable key that a scan of `region` meets, if there is one.
    fn unreadable_from(&self, writes: &WriteMap, region: &KeyRange, reverse: bool) -> Option<Key> {
        if self.bypass_unreadable {
            return None;
        }
        if reverse {
            let (_, end) = writes.unreadable().last_before(&region.end)?;
            (*end > region.begin).then(|| end.clone().min(region.end.clone()))
        } else {
            let (begin, _) = writes.unreadable().first_beyond(&region.begin)?;
            (*begin < region.end).then(|| begin.clone().max(region.begin.clone()))
        }
    }
}
