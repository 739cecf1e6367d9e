//! The disk queue: an append-only file of blocks, each durable before the next is written.
//!
//! Everything appended between two syncs travels as one *block*: one write, one sync, one checksum (group commit,
//! FDB §2.6). The next block is written only after the sync of the one before has returned. This makes recovery
//! simple: the only block that a crash may tear is the last. An invalid block with a valid one behind it was durable
//! once, so it is corruption, and is reported instead of being taken for the end. Each block names the one before it,
//! and each segment header gives the length of its file, so a missing block and a file that was cut short are
//! detected. (A changed bit in the very last block is not detected: it looks like a torn write.)
//!
//! ```text
//! segment file <prefix>.<number>, preallocated, recycled
//!   header, 64 B   "PLDQ" | format u32 | queue id u128 | segment number u64 | capacity u64 | crc32c u32 | zeros
//!   block          length u32 | crc32c u32 | position u64 | position of the block before u64 | entries
//!   entry          length u32 | bytes
//! ```
//!
//! All integers are little-endian. A block's position is its segment number and its offset there. The checksum covers
//! the queue id, both positions and the entries, so a block of an older lap of a recycled segment, or of another
//! queue, never passes for a block of this lap and queue (pitfall 18). An error of a sync is final (pitfall 12). A
//! full disk is detected before anything is acknowledged, and the same block may be tried again.

use crate::knobs::LOG_SEGMENT_BYTES;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::output::Output;
use plinth_core::{Error, Result, Uid, Version};
use plinth_protocol::DurableVersion;
use plinth_runtime::disk::{self, File, OpenOptions, Synced};
use plinth_runtime::{Task, probe, trace, trace_warn};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 4] = b"PLDQ";
const FORMAT: u32 = 2;
const SEGMENT_HEADER_BYTES: u64 = 64;
const BLOCK_HEADER_BYTES: usize = 24;
/// The first block of a queue names this as the block before it.
const NO_BLOCK: u64 = u64::MAX;
/// A longer block is refused at recovery, and never written.
const BLOCK_BYTES_MAX: usize = 1 << 30;
/// Popped segments kept for reuse.
const SPARE_MAX: usize = 2;

/// Segment number and offset of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Position {
    pub segment: u32,
    pub offset: u32,
}

impl Position {
    fn to_u64(self) -> u64 {
        (u64::from(self.segment) << 32) | u64::from(self.offset)
    }
    fn from_u64(value: u64) -> Self {
        Position {
            segment: (value >> 32) as u32,
            offset: value as u32,
        }
    }
    /// Position of the first block of a segment.
    pub(crate) fn start_of(segment: u32) -> Self {
        Position {
            segment,
            offset: SEGMENT_HEADER_BYTES as u32,
        }
    }
}

/// A block that is on disk. Only a sync that has returned makes one.
#[derive(Clone, Copy, Debug)]
pub struct Persisted {
    position: Position,
    synced: Synced,
}

impl Persisted {
    #[cfg(test)]
    pub fn at(position: Position, synced: Synced) -> Self {
        Persisted { position, synced }
    }

    pub fn position(&self) -> Position {
        self.position
    }

    /// The durable version of a log server whose versions up to `last` are in this block and those before it.
    pub fn up_to(&self, last: Version) -> DurableVersion {
        DurableVersion::new(last, self.synced)
    }
}

/// A block that gathers entries. Long parts of them are not copied on their way to disk.
#[derive(Default)]
pub struct Block {
    entries: Output,
}

impl Block {
    /// Adds the entry that `encode` writes.
    pub fn push(&mut self, encode: impl FnOnce(&mut Output)) {
        let length = self.entries.mark();
        self.entries.buffer().put_u32_le(0); // patched below
        let entry = self.entries.mark();
        encode(&mut self.entries);
        let bytes = self.entries.len_from(entry) as u32;
        self.entries.patch(length, &bytes.to_le_bytes());
    }
    pub fn bytes(&self) -> usize {
        self.entries.len()
    }
    pub fn finish(mut self) -> FinishedBlock {
        FinishedBlock {
            bytes: self.entries.len(),
            pieces: self.entries.take(),
        }
    }
}

