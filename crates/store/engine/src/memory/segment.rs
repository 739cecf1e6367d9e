//! Segments: the files of the memory engine's log, and reading them back.
//!
//! ```text
//! file    header | zeros | the header again at 4096 | records from 4128 on
//! header  magic u64 | format u32 | crc u32 | segment u64 | salt u64                          32 bytes
//! ```
//!
//! Sequences of [records](super::record) rise by one, across segments. Checksums are CRC32C over the salt and the
//! bytes, so that what a client put into a value cannot pass for a record. Every append is synced before the next
//! begins. So in the newest segment the last record may be torn, because it was never acknowledged. Anything else that
//! fails a check is damage: a bad record with another one behind it, or in a segment that has a successor. In the
//! former format the header was there once, and records began right behind it.

use super::record::{
    Block, Content, Directory, FORMAT, FORMER, ReadBlock, Record, RecordHeader, checksum,
    header_bytes, magic, operations,
};
use crate::failure::{damage, disk_failure};
use crate::parent_dir;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::{Error, Result};
use plinth_runtime::{Duration, buggify, disk, probe};
use std::path::{Path, PathBuf};

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"plinthME");
const FILE_HEADER_BYTES: usize = 32;
/// Offset of the second header: one bad sector does not take both.
const HEADER_AGAIN_AT: usize = 4096;
const READ_BYTES: usize = 4 << 20;

/// Offset of the first record.
pub(super) fn first_record_at(format: u32) -> u64 {
    match format {
        FORMER => FILE_HEADER_BYTES as u64,
        _ => (HEADER_AGAIN_AT + FILE_HEADER_BYTES) as u64,
    }
}

/// An open segment file.
#[derive(Clone)]
pub(super) struct Segment {
    pub number: u64,
    pub path: PathBuf,
    pub file: disk::File,
    pub salt: u64,
    pub format: u32,
    /// Where the next record goes.
    pub end: u64,
}

/// What opening a segment has found.
pub(super) enum Opened {
    Segment(Segment, Reader),
    /// Its process died while it made it.
    Unmade,
    /// Nothing of it can be read.
    Damaged,
}

/// `<prefix>.<number>.log`
pub(super) fn segment_path(prefix: &Path, number: u64) -> PathBuf {
    let mut name = prefix.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{number:012}.log"));
    prefix.with_file_name(name)
}

