//! The journal: records that are durable in the order in which they were appended.
//!
//! A machine in durable mode appends what it is told to keep (CommitBackup), and acknowledges when the record is on
//! disk. Everything that is appended while one sync is under way travels in the next block: one write, one sync, one
//! checksum. When an idle journal gets a record, its write begins at once.
//!
//! A block is written when the one before it is durable. So a crash can tear the last block only, and no record of
//! that was said to be durable. A broken block with a whole one behind it is damage, and so is a gap between the
//! numbers of records, or a file that is missing: each block says from which record on everything is needed. (A
//! changed bit in the very last block is not noticed: it looks like a torn write.)
//!
//! The begin is cut off when its records are durable elsewhere: [`Journal::truncate_below`] wants the proof. A file
//! goes when a later block has said that it is not needed. Files go one after another from the oldest on, each
//! removal durable before the next, so a power cut cannot bring back one without its successors.

mod files;
pub(crate) mod format;

use crate::{Error, JOURNAL_WAITING_BYTES_MAX};
use bytes::Bytes;
use files::Files;
use format::Block;
use plinth_runtime::disk::Synced;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Task, planted, probe, spawn};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Longest record.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// A block takes no further record when it has so many bytes.
const BLOCK_BYTES: usize = 4 << 20;

/// The number of a record: the first one of a journal has 0, the next one 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Position(pub u64);

/// Proof that all records below a position are on disk. Only a sync that has returned makes one.
#[derive(Clone, Copy, Debug)]
pub struct Durable {
    pub below: Position,
    pub synced: Synced,
}

/// A handle; clones are the same journal. The last one that is dropped ends the writing.
#[derive(Clone)]
pub struct Journal {
    shared: Rc<Shared>,
    _writer: Rc<Task<()>>,
}

struct Shared {
    state: RefCell<State>,
    /// Wakes the writer.
    work: Notify,
    /// Wakes those who wait for it.
    done: Notify,
}

struct State {
    /// Appended, and in no block yet.
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    next: u64,
    durable: Durable,
    /// Records below this are not needed.
    needed: u64,
    /// Somebody waits, so a full disk is tried again.
    is_asked: bool,
    /// The end of the oldest file that can go, if there is one.
    oldest_end: Option<u64>,
    /// The last attempt has found no room.
    full: Option<Error>,
    /// Counts such attempts.
    fulls: u64,
    /// The end of all writing.
    failed: Option<Error>,
    bytes: u64,
}

impl State {
    fn has_work(&self) -> bool {
        let goes = self.oldest_end.is_some_and(|end| end <= self.needed);
        self.is_asked || self.full.is_none() && (!self.waiting.is_empty() || goes)
    }

    /// The block that comes next: what has gathered, within the limit.
    fn take_block(&mut self) -> Block {
        let mut bytes = 0;
        let mut fits = |record: &Bytes| {
            let fits = bytes == 0 || bytes + record.len() <= BLOCK_BYTES;
            bytes += format::record_bytes(record);
            fits
        };
        let first = self.next - self.waiting.len() as u64;
        // One block after the other: what comes next follows what is on disk.
        assert_eq!(
            Position(first),
            self.durable.below,
            "a block of the journal does not follow the one before"
        );
        let count = self.waiting.iter().take_while(|r| fits(r)).count();
        let rest = self.waiting.split_off(count);
        let records = std::mem::replace(&mut self.waiting, rest);
        let needed = self.needed;
        Block {
            first,
            needed,
            records,
        }
    }
}

impl Journal {
    /// Opens the journal whose files begin with the last name of `prefix`, or makes an empty one in that directory.
    /// Shows the records that are needed, oldest first; records that were cut off shortly before a crash may be among
    /// them. `id` tells the journal from others. An error of `visit` ends the opening.
    pub async fn open(
        prefix: &Path,
        id: u64,
        mut visit: impl FnMut(Position, Bytes) -> Result<(), Error>,
    ) -> Result<Journal, Error> {
        let found = Files::open(prefix, id, |position, record| {
            visit(Position(position), record)
        });
        let (files, found) = found.await?;
        let state = State {
            waiting: Vec::new(),
            waiting_bytes: 0,
            next: found.next,
            durable: Durable {
                below: Position(found.next),
                synced: found.synced,
            },
            needed: found.needed,
            is_asked: false,
            oldest_end: files.oldest_end(),
            full: None,
            fulls: 0,
            failed: None,
            bytes: files.bytes(),
        };
        let shared = Rc::new(Shared {
            state: RefCell::new(state),
            work: Notify::new(),
            done: Notify::new(),
        });
        let writer = spawn("farm journal", write(shared.clone(), files));
        Ok(Journal {
            shared,
            _writer: Rc::new(writer),
        })
    }