/// A block that takes no more entries, and may be written more than once.
pub struct FinishedBlock {
    bytes: usize,
    /// The entries, one piece behind the other.
    pieces: Vec<Bytes>,
}

impl FinishedBlock {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

struct Segment {
    file: File,
    /// Zero-filled to its length: a sync then writes data and nothing else.
    preallocated: bool,
    /// A block that would end behind this goes into the next segment, unless it is the first block of this one.
    capacity_bytes: u64,
    /// End of its last block. There is no gap between the blocks before this.
    end: u32,
}

/// Size of the first segment. A log with little data needs little space: segments grow by [`SEGMENT_GROWTH`], up to
/// the knob.
const FIRST_SEGMENT_BYTES: u64 = 256 << 10;
const SEGMENT_GROWTH: u64 = 4;
/// Upper limit, whatever the knob says: a block of any size that begins below it has a valid position.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
const _: () = assert!(
    SEGMENT_BYTES_MAX + BLOCK_HEADER_BYTES as u64 + BLOCK_BYTES_MAX as u64 <= u32::MAX as u64
);

fn largest_segment() -> u64 {
    (LOG_SEGMENT_BYTES.get() as u64).min(SEGMENT_BYTES_MAX)
}

fn segment_capacity(number: u32) -> u64 {
    let grown = FIRST_SEGMENT_BYTES.saturating_mul(SEGMENT_GROWTH.saturating_pow(number));
    grown.min(largest_segment())
}

pub struct DiskQueue {
    prefix: PathBuf,
    id: Uid,
    segments: BTreeMap<u32, Segment>,
    /// Where the next block goes.
    end: Position,
    /// Position of the block before it.
    last: Option<Position>,
    /// The next segment, made in the background.
    next: Option<Task<std::io::Result<Segment>>>,
    spare: VecDeque<PathBuf>,
    /// Damaged blocks were left out. In a segment, reads go on from the first place to the second.
    is_damaged: bool,
    gaps: BTreeMap<Position, Position>,
    /// The first block was found behind damage.
    begins_behind_damage: bool,
}

fn segment_path(prefix: &Path, number: u32) -> PathBuf {
    let mut name = prefix
        .file_name()
        .expect("a prefix names files")
        .to_os_string();
    name.push(format!(".{number:08}"));
    prefix.with_file_name(name)
}

fn to_error(path: &Path, error: std::io::Error) -> Error {
    trace_warn!("DiskQueueError", "file" => path.display(), "error" => error);
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::disk_full,
        _ => Error::io_error,
    }
}

/// The code of damage found in a file. Emits an event that names the place.
fn damage(path: &Path, offset: u32, what: &str) -> Error {
    trace_warn!("DiskQueueCorrupt", "file" => path.display(), "offset" => offset, "what" => what);
    Error::file_corrupt
}

impl DiskQueue {
    /// Makes a new queue. Nothing of that name may exist.
    pub async fn create(prefix: &Path, id: Uid) -> Result<Self> {
        let file = make_segment(prefix.to_path_buf(), id, 0, None, false)
            .await
            .map_err(|e| to_error(prefix, e))?;
        let mut queue = DiskQueue {
            prefix: prefix.to_path_buf(),
            id,
            segments: BTreeMap::from([(0, file)]),
            end: Position::start_of(0),
            last: None,
            next: None,
            spare: VecDeque::new(),
            is_damaged: false,
            gaps: BTreeMap::new(),
            begins_behind_damage: false,
        };
        queue.prepare_next();
        Ok(queue)
    }

    /// Opens a queue and shows every block that is on disk, oldest first. `None` if not even the header of the first
    /// segment is whole: then the queue was never used.
    pub async fn open(
        prefix: &Path,
        id: Uid,
        visit: impl FnMut(Persisted, Bytes) -> Result<()>,
    ) -> Result<Option<Self>> {
        Self::open_with(prefix, id, false, visit).await
    }

