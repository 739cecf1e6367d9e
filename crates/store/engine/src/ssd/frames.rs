//! The file under the ssd engine's tree: every block has a checksum, and the header has two places.
//!
//! The tree checks its own checksums only when it repairs itself, so a bit that changes on disk would be read as data.
//! Here each block of 4096 bytes is stored as a frame, and a read of a frame with a wrong checksum fails. The tree's
//! header, the one block that it overwrites in place, alternates between two slots, so that a torn write of it leaves
//! the older one. Each slot holds the header twice, so that one bad sector does not lose it.
//!
//! ```text
//! 0      slot 0: header copy at 0, another at 2048         copy   magic u64 | format u32 | length u32
//! 4096   slot 1: the same                                         | sequence u64 | header | crc u32
//! 8192   frame of block 1 | frame of block 2 | …           frame  4096 bytes | crc u32 | written u32
//! ```
//!
//! A frame's checksum also covers its block's number: a block written to a wrong place does not pass. A frame of
//! zeros, trailer included, is a block that was never written. If the disk loses a write, the older frame in its place
//! is whole. It still does not pass while the engine lives, since [the checksums of written frames](written) are
//! remembered, also when the engine opens its file again. (A write that was lost before the engine was opened cannot
//! show here. The comparison of replicas shows it.)
//!
//! The tree's header says how many blocks it leads to. A header that reached the disk before the file's length did was
//! not durable, and the older header is taken. A file that is too short for both was cut.
//!
//! A disk without room is not an error here but a state, [`is_full`](Frames::is_full): from then on nothing reaches
//! the file. So the last committed state stays as it is there, and can be read, until the engine opens the file anew.
//! (An error would make the tree refuse reads as well.) The tree may still ask for what it has just written: blocks
//! that found no room stay in memory, as many as the commit in progress writes.

mod written;

use bytes::{Buf, BufMut};
use plinth_runtime::disk::{BlockingFile, Synced};
use redb::StorageBackend;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fmt, io};
use written::Written;

thread_local! {
    /// Set on a thread that carries out a commit: its waits for the disk say nothing about the waits of readers.
    static COMMITTING: Cell<bool> = const { Cell::new(false) };
    static COLD_READS_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Number of reads of this thread that had to wait for the disk.
#[inline]
pub(super) fn cold_reads_here() -> u64 {
    COLD_READS_HERE.get()
}

/// Runs a commit. Its reads do not count as [`cold`](Frames::cold_reads).
pub(super) fn as_commit<T>(commit: impl FnOnce() -> T) -> T {
    COMMITTING.set(true);
    let output = commit();
    COMMITTING.set(false);
    output
}

const BLOCK: usize = 4096;
const TRAILER: usize = 8;
const FRAME: usize = BLOCK + TRAILER;
const WRITTEN: u32 = u32::from_le_bytes(*b"plfr");

const SLOT: usize = 4096;
const COPY: usize = 2048;
const FRAMES_AT: u64 = 2 * SLOT as u64;
const MAGIC: u64 = u64::from_le_bytes(*b"plinthFR");
/// 2: there is a second tree, of rows that are kept twice. A version that does not know it would let it grow old.
const FORMAT: u32 = 2;
const FORMER: u32 = 1;
const COPY_HEAD: usize = 24;
const HEADER_MAX: usize = 1024;
const NO_DAMAGE: u64 = u64::MAX;

/// The operations on a file that the frames need.
pub(super) trait BlockFile: std::fmt::Debug + Send + Sync + 'static {
    /// What a sync gives: the proof that it happened.
    type Synced: std::fmt::Debug + Send;
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    fn sync(&self) -> io::Result<Self::Synced>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// Number of reads that had to wait for the disk.
    fn cold_reads(&self) -> u64 {
        0
    }
}

impl BlockFile for BlockingFile {
    type Synced = Synced;

    fn cold_reads(&self) -> u64 {
        self.cold_reads()
    }
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(offset, out)
    }
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(offset, data)
    }
    fn sync(&self) -> io::Result<Synced> {
        self.sync()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.len()
    }
}

#[derive(Debug)]
struct Header {
    bytes: Vec<u8>,
    sequence: u64,
    /// The slot that the next write must not touch.
    durable_slot: usize,
    /// The other slot has been written since the last sync.
    is_written: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Frames<F: BlockFile> {
    file: F,
    /// The last sync of the tree, until it is taken.
    synced: Mutex<Option<F::Synced>>,
    header: Mutex<Header>,
    /// The length as the tree sees it. While the disk is full the file may be shorter.
    len: AtomicU64,
    is_full: AtomicBool,
    /// Another tree has the file, and overwrites what this one leads to.
    is_left: AtomicBool,
    /// Blocks that were written while the disk was full.
    without_room: Mutex<BTreeMap<u64, Box<[u8]>>>,
    damaged_at: AtomicU64,
    written: Mutex<Written>,
    /// Blocks that were refused once. They are refused, also if they read well, until they are written again.
    refused: Mutex<BTreeSet<u64>>,
    cold_reads: AtomicU64,
}

fn poisoned<T>(_: T) -> io::Error {
    io::Error::other("poisoned")
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn frame_crc(block: u64, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block.to_le_bytes()), data)
}