/// The numbers of the segments that are there, ascending.
pub(super) async fn list_segments(prefix: &Path) -> Result<Vec<u64>> {
    let dir = parent_dir(prefix);
    let base = format!(
        "{}.",
        prefix.file_name().unwrap_or_default().to_string_lossy()
    );
    let names = match disk::list_dir(dir).await {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(disk_failure(dir, "list directory", &error)),
    };
    let number = |name: &String| -> Option<u64> {
        name.strip_prefix(&base)?.strip_suffix(".log")?.parse().ok()
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

pub(super) fn file_header(format: u32, number: u64, salt: u64) -> Bytes {
    let mut header = BytesMut::with_capacity(FILE_HEADER_BYTES);
    header.put_u64_le(FILE_MAGIC);
    header.put_u32_le(format);
    header.put_u32_le(file_header_crc(format, number, salt));
    header.put_u64_le(number);
    header.put_u64_le(salt);
    header.freeze()
}

fn file_header_crc(format: u32, number: u64, salt: u64) -> u32 {
    let fields = [
        FILE_MAGIC.to_le_bytes(),
        u64::from(format).to_le_bytes(),
        number.to_le_bytes(),
    ];
    checksum(salt, &fields.concat())
}

/// Format and salt, if it is the whole header of this segment, in whatever format.
fn parse_file_header(mut bytes: &[u8], number: u64) -> Option<(u32, u64)> {
    let magic = bytes.try_get_u64_le().ok()?;
    let format = bytes.try_get_u32_le().ok()?;
    let crc = bytes.try_get_u32_le().ok()?;
    let stored_number = bytes.try_get_u64_le().ok()?;
    let salt = bytes.try_get_u64_le().ok()?;
    let is_valid = magic == FILE_MAGIC
        && stored_number == number
        && crc == file_header_crc(format, number, salt);
    is_valid.then_some((format, salt))
}

/// True if what a file begins with is at most headers of which not all are there: nothing was appended.
fn has_no_records(head: &[u8], size: u64) -> bool {
    let between = head.get(FILE_HEADER_BYTES..).unwrap_or_default();
    let between = &between[..between.len().min(HEADER_AGAIN_AT - FILE_HEADER_BYTES)];
    size <= first_record_at(FORMAT) && between.iter().all(|byte| *byte == 0)
}

impl Segment {
    /// Makes an empty segment, durably: its headers and its name are on disk when this returns.
    pub async fn create(prefix: &Path, number: u64) -> Result<Segment> {
        let path = segment_path(prefix, number);
        let salt = plinth_runtime::random::u64();
        let header = file_header(FORMAT, number, salt);
        let between = Bytes::from_static(&[0; HEADER_AGAIN_AT - FILE_HEADER_BYTES]);
        let options = disk::OpenOptions {
            create: true,
            truncate: true,
            exclusive: true,
            ..Default::default()
        };
        let made = async {
            let file = disk::open(&path, options).await?;
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(1000)))
                    .await;
            }
            file.write_and_sync(0, vec![header.clone(), between, header])
                .await?;
            disk::sync_dir(parent_dir(prefix)).await?;
            Ok(file)
        };
        let file = made
            .await
            .map_err(|error| disk_failure(&path, "create", &error))?;
        Ok(Segment {
            number,
            path,
            file,
            salt,
            format: FORMAT,
            end: first_record_at(FORMAT),
        })
    }

    /// Opens a segment for reading its records.
    pub async fn open(prefix: &Path, number: u64) -> Result<Opened> {
        let path = segment_path(prefix, number);
        let opened = async {
            let options = disk::OpenOptions {
                exclusive: true,
                ..Default::default()
            };
            let file = disk::open(&path, options).await?;
            let size = file.size().await?;
            let head = file.read_at(0, first_record_at(FORMAT) as usize).await?;
            Ok((file, size, head))
        };
        let (file, size, head) = opened
            .await
            .map_err(|error| disk_failure(&path, "open", &error))?;
        let first = parse_file_header(&head, number);
        let again = head.get(HEADER_AGAIN_AT..);
        let again = again.and_then(|head| parse_file_header(head, number));
        let again = again.filter(|(format, _)| *format != FORMER);
        let Some((format, salt)) = first.or(again) else {
            if has_no_records(&head, size) {
                return Ok(Opened::Unmade);
            }
            damage(&path, 0, Error::file_corrupt, "segment header");
            return Ok(Opened::Damaged);
        };
        if ![FORMER, FORMAT].contains(&format) {
            let what = format!("format {format} of the segment is of a newer version");
            return Err(damage(&path, 0, Error::file_corrupt, &what));
        }
        if first.is_none() {
            probe!("memory engine: the second header of a segment is read");
            damage(&path, 0, Error::file_corrupt, "first segment header");
        }
        let segment = Segment {
            number,
            path,
            file: file.clone(),
            salt,
            format,
            end: first_record_at(format),
        };
        let reader = Reader {
            file,
            size,
            at: 0,
            buffer: Bytes::new(),
        };
        Ok(Opened::Segment(segment, reader))
    }
}

/// What is at a place in a segment.
pub(super) enum Found {
    Nothing,
    /// A whole header, and no more can be told.
    Header,
    Record(Record),
}

/// Reads a file forwards, in large pieces.
pub(super) struct Reader {
    file: disk::File,
    pub size: u64,
    at: u64,
    buffer: Bytes,
}