    /// Opens a queue that is damaged, and shows every block that can be read.
    pub async fn open_what_is_left(
        prefix: &Path,
        id: Uid,
        visit: impl FnMut(Persisted, Bytes) -> Result<()>,
    ) -> Result<Option<Self>> {
        Self::open_with(prefix, id, true, visit).await
    }

    async fn open_with(
        prefix: &Path,
        id: Uid,
        leaves_out_damage: bool,
        mut visit: impl FnMut(Persisted, Bytes) -> Result<()>,
    ) -> Result<Option<Self>> {
        let numbers = existing_segments(prefix)
            .await
            .map_err(|e| to_error(prefix, e))?;
        let mut queue = DiskQueue {
            prefix: prefix.to_path_buf(),
            id,
            segments: BTreeMap::new(),
            end: Position::default(),
            last: None,
            next: None,
            spare: VecDeque::new(),
            is_damaged: leaves_out_damage,
            gaps: BTreeMap::new(),
            begins_behind_damage: false,
        };
        let mut files = BTreeMap::new();
        for (i, &number) in numbers.iter().enumerate() {
            let is_newest = i + 1 == numbers.len();
            if let Some(file) = open_segment(prefix, id, number, is_newest).await? {
                files.insert(number, file);
            }
        }
        let oldest = oldest_in_use(prefix, id, &files).await?;
        for (number, OnDisk { file, size, synced }) in files {
            let path = segment_path(prefix, number);
            if number < oldest {
                probe!("disk_queue_finds_popped_segment");
                disk::remove(&path).await.map_err(|e| to_error(&path, e))?;
                continue;
            }
            let read = file.read_at(0, size as usize).await;
            let bytes = read.map_err(|e| to_error(&path, e))?;
            let visit = |position, entries| visit(Persisted { position, synced }, entries);
            let end = queue.recover_segment(&path, number, &bytes, visit)?;
            let segment = Segment {
                file,
                preallocated: false,
                capacity_bytes: size,
                end,
            };
            queue.segments.insert(number, segment);
        }
        if queue.segments.is_empty() {
            return Ok(None);
        }
        let directory = prefix.parent().expect("a prefix lies in a directory");
        disk::sync_dir(directory)
            .await
            .map_err(|e| to_error(directory, e))?;
        queue.prepare_next();
        Ok(Some(queue))
    }

    /// Shows the blocks of a segment. Returns the end of the last one.
    fn recover_segment(
        &mut self,
        path: &Path,
        number: u32,
        bytes: &Bytes,
        mut visit: impl FnMut(Position, Bytes) -> Result<()>,
    ) -> Result<u32> {
        let mut position = Position::start_of(number);
        let (mut begun, mut is_behind_gap) = (false, false);
        loop {
            let Some((before, entries)) = block_at(bytes, self.id, position) else {
                let later = later_block(bytes, self.id, number, position.offset as usize);
                let Some(later) = later else {
                    break;
                };
                let error = damage(path, position.offset, "block");
                if !self.is_damaged {
                    return Err(error);
                }
                let next = Position {
                    offset: later as u32,
                    ..position
                };
                self.begins_behind_damage |= self.last.is_none();
                self.gaps.insert(position, next);
                (position, is_behind_gap) = (next, true);
                continue;
            };
            let follows = match self.last {
                _ if is_behind_gap => true,
                Some(last) => last.to_u64() == before,
                // Blocks before the first one were popped with their segments. If the segment named here is present,
                // it has lost a block.
                None => !self
                    .segments
                    .contains_key(&Position::from_u64(before).segment),
            };
            if !follows {
                let before = Position::from_u64(before);
                let missing = segment_path(&self.prefix, before.segment);
                let error = damage(&missing, before.offset, "a block is missing");
                if !self.is_damaged {
                    return Err(error);
                }
                self.begins_behind_damage |= self.last.is_none();
            }
            is_behind_gap = false;
            begun = true;
            self.last = Some(position);
            let next = position.offset + (BLOCK_HEADER_BYTES + entries.len()) as u32;
            visit(position, entries)?;
            position.offset = next;
        }
        if begun || self.segments.is_empty() {
            self.end = position;
        }
        Ok(position.offset)
    }