    /// Appends a record; its write begins soon. Errors: `Full` if too much waits for a full disk; `Refused` if too
    /// much waits for a slow one, or the record is too long; `Failed` if the disk has failed.
    pub fn append(&self, record: Bytes) -> Result<Position, Error> {
        let state = &mut *self.shared.state.borrow_mut();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        if record.len() > RECORD_BYTES_MAX {
            let bytes = record.len();
            return Err(Error::refused(format!("a record of {bytes} bytes")));
        }
        let waiting = state.waiting_bytes + record.len();
        if state.waiting_bytes > 0 && waiting > JOURNAL_WAITING_BYTES_MAX.get() {
            let behind = || Error::refused("the journal's disk is too far behind");
            return Err(state.full.clone().unwrap_or_else(behind));
        }
        state.waiting_bytes += record.len();
        state.waiting.push(record);
        state.next += 1;
        self.shared.work.notify_one();
        Ok(Position(state.next - 1))
    }

    /// Waits until the record at `position` is on disk. After `Full` it still waits to be written: ask again. Any
    /// other error is the end of the journal, and nobody knows whether the record is there.
    pub async fn durable(&self, position: Position) -> Result<Durable, Error> {
        let fulls = self.shared.state.borrow().fulls;
        loop {
            let done = self.shared.done.notified();
            {
                let state = &mut *self.shared.state.borrow_mut();
                if position >= Position(state.next) {
                    return Err(Error::refused("there is no such record yet"));
                }
                if position < state.durable.below {
                    return Ok(state.durable);
                }
                if let Some(failed) = &state.failed {
                    return Err(failed.clone());
                }
                match &state.full {
                    Some(full) if state.fulls != fulls => return Err(full.clone()),
                    _ => state.is_asked = true,
                }
                self.shared.work.notify_one();
            }
            done.await;
        }
    }

    /// Waits until everything that was appended is on disk; as [`durable`](Journal::durable).
    pub async fn sync(&self) -> Result<Durable, Error> {
        let last = self.end().0.checked_sub(1);
        match last {
            Some(last) => self.durable(Position(last)).await,
            None => Ok(self.shared.state.borrow().durable),
        }
    }

    /// Records below `position` are not needed any more, because what they say is durable elsewhere: `saved` is the
    /// proof of that (a backup's sync).
    pub fn truncate_below(&self, position: Position, _saved: Synced) {
        let state = &mut *self.shared.state.borrow_mut();
        assert!(
            position <= state.durable.below,
            "what is before {position:?} is cut off, and the disk has what is before {:?}",
            state.durable.below
        );
        state.needed = state.needed.max(position.0);
        if state.has_work() {
            self.shared.work.notify_one();
        }
    }

    /// The position that the next record gets.
    pub fn end(&self) -> Position {
        Position(self.shared.state.borrow().next)
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.shared.state.borrow().bytes
    }
}

/// The life of the writer.
async fn write(shared: Rc<Shared>, mut files: Files) {
    let mut refused: Option<Block> = None;
    loop {
        while !shared.state.borrow().has_work() {
            shared.work.notified().await;
        }
        let block = {
            let mut state = shared.state.borrow_mut();
            state.is_asked = false;
            refused.take().unwrap_or_else(|| state.take_block())
        };
        if planted!(
            "farm_journal_acks_before_sync",
            "the journal says that a record is durable when its write begins"
        ) {
            let mut state = shared.state.borrow_mut();
            state.durable = Durable {
                below: Position(block.end()),
                synced: Synced::pretended("farm_journal_acks_before_sync"),
            };
            shared.done.notify_all();
        }
        let written = files.write(&block).await;
        let state = &mut *shared.state.borrow_mut();
        shared.done.notify_all();
        match written {
            Ok(synced) => {
                let below = Position(block.end());
                state.durable = Durable { below, synced };
                let bytes = block.records.iter().map(Bytes::len).sum::<usize>();
                assert!(
                    bytes <= state.waiting_bytes,
                    "{bytes} bytes are on disk, of {}",
                    state.waiting_bytes
                );
                state.waiting_bytes -= bytes;
                state.full = None;
            }
            Err(full) if full.is_full() => {
                probe!("farm_journal_full");
                state.full = Some(full);
                state.fulls += 1;
                refused = Some(block);
            }
            Err(error) => {
                state.failed = Some(error);
                return;
            }
        }
        state.oldest_end = files.oldest_end();
        state.bytes = files.bytes();
    }
}