/// Where the frame of `block` is; block 0 is the header and has none.
fn frame_at(block: u64) -> u64 {
    FRAMES_AT + (block - 1) * FRAME as u64
}

/// The block whose frame has this offset.
fn block_at(at: u64) -> u64 {
    at.saturating_sub(FRAMES_AT) / FRAME as u64 + 1
}

/// What a read has met: the frame at an offset of the file is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DamagedBlock {
    pub at: u64,
    pub what: &'static str,
}

impl fmt::Display for DamagedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what, self.at)
    }
}

impl std::error::Error for DamagedBlock {}

impl DamagedBlock {
    /// The one that an error of the tree is about.
    pub fn of(error: &io::Error) -> Option<DamagedBlock> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl<F: BlockFile> Frames<F> {
    /// Opens the file. `before` are the frames of a tree that has left it: what they have written must still be there.
    /// `refused` are the offsets of frames that were found damaged before.
    pub fn open(file: F, before: Option<&Self>, refused: &[u64]) -> io::Result<Arc<Self>> {
        let written = before.map(|before| before.written().map(|written| written.clone()));
        let physical_len = file.len()?;
        if physical_len > 0 {
            // What a killed process wrote can be read, but a power cut may still lose it. The header that is chosen
            // here must be on the disk before the other one is overwritten.
            file.sync()?;
        }
        let (header, len) = if physical_len == 0 {
            (
                Header {
                    bytes: Vec::new(),
                    sequence: 0,
                    durable_slot: 1,
                    is_written: false,
                },
                0,
            )
        } else {
            let blocks = physical_len.saturating_sub(FRAMES_AT) / FRAME as u64;
            let len = (blocks + 1) * BLOCK as u64;
            (read_header(&file, len)?, len)
        };
        Ok(Arc::new(Frames {
            file,
            synced: Mutex::default(),
            header: Mutex::new(header),
            len: AtomicU64::new(len),
            is_full: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            without_room: Mutex::default(),
            damaged_at: AtomicU64::new(NO_DAMAGE),
            written: Mutex::new(written.transpose()?.unwrap_or_default()),
            refused: Mutex::new(refused.iter().map(|at| block_at(*at)).collect()),
            cold_reads: AtomicU64::new(0),
        }))
    }

    /// The proof of the last sync of the tree since the last call. `None` if there was none, or the disk was full.
    pub fn take_synced(&self) -> io::Result<Option<F::Synced>> {
        Ok(self.synced.lock().map_err(poisoned)?.take())
    }

    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Refuses reads from now on, and lets no write reach the file: another tree opens it. A reader that still has
    /// this one would take blocks of the other for its own.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Number of reads by readers that found nothing in the page cache and had to wait for the disk.
    pub fn cold_reads(&self) -> u64 {
        self.cold_reads.load(Ordering::Relaxed)
    }

    /// Offset in the file at which a read met a wrong checksum.
    pub fn damaged_at(&self) -> Option<u64> {
        Some(self.damaged_at.load(Ordering::Acquire)).filter(|at| *at != NO_DAMAGE)
    }

    pub fn bytes_used(&self) -> u64 {
        let blocks = self.len.load(Ordering::Acquire) / BLOCK as u64;
        if blocks == 0 { 0 } else { frame_at(blocks) }
    }

    /// `Ok` on success and if the disk is full. A full disk is remembered.
    fn unless_full(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.is_full() || self.is_left.load(Ordering::Acquire) {
            return Ok(());
        }
        write().or_else(|error| {
            if !is_disk_full(&error) {
                return Err(error);
            }
            self.is_full.store(true, Ordering::Release);
            Ok(())
        })
    }

    fn write_header(&self, bytes: &[u8]) -> io::Result<()> {
        let mut header = self.header.lock().map_err(poisoned)?;
        header.sequence += 1;
        header.is_written = true;
        header.bytes = bytes.to_vec();
        let mut slot = vec![0; SLOT];
        for copy in slot.chunks_exact_mut(COPY) {
            encode_copy(copy, header.sequence, bytes);
        }
        let at = (1 - header.durable_slot) * SLOT;
        self.unless_full(|| self.file.write_all_at(at as u64, &slot))
    }

    fn write_blocks(&self, first: u64, data: &[u8]) -> io::Result<()> {
        let blocks = || (first..).zip(data.chunks_exact(BLOCK));
        let mut frames = Vec::with_capacity(data.len() / BLOCK * FRAME);
        let mut crcs = Vec::with_capacity(data.len() / BLOCK);
        for (block, data) in blocks() {
            let crc = frame_crc(block, data);
            crcs.push(crc);
            frames.put_slice(data);
            frames.put_u32_le(crc);
            frames.put_u32_le(WRITTEN);
        }
        // A read meanwhile may find either frame.
        self.written()?.forget(first, crcs.len());
        let mut refused = self.refused.lock().map_err(poisoned)?;
        if !refused.is_empty() {
            refused.retain(|block| !(first..first + crcs.len() as u64).contains(block));
        }
        drop(refused);
        self.unless_full(|| self.file.write_all_at(frame_at(first), &frames))?;
        if !self.is_full() {
            self.written()?.remember(first, &crcs);
        } else {
            let mut kept = self.without_room.lock().map_err(poisoned)?;
            kept.extend(blocks().map(|(block, data)| (block, data.into())));
        }
        Ok(())
    }

    fn written(&self) -> io::Result<std::sync::MutexGuard<'_, Written>> {
        self.written.lock().map_err(poisoned)
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.read_own(first, out);
        // Looked at after the read: what was read before it was left is its own.
        match self.is_left.load(Ordering::Acquire) {
            true => Err(io::Error::other("the file was opened anew")),
            false => read,
        }
    }