    /// Writes `block` and syncs. One at a time. After [`Error::disk_full`] the same block may be written again; after
    /// any other error the process has to end.
    pub async fn commit(&mut self, block: &FinishedBlock) -> Result<Persisted> {
        assert!(
            block.bytes() > 0 && block.bytes() < BLOCK_BYTES_MAX,
            "a block of {} bytes",
            block.bytes()
        );
        let whole = BLOCK_HEADER_BYTES + block.bytes();
        let fresh = u64::from(self.end.offset) == SEGMENT_HEADER_BYTES;
        let current = &self.segments[&self.end.segment];
        let full = u64::from(self.end.offset) + whole as u64 > current.capacity_bytes;
        let next_is_better =
            !current.preallocated && self.next.as_ref().is_some_and(Task::is_finished);
        if !fresh && (full || next_is_better) {
            self.rotate().await?;
        }
        let position = self.end;
        let segment = &self.segments[&position.segment];
        assert!(
            self.last.is_none_or(|last| last < position) && segment.end == position.offset,
            "a block at {position:?} follows {:?}, and its segment ends at {}",
            self.last,
            segment.end
        );
        let before = self.last.map_or(NO_BLOCK, Position::to_u64);
        let mut parts = Vec::with_capacity(1 + block.pieces.len());
        parts.push(block_header(self.id, position, before, block));
        parts.extend_from_slice(&block.pieces);
        let written = segment
            .file
            .write_and_sync(u64::from(position.offset), parts)
            .await;
        let synced =
            written.map_err(|e| to_error(&segment_path(&self.prefix, position.segment), e))?;
        self.end.offset += whole as u32;
        let segment = self.segments.get_mut(&position.segment);
        segment.expect("it was written to").end = self.end.offset;
        self.last = Some(position);
        Ok(Persisted { position, synced })
    }

    async fn rotate(&mut self) -> Result<()> {
        let number = self.end.segment + 1;
        let made = match self.next.take() {
            Some(task) => task.await,
            None => make_segment(self.prefix.clone(), self.id, number, None, false).await,
        };
        match made {
            Ok(segment) => {
                self.segments.insert(number, segment);
                self.end = Position::start_of(number);
                self.prepare_next();
                Ok(())
            }
            Err(error) => Err(to_error(&segment_path(&self.prefix, number), error)),
        }
    }

    /// Makes the next segment in the background: from a popped one if there is one, else zero-filled, so that
    /// syncs in it have no metadata to write.
    fn prepare_next(&mut self) {
        let number = self.end.segment + 1;
        if self.segments.contains_key(&number) {
            return; // found at recovery, and empty
        }
        let spare = self.spare.pop_front();
        if spare.is_some() {
            probe!("disk_queue_recycles_segment");
        }
        let making = make_segment(self.prefix.clone(), self.id, number, spare, true);
        self.next = Some(plinth_runtime::spawn("prepare segment", making));
    }

    /// Frees the segments before `position`, of which nothing is needed any more.
    pub async fn pop(&mut self, position: Position) {
        while let Some((&number, _)) = self.segments.first_key_value() {
            if number >= position.segment || number >= self.end.segment {
                return;
            }
            let segment = self.segments.remove(&number).expect("just seen");
            let path = segment_path(&self.prefix, number);
            let full_size = segment.capacity_bytes >= largest_segment();
            if segment.preallocated && full_size && self.spare.len() < SPARE_MAX {
                self.spare.push_back(path);
            } else if let Err(error) = disk::remove(&path).await {
                trace!("SegmentRemovalFailed", "file" => path.display(), "error" => error);
            }
        }
    }

    /// Reads a block back and verifies its checksum again. Returns its entries and the position of the next block, or
    /// `None` at the end of what is written.
    pub async fn read(&self, position: Position) -> Result<Option<(Bytes, Position)>> {
        let mut at = position;
        if let Some(found) = self.read_here(at).await? {
            return Ok(Some(found));
        }
        // The segment ends here: go on in the next one.
        at = Position::start_of(at.segment + 1);
        if at >= self.end {
            Ok(None)
        } else {
            self.read_here(at).await
        }
    }

