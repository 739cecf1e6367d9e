//! A log in an append stream of the store, for services of a cluster that has a database.
//!
//! ```text
//!   stream   … entry 41 | entry 42 part 1, part 2 | entry 43 …     at versionstamps, in the order of the commits
//!   rows     delos/<name>/record   a number of its own, as long as nobody has removed rows of the log
//!            delos/<name>/floor    position of the first entry that is kept, and where it is in the stream
//!            delos/<name>/sealed   whether the log takes no more
//! ```
//! Appends of different replicas never conflict: an entry has no number of its own. Each replica counts the entries
//! of the stream, which are the same for all. A trim writes the count down, in the transaction that removes entries.
//! Each append has a read conflict with the row `sealed`: no append commits behind a seal.
//!
//! The rows lie where any client of the database may clear them, and the entries do not. A log whose seal is gone
//! would be open again. So all rows are there from the beginning. Whatever is read, sealed or trimmed is so at a
//! version at which they are, no append is told whose entry was not counted at such a one, and no log is made or
//! opened where one of them is missing beside other parts. A log that finds one gone does nothing any more
//! ([`LogError::Cleared`]).
//!
//! A part is `appender u64 | number u64 | is last u8 | bytes`. An appender finds its own entries in the stream while
//! it counts. So it also learns what became of a commit whose outcome nobody told.
//!
//! Promises: those of [`SharedLog`]. A position is told when its entry is durable in the store.
//! What may never happen: two replicas that count differently; an entry twice because a commit was tried again.

mod count;
#[cfg(test)]
mod tests;