impl Reader {
    /// `len` bytes at `offset`; `None` if the file ends before.
    async fn read(&mut self, path: &Path, offset: u64, len: usize) -> Result<Option<Bytes>> {
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > self.size)
        {
            return Ok(None);
        }
        let buffered =
            self.at <= offset && offset + len as u64 <= self.at + self.buffer.len() as u64;
        if !buffered {
            let piece = self.file.read_at(offset, len.max(READ_BYTES)).await;
            self.buffer = piece.map_err(|error| disk_failure(path, "read", &error))?;
            self.at = offset;
            if self.buffer.len() < len {
                return Err(damage(
                    path,
                    offset,
                    Error::file_corrupt,
                    "the file became shorter while it was read",
                ));
            }
        }
        let from = (offset - self.at) as usize;
        Ok(Some(self.buffer.slice(from..from + len)))
    }

    /// Bytes with this checksum, if they are there.
    async fn checked(
        &mut self,
        segment: &Segment,
        offset: u64,
        (len, crc): (u32, u32),
    ) -> Result<Option<Bytes>> {
        let bytes = self.read(&segment.path, offset, len as usize).await?;
        Ok(bytes.filter(|bytes| checksum(segment.salt, bytes) == crc))
    }

    /// What is at `offset`.
    pub async fn record(&mut self, segment: &Segment, offset: u64) -> Result<Found> {
        let head_len = header_bytes(segment.format);
        let Some(head) = self.read(&segment.path, offset, head_len).await? else {
            return Ok(Found::Nothing);
        };
        let header = RecordHeader::decode(segment.format, &head, segment.salt);
        let Some(header) = header.filter(|header| header.segment == segment.number) else {
            return Ok(Found::Nothing);
        };
        let at = offset + head_len as u64;
        let end = at + u64::from(header.directory_len) + u64::from(header.payload_len);
        match segment.format {
            FORMER => self.former_record(segment, header, at, end).await,
            _ => self.record_behind(segment, header, at, end).await,
        }
    }

    async fn former_record(
        &mut self,
        segment: &Segment,
        header: RecordHeader,
        at: u64,
        end: u64,
    ) -> Result<Found> {
        let payload = self.checked(segment, at, (header.payload_len, header.crc));
        let Some(batch) = payload.await?.and_then(operations) else {
            return Ok(Found::Header);
        };
        let block = ReadBlock {
            at,
            ranges: Vec::new(),
            content: Content::Operations(batch),
        };
        Ok(Found::Record(Record {
            header,
            end,
            since: header.sequence,
            recent: Vec::new(),
            own: None,
            blocks: vec![block],
        }))
    }

    /// The record behind a header.
    async fn record_behind(
        &mut self,
        segment: &Segment,
        header: RecordHeader,
        mut at: u64,
        end: u64,
    ) -> Result<Found> {
        let place = (header.directory_len, header.crc);
        let directory = self.checked(segment, at, place).await?;
        let directory = directory.and_then(|bytes| Directory::decode(bytes, header.payload_len));
        let Some(directory) = directory else {
            return Ok(Found::Header);
        };
        at += u64::from(header.directory_len);
        let own = (directory.own_len, directory.own_crc);
        let own_rows = self.checked(segment, at, own).await?;
        at += u64::from(directory.own_len);
        let mut blocks = Vec::with_capacity(directory.blocks.len());
        for block in directory.blocks {
            let len = u64::from(block.len);
            blocks.push(self.block(segment, at, block).await?);
            at += len;
        }
        Ok(Found::Record(Record {
            header,
            end,
            since: directory.since,
            recent: directory.recent,
            own: own_rows.and_then(operations),
            blocks,
        }))
    }

    async fn block(&mut self, segment: &Segment, at: u64, block: Block) -> Result<ReadBlock> {
        let bytes = self.checked(segment, at, (block.len, block.crc)).await?;
        let decode = |bytes| Content::decode(block.kind, bytes);
        Ok(ReadBlock {
            at,
            content: bytes.map_or(Content::Unreadable, decode),
            ranges: block.ranges,
        })
    }

    /// Cuts off what is behind the segment's end: an append that was torn.
    pub async fn cut_torn_tail(&mut self, segment: &Segment) -> Result<()> {
        probe!("memory engine: a torn tail is dropped");
        let cut = segment.file.truncate(segment.end).await;
        cut.map_err(|error| disk_failure(&segment.path, "cut torn tail", &error))?;
        self.size = segment.end;
        Ok(())
    }

    /// Where the first record begins at or behind `from`, as far as headers tell.
    pub async fn find(&mut self, segment: &Segment, mut from: u64) -> Result<Option<u64>> {
        let magic = magic(segment.format);
        while from + (header_bytes(segment.format) as u64) <= self.size {
            let len = (self.size - from).min(READ_BYTES as u64) as usize;
            let piece = self
                .read(&segment.path, from, len)
                .await?
                .expect("inside the file");
            for (at, _) in piece
                .windows(magic.len())
                .enumerate()
                .filter(|(_, window)| *window == magic)
            {
                let at = from + at as u64;
                if !matches!(self.record(segment, at).await?, Found::Nothing) {
                    return Ok(Some(at));
                }
            }
            from += (len + 1 - magic.len()) as u64;
        }
        Ok(None)
    }
}