    /// `None` only at the end of the segment's blocks. What cannot be read before that is damage.
    async fn read_here(&self, position: Position) -> Result<Option<(Bytes, Position)>> {
        let Some(segment) = self.segments.get(&position.segment) else {
            return Err(Error::file_not_found);
        };
        if position.offset >= segment.end {
            return Ok(None);
        }
        let position = *self.gaps.get(&position).unwrap_or(&position);
        let path = segment_path(&self.prefix, position.segment);
        let offset = u64::from(position.offset);
        let header = segment
            .file
            .read_at(offset, BLOCK_HEADER_BYTES)
            .await
            .map_err(|e| to_error(&path, e))?;
        let room = (segment.end - position.offset) as usize;
        let length = block_length(&header, position)
            .map(|entries| BLOCK_HEADER_BYTES + entries)
            .filter(|whole| *whole <= room)
            .ok_or_else(|| damage(&path, position.offset, "block header"))?;
        let whole = segment
            .file
            .read_at(offset, length)
            .await
            .map_err(|e| to_error(&path, e))?;
        let (_, entries) = check_block(&whole, self.id, position)
            .ok_or_else(|| damage(&path, position.offset, "block"))?;
        let next = Position {
            offset: position.offset + length as u32,
            ..position
        };
        Ok(Some((entries, next)))
    }

    /// True if what came before the first block that can be read is damaged.
    pub fn begins_behind_damage(&self) -> bool {
        self.begins_behind_damage
    }

    /// The number of the oldest segment present.
    pub fn first_segment(&self) -> u32 {
        let first = self.segments.first_key_value();
        first.map_or(self.end.segment, |(number, _)| *number)
    }

    /// Bytes that the segments take up on disk.
    pub fn bytes(&self) -> u64 {
        self.segments
            .values()
            .map(|segment| segment.capacity_bytes)
            .sum()
    }
}

/// The entries of a block, as slices of it. `None` if it is malformed.
pub fn entries(block: &Bytes) -> Option<Vec<Bytes>> {
    let mut rest = block.clone();
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let length = rest.try_get_u32_le().ok()? as usize;
        if length > rest.len() {
            return None;
        }
        entries.push(rest.split_to(length));
    }
    Some(entries)
}