use crate::log::{LogError, LogPos, SharedLog, Tail};
use bytes::{BufMut, Bytes, BytesMut};
use count::Counted;
use plinth_client::{Database, Position, Stream, StreamOptions, Transaction};
use plinth_core::streams::ENTRY_BYTES_MAX as PART_BYTES_MAX;
use plinth_core::{Error, Version};
use plinth_runtime::sync::{Notify, OneshotSender, Permits, oneshot};
use plinth_runtime::{
    Boxed, Duration, Instant, Task, join_all, now, probe, random, sleep, spawn, trace_warn,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Longest entry: it is written in one transaction.
pub const STREAM_ENTRY_BYTES_MAX: usize = 9_000_000;
/// `appender | number | is last`.
const HEAD_LEN: usize = 17;
/// A transaction with so many bytes takes no more entries.
const BATCH_BYTES: usize = 1 << 20;
/// Parts in a transaction. The store allows more.
const BATCH_PARTS: usize = 500;
/// Transactions of one replica that are under way at the same time.
const APPENDERS: usize = 2;
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// For how long the version of the last commit is good enough to commit at. The store remembers five seconds.
const VERSION_KEPT: Duration = Duration::from_secs(1);

/// An entry that waits for its transaction.
struct Queued {
    number: u64,
    entry: Bytes,
}

impl Queued {
    fn parts(&self) -> usize {
        self.entry.len() / (PART_BYTES_MAX - HEAD_LEN) + 1
    }
}

#[derive(Default)]
struct Appends {
    queue: VecDeque<Queued>,
    next_number: u64,
    /// Entries that were not found in the stream yet, by their numbers.
    waiting: BTreeMap<u64, OneshotSender<Result<LogPos, LogError>>>,
}

struct Inner {
    database: Database,
    stream: Stream,
    rows: Rows,
    /// What the record's row says.
    record: Bytes,
    is_cleared: Cell<bool>,
    /// Names this life of the replica.
    appender: u64,
    appends: RefCell<Appends>,
    wake: Rc<Notify>,
    counted: RefCell<Counted>,
    /// One at a time reads the stream on.
    counting: Permits,
    /// A version at which the log was not sealed, and when that was heard.
    open_at: Cell<Option<(Version, Instant)>>,
}

/// See the module.
pub struct StreamLog {
    inner: Rc<Inner>,
    _appenders: Vec<Task<()>>,
}

/// What the row `sealed` says.
const OPEN: &[u8] = b"open";
const SEALED: &[u8] = b"sealed";

/// Keys of the rows.
struct Rows {
    record: Bytes,
    sealed: Bytes,
    floor: Bytes,
}

/// What the rows say at a version.
struct Said {
    record: Bytes,
    floor: Floor,
    is_sealed: bool,
}

impl Rows {
    fn new(name: &str) -> Rows {
        let row = |what| format!("delos/{name}/{what}").into();
        Rows {
            record: row("record"),
            sealed: row("sealed"),
            floor: row("floor"),
        }
    }

    fn all(&self) -> [&Bytes; 3] {
        [&self.record, &self.sealed, &self.floor]
    }

    /// Writes those of a new log.
    fn make(&self, transaction: &Transaction) {
        transaction.set(&self.record, random::u64().to_le_bytes());
        transaction.set(&self.sealed, OPEN);
        transaction.set(&self.floor, count::floor_row(1, Position::START));
    }

    /// `None` if one is missing.
    async fn read(&self, transaction: &Transaction) -> Result<Option<Said>, Error> {
        let reading = self.all().map(|row| transaction.get(row, true));
        let mut found = Vec::new();
        for row in join_all(reading).await {
            let Some(row) = row? else { return Ok(None) };
            found.push(row);
        }
        Ok(Some(Said {
            floor: count::parse_floor(&found[2])?,
            is_sealed: found[1] == SEALED,
            record: found.swap_remove(0),
        }))
    }
}

/// What there is of a log that is to be opened.
enum Found {
    /// It was made just now.
    Made,
    Whole(Stream, Bytes),
    /// Some of it.
    Part,
}

/// Looks for the log in the transaction, and makes it where nothing is.
async fn find(transaction: &Transaction, stream: &str, rows: &Rows) -> Result<Found, Error> {
    let found = transaction.open_stream(stream).await;
    let mut has_row = false;
    for row in rows.all() {
        has_row |= transaction.get(row, false).await?.is_some();
    }
    match (found, rows.read(transaction).await?) {
        (Ok(stream), Some(said)) => Ok(Found::Whole(stream, said.record)),
        (Err(Error::stream_not_found), None) if !has_row => {
            let options = StreamOptions::append().keep_all();
            transaction.create_stream(stream, &options).await?;
            rows.make(transaction);
            Ok(Found::Made)
        }
        (Ok(_) | Err(Error::stream_not_found), _) => Ok(Found::Part),
        (Err(error), _) => Err(error),
    }
}

impl StreamLog {
    /// Opens the log of this name, or makes it. The name may have no NUL, and at most 200 bytes.
    ///
    /// # Errors
    /// [`LogError::Cleared`] if only some of it is left; [`Error::invalid_stream`] for a bad name; the database cannot
    /// be read or written.
    pub fn open<'a>(
        database: &'a Database,
        name: &'a str,
    ) -> Boxed<'a, Result<StreamLog, LogError>> {
        Box::pin(async move {
            let (of_stream, rows) = (format!("delos/{name}"), Rows::new(name));
            let (stream, record) = loop {
                let finding = database.run(async |tr| find(&tr, &of_stream, &rows).await);
                match finding.await.map_err(LogError::Failed)? {
                    Found::Made => {}
                    Found::Whole(stream, record) => break (stream, record),
                    Found::Part => return Err(LogError::Cleared),
                }
            };
            let inner = Rc::new(Inner {
                database: database.clone(),
                stream,
                rows,
                record,
                is_cleared: Cell::new(false),
                appender: random::u64(),
                appends: RefCell::default(),
                wake: Rc::new(Notify::new()),
                counted: RefCell::new(Counted::new()),
                counting: Permits::new(1),
                open_at: Cell::new(None),
            });
            inner.begin_at_the_floor().await?;
            let appender = |_| spawn("stream log", inner.clone().append_for_ever());
            Ok(StreamLog {
                _appenders: (0..APPENDERS).map(appender).collect(),
                inner,
            })
        })
    }
}

/// What a transaction of appends came to.
enum Sent {
    At(Version),
    Sealed,
}

impl Inner {
    async fn begin_at_the_floor(&self) -> LogResult<()> {
        let reading = self.database.run(async |tr| self.read_rows(&tr).await);
        let said = reading.await.map_err(|error| self.failed(error))?;
        self.counted.borrow_mut().take_floor(said.floor);
        Ok(())
    }

