//! The memory engine: all rows in memory, their log on disk.
//!
//! A commit is one record appended to the log and synced, then applied to the rows. So that the log does not grow for
//! ever, commits also carry a *rolling snapshot*. When the log has grown by more than the data since the last pass
//! began, each record takes along, before its own mutations, a slice of the rows in key order (a clear of the slice's
//! range, then its rows), until a pass has gone through all keys. Then replay may begin where that pass began: a slice
//! holds its rows as they were at that moment, whatever came before, and later records bring them up to date. There is
//! no pause, no second file format and no rename.
//!
//! ```text
//! segment 7 | commit | commit | slice a..f + commit | slice f..m + commit |
//! segment 8 | slice m..end + commit |  <- pass complete: segments before 7 are deleted
//! ```
//!
//! Recovery replays the contiguous run of segments up to the newest. What it finds damaged loses some keys: these are
//! refused, all others are served. A mark in the log says which, before anything else is written, so that they stay
//! refused until they are written again. Memory: the rows, plus one record while it is written or read. Disk: at most
//! about four times the data, or four segments.

mod lost;
mod recent;
mod record;
mod replay;
mod segment;
#[cfg(test)]
mod tests;

use crate::batch::WriteBatch;
use crate::damage::FileDamage;
use crate::failure::{disk_failure, forgets_what_was_refused};
use crate::knobs::MEMORY_ENGINE_SNAPSHOT_BYTES;
use crate::sorted::{Keyed, SortedBlocks};
use crate::{KEPT_TWICE, KeyValueStore, LocalBoxFuture};
use bytes::{Bytes, BytesMut};
use lost::{Lost, LostPart, Origin, class_end, coarsen};
use plinth_core::key::{KeyRange, SYSTEM_KEY_BYTES_MAX};
use plinth_core::mutation::iter_packed;
use plinth_core::{EngineKind, Error, MutationBatch, MutationKind, MutationRef, Result};
use plinth_runtime::disk::Synced;
use plinth_runtime::{Boxed, Pace, buggify, disk, offload, planted, probe, trace, trace_warn};
use recent::{BLOCK_BYTES, Recent, Run, own_part, runs};
use record::{Block, BlockKind, Directory, FORMAT, RecordHeader, checksum};
use segment::{Segment, first_record_at};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Above every key.
static KEYS_END: [u8; SYSTEM_KEY_BYTES_MAX + 1] = [0xff; SYSTEM_KEY_BYTES_MAX + 1];
/// The least that a slice of the snapshot holds, so that a pass also ends under tiny commits.
const SLICE_BYTES_MIN: usize = 64 << 10;
/// A commit of more operations than this, or of more than [`BYTES_AT_ONCE`], is sorted on a pool thread.
const SORTED_HERE: usize = 1000;
/// Rows that are packed or changed between two checks of the clock, or fewer if they are large.
const ROWS_AT_ONCE: usize = 200;
const BYTES_AT_ONCE: usize = 256 << 10;
/// Ranges that the directory has of a block of lost ranges, at most.
const MARKED_RANGES: usize = 64;
/// Bytes whose checksum is computed between two checks of the clock.
const CHECKED_AT_ONCE: usize = 1 << 20;
/// A part of a record that has this many bytes takes no more: a growing buffer copies all that it holds.
const PART_BYTES: usize = 1 << 20;

/// `key length: u32 | key | value`, in one allocation.
struct Row(Box<[u8]>);

impl Row {
    fn new(key: &[u8], value: &[u8]) -> Self {
        let len = u32::try_from(key.len()).expect("no key reaches 4 GiB");
        let mut bytes = Vec::with_capacity(4 + key.len() + value.len());
        bytes.extend_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Row(bytes.into_boxed_slice())
    }
    #[inline]
    fn value_at(&self) -> usize {
        4 + u32::from_ne_bytes(self.0[..4].try_into().expect("four bytes")) as usize
    }
    #[inline]
    fn value(&self) -> &[u8] {
        &self.0[self.value_at()..]
    }
    fn bytes(&self) -> usize {
        self.0.len() - 4
    }
}

impl Keyed for Row {
    #[inline]
    fn key(&self) -> &[u8] {
        &self.0[4..self.value_at()]
    }
}

/// The rows and how many bytes of keys and values they hold.
struct Rows {
    map: SortedBlocks<Row>,
    bytes: usize,
    /// These are not known, and not in the map.
    lost: Lost,
}

