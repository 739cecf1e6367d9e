//! What a replica has made of the log: ordered rows, a deterministic function of the entries up to a position (§3.1).
//!
//! ```text
//!   RwTx       the one writer: levels of changes, the lowest becomes a revision of each row
//!   revisions  of rows that changed since the last flush, each with the position that made it
//!   engine     the rows as they were at the flushed position, on disk
//! ```
//! A committed transaction is visible at once and durable with the next [`flush`](LocalStore::flush): what a crash
//! takes is played again from the log. [`RoTx`] sees the rows at one position for as long as it lives, up to
//! [`SNAPSHOT_LIMIT`].
//!
//! A checksum of all rows is kept along the log. Replicas with different checksums at one position have diverged.

pub mod copy;
mod newer;

use self::newer::{Change, Newer, Source, is_before};
use crate::log::LogPos;
use crate::words::{parse, words};
use bytes::{BufMut, Bytes};
use plinth_core::hash::hash_bytes;
use plinth_core::{Error, Result};
use plinth_engine::{KeyValueStore, WriteBatch};
use plinth_runtime::{Duration, Instant, nobody_has_lied, now};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// A snapshot that is older holds back no flush, and ends with [`Error::transaction_too_old`].
pub const SNAPSHOT_LIMIT: Duration = Duration::from_secs(5);
/// The row with the flushed position and its checksum. All others begin with [`ROWS`].
const META: &[u8] = b"m";
const ROWS: u8 = b'r';
/// The row that says whose store it is, if somebody has claimed it.
const OWNER: &[u8] = b"o";

struct Revision {
    pos: LogPos,
    value: Option<Bytes>,
}

/// Changes since the last flush.
#[derive(Default)]
struct Unflushed {
    rows: BTreeMap<Bytes, Vec<Revision>>,
    bytes: usize,
    /// Of each position since the last flush.
    checksums: VecDeque<(LogPos, u64)>,
}

/// See the module.
pub struct LocalStore {
    engine: Rc<dyn KeyValueStore>,
    unflushed: RefCell<Unflushed>,
    applied: Cell<LogPos>,
    flushed: Cell<LogPos>,
    /// The disk may already have the rows of this position.
    flushing: Cell<LogPos>,
    checksum: Cell<u64>,
    snapshots: RefCell<VecDeque<Snapshot>>,
    next_snapshot: Cell<u64>,
    is_writing: Cell<bool>,
    /// Somebody copies what is on disk (copy.rs): nothing is flushed.
    held: Cell<usize>,
    /// The last flush found no room on the disk.
    waits_for_disk: Cell<bool>,
}

struct Snapshot {
    number: u64,
    pos: LogPos,
    since: Instant,
}

fn engine_key(key: &[u8]) -> Vec<u8> {
    [&[ROWS], key].concat()
}

/// A row's part of the checksum. The sum over all rows does not depend on their order.
fn hash_of(key: &[u8], value: &[u8]) -> u64 {
    let mut row = Vec::with_capacity(4 + key.len() + value.len());
    row.put_u32_le(key.len() as u32);
    row.put_slice(key);
    row.put_slice(value);
    hash_bytes(&row)
}

/// The lowest level, with room for others.
fn ordered<'a>(
    changes: impl DoubleEndedIterator<Item = Change<'a>> + 'a,
    reverse: bool,
) -> Source<'a> {
    match reverse {
        false => Box::new(changes),
        true => Box::new(changes.rev()),
    }
}

impl LocalStore {
    /// The store in `engine`, as it was flushed last; empty if the engine is.
    ///
    /// # Errors
    /// The engine has rows of something else.
    pub fn open(engine: Rc<dyn KeyValueStore>) -> Result<Rc<LocalStore>> {
        let [applied, checksum] = match engine.get(META)? {
            Some(row) => parse(&row).ok_or(Error::file_corrupt)?,
            None => {
                let mut is_empty = true;
                engine.range(b"", b"\xff", false, &mut |key, _| {
                    is_empty = key == OWNER;
                    is_empty
                })?;
                if !is_empty {
                    return Err(Error::file_corrupt);
                }
                [0, 0]
            }
        };
        Ok(Rc::new(LocalStore {
            engine,
            unflushed: RefCell::default(),
            applied: Cell::new(applied),
            flushed: Cell::new(applied),
            flushing: Cell::new(applied),
            checksum: Cell::new(checksum),
            snapshots: RefCell::default(),
            next_snapshot: Cell::new(0),
            is_writing: Cell::new(false),
            held: Cell::new(0),
            waits_for_disk: Cell::new(false),
        }))
    }

