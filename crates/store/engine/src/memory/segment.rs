//! Segments: the files of the memory engine's log, and reading them back.
//!
//! ```text
//! file    magic u64 | format u32 | crc u32 | segment u64 | salt u64                          32 bytes, then records
//! record  magic u32 | payload length u32 | sequence u64 | segment u64 | oldest needed u64
//!         | payload crc u32 | header crc u32 | payload: packed mutations                     40 bytes + payload
//! ```
//!
//! Sequences rise by one from record to record, across segments. Checksums are CRC32C over the salt and the bytes, so
//! that what a client put into a value cannot pass for a record. Every append is synced before the next begins. So in
//! the newest segment the last record may be torn, because it was never acknowledged. Anything else that fails a check
//! is damage: a bad record with a whole one behind it, or in a segment that has a successor.

use crate::failure::{damage, disk_failure};
use crate::parent_dir;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::{Error, MutationBatch, Result};
use plinth_runtime::{Duration, Pace, buggify, disk, probe};
use std::path::{Path, PathBuf};

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"plinthME");
const FORMAT: u32 = 1;
pub(super) const FILE_HEADER_BYTES: usize = 32;
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"plmr");
const RECORD_HEADER_BYTES: usize = 40;
const READ_BYTES: usize = 4 << 20;

fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

/// Header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHeader {
    pub payload_len: u32,
    pub sequence: u64,
    pub segment: u64,
    /// With this record in place, replay may start at this segment.
    pub oldest_needed: u64,
    pub payload_crc: u32,
}

impl RecordHeader {
    pub fn encode(&self, salt: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(RECORD_HEADER_BYTES);
        out.put_u32_le(RECORD_MAGIC);
        out.put_u32_le(self.payload_len);
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.segment);
        out.put_u64_le(self.oldest_needed);
        out.put_u32_le(self.payload_crc);
        let crc = checksum(salt, &out);
        out.put_u32_le(crc);
        out.freeze()
    }

    fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        let (mut fields, mut crc) = bytes.split_at_checked(RECORD_HEADER_BYTES - 4)?;
        if fields[..4] != RECORD_MAGIC.to_le_bytes()
            || checksum(salt, fields) != crc.try_get_u32_le().ok()?
        {
            return None;
        }
        fields.advance(4);
        Some(RecordHeader {
            payload_len: fields.get_u32_le(),
            sequence: fields.get_u64_le(),
            segment: fields.get_u64_le(),
            oldest_needed: fields.get_u64_le(),
            payload_crc: fields.get_u32_le(),
        })
    }
}

/// Bytes whose checksum is computed between two checks of the clock.
const CHECKED_AT_ONCE: usize = 1 << 20;

/// The checksum of a payload in parts, computed in several turns of the loop if it is large.
pub(super) async fn payload_checksum(salt: u64, parts: &[Bytes]) -> u32 {
    let mut pace = Pace::new();
    let mut crc = checksum(salt, &[]);
    for piece in parts.iter().flat_map(|part| part.chunks(CHECKED_AT_ONCE)) {
        crc = crc32c::crc32c_append(crc, piece);
        pace.rest_if_over().await;
    }
    crc
}

/// An open segment file.
#[derive(Clone)]
pub(super) struct Segment {
    pub number: u64,
    pub path: PathBuf,
    pub file: disk::File,
    pub salt: u64,
    /// Where the next record goes.
    pub end: u64,
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

impl Segment {
    /// Makes an empty segment, durably: its header and its name are on disk when this returns.
    pub async fn create(prefix: &Path, number: u64) -> Result<Segment> {
        let path = segment_path(prefix, number);
        let salt = plinth_runtime::random::u64();
        let mut header = BytesMut::with_capacity(FILE_HEADER_BYTES);
        header.put_u64_le(FILE_MAGIC);
        header.put_u32_le(FORMAT);
        header.put_u32_le(file_header_crc(number, salt));
        header.put_u64_le(number);
        header.put_u64_le(salt);
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
            file.write_and_sync(0, vec![header.freeze()]).await?;
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
            end: FILE_HEADER_BYTES as u64,
        })
    }

    /// Opens a segment for reading its records. `None` if its process died while creating it.
    pub async fn open(prefix: &Path, number: u64) -> Result<Option<(Segment, Reader)>> {
        let path = segment_path(prefix, number);
        let opened = async {
            let options = disk::OpenOptions {
                exclusive: true,
                ..Default::default()
            };
            let file = disk::open(&path, options).await?;
            let size = file.size().await?;
            let head = file.read_at(0, FILE_HEADER_BYTES).await?;
            Ok((file, size, head))
        };
        let (file, size, head) = opened
            .await
            .map_err(|error| disk_failure(&path, "open", &error))?;
        let Some(salt) = parse_file_header(head, number) else {
            if size > FILE_HEADER_BYTES as u64 {
                return Err(damage(&path, 0, Error::file_corrupt, "segment header"));
            }
            return Ok(None);
        };
        let segment = Segment {
            number,
            path,
            file: file.clone(),
            salt,
            end: FILE_HEADER_BYTES as u64,
        };
        Ok(Some((
            segment,
            Reader {
                file,
                size,
                at: 0,
                buffer: Bytes::new(),
            },
        )))
    }
}

