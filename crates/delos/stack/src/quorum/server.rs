//! A log server: keeps entries of any number of loglets on the disk of one process, and tells what it has.
//!
//! ```text
//!   AskTail, ReadEntries in memory ──────────────► answer
//!   Vote, Store, Fill, Promise, Accept, Finish, Trim ─► queue of the loglet ─► state ─► disk ─► answer
//!   ReadEntries on disk ─────────────────────────────┘
//! ```
//! Each loglet has a disk queue of its own, `loglet-<id>`, and a task that does one thing after the other there.
//!
//! It promises: what it has answered is on disk. A full disk makes requests wait; any other failure of the disk ends
//! the loglet here until the process starts again ([`LogServer::failed`]).
//! What may never happen: a vote, a seal, a promise or an entry that others rely on is forgotten. A directory that was
//! lost begins with another id, so that the log server counts as another one.

use crate::blocks::Blocks;
use crate::log::LogPos;
use crate::quorum::messages::{
    Accept, AskTail, BATCH_BYTES, ENTRIES_MAX, Entries, EntriesRead, Fill, Finish, Held, Pos,
    Promise, ReadEntries, Store, Trim, Vote, Voted,
};
use crate::quorum::state::{Kept, Record, parse};
use bytes::Bytes;
use plinth_core::{Error, Uid};
use plinth_log::disk_queue::{DiskQueue, FinishedBlock, Position};
use plinth_rpc::{Interface, Registration, Request, Responder, Transport};
use plinth_runtime::disk::{self, DirLock};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::{QueueReceiver, QueueSender, Watch, queue};
use plinth_runtime::{
    Boxed, Duration, Task, nobody_has_lied, probe, random, sleep, spawn, trace, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// More loglets than a log ever has at a time.
const LOGLETS_MAX: usize = 10_000;
/// A loglet whose disk is behind takes no more requests when so many bytes of entries wait.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The same for requests of any size.
const WAITING_MAX: usize = 10_000;
const DISK_FULL_PAUSE: Duration = Duration::from_millis(500);
const ID_FILE: &str = "log-server";
const LOGLET_PREFIX: &str = "loglet-";

/// What is asked of the task that has the disk.
enum Asked {
    Vote(Vote, Responder<Vote>),
    Store(Store, Responder<Store>),
    Fill(Fill, Responder<Fill>),
    Promise(Promise, Responder<Promise>),
    Accept(Accept, Responder<Accept>),
    Finish(Finish, Responder<Finish>),
    Trim(Trim, Responder<Trim>),
    Read(ReadEntries, Responder<ReadEntries>),
}

impl Asked {
    fn bytes(&self) -> usize {
        match self {
            Asked::Store(Store { entries, .. }, _) | Asked::Fill(Fill { entries, .. }, _) => {
                entries.0.iter().map(Bytes::len).sum()
            }
            _ => 0,
        }
    }
}

struct Loglet {
    /// What is on disk.
    kept: RefCell<Kept>,
    blocks: RefCell<Blocks>,
    committed: Cell<Pos>,
    failed: Cell<Option<Error>>,
    waiting_bytes: Cell<usize>,
}

impl Loglet {
    fn held(&self) -> Held {
        self.kept.borrow().held(self.committed.get())
    }

    fn learn_committed(&self, committed: Pos) {
        let end = self.kept.borrow().end;
        assert!(
            end.is_none_or(|end| committed <= end) || !nobody_has_lied(),
            "entries below {committed:?} are committed, and the loglet ends at {end:?}"
        );
        self.committed.set(self.committed.get().max(committed));
    }
}

/// Entries that are gathered for a reader.
struct Gathering {
    next: LogPos,
    limit: LogPos,
    entries: Vec<Bytes>,
    bytes: usize,
    bytes_max: usize,
}

impl Gathering {
    fn new(request: &ReadEntries, held: &Held) -> Gathering {
        let from = request.from;
        let limit = request.limit.max(held.committed).min(held.next);
        Gathering {
            next: from.0,
            limit: if from < held.trimmed_before {
                from.0
            } else {
                limit.0
            },
            entries: Vec::new(),
            bytes: 0,
            bytes_max: BATCH_BYTES.min(request.bytes_max as usize),
        }
    }

    fn wants_more(&self) -> bool {
        let is_full = self.bytes >= self.bytes_max || self.entries.len() == ENTRIES_MAX;
        self.next < self.limit && (self.entries.is_empty() || !is_full)
    }

    /// Takes from the block whose first entry is at `first`. False if it does not have the next one.
    fn take(&mut self, first: LogPos, block: &[Bytes]) -> bool {
        let before = self.next;
        let skipped = self.next.saturating_sub(first) as usize;
        for entry in block.iter().skip(skipped) {
            if !self.wants_more() {
                break;
            }
            self.bytes += entry.len();
            self.next += 1;
            self.entries.push(entry.clone());
        }
        self.next > before
    }

    /// Takes what is in memory. Returns the first block that is wanted and on disk only.
    fn take_recent(&mut self, blocks: &Blocks) -> Result<Option<(LogPos, Position)>, Error> {
        while self.wants_more() {
            let found = blocks.find(self.next).ok_or(Error::internal_error)?;
            match found.entries {
                Some(entries) if self.take(found.first, &entries) => {}
                Some(_) => return Err(Error::internal_error),
                None => return Ok(Some((found.first, found.place))),
            }
        }
        Ok(None)
    }

    fn into_reply(self, held: Held) -> EntriesRead {
        EntriesRead {
            held,
            entries: Entries(self.entries),
        }
    }
}

/// The task that has the disk of one loglet.
struct Keeper {
    loglet: Rc<Loglet>,
    prefix: PathBuf,
    id: Uid,
    /// Made with the first block.
    disk: Option<DiskQueue>,
    /// The sequencer that has a majority of the votes, as far as it was heard of.
    sequencer: Option<Uid>,
    /// Of the log server.
    failed: Watch<Option<Error>>,
    waits_for_disk: Rc<Cell<usize>>,
}

impl Keeper {
    async fn run(mut self, mut asked: QueueReceiver<Asked>) {
        while let Some(next) = asked.recv().await {
            let waiting = &self.loglet.waiting_bytes;
            let (bytes, all) = (next.bytes(), waiting.get());
            assert!(bytes <= all, "{bytes} bytes wait no more, of {all}");
            waiting.set(all - bytes);
            if let Err(error) = self.answer(next).await {
                trace_warn!("QuorumLogletFailed", "loglet" => self.id, "error" => error);
                self.loglet.failed.set(Some(error));
                if error != Error::file_corrupt {
                    self.failed.set(Some(error));
                }
                return; // and what waits is answered that its promise is broken
            }
        }
    }

    async fn answer(&mut self, asked: Asked) -> Result<(), Error> {
        let kept = self.loglet.kept.borrow().clone();
        match asked {
            Asked::Vote(request, to) => {
                let new = kept.vote(request.sequencer);
                let is_given = new.is_some();
                self.keep(new).await?;
                if is_given {
                    trace!("QuorumVoteGiven", "loglet" => self.id);
                }
                let sequencer = self.loglet.kept.borrow().vote;
                let held = self.loglet.held();
                to.ok(Voted { sequencer, held });
            }
            Asked::Store(request, to) => self.store(request, to).await?,
            Asked::Fill(request, to) => {
                self.add(request.first.0, request.entries).await?;
                let held = self.loglet.held();
                trace!("QuorumEntriesFilled", "loglet" => self.id, "from" => kept.next.0, "next" => held.next.0);
                to.ok(held);
            }
            Asked::Promise(request, to) => {
                self.keep(kept.promise(request.ballot)).await?;
                if !kept.is_sealed {
                    let next = self.loglet.kept.borrow().next.0;
                    trace!("QuorumServerSealed", "loglet" => self.id, "next" => next);
                }
                to.ok(self.promised());
            }
            Asked::Accept(request, to) => {
                let new = kept.accept(request.ballot, request.end);
                let is_accepted = new.is_some();
                self.keep(new).await?;
                if is_accepted {
                    trace!("QuorumEndAccepted", "loglet" => self.id, "end" => request.end.0);
                }
                to.ok(self.promised());
            }
            Asked::Finish(request, to) => match kept.finish(request.end) {
                Ok(new) => {
                    let is_news = new.is_some();
                    self.keep(new).await?;
                    if is_news {
                        trace!("QuorumEndKnown", "loglet" => self.id, "end" => request.end.0);
                    }
                    self.loglet.blocks.borrow_mut().forget();
                    to.ok(self.loglet.held());
                }
                Err(error) => {
                    assert!(!nobody_has_lied(), "the end moves to {:?}", request.end);
                    to.fail(error);
                }
            },
            Asked::Trim(request, to) => {
                self.trim(kept.trim(request.before)).await?;
                to.ok(self.loglet.held());
            }
            Asked::Read(request, to) => {
                let read = self.read(&request).await?;
                to.ok(read);
            }
        }
        Ok(())
    }

    fn promised(&self) -> crate::quorum::messages::Promised {
        let kept = self.loglet.kept.borrow();
        kept.promised(self.loglet.committed.get())
    }

    async fn store(&mut self, request: Store, to: Responder<Store>) -> Result<(), Error> {
        if self.sequencer.is_some_and(|id| id != request.sequencer) {
            assert!(!nobody_has_lied(), "two sequencers have a majority");
            to.fail(Error::operation_obsolete);
            return Ok(());
        }
        self.sequencer = Some(request.sequencer);
        self.loglet.learn_committed(request.committed);
        if !self.loglet.kept.borrow().is_sealed {
            self.add(request.first.0, request.entries).await?;
        }
        to.ok(self.loglet.held());
        Ok(())
    }

    /// Adds those of the entries that it does not have, if it has all before them.
    async fn add(&mut self, first: LogPos, Entries(mut entries): Entries) -> Result<(), Error> {
        let (next, known) = {
            let kept = self.loglet.kept.borrow();
            (kept.next.0, kept.new_entries(first, entries.len()))
        };
        let Some(known) = known else {
            return Ok(());
        };
        entries.drain(..known);
        let count = entries.len() as u64;
        let record = Record::Entries(next, entries);
        let place = self.write(&record.to_block()).await?;
        let Record::Entries(_, entries) = record else {
            unreachable!("just made")
        };
        let mut blocks = self.loglet.blocks.borrow_mut();
        blocks.add(next, place);
        let mut kept = self.loglet.kept.borrow_mut();
        assert_eq!(kept.next.0, next, "somebody else has added entries");
        kept.next = Pos(next + count);
        if kept.end.is_none() {
            blocks.remember(next, entries.into());
        }
        Ok(())
    }

    /// Makes a new state durable.
    async fn keep(&mut self, new: Option<Kept>) -> Result<(), Error> {
        if let Some(new) = new {
            let before = self.loglet.kept.borrow().clone();
            assert!(
                before.may_become(&new) && (before.vote == Uid::NONE || before.vote == new.vote),
                "loglet {} goes from {before:?} to {new:?}",
                self.id
            );
            self.write(&Record::State(new.clone()).to_block()).await?;
            *self.loglet.kept.borrow_mut() = new;
        }
        Ok(())
    }

    async fn trim(&mut self, new: Option<Kept>) -> Result<(), Error> {
        let Some(before) = new.as_ref().map(|new| new.trimmed_before.0) else {
            return Ok(());
        };
        // The state is behind all that is removed.
        self.keep(new).await?;
        let first_kept = self.loglet.blocks.borrow_mut().trim(before);
        if let (Some(place), Some(disk)) = (first_kept, &mut self.disk) {
            disk.pop(place).await;
        }
        Ok(())
    }

    async fn write(&mut self, block: &FinishedBlock) -> Result<Position, Error> {
        let mut waiting = None;
        loop {
            match self.try_to_write(block).await {
                // Nothing is lost, and nothing is answered. The others are a majority.
                Err(Error::disk_full) => {
                    probe!("quorum_server_waits_for_disk");
                    trace_warn!("QuorumDiskFull", "loglet" => self.id);
                    waiting.get_or_insert_with(|| Waiting::begin(&self.waits_for_disk));
                    sleep(DISK_FULL_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    async fn try_to_write(&mut self, block: &FinishedBlock) -> Result<Position, Error> {
        let disk = match &mut self.disk {
            Some(disk) => disk,
            none => none.insert(DiskQueue::create(&self.prefix, self.id).await?),
        };
        let persisted = disk.commit(block).await?;
        Ok(persisted.position())
    }

    async fn read(&self, request: &ReadEntries) -> Result<EntriesRead, Error> {
        let mut gathering = Gathering::new(request, &self.loglet.held());
        loop {
            let wanted = gathering.take_recent(&self.loglet.blocks.borrow())?;
            let Some((first, place)) = wanted else {
                return Ok(gathering.into_reply(self.loglet.held()));
            };
            let disk = self.disk.as_ref().ok_or(Error::internal_error)?;
            let read = disk.read(place).await?;
            match read.and_then(|(block, _)| parse(&block)) {
                Some(Record::Entries(at, entries)) if at == first => {
                    if !gathering.take(first, &entries) {
                        return Err(Error::file_corrupt);
                    }
                }
                _ => return Err(Error::file_corrupt),
            }
        }
    }
}

/// A loglet that waits for room on the disk.
struct Waiting(Rc<Cell<usize>>);

impl Waiting {
    fn begin(all: &Rc<Cell<usize>>) -> Waiting {
        all.set(all.get() + 1);
        Waiting(all.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

struct Opened {
    loglet: Rc<Loglet>,
    ask: QueueSender<Asked>,
    _keeping: Task<()>,
}

struct Server {
    directory: PathBuf,
    loglets: RefCell<BTreeMap<Uid, Opened>>,
    failed: Watch<Option<Error>>,
    /// Loglets that wait for room on the disk.
    waits_for_disk: Rc<Cell<usize>>,
}

impl Server {
    /// Lets the loglet's task answer, if it has room.
    fn ask<R: Request>(
        &self,
        loglet: Uid,
        make: impl FnOnce(Responder<R>) -> Asked,
        to: Responder<R>,
    ) {
        let mut loglets = self.loglets.borrow_mut();
        if !loglets.contains_key(&loglet) {
            if loglets.len() >= LOGLETS_MAX {
                return to.fail(Error::server_overloaded);
            }
            loglets.insert(loglet, self.start(loglet, None, Loglet::default()));
        }
        let opened = &loglets[&loglet];
        if let Some(error) = opened.loglet.failed.get() {
            return to.fail(error);
        }
        let waiting = &opened.loglet.waiting_bytes;
        if waiting.get() >= WAITING_BYTES_MAX || opened.ask.len() >= WAITING_MAX {
            return to.fail(Error::server_overloaded);
        }
        let asked = make(to);
        waiting.set(waiting.get() + asked.bytes());
        let _ = opened.ask.send(asked); // ended: the responder says so
    }

    fn start(&self, id: Uid, disk: Option<DiskQueue>, loglet: Loglet) -> Opened {
        let loglet = Rc::new(loglet);
        let (ask, asked) = queue();
        let keeper = Keeper {
            loglet: loglet.clone(),
            prefix: self.prefix(id),
            id,
            disk,
            sequencer: None,
            failed: self.failed.clone(),
            waits_for_disk: self.waits_for_disk.clone(),
        };
        Opened {
            loglet,
            ask,
            _keeping: spawn("quorum loglet", keeper.run(asked)),
        }
    }

    fn prefix(&self, loglet: Uid) -> PathBuf {
        self.directory.join(format!("{LOGLET_PREFIX}{loglet}"))
    }

    fn tail(&self, loglet: Uid) -> Result<Held, Error> {
        let loglets = self.loglets.borrow();
        let Some(opened) = loglets.get(&loglet) else {
            return Ok(Held::nothing());
        };
        let failed = opened.loglet.failed.get();
        failed.map_or_else(|| Ok(opened.loglet.held()), Err)
    }

    fn read(&self, request: ReadEntries, to: Responder<ReadEntries>) {
        let loglets = self.loglets.borrow();
        let Some(opened) = loglets.get(&request.loglet) else {
            return to.ok(EntriesRead {
                held: Held::nothing(),
                entries: Entries::default(),
            });
        };
        let held = opened.loglet.held();
        let mut gathering = Gathering::new(&request, &held);
        let wanted = gathering.take_recent(&opened.loglet.blocks.borrow());
        if matches!(wanted, Ok(None)) && opened.loglet.failed.get().is_none() {
            return to.ok(gathering.into_reply(held));
        }
        drop(loglets);
        self.ask(request.loglet, |to| Asked::Read(request, to), to);
    }

    /// Opens the loglets that are in the directory. A damaged one answers with its error.
    ///
    /// # Errors
    /// The disk fails.
    async fn open_all(&self) -> Result<(), Error> {
        let names = disk::list_dir(&self.directory).await.map_err(io_error)?;
        let ids = names.iter().filter_map(|name| loglet_of(name));
        for id in ids.collect::<BTreeSet<_>>() {
            let loglet = Loglet::default();
            let mut is_first = true;
            let prefix = self.prefix(id);
            let disk = DiskQueue::open(&prefix, id, |persisted, block| {
                let record = parse(&block).ok_or(Error::file_corrupt)?;
                let mut kept = loglet.kept.borrow_mut();
                kept.recover(&record, std::mem::replace(&mut is_first, false))?;
                if let Record::Entries(first, _) = record {
                    let mut blocks = loglet.blocks.borrow_mut();
                    blocks.add(first, persisted.position());
                }
                Ok(())
            });
            let disk = match disk.await {
                Err(Error::io_error) => return Err(Error::io_error),
                Err(error) => {
                    trace_warn!("QuorumLogletUnreadable", "loglet" => id, "error" => error);
                    loglet.failed.set(Some(error));
                    None
                }
                Ok(disk) => disk,
            };
            let opened = self.start(id, disk, loglet);
            self.loglets.borrow_mut().insert(id, opened);
        }
        Ok(())
    }
}

impl Default for Loglet {
    fn default() -> Loglet {
        Loglet {
            kept: RefCell::default(),
            blocks: RefCell::default(),
            committed: Cell::new(Pos(1)),
            failed: Cell::new(None),
            waiting_bytes: Cell::new(0),
        }
    }
}

fn loglet_of(file: &str) -> Option<Uid> {
    let (id, _segment) = file.strip_prefix(LOGLET_PREFIX)?.split_once('.')?;
    Uid::parse(id)
}

fn io_error(error: std::io::Error) -> Error {
    trace_warn!("QuorumDirectory", "error" => error);
    Error::io_error
}

/// The id of the log server with this directory. A new directory gets one.
///
/// # Errors
/// The directory cannot be used, or its id is gone although it has loglets.
async fn id_in(directory: &Path) -> Result<Uid, Error> {
    let path = directory.join(ID_FILE);
    if disk::exists(&path).await.map_err(io_error)? {
        // An interrupted write may be visible and not yet durable.
        disk::sync_dir(directory).await.map_err(io_error)?;
        let bytes = disk::read_file(&path).await.map_err(io_error)?;
        let text = std::str::from_utf8(&bytes).ok();
        return text.and_then(Uid::parse).ok_or(Error::file_corrupt);
    }
    let names = disk::list_dir(directory).await.map_err(io_error)?;
    if names.iter().any(|name| loglet_of(name).is_some()) {
        return Err(Error::file_corrupt);
    }
    let id = Uid(random::uid());
    let text = Bytes::from(id.to_string());
    let written = disk::write_file_durably(&path, text).await;
    written.map_err(io_error)?;
    Ok(id)
}

/// A log server that serves until it is dropped. See the module.
pub struct LogServer {
    interface: Interface,
    _registrations: [Registration; 9],
    server: Rc<Server>,
    _gauge: Gauge,
    _lock: DirLock,
}

impl LogServer {
    /// Serves what is in `directory`, which exists.
    ///
    /// # Errors
    /// Another process has the directory, or it cannot be read. [`Error::client_invalid_operation`] if the transport
    /// does not listen.
    pub fn open<'a>(
        transport: &'a Transport,
        directory: &'a Path,
    ) -> Boxed<'a, Result<LogServer, Error>> {
        Box::pin(async move {
            let address = transport.address();
            let address = address.ok_or(Error::client_invalid_operation)?;
            let lock = disk::lock_dir(directory).await;
            let lock = lock.map_err(|_| Error::lock_file_failure)?;
            let id = id_in(directory).await?;
            let server = Rc::new(Server {
                directory: directory.to_path_buf(),
                loglets: RefCell::default(),
                failed: Watch::default(),
                waits_for_disk: Rc::default(),
            });
            server.open_all().await?;
            Ok(LogServer {
                interface: Interface::new(address, id),
                _registrations: serve(transport, id, &server),
                _gauge: Gauge::of("quorum_requests", &server, |server: &Server| {
                    let loglets = server.loglets.borrow();
                    loglets.values().map(|opened| opened.ask.len()).sum()
                }),
                server,
                _lock: lock,
            })
        })
    }

    /// What a [`Config`](crate::quorum::messages::Config) names it by.
    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// How many loglets wait for room on the disk, now and later.
    pub fn waits_for_disk(&self) -> Rc<Cell<usize>> {
        self.server.waits_for_disk.clone()
    }

    /// Resolves when the disk fails. What it has of a loglet is not used any more then, and its process should start
    /// again.
    pub fn failed(&self) -> Boxed<'_, Error> {
        Box::pin(async move {
            let failed = &self.server.failed;
            failed.wait_until(Option::is_some).await;
            failed.get().unwrap_or(Error::io_error)
        })
    }
}

fn serve(transport: &Transport, id: Uid, server: &Rc<Server>) -> [Registration; 9] {
    macro_rules! queued {
        ($request:ident) => {{
            let server = server.clone();
            transport.serve::<$request>(id, move |request, to| {
                server.ask(request.loglet, |to| Asked::$request(request, to), to);
            })
        }};
    }
    let (asked, read) = (server.clone(), server.clone());
    [
        queued!(Vote),
        queued!(Store),
        queued!(Fill),
        queued!(Promise),
        queued!(Accept),
        queued!(Finish),
        queued!(Trim),
        transport.serve::<AskTail>(id, move |request, to| {
            to.send(asked.tail(request.loglet));
        }),
        transport.serve::<ReadEntries>(id, move |request, to| read.read(request, to)),
    ]
}
