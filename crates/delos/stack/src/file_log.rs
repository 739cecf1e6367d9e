//! A log in the files of one process, for services that are not replicated, and for tests.
//!
//! Entries that arrive while the disk is busy share the next write and its sync. The entries of the last blocks stay
//! in memory; older ones are read from the disk again.
//!
//! Promises: a position is given out when its entry is on disk. After a restart the log has the same entries at the
//! same positions, up to the last that was confirmed, and perhaps some that were not.
//! What may never happen: two entries with one position, or a gap.

use crate::blocks::{Blocks, head_and_entries};
use crate::entry::ENTRY_BYTES_MAX;
use crate::log::{LogError, LogPos, SharedLog, Tail};
use bytes::{Buf, BufMut, Bytes};
use plinth_core::{Error, Uid};
use plinth_log::disk_queue::{Block, DiskQueue, Position};
use plinth_runtime::sync::{Notify, OneshotSender, oneshot};
use plinth_runtime::{Boxed, Duration, Task, sleep, spawn, trace_warn};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

/// A block takes no more entries when it has so many bytes.
const BLOCK_BYTES: usize = 4 << 20;
/// How long a full disk is left alone.
const DISK_FULL_PAUSE: Duration = Duration::from_millis(500);
/// The first entry of a block: `kind: 1 | position of the first entry: 8`.
const KIND_ENTRIES: u8 = 0;
const KIND_SEAL: u8 = 1;

type Reply<T> = OneshotSender<Result<T, LogError>>;

/// What is asked of the task that has the disk.
enum Asked {
    Append(Bytes, Reply<LogPos>),
    Seal(Reply<Tail>),
    Read(Position, Reply<Vec<Bytes>>),
}

struct State {
    asked: VecDeque<Asked>,
    blocks: Blocks,
    next: LogPos,
    trimmed_before: LogPos,
    is_sealed: bool,
    failed: Option<Error>,
}

impl State {
    fn tail(&self) -> Tail {
        Tail {
            next: self.next,
            is_sealed: self.is_sealed,
        }
    }
}

/// See the module.
pub struct FileLog {
    state: Rc<RefCell<State>>,
    wake: Notify,
    _writing: Task<()>,
}

fn parse_block(block: &Bytes) -> Option<(u8, LogPos, Vec<Bytes>)> {
    let (mut head, entries) = head_and_entries(block)?;
    let kind = head.try_get_u8().ok()?;
    Some((kind, head.try_get_u64_le().ok()?, entries))
}

impl FileLog {
    /// Opens the log whose files begin with `prefix`, or makes one.
    ///
    /// # Errors
    /// The files cannot be read, are damaged, or belong to another log than `id`.
    pub fn open(prefix: &Path, id: Uid) -> Boxed<'_, Result<FileLog, Error>> {
        Box::pin(async move {
            let mut state = State {
                asked: VecDeque::new(),
                blocks: Blocks::default(),
                next: 1,
                trimmed_before: 1,
                is_sealed: false,
                failed: None,
            };
            let mut has_blocks = false;
            let found = DiskQueue::open(prefix, id, |persisted, block| {
                let (kind, first, entries) = parse_block(&block).ok_or(Error::file_corrupt)?;
                if !std::mem::replace(&mut has_blocks, true) {
                    (state.next, state.trimmed_before) = (first, first);
                }
                if first != state.next || state.is_sealed {
                    return Err(Error::file_corrupt);
                }
                match kind {
                    KIND_SEAL => state.is_sealed = true,
                    KIND_ENTRIES if !entries.is_empty() => {
                        state.next += entries.len() as u64;
                        state.blocks.add(first, persisted.position());
                        state.blocks.remember(first, entries.into());
                    }
                    _ => return Err(Error::file_corrupt),
                }
                Ok(())
            });
            let queue = match found.await? {
                Some(queue) => queue,
                None => DiskQueue::create(prefix, id).await?,
            };
            let (state, wake) = (Rc::new(RefCell::new(state)), Notify::new());
            let writer = Writer {
                state: state.clone(),
                queue,
            };
            let writing = spawn("file log", writer.run(wake.clone()));
            Ok(FileLog {
                state,
                wake,
                _writing: writing,
            })
        })
    }

    async fn ask<T>(&self, make: impl FnOnce(Reply<T>) -> Asked) -> Result<T, LogError> {
        if let Some(error) = self.state.borrow().failed {
            return Err(LogError::Failed(error));
        }
        let (sender, receiver) = oneshot();
        self.state.borrow_mut().asked.push_back(make(sender));
        self.wake.notify_one();
        receiver.await.unwrap_or(Err(LogError::Unknown))
    }
}