    /// Fails if rows of the log are gone at the transaction's version.
    async fn read_rows(&self, transaction: &Transaction) -> Result<Said, Error> {
        let said = self.rows.read(transaction).await?;
        if let Some(said) = said.filter(|said| said.record == self.record) {
            return Ok(said);
        }
        if !self.is_cleared.replace(true) {
            let stream = String::from_utf8_lossy(self.stream.name()).into_owned();
            trace_warn!("DelosLogCleared", "stream" => stream);
        }
        Err(Error::stream_not_found)
    }

    fn check_that_it_is_whole(&self) -> LogResult<()> {
        match self.is_cleared.get() {
            true => Err(LogError::Cleared),
            false => Ok(()),
        }
    }

    fn failed(&self, error: Error) -> LogError {
        match self.is_cleared.get() {
            true => LogError::Cleared,
            false => LogError::Failed(error),
        }
    }

    async fn append_for_ever(self: Rc<Self>) {
        loop {
            let batch = self.take_batch();
            if batch.is_empty() {
                self.wake.notified().await;
                continue;
            }
            if !self.appends.borrow().queue.is_empty() {
                self.wake.notify_one();
            }
            self.append_batch(batch).await;
        }
    }

    fn take_batch(&self) -> Vec<Queued> {
        let mut appends = self.appends.borrow_mut();
        let (mut batch, mut bytes, mut parts) = (Vec::new(), 0, 0);
        while let Some(next) = appends.queue.front() {
            bytes += next.entry.len();
            parts += next.parts();
            if !batch.is_empty() && (bytes > BATCH_BYTES || parts > BATCH_PARTS) {
                break;
            }
            batch.extend(appends.queue.pop_front());
        }
        batch
    }