impl Rows {
    fn new() -> Self {
        Rows {
            map: SortedBlocks::new(),
            bytes: 0,
            lost: Lost::new(),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.lost.know_key(key);
        self.bytes += key.len() + value.len();
        let bytes = &mut self.bytes;
        self.map.upsert(key, |found| {
            let Some(row) = found else {
                return Some(Row::new(key, value));
            };
            *bytes -= row.bytes();
            if row.value().len() == value.len() {
                let at = row.value_at();
                row.0[at..].copy_from_slice(value);
            } else {
                *row = Row::new(key, value);
            }
            None
        });
    }

    /// Clears the first `rows_max` rows of `[begin, end)`. False if no more are left.
    fn clear_some(&mut self, begin: &[u8], end: &[u8], rows_max: usize) -> bool {
        let beyond = self.map.range(begin, end, false).nth(rows_max);
        let Some(stop) = beyond.map(|row| Bytes::copy_from_slice(row.key())) else {
            self.clear_range(begin, end);
            return false;
        };
        self.clear_range(begin, &stop);
        true
    }

    fn clear_range(&mut self, begin: &[u8], end: &[u8]) {
        self.lost.know(begin, end);
        let bytes = &mut self.bytes;
        self.map
            .remove_range(begin, end, |row| *bytes -= row.bytes());
    }

    /// Applies operations that were read back.
    fn replay(&mut self, batch: &MutationBatch) {
        for mutation in batch.iter() {
            match mutation.kind {
                MutationKind::ClearRange => self.clear_range(mutation.first, mutation.second),
                _ => self.set(mutation.first, mutation.second),
            }
        }
    }

    /// Nothing is known of these keys any more.
    fn lose(&mut self, begin: &[u8], end: &[u8], origin: Origin) {
        self.clear_range(begin, end);
        self.lost.lose(begin, end, origin);
    }
}

/// A pass of the rolling snapshot under way.
#[derive(Clone)]
struct Pass {
    first_segment: u64,
    /// Keys below this one are done.
    next: Bytes,
}

struct Log {
    current: Segment,
    /// Replay starts here; older segments are gone or about to be.
    oldest_needed: u64,
    /// Sizes of the segments from the oldest to the one before the current.
    settled: Vec<(u64, u64)>,
    next_sequence: u64,
    pass: Option<Pass>,
    /// Bytes appended since the last pass began.
    bytes_since_pass: u64,
    /// What the next record says once more.
    recent: Recent,
}

/// A record about to be written, and the state of the log when it is durable.
struct Append {
    /// These follow one another in the file.
    parts: Vec<Bytes>,
    pass: Option<Pass>,
    oldest_needed: u64,
    /// What the next record says once more of it.
    ranges: Vec<KeyRange>,
    own: WriteBatch,
}

/// The payload of a record, while it is put together.
#[derive(Default)]
struct Payload {
    blocks: Vec<Block>,
    parts: Vec<Bytes>,
    part: BytesMut,
    own: WriteBatch,
}

impl Payload {
    /// Adds a block: the bytes of `part` from here on.
    fn block_from(&mut self, from: usize, kind: BlockKind, ranges: Vec<KeyRange>, salt: u64) {
        let bytes = &self.part[from..];
        self.blocks.push(Block {
            kind,
            len: u32::try_from(bytes.len()).expect("a block is small"),
            crc: checksum(salt, bytes),
            ranges,
        });
        if self.part.len() >= PART_BYTES {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        if !self.part.is_empty() {
            self.parts.push(self.part.split().freeze());
        }
    }

    /// Adds a block that says that these ranges are lost.
    fn mark(&mut self, lost: &[LostPart], salt: u64) {
        if lost.is_empty() {
            return;
        }
        let mut ranges: Vec<KeyRange> = lost.iter().map(|part| part.range.clone()).collect();
        coarsen(&mut ranges, MARKED_RANGES);
        let from = self.part.len();
        self.part.extend_from_slice(&record::encode_lost(lost));
        self.block_from(from, BlockKind::Lost, ranges, salt);
    }
}

/// See the module.
pub struct MemoryEngine {
    prefix: PathBuf,
    rows: RefCell<Rows>,
    log: RefCell<Log>,
    failed: Cell<Option<Error>>,
    committing: Cell<bool>,
    segment_bytes: u64,
    /// The log does not say yet what was lost when it was read.
    is_unmarked: Cell<bool>,
}

impl MemoryEngine {
    /// Opens or makes the engine whose segments are `<path>.<number>.log`.
    pub fn open(path: &Path, create: bool) -> Boxed<'_, Result<Rc<Self>>> {
        Box::pin(async move {
            let mut rows = Rows::new();
            let numbers = segment::list_segments(path).await?;
            let log = match replay::recover(path, &numbers, create, &mut rows).await? {
                Some(log) => log,
                None if create => Log {
                    current: Segment::create(path, 1).await?,
                    oldest_needed: 1,
                    settled: Vec::new(),
                    next_sequence: 1,
                    pass: None,
                    bytes_since_pass: 0,
                    recent: Recent::default(),
                },
                None => return Err(Error::file_not_found),
            };
            let segment_bytes = MEMORY_ENGINE_SNAPSHOT_BYTES.get() as u64;
            trace!("MemoryEngineOpened", "file" => path.display(), "rows" => rows.map.len(), "bytes" => rows.bytes,
            "segment" => log.current.number, "oldest" => log.oldest_needed);
            let is_unmarked = Cell::new(!rows.lost.is_empty());
            let engine = MemoryEngine {
                prefix: path.to_owned(),
                is_unmarked,
                rows: RefCell::new(rows),
                log: RefCell::new(log),
                failed: Cell::new(None),
                committing: Cell::new(false),
                segment_bytes,
            };
            engine.mark_what_is_lost().await?;
            engine.delete_unneeded_segments().await;
            Ok(Rc::new(engine))
        })
    }

