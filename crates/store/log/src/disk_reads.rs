//! Reads of what a log server has on disk, served between two commits, in bounded pieces, whatever the size of the
//! blocks.

use crate::disk_queue::{DiskQueue, Position};
use crate::entries;
use crate::log_server::{Entry, LogServer, VersionEntry};
use bytes::Bytes;
use plinth_core::log_body::{self, LogBodyBuilder};
use plinth_core::{Error, Result, Tag, Version};
use plinth_protocol::log::{
    CopiedVersion, CopyTail, CopyTailReply, Peek, PeekReply, VersionedMessages,
};
use plinth_rpc::Responder;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A reply has at most this many bytes, and at most one version more.
pub const REPLY_BYTES_MAX: usize = 8 << 20;
/// A reader is answered after reading blocks of this many times the bytes that it asked for, even if it found little
/// there.
const READ_FACTOR: usize = 4;

pub(crate) enum DiskRead {
    Peek(Peek, Responder<Peek>),
    Copy(CopyTail, Responder<CopyTail>),
}

/// A block in which a reply ended: the next read is likely to go on there.
struct HalfRead {
    position: Position,
    block: Bytes,
    next: Position,
}

/// Reads that wait for the disk queue.
#[derive(Default)]
pub(crate) struct DiskReads {
    waiting: RefCell<Vec<DiskRead>>,
    half_read: Cell<Option<HalfRead>>,
}

impl DiskReads {
    pub fn push(&self, read: DiskRead) {
        self.waiting.borrow_mut().push(read);
    }

    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Forgets a half-read block before `position`: nothing before it exists any more.
    pub fn forget_before(&self, position: Position) {
        let kept = self.half_read.take();
        self.half_read
            .set(kept.filter(|half| half.position >= position));
    }

    /// Answers all that wait.
    pub async fn answer(&self, server: &RefCell<LogServer>, queue: &DiskQueue) {
        for read in self.waiting.take() {
            match read {
                DiskRead::Peek(peek, responder) => {
                    responder.send(self.peek(server, queue, &peek).await)
                }
                DiskRead::Copy(copy, responder) => {
                    responder.send(self.copy(server, queue, &copy).await)
                }
            }
        }
    }

    async fn peek(
        &self,
        server: &RefCell<LogServer>,
        queue: &DiskQueue,
        peek: &Peek,
    ) -> Result<PeekReply> {
        let most = (peek.bytes_max as usize).min(REPLY_BYTES_MAX);
        let (mut messages, mut bytes) = (Vec::new(), 0);
        let take = |entry: &VersionEntry| {
            let runs = runs_of(entry, peek.tag)?;
            let more: usize = runs.iter().map(Bytes::len).sum();
            if bytes > 0 && bytes + more > most {
                return Ok(false);
            }
            bytes += more;
            if !runs.is_empty() {
                messages.push(VersionedMessages {
                    version: entry.version,
                    runs,
                });
            }
            Ok(true)
        };
        let end = self.scan(server, queue, peek.begin, most, take).await?;
        let reply = server.borrow().empty_reply(peek.tag, end);
        Ok(PeekReply { messages, ..reply })
    }

    async fn copy(
        &self,
        server: &RefCell<LogServer>,
        queue: &DiskQueue,
        copy: &CopyTail,
    ) -> Result<CopyTailReply> {
        let most = (copy.bytes_max as usize).min(REPLY_BYTES_MAX);
        let wanted: BTreeSet<Tag> = copy.tags.iter().copied().collect();
        let (mut versions, mut bytes) = (Vec::new(), 0);
        let take = |entry: &VersionEntry| {
            if entry.version > copy.to {
                return Ok(false);
            }
            let body = part_of(entry, &wanted)?;
            if bytes > 0 && bytes + body.len() > most {
                return Ok(false);
            }
            bytes += body.len();
            if !body.is_empty() {
                let version = entry.version;
                versions.push(CopiedVersion { version, body });
            }
            Ok(true)
        };
        let end = self.scan(server, queue, copy.begin, most, take).await?;
        Ok(CopyTailReply { versions, end })
    }

    /// Shows the versions from `begin` on, oldest first, until `take` returns false or much was read for little.
    /// Returns the version before which all versions were shown.
    async fn scan(
        &self,
        server: &RefCell<LogServer>,
        queue: &DiskQueue,
        begin: Version,
        bytes_max: usize,
        mut take: impl FnMut(&VersionEntry) -> Result<bool>,
    ) -> Result<Version> {
        let until = server.borrow().readable_until(begin)?;
        let is_lost = |version: Version| until.is_some_and(|until| version >= until);
        let Some(mut position) = server.borrow().position_of(begin) else {
            return Ok(begin); // nothing is on disk yet
        };
        let (mut end, mut read) = (begin, 0);
        while let Some((block, next)) = self.read_block(queue, position).await? {
            let mut useful = false;
            for entry in entries::of(&block)? {
                let Entry::Version(entry) = entry else {
                    continue;
                };
                if entry.version < begin {
                    continue;
                }
                if is_lost(entry.version) {
                    return Ok(until.unwrap_or(end));
                }
                if !take(&entry)? {
                    let half = HalfRead {
                        position,
                        block,
                        next,
                    };
                    self.half_read.set(Some(half));
                    return Ok(entry.version);
                }
                useful = true;
                end = entry.version + 1;
            }
            if useful {
                read += block.len();
            }
            if read >= bytes_max.saturating_mul(READ_FACTOR) {
                return Ok(end);
            }
            position = next;
        }
        let all = end.max(server.borrow().durable().version() + 1);
        Ok(until.map_or(all, |until| until.min(all)))
    }

    async fn read_block(
        &self,
        queue: &DiskQueue,
        position: Position,
    ) -> Result<Option<(Bytes, Position)>> {
        let half = self.half_read.take();
        match half.filter(|half| half.position == position) {
            Some(half) => Ok(Some((half.block, half.next))),
            None => queue.read(position).await,
        }
    }
}

/// The mutations of the version for `tag`, run by run.
fn runs_of(entry: &VersionEntry, tag: Tag) -> Result<Vec<Bytes>> {
    let runs = log_body::parse(&entry.body).ok_or(Error::file_corrupt)?;
    let of_tag = runs.into_iter().filter(|run| run.tags.contains(&tag));
    Ok(of_tag.map(|run| run.packed).collect())
}

/// The mutations of the version for `tags`, as a body of its own. A run that several of them share is in it once.
fn part_of(entry: &VersionEntry, tags: &BTreeSet<Tag>) -> Result<Bytes> {
    let runs = log_body::parse(&entry.body).ok_or(Error::file_corrupt)?;
    let is_wanted = |tag: &&Tag| tags.contains(tag);
    if runs
        .iter()
        .all(|run| run.tags.iter().all(|tag| tags.contains(tag)))
    {
        return Ok(entry.body.clone());
    }
    let mut part = LogBodyBuilder::new();
    for run in runs {
        let wanted: Vec<Tag> = run.tags.iter().filter(is_wanted).copied().collect();
        part.push(&wanted, &run.packed);
    }
    Ok(part.finish())
}