async fn existing_segments(prefix: &Path) -> std::io::Result<Vec<u32>> {
    let directory = prefix.parent().expect("a prefix lies in a directory");
    let name = prefix
        .file_name()
        .expect("a prefix names files")
        .to_string_lossy()
        .into_owned();
    let numbers = disk::list_dir(directory).await?.into_iter();
    let mut numbers: Vec<u32> = numbers
        .filter_map(|file| file.strip_prefix(&name)?.strip_prefix('.')?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A segment that was found, and synced.
struct OnDisk {
    file: File,
    size: u64,
    synced: Synced,
}

/// The file of a segment and its size. `None` if its process ended while it was made, perhaps from an older segment.
/// Only the newest segment can be in that state; it is removed then. A segment with blocks in it had been made: if its
/// header says otherwise, a write was lost.
async fn open_segment(
    prefix: &Path,
    id: Uid,
    number: u32,
    is_newest: bool,
) -> Result<Option<OnDisk>> {
    let path = segment_path(prefix, number);
    let failed = |e| to_error(&path, e);
    let opened = disk::open(&path, OpenOptions::default()).await;
    let file = opened.map_err(failed)?;
    let size = file.size().await.map_err(failed)?;
    let head = file.read_at(0, SEGMENT_HEADER_BYTES as usize).await;
    let head = head.map_err(failed)?;
    if let Some(found) = other_format(&head) {
        trace_warn!("DiskQueueFormat", "file" => path.display(), "format" => found, "known" => FORMAT);
        return Err(Error::unsupported_format_version);
    }
    let header = parse_header(&head, id);
    if header.is_some_and(|(found, capacity)| found == number && capacity <= size) {
        // A killed process may have left its writes in the system's cache only. They must be on disk before they count
        // as durable.
        let synced = file.sync().await.map_err(failed)?;
        return Ok(Some(OnDisk { file, size, synced }));
    }
    let bytes = file.read_at(0, size as usize).await.map_err(failed)?;
    let first = SEGMENT_HEADER_BYTES as usize;
    if !is_newest || later_block(&bytes, id, number, first - 1).is_some() {
        return Err(match header {
            Some((found, _)) if found == number => {
                damage(&path, size as u32, "the file was cut short")
            }
            _ => damage(&path, 0, "segment header"),
        });
    }
    trace!("SegmentIgnored", "file" => path.display());
    disk::remove(&path).await.map_err(failed)?;
    Ok(None)
}

/// The number of the oldest segment in use. A power cut may bring back some of the segments that were popped. Each
/// segment's first block names the segment of the block before it. If that segment is not there, it was popped, and so
/// was everything below it.
async fn oldest_in_use(prefix: &Path, id: Uid, files: &BTreeMap<u32, OnDisk>) -> Result<u32> {
    for (&number, OnDisk { file, size, .. }) in files.iter().rev() {
        let first = Position::start_of(number);
        let offset = u64::from(first.offset);
        let read = async |length: usize| {
            let length = length.min(size.saturating_sub(offset) as usize);
            let read = file.read_at(offset, length).await;
            read.map_err(|e| to_error(&segment_path(prefix, number), e))
        };
        let header = read(BLOCK_HEADER_BYTES).await?;
        let Some(length) = block_length(&header, first) else {
            continue; // nothing was written here yet
        };
        // Segments are removed because of this block, so it must be whole.
        let whole = read(BLOCK_HEADER_BYTES + length).await?;
        let Some((before, _)) = check_block(&whole, id, first) else {
            continue;
        };
        if before == NO_BLOCK || !files.contains_key(&Position::from_u64(before).segment) {
            return Ok(number);
        }
    }
    Ok(0)
}

async fn make_segment(
    prefix: PathBuf,
    id: Uid,
    number: u32,
    spare: Option<PathBuf>,
    preallocate: bool,
) -> std::io::Result<Segment> {
    let path = segment_path(&prefix, number);
    let recycled = spare.is_some();
    let directory = path.parent().expect("a prefix lies in a directory");
    if let Some(spare) = spare {
        disk::rename(&spare, &path).await?;
        // Before its header changes: under its old name a segment must be either whole or gone.
        disk::sync_dir(directory).await?;
    }
    let file = disk::open(
        &path,
        OpenOptions {
            create: !recycled,
            ..Default::default()
        },
    )
    .await?;
    let capacity_bytes = if recycled {
        file.size().await?
    } else {
        segment_capacity(number)
    };
    if !recycled && preallocate {
        file.allocate(capacity_bytes).await?;
    } else if !recycled {
        file.truncate(capacity_bytes).await?;
    }
    file.write_and_sync(0, vec![segment_header(id, number, capacity_bytes)])
        .await?;
    disk::sync_dir(directory).await?;
    Ok(Segment {
        file,
        preallocated: recycled || preallocate,
        capacity_bytes,
        end: SEGMENT_HEADER_BYTES as u32,
    })
}

fn segment_header(id: Uid, number: u32, capacity_bytes: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(SEGMENT_HEADER_BYTES as usize);
    out.put_slice(MAGIC);
    out.put_u32_le(FORMAT);
    out.put_u128_le(id.0);
    out.put_u64_le(u64::from(number));
    out.put_u64_le(capacity_bytes);
    let crc = crc32c::crc32c(&out);
    out.put_u32_le(crc);
    out.resize(SEGMENT_HEADER_BYTES as usize, 0);
    out.freeze()
}

/// The format number of a whole header of another format. The header is laid out alike in all formats.
fn other_format(bytes: &[u8]) -> Option<u32> {
    let header = bytes.get(..SEGMENT_HEADER_BYTES as usize)?;
    let (signed, mut crc) = header.split_at(40);
    let is_whole = signed.starts_with(MAGIC) && crc32c::crc32c(signed) == crc.get_u32_le();
    let format = u32::from_le_bytes(signed[4..8].try_into().expect("four bytes"));
    (is_whole && format != FORMAT).then_some(format)
}

/// Number and capacity, if `bytes` begins with the header of a segment of queue `id`.
fn parse_header(bytes: &[u8], id: Uid) -> Option<(u32, u64)> {
    let header = bytes.get(..SEGMENT_HEADER_BYTES as usize)?;
    let mut fields = &header[24..];
    let (number, capacity) = (fields.get_u64_le() as u32, fields.get_u64_le());
    (header == &segment_header(id, number, capacity)[..]).then_some((number, capacity))
}

fn checksum<'a>(
    id: Uid,
    position: u64,
    before: u64,
    entries: impl Iterator<Item = &'a [u8]>,
) -> u32 {
    let seed = crc32c::crc32c(&id.to_bytes());
    let seed = crc32c::crc32c_append(seed, &position.to_le_bytes());
    let seed = crc32c::crc32c_append(seed, &before.to_le_bytes());
    entries.fold(seed, crc32c::crc32c_append)
}

fn block_header(id: Uid, position: Position, before: u64, block: &FinishedBlock) -> Bytes {
    let mut out = BytesMut::with_capacity(BLOCK_HEADER_BYTES);
    let pieces = block.pieces.iter().map(|piece| &piece[..]);
    out.put_u32_le(block.bytes() as u32);
    out.put_u32_le(checksum(id, position.to_u64(), before, pieces));
    out.put_u64_le(position.to_u64());
    out.put_u64_le(before);
    out.freeze()
}

/// Length of the entries, if `header` can be the header of the block at `position`.
fn block_length(header: &[u8], position: Position) -> Option<usize> {
    let header: &[u8; BLOCK_HEADER_BYTES] = header.first_chunk()?;
    let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
    let found = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
    (found == position.to_u64() && length > 0 && length < BLOCK_BYTES_MAX).then_some(length)
}

/// The position that a whole block names as the one before it, and its entries.
fn check_block(whole: &Bytes, id: Uid, position: Position) -> Option<(u64, Bytes)> {
    let length = block_length(whole, position)?;
    let end = BLOCK_HEADER_BYTES + length;
    if whole.len() < end {
        return None;
    }
    let entries = whole.slice(BLOCK_HEADER_BYTES..end);
    let expected = u32::from_le_bytes(whole[4..8].try_into().expect("four bytes"));
    let before = u64::from_le_bytes(whole[16..24].try_into().expect("eight bytes"));
    let whole = std::iter::once(&entries[..]);
    let is_intact = checksum(id, position.to_u64(), before, whole) == expected;
    is_intact.then_some((before, entries))
}

fn block_at(segment: &Bytes, id: Uid, position: Position) -> Option<(u64, Bytes)> {
    let offset = position.offset as usize;
    (offset <= segment.len())
        .then(|| check_block(&segment.slice(offset..), id, position))
        .flatten()
}

/// Finds a valid block behind an invalid one: this proves that the invalid one was durable.
fn later_block(segment: &Bytes, id: Uid, number: u32, after: usize) -> Option<usize> {
    let tail = segment.get(after + 1..)?;
    let number_bytes = number.to_le_bytes();
    // A block carries its own position: look for places that contain their own position.
    (0..tail.len().saturating_sub(BLOCK_HEADER_BYTES)).find_map(|i| {
        let offset = after + 1 + i;
        let says = &segment[offset + 8..offset + 16];
        if says[4..] != number_bytes || says[..4] != (offset as u32).to_le_bytes() {
            return None;
        }
        block_at(
            segment,
            id,
            Position {
                segment: number,
                offset: offset as u32,
            },
        )
        .map(|_| offset)
    })
}

#[cfg(test)]
mod tests;