    /// Writes down what was lost: it stays refused, also if its bytes read well the next time. On a full disk the next
    /// commit does that.
    async fn mark_what_is_lost(&self) -> Result<()> {
        if forgets_what_was_refused() {
            self.is_unmarked.set(false);
        }
        if !self.is_unmarked.get() {
            return Ok(());
        }
        probe!("memory engine: some keys are lost");
        let (lost, segments) = (self.rows.borrow().lost.parts().len(), &self.prefix);
        trace_warn!("MemoryEngineLost", "file" => segments.display(), "ranges" => lost);
        match self.write(WriteBatch::new()).await {
            Ok(_) | Err(Error::disk_full) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), Err)
    }

    /// Builds the record of `net`, with a slice of the snapshot before it if one is due.
    async fn prepare(&self, net: &Net) -> Append {
        let mut payload = Payload::default();
        let (salt, number, is_first) = {
            let current = &self.log.borrow().current;
            let is_first = current.end == first_record_at(FORMAT);
            (current.salt, current.number, is_first)
        };
        let own_again = self.log.borrow().recent.own();
        if self.is_unmarked.get() {
            payload.mark(&self.rows.borrow().lost.parts(), salt);
        }
        if is_first {
            self.pack_own(&mut payload, salt).await;
        }
        let (pass, oldest_needed) = self.pack_pass(net, number, &mut payload, salt).await;
        payload.end_part();
        let mut ranges: Vec<KeyRange> = Vec::new();
        ranges.extend(payload.blocks.iter().flat_map(|block| block.ranges.clone()));
        ranges.extend(net.runs.iter().flat_map(|run| run.ranges.clone()));
        payload.blocks.extend(net_blocks(net, salt).await);
        payload.own.append(net.own.clone());
        let directory = self.directory(&own_again, payload.blocks, salt);
        let mut parts = vec![Bytes::new(), directory, own_again.into_bytes()];
        parts.append(&mut payload.parts);
        parts.push(net.batch.bytes().clone());
        parts[0] = self.header(&parts, salt, oldest_needed);
        Append {
            parts,
            pass,
            oldest_needed,
            ranges,
            own: payload.own,
        }
    }

    fn directory(&self, own_again: &MutationBatch, blocks: Vec<Block>, salt: u64) -> Bytes {
        let log = self.log.borrow();
        let own = own_again.bytes();
        let mut directory = Directory {
            since: log.recent.since(log.next_sequence),
            recent: log.recent.ranges(),
            own_len: u32::try_from(own.len()).expect("they are few"),
            own_crc: checksum(salt, own),
            blocks,
        };
        if planted!(
            "memory_block_names_no_keys",
            "the log of a memory engine does not say which keys a block is about"
        ) {
            let blocks = directory.blocks.iter_mut();
            blocks.for_each(|block| block.ranges.clear());
        }
        directory.encode()
    }