fn file_header_crc(number: u64, salt: u64) -> u32 {
    checksum(
        salt,
        &[
            FILE_MAGIC.to_le_bytes(),
            u64::from(FORMAT).to_le_bytes(),
            number.to_le_bytes(),
        ]
        .concat(),
    )
}

fn parse_file_header(mut bytes: Bytes, number: u64) -> Option<u64> {
    let magic = bytes.try_get_u64_le().ok()?;
    let format = bytes.try_get_u32_le().ok()?;
    let crc = bytes.try_get_u32_le().ok()?;
    let stored_number = bytes.try_get_u64_le().ok()?;
    let salt = bytes.try_get_u64_le().ok()?;
    let is_valid = magic == FILE_MAGIC
        && format == FORMAT
        && stored_number == number
        && crc == file_header_crc(number, salt);
    is_valid.then_some(salt)
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

    /// The record at `offset`, if it is whole.
    async fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<Option<(RecordHeader, Bytes)>> {
        let Some(head) = self
            .read(&segment.path, offset, RECORD_HEADER_BYTES)
            .await?
        else {
            return Ok(None);
        };
        let Some(header) = RecordHeader::decode(&head, segment.salt) else {
            return Ok(None);
        };
        if header.segment != segment.number {
            return Ok(None);
        }
        let payload_at = offset + RECORD_HEADER_BYTES as u64;
        let payload = self
            .read(&segment.path, payload_at, header.payload_len as usize)
            .await?;
        Ok(payload
            .filter(|p| checksum(segment.salt, p) == header.payload_crc)
            .map(|payload| (header, payload)))
    }

    /// The next record; moves the segment's end behind it. `None` at the end of the whole records.
    pub async fn next(
        &mut self,
        segment: &mut Segment,
    ) -> Result<Option<(RecordHeader, MutationBatch)>> {
        let offset = segment.end;
        let Some((header, payload)) = self.record(segment, offset).await? else {
            return Ok(None);
        };
        segment.end = offset + (RECORD_HEADER_BYTES + payload.len()) as u64;
        match MutationBatch::parse(payload) {
            Some(batch) => Ok(Some((header, batch))),
            None => Err(damage(
                &segment.path,
                offset,
                Error::file_corrupt,
                "record content",
            )),
        }
    }

    /// Called where the whole records of a segment end. If its file goes on, cuts the torn rest off; if the rest
    /// cannot be a torn append, reports the damage.
    pub async fn cut_torn_tail(&mut self, segment: &Segment, is_newest: bool) -> Result<()> {
        if segment.end == self.size {
            return Ok(());
        }
        if !is_newest || self.has_record_behind(segment).await? {
            return Err(damage(
                &segment.path,
                segment.end,
                Error::checksum_failed,
                "record",
            ));
        }
        probe!("memory engine: a torn tail is dropped");
        let cut = segment.file.truncate(segment.end).await;
        cut.map_err(|error| disk_failure(&segment.path, "cut torn tail", &error))
    }

    /// Looks for a whole record anywhere behind the segment's end.
    async fn has_record_behind(&mut self, segment: &Segment) -> Result<bool> {
        let magic = RECORD_MAGIC.to_le_bytes();
        let mut from = segment.end + 1;
        while from + (RECORD_HEADER_BYTES as u64) <= self.size {
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
                if self.record(segment, from + at as u64).await?.is_some() {
                    return Ok(true);
                }
            }
            from += (len + 1 - magic.len()) as u64;
        }
        Ok(false)
    }
}