    /// Makes the store this owner's, if nobody has it yet. False if it is somebody else's.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub async fn claim(&self, owner: &str) -> Result<bool> {
        if let Some(of) = self.engine.get(OWNER)? {
            return Ok(of == owner);
        }
        if self.flushed() > 0 {
            return Ok(false);
        }
        let mut batch = WriteBatch::new();
        batch.set(OWNER, owner.as_bytes());
        self.engine.commit(batch).await?;
        Ok(true)
    }

    /// All entries up to this one have been applied.
    pub fn applied(&self) -> LogPos {
        self.applied.get()
    }

    /// All entries up to this one are on disk here.
    pub fn flushed(&self) -> LogPos {
        self.flushed.get()
    }

    /// Of all rows at [`applied`](Self::applied).
    pub fn checksum(&self) -> u64 {
        self.checksum.get()
    }

    /// Bytes that wait for a flush.
    pub fn unflushed_bytes(&self) -> usize {
        self.unflushed.borrow().bytes
    }

    /// What is on disk is newer than a position below the flushed one.
    fn check_readable(&self, pos: LogPos) {
        assert!(
            self.flushed() <= pos && pos <= self.applied() + 1,
            "rows are read at {pos}, where {} is on disk, and {} applied",
            self.flushed(),
            self.applied()
        );
    }

    /// The value of a row at a position that is not below the flushed one.
    fn get_at(&self, key: &[u8], pos: LogPos) -> Result<Option<Bytes>> {
        self.check_readable(pos);
        let unflushed = self.unflushed.borrow();
        if let Some(revisions) = unflushed.rows.get(key)
            && let Some(found) = revisions.iter().rev().find(|r| r.pos <= pos)
        {
            return Ok(found.value.clone());
        }
        self.engine.get(&engine_key(key))
    }

    /// The first rows of `[begin, end)` at a position, or the last ones in reverse order, up to `limit`, as `changes`
    /// has changed them.
    fn range_at(
        &self,
        (begin, end): (&[u8], &[u8]),
        pos: LogPos,
        changes: Option<&BTreeMap<Bytes, Option<Bytes>>>,
        limit: usize,
        reverse: bool,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        if begin >= end || limit == 0 {
            return Ok(Vec::new());
        }
        self.check_readable(pos);
        let bounds = (Bound::Included(begin), Bound::Excluded(end));
        let unflushed = self.unflushed.borrow();
        let revisions = unflushed.rows.range::<[u8], _>(bounds);
        let of_store = revisions.filter_map(|(key, revisions)| {
            let found = revisions.iter().rev().find(|r| r.pos <= pos)?;
            Some((key, &found.value))
        });
        let changes = changes.map(|changes| ordered(changes.range::<[u8], _>(bounds), reverse));
        let sources = changes.into_iter().chain([ordered(of_store, reverse)]);
        let mut newer = Newer::new(sources, reverse);
        let mut found: Vec<(Bytes, Bytes)> = Vec::new();
        let mut take_newer = |found: &mut Vec<(Bytes, Bytes)>, until: Option<&[u8]>| {
            let is_next = |key: &[u8]| until.is_none_or(|until| is_before(key, until, reverse));
            while found.len() < limit
                && let Some((key, value)) = newer.next_if(is_next)
            {
                found.extend(value.clone().map(|value| (key.clone(), value)));
            }
            let replaced = newer.next_if(|key| until.is_some_and(|until| key == until));
            if let Some((key, value)) = replaced {
                found.extend(value.clone().map(|value| (key.clone(), value)));
                return true;
            }
            false
        };
        let (from, to) = (engine_key(begin), engine_key(end));
        self.engine.range(&from, &to, reverse, &mut |key, value| {
            let key = &key[1..];
            let is_replaced = take_newer(&mut found, Some(key));
            if !is_replaced && found.len() < limit {
                found.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            }
            found.len() < limit
        })?;
        take_newer(&mut found, None);
        found.truncate(limit);
        let is_in_order = || found.is_sorted_by(|(a, _), (b, _)| is_before(a, b, reverse));
        let is_in = |(key, _): &(Bytes, Bytes)| begin <= &key[..] && &key[..] < end;
        // Not where all replicas would end alike.
        assert!(
            !nobody_has_lied() || (is_in_order() && found.iter().all(is_in)),
            "rows of {begin:?} to {end:?} at {pos} come out of order, or twice"
        );
        Ok(found)
    }

    /// The transaction of the entry at `pos`: the next one, as there is no gap. One at a time.
    pub fn begin(self: &Rc<Self>, pos: LogPos) -> RwTx {
        assert_eq!(pos, self.applied() + 1, "an entry is skipped or repeated");
        assert!(!self.is_writing.replace(true), "there is one writer");
        RwTx {
            store: self.clone(),
            pos,
            changes: BTreeMap::new(),
            undo: Vec::new(),
            depth: 0,
            is_timed: false,
        }
    }

    /// The rows as they are now.
    pub fn snapshot(self: &Rc<Self>) -> RoTx {
        let number = self.next_snapshot.get();
        self.next_snapshot.set(number + 1);
        let pos = self.applied();
        self.snapshots.borrow_mut().push_back(Snapshot {
            number,
            pos,
            since: now(),
        });
        RoTx {
            store: self.clone(),
            number,
            pos,
        }
    }

    /// Whether rows wait for room on the disk.
    pub fn waits_for_disk(&self) -> bool {
        self.waits_for_disk.get()
    }

    /// Makes durable what was applied before the call, as far as no snapshot needs what was before it. One at a time.
    ///
    /// # Errors
    /// The disk is full or broken. After [`Error::disk_full`] nothing has changed.
    pub async fn flush(&self) -> Result<()> {
        let target = {
            let mut snapshots = self.snapshots.borrow_mut();
            snapshots.retain(|snapshot| snapshot.since.elapsed() < SNAPSHOT_LIMIT);
            let oldest = snapshots.front().map_or(LogPos::MAX, |s| s.pos);
            self.applied().min(oldest)
        };
        if target <= self.flushed() || self.held.get() > 0 {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        {
            let unflushed = self.unflushed.borrow();
            for (key, revisions) in &unflushed.rows {
                match revisions
                    .iter()
                    .rev()
                    .find(|r| r.pos <= target)
                    .map(|r| &r.value)
                {
                    Some(Some(value)) => batch.set(&engine_key(key), value),
                    Some(None) => batch.clear(&engine_key(key)),
                    None => {}
                }
            }
            let checksums = unflushed.checksums.iter().rev();
            let (_, checksum) = checksums
                .copied()
                .find(|(pos, _)| *pos == target)
                .expect("every position since the flush has one");
            batch.set(META, &words(&[target, checksum]));
        }
        self.flushing.set(target);
        let committed = self.engine.commit(batch).await;
        let is_full = matches!(committed, Err(Error::disk_full));
        self.waits_for_disk.set(is_full);
        committed?;
        let (before, flushing) = (self.flushed.replace(target), self.flushing.get());
        assert!(
            before < target && flushing == target,
            "{target} is on disk after {before}, and somebody else flushes {flushing}"
        );
        let mut unflushed = self.unflushed.borrow_mut();
        let mut freed = 0;
        unflushed.rows.retain(|key, revisions| {
            let size = |r: &Revision| key.len() + r.value.as_ref().map_or(0, Bytes::len);
            let before: usize = revisions.iter().map(size).sum();
            revisions.retain(|r| r.pos > target);
            freed += before - revisions.iter().map(size).sum::<usize>();
            !revisions.is_empty()
        });
        assert!(
            freed <= unflushed.bytes,
            "{freed} bytes are on disk, of {}",
            unflushed.bytes
        );
        unflushed.bytes -= freed;
        unflushed.checksums.retain(|(pos, _)| *pos > target);
        assert_eq!(
            unflushed.checksums.len() as u64,
            self.applied() - target,
            "checksums of the positions behind {target}"
        );
        Ok(())
    }
}