    /// The header of a record with these parts, of which it will be the first and the directory is the second.
    fn header(&self, parts: &[Bytes], salt: u64, oldest_needed: u64) -> Bytes {
        let log = self.log.borrow();
        let len = |len: usize| u32::try_from(len).expect("no commit reaches 4 GiB");
        let header = RecordHeader {
            directory_len: len(parts[1].len()),
            payload_len: len(parts[2..].iter().map(Bytes::len).sum()),
            sequence: log.next_sequence,
            segment: log.current.number,
            oldest_needed,
            crc: checksum(salt, &parts[1]),
        };
        header.encode(salt)
    }

    /// Adds a slice of the snapshot if one is due. Gives the pass behind it, and the oldest segment that is needed
    /// then.
    async fn pack_pass(
        &self,
        net: &Net,
        number: u64,
        payload: &mut Payload,
        salt: u64,
    ) -> (Option<Pass>, u64) {
        let (mut pass, oldest_needed) = {
            let log = self.log.borrow();
            (log.pass.clone(), log.oldest_needed)
        };
        if pass.is_none() && self.is_pass_due() {
            pass = Some(Pass {
                first_segment: number,
                next: Bytes::new(),
            });
        }
        let Some(mut under_way) = pass else {
            return (None, oldest_needed);
        };
        let bytes_min = SLICE_BYTES_MIN + 2 * net.batch.bytes().len();
        let next = std::mem::take(&mut under_way.next);
        let packed = self.pack_slice(next, &KEYS_END, bytes_min, payload, salt);
        under_way.next = packed.await;
        match under_way.next[..] == KEYS_END[..] {
            true => (None, under_way.first_segment),
            false => (Some(under_way), oldest_needed),
        }
    }

    /// Adds all rows that are kept twice: each segment begins with them, so that they are known again behind whatever
    /// is damaged.
    async fn pack_own(&self, payload: &mut Payload, salt: u64) {
        let (begin, end) = (Bytes::from_static(KEPT_TWICE.0), KEPT_TWICE.1);
        self.pack_slice(begin, end, usize::MAX, payload, salt).await;
    }

    fn is_pass_due(&self) -> bool {
        let rows_bytes = self.rows.borrow().bytes as u64;
        self.log.borrow().bytes_since_pass > self.segment_bytes.max(rows_bytes)
    }

    /// Packs rows from `next` on, at least `bytes_min` bytes of them if there are that many before `end`. Returns
    /// where the rest begins. Nothing changes the rows meanwhile: only the commit that this is part of could do that.
    async fn pack_slice(
        &self,
        mut next: Bytes,
        end: &'static [u8],
        bytes_min: usize,
        payload: &mut Payload,
        salt: u64,
    ) -> Bytes {
        let mut pace = Pace::new();
        let mut bytes = 0;
        while bytes < bytes_min && next[..] != *end {
            let from = payload.part.len();
            let packed = pack_portion(&self.rows.borrow(), &next, &mut payload.part);
            let begin = std::mem::replace(&mut next, packed.0);
            bytes += packed.1;
            if class_end(&begin) == KEPT_TWICE.1 {
                let rows = iter_packed(&payload.part[from..]).map(|(row, _)| row);
                payload.own.append(own_part(rows));
            }
            let lost = self.rows.borrow().lost.parts_in(&begin, &next);
            let range = KeyRange::new(begin, next.clone());
            payload.block_from(from, BlockKind::Operations, vec![range], salt);
            if !planted!(
                "memory_snapshot_forgets_lost",
                "the snapshot of a memory engine takes lost keys for absent ones"
            ) {
                payload.mark(&lost, salt);
            }
            pace.rest_if_over().await;
        }
        payload.end_part();
        next
    }

    /// Applies the commit to the rows, in several turns of the loop if it is large: a reader may see a part of it
    /// meanwhile.
    async fn apply(&self, net: &MutationBatch) {
        let mut pace = Pace::new();
        let (mut rows_since, mut bytes_since) = (0, 0);
        for mutation in net.iter() {
            let (first, second) = (mutation.first, mutation.second);
            if mutation.kind == MutationKind::Set {
                self.rows.borrow_mut().set(first, second);
            } else {
                let clear_some = || {
                    let mut rows = self.rows.borrow_mut();
                    rows.clear_some(first, second, ROWS_AT_ONCE)
                };
                while clear_some() {
                    pace.rest_if_over().await;
                }
            }
            (rows_since, bytes_since) = (rows_since + 1, bytes_since + second.len());
            if rows_since >= ROWS_AT_ONCE || bytes_since >= BYTES_AT_ONCE {
                (rows_since, bytes_since) = (0, 0);
                pace.rest_if_over().await;
            }
        }
    }