    fn read_own(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        if !self.is_full() {
            return self.read_blocks(first, out);
        }
        for (block, out) in (first..).zip(out.chunks_exact_mut(BLOCK)) {
            let kept = self.without_room.lock().map_err(poisoned)?;
            match kept.get(&block) {
                Some(data) => out.copy_from_slice(data),
                None => self.read_blocks(block, out)?,
            }
        }
        Ok(())
    }

    fn read_blocks(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        let count = out.len() / BLOCK;
        let of_these = first..first + count as u64;
        if let Some(block) = self
            .refused
            .lock()
            .map_err(poisoned)?
            .range(of_these)
            .next()
        {
            return Err(self.damage(*block, "it was damaged before"));
        }
        let expected = self.written()?.of(first, count);
        let mut frames = vec![0; count * FRAME];
        let cold_before = self.file.cold_reads();
        let read = self.file.read_exact_at(frame_at(first), &mut frames);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damage(first, "the file was cut short"),
            _ => error,
        })?;
        if self.file.cold_reads() != cold_before {
            COLD_READS_HERE.set(COLD_READS_HERE.get() + 1);
            let counts = u64::from(!COMMITTING.get());
            self.cold_reads.fetch_add(counts, Ordering::Relaxed);
        }
        for ((block, frame), (out, expected)) in (first..)
            .zip(frames.chunks_exact(FRAME))
            .zip(out.chunks_exact_mut(BLOCK).zip(expected))
        {
            let (data, mut trailer) = frame.split_at(BLOCK);
            let (crc, written) = (trailer.get_u32_le(), trailer.get_u32_le());
            let is_intact = match written {
                WRITTEN => crc == frame_crc(block, data),
                0 => crc == 0 && data.iter().all(|&byte| byte == 0),
                _ => false,
            };
            if !is_intact {
                return Err(self.damage(block, "block checksum"));
            }
            // The block may have been written again while it was read.
            if expected.is_some_and(|expected| expected != crc)
                && self.written()?.of(block, 1) == [expected]
            {
                return Err(self.damage(block, "the disk has lost a write"));
            }
            out.copy_from_slice(data);
        }
        Ok(())
    }

    fn damage(&self, block: u64, what: &'static str) -> io::Error {
        let at = frame_at(block);
        self.damaged_at.store(at, Ordering::Release);
        io::Error::new(io::ErrorKind::InvalidData, DamagedBlock { at, what })
    }
}

fn encode_copy(mut out: &mut [u8], sequence: u64, header: &[u8]) {
    let mut bytes = Vec::with_capacity(COPY_HEAD + header.len() + 4);
    bytes.put_u64_le(MAGIC);
    bytes.put_u32_le(FORMAT);
    bytes.put_u32_le(header.len() as u32);
    bytes.put_u64_le(sequence);
    bytes.put_slice(header);
    bytes.put_u32_le(crc32c::crc32c(&bytes));
    out.put_slice(&bytes);
}