/// The rows at one position. See the module.
pub struct RoTx {
    store: Rc<LocalStore>,
    number: u64,
    pos: LogPos,
}

impl RoTx {
    pub fn pos(&self) -> LogPos {
        self.pos
    }

    fn check(&self) -> Result<()> {
        match self.pos < self.store.flushing.get() {
            true => Err(Error::transaction_too_old),
            false => Ok(()),
        }
    }

    /// # Errors
    /// The snapshot is too old, or the disk fails.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check()?;
        self.store.get_at(key, self.pos)
    }

    /// The first rows of `[begin, end)`, up to `limit`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn range(&self, begin: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        Reads::range(self, (begin, end), limit, false)
    }
}

impl Reads for RoTx {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get(key)
    }
    fn range(&self, range: (&[u8], &[u8]), limit: usize, reverse: bool) -> Result<Pairs> {
        self.check()?;
        self.store.range_at(range, self.pos, None, limit, reverse)
    }
}

impl Drop for RoTx {
    fn drop(&mut self) {
        let mut snapshots = self.store.snapshots.borrow_mut();
        // A flush may have given it up.
        if let Ok(at) = snapshots.binary_search_by_key(&self.number, |snapshot| snapshot.number) {
            snapshots.remove(at);
        }
    }
}

/// What a transaction and a snapshot have in common.
pub trait Reads {
    /// # Errors
    /// The disk fails, or the snapshot is too old.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// The first rows of `[begin, end)`, or the last ones in reverse order, up to `limit`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn range(&self, range: (&[u8], &[u8]), limit: usize, reverse: bool) -> Result<Pairs>;
}