    /// Starts a new segment if the current one is full.
    async fn roll(&self) -> Result<()> {
        let number = {
            let current = &self.log.borrow().current;
            let bytes = current.end - first_record_at(current.format);
            if bytes < self.segment_bytes && current.format == FORMAT {
                return Ok(());
            }
            current.number + 1
        };
        probe!("memory engine: a segment is full");
        let segment = Segment::create(&self.prefix, number).await?;
        let mut log = self.log.borrow_mut();
        let full = std::mem::replace(&mut log.current, segment);
        log.settled.push((full.number, full.end));
        Ok(())
    }

    async fn append(&self, append: &Append) -> Result<Synced> {
        let (file, path, at) = {
            let current = &self.log.borrow().current;
            (current.file.clone(), current.path.clone(), current.end)
        };
        let written = file.write_and_sync(at, append.parts.clone()).await;
        written.map_err(|error| disk_failure(&path, "append", &error))
    }

    async fn commit_batch(&self, batch: WriteBatch) -> Result<Synced> {
        self.check()?;
        // Still set if the future of a commit was dropped: it is not known how far that commit got.
        assert!(
            !self.committing.replace(true),
            "a commit while another is in progress or was abandoned"
        );
        let result = self.write(batch).await;
        match result {
            // The next attempt overwrites what was written.
            Ok(_) | Err(Error::disk_full) => {}
            Err(code) => self.failed.set(Some(code)),
        }
        self.committing.set(false);
        result
    }

    async fn write(&self, batch: WriteBatch) -> Result<Synced> {
        self.roll().await?;
        let is_large = batch.len() > SORTED_HERE || batch.bytes() > BYTES_AT_ONCE;
        let net = if is_large || buggify!() {
            offload(move || Net::of(&batch)).await
        } else {
            Net::of(&batch)
        };
        let append = self.prepare(&net).await;
        let synced = self.append(&append).await?;
        self.is_unmarked.set(false);
        self.apply(&net.batch).await;
        let pass_completed = {
            let mut log = self.log.borrow_mut();
            let pass_began = log.pass.is_none() && append.pass.is_some();
            let pass_completed = append.oldest_needed != log.oldest_needed;
            let len = append.parts.iter().map(|part| part.len() as u64).sum();
            log.bytes_since_pass = if pass_began {
                len
            } else {
                log.bytes_since_pass + len
            };
            log.current.end += len;
            let sequence = log.next_sequence;
            log.recent.push(sequence, len, append.ranges, append.own);
            log.next_sequence += 1;
            log.pass = append.pass;
            log.oldest_needed = append.oldest_needed;
            pass_completed
        };
        if pass_completed {
            probe!("memory engine: a snapshot pass completes");
            self.delete_unneeded_segments().await;
        }
        Ok(synced)
    }

    /// Deletes segments that are not needed. If one cannot be deleted, or comes back after a power cut, the next
    /// opening deletes it.
    async fn delete_unneeded_segments(&self) {
        let unneeded: Vec<u64> = {
            let mut log = self.log.borrow_mut();
            let oldest = log.oldest_needed;
            log.settled
                .extract_if(.., |(number, _)| *number < oldest)
                .map(|(number, _)| number)
                .collect()
        };
        for number in unneeded {
            let path = segment::segment_path(&self.prefix, number);
            if let Err(error) = disk::remove(&path).await {
                trace_warn!("SegmentNotRemoved", "file" => path.display(), "error" => error);
            }
        }
    }
}

/// The net effect of a batch: its clears, then its sets.
fn pack_net(batch: &WriteBatch) -> MutationBatch {
    let net = batch.net_effect();
    let clear = |&(begin, end)| MutationRef::clear_range(begin, end);
    let set = |&(key, value)| MutationRef::set(key, value);
    let clears = net.clears.iter().map(clear);
    MutationBatch::from_mutations(clears.chain(net.sets.iter().map(set)))
}

/// The net effect of a batch, packed.
struct Net {
    batch: MutationBatch,
    /// The blocks of it.
    runs: Vec<Run>,
    /// What it does to the rows that are kept twice.
    own: WriteBatch,
}

impl Net {
    fn of(batch: &WriteBatch) -> Self {
        let batch = pack_net(batch);
        Net {
            runs: runs(batch.bytes()),
            own: own_part(batch.iter()),
            batch,
        }
    }
}