    /// Tries until each entry of the batch is in the stream, or never will be.
    async fn append_batch(&self, mut batch: Vec<Queued>) {
        while !batch.is_empty() {
            let gaps = self.counted.borrow().gaps;
            match self.send(&batch).await {
                Ok(Sent::At(version)) => {
                    // Who has sealed the log may have the same version, behind this commit.
                    self.open_at.set(Some((version - 1, now())));
                    self.count_through(Some(version)).await;
                    // All were found, unless others have removed them already.
                    return self.fail(batch, LogError::Unknown);
                }
                Ok(Sent::Sealed) => return self.fail(batch, LogError::Sealed),
                Err(Error::commit_unknown_result) => {
                    probe!("delos_append_unknown");
                    self.open_at.set(None);
                    // It is not under way any more, so it is found now or never.
                    self.count_through(None).await;
                    if self.counted.borrow().gaps > gaps || self.is_cleared.get() {
                        // It may have been among what was removed.
                        return self.fail(batch, LogError::Unknown);
                    }
                    let appends = self.appends.borrow();
                    batch.retain(|queued| appends.waiting.contains_key(&queued.number));
                }
                Err(error @ (Error::stream_not_found | Error::invalid_stream)) => {
                    return self.fail(batch, self.failed(error));
                }
                Err(error) => {
                    self.open_at.set(None);
                    if !matches!(error, Error::not_committed | Error::transaction_too_old) {
                        trace_warn!("DelosAppendFailed", "error" => error);
                        sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    }

    fn fail(&self, batch: Vec<Queued>, error: LogError) {
        let mut appends = self.appends.borrow_mut();
        for queued in batch {
            if let Some(reply) = appends.waiting.remove(&queued.number) {
                let _ = reply.send(Err(error)); // its proposer may wait no longer
            }
        }
    }

    async fn send(&self, batch: &[Queued]) -> Result<Sent, Error> {
        let transaction = self.database.create_transaction();
        let known = self.open_at.get();
        match known.filter(|(_, heard)| heard.elapsed() < VERSION_KEPT) {
            Some((version, _)) => transaction.set_read_version(version),
            None => {
                let said = self.read_rows(&transaction).await?;
                self.check_that_it_is_there(&transaction).await?;
                if said.is_sealed {
                    return Ok(Sent::Sealed);
                }
            }
        }
        transaction.add_read_conflict_key(&self.rows.record);
        transaction.add_read_conflict_key(&self.rows.sealed);
        for queued in batch {
            self.put(&transaction, queued)?;
        }
        transaction.commit().await?;
        Ok(Sent::At(transaction.get_committed_version()))
    }

    async fn check_that_it_is_there(&self, transaction: &Transaction) -> Result<(), Error> {
        let found = transaction.open_stream(self.stream.name()).await?;
        match found.id() == self.stream.id() {
            true => Ok(()),
            false => Err(Error::stream_not_found),
        }
    }

    fn put(&self, transaction: &Transaction, queued: &Queued) -> Result<(), Error> {
        let mut rest = queued.entry.clone();
        loop {
            let piece = rest.split_to(rest.len().min(PART_BYTES_MAX - HEAD_LEN));
            let mut part = BytesMut::with_capacity(HEAD_LEN + piece.len());
            part.put_u64_le(self.appender);
            part.put_u64_le(queued.number);
            part.put_u8(u8::from(rest.is_empty()));
            part.put_slice(&piece);
            self.stream.append_followed(transaction, part)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// One transaction on a log that is whole, tried again while that may help.
    async fn write(
        &self,
        mut body: impl AsyncFnMut(&Transaction, Said) -> Result<(), Error>,
    ) -> LogResult<()> {
        let written = self.database.run(async |transaction| {
            let said = self.read_rows(&transaction).await?;
            for row in self.rows.all() {
                transaction.add_read_conflict_key(row);
            }
            body(&transaction, said).await
        });
        written.await.map_err(|error| self.failed(error))
    }

    async fn count(&self) -> LogResult<()> {
        self.check_that_it_is_whole()?;
        let counted = self.count_once(None).await;
        counted.map_err(|error| self.failed(error))
    }
}

type LogResult<T> = Result<T, LogError>;

impl SharedLog for StreamLog {
    async fn append(&self, entry: Bytes) -> LogResult<LogPos> {
        if entry.len() > STREAM_ENTRY_BYTES_MAX {
            return Err(LogError::TooLong(entry.len()));
        }
        self.inner.check_that_it_is_whole()?;
        let receiver = {
            let mut appends = self.inner.appends.borrow_mut();
            let number = appends.next_number;
            appends.next_number += 1;
            let (sender, receiver) = oneshot();
            appends.waiting.insert(number, sender);
            appends.queue.push_back(Queued { number, entry });
            receiver
        };
        self.inner.wake.notify_one();
        receiver.await.unwrap_or(Err(LogError::Unknown))
    }

    async fn check_tail(&self) -> LogResult<Tail> {
        self.inner.count().await?;
        Ok(self.inner.counted.borrow().tail())
    }

    async fn read_next(&self, from: LogPos, bytes_max: usize) -> LogResult<Vec<(LogPos, Bytes)>> {
        let inner = &self.inner;
        inner.check_that_it_is_whole()?;
        if from >= inner.counted.borrow().next {
            inner.count().await?;
        }
        if let Some(entries) = inner.counted.borrow().recent(from, bytes_max)? {
            return Ok(entries);
        }
        inner.read_old(from, bytes_max).await
    }

    async fn prefix_trim(&self, before: LogPos) -> LogResult<()> {
        let inner = &self.inner;
        inner.check_that_it_is_whole()?;
        let Some((pos, at)) = inner.counted.borrow().mark_before(before) else {
            return Ok(());
        };
        let trimmed = inner.write(async |transaction, said| {
            if said.floor.0 >= pos {
                return Ok(()); // another replica was faster
            }
            transaction.set(&inner.rows.floor, count::floor_row(pos, at));
            inner.stream.trim(transaction, at).await
        });
        trimmed.await?;
        inner.counted.borrow_mut().forget_before(pos);
        Ok(())
    }

    async fn seal(&self) -> LogResult<Tail> {
        let inner = &self.inner;
        let sealed = inner.write(async |transaction, said| {
            if !said.is_sealed {
                transaction.set(&inner.rows.sealed, SEALED);
            }
            Ok(())
        });
        sealed.await?;
        self.check_tail().await
    }
}

/// The position that a row says, and where that is in the stream.
type Floor = (LogPos, Position);
