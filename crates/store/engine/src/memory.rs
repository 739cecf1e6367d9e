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
//! Recovery replays the contiguous run of segments up to the newest. Memory: the rows, plus one record while it is
//! written or read. Disk: at most about four times the data, or four segments.

mod segment;

use crate::batch::WriteBatch;
use crate::failure::{damage, disk_failure};
use crate::knobs::MEMORY_ENGINE_SNAPSHOT_BYTES;
use crate::sorted::{Keyed, SortedBlocks};
use crate::{KeyValueStore, LocalBoxFuture, parent_dir};
use bytes::{Bytes, BytesMut};
use plinth_core::key::SYSTEM_KEY_BYTES_MAX;
use plinth_core::{EngineKind, Error, MutationBatch, MutationKind, MutationRef, Result};
use plinth_runtime::disk::Synced;
use plinth_runtime::{Boxed, Pace, buggify, disk, offload, probe, trace, trace_warn};
use segment::{Reader, RecordHeader, Segment};
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
}

impl Rows {
    fn set(&mut self, key: &[u8], value: &[u8]) {
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
        let bytes = &mut self.bytes;
        self.map
            .remove_range(begin, end, |row| *bytes -= row.bytes());
    }

    /// Applies a record that was read back; `None` if it holds an operation that no record has.
    fn replay(&mut self, batch: &MutationBatch) -> Option<()> {
        for mutation in batch.iter() {
            match mutation.kind {
                MutationKind::Set => self.set(mutation.first, mutation.second),
                MutationKind::ClearRange => self.clear_range(mutation.first, mutation.second),
                _ => return None,
            }
        }
        Some(())
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
}

/// A record about to be written, and the state of the log when it is durable.
struct Append {
    /// These follow one another in the file.
    parts: Vec<Bytes>,
    pass: Option<Pass>,
    oldest_needed: u64,
}

/// See the module.
pub struct MemoryEngine {
    prefix: PathBuf,
    rows: RefCell<Rows>,
    log: RefCell<Log>,
    failed: Cell<Option<Error>>,
    committing: Cell<bool>,
    segment_bytes: u64,
}

impl MemoryEngine {
    /// Opens or makes the engine whose segments are `<path>.<number>.log`.
    pub fn open(path: &Path, create: bool) -> Boxed<'_, Result<Rc<Self>>> {
        Box::pin(async move {
            let mut rows = Rows {
                map: SortedBlocks::new(),
                bytes: 0,
            };
            let numbers = segment::list_segments(path).await?;
            let log = match recover(path, &numbers, create, &mut rows).await? {
                Some(log) => log,
                None if create => Log {
                    current: Segment::create(path, 1).await?,
                    oldest_needed: 1,
                    settled: Vec::new(),
                    next_sequence: 1,
                    pass: None,
                    bytes_since_pass: 0,
                },
                None => return Err(Error::file_not_found),
            };
            let segment_bytes = MEMORY_ENGINE_SNAPSHOT_BYTES.get() as u64;
            trace!("MemoryEngineOpened", "file" => path.display(), "rows" => rows.map.len(), "bytes" => rows.bytes,
            "segment" => log.current.number, "oldest" => log.oldest_needed);
            let engine = MemoryEngine {
                prefix: path.to_owned(),
                rows: RefCell::new(rows),
                log: RefCell::new(log),
                failed: Cell::new(None),
                committing: Cell::new(false),
                segment_bytes,
            };
            engine.delete_unneeded_segments().await;
            Ok(Rc::new(engine))
        })
    }

    fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), Err)
    }

    /// Builds the record of `net`, packed, with a slice of the snapshot before it if one is due.
    async fn prepare(&self, net: &MutationBatch) -> Append {
        let mut payload = Vec::new();
        let (mut pass, mut oldest_needed, first_segment) = {
            let log = self.log.borrow();
            (log.pass.clone(), log.oldest_needed, log.current.number)
        };
        if pass.is_none() && self.is_pass_due() {
            pass = Some(Pass {
                first_segment,
                next: Bytes::new(),
            });
        }
        if let Some(under_way) = &mut pass {
            let bytes_min = SLICE_BYTES_MIN + 2 * net.bytes().len();
            self.pack_slice(under_way, bytes_min, &mut payload).await;
            if under_way.next[..] == KEYS_END[..] {
                oldest_needed = under_way.first_segment;
                pass = None;
            }
        }
        payload.push(net.bytes().clone());
        let salt = self.log.borrow().current.salt;
        let payload_crc = segment::payload_checksum(salt, &payload).await;
        let payload_len: usize = payload.iter().map(Bytes::len).sum();
        let log = self.log.borrow();
        let header = RecordHeader {
            payload_len: u32::try_from(payload_len).expect("no commit reaches 4 GiB"),
            sequence: log.next_sequence,
            segment: log.current.number,
            oldest_needed,
            payload_crc,
        };
        payload.insert(0, header.encode(salt));
        Append {
            parts: payload,
            pass,
            oldest_needed,
        }
    }

    fn is_pass_due(&self) -> bool {
        let rows_bytes = self.rows.borrow().bytes as u64;
        self.log.borrow().bytes_since_pass > self.segment_bytes.max(rows_bytes)
    }

    /// Packs rows from `pass.next` on, at least `bytes_min` bytes of them if there are that many, and moves
    /// `pass.next` behind them. Nothing changes the rows meanwhile: only the commit that this is part of could do
    /// that.
    async fn pack_slice(&self, pass: &mut Pass, bytes_min: usize, parts: &mut Vec<Bytes>) {
        let mut pace = Pace::new();
        let mut bytes = 0;
        let mut part = BytesMut::new();
        while bytes < bytes_min && pass.next[..] != KEYS_END[..] {
            let bytes_max = (bytes_min - bytes).min(BYTES_AT_ONCE);
            bytes += pack_portion(&self.rows.borrow(), pass, bytes_max, &mut part);
            if part.len() >= PART_BYTES {
                parts.push(part.split().freeze());
            }
            pace.rest_if_over().await;
        }
        parts.push(part.freeze());
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
            if current.end < self.segment_bytes {
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
            offload(move || pack_net(&batch)).await
        } else {
            pack_net(&batch)
        };
        let append = self.prepare(&net).await;
        let synced = self.append(&append).await?;
        self.apply(&net).await;
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

/// Packs some rows from `pass.next` on, about `bytes_max` bytes of them or [`ROWS_AT_ONCE`], and moves `pass.next`
/// behind them. Returns the number of their bytes.
fn pack_portion(rows: &Rows, pass: &mut Pass, bytes_max: usize, record: &mut BytesMut) -> usize {
    let mut bytes = 0;
    let mut count = 0;
    let mut slice_end = Bytes::from_static(&KEYS_END);
    for row in rows.map.range(&pass.next, &KEYS_END, false) {
        if bytes >= bytes_max || count == ROWS_AT_ONCE {
            slice_end = Bytes::copy_from_slice(row.key());
            break;
        }
        bytes += row.bytes();
        count += 1;
    }
    MutationRef::clear_range(&pass.next, &slice_end).pack(record);
    for row in rows.map.range(&pass.next, &KEYS_END, false).take(count) {
        MutationRef::set(row.key(), row.value()).pack(record);
    }
    pass.next = slice_end;
    bytes
}

/// Replays the segments; `None` if there is no engine.
async fn recover(
    prefix: &Path,
    numbers: &[u64],
    may_be_new: bool,
    rows: &mut Rows,
) -> Result<Option<Log>> {
    let Some(&newest) = numbers.last() else {
        return Ok(None);
    };
    // A power cut may bring back some of the deleted segments: only the unbroken run counts.
    let run = numbers
        .chunk_by(|a, b| a + 1 == *b)
        .next_back()
        .expect("there is a newest");
    let mut log: Option<Log> = None;
    let mut last: Option<RecordHeader> = None;
    for &number in run {
        let Some((mut segment, mut reader)) = Segment::open(prefix, number).await? else {
            let path = segment::segment_path(prefix, number);
            if number != newest || (log.is_none() && !may_be_new) {
                return Err(damage(&path, 0, Error::file_corrupt, "segment header"));
            }
            // The process died while it created this segment: nothing in it was ever acknowledged.
            probe!("memory engine: a segment was being created");
            disk::remove(&path)
                .await
                .map_err(|error| disk_failure(&path, "remove", &error))?;
            break;
        };
        replay_segment(&mut segment, &mut reader, rows, &mut last).await?;
        reader.cut_torn_tail(&segment, number == newest).await?;
        log = Some(Log::after(log, segment));
    }
    let Some(mut log) = log else { return Ok(None) };
    // What a killed process wrote can be read, but a power cut may still lose it. Everything that is served from here
    // on must be durable.
    let made_durable = async {
        log.current.file.sync().await?;
        disk::sync_dir(parent_dir(prefix)).await
    };
    made_durable
        .await
        .map_err(|error| disk_failure(&log.current.path, "sync", &error))?;
    log.oldest_needed = last.map_or(run[0], |header| header.oldest_needed);
    log.next_sequence = last.map_or(1, |header| header.sequence + 1);
    if log.oldest_needed < run[0] || (last.is_none() && run[0] != 1) {
        let missing = segment::segment_path(prefix, run[0] - 1);
        return Err(damage(
            &missing,
            0,
            Error::file_corrupt,
            "a segment that is needed is missing",
        ));
    }
    log.settled.extend(
        numbers
            .iter()
            .filter(|number| **number < run[0])
            .map(|number| (*number, 0)),
    );
    Ok(Some(log))
}

impl Log {
    /// The log with `segment` behind the segments of `before`.
    fn after(before: Option<Log>, segment: Segment) -> Log {
        let end = segment.end;
        match before {
            None => Log {
                current: segment,
                oldest_needed: 0,
                settled: Vec::new(),
                next_sequence: 0,
                pass: None,
                bytes_since_pass: end,
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

async fn replay_segment(
    segment: &mut Segment,
    reader: &mut Reader,
    rows: &mut Rows,
    last: &mut Option<RecordHeader>,
) -> Result<()> {
    loop {
        let offset = segment.end;
        let Some((header, batch)) = reader.next(segment).await? else {
            return Ok(());
        };
        if last.is_some_and(|last| last.sequence + 1 != header.sequence) {
            return Err(damage(
                &segment.path,
                offset,
                Error::file_corrupt,
                "record out of sequence",
            ));
        }
        if rows.replay(&batch).is_none() {
            return Err(damage(
                &segment.path,
                offset,
                Error::file_corrupt,
                "record content",
            ));
        }
        *last = Some(header);
        plinth_runtime::yield_now().await;
    }
}

impl KeyValueStore for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check()?;
        Ok(self
            .rows
            .borrow()
            .map
            .get(key)
            .map(|row| Bytes::copy_from_slice(row.value())))
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
        for row in rows.map.range(begin, end, reverse) {
            if !visit(row.key(), row.value()) {
                break;
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};

    /// With a snapshot of all rows.
    #[test]
    fn a_large_record_is_made_in_parts_and_what_the_batch_holds_is_not_copied() {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let made = sim.run_on(machine, async {
            let engine = MemoryEngine::open(Path::new("/rows"), true).await;
            let engine = engine.expect("a new engine");
            for key in 0..400u32 {
                let (mut rows, key) = (engine.rows.borrow_mut(), key.to_be_bytes());
                rows.set(&key, &vec![7; if key[3] == 0 { 5 << 20 } else { 50_000 }]);
            }
            engine.log.borrow_mut().bytes_since_pass = u64::MAX;
            let mut batch = WriteBatch::new();
            batch.set(b"key", &vec![7; 20 << 20]);
            let net = pack_net(&batch);
            let append = engine.prepare(&net).await;
            let (last, slice) = append.parts.split_last().expect("parts");
            assert_eq!(last.as_ptr(), net.bytes().as_ptr());
            let snapshot: usize = slice.iter().map(Bytes::len).sum();
            assert!(snapshot > 25 << 20, "{snapshot} bytes of the snapshot");
            let longest = slice.iter().map(Bytes::len).max();
            assert!(longest < Some(7 << 20), "a part has {longest:?}");
            engine.append(&append).await.expect("a disk");
        });
        made.expect("nothing kills it");
    }
}