fn decode_copy(copy: &[u8]) -> Option<(u64, &[u8])> {
    let mut head = copy;
    let (magic, format) = (head.get_u64_le(), head.get_u32_le());
    let (len, sequence) = (head.get_u32_le() as usize, head.get_u64_le());
    if magic != MAGIC || ![FORMER, FORMAT].contains(&format) || len > HEADER_MAX {
        return None;
    }
    let end = COPY_HEAD + len;
    let is_intact = copy[end..].get(..4)? == crc32c::crc32c(&copy[..end]).to_le_bytes();
    is_intact.then_some((sequence, &copy[COPY_HEAD..end]))
}

/// The newest header that is whole and leads to nothing beyond `len`.
fn read_header(file: &impl BlockFile, len: u64) -> io::Result<Header> {
    let mut slots = vec![0; 2 * SLOT];
    file.read_exact_at(0, &mut slots)?;
    let copies = slots.chunks_exact(COPY).enumerate();
    let whole: Vec<_> = copies
        .filter_map(|(at, copy)| Some((decode_copy(copy)?, at * COPY / SLOT)))
        .collect();
    let fits = |((_, header), _): &&((u64, &[u8]), usize)| tree_len(header) <= len;
    let Some(&((sequence, bytes), durable_slot)) = whole.iter().filter(fits).max() else {
        let what = match whole.is_empty() {
            true => "no valid header",
            false => "the file was cut short",
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    };
    Ok(Header {
        bytes: bytes.to_vec(),
        sequence,
        durable_slot,
        is_written: false,
    })
}

/// The length up to which there are pages, according to the tree's header. After a crash the tree itself trusts the
/// file's length, and fails on pages that are missing.
fn tree_len(header: &[u8]) -> u64 {
    // Magic 9, flags 1, padding 2; then the fields below, as the tree's format says.
    let Some(fields) = header.get(12..32) else {
        return 0; // a header that is being made
    };
    let field = |i: usize| {
        let bytes = fields[4 * i..4 * i + 4].try_into().expect("four bytes");
        u64::from(u32::from_le_bytes(bytes))
    };
    let (page, region_header, region_data) = (field(0), field(1), field(2));
    let (full_regions, trailing_data) = (field(3), field(4));
    let trailing = match trailing_data {
        0 => 0,
        pages => region_header + pages,
    };
    // These are 32-bit numbers: nothing overflows for a header with a valid checksum, and for any other this
    // saturates.
    let regions = full_regions.saturating_mul(region_header + region_data);
    page.saturating_mul(regions.saturating_add(trailing).saturating_add(1))
}

/// The tree reads and writes whole blocks, and the beginning of block 0.
fn check_alignment(offset: u64, len: usize) -> io::Result<u64> {
    let is_aligned = offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK) && offset > 0;
    if is_aligned {
        return Ok(offset / BLOCK as u64);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("access of {len} bytes at {offset}"),
    ))
}

/// The storage backend that the tree gets.
#[derive(Debug)]
pub(super) struct Backend<F: BlockFile>(pub Arc<Frames<F>>);

impl<F: BlockFile> StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset == 0 && out.len() <= HEADER_MAX {
            let header = self.0.header.lock().map_err(poisoned)?;
            let have = header.bytes.len().min(out.len());
            out[..have].copy_from_slice(&header.bytes[..have]);
            out[have..].fill(0);
            return Ok(());
        }
        self.0.read(check_alignment(offset, out.len())?, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len == 0 || !len.is_multiple_of(BLOCK as u64) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("length {len}"),
            ));
        }
        // Blocks beyond the new length have no known checksums, if they ever exist again.
        self.0.written()?.forget_from(len / BLOCK as u64);
        self.0
            .unless_full(|| self.0.file.set_len(frame_at(len / BLOCK as u64)))?;
        self.0.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        // Some file systems find out only now that there is no room.
        let mut synced = None;
        self.0.unless_full(|| {
            synced = Some(self.0.file.sync()?);
            Ok(())
        })?;
        *self.0.synced.lock().map_err(poisoned)? = synced;
        if self.0.is_full() {
            return Ok(());
        }
        let mut header = self.0.header.lock().map_err(poisoned)?;
        if std::mem::take(&mut header.is_written) {
            header.durable_slot = 1 - header.durable_slot;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset == 0 && data.len() <= HEADER_MAX {
            return self.0.write_header(data);
        }
        self.0
            .write_blocks(check_alignment(offset, data.len())?, data)
    }
}

/// Makes the headers of a file those of the former format.
#[cfg(test)]
pub(super) fn former_header(file: &mut [u8]) {
    for copy in file[..2 * SLOT].chunks_exact_mut(COPY) {
        let Some(len) = decode_copy(copy).map(|(_, header)| header.len()) else {
            continue;
        };
        copy[8..12].copy_from_slice(&FORMER.to_le_bytes());
        let end = COPY_HEAD + len;
        let crc = crc32c::crc32c(&copy[..end]);
        copy[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    }
}