impl SharedLog for FileLog {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(LogError::TooLong(entry.len()));
        }
        self.ask(|reply| Asked::Append(entry, reply)).await
    }

    async fn check_tail(&self) -> Result<Tail, LogError> {
        Ok(self.state.borrow().tail())
    }

    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        loop {
            let next = from + read.len() as u64;
            let found = {
                let state = self.state.borrow();
                if from < state.trimmed_before {
                    return Err(LogError::Trimmed(state.trimmed_before));
                }
                if next >= state.next || (bytes >= bytes_max && !read.is_empty()) {
                    return Ok(read);
                }
                state.blocks.find(next)
            };
            let found = found.ok_or(LogError::Failed(Error::internal_error))?;
            let first = found.first;
            let entries = match found.entries {
                Some(entries) => entries,
                None => {
                    let asked = self.ask(|reply| Asked::Read(found.place, reply));
                    asked.await?.into()
                }
            };
            for entry in &entries[(next - first) as usize..] {
                if bytes >= bytes_max && !read.is_empty() {
                    break;
                }
                bytes += entry.len();
                read.push((from + read.len() as u64, entry.clone()));
            }
        }
    }

    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError> {
        let mut state = self.state.borrow_mut();
        let before = before.min(state.next);
        state.trimmed_before = state.trimmed_before.max(before);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    async fn seal(&self) -> Result<Tail, LogError> {
        self.ask(Asked::Seal).await
    }
}

/// The task that has the disk.
struct Writer {
    state: Rc<RefCell<State>>,
    queue: DiskQueue,
}

impl Writer {
    async fn run(mut self, wake: Notify) {
        loop {
            self.trim().await;
            let asked = self.state.borrow_mut().asked.pop_front();
            let done = match asked {
                Some(Asked::Append(entry, reply)) => self.append(entry, reply).await,
                Some(Asked::Seal(reply)) => self.seal(reply).await,
                Some(Asked::Read(at, reply)) => {
                    let _ = reply.send(self.read(at).await);
                    Ok(())
                }
                None => {
                    wake.notified().await;
                    Ok(())
                }
            };
            if let Err(error) = done {
                return self.fail(error);
            }
        }
    }

    /// What was asked gets no answer but that nobody knows.
    fn fail(&self, error: Error) {
        let mut state = self.state.borrow_mut();
        state.failed = Some(error);
        state.asked.clear();
    }

    async fn append(&mut self, entry: Bytes, reply: Reply<LogPos>) -> Result<(), Error> {
        if self.state.borrow().is_sealed {
            let _ = reply.send(Err(LogError::Sealed));
            return Ok(());
        }
        let (mut bytes, mut gathered, mut replies) = (entry.len(), vec![entry], vec![reply]);
        {
            let mut state = self.state.borrow_mut();
            while bytes < BLOCK_BYTES
                && let Some(Asked::Append(..)) = state.asked.front()
                && let Some(Asked::Append(entry, reply)) = state.asked.pop_front()
            {
                bytes += entry.len();
                gathered.push(entry);
                replies.push(reply);
            }
        }
        let first = self.state.borrow().next;
        let at = self.write(KIND_ENTRIES, first, &gathered).await?;
        let mut state = self.state.borrow_mut();
        assert!(
            state.next == first && !state.is_sealed,
            "entries from {first} on are on disk, and the log goes on at {} (sealed: {})",
            state.next,
            state.is_sealed
        );
        state.next += gathered.len() as u64;
        state.blocks.add(first, at);
        state.blocks.remember(first, gathered.into());
        drop(state);
        for (pos, reply) in (first..).zip(replies) {
            let _ = reply.send(Ok(pos));
        }
        Ok(())
    }

    async fn seal(&mut self, reply: Reply<Tail>) -> Result<(), Error> {
        let Tail { next, is_sealed } = self.state.borrow().tail();
        if !is_sealed {
            self.write(KIND_SEAL, next, &[]).await?;
            self.state.borrow_mut().is_sealed = true;
        }
        let _ = reply.send(Ok(self.state.borrow().tail()));
        Ok(())
    }

    async fn write(
        &mut self,
        kind: u8,
        first: LogPos,
        entries: &[Bytes],
    ) -> Result<Position, Error> {
        let mut block = Block::default();
        block.push(|out| {
            out.buffer().put_u8(kind);
            out.buffer().put_u64_le(first);
        });
        for entry in entries {
            block.push(|out| out.put_shared(entry));
        }
        let block = block.finish();
        loop {
            match self.queue.commit(&block).await {
                Ok(persisted) => return Ok(persisted.position()),
                // Nothing is lost, and nothing is confirmed: appends wait.
                Err(Error::disk_full) => {
                    trace_warn!("FileLogDiskFull");
                    sleep(DISK_FULL_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn read(&self, at: Position) -> Result<Vec<Bytes>, LogError> {
        let read = self.queue.read(at).await.map_err(LogError::Failed)?;
        let block = read.as_ref().and_then(|(block, _)| parse_block(block));
        let (_, _, entries) = block.ok_or(LogError::Failed(Error::file_corrupt))?;
        Ok(entries)
    }

    /// Frees what lies before the block with the first entry that is needed.
    async fn trim(&mut self) {
        let keep = {
            let mut state = self.state.borrow_mut();
            let before = state.trimmed_before;
            state.blocks.trim(before)
        };
        if let Some(keep) = keep {
            self.queue.pop(keep).await;
        }
    }
}