type Pairs = Vec<(Bytes, Bytes)>;

/// The changes of one entry. Dropped without [`commit`](Self::commit), it changes nothing.
pub struct RwTx {
    store: Rc<LocalStore>,
    pos: LogPos,
    changes: BTreeMap<Bytes, Option<Bytes>>,
    /// What nested transactions have changed, and the change that was there before, if there was one. A stack of
    /// engines nests ten transactions for each entry and hardly ever takes anything back: so nesting is free, and
    /// taking back is work.
    undo: Vec<(Bytes, Option<Option<Bytes>>)>,
    /// Nested transactions under way.
    depth: usize,
    is_timed: bool,
}

impl RwTx {
    /// The position of the entry that it applies.
    pub fn pos(&self) -> LogPos {
        self.pos
    }

    /// Everybody who applies this entry measures how long it takes.
    pub fn time(&mut self) {
        self.is_timed = true;
    }

    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// # Errors
    /// The disk fails.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.store.get_at(key, self.pos),
        }
    }

    /// The first rows of `[begin, end)`, up to `limit`.
    ///
    /// # Errors
    /// The disk fails.
    pub fn range(&self, begin: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        Reads::range(self, (begin, end), limit, false)
    }

    fn change(&mut self, key: &[u8], value: Option<Bytes>) {
        let key = Bytes::copy_from_slice(key);
        if self.depth == 0 {
            self.changes.insert(key, value);
            return;
        }
        let before = self.changes.insert(key.clone(), value);
        self.undo.push((key, before));
    }

    pub fn set(&mut self, key: &[u8], value: impl Into<Bytes>) {
        self.change(key, Some(value.into()));
    }

    pub fn clear(&mut self, key: &[u8]) {
        self.change(key, None);
    }

    /// Clears the rows of `[begin, end)`, one by one.
    ///
    /// # Errors
    /// The disk fails.
    pub fn clear_range(&mut self, begin: &[u8], end: &[u8]) -> Result<()> {
        for (key, _) in self.range(begin, end, usize::MAX)? {
            self.change(&key, None);
        }
        Ok(())
    }

    /// Runs `work` in a transaction of its own within this one: if it fails, its changes are taken back.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn nested<T, E>(
        &mut self,
        work: impl FnOnce(&mut RwTx) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let begin = self.undo.len();
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        if done.is_err() {
            for (key, before) in self.undo.drain(begin..).rev() {
                match before {
                    Some(change) => self.changes.insert(key, change),
                    None => self.changes.remove(&key),
                };
            }
        } else if self.depth == 0 {
            self.undo.clear();
        }
        assert!(
            self.depth > 0 || self.undo.is_empty(),
            "{} changes could be taken back, of no transaction",
            self.undo.len()
        );
        done
    }

    /// Makes the changes visible; the entry is applied.
    ///
    /// # Errors
    /// The disk fails, and nothing has changed.
    pub fn commit(mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let store = self.store.clone();
        let mut checksum = store.checksum();
        for (key, value) in &changes {
            if let Some(before) = store.get_at(key, self.pos)? {
                checksum = checksum.wrapping_sub(hash_of(key, &before));
            }
            if let Some(value) = value {
                checksum = checksum.wrapping_add(hash_of(key, value));
            }
        }
        let mut unflushed = store.unflushed.borrow_mut();
        for (key, value) in changes {
            unflushed.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            let revision = Revision {
                pos: self.pos,
                value,
            };
            unflushed.rows.entry(key).or_default().push(revision);
        }
        unflushed.checksums.push_back((self.pos, checksum));
        store.checksum.set(checksum);
        store.applied.set(self.pos);
        Ok(())
    }
}

impl Reads for RwTx {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get(key)
    }
    fn range(&self, range: (&[u8], &[u8]), limit: usize, reverse: bool) -> Result<Pairs> {
        let changes = Some(&self.changes);
        self.store
            .range_at(range, self.pos, changes, limit, reverse)
    }
}

impl Drop for RwTx {
    fn drop(&mut self) {
        self.store.is_writing.set(false);
    }
}