/// The blocks of a commit, whose checksums are computed in several turns of the loop if it is large.
async fn net_blocks(net: &Net, salt: u64) -> Vec<Block> {
    let mut pace = Pace::new();
    let mut blocks = Vec::with_capacity(net.runs.len());
    let mut at = 0;
    for Run { len, ranges } in &net.runs {
        let bytes = &net.batch.bytes()[at..at + len];
        at += len;
        let mut crc = checksum(salt, &[]);
        for piece in bytes.chunks(CHECKED_AT_ONCE) {
            crc = crc32c::crc32c_append(crc, piece);
            pace.rest_if_over().await;
        }
        blocks.push(Block {
            kind: BlockKind::Operations,
            len: u32::try_from(*len).expect("no commit reaches 4 GiB"),
            crc,
            ranges: ranges.clone(),
        });
    }
    blocks
}

/// Packs some rows of one kind from `begin` on: a block of them, or [`ROWS_AT_ONCE`]. Returns where the rest begins,
/// and the number of their bytes.
fn pack_portion(rows: &Rows, begin: &[u8], record: &mut BytesMut) -> (Bytes, usize) {
    let (mut bytes, mut count) = (0, 0);
    let end = class_end(begin);
    let mut slice_end = Bytes::from_static(end);
    for row in rows.map.range(begin, end, false) {
        if bytes >= BLOCK_BYTES || count == ROWS_AT_ONCE {
            slice_end = Bytes::copy_from_slice(row.key());
            break;
        }
        bytes += row.bytes();
        count += 1;
    }
    MutationRef::clear_range(begin, &slice_end).pack(record);
    for row in rows.map.range(begin, end, false).take(count) {
        MutationRef::set(row.key(), row.value()).pack(record);
    }
    (slice_end, bytes)
}

impl Log {
    /// The log with `segment` behind the segments of `before`.
    fn after(before: Option<Log>, segment: Segment) -> Log {
        let (end, is_former) = (segment.end, segment.format != FORMAT);
        match before {
            None => Log {
                current: segment,
                oldest_needed: 0,
                settled: Vec::new(),
                next_sequence: 0,
                pass: None,
                // The former format says of no block what it is about: nothing of it should be needed soon.
                bytes_since_pass: if is_former { u64::MAX / 2 } else { end },
                recent: Recent::default(),
            },
            Some(mut log) => {
                let full = std::mem::replace(&mut log.current, segment);
                log.settled.push((full.number, full.end));
                log.bytes_since_pass += end;
                log
            }
        }
    }
}

impl KeyValueStore for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check()?;
        let rows = self.rows.borrow();
        if rows.lost.has(key) {
            return Err(Error::checksum_failed);
        }
        let row = rows.map.get(key);
        Ok(row.map(|row| Bytes::copy_from_slice(row.value())))
    }

    fn range(
        &self,
        begin: &[u8],
        end: &[u8],
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.check()?;
        let rows = self.rows.borrow();
        let (shown, meets_lost) = rows.lost.reach(begin, end, reverse);
        for row in rows.map.range(&shown.start, &shown.end, reverse) {
            if !visit(row.key(), row.value()) {
                return Ok(());
            }
        }
        match meets_lost {
            true => Err(Error::checksum_failed),
            false => Ok(()),
        }
    }

    fn commit(&self, batch: WriteBatch) -> LocalBoxFuture<'_, Result<Synced>> {
        Box::pin(self.commit_batch(batch))
    }

    fn bytes_used(&self) -> u64 {
        let log = self.log.borrow();
        log.current.end + log.settled.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn kind(&self) -> EngineKind {
        EngineKind::Memory
    }

    fn damage(&self) -> FileDamage {
        let parts = self.rows.borrow().lost.parts();
        let segments = parts.iter().map(|part| part.origin.segment);
        let one = segments.min().filter(|segment| {
            let mut parts = parts.iter();
            parts.all(|part| part.origin.segment == *segment)
        });
        let mut all = self.prefix.file_name().unwrap_or_default().to_owned();
        all.push(".*.log");
        FileDamage {
            file: match one {
                Some(segment) => segment::segment_path(&self.prefix, segment),
                None => self.prefix.with_file_name(all),
            },
            parts: parts.iter().map(lost::told).collect(),
        }
    }

    /// It reads its files when it is opened, and never again.
    fn open_again(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async { self.check() })
    }

    fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
